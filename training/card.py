# ruff: noqa: T201 - a training script: what it prints is its result
"""One command from trained weights to a card: ONNX files, their figures, and the snapshot of the next run.

    python card.py --run s12 --segmentation W/s.ckpt --cache CACHE --eval EVAL --out MODELS

Weights are a checkpoint of a training or a .npz of it. The network that is not given is the shipped one, so
that the pair can be judged. Writes MODELS/segmentation.onnx, embedding.onnx, clustering.json (the shipped
rule, where `evaluate.py tune` has not written another) and RUN.md: sha256, sizes and every figure as its
command prints it. With `--snapshots`, the averaged weights replace the ones that are there: git keeps what is
shipped, not each trial.
"""

import argparse
import contextlib
import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import evaluate
import export
import slices
from models import EmbeddingNet, SegmentationNet, parameters
from torch import nn

from witness.models import catalogue


def net_of(part: str, weights: Path) -> nn.Module:
    """The network of trained weights."""
    if part == "segmentation":
        return SegmentationNet.of(slices.load(weights))
    net = EmbeddingNet()
    slices.load_into(net, weights)
    return net


def replace_snapshot(folder: Path, part: str, run: str, weights: Path) -> Path:
    """The averaged weights as FOLDER/PART-RUN.npz, instead of the snapshot of that part that was there."""
    path = folder / f"{part}-{run}.npz"
    fresh = path.with_suffix(".new")
    slices.store(fresh, slices.load(weights))
    for old in folder.glob(f"{part}-*.npz"):
        old.unlink()
    return fresh.rename(path)


def figures(models: Path, cache: Path | None, folder: Path | None, *, smoke: bool) -> dict[str, str]:
    """What each command of evaluate.py that can be run prints, by its name."""
    runs = {}
    if smoke and cache:
        runs["smoke"] = lambda: evaluate.main(["smoke", "--models", str(models), "--cache", str(cache)])
    elif cache:
        runs["verify"] = lambda: evaluate.verify(models, cache)
    if folder:
        runs["windows"] = lambda: evaluate.windows(models, folder)
    found = {}
    for name, measure in runs.items():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            measure()
        found[name] = text.getvalue()
    return found


def main(argv: list[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, help="name of the run, for the card and the snapshots")
    parser.add_argument("--segmentation", type=Path, help="weights: a checkpoint or a .npz")
    parser.add_argument("--embedding", type=Path, help="weights: a checkpoint or a .npz")
    parser.add_argument("--real", type=Path, help="ONNX of segmentation-3.0, for export.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--snapshots", type=Path, help="folder of the weights to begin from")
    parser.add_argument("--cache", type=Path, help="for equal error rates")
    parser.add_argument("--eval", type=Path, help="for single windows")
    parser.add_argument("--smoke", action="store_true", help="a few pieces and short recordings")
    args = parser.parse_args(argv)
    given = {
        part: path
        for part, path in (("segmentation", args.segmentation), ("embedding", args.embedding))
        if path
    }
    if not given:
        parser.error("give --segmentation, --embedding or both")
    args.out.mkdir(parents=True, exist_ok=True)
    words = [word for part, path in given.items() for word in (f"--{part}", str(path))]
    words += ["--real", str(args.real)] if args.real else []
    export.main([*words, "--out", str(args.out)])
    for part in {"segmentation", "embedding"} - given.keys():
        shutil.copy(catalogue.BUILTIN_FOLDER / f"{part}.onnx", args.out)
    rule = args.out / "clustering.json"
    if not rule.exists():
        rule.write_text(json.dumps(asdict(catalogue.SETS["builtin"].rule)) + "\n")
    lines = [f"# Run {args.run}", ""]
    for part, path in given.items():
        file = args.out / f"{part}.onnx"
        lines.append(
            f"* {part}.onnx: {parameters(net_of(part, path)) / 1e6:.2f} M parameters,"
            f" {file.stat().st_size / 1e6:.1f} MB, sha256 {evaluate.sha256(file)}"
        )
        if args.snapshots:
            print(replace_snapshot(args.snapshots, part, args.run, path))
    for name, text in figures(args.out, args.cache, args.eval, smoke=args.smoke).items():
        lines += ["", f"`evaluate.py {name}`:", "", "```", text.rstrip(), "```"]
    card = args.out / f"{args.run}.md"
    card.write_text("\n".join(lines) + "\n")
    print(card)
    return card


if __name__ == "__main__":
    main()
