"""`witness redo`: the same result from the stored findings, corrections that stay with the voice, damage."""

import copy
import hashlib
import json
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import page_cases
from conftest import in_process
from recordings import make
from witness.cli import redo as redo_command
from witness.cli.main import cli
from witness.diarization import voices
from witness.errors import InputError, UsageError
from witness.formats import findings, html, writers
from witness.formats import json_document as shape
from witness.options import Bounds
from witness.schema import Correction, Turn, Utterance, Word
from witness.storage import files, typed_json
from witness.transcript import assemble, corrections, edits, rebuild, store


@pytest.fixture
def transcript(toned):
    return toned


@pytest.fixture
def path(transcript, tmp_path) -> Path:
    store.save(transcript, [("json", tmp_path / "toned.json")])
    return tmp_path / "toned.json"


def run(*args, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["redo", "-q", *map(str, args)])
    if isinstance(result.exception, InputError | UsageError):
        assert result.exception.exit_code == code, result.exception
        return str(result.exception)
    assert result.exit_code == code, result.exception
    return result.stdout


def document(path: Path) -> dict:
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "timing"}


def test_the_last_line_names_the_files_that_were_written(path, tmp_path):
    def last(*args: object) -> str:
        result = CliRunner().invoke(cli, list(map(str, args)))
        assert result.exit_code == 0, result.exception
        return result.stderr.splitlines()[-1] if result.stderr else ""

    texts = f"{path.with_suffix('.srt')}, {path.with_suffix('.md')}"
    assert re.fullmatch(rf"wrote {re.escape(texts)} \(\d+ s\)", last("convert", path, "-f", "srt,md"))
    assert last("convert", "-q", path, "-f", "srt") == last("convert", path) == ""
    assert last("redo", path, "--name", "1=Anna").startswith(f"wrote {path} (")
    other = tmp_path / "out" / "toned.csv"
    assert last("redo", path, "-f", "csv", "-o", other).startswith(f"wrote {path}, {other} (")


def test_redo_without_changes_changes_nothing(path):
    before = document(path)
    assert len(before["words"]) > 10
    text = run(path)
    assert document(path) == before
    assert text.startswith("[00:00:0")


def test_the_stages_are_the_same_bytes_and_come_back_whole(transcript):
    content = findings.encode(transcript.findings)
    assert content == findings.encode(transcript.findings)
    found = findings.decode(content, "x")
    (before,), (after,) = transcript.findings.tracks, found.tracks
    assert np.array_equal(before.windows.active, after.windows.active)
    assert np.array_equal(before.windows.starts, after.windows.starts)
    assert np.array_equal(before.vectors, after.vectors, equal_nan=True)
    assert before.recognition == after.recognition
    assert replace(found, tracks=(), models={}) == replace(transcript.findings, tracks=(), models={})
    assert found.models == {
        role: replace(model, path="") for role, model in transcript.findings.models.items()
    }
    assert found.models["whisper"].engine == "whisper.cpp"
    # Mostly vectors: about 1.5 speakers a window, a window a second, 1 KiB each.
    assert len(content) / transcript.audio.duration < 6e6 / 3600


def test_another_number_of_speakers_is_what_a_fresh_run_finds(transcript, path):
    run(path, "--speakers", 3)
    fresh = corrections.apply(assemble.make_draft(transcript.findings, Bounds(speakers=3)))
    assert len(fresh.speakers) == 3
    assert document(path)["turns"] == json.loads(writers.content(fresh, "json"))["turns"]
    assert document(path)["asked"]["speakers"] == 3
    assert len(document(path)["words"]) == len(transcript.words)
    run(path, "--max-speakers", 2)  # the bounds of before do not linger
    assert document(path)["asked"] == {"speakers": None, "min_speakers": None, "max_speakers": 2}


def test_pauses_stay_marked_as_they_were(path):
    assert "(.)" not in run(path)
    assert "(.)" in run(path, "--pauses", "0.05")
    assert "(.)" in run(path, "--speakers", 3)
    assert "(.)" not in run(path, "--pauses", "0")
    assert document(path)["style"]["pauses"] is None


