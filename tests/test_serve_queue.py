"""The queue of the desk: what waits is done, survives whatever ends the server, and can be canceled."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import in_process
from recordings import OPTIONS, children, gone, make
from witness import Engine
from witness.errors import (
    CancelledError,
    ConflictError,
    InputError,
    ModelError,
    OutputError,
    UsageError,
    WitnessError,
)
from witness.options import Options, Runtime
from witness.progress import SILENT
from witness.serve import queue as queues
from witness.serve.library.index import Index
from witness.serve.library.library import Library
from witness.serve.queue import BusyError, FolderWatch, Queue, UnknownError, free_name
from witness.storage import atomic
from witness.transcript import vocabulary
from witness.work import overrides, produce
from witness.work import queue as work_queue
from witness.work.eta import Estimate
from witness.work.folder import BatchRequest, Folder, locked, size_and_mtime
from witness.work.manifest import Entry, Manifest
from witness.work.overrides import JobOverrides
from witness.work.produce import Outcome, Settings

PATIENCE = 60  # seconds for what takes one or two; the machine may be busy
CHOICE = Options(models="builtin", offline=True, whisper="none")


def settle(overrides):
    return produce.resolve_settings(overrides.apply(CHOICE))


def desk(folder: Path, settle=settle) -> Queue:
    return Queue(folder, settle, Runtime(threads=1))


def sent(folder: Path, name: str = "call.flac", seconds: float = 1.0) -> Path:
    """A recording where uploads lie before they are taken."""
    (path,) = make(folder / ".sent", 1, seconds)
    return path.rename(path.with_name(name))


def added(queue: Queue, path: Path, name: str):
    (standing,) = queue.add([(path, name)])
    return standing


def state(queue: Queue, standing) -> str:
    return next(one.state for one in queue.board.statuses() if one.id == standing.id)


def wait_for(condition, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Hands:
    """A pool whose work is done by the test."""

    def __init__(self, gpus) -> None:
        self.workers = len(gpus)
        self.jobs: dict[str, tuple] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, job, progress=None):
        future = Future()
        future.set_running_or_notify_cancel()
        self.jobs[Path(job.source).name] = (job, future, progress)
        return future

    def stop(self, future):
        future.set_exception(CancelledError("canceled"))

    def finish(self, name, **outcome):
        job, future, _ = self.jobs[name]
        if "error" not in outcome:
            for _, path in job.files:
                Path(path).write_text("{}")
        future.set_result(Outcome(**{"sha256": "0" * 64, "duration": 1.0, **outcome}))


@pytest.fixture
def hands(monkeypatch):
    """The pools that were made, the latest last."""
    made = []
    monkeypatch.setattr(queues, "Pool", lambda gpus: made.append(Hands(gpus)) or made[-1])
    return made


SETTINGS = Settings(CHOICE, Runtime(), {})


def given(folder: Path, content: bytes = b"sound") -> Path:
    path = folder / ".sent" / "1"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_what_is_dropped_is_done_and_a_batch_finds_nothing_to_do(tmp_path):
    heard = []
    with desk(tmp_path) as queue:
        listener = queue.board.listen(lambda: heard.extend(listener.take() or ()))
        first = added(queue, sent(tmp_path), "call.flac")
        second = added(queue, sent(tmp_path), "call.flac")  # another recording of that name
        bad = added(queue, given(tmp_path), "no recording.wav")
        wait_for(lambda: not queue.board.states())
        assert [state(queue, one) for one in (first, second, bad)] == ["done", "done", "failed"]
        assert [one.name for one in queue.board.statuses()] == [
            "call.flac",
            "call-2.flac",
            "no recording.wav",
        ]
        assert {one.stage for one in heard if one.state == "working"} >= {"decode", "segmentation", None}
        shares = [one.share for one in heard if one.id == first.id]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        (row,) = [one.row() for one in queue.board.statuses() if one.id == first.id]
        assert (row["transcript"], row["why"], row["seconds_left"]) == (first.id, None, None)
        with locked(tmp_path):  # nothing is left to do in it
            pass
    assert json.loads((tmp_path / "call-2.json").read_text())["audio"]["path"] == str(
        tmp_path / "call-2.flac"
    )
    assert not list((tmp_path / ".sent").iterdir())
    before = (tmp_path / "call.json").stat().st_mtime_ns
    done = in_process(tmp_path, "batch", ".", "-o", ".", "--whisper", "none", *OPTIONS, "-q")
    assert done.stdout.decode().endswith("3 recordings: 0 done, 2 done before, 1 failed; 0.00 h of audio\n")
    assert (tmp_path / "call.json").stat().st_mtime_ns == before


def test_what_lies_in_the_folder_waits_and_a_restart_goes_on_with_it(tmp_path, hands, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("a.wav", "a.mp3", "sub/b.wav"):
        (tmp_path / name).touch()
    paths = [Path("a.mp3"), Path("a.wav"), Path("gone.wav"), Path("sub/b.wav")]
    with Queue(tmp_path, lambda _: SETTINGS, Runtime()) as queue:
        waiting = queue.transcribe(paths)
        assert [one.name for one in waiting] == ["a.mp3", "a.wav", "b.wav"]
        wait_for(lambda: hands[-1].jobs)
        assert queue.transcribe(paths) == []  # they are known
    assert Manifest(tmp_path / "manifest.jsonl").sources == {
        str(tmp_path / "a.mp3"): "a.mp3",
        str(tmp_path / "a.wav"): "a.wav",
        str(tmp_path / "sub" / "b.wav"): "sub/b",
    }
    with Queue(tmp_path, lambda _: SETTINGS, Runtime()) as queue:
        assert sorted(queue.board.states()) == sorted(one.id for one in waiting)
        monkeypatch.setattr(queues, "MOST_WAITING", 2)
        (tmp_path / "c.wav").touch()
        with pytest.raises(BusyError):
            queue.transcribe([Path("c.wav")])


def test_one_after_the_other(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        first, second = (added(queue, given(tmp_path), f"{name}.wav") for name in "ab")
        wait_for(lambda: hands[0].jobs)
        assert queue.board.states() == {first.id: "working", second.id: "waiting"}
        assert list(hands[0].jobs) == ["a.wav"]
        with pytest.raises(WitnessError, match="another batch"), locked(tmp_path):
            pass
        hands[0].jobs["a.wav"][2].progress("segmentation", 1.0, 2.0)
        for number in range(5):
            hands[0].jobs["a.wav"][2].said(number, [{"speaker": "Ann", "text": f"{number}."}])
        working = next(one for one in queue.board.statuses() if one.id == first.id)
        assert [one["text"] for one in working.row()["said"]] == ["2.", "3.", "4."]
        assert len(working.said) == 5
        assert (working.stage, 0 < working.share < 1) == ("segmentation", True)
        hands[0].finish("a.wav")
        wait_for(lambda: "b.wav" in hands[0].jobs)
        assert queue.board.states() == {second.id: "working"}


def test_a_cancel_and_a_retry(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        works, waits = (added(queue, given(tmp_path), f"{name}.wav") for name in "ab")
        wait_for(lambda: hands[0].jobs)
        queue.cancel(waits.id)
        queue.cancel(works.id)
        wait_for(lambda: not queue.board.states())
        assert [one.state for one in queue.board.statuses()] == ["canceled", "canceled"]
        manifest = Manifest(tmp_path / "manifest.jsonl")
        assert [entry.state for entry in manifest.entries.values()] == ["canceled", "canceled"]
        folder = Folder(BatchRequest((), tmp_path, ("json",)), SETTINGS, manifest)
        item = Entry.begun(str(tmp_path / "a.wav"), "a", size_and_mtime(str(tmp_path / "a.wav")))
        assert folder.done_before(item) is None  # a batch over the folder does it
        assert folder.in_the_way(item) is None
        with pytest.raises(ConflictError, match=r"b\.wav: is canceled; there is nothing to cancel"):
            queue.cancel(waits.id)
        with pytest.raises(UnknownError):
            queue.retry("0" * 16)
        queue.retry(works.id)
        wait_for(lambda: state(queue, works) == "working")
        hands[0].finish("a.wav", error="a.wav: it broke", code=1)
        wait_for(lambda: not queue.board.states())
        assert (state(queue, works), queue.board.statuses()[0].why) == ("failed", "a.wav: it broke")
        with pytest.raises(ConflictError, match="nothing to cancel"):
            queue.cancel(works.id)
    # The next server knows both, does neither by itself, and can try again.
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        assert [(one.state, one.why) for one in queue.board.statuses()] == [
            ("failed", "a.wav: it broke"),
            ("canceled", None),
        ]
        (tmp_path / "b.wav").unlink()
        with pytest.raises(InputError, match="send it again"):
            queue.retry(waits.id)
        queue.retry(works.id)
        wait_for(lambda: hands[1].jobs)
        hands[1].finish("a.wav")
        wait_for(lambda: state(queue, works) == "done")


def test_a_restart_takes_up_what_waited_and_what_was_half_done(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        standings = [added(queue, given(tmp_path), f"{name}.wav") for name in "abc"]
        wait_for(lambda: hands[0].jobs)
        hands[0].finish("a.wav")
        wait_for(lambda: "b.wav" in hands[0].jobs)
    # A recording that was claimed, but never came to its place.
    entry = Manifest(tmp_path / "manifest.jsonl").entries["b"]
    torn = json.dumps(asdict(replace(entry, output="d", source=str(tmp_path / "d.wav"))))
    with (tmp_path / "manifest.jsonl").open("a") as file:
        file.write(torn + "\n" + torn[:50])
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        wait_for(lambda: hands[1].jobs)
        assert queue.board.states() == {standings[1].id: "working", standings[2].id: "waiting"}
        hands[1].finish("b.wav")
        wait_for(lambda: "c.wav" in hands[1].jobs)


def test_a_batch_in_the_folder_is_waited_for(tmp_path, hands, monkeypatch):
    monkeypatch.setattr(queues, "PATIENCE", 0.05)
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        added(queue, given(tmp_path), "a.wav")
        wait_for(lambda: hands[0].jobs)
    with locked(tmp_path):
        with desk(tmp_path, lambda _: SETTINGS) as queue:
            wait_for(lambda: queue.board.statuses()[0].why is not None)
            assert queue.board.statuses()[0].why.startswith("a batch is at work in ")
            with pytest.raises(ConflictError, match="a batch is at work"):
                added(queue, given(tmp_path), "b.wav")
            assert not hands[1].jobs
        queue = desk(tmp_path, lambda _: SETTINGS)
        queue.__enter__()
    wait_for(lambda: hands[2].jobs)
    assert queue.board.statuses()[0].why is None
    queue.__exit__()


def test_models_that_are_missing_are_why_it_failed(tmp_path, hands):
    answers = [ModelError("no model; run: witness models fetch"), SETTINGS]

    def choose(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with desk(tmp_path, choose) as queue:
        standing = added(queue, given(tmp_path), "a.wav")
        wait_for(lambda: state(queue, standing) == "failed")
        assert queue.board.statuses()[0].why == "no model; run: witness models fetch"
        queue.retry(standing.id)
        wait_for(lambda: hands[0].jobs)


def test_who_waits_for_the_models_and_leaves_takes_them_from_nobody(tmp_path, hands):
    chosen = threading.Event()
    with desk(tmp_path, lambda _: chosen.wait(PATIENCE) and SETTINGS) as queue:
        assert not queue.models.request().cancel()
        added(queue, given(tmp_path), "a.wav")
        chosen.set()
        wait_for(lambda: hands[0].jobs)


def test_a_full_disk_ends_what_waits_until_somebody_tries_again(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        standings = [added(queue, given(tmp_path), f"{name}.wav") for name in "ab"]
        wait_for(lambda: hands[0].jobs)
        hands[0].finish("a.wav", error="a.json: cannot be written (No space left on device)", full=True)
        wait_for(lambda: not queue.board.states())
        assert [one.state for one in queue.board.statuses()] == ["failed", "failed"]
        assert all("No space left" in one.why for one in queue.board.statuses())
        queue.retry(standings[1].id)
        wait_for(lambda: "b.wav" in hands[0].jobs)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (Hands, "submit"),
        (Manifest, "__init__"),
        (Manifest, "append"),
        (Folder, "in_the_way"),
        (sys, "resolve"),
    ],
)
def test_recordings_wait_while_the_desk_has_no_free_files(tmp_path, hands, monkeypatch, module, name):
    """A stranger's connections take them; what waits must not fail for that."""
    monkeypatch.setattr(queues, "PATIENCE", 0.1)
    monkeypatch.setattr(work_queue, "PAUSE", 0.1)
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        for number in "ab":
            added(queue, given(tmp_path), f"{number}.wav")
        wait_for(lambda: hands[0].jobs)
    lacking, raised = [True], []
    monkeypatch.setattr(sys, "resolve", lambda _: SETTINGS, raising=False)
    real = getattr(module, name)

    def fail(*args, **options):
        main = threading.current_thread() is threading.main_thread()
        if main or not lacking:
            return real(*args, **options)
        raised.append(OSError(errno.EMFILE, "Too many open files"))
        if module is not Hands:
            raise OutputError("it cannot be written") from raised[-1]
        future = Future()
        future.set_exception(raised[-1])
        return future

    def finish_next():
        wait_for(lambda: hands[1].jobs)
        (recording,) = hands[1].jobs
        hands[1].finish(recording)
        del hands[1].jobs[recording]

    monkeypatch.setattr(module, name, fail)
    with desk(tmp_path, lambda overrides: sys.resolve(overrides)) as queue:
        if name == "append":
            finish_next()
        wait_for(lambda: len(raised) > (2 if name != "append" else 0))
        assert {status.state for status in queue.board.statuses()} <= {"waiting", "working"}
        lacking.clear()
        finish_next()
        finish_next()
        wait_for(lambda: not queue.board.states())
        assert {status.state for status in queue.board.statuses()} == {"done"}


