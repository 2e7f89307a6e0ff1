"""The folder of a batch: its recordings and the names of their results, and the results that are there."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from witness.audio.source import ENDINGS, refuse_address
from witness.errors import ForeignError, OutputError, UsageError, WitnessError
from witness.formats import json_document, output_paths
from witness.formats.registry import Format
from witness.options import Runtime
from witness.storage import atomic, files, transaction
from witness.transcript import store
from witness.work.manifest import Entry, Manifest, State
from witness.work.overrides import JobOverrides
from witness.work.produce import Job, Outcome, Settings

MANIFEST, LOCK = "manifest.jsonl", ".witness-batch.lock"

INNER = tuple(f".{form.ending.rpartition('.')[0]}".casefold() for form in Format if "." in form.ending)
"""Parts of file names before their last ending that tell two formats apart."""


@dataclass(frozen=True)
class BatchRequest:
    """The request for a batch."""

    inputs: Sequence[str]
    """Files, folders and patterns."""
    out: Path
    formats: Sequence[str]
    force: bool = False
    """Do recordings again that are done."""
    retry_failed: bool = False
    watch: bool = False
    """Continue with recordings that appear."""
    limit_time: float | None = None
    """Seconds that a recording may take."""
    limit_memory: int | None = None
    """Bytes of memory that a recording may take."""


# --- recordings and names ---


def find(inputs: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """Return (absolute path, path in the tree) of every recording, sorted.

    A folder gives its recordings with their paths below it; several folders keep their names. Hidden files
    and `out` are left out. Raises UsageError if there is no recording at all, InputError for an address.
    """
    for name in inputs:
        refuse_address(name)
    folders = [name for name in inputs if Path(name).is_dir()]
    tree: dict[str, str] = {}
    for name in inputs:
        if Path(name).is_dir():
            root = os.path.abspath(name)  # noqa: PTH100 - without following links, here and below
            above = Path(root).name if len(folders) > 1 else ""
            for path in _walk(root, out):
                if Path(path).suffix[1:].lower() in ENDINGS:
                    tree.setdefault(path, os.path.join(above, os.path.relpath(path, root)))  # noqa: PTH118
            continue
        literal = Path(name).exists() or not glob.has_magic(name)
        matches = [name] if literal else filter(os.path.isfile, glob.glob(name, recursive=True))  # noqa: PTH207
        for path in map(os.path.abspath, matches):
            tree.setdefault(path, Path(path).name)
    if not tree:
        raise UsageError(f"no recording in {', '.join(inputs)}; name files, folders or patterns")
    return sorted(tree.items())


def _walk(root: str, out: Path) -> Iterator[str]:
    """Yield the files below a folder, except hidden ones and those in `out`."""
    excluded = out.resolve()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name[0] != "." and Path(folder, name).resolve() != excluded]
        yield from (os.path.join(folder, name) for name in names if name[0] != ".")  # noqa: PTH118


def assign(recordings: Iterable[tuple[str, str]], manifest: Manifest) -> list[tuple[str, str]]:
    """Return (source, output) of each recording of `find`. An assigned output stays; no two share one.

    Outputs that differ only in case or in the composition of accents are one file on some disks, so they
    count as one here: `a.wav` and `a.mp3` become `a.wav.json` and `a.mp3.json`, and a third one in the way
    gets a number made from its path. `a.openai.wav` becomes `a.openai.wav.json`, because `a.openai.json` is
    another format of `a.wav`.
    """
    recordings = list(recordings)
    sources = {source for source, _ in recordings}
    taken = {"report": ""}
    for source, name in manifest.sources.items():
        if source in sources or Path(source).exists():
            taken.setdefault(_key(name), source)
    choices = [output_paths.names(path, source) for source, path in recordings]
    uses = Counter(_key(stem) for stem, *_ in choices)
    assigned = []
    for (source, _), (stem, *longer) in zip(recordings, choices, strict=True):
        earlier = manifest.sources.get(source)
        alone = uses[_key(stem)] == 1 and not _key(stem).endswith(INNER)
        candidates = [earlier] if earlier is not None else [stem] if alone else []
        candidates += longer
        name = next(name for name in candidates if taken.get(_key(name), source) == source)
        taken[_key(name)] = source
        assigned.append((source, name))
    return assigned


def _key(name: str) -> str:
    """Return a key that is equal for names that are one file on some disks."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def size_and_mtime(path: str) -> tuple[int, int]:
    """Return the size in bytes and the time in nanoseconds; a file with both unchanged is not read again.

    Raises OSError.
    """
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns


