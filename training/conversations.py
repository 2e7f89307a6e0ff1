# ruff: noqa: T201 - a training script: what it prints is its result
"""Conversations of the training speakers that are kept back, as files to judge clustering by.

    python conversations.py --cache CACHE --out FOLDER
    python ../benchmarks/clustering.py FOLDER/turns --cache ARRAYS --models MODELS
    python ../benchmarks/clustering.py FOLDER/session --cache ARRAYS --models MODELS
    python ../benchmarks/accuracy.py FOLDER/interview --group '*_22dB'

`turns`: 36 of 30 to 150 s, planned as the segmentation's training windows are; each turn is one clip, so a
speaker is heard in all of his recording sessions. `session`: 48 of 10 to 60 s with one to four people, each
of them in one clip, cut at its pauses: nobody changes place or microphone, as in a real recording.
`interview`: 48 of two people, alike, of whom the second is 0 to 26 dB fainter, with long silences in which
the microphone hears breath, handling and its room. They say what `Rule.faint` takes and what it costs.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import EllipsisType

import numpy as np
import simulate
import soundfile
import torch
from augment import Dice, colored_noise, rests
from channels import with_flat

from data import FRAME, SAMPLE_RATE, Corpus, Voices, voices, with_rests
from witness.formats import rttm
from witness.schema import Turn

TURNS, SESSIONS, INTERVIEWS = 36, 48, 48  # recordings of each kind
TURNS_SEED, SESSION_SEED, CUTS_SEED, INTERVIEW_SEED = 777, 31, 5, 61
PEOPLE = (1, 2, 2, 2, 3, 3, 4, 4)  # of the sessions, in turn
LONG = 600  # frames: the least that a speaker's longest clip must have for a session
END = 30  # frames of silence at the end
FAINTER = (0, 8, 14, 18, 22, 26)  # dB: the second of the interviews, in turn
SILENCE = 0.25  # how often a long silence follows a turn of an interview
QUIET = -42.0, 9.0  # dB from a clip's speech to what lies around it: mean and deviation of the 317 rests
BED = -50.0  # dB, of the noise under an interview

Recording = tuple[str, torch.Tensor, np.ndarray]  # name, (samples,), (people, frames) who speaks


def turns(corpus: Corpus, pool: Voices, count: int, more: int) -> Iterator[Recording]:
    for number in range(count):
        people, seconds = 1 + number % 5, 30 + 120 * number // (TURNS - 1)
        dice = Dice.seeded("cpu", TURNS_SEED + 1000 * more, number)
        samples, spoken = simulate.conversation(dice, corpus, pool, people, seconds)
        yield f"t{number:02d}_{people}spk", samples, spoken.numpy()


def sessions(corpus: Corpus, pool: Voices, count: int, more: int) -> Iterator[Recording]:
    clips = _longest(corpus, pool)
    rng = np.random.default_rng(CUTS_SEED + 1000 * more)
    for number in range(count):
        people, same = PEOPLE[number % len(PEOPLE)], number // len(PEOPLE) % 2 == 0
        chosen = [int(clip) for clip in rng.choice(clips, people, replace=False)]
        source = _plan(rng, corpus, chosen)
        if same:
            source = torch.where(source >= 0, source + corpus.flat, source)
        dice = Dice.seeded("cpu", SESSION_SEED + 1000 * more, number)
        samples, spoken = simulate.recording(dice, corpus, pool, source, moving=0.0)
        name = f"single_{number:02d}_{people}spk_{'same' if same else 'own'}"
        yield name, samples, spoken.numpy()


def interviews(corpus: Corpus, pool: Voices, count: int, more: int) -> Iterator[Recording]:
    clips = _longest(corpus, pool)
    rng = np.random.default_rng(INTERVIEW_SEED + 1000 * more)
    for number in range(count):
        fainter = FAINTER[number % len(FAINTER)]
        chosen = [int(clip) for clip in rng.choice(clips, 2, replace=False)]
        source = _plan(rng, corpus, chosen, silence=SILENCE)
        dice = Dice.seeded("cpu", INTERVIEW_SEED + 1000 * more, number)
        active = (source[0] >= 0).repeat_interleave(FRAME, -1)
        nobody = ~active.any(0)
        tracks = simulate.voices_only(corpus, source)[0]
        bed = colored_noise(dice, 1, len(nobody))[0]
        mix = _at(tracks[0], active[0], 0.0) + _at(tracks[1], active[1], -fainter) + _at(bed, ..., BED)
        if len(corpus.rests):
            around = rests(dice, corpus, 1, source.shape[-1])[0] * nobody
            mix += _at(around, nobody, QUIET[0] + QUIET[1] * float(dice.normal(1)))
        spoken = simulate.spoken(corpus, source)[0].numpy()
        yield f"interview_{number:02d}_{fainter:02d}dB", mix / mix.abs().max() * 0.5, spoken


def _at(samples: torch.Tensor, where: torch.Tensor | EllipsisType, level: float) -> torch.Tensor:
    """The samples with a root mean square of `level` dB where they sound."""
    return samples / (samples[where].pow(2).mean().sqrt() + 1e-9) * 10 ** (level / 20)


def _longest(corpus: Corpus, pool: Voices) -> list[int]:
    """The longest clip of each speaker who has a long one."""
    found = []
    for first, count in zip(pool.first.tolist(), pool.count.tolist(), strict=True):
        clips = pool.order[first : first + count]
        longest = int(clips[corpus.frames[clips].argmax()])
        if corpus.frames[longest] >= LONG:
            found.append(longest)
    return found


def _pieces(rng: np.random.Generator, flags: np.ndarray) -> list[tuple[int, int]]:
    """(first, end) frames of pieces of about 1 to 4.5 s of a clip, cut in its pauses."""
    heard = np.flatnonzero(flags)
    begin, stop, found = int(heard[0]), int(heard[-1]) + 1, []
    while stop - begin > 30:
        end = min(stop, begin + int(rng.uniform(100, 450)))
        quiet = np.flatnonzero(~flags[end : min(stop, end + 100)])
        end += int(quiet[0]) if len(quiet) else 0
        if stop - end < 60:
            end = stop
        found.append((begin, end))
        begin = end
    return found


def _plan(
    rng: np.random.Generator, corpus: Corpus, clips: list[int], *, silence: float = 0.0
) -> torch.Tensor:
    """(1, seats, frames) rows of the corpus: the pieces of each clip in order, some turns begun early.

    `silence` is how often 8 to 25 s follow a turn in which nobody speaks.
    """
    left = []
    for clip in clips:
        flags = corpus.flags[corpus.start[clip] :][: corpus.frames[clip]].numpy()
        left.append(_pieces(rng, flags))
    order: list[tuple[int, int, int]] = []  # seat, first, end
    while any(left):
        some = [seat for seat, pieces in enumerate(left) if pieces]
        some = [seat for seat in some if not order or seat != order[-1][0]] or some
        weights = np.array([len(left[seat]) for seat in some])
        seat = int(rng.choice(some, p=weights / weights.sum()))
        order.append((seat, *left[seat].pop(0)))
    now, starts, free = 20, [], [0] * len(clips)
    for place, (seat, first, end) in enumerate(order):
        starts.append(now)
        free[seat] = now + end - first + 8
        gap = rng.exponential(25) if rng.random() > 0.25 else -rng.exponential(40)
        if silence and rng.random() < silence:
            gap = rng.uniform(800, 2500)
        now = max(now + 10, now + end - first + int(gap))
        if place + 1 < len(order):
            now = max(now, free[order[place + 1][0]])
    frames = max(1000, END + max(at + end - first for at, (_, first, end) in zip(starts, order, strict=True)))
    source = torch.full((1, max(len(clips), 2), frames), -1, dtype=torch.long)
    for at, (seat, first, end) in zip(starts, order, strict=True):
        source[0, seat, at : at + end - first] = corpus.start[clips[seat]] + torch.arange(first, end)
    return source


def write(folder: Path, recordings: Iterator[Recording]) -> None:
    """FILE.flac beside FILE.rttm; a recording in which nobody speaks is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, samples, spoken in recordings:
        reference = []
        for speaker, flags in enumerate(spoken):
            edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
            reference += [Turn(first / 100, end / 100, f"S{speaker}") for first, end in edges.reshape(-1, 2)]
        if reference:
            soundfile.write(folder / f"{name}.flac", samples.numpy(), SAMPLE_RATE)
            (folder / f"{name}.rttm").write_text(rttm.serialize(name, reference))
            print(folder / name, flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder written by data.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--more", type=int, default=0, help="1, 2, ...: other ones, as many again")
    parser.add_argument("--smoke", action="store_true", help="two of each kind")
    args = parser.parse_args(argv)
    corpus = Corpus.load(args.cache, "cpu")
    pool = voices(corpus, dev=True)
    corpus = with_rests(with_flat(corpus, pool.order), pool.order)
    for kind, make, count in (
        ("turns", turns, TURNS),
        ("session", sessions, SESSIONS),
        ("interview", interviews, INTERVIEWS),
    ):
        write(args.out / kind, make(corpus, pool, 2 if args.smoke else count, args.more))


if __name__ == "__main__":
    main()
