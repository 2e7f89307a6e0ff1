"""The folder of a batch: which results lie there, which of them are the batch's own, and what a job writes.

manifest.jsonl says what is done and is all that a later run needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from witness.errors import ForeignError, OutputError, WitnessError
from witness.formats import document, output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.storage import files, transaction
from witness.transcript import store
from witness.work import existing_outputs
from witness.work.manifest import Entry, Manifest, State
from witness.work.plan import BatchRequest, fingerprint
from witness.work.produce import Job, Outcome, Settings
from witness.work.recordings import Item

MANIFEST, LOCK = "manifest.jsonl", ".witness-batch.lock"


@contextmanager
def locked(out: Path, *, private: bool = False) -> Iterator[None]:
    """The folder for this batch alone, made if needed; if `private`, for its user alone.

    Raises OutputError, WitnessError.
    """
    try:
        out.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        with transaction.held(out / LOCK) as taken:
            if not taken:
                raise WitnessError(f"another batch is at work in {out}; wait for it, or choose another -o")
            yield
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror}); change -o") from error


class Folder:
    """A folder that is `locked`, with its manifest, for one order with its settings."""

    def __init__(self, order: BatchRequest, settings: Settings, manifest: Manifest) -> None:
        self.order = order
        self.manifest = manifest
        self._settings = settings
        self._fingerprint = fingerprint(settings)

    def of(self, item: Item) -> Path:
        """The folder of an item's files."""
        return (self.order.out / item.output).parent

    def job(self, item: Item, runtime: Runtime) -> Job:
        """The item with everything that a worker must know."""
        targets = tuple(zip(self.order.formats, self._targets(item.output), strict=True))
        settings = replace(self._settings, runtime=runtime)
        transcript = None if self.order.force or item.again else self.transcript(item)
        if transcript is not None:
            targets = tuple((form, path) for form, path in targets if not path.exists())
        return Job(
            item.source,
            tuple((form, str(path)) for form, path in targets),
            settings,
            self.order.limit,
            self.order.limit_memory,
            self.order.force,
            None if transcript is None else str(transcript),
            twin=None if transcript is not None or (twin := self.twin(item)) is None else str(twin),
            again=item.again,
        )

    def claim(self, item: Item) -> None:
        """Remember that the files of an item are the batch's own, before the first of them is there.

        Raises OutputError.
        """
        if item.output not in self.manifest.entries:
            self.manifest.append(self.entry(item, "begun"))

    def entry(self, item: Item, state: State, error: str | None = None) -> Entry:
        """Of an item without results."""
        place = item.output, item.source, item.size, item.mtime_ns
        failed = int(error is not None)
        return Entry(
            *place, None, self._fingerprint, state, error, failed, wish=item.wish.told(), again=item.again
        )

    def record(self, item: Item, outcome: Outcome) -> Entry:
        """Remember what became of an item. Raises OutputError, also for an outcome that the disk is full."""
        if outcome.full:
            raise OutputError(f"{outcome.error}; then run the same command again to continue")
        entry = Entry(
            output=item.output,
            source=item.source,
            size=item.size,
            mtime_ns=item.mtime_ns,
            sha256=outcome.sha256,
            settings=self._fingerprint,
            state="done" if outcome.error is None else "failed",
            error=outcome.error,
            code=outcome.code,
            duration=outcome.duration,
            seconds=round(outcome.seconds, 3),
            speakers=outcome.speakers,
            doubts=outcome.doubts,
            wish=item.wish.told(),
            again=item.again and outcome.error is not None,
        )
        self.manifest.append(entry)
        return entry

    def in_the_way(self, item: Item) -> str | None:
        """Name the reason not to write the results of an item: a link, or a file that would be lost."""
        try:
            files.refuse_link(self.of(item), self.order.out)
        except ForeignError as error:
            return str(error)
        if self.order.force or item.again:
            return None
        entry = self.manifest.entries.get(item.output)
        if entry is not None and entry.state == "begun" and entry.wish and not item.wish.told():
            return f"{item.source}: waits at the desk with settings of its own; run witness serve, or --force"
        if self.transcript(item) is not None:
            return None
        targets = self._targets(item.output)
        if (loss := existing_outputs.loss(targets)) is not None:
            return loss
        findings = [
            output_paths.beside(path) for path in targets if output_paths.format_of(path.name) == Format.JSON
        ]
        places = [*targets, *(findings if self._settings.keep_findings else [])]
        there = [path for path in places if os.path.lexists(path)]
        if item.output in self.manifest.entries or not there:
            return None
        found = existing_outputs.find(targets)
        if found is not None and found.is_of(item.source):
            return None
        return f"{there[0]}: is there already and not of this batch; fix: move it away, or use --force"

    def done_before(self, item: Item) -> Entry | None:
        """The entry that spares the work on an item: same content, same settings, all its files there."""
        entry = self._same(item)
        if entry is None or (entry.state == "failed" and self.order.retry_failed):
            return None
        if entry.state == "done" and not all(path.exists() for path in self._targets(item.output)):
            return None
        return entry

    def transcript(self, item: Item) -> Path | None:
        """The JSON from which the missing formats of an item can be written: same content, same settings."""
        entry = self._same(item)
        if entry is None or entry.state != "done":
            return None
        path = Path(output_paths.name_of(self.order.out / item.output, Format.JSON))
        try:
            found = document.summary(files.read(path))
        except OSError:
            return None
        whole = found is not None and found.corrected is not None and found.audio.sha256 == entry.sha256
        return path if whole else None

    def twin(self, item: Item) -> Path | None:
        """The JSON of another recording with the same bytes that is done with these settings.

        One that somebody has corrected counts only for a recording that was moved.
        """
        alike = [
            entry
            for entry in self.manifest.entries.values()
            if entry.size == item.size and entry.output != item.output and entry.state == "done"
        ]
        if self.order.force or item.again or not any(entry.settings == self._fingerprint for entry in alike):
            return None
        own = sha256(item.source)
        for entry in sorted(alike, key=lambda one: Path(one.source).exists()):  # what was moved comes first
            if entry.sha256 != own or entry.settings != self._fingerprint:
                continue
            path = Path(output_paths.name_of(self.order.out / entry.output, Format.JSON))
            with suppress(OSError):
                found = document.summary(files.read(path))
                whole = found is not None and found.audio.sha256 == own
                if whole and (not store.is_corrected(path) or not Path(entry.source).exists()):
                    return path
        return None

    def about_twin(self, item: Item, path: str) -> str:
        """What there is to say of a transcript that is that of another recording, whose JSON is at `path`."""
        output = Path(path).relative_to(self.order.out).as_posix().removesuffix(".json")
        other = next(one for one in self.manifest.entries.values() if Path(one.output).as_posix() == output)
        if Path(other.source).exists():
            return f"{item.source} has the same bytes as {other.source}, and was not recognized again"
        return (
            f"{item.source} is what {other.source} was, and was not recognized again; the earlier results "
            f"are still at {path}"
        )

    def _same(self, item: Item) -> Entry | None:
        """The entry of an item that was worked on with these settings, and has not changed since."""
        entry = self.manifest.entries.get(item.output)
        if entry is None or entry.state not in ("done", "failed"):
            return None
        own = bool(entry.wish) and not item.wish.told()  # what a person wanted for this one counts
        if entry.settings != self._fingerprint and not own:
            return None
        if (entry.source, entry.size, entry.mtime_ns) != (item.source, item.size, item.mtime_ns):
            if entry.sha256 is None or entry.sha256 != sha256(item.source):
                return None
            entry = replace(entry, source=item.source, size=item.size, mtime_ns=item.mtime_ns)
            self.manifest.append(entry)  # so that it need not be hashed again
        return entry

    def _targets(self, output: str) -> list[Path]:
        return [Path(output_paths.name_of(self.order.out / output, form)) for form in self.order.formats]


def outcome_of(item: Item, future: Future[Outcome]) -> Outcome:
    """What became of an item, even if the workers themselves are gone."""
    try:
        return future.result()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Outcome(f"{item.source}: no worker could finish it ({text}); try again with --retry-failed", 1)


def sha256(path: str) -> str | None:
    """That of a recording; None: it cannot be read."""
    try:
        return files.sha256_at(path)
    except OSError:
        return None
