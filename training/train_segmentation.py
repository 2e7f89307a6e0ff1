# ruff: noqa: T201 - a training script: what it prints is its result
"""Trains the segmentation: who of at most three speakers is active in each frame of a ten-second window.

Windows are simulated (simulate.py), with `--talk` most of them with the turn-taking of real meetings; which
speaker is "first" has no meaning, so the loss takes the best of the six orders. Nothing of any evaluation
recording is used, not even to choose when to stop.
"""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import simulate
import talk
import torch
from augment import Dice
from channels import with_flat
from metrics import describe, second_voices, window_errors
from models import POWERSET, SegmentationNet, parameters
from slices import Training, arguments, fast_kernels, load
from torch import nn

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
    """`metrics.window_errors` of all rows, and `metrics.second_voices` behind them."""
    hypothesis = POWERSET.to(scores.device)[scores.argmax(-1)].cpu().numpy()
    reference = active.transpose(1, 2).cpu().numpy()
    errors = sum((window_errors(h, r) for h, r in zip(hypothesis, reference, strict=True)), np.zeros(4))
    return np.concatenate([errors, second_voices(hypothesis, reference)])


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
    parser.add_argument(
        "--adapt", action="store_true", help="keep the front end and all batch statistics (short runs)"
    )
    parser.add_argument("--deeper", type=int, default=0, help="so many layers more than --init has")
    parser.add_argument(
        "--talk", type=Path, help="folder of RTTM files: turn-taking of real meetings for most windows"
    )
    parser.add_argument("--voices", type=int, default=10**6, help="of so many voices only (short runs)")
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps, args.batch, args.device = min(args.steps, 2), 4, "cpu"
    fast_kernels()
    torch.manual_seed(args.seed)
    corpus = Corpus.load(args.cache, args.device)
    pool, dev = voices(corpus).some(args.voices), voices(corpus, dev=True)
    real = kept = None
    if args.talk:
        tables = [torch.from_numpy(talk.table(part)) for part in talk.divided(talk.load(args.talk))]
        real = simulate.Talk.of(corpus, tables[0].to(args.device))
        kept = replace(real, active=tables[1].to(args.device))
    far = simulate.FAR if args.talk else 0.0
    corpus = with_flat(corpus, torch.cat([pool.order, dev.order]))
    own, corpus = with_rests(corpus, dev.order), with_rests(corpus, pool.order)
    net = SegmentationNet.of(load(args.init)) if args.init else SegmentationNet()
    net.deepen(args.deeper)
    net.to(args.device)
    training = Training(net, args, decay=0.01)
    if args.adapt:
        for part in (net.conv1, net.norm1, net.conv2, net.norm2, net.to_frames, net.norm3):
            part.requires_grad_(requires_grad=False)
        for part in net.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.eval()
    forward = torch.compile(net, dynamic=False) if args.compile else net
    on_gpu = corpus.device.type == "cuda"
    print(
        f"{len(pool)} voices, {parameters(net) / 1e6:.2f} M parameters, step {training.step} of {args.steps}",
        flush=True,
    )

    def dev_error(turns: simulate.Talk | None) -> str:
        tested, total = averaged(training), np.zeros(7)
        for number in range(1 if args.smoke else 4):
            dice = Dice.seeded(args.device, 77, number)
            with torch.no_grad():
                source = simulate.plan_windows(dice, own, dev, args.batch, talk=turns)
                scores = tested(simulate.render(dice, own, dev, source, far=far if turns else 0.0)[:, None])
            total += errors_of(scores, frame_labels(simulate.spoken(own, source), scores.shape[1]))
        heard, said, wrong = total[4:]
        return (
            f"{describe(total[:4])}, second voices: {100 * heard / max(1, said):.1f} % heard,"
            f" {100 * wrong / max(1, said):.1f} % wrong"
        )

    def report() -> None:
        print("  dev", dev_error(None), flush=True)
        if kept:
            print("  dev with real turns", dev_error(kept), flush=True)

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
                    plans = simulate.plan_windows(plan_dice, corpus, pool, args.batch * PLANNED, talk=real)
                    planned, plans = group, plans.chunk(PLANNED)
                wave = simulate.render(dice, corpus, pool, plans[member], far=far)
                active = simulate.spoken(corpus, plans[member])
                seen.add(wave, active)
        with torch.autocast(corpus.device.type, torch.bfloat16, enabled=on_gpu):
            scores = forward(wave[:, None])
        loss = order_free_loss(scores, frame_labels(active, scores.shape[1]))
        training.update(loss, clip=1.0)
        step = training.step
        if step % (10 if args.adapt else 250) == 0 or step in (1, 2, 10, 50):
            print(f"{step} {time.time() - training.started:.0f} s loss {loss.item():.3f}", flush=True)
        if step % 2500 == 0:
            report()
            training.save("segmentation.npz")
    report()
    return training.save("segmentation.npz")


if __name__ == "__main__":
    main()
