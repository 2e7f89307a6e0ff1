"""How far apart windows may lie, what leaving out pauses saves, what int8 does: DER and work of each way.

    pip install '.[bench]'
    python benchmarks/conversations.py --train TRAIN --rttm DEV --out FOLDER
    nice python benchmarks/steps.py FOLDER --cache CACHE --json benchmarks/results/steps.json

FOLDER holds FILE.flac beside FILE.rttm, of development speakers: defaults are chosen by these figures. DER:
collar 0, overlap counted, whole recordings, pooled; once with the number of speakers detected and once with
it told, because a threshold in the clustering turns small differences between windows into large ones. Each
way is compared with "1 s" on the same recordings: the difference, and its 95 % interval from drawing
recordings. The clustering was tuned on exactly the windows of "1 s". The windows of "0.996 s" are as close,
but elsewhere, so the difference between these two is not due to the step. "int8" (for models that begin like
PyanNet) quantizes the LSTMs and matrix products of the segmentation as onnxruntime does it (dynamically, with
weights of 7 bits, so that no processor saturates). Windows and voices are kept in CACHE: after a stop, run
the same command again to continue.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import report
import soundfile
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from witness.bench import machine
from witness.diarization import clustering, embedding, reconstruction, segmentation, segmentation_cut
from witness.formats import rttm
from witness.models import store
from witness.schema import FRAMES, LOCAL_SPEAKERS, Float32, ModelFile, Segmentation, Turn
from witness.sessions import Model


@dataclass(frozen=True)
class Way:
    """What is varied."""

    step: float
    """Seconds from one window to the next."""
    context: int = embedding.CONTEXT
    """Trunk frames around speech that are run, too."""
    int8: bool = False
    """The back of the segmentation model is quantized."""


WAYS = {
    "1 s": Way(1.0),
    "0.996 s": Way(0.996),
    "2 s": Way(2.0),
    "2 s, int8": Way(2.0, int8=True),
    "2.5 s": Way(2.5),
    "3 s": Way(3.0),
    "3 s, no pauses": Way(3.0, embedding.FAST_CONTEXT),
    "4 s": Way(4.0),
    "5 s": Way(5.0),
}
FIRST = "1 s"
PARTS = "false alarm", "missed detection", "confusion", "total"


@dataclass(frozen=True)
class Found:
    """What the models found in one recording, and the seconds of features that the trunk ran over."""

    windows: Segmentation
    vectors: Float32
    trunk_seconds: float


class Remembering:
    """A trunk that runs over the same features only once, in whatever way they are asked for."""

    def __init__(self, trunk: Callable[[Float32], Float32]) -> None:
        self._trunk = trunk
        self._kept: dict[bytes, Float32] = {}
        self.seconds = 0.0

    def __call__(self, feats: Float32) -> Float32:
        self.seconds += feats.shape[1] / 100
        key = hashlib.sha256(feats.tobytes()).digest()
        if key not in self._kept:
            self._kept[key] = self._trunk(feats)
        return self._kept[key]


def quantized(file: ModelFile) -> segmentation.SegmentationModel:
    """The segmentation model with its back in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    shared, parts = segmentation_cut.open_front(file), segmentation_cut.cut(file)
    if shared is None or parts is None:
        sys.exit(f"{file.path}: does not begin like PyanNet")
    with tempfile.TemporaryDirectory() as scratch:
        back, small = Path(scratch, "back.onnx"), Path(scratch, "small.onnx")
        onnx.save(onnx.load_from_string(parts[1]), back)
        kinds = {"op_types_to_quantize": ["LSTM", "MatMul"], "weight_type": QuantType.QInt8}
        quantize_dynamic(back, small, per_channel=True, reduce_range=True, **kinds)
        return replace(shared, back=Model(str(small), "int8"))


def find(
    path: Path, ways: dict[str, Way], chosen: store.DiarizationModels, loaded: list[object], cache: Path
) -> dict[str, Found]:
    """What is found in a recording, by way; from the cache if it is there. `loaded`: models, once needed."""
    sound = path.with_suffix(".flac")
    digest = hashlib.sha256(
        sound.read_bytes()
        + (chosen.segmentation.sha256 + chosen.embedding.sha256 + f"faint {chosen.rule.faint}").encode()
    ).hexdigest()[:24]
    places = {name: cache / f"{digest}-{name.replace(' ', '')}.npz" for name in ways}
    missing = {name: ways[name] for name, place in places.items() if not place.exists()}
    if missing:
        if not loaded:
            loaded += [segmentation.load(chosen.segmentation), embedding.load(chosen.embedding)]
            if any(way.int8 for way in ways.values()):
                loaded.append(quantized(chosen.segmentation))
        samples, rate = soundfile.read(sound, dtype="float32")
        if rate != 16000:
            sys.exit(f"{sound}: {rate} samples per second; resample it to 16000")
        trunk = Remembering(loaded[1].trunk)
        voice = replace(loaded[1], trunk=trunk, block_trunk=trunk)
        for name, way in missing.items():
            trunk.seconds = 0.0
            windows = segmentation.segment(
                samples, loaded[2 if way.int8 else 0], step=way.step, faint=chosen.rule.faint
            )
            vectors = embedding.embed(samples, [windows], voice, context=way.context)
            np.savez(
                places[name],
                active=np.packbits(windows.active),
                starts=windows.starts,
                vectors=vectors,
                trunk=trunk.seconds,
            )
    return {name: _read(place) for name, place in places.items()}


