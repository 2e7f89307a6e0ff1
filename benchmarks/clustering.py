"""Every way to cluster, on the same recordings and the same arrays: what the defaults were decided by.

    python benchmarks/conversations.py --train TRAIN --rttm DEV --out FOLDER
    python benchmarks/clustering.py FOLDER --cache CACHE [--models builtin|DIR] [--json FILE]

FOLDER holds FILE.flac beside FILE.rttm. Segmentation and voice vectors are computed once for each recording and
kept in CACHE under the sha256 of the models, so new weights need nothing but this command.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from witness import audio, embedding, models, rttm, segmentation
from witness.schema import FRAMES, LOCAL_SPEAKERS, Bool, Float32, Float64, Segmentation, Turn


@dataclass(frozen=True)
class Case:
    """One recording as the clustering sees it."""

    name: str
    duration: float
    windows: Segmentation
    vectors: Float32
    reference: list[Turn]


def cases(folder: Path, cache: Path, chosen: models.DiarizationModels, threads: int) -> list[Case]:
    """Every recording with a reference, from the cache where it is there."""
    cache.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.glob("*.rttm"))
    if not paths:
        sys.exit(
            f"{folder}: no FILE.rttm beside FILE.flac there; benchmarks/conversations.py makes such a folder"
        )
    loaded: list[object] = []
    found = []
    for number, path in enumerate(paths, start=1):
        sound = path.with_suffix(".flac")
        digest = hashlib.sha256(sound.read_bytes()).hexdigest()[:16]
        bits = cache / f"{digest}-{chosen.segmentation.sha256[:16]}.npz"
        voice = cache / f"{digest}-{chosen.segmentation.sha256[:16]}-{chosen.embedding.sha256[:16]}.npz"
        if not bits.exists() or not voice.exists():
            if not loaded:
                loaded = [segmentation.load(chosen.segmentation), embedding.load(chosen.embedding)]
            recording = audio.load(str(sound))
            (samples,) = recording.samples
            if not bits.exists():
                windows = segmentation.segment(samples, loaded[0], threads=threads)  # type: ignore[arg-type]
                np.savez(bits, active=np.packbits(windows.active), duration=recording.source.duration)
            windows = _windows(bits)
            vectors = embedding.embed(samples, windows, loaded[1], threads=threads)  # type: ignore[arg-type]
            np.savez(voice, vectors=vectors)
            print(f"{number} of {len(paths)}: {path.stem}", file=sys.stderr)  # noqa: T201
        (reference,) = rttm.parse(path.read_text()).values()
        duration = float(np.load(bits)["duration"])
        found.append(Case(path.stem, duration, _windows(bits), np.load(voice)["vectors"], reference))
    return found


def _windows(bits: Path) -> Segmentation:
    flat = np.unpackbits(np.load(bits)["active"])
    whole = len(flat) // (FRAMES * LOCAL_SPEAKERS) * (FRAMES * LOCAL_SPEAKERS)
    return Segmentation(flat[:whole].reshape(-1, FRAMES, LOCAL_SPEAKERS).astype(np.bool_), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="builtin", help="builtin, standard, community-1 or a folder")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    chosen = models.diarization_models(args.models, offline=True)
    cases(args.folder, args.cache, chosen, args.threads)


if __name__ == "__main__":
    main()
