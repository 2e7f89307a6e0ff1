# ruff: noqa: T201 - a training script: what it prints is its result
"""Pruning of the feed-forward layers inside a trained segmentation.

    python prune.py --cache CACHE --weights RUN/segmentation.npz --out SNAPSHOT.npz --keep 240

What one value inside a layer tells is largely told by the others. So those go first that the others replace
best, and the layer's last matrix is fitted anew to give what it gave: least squares over windows of training
speakers. Nothing is trained.
"""

import argparse
from pathlib import Path

import simulate
import slices
import torch
from augment import Dice
from channels import with_flat
from models import Conformer, SegmentationNet
from torch.nn import functional

from data import Corpus, Voices, voices, with_rests

SEED = 991
BATCHES, ROWS = 4, 96  # windows of ten seconds: 56,000 rows of values
AT_ONCE = 24  # values that go before the rest is weighed anew
RIDGE = 1e-6  # of the mean square of the values


def products(
    net: SegmentationNet, corpus: Corpus, pool: Voices, batches: int, rows: int
) -> list[torch.Tensor]:
    """For each layer (values + 1, values + 1): sums of products of its values and of a 1 behind them."""
    sums = [torch.zeros(()) for _ in net.layers]

    def record(number: int, inside: torch.Tensor) -> None:
        values = functional.relu(inside).flatten(0, 1).double()
        values = functional.pad(values, (0, 1), value=1.0)
        sums[number] = sums[number] + (values.t() @ values).cpu()

    hooks = [
        layer.feed_in.register_forward_hook(lambda _, __, inside, number=number: record(number, inside))
        for number, layer in enumerate(net.layers)
    ]
    for number in range(batches):
        dice = Dice.seeded(corpus.device, SEED, number)
        source = simulate.plan_windows(dice, corpus, pool, rows)
        for windows in simulate.render(dice, corpus, pool, source)[:, None].split(16):
            net(windows)
    for hook in hooks:
        hook.remove()
    return sums


def fit(wanted: torch.Tensor, gram: torch.Tensor, kept: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(outputs, kept + 1) weights with which these values and the 1 give best what all gave, and what each
    of the values would be missed: (kept,).
    """
    rows = [*kept, len(gram) - 1]
    inverse = torch.linalg.inv(
        gram[rows][:, rows] + RIDGE * gram.diagonal().mean() * torch.eye(len(rows)).double()
    )
    weights = wanted @ gram[:, rows] @ inverse
    return weights, (weights[:, :-1] ** 2).sum(0) / inverse.diagonal()[:-1]


def prune(layer: Conformer, gram: torch.Tensor, keep: int) -> None:
    """In place: `keep` of the values inside its feed-forward layer are left."""
    out = layer.feed_out
    wanted = torch.cat([out.weight.data, out.bias.data[:, None]], 1).double().cpu()
    kept = list(range(len(gram) - 1))
    while len(kept) > keep:
        missed = fit(wanted, gram, kept)[1]
        gone = set(missed.argsort()[: min(AT_ONCE, len(kept) - keep)].tolist())
        kept = [value for place, value in enumerate(kept) if place not in gone]
    weights = fit(wanted, gram, kept)[0].float().to(out.weight.device)
    for part, tensor in (
        (layer.feed_in.weight, layer.feed_in.weight.data[kept]),
        (layer.feed_in.bias, layer.feed_in.bias.data[kept]),
        (out.weight, weights[:, :-1]),
        (out.bias, weights[:, -1]),
    ):
        part.data = tensor.contiguous()


@torch.no_grad()
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder written by data.py")
    parser.add_argument("--weights", type=Path, required=True, help="of a training run")
    parser.add_argument("--out", type=Path, required=True, help="a file of weights")
    parser.add_argument("--keep", type=int, default=240, help="values inside each feed-forward layer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--smoke", action="store_true", help="of a few windows, on the CPU")
    args = parser.parse_args(argv)
    device, batches, rows = ("cpu", 1, 4) if args.smoke else (args.device, BATCHES, ROWS)
    corpus = Corpus.load(args.cache, device)
    pool = voices(corpus)
    corpus = with_rests(with_flat(corpus, pool.order), pool.order)
    net = SegmentationNet.of(slices.load(args.weights)).to(device).eval()
    before = net.layers[0].feed_in.out_features
    for layer, gram in zip(net.layers, products(net, corpus, pool, batches, rows), strict=True):
        prune(layer, gram, args.keep)
    slices.store(args.out, net.state_dict())
    print(f"{args.out}: {args.keep} of {before} values in each of {len(net.layers)} layers")


if __name__ == "__main__":
    main()