def _read(place: Path) -> Found:
    with np.load(place) as kept:
        starts, vectors, trunk = kept["starts"], kept["vectors"], float(kept["trunk"])
        shape = len(starts), FRAMES, LOCAL_SPEAKERS
        active = np.unpackbits(kept["active"], count=int(np.prod(shape))).reshape(shape).astype(np.bool_)
    return Found(Segmentation(active, starts), vectors, trunk)


def turns(found: Found, chosen: store.DiarizationModels, duration: float, speakers: int | None) -> list[Turn]:
    bounds = clustering.SpeakerBounds(speakers or 1, speakers)
    windows = found.windows
    clusters = clustering.cluster(
        found.vectors, windows.active, chosen.rule, step=windows.step, bounds=bounds
    )
    whole = reconstruction.reconstruct(windows, clusters.labels)
    reconstruction.fill_pauses([whole.active], chosen.rule.pause)
    names = [str(number) for number in range(whole.active.shape[1])]
    return reconstruction.turns(whole.active.T, names, duration)


def score(reference: list[Turn], found: list[Turn], duration: float) -> list[float]:
    """False alarm, missed detection, confusion and speech in seconds, and speakers found minus true."""
    whole = Timeline([Segment(0, duration)])
    detail = DiarizationErrorRate()(annotation(reference), annotation(found), uem=whole, detailed=True)
    extra = len({turn.speaker for turn in found}) - len({turn.speaker for turn in reference})
    return [*(float(detail[part]) for part in PARTS), extra]


def annotation(turns: list[Turn]) -> Annotation:
    result = Annotation()
    for number, turn in enumerate(turns):
        result[Segment(turn.start, turn.end), number] = turn.speaker
    return result


def summary(scores: list[list[float]], first: list[list[float]]) -> dict[str, object]:
    """Pooled rates in percent, and the difference from the first way in percentage points."""
    seconds, other = np.array(scores), np.array(first)
    draws = np.random.default_rng(0).integers(len(seconds), size=(10_000, len(seconds)))
    difference = _rate(seconds[draws].sum(axis=1)) - _rate(other[draws].sum(axis=1))
    parts = 100 * seconds[:, :3].sum(axis=0) / seconds[:, 3].sum()
    return {
        "der": round(float(parts.sum()), 2),
        **{part.replace(" ", "_"): round(float(value), 2) for part, value in zip(PARTS, parts, strict=False)},
        "speakers_right": f"{int((seconds[:, 4] == 0).sum())} of {len(seconds)}",
        "difference": round(float(parts.sum() - _rate(other.sum(axis=0))), 2),
        "interval": [round(float(edge), 2) for edge in np.quantile(difference, [0.025, 0.975])],
    }


def _rate(seconds: np.ndarray) -> np.ndarray:
    return 100 * seconds[..., :3].sum(axis=-1) / seconds[..., 3]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--models", default="builtin", help="builtin, standard or a folder")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one recording of N, by name")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    chosen = store.diarization_models(args.models, offline=True)
    ways = dict(WAYS)
    if segmentation_cut.open_front(chosen.segmentation) is None:
        ways = {name: way for name, way in ways.items() if not way.int8}  # has no LSTM of PyanNet's
    args.cache.mkdir(parents=True, exist_ok=True)
    paths = sorted(args.folder.glob("*.rttm"))[:: args.every]
    if not paths:
        sys.exit(f"{args.folder}: has no FILE.rttm beside a FILE.flac")
    loaded: list[object] = []
    scores: dict[tuple[str, str], list[list[float]]] = {}
    work = {name: np.zeros(2) for name in ways}
    total = 0.0
    for number, path in enumerate(paths, start=1):
        (reference,) = rttm.parse(path.read_text()).values()
        duration = soundfile.info(path.with_suffix(".flac")).duration
        total += duration
        for name, found in find(path, ways, chosen, loaded, args.cache).items():
            work[name] += len(found.windows.starts), found.trunk_seconds
            for told, speakers in (("guessed", None), ("told", len({turn.speaker for turn in reference}))):
                who = turns(found, chosen, duration, speakers)
                scores.setdefault((told, name), []).append(score(reference, who, duration))
        sys.stderr.write(f"{number} of {len(paths)}: {path.stem}\n")
    result = {
        "models": {file.name: file.sha256 for file in (chosen.segmentation, chosen.embedding)},
        "recordings": [path.stem for path in paths],
        "hours": round(total / 3600, 2),
        "convention": "strict: collar 0, overlap counted, pooled",
        "ways": {
            name: {
                "windows_per_second": round(float(work[name][0]) / total, 3),
                "trunk_seconds_per_second": round(float(work[name][1]) / total, 3),
                **{told: summary(scores[told, name], scores[told, FIRST]) for told in ("guessed", "told")},
            }
            for name in ways
        },
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
    }
    report.show(result, args.json)


if __name__ == "__main__":
    main()
