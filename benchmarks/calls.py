"""Calls with a side in each channel: how many people are found on a side, and what that does to the DER.

    python benchmarks/calls.py --train TRAIN --rttm DEV --out FOLDER [--count 30] [--json FILE]

The voices and pauses are those of conversations.py. In a third of the calls two people take turns on the
first side. Each side is heard in the other one's channel 20, 34 or 45 dB fainter and up to 0.1 s later, or
not at all; both have noise at -60, -70 or -80 dBFS. FOLDER keeps the recordings and what the models found in
them. "free" is the clustering of each side as of any recording, "sides" what Witness does. DER: collar 0,
overlap counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import report
import soundfile
from clustering import errors
from conversations import FRAME, RATE, Voice, _call, _channel, _pauses, _speak, load
from scipy.signal import fftconvolve

from witness import Engine, Options
from witness.diarization.clustering import SpeakerBounds
from witness.formats import findings, rttm
from witness.schema import Float32, Float64, Turn
from witness.transcript import assemble

SEED = 99
SECONDS = 60, 90, 120, 180
BLEED = None, -34, -20, -34, -45  # dB
NOISE = -80, -60, -80, -70  # dBFS


def render(number: int, voices: list[Voice], pauses: np.ndarray) -> tuple[str, Float32, list[Turn]]:
    """Name, (samples, 2) and reference; the voices of the first side are 0 and 2, that of the second is 1."""
    rng = np.random.default_rng([SEED, number])
    order = np.random.default_rng(7).permutation(len(voices))
    people = 2 if number % 3 else 3
    bleed, noise = BLEED[number % len(BLEED)], NOISE[number // 2 % len(NOISE)]
    turns = _call(rng, pauses, SECONDS[number % len(SECONDS)])
    if people == 3:  # the telephone is handed over every four turns
        first = [turn for turn in turns if turn[2] == 0]
        later = [turn for place, turn in enumerate(first, start=1) if place // 4 % 2]
        turns = [(*turn[:2], 2) if turn in later else turn for turn in turns]
    total = SECONDS[number % len(SECONDS)] * RATE // FRAME * FRAME
    sides = np.zeros((2, total), np.float32)
    reference = []
    for seat in range(people):
        voice = voices[order[(3 * number + seat) % len(order)]]
        track, flags = _speak(rng, voice, [turn for turn in turns if turn[2] == seat], total)
        track = fftconvolve(track, _channel(rng, telephone=number % 2 == 0))[:total]
        level = np.sqrt((track[np.repeat(flags, FRAME)] ** 2).mean() + 1e-12)
        sides[seat % 2] += (0.05 / level * 10 ** (rng.uniform(-4, 4) / 20) * track).astype(np.float32)
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2) / 100
        reference += [Turn(float(start), float(end), f"voice{seat}") for start, end in edges]
    if bleed is not None:
        late = np.roll(sides[::-1], int(rng.uniform(0.01, 0.1) * RATE), axis=1)
        sides = sides + late * 10 ** (bleed / 20)
    sides = 0.9 * sides / np.abs(sides).max()
    sides = sides + 10 ** (noise / 20) * rng.standard_normal(sides.shape)
    name = f"call_{number:02d}_{people}spk_bleed{bleed}_noise{noise}"
    return name, np.clip(sides, -1, 1).T.astype(np.float32), sorted(reference)


def recordings(train: Path, dev: Path, out: Path, count: int) -> Iterator[tuple[str, assemble.Findings]]:
    """The name of each call and what the models find in it; the reference is beside the recording."""
    engine = Engine(Options(models="builtin", whisper="none", offline=True))
    voices, _ = load(train)
    pauses = _pauses(
        [next(iter(rttm.parse(path.read_text()).values())) for path in sorted(dev.glob("*.rttm"))]
    )
    for number in range(count):
        name, samples, reference = render(number, voices, pauses)
        kept = out / f"{name}.stages.npz"
        if not kept.exists():
            soundfile.write(out / f"{name}.flac", samples, RATE, subtype="PCM_16")
            (out / f"{name}.rttm").write_text(rttm.serialize(name, reference))
            found = engine.transcribe(str(out / f"{name}.flac")).findings
            if found is not None:  # it always is after a run
                kept.write_bytes(findings.encode(found))
        yield name, findings.decode(kept.read_bytes(), str(kept))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--rttm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[tuple[Float64, bool]]] = {}
    for name, found in recordings(args.train, args.rttm, args.out, args.count):
        if found.channels != "call":
            sys.stdout.write(f"{name}: is not taken for a call\n")
            continue
        (reference,) = rttm.parse((args.out / f"{name}.rttm").read_text()).values()
        people = [name.count("3spk") + 1, 1]
        for way, side in (("free", assemble._diarize), ("sides", assemble._side)):
            who = [side(found, number, SpeakerBounds()) for number in (0, 1)]
            turns = sorted(turn for one in who for turn in one.turns(found.audio.heard))
            counts = [len(one.names) for one in who]
            kind = f"{way}, {'two on a side' if people[0] == 2 else 'one on each side'}"
            rows.setdefault(kind, []).append(
                (errors(reference, turns, found.audio.duration), counts == people)
            )
            sys.stdout.write(f"{name} {way}: {counts} of {people}\n")
    document = {}
    for kind, found_ in sorted(rows.items()):
        total = sum(row for row, _ in found_)
        document[kind] = {
            "calls": len(found_),
            "right_numbers": sum(right for _, right in found_),
            "der": round(100 * total[:3].sum() / total[3], 2),
            "confusion": round(100 * total[2] / total[3], 2),
        }
    report.show({"convention": "strict: collar 0, overlap counted", **document}, args.json)


if __name__ == "__main__":
    main()
