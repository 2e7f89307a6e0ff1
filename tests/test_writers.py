import csv
import io
import json
import os
import re
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from witness.formats import rttm, writers
from witness.formats.registry import Format
from witness.schema import Correction, ModelFile, Source, Speaker, Style, Transcript, Turn, Utterance, Word
from witness.text import clock, for_terminal


def transcript(utterances=(), turns=(), path="calls/my call.wav", words=None, warnings=()) -> Transcript:
    return Transcript(
        audio=Source(path, 3725.5, 2, "ab" * 32),
        models={"segmentation": ModelFile("s", "/x/s.onnx", "1" * 64), "embedding": None, "whisper": None},
        device={"embedding": "cpu", "whisper": None},
        timing={"decode": 0.12345, "transcription": None, "wall": 2.0, "mode": None},
        language="en",
        speakers=(Speaker("SPEAKER_01", 60.0, 0.75), Speaker("SPEAKER_02", 20.0, 0.25)),
        turns=tuple(turns),
        utterances=tuple(utterances),
        words=tuple(words if words is not None else [w for u in utterances for w in u.words]),
        warnings=tuple(warnings),
    )


def test_json_names_the_engine_that_recognized_the_words():
    words = ModelFile("faster-whisper-base", "/x", "2" * 64, "ctranslate2")
    done = transcript()
    document = json.loads(writers.content(replace(done, models={**done.models, "whisper": words}), "json"))
    assert document["models"]["whisper"] == {
        "name": "faster-whisper-base",
        "sha256": "2" * 64,
        "engine": "ctranslate2",
    }
    assert document["models"]["segmentation"] == {"name": "s", "sha256": "1" * 64}


def said(speaker, start, text, pace=0.5) -> Utterance:
    words = tuple(
        Word(
            start + i * pace,
            start + (i + 1) * pace,
            f" {word}",
            speaker,
            0.98765,
            supported=speaker is not None,
        )
        for i, word in enumerate(text.split())
    )
    return Utterance(words[0].start, words[-1].end, speaker, words)


LONG = said(
    "SPEAKER_01",
    1.0,
    "Good morning, this is the support line, how can I help you today? "
    "I can see that your order was sent on Tuesday and should arrive tomorrow before noon.",
    0.3,
)
REPLY = said("SPEAKER_02", 572.25, "It never came.")
GHOST = said(None, 580.0, "Thank you.")


def test_txt():
    lines = writers.render(transcript([REPLY, GHOST]), Format.TXT).splitlines()
    assert lines == ["[00:09:32] SPEAKER_02: It never came."]


@pytest.mark.parametrize("form", [Format.TXT, Format.MD, Format.DOCX])
def test_without_times_or_names(form):
    found = transcript([REPLY])
    for given, time, name in [
        ({}, True, True),
        ({"times": "drop"}, False, True),
        ({"speaker_names": "none"}, True, False),
        ({"times": "drop", "speaker_names": "none"}, False, False),
    ]:
        said = text_of(writers.render(found.styled(given), form)).replace("\\", "").split("25%")[-1]
        assert "It never came." in said
        assert ("00:09:32" in said) == time
        assert (("SPEAKER_02" if form == "txt" else "Speaker 2") in said) == name


UNHEARD = Utterance(600.0, 604.5, "SPEAKER_01")


def listened(*utterances, **kwargs) -> Transcript:
    """As after a run with a recognizer."""
    return replace(transcript(utterances, **kwargs), device={"embedding": "cpu", "whisper": "cpu"})


FOR_PROGRAMS = {"json", "rttm", "ctm", "stm", "seglst", "whisperx", "openai"}
"""Formats in which a mark would be taken for a word."""


def test_words_without_speech_and_speech_without_words():
    found = listened(REPLY, GHOST, UNHEARD)
    for name in Format:
        text = text_of(writers.render(found, name))
        assert ("Thank" in text) == (name in ("json", "html")), name
        assert ("[inaudible]" in text.replace("\\", "")) == (name not in FOR_PROGRAMS), name
    assert writers.render(found, Format.TXT).splitlines()[1:] == ["[00:10:00] SPEAKER_01: [inaudible]"]
    assert cues(writers.render(found, Format.SRT))[1][1:] == [
        "00:10:00,000 --> 00:10:04,500",
        "Speaker 1: [inaudible]",
    ]
    document = json.loads(writers.content(found, "json"))
    assert [word["text"] for word in document["words"] if not word["supported"]] == ["Thank", "you."]
    assert document["utterances"][2] == {
        "start": 600,
        "end": 604.5,
        "speaker": "SPEAKER_01",
        "text": None,
        "words": [],
        "track": 0,
        "corrected": False,
        "language": None,
        "not_english": False,
    }


