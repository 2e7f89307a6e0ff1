"""The queue of the desk: recordings that were dropped or lay in the folder, with their results beside them.

It works as `witness batch FOLDER -o FOLDER` does, in the same manifest, where "begun" is each recording that
waits or is half done, also for the next server after this one was killed. One thread changes everything; the
folder is locked for batches while there is something to do in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from witness.child import one_line
from witness.errors import ConflictError, InputError, OutputError, WitnessError, lacks_resources, writing
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.progress import Reporter
from witness.serve.library.library import Library, id_of
from witness.storage import atomic, transaction
from witness.transcript import vocabulary
from witness.work.eta import Estimate
from witness.work.folder import MANIFEST, BatchRequest, Folder, assign, locked, size_and_mtime
from witness.work.manifest import Entry, Manifest
from witness.work.overrides import MOST_TERMS, JobOverrides
from witness.work.pool import Pool
from witness.work.produce import Job, Outcome, Segment, Settings, Watcher
from witness.work.queue import JobQueue, Observer

P = ParamSpec("P")
T = TypeVar("T")

MOST_WAITING = 1000
"""Recordings that may wait."""
FORMATS = ("json", "txt")
"""The default formats of `witness batch`."""
PATIENCE = 5.0
"""Seconds between two tries to lock the folder while another batch is at work in it."""
SCAN = 5.0
"""Seconds between two scans of a watched folder."""
COMPLETE = 10.0
"""Seconds without a change after which a recording in it is complete."""
MOST_ENDED = 200
"""Recordings done, failed or canceled that the board keeps."""
MOST_LISTENERS = 200
LATEST = 3
"""Segments of the text so far that a row has."""

State = Literal["waiting", "working", "done", "failed", "canceled"]
OPEN = ("waiting", "working")


class BusyError(WitnessError):
    """Queue full; retry later."""


class UnknownError(WitnessError):
    """No recording with that id."""


@dataclass(frozen=True)
class JobStatus:
    """Status of a recording."""

    id: str
    """The id of its transcript."""
    name: str
    state: State
    stage: str | None = None
    """The stage at work now."""
    share: float = 0.0
    """Share of the work that is done."""
    seconds_left: float | None = None
    seconds_after: float | None = None
    """Seconds from the end of this recording until those that wait now are done, too; None: not known."""
    why: str | None = None
    """The reason why it failed, or why it still waits although nothing is before it."""
    said: tuple[Mapping[str, Any], ...] = ()
    """The segments that are final so far, as `produce.Segment`."""
    output: str = ""
    """Its results below the folder, without their endings."""
    source: str = ""
    """The path of the recording."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON."""
        latest = self.said[-LATEST:]
        left, after = (
            None if time is None else round(time) for time in (self.seconds_left, self.seconds_after)
        )
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "stage": self.stage,
            "share": round(self.share, 3),
            "seconds_left": left,
            "seconds_after": after,
            "why": self.why,
            "said": [{"speaker": segment["speaker"], "text": segment["text"]} for segment in latest],
            "transcript": self.id if self.state == "done" else None,
        }


