"""Conversations to choose clustering by: voices no builtin model learned from, turns as in VoxConverse DEV.

    python benchmarks/conversations.py --train TRAIN --rttm DEV --out FOLDER

TRAIN is in the format of training/data.py (partN.ogg and index.json). The voices are its 80 training speakers
that were set aside (`Corpus.dev`: training knows of them, but the networks never heard them). DEV holds RTTM
files. A stretch of one of them says who speaks when, so the lengths of turns and pauses, overlaps, dominance
and rare speakers are real. Calls are planned instead: two voices, short turns, one telephone line. In half of
the recordings all voices go through one channel, with one long-term spectrum and one bed of noise, so that a
channel cannot be mistaken for a voice. In the others each voice has its own channel, and some change theirs
halfway. The output is FILE.flac beside FILE.rttm; the same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile
from scipy.ndimage import gaussian_filter1d, maximum_filter1d, minimum_filter1d, uniform_filter1d
from scipy.signal import fftconvolve, firwin2, resample_poly, welch

from witness.formats import rttm
from witness.schema import Float32, Turn

RATE = 16_000
FRAME = 160  # samples: 10 ms, in which references are counted
SEED = 20261121
TRAIN, NOISE = 0, 2  # values of the index's split column
KEPT_BACK = 60, 20  # Common Voice and LibriSpeech speakers, as training/data.py
NOISE_ROWS = slice(2, 409)  # as training/data.py: the others are behind the recordings of shared/data/eval
STEADY = 3.0  # dB: deviation of a noise's level below which it can be a bed
GRID = np.linspace(0.0, 8000.0, 65)  # Hz, of filters

KINDS = (  # -> how many, seconds from, to, speakers
    ("short", 16, 30, 60, (1, 2, 2, 3, 3, 4, 2, 5)),
    ("call", 16, 30, 100, (2,)),
    ("medium", 17, 90, 210, (1, 2, 3, 4, 5, 6, 7, 8)),
    ("long", 5, 610, 720, (2, 3, 4, 6, 8)),
    ("half-hour", 1, 1800, 1800, (4,)),
)


@dataclass(frozen=True)
class Voice:
    """One person's clips, without the silence before and after."""

    clips: list[Float32]
    flags: list[np.ndarray]
    """(frames,) bool of each clip: whether there is speech in each 10 ms."""


@dataclass(frozen=True)
class Plan:
    """What one recording is to contain."""

    name: str
    turns: list[tuple[float, float, int]]
    """Start and end in seconds, and the seat: which of the voices it is."""
    seconds: float
    same_channel: bool
    telephone: bool


def speech_flags(samples: Float32) -> np.ndarray:
    """(frames,) bool, pauses under 0.4 s bridged: the rule of training/data.py, which needs torch."""
    frames = len(samples) // FRAME
    power = ((32767 * samples[: frames * FRAME]).reshape(frames, FRAME) ** 2).mean(1)
    level = uniform_filter1d(10 * np.log10(np.maximum(1, power)), 5, mode="nearest")
    loud, quiet = np.quantile(level, 0.95), np.quantile(level, 0.05)
    flags = (level > max(loud - 32, min(quiet + 9, loud - 14))).astype(np.uint8)
    flags = maximum_filter1d(minimum_filter1d(maximum_filter1d(flags, 3), 5), 3)
    return minimum_filter1d(maximum_filter1d(flags, 41, mode="constant"), 37, mode="nearest").astype(bool)


