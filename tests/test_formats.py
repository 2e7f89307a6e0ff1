"""The formats of other programs, read back by the programs' own libraries."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import delicate
from test_writers import GHOST, LONG, REPLY, UNHEARD, listened, said, transcript
from witness._version import install
from witness.bench import lines
from witness.errors import UsageError, WitnessError
from witness.formats import output_paths, reading, registry, writers
from witness.formats.registry import Format
from witness.schema import NO_SPEECH, SIDES, Speaker, Turn, Utterance, Word
from witness.work.folder import assign
from witness.work.manifest import Manifest

ANSWER = replace(said("SPEAKER_01", 572.5, "Sorry?", 1.0), track=1)
"""Said while the reply is."""
CALL = listened(LONG, REPLY, ANSWER, GHOST, UNHEARD)
NAMED = replace(
    CALL,
    speakers=(Speaker("SPEAKER_01", 60.0, 0.75, 'Zoë "Z" <O\'Neil> & Söhne'), CALL.speakers[1]),
)
SPEAKERS_ONLY = transcript(
    [Utterance(1.0, 3.0, "SPEAKER_01"), Utterance(3.0, 5.0, "SPEAKER_02")],
    [Turn(1.0, 3.5, "SPEAKER_01"), Turn(2.5, 5.0, "SPEAKER_02")],
)
"""Nobody listened for words; the turns overlap, the utterances do not."""


def written(form: str, given=NAMED) -> str:
    content = writers.render(given, Format(form))
    assert isinstance(content, str)
    return content


def corrected(given=CALL):
    """With a passage in the place of the reply's last word."""
    passage = Word(573.25, 574.25, " came on  time.", "SPEAKER_02")
    utterances = list(given.utterances)
    utterances[1] = replace(REPLY, end=574.25, words=(*REPLY.words[:2], passage))
    return replace(given, utterances=tuple(utterances))


# --- docx ---


def paragraphs(content: bytes) -> list[tuple[str, str]]:
    docx = pytest.importorskip("docx")
    document = docx.Document(io.BytesIO(content))
    return [(paragraph.style.name, paragraph.text) for paragraph in document.paragraphs]


def docx_of(given, pauses=None) -> bytes:
    pytest.importorskip("docx")
    content = writers.render(given.styled({"pauses": pauses}), Format.DOCX)
    assert isinstance(content, bytes)
    return content


def test_docx_has_a_style_for_each_kind_of_text():
    given = replace(NAMED, warnings=("the recording ends early",))
    assert paragraphs(docx_of(given)) == [
        ("Title", "my call"),
        ("Subtitle", reading.read(given, labels=True).summary),
        ("Transcript Warning", "the recording ends early"),
        ("Transcript Speaker", 'Zoë "Z" <O\'Neil> & Söhne [00:00:01]'),
        ("Transcript Text", LONG.text),
        ("Transcript Speaker", "Speaker 2 [00:09:32]"),
        ("Transcript Text", "It never came."),
        ("Transcript Speaker", 'Zoë "Z" <O\'Neil> & Söhne [00:09:32]'),
        ("Transcript Text", "Sorry?"),
        ("Transcript Speaker", 'Zoë "Z" <O\'Neil> & Söhne [00:10:00]'),
        ("Transcript Text", "[inaudible]"),
    ]
    assert reading.read(given).summary == ('01:02:05 long, Zoë "Z" <O\'Neil> & Söhne 75%, SPEAKER_02 25%')


def test_docx_marks_the_time_and_pauses():
    docx = pytest.importorskip("docx")
    document = docx.Document(io.BytesIO(docx_of(listened(REPLY, said("SPEAKER_02", 580.0, "No.")), 2.0)))
    speaker = next(one for one in document.paragraphs if one.style.name == "Transcript Speaker")
    assert [(run.text, run.style.name) for run in speaker.runs] == [
        ("Speaker 2 ", "Default Paragraph Font"),
        ("[00:09:32]", "Transcript Time"),
    ]
    assert [one.text for one in document.paragraphs if one.style.name == "Transcript Pause"] == ["(6 s)"]


def test_docx_says_nothing_of_the_time_and_the_library_that_wrote_it(monkeypatch):
    content = docx_of(CALL)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert docx_of(CALL) == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        properties = archive.read("docProps/core.xml").decode()
    assert "my call" in properties
    assert "python-docx" not in properties
    assert "2013" not in properties


