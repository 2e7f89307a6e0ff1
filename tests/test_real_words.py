"""The benchmarks of recognized words: their arithmetic, on transcripts made by hand."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from conftest import CALL, ROOT
from witness.bench import lines
from witness.bench.lines import Row, Said
from witness.formats import findings
from witness.schema import Recognition, Word
from witness.transcript import assemble

pytest.importorskip("kaldialign", reason="the extra `bench` is not installed")
pytest.importorskip("meeteval", reason="the extra `bench` is not installed")

REFERENCE = "call 1 Anna 0 2 Hello, who is there?\ncall 1 Ben 2 3 Me.\ncall 1 Anna 2.2 2.8 Oh!\n"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def document(texts):
    words = [
        {
            "start": start,
            "end": start + 0.5,
            "text": f" {text}",
            "speaker": speaker,
            "supported": bool(speaker),
        }
        for start, speaker, text in texts
    ]
    return {
        "schema": "witness/1",
        "audio": {"duration": 4.0},
        "models": {"whisper": {"name": "tiny", "sha256": "0"}},
        "device": {"whisper": "cpu"},
        "timing": {"transcription": 2.0},
        "language": "en",
        "words": words,
        "utterances": [],
    }


BEFORE = document([(0.0, "S0", "Hello"), (0.6, "S0", "who's"), (1.5, None, "there"), (2.2, "S1", "me")])
AFTER = document([(0.0, "S0", "Hello"), (0.6, "S0", "who"), (1.5, "S0", "there"), (2.2, "S0", "me")])
COST = {"wall": 8.0, "processor": 4.0, "peak_memory_mb": 300.0}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "call.stm").write_text(REFERENCE)
    (tmp_path / "call.flac").write_bytes(b"")
    return tmp_path


def result(monkeypatch, folder, transcript, *options):
    """What `real` makes of a run that gives this transcript."""
    import harness
    import real_words

    def transcribe(recording, cache, given):
        (cache / f"{recording.stem}.json").write_text(json.dumps(transcript))
        assert list(given) == list(options)
        return COST

    monkeypatch.setattr(harness, "transcribe", transcribe)
    return real_words.real(folder, folder / f"run-{len(list(folder.iterdir()))}", options)


@pytest.mark.usefixtures("benchmarks")
def test_a_result(monkeypatch, folder):
    found, text = result(monkeypatch, folder, BEFORE, "--whisper", "/some/where/tiny.bin")
    assert found["command"] == "python benchmarks/words.py real FOLDER --whisper tiny.bin"
    # "who's" for "who", and "is", "there" and "oh" are missing; the JSON has "there".
    assert found["wer"]["rate"] == pytest.approx(100 * 4 / 6, abs=0.01)
    assert (found["lost_words"], found["lost_alone"], found["lost_from_json_too"]) == (3, 2, 2)
    assert found["cost"] == {**COST, "times_real_time": 0.5, "times_real_time_of_a_core": 1.0}
    (recording,) = found["recordings"]
    assert recording["words_by_speaker"] == {"S0": 2, "S1": 1}
    assert [word["text"] for word in recording["lost"]] == ["is", "there", "oh"]
    assert "Anna: oh (overlapped)" in text
    assert "3 words of the reference are missing, 2 of them from the JSON, too" in text


@pytest.mark.usefixtures("benchmarks")
def test_before_and_after(monkeypatch, folder):
    import real_words

    before, after = (result(monkeypatch, folder, transcript)[0] for transcript in (BEFORE, AFTER))
    found = real_words.compare(before, after)
    assert found["recordings"] == ["call"]
    assert found["measures"]["WER"] == {
        "first": 66.67,
        "second": 33.33,
        "difference": -33.33,
        "interval": None,  # of one file
    }
    assert found["measures"]["wrong speaker"]["difference"] == 25  # "me" of four
    assert [word[3] for word in found["no_longer_lost"]] == ["there"]
    assert found["newly_lost"] == []
    with pytest.raises(SystemExit, match="another reference"):
        real_words.compare(before, {**after, "recordings": [with_words(after["recordings"][0], 7)]})


def with_words(recording, words):
    return {**recording, "wer": {**recording["wer"], "words": words}}


@pytest.mark.usefixtures("benchmarks")
def test_a_run_continues_and_is_not_mixed_with_another(monkeypatch, folder):
    import harness
    import real_words

    calls = []

    def transcribe(recording, cache, options):
        calls.append(list(options))
        (cache / f"{recording.stem}.json").write_text(json.dumps(BEFORE))
        return COST

    monkeypatch.setattr(harness, "transcribe", transcribe)
    first = real_words.real(folder, folder / "run", ["--fast"])
    assert real_words.real(folder, folder / "run", ["--fast"]) == first
    assert calls == [["--fast"]]
    with pytest.raises(SystemExit, match="other options; choose another --cache"):
        real_words.real(folder, folder / "run", [])


@pytest.mark.usefixtures("benchmarks")
def test_what_a_process_costs(tmp_path):
    import harness

    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint('done')"
    cost = harness.measured([sys.executable, "-c", busy], tmp_path / "out")
    assert (tmp_path / "out").read_text() == "done\n"
    assert cost["processor"] >= 0.2
    assert cost["peak_memory_mb"] > 1
    with pytest.raises(SystemExit, match="ended with code 3"):
        harness.measured([sys.executable, "-c", "raise SystemExit(3)"])


def spread(stm):
    """The words of each line of an STM, over its time by their letters."""
    for line in stm.read_text().splitlines():
        _, _, _, start, end, *texts = line.split()
        edges = np.cumsum([0, *map(len, texts)]) / max(1, sum(map(len, texts)))
        times = float(start) + edges * (float(end) - float(start))
        for text, first, last in zip(texts, times[:-1], times[1:], strict=True):
            yield Word(float(first), float(last), f" {text}")


@pytest.mark.usefixtures("benchmarks")
def test_rules_on_the_words_of_a_run(monkeypatch, tmp_path, diarized):
    """The call's own words at about their own times, and what the diarizer really heard."""
    import words as bench

    path = CALL.with_suffix(".stm")
    (tmp_path / "call.stm").write_text(path.read_text())
    (tmp_path / "call.flac").write_bytes(b"")
    spoken = sorted(spread(path), key=lambda word: word.start)
    heard = Recognition((*spoken, Word(59.9, 60.0, " Thanks.")), "en", "cpu")
    (track,) = diarized.findings.tracks
    found = replace(diarized.findings, tracks=(replace(track, recognition=heard),))
    (tmp_path / "call.findings.npz").write_bytes(findings.encode(found))
    (material,) = bench.saved(tmp_path, tmp_path, "all", told=True)
    assert material.truth[-1] is None
    assert material.truth.count(None) < 12  # some words of two lines at once are in another order
    usual = bench.witness(material)
    wrong, words = bench.wrong_words(material.truth, usual)
    assert words > 195
    assert wrong / words < 0.06
    costs = ("CHANGE_COST", "CHANGE_COST_AT_BREAK", "CHANGE_COST_OF_FEW")
    for cost in costs:
        monkeypatch.setattr(assemble, cost, getattr(assemble, cost))  # to have it back afterwards
    bench.set_constants([f"{cost}=1000" for cost in costs])
    points, _ = bench.difference([material], [usual])["word_diarization_error"]
    assert points > 20  # nobody ever takes over
    with pytest.raises(SystemExit, match="has no COST"):
        bench.set_constants(["COST=1"])


