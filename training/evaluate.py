# ruff: noqa: T201 - a training script: what it prints is its result
"""Every figure of the model cards, and the choice of the clustering threshold.

    evaluate.py verify   --models DIR --cache DIR    equal error rates on the held-out speakers, and on dev
    evaluate.py windows  --models DIR --eval DIR     error inside single windows of pyannote_sample
    evaluate.py tune     --models DIR --cache DIR    linkage and threshold, on conversations of dev speakers

`tune` is the only one whose result is used for anything, and it sees training speakers only. `--models` is
a folder with segmentation.onnx and embedding.onnx. Whole recordings: `benchmarks/accuracy.py --models DIR`.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnxruntime
import simulate
import torch
from augment import Dice
from channels import with_flat
from metrics import describe, equal_error_rate, pair_scores, window_errors
from scipy.optimize import linear_sum_assignment
from train_embedding import by_age, pieces

from data import HELD_OUT, SAMPLE_RATE, Corpus, voices
from witness.diarization import clustering, embedding, reconstruction, segmentation
from witness.diarization.fbank import fbank, frame_count
from witness.formats import rttm
from witness.models import catalogue
from witness.schema import FRAME_DURATION, FRAME_STEP, FRAMES, ModelFile, Segmentation

THRESHOLDS = np.round(np.arange(0.70, 1.31, 0.02), 2)
TUNING_SEED, TUNING_RECORDINGS = 4242, 36
FLAT = 0.01  # thresholds with so much more error than the best one are as good


def session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(model: onnxruntime.InferenceSession, array: np.ndarray) -> np.ndarray:
    return model.run(None, {model.get_inputs()[0].name: array})[0]


# --- verify ---


def verify(models: Path, cache: Path, *, most: int | None = None) -> None:
    """Equal error rates over all pairs of pieces from different clips."""
    corpus = Corpus.load(cache, "cpu")
    model = session(models / "embedding.onnx", 2)
    held_out, dev = voices(corpus, split=HELD_OUT, shortest=10), voices(corpus, dev=True)
    pools = by_age(held_out, "held out") | by_age(dev, "dev")
    for title, pool in pools.items():
        pool.order = pool.order[:most]
        for seconds in (3.0, 1.5):
            found, speakers, clips = pieces(corpus, pool, seconds)
            vectors = []
            for clip, first, size in found:
                rows = corpus.audio[int(corpus.start[clip]) + first :][:size]
                samples = (rows.flatten().float() / 32768).numpy()
                feats = fbank(samples, 0, frame_count(len(samples)))
                vectors.append(run(model, (feats - feats.mean(0))[None].astype(np.float32))[0])
            unit = np.stack(vectors)
            corpora = np.array([corpus.names[s].split("/")[1] for s in speakers])
            for corpus_name in ["all", *sorted(set(corpora))]:
                chosen = (corpora == corpus_name) | (corpus_name == "all")
                same, different = pair_scores(unit[chosen], speakers[chosen], clips[chosen])
                if len(same) > 20 and len(different):
                    rate, threshold = equal_error_rate(same, different)
                    low, high = (
                        eer_interval(unit[chosen], speakers[chosen], clips[chosen])
                        if corpus_name == "all"
                        else (0, 0)
                    )
                    interval = f" [{low:.2f}, {high:.2f}]" if high else ""
                    print(
                        f"{title} {seconds} s {corpus_name}: EER {rate:.2f} %{interval} at {threshold:.3f},"
                        f" {len(set(speakers[chosen]))} speakers, {len(same)} + {len(different)} pairs",
                        flush=True,
                    )


def eer_interval(
    vectors: np.ndarray, speakers: np.ndarray, clips: np.ndarray, times: int = 200
) -> tuple[float, float]:
    """95 % interval by drawing speakers, not pairs: a speaker's pairs stand or fall together."""
    generator, names = np.random.default_rng(0), np.unique(speakers)
    rates = []
    for _ in range(times):
        drawn = generator.choice(names, len(names))
        rows = [np.flatnonzero(speakers == name) for name in drawn]
        # A speaker drawn twice counts as one person twice, never as two.
        owner = np.repeat(drawn, [len(r) for r in rows])
        copy = np.repeat(np.arange(len(drawn)), [len(r) for r in rows])
        index = np.concatenate(rows)
        unit = vectors[index] / np.linalg.norm(vectors[index], axis=1, keepdims=True)
        one, other = np.triu_indices(len(unit), 1)
        valid = (clips[index][one] != clips[index][other]) & (
            (copy[one] == copy[other]) | (owner[one] != owner[other])
        )
        scores = (unit @ unit.T)[one[valid], other[valid]]
        same = owner[one[valid]] == owner[other[valid]]
        rates.append(equal_error_rate(scores[same], scores[~same])[0])
    return float(np.quantile(rates, 0.025)), float(np.quantile(rates, 0.975))


# --- windows ---


def reference_frames(turns: list, names: list[str], start: float, frames: int) -> np.ndarray:
    """(frames, speakers) 0/1: who speaks at the middle of each segmentation frame after `start` seconds."""
    middles = start + np.arange(frames) * FRAME_STEP + FRAME_DURATION / 2
    active = np.zeros((frames, len(names)), int)
    for turn in turns:
        active[(middles >= turn.start) & (middles < turn.end), names.index(turn.speaker)] = 1
    return active


