"""Many recordings: those to be done, and the report on each.

The results lie in one folder, in the tree of the recordings. report.json describes the latest run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from witness.work.folder import MANIFEST, BatchRequest, Folder, assign, find, size_and_mtime
from witness.work.manifest import Entry, Manifest
from witness.work.produce import Outcome, Settings
from witness.work.queue import JobQueue, Observer, Workers

SCHEMA = "witness-batch/1"
REPORT = "report.json"
COMPLETE = 4.0
"""Seconds without a change after which --watch takes a recording for complete."""
WATCH_PAUSE = 2.0
"""Seconds between two scans of --watch."""
STEP = 0.5
"""Seconds to wait for an event; without a limit, Ctrl-C would not get through on Windows."""
AHEAD = 2
"""Jobs submitted for each worker, so that none waits for this process."""

ResultState = Literal["done", "skipped", "failed", "left"]
"""State of a recording in a run: "skipped" was done before, "left" was not reached."""


@dataclass(frozen=True)
class Result:
    """A recording in report.json."""

    entry: Entry
    state: ResultState
    files: tuple[str, ...] = ()
    """Below the batch's folder."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON."""
        fields = self.entry.to_json()
        del fields["settings"], fields["mtime_ns"]
        return {**fields, "state": self.state, "files": list(self.files)}


@dataclass(frozen=True)
class BatchSummary:
    """Numbers of recordings by state. Its fields are keys of report.json."""

    done: int
    skipped: int
    failed: int
    left: int
    check: int
    """Recordings done or skipped that have warnings about the recording."""
    audio_seconds: float
    """Sound of the recordings done or skipped."""


@dataclass(frozen=True)
class BatchProgress:
    """Progress of a batch."""

    finished: int
    total: int
    failed: int
    audio: float
    """Seconds of sound processed in this run."""
    left: float | None
    """Seconds until the end; None: not known yet."""


Tell = Callable[[BatchProgress], None]


