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

import argparse
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import report
import soundfile
from steps import Found, score, summary, turns

from witness.bench import machine
from witness.diarization import embedding, segmentation, stretches, voice_model
from witness.diarization.fbank import HOP
from witness.diarization.stream import Networks, stream
from witness.formats import rttm
from witness.models import store
from witness.schema import FRAMES, Segmentation

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="campplus")
    parser.add_argument("--only", default="*", help="a pattern of file names")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
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
            found = Found(track.windows, vectors[way], 0.0)
            people = len({turn.speaker for turn in reference})
            tries = {
                "found": [(chosen, None)],
                "told": [(chosen, people)],
                "best": [
                    (replace(chosen, rule=replace(chosen.rule, threshold=float(at))), None)
                    for at in THRESHOLDS
                ],
            }
            for how, some in tries.items():
                scored = [score(reference, turns(found, one, duration, n), duration) for one, n in some]
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
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
    }
    report.show(document, args.json)


if __name__ == "__main__":
    main()