def test_txt_without_words():
    found = writers.render(transcript([Utterance(1.24, 3661.96, "SPEAKER_01")]), Format.TXT)
    assert found == "[00:00:01.2 - 01:01:02.0] SPEAKER_01\n"


def test_pauses_are_marked_where_asked_for():
    words = [(0, 1, " So"), (1.2, 2, " I"), (2.6, 3, " thought"), (4.6, 5, " *so*.")]
    halting = Utterance(0, 5, "A", tuple(Word(*word, "A") for word in words))
    reply = Utterance(5.4, 6, "B", (Word(5.4, 6, " Yes.", "B"),))
    noise = Utterance(6.2, 9, "A")
    later = Utterance(12.7, 13.5, "B", (Word(12.7, 13, "好", "B"), Word(13.5, 14, "。", "B")))
    found = listened(halting, reply, GHOST, noise, later)
    assert writers.render(found.styled({"pauses": 0.5}), Format.TXT).splitlines() == [
        "[00:00:00] A: So I (.) thought (2 s) *so*.",
        "[00:00:05] B: Yes.",
        "[00:00:06] A: [inaudible]",
        "(4 s)",
        "[00:00:12] B: 好 (.) 。",
    ]
    assert (
        writers.render(found.styled({"pauses": 2.0}), Format.TXT).splitlines()[0]
        == "[00:00:00] A: So I thought *so*."
    )
    assert "(" not in writers.render(found, Format.TXT)
    assert r"I (.) thought (2 s) \*so\*." in writers.render(found.styled({"pauses": 0.5}), Format.MD)
    assert "\n\n(4 s)\n\n**B**" in writers.render(found.styled({"pauses": 0.5}), Format.MD)


def test_a_pause_under_other_speech_is_none():
    long, reply = said("A", 0, "one two three four", 1.0), said("B", 1.0, "Yes.", 0.5)
    after = said("A", 4.2, "five", 0.5)
    assert "(" not in writers.render(transcript([long, reply, after]).styled({"pauses": 0.5}), Format.TXT)


def text_of(content: str | bytes) -> str:
    """Of a file of any format: the content, or that of the document in an archive."""
    if isinstance(content, str):
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        name = next(one for one in names if one == "word/document.xml" or one.startswith("sources/"))
        return archive.read(name).decode()


@pytest.mark.parametrize("form", ["txt", "md", "docx"])
def test_a_sentence_with_pauses_is_one_paragraph(form):
    parts = [(1, "This was a"), (5, "2018 Tesla"), (9, "Model S.")]
    car = [said("SPEAKER_01", at, text) for at, text in parts]
    more = [said("SPEAKER_01", 13, "It"), said("SPEAKER_02", 14, "And"), said("SPEAKER_02", 22, "then?")]
    text = text_of(writers.render(transcript([*car, *more]), form))
    assert "This was a 2018 Tesla Model S." in text
    assert "S. It" not in text  # a sentence ends
    assert "And then" not in text  # too long a pause
    by_hand = replace(transcript(car), corrections=(Correction("split", (), other=((5.2, 5.3),)),))
    assert "a 2018" not in text_of(writers.render(by_hand, form))


def test_text_of_an_unfinished_sentence_waits_for_its_end():
    lines = [said("SPEAKER_01", at, text) for at, text in [(1, "Yes."), (4, "This was a"), (7, "car.")]]
    whole = writers.render(transcript(lines), "txt")
    for count in range(4):
        part = replace(transcript(lines[:count]), partial=True)
        assert whole.startswith(writers.render(part, "txt"))
    assert writers.render(replace(transcript(lines[:2]), partial=True), "txt").count("\n") == 1


def test_no_document_for_people_says_anything_about_this_machine():
    """A model that was fetched, for example; the JSON keeps it, and a warning about the recording stays."""
    machine, spurious = "models were fetched from a hub: campplus", "SPEAKER_02 may be spurious"
    found = replace(transcript([REPLY]), warnings=(machine, spurious), machine=(machine,))
    for form in Format:
        text = text_of(writers.render(found, form)).replace("\\", "")
        assert ("hub" in text) == (form == Format.JSON), form
        assert ("Speaker 2 may be spurious" in text) == (form in ("md", "docx", "html")), form