def test_docx_knows_the_language_and_its_direction():
    with zipfile.ZipFile(io.BytesIO(docx_of(replace(CALL, language="he")))) as archive:
        styles = archive.read("word/styles.xml").decode()
    assert 'w:val="he"' in styles
    assert styles.count("<w:bidi/>") == 2
    with zipfile.ZipFile(io.BytesIO(docx_of(CALL))) as archive:
        assert "<w:bidi/>" not in archive.read("word/styles.xml").decode()


def test_docx_without_its_library_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    for formats, to in ((["docx"], str(tmp_path)), ([], f"{tmp_path}/x.docx"), (["docx"], None)):
        with pytest.raises(WitnessError, match=re.escape(install("docx"))):
            output_paths.plan("call.wav", formats, to)


def test_docx_is_not_written_to_a_terminal(monkeypatch):
    pytest.importorskip("docx")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="with -o"):
        output_paths.plan("call.wav", ["docx"], None)
    assert output_paths.plan("call.wav", ["qda"], None) == (("qda", None),)


# --- text for people ---


def test_qda_has_the_speaker_on_a_line_and_the_time_on_the_next():
    assert written("qda", listened(REPLY, ANSWER, UNHEARD)) == (
        "SPEAKER_02\n[00:09:32] It never came.\n\n"
        "SPEAKER_01\n[00:09:32] Sorry?\n\n"
        "SPEAKER_01\n[00:10:00] [inaudible]\n\n"
    )
    later = said("SPEAKER_02", 580.0, "No.")
    assert "\n\n(6 s)\n\nSPEAKER_02\n" in written("qda", listened(REPLY, later).styled({"pauses": 2.0}))
    assert written("qda", SPEAKERS_ONLY).startswith("SPEAKER_01\n[00:00:01]\n\n")


def test_audacity_labels():
    assert written("audacity", listened(REPLY, ANSWER)) == (
        "572.250000\t573.750000\tSPEAKER_02: It never came.\n572.500000\t573.500000\tSPEAKER_01: Sorry?\n"
    )
    tabbed = Utterance(1, 2, "A", (Word(1, 2, " a\tb\nc", "A"),))
    assert written("audacity", listened(tabbed)) == "1.000000\t2.000000\tA: a b c\n"
    assert written("audacity", SPEAKERS_ONLY).startswith("1.000000\t3.000000\tSPEAKER_01\n")


def test_podcast():
    document = json.loads(written("podcast"))
    assert document["version"] == "1.0.0"
    assert document["segments"][1] == {
        "speaker": "SPEAKER_02",
        "startTime": 572.25,
        "endTime": 573.75,
        "body": "It never came.",
    }
    assert [len(one["body"]) > 0 for one in document["segments"]] == [True] * 4


def test_txt_and_qda_begin_with_what_of_the_recording_was_not_used():
    early = f"{CALL.audio.path}: ends early (at 2.4, within a packet); the sound up to there was used"
    other = "2 words where no speech was heard are only in the JSON and the page"
    sides = f"{CALL.audio.path}: {SIDES}"
    warned = replace(CALL, warnings=("no gpu", sides, early, other), machine=("no gpu",))
    assert warned.doubts == (early, other)
    assert written("txt", warned) == f"[{early}]\n" + written("txt", CALL)
    assert written("qda", warned) == f"[{early}]\n\n" + written("qda", CALL)
    silent = replace(CALL, utterances=(), words=(), warnings=(NO_SPEECH,))
    assert written("txt", silent) == f"[{NO_SPEECH}]\n"


# --- tiers ---


def test_eaf_has_a_tier_for_each_speaker_and_keeps_overlap(tmp_path):
    eaf = eaf_of(tmp_path, NAMED)
    first = 'Zoë "Z" <O\'Neil> & Söhne'
    assert list(eaf.get_tier_names()) == [first, "SPEAKER_02"]
    assert eaf.get_annotation_data_for_tier("SPEAKER_02") == [(572250, 573750, "It never came.")]
    assert eaf.get_annotation_data_for_tier(first)[1:] == [
        (572500, 573500, "Sorry?"),
        (600000, 604500, "[inaudible]"),
    ]
    assert eaf.tiers[first][2]["PARTICIPANT"] == first


