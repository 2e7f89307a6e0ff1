"""Recordings that were dropped or lay there: which wait, which is worked on, and what became of the others.

The recordings lie in the folder itself, with their results beside them, as `witness batch FOLDER -o FOLDER`
would have them, and its manifest is the truth: "begun" is what waits or is half done, also for the next
server after this one was killed. One thread changes all of it, one thing after the other; the folder is
locked for a batch while something is to be done in it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from witness import outputs, saving
from witness.child import one_line
from witness.errors import CancelledError, ConflictError, InputError, OutputError, WitnessError
from witness.formats.registry import Format
from witness.jobs.estimate import Estimate, Pace, Rates
from witness.jobs.folder import MANIFEST, Folder, locked, outcome_of
from witness.jobs.manifest import Entry, Manifest
from witness.jobs.plan import BatchRequest
from witness.jobs.pool import Pool
from witness.jobs.recordings import Item, assign, size_and_mtime
from witness.jobs.status import MOST_ENDED, MOST_WAITING, JobStatus, Listener
from witness.jobs.worker import Job, Outcome, Segment, Settings, Watcher
from witness.options import Runtime
from witness.serve.library.catalog import id_of

T = TypeVar("T")

FORMATS = ("json", "txt")
"""Those that `witness batch` writes if nobody says otherwise."""
MOST_LISTENERS = 200
PATIENCE = 5.0
"""Seconds between two looks whether another batch has left the folder."""


class BusyError(WitnessError):
    """There is no room for more now; later there will be."""


class UnknownError(WitnessError):
    """There is no recording with that id."""


class Queue:
    """A context manager: leaving it ends the work, and what was not done is done by the next one."""

    def __init__(
        self,
        folder: Path,
        settle: Callable[[], Settings],
        runtime: Runtime = Runtime(),
        workers: int = 1,
    ) -> None:
        """`settle` chooses and checks the models, when they are needed first; it may take minutes.

        `folder` is absolute. Models are open in `workers` processes, one recording in each at a time.
        """
        self._order = BatchRequest((), folder, FORMATS)
        self._settle = settle
        self._runtime = runtime
        self._pool = Pool([None] * workers)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="queue", daemon=True)
        self._settled: Future[Settings] | None = None
        # Of the thread alone:
        self._awaited: Future[Settings] | None = None
        self._entered = ExitStack()
        self._manifest: Manifest | None = None  # None: the folder is not locked
        self._items: dict[str, Item] = {}  # by the id of the transcript, as these
        self._waiting: deque[str] = deque()
        self._working: dict[str, Future[Outcome]] = {}
        self._pace: Pace = {}
        self._speed = Rates()
        # Written by it, and read by those of the pool:
        self._after: float | None = None
        # For all, under the lock:
        self._lock = threading.Lock()
        self._standings: dict[str, JobStatus] = {}
        self._listeners: list[Listener] = []
        self._closing = False

    def __enter__(self) -> Queue:
        """Take up what an earlier server left. Raises OutputError."""
        self._pool.__enter__()
        self._remember(Manifest(self._order.out / MANIFEST))
        self._thread.start()
        self._inbox.put(_nothing)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.drop()
        self._inbox.put(None)
        self._thread.join()

    # --- for any thread ---

    def add(self, uploads: Sequence[tuple[Path, str]]) -> list[JobStatus]:
        """Take files into the folder, to be worked on; if there is no room for all to wait, none is taken.

        Each has a name, which it gets if it is still free there. The files are on the same disk; they are
        moved. Raises BusyError, ConflictError, OutputError.
        """
        return self._do(partial(self._add, uploads))

    def transcribe(self, recordings: Sequence[Path]) -> list[JobStatus]:
        """Have recordings below the folder worked on, as many as may wait, without those known already.

        Paths are below the folder. Raises BusyError, ConflictError, OutputError.
        """
        return self._do(partial(self._transcribe, recordings))

    def cancel(self, recording: str) -> JobStatus:
        """End the work on a recording, or the wait for it.

        Raises UnknownError, ConflictError, OutputError.
        """
        return self._do(partial(self._cancel, recording))

    def retry(self, recording: str) -> JobStatus:
        """Have another try at what failed or was canceled. Raises as `cancel`, and InputError."""
        return self._do(partial(self._retry, recording))

    def moved(self, path: Path, place: Path) -> None:
        """A transcript is elsewhere now, and its recording with it; paths of JSONs are below the folder.

        Raises ConflictError if a batch is at work in the folder, OutputError.
        """
        self._do(partial(self._moved, path, place))

    def gone(self, path: Path) -> None:
        """A transcript was thrown away: a recording that comes in its place is offered, not taken for done.

        Raises as `moved`.
        """
        self._do(partial(self._gone, path))

    def standings(self) -> list[JobStatus]:
        """All that listeners are told of first."""
        with self._lock:
            return list(self._standings.values())

    def states(self) -> Mapping[str, str]:
        """ "waiting" or "working", by the ids of the transcripts that are to be."""
        return {one.id: one.state for one in self.standings() if one.state in ("waiting", "working")}

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Hear of all recordings now, and of each change; `wake` is called from another thread when there is
        something to take. Raises BusyError."""
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS or self._closing:
                raise BusyError("too many windows are open; close some")
            listener = Listener(wake)
            self._listeners.append(listener)
            for standing in self._standings.values():
                listener.tell(standing)
        return listener

    def forget(self, listener: Listener) -> None:
        """A listener has left."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def settings(self) -> Future[Settings]:
        """The models, chosen and checked. It raises what `settle` raises; the next call tries again."""
        with self._lock:
            if self._settled is None or (self._settled.done() and self._settled.exception() is not None):
                self._settled = Future()
                self._settled.set_running_or_notify_cancel()  # many wait for it, and one of them may leave
                threading.Thread(target=self._settle_now, args=(self._settled,), daemon=True).start()
            return self._settled

    def submit(self, job: Job, watcher: Watcher | None = None) -> Future[Outcome]:
        """Have a job done that is none of the folder's, before those that wait here."""
        return self._pool.submit(replace(job, settings=replace(job.settings, runtime=self._runtime)), watcher)

    def stop(self, future: Future[Outcome]) -> None:
        """End a job that `submit` took."""
        self._pool.stop(future)

    def _settle_now(self, settled: Future[Settings]) -> None:
        try:
            settled.set_result(self._settle())
        except BaseException as error:
            settled.set_exception(error)

    def _do(self, step: Callable[[], T]) -> T:
        """What `step` returns, done by the queue's thread."""
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(step())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._closing:
                raise BusyError("the server is ending; start it again")
            self._inbox.put(do)
        return future.result()

    # --- the thread ---

    def _work(self) -> None:
        while True:
            blocked = self._waiting and self._manifest is None
            with suppress(queue.Empty):
                step = self._inbox.get(timeout=PATIENCE if blocked else None)
                if step is None:
                    break
                step()
            self._go_on()
            self._look_ahead()
        self._pool.__exit__(None, None, None)
        self._leave()

    def _go_on(self) -> None:
        """Begin what can be begun; leave the folder to other batches if there is nothing to do."""
        try:
            while self._waiting and len(self._working) < self._pool.workers:
                manifest = self._enter()
                if (settings := self._known_settings()) is None:
                    return
                self._begin(self._waiting[0], Folder(self._order, settings, manifest))
                self._waiting.popleft()
        except ConflictError as error:
            self._change(self._waiting[0], why=str(error))
        except WitnessError as error:
            self._fail_all(str(error))
        except Exception as error:  # it must not end the queue
            self._fail_all(f"{type(error).__name__}: {one_line(error)}; this is a bug, please report it")
        if not self._waiting and not self._working:
            self._leave()

    def _look_ahead(self) -> None:
        """Expect how long the work on those that wait will take."""
        seconds = self._speed.together(self._items[recording] for recording in self._waiting)
        self._after = None if seconds is None else seconds / self._pool.workers

    def _enter(self) -> Manifest:
        """The manifest of the folder, which is locked from now on.

        Raises ConflictError if another batch is at work in it, OutputError.
        """
        if self._manifest is None:
            try:
                self._entered.enter_context(locked(self._order.out))
            except OutputError:
                raise
            except WitnessError:
                raise ConflictError(
                    f"a batch is at work in {self._order.out.name}; wait until it has ended"
                ) from None
            self._manifest = Manifest(self._order.out / MANIFEST)
            saving.tidy([self._order.out])
        return self._manifest

    def _leave(self) -> None:
        self._entered.close()
        self._manifest = None

    def _known_settings(self) -> Settings | None:
        """None: not yet; there will be a step in the inbox. Raises WitnessError."""
        if self._awaited is None:
            self._awaited = self.settings()
            self._awaited.add_done_callback(lambda _: self._inbox.put(_nothing))
        if not self._awaited.done():
            return None
        awaited = self._awaited
        if (error := awaited.exception()) is not None:
            self._awaited = None
            raise WitnessError(one_line(error)) from error
        return awaited.result()

    def _begin(self, recording: str, folder: Folder) -> None:
        """Give a recording to the pool, or find that it needs none. Raises OutputError."""
        item = self._items[recording]
        with suppress(OSError):  # the worker says what is wrong with it
            size, mtime_ns = size_and_mtime(item.source)
            item = self._items[recording] = replace(item, size=size, mtime_ns=mtime_ns)
        before = folder.done_before(item)
        if before is not None and before.state == "done":
            self._change(recording, state="done", share=1.0, why=None)
        elif (trouble := folder.in_the_way(item)) is not None:
            self._change(recording, state="failed", why=trouble)
        else:
            course = Estimate(self._pace, self._speed.together([item]))
            self._change(recording, state="working", why=None)
            watcher = Watcher(partial(self._hear, recording, course), partial(self._said, recording))
            finish = partial(self._finish, recording, folder, course)
            future = self._working[recording] = self._pool.submit(folder.job(item, self._runtime), watcher)
            future.add_done_callback(lambda _: self._inbox.put(finish))

    def _hear(self, recording: str, course: Estimate, stage: str, done: float, total: float) -> None:
        """From a thread of the pool."""
        course.hear(stage, done, total)
        self._change(
            recording, stage=stage, share=course.share, seconds_left=course.left, seconds_after=self._after
        )

    def _said(self, recording: str, first: int, segments: Sequence[Segment]) -> None:
        """From a thread of the pool."""
        before = self._standing(recording).said[:first]
        self._change(recording, said=(*before, *segments))

    def _finish(self, recording: str, folder: Folder, course: Estimate) -> None:
        """Record what became of a recording."""
        future, item = self._working.pop(recording), self._items[recording]
        rest: dict[str, Any] = {"stage": None, "seconds_left": None, "seconds_after": None, "said": ()}
        try:
            if future.cancelled() or isinstance(future.exception(), CancelledError):
                folder.manifest.append(folder.entry(item, "canceled"))
                self._change(recording, state="canceled", **rest)
                return
            outcome = outcome_of(item, future)
            entry = folder.record(item, outcome)
        except OutputError as error:  # nor is there room for the others
            self._change(recording, state="failed", why=str(error), **rest)
            self._fail_all(str(error))
            return
        if entry.state == "done":
            self._pace = course.pace()
            self._speed.learn(item, outcome)
            rest["share"] = 1.0
        self._change(recording, state=entry.state, why=entry.error, **rest)

    def _fail_all(self, why: str) -> None:
        """Give up what waits, until somebody tries again, or for the next server."""
        while self._waiting:
            self._change(self._waiting.popleft(), state="failed", why=why)

    def _add(self, uploads: Sequence[tuple[Path, str]]) -> list[JobStatus]:
        if len(self._waiting) + len(uploads) > MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} recordings may wait; send more when some are done")
        manifest = self._enter()
        return [self._wait_for(self._take(manifest, *upload)) for upload in uploads]

    def _take(self, manifest: Manifest, scratch: Path, name: str) -> Item:
        """Move a file into the folder. Raises OutputError."""
        try:
            path = self._order.out / free_name(name, os.listdir(self._order.out))  # noqa: PTH208 - names alone
            ((source, output),) = assign([(str(path), path.name)], manifest)
            item = Item(source, output, *size_and_mtime(str(scratch)))
            # Before it is there: what is there and is no batch's own was not uploaded.
            manifest.append(_begun(item))
            _move(scratch, path)
        except OSError as error:
            raise OutputError(
                f"{name}: cannot be kept ({error.strerror}); fix: free disk space or fix the folder's "
                "permissions"
            ) from error
        return item

    def _transcribe(self, recordings: Sequence[Path]) -> list[JobStatus]:
        room = MOST_WAITING - len(self._waiting)
        if not room:
            raise BusyError(f"{MOST_WAITING} recordings may wait; come back when some are done")
        manifest = self._enter()
        here = [(str(self._order.out / path), str(path)) for path in recordings]
        waiting = []
        for source, output in assign([one for one in here if one[0] not in manifest.sources], manifest)[
            :room
        ]:
            with suppress(OSError):  # it is gone
                item = Item(source, output, *size_and_mtime(source))
                manifest.append(_begun(item))
                waiting.append(self._wait_for(item))
        return waiting

    def _cancel(self, recording: str) -> JobStatus:
        state = self._standing(recording).state
        if state == "working":
            self._pool.stop(self._working[recording])
        elif state == "waiting":
            self._enter().append(replace(_begun(self._items[recording]), state="canceled"))
            self._waiting.remove(recording)
            self._change(recording, state="canceled", why=None)
        else:
            raise ConflictError(f"{self._standing(recording).name}: is {state}; there is nothing to cancel")
        return self._standing(recording)

    def _retry(self, recording: str) -> JobStatus:
        manifest = self._enter()
        if recording not in self._standings:
            self._remember(manifest, recording)
        if (known := self._standing(recording)).state not in ("failed", "canceled"):
            raise ConflictError(f"{known.name}: is {known.state}; there is nothing to try again")
        item = self._items[recording]
        if not Path(item.source).is_file():
            raise InputError(f"{known.name}: the recording is missing; send it again")
        manifest.append(_begun(item))
        return self._wait_for(item)

    def _moved(self, path: Path, place: Path) -> None:
        manifest = self._enter()
        before, now = (one.as_posix().removesuffix(".json") for one in (path, place))
        entry = manifest.entries.get(before)
        if entry is not None:
            source = (self._order.out / now).with_name(f"{Path(now).name}{Path(entry.source).suffix}")
            manifest.append(
                replace(entry, output=now, source=str(source if source.exists() else entry.source))
            )

    def _gone(self, path: Path) -> None:
        manifest = self._enter()
        entry = manifest.entries.get(path.as_posix().removesuffix(".json"))
        if entry is not None:
            manifest.append(replace(entry, state="canceled", error=None))

    def _standing(self, recording: str) -> JobStatus:
        with self._lock:
            if recording not in self._standings:
                raise UnknownError("there is no recording with this id; reload the page")
            return self._standings[recording]

    def _wait_for(self, item: Item) -> JobStatus:
        standing = JobStatus(_id(item), Path(item.source).name, "waiting", output=item.output)
        self._items[standing.id] = item
        self._waiting.append(standing.id)
        self._tell(standing)
        return standing

    def _remember(self, manifest: Manifest, wanted: str | None = None) -> None:
        """What waits, failed or was canceled of the recordings below the folder, or the one wanted."""
        for entry in manifest.entries.values():
            item = Item(entry.source, entry.output, entry.size, entry.mtime_ns)
            path = Path(entry.source)
            mine = self._order.out in path.parents if wanted is None else _id(item) == wanted
            if not mine or entry.state == "done" or not path.is_file():
                continue
            if entry.state == "begun":
                self._wait_for(item)
            else:
                self._items[_id(item)] = item
                self._tell(JobStatus(_id(item), path.name, entry.state, why=entry.error, output=item.output))

    def _change(self, recording: str, **fields: Any) -> None:
        self._tell(replace(self._standing(recording), **fields))

    def _tell(self, standing: JobStatus) -> None:
        with self._lock:
            if self._standings.get(standing.id) == standing:
                return
            self._standings[standing.id] = standing
            self._listeners = [one for one in self._listeners if one.tell(standing)]
            ended = [one.id for one in self._standings.values() if one.state not in ("waiting", "working")]
            for old in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._standings[old]


def _nothing() -> None:
    """A step that only has the queue look at what it can do."""


def _id(item: Item) -> str:
    return id_of(Path(outputs.name_of(item.output, Format.JSON)))


def _begun(item: Item) -> Entry:
    """It waits; with what settings it will be worked on is not known yet."""
    return Entry(item.output, item.source, item.size, item.mtime_ns, None, "", "begun")


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if a file of that name lies there, or results of a recording of that name."""
    stem, ending = os.path.splitext(name)  # noqa: PTH122
    there = [one.casefold() for one in taken]
    for number in count(1):
        free = stem if number == 1 else f"{stem}-{number}"
        if not any(one.startswith(f"{free.casefold()}.") for one in there):
            return free + ending
    raise AssertionError


def _move(scratch: Path, path: Path) -> None:
    """Rename a file to a name that must be free. Raises OSError."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        scratch.rename(path)
    else:
        scratch.unlink()