class Listener:
    """The latest status of each recording that a browser has not taken yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._unread: dict[str, JobStatus] | None = {}

    def put(self, status: JobStatus | None) -> None:
        """Keep a status for `take`; None: there will be no more."""
        with self._lock:
            if status is None or self._unread is None:
                self._unread = None
            else:
                self._unread.pop(status.id, None)  # it goes to the end
                self._unread[status.id] = status
        self._wake()

    def take(self) -> list[JobStatus] | None:
        """Return the unread statuses, the oldest first; None: there will be no more."""
        with self._lock:
            if self._unread is None:
                return None
            unread, self._unread = list(self._unread.values()), {}
        return unread


class StatusBoard:
    """The statuses of all recordings, and their listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, JobStatus] = {}
        self._listeners: list[Listener] = []
        self._closed = False

    def statuses(self) -> list[JobStatus]:
        """Return all, as a new listener gets them."""
        with self._lock:
            return list(self._statuses.values())

    def states(self) -> Mapping[str, str]:
        """Return "waiting" or "working" by the ids of the transcripts that are not done yet."""
        return {status.id: status.state for status in self.statuses() if status.state in OPEN}

    def status(self, recording: str) -> JobStatus:
        """Return the status of one recording. Raises UnknownError."""
        with self._lock:
            if recording not in self._statuses:
                raise UnknownError("there is no recording with this id; reload the page")
            return self._statuses[recording]

    def has(self, recording: str) -> bool:
        """Return whether there is a status of this recording."""
        with self._lock:
            return recording in self._statuses

    def put(self, status: JobStatus) -> None:
        """Set a status, and give it to all listeners unless nothing has changed."""
        with self._lock:
            if self._statuses.get(status.id) == status:
                return
            self._statuses[status.id] = status
            for listener in self._listeners:
                listener.put(status)
            ended = [other.id for other in self._statuses.values() if other.state not in OPEN]
            for old in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._statuses[old]

    def change(self, recording: str, **fields: Any) -> None:
        """Set some fields of a status. Raises UnknownError."""
        self.put(replace(self.status(recording), **fields))

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Return a listener with all statuses, which gets each change. Raises BusyError.

        `wake` is called from another thread when there is something to take.
        """
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS or self._closed:
                raise BusyError("too many windows are open; close some")
            listener = Listener(wake)
            self._listeners.append(listener)
            for status in self._statuses.values():
                listener.put(status)
        return listener

    def forget(self, listener: Listener) -> None:
        """Remove a listener that has left."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def close(self) -> None:
        """Drop all listeners, and take no more."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.put(None)


# --- models ---

Resolve = Callable[[JobOverrides], Settings]
"""Chooses and checks the models for overrides; it may take minutes. Raises WitnessError."""


class ResolvedModels:
    """The settings resolved so far; any thread may ask."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._futures: dict[JobOverrides, Future[Settings]] = {}

    def request(self, overrides: JobOverrides = JobOverrides()) -> Future[Settings]:
        """Return the settings for overrides. After an error, the next request tries again."""
        overrides = overrides.for_models
        with self._lock:
            future = self._futures.get(overrides)
            if future is None or (future.done() and future.exception() is not None):
                future = self._futures[overrides] = Future()
                future.set_running_or_notify_cancel()  # so that no client can cancel it
                resolve = partial(self._resolve, overrides)
                try:
                    threading.Thread(target=_fulfill, args=(future, resolve), daemon=True).start()
                except RuntimeError as error:  # no room for another thread
                    future.set_exception(error)
            return future

    def ready(self, overrides: JobOverrides = JobOverrides()) -> Settings | None:
        """Return the settings for overrides if they are resolved."""
        with self._lock:
            future = self._futures.get(overrides.for_models)
        done = future is not None and future.done() and future.exception() is None
        return future.result() if future is not None and done else None


# --- the queue ---