def test_eaf_says_where_the_recording_is(tmp_path, monkeypatch):
    elan = pytest.importorskip("pympi.Elan")
    for folder in ("in", "out", "else"):
        (tmp_path / folder).mkdir()
    recording, place = tmp_path / "in" / "my call é.wav", tmp_path / "out" / "x.eaf"
    recording.touch()

    def media(path: str) -> list[str | None]:
        audio = replace(NAMED.audio, path=path)
        place.write_bytes(writers.content(replace(NAMED, audio=audio), Format.EAF, path=place))
        (found,) = elan.Eaf(str(place)).media_descriptors
        return [found["MEDIA_URL"], found["RELATIVE_MEDIA_URL"], found["MIME_TYPE"]]

    there = [recording.as_uri(), "../in/my%20call%20%C3%A9.wav", "audio/x-wav"]
    assert recording.as_uri().startswith("file:///")
    assert media(str(recording)) == there
    for folder in (tmp_path, tmp_path / "else"):  # it was named from a folder above the result
        monkeypatch.chdir(folder)
        assert media("in/my call é.wav") == there
    recording.rename(place.with_name(recording.name))  # beside the file
    below = place.with_name(recording.name).as_uri(), "./my%20call%20%C3%A9.wav"
    assert media("in/my call é.wav")[:2] == [*below]


def test_eaf_keeps_the_rules_of_the_schema(tmp_path):
    """Those of EAFv3.0.xsd for what Witness writes: the order, the attributes, the references.

    Where the schema itself is at hand, the next test asks it.
    """
    place = tmp_path / "x.eaf"
    root = ElementTree.fromstring(writers.content(NAMED, Format.EAF, path=place))  # noqa: S314 - our own
    rules = {  # element -> attributes that it must have, those that it may have, what may be in it
        "ANNOTATION_DOCUMENT": (
            "DATE AUTHOR VERSION",
            "FORMAT {http://www.w3.org/2001/XMLSchema-instance}noNamespaceSchemaLocation",
            "HEADER TIME_ORDER TIER LINGUISTIC_TYPE",
        ),
        "HEADER": ("", "MEDIA_FILE TIME_UNITS", "MEDIA_DESCRIPTOR PROPERTY"),
        "MEDIA_DESCRIPTOR": ("MEDIA_URL MIME_TYPE", "RELATIVE_MEDIA_URL TIME_ORIGIN", ""),
        "PROPERTY": ("", "NAME", ""),
        "TIME_ORDER": ("", "", "TIME_SLOT"),
        "TIME_SLOT": ("TIME_SLOT_ID", "TIME_VALUE", ""),
        "TIER": ("TIER_ID LINGUISTIC_TYPE_REF", "PARTICIPANT", "ANNOTATION"),
        "ANNOTATION": ("", "", "ALIGNABLE_ANNOTATION"),
        "ALIGNABLE_ANNOTATION": ("ANNOTATION_ID TIME_SLOT_REF1 TIME_SLOT_REF2", "", "ANNOTATION_VALUE"),
        "ANNOTATION_VALUE": ("", "", ""),
        "LINGUISTIC_TYPE": ("LINGUISTIC_TYPE_ID", "TIME_ALIGNABLE GRAPHIC_REFERENCES", ""),
    }
    for element in root.iter():
        must, may, inside = (set(names.split()) for names in rules[element.tag])
        assert must <= set(element.attrib) <= must | may, element.tag
        order = rules[element.tag][2].split()
        places = [order.index(child.tag) for child in element]
        assert places == sorted(places), element.tag
        assert {child.tag for child in element} <= inside
    slots = [one.attrib["TIME_SLOT_ID"] for one in root.iter("TIME_SLOT")]
    ids = slots + [one.attrib["ANNOTATION_ID"] for one in root.iter("ALIGNABLE_ANNOTATION")]
    assert len(set(ids)) == len(ids)  # xsd:ID
    assert all(re.fullmatch(r"[A-Za-z_][\w.-]*", one) for one in ids)
    used = {one.attrib[f"TIME_SLOT_REF{end}"] for one in root.iter("ALIGNABLE_ANNOTATION") for end in (1, 2)}
    assert used == set(slots)  # xsd:IDREF
    tiers = [one.attrib["TIER_ID"] for one in root.iter("TIER")]
    assert len(set(tiers)) == len(tiers)
    (kind,) = root.iter("LINGUISTIC_TYPE")
    assert {one.attrib["LINGUISTIC_TYPE_REF"] for one in root.iter("TIER")} == {
        kind.attrib["LINGUISTIC_TYPE_ID"]
    }


