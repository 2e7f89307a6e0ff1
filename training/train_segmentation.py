# ruff: noqa: T201 - a training script: what it prints is its result
"""Trains the segmentation: who of at most three speakers is active in each frame of a ten-second window.

Windows are simulated (simulate.py). Which speaker is "first" has no meaning, so the loss takes the best of
the six orders. Nothing of any evaluation recording is used, not even to choose when to stop.
"""

import itertools
import time
from pathlib import Path

import numpy as np
import simulate
import torch
from augment import Dice
from channels import with_flat
from metrics import describe, window_errors
from models import POWERSET, SegmentationNet, parameters
from slices import Training, arguments, fast_kernels, load

from data import FRAME, Corpus, voices, with_rests

ORDERS = list(itertools.permutations(range(3)))
PLANNED = 4  # batches planned at once
AGAIN = 32  # batches kept to be seen once more, their windows mixed: rendering takes longer than learning
WINDOW = 160_000  # samples
FRAME_STEP, FRAME_LENGTH = 270, 991  # samples of a 16 kHz waveform per output frame, and seen by it


def label_of_activity() -> torch.Tensor:
    """(8,) class of a + 2 b + 4 c; where all three speak, two of them must do."""
    table = torch.zeros(8, dtype=torch.long)
    for number, active in enumerate(POWERSET.tolist()):
        table[active[0] + 2 * active[1] + 4 * active[2]] = number
    table[7] = 4
    return table


def frame_labels(spoken: torch.Tensor, frames: int) -> torch.Tensor:
    """(rows, 3, 10 ms frames) bool -> (rows, 3, frames), read at the middle of each output frame."""
    middle = (torch.arange(frames, device=spoken.device) * FRAME_STEP + FRAME_LENGTH / 2) / 160
    return spoken[..., middle.long().clamp(max=spoken.shape[-1] - 1)]


def order_free_loss(scores: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """(rows, frames, 7) scores, (rows, 3, frames) bool -> mean loss under each row's best order."""
    table = label_of_activity().to(scores.device)
    bits = torch.tensor([1, 2, 4], device=scores.device)[None, :, None]
    labels = torch.stack([table[(active[:, list(order)] * bits).sum(1)] for order in ORDERS], 1)
    losses = -scores.unsqueeze(1).expand(-1, len(ORDERS), -1, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return losses.mean(-1).amin(1).mean()


@torch.no_grad()
def errors_of(scores: torch.Tensor, active: torch.Tensor) -> np.ndarray:
    """Sum `metrics.window_errors` of all rows."""
    hypothesis = POWERSET.to(scores.device)[scores.argmax(-1)].cpu().numpy()
    reference = active.transpose(1, 2).cpu().numpy()
    return sum((window_errors(h, r) for h, r in zip(hypothesis, reference, strict=True)), np.zeros(4))


class Seen:
    """The windows of the last batches, for a second look: each other step takes one of them at random."""

    def __init__(self, rows: int, samples: int, frames: int, device: str) -> None:
        self.rows, self.filled = rows, 0
        self.wave = torch.zeros(AGAIN, rows, samples, dtype=torch.half, device=device)
        self.active = torch.zeros(AGAIN, rows, 3, frames, dtype=torch.bool, device=device)

    def add(self, wave: torch.Tensor, active: torch.Tensor) -> None:
        slot = self.filled % AGAIN
        # The network takes any level for the same one; half precision does not.
        self.wave[slot] = wave / (wave.abs().amax(-1, keepdim=True) + 1e-9)
        self.active[slot] = active
        self.filled += 1

    def draw(self, dice: Dice) -> tuple[torch.Tensor, torch.Tensor]:
        batch = dice.below(min(self.filled, AGAIN), self.rows)
        row = dice.below(self.rows, self.rows)
        return self.wave[batch, row].float(), self.active[batch, row]


def averaged(training: Training) -> SegmentationNet:
    return SegmentationNet.of(training.average).to(training.args.device).eval()


def main(argv: list[str] | None = None) -> Path:
    parser = arguments("Train the segmentation.", steps=18_000, batch=256, rate=1e-3)
    parser.add_argument("--deeper", type=int, default=0, help="so many layers more than --init has")
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps, args.batch, args.device = min(args.steps, 2), 4, "cpu"
    fast_kernels()
    torch.manual_seed(args.seed)
    corpus = Corpus.load(args.cache, args.device)
    pool, dev = voices(corpus), voices(corpus, dev=True)
    corpus = with_flat(corpus, torch.cat([pool.order, dev.order]))
    own, corpus = with_rests(corpus, dev.order), with_rests(corpus, pool.order)
    net = SegmentationNet.of(load(args.init)) if args.init else SegmentationNet()
    net.deepen(args.deeper)
    net.to(args.device)
    training = Training(net, args, decay=0.01)
    forward = torch.compile(net, dynamic=False) if args.compile else net
    on_gpu = corpus.device.type == "cuda"
    print(
        f"{len(pool)} voices, {parameters(net) / 1e6:.2f} M parameters, step {training.step} of {args.steps}",
        flush=True,
    )

    def report() -> None:
        tested, total = averaged(training), np.zeros(4)
        for number in range(1 if args.smoke else 4):
            dice = Dice.seeded(args.device, 77, number)
            with torch.no_grad():
                source = simulate.plan_windows(dice, own, dev, args.batch)
                scores = tested(simulate.render(dice, own, dev, source)[:, None])
            total += errors_of(scores, frame_labels(simulate.spoken(own, source), scores.shape[1]))
        print("  dev", describe(total), flush=True)

    planned, plans = -1, ()
    seen = Seen(args.batch, WINDOW, WINDOW // FRAME, args.device)
    while training.running:
        group, member = divmod(training.step // 2, PLANNED)
        with torch.no_grad():
            dice = Dice.seeded(args.device, args.seed, 2, training.step)
            if training.step % 2 and seen.filled:
                wave, active = seen.draw(dice)
            else:
                if group != planned:
                    plan_dice = Dice.seeded(args.device, args.seed, 1, group)
                    plans = simulate.plan_windows(plan_dice, corpus, pool, args.batch * PLANNED)
                    planned, plans = group, plans.chunk(PLANNED)
                wave = simulate.render(dice, corpus, pool, plans[member])
                active = simulate.spoken(corpus, plans[member])
                seen.add(wave, active)
        with torch.autocast(corpus.device.type, torch.bfloat16, enabled=on_gpu):
            scores = forward(wave[:, None])
        loss = order_free_loss(scores, frame_labels(active, scores.shape[1]))
        training.update(loss, clip=1.0)
        step = training.step
        if step % 250 == 0 or step in (1, 2, 10, 50):
            print(f"{step} {time.time() - training.started:.0f} s loss {loss.item():.3f}", flush=True)
        if step % 2500 == 0:
            report()
            training.save("segmentation.npz")
    report()
    return training.save("segmentation.npz")


if __name__ == "__main__":
    main()
