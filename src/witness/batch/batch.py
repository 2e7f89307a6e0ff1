"""Many recordings: which there are, which are done, what became of each.

The files of a batch lie in one folder, in the tree of the recordings: manifest.jsonl says what is done and is
all that a later run needs, report.json what became of each recording in the latest run.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import queue
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from witness import files
from witness.audio import sound
from witness.batch.manifest import Entry, Manifest
from witness.batch.worker import Job, Outcome, Settings
from witness.diarization import voices
from witness.errors import OutputError, UsageError, WitnessError
from witness.options import Options, Runtime, available_cores
from witness.pipeline import Engine
from witness.reporter import SILENT, Reporter

SCHEMA = "witness-batch/1"
MANIFEST, REPORT, LOCK = "manifest.jsonl", "report.json", ".witness-batch.lock"
PEAK = 1_500_000_000
"""Bytes that a worker may take: an hour-long recording peaks at 1.3 GB."""
LONGEST = 230
"""Bytes of a file name, of the 255 that file systems take: the endings come after it."""
SETTLED = 4.0
"""Seconds without a change after which --watch takes a recording for complete."""
LOOK = 2.0
"""Seconds between two looks of --watch."""

_ENDINGS = """
3ga 3gp 8svx aa aac aax ac3 adts aif aifc aiff amr ape asf au avi awb caf dsf dss dts eac3 f4v flac flv gsm
iff m2ts m4a m4b m4r m4v mka mkv mov mp2 mp3 mp4 mpa mpc mpeg mpg mts oga ogg ogm ogv opus qcp ra rm rmvb sd2
shn snd spx tta ts vob voc vox w64 wav wave weba webm wma wmv wv
"""
ENDINGS = frozenset(_ENDINGS.split())
"""What a folder is searched for; a file that is named is taken whatever its ending."""

Submit = Callable[[Job], Future[Outcome]]


@dataclass(frozen=True)
class Item:
    """A recording, and the name of its files below the batch's folder, without their endings."""

    source: str
    output: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Status:
    """How far a batch is."""

    files: int
    total: int
    failed: int
    audio: float
    """Seconds of audio in this run."""
    left: float | None
    """Seconds that it may still take; None: nobody knows yet."""


Tell = Callable[[Status], None]


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """The folder, made if need be, for this batch alone. Raises OutputError, WitnessError."""
    from filelock import FileLock, Timeout

    try:
        out.mkdir(parents=True, exist_ok=True)
        with FileLock(out / LOCK, timeout=0):
            yield
    except Timeout:
        raise WitnessError(f"another batch is at work in {out}; wait for it, or choose another -o") from None
    except OSError as error:
        raise OutputError(f"{out}: nothing can be written there ({error.strerror}); change -o") from error


def settle(
    options: Options,
    *,
    keep: bool = True,
    html_audio: sound.How = "auto",
    reporter: Reporter = SILENT,
) -> Settings:
    """The options with all choices made, its models here and verified. Raises ModelError, UsageError."""
    engine = Engine(options, progress=reporter.progress, note=reporter.note)
    models = engine.files
    whisper, failure = engine.whisper
    if failure is not None:
        raise failure
    chosen = engine.chosen.name
    if options.models not in ("auto", chosen):  # a folder
        chosen = os.path.abspath(options.models)  # noqa: PTH100 - without following links
    spoken = options.whisper
    if whisper is None:
        spoken = "none"
    elif spoken == "auto":
        spoken = whisper.name
    elif spoken != whisper.name or Path(spoken).is_file():
        spoken = whisper.path
    known = options.known and os.path.abspath(options.known)  # noqa: PTH100
    settled = replace(options, models=chosen, whisper=spoken, known=known)
    sha256 = {role: file.sha256 if file else None for role, file in models.items()}
    if engine.known is not None and known is not None:
        sha256["known"] = voices.fingerprint(Path(known))
    return Settings(asdict(settled), {}, sha256, tuple(engine.warnings), keep, html_audio)


def fingerprint(settings: Settings) -> str:
    """The hash of all that changes the result."""
    names = ("models", "offline", "known")  # the hashes say more
    options = {key: value for key, value in settings.options.items() if key not in names}
    options["whisper"] = None
    return hashlib.sha256(json.dumps([options, settings.models], sort_keys=True).encode()).hexdigest()