def test_eaf_is_valid_by_the_schema_of_elan(tmp_path):
    """EAFv3.0.xsd is not ours to ship; pympi-ling's source distribution has it in its folder test."""
    if (schema := os.environ.get("WITNESS_EAF_SCHEMA")) is None:
        pytest.skip("WITNESS_EAF_SCHEMA does not name a copy of EAFv3.0.xsd")
    etree = pytest.importorskip("lxml.etree")
    rules = etree.XMLSchema(etree.parse(schema))
    for given in (NAMED, SPEAKERS_ONLY, corrected(), transcript([], [])):
        place = tmp_path / "x.eaf"
        place.write_bytes(writers.content(given, Format.EAF, path=place))
        rules.assertValid(document := etree.parse(str(place)))
    document.getroot().find("HEADER").tag = "FOOTER"
    assert not rules.validate(document)


def eaf_of(tmp_path, given):
    elan = pytest.importorskip("pympi.Elan")
    (tmp_path / "x.eaf").write_text(written("eaf", given), encoding="utf-8")
    return elan.Eaf(str(tmp_path / "x.eaf"))


def test_turns_overlap_in_the_tiers_where_nobody_listened_for_words(tmp_path):
    eaf = eaf_of(tmp_path, SPEAKERS_ONLY)
    assert eaf.get_annotation_data_for_tier("SPEAKER_01") == [(1000, 3500, "SPEAKER_01")]
    assert eaf.get_annotation_data_for_tier("SPEAKER_02") == [(2500, 5000, "SPEAKER_02")]


def test_a_speaker_in_two_channels_at_once_has_two_tiers(tmp_path):
    both = listened(REPLY, replace(said("SPEAKER_02", 572.5, "Hello?", 1.0), track=1))
    eaf = eaf_of(tmp_path, both)
    assert list(eaf.get_tier_names()) == ["SPEAKER_02", "SPEAKER_02 (2)"]
    assert eaf.get_annotation_data_for_tier("SPEAKER_02 (2)") == [(572500, 573500, "Hello?")]


def test_xml_takes_whatever_is_said(tmp_path):
    odd = Utterance(1, 2, "A", (Word(1, 2, " a\x00b\x01]]>\udce9<&", "A"),))
    given = listened(odd, path=os.fsdecode(b"caf\xe9.wav"))
    eaf = eaf_of(tmp_path, given)
    assert eaf.get_annotation_data_for_tier("A") == [(1000, 2000, "a\ufffdb\ufffd]]>\ufffd<&")]
    assert paragraphs(docx_of(given))[-1][1] == "a\ufffdb\ufffd]]>\ufffd<&"


def grid_of(tmp_path, given):
    textgrid = pytest.importorskip("praatio.textgrid")
    (tmp_path / "x.TextGrid").write_text(written("textgrid", given), encoding="utf-8")
    return textgrid.openTextgrid(str(tmp_path / "x.TextGrid"), False, "error", "error")


def entries(grid, name) -> list[tuple[float, float, str]]:
    return [tuple(entry) for entry in grid.getTier(name).entries]


def test_textgrid_has_a_tier_of_lines_and_one_of_words_for_each_speaker(tmp_path):
    grid = grid_of(tmp_path, NAMED)
    first = 'Zoë "Z" <O\'Neil> & Söhne'
    assert grid.tierNames == (first, f"{first} - words", "SPEAKER_02", "SPEAKER_02 - words")
    assert (grid.minTimestamp, grid.maxTimestamp) == (0, 3725.5)
    assert '"Zoë ""Z"" <' in written("textgrid")  # praatio reads it either way, Praat does not
    assert entries(grid, "SPEAKER_02") == [(572.25, 573.75, "It never came.")]
    assert entries(grid, "SPEAKER_02 - words") == [
        (572.25, 572.75, "It"),
        (572.75, 573.25, "never"),
        (573.25, 573.75, "came."),
    ]
    assert entries(grid, first)[-1] == (600.0, 604.5, "[inaudible]")


