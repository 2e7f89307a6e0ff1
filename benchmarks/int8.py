"""The diarizer with its networks in INT8 (static, per channel) against float: time, vectors, DER.

    python benchmarks/int8.py --folder RECORDINGS_AND_RTTM --models builtin --part voice

A network is calibrated on what it hears in --calibration, which must not be among the recordings that are
scored. `--part segmentation` has its convolutions and matrices in INT8 and, as static quantization knows no
LSTM, its LSTMs by weight (dynamic). Recordings that have an RTTM beside them are diarized with both, in turn,
and scored ("strict"), all and by the first letters of their names. Times are processor time of the process;
`calls_cpu_s` is that of the network alone, one thread, on the calibration.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from witness import Options, diarize, sessions
from witness.bench import scoring
from witness.diarization import embedding, embedding_cut, segmentation, segmentation_cut, stretches
from witness.options import Runtime
from witness.sessions import Model

PARTS = {"voice": (embedding, stretches), "segmentation": (segmentation, segmentation_cut)}
"""The modules that open each network."""
OPERATORS = {"voice": ["Conv", "Add", "MatMul", "Gemm"], "segmentation": ["Conv", "MatMul", "Gemm"]}
HEARD = 24
"""Inputs that a network is calibrated on, at most."""


class Listener:
    """A network that remembers what it heard."""

    def __init__(self, model: Model, source: bytes) -> None:
        self.model, self.source = model, source
        self.heard: list[np.ndarray] = []
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        with self.lock:
            self.heard.append(np.array(array))
        return self.model(array)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--calibration", type=Path, action="append", help="repeatable; the sample call")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="repeatable")
    parser.add_argument("--models", default="builtin")
    parser.add_argument("--part", choices=[*PARTS, "both"], default="voice")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    parts = list(PARTS) if options.part == "both" else [options.part]
    row: dict[str, Any] = {
        "models": options.models,
        "part": options.part,
        "vnni": "vnni" in Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else None,
    }
    quantized: dict[str, bytes] = {}
    for part in parts:
        listener = listened(part, options.models, options.calibration or [harness.CALL])
        small = quantize(part, listener)
        quantized[listener.name] = small
        row[part] = network(listener, small, options.rounds)
        sys.stderr.write(f"{part}: {row[part]}\n")
    if recordings := [path for folder in options.folder for path in sorted(folder.glob("*.rttm"))]:
        row["diarizer"] = diarizer(recordings, options.models, quantized)
    harness.show(row, options.json)


def replaced(part: str, make: Callable[[Any, str], Any]) -> None:
    """Have the network of that part opened by `make`."""
    for module in PARTS[part]:
        module.Model = make  # type: ignore[attr-defined]


def listened(part: str, models: str, recordings: list[Path]) -> Listener:
    """The network of that part, with what it hears in the recordings."""
    found: dict[str, Listener] = {}

    def make(source: str | bytes, name: str) -> Any:
        model = Model(source, name)
        if name.startswith("front of "):
            return model
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        return found.setdefault(name, Listener(model, content))

    replaced(part, make)
    for recording in recordings:
        before = len(next(iter(found.values())).heard) if found else 0
        diarize(recording, Options(models=models, offline=True), Runtime("cpu"))
        (listener,) = found.values()
        fresh = listener.heard[before:]
        share = min(HEARD // len(recordings), len(fresh))
        # Without what is tried when it is opened, and evenly from all of the recording.
        listener.heard[before:] = [
            fresh[index] for index in np.linspace(min(3, len(fresh) // 4), len(fresh) - 1, share, dtype=int)
        ]
    replaced(part, Model)
    return listener


def quantize(part: str, listener: Listener) -> bytes:
    """The network in INT8."""
    folded = sessions.folded(listener.source, part)
    name = Model(folded, part).input_name

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inputs: Iterator[dict[str, np.ndarray]] = iter([{name: one} for one in listener.heard])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.inputs, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        before.write_bytes(folded)
        if part == "segmentation":
            lstm = Path(folder, "lstm.onnx")
            quantize_dynamic(before, lstm, per_channel=True, op_types_to_quantize=["LSTM"])
            before = lstm
        quantize_static(
            before,
            after,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=OPERATORS[part],
        )
        return after.read_bytes()


def network(listener: Listener, small: bytes, rounds: int) -> dict[str, Any]:
    """Both of a network on the calibration: how alike, how large, how fast."""
    both = {"float": Model(listener.source, "float"), "int8": Model(small, "int8")}
    answers = {name: [model(one) for one in listener.heard] for name, model in both.items()}
    likeness = [embedding_cut.cosine(*pair) for pair in zip(*answers.values(), strict=True)]
    times: dict[str, list[float]] = {name: [] for name in both}
    for _, (name, model) in harness.in_turn(list(both.items()), rounds):
        begun = time.thread_time()
        for one in listener.heard:
            model(one)
        times[name].append(time.thread_time() - begun)
    median = {name: statistics.median(each) for name, each in times.items()}
    return {
        "inputs": [list(one.shape) for one in listener.heard[:1]] + [len(listener.heard)],
        "cosine_least": min(likeness),
        "megabytes": {"float": len(listener.source) / 1e6, "int8": len(small) / 1e6},
        "calls_cpu_s": median,
        "times_as_fast": round(median["float"] / median["int8"], 2),
        "in_each_round": [round(a / b, 2) for a, b in zip(*times.values(), strict=True)],
    }


def diarizer(recordings: list[Path], models: str, quantized: dict[str, bytes]) -> dict[str, Any]:
    """DER and processor time of every recording with both."""

    def opened(int8: bool, source: str | bytes, name: str) -> Model:
        return Model(quantized.get(name, source) if int8 else source, name)

    scores: dict[str, list[scoring.FileScore]] = {"float": [], "int8": []}
    seconds: dict[str, list[float]] = {"float": [], "int8": []}
    for number, reference in enumerate(recordings):
        (audio,) = (path for path in reference.parent.glob(f"{reference.stem}.*") if path.suffix in AUDIO)
        (turns,) = scoring.read(reference).values()
        for way in ("float", "int8") if number % 2 else ("int8", "float"):
            for part in PARTS:
                replaced(part, partial(opened, way == "int8"))
            begun = time.process_time()
            found = diarize(audio, Options(models=models, offline=True), Runtime("cpu"))
            seconds[way].append(time.process_time() - begun)
            pair = {reference.stem: (turns, list(found.turns))}
            whole = {reference.stem: [(0.0, found.audio.duration)]}
            scores[way] += scoring.score(pair, whole)
        sys.stderr.write(f"{number + 1} of {len(recordings)}: {reference.stem}\n")
    groups = {"all": [True] * len(recordings)}
    for start in sorted({path.stem.split("_")[0] for path in recordings}):
        groups[start] = [path.stem.startswith(start) for path in recordings]
    return {name: compared(scores, seconds, chosen) for name, chosen in groups.items()}


def compared(
    scores: dict[str, list[scoring.FileScore]], seconds: dict[str, list[float]], chosen: list[bool]
) -> dict[str, Any]:
    """Both ways over the chosen recordings."""
    row: dict[str, Any] = {"files": sum(chosen)}
    some = {
        way: [one for one, wanted in zip(each, chosen, strict=True) if wanted] for way, each in scores.items()
    }
    for way, each in some.items():
        (strict,) = (one for one in scoring.pool(each) if one.convention == "strict")
        counts = scoring.speaker_counts(each)
        row[way] = {
            "der": round(strict.der, 2),
            "interval": [round(edge, 2) for edge in strict.interval],
            "speakers_right": counts.exact,
            "cpu_s": round(sum(one for one, wanted in zip(seconds[way], chosen, strict=True) if wanted), 1),
            "each": {one.uri: round(one.der("strict") or 0.0, 2) for one in each},
        }
    (difference,) = (
        one for one in scoring.compare(some["int8"], some["float"]) if one.convention == "strict"
    )
    row["points"] = round(difference.points, 2)
    row["points_interval"] = [round(edge, 2) for edge in difference.interval]
    row["times_as_fast"] = round(row["float"]["cpu_s"] / row["int8"]["cpu_s"], 2)
    return row


AUDIO = {".flac", ".ogg", ".wav"}


if __name__ == "__main__":
    main()
