"""How CTranslate2's recognizer uses many cores: groups of pieces at a time, and cores for each.

    python benchmarks/cores.py measure RECORDING --whisper FOLDER [--at 4x4] [--at 16x4] [--batch 4]
    python benchmarks/cores.py random FOLDER --like FOLDER --shape 1280,32,4,20,128,51866

`measure` hears a recording, in pieces of 30 s, with so many groups at a time and cores for each (the
default: as shipped), each in a new process, in turn: seconds without loading, processor seconds, memory
beyond the loaded model for each group, and a hash of all tokens, their times and probabilities. `random`
writes a model of random weights with the names of another one: width, encoder and decoder layers, heads,
bands, tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import re
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from witness import resources
from witness.audio import decode
from witness.bench import machine
from witness.child import resident
from witness.models import ct2
from witness.recognition import aligner, ctranslate
from witness.recognition.engine_worker import DecodeOptions, Load
from witness.schema import SAMPLE_RATE

PIECE = 30 * SAMPLE_RATE
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def measure(recording: Path, whisper: Path, at: tuple[int, int] | None, batch: int) -> dict[str, object]:
    """One run, in a process of its own."""
    threads = resources.cores()
    if at is not None:
        ctranslate.WORKERS, aligner.EACH = at
        # As many as asked for, on fewer cores, too.
        threads = max(at)
    samples = np.asarray(decode.load(recording).samples[0][:], np.float32)
    pieces = [samples[start : start + PIECE] for start in range(0, len(samples), PIECE)]
    engine = ctranslate.Engine(Load(str(whisper), gpu=False, threads=threads, aligner=None))
    size = max(1, min(batch, len(pieces) // engine.workers))
    groups = [pieces[start : start + size] for start in range(0, len(pieces), size)]
    before, used = resident(os.getpid()), time.process_time()
    begun = time.perf_counter()
    with ThreadPoolExecutor(engine.workers) as pool:
        heard = list(pool.map(lambda group: engine.hear(group, DecodeOptions(1, "en")), groups))
    seconds = time.perf_counter() - begun
    held = (machine.peak_memory() or 0) - before / 1e6
    tokens = [(one.tokens, one.logprob) for group in heard for one in group]
    return {
        "model": whisper.name,
        "workers": engine.workers,
        "each": min(threads, aligner.EACH),
        "batch": size,
        "seconds": round(seconds, 2),
        "processor_seconds": round(time.process_time() - used, 1),
        "mb_per_group": round(held / min(engine.workers, len(groups))),
        "tokens": sum(len(one) for one, _ in tokens),
        "sha256": hashlib.sha256(repr(tokens).encode()).hexdigest()[:8],
    }


def random(folder: Path, like: Path, shape: list[int]) -> None:
    """Write a model of random weights in another shape."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import ct2 as writer

    width, encoder, decoder, heads, bands, tokens = shape
    data = ct2.open_weights(like / ct2.WEIGHTS)
    variables = ct2.walk(data)
    old_tokens, old = variables["decoder/embeddings/weight"].shape
    sizes = {old * times: width * times for times in (1, 2, 3, 4)} | {old_tokens: tokens}
    sizes[variables["encoder/conv1/weight"].shape[1]] = bands
    rng = np.random.default_rng(0)
    arrays = {}
    for name, variable in variables.items():
        part = re.match(r"(encoder|decoder)/layer_(\d+)/(.*)", name)
        if part and part[2] != "0":
            continue
        layers = {"encoder": encoder, "decoder": decoder}[part[1]] if part else 1
        if variable.type in (0, 4) and variable.shape:
            new = tuple(sizes.get(size, size) for size in variable.shape)
            scale = 0.02 if len(new) > 1 else 0.0
            made = [rng.standard_normal(new, np.float32) * scale for _ in range(layers)]
            values = [(one + name.endswith("gamma")).astype(np.float16) for one in made]
        else:
            kept = np.frombuffer(data, TYPES[variable.type], math.prod(variable.shape), variable.place)
            values = [kept.reshape(variable.shape).copy()] * layers
            if name.endswith("num_heads"):
                values = [np.full_like(values[0], heads)] * layers
        for layer, value in enumerate(values):
            arrays[f"{part[1]}/layer_{layer}/{part[3]}" if part else name] = value
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ct2.WEIGHTS).write_bytes(writer.content(arrays))
    words = ct2.vocabulary(like)
    words += [f"<|{number}|>" for number in range(tokens - len(words))]
    (folder / ct2.VOCABULARIES[0]).write_text(json.dumps(words))
    config = json.loads((like / ct2.CONFIG).read_text()) | {"alignment_heads": [[decoder - 1, 0]]}
    (folder / ct2.CONFIG).write_text(json.dumps(config))
    shutil.copy(like / ct2.TOKENIZER, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("measure")
    sub.add_argument("recording", type=Path)
    sub.add_argument("--whisper", type=Path, required=True)
    sub.add_argument("--at", action="append", metavar="GROUPSxCORES")
    sub.add_argument("--batch", type=int, default=ctranslate.BATCH)
    sub.add_argument("--repeat", type=int, default=3)
    sub = commands.add_parser("random")
    sub.add_argument("folder", type=Path)
    sub.add_argument("--like", type=Path, required=True)
    sub.add_argument("--shape", required=True)
    options = parser.parse_args()
    if options.command == "random":
        random(options.folder, options.like, [int(part) for part in options.shape.split(",")])
        return
    ways = [tuple(int(part) for part in way.split("x")) for way in options.at or ()] or [None]
    for _ in range(options.repeat):
        for way in ways:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                job = process.submit(measure, options.recording, options.whisper, way, options.batch)
                sys.stdout.write(json.dumps(job.result()) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
