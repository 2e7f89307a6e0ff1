"""Scores against published numbers, and cases that a person can check by hand."""

import csv
import io
import json
import subprocess
import sys

import pytest

from conftest import SHARED, in_process
from witness.bench import score_report, scoring
from witness.errors import InputError
from witness.formats import rttm
from witness.schema import Turn

STRICT = "strict"


@pytest.fixture(scope="module")
def vbx():
    """An offline VBx system of 2021 on VoxConverse's test part."""
    folder = SHARED / "data" / "voxconverse"
    if not folder.is_dir():
        pytest.skip("VoxConverse's labels are not here (shared/data/voxconverse)")
    pairs = scoring.pair(scoring.read(folder / "test"), scoring.read(folder / "hypotheses" / "vbx.rttm"), [])
    return pairs, scoring.score(pairs, as_pyannote=True)


@pytest.mark.figures
def test_anchors(vbx):
    """They were computed with pyannote.metrics alone."""
    pairs, vbx = vbx
    assert len(vbx) == 232
    found = {name: round(pooled.rate, 2) for name, pooled in scoring.pool(vbx).items()}
    assert found == {
        "strict": 10.97,
        "collar-0.25-total": 8.03,
        "collar-0.25-total-no-overlap": 5.73,
        "collar-0.25-each-side": 5.99,
        "collar-0.25-each-side-no-overlap": 4.31,
    }
    assert round(scoring.jer(vbx), 1) == 29.1
    counts = scoring.speaker_counts(vbx)
    assert (counts.exact, counts.within_one, round(counts.bias, 2)) == (108, 172, -0.81)
    # Of 43 h, 3 s are a speaker's own overlap, in two files.
    seconds = {uri: sum(turn.duration for turn in turns) for uri, (turns, _) in pairs.items()}
    own = {
        uri: overlap
        for uri, (turns, _) in pairs.items()
        if (overlap := round(seconds[uri] - sum(turn.duration for turn in scoring.merged(turns)), 3))
    }
    assert own == {"optsn": 0.01, "utial": 2.98}
    again = {score.uri: score for score in scoring.score({uri: pairs[uri] for uri in own})}
    merged = scoring.pool([again.get(score.uri, score) for score in vbx])
    assert [pooled.rate for pooled in merged.values()] == pytest.approx(list(found.values()), abs=0.01)


@pytest.mark.figures
def test_anchor_interval(vbx):
    low, high = scoring.pool(vbx[1])[STRICT].interval
    assert low == pytest.approx(10.97 - 1.2, abs=0.3)
    assert high == pytest.approx(10.97 + 1.2, abs=0.3)


def one(reference, hypothesis, uem=None):
    pairs = {"a": ([Turn(*t) for t in reference], [Turn(*t) for t in hypothesis])}
    return scoring.score(pairs, uem)


def test_by_hand():
    # 10 s of A then 10 s of B; the hypothesis misses 2 s, invents 1 s and gives 3 s to the wrong one.
    (found,) = one([(0, 10, "A"), (10, 20, "B")], [(2, 13, "x"), (13, 21, "y")])
    assert found.seconds[STRICT] == pytest.approx((1, 2, 3, 20))
    assert found.der(STRICT) == pytest.approx(30)
    # Jaccard: A has 8 of 13 s in common with x, B 7 of 11 with y.
    assert found.jer == pytest.approx(100 * (5 / 13 + 4 / 11) / 2)


def test_a_collar_forgives_what_lies_inside_it():
    reference, hypothesis = [(0, 10, "A"), (20, 30, "A")], [(0.2, 10, "x"), (20, 30, "x")]
    (found,) = one(reference, hypothesis)
    missed = {name: seconds[1] for name, seconds in found.seconds.items()}
    assert missed["strict"] == pytest.approx(0.2)
    assert missed["collar-0.25-total"] == pytest.approx(0.075)
    assert missed["collar-0.25-each-side"] == pytest.approx(0)


def test_overlap_is_counted_or_skipped():
    (found,) = one([(0, 10, "A"), (5, 10, "B")], [(0, 10, "x")])
    assert found.seconds["collar-0.25-total"][1] > 4
    assert found.seconds["collar-0.25-total-no-overlap"][1] == pytest.approx(0)


def test_a_uem_limits_what_is_scored():
    (found,) = one([(0, 10, "A")], [(0, 5, "x")], {"a": [(0, 5)]})
    assert found.seconds[STRICT] == pytest.approx((0, 0, 0, 5))
    with pytest.raises(InputError, match="no line for a"):
        one([(0, 10, "A")], [(0, 5, "x")], {"b": [(0, 5)]})


def test_errors_are_summed_before_they_are_divided():
    pairs = {
        "long": ([Turn(0, 90, "A")], [Turn(0, 90, "x")]),
        "short": ([Turn(0, 10, "A")], []),
    }
    strict = scoring.pool(scoring.score(pairs))[STRICT]
    assert strict.rate == pytest.approx(10)
    assert strict.parts[1] == pytest.approx(10)
    assert strict.interval == (pytest.approx(0), pytest.approx(100))