def test_a_name_stays_with_the_voice(path):
    run(path, "--name", "SPEAKER_02=Zoë 'Z' O'Neil", "-f", "srt", "-f", "csv")
    assert "Zoë 'Z' O'Neil:" in (path.parent / "toned.srt").read_text()
    assert "SPEAKER_02" not in (path.parent / "toned.csv").read_text()
    voiced = [turn for turn in document(path)["turns"] if turn["speaker"] == "SPEAKER_02"]
    for count in (3, 1, 4, 2):
        run(path, "--speakers", count)
        (named,) = [speaker for speaker in document(path)["speakers"] if speaker["name"]]
        own = [t for t in document(path)["turns"] if t["speaker"] == named["id"]]
        shared = sum(
            max(0.0, min(a["end"], b["end"]) - max(a["start"], b["start"])) for a in own for b in voiced
        )
        assert shared > 0.5 * sum(turn["end"] - turn["start"] for turn in voiced) / max(1, count - 1)
    assert named["id"] == "SPEAKER_02"


def test_renaming_and_two_names_on_one_voice(path):
    run(path, "--name", "SPEAKER_01=Ana", "--name", "SPEAKER_02=Bo")
    run(path, "--name", "Ana=Anna")
    assert [speaker["name"] for speaker in document(path)["speakers"]] == ["Anna", "Bo"]
    assert len(document(path)["corrections"]) == 2
    run(path, "--speakers", 1)
    assert any("Bo and Anna are the same speaker" in warning for warning in document(path)["warnings"])
    run(path, "--speakers", 2)
    assert [speaker["name"] for speaker in document(path)["speakers"]] == ["Anna", "Bo"]
    assert not any("one speaker" in warning for warning in document(path)["warnings"])
    run(path, "--forget")
    assert [speaker["name"] for speaker in document(path)["speakers"]] == [None, None]


@pytest.mark.parametrize("speaker", ["2", "Speaker 2", "speaker_2", "SPEAKER_02"])
def test_a_speaker_is_named_by_the_number_that_the_page_shows(transcript, path, speaker):
    assert min(each.id for each in transcript.speakers) == "SPEAKER_01"
    assert "**Speaker 2** [" in writers.render(transcript, "md")
    run(path, "--name", f"{speaker}=Anna")
    assert {each["id"]: each["name"] for each in document(path)["speakers"]}["SPEAKER_02"] == "Anna"
    assert "**Anna** [" in writers.render(store.read(path), "md")
    assert "**Speaker 2**" not in writers.render(store.read(path), "md")


def test_the_ids_of_an_older_transcript_stay(path):
    """They began with 0, and the document did not say so."""
    text = re.sub(r"SPEAKER_(\d\d)", lambda match: f"SPEAKER_{int(match[1]) - 1:02d}", path.read_text())
    path.write_text(re.sub(r' "first_speaker": 1,\n', "", text))
    before = document(path)
    assert {turn["speaker"] for turn in before["turns"]} == {"SPEAKER_00", "SPEAKER_01"}
    run(path)
    assert document(path) == {**before, "first_speaker": 0}
    assert r"**SPEAKER\_00** [" in writers.render(store.read(path), "md")
    run(path, "--name", "1=Anna")
    words = document(path)["words"]
    assert [one["name"] for one in document(path)["speakers"]] == [None, "Anna"]
    added = Correction("new", (), other=((words[0]["start"], words[0]["end"]),))
    saved = rebuild.read(path)
    assert [each.id for each in rebuild.rebuild(saved, [added]).speakers][-1] == "SPEAKER_02"
    assert saved.transcript.next_speaker == 2


def test_merged_speakers_are_one_and_stay_one(path):
    run(path, "--speakers", 3)
    before = document(path)
    run(path, "--merge", "SPEAKER_03,SPEAKER_01")
    after = document(path)
    assert [speaker["id"] for speaker in after["speakers"]] == ["SPEAKER_02", "SPEAKER_03"]
    seconds = {speaker["id"]: speaker["seconds"] for speaker in before["speakers"]}
    merged = {speaker["id"]: speaker["seconds"] for speaker in after["speakers"]}
    assert merged["SPEAKER_02"] == seconds["SPEAKER_02"]
    both = seconds["SPEAKER_01"] + seconds["SPEAKER_03"]
    assert max(seconds["SPEAKER_01"], seconds["SPEAKER_03"]) < merged["SPEAKER_03"] <= both + 0.001
    assert not any(word["speaker"] == "SPEAKER_01" for word in after["words"])
    run(path, "--name", "SPEAKER_03=Anna")
    assert len(document(path)["speakers"]) == 2


