"""Scores of words, on references and transcripts that a person can check by hand."""

import csv
import io
import json
import re

import pytest

from conftest import in_process
from witness._version import install
from witness.bench import lines, scoring, words, words_report
from witness.bench.lines import Row, Said
from witness.bench.words import CONFUSED, COST, CPWER, TCPWER, WER, Counts
from witness.errors import InputError, WitnessError

pytest.importorskip("kaldialign", reason="the extra `bench` is not installed")
pytest.importorskip("meeteval", reason="the extra `bench` is not installed")

TRUTH = Said((Row(0, 3, "Anna", "How can I help you?"), Row(4, 6, "Ben", "It is broken.")))


def heard(text, speaker="S0", start=0.0, step=0.5):
    """A line per word, `step` seconds each."""
    return [
        Row(start + place * step, start + (place + 1) * step, speaker, word)
        for place, word in enumerate(text.split())
    ]


def one(hypothesis, reference=TRUTH, language=None):
    (found,) = words.score({"call": (reference, Said(tuple(hypothesis), language))})
    return found


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("“Don’t!” she said: GOOD-hearted...", None, "don't she said good hearted"),
        ("'Twas Momus' sons", None, "twas momus sons"),
        ("ﬁne, Straße, ＡＢＣ", None, "fine strasse abc"),
        ("between 8 and 42, in 1984 at 007", "en", "between eight and forty two in 1984 at 007"),
        ("between 8 and 9", None, "between 8 and 9"),
        ("um 8 Uhr", "de", "um acht uhr"),
        ("8", "xx", "8"),
        ("9" * 5000, "en", "9" * 5000),
        ("你好 World。3時です", None, "你 好 world 3 時 で す"),
        ("हिन्दी में", None, "हिन्दी में"),
        ("... -- ?", None, ""),
    ],
)
def test_texts_become_comparable(text, language, expected):
    assert words.normalize(text, language) == tuple(expected.split())


def test_each_kind_of_error_is_counted():
    score = one([*heard("how can I held"), *heard("It is is broken", "S1", 4.0)])
    assert score.counts[WER] == Counts(substitutions=1, deletions=1, insertions=1, words=8)
    assert score.rate(WER) == 37.5
    assert [(lost.text, lost.speaker, lost.overlapped) for lost in score.lost] == [("you", "Anna", False)]
    assert score.lost[0].time == pytest.approx(3 - 3 * 1.5 / 14)
    assert score.rate(COST) == 0
    assert score.speakers == (2, 2)


def test_what_the_labels_cost():
    """All is heard, and one of two speakers is given all of it: 3 words are missing, 3 too many."""
    score = one([*heard("How can I help you?"), *heard("It is broken.", "S0", 4.0)])
    assert score.rate(WER) == 0
    assert score.counts[CPWER] == Counts(0, 3, 3, 8)
    assert score.counts[COST] == Counts(0, 3, 3, 8)
    assert score.counts[CONFUSED] == Counts(3, 0, 0, 8)


def test_a_word_at_the_edge_of_a_turn_is_under_the_wrong_speaker():
    score = one([*heard("How can I help"), *heard("you? It is broken.", "S1", 2.5)])
    assert score.counts[CONFUSED] == Counts(1, 0, 0, 8)
    assert score.rate(COST) == pytest.approx(100 * 2 / 8)


def test_words_far_from_where_they_were_said_count_in_tcpwer_only():
    score = one([*heard("How can I help you?"), *heard("It is broken.", "S1", 60.0)])
    assert score.rate(CPWER) == 0
    assert score.counts[TCPWER].errors == 6


def test_errors_of_word_times_are_those_of_the_edges_of_lines():
    late = [*heard("How can I help you?", start=0.25), *heard("It is broken", "S1", 3.9)]
    score = one(late)
    assert score.starts == pytest.approx([0.25, -0.1])
    assert score.ends == pytest.approx([2.75 - 3, 5.4 - 6])
    found = words.times(score.starts)
    assert (found.words, found.median, found.late) == pytest.approx((2, 0.175, 0.075))
    # Where the word is another one, nothing is known of its time.
    assert one(heard("Who can I help you")).starts == ()


def test_every_word_of_a_ctm_has_times(tmp_path):
    (tmp_path / "ref.ctm").write_text(";; by hand\ncall 1 0.5 0.3 Hello\ncall 1 1.0 0.5 there 0.9\n")
    reference = lines.read(tmp_path / "ref.ctm")["ref"]
    score = one([Row(0.6, 0.8, "S0", "hello"), Row(1.0, 1.6, "S1", "there")], reference)
    assert score.starts == pytest.approx([0.1, 0.0])
    assert score.ends == pytest.approx([0.0, 0.1])
    assert score.speakers is None
    assert list(score.counts) == [WER]
    assert "cpWER" not in words_report.make([score]).to_text().splitlines()[2]