def test_textgrid_of_words_that_take_no_time(tmp_path):
    words = (Word(1, 1, " a", "A"), Word(1, 1, " b", "A"), Word(1, 1.002, " c", "A"), Word(2, 2, " d", "A"))
    grid = grid_of(tmp_path, listened(Utterance(1, 2, "A", words)))
    assert entries(grid, "A - words") == [
        (1.0, 1.001, "a"),
        (1.001, 1.002, "b"),
        (1.002, 1.003, "c"),
        (2.0, 2.001, "d"),
    ]


def test_textgrid_without_speech_has_a_tier(tmp_path):
    assert grid_of(tmp_path, transcript()).tierNames == ("speech",)


# --- scorers ---


def scorer(tmp_path, form: str):
    """What meeteval reads of a file of that format."""
    io_of = pytest.importorskip("meeteval.io")
    path = Path(output_paths.name_of(tmp_path / "my call", form))
    path.write_text(written(form), encoding="utf-8")
    return io_of.load(path)


def test_ctm_reads_back(tmp_path):
    ctm = scorer(tmp_path, "ctm")
    assert {line.filename for line in ctm.lines} == {"my_call"}
    assert [(float(line.begin_time), line.word) for line in ctm.lines][-4:] == [
        (572.25, "It"),
        (572.5, "Sorry?"),
        (572.75, "never"),
        (573.25, "came."),
    ]


def test_stm_reads_back(tmp_path):
    stm = scorer(tmp_path, "stm")
    assert [(line.speaker_id, line.transcript) for line in stm.lines] == [
        ('Zoë_"Z"_<O\'Neil>_&_Söhne', LONG.text),
        ("SPEAKER_02", "It never came."),
        ('Zoë_"Z"_<O\'Neil>_&_Söhne', "Sorry?"),
    ]


def test_seglst_reads_back(tmp_path):
    pytest.importorskip("simplejson")  # with which meeteval reads it
    seglst = scorer(tmp_path, "seglst")
    assert dict(seglst.segments[1]) == {
        "session_id": "my call",
        "speaker": "SPEAKER_02",
        "start_time": 572.25,
        "end_time": 573.75,
        "words": "It never came.",
    }


def test_a_corrected_passage_is_several_words():
    last = written("ctm", corrected()).splitlines()[-3:]
    assert last == [
        "my_call 1 573.250 0.364 came",
        "my_call 1 573.614 0.181 on",
        "my_call 1 573.795 0.455 time.",
    ]
    assert "573.750 came on time." not in written("stm", corrected())
    assert "574.250 It never came on time." in written("stm", corrected())


@pytest.mark.parametrize("form", ["ctm", "stm", "seglst"])
def test_witness_scores_what_it_writes(tmp_path, form):
    path = Path(output_paths.name_of(tmp_path / "my call", form))
    path.write_text(written(form), encoding="utf-8")
    ((uri, found),) = lines.read(path).items()
    assert uri == "my call"
    texts = sorted(word for line in found.lines for word in line.text.split())
    assert texts == sorted([*LONG.text.split(), "It", "never", "came.", "Sorry?"])


def test_a_folder_with_every_format_can_be_scored(tmp_path):
    for form in ("json", "seglst", "whisperx", "openai", "podcast"):
        Path(output_paths.name_of(tmp_path / "my call", form)).write_text(written(form), encoding="utf-8")
    assert list(lines.read(tmp_path)) == ["my call"]


# --- programs ---


def test_whisperx():
    document = json.loads(written("whisperx", corrected(NAMED)))
    assert set(document) == {"segments", "word_segments", "language"}
    segment = document["segments"][1]
    assert {key: segment[key] for key in ("start", "end", "text", "speaker")} == {
        "start": 572.25,
        "end": 574.25,
        "text": "It never came on  time.",
        "speaker": "SPEAKER_02",
    }
    assert segment["words"][0] == {"word": "It", "start": 572.25, "end": 572.75, "speaker": "SPEAKER_02"}
    assert [word["word"] for word in segment["words"]] == ["It", "never", "came", "on", "time."]
    assert len(document["word_segments"]) == sum(len(one["words"]) for one in document["segments"])