def test_empty_transcript_in_every_format():
    for name in Format:
        text = text_of(writers.render(transcript(), name))
        assert "SPEAKER_0" not in text or name in ("json", "md", "html", "docx")
    assert writers.render(transcript(), Format.TXT) == ""
    assert writers.render(transcript(), Format.VTT) == "WEBVTT\n"


def test_json_has_every_key_of_the_contract():
    document = json.loads(
        writers.content(transcript([REPLY, GHOST], [Turn(1.23456, 2.0, "SPEAKER_02")]), "json")
    )
    assert list(document) == [
        *("schema", "audio", "models", "device", "timing", "language"),
        *("speakers", "first_speaker", "speaker_counts", "turns", "utterances", "words"),
        *("warnings", "machine"),
        *("fast", "asked", "style", "review", "tags", "corrected", "corrections", "findings"),
    ]
    assert document["schema"] == "witness/1"
    assert document["audio"] == {
        "path": "calls/my call.wav",
        "duration": 3725.5,
        "channels": 2,
        "sha256": "ab" * 32,
        "part": None,
    }
    assert document["models"] == {
        "segmentation": {"name": "s", "sha256": "1" * 64},
        "embedding": None,
        "whisper": None,
    }
    assert document["timing"]["decode"] == 0.123
    assert document["timing"]["transcription"] is None
    assert document["turns"] == [{"start": 1.235, "end": 2.0, "speaker": "SPEAKER_02"}]
    assert document["words"][0] == {
        "start": 572.25,
        "end": 572.75,
        "text": "It",
        "speaker": "SPEAKER_02",
        "speaker_confidence": 0.988,
        "overlap": False,
        "supported": True,
        "corrected": False,
        "probability": None,
    }
    assert document["words"][-1]["speaker"] is None
    assert document["utterances"][0] == {
        "start": 572.25,
        "end": 573.75,
        "speaker": "SPEAKER_02",
        "text": "It never came.",
        "words": [0, 1, 2],
        "track": 0,
        "corrected": False,
        "language": None,
        "not_english": False,
    }


def test_json_takes_numpy_numbers():
    turn = Turn(np.float64(1.0), np.float32(2.0), "A")
    assert json.loads(writers.content(transcript(turns=[turn]), "json"))["turns"][0]["end"] == 2.0


def cues(text: str) -> list[list[str]]:
    return [block.splitlines() for block in text.strip().split("\n\n")]


def test_srt_is_readable_and_names_the_speaker_at_each_change():
    found = cues(
        writers.render(
            transcript([LONG, REPLY, said("SPEAKER_02", 574.0, "Not on Tuesday either.")]), Format.SRT
        )
    )
    assert [cue[0] for cue in found] == [str(n + 1) for n in range(len(found))]
    assert found[0][1].startswith("00:00:01,000 --> ")
    for _, times, *lines in found:
        assert 1 <= len(lines) <= 2
        assert all(0 < len(line) <= Style.line_width for line in lines)
        start, end = times.split(" --> ")
        assert start < end
    texts = [" ".join(cue[2:]) for cue in found]
    assert texts[0].startswith("Speaker 1: Good morning")
    assert not any(text.startswith("Speaker 1") for text in texts[1:])
    assert texts[-1] == "Speaker 2: It never came. Not on Tuesday either."
    assert " ".join(texts).replace("Speaker 1: ", "").replace("Speaker 2: ", "") == " ".join(
        [LONG.text, REPLY.text, "Not on Tuesday either."]
    )


def test_cues_end_at_pauses_and_after_seven_seconds():
    slow = said("A", 0, "one two three four five", 2.0)
    found = cues(writers.render(transcript([slow]), Format.SRT))
    assert len(found) == 2
    paused = Utterance(0, 4, "A", (Word(0, 1, " one"), Word(3, 4, " two")))
    assert len(cues(writers.render(transcript([paused]), Format.SRT))) == 2


def test_vtt_escapes_and_tags():
    text = writers.render(transcript([said("SPEAKER_01", 1.0, "a <b> & c --> d")]), Format.VTT)
    head = "WEBVTT\n\n00:00:01.000 --> 00:00:04.000\n"
    assert text == f"{head}Speaker 1: a &lt;b&gt; &amp; c --&gt; d\n"
    tagged = transcript([said("SPEAKER_01", 1.0, "a <b> & c --> d")]).styled({"speaker_names": "tag"})
    assert writers.render(tagged, Format.VTT) == f"{head}<v Speaker 1>a &lt;b&gt; &amp; c --&gt; d\n"