def test_words_are_moved(transcript):
    turns = transcript.turns
    first = next(word for word in transcript.words if word.speaker == "SPEAKER_01")
    moved = Correction("move", corrections.anchor("SPEAKER_02", turns), other=((first.start, first.end),))
    found = corrections.apply(assemble.make_draft(transcript.findings, transcript.asked), [moved])
    changed = [
        (before, after)
        for before, after in zip(transcript.words, found.words, strict=True)
        if before != after
    ]
    assert [(before, after.speaker) for before, after in changed] == [(first, "SPEAKER_02")]
    assert [w for u in found.utterances for w in u.words] == list(found.words)


def test_corrections_by_hand():
    turns = [Turn(0, 4, "A"), Turn(3, 6, "B"), Turn(6, 7, "C")]
    assert corrections.anchor("A", turns) == ((0, 4),)
    assert corrections.TurnIndex(turns).speaker_within(((2.5, 6.5),)) == "B"
    assert corrections.TurnIndex(turns).speaker_within(((8, 9),)) is None
    chain = [
        Correction("merge", ((0, 2),), other=((4, 6),)),  # A is B
        Correction("merge", ((4, 6),), other=((6, 7),)),  # B is C
        Correction("merge", ((6, 7),), other=((0, 2),)),  # C is A, as is known by now
    ]
    assert corrections.merged_speakers(chain, corrections.TurnIndex(turns)) == {"B": "A", "C": "A"}


def test_somebody_who_talks_within_the_turns_of_another_is_found():
    turns = [Turn(0, 10, "A"), Turn(4.0004, 4.6004, "B")]
    assert (
        corrections.TurnIndex(turns).speaker_within(((4.0, 4.6),)) == "B"
    )  # places are rounded to milliseconds
    assert corrections.TurnIndex(turns).speaker_within(((4.299, 4.301),)) == "B"
    assert corrections.TurnIndex(turns).speaker_within(((3.9, 4.6),)) == "A"


def test_a_new_speaker_by_hand():
    words = [Word(n, n + 0.8, f" {n}", "A" if n < 6 else "B", 0.9) for n in range(8)]
    turns = [Turn(0, 6, "A"), Turn(0.5, 5, "C"), Turn(5.9, 8, "B")]
    new = Correction("new", (), other=((1.3, 2.5), (5.3, 6.5)))
    given, after = corrections.add_speakers(words, turns, {new: "X"})
    assert [word.speaker for word in given] == [*"AXXAAXXB"]
    assert [word.speaker_confidence for word in given if word.speaker == "X"] == [None] * 4
    # The words were A's and B's: they lose the time, and C, who talks meanwhile, does not.
    assert [(t.start, t.end) for t in after if t.speaker == "X"] == [(1, 2.8), (5, 5.8), (6, 6.8)]
    assert [(t.start, t.end) for t in after if t.speaker == "A"] == [(0, 1), (2.8, 5), (5.8, 6)]
    assert [(t.start, t.end) for t in after if t.speaker == "B"] == [(5.9, 6), (6.8, 8)]
    assert Turn(0.5, 5, "C") in after


def test_what_was_said_without_words_by_hand():
    tracks = [[Word(0, 1, " a", "A")], []]
    unheard = [[Utterance(2, 5, "A"), Utterance(8, 11, None)], [Utterance(2.5, 6, "B")]]

    def fill(start, end, text):
        return Correction("fill", (), other=((start, end),), text=text)

    filled = corrections.fill_gaps(tracks, unheard, [fill(2.4, 6, "b"), fill(8, 11, "c"), fill(8, 11.2, "d")])
    assert filled == [
        [Word(0, 1, " a", "A"), Word(8, 11, " d", None, corrected=True)],
        [Word(2.5, 6, " b", "B", corrected=True)],
    ]
    # Where there is no such utterance any more, because it has words, there is nothing to fill.
    assert corrections.fill_gaps(tracks, unheard, [fill(4.5, 8.5, "e"), fill(20, 21, "f")]) == tracks


