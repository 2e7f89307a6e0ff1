"""Many recordings: which are done, which are to be done, what became of each.

The files of a batch lie in one folder, in the tree of the recordings; `folder` knows what is in it.
report.json says what became of each recording in the latest run.
"""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from witness.errors import UsageError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.progress import SILENT, Reporter
from witness.storage import atomic, transaction
from witness.text import printable
from witness.work.folder import MANIFEST, Folder, outcome_of, sha256
from witness.work.forecast import Forecast
from witness.work.manifest import Entry, Manifest
from witness.work.plan import BatchRequest
from witness.work.produce import Job, Outcome, Settings, Watcher
from witness.work.recordings import Item, assign, find, size_and_mtime

SCHEMA = "witness-batch/1"
REPORT = "report.json"
SETTLED = 4.0
"""Seconds without a change after which --watch takes a recording for complete."""
LOOK = 2.0
"""Seconds between two looks of --watch."""

State = Literal["done", "skipped", "failed", "left"]
"""Of a recording in a run; "skipped" was done before, "left" was not reached."""

Submit = Callable[[Job, Watcher], Future[Outcome]]


@dataclass(frozen=True)
class Result:
    """What report.json says of a recording."""

    entry: Entry
    state: State
    files: tuple[str, ...] = ()
    """Below the batch's folder."""

    def row(self) -> dict[str, Any]:
        """The recording in report.json."""
        fields = asdict(self.entry)
        del fields["settings"], fields["mtime_ns"]
        return {**fields, "state": self.state, "files": list(self.files)}


@dataclass(frozen=True)
class BatchSummary:
    """How many recordings are in which state. Its fields are keys of report.json."""

    done: int
    skipped: int
    failed: int
    left: int
    check: int
    """Of those that are done or were done before: they have warnings about the recording."""
    audio_seconds: float
    """Of the recordings that are done or were done before."""


@dataclass(frozen=True)
class BatchProgress:
    """How far a batch is."""

    finished: int
    total: int
    failed: int
    audio: float
    """Seconds of audio that were worked on in this run."""
    left: float | None
    """Seconds that it may still take; None: not known yet."""


Tell = Callable[[BatchProgress], None]