def test_openai():
    types = pytest.importorskip("openai.types.audio")
    document = json.loads(written("openai"))
    found = types.TranscriptionDiarized.model_validate(document, strict=True)
    assert found.duration == 3725.5
    assert found.text == f"{LONG.text} It never came. Sorry?"
    assert [(one.id, one.start, one.end, one.speaker, one.text) for one in found.segments][1] == (
        *("seg_1", 572.25, 573.75, "SPEAKER_02"),
        "It never came.",
    )
    assert {one["type"] for one in document["segments"]} == {"transcript.text.segment"}


@pytest.mark.parametrize("form", ["stm", "seglst", "whisperx", "openai", "podcast"])
def test_without_words_there_are_speakers_and_times(form):
    text = written(form, SPEAKERS_ONLY)
    assert "SPEAKER_02" in text
    assert "5.0" in text


# --- scripts that need invisible characters ---


@pytest.mark.parametrize("form", [form for form in Format if form != Format.RTTM])
def test_no_format_changes_a_word(form):
    """Each format has the words of all scripts, joiners and marks included."""
    if form == Format.DOCX:
        pytest.importorskip("docx")
    spoken = said("SPEAKER_01", 1.0, " ".join(delicate.WORDS))
    content = writers.content(transcript([spoken]), form)
    if form == Format.DOCX:
        text = " ".join(text for _, text in paragraphs(content))
    elif form.about.binary:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = " ".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    else:
        text = content.decode()
    if form.about.media_type == "application/json":
        text = json.dumps(json.loads(text), ensure_ascii=False)
    assert [word for word in delicate.WORDS if word not in text] == []


# --- names of files ---


def test_no_two_formats_share_a_file(tmp_path):
    names = [output_paths.name_of("call", form) for form in Format]
    assert len({name.lower() for name in names}) == len(Format)
    planned = output_paths.plan("call.wav", [form.value for form in Format if form != "docx"], str(tmp_path))
    assert (tmp_path / "call.qda.txt", tmp_path / "call.TextGrid") == tuple(
        path for form, path in planned if form in ("qda", "textgrid")
    )


@pytest.mark.parametrize("form", Format)
def test_the_name_of_a_file_says_its_format(tmp_path, form):
    if form == Format.DOCX:
        pytest.importorskip("docx")
    path = tmp_path / output_paths.name_of("a.b", form)
    assert output_paths.plan("call.wav", [], str(path)) == ((form, path),)
    upper = tmp_path / path.name.upper()
    assert output_paths.plan("call.wav", [], str(upper)) == ((form, upper),)


def test_a_format_may_be_written_to_a_file_with_its_last_ending(tmp_path):
    for form, name in (("qda", "x.txt"), ("openai", "x.json"), ("txt", "x.txt"), ("textgrid", "x.textgrid")):
        assert output_paths.plan("call.wav", [form], str(tmp_path / name)) == ((form, tmp_path / name),)
    for form, name in (("srt", "x.qda.txt"), ("qda", "x.srt"), ("openai", "x.txt"), ("ctm", "x.txt")):
        with pytest.raises(UsageError, match="is one file, but -f says"):
            output_paths.plan("call.wav", [form], str(tmp_path / name))
    assert output_paths.plan("call.wav", [], str(tmp_path / ".srt")) == (
        ("txt", tmp_path / ".srt" / "call.txt"),
    )


def test_a_batch_keeps_apart_what_would_be_one_file(tmp_path):
    found = [(f"/x/{name}", name) for name in ("a.wav", "a.openai.wav", "b.QDA.wav", "c.d.wav")]
    assert dict(assign(found, Manifest(tmp_path / "manifest.jsonl"))) == {
        "/x/a.wav": "a",
        "/x/a.openai.wav": "a.openai.wav",
        "/x/b.QDA.wav": "b.QDA.wav",
        "/x/c.d.wav": "c.d",
    }


# --- tsv ---


def test_tsv_has_milliseconds_and_a_cell_for_each_text():
    hostile = replace(
        NAMED, utterances=(replace(REPLY, end=574.0, words=(Word(573.0, 574.0, " a\tb\nc", "SPEAKER_02"),)),)
    )
    head, row = written("tsv", hostile).splitlines()
    assert head.split("\t") == ["start", "end", "speaker", "text"]
    assert row.split("\t") == ["572250", "574000", "SPEAKER_02", "a b c"]
    assert [row.split("\t")[:2] for row in written("tsv", SPEAKERS_ONLY).splitlines()[1:]] == [
        ["1000", "3000"],
        ["3000", "5000"],
    ]