def test_subtitles_in_the_shape_that_is_wanted():
    text = "I never said that it was the cable, but it may well be the cable after all."
    spoken = said("Anna", 1.0, text)
    parts = [
        structs.replace(spoken.words[0], start=1 + n * 0.3, end=1.3 + n * 0.3, text=f" {word}")
        for n, word in enumerate(text.split())
    ]
    found = transcript([replace(spoken, words=tuple(parts), end=parts[-1].end)])

    def shown(**style):
        return [block.split("\n")[1:] for block in written_cues(found.styled(style))]

    assert max(len(line) for cue in shown(line_width=24) for line in cue) <= 24
    assert {len(cue) for cue in shown(lines=1, line_width=30)} == {1}
    assert len(shown(lines=4, line_width=24)) < len(shown(lines=2, line_width=24))
    assert all(len(" ".join(cue).removeprefix("Anna: ").split()) <= 3 for cue in shown(words=3))
    assert "Anna" not in str(shown(speaker_names="none"))
    assert " ".join(line for cue in shown(speaker_names="none") for line in cue) == text


def written_cues(given):
    """The times and lines of each subtitle."""
    blocks = writers.render(given, Format.SRT).strip().split("\n\n")
    return [block.split("\n", 1)[1] for block in blocks]


def test_subtitles_and_documents_say_in_which_language_something_is():
    one, other = said("A", 1.0, "Good morning."), said("B", 5.0, "שלום לכולם.")
    other = replace(other, words=tuple(structs.replace(word, language="he") for word in other.words))
    text = writers.render(transcript([one, other]), Format.VTT)
    assert "<lang en>A: Good morning.</lang>\n" in text
    assert "<lang he>B: שלום לכולם.</lang>\n" in text
    assert "<lang" not in writers.render(transcript([one]), Format.VTT)


def test_fillers_are_left_out_of_documents_and_not_of_data():
    spoken = said("A", 1.0, "x")
    texts = " Um, so I, uh, think, um. Er. You know.".replace(" ", "| ").split("|")[1:]
    words = tuple(structs.replace(spoken.words[0], text=text) for text in texts)
    only = said("B", 6.0, "Hmm.")
    found = transcript([replace(spoken, words=words), only]).styled({"fillers": "drop"})
    assert writers.render(found, Format.TXT).splitlines() == ["[00:00:01] A: So I, think. You know."]
    assert "Hmm" not in writers.render(found, Format.SRT)
    for form in (Format.CTM, Format.JSON, Format.CSV):
        assert "Hmm" in writers.render(found, form), form
    german = replace(spoken, words=(structs.replace(words[0], text=" um", language="de"),))
    assert "um" in writers.render(transcript([german]).styled({"fillers": "drop"}), Format.TXT)


def test_rttm_reads_back():
    turns = [Turn(0.5, 2.0, "SPEAKER_01")]
    assert rttm.parse(writers.render(transcript(turns=turns), Format.RTTM)) == {"my_call": turns}


def test_csv_reads_back():
    quoted = said("SPEAKER_01", 0, 'He said: "well, no", and left')
    rows = list(csv.reader(io.StringIO(writers.render(transcript([quoted, GHOST]), Format.CSV), newline="")))
    assert rows[0] == ["start", "end", "speaker", "text"]
    assert rows[1][2:] == ["SPEAKER_01", 'He said: "well, no", and left']
    assert len(rows) == 2


def test_md_escapes_and_shows_warnings():
    text = writers.render(
        transcript([said("SPEAKER_01", 0, "a *b* <c> [d]")], warnings=["ends early"]), Format.MD
    )
    assert "# my call" in text
    assert "> ends early" in text
    assert r"a \*b\* \<c\> \[d\]" in text
    assert "Speaker 1 75%" in text


def test_what_concerns_the_machine_is_for_json_alone():
    about = "using the builtin speaker models: cannot fetch segmentation-3.0"
    found = replace(transcript([REPLY], warnings=[about, "ends early"]), machine=(about,))
    assert json.loads(writers.content(found, "json"))["warnings"] == [about, "ends early"]
    for form in (Format.MD, Format.HTML):
        assert "cannot fetch" not in writers.render(found, form)
        assert "ends early" in writers.render(found, form)


def test_names_that_are_no_utf8_do_not_stop_the_result():
    path = os.fsdecode(b"caf\xe9.wav")
    for form in Format:
        text = text_of(writers.render(transcript([REPLY], [Turn(0, 1, "SPEAKER_01")], path=path), form))
        writers.encode(text).decode("utf-8")


def test_clock():
    assert clock(59.9999) == "00:00:59"
    assert clock(59.9999, 3, ",") == "00:01:00,000"
    assert clock(360000.0) == "100:00:00"