class Batch:
    """One run over a folder that is `locked`."""

    def __init__(self, order: BatchRequest, settings: Settings) -> None:
        """Find out what is to be done. Raises UsageError, OutputError, and WitnessError as `outputs.plan`."""
        self.order = replace(order, out=order.out.absolute(), formats=tuple(dict.fromkeys(order.formats)))
        output_paths.check_libraries(self.order.formats)
        self.folder = Folder(self.order, settings, Manifest(self.order.out / MANIFEST))
        self.results: dict[str, Result] = {}
        """By source."""
        self._formatted: set[str] = set()  # sources of which only formats were missing
        self._states: Counter[State] = Counter()  # of the results, which may be too many to count each time
        self._audio = 0.0
        """Seconds of audio that were worked on in this run."""
        self._seen: dict[str, tuple[int, int]] = {}  # sources that are in hand or finished, as they were
        self._growing: dict[str, tuple[int, int, float]] = {}
        self._notices = _some(self.folder.manifest.dropped)
        self.todo = self._scan()
        self._folders = {self.order.out, *map(self.folder.of, self.todo)}
        transaction.tidy(self._folders)

    def run(
        self,
        submit: Submit,
        runtime: Runtime,
        *,
        tell: Tell = lambda _: None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Do what is to be done; a batch that watches continues with what appears, until interrupted.

        A recording whose disk fails is tried once more after the others.

        Raises OutputError when the disk is full. However it ends, report.json is written.
        """
        self._tell_notices(reporter)
        finished: queue.SimpleQueue[tuple[Item, Future[Outcome]]] = queue.SimpleQueue()
        forecast = Forecast()
        open_ = dict.fromkeys(self.todo)
        owed, looked = 0, time.monotonic()
        later: list[Item] = []
        tried: set[Item] = set()
        twins = _Twins()
        try:
            while owed or self.todo or later or self.order.watch:
                if not (owed or self.todo):
                    self.todo, later = later, []
                for item in self.todo:
                    if Format.JSON in self.order.formats and not self.order.force and twins.wait(item):
                        continue
                    self.folder.claim(item)
                    self._folders.add(self.folder.of(item))
                    job = self.folder.job(item, runtime)
                    future = submit(job, forecast.watcher(item, job))
                    future.add_done_callback(lambda done, item=item: finished.put((item, done)))  # type: ignore[misc]
                    owed += 1
                self.todo = []
                with suppress(queue.Empty):
                    item, future = finished.get(timeout=0.5)  # or Ctrl-C would not get through on Windows
                    owed -= 1
                    outcome = outcome_of(item, future)
                    forecast.done(item, outcome)
                    if outcome.later and item not in tried:
                        tried.add(item)
                        later.append(item)
                        reporter.note(f"once more after the others: {outcome.error}")
                    else:
                        self._record(item, outcome, reporter)
                        open_.pop(item, None)
                        self.todo += twins.ended(item)
                tell(self._progress(forecast.left(open_)))
                if self.order.watch and time.monotonic() - looked > LOOK:
                    self.todo, looked = self._scan(), time.monotonic()
                    self._tell_notices(reporter)
                    open_ |= dict.fromkeys(self.todo)
        finally:
            transaction.tidy(self._folders)  # a worker may have been killed
            self.write_report()

    def write_report(self) -> None:
        """Write report.json. A full disk must not hide why the batch ended."""
        rows = [result.row() for result in self.results.values()]
        document = {"schema": SCHEMA, **asdict(self.summary()), "files": rows}
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        with suppress(OSError):
            atomic.replace(text.encode(), self.order.out / REPORT)

    def summary(self) -> BatchSummary:
        """The sums so far."""
        good = [result.entry for result in self.results.values() if result.state in ("done", "skipped")]
        audio = round(sum(entry.duration or 0.0 for entry in good), 3)
        counts = self._states
        check = sum(bool(entry.doubts) for entry in good)
        return BatchSummary(counts["done"], counts["skipped"], counts["failed"], counts["left"], check, audio)

    def outdated(self) -> list[str]:
        """Formats of which files from an earlier run lie beside those that this run wrote, and may differ.

        What lies beside a JSON of this run was written with it.
        """
        if Format.JSON in self.order.formats:
            return []
        done = [
            self.order.out / result.entry.output
            for result in self.results.values()
            if result.state == "done" and result.entry.source not in self._formatted
        ]
        others = [form.value for form in Format if form not in self.order.formats]
        return [
            form for form in others if any(Path(output_paths.name_of(path, form)).exists() for path in done)
        ]

    def table(self) -> str:
        """What a person reads at the end: a line for each failure with its fix and for each reason to look
        at a recording that is done, and the sums."""
        lines = [
            f"done, but check  {_about(result.entry.source, doubt)}"
            for result in self.results.values()
            if result.state in ("done", "skipped")
            for doubt in result.entry.doubts
        ]
        lines += [
            f"failed  {result.entry.error}" for result in self.results.values() if result.state == "failed"
        ]
        summary = self.summary()
        counts = [f"{summary.done} done"]
        others = (
            (summary.skipped, "done before"),
            (summary.failed, "failed"),
            (summary.left, "left"),
            (summary.check, "to check"),
        )
        counts += [f"{count} {words}" for count, words in others if count]
        recordings = "1 recording" if len(self.results) == 1 else f"{len(self.results)} recordings"
        if self._formatted:
            lines.append(f"{len(self._formatted)} written from the transcripts that were there")
        lines.append(f"{recordings}: {', '.join(counts)}; {summary.audio_seconds / 3600:.2f} h of audio")
        return "\n".join(lines) + "\n"

    def _tell_notices(self, reporter: Reporter) -> None:
        for line in self._notices:
            reporter.note(line)
        self._notices = []

    def _record(self, item: Item, outcome: Outcome, reporter: Reporter) -> None:
        entry = self.folder.record(item, outcome)
        self._set_result(entry, "done" if outcome.error is None else "failed")
        self._audio += outcome.duration or 0.0
        if outcome.formatted:
            self._formatted.add(item.source)
        if outcome.twin is not None:
            reporter.note(self.folder.about_twin(item, outcome.twin))
        for line in outcome.left:
            reporter.note(line)
        if outcome.error is not None:
            reporter.note(f"failed: {outcome.error}")
        elif self.order.watch:  # nobody waits for the table at its end
            reporter.note(f"done: {item.source}")

    def _set_result(self, entry: Entry, state: State) -> None:
        names = (
            [output_paths.name_of(entry.output, form) for form in self.order.formats]
            if entry.code == 0
            else []
        )
        if entry.source in self.results:
            self._states[self.results[entry.source].state] -= 1
        self._states[state] += 1
        self.results[entry.source] = Result(entry, state, tuple(names))

    def _scan(self) -> list[Item]:
        """What there is to do now and was not in hand before."""
        try:
            recordings = find(self.order.inputs, self.order.out)
        except UsageError:
            if self.order.watch:
                return []
            raise
        todo = []
        for source, name in assign(recordings, self.folder.manifest):
            try:
                now = size_and_mtime(source)
            except OSError:
                now = 0, 0  # the worker says what is wrong with it
            if self._seen.get(source) == now or (self.order.watch and not self._settled(source, now)):
                continue
            self._seen[source] = now
            item = Item(source, name, *now)
            before = None if self.order.force else self.folder.done_before(item)
            if before is not None:
                self._set_result(before, "skipped" if before.state == "done" else "failed")
            elif (trouble := self.folder.in_the_way(item)) is not None:
                # Not in the manifest: the files are not the batch's.
                self._set_result(self.folder.entry(item, "failed", trouble), "failed")
                self._notices.append(f"failed: {trouble}")
            else:
                self._set_result(self.folder.entry(item, "failed", "not reached"), "left")
                todo.append(item)
        return todo

    def _settled(self, source: str, now: tuple[int, int]) -> bool:
        """Whether a file has stayed as it is for a while, by a clock that nobody sets."""
        size, mtime, since = self._growing.get(source, (-1, -1, 0.0))
        if (size, mtime) != now:
            self._growing[source] = (*now, time.monotonic())
            return False
        return time.monotonic() - since >= SETTLED

    def _progress(self, left: float | None) -> BatchProgress:
        total = len(self.results)
        finished = total - self._states["left"]
        return BatchProgress(finished, total, self._states["failed"], self._audio, left)


class _Twins:
    """Which recordings are worked on, and those with the same bytes, which wait for them."""

    def __init__(self) -> None:
        self._at_work: dict[int, list[Item]] = {}
        """By size: only what has the same one is hashed."""
        self._waiting: dict[Item, list[Item]] = {}

    def wait(self, item: Item) -> bool:
        """Whether it is to wait for another one; if not, it is worked on from now on."""
        alike = self._at_work.setdefault(item.size, [])
        if item in alike:  # once more
            return False
        own = sha256(item.source) if alike else None
        first = next((one for one in alike if own is not None and sha256(one.source) == own), None)
        if first is None:
            alike.append(item)
            return False
        self._waiting.setdefault(first, []).append(item)
        return True

    def ended(self, item: Item) -> list[Item]:
        """Those that waited for it."""
        if item in (alike := self._at_work.get(item.size, [])):
            alike.remove(item)
        return self._waiting.pop(item, [])


def _about(source: str, doubt: str) -> str:
    """The doubt with the recording, which some name themselves."""
    return doubt if doubt.startswith(f"{printable(source)}: ") else f"{source}: {doubt}"


def _some(lines: Sequence[str], most: int = 5) -> list[str]:
    """The first of the lines, and how many there are beside them."""
    more = [f"and {len(lines) - most} more of its lines are not used"] if len(lines) > most else []
    return [*lines[:most], *more]