def test_numbers_are_spelled_out_in_the_language_of_the_transcript():
    reference = Said((Row(0, 2, "A", "between eight and ten"),))
    score = one([Row(0, 2, "S0", "between 8 and 10")], reference, "en")
    assert (score.rate(WER), score.digits) == (0, (0, 0))
    score = one([Row(0, 2, "S0", "between 8 and 10")], reference)
    assert (score.rate(WER), score.digits) == (50, (0, 2))


def test_a_recording_that_is_missing_counts_as_all_missed():
    pairs = scoring.pair({"a": TRUTH, "b": TRUTH}, {"a": TRUTH, "c": TRUTH}, lines.Said(()))
    scores = words.score(pairs)
    assert [score.uri for score in scores] == ["a", "b"]
    assert scores[1].counts[WER] == scores[1].counts[CPWER] == Counts(0, 8, 0, 8)
    wer = words.pool(scores)[WER]
    assert (wer.rate, wer.parts[1], wer.interval) == (50, 50, (0, 100))
    with pytest.raises(InputError, match="no recording in common"):
        scoring.pair({"a": TRUTH, "b": TRUTH}, {"c": TRUTH}, lines.Said(()))


def test_a_difference_is_of_the_same_files():
    better, worse = one(TRUTH.lines), one(TRUTH.lines[:1])
    difference = words.compare([better, better], [worse, worse])[WER]
    assert (difference.points, difference.interval) == (-37.5, (-37.5, -37.5))


def test_more_speakers_than_can_be_paired():
    score = one([Row(n, n + 1, f"S{n}", "hello") for n in range(21)])
    assert score.rate(WER) is not None
    assert CPWER not in score.counts
    assert (
        "no cpWER, which takes 20 speakers at most, because of call" in words_report.make([score]).to_text()
    )


def test_a_missing_library_is_one_line_with_the_fix(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "meeteval.wer", None)
    with pytest.raises(WitnessError, match=re.escape(f"needs meeteval; fix: {install('bench')}")):
        one(TRUTH.lines)


# --- files ---


def document(texts, **more):
    spoken = [
        {
            "start": start,
            "end": start + 0.4,
            "text": f" {text}",
            "speaker": speaker,
            "supported": bool(speaker),
        }
        for start, speaker, text in texts
    ]
    silent = {"start": 7.0, "end": 9.5, "speaker": "SPEAKER_01", "text": None}
    return {
        "schema": "witness/1",
        "models": {"whisper": {"name": "tiny", "sha256": "0"}},
        "language": "en",
        "words": spoken,
        "utterances": [silent],
        **more,
    }


@pytest.fixture
def folders(tmp_path):
    """Two recordings; one reference calls its recording by another name, as some do."""
    for name in ("ref", "hyp", "other"):
        (tmp_path / name).mkdir()
    for name, uri in (("a", "a"), ("b", "call17")):
        (tmp_path / "ref" / f"{name}.stm").write_text(
            f";; by hand\n{uri} 1 Anna 0.0 1.0 <o,f0,female> Hello [laughter] there\n"
            f"{uri} 1 Ben 2.0 2.5 Yes.\n"
        )
        found = [(0.1, "SPEAKER_01", "Hello"), (0.5, "SPEAKER_01", "there,"), (2.0, "SPEAKER_02", "yes.")]
        (tmp_path / "hyp" / f"{name}.json").write_text(json.dumps(document(found)))
        (tmp_path / "other" / f"{name}.json").write_text(json.dumps(document(found[:2])))
    (tmp_path / "hyp" / "b.json").write_text(
        json.dumps(document([(0.1, "SPEAKER_01", "Hello"), (5.0, None, "Thanks.")]))
    )
    (tmp_path / "hyp" / "report.json").write_text('{"schema": "witness-batch/1"}')
    return tmp_path


def run(folder, *args):
    result = in_process(folder, "score", "--words", *args)
    result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
    return result


def test_command(folders):
    result = run(folders, "ref", "hyp", "--against", "other")
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1][:6] == ["WER", "33.33", "0.00", "to", "66.67", "0.00"]
    assert "6 words in the reference, 2 of them missing" in result.stdout
    assert words.NORMALIZATION in result.stdout
    assert ["WER", "+0.00"] in [row[:2] for row in rows]
    assert rows[-1][:3] == ["b", "3", "66.67"]


