"""Conversations to count speakers in: kept-back voices, real turn-taking, near and far microphones.

    python benchmarks/rooms.py develop --train TRAIN --more TRAIN2 --rttm DEV --timing AMI --out FOLDER
    python benchmarks/rooms.py final --train TRAIN --more TRAIN2 --rttm DEV --timing AMI --out FOLDER

TRAIN and TRAIN2 are in the format of training/data.py. `develop` has the training speakers that were set
aside (`Corpus.dev`) and every eighth training speaker of TRAIN2; `final`, which nothing is chosen by, has
the held-out speakers of both: other people. DEV and AMI are folders of RTTM files; stretches of them say
who speaks when, with the backchannels, interruptions and second voices of real talk. Of a meeting some
people are left out, and the silences this makes are shortened. One to eight people are in one room, near
the microphone or across the room (reverberation, steady noise, levels up to 20 dB apart), or each has a
microphone or a telephone. FILE.flac beside FILE.rttm; the same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import conversations
import numpy as np
import soundfile
from conversations import FRAME, NOISE, RATE, TRAIN, Voice
from scipy.ndimage import gaussian_filter1d
from scipy.signal import fftconvolve, firwin2, oaconvolve, resample_poly

from witness.formats import rttm
from witness.schema import Float32, Turn

SETS = {"develop": (20261122, 300), "final": (20261123, 300)}  # seed, recordings
HELD_OUT = 1  # of the index's split column
EVERY = 8  # training speakers of TRAIN2 there are to one that is heard here
LONG = 12, 180.0, 1200.0  # of `develop`: how many, and how long they are, seconds
SECONDS = 20.0, 180.0  # all others
PEOPLE = (0.10, 0.30, 0.24, 0.18, 0.08, 0.05, 0.03, 0.02)  # how often there are one to eight
ROOM = 8.0  # seconds there must be for each person
LEAST = 2.0  # seconds that each person must speak
LULL = 1.5  # seconds: a longer silence that leaving people out has made is shortened
PLACES = ("near", "far", "own"), (0.4, 0.4, 0.2)

Spoken = tuple[float, float, int]  # start and end in seconds, seat


@dataclass(frozen=True)
class Room:
    """What all responses of one room have in common."""

    decay: float
    """Reverberation time, seconds."""
    damping: float
    """How much faster high frequencies decay."""
    direct: float
    """dB of direct over reverberant sound; people are up to some dB around it."""


def load(train: Path, more: Path, which: str) -> tuple[list[Voice], list[Float32]]:
    """The people of a set, and steady noises."""
    voices, beds = conversations.load(train)
    if which == "final":
        meta = json.loads((train / "index.json").read_text())
        voices = _spoken(
            train, meta, [i for i, name in enumerate(meta["speakers"]) if _split(name) != "train"]
        )
    meta = json.loads((more / "index.json").read_text())
    rows = np.array(meta["index"])
    split = HELD_OUT if which == "final" else TRAIN
    known = sorted({int(row[3]) for row in rows[rows[:, 4] == split]}, key=lambda i: meta["speakers"][i])
    return voices + _spoken(more, meta, known if which == "final" else known[::EVERY]), beds


def _split(name: str) -> str:
    return "train" if name.startswith("train") else "held out"


def _spoken(folder: Path, meta: dict, speakers: list[int]) -> list[Voice]:
    """The voices of some speakers, clips without the silence around them."""
    rows = np.array(meta["index"])
    voices = {speaker: Voice([], []) for speaker in speakers}
    rows = rows[np.isin(rows[:, 3], speakers) & (rows[:, 4] != NOISE)]
    for part in np.unique(rows[:, 0]):
        audio, rate = soundfile.read(folder / f"part{part}.ogg", dtype="float32")
        audio = audio if rate == RATE else resample_poly(audio, 1, rate // RATE).astype(np.float32)
        for _, first, length, speaker, _ in rows[rows[:, 0] == part]:
            clip = audio[first : first + length].copy()
            flags = conversations.speech_flags(clip)
            heard = np.flatnonzero(flags)
            if len(heard) >= 50:
                voices[speaker].clips.append(clip[heard[0] * FRAME : (heard[-1] + 1) * FRAME])
                voices[speaker].flags.append(flags[heard[0] : heard[-1] + 1])
    # With less than 4 s the same words would come again and again.
    return [voice for voice in voices.values() if sum(len(flags) for flags in voice.flags) >= 400]


def meeting(
    rng: np.random.Generator, templates: Sequence[list[Turn]], people: int, seconds: float
) -> list[Spoken]:
    """A stretch of a meeting without the people who are too many."""
    while True:
        turns = templates[int(rng.integers(len(templates)))]
        names = sorted({turn.speaker for turn in turns})
        if len(names) < people:
            continue
        chosen = [names[i] for i in rng.permutation(len(names))[:people]]
        begin = float(rng.uniform(0, max(turn.end for turn in turns)))
        cut: list[Spoken] = []
        shift, now = 0.0, 0.0
        for turn in turns:
            if turn.start < begin or turn.speaker not in chosen:
                continue
            start = turn.start - begin - shift
            if start - now > LULL:
                silence = min(start - now, float(rng.exponential(0.8)))
                shift += start - now - silence
                start = now + silence
            if start >= seconds:
                break
            cut.append((start, min(start + turn.end - turn.start, seconds), chosen.index(turn.speaker)))
            now = max(now, cut[-1][1])
        spoken = np.zeros(people)
        for start, end, seat in cut:
            spoken[seat] += end - start
        if now > seconds - 2 and spoken.min() >= LEAST:
            return cut


def plan(
    rng: np.random.Generator, talks: Sequence[list[Turn]], meetings: Sequence[list[Turn]], seconds: float
) -> list[Spoken]:
    weights = np.array(PEOPLE)[: max(2, min(8, int(seconds / ROOM)))]
    people = 1 + int(rng.choice(len(weights), p=weights / weights.sum()))
    if people <= 4 and rng.random() < 0.7:
        return meeting(rng, meetings, people, seconds)
    return conversations._stretch(rng, talks, people, seconds)


def response(rng: np.random.Generator, room: Room) -> Float32:
    """From one place in a room to the microphone: direct sound, early reflections, a tail."""
    size = int(min(1.2 * room.decay, 0.9) * RATE)
    time = np.arange(size) / RATE
    white = rng.standard_normal(size)
    low = gaussian_filter1d(white, 3)
    low *= 0.6 / (low.std() + 1e-9)
    tail = low * np.exp(-6.9 * time / room.decay) + white * np.exp(-6.9 * room.damping * time / room.decay)
    tail *= np.minimum(1, time / 0.02)
    early = np.zeros(size)
    places = (rng.uniform(0.001, 0.04, 10) * RATE).astype(int)
    early[places] = rng.choice([-1.0, 1.0], 10) * rng.uniform(0.2, 1, 10) * np.exp(-places / RATE / 0.03)
    tail = tail / np.sqrt((tail**2).sum()) + 0.8 * early / np.sqrt((early**2).sum())
    tail *= 10 ** (-(room.direct + rng.uniform(-4, 4)) / 20) / np.sqrt((tail**2).sum())
    tail[0] = 1.0
    return (tail / np.sqrt((tail**2).sum())).astype(np.float32)


def microphone(rng: np.random.Generator) -> Float32:
    curve = gaussian_filter1d(rng.normal(0, 12, len(conversations.GRID)), 4)
    if rng.random() < 0.3:
        curve = np.where(rng.uniform(3500, 7000) < conversations.GRID, -50.0, curve)
    return firwin2(513, conversations.GRID / 8000, 10 ** (curve / 20), window="hann").astype(np.float32)


def render(
    rng: np.random.Generator,
    turns: list[Spoken],
    seconds: float,
    voices: Sequence[Voice],
    beds: Sequence[Float32],
) -> tuple[str, Float32, list[Turn]]:
    """The place, (samples,) and the reference: the speech in the clips, not the plan."""
    place = str(rng.choice(PLACES[0], p=PLACES[1]))
    total = int(seconds * RATE) // FRAME * FRAME
    seats = 1 + max(seat for *_, seat in turns)
    cast = [_one_session(rng, voices[i]) for i in rng.permutation(len(voices))[:seats]]
    far = place == "far"
    room = Room(
        rng.uniform(0.3, 0.9) if far else rng.uniform(0.1, 0.45),
        rng.uniform(1.2, 3),
        rng.uniform(-6, 3) if far else rng.uniform(5, 18),
    )
    shared, telephone = microphone(rng), rng.random() < 0.5
    spread = rng.choice([3.0, 6.0]) if far else rng.choice([2.0, 4.0])
    strength = rng.uniform(0.5, 1.0)  # of what tells one clip's microphone from another's
    spectra = [conversations._spectrum(np.concatenate(voice.clips)) for voice in cast]
    common = np.mean(spectra, axis=0)
    mix, reference = np.zeros(total, np.float32), []
    for seat, voice in enumerate(cast):
        mine = sorted(turn for turn in turns if turn[2] == seat)
        track, flags = conversations._speak(rng, voice, mine, total)
        if place == "own":
            track = conversations._line(rng, track, bool(telephone), beds)
        else:
            track = conversations._filter(track, np.clip(strength * (common - spectra[seat]), -12, 12))
            track = oaconvolve(track, fftconvolve(response(rng, room), shared))[256:][:total]
        level = np.sqrt((track[np.repeat(flags, FRAME)] ** 2).mean() + 1e-12)
        gain = np.clip(spread * rng.standard_normal(), -10, 10)
        mix += (0.05 / level * 10 ** (gain / 20) * track).astype(np.float32)
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2) / 100
        reference += [Turn(float(start), float(end), f"voice{seat}") for start, end in edges]
    below = rng.uniform(5, 25) if far else rng.uniform(12, 40)
    mix += conversations._bed(rng, beds, total) * 0.05 * 10 ** (-below / 20)
    return place, (0.5 * mix / np.abs(mix).max()).astype(np.float32), sorted(reference)


def _one_session(rng: np.random.Generator, voice: Voice) -> Voice:
    """In half of the cases with one long clip only that one: people keep to their microphone."""
    longest = int(np.argmax([len(flags) for flags in voice.flags]))
    if len(voice.flags[longest]) >= 800 and rng.random() < 0.5:
        return Voice([voice.clips[longest]], [voice.flags[longest]])
    return voice


_material: list = []  # what all recordings of a process share: the arguments of `write` but the first


def write(number: int) -> str:
    """Recording `number` of a set, as FILE.flac and FILE.rttm."""
    which, voices, beds, talks, meetings, out = _material
    seed, count = SETS[which]
    rng = np.random.default_rng([seed, number])
    often = count // LONG[0]
    low, high = LONG[1:] if which == "develop" and number % often == often - 1 else SECONDS
    seconds = float(round(np.exp(rng.uniform(np.log(low), np.log(high)))))
    turns = plan(rng, talks, meetings, seconds)
    place, samples, reference = render(rng, turns, seconds, voices, beds)
    name = f"{which}_{number:03d}_{len({turn.speaker for turn in reference})}spk_{place}"
    soundfile.write(out / f"{name}.flac", samples, RATE, subtype="PCM_16")
    (out / f"{name}.rttm").write_text(rttm.serialize(name, reference))
    return f"{name}: {seconds:.0f} s, {len(reference)} turns"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=SETS)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--more", type=Path, required=True)
    parser.add_argument("--rttm", type=Path, required=True)
    parser.add_argument("--timing", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, help="the first that is left out")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    talks, meetings = (
        [sorted(next(iter(rttm.parse(path.read_text()).values()))) for path in sorted(folder.glob("*.rttm"))]
        for folder in (args.rttm, args.timing)
    )
    job = (args.which, *load(args.train, args.more, args.which), talks, meetings, args.out)
    with ProcessPoolExecutor(args.workers, initializer=_material.extend, initargs=(job,)) as pool:
        for text in pool.map(write, range(args.first, args.count or SETS[args.which][1])):
            sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