def test_an_added_speaker_is_no_ghost_and_can_be_forgotten(transcript, path):
    first = next(word for word in transcript.words if word.speaker == "SPEAKER_01")
    new = Correction("new", (), other=((first.start, first.end),))
    found = corrections.apply(assemble.make_draft(transcript.findings, transcript.asked), [new])
    assert [one.id for one in found.speakers] == ["SPEAKER_01", "SPEAKER_02", "SPEAKER_03"]
    assert not any("SPEAKER_03" in warning for warning in found.warnings)
    document_ = json.loads(
        shape.encode(shape.from_transcript(found, json.loads(path.read_text())["findings"]))
    )
    path.write_text(json.dumps(document_))
    run(path, "--merge", "SPEAKER_02,SPEAKER_03")
    assert [one["id"] for one in document(path)["speakers"]] == ["SPEAKER_01", "SPEAKER_02"]
    moved = next(word for word in document(path)["words"] if word["start"] == round(first.start, 3))
    assert moved["speaker"] == "SPEAKER_02"
    run(path, "--forget")
    assert document(path)["words"] == json.loads(writers.content(transcript, "json"))["words"]


@pytest.mark.parametrize(
    "args",
    [
        ["--name", "SPEAKER_08=X"],
        ["--name", "SPEAKER_01"],
        ["--name", "SPEAKER_01= "],
        ["--name", "SPEAKER_01=a\nb"],
        ["--merge", "SPEAKER_01"],
        ["--merge", "SPEAKER_01,SPEAKER_01"],
        ["--speakers", "2", "--max-speakers", "3"],
    ],
)
def test_requests_that_make_no_sense_leave_the_file_alone(path, args):
    before = path.read_bytes()
    assert "\n" not in run(path, *args, code=2)
    assert path.read_bytes() == before


def test_stages_that_are_missing_foreign_or_damaged(path, transcript):
    file = path.parent / "toned.findings.npz"
    content = file.read_bytes()
    count = ("--speakers", "3")
    file.write_bytes(content[:-1])
    assert "does not belong to" in run(path, code=4)
    file.unlink()
    assert "copy it into" in run(path, *count, code=4)
    assert "copy it into" in run(path, "--forget", code=4)
    for broken in (content[: len(content) // 2], b"", b"PK\3\4" + content[100:]):
        with pytest.raises(InputError, match="damaged"):
            findings.decode(broken, "x")
    path.write_bytes(writers.content(transcript, "json"))
    assert "without its findings" in run(path, *count, code=4)
    path.write_text('{"schema": "witness/1"}')
    assert "is damaged (Object missing" in run(path, code=4)
    assert "no such file" in run(path.with_name("none.json"), code=4).lower()


def test_names_are_checked_and_normalized():
    assert voices.check_name("  Zoe\u0308 ") == "Zoë"
    with pytest.raises(UsageError):
        voices.check_name("x" * 101)


def test_no_findings(tmp_path):
    (recording,) = make(tmp_path / "in", 1, 2.0)
    options = ("--models", "builtin", "--offline", "--whisper", "none", "-q", "-o", "out/a.json")
    assert in_process(tmp_path, recording, *options, "--no-findings").returncode == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.json"]
    assert json.loads((tmp_path / "out" / "a.json").read_text())["findings"] is None


def test_a_transcript_that_was_written_without_findings_is_corrected(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), "findings": None}))
    run(path, "--name", "SPEAKER_01=Ann")
    assert document(path)["speakers"][0]["name"] == "Ann"
    edits.name_speaker(path, files.sha256_at(path), "SPEAKER_01", "Bo")
    assert document(path)["speakers"][0]["name"] == "Bo"
    assert document(path)["findings"] is None