@pytest.mark.usefixtures("benchmarks")
def test_engines_are_compared_by_recognition_alone(tmp_path):
    import recognizers

    (tmp_path / "call.stm").write_text(REFERENCE)
    rows = []
    for number, slow in enumerate((1.0, 2.0, 1.5)):
        none = {"wall": 1.0, "processor": 1.0, "peak_memory_mb": 90.0}
        alone = {"wall": 3 * slow, "processor": 1 + slow, "recognition": slow, "peak_memory_mb": 200.0}
        beside = {"wall": 4 * slow, "processor": 9.0, "recognition": 2 * slow, "peak_memory_mb": 210.0}
        rows += [
            recognizers.Row("", "without words", number, "call", none),
            recognizers.Row("e=m", "alone", number, "call", alone, AFTER),
            recognizers.Row("e=m", "beside", number, "call", beside, AFTER),
        ]
    found = recognizers.summary("e=m", rows, lines.read(tmp_path / "call.stm"), 6.0)
    assert found["engine"] == "e"
    assert found["alone"] == {"median": 4, "low": 3, "high": 6}
    assert found["beside"] == {"median": 2, "low": 1.5, "high": 3}
    assert found["whole"] == {"median": 1, "low": 0.75, "high": 1.5}
    assert found["processor_seconds"] == {"median": 1.5, "low": 1, "high": 2}
    assert found["peak_memory_mb"] == 210
    assert found["wer"]["rate"] == 33.33
    with pytest.raises(SystemExit, match="not ENGINE=MODEL"):
        recognizers.options_of("tiny")


@pytest.mark.usefixtures("benchmarks")
def test_the_peer_has_words_without_speakers(tmp_path):
    import against_faster_whisper as against
    import harness

    (tmp_path / "call.stm").write_text(REFERENCE)
    peer = Said(
        tuple(Row(n / 2, n / 2 + 0.4, None, word) for n, word in enumerate(["hello", "who", "is", "there"]))
    )
    found = against.score(tmp_path / "call.stm", peer)
    assert found["wer"]["rate"] == 33.33
    assert "cpwer" not in found
    assert harness.ratio([4.0, 6.0, 5.0], [2.0, 2.0, 4.0]) == {"median": 2.5, "low": 1.25, "high": 3.0}
