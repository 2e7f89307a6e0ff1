"""Witness against sherpa-onnx: the same two models, the same recordings, the same threads, in one run.

    pip install '.[bench]'
    python benchmarks/against_sherpa.py FOLDER

FOLDER holds recordings (flac or wav, 16 kHz mono) with an RTTM of the same name. Both programs run in this
process one after the other on each recording, the order swapped every time, so that a slow moment of the
machine hits both. Models are loaded before the clock starts; decoding is not part of the time. sherpa-onnx
reads what it must know of a model from its metadata, so copies with metadata are made for it; the weights are
the same. Its threshold (complete linkage, 0.5) is its default and not made for these vectors, so both
programs are told the true number of speakers unless --guess is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import sherpa_onnx
import soundfile
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from witness import clustering, embedding, models, reconstruction, rttm, segmentation
from witness.schema import Turn
from witness.sessions import workers

Program = Callable[[np.ndarray, int | None], list[Turn]]

SEGMENTATION = {
    "num_speakers": 3,
    "powerset_max_classes": 2,
    "num_classes": 7,
    "sample_rate": 16000,
    "window_size": 160000,
    "receptive_field_size": 991,
    "receptive_field_shift": 270,
    "model_type": "pyannote-segmentation-3.0",
}
EMBEDDING = {
    "framework": "wespeaker",
    "language": "English",
    "url": "",
    "comment": "",
    "sample_rate": 16000,
    "output_dim": 256,
    "normalize_samples": 0,
    "feature_normalize_type": "global-mean",
}


def with_metadata(source: str, target: Path, values: dict[str, object]) -> str:
    model = onnx.load(source)
    onnx.helper.set_model_props(model, {key: str(value) for key, value in values.items()})
    onnx.save(model, target)
    return str(target)


def sherpa(segmentation_path: str, embedding_path: str, threads: int) -> Program:
    config = sherpa_onnx.OfflineSpeakerDiarizationConfig(
        segmentation=sherpa_onnx.OfflineSpeakerSegmentationModelConfig(
            pyannote=sherpa_onnx.OfflineSpeakerSegmentationPyannoteModelConfig(model=segmentation_path),
            num_threads=threads,
        ),
        embedding=sherpa_onnx.SpeakerEmbeddingExtractorConfig(model=embedding_path, num_threads=threads),
        clustering=sherpa_onnx.FastClusteringConfig(num_clusters=-1, threshold=0.5),
        min_duration_on=0.0,
        min_duration_off=0.0,
    )
    program = sherpa_onnx.OfflineSpeakerDiarization(config)

    def run(samples: np.ndarray, speakers: int | None) -> list[Turn]:
        config.clustering.num_clusters = speakers or -1
        program.set_config(config)
        result = program.process(samples).sort_by_start_time()
        return [Turn(part.start, part.end, str(part.speaker)) for part in result]

    return run


def witness(chosen: models.DiarizationModels, threads: int) -> Program:
    segmenter = segmentation.load(chosen.segmentation)
    voice = embedding.load(chosen.embedding)

    def run(samples: np.ndarray, speakers: int | None) -> list[Turn]:
        bounds = clustering.SpeakerBounds(speakers or 1, speakers)
        duration = len(samples) / 16000
        with workers(threads) as mapper:
            windows = segmentation.segment(samples, segmenter, mapper=mapper)
            vectors = embedding.embed(samples, [windows], voice, mapper=mapper)
        clusters = clustering.cluster(vectors, windows.active, chosen.rule, bounds=bounds)
        found = reconstruction.reconstruct(windows, clusters.labels, pause=chosen.rule.pause)
        names = [str(number) for number in range(found.active.shape[1])]
        return reconstruction.turns(found.active.T, names, duration)

    return run


def annotation(turns: list[Turn]) -> Annotation:
    result = Annotation()
    for number, turn in enumerate(turns):
        result[Segment(turn.start, turn.end), number] = turn.speaker
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="builtin", help="builtin, standard or a folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--guess", action="store_true", help="both find out the number of speakers")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="pyannote")

    chosen = models.diarization_models(args.models, offline=True)
    with tempfile.TemporaryDirectory() as scratch:
        theirs = sherpa(
            with_metadata(chosen.segmentation.path, Path(scratch, "segmentation.onnx"), SEGMENTATION),
            with_metadata(chosen.embedding.path, Path(scratch, "embedding.onnx"), EMBEDDING),
            args.threads,
        )
    programs = {"witness": witness(chosen, args.threads), "sherpa-onnx": theirs}
    errors = {name: DiarizationErrorRate() for name in programs}
    seconds = {name: np.zeros(args.repeat) for name in programs}
    audio, digest = 0.0, hashlib.sha256()
    references = sorted(args.folder.glob("*.rttm"))
    for place, path in enumerate(references):
        samples, rate = soundfile.read(path.with_suffix(".flac"), dtype="float32")
        if rate != 16000:
            sys.exit(f"{path.with_suffix('.flac')}: {rate} samples per second, 16000 are needed; resample it")
        audio += len(samples) / rate
        digest.update(path.read_bytes())
        (turns,) = rttm.parse(path.read_text()).values()
        speakers = None if args.guess else len({turn.speaker for turn in turns})
        whole = Timeline([Segment(0, len(samples) / rate)])
        for round_ in range(args.repeat):
            order = list(programs) if (place + round_) % 2 else list(programs)[::-1]
            for name in order:
                begun = time.perf_counter()
                found = programs[name](samples, speakers)
                seconds[name][round_] += time.perf_counter() - begun
                if round_ == 0:
                    errors[name](annotation(turns), annotation(found), uem=whole)
        sys.stderr.write(f"{path.stem}: {place + 1} of {len(references)}\n")

    ratios = seconds["sherpa-onnx"] / seconds["witness"]
    result = {
        "models": chosen.name,
        "speakers": "guessed" if args.guess else "told",
        "recordings": len(references),
        "references_sha256": digest.hexdigest(),
        "audio_seconds": round(audio, 1),
        "threads": args.threads,
        "repeat": args.repeat,
        "convention": "strict: collar 0, overlap counted, pooled",
        "programs": {
            name: {
                "seconds": [round(float(value), 2) for value in seconds[name]],
                "times_real_time": round(audio / float(np.median(seconds[name])), 1),
                "der": round(100 * abs(errors[name]), 2),
                **{
                    part.replace(" ", "_"): round(100 * value / errors[name].accumulated_["total"], 2)
                    for part, value in errors[name].accumulated_.items()
                    if part in ("false alarm", "missed detection", "confusion")
                },
            }
            for name in programs
        },
        "ratio": [round(float(value), 2) for value in (ratios.min(), np.median(ratios), ratios.max())],
        "hardware": f"{platform.machine()}, {processor()}",
        "versions": {
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
            "sherpa-onnx": sherpa_onnx.__version__,
        },
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
