"""The trunk of the builtin voice model in INT8 (static, per channel) against float: time, vectors, DER.

    python benchmarks/int8.py
    python benchmarks/int8.py --folder RECORDINGS_AND_RTTM

Calibrated on --calibration, which must not be among the recordings that are scored. Times are processor time
of one thread, each block in turn, so a busy machine does little harm. With --folder, recordings that have an
RTTM beside them are diarized with both, and scored ("strict").
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from witness import Options, diarize, sessions
from witness.audio import decode
from witness.bench import scoring
from witness.diarization import embedding, embedding_cut
from witness.models import store
from witness.options import Runtime
from witness.sessions import Model

CALL = Path(__file__).parent.parent / "tests" / "data" / "call.flac"
PART = 264
"""Frames of one input of the calibration; ten are a block."""


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--calibration", type=Path, default=CALL)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    voices = store.diarization_models("builtin", offline=True).embedding
    trunk, head = embedding_cut.open_cut(voices)
    block = features(options.calibration)
    quantized = quantize(trunk, block)
    both = {"float": Model(trunk, "float"), "int8": Model(quantized, "int8")}
    answers = {name: model(block) for name, model in both.items()}
    vector = embedding_cut.open_head(head, voices.path)
    vectors = [vector(pooled(answer)) for answer in answers.values()]
    row: dict[str, Any] = {
        "vnni": "vnni" in Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else None,
        "cosine_of_trunk": embedding_cut.cosine(*answers.values()),
        "cosine_of_vectors": embedding_cut.cosine(*vectors),
        "megabytes": {"float": len(trunk) / 1e6, "int8": len(quantized) / 1e6},
    }
    times: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(options.rounds):
        for name, model in both.items():
            begun = time.thread_time()
            model(block)
            times[name].append(time.thread_time() - begun)
    row["block_cpu_s"] = {name: statistics.median(each) for name, each in times.items()}
    row["times_as_fast"] = [round(a / b, 2) for a, b in zip(*times.values(), strict=True)]
    if options.folder is not None:
        row["float"] = accuracy(options.folder)
        opened: list[bytes] = []

        def open_cut(*_: object) -> tuple[bytes, bytes]:
            opened.append(quantized)
            return quantized, head

        embedding_cut.open_cut = open_cut
        row["int8"] = accuracy(options.folder)
        assert opened, "the float trunk was used again"  # noqa: S101
    sys.stdout.write(json.dumps(row, indent=1) + "\n")


def features(recording: Path) -> np.ndarray:
    """A block of a recording."""
    samples = decode.load(str(recording)).samples[0]
    _, feats = next(embedding.features(samples, embedding.plan([np.arange(embedding.BLOCK + 1)])))
    return feats[None]


def quantize(trunk: bytes, block: np.ndarray) -> bytes:
    """The convolutions and sums of the trunk in INT8."""
    folded = sessions.folded(trunk, "trunk")
    name = Model(folded, "trunk").input_name

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            parts = range(0, block.shape[1] - PART + 1, PART)
            self.inputs: Iterator[dict[str, np.ndarray]] = iter(
                [{name: block[:, at : at + PART]} for at in parts]
            )

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.inputs, None)

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        before.write_bytes(folded)
        quantize_static(
            before,
            after,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv", "Add"],
        )
        return after.read_bytes()


def pooled(frames: np.ndarray) -> np.ndarray:
    rows = embedding_cut.rows(frames)
    return embedding_cut.pool(rows, np.ones((1, len(rows))))


def accuracy(folder: Path) -> dict[str, Any]:
    """DER and processor time of every recording with an RTTM."""
    pairs, seconds = {}, 0.0
    for reference in sorted(folder.glob("*.rttm")):
        (audio,) = (path for path in folder.glob(f"{reference.stem}.*") if path.suffix != ".rttm")
        begun = time.process_time()
        found = diarize(audio, Options(models="builtin", offline=True), Runtime("cpu"))
        seconds += time.process_time() - begun
        (turns,) = scoring.read(reference).values()
        pairs[reference.stem] = (turns, list(found.turns))
    scores = scoring.score(pairs)
    (strict,) = (row for row in scoring.pool(scores) if row.convention == "strict")
    return {
        "der": round(strict.der, 2),
        "interval": [round(edge, 2) for edge in strict.interval],
        "each": {score.uri: round(score.der("strict"), 2) for score in scores},
        "cpu_s": round(seconds, 1),
    }


if __name__ == "__main__":
    main()
