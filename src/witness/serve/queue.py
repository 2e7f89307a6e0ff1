"""Recordings that were dropped or lay there: which wait, which is worked on, and what became of the others.

The recordings lie in the folder itself, with their results beside them, as `witness batch FOLDER -o FOLDER`
would have them, and its manifest is the truth: "begun" is what waits or is half done, also for the next
server after this one was killed. One thread changes all of it, one thing after the other; the folder is
locked for a batch while something is to be done in it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from witness.child import one_line
from witness.errors import CancelledError, ConflictError, InputError, OutputError, WitnessError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.serve import upload_intake
from witness.serve.library.library import id_of
from witness.serve.resolved_models import Settle, Settlements, with_wish
from witness.serve.status import Board, BusyError
from witness.storage import transaction
from witness.transcript import project_words
from witness.work import overrides, pace
from witness.work.eta import Estimate, Rates
from witness.work.folder import MANIFEST, Folder, locked, outcome_of
from witness.work.manifest import Manifest
from witness.work.overrides import RecordingWish
from witness.work.plan import BatchRequest
from witness.work.pool import Pool
from witness.work.produce import Job, Outcome, Segment, Settings, Watcher
from witness.work.recordings import Item, assign, size_and_mtime
from witness.work.status import MOST_WAITING, JobStatus, State

T = TypeVar("T")

FORMATS = ("json", "txt")
"""Those that `witness batch` writes if nobody says otherwise."""
PATIENCE = 5.0
"""Seconds between two looks whether another batch has left the folder."""


class Queue:
    """A context manager: leaving it ends the work, and what was not done is done by the next one."""

    def __init__(
        self,
        folder: Path,
        settle: Settle,
        runtime: Runtime = Runtime(),
        workers: int = 1,
    ) -> None:
        """`settle` is asked when its models are needed first.

        `folder` is absolute. Models are open in `workers` processes, one recording in each at a time.
        """
        self.board = Board()
        self.settlements = Settlements(settle)
        self._order = BatchRequest((), folder, FORMATS)
        self._runtime = runtime
        self._pool = Pool([None] * workers)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="queue", daemon=True)
        # Of the thread alone:
        self._awaited: dict[RecordingWish, Future[Settings]] = {}
        self._entered = ExitStack()
        self._manifest: Manifest | None = None  # None: the folder is not locked
        self._items: dict[str, Item] = {}  # by the id of the transcript, as these
        self._waiting: deque[str] = deque()
        self._working: dict[str, Future[Outcome]] = {}
        self._speed = Rates()
        # Written by it, and read by those of the pool:
        self._after: float | None = None
        # For all, under the lock:
        self._lock = threading.Lock()
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
        self.board.close()
        self._inbox.put(None)
        self._thread.join()

    # --- for any thread ---

    def add(
        self, uploads: Sequence[tuple[Path, str]], wish: RecordingWish = RecordingWish()
    ) -> list[JobStatus]:
        """Take files into the folder, to be worked on; if there is no room for all to wait, none is taken.

        Each has a name, which it gets if it is still free there. The files are on the same disk; they are
        moved. Raises BusyError, ConflictError, OutputError.
        """
        return self._do(partial(self._add, uploads, wish))

    def transcribe(
        self, recordings: Sequence[Path], wish: RecordingWish = RecordingWish()
    ) -> list[JobStatus]:
        """Have recordings below the folder worked on, as many as may wait, without those known already.

        Paths are below the folder. Raises BusyError, ConflictError, OutputError.
        """
        return self._do(partial(self._transcribe, recordings, wish))

    def again(self, path: Path, recording: Path, wish: RecordingWish) -> JobStatus:
        """Have a recording worked on that has a transcript, which keeps what a person did to it.

        `path` is that of its JSON. Raises BusyError, ConflictError, OutputError.
        """
        return self._do(partial(self._again, path, recording, wish))

    def cancel(self, recording: str) -> JobStatus:
        """End the work on a recording, or the wait for it.

        Raises UnknownError, ConflictError, OutputError.
        """
        return self._do(partial(self._cancel, recording))

    def retry(self, recording: str, wish: RecordingWish | None = None) -> JobStatus:
        """Have another try at what failed or was canceled; None: with the wish that it had.

        Raises as `cancel`, and InputError.
        """
        return self._do(partial(self._retry, recording, wish))

    def dismiss(self, recording: str) -> None:
        """Take note that somebody knows that it could not be transcribed again. Raises as `cancel`."""
        self._do(partial(self._dismiss, recording))

    def moved(self, path: Path, place: Path) -> None:
        """A transcript is elsewhere now, and its recording with it; paths of JSONs are below the folder.

        Raises ConflictError if a batch is at work in the folder, OutputError.
        """
        self._do(lambda: upload_intake.moved(self._enter(), self._order.out, path, place))

    def gone(self, path: Path) -> None:
        """A transcript was thrown away: a recording that comes in its place is offered, not taken for done.

        Raises as `moved`.
        """
        self._do(lambda: upload_intake.gone(self._enter(), path))

    def submit(self, job: Job, watcher: Watcher | None = None) -> Future[Outcome]:
        """Have a job done that is none of the folder's, before those that wait here."""
        return self._pool.submit(replace(job, settings=replace(job.settings, runtime=self._runtime)), watcher)

    def stop(self, future: Future[Outcome]) -> None:
        """End a job that `submit` took."""
        self._pool.stop(future)

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
                wish = self._items[self._waiting[0]].wish
                try:
                    settings = self._known_settings(wish)
                except WitnessError as error:
                    self._fail_all(str(error), wish)
                    continue
                if settings is None:
                    return
                wish = self._with_vocabulary(self._waiting[0])
                self._begin(self._waiting[0], Folder(self._order, with_wish(settings, wish), manifest))
                self._waiting.popleft()
        except ConflictError as error:
            self.board.change(self._waiting[0], why=str(error))
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
            transaction.tidy([self._order.out])
        return self._manifest

    def _leave(self) -> None:
        self._entered.close()
        self._manifest = None

    def _known_settings(self, wish: RecordingWish) -> Settings | None:
        """None: not yet; there will be a step in the inbox. Raises WitnessError."""
        if wish.of_models not in self._awaited:
            self._awaited[wish.of_models] = self.settlements.of(wish)
            self._awaited[wish.of_models].add_done_callback(lambda _: self._inbox.put(_nothing))
        awaited = self._awaited[wish.of_models]
        if not awaited.done():
            return None
        if (error := awaited.exception()) is not None:
            del self._awaited[wish.of_models]
            raise WitnessError(one_line(error)) from error
        return awaited.result()

    def _with_vocabulary(self, recording: str) -> RecordingWish:
        """The wish for a recording, with the vocabulary of its folder. Raises InputError."""
        item = self._items[recording]
        out = self._order.out
        own = project_words.vocabulary((out / item.output).parent, out)
        terms = tuple(dict.fromkeys((*own, *item.wish.vocabulary)))[: overrides.MOST_TERMS]
        wish = replace(item.wish, vocabulary=terms)
        self._items[recording] = replace(item, wish=wish)
        return wish

    def _begin(self, recording: str, folder: Folder) -> None:
        """Give a recording to the pool, or find that it needs none. Raises OutputError."""
        item = self._items[recording]
        with suppress(OSError):  # the worker says what is wrong with it
            size, mtime_ns = size_and_mtime(item.source)
            item = self._items[recording] = replace(item, size=size, mtime_ns=mtime_ns)
        before = folder.done_before(item)
        if before is not None and before.state == "done":
            self.board.change(recording, state="done", share=1.0, why=None)
        elif (trouble := folder.in_the_way(item)) is not None:
            self.board.change(recording, state="failed", why=trouble)
        else:
            job = folder.job(item, self._runtime)
            kind = pace.Kind.of_job(job.settings, job.settings.runtime)
            course = pace.estimate(kind, self._speed.together([item]))
            self.board.change(recording, state="working", why=None)
            watcher = Watcher(partial(self._hear, recording, course), partial(self._said, recording))
            finish = partial(self._finish, recording, folder, kind, course)
            future = self._working[recording] = self._pool.submit(job, watcher)
            future.add_done_callback(lambda _: self._inbox.put(finish))

    def _hear(self, recording: str, course: Estimate, stage: str, done: float, total: float) -> None:
        """From a thread of the pool."""
        course.hear(stage, done, total)
        self.board.change(
            recording, stage=stage, share=course.share, seconds_left=course.left, seconds_after=self._after
        )

    def _said(self, recording: str, first: int, segments: Sequence[Segment]) -> None:
        """From a thread of the pool."""
        before = self.board.standing(recording).said[:first]
        self.board.change(recording, said=(*before, *segments))

    def _finish(self, recording: str, folder: Folder, kind: pace.Kind, course: Estimate) -> None:
        """Record what became of a recording."""
        future, item = self._working.pop(recording), self._items[recording]
        rest: dict[str, Any] = {"stage": None, "seconds_left": None, "seconds_after": None, "said": ()}
        try:
            if future.cancelled() or isinstance(future.exception(), CancelledError):
                folder.manifest.append(folder.entry(item, "canceled"))
                self.board.change(recording, state="canceled", **rest)
                return
            outcome = outcome_of(item, future)
            entry = folder.record(item, outcome)
        except OutputError as error:  # nor is there room for the others
            self.board.change(recording, state="failed", why=str(error), **rest)
            self._fail_all(str(error))
            return
        if entry.state == "done":
            if not (outcome.resumed or outcome.twin):
                pace.learn(kind, course)
            self._speed.learn(item, outcome)
            rest["share"] = 1.0
        self.board.change(recording, state=entry.state, why=entry.why, **rest)

    def _fail_all(self, why: str, wish: RecordingWish | None = None) -> None:
        """Give up what waits (with a wish for the same models), until somebody tries again, or for the next
        server."""
        models = None if wish is None else wish.of_models
        for recording in list(self._waiting):
            if models is None or self._items[recording].wish.of_models == models:
                self._waiting.remove(recording)
                self.board.change(recording, state="failed", why=why)

    def _add(self, uploads: Sequence[tuple[Path, str]], wish: RecordingWish) -> list[JobStatus]:
        if len(self._waiting) + len(uploads) > MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} recordings may wait; send more when some are done")
        manifest = self._enter()
        return [
            self._wait_for(upload_intake.take(self._order.out, manifest, scratch, name, wish))
            for scratch, name in uploads
        ]

    def _transcribe(self, recordings: Sequence[Path], wish: RecordingWish) -> list[JobStatus]:
        room = self._room()
        manifest = self._enter()
        here = [(str(self._order.out / path), str(path)) for path in recordings]
        waiting = []
        for source, output in assign([one for one in here if one[0] not in manifest.sources], manifest)[
            :room
        ]:
            with suppress(OSError):  # it is gone
                item = Item(source, output, *size_and_mtime(source), wish)
                manifest.append(upload_intake.begun(item))
                waiting.append(self._wait_for(item))
        return waiting

    def _again(self, path: Path, recording: Path, wish: RecordingWish) -> JobStatus:
        self._room()
        manifest = self._enter()
        output = path.relative_to(self._order.out).as_posix().removesuffix(".json")
        if self.board.states().get(id_of(Path(f"{output}.json"))) is not None:
            raise ConflictError(f"{path.name}: is being transcribed already; cancel that first")
        try:
            item = Item(str(recording), output, *size_and_mtime(str(recording)), wish, again=True)
        except OSError as error:
            raise InputError(f"{recording.name}: cannot be read ({error.strerror})") from error
        manifest.append(upload_intake.begun(item))
        return self._wait_for(item)

    def _room(self) -> int:
        """How many more recordings may wait. Raises BusyError if none."""
        room = MOST_WAITING - len(self._waiting)
        if not room:
            raise BusyError(f"{MOST_WAITING} recordings may wait; come back when some are done")
        return room

    def _cancel(self, recording: str) -> JobStatus:
        known = self.board.standing(recording)
        if known.state == "working":
            self._pool.stop(self._working[recording])
        elif known.state == "waiting":
            self._enter().append(replace(upload_intake.begun(self._items[recording]), state="canceled"))
            self._waiting.remove(recording)
            self.board.change(recording, state="canceled", why=None)
        else:
            raise ConflictError(f"{known.name}: is {known.state}; there is nothing to cancel")
        return self.board.standing(recording)

    def _retry(self, recording: str, wish: RecordingWish | None) -> JobStatus:
        manifest = self._enter()
        if recording not in self._items or not self.board.knows(recording):
            self._remember(manifest, recording)
        if (known := self.board.standing(recording)).state not in ("failed", "canceled"):
            raise ConflictError(f"{known.name}: is {known.state}; there is nothing to try again")
        item = self._items.get(recording)
        if item is None or not Path(item.source).is_file():
            raise InputError(f"{known.name}: the recording is missing; send it again")
        if wish is not None:
            item = replace(item, wish=wish)
        manifest.append(upload_intake.begun(item))
        return self._wait_for(item)

    def _dismiss(self, recording: str) -> None:
        manifest = self._enter()
        for entry in list(manifest.entries.values()):
            if entry.again and entry.state == "failed" and _id_of(entry.output) == recording:
                manifest.append(replace(entry, state="canceled", error=None))
                if self.board.knows(recording):
                    self.board.change(recording, state="canceled", why=None)

    def _wait_for(self, item: Item) -> JobStatus:
        standing = _standing(item, "waiting")
        self._items[standing.id] = item
        self._waiting.append(standing.id)
        self.board.tell(standing)
        return standing

    def _remember(self, manifest: Manifest, wanted: str | None = None) -> None:
        """What waits, failed or was canceled of the recordings below the folder, or the one wanted."""
        for entry in manifest.entries.values():
            wish = overrides.read(entry.wish)
            item = Item(entry.source, entry.output, entry.size, entry.mtime_ns, wish, again=entry.again)
            path = Path(entry.source)
            here = self._order.out in path.parents or entry.again
            mine = here if wanted is None else _id(item) == wanted
            if not mine or entry.state == "done" or not path.is_file():
                continue
            if entry.state == "begun":
                self._wait_for(item)
            else:
                self._items[_id(item)] = item
                self.board.tell(_standing(item, entry.state, entry.why))


def _nothing() -> None:
    """A step that only has the queue look at what it can do."""


def _standing(item: Item, state: State, why: str | None = None) -> JobStatus:
    name = Path(item.source).name
    return JobStatus(_id(item), name, state, why=why, output=item.output, source=item.source)


def _id(item: Item) -> str:
    return _id_of(item.output)


def _id_of(output: str) -> str:
    return id_of(Path(output_paths.name_of(output, Format.JSON)))