# --- results ---


def fingerprint(settings: Settings) -> str:
    """Return the hash of everything that changes the result; recordings with another one are done again."""
    options = asdict(settings.options)
    for name in ("models", "recognizer", "offline", "known"):  # the hashes of the files say more
        del options[name]
    options["whisper"] = None
    return hashlib.sha256(json.dumps([options, settings.models], sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(out: Path, *, private: bool = False) -> Iterator[None]:
    """Lock a folder for this batch alone; make it if needed, readable only by its user if `private`.

    Raises OutputError, WitnessError.
    """
    try:
        atomic.make_folder(out, 0o700 if private else 0o777)
        with transaction.held(out / LOCK) as taken:
            if not taken:
                raise WitnessError(f"another batch is at work in {out}; wait for it, or choose another -o")
            yield
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror}); change -o") from error


class Folder:
    """A folder that is `locked`, with its manifest, for one request with its settings."""

    def __init__(self, request: BatchRequest, settings: Settings, manifest: Manifest) -> None:
        self.request = request
        self.manifest = manifest
        self._settings = settings
        self._fingerprint = fingerprint(settings)

    @property
    def takes_copies(self) -> bool:
        """True if recordings may take the transcripts of others with the same bytes."""
        return Format.JSON in self.request.formats and not self.request.force

    def directory(self, item: Entry) -> Path:
        """Return the directory of an item's files."""
        return (self.request.out / item.output).parent

    def job(self, item: Entry, runtime: Runtime) -> Job:
        """Return the item with everything that a worker must know."""
        targets = tuple(zip(self.request.formats, self._targets(item.output), strict=True))
        transcript = None if self.request.force or item.again else self.transcript(item)
        if transcript is not None:
            targets = tuple((form, path) for form, path in targets if not path.exists())
        twin = self.twin(item) if transcript is None else None
        return Job(
            item.source,
            targets,
            replace(self._settings, runtime=runtime),
            self.request.limit_time,
            self.request.limit_memory,
            self.request.force,
            None if transcript is None else str(transcript),
            twin=None if twin is None else str(twin),
            again=item.again,
        )

    def claim(self, item: Entry) -> None:
        """Note in the manifest that an item's files are the batch's own, before they exist.

        Raises OutputError.
        """
        if item.output not in self.manifest.entries:
            self.manifest.append(self.entry(item, "begun"))

    def entry(self, item: Entry, state: State, error: str | None = None) -> Entry:
        """Return the entry of an item without results."""
        failed = int(error is not None)
        return replace(item, settings=self._fingerprint, state=state, error=error, code=failed)

    def record(self, item: Entry, outcome: Outcome) -> Entry:
        """Add the outcome of an item to the manifest. Raises OutputError, also if that is a full disk."""
        if outcome.full:
            raise OutputError(f"{outcome.error}; then run the same command again to continue")
        entry = replace(
            self.entry(item, "done" if outcome.error is None else "failed", outcome.error),
            sha256=outcome.sha256,
            code=outcome.code,
            duration=outcome.duration,
            seconds=round(outcome.seconds, 3),
            speakers=outcome.speakers,
            doubts=outcome.doubts,
            again=item.again and outcome.error is not None,
        )
        self.manifest.append(entry)
        return entry

    def spared(self, item: Entry) -> Entry | None:
        """Return the entry of an item that must not be worked on: it is done, or it would lose something."""
        before = None if self.request.force else self.done_before(item)
        if before is not None:
            return before
        trouble = self.in_the_way(item)
        return None if trouble is None else self.entry(item, "failed", trouble)

    def in_the_way(self, item: Entry) -> str | None:
        """Name the reason not to write the results of an item: a link, or a file that would be lost."""
        try:
            files.refuse_link(self.directory(item), self.request.out)
        except ForeignError as error:
            return str(error)
        if self.request.force or item.again:
            return None
        entry = self.manifest.entries.get(item.output)
        if entry is not None and entry.state == "begun" and item.wish == JobOverrides() != entry.wish:
            return f"{item.source}: waits at the desk with settings of its own; run witness serve, or --force"
        if self.transcript(item) is not None:
            return None
        targets = self._targets(item.output)
        if (loss := output_paths.refuse_loss(targets)) is not None:
            return loss
        findings = [
            output_paths.beside(path) for path in targets if output_paths.format_of(path.name) == Format.JSON
        ]
        paths = [*targets, *(findings if self._settings.writing.keep_findings else [])]
        taken = next(filter(os.path.lexists, paths), None)
        if item.output in self.manifest.entries or taken is None:
            return None
        earlier = output_paths.find_transcript(targets)
        if earlier is not None and output_paths.is_of(earlier[1], item.source):
            return None
        return f"{taken}: is there already and not of this batch; fix: move it away, or use --force"

    def done_before(self, item: Entry) -> Entry | None:
        """Return the entry of an item with the same content and settings and all its files."""
        entry = self._unchanged(item)
        if entry is None or (entry.state == "failed" and self.request.retry_failed):
            return None
        if entry.state == "done" and not all(path.exists() for path in self._targets(item.output)):
            return None
        return entry

    def transcript(self, item: Entry) -> Path | None:
        """Return the JSON of the same content with the same settings, for the missing formats of an item."""
        entry = self._unchanged(item)
        if entry is None or entry.state != "done" or entry.sha256 is None:
            return None
        path, summary = self._saved(item.output, entry.sha256)
        return path if summary is not None and summary.corrected is not None else None

    def twin(self, item: Entry) -> Path | None:
        """Return the JSON of another recording with the same bytes that is done with these settings.

        One that a person has corrected counts only for a recording that was moved.
        """
        if self.request.force or item.again or not self.manifest.has_copies(item, self._fingerprint):
            return None
        sha256 = self.sha256(item)
        copies = self.manifest.copies(item, self._fingerprint, sha256) if sha256 is not None else []
        for entry in sorted(copies, key=lambda copy: Path(copy.source).exists()):  # a moved one comes first
            path, summary = self._saved(entry.output, sha256)
            if summary is not None and (not store.is_corrected(path) or not Path(entry.source).exists()):
                return path
        return None

    def about_twin(self, item: Entry, path: str) -> str:
        """Return the note on an item with the transcript of another one, whose JSON is at `path`."""
        output = Path(path).relative_to(self.request.out).with_name(Path(path).name.removesuffix(".json"))
        entries = self.manifest.entries
        other = entries.get(str(output)) or entries[output.as_posix()]
        if Path(other.source).exists():
            return f"{item.source} has the same bytes as {other.source}, and was not recognized again"
        return (
            f"{item.source} was {other.source} before, and was not recognized again; the earlier results "
            f"are still at {path}"
        )

    def sha256(self, item: Entry) -> str | None:
        """Return the hash of a recording, which is read once; None: it cannot be read."""
        return self.manifest.sha256(item.source, item.size, item.mtime_ns)

    def _unchanged(self, item: Entry) -> Entry | None:
        """Return the entry of an item that ended with these settings and has not changed since."""
        entry = self.manifest.entries.get(item.output)
        if entry is None or entry.state not in ("done", "failed"):
            return None
        overridden = item.wish == JobOverrides() != entry.wish  # settings of its own count
        if entry.settings != self._fingerprint and not overridden:
            return None
        if (entry.source, entry.size, entry.mtime_ns) != (item.source, item.size, item.mtime_ns):
            if entry.sha256 is None or entry.sha256 != self.sha256(item):
                return None
            entry = replace(entry, source=item.source, size=item.size, mtime_ns=item.mtime_ns)
            self.manifest.append(entry)  # so that it need not be hashed again
        return entry

    def _saved(self, output: str, sha256: str | None) -> tuple[Path, json_document.DocumentHead | None]:
        """Return the path of a JSON, and its summary if it is of a recording with this hash."""
        path = Path(output_paths.name_of(self.request.out / output, Format.JSON))
        with suppress(OSError):
            summary = json_document.decode_head(files.read(path))
            if summary is not None and summary.audio.sha256 == sha256:
                return path, summary
        return path, None

    def _targets(self, output: str) -> list[Path]:
        return [Path(output_paths.name_of(self.request.out / output, form)) for form in self.request.formats]
