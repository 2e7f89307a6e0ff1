"""Shared parts of both trainings: arguments, a schedule in steps, an averaged copy, and slices that resume.

GPU time comes in slices of a few minutes. A slice ends after `--seconds`; the next one, started with the
same arguments, goes on from the checkpoint. Every step draws its randomness from (seed, step), so slicing
does not change the batches (but for the windows that the segmentation sees again: those before a slice are
forgotten). Results still differ in the last bits from run to run: cuDNN picks its kernels
by timing, and GPU sums are not ordered.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn


def arguments(description: str, *, steps: int, batch: int, rate: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cache", type=Path, required=True, help="folder written by data.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for the averaged weights")
    parser.add_argument(
        "--checkpoint", type=Path, help="resume from here if it exists, and leave the state here"
    )
    parser.add_argument("--init", type=Path, help="start from these averaged weights")
    parser.add_argument("--steps", type=int, default=steps, help="length of the whole schedule")
    parser.add_argument("--seconds", type=float, default=1e9, help="end this slice after so long")
    parser.add_argument(
        "--finish", type=float, help="the whole schedule in so many seconds, whatever the steps"
    )
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--rate", type=float, default=rate, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile: half the time per step, 25 s to start"
    )
    parser.add_argument("--smoke", action="store_true", help="a few tiny steps on the CPU")
    return parser


def load(path: Path) -> dict[str, torch.Tensor]:
    """The weights in a .npz of plain arrays: unlike a pickle, it can do nothing but be read. Of a checkpoint
    the averaged ones.
    """
    if path.suffix == ".ckpt":
        return torch.load(path, map_location="cpu", weights_only=True)["average"]
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def load_into(net: nn.Module, path: Path) -> None:
    """Sets the weights of `net` to those in the file, in single precision; what `net` has not is left out."""
    known = load(path)
    net.load_state_dict(
        {n: known[n].float() if known[n].is_floating_point() else known[n] for n in net.state_dict()}
    )


def store(path: Path, state: dict[str, torch.Tensor]) -> None:
    """Writes what `load` reads: matrices in half precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = {k: v.half() if v.is_floating_point() and v.ndim > 1 else v for k, v in state.items()}
    with path.open("wb") as file:  # savez would add .npz to any other name
        np.savez(file, **{name: value.cpu().numpy() for name, value in half.items()})


class Training:
    """Network, optimizer, averaged weights, step counter; saved and resumed as one."""

    def __init__(
        self, net: nn.Module, args: argparse.Namespace, *, decay: float, extra: nn.Module | None = None
    ) -> None:
        self.net, self.extra, self.args = net, extra, args
        self.step = 0
        both = [*net.parameters(), *(extra.parameters() if extra else [])]
        self.parameters = both
        matrices = [p for p in net.parameters() if p.ndim > 1]
        vectors = [p for p in net.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
        if extra:
            groups.append({"params": list(extra.parameters()), "weight_decay": 0.0})
        self.optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98))
        self.average = {k: v.detach().clone() for k, v in net.state_dict().items()}
        if args.checkpoint and args.checkpoint.exists():
            state = torch.load(args.checkpoint, map_location=args.device, weights_only=True)
            net.load_state_dict(state["net"])
            if extra:
                extra.load_state_dict(state["extra"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.average, self.step = state["average"], state["step"]
        self.started = time.time()

    @property
    def progress(self) -> float:
        if self.args.finish:
            return (time.time() - self.started) / self.args.finish
        return self.step / self.args.steps

    @property
    def running(self) -> bool:
        return self.progress < 1 and time.time() - self.started < self.args.seconds

    def update(self, loss: torch.Tensor, *, clip: float) -> None:
        """One step: warm-up, cosine to 1 % of the peak, clipped gradient, average."""
        warm = min(1.0, (self.step + 1) / min(1000, self.args.steps / 10))
        rate = self.args.rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress))))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimizer.step()
        self.step += 1
        keep = min(0.999, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            state = self.net.state_dict()
            for name, mean in self.average.items():
                if mean.is_floating_point():
                    mean.lerp_(state[name], 1 - keep)
                else:
                    mean.copy_(state[name])

    def save(self, name: str) -> Path:
        """The averaged weights in half precision to `--out`, the whole state to `--checkpoint`."""
        path = self.args.out / name
        store(path, self.average)
        if self.args.checkpoint:
            state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
            state |= {
                "average": self.average,
                "step": self.step,
                "extra": self.extra and self.extra.state_dict(),
            }
            self.args.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, self.args.checkpoint)
        return path


def fast_kernels() -> None:
    """tf32 and timed kernel choice: faster, and the reason why two runs differ in the last bits."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
