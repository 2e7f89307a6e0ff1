# ruff: noqa: T201 - a training script: what it prints is its result
"""The third part of a voice vector: a discriminant analysis of what the early stages of a trained embedding
hear.

It tells strangers apart on short pieces better than what is trained does, and errs on other pairs. But most
speakers have one microphone, and an analysis of their clips as they are takes the line for the voice: of two
people on one telephone line and one person on two it cannot say which is which (equal error rate 22 %, the
trained parts 7 %). So some pieces are passed through lines, equalizers and codecs, and how far that moves
their statistics counts as variation within a speaker.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from augment import Dice, damage, equalize, loudness
from features import Fbank
from models import EmbeddingNet
from numpy.typing import NDArray
from scipy.linalg import eigh
from slices import load_into, store
from train_embedding import embed_clips, join

from data import Corpus, Voices, joined, voices

SHORT, LONG = 150, 300  # frames of a piece: two of three are short
A_CLIP = 6  # pieces of a clip, at most
MOVED = 6000  # pieces that are passed through a line
LINES = 0.3  # how much their movement counts, beside the variation between clips of a speaker
DIRECTIONS = 400  # principal ones that are looked at
RIDGE = 1e-3  # of the mean variance within speakers, added to each

Real = NDArray[np.float32] | NDArray[np.float64]


def pieces(corpus: Corpus, pool: Voices) -> tuple[list[tuple[int, int, int]], list[int]]:
    """(clip, first frame, frames) one after another, and the speaker of each."""
    found: list[tuple[int, int, int]] = []
    for clip in pool.order.tolist():
        frames, first = int(corpus.frames[clip]), 0
        for _ in range(A_CLIP):
            if frames - first < SHORT:
                break
            size = SHORT if len(found) % 3 else min(LONG, (frames - first) // 50 * 50)
            found.append((clip, first, size))
            first += size
    return found, corpus.speaker[[clip for clip, _, _ in found]].tolist()


def analyse(statistics: Real, speaker: list[int], movement: Real, size: int) -> tuple[Real, Real]:
    """Weight (size, features) and bias (size,) of a linear map, the best last.

    `statistics` is (pieces, features) of these speakers; `movement`, (moved pieces, features), is what lines
    change in some of them.
    """
    mean, spread = statistics.mean(0), statistics.std(0) + 1e-3
    unit = (statistics - mean) / spread
    variance = (unit.T @ unit / len(unit)).astype(np.float64)
    _, principal = eigh(variance, subset_by_index=[len(variance) - DIRECTIONS, len(variance) - 1])
    seen = unit @ principal
    moved = (movement / spread) @ principal
    _, place, count = np.unique(speaker, return_inverse=True, return_counts=True)
    means = np.zeros((len(count), seen.shape[1]))
    np.add.at(means, place, seen)
    means /= count[:, None]
    rest = seen - means[place]
    within = rest.T @ rest / len(rest) + LINES * moved.T @ moved / len(moved)
    within += RIDGE * np.trace(within) / len(within) * np.eye(len(within))
    between = (means * count[:, None]).T @ means / len(seen)
    _, directions = eigh(between, within)
    weight = (principal @ directions[:, -size:]).T / spread
    weight /= abs(weight).max()  # the result is made to unit length, and half precision likes such numbers
    return weight, -weight @ mean


def main(argv: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description="Adds the analysis to a trained embedding.")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True, help="of train_embedding.py")
    parser.add_argument("--joined", type=Path, help="JSON of train_embedding.py: who is one person")
    parser.add_argument("--out", type=Path, required=True, help="the .npz to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)
    started = time.time()
    corpus = Corpus.load(args.cache, args.device)
    if args.joined:
        corpus = joined(corpus, json.loads(args.joined.read_text()))
    pool, fbank = voices(corpus, speeds=1), Fbank().to(args.device)
    net = EmbeddingNet().to(args.device)
    load_into(net, args.weights)
    found, speaker = pieces(corpus, pool)
    moved = np.sort(np.random.default_rng(0).permutation(len(found))[:MOVED])

    def line(samples: torch.Tensor, some: list[int]) -> torch.Tensor:
        dice = Dice.seeded(args.device, 3, some[0])
        return damage(dice, equalize(dice, samples / (loudness(samples) + 1e-4) * 0.05, probability=1.0))

    def early(net: EmbeddingNet, pooled: torch.Tensor) -> torch.Tensor:
        return pooled[:, net.early_place]

    clean = embed_clips(net, corpus, fbank, found, early).numpy()
    print(f"{len(found)} pieces, {time.time() - started:.0f} s", flush=True)
    chosen = [found[i] for i in moved]
    movement = embed_clips(net, corpus, fbank, chosen, early, through=line).numpy() - clean[moved]
    weight, bias = analyse(clean, speaker, movement, net.ANALYSED)
    net.analysed.weight.data = torch.from_numpy(weight).to(net.analysed.weight)
    net.analysed.bias.data = torch.from_numpy(bias).to(net.analysed.bias)
    join(net, corpus, fbank, pool)
    store(args.out, net.state_dict())
    print(f"{args.out}, {time.time() - started:.0f} s")
    return args.out


if __name__ == "__main__":
    main()