class Batch(Observer):
    """One run over a folder that is `locked`."""

    def __init__(self, request: BatchRequest, settings: Settings) -> None:
        """Find the recordings to be done. Raises UsageError, OutputError, WitnessError without a library."""
        formats = tuple(dict.fromkeys(request.formats))
        self.request = replace(request, out=request.out.absolute(), formats=formats)
        output_paths.check_libraries(formats)
        self.folder = Folder(self.request, settings, Manifest(self.request.out / MANIFEST))
        self.results: dict[str, Result] = {}
        """By source."""
        self._reporter = SILENT
        self._formatted: set[str] = set()  # sources that lacked formats only
        self._states: Counter[ResultState] = Counter()  # of the results, which may be too many to count often
        self._audio = 0.0
        self._seen: dict[str, tuple[int, int]] = {}  # size and time of the sources that need no other look
        self._growing: dict[str, tuple[int, int, float]] = {}
        self._notices = _first_lines(self.folder.manifest.dropped)
        self.todo = self._scan()
        self._directories = {self.request.out, *map(self.folder.directory, self.todo)}
        transaction.tidy(self._directories)

    def run(
        self,
        workers: Workers,
        runtime: Runtime,
        *,
        tell: Tell = lambda _: None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Do all recordings; with --watch, continue with those that appear, until interrupted.

        Raises OutputError when the disk is full, WitnessError if the cluster is lost. However it ends,
        report.json is written.
        """
        self._reporter = reporter
        jobs = JobQueue(workers, runtime, lambda item: (item, self.folder), self, AHEAD)
        scanned = time.monotonic()
        self._tell_notices()
        try:
            for item in self.todo:
                jobs.add(item)
            while not jobs.idle or self.request.watch:
                jobs.submit_next()
                jobs.run_step(STEP)
                tell(self._progress(jobs.seconds_left()))
                if self.request.watch and time.monotonic() - scanned > WATCH_PAUSE:
                    for item in self._scan():
                        jobs.add(item)
                    scanned = time.monotonic()
                    self._tell_notices()
        finally:
            transaction.tidy(self._directories)  # a worker may have been killed
            self.write_report()

    # --- the queue's events ---

    def begun(self, item: Entry) -> None:
        self._directories.add(self.folder.directory(item))

    def postponed(self, item: Entry, error: str) -> None:  # noqa: ARG002
        self._reporter.note(f"once more after the others: {error}")

    def ended(self, item: Entry, entry: Entry, outcome: Outcome | None) -> None:
        if entry.state == "begun":
            self._set_result(entry, "left")
            self._reporter.note(f"left: {entry.error}; run the same command again to continue")
            return
        if outcome is None:  # something has changed since the scan
            self._set_result(entry, "skipped" if entry.state == "done" else "failed")
            return
        self._set_result(entry, "done" if outcome.error is None else "failed")
        self._audio += outcome.duration or 0.0
        if outcome.formatted:
            self._formatted.add(item.source)
        if outcome.twin is not None:
            self._reporter.note(self.folder.about_twin(item, outcome.twin))
        for line in outcome.left:
            self._reporter.note(line)
        if outcome.error is not None:
            self._reporter.note(f"failed: {outcome.error}")
        elif self.request.watch:  # the table at the end may be far away
            self._reporter.note(f"done: {item.source}")

    # --- the report ---

    def write_report(self) -> None:
        """Write report.json. A full disk must not hide why the batch ended."""
        rows = [result.row() for result in self.results.values()]
        document = {"schema": SCHEMA, **asdict(self.summary()), "files": rows}
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        with suppress(OSError):
            atomic.replace(text.encode(), self.request.out / REPORT)

    def summary(self) -> BatchSummary:
        """Return the sums so far."""
        good = [result.entry for result in self.results.values() if result.state in ("done", "skipped")]
        audio = round(sum(entry.duration or 0.0 for entry in good), 3)
        counts = self._states
        check = sum(bool(entry.doubts) for entry in good)
        return BatchSummary(counts["done"], counts["skipped"], counts["failed"], counts["left"], check, audio)

    def outdated(self) -> list[str]:
        """Return the formats whose files from an earlier run may differ from the new ones beside them.

        With JSON among the formats, all files beside it were written with it.
        """
        if Format.JSON in self.request.formats:
            return []
        done = [
            self.request.out / result.entry.output
            for result in self.results.values()
            if result.state == "done" and result.entry.source not in self._formatted
        ]
        others = [form.value for form in Format if form not in self.request.formats]
        return [
            form for form in others if any(Path(output_paths.name_of(path, form)).exists() for path in done)
        ]

    def table(self) -> str:
        """Return the text for stdout: a line for each doubt and each failure with its fix, and the sums."""
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
            lines.append(f"{len(self._formatted)} written from existing transcripts")
        lines.append(f"{recordings}: {', '.join(counts)}; {summary.audio_seconds / 3600:.2f} h of audio")
        return "\n".join(lines) + "\n"

    def _tell_notices(self) -> None:
        for line in self._notices:
            self._reporter.note(line)
        self._notices = []

    def _set_result(self, entry: Entry, state: ResultState) -> None:
        good = entry.code == 0
        names = [output_paths.name_of(entry.output, form) for form in self.request.formats] if good else []
        if entry.source in self.results:
            self._states[self.results[entry.source].state] -= 1
        self._states[state] += 1
        self.results[entry.source] = Result(entry, state, tuple(names))

    def _scan(self) -> list[Entry]:
        """Return the recordings to be done that were not seen before, or have changed since."""
        try:
            recordings = find(self.request.inputs, self.request.out)
        except UsageError:
            if self.request.watch:
                return []
            raise
        todo = []
        for source, output in assign(recordings, self.folder.manifest):
            try:
                now = size_and_mtime(source)
            except OSError:
                now = 0, 0  # the worker names the trouble
            if self._seen.get(source) == now or (self.request.watch and not self._is_complete(source, now)):
                continue
            self._seen[source] = now
            item = Entry.begun(source, output, now)
            entry = self.folder.spared(item)
            if entry is None:
                self._set_result(self.folder.entry(item, "failed", "not reached"), "left")
                todo.append(item)
                continue
            self._set_result(entry, "skipped" if entry.state == "done" else "failed")
            if self.folder.manifest.entries.get(output) != entry:  # the files in the way are not the batch's
                self._notices.append(f"failed: {entry.error}")
        return todo

    def _is_complete(self, source: str, now: tuple[int, int]) -> bool:
        """Return whether a file has not changed for a while, by a clock that cannot be set."""
        size, mtime, since = self._growing.get(source, (-1, -1, 0.0))
        if (size, mtime) != now:
            self._growing[source] = (*now, time.monotonic())
            return False
        return time.monotonic() - since >= COMPLETE

    def _progress(self, left: float | None) -> BatchProgress:
        total = len(self.results)
        finished = total - self._states["left"]
        return BatchProgress(finished, total, self._states["failed"], self._audio, left)


def _about(source: str, doubt: str) -> str:
    """Return a doubt that begins with its recording, as some do already."""
    return doubt if doubt.startswith(f"{printable(source)}: ") else f"{source}: {doubt}"


def _first_lines(lines: Sequence[str], limit: int = 5) -> list[str]:
    """Return the first lines and the number of the others."""
    more = [f"and {len(lines) - limit} more of its lines are not used"] if len(lines) > limit else []
    return [*lines[:limit], *more]
