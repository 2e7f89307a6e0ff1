"""One bar and one estimate for all of the work, from the times of the stages on this machine."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest

from witness.cli import options
from witness.cli.batch import BatchCourse
from witness.cli.run import RunCourse
from witness.options import Options, Runtime
from witness.work import eta
from witness.work.eta import PIECE, Forecast
from witness.work.manifest import Entry
from witness.work.produce import Job, Outcome, Settings, settings_of


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))


def engine(tmp_path, size, cores=1, fast_words=False):
    """With a recognizer of so many bytes; None: without."""
    model = None
    if size is not None:
        path = tmp_path / f"{size}.bin"
        with path.open("wb") as file:
            file.truncate(size)
        model = SimpleNamespace(path=str(path), name="recognizer", sha256=str(size))
    files = {"embedding": SimpleNamespace(sha256="e" * 64), "whisper": model}
    return SimpleNamespace(
        whisper=model,
        files=files,
        runtime=Runtime(threads=cores),
        options=Options(fast_words=fast_words),
        chosen=SimpleNamespace(name="builtin"),
        known=None,
        warnings=[],
    )


def workload(*args, **more):
    return eta.Workload(settings_of(engine(*args, **more)), warm=False)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def worked(estimate, clock, seconds, sound=100.0, tracks=1):
    """Tell an estimate of stages that take so many seconds: after each step, the share of the time that is
    gone, and the whole time it implies, as a ratio to the true one."""
    whole, told = sum(seconds.values()), []
    windows = (1 + (sound - 10) / (1 if sound < 300 else 2)) * tracks
    totals = {"decode": sound, "segmentation": windows, "embedding": 40 * tracks, "clustering": 1.0}
    for stage, length in seconds.items():
        steps = 1 if stage in ("start", "clustering") else 20
        for step in range(stage != "decode", steps + 1):
            clock.now += length / steps if step else 0
            if stage == "start":
                continue
            total = totals.get(stage, sound * tracks)
            estimate.update(stage, total * step / steps, total)
            if (left := estimate.left) is not None:
                told.append((clock.now / whole, (clock.now + left) / whole))
        if stage == "start":
            estimate.update("segmentation", 0, windows)
    return told


SECONDS = {"decode": 0.5, "start": 1.0, "segmentation": 5.0, "embedding": 5.0, "clustering": 0.2}
WORDS = {**SECONDS, "transcription": 20.0}


def test_a_larger_model_and_fewer_cores_are_expected_to_take_longer(tmp_path):
    assert "transcription" not in workload(tmp_path, None).prior
    base, small = (workload(tmp_path, size).prior for size in (145_000_000, 484_000_000))
    assert small["transcription"] > 2 * base["transcription"]
    assert small["segmentation"] == base["segmentation"]
    halved = workload(tmp_path, 145_000_000, cores=2).prior
    assert halved["transcription"] == base["transcription"] / 2
    assert halved["decode"] == base["decode"]


def test_a_search_is_expected_to_take_longer_and_remembered_by_itself(tmp_path):
    search, greedy = (workload(tmp_path, 145_000_000, fast_words=fast) for fast in (False, True))
    assert search.prior["transcription"] == pytest.approx(eta.SEARCH * greedy.prior["transcription"])
    assert search.prior["segmentation"] == greedy.prior["segmentation"]
    clock = Clock()
    before = worked(eta.start_estimate(greedy, clock=clock), clock, WORDS)
    clock.now = 0.0
    first = eta.start_estimate(search, clock=clock)
    worked(first, clock, {**WORDS, "transcription": 90.0})
    eta.remember(search, first)
    clock.now = 0.0
    assert worked(eta.start_estimate(greedy, clock=clock), clock, WORDS) == before


def test_the_next_run_of_this_kind_is_judged_by_the_last(tmp_path):
    """At a tenth of it, also of one that is longer, and of two tracks with as much speech as one."""
    run = workload(tmp_path, 145_000_000)
    clock = Clock()
    first = eta.start_estimate(run, clock=clock)
    worked(first, clock, WORDS)
    eta.remember(run, first)
    for longer, tracks in ((1, 1), (2.5, 1), (1, 2)):
        seconds = {stage: one * (1 if stage == "start" else longer) for stage, one in WORDS.items()}
        seconds["segmentation"] *= tracks
        clock.now = 0.0
        told = worked(eta.start_estimate(run, clock=clock), clock, seconds, 100.0 * longer, tracks)
        assert all(0.8 < ratio < 1.25 for share, ratio in told if share >= 0.1), (longer, tracks)
        assert any(share <= 0.1 for share, _ in told)


def test_a_group_of_pieces_that_is_not_done_yet_says_nothing_of_the_words(tmp_path):
    """The first piece of 30 s comes after 2 s, and then four together after 8: not 8 s a piece."""
    run, clock = workload(tmp_path, 145_000_000, 2), Clock()
    estimate = eta.start_estimate(run, clock=clock)
    done = {"decode": 0.5, "segmentation": 5.0, "embedding": 5.0, "clustering": 0.2}
    worked(estimate, clock, done, 600.0)
    estimate.update("transcription", 0, 600)
    clock.now += 2
    estimate.update("transcription", 30, 600)
    before = estimate.left
    clock.now += 8
    estimate.update("transcription", 60, 600)
    assert estimate.left < before


def test_what_two_cores_have_begun_together_says_nothing_before_both_are_done(tmp_path):
    """Windows in groups of 8, two at a time, as fast as expected: the second group is told with the first."""
    run, clock = workload(tmp_path, None, 2), Clock()
    estimate = eta.start_estimate(run, clock=clock)
    worked(estimate, clock, {"decode": 0.001})
    estimate.update("segmentation", 0, 91)
    for done in range(8, 48, 16):
        clock.now += 16 * run.prior["segmentation"]
        estimate.update("segmentation", done, 91)
        estimate.update("segmentation", done + 8, 91)
        left = run.prior["segmentation"] * (91 - done - 8) + 100 * run.prior["embedding"]
        assert estimate.left == pytest.approx(left + 100 * run.prior["clustering"], rel=0.01)


def test_voices_that_are_heard_between_windows_are_not_put_down_to_these(tmp_path):
    """As with the built-in models: the progress of windows and voices does not divide the time between them,
    and the first windows go by themselves, so a short recording begins faster than a long one goes on."""
    run, clock = workload(tmp_path, None), Clock()
    window, block = 0.06, 24 * 0.03

    def heard(estimate, sound, step):
        told, clock.now = [], 0.0
        windows, blocks = 1 + (sound - 10) // step, sound // 24
        whole = 0.1 + windows * window + blocks * block
        clock.now += 0.1
        estimate.update("decode", sound, sound)
        estimate.update("embedding", 0, blocks)
        estimate.update("segmentation", 0, windows)
        voices = 0
        for done in range(1, windows + 1):
            clock.now += window
            while 24 * (voices + 1) + 20 <= done * step:  # its time is told as that of the window
                voices, clock.now = voices + 1, clock.now + block
            estimate.update("segmentation", done, windows)
            estimate.update("embedding", voices, blocks)
            told.append((clock.now / whole, (clock.now + estimate.left) / whole))
        clock.now += block * (blocks - voices)
        estimate.update("embedding", blocks, blocks)
        return told

    heard(first := eta.start_estimate(run, clock=clock), 600, 2)
    eta.remember(run, first)
    divided = first.pace()["segmentation"] / first.pace()["embedding"]
    assert divided == pytest.approx(run.prior["segmentation"] / run.prior["embedding"])
    told = heard(eta.start_estimate(run, clock=clock), 180, 1)
    assert all(0.9 < ratio < 1.1 for share, ratio in told if share >= 0.1)


@pytest.mark.parametrize("slower", [0.5, 1.0, 3.0])
def test_the_first_run_is_judged_by_what_it_shows(tmp_path, slower):
    """On a machine that is slower or faster than the one where the usual pace was measured."""
    run = workload(tmp_path, 145_000_000)
    units = {"start": 1, "decode": 600, "segmentation": 296, "embedding": 600, "clustering": 600}
    units["transcription"] = 600
    seconds = {stage: run.prior[stage] * units[stage] * slower for stage in WORDS}
    clock = Clock()
    told = worked(eta.start_estimate(run, clock=clock), clock, seconds, 600.0)
    assert all(0.75 < ratio < 1.25 for share, ratio in told if share >= 0.1)
    shares = [share for share, _ in told]
    assert shares[0] < 0.1


def test_what_was_learned_is_forgotten_after_many_others(tmp_path):
    run, clock = workload(tmp_path, 145_000_000), Clock()
    done = eta.start_estimate(run, clock=clock)
    worked(done, clock, {stage: 100 * one for stage, one in WORDS.items()})
    eta.remember(run, done)
    clock.now = 0.0
    again = eta.start_estimate(run, clock=clock)
    again.update("decode", 1, 100)
    assert again.left > 2000
    for size in range(1000, 1000 + eta.REMEMBERED):
        eta.remember(workload(tmp_path, size), done)
    again = eta.start_estimate(run, clock=clock)
    again.update("decode", 1, 100)
    assert again.left < 100


def test_a_much_shorter_recording_says_less(tmp_path):
    run, clock = workload(tmp_path, 145_000_000), Clock()
    done = eta.start_estimate(run, clock=clock)
    worked(done, clock, WORDS)
    eta.remember(run, done)
    brief = eta.start_estimate(run, clock=clock)
    worked(brief, clock, {stage: 10 * one for stage, one in WORDS.items()}, 20.0)
    eta.remember(run, brief)
    again = eta.start_estimate(run, clock=clock)
    again.update("decode", 1, 100)
    assert again.left < 40


@pytest.mark.parametrize("kept", ['{"x": 1}', "{}", None])
def test_what_was_kept_is_not_believed_if_it_is_damaged(tmp_path, kept):
    run, clock = workload(tmp_path, 145_000_000), Clock()
    path = tmp_path / "cache" / "paces.json"
    path.parent.mkdir()
    path.write_text(json.dumps({run.key: {"decode": 1e9}}) if kept is None else kept)
    estimate = eta.start_estimate(run, clock=clock)
    estimate.update("decode", 1, 100)
    assert estimate.left < 100


def test_a_run_has_one_course(tmp_path):
    course = RunCourse()
    assert course.hear("decode", 0, 1) is None  # no models yet
    course.engine = engine(tmp_path, 145_000_000)
    assert course.hear("download", 0, 1) is None
    shares = [course.hear(*told).share for told in (("decode", 0, 60), ("decode", 60, 60))]
    for stage in ("segmentation", "embedding", "clustering", "transcription"):
        shares += [course.hear(stage, done, 2).share for done in range(3)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    course.learn()
    assert eta.Workload(settings_of(course.engine), warm=False).key in eta.kept_paces()


def test_a_batch_knows_its_end_once_the_first_recordings_are_begun():
    """Two at a time, six of the same length."""
    clock = Clock()
    items = [Entry.begun(f"/{number}.wav", str(number), (1000, 0)) for number in range(6)]
    forecast = Forecast(clock)
    settings = Settings(Options(models="builtin", whisper="none"), Runtime(threads=1), {})
    jobs = [forecast.begin(item, Job(item.source, (), settings)) for item in items]
    assert forecast.left(items) is None
    for job in jobs[:2]:
        job.update("decode", 1, 100)
    first = forecast.left(items)
    alone = eta.start_estimate(eta.Workload(settings), clock=clock)
    alone.update("decode", 1, 100)
    assert first == pytest.approx(3 * alone.left, rel=0.01)
    for item in items[:2]:
        forecast.end(item, Outcome(seconds=60.0, duration=100.0, resumed=True))
    assert forecast.left(items[2:]) == pytest.approx(120)
    forecast.end(items[2], Outcome("failed"))
    assert forecast.left(items[3:]) == pytest.approx(120)
    # Nobody knows better; half as long takes a little less than half.
    assert 25 < forecast.left([Entry.begun("/a.mp3", "a", (500, 0))]) <= 30
    assert forecast.left([]) == 0


def test_a_short_recording_first_does_not_make_a_batch_seem_long():
    """Of 10 s, and then five of 300: what each takes whatever its length is not multiplied by its size."""
    clock = Clock()
    items = [Entry.begun(f"/{number}.wav", str(number), (1000 if number else 33, 0)) for number in range(6)]
    forecast = Forecast(clock)
    settings = Settings(Options(models="builtin"), Runtime(threads=1), {}, weights=145_000_000)
    jobs = [forecast.begin(item, Job(item.source, (), settings)) for item in items]
    prior = eta.Workload(settings).prior

    def seconds(sound, windows):
        units = {"start": 1, "segmentation": windows, "transcription": sound + PIECE}
        return sum(one * units.get(stage, sound) for stage, one in prior.items())

    jobs[0].update("decode", 10, 10)
    forecast.end(items[0], Outcome(seconds=seconds(10, 1), duration=10.0, resumed=True))
    assert forecast.left(items[1:]) == pytest.approx(5 * seconds(300, 146), rel=0.02)


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