def test_paired_difference_is_narrower_than_either():
    def hypothesis(share):
        return {f"f{n}": ([Turn(0, 100, "A")], [Turn(0, 100 - share * n, "x")]) for n in range(20)}

    scores, others = scoring.score(hypothesis(2)), scoring.score(hypothesis(1.9))
    strict = scoring.compare(scores, others)[STRICT]
    (low, high), (low_alone, high_alone) = strict.interval, scoring.pool(scores)[STRICT].interval
    assert strict.points == pytest.approx(0.95)
    assert low > 0
    assert high - low < (high_alone - low_alone) / 5


def test_a_recording_that_is_missing_counts_as_all_missed():
    pairs = scoring.pair({"a": [Turn(0, 1, "A")], "b": [Turn(0, 1, "A")]}, {"a": [Turn(0, 1, "x")]}, [])
    assert pairs["b"][1] == []
    with pytest.raises(InputError, match="no recording in common"):
        scoring.pair({"a": [], "b": []}, {"c": [], "d": []}, [])
    assert set(scoring.pair({"a": []}, {"other": []}, [])) == {"a"}


def test_a_reference_without_speech():
    with pytest.raises(InputError, match="no speech"):
        scoring.pool(one([], [(0, 1, "x")]))


@pytest.fixture
def folders(tmp_path):
    for name, end in (("ref", 10.0), ("hyp", 9.0), ("other", 5.0)):
        (tmp_path / name).mkdir()
        for uri in ("a", "b"):
            (tmp_path / name / f"{uri}.rttm").write_text(rttm.serialize(uri, [Turn(0, end, "A")]))
    return tmp_path


def run(folder, *args):
    result = in_process(folder, "score", *args)
    result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
    return result


@pytest.mark.slow
def test_command(folders):
    command = [sys.executable, "-m", "witness", "score", "ref", "hyp", "--against", "other"]
    result = subprocess.run(command, cwd=folders, capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[1].split()[:2] == ["strict", "10.00"]
    assert any(line.startswith("strict") and "-40.00" in line for line in lines)
    for convention in scoring.CONVENTIONS:
        assert convention.name in result.stdout
        assert convention.meaning in result.stdout


def test_command_gives_json_and_csv(folders):
    (folders / "hyp" / "b.rttm").unlink()
    result = run(folders, "ref", "hyp", "--json")
    assert "b" in result.stderr
    assert "all missed" in result.stderr
    document = json.loads(result.stdout)
    assert document["conventions"][0] == {
        "name": "strict",
        "pyannote_collar": 0.0,
        "skip_overlap": False,
        "meaning": "no collar, overlap counted",
        "der": 55.0,
        "interval": [10.0, 100.0],
        "false_alarm": 0.0,
        "missed_detection": 55.0,
        "confusion": 0.0,
    }
    rows = list(csv.DictReader(io.StringIO(run(folders, "ref", "hyp", "--csv").stdout)))
    assert [row["uri"] for row in rows] == ["a", "b"]
    assert rows[1]["strict missed_detection"] == "10.000"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("missing", "hyp"), 4, "missing"),
        (("ref", "empty"), 4, "empty"),
        (("ref", "binary"), 4, "binary"),
        (("ref", "README.md"), 4, "README.md, line 1: not an RTTM line: # Words"),
        (("README.md", "hyp"), 4, "README.md, line 1"),
        (("ref", "other.json"), 4, "other.json is not a transcript"),
        (("ref", "empty", "--against", "hyp"), 4, "no RTTM file and no transcript"),
        (("ref", "hyp", "--against", "README.md"), 4, "README.md, line 1"),
        (("ref", "hyp", "--json", "--csv"), 2, "--csv"),
        (("ref", "hyp", "--uem", "bad.uem"), 4, "bad.uem, line 1"),
        (("ref",), 2, "HYPOTHESIS"),
    ],
)
def test_command_errors(folders, args, code, says):
    (folders / "empty").mkdir()
    (folders / "binary").write_bytes(b"\xff\xfe\x00")
    (folders / "bad.uem").write_text("a 1 zero ten\n")
    (folders / "README.md").write_text("# Words\n\nNo turns here.\n")
    (folders / "other.json").write_text('{"schema": "other"}')
    result = run(folders, *args)
    assert result.returncode == code
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert says in result.stderr


def test_the_turns_of_transcripts_are_scored(folders, diarized):
    diarized.save(folders / "call.json")
    (folders / "call.rttm").write_text(rttm.serialize("call", diarized.turns))
    (folders / "run").mkdir()
    (folders / "run" / "report.json").write_text('{"schema": "other"}')
    diarized.save(folders / "run" / "call.json")
    for args in (("call.rttm", "call.json"), ("call.json", "call.rttm"), ("call.rttm", "run")):
        convention, der, *_ = run(folders, *args).stdout.splitlines()[1].split()
        assert convention == "strict"
        assert float(der) < 0.05  # RTTM has milliseconds