def test_a_transcript_without_findings_is_corrected_as_one_with_them(path, tmp_path):
    """Names, merges, words and speakers who were missing, in several redos, and again once they are back."""
    (tmp_path / "bare").mkdir()
    bare = tmp_path / "bare" / path.name
    bare.write_bytes(path.read_bytes())
    heard = store.read(path).words[3]
    middle = (heard.start + heard.end) / 2
    spans = [[middle - 0.001, middle + 0.001]]
    text = {"kind": "text", "speaker": [], "name": None, "other": spans, "text": "Zanzibar"}
    sha256 = json.loads(path.read_text())["audio"]["sha256"]
    said = {"schema": html.CORRECTIONS, "sha256": sha256}
    (tmp_path / "text.json").write_text(json.dumps({**said, "corrections": [text]}))
    new = {**text, "kind": "new", "text": None}
    (tmp_path / "new.json").write_text(json.dumps({**said, "corrections": [new]}))
    for one in (path, bare):
        run(one, "--corrections", tmp_path / "text.json", "-f", "srt")
        run(one, "--corrections", tmp_path / "new.json")
        run(one, "--corrections", tmp_path / "new.json")  # again, which changes nothing
        run(one, "--name", "SPEAKER_01=Ann")
        run(one, "--name", "Ann=Eve", "--name", "SPEAKER_02=Bo")
    alike(document(path), document(bare))
    assert [one["name"] for one in document(bare)["speakers"]] == ["Eve", "Bo", None]
    assert "Zanzibar" in bare.with_suffix(".srt").read_text()
    shutil.copy(path.parent / "toned.findings.npz", bare.parent)
    run(bare)
    alike(document(path), document(bare))
    bare.with_name("toned.findings.npz").unlink()
    for one in (path, bare):
        run(one, "--merge", "Eve,Bo", "--name", "Eve=Al")
    alike(document(path), document(bare))
    assert [one["name"] for one in document(bare)["speakers"]] == ["Al", None]
    said = CliRunner().invoke(cli, ["redo", str(bare), "--name", "Al=Cy"]).stderr
    assert "copy it into" in said


def alike(one: dict, other: dict) -> None:
    """The same, but that each turn was rounded before the seconds of a speaker were added up."""
    for first, second in zip(one["speakers"], other["speakers"], strict=True):
        for key, nearly in (("seconds", 0.01), ("share", 0.002)):
            assert first.pop(key) == pytest.approx(second.pop(key), abs=nearly)
    assert one == other


@pytest.mark.parametrize("seed", page_cases.TALKS)
def test_corrections_come_to_the_same_without_the_findings(seed):
    """All cases of the table of the page, on what a JSON holds of each talk."""
    draft = page_cases.talk(seed)
    content = shape.encode(shape.from_transcript(corrections.apply(draft)))
    bare = corrections.draft_of(shape.to_transcript(shape.decode(content)))
    for case in page_cases.cases(seed):
        given = typed_json.decode(json.dumps(case["corrections"]).encode(), rebuild.Corrections)
        one, other = (shape.from_transcript(corrections.apply(base, given)) for base in (draft, bare))
        # Whether a script without spaces had one is not known where an utterance begins with it.
        content = (shape.encode(found).decode().replace(" こ", "こ") for found in (one, other))
        alike(*map(json.loads, content))


# --- documents of strangers ---

HUGE = "1" + "0" * 400
NESTED = "[" * 100_000 + "]" * 100_000


def set_in(document: dict, place: str, value) -> dict:
    """The document with another value in one place; "@TOKEN" stands for a token that json does not write."""
    document = copy.deepcopy(document)
    *folders, last = (int(key) if key.isdigit() else key for key in place.split("."))
    inner = document
    for key in folders:
        inner = inner[key]
    inner[last] = value
    return document


def text_of(document: dict) -> str:
    text = json.dumps(document)
    tokens = {"NaN": "NaN", "-Infinity": "-Infinity", "1e400": "1e400", "HUGE": HUGE, "NESTED": NESTED}
    for name, token in tokens.items():
        text = text.replace(f'"@{name}"', token)
    return text


