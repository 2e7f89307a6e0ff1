"""Witness against sherpa-onnx: the same two models, the same recordings, the same threads, in one run.

    pip install '.[bench]'
    python benchmarks/against_sherpa.py FOLDER
    python benchmarks/against_sherpa.py FOLDER --conversation 10 --repeat 7 --json OUT.json

FOLDER holds recordings (FLAC, 16 kHz, mono) with an RTTM of the same name. --conversation joins them to one
of that many minutes: the longest first, one after the other, the last one cut; a name in two of them is one
person. The programs run in this process one after the other on each recording, in another order every time,
so that a slow moment of the machine affects all of them. Models are loaded before the clock starts; decoding
is not part of the time. sherpa-onnx reads what it must know about a model from its metadata, so it gets
copies with metadata; the weights are the same. Its threshold (complete linkage, 0.5) is its default and not
made for these vectors, so all programs are told the true number of speakers unless --guess is given.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import harness
import numpy as np
import onnx
import sherpa_onnx
import soundfile

from witness import Engine, Options, Runtime
from witness.bench import scoring
from witness.formats import rttm
from witness.models import store
from witness.options import Device
from witness.schema import Turn


@dataclass(frozen=True)
class Recording:
    name: str
    samples: np.ndarray
    turns: list[Turn]


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


def witness(models: str, threads: int, *, fast: bool) -> Program:
    """The program itself, with its models open."""
    options = Options(models=models, whisper="none", fast=fast, offline=True)
    engine = Engine(options, Runtime(device=Device.CPU, threads=threads))
    engine.open()

    def run(samples: np.ndarray, speakers: int | None) -> list[Turn]:
        told = engine.share(replace(options, speakers=speakers))
        return list(told.transcribe((samples, 16000)).turns)

    return run


def recordings(folder: Path) -> list[Recording]:
    """Every FILE.flac with a FILE.rttm."""
    found = []
    for path in sorted(folder.glob("*.rttm")):
        samples, rate = soundfile.read(path.with_suffix(".flac"), dtype="float32")
        if rate != 16000:
            sys.exit(f"{path.with_suffix('.flac')}: {rate} samples per second; resample it to 16000")
        (turns,) = rttm.parse(path.read_text()).values()
        found.append(Recording(path.stem, samples, turns))
    if not found:
        sys.exit(f"{folder}: has no FILE.rttm beside a FILE.flac")
    return found


def conversation(parts: list[Recording], minutes: float) -> Recording:
    """The longest of them joined, `minutes` in total."""
    length = round(60 * minutes * 16000)
    if sum(len(part.samples) for part in parts) < length:
        sys.exit(f"the recordings are shorter than {minutes:g} minutes; ask for fewer")
    turns: list[Turn] = []
    taken: list[np.ndarray] = []
    begun = 0
    for part in sorted(parts, key=lambda part: (-len(part.samples), part.name)):
        if begun >= length:
            break
        shift, end = begun / 16000, length / 16000
        turns += [
            Turn(shift + turn.start, min(shift + turn.end, end), turn.speaker)
            for turn in part.turns
            if shift + turn.start < end
        ]
        taken.append(part.samples)
        begun += len(part.samples)
    return Recording(f"{minutes:g} minutes", np.concatenate(taken)[:length], turns)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="builtin", help="builtin, standard or a folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--conversation", type=float, metavar="MINUTES", help="join all recordings to one")
    parser.add_argument("--guess", action="store_true", help="let the programs detect the number of speakers")
    args = parser.parse_args()

    chosen = store.diarization_models(args.models, offline=True)
    with tempfile.TemporaryDirectory() as scratch:
        theirs = sherpa(
            with_metadata(chosen.segmentation.path, Path(scratch, "segmentation.onnx"), SEGMENTATION),
            with_metadata(chosen.embedding.path, Path(scratch, "embedding.onnx"), EMBEDDING),
            args.threads,
        )
    programs = {
        "witness": witness(args.models, args.threads, fast=False),
        "witness --fast": witness(args.models, args.threads, fast=True),
        "sherpa-onnx": theirs,
    }
    errors = {name: np.zeros(4) for name in programs}
    seconds = {name: np.zeros(args.repeat) for name in programs}
    parts = recordings(args.folder)
    if args.conversation:
        parts = [conversation(parts, args.conversation)]
    for place, part in enumerate(parts):
        speakers = None if args.guess else len({turn.speaker for turn in part.turns})
        whole = {part.name: [(0.0, len(part.samples) / 16000)]}
        for number, name in harness.in_turn(list(programs), args.repeat):
            begun = time.perf_counter()
            found = programs[name](part.samples, speakers)
            seconds[name][number] += time.perf_counter() - begun
            if number == 0:
                (score,) = scoring.score({part.name: (part.turns, found)}, whole)
                errors[name] += score.seconds["strict"]
        sys.stderr.write(f"{part.name}: {place + 1} of {len(parts)}\n")

    audio = sum(len(part.samples) for part in parts) / 16000
    references = "".join(rttm.serialize(part.name, part.turns) for part in parts)
    result = {
        "models": {file.name: file.sha256 for file in (chosen.segmentation, chosen.embedding)},
        "speakers": "guessed" if args.guess else "told",
        "recordings": len(parts),
        "references_sha256": hashlib.sha256(references.encode()).hexdigest(),
        "audio_seconds": round(audio, 1),
        "threads": args.threads,
        "repeat": args.repeat,
        "convention": "strict: collar 0, overlap counted, pooled",
        "programs": {
            name: {
                "seconds": [round(float(value), 2) for value in seconds[name]],
                "times_real_time": round(audio / float(np.median(seconds[name])), 1),
                "der": round(float(100 * errors[name][:3].sum() / errors[name][3]), 2),
                **{
                    part: round(float(100 * value / errors[name][3]), 2)
                    for part, value in zip(scoring.Seconds._fields[:3], errors[name], strict=False)
                },
            }
            for name in programs
        },
        "times_sherpa_onnx": {
            name: harness.ratio(seconds["sherpa-onnx"], seconds[name])
            for name in programs
            if name != "sherpa-onnx"
        },
    }
    harness.show(result, args.json, **{"sherpa-onnx": sherpa_onnx.__version__})


if __name__ == "__main__":
    main()
