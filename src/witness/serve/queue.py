"""The queue of the desk: recordings that were dropped or lay in the folder, with their results beside them.

It works as `witness batch FOLDER -o FOLDER` does, in the same manifest, where "begun" is each recording that
waits or is half done, also for the next server after this one was killed. One thread changes everything; the
folder is locked for batches while there is something to do in it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from witness.child import one_line
from witness.errors import ConflictError, InputError, OutputError, WitnessError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.serve.library.library import id_of
from witness.serve.resolved_models import Resolve, ResolvedModels, with_overrides
from witness.serve.status import BusyError, JobStatus, State, StatusBoard
from witness.storage import transaction
from witness.transcript import vocabulary
from witness.work import overrides as job_overrides
from witness.work.eta import Estimate
from witness.work.folder import MANIFEST, BatchRequest, Folder, Item, assign, begun, locked, size_and_mtime
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


def _in_thread(method: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[Queue, P], T]:
    """Make a method run in the queue's thread, and its caller wait. It raises BusyError at the end."""

    @wraps(method)
    def call(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(method(self, *args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self.call(run)
        return future.result()

    return call


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
        self._items: dict[str, Item] = {}  # by id
        # Written by it, and read by threads of the pool:
        self._seconds_after: float | None = None
        # For all, under the lock:
        self._lock = threading.Lock()
        self._closing = False

    def __enter__(self) -> Queue:
        """Take up the recordings of an earlier server. Raises OutputError."""
        self._pool.__enter__()
        self._restore(Manifest(self._request.out / MANIFEST))
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
        pairs = [(str(self._request.out / path), str(path)) for path in recordings]
        new = [(source, path) for source, path in pairs if source not in manifest.sources]
        waiting = []
        for source, output in assign(new, manifest)[:room]:
            with suppress(OSError):  # it was deleted
                item = Item(source, output, *size_and_mtime(source), overrides)
                waiting.append(self._begin(item))
        return waiting

    @_in_thread
    def again(self, path: Path, recording: Path, overrides: JobOverrides) -> JobStatus:
        """Queue a recording whose transcript is at `path` (its JSON); a person's changes to it are kept.

        Raises BusyError, ConflictError, OutputError.
        """
        self._room()
        output = path.relative_to(self._request.out).as_posix().removesuffix(".json")
        if _id(output) in self.board.states():
            raise ConflictError(f"{path.name}: is being transcribed already; cancel that first")
        try:
            item = Item(str(recording), output, *size_and_mtime(str(recording)), overrides, again=True)
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
            self._enter().append(replace(begun(self._items[recording]), state="canceled"))
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
        return self._begin(item if overrides is None else replace(item, overrides=overrides))

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
            source = (self._request.out / target).with_suffix(Path(entry.source).suffix)
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
            blocked = bool(self._jobs.waiting) and self._manifest is None
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
        except WitnessError as error:
            self._fail_waiting(str(error))
        except Exception as error:  # it must not end the queue
            self._fail_waiting(f"{type(error).__name__}: {one_line(error)}; this is a bug, please report it")
        if self._jobs.idle:
            self._leave()

    def _enter(self) -> Manifest:
        """Lock the folder, and return its manifest. Raises ConflictError during a batch, OutputError."""
        if self._manifest is None:
            out = self._request.out
            try:
                self._entered.enter_context(locked(out))
            except OutputError:
                raise
            except WitnessError:
                raise ConflictError(f"a batch is at work in {out.name}; wait until it has ended") from None
            self._manifest = Manifest(out / MANIFEST)
            transaction.tidy([out])
        return self._manifest

    def _leave(self) -> None:
        self._entered.close()
        self._manifest = None

    def _prepare(self, item: Item) -> tuple[Item, Folder] | None:
        """Return a recording with the vocabulary of its folder; None: its models are not resolved.

        Raises ConflictError, OutputError, InputError.
        """
        manifest = self._enter()
        models = item.overrides.for_models
        if models not in self._requested:
            self._requested[models] = self.models.request(models)
            self._requested[models].add_done_callback(lambda _: self._jobs.call(_look))
        future = self._requested[models]
        if not future.done():
            return None
        if (error := future.exception()) is not None:
            del self._requested[models]
            self._fail_waiting(one_line(error), models)
            self._jobs.call(_look)
            return None
        out = self._request.out
        terms = (*vocabulary.terms((out / item.output).parent, out), *item.overrides.vocabulary)
        overrides = replace(item.overrides, vocabulary=tuple(dict.fromkeys(terms))[:MOST_TERMS])
        settings = with_overrides(future.result(), overrides)
        return replace(item, overrides=overrides), Folder(self._request, settings, manifest)

    def _fail_waiting(self, why: str, models: JobOverrides | None = None) -> None:
        """Fail all that waits (for these models), until a person tries again, or for the next server."""
        for item in list(self._jobs.waiting.values()):
            if models is None or item.overrides.for_models == models:
                self._jobs.remove(item.output)
                self._change(item, state="failed", why=why)

    # --- the queue's events ---

    def begun(self, item: Item) -> None:
        self._items[_id(item.output)] = item
        self._change(item, state="working", why=None)

    def progressed(self, item: Item, stage: str, estimate: Estimate) -> None:
        left, after = estimate.left, self._seconds_after
        self._change(item, stage=stage, share=estimate.share, seconds_left=left, seconds_after=after)

    def said(self, item: Item, first: int, segments: Sequence[Segment]) -> None:
        before = self.board.status(_id(item.output)).said[:first]
        self._change(item, said=(*before, *segments))

    def postponed(self, item: Item, error: str) -> None:
        self._change(item, state="waiting", why=error, **_NO_WORK)

    def ended(self, item: Item, entry: Entry, outcome: Outcome | None) -> None:  # noqa: ARG002
        share = {"share": 1.0} if entry.state == "done" else {}
        self._change(item, state=entry.state, why=entry.why, **_NO_WORK, **share)

    def unwritable(self, item: Item, error: OutputError) -> None:
        self._change(item, state="failed", why=str(error), **_NO_WORK)
        self._fail_waiting(str(error))  # their results cannot be written either

    def _change(self, item: Item, **fields: Any) -> None:
        self.board.change(_id(item.output), **fields)

    # --- recordings ---

    def _take(self, scratch: Path, name: str, overrides: JobOverrides) -> Item:
        """Move a file into the folder, under this name or a free one. Raises OutputError."""
        folder, manifest = self._request.out, self._enter()
        try:
            path = folder / free_name(name, os.listdir(folder))  # noqa: PTH208 - names alone
            ((source, output),) = assign([(str(path), path.name)], manifest)
            item = Item(source, output, *size_and_mtime(str(scratch)), overrides)
            manifest.append(begun(item))  # first, so that after a kill it does not miss the file
            _move(scratch, path)
        except OSError as error:
            raise OutputError(
                f"{name}: cannot be kept ({error.strerror}); fix: free disk space or fix the folder's "
                "permissions"
            ) from error
        return item

    def _room(self) -> int:
        """Return the number of recordings that may still wait. Raises BusyError for 0."""
        room = MOST_WAITING - len(self._jobs.waiting)
        if not room:
            raise BusyError(f"{MOST_WAITING} recordings may wait; come back when some are done")
        return room

    def _begin(self, item: Item) -> JobStatus:
        """Have a recording wait, also in the manifest. Raises OutputError."""
        self._enter().append(begun(item))
        return self._wait_for(item)

    def _wait_for(self, item: Item) -> JobStatus:
        status = _status(item, "waiting")
        self._items[status.id] = item
        self._jobs.add(item)
        self.board.put(status)
        return status

    def _restore(self, manifest: Manifest, recording: str | None = None) -> None:
        """Take up the recordings below the folder that wait, failed or were canceled; or only this one."""
        for entry in manifest.entries.values():
            path, id_ = Path(entry.source), _id(entry.output)
            below = self._request.out in path.parents or entry.again
            mine = below if recording is None else id_ == recording
            if not mine or entry.state == "done" or not path.is_file():
                continue
            overrides = job_overrides.parse(entry.wish)
            item = Item(entry.source, entry.output, entry.size, entry.mtime_ns, overrides, again=entry.again)
            if entry.state == "begun":
                self._wait_for(item)
            else:
                self._items[id_] = item
                self.board.put(_status(item, entry.state, entry.why))


_NO_WORK: dict[str, Any] = {"stage": None, "seconds_left": None, "seconds_after": None, "said": ()}
"""The fields of a recording that is not worked on."""


def _look() -> None:
    """Do nothing; after each step the queue submits recordings."""


def _status(item: Item, state: State, why: str | None = None) -> JobStatus:
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
