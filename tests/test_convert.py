"""`witness convert`: from the JSON alone, the bytes that the run wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from conftest import in_process
from test_writers import GHOST, LONG, REPLY, UNHEARD, listened, said, transcript
from witness.audio import sound
from witness.formats import json_document, output_paths
from witness.formats.registry import Format
from witness.options import Part
from witness.recognition.tokens import Token, to_words
from witness.schema import Correction, Count, Style, Transcript, Turn, Utterance, Word
from witness.transcript import store
from witness.transcript.corrections import group_utterances

FORMS = [form for form in Format if form not in (Format.JSON, Format.DOCX)]
TURNS = (Turn(0.016875, 12.71, "SPEAKER_01"), Turn(571.9, 574.25, "SPEAKER_02"))


def save(transcript: Transcript, folder: Path, forms=FORMS) -> dict[str, bytes]:
    """The files that a run writes."""
    folder.mkdir(exist_ok=True)
    targets = [(form.value, Path(output_paths.name_of(folder / "x", form))) for form in (Format.JSON, *forms)]
    store.save(transcript, targets, keep=False)
    return {path.name: path.read_bytes() for _, path in targets}


def assert_same(transcript: Transcript, folder: Path, forms=FORMS) -> None:
    """What is read from the JSON gives all files again, with the pauses marked that were."""
    ran = save(transcript.styled({"pauses": 0.5}), folder, forms)
    again = save(store.read(folder / "x.json"), folder, forms)  # there: EAF says where the recording is
    assert [name for name, content in again.items() if content != ran[name]] == []


def uttered(words, *more, **kwargs) -> Transcript:
    """A transcript of one track, from words in order that have speakers."""
    found = listened(*group_utterances(words), *more, turns=TURNS, words=words, **kwargs)
    return replace(found, counts=(Count(2, 3, 0.123),))


def spoken(*texts: str, speaker="SPEAKER_01", start=1.0, pace=0.337) -> list[Word]:
    return [
        Word(start + n * pace, start + (n + 1) * pace, text, speaker, 0.98765 - n / 1000)
        for n, text in enumerate(texts)
    ]


@pytest.mark.slow
def test_a_run_and_a_conversion_write_the_same_bytes(toned, tmp_path):
    assert len(toned.words) > 10
    assert_same(toned, tmp_path)
    pytest.importorskip("docx")
    assert_same(toned, tmp_path, [Format.DOCX])


@pytest.mark.slow
def test_speakers_without_words(diarized, tmp_path):
    assert diarized.turns
    assert_same(diarized, tmp_path)


def test_everything_that_a_transcript_can_have(tmp_path):
    words = [*LONG.words, *REPLY.words, *GHOST.words]
    full = uttered([structs.replace(word, overlap=word.text == " It") for word in words], UNHEARD)
    full = replace(
        full,
        audio=replace(full.audio, part=Part(0.5, 700.12345)),
        warnings=("ends early",),
        fast=True,
        style=Style(pauses=0.5, fillers="drop", lines=1, words=5, speaker_names="tag", times="drop"),
        corrections=(
            Correction("merge", ((0.5, 1.0),), other=((2.0, 3.0),)),
            Correction("text", (), text=""),
        ),
    )
    assert_same(full, tmp_path)
    read = store.read(tmp_path / "x.json")
    assert read == replace(
        json_document.in_milliseconds(full), words=read.words, timing=read.timing, models=read.models
    )
    assert [word.text for word in read.words] == [word.text for word in words]


def test_no_speech_at_all(tmp_path):
    assert_same(transcript(), tmp_path)


@pytest.mark.parametrize(
    "texts",
    [
        ("我", "们", "走", "吧", "。"),
        (" It", "'s", " well", "-known", "."),
        ("我", "用", "iPhone", "。"),
        (" used", " 我", "们", " then"),
        (" three words now", " and", " *"),
        ("สวัส", "ดี", " ครับ"),
        (" a", " a", " aa", " a"),
        (" said “so” ,", " (well)"),
        ("\u3000全", "角"),
    ],
)
def test_spaces_come_back_from_the_text(tmp_path, texts):
    """Between the words of an utterance; at its beginning by the script."""
    words = [*spoken(*texts), *spoken(*texts, speaker="SPEAKER_02", start=9.0)]
    first = words[0].text.lstrip()
    texts = [(" " if first[0].isascii() else "") + first, *(word.text for word in words[1 : len(words) // 2])]
    words = [structs.replace(word, text=texts[n % len(texts)]) for n, word in enumerate(words)]
    assert_same(uttered(words), tmp_path)


def tokens(texts: list[str], start: float) -> list[Token]:
    return [Token(text.encode(), start + 0.21 * n, start + 0.21 * (n + 1)) for n, text in enumerate(texts)]


SPACED = st.lists(st.sampled_from([" a", " yes", "b", ".", ",", " it", "'s", " 12", " né", "-", ' "so"']))
UNSPACED = st.lists(st.sampled_from(["我", "们", "好", "。", "，", "ー", "カ"]))
PIECES = st.one_of(SPACED.map(lambda texts: [" Well", *texts]), UNSPACED.map(lambda texts: ["你", *texts]))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(0, 2), st.integers(0, 40)), max_size=8))
def test_whatever_is_recognized(tmp_path_factory, pieces):
    """Words as the recognizer makes them of tokens, given to speakers or to nobody."""
    words: list[Word] = []
    start = 0.0
    for texts, who, pause in pieces:
        speaker = (None, "SPEAKER_01", "SPEAKER_02")[who]
        heard = to_words([tokens(texts, start + pause / 10)])
        words += [structs.replace(word, speaker=speaker, supported=speaker is not None) for word in heard]
        start = words[-1].end
    forms = [Format.SRT, Format.HTML, Format.CSV, Format.TXT]
    assert_same(uttered(words), tmp_path_factory.mktemp("x"), forms)


def test_the_sides_of_a_call_are_told_apart_by_the_speakers(tmp_path):
    here = spoken(" How", " can", " I", " help", "?", speaker="CH1_SPEAKER_01")
    there = spoken(" My", " line", " is", " dead", ".", speaker="CH2_SPEAKER_01", start=1.5)
    sides = [*group_utterances(here), *(replace(one, track=1) for one in group_utterances(there))]
    unheard = Utterance(20.0, 23.0, "CH2_SPEAKER_01", track=1)
    call = listened(*sides, unheard, words=sorted([*here, *there], key=lambda word: word.start))
    speakers = tuple(
        replace(one, id=f"CH{side}_SPEAKER_01") for side, one in enumerate(call.speakers, start=1)
    )
    call = replace(call, speakers=speakers, counts=(Count(1), Count(1)))
    assert_same(call, tmp_path)
    # One who was merged from both sides has the id of the first; what they say at the same time is apart.
    merged = [
        replace(
            one,
            speaker="CH1_SPEAKER_01",
            words=tuple(structs.replace(word, speaker="CH1_SPEAKER_01") for word in one.words),
        )
        for one in call.utterances
    ]
    words = [structs.replace(word, speaker="CH1_SPEAKER_01") for word in call.words]
    call = replace(call, utterances=tuple(merged[:2]), words=tuple(words))
    assert_same(call, tmp_path)


def test_nothing_is_guessed_of_two_tracks_that_say_the_same(tmp_path):
    """Neither the words of an utterance nor its track, whoever is said to speak."""
    one, other = (spoken(" yes", " yes", start=start) for start in (1.0, 1.1))
    sides = [*group_utterances(one), *(replace(said, track=1) for said in group_utterances(other))]
    call = listened(*sides, words=sorted([*one, *other], key=lambda word: word.start), turns=TURNS)
    save(replace(call, counts=(Count(1), Count(1))), tmp_path, [])
    read = store.read(tmp_path / "x.json")
    assert [[word.start for word in said.words] for said in read.utterances] == [[1.0, 1.337], [1.1, 1.437]]
    assert [said.track for said in read.utterances] == [0, 1]


def test_a_transcript_made_by_hand_keeps_the_words_of_its_utterances(tmp_path):
    found = replace(uttered(spoken(" one", " two")), words=())
    assert_same(found, tmp_path)
    assert [word.text for word in store.read(tmp_path / "x.json").words] == [" one", " two"]


def test_an_older_document_says_what_to_do(path):
    found = json.loads(path.read_text())
    for one in found["utterances"]:
        del one["words"], one["track"], one["corrected"]
    path.write_text(json.dumps(found))
    assert "transcribe the recording again" in converted(path, path, code=4)
    found["findings"] = {"file": "x.findings.npz", "sha256": "0" * 64}
    path.write_text(json.dumps(found))
    assert f"run: witness redo {path}" in converted(path, path, code=4)


# --- damage ---


@pytest.fixture
def path(tmp_path) -> Path:
    words = [*LONG.words, *REPLY.words]
    save(uttered(words), tmp_path / "out", [])
    return tmp_path / "out" / "x.json"


def converted(path: Path, *args: object, code: int = 0) -> str:
    """What it says on stdout, or on stderr if it fails."""
    result = in_process(path.parent, "convert", *args)
    said = (result.stdout + result.stderr).decode()
    assert result.returncode == code, said
    return said


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda found: found["words"][3].update(start="1"), "$.words[3].start"),
        (lambda found: found["words"][3].update(start=-1), "$.words[3]"),
        (lambda found: found["words"][3].update(end=1e300), "$.words[3]"),
        (lambda found: found["audio"].update(duration=1e300), "$.audio.duration"),
        (lambda found: found["turns"][1].update(speaker="X"), "$.turns[1]"),
        (lambda found: found["turns"][0].update(end=0), "$.turns[0]"),
        (lambda found: found["utterances"][1].update(text="It never came back."), "$.utterances[1]"),
        (lambda found: found["words"].pop(2), "$.utterances[0]"),
        (lambda found: found["utterances"].pop(1), "$.words[29]"),
        (lambda found: found["utterances"][1].update(words=[0, 1, 2]), "$.utterances[1]"),
        (lambda found: found["utterances"][1].update(words=[29, 30, 32]), "$.utterances[1]"),
        (lambda found: found["utterances"][1].update(words=[-1]), "$.utterances[1]"),
        (lambda found: found["audio"].pop("path"), "`path`"),
        (lambda found: found["device"].pop("whisper"), "$.device"),
        (lambda found: found.pop("turns"), "`turns`"),
    ],
)
def test_damage_is_named_with_its_place(path, change, where):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    said = converted(path, path, "-f", "srt", code=4)
    assert where in said
    assert str(path) in said
    assert said.count("\n") == 1
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"[" * 100_000, b'{"schema": "witness/2"}', b"\xff", b'{"schema": "\xff"}']
)
def test_what_is_no_transcript(path, content):
    path.write_bytes(content)
    said = converted(path, path, "-f", "srt", code=4)
    assert str(path) in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there(path):
    assert "No such file" in converted(path, "none.json", "-f", "srt", code=4)


# --- the command ---


def test_a_format_is_written_beside_the_transcript(path):
    converted(path, path, "-f", "srt", "-f", "qda", "-q")
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.json", "x.qda.txt", "x.srt"]


def test_text_goes_to_stdout_and_a_format_where_it_should(path, tmp_path):
    assert converted(path, path).startswith("[00:00:01] SPEAKER_01: Good morning")
    assert converted(path, path, "-f", "vtt", "-o", "-").startswith("WEBVTT")
    converted(path, path, "-o", tmp_path / "y.TextGrid")
    assert (tmp_path / "y.TextGrid").read_text().startswith("File type")


def test_pauses(tmp_path):
    save(uttered([*REPLY.words, *said("SPEAKER_02", 580.0, "No.").words]), tmp_path / "out", [])
    path = tmp_path / "out" / "x.json"
    assert "(6 s)" not in converted(path, "x.json")
    assert "(6 s)" in converted(path, "x.json", "--pauses", "2")
    converted(path, "x.json", "--pauses", "2", "-f", "json", "-o", "y.json")
    assert "(6 s)" in converted(path, "y.json")
    assert "(6 s)" not in converted(path, "y.json", "--pauses", "0")
    path.write_bytes(path.read_bytes().replace(b'  "pauses": null,\n', b""))  # as earlier versions wrote it
    assert "(6 s)" not in converted(path, "x.json")
    assert "nan is not a number" in converted(path, "x.json", "--pauses", "nan", code=2)


def test_a_folder_with_all_that_lies_in_it(path, tmp_path):
    below = path.parent / "monday"
    for folder in (below, path.parent / ".hidden"):
        folder.mkdir()
        (folder / "x.json").write_bytes(path.read_bytes())
    (below / "report.json").write_text("{}")
    converted(path, path, "-f", "openai")
    said = converted(path, path.parent, "-f", "csv", "-o", tmp_path / "tables")
    assert "2 other JSON files were skipped" in said
    made = sorted(file.relative_to(tmp_path).as_posix() for file in (tmp_path / "tables").rglob("*.*"))
    assert made == ["tables/monday/x.csv", "tables/x.csv"]


def test_one_that_is_damaged_stops_no_other(path):
    (path.parent / "a.json").write_text('{"schema": "witness/1"}')
    said = converted(path, "*.json", "-f", "txt", "-q", code=3)
    assert "1 of 2 transcripts failed: a.json" in said
    assert (path.parent / "x.txt").exists()


def test_two_of_the_same_name_are_not_mixed_up(path, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "x.json").write_bytes(path.read_bytes())
    more = tmp_path / "more" / "x.json"
    said = converted(path, path, more, "-f", "txt", "-o", tmp_path / "texts", "-q", code=3)
    assert "has the same name" in said
    converted(path, path.parent, more.parent, "-f", "txt", "-o", tmp_path / "apart")
    assert len(list((tmp_path / "apart").rglob("x.txt"))) == 2


@pytest.mark.parametrize(
    "args",
    [
        ["x.json", "-f", "json"],
        ["x.json", "y.json", "-f", "txt", "-o", "z.txt"],
        ["x.json", "y.json"],
        [".", "-f", "txt", "-o", "-"],
        ["*.nothing", "-f", "txt"],
        ["nothing", "-f", "txt"],
        ["x.json", "-f", "txt", "-f", "srt", "-o", "-"],
    ],
)
def test_requests_that_make_no_sense(path, args):
    (path.parent / "y.json").write_bytes(path.read_bytes())
    (path.parent / "nothing").mkdir()
    said = converted(path, *args, code=2)
    assert said.count("\n") == 1
    assert sorted(file.name for file in path.parent.iterdir()) == ["nothing", "x.json", "y.json"]


def test_a_page_has_its_sound_again(toned, tmp_path):
    assert toned.audio.duration != round(toned.audio.duration, 3)
    targets = [("json", tmp_path / "toned.json"), ("html", tmp_path / "ran.html")]
    store.save(toned, targets, sound=sound.take(toned.audio, targets))
    converted(tmp_path / "toned.json", "toned.json", "-o", "again.html")
    ran, again = ((tmp_path / name).read_bytes() for name in ("ran.html", "again.html"))
    assert ran == again
    converted(tmp_path / "toned.json", "toned.json", "-f", "html", "--html-audio", "none")
    assert (tmp_path / "toned.html").stat().st_size < len(ran) - 1000


def test_all_formats_leave_the_json_as_it_is(path):
    before = path.read_bytes()
    converted(path, path, "-f", "all", "-q")
    assert path.read_bytes() == before
    for form in Format:
        if form.installed:
            assert path.with_name(output_paths.name_of(path.stem, form)).exists(), form