SPAN = [[0.0, 1.0]]
CORRECTIONS = [
    ("corrections.0.speaker.0.0", "@NaN", "malformed"),
    ("corrections.0.speaker.0.0", "@-Infinity", "malformed"),
    ("corrections.0.speaker.0.1", "@1e400", "$.corrections[0].speaker[0][1]"),
    ("corrections.0.speaker.0.1", "@HUGE", "$.corrections[0].speaker[0][1]"),
    ("corrections.0.speaker.0.1", 1e300, "$.corrections[0].speaker[0][1]"),
    ("corrections.0.speaker.0.0", "0", "$.corrections[0].speaker[0][0]"),
    ("corrections.0.speaker.0.0", 1e6, "$.corrections[0]"),
    ("corrections.0.speaker", [], "$.corrections[0]"),
    ("corrections.0.speaker", "@NESTED", "$.corrections[0].speaker"),
    ("corrections.0.other", SPAN, "$.corrections[0]"),
    ("corrections.0.kind", "nick", "$.corrections[0].kind"),
    ("corrections.0.kind", ["name"], "$.corrections[0].kind"),
    ("corrections.0.name", None, "$.corrections[0]"),
    ("corrections.0.name", 7, "$.corrections[0].name"),
    ("corrections.0.name", "\x1b[31mred", "$.corrections[0]"),
    ("corrections.0.name", "two\nlines", "$.corrections[0]"),
    ("corrections.0.name", "x" * 101, "$.corrections[0]"),
    ("corrections.0.name", "\ud800", "malformed"),
    ("corrections.0.text", "x", "$.corrections[0]"),
    ("corrections", {}, "$.corrections"),
    ("corrections", [{}] * 20_000, "$.corrections"),
    ("schema", 1, "$.schema"),
    ("schema", "other/1", "schema"),
]


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        *CORRECTIONS,
        ("asked.speakers", 1.5, "$.asked.speakers"),
        ("asked.speakers", True, "$.asked.speakers"),
        ("asked.speakers", 0, "$.asked.speakers"),
        ("asked.max_speakers", "@HUGE", "$.asked.max_speakers"),
        ("asked", {"speakers": 2, "min_speakers": 1, "max_speakers": None}, "exact number"),
        ("asked", [], "$.asked"),
        ("style", {"pauses": 0}, "$.style.pauses"),
        ("turns.0.start", "@NaN", "malformed"),
        ("turns.0.end", "@HUGE", "$.turns[0].end"),
        ("turns.0.speaker", None, "$.turns[0].speaker"),
        ("turns", "@NESTED", "$.turns[0]"),
        ("words", "@NESTED", "nested too deeply"),
        ("speakers.0.name", "\x1b]0;title\x07", "is not a name"),
        ("speakers.0.id", 0, "$.speakers[0].id"),
        ("findings", {"file": "../toned.findings.npz", "sha256": ""}, "$.findings.file"),
        ("findings", "toned.findings.npz", "$.findings"),
    ],
)
def test_a_transcript_that_was_tampered_with(path, place, value, says):
    run(path, "--name", "SPEAKER_01=Ana")
    path.write_text(text_of(set_in(json.loads(path.read_text()), place, value)))
    before = path.read_bytes()
    message = run(path, code=4)
    assert ("nested too deeply" if value == "@NESTED" else says) in message
    assert str(path) in message
    assert len(message) < 500
    assert path.read_bytes() == before


@pytest.mark.parametrize(("place", "value", "says"), CORRECTIONS)
def test_corrections_that_were_tampered_with(path, transcript, place, value, says):
    file = path.with_name("corrections.json")
    one = {"kind": "name", "speaker": SPAN, "name": "Ana", "other": [], "text": None}
    saved = {"schema": "witness-corrections/1", "sha256": transcript.audio.sha256, "corrections": [one]}
    file.write_text(json.dumps(saved))
    run(path, "--corrections", file)
    file.write_text(text_of(set_in(saved, place, value)))
    before = path.read_bytes()
    message = run(path, "--corrections", file, code=4)
    assert says in message
    assert str(file) in message
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '"' * 9, "\ufeff{}", '{"schema": ', NESTED])
def test_what_is_no_transcript_at_all(path, text):
    path.write_text(text)
    message = run(path, code=4)
    assert f"{path} is not" in message
    assert len(message) < 500