def slots(jobs: int | None, gpus: Sequence[int], files: int, memory: int | None) -> list[dict[str, Any]]:
    """What each worker has of its own: with `gpus` a card, otherwise nothing; as many as there is room for.

    `jobs` None: one a core. `memory` is in bytes.
    """
    room = max(1, memory // PEAK) if memory is not None else available_cores()
    count = max(1, min(jobs or available_cores(), room, files))
    return [{"gpu": gpu} for gpu in gpus] or [{}] * count


def runtime(workers: int, device: str, threads: int | None) -> dict[str, Any]:
    """The fields of `Runtime` for one of several workers."""
    own = threads or max(1, available_cores() // workers)
    # With a core each, words beside the diarizer would be two threads on it.
    return asdict(Runtime(device=device, threads=own, serial=own == 1))  # type: ignore[arg-type]


def find(inputs: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """(absolute path, path in the tree) of every recording, sorted.

    A folder gives its recordings with their paths below it, several folders under their names. What is
    hidden, and `out`, are left out. Raises UsageError if there is no recording at all.
    """
    folders = [given for given in inputs if Path(given).is_dir()]
    found: dict[str, str] = {}
    for given in inputs:
        if Path(given).is_dir():
            root = os.path.abspath(given)  # noqa: PTH100
            above = Path(root).name if len(folders) > 1 else ""
            for path in _walk(root, out):
                if Path(path).suffix[1:].lower() in ENDINGS:
                    found.setdefault(path, os.path.join(above, os.path.relpath(path, root)))  # noqa: PTH118
        elif Path(given).exists() or not glob.has_magic(given):
            path = os.path.abspath(given)  # noqa: PTH100
            found.setdefault(path, Path(path).name)
        else:
            for match in glob.glob(given, recursive=True):  # noqa: PTH207
                if Path(match).is_file():
                    path = os.path.abspath(match)  # noqa: PTH100
                    found.setdefault(path, Path(path).name)
    if not found:
        raise UsageError(f"no recording in {', '.join(inputs)}; name files, folders or patterns")
    return sorted(found.items())


def _walk(root: str, out: Path) -> Iterator[str]:
    hidden = out.resolve()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name[0] != "." and Path(folder, name).resolve() != hidden]
        yield from (os.path.join(folder, name) for name in names if name[0] != ".")  # noqa: PTH118


def assign(found: Iterable[tuple[str, str]], manifest: Manifest) -> list[tuple[str, str]]:
    """(source, output) of each. What has an output keeps it; two never share one.

    Outputs that differ by case or by the composition of accents only are one file on some disks, so they
    count as one here: `a.wav` and `a.mp3` become `a.wav.json` and `a.mp3.json`, a third in the way gets a
    number made from its path.
    """
    found = list(found)
    sources = {source for source, _ in found}
    taken = {"report": ""}
    for source, name in manifest.sources.items():
        if source in sources or Path(source).exists():
            taken.setdefault(_key(name), source)
    plain = Counter(_key(_shortened(os.path.splitext(place)[0])) for _, place in found)  # noqa: PTH122
    given = []
    for source, place in found:
        stem = _shortened(os.path.splitext(place)[0])  # noqa: PTH122
        digest = hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
        kept = manifest.sources.get(source)
        candidates: list[str] = [kept] if kept is not None else []
        if kept is None and plain[_key(stem)] == 1:
            candidates = [stem]
        candidates += [_shortened(place), f"{_shortened(place)}~{digest}"]
        name = next(name for name in candidates if taken.get(_key(name), source) == source)
        taken[_key(name)] = source
        given.append((source, name))
    return given


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _shortened(path: str) -> str:
    """The same with a last part that leaves room for endings."""
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > LONGEST:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        name = f"{os.fsencode(name)[: LONGEST - 9].decode('utf-8', 'ignore')}~{digest}"
    return os.path.join(folder, name)  # noqa: PTH118


class Batch:
    """One run over a folder that is `locked`."""

    def __init__(
        self,
        inputs: Sequence[str],
        out: Path,
        formats: Sequence[str],
        settings: Settings,
        *,
        force: bool = False,
        retry_failed: bool = False,
        limit: float | None = None,
        watch: bool = False,
    ) -> None:
        """Find out what is to be done. Raises UsageError, OutputError."""
        self.out = out.absolute()
        self.manifest = Manifest(self.out / MANIFEST)
        self.results: dict[str, dict[str, Any]] = {}
        """Source -> what report.json says of it."""
        self._states: Counter[str] = Counter()  # of the results; counted as they come, for there may be many
        self._inputs = inputs
        self._formats = tuple(dict.fromkeys(formats))
        self._settings = settings
        self._fingerprint = fingerprint(settings)
        self._force = force
        self._retry_failed = retry_failed
        self._limit = limit
        self._seen: dict[str, tuple[int, int]] = {}  # sources in hand or finished, as they were
        self._growing: dict[str, tuple[int, int, float]] = {}
        self._watch = watch
        self.todo = self._scan()
        self._folders = {self.out, *((self.out / item.output).parent for item in self.todo)}
        self._sweep()

    def run(
        self,
        submit: Submit,
        runtime: dict[str, Any],
        *,
        tell: Tell = lambda _: None,
        reporter: Reporter = SILENT,
    ) -> None:
        """Do what is to be done; a batch that watches goes on with what comes, until interrupted.

        Raises OutputError when there is no room left for any file. However it ends, report.json is written.
        """
        settings = replace(self._settings, runtime=runtime)
        finished: queue.SimpleQueue[tuple[Item, Future[Outcome]]] = queue.SimpleQueue()
        clock = _Clock(self.todo)
        owed, looked = 0, time.monotonic()
        try:
            while owed or self.todo or self._watch:
                for item in self.todo:
                    self._folders.add((self.out / item.output).parent)
                    future = submit(self._job(item, settings))
                    future.add_done_callback(lambda done, item=item: finished.put((item, done)))  # type: ignore[misc]
                    owed += 1
                self.todo = []
                with suppress(queue.Empty):
                    item, future = finished.get(timeout=0.5)  # or Ctrl-C would not get through on Windows
                    owed -= 1
                    self._record(item, _outcome(item, future), clock, reporter)
                tell(self._status(clock))
                if self._watch and time.monotonic() - looked > LOOK:
                    self.todo, looked = self._scan(), time.monotonic()
                    clock.more(self.todo)
        finally:
            self._sweep()  # a worker may have been killed on the way
            self.write_report()

    def _job(self, item: Item, settings: Settings) -> Job:
        targets = tuple((form, f"{self.out / item.output}.{form}") for form in self._formats)
        return Job(item.source, targets, settings, self._limit)

    def _record(self, item: Item, outcome: Outcome, clock: _Clock, reporter: Reporter) -> None:
        if outcome.full:
            raise OutputError(f"{outcome.error}; then the same command goes on from here")
        entry = Entry(
            item.output,
            item.source,
            item.size,
            item.mtime_ns,
            outcome.sha256,
            self._fingerprint,
            "done" if outcome.error is None else "failed",
            outcome.error,
            outcome.code,
            outcome.duration,
            round(outcome.seconds, 3),
            outcome.speakers,
        )
        self.manifest.append(entry)
        self._result(entry, entry.state)
        clock.done(item, outcome.duration or 0.0)
        if outcome.error is not None:
            reporter.note(f"failed: {outcome.error}")

    def _result(self, entry: Entry, state: str) -> None:
        names = [f"{entry.output}.{form}" for form in self._formats] if entry.code == 0 else []
        kept = {key: value for key, value in asdict(entry).items() if key not in ("settings", "mtime_ns")}
        if entry.source in self.results:
            self._states[self.results[entry.source]["state"]] -= 1
        self._states[state] += 1
        self.results[entry.source] = {**kept, "state": state, "files": names}

    def _scan(self) -> list[Item]:
        """What there is to do now and was not in hand before."""
        try:
            found = find(self._inputs, self.out)
        except UsageError:
            if self._watch:
                return []
            raise
        todo = []
        for source, name in assign(found, self.manifest):
            try:
                now = _stat(source)
            except OSError:
                now = 0, 0  # the worker says what is wrong with it
            if self._seen.get(source) == now or (self._watch and not self._settled(source, now)):
                continue
            self._seen[source] = now
            item = Item(source, name, *now)
            entry = None if self._force else self._known(item)
            if entry is None:
                left = Entry(name, source, *now, None, self._fingerprint, "failed", "not reached", 1)
                self._result(left, "left")
                todo.append(item)
            else:
                self._result(entry, "skipped" if entry.state == "done" else "failed")
        return todo

    def _settled(self, source: str, now: tuple[int, int]) -> bool:
        """Whether a file has stayed as it is for a while, by a clock that nobody sets."""
        size, mtime, since = self._growing.get(source, (-1, -1, 0.0))
        if (size, mtime) != now:
            self._growing[source] = (*now, time.monotonic())
            return False
        return time.monotonic() - since >= SETTLED

    def _known(self, item: Item) -> Entry | None:
        """The entry that makes an item no work: same content, same settings, all files there."""
        entry = self.manifest.entries.get(item.output)
        if entry is None or entry.settings != self._fingerprint:
            return None
        if entry.state == "failed" and self._retry_failed:
            return None
        if entry.state == "done" and not all(
            Path(f"{self.out / item.output}.{form}").exists() for form in self._formats
        ):
            return None
        if (entry.source, entry.size, entry.mtime_ns) != (item.source, item.size, item.mtime_ns):
            if entry.sha256 is None or entry.sha256 != _sha256(item.source):
                return None
            entry = replace(entry, source=item.source, size=item.size, mtime_ns=item.mtime_ns)
            self.manifest.append(entry)  # it need not be hashed again
        return entry

    def _sweep(self) -> None:
        """Remove what killed workers were about to write: whole files only ever bear their own names."""
        for folder in self._folders:
            for path in folder.glob(f"{files.SCRATCH}*"):
                pid = path.name.removeprefix(files.SCRATCH).partition("-")[0]
                if pid.isdigit() and not _alive(int(pid)):
                    with suppress(OSError):
                        path.unlink()

    def _status(self, clock: _Clock) -> Status:
        total = len(self.results)
        return Status(total - self._states["left"], total, self._states["failed"], clock.audio, clock.left())

    def write_report(self) -> None:
        """report.json; a full disk must not hide why the batch ended."""
        document = {"schema": SCHEMA, **self.summary(), "files": list(self.results.values())}
        with suppress(OutputError):
            text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
            files.write(
                text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode(), self.out / REPORT
            )

    def summary(self) -> dict[str, Any]:
        """How many recordings are in which state, and the seconds of audio in those that are done."""
        good = [result for result in self.results.values() if result["state"] in ("done", "skipped")]
        return {
            **{state: self._states[state] for state in ("done", "skipped", "failed", "left")},
            "audio_seconds": round(sum(result["duration"] or 0.0 for result in good), 3),
        }

    def table(self) -> str:
        """What a person reads at the end: a line for each failure with its cure, and the sums."""
        summary = self.summary()
        lines = [
            f"failed  {result['error']}" for result in self.results.values() if result["state"] == "failed"
        ]
        hours = summary["audio_seconds"] / 3600
        counts = [f"{summary['done']} done"]
        counts += [f"{summary[state]} {word}" for state, word in _WORDS.items() if summary[state]]
        recordings = "1 recording" if len(self.results) == 1 else f"{len(self.results)} recordings"
        lines.append(f"{recordings}: {', '.join(counts)}; {hours:.2f} h of audio")
        return "\n".join(lines) + "\n"


_WORDS = {"skipped": "done before", "failed": "failed", "left": "left"}


class _Clock:
    """How long it may still take, by the bytes that are done; never by the time of day, which may be set."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.audio = 0.0
        self._begun = time.monotonic()
        self._bytes = 0
        self._total = 0
        self.more(items)

    def more(self, items: Iterable[Item]) -> None:
        self._total += sum(item.size for item in items)

    def done(self, item: Item, audio: float) -> None:
        self._bytes += item.size
        self.audio += audio

    def left(self) -> float | None:
        if not self._bytes:
            return None
        return (time.monotonic() - self._begun) / self._bytes * max(0, self._total - self._bytes)


def _outcome(item: Item, future: Future[Outcome]) -> Outcome:
    """What became of an item, also when the workers themselves are gone."""
    try:
        return future.result()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Outcome(f"{item.source}: no worker could finish it ({text}); --retry-failed tries again", 1)


def _stat(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116
    return found.st_size, found.st_mtime_ns


def _sha256(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _alive(pid: int) -> bool:
    if os.name == "nt":  # where this call would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