def load(train: Path) -> tuple[list[Voice], list[Float32]]:
    """The speakers that were set aside, and steady noises."""
    meta = json.loads((train / "index.json").read_text())
    rows, names = np.array(meta["index"]), meta["speakers"]
    clips = np.bincount(rows[rows[:, 4] == TRAIN, 3], minlength=len(names))
    common = [i for i, name in enumerate(names) if name.startswith("train/commonvoice/") and clips[i] >= 3]
    libri = [i for i, name in enumerate(names) if name.startswith("train/librispeech") and clips[i] >= 1]
    chosen = sorted(common, key=lambda i: names[i])[: KEPT_BACK[0]] + libri[: KEPT_BACK[1]]
    noise = np.flatnonzero(rows[:, 4] == NOISE)[NOISE_ROWS]
    wanted = np.concatenate([np.flatnonzero(np.isin(rows[:, 3], chosen) & (rows[:, 4] == TRAIN)), noise])
    found = {}
    for part in np.unique(rows[wanted, 0]):
        audio, rate = soundfile.read(train / f"part{part}.ogg", dtype="float32")
        audio = audio if rate == RATE else resample_poly(audio, 1, rate // RATE).astype(np.float32)
        for row in wanted[rows[wanted, 0] == part]:
            found[int(row)] = audio[rows[row, 1] : rows[row, 1] + rows[row, 2]].copy()
    voices = []
    for speaker in chosen:
        voice = Voice([], [])
        for row in np.flatnonzero((rows[:, 3] == speaker) & (rows[:, 4] == TRAIN)):
            flags = speech_flags(found[int(row)])
            heard = np.flatnonzero(flags)
            if len(heard) < 50:
                continue
            first, last = heard[0], heard[-1] + 1
            voice.clips.append(found[int(row)][first * FRAME : last * FRAME])
            voice.flags.append(flags[first:last])
        if voice.clips:
            voices.append(voice)
    beds = [found[int(row)] for row in noise if _steady(found[int(row)])]
    return voices, beds


def _steady(samples: Float32) -> bool:
    blocks = samples[: len(samples) // 1600 * 1600].reshape(-1, 1600)
    levels = 10 * np.log10((blocks**2).mean(1) + 1e-9)
    return len(levels) >= 30 and levels.std() < STEADY and levels.mean() > -60


def plans(folder: Path) -> list[Plan]:
    """All recordings, with turns from the RTTM files in `folder`."""
    templates = [next(iter(rttm.parse(path.read_text()).values())) for path in sorted(folder.glob("*.rttm"))]
    if not templates:
        sys.exit(f"{folder}: has no RTTM files; check --rttm")
    pauses = _pauses(templates)
    rng = np.random.default_rng(SEED)
    found = []
    for kind, count, low, high, speakers in KINDS:
        for number in range(count):
            people = speakers[number % len(speakers)]
            seconds = float(round(low + (high - low) * number / max(1, count - 1)))
            # Counted in pairs, so that every number of speakers meets both.
            same = number // len(speakers) % 2 == number % 2
            if kind == "call":
                turns = _call(rng, pauses, seconds)
                same = number % 4 != 3
            else:
                turns = _stretch(rng, templates, people, seconds)
            name = f"{kind}_{number:02d}_{people}spk_{'same' if same else 'own'}"
            found.append(Plan(name, turns, seconds, same, telephone=kind == "call" and number % 2 == 0))
    return found


def _pauses(templates: Sequence[list[Turn]]) -> np.ndarray:
    """Seconds from the end of a turn to the next turn of another speaker; below zero for an overlap."""
    found = []
    for turns in templates:
        ordered = sorted(turns)
        found += [b.start - a.end for a, b in pairwise(ordered) if a.speaker != b.speaker]
    pauses = np.array(found)
    return np.sort(pauses[(pauses > -1.0) & (pauses < 2.0)])


def _call(rng: np.random.Generator, pauses: np.ndarray, seconds: float) -> list[tuple[float, float, int]]:
    turns, now, seat = [], 0.5, 0
    while now < seconds - 1:
        # Median 2 s: half of the length of VoxConverse DEV's, whose speakers make speeches.
        length = float(np.clip(np.exp(np.log(2.0) + 0.9 * rng.standard_normal()), 0.4, 15.0))
        turns.append((max(0.0, now), min(now + length, seconds), seat))
        now += length + float(rng.choice(pauses))
        seat = 1 - seat
    return turns


def _stretch(
    rng: np.random.Generator, templates: Sequence[list[Turn]], people: int, seconds: float
) -> list[tuple[float, float, int]]:
    """A stretch of a template with that many speakers of 2 s or more each; short templates are repeated."""
    for _ in range(20_000):
        turns = templates[int(rng.integers(len(templates)))]
        end = max(turn.end for turn in turns)
        copies = int(np.ceil(seconds / end)) if seconds > 1000 and end > seconds / 2 else 1
        if copies * end < seconds:
            continue
        at = float(rng.uniform(0, copies * end - seconds))
        cut = [
            (max(turn.start + copy * end - at, 0.0), min(turn.end + copy * end - at, seconds), turn.speaker)
            for copy in range(copies)
            for turn in turns
        ]
        cut = [turn for turn in cut if turn[1] - turn[0] > 0.2]
        spoken: dict[str, float] = {}
        for start, stop, name in cut:
            spoken[name] = spoken.get(name, 0.0) + stop - start
        if len(spoken) == people and min(spoken.values()) >= 2.0 and sum(spoken.values()) > 0.6 * seconds:
            seats = {name: seat for seat, name in enumerate(sorted(spoken))}
            return sorted((start, stop, seats[name]) for start, stop, name in cut)
    raise SystemExit(f"no stretch of {seconds} s with {people} speakers in these RTTM files")


def render(
    plan: Plan, number: int, voices: Sequence[Voice], beds: Sequence[Float32]
) -> tuple[Float32, list[Turn]]:
    """(samples,) and the reference: the speech in the clips, not the plan."""
    rng = np.random.default_rng([SEED, number])
    seats = 1 + max(seat for *_, seat in plan.turns)
    # Neighboring recordings take neighboring voices of one shuffled list, so all are used equally often.
    order = np.random.default_rng(SEED).permutation(len(voices))
    cast = [voices[order[(5 * number + seat) % len(order)]] for seat in range(seats)]
    total = int(plan.seconds * RATE) // FRAME * FRAME
    shared = _channel(rng, plan.telephone)
    spectra = [_spectrum(np.concatenate(voice.clips)) for voice in cast]
    common = np.mean(spectra, axis=0)
    mix = np.zeros(total, np.float32)
    reference = []
    for seat, voice in enumerate(cast):
        track, flags = _speak(rng, voice, [turn for turn in plan.turns if turn[2] == seat], total)
        if plan.same_channel:
            track = _filter(track, np.clip(common - spectra[seat], -12, 12))
            track = fftconvolve(track, shared)[:total]
        else:
            half = total // 2
            parts = [track]
            if rng.random() < 0.15:  # another microphone from the middle on
                parts = [
                    np.where(np.arange(total) < half, track, 0),
                    np.where(np.arange(total) < half, 0, track),
                ]
            track = sum(_line(rng, part, plan.telephone, beds) for part in parts)
        level = np.sqrt((track[np.repeat(flags, FRAME)] ** 2).mean() + 1e-12)
        mix += (0.05 / level * 10 ** (np.clip(4 * rng.standard_normal(), -8, 8) / 20) * track).astype(
            np.float32
        )
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2) / 100
        reference += [Turn(float(start), float(end), f"voice{seat}") for start, end in edges]
    noise = _bed(rng, beds, total)
    mix += noise * 0.05 * 10 ** (-rng.uniform(8, 32) / 20)
    return (0.5 * mix / np.abs(mix).max()).astype(np.float32), sorted(reference)


def _speak(
    rng: np.random.Generator, voice: Voice, turns: list[tuple[float, float, int]], total: int
) -> tuple[Float32, np.ndarray]:
    """One voice: (total,) samples, and (frames,) where it speaks. Clips continue where they were left."""
    track, flags = np.zeros(total, np.float32), np.zeros(total // FRAME, bool)
    clip, at = int(rng.integers(len(voice.clips))), 0
    for start, stop, _ in turns:
        now, end = round(start * 100), min(round(stop * 100), len(flags))
        # The same words never sound quite the same: another tilt and level.
        tilt, gain = rng.uniform(-0.15, 0.15), 10 ** (rng.uniform(-1.5, 1.5) / 20)
        while now < end:
            size = min(end - now, len(voice.flags[clip]) - at)
            piece = voice.clips[clip][at * FRAME : (at + size) * FRAME].copy()
            piece[1:] += tilt * piece[:-1]
            fade = np.minimum(1, np.minimum(np.arange(len(piece)), np.arange(len(piece))[::-1]) / 80)
            place = slice(now * FRAME, (now + size) * FRAME)
            track[place] = gain * fade * piece
            flags[now : now + size] = voice.flags[clip][at : at + size]
            now, at = now + size, at + size
            if at >= len(voice.flags[clip]) - 30:  # the next clip of this voice, after a breath
                clip, at = (clip + 1) % len(voice.clips), 0
                now += int(rng.integers(10, 45))
    return track, flags


def _line(rng: np.random.Generator, track: Float32, telephone: bool, beds: Sequence[Float32]) -> Float32:
    """The track through a microphone of its own, with noise around it while the voice speaks."""
    heard = uniform_filter1d((np.abs(track) > 0).astype(np.float32), RATE // 2) > 0
    level = np.sqrt((track[track != 0] ** 2).mean()) if (track != 0).any() else 0.0
    noisy = track + level * 10 ** (-rng.uniform(12, 35) / 20) * heard * _bed(rng, beds, len(track))
    result: Float32 = fftconvolve(noisy, _channel(rng, telephone))[: len(track)].astype(np.float32)
    return result


def _channel(rng: np.random.Generator, telephone: bool) -> Float32:
    """The impulse response of a room and a microphone."""
    curve = gaussian_filter1d(rng.normal(0, 12, len(GRID)), 4)
    if telephone:
        curve = np.where((GRID >= 250) & (GRID <= 3500), curve, -50.0)
    response = firwin2(513, GRID / 8000, 10 ** (curve / 20), window="hann")
    time = np.arange(4800) / RATE
    tail = rng.standard_normal(4800) * np.exp(-6.9 * time / rng.uniform(0.1, 0.5))
    tail *= 10 ** (-rng.uniform(3, 20) / 20) / np.sqrt((tail**2).sum())
    tail[0] = 1.0
    result: Float32 = fftconvolve(response, tail)[256:]
    return result


def _spectrum(samples: Float32) -> np.ndarray:
    """(65,) the long-term spectrum in dB, smoothed, with a mean of 0."""
    level = 10 * np.log10(welch(samples, RATE, nperseg=512)[1] + 1e-12)
    level = gaussian_filter1d(level, 4)[::4]
    return level - level.mean()


def _filter(samples: Float32, curve: np.ndarray) -> Float32:
    response = firwin2(513, GRID / 8000, 10 ** (curve / 20), window="hann")
    result: Float32 = fftconvolve(samples, response, mode="same")
    return result


def _bed(rng: np.random.Generator, beds: Sequence[Float32], total: int) -> Float32:
    """(total,) samples of noise with the spectrum of one of the beds, RMS 1."""
    source = beds[int(rng.integers(len(beds)))]
    # A five-second clip repeated for half an hour would tick; with random phases only its spectrum stays.
    size = 1 << 17
    magnitude = np.interp(
        np.linspace(0, 1, size // 2 + 1),
        np.linspace(0, 1, 513),
        np.sqrt(welch(source, RATE, nperseg=1024)[1]),
    )
    phases = np.exp(2j * np.pi * rng.random((1 + total // size, size // 2 + 1)))
    noise = np.fft.irfft(magnitude * phases, size).ravel()[:total]
    result: Float32 = (noise / np.sqrt((noise**2).mean())).astype(np.float32)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--rttm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    voices, beds = load(args.train)
    for number, plan in enumerate(plans(args.rttm)):
        samples, reference = render(plan, number, voices, beds)
        soundfile.write(args.out / f"{plan.name}.flac", samples, RATE, subtype="PCM_16")
        (args.out / f"{plan.name}.rttm").write_text(rttm.serialize(plan.name, reference))
        shares: dict[str, float] = {}
        for turn in reference:
            shares[turn.speaker] = shares.get(turn.speaker, 0.0) + turn.duration
        rarest = 100 * min(shares.values()) / sum(shares.values())
        sys.stderr.write(
            f"{plan.name}: {plan.seconds:.0f} s, {len(reference)} turns, rarest voice {rarest:.1f} %\n"
        )


if __name__ == "__main__":
    main()