def test_ten_thousand_corrections_are_the_limit_of_both_together(path):
    before = json.loads(path.read_text())
    one = {"kind": "text", "speaker": [], "name": None, "other": SPAN, "text": "x"}
    before["corrections"] = [{**one, "text": str(n)} for n in range(10_000)]
    path.write_text(json.dumps(before))
    run(path)
    assert "10001 corrections, and 10000 is the limit" in run(path, "--name", "SPEAKER_01=Ana", code=4)
    run(path, "--name", "SPEAKER_01=Ana", "--forget")


def with_arrays(path: Path, header=None, **arrays) -> None:
    """Change arrays of the findings, or places in their header, and let the JSON vouch for them."""
    file = path.with_name("toned.findings.npz")
    with np.load(file) as archive:
        found = dict(archive)
    document = json.loads(found["header"].tobytes())
    for place, value in (header or {}).items():
        document = set_in(document, place, value)
    found["header"] = np.frombuffer(text_of(document).encode(), np.uint8)
    found |= {name: change(found.get(name)) for name, change in arrays.items()}
    np.savez_compressed(file, **{name: array for name, array in found.items() if array is not None})
    transcript = json.loads(path.read_text())
    transcript["findings"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(transcript))


def plda(**changes):
    chance = np.random.default_rng(0)
    parts = {
        "mean1": np.zeros(192),
        "mean2": np.zeros(8),
        "lda": chance.normal(size=(192, 8)),
        "mu": np.zeros(8),
        "tr": np.eye(8),
        "psi": np.ones(8),
    }
    return {f"plda_{name}": lambda _, array=array: array for name, array in {**parts, **changes}.items()}


@pytest.mark.parametrize(
    ("header", "arrays", "says"),
    [
        ({"tracks.0.windows": 1_000_000}, {}, "$.tracks[0].windows"),
        ({"tracks.0.windows": 99_999}, {}, "starts_0 is an array"),
        ({"tracks.0.windows": -1}, {}, "$.tracks[0].windows"),
        ({"tracks.0.windows": "@HUGE"}, {}, "$.tracks[0].windows"),
        ({"tracks.0.vector": 255}, {}, "vectors_0 is an array"),
        ({"tracks": []}, {}, "0 tracks"),
        ({"channels": "call"}, {}, "1 tracks"),
        ({"channels": "sideways"}, {}, "$.channels"),
        ({"audio.duration": "@NaN"}, {}, "malformed"),
        ({"audio.part": {"start": 2.0, "end": 1.0}}, {}, "$.audio.part"),
        ({"rule.threshold": 3}, {}, "$.rule.threshold"),
        ({"models.whisper": ["x"]}, {}, "$.models.whisper"),
        ({"device": {}}, {}, "$.device"),
        ({"tracks.0.recognition.words.start.0": "@NaN"}, {}, "malformed"),
        ({"tracks.0.recognition.words.start.0": "@HUGE"}, {}, "$.tracks[0].recognition.words.start[0]"),
        ({"tracks.0.recognition.words.text": ["x"]}, {}, "shorter"),
        ({"tracks.0.recognition.words.text.0": "\ud800"}, {}, "malformed"),
        ({"warnings": "@NESTED"}, {}, "nested too deeply"),
        ({}, {"starts_0": lambda a: a * 30}, "starts_0"),
        ({}, {"starts_0": lambda a: a[::-1]}, "starts_0"),
        ({}, {"starts_0": lambda a: a + 16_000}, "starts_0"),
        ({}, {"starts_0": lambda a: a.astype(np.float64)}, "starts_0"),
        ({}, {"vectors_0": lambda a: a * np.nan}, "vectors_0"),
        ({}, {"vectors_0": lambda a: a * 0}, "vectors_0"),
        ({}, {"active_0": lambda a: a[:-1]}, "active_0"),
        ({}, {"known_0": lambda _: None}, "known_0"),
        ({}, {"vectors_0": lambda _: np.array([{}], object)}, "vectors_0"),
        ({}, plda(psi=np.ones(7)), "PLDA"),
        ({}, plda(tr=np.zeros((8, 8))), "PLDA"),
        ({}, plda(mu=np.full(8, np.nan)), "PLDA"),
        ({}, plda(lda=np.ones((8, 8)), mean1=np.zeros(8)), "PLDA"),
        ({}, plda(lda=np.zeros((2000, 2000))), "plda_lda is an array"),
    ],
)
def test_findings_that_were_tampered_with(path, header, arrays, says):
    with_arrays(path, header, **arrays)
    message = run(path, code=4)
    assert says in message
    assert "toned.findings.npz" in message
    assert "transcribe the recording again" in message