def test_command_gives_json_csv_and_a_page(folders):
    result = json.loads(run(folders, "ref", "hyp", "--json", "--html", "page.html").stdout)
    assert result["schema"] == "witness-words/1"
    assert result["normalization"] == words.NORMALIZATION
    assert result["wer"] == {
        "rate": 33.33,
        "interval": [0.0, 66.67],
        "substitutions": 0.0,
        "deletions": 33.33,
        "insertions": 0.0,
        "words": 6,
    }
    assert result["start_error"] == {"words": 3, "median": 0.1, "percentile_95": 0.1, "late": 0.1}
    assert (result["unsupported_words"], result["inaudible_seconds"]) == (1, 5.0)
    b = result["recordings"][1]
    assert [word["text"] for word in b["lost"]] == ["there", "yes"]
    assert b["wrong_speaker"] == {
        "rate": 0.0,
        "substitutions": 0,
        "deletions": 0,
        "insertions": 0,
        "words": 1,
    }
    assert "<td" in (folders / "page.html").read_text()
    rows = list(csv.DictReader(io.StringIO(run(folders, "ref", "hyp", "--csv").stdout)))
    assert [(row["uri"], row["wer deletions"], row["start_error"]) for row in rows] == [
        ("a", "0", "0.05"),
        ("b", "2", "0.10"),
    ]


def test_single_files_belong_together_whatever_they_are_called(folders):
    result = json.loads(run(folders, "ref/b.stm", "hyp/a.json", "--json").stdout)
    assert (result["wer"]["rate"], result["wer"]["interval"]) == (0.0, None)
    assert [one["uri"] for one in result["recordings"]] == ["b"]


def test_a_transcript_may_lie_beside_its_reference(folders):
    for path in (folders / "hyp").iterdir():
        path.rename(folders / "ref" / path.name)
    result = json.loads(run(folders, "ref", "ref", "--json").stdout)
    assert result["wer"]["rate"] == 33.33


def test_seglst_and_several_recordings_in_one_file(folders):
    whole = "".join(path.read_text() for path in sorted((folders / "ref").iterdir()))
    (folders / "all.stm").write_text(whole)
    parts = [
        {"session_id": uri, "speaker": 7, "start_time": "0.0", "end_time": 2.5, "words": "hello there yes"}
        for uri in ("a", "call17")
    ]
    (folders / "all.seglst.json").write_text(json.dumps(parts))
    result = json.loads(run(folders, "all.stm", "all.seglst.json", "--json").stdout)
    assert result["wer"]["rate"] == 0
    assert result["wrong_speaker"]["rate"] == 33.33
    assert [one["uri"] for one in result["recordings"]] == ["a", "call17"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("ref", "hyp", "--uem", "x.uem"), 2, "--uem"),
        (("ref", "missing.json"), 4, "missing.json: could not be read"),
        (("ref", "empty"), 4, "empty: no .json, .stm, .ctm file"),
        (("bad.stm", "hyp/a.json"), 4, "bad.stm, line 2: not an STM line: a 1 Ben two three Yes"),
        (("bad.ctm", "hyp/a.json"), 4, "bad.ctm, line 1: not a CTM line"),
        (("parts.stm", "hyp/a.json"), 4, "parts.stm, line 1: parts that are not scored"),
        (("ref/a.stm", "bad.json"), 4, "bad.json: has no 'speaker'"),
        (("ref/a.stm", "broken.json"), 4, "broken.json: is not valid JSON"),
        (("ref/a.stm", "silent.json"), 4, "silent.json: no words were recognized"),
        (("ref/a.stm", "hyp/report.json"), 4, "report.json: neither a transcript"),
        (("ref/a.stm", "a.rttm"), 4, "a.rttm: not .stm, .ctm or .json"),
        (("nothing.stm", "hyp/a.json"), 4, "nothing.stm: no line with words"),
        (("quiet.stm", "hyp/a.json"), 4, "no words to score against"),
    ],
)
def test_command_errors(folders, args, code, says):
    (folders / "empty").mkdir()
    (folders / "bad.stm").write_text("a 1 Anna 0 1 Hello\na 1 Ben two three Yes\n")
    (folders / "bad.ctm").write_text("a 1 0.5 -1 hello\n")
    (folders / "parts.stm").write_text("a 1 inter_segment_gap 0 1 IGNORE_TIME_SEGMENT_IN_SCORING\n")
    (folders / "bad.json").write_text('[{"session_id": "a"}]')
    (folders / "broken.json").write_text("{")
    (folders / "silent.json").write_text(json.dumps(document([], models={"whisper": None})))
    (folders / "nothing.stm").write_text(";; nothing\n")
    (folders / "quiet.stm").write_text("a 1 Anna 0 1 [laughter]\n")
    result = run(folders, *args)
    assert (result.returncode, result.stdout) == (code, "")
    assert len([line for line in result.stderr.splitlines() if not line.startswith("note: ")]) == 1
    assert says in result.stderr