HOSTILE = (
    " one\n\n7\n00:00:00,000 --> 00:00:09,000\nMallory: two",
    "\x1b]0;title\x07\x1b[2J",
    " \x9b31m\u2028\u2029\x85three\r\n",
    " <b>&{\\an8}</v><00:00:01.000> *x* ~~y~~ --> \u202eevil\u2066",
    " \ud800\udce9",
    "\n\n",
)
NAME = "Ann\n\n9\n00:00:00.000 --> 00:00:09.000\n\x1b[2J<c>"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def hostile() -> Transcript:
    words = tuple(Word(n, n + 0.9, text, "A") for n, text in enumerate(HOSTILE))
    found = listened(Utterance(0, 6, "A", words), turns=[Turn(0, 6, "A")], path=f"x/{NAME}.wav")
    return replace(found, speakers=(Speaker("A", 6, 1, NAME),), warnings=(f"{NAME}: damaged",))


@pytest.mark.parametrize("form", Format)
def test_nothing_that_was_said_commands_a_terminal(form):
    text = text_of(writers.render(hostile(), form))
    if form not in ("html", "docx"):
        tabs = form.about.media_type == "text/tab-separated-values"
        assert not CONTROL.search(text.replace("\r\n", "\n").replace("\t", " " if tabs else "\t"))
    writers.encode(text).decode("utf-8")
    assert text == for_terminal(text) or form == "html"


def test_nothing_that_was_said_is_a_cue_a_line_or_markup():
    found = hostile()
    (line,) = writers.render(found, Format.TXT).splitlines()
    assert line.startswith("[00:00:00] Ann 9 00:00:00.000 --> 00:00:09.000 \ufffd[2J<c>: one 7 00:00:00")
    srt = writers.render(found, Format.SRT)
    assert re.findall(r"(?m)^.*-->.*$", srt) == re.findall(r"(?m)^[\d:,]{12} --> [\d:,]{12}$", srt)
    assert not set("<{") & set(srt)
    assert [block.split("\n")[0] for block in srt.strip().split("\n\n")] == [
        str(n + 1) for n in range(srt.count("-->"))
    ]
    vtt = writers.render(found, Format.VTT)
    for block in vtt.strip().split("\n\n")[1:]:
        times, *lines = block.split("\n")
        assert re.fullmatch(r"[\d:.]{12} --> [\d:.]{12}", times)
        assert lines
        assert all("-->" not in text for text in lines)
        tags = re.findall("<[^>]*>", block)
        assert all(tag.startswith("<v Ann 9 ") for tag in tags)
    assert len(writers.render(found, Format.RTTM).splitlines()) == 1
    paragraphs = writers.render(found, Format.MD).strip().split("\n\n")
    assert len(paragraphs) == 4
    assert not any("\n" in paragraph for paragraph in paragraphs)
    assert r"\<b\>\&{\\an8}\</v\>" in paragraphs[3]
    assert r"\~\~y\~\~" in paragraphs[3]
    assert json.loads(writers.content(found, "json"))["words"][0]["text"] == HOSTILE[0].strip()


def test_joiners_and_hard_spaces_stay():
    """Persian, emoji and French are not the same without them."""
    for text in (" می\u200cخواهم", " 👩\u200d👧", " Bonjour\xa0!", " caf\u0301e"):
        said_ = listened(Utterance(0, 1, "A", (Word(0, 1, text, "A"),)))
        for name in ("txt", "md", "srt", "vtt", "csv"):
            shown = writers.render(said_, name)
            assert text.strip() in shown or name in ("srt", "vtt"), name


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x","y")', "+1", "-1+1", "@SUM(A1)", "＝1", "\t=1"])
def test_no_cell_is_a_formula(text):
    found = listened(Utterance(0, 1, "A", (Word(0, 1, text, "A"),)))
    found = replace(found, speakers=(Speaker("A", 1, 1, text.strip()),))
    rows = list(csv.reader(io.StringIO(writers.render(found, Format.CSV), newline="")))
    assert rows[1] == ["0.000", "1.000", f"'{text.strip()}", f"'{text.strip()}"]
    shown = writers.render(found, Format.TSV).splitlines()[1]
    assert shown.split("\t") == ["0", "1000", f"'{text.strip()}", f"'{text.strip()}"]
    harmless = listened(Utterance(0, 1, "A", (Word(0, 1, "a=b", "A"),)))
    assert writers.render(harmless, Format.CSV).splitlines()[1] == "0.000,1.000,A,a=b"