@pytest.mark.parametrize("shape", ["(9", "((((", "(9L,", "(-1,", "(10**9,", "[", "(\n\t(", "('a',"])
def test_heads_of_arrays_that_were_tampered_with(path, shape):
    file = path.with_name("toned.findings.npz")
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            head = content[:128].replace(b"'shape': (", f"'shape': {shape}".encode(), 1)
            archive.writestr(name, head + content[128:] if name == "starts_0.npy" else content)
    transcript = json.loads(path.read_text())
    transcript["findings"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(transcript))
    assert "toned.findings.npz: is damaged" in run(path, code=4)


def test_findings_with_a_whole_plda(path):
    with_arrays(path, **plda())
    run(path)


def test_an_older_transcript_is_upgraded_by_a_redo(path):
    run(path, "--name", "SPEAKER_01=Ana")
    now = document(path)
    older = json.loads(path.read_text())
    del older["corrected"]
    for one in older["utterances"]:
        del one["words"], one["track"], one["corrected"]
    path.write_text(json.dumps(older))
    run(path)
    assert document(path) == now


def test_what_a_person_corrected_says_so(path):
    assert not document(path)["corrected"]
    run(path)
    assert not document(path)["corrected"]
    run(path, "--name", "SPEAKER_01=Ana")
    named = document(path)
    assert named["corrected"]
    assert not any(one["corrected"] for one in named["utterances"])
    first = named["utterances"][0]
    place = [[named["words"][first["words"][1]][edge] for edge in ("start", "end")]]
    one = {"kind": "text", "speaker": [], "name": None, "other": place, "text": ""}
    saved = {"schema": "witness-corrections/1", "sha256": named["audio"]["sha256"], "corrections": [one]}
    path.with_name("page.json").write_text(json.dumps(saved))
    run(path, "--corrections", path.with_name("page.json"))
    erased = document(path)
    assert len(erased["words"]) == len(named["words"]) - 1
    assert [one["corrected"] for one in erased["utterances"]] == [
        number == 0 for number in range(len(named["utterances"]))
    ]
    run(path)
    assert document(path) == erased
    run(path, "--forget")
    assert not document(path)["corrected"]


def test_forget_begins_again_and_a_plain_redo_repeats(path):
    found = len(document(path)["speakers"])
    run(path, "--speakers", 4, "--name", "SPEAKER_01=Ana")
    run(path)
    assert len(document(path)["speakers"]) == 4
    run(path, "--min-speakers", 1)  # detected again; names stay
    assert len(document(path)["speakers"]) == found
    assert "Ana" in {speaker["name"] for speaker in document(path)["speakers"]}
    run(path, "--speakers", 4)
    run(path, "--forget")
    assert len(document(path)["speakers"]) == found
    assert document(path)["asked"] == {"speakers": None, "min_speakers": None, "max_speakers": None}
    run(path, "--forget", "--speakers", 3)
    assert len(document(path)["speakers"]) == 3


def test_another_format_or_the_recording_leads_to_the_json(tmp_path):
    path = tmp_path / "toned.json"
    path.touch()
    for other in ("toned.txt", "toned.m4a", "toned.qda.txt"):
        (tmp_path / other).write_bytes(b"data")
        assert redo_command.json_of(tmp_path / other) == path
    assert redo_command.json_of(path) == path
    assert redo_command.json_of(tmp_path / "absent.m4a") == tmp_path / "absent.m4a"
    for other in ("alone.m4a", "alone.srt"):
        (tmp_path / other).write_bytes(b"data")
        assert "there is no alone.json beside it" in run(tmp_path / other, code=4)
