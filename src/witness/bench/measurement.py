"""What one run of one recording gave and what it cost, or how it failed; and both as the child's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from witness.errors import WitnessError
from witness.options import Mode
from witness.schema import Source, Turn
from witness.tracing import Call, Span


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of processor time, summed over threads."""

    witness: float
    """Of the process that ran the pipeline."""
    whisper: float
    """Of its children, which is the speech recognizer; 0 if there was none."""


@dataclass(frozen=True)
class Measurement:
    """A run that came to its end."""

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
    """Why there are no words although they were asked for."""
    wall: float
    """Seconds in `transcribe`, the end of onnxruntime's traces included."""
    cpu: ProcessorTime
    peak_memory_mb: float | None
    """Of the process that ran the pipeline; None where nobody knows."""
    whisper_peak_memory_mb: float | None
    """Of the speech recognizer; None without one, and where nobody knows."""
    spans: tuple[Span, ...] = ()
    """Every stage at work."""
    calls: tuple[Call, ...] = ()
    """Every call of a model."""

    @property
    def mode(self) -> Mode | None:
        """How both engines ran; None if no words were recognized."""
        mode = self.timing["mode"]
        return None if mode is None else Mode(str(mode))

    def seconds(self, stage: str) -> float | None:
        """Wall time of a stage, or of the whole ("wall"); None if the stage did not run."""
        value = self.timing[stage]
        return None if value is None else float(value)

    def to_json(self) -> dict[str, Any]:
        """The child's reply."""
        return {**asdict(self), "turns": [[turn.start, turn.end, turn.speaker] for turn in self.turns]}

    @staticmethod
    def from_json(reply: Mapping[str, Any]) -> Measurement:
        """From the child's reply. Raises KeyError and TypeError if it is none."""
        return Measurement(
            **{
                **reply,
                "audio": Source(**reply["audio"]),
                "turns": tuple(Turn(*turn) for turn in reply["turns"]),
                "warnings": tuple(reply["warnings"]),
                "cpu": ProcessorTime(**reply["cpu"]),
                "spans": tuple(Span(**span) for span in reply["spans"]),
                "calls": tuple(Call(**{**call, "shape": tuple(call["shape"])}) for call in reply["calls"]),
            }
        )


@dataclass(frozen=True)
class Failure:
    """A run that gave nothing."""

    message: str
    exit_code: int | None = None
    """Of the error that was raised; None: the process died, and may do better next time."""

    @property
    def crashed(self) -> bool:
        return self.exit_code is None

    def error(self, prefix: str = "", suffix: str = "") -> WitnessError:
        """To be raised in this process, with the exit code of the one in the child."""
        error = WitnessError(f"{prefix}{self.message}{suffix}")
        if self.exit_code is not None:
            error.exit_code = self.exit_code
        return error