def windows(models: Path, folder: Path) -> None:
    """Error within 10 s windows, one second apart, each with its own best mapping."""
    import soundfile

    model = session(models / "segmentation.onnx", 2)
    (turns,) = rttm.parse((folder / "pyannote_sample.rttm").read_text()).values()
    samples, _ = soundfile.read(folder / "pyannote_sample.flac", dtype="float32")
    names, total = sorted({turn.speaker for turn in turns}), np.zeros(4)
    for second in range(len(samples) // SAMPLE_RATE - 9):
        piece = samples[second * SAMPLE_RATE :][: 10 * SAMPLE_RATE]
        active = segmentation.decode(run(model, piece[None, None]))[0]
        total += window_errors(active, reference_frames(turns, names, second, FRAMES))
    print(f"pyannote_sample, local DER: {describe(total)}", flush=True)


# --- tune ---


def recording_errors(hypothesis: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """(frames, speakers) each -> [false alarm, missed, confusion, total] under the best mapping of
    speakers.
    """
    said, heard = reference.sum(1), hypothesis.sum(1)
    together = reference.T.astype(int) @ hypothesis.astype(int)
    correct = together[linear_sum_assignment(-together)].sum()
    confusion = np.minimum(said, heard).sum() - correct
    return np.array(
        [np.maximum(heard - said, 0).sum(), np.maximum(said - heard, 0).sum(), confusion, said.sum()], float
    )


def tune(
    models: Path, cache: Path, *, recordings: int = TUNING_RECORDINGS, seconds: tuple[int, int] = (30, 150)
) -> None:
    """Linkage and threshold with the least error on simulated conversations; written to clustering.json."""
    torch.manual_seed(0)
    corpus = Corpus.load(cache, "cpu")
    pool = voices(corpus, dev=True)
    corpus = with_flat(corpus, pool.order)
    segmenter = segmentation.load(ModelFile("segmentation", str(models / "segmentation.onnx"), ""))
    # The cut model is kept under its sha256: without one, under a name of its own.
    voice = embedding.load(
        ModelFile("embedding", str(models / "embedding.onnx"), sha256(models / "embedding.onnx"))
    )
    errors = {(linkage, t): np.zeros(4) for linkage in ("average", "centroid") for t in THRESHOLDS}
    right = dict.fromkeys(errors, 0)
    surplus = dict.fromkeys(errors, 0)
    for number in range(recordings):
        dice = Dice.seeded("cpu", TUNING_SEED, number)
        people = 1 + number % 5
        length = seconds[0] + (seconds[1] - seconds[0]) * number // max(1, recordings - 1)
        samples, spoken = simulate.conversation(dice, corpus, pool, people, length)
        wave = samples.numpy()
        faint = catalogue.SETS["builtin"].rule.faint
        found = Segmentation.joined(segmentation.stream(wave, segmenter, faint=faint))
        vectors = embedding.embed(wave, [found], voice)
        for (linkage, threshold), total in errors.items():
            rule = replace(catalogue.SETS["builtin"].rule, linkage=linkage, threshold=float(threshold))
            labels = clustering.cluster(vectors, found.active, rule, step=found.step).labels
            active = reconstruction.reconstruct(found, labels).active
            middles = ((np.arange(len(active)) * FRAME_STEP + FRAME_DURATION / 2) * 100).astype(int)
            active, middles = active[middles < spoken.shape[1]], middles[middles < spoken.shape[1]]
            reference = spoken.numpy().T[middles]
            total += recording_errors(active, reference)
            right[linkage, threshold] += active.shape[1] == reference.any(0).sum()
            surplus[linkage, threshold] += active.shape[1] - int(reference.any(0).sum())
    rates = {key: total[:3].sum() / total[3] for key, total in errors.items()}
    for linkage in ("average", "centroid"):
        for threshold in THRESHOLDS:
            key = linkage, threshold
            print(
                f"{linkage} {threshold:.2f}: {describe(errors[key])}, count right"
                f" {right[key]} of {recordings},"
                f" {surplus[key]:+d} speakers"
            )
    # Many thresholds are as good as the best; of these, the one that finds neither too many speakers
    # nor too few.
    linkage = min(rates, key=rates.__getitem__)[0]
    low = min(rates[linkage, t] for t in THRESHOLDS)
    flat = [t for t in THRESHOLDS if rates[linkage, t] <= low + FLAT]
    best = min(flat, key=lambda t: abs(surplus[linkage, t]))
    chosen = asdict(replace(catalogue.SETS["builtin"].rule, linkage=linkage, threshold=float(best)))
    (models / "clustering.json").write_text(json.dumps(chosen) + "\n")
    print(f"flat from {flat[0]} to {flat[-1]}; wrote {chosen}", flush=True)


def sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["verify", "windows", "tune", "smoke"])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--eval", type=Path)
    args = parser.parse_args(argv)
    if args.what == "verify":
        verify(args.models, args.cache)
    elif args.what == "windows":
        windows(args.models, args.eval)
    elif args.what == "tune":
        tune(args.models, args.cache)
    else:
        verify(args.models, args.cache, most=4)
        tune(args.models, args.cache, recordings=2, seconds=(20, 20))


if __name__ == "__main__":
    main()