def test_what_nobody_foresaw_is_why_it_failed_and_the_queue_goes_on(tmp_path, hands, monkeypatch):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "in_the_way", lambda *_: 1 / 0)
            standing = added(queue, given(tmp_path), "a.wav")
            wait_for(lambda: state(queue, standing) == "failed")
        assert queue.board.statuses()[0].why.startswith("ZeroDivisionError: division by zero; this is a bug")
        queue.retry(standing.id)
        wait_for(lambda: hands[0].jobs)


def test_a_transcript_that_a_person_corrected_is_not_replaced(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        standing = added(queue, given(tmp_path), "a.wav")
        wait_for(lambda: hands[0].jobs)
        hands[0].finish("a.wav", error="it broke", code=1)
        wait_for(lambda: not queue.board.states())
        audio = {"path": standing.name, "sha256": "0" * 64}
        document = {"schema": "witness/1", "audio": audio, "corrections": [1], "timing": {"decode": None}}
        (tmp_path / "a.json").write_text(json.dumps(document))
        queue.retry(standing.id)
        wait_for(lambda: not queue.board.states())
        assert "holds corrections" in queue.board.statuses()[0].why


@pytest.mark.usefixtures("hands")
def test_too_many_listeners_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(queues, "MOST_LISTENERS", 2)
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        late, awake = queue.board.listen(lambda: None), queue.board.listen(lambda: None)
        with pytest.raises(BusyError, match="too many windows"):
            queue.board.listen(lambda: None)
        for name in "abcd":
            added(queue, given(tmp_path), f"{name}.wav")
            assert f"{name}.wav" in [one.name for one in awake.take()]
        assert [one.name for one in late.take()][-1] == "d.wav"
        queue.board.forget(awake)
        queue.board.listen(lambda: None)
    assert late.take() is None


def test_too_many_that_wait_are_refused(tmp_path, hands, monkeypatch):
    monkeypatch.setattr(queues, "MOST_WAITING", 1)
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        added(queue, given(tmp_path), "a.wav")
        wait_for(lambda: hands[0].jobs)
        added(queue, given(tmp_path), "b.wav")
        with pytest.raises(BusyError, match="1 recordings may wait"):
            added(queue, given(tmp_path), "c.wav")
    assert not (tmp_path / "c.wav").exists()


def test_models_stay_open_for_recordings_with_other_options():
    first = Engine(CHOICE)
    assert first.segmenter
    again = first.share(replace(CHOICE, speakers=2, language="de"))
    assert again.segmenter is first.segmenter
    assert again.options.speakers == 2
    assert "segmenter" not in vars(first.share(replace(CHOICE, models="pyannote")))


def test_names_that_are_free():
    assert free_name("a.wav", []) == "a.wav"
    assert free_name("a.wav", ["A.WAV"]) == "a-2.wav"
    assert free_name("a.mp3", ["a.wav", "a-2.json"]) == "a-3.mp3"  # whose results would be in its way
    assert free_name("a.mp3", ["ab.wav"]) == "a.mp3"


def test_how_far_the_work_is():
    now = [0.0]
    usual = {"start": 1e-9, "decode": 0.1, "transcription": 0.1}
    course = Estimate(usual, trust=1e-9, clock=lambda: now[0])
    assert (course.share, course.left) == (0.0, None)
    now[0] = 100.0  # the worker had something else to do
    course.update("decode", 0, 10)
    assert course.left == pytest.approx(6.0)  # as expected: 10 s, and 40 s more for the words
    now[0] = 102.0
    course.update("decode", 10, 10)
    assert course.left is None  # it could be a stream
    assert course.share == pytest.approx(1 / 6)
    now[0] = 104.0
    course.update("transcription", 0, 2)
    assert course.left == pytest.approx(5.0)  # decoding says nothing of other stages
    now[0] = 110.0
    course.update("transcription", 1, 2)
    assert course.share == pytest.approx(3.5 / 6)
    assert course.left == pytest.approx(2.5)  # nor does the first piece, which is heard by itself
    now[0] = 116.0
    course.update("transcription", 1.5, 2)
    assert course.left == pytest.approx(1.25)  # nor do the pieces begun together after it
    now[0] = 118.0
    course.update("transcription", 1.75, 2)
    assert course.left == pytest.approx(0.625)  # told so soon after that, it is of the same round
    now[0] = 122.0
    course.update("transcription", 1.9, 2)
    assert course.left == pytest.approx(4 / 0.075 * 0.05)
    now[0] = 124.0
    course.update("transcription", 2, 2)
    assert course.left == pytest.approx(0.0)
    assert course.pace() == pytest.approx({"start": 2.0, "decode": 0.2, "transcription": 0.4})


def test_before_its_length_is_known_a_recording_is_judged_by_its_size():
    now = [0.0]
    course = Estimate({"decode": 0.1}, whole=20.0, clock=lambda: now[0])
    course.update("decode", 10, 10)
    now[0] += 1.5
    assert course.left == 18.5
    course.update("decode", 5, 20)
    assert course.left < 18.5


def test_how_long_those_that_wait_will_take(tmp_path, hands):
    with desk(tmp_path, lambda _: SETTINGS) as queue:

        def told() -> int | None:
            """Return the seconds after the recording at work until the others are done."""
            name = next(one.name for one in queue.board.statuses() if one.state == "working")
            hands[0].jobs[name][2].progress("decode", 1, 2)
            return next(one for one in queue.board.statuses() if one.name == name).row()["seconds_after"]

        def done(name: str, **outcome) -> None:
            wait_for(lambda: name in hands[0].jobs)
            hands[0].finish(name, **outcome)
            wait_for(lambda: f"{Path(name).stem}" in [Path(p).stem for p in tmp_path.glob("*.json")])

        for name, size in (("a.wav", 100), ("b.WAV", 110), ("c.wav", 200), ("d.wav", 300), ("e.wav", 100)):
            added(queue, given(tmp_path, b"-" * size), name)
        done("a.wav", duration=10.0, seconds=2.0)
        wait_for(lambda: "b.WAV" in hands[0].jobs)
        assert told() is None  # a single recording cannot be compared
        done("b.WAV", duration=10.0, seconds=2.2)
        wait_for(lambda: "c.wav" in hands[0].jobs and told() == 8)  # 400 bytes, 50 a second
        last = added(queue, given(tmp_path, b"-" * 100), "f.mp3")
        wait_for(lambda: told() is None)  # none with this ending is done
        queue.cancel(last.id)
        wait_for(lambda: told() == 8)
        done("c.wav", duration=50.0, seconds=4.0)  # of another bit rate
        wait_for(lambda: "d.wav" in hands[0].jobs)
        assert told() is None
        for name in ("d.wav", "e.wav"):
            done(name)


SERVER = """
import sys, time
from pathlib import Path
from witness.options import Options, Runtime
from witness.serve.queue import Queue
from witness.work import produce
options = Options(models="builtin", offline=True, whisper="none")
settle = lambda overrides: produce.resolve_settings(overrides.apply(options))
with Queue(Path(sys.argv[1]), settle, Runtime(threads=1)) as queue:
    for path in sys.argv[2:]:
        queue.add([(Path(path), "call.flac")])
    while queue.board.states():
        time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
def test_what_is_killed_is_done_by_the_next_server(tmp_path):
    """The worker first: another takes its recording. Then the server, whose worker goes with it."""
    paths = [str(sent(tmp_path, f"{number}", 4.0)) for number in range(2)]
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path), *paths], cwd=tmp_path)
    module = "witness.work.worker"
    try:
        wait_for(lambda: children(process.pid, module))
        (worker,) = children(process.pid, module)
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: children(process.pid, module) not in ([], [worker]))
        (worker,) = children(process.pid, module)
    finally:
        process.kill()
        process.wait()
    assert gone(worker)
    assert not (tmp_path / "call-2.json").exists()
    dead = "-".join([*atomic.scratch_name().split("-")[:2], str(process.pid), "x"])
    (tmp_path / dead).touch()
    with desk(tmp_path) as queue:
        wait_for(lambda: not queue.board.states())
    for name in ("call", "call-2"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["schema"] == "witness/1"
    assert not list(tmp_path.glob(".witness-*-x"))


def chosen(overrides):
    return replace(SETTINGS, options=overrides.apply(CHOICE))


def test_what_was_wanted_for_one_recording_survives_the_server_and_satisfies_a_batch(tmp_path, hands):
    wish = overrides.parse(
        {"language": "German", "speakers": 2, "vocabulary": [" Kubernetes ", "Kubernetes", "K\x1b2"]}
    )
    with desk(tmp_path, chosen) as queue:
        added(queue, given(tmp_path), "plain.wav")
        queue.add([(given(tmp_path), "german.wav")], wish)
        wait_for(lambda: hands[-1].jobs)
        assert hands[-1].jobs["plain.wav"][0].settings.options.language is None
    vocabulary.decide(tmp_path, take=["Zanzibar"])
    with desk(tmp_path, chosen) as queue:
        wait_for(lambda: "plain.wav" in hands[-1].jobs)
        hands[-1].finish("plain.wav")
        wait_for(lambda: "german.wav" in hands[-1].jobs)
        options = hands[-1].jobs["german.wav"][0].settings.options
        assert (options.language, options.speakers) == ("de", 2)
        assert options.vocabulary == ("Zanzibar", "Kubernetes", "K\x1b2")  # of the folder, and of its own
        hands[-1].finish("german.wav")
        wait_for(lambda: not queue.board.states())
    order, manifest = BatchRequest((), tmp_path, ("json", "txt")), Manifest(tmp_path / "manifest.jsonl")
    source = str(tmp_path / "german.wav")
    item = Entry.begun(source, "german", size_and_mtime(source))
    assert Folder(order, SETTINGS, manifest).done_before(item).state == "done"


def test_a_transcript_gives_way_to_another_one_only_where_that_is_asked_for(tmp_path, hands):
    recording = tmp_path / "a.wav"
    recording.write_bytes(b"sound")
    (tmp_path / "a.json").write_text("{}")
    library = Library(tmp_path, Index(tmp_path / ".index.sqlite"))
    with desk(tmp_path, chosen) as queue:
        standing = queue.again(tmp_path / "a.json", recording, JobOverrides(language="de"))
        wait_for(lambda: hands[-1].jobs)
        assert hands[-1].jobs["a.wav"][0].again
        with pytest.raises(ConflictError, match="already"):
            queue.again(tmp_path / "a.json", recording, JobOverrides())
        hands[-1].finish("a.wav", error=f"{recording}: it is damaged", code=4)
        wait_for(lambda: state(queue, standing) == "failed")
        library.look()
        assert library.not_again(standing.id) == "it is damaged"
        assert queue.retry(standing.id, JobOverrides(language="fr")).state == "waiting"
        wait_for(lambda: not hands[-1].jobs["a.wav"][1].done())
        job = hands[-1].jobs["a.wav"][0]
        assert (job.again, job.settings.options.language) == (True, "fr")
        hands[-1].finish("a.wav", error=f"{recording}: it is damaged", code=4)
        wait_for(lambda: state(queue, standing) == "failed")
    # The error stays until a person answers, also with the next server.
    recording.unlink()
    with desk(tmp_path, chosen) as queue:
        library.look()
        assert library.not_again(standing.id) == "it is damaged"
        queue.dismiss(standing.id)
        library.look()
        assert library.not_again(standing.id) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"language": "klingon"},
        {"whisper": "/etc/passwd"},
        {"speakers": 0},
        {"channels": "left"},
        {"vocabulary": ["half of a letter: \ud800"]},
        {"vocabulary": "one"},
        {"start": 5, "end": 2},
    ],
)
def test_what_cannot_be_wanted_is_refused_in_a_line(wrong):
    with pytest.raises(UsageError) as caught:
        overrides.parse(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["flac", "mp3", "ogg"])
def test_what_changed_meanwhile_is_worked_on_again(tmp_path, hands, monkeypatch, ending):
    """A copy that pauses: its first half is transcribed, and all of it once it is whole."""
    clock, begun = [0.0], []

    def submit(pool, job, *rest, submit=Hands.submit):
        begun.append(job)
        return submit(pool, job, *rest)

    monkeypatch.setattr(Hands, "submit", submit)
    monkeypatch.setattr(queues, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    path = tmp_path / f"talk.{ending}"
    path.write_bytes(b"first half")
    library = Library(tmp_path, Index(tmp_path.parent / f"{ending}.sqlite"))

    def look(seconds: float) -> int:
        """Return the number of jobs that began so far."""
        clock[0] += seconds
        library.update()
        watching.scan()
        time.sleep(0.05)
        return len(begun)

    def end(**outcome) -> None:
        hands[-1].finish(path.name, **outcome)
        wait_for(lambda: not queue.board.states())

    with desk(tmp_path, lambda _: SETTINGS) as queue:
        watching = FolderWatch(library, queue, SILENT)
        assert [look(0), look(6), look(3)] == [0, 0, 0]
        assert look(2) == 1  # ten seconds without a change
        path.write_bytes(b"first half and the rest")
        end(sha256=sha256(b"first half").hexdigest())
        assert [look(1), look(8)] == [1, 1]
        assert look(3) == 2
        assert begun[-1].again
        path.write_bytes(b"first half, the rest and more")
        assert [look(1), look(11)] == [2, 2]  # it is being worked on
        end(error="it was changed while it was read", code=4)
        assert look(1) == 3
        end(sha256=sha256(path.read_bytes()).hexdigest())
        os.utime(path, (1, 1))
        assert [look(1), look(11), look(11)] == [3, 3, 3]  # the same content
    with desk(tmp_path, lambda _: SETTINGS) as queue:
        watching = FolderWatch(library, queue, SILENT)
        path.write_bytes(b"while there was no desk")
        assert [look(1), look(11)] == [3, 4]