def test_text_of_one_recording_has_no_table_of_recordings():
    text = score_report.make(one([(0, 10, "A")], [(0, 10, "x")])).to_text()
    assert "recording" not in text.splitlines()[-1].split()[0]
    assert "JER 0.0 %" in text


def test_a_byte_order_mark_is_no_part_of_the_first_line(folders):
    for name in ("ref", "hyp"):
        path = folders / name / "a.rttm"
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run(folders, "ref", "hyp").stdout.splitlines()[1].split()[:2] == ["strict", "10.00"]


def test_an_empty_hypothesis_misses_everything(folders):
    (folders / "nothing.rttm").write_text("")
    result = run(folders, "ref", "nothing.rttm")
    assert result.stdout.splitlines()[1].split()[:2] == ["strict", "100.00"]
    assert "no SPEAKER line" in run(folders, "nothing.rttm", "hyp").stderr


def test_a_convention_that_leaves_nothing_to_score_says_so():
    scores = one([(0, 10, "A"), (0, 10, "B")], [(0, 10, "x"), (0, 10, "y")])
    text = score_report.make(scores).to_text()
    assert "strict" in text
    document = json.loads(score_report.make(scores).to_json())
    assert document["conventions"][0]["der"] == 0
    assert document["conventions"][2]["der"] is None


def test_a_page_of_the_scores(folders):
    text = run(folders, "ref", "hyp").stdout
    assert run(folders, "ref", "hyp", "--against", "hyp", "--html", "scores.html").stdout.startswith(
        text[:200]
    )
    html = (folders / "scores.html").read_text()
    for convention in scoring.CONVENTIONS:
        assert f'<td class="text">{convention.name}</td>' in html
    assert "Against the other" in html
    assert "Content-Security-Policy" in html
    nasty = "<script>alert(1)</script>"
    scores = scoring.score({nasty: ([Turn(0, 1, "A")], []), "b": ([Turn(0, 1, "A")], [])})
    html = score_report.make(scores).to_html()
    assert nasty not in html
    assert html.count("&lt;script&gt;") == 2  # in the table, and where the pointer rests on a point


def test_who_overlaps_themselves_says_it_once():
    reference = [Turn(0, 10, "A"), Turn(5, 12, "A"), Turn(6, 8, "B")]
    pairs = {"a": (reference, [Turn(0, 12, "x"), Turn(6, 8, "y")])}
    (found,) = scoring.score(pairs)
    assert found.seconds[STRICT] == pytest.approx((0, 0, 0, 14))
    assert found.jer == pytest.approx(0)
    (found,) = scoring.score(pairs, as_pyannote=True)
    assert found.seconds[STRICT] == pytest.approx((0, 5, 0, 19))
    (found,) = scoring.score({"a": pairs["a"][::-1]}, as_pyannote=True)
    assert found.seconds[STRICT] == pytest.approx((5, 0, 0, 14))
    (found,) = scoring.score({"a": pairs["a"][::-1]})
    assert found.seconds[STRICT] == pytest.approx((0, 0, 0, 14))


def test_turns_that_touch_stay_two():
    turns = [Turn(2, 3, "A"), Turn(0, 1, "A"), Turn(1, 2, "A"), Turn(2.5, 2.6, "A"), Turn(0, 9, "B")]
    assert scoring.merged(turns) == [Turn(0, 1, "A"), Turn(0, 9, "B"), Turn(1, 2, "A"), Turn(2, 3, "A")]


def test_the_report_says_how_own_overlap_is_counted(folders):
    for path in (folders / "ref").iterdir():
        path.write_text(rttm.serialize(path.stem, [Turn(0, 10, "A"), Turn(5, 10, "A")]))
    text, other = run(folders, "ref", "hyp").stdout, run(folders, "ref", "hyp", "--as-pyannote").stdout
    assert text.splitlines()[1].split()[:2] == ["strict", "10.00"]
    assert "overlapping turns share counts once" in text
    assert other.splitlines()[1].split()[:2] == ["strict", "40.00"]
    assert "overlapping turns share counts twice" in other
    assert json.loads(run(folders, "ref", "hyp", "--json").stdout)["own_overlap"] == "merged"
    assert run(folders, "ref", "hyp", "--words", "--as-pyannote").returncode == 2


def test_a_line_that_is_there_twice_counts_once():
    (found,) = one([(0, 10, "A")], [(0, 10, "x"), (0, 10, "x")])
    assert found.seconds[STRICT] == pytest.approx((0, 0, 0, 10))


def test_two_single_files_of_different_recordings_are_scored_and_that_is_said(tmp_path):
    line = "SPEAKER {} 1 0 1 <NA> <NA> x <NA> <NA>\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.rttm").write_text(line.format(name))
    said = "note: the reference is of a, the hypothesis of b; scored as one recording\n"
    assert run(tmp_path, "a.rttm", "b.rttm").stderr == said
    assert run(tmp_path, "a.rttm", "a.rttm").stderr == ""
