"""One bar and one estimate for all of the work, by what the stages took on this machine."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from witness.cli import options
from witness.cli.live import BatchCourse, RunCourse
from witness.jobs import estimate, pace
from witness.options import Runtime


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))


def engine(tmp_path, size):
    """With a recognizer of so many bytes; None: without."""
    model = None
    if size is not None:
        path = tmp_path / f"{size}.bin"
        with path.open("wb") as file:
            file.truncate(size)
        model = SimpleNamespace(path=str(path), sha256=str(size))
    files = {"embedding": SimpleNamespace(sha256="e" * 64), "whisper": model}
    return SimpleNamespace(
        whisper=(model, None), files=files, runtime=Runtime(), options=SimpleNamespace(fast=False)
    )


def test_a_larger_model_is_expected_to_take_longer(tmp_path):
    assert "transcription" not in pace.expected(engine(tmp_path, None))
    base, small = (pace.expected(engine(tmp_path, size)) for size in (145_000_000, 484_000_000))
    assert base["transcription"] == estimate.USUAL["transcription"]
    assert small["transcription"] == pytest.approx(3.3 * base["transcription"], rel=0.02)


def test_the_next_run_of_this_kind_is_judged_by_the_last(tmp_path):
    run, other = engine(tmp_path, 145_000_000), engine(tmp_path, 75_000_000)
    pace.learn(run, {"decode": 1.0, "segmentation": 2.0, "transcription": 3.0})
    pace.learn(run, {"decode": 1.0, "segmentation": 2.0, "transcription": 30.0})
    assert pace.expected(run)["transcription"] == 30
    assert pace.expected(other)["transcription"] != 30
    for size in range(1000, 1000 + pace.MOST):
        pace.learn(engine(tmp_path, size), {"decode": 1.0})
    assert pace.expected(run) == estimate.USUAL  # forgotten


def test_what_was_kept_is_not_believed_if_it_is_damaged(tmp_path):
    run = engine(tmp_path, 145_000_000)
    pace.learn(run, {"decode": 1.0})
    (tmp_path / "cache" / "paces.json").write_text('{"x": 1}')
    assert pace.expected(run) == estimate.USUAL


def test_after_a_tenth_of_the_work_the_end_is_known(tmp_path, monkeypatch):
    """Stages of the lengths of the last run, at steady speed."""
    run, now = engine(tmp_path, 145_000_000), [0.0]
    monkeypatch.setattr("witness.jobs.estimate.time.monotonic", lambda: now[0])
    lengths = {"decode": 2.0, "segmentation": 20.0, "embedding": 15.0, "transcription": 200.0}
    pace.learn(run, lengths)
    course, whole = RunCourse(), sum(lengths.values())
    assert course.hear("decode", 0, 1) is None  # no models yet
    course.engine = run
    assert course.hear("download", 0, 1) is None
    shares = []
    for stage, length in lengths.items():
        for step in range(11):
            left = course.hear(stage, step, 10)
            shares.append(left.share)
            if now[0] > whole / 10:
                assert left.seconds == pytest.approx(whole - now[0], rel=0.05, abs=0.5)
            now[0] += length / 10 if step < 10 else 0
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    course.learn()
    assert pace.expected(run)["transcription"] == pytest.approx(200, rel=0.01)


def test_the_bar_of_a_batch_has_the_estimate_of_its_lines():
    course = BatchCourse()
    course.left = 61.0
    assert course.hear("recordings", 1, 4) == (0.25, 61.0)
    assert course.hear("decode", 1, 4) is None


def test_there_is_one_bar(monkeypatch):
    """On a terminal, for all stages of the work."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")

    class Half:
        def hear(self, *_):
            return options.Left(0.5, 90.0)

    with options.progress(quiet=False, course=Half()) as reporter:
        for stage in ("decode", "segmentation", "transcription"):
            reporter.progress(stage, 1, 10)
        with reporter.aside():
            screen.write("SAID\n")
    shown = screen.getvalue()
    assert "0:01:30" in shown
    assert "SAID\n" in shown
    assert "transcription" in shown
    assert max(frame.count("%") for frame in shown.split("\x1b[2K")) == 1