def _in_thread(method: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[Queue, P], T]:
    """Make a method run in the queue's thread, and its caller wait. It raises BusyError at the end."""

    @wraps(method)
    def call(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        future: Future[T] = Future()
        self.call(partial(_fulfill, future, partial(method, self, *args, **kwargs)))
        return future.result()

    return call


def _fulfill(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


class Queue(Observer):
    """A context manager: leaving it ends the work, and the next queue does the rest."""

    live = True

    def __init__(
        self,
        folder: Path,
        resolve: Resolve,
        runtime: Runtime = Runtime(),
        workers: int = 1,
    ) -> None:
        """Work on the recordings of `folder`, an absolute path, in so many processes at a time.

        `resolve` is called when its models are needed first.
        """
        self.folder = folder
        self.board = StatusBoard()
        self.models = ResolvedModels(resolve)
        self._request = BatchRequest((), folder, FORMATS, retry_failed=True)
        self._runtime = runtime
        self._pool = Pool([None] * workers)
        self._jobs = JobQueue(self._pool, runtime, self._prepare, self)
        self._thread = threading.Thread(target=self._work, name="queue", daemon=True)
        # Of the thread alone:
        self._requested: dict[JobOverrides, Future[Settings]] = {}
        self._entered = ExitStack()
        self._manifest: Manifest | None = None  # None: the folder is not locked
        self._items: dict[str, Entry] = {}  # by id
        # Written by it, and read by threads of the pool:
        self._seconds_after: float | None = None
        # For all, under the lock:
        self._lock = threading.Lock()
        self._closing = False

    def __enter__(self) -> Queue:
        """Take up the recordings of an earlier server. Raises OutputError."""
        self._pool.__enter__()
        self._restore(Manifest(self.folder / MANIFEST))
        self._thread.start()
        self._jobs.call(_look)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
        self.board.close()
        self._jobs.call(None)
        self._thread.join()

    # --- for any thread ---

    def call(self, step: Callable[[], None]) -> None:
        """Have the queue's thread run a step. Raises BusyError."""
        with self._lock:
            if self._closing:
                raise BusyError("the server is ending; start it again")
            self._jobs.call(step)

    @_in_thread
    def add(
        self, uploads: Sequence[tuple[Path, str]], overrides: JobOverrides = JobOverrides()
    ) -> list[JobStatus]:
        """Move files with their names into the folder, to be transcribed; all, or none if they are too many.

        The files are on the same disk. A name that is taken gets a number. Raises BusyError, ConflictError,
        OutputError.
        """
        if len(self._jobs.waiting) + len(uploads) > MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} recordings may wait; send more when some are done")
        return [self._wait_for(self._take(path, name, overrides)) for path, name in uploads]

    @_in_thread
    def transcribe(
        self, recordings: Sequence[Path], overrides: JobOverrides = JobOverrides()
    ) -> list[JobStatus]:
        """Queue recordings by their paths below the folder, as many as may wait, without those queued before.

        Raises BusyError, ConflictError, OutputError.
        """
        room, manifest = self._room(), self._enter()
        pairs = [(str(self.folder / path), str(path)) for path in recordings]
        new = [(source, path) for source, path in pairs if source not in manifest.sources]
        waiting = []
        for source, output in assign(new, manifest)[:room]:
            with suppress(OSError):  # it was deleted
                item = Entry.begun(source, output, size_and_mtime(source), overrides)
                waiting.append(self._begin(item))
        return waiting

    @_in_thread
    def transcribe_changed(self, recordings: Iterable[Path]) -> list[Path]:
        """Queue recordings again that have changed since they were done or failed; return those judged.

        Those that wait or are worked on are for a later call. Raises as `transcribe`.
        """
        self._room()
        manifest, judged = self._enter(), []
        for path in recordings:
            source = str(self.folder / path)
            entry = manifest.entries.get(manifest.sources.get(source, ""))
            if entry is not None and entry.state == "begun":
                continue
            judged.append(path)
            if entry is None or entry.state == "canceled":
                continue
            with suppress(OSError):  # it was deleted
                size, mtime_ns = now = size_and_mtime(source)
                if entry.size != size or entry.sha256 != manifest.sha256(source, *now):
                    again = Path(output_paths.name_of(self.folder / entry.output, Format.JSON)).is_file()
                    self._begin(Entry.begun(source, entry.output, now, entry.wish, again))
                elif entry.mtime_ns != mtime_ns:
                    manifest.append(replace(entry, mtime_ns=mtime_ns))
                    break  # it was hashed: let others have the thread
        return judged

    @_in_thread
    def again(self, path: Path, recording: Path, overrides: JobOverrides) -> JobStatus:
        """Queue a recording whose transcript is at `path` (its JSON); a person's changes to it are kept.

        Raises BusyError, ConflictError, OutputError.
        """
        self._room()
        output = path.relative_to(self.folder).as_posix().removesuffix(".json")
        if _id(output) in self.board.states():
            raise ConflictError(f"{path.name}: is being transcribed already; cancel that first")
        try:
            item = Entry.begun(str(recording), output, size_and_mtime(str(recording)), overrides, again=True)
        except OSError as error:
            raise InputError(f"{recording.name}: cannot be read ({error.strerror})") from error
        return self._begin(item)

    @_in_thread
    def cancel(self, recording: str) -> JobStatus:
        """End the work on a recording, or its wait. Raises UnknownError, ConflictError, OutputError."""
        status = self.board.status(recording)
        if status.state == "working":
            self._pool.stop(self._jobs.working[status.output][1])
        elif status.state == "waiting":
            self._enter().append(replace(self._items[recording], state="canceled"))
            self._jobs.remove(status.output)
            self.board.change(recording, state="canceled", why=None)
        else:
            raise ConflictError(f"{status.name}: is {status.state}; there is nothing to cancel")
        return self.board.status(recording)

    @_in_thread
    def retry(self, recording: str, overrides: JobOverrides | None = None) -> JobStatus:
        """Queue again a recording that failed or was canceled; None: with its overrides.

        Raises as `cancel`, and InputError.
        """
        manifest = self._enter()
        if recording not in self._items or not self.board.has(recording):
            self._restore(manifest, recording)
        status = self.board.status(recording)
        if status.state not in ("failed", "canceled"):
            raise ConflictError(f"{status.name}: is {status.state}; there is nothing to try again")
        item = self._items.get(recording)
        if item is None or not Path(item.source).is_file():
            raise InputError(f"{status.name}: the recording is missing; send it again")
        return self._begin(item if overrides is None else replace(item, wish=overrides))

    @_in_thread
    def dismiss(self, recording: str) -> None:
        """Note that a person has seen that a new transcription failed. Raises as `cancel`."""
        manifest = self._enter()
        for entry in list(manifest.entries.values()):
            if entry.again and entry.state == "failed" and _id(entry.output) == recording:
                manifest.append(replace(entry, state="canceled", error=None))
                if self.board.has(recording):
                    self.board.change(recording, state="canceled", why=None)

    @_in_thread
    def note_move(self, path: Path, target: Path) -> None:
        """Note that a transcript was moved, with its recording; the paths of its JSON are below the folder.

        Raises ConflictError if a batch is at work in the folder, OutputError.
        """
        manifest, now = self._enter(), target.as_posix().removesuffix(".json")
        entry = manifest.entries.get(path.as_posix().removesuffix(".json"))
        if entry is not None:
            source = (self.folder / target).with_suffix(Path(entry.source).suffix)
            moved = str(source) if source.exists() else entry.source
            manifest.append(replace(entry, output=now, source=moved))

    @_in_thread
    def note_deletion(self, path: Path) -> None:
        """Note that a transcript was thrown away, so that a new recording in its place is not taken for done.

        Raises as `note_move`.
        """
        manifest = self._enter()
        entry = manifest.entries.get(path.as_posix().removesuffix(".json"))
        if entry is not None:
            manifest.append(replace(entry, state="canceled", error=None))

    def submit(self, job: Job, watcher: Watcher | None = None) -> Future[Outcome]:
        """Do a job outside the folder, before the recordings that wait."""
        return self._pool.submit(replace(job, settings=replace(job.settings, runtime=self._runtime)), watcher)

    def stop(self, future: Future[Outcome]) -> None:
        """End a job of `submit`."""
        self._pool.stop(future)

    # --- the thread ---

    def _work(self) -> None:
        blocked = False
        while self._jobs.run_step(PATIENCE if blocked else None):
            self._submit_next()
            idle = self._manifest is None or self._jobs.paused or not self._jobs.working
            blocked = bool(self._jobs.waiting) and idle
            seconds = self._jobs.forecast.expect(self._jobs.waiting.values())
            self._seconds_after = None if seconds is None else seconds / self._pool.workers
        self._pool.__exit__(None, None, None)
        self._leave()

    def _submit_next(self) -> None:
        """Begin as many recordings as there are workers; unlock the folder if nothing is left."""
        try:
            self._jobs.submit_next()
        except ConflictError as error:
            self._change(next(iter(self._jobs.waiting.values())), why=str(error))
        except Exception as error:  # it must not end the queue
            if lacks_resources(error):
                self._jobs.pause()
                self._change(next(iter(self._jobs.waiting.values())), why=one_line(error))
            elif isinstance(error, WitnessError):
                self._fail_waiting(str(error))
            else:
                self._fail_waiting(
                    f"{type(error).__name__}: {one_line(error)}; this is a bug, please report it"
                )
        if self._jobs.idle:
            self._leave()

    def _enter(self) -> Manifest:
        """Lock the folder, and return its manifest. Raises ConflictError during a batch, OutputError."""
        if self._manifest is None:
            out = self.folder
            try:
                self._entered.enter_context(locked(out))
            except OutputError:
                raise
            except WitnessError:
                raise ConflictError(f"a batch is at work in {out.name}; wait until it has ended") from None
            try:
                self._manifest = Manifest(out / MANIFEST)
            except OutputError:
                self._leave()
                raise
            transaction.tidy([out])
        return self._manifest

    def _leave(self) -> None:
        self._entered.close()
        self._manifest = None

    def _prepare(self, item: Entry) -> tuple[Entry, Folder] | None:
        """Return a recording with the vocabulary of its folder; None: its models are not resolved.

        Raises ConflictError, OutputError, InputError.
        """
        manifest = self._enter()
        models = item.wish.for_models
        if models not in self._requested:
            self._requested[models] = self.models.request(models)
            self._requested[models].add_done_callback(lambda _: self._jobs.call(_look))
        future = self._requested[models]
        if not future.done():
            return None
        if (error := future.exception()) is not None:
            del self._requested[models]
            if lacks_resources(error):
                raise error
            self._fail_waiting(one_line(error), models)
            self._jobs.call(_look)
            return None
        out = self.folder
        terms = (*vocabulary.terms((out / item.output).parent, out), *item.wish.vocabulary)
        overrides = replace(item.wish, vocabulary=tuple(dict.fromkeys(terms))[:MOST_TERMS])
        rest = replace(overrides, whisper=None, language=None)  # these need no other model
        settings = future.result()
        settings = replace(settings, options=rest.apply(settings.options))
        return replace(item, wish=overrides), Folder(self._request, settings, manifest)

    def _fail_waiting(self, why: str, models: JobOverrides | None = None) -> None:
        """Fail all that waits (for these models), until a person tries again, or for the next server."""
        for item in list(self._jobs.waiting.values()):
            if models is None or item.wish.for_models == models:
                self._jobs.remove(item.output)
                self._change(item, state="failed", why=why)

    # --- the queue's events ---

    def begun(self, item: Entry) -> None:
        self._items[_id(item.output)] = item
        self._change(item, state="working", why=None)

    def progressed(self, item: Entry, stage: str, estimate: Estimate) -> None:
        left, after = estimate.left, self._seconds_after
        self._change(item, stage=stage, share=estimate.share, seconds_left=left, seconds_after=after)

    def said(self, item: Entry, first: int, segments: Sequence[Segment]) -> None:
        before = self.board.status(_id(item.output)).said[:first]
        self._change(item, said=(*before, *segments))

    def postponed(self, item: Entry, error: str) -> None:
        self._change(item, state="waiting", why=error, **_NO_WORK)

    def ended(self, item: Entry, entry: Entry, outcome: Outcome | None) -> None:  # noqa: ARG002
        share = {"share": 1.0} if entry.state == "done" else {}
        self._change(item, state=entry.state, why=entry.why, **_NO_WORK, **share)

    def unwritable(self, item: Entry, error: OutputError) -> None:
        if lacks_resources(error):
            self._jobs.pause()
            self._jobs.add(item)
            self.postponed(item, str(error))
            return
        self._change(item, state="failed", why=str(error), **_NO_WORK)
        self._fail_waiting(str(error))  # their results cannot be written either

    def _change(self, item: Entry, **fields: Any) -> None:
        self.board.change(_id(item.output), **fields)

    # --- recordings ---

    def _take(self, scratch: Path, name: str, overrides: JobOverrides) -> Entry:
        """Move a file into the folder, under this name or a free one. Raises OutputError."""
        manifest = self._enter()
        with writing(name):
            path = self.folder / free_name(name, os.listdir(self.folder))  # noqa: PTH208 - names alone
            ((source, output),) = assign([(str(path), path.name)], manifest)
            item = Entry.begun(source, output, size_and_mtime(str(scratch)), overrides)
            manifest.append(item, synced=True)  # first, so that after a kill it does not miss the file
            _move(scratch, path)
            atomic.sync(self.folder)
        return item

    def _room(self) -> int:
        """Return the number of recordings that may still wait. Raises BusyError for 0."""
        room = MOST_WAITING - len(self._jobs.waiting)
        if not room:
            raise BusyError(f"{MOST_WAITING} recordings may wait; come back when some are done")
        return room

    def _begin(self, item: Entry) -> JobStatus:
        """Have a recording wait, also in the manifest. Raises OutputError."""
        self._enter().append(item)
        return self._wait_for(item)

    def _wait_for(self, item: Entry) -> JobStatus:
        status = _status(item, "waiting")
        self._items[status.id] = item
        self._jobs.add(item)
        self.board.put(status)
        return status

    def _restore(self, manifest: Manifest, recording: str | None = None) -> None:
        """Take up the recordings below the folder that wait, failed or were canceled; or only this one."""
        for entry in manifest.entries.values():
            path, id_ = Path(entry.source), _id(entry.output)
            below = self.folder in path.parents or entry.again
            mine = below if recording is None else id_ == recording
            if not mine or entry.state == "done" or not path.is_file():
                continue
            item = Entry.begun(
                entry.source, entry.output, (entry.size, entry.mtime_ns), entry.wish, entry.again
            )
            if entry.state == "begun":
                self._wait_for(item)
            else:
                self._items[id_] = item
                self.board.put(_status(item, entry.state, entry.why))


_NO_WORK: dict[str, Any] = {"stage": None, "seconds_left": None, "seconds_after": None, "said": ()}
"""The fields of a recording that is not worked on."""


def _look() -> None:
    """Do nothing; after each step the queue submits recordings."""


def _status(item: Entry, state: State, why: str | None = None) -> JobStatus:
    name = Path(item.source).name
    return JobStatus(_id(item.output), name, state, why=why, output=item.output, source=item.source)


def _id(output: str) -> str:
    return id_of(Path(output_paths.name_of(output, Format.JSON)))


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number if a file or results of a recording with that name exist."""
    stem, ending = os.path.splitext(name)  # noqa: PTH122
    names = [other.casefold() for other in taken]
    for number in count(1):
        free = stem if number == 1 else f"{stem}-{number}"
        if not any(other.startswith(f"{free.casefold()}.") for other in names):
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


# --- a watched folder ---


class FolderWatch:
    """The recordings below a folder that have no transcript or have changed, from scan to scan."""

    def __init__(self, library: Library, queue: Queue, reporter: Reporter) -> None:
        """Begin with the recordings that are done. Raises OutputError if the manifest cannot be read."""
        self._library, self._queue, self._reporter = library, queue, reporter
        self._queued: dict[Path, tuple[int, int]] = {}  # with the size and time of that moment
        self._before: dict[Path, tuple[int, int, float]] = {}
        for entry in Manifest(queue.folder / MANIFEST).entries.values():
            if queue.folder in Path(entry.source).parents:
                path = Path(entry.source).relative_to(queue.folder)
                self._queued[path] = entry.size, entry.mtime_ns

    def scan(self) -> None:
        """Queue the recordings that have not changed for a while, by a clock that cannot be set."""
        new = set(self._library.untranscribed())
        now: dict[Path, tuple[int, int, float]] = {}
        for path in new | self._queued.keys():
            with suppress(OSError):  # it is being deleted or replaced
                state = size_and_mtime(str(self._library.folder / path))
                before = self._before.get(path, (0, 0, 0.0))
                now[path] = (*state, before[2] if before[:2] == state else time.monotonic())
        self._before = now
        complete = {
            path: (size, mtime_ns)
            for path, (size, mtime_ns, since) in now.items()
            if size and time.monotonic() - since >= COMPLETE and self._queued.get(path) != (size, mtime_ns)
        }
        if not complete:
            return
        changed = [path for path in complete if path in self._queued]
        try:
            queued = self._queue.transcribe([path for path in complete if path not in self._queued])
            judged = self._queue.transcribe_changed(changed) if changed else []
        except (BusyError, ConflictError):
            return  # the queue is full, or a batch is at work: at a later scan
        except WitnessError as error:
            self._reporter.note(f"recordings that appeared in the folder could not be queued: {error}")
            return
        judged += [Path(status.source).relative_to(self._queue.folder) for status in queued]
        self._queued |= {path: complete[path] for path in judged if path in complete}
        self._library.changed()


@contextmanager
def watch_folder(library: Library, queue: Queue, reporter: Reporter) -> Iterator[None]:
    """Queue recordings that appear meanwhile, in a thread."""
    end = threading.Event()
    watch = FolderWatch(library, queue, reporter)

    def scan() -> None:
        while not end.wait(SCAN):
            watch.scan()

    thread = threading.Thread(target=scan, name="folder-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)
