# ruff: noqa: T201 - a training script: what it prints is its result
"""Fits the early half of `models.TwoStageEmbedding` to a trained network, on a CPU in a quarter of an hour.

Linear discriminant analysis of the second stage's statistics: the directions in which training speakers
differ most for how much their own pieces differ, clean ones and ones in other rooms, noise and codecs. Then
the most important 256 directions of both halves side by side. Same corpus and same machine, same result.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from augment import Dice, add_noise, add_rests, convolve, damage, equalise, loudness, room_responses
from features import Fbank
from models import TwoStageEmbedding, statistics
from scipy.linalg import eigh
from slices import load_into, store

from data import FRAME, Corpus, Voices, voices, with_rests

CLIPS = 3  # of a voice, at most
PIECE, LONGER = (
    150,
    300,
)  # frames: two of three pieces have so many, the third as many as there are up to here
APART = 225  # frames from one piece of a clip to the next
SHARE = 3  # pieces in turn that share room, noise, equaliser and codec
MIXED = 4000  # pieces that are heard once more with those
PRINCIPAL = 300  # components that are kept before the analysis: more are noise of so few pieces
SHRINK = 1e-3  # of the mean variance within speakers, added to all
BATCH = 60
SEED = 9


def pieces(corpus: Corpus, pool: Voices) -> tuple[np.ndarray, np.ndarray]:
    """(pieces, 3) clip, first frame, frames; (pieces,) voice of each. One-word clips are left out."""
    found, owner = [], []
    for voice, name in enumerate(pool.names):
        if "arabic" in name:
            continue
        first = int(pool.first[voice])
        for clip in pool.order[first : first + int(pool.count[voice])][:CLIPS].tolist():
            frames = int(corpus.frames[clip])
            begins = [0, APART] if frames >= PIECE + APART else [max(0, (frames - PIECE) // 2)]
            for begin in (begin for begin in begins if frames - begin >= PIECE):
                size = PIECE if len(found) % 3 else min(LONGER, frames - begin) // 50 * 50
                found.append((clip, begin, size))
                owner.append(voice)
    return np.array(found), np.array(owner)


def mixed(dice: Dice, corpus: Corpus, pool: Voices, samples: torch.Tensor) -> torch.Tensor:
    """(pieces, samples) with rooms, noise, equalisers and codecs."""
    rows = len(samples)
    groups = -(-rows // SHARE)
    samples = samples / (loudness(samples) + 1e-4) * 0.05
    wet = dice.chance(0.6, groups, 1).repeat_interleave(SHARE, 0)[:rows]
    response = room_responses(dice, groups, SHARE).view(groups * SHARE, -1)[:rows]
    samples = torch.where(wet, convolve(samples, response), samples)
    samples = add_noise(dice, corpus, pool, samples, probability=0.7, low=3.0, high=30.0, share=SHARE)
    samples = add_rests(dice, corpus, samples, probability=0.2, low=-25.0, high=3.0)
    return damage(dice, equalise(dice, samples, probability=0.75, share=SHARE), share=SHARE)


@torch.no_grad()
def pooled(
    net: TwoStageEmbedding, corpus: Corpus, pool: Voices, found: np.ndarray, *, mix: bool
) -> np.ndarray:
    """(pieces, 2 x features) of all stages that are pooled."""
    fbank, result = Fbank(), np.empty((len(found), net.late.in_features), np.float32)
    begun = time.time()
    for size in np.unique(found[:, 2]):
        places = np.flatnonzero(found[:, 2] == size)
        for first in range(0, len(places), BATCH):
            some = places[first : first + BATCH]
            clips = torch.from_numpy(found[some, 0])
            rows = (corpus.start[clips] + torch.from_numpy(found[some, 1]))[:, None] + torch.arange(size)
            samples = (corpus.audio[rows].float() / 32768).view(len(some), int(size) * FRAME)
            if mix:
                samples = mixed(Dice.seeded("cpu", SEED, int(size), first), corpus, pool, samples)
            feats = fbank(samples)
            frames = net.frames(feats - feats.mean(1, keepdim=True))
            result[some] = statistics(frames).numpy()
    print(f"{len(found)} pieces in {time.time() - begun:.0f} s", flush=True)
    return result


def discriminants(
    values: np.ndarray, owner: np.ndarray, size: int, principal: int
) -> tuple[np.ndarray, np.ndarray]:
    """(features, size) map and (size,) offset that tell the owners of the values apart best."""
    mean, deviation = values.mean(0), values.std(0) + 1e-3
    scaled = (values - mean) / deviation
    _, directions = np.linalg.eigh((scaled.T @ scaled / len(scaled)).astype(np.float64))
    directions = directions[:, -principal:]
    reduced = scaled @ directions
    _, place, count = np.unique(owner, return_inverse=True, return_counts=True)
    means = np.zeros((len(count), principal))
    np.add.at(means, place, reduced)
    means /= count[:, None]
    rest = reduced - means[place]
    within = rest.T @ rest / len(rest)
    between = (means * count[:, None]).T @ means / len(rest)
    within += SHRINK * np.trace(within) / principal * np.eye(principal)
    _, found = eigh(between, within)
    found = directions @ found[:, -size:] / deviation[:, None]
    return found, -mean @ found


def fit(net: TwoStageEmbedding, values: np.ndarray, owner: np.ndarray, weight: float) -> None:
    """Sets all maps of `net` beside its network; `weight`: of the early half, 1 is that of the late."""
    features = net.late.in_features // 2
    late = features - net.early_size
    columns = np.r_[0:late, features : features + late]  # of the last stage: means, deviations
    others = np.setdiff1d(np.arange(2 * features), columns)
    with torch.no_grad():
        for part in (net.late, net.early):
            part.weight.zero_()
        net.late.weight[:, columns] = net.net.head.weight
        net.late.bias.copy_(net.net.head.bias)
        principal = min(PRINCIPAL, len(others), len(values) - 1)
        found, offset = discriminants(values[:, others], owner, net.EARLY, principal)
        # Fewer in a corpus of a few pieces; the other values are 0 then.
        net.early.weight[: len(offset), others] = torch.from_numpy(found.T).float()
        net.early.bias.zero_()[: len(offset)] = torch.from_numpy(offset).float()
        halves = []
        for part in (net.late, net.early):
            half = part(torch.from_numpy(values)).numpy()
            halves.append(half / np.linalg.norm(half, axis=1, keepdims=True))
        both = np.concatenate([halves[0], weight * halves[1]], 1).astype(np.float64)
        # Not centred: what counts afterwards is the product of two vectors.
        _, directions = np.linalg.eigh(both.T @ both)
        kept = torch.from_numpy(directions[:, -256:].copy()).float()
        net.late_out.weight.copy_(kept[:256].t())
        net.early_out.weight.copy_(weight * kept[256:].t())


def main(argv: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder written by data.py")
    parser.add_argument("--embedding", type=Path, required=True, help="averaged weights of the network")
    parser.add_argument("--out", type=Path, required=True, help="file for the weights of both")
    parser.add_argument(
        "--weight", type=float, default=0.7, help="of the early half, beside 1 of the late one"
    )
    args = parser.parse_args(argv)
    net = TwoStageEmbedding().eval()
    load_into(net.net, args.embedding)
    corpus = Corpus.load(args.cache, "cpu")
    pool = voices(corpus, speeds=1)
    corpus = with_rests(corpus, pool.order)
    found, owner = pieces(corpus, pool)
    again = np.random.default_rng(SEED).permutation(len(found))[:MIXED]
    clean = pooled(net, corpus, pool, found, mix=False)
    noisy = pooled(net, corpus, pool, found[again], mix=True)
    fit(net, np.concatenate([clean, noisy]), np.concatenate([owner, owner[again]]), args.weight)
    store(args.out, net.state_dict())
    return args.out


if __name__ == "__main__":
    main()
