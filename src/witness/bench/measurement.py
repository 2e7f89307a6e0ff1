"""Measurements of one recording in a child process, and descriptions of the machine that made them.

A crash costs one recording, and memory and processor time are this recording's alone. The child's request and
reply, as `witness.child` carries them:

    {"path", "options", "runtime", "profile"}  ->  {"measured": a Measurement}
                                                   {"measured": {"error": line, "exit_code": n}}
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from witness import machine_limits, tracing
from witness._version import __version__
from witness.child import Buffer, Child, DiedError, Message, RefusedError, serve
from witness.errors import WitnessError
from witness.options import Mode, Options, Runtime
from witness.pipeline import transcribe
from witness.schema import Source, Turn
from witness.tracing import Call, Span

MODULE = "witness.bench.measurement"
"""Module that the child runs."""
DISTRIBUTIONS = (
    *("onnxruntime", "onnxruntime-migraphx", "numpy", "scipy", "av", "soxr", "pywhispercpp"),
    *("ctranslate2", "pyannote.metrics", "kaldialign", "meeteval", "num2words"),
)
"""Packages that do the arithmetic."""


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of processor time, summed over threads."""

    witness: float
    """Of the process that ran the pipeline."""
    whisper: float
    """Of its child, the speech recognizer; 0 without one."""


@dataclass(frozen=True)
class Measurement:
    """Results and costs of a run that came to its end."""

    audio: Source
    models: Mapping[str, str | None]
    """"segmentation", "embedding", "whisper" -> sha256 of the file; None: not used."""
    device: Mapping[str, str | None]
    """"embedding", "whisper" -> what ran them."""
    timing: Mapping[str, float | str | None]
    """As in `Transcript.timing`: seconds of each stage and "wall", the seconds of the whole; "mode"."""
    turns: tuple[Turn, ...]
    words: int
    warnings: tuple[str, ...]
    failure: str | None
    """Reason for the lack of the words that were asked for."""
    wall: float
    """Seconds in `transcribe`."""
    cpu: ProcessorTime
    peak_memory_mb: float | None
    """Of the process that ran the pipeline; None where the system does not tell."""
    whisper_peak_memory_mb: float | None
    """Of the speech recognizer; None without one, and where the system does not tell."""
    spans: tuple[Span, ...] = ()
    """Spans of all stages."""
    calls: tuple[Call, ...] = ()
    """Calls of all models."""

    @property
    def mode(self) -> Mode | None:
        """Mode of both engines; None if no words were recognized."""
        mode = self.timing["mode"]
        return None if mode is None else Mode(str(mode))

    def seconds(self, stage: str) -> float | None:
        """Return the wall time of a stage, or of the whole ("wall"); None if the stage did not run."""
        value = self.timing[stage]
        return None if value is None else float(value)


@dataclass(frozen=True)
class Failure:
    """Run without a result."""

    message: str
    exit_code: int | None = None
    """Of the error that was raised; None: the process died, and may do better next time."""

    @property
    def crashed(self) -> bool:
        return self.exit_code is None

    def error(self, prefix: str = "", suffix: str = "") -> WitnessError:
        """Return an error with the exit code of the one in the child."""
        error = WitnessError(f"{prefix}{self.message}{suffix}")
        if self.exit_code is not None:
            error.exit_code = self.exit_code
        return error


def run(path: Path, options: Options, runtime: Runtime, *, profile: bool = False) -> Measurement | Failure:
    """Transcribe the recording at `path` in a child; with `profile`, onnxruntime writes its traces, too."""
    request = {
        "path": str(path.absolute()),
        "options": asdict(options),
        "runtime": asdict(runtime),
        "profile": profile,
    }
    with Child(MODULE) as child:
        try:
            reply = child.ask(request)[0]["measured"]
        except DiedError as error:
            return Failure(f"the process ended with {error}{error.last_words}")
        except RefusedError as error:
            return Failure(f"the process failed ({error})")
    # A reply counts however the process ends: a driver may abort after all is done.
    if "error" in reply:
        return Failure(reply["error"], reply["exit_code"])
    return msgspec.convert(reply, Measurement)


def _measure(path: str, options: Options, runtime: Runtime, profile: bool) -> Measurement:
    scratch = TemporaryDirectory() if profile else nullcontext()
    with scratch as folder, tracing.recording(Path(folder) if folder else None) as trace:
        begun = time.perf_counter()
        transcript = transcribe(path, options, runtime)
        if profile:
            trace.document()
        wall = time.perf_counter() - begun
    used = os.times()
    return Measurement(
        audio=transcript.audio,
        models={role: model.sha256 if model else None for role, model in transcript.models.items()},
        device=transcript.device,
        timing=transcript.timing,
        turns=transcript.turns,
        words=len(transcript.words),
        warnings=transcript.warnings,
        failure=None if transcript.failure is None else str(transcript.failure),
        wall=wall,
        cpu=ProcessorTime(time.process_time(), used.children_user + used.children_system),
        peak_memory_mb=peak_memory(),
        whisper_peak_memory_mb=peak_memory(children=True) if transcript.words else None,
        spans=tuple(trace.spans),
        calls=tuple(trace.calls),
    )


def _reply(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    try:
        options, runtime = Options(**request["options"]), Runtime(**request["runtime"])
        measured = msgspec.to_builtins(_measure(request["path"], options, runtime, request["profile"]))
    except WitnessError as error:
        measured = {"error": str(error), "exit_code": error.exit_code}
    return {"measured": measured}, ()


# --- the machine ---


@dataclass(frozen=True)
class Hardware:
    """Machine that a figure was measured on."""

    processor: str
    cores: int
    """Number that the process may use."""
    memory_gb: float | None
    """None where the system does not tell."""
    system: str


def hardware() -> Hardware:
    return Hardware(_processor(), machine_limits.cores(), _memory(), platform.platform())


def versions() -> dict[str, str]:
    """Return name -> version of Witness, Python and the installed ones of DISTRIBUTIONS."""
    installed = {"witness": __version__, "python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def source_sha256() -> str:
    """Hash all source files of this package: two runs with the same hash ran the same program."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def peak_memory(*, children: bool = False) -> float | None:
    """Return the MB that this process, or the largest of its children, held at its peak.

    None where the system does not tell. On Linux a child counts as no smaller than this process was when
    the child was started.
    """
    if not children:
        with suppress(OSError):  # exact, for it is not inherited
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return None
    import resource

    target = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(target).ru_maxrss * unit / 1e6


def load() -> float | None:
    """Return the number of processes that wanted a core, on average over the last minute.

    None where the system does not tell.
    """
    with suppress(AttributeError, OSError):  # not on Windows
        return round(os.getloadavg()[0], 1)
    return None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    return None


if __name__ == "__main__":
    serve(_reply)
