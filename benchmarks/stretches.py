"""What sharing stretches of speech between windows saves, and what it changes.

    pip install '.[bench]'
    python benchmarks/stretches.py FOLDER [FOLDER ...] --json benchmarks/results/stretches.json

FOLDERs hold FILE.flac beside FILE.rttm. For a voice model that looks at a whole stretch of speech
(`diarization.stretches`), in one run and in turn: the processor time of the diarization of each recording
with the builtin set and with this one, on one thread, the least of ROUNDS; and strict DER with shared
stretches and with every local speaker's own clean speech, found, with the true number of speakers told, and
with the best of 14 thresholds for each file, which no flip of one threshold decides.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import harness
import numpy as np
import soundfile

from witness.bench import scoring
from witness.diarization import (
    clustering,
    embedding,
    reconstruction,
    segmentation,
    stretches,
    voice_model,
)
from witness.diarization.fbank import HOP
from witness.diarization.stream import Networks, stream
from witness.formats import rttm
from witness.models import store
from witness.schema import FRAMES, Float32, Rule, Segmentation, Turn

ROUNDS = 3
THRESHOLDS = np.arange(0.70, 1.36, 0.05)


def own(windows: Segmentation, features: int) -> stretches.Shared:
    """As `stretches.divide`: all clean speech of each local speaker of each window is their own stretch."""
    masks = embedding.clean_masks(windows.active)
    offsets = -(-windows.starts // HOP)
    places = np.arange(stretches.WINDOW) * FRAMES // stretches.WINDOW
    found, of = [], {}
    for window, speaker in np.argwhere(masks.sum(axis=1) >= embedding.MIN_ACTIVE).tolist():
        frames = np.flatnonzero(masks[window, places, speaker]) + offsets[window]
        if len(frames := frames[frames < features]):
            of[window, speaker] = [(len(found), len(frames))]
            found.append(frames)
    return stretches.Shared(found, of)


def score(
    reference: list[Turn],
    windows: Segmentation,
    vectors: Float32,
    rule: Rule,
    duration: float,
    speakers: int | None,
) -> list[float]:
    """Seconds of false alarm, missed detection, confusion and speech, and speakers too many."""
    bounds = clustering.SpeakerBounds(speakers or 1, speakers)
    who = clustering.cluster(vectors, windows.active, rule, step=windows.step, bounds=bounds)
    whole = reconstruction.reconstruct(windows, who.labels)
    reconstruction.fill_pauses([whole.active], rule.pause)
    names = [str(number) for number in range(whole.active.shape[1])]
    found = reconstruction.turns(whole.active.T, names, duration)
    (file,) = scoring.score({"": (reference, found)}, {"": [(0.0, duration)]})
    return [*file.seconds["strict"], file.hypothesis_speakers - file.reference_speakers]


def summary(scores: list[list[float]], others: list[list[float]]) -> dict[str, object]:
    """Pooled DER in percent, and the difference from other scores of the same recordings."""
    seconds, other = np.array(scores), np.array(others)
    draws = np.random.default_rng(0).integers(len(seconds), size=(10_000, len(seconds)))

    def rate(some: np.ndarray) -> np.ndarray:
        return 100 * some[..., :3].sum(axis=-1) / some[..., 3]

    change = rate(seconds[draws].sum(axis=1)) - rate(other[draws].sum(axis=1))
    return {
        "der": round(float(rate(seconds.sum(axis=0))), 2),
        "speakers_right": f"{int((seconds[:, 4] == 0).sum())} of {len(seconds)}",
        "difference": round(float(rate(seconds.sum(axis=0)) - rate(other.sum(axis=0))), 2),
        "interval": [round(float(edge), 2) for edge in np.quantile(change, [0.025, 0.975])],
    }


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="campplus")
    parser.add_argument("--only", default="*", help="a pattern of file names")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()

    sets = {name: store.diarization_models(name, offline=True) for name in ("builtin", args.models)}
    networks = {
        name: Networks(segmentation.load(one.segmentation), voice_model.load(one.embedding), one.rule.faint)
        for name, one in sets.items()
    }
    chosen = sets[args.models]
    paths = [path for folder in args.folders for path in sorted(folder.glob(f"{args.only}.rttm"))]
    seconds = dict.fromkeys(sets, 0.0)
    heard = {"shared": 0, "own": 0}
    scores: dict[tuple[str, str], list[list[float]]] = {}
    total = 0.0
    for path in paths:
        (reference,) = rttm.parse(path.read_text()).values()
        sound = next(iter(sorted(path.parent.glob(f"{path.stem}.*[gc]"))))  # flac or ogg
        samples, rate = soundfile.read(sound, dtype="float32", always_2d=True)
        assert rate == 16_000  # noqa: S101 - the format of the folder
        samples = samples.mean(axis=1)
        duration = len(samples) / rate
        total += duration
        least = dict.fromkeys(sets, np.inf)
        for _ in range(args.rounds):
            for name in sets:
                begun = time.process_time()
                track = stream(samples, networks[name])
                least[name] = min(least[name], time.process_time() - begun)
        for name in sets:
            seconds[name] += least[name]
        vectors = {"shared": track.vectors}
        with patch.object(stretches, "divide", own):
            vectors["own"] = voice_model.embed(samples, [track.windows], networks[args.models].voice)
        features = stretches.frame_count(len(samples))
        for way, divide in (("shared", stretches.divide), ("own", own)):
            heard[way] += sum(map(len, divide(track.windows, features).stretches))
            people = len({turn.speaker for turn in reference})
            tries: dict[str, list[tuple[Rule, int | None]]] = {
                "found": [(chosen.rule, None)],
                "told": [(chosen.rule, people)],
                "best": [(replace(chosen.rule, threshold=float(at)), None) for at in THRESHOLDS],
            }
            for how, some in tries.items():
                scored = [
                    score(reference, track.windows, vectors[way], rule, duration, n) for rule, n in some
                ]
                scores.setdefault((how, way), []).append(min(scored, key=lambda parts: sum(parts[:3])))
    document = {
        "models": {file.name: file.sha256 for file in (chosen.segmentation, chosen.embedding)},
        "rule": str(chosen.rule),
        "recordings": [path.stem for path in paths],
        "hours": round(total / 3600, 3),
        "processor_ms_per_second": {name: round(1000 * least / total, 1) for name, least in seconds.items()},
        "processor_time_ratio": round(seconds[args.models] / seconds["builtin"], 2),
        "seconds_heard_per_second": {
            way: round(frames * HOP / 16_000 / total, 2) for way, frames in heard.items()
        },
        "convention": "strict: collar 0, overlap counted, pooled; difference is shared minus own",
        "ways": {
            how: {way: summary(scores[how, way], scores[how, "own"]) for way in ("own", "shared")}
            for how in ("found", "told", "best")
        },
    }
    harness.show(document, args.json)


if __name__ == "__main__":
    main()
