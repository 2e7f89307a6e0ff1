"""Encoder and decoder of a Whisper model of a published shape: Vulkan against the CPU of the same machine.

    python benchmarks/whisper_vulkan.py --shape large-v3-turbo --weights q5_0 --json result.json

The weights are random and made by this script: time and memory depend on the shape alone, and the words mean
nothing. Both engines get the same noise. That they give the same tokens with the same probabilities shows
that the GPU computed correctly. Needs only numpy and a pywhispercpp with Vulkan (scripts/install-vulkan.sh).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

SHAPES = {  # -> width, heads, encoder layers, decoder layers, mel bands, tokens
    "tiny": (384, 6, 4, 4, 80, 51865),
    "base": (512, 8, 6, 6, 80, 51865),
    "small": (768, 12, 12, 12, 80, 51865),
    "medium": (1024, 16, 24, 24, 80, 51865),
    "large-v3": (1280, 20, 32, 32, 128, 51866),
    "large-v3-turbo": (1280, 20, 32, 4, 128, 51866),
}
KINDS = {"f32": 0, "f16": 1, "q5_0": 6, "q8_0": 8}  # ggml_type
FILE_KINDS = {"f16": 1, "q5_0": 8, "q8_0": 7}  # ggml_ftype
SECONDS = 30  # whisper's window


def main() -> None:
    options = parse()
    if options.engine:
        sys.stdout.write(json.dumps(measure(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        write(path, options.shape, options.weights)
        result = {
            "shape": options.shape,
            "weights": f"random, {options.weights}",
            "bytes": path.stat().st_size,
            "audio": f"{SECONDS} s of noise",
            "threads": options.threads,
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "system": f"{platform.platform()}, Python {platform.python_version()}",
            "pywhispercpp": version("pywhispercpp"),
        }
        for engine in ("vulkan", "cpu"):
            result[engine] = run(engine, path, options)
    vulkan, cpu = result["vulkan"], result["cpu"]
    result["encoder_times_as_fast"] = round(cpu["encode_ms"] / vulkan["encode_ms"], 2)
    same = [a == b for a, b in zip(vulkan["tokens"], cpu["tokens"], strict=False)]
    result["same_tokens"] = f"{sum(same)} of {len(same)}"
    pairs = zip(vulkan["probabilities"], cpu["probabilities"], same, strict=False)
    differences = [abs(a - b) for a, b, equal in pairs if equal]
    result["largest_difference_of_probability"] = max(differences, default=None)
    for found in (vulkan, cpu):
        del found["tokens"], found["probabilities"]
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n")


def parse() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--shape", choices=SHAPES, default="large-v3")
    parser.add_argument("--weights", choices=FILE_KINDS, default="f16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=7, help="encoder runs on the GPU after the first")
    parser.add_argument("--cpu-runs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--engine", choices=["vulkan", "cpu"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(engine: str, path: Path, options: argparse.Namespace) -> dict:
    """Measure an engine in a child process: whisper.cpp lists its devices only once per process."""
    environment = dict(os.environ)
    if engine == "cpu":
        environment["GGML_VK_VISIBLE_DEVICES"] = ""
    command = [sys.executable, __file__, "--engine", engine, "--model", str(path)]
    command += ["--shape", options.shape, "--weights", options.weights, "--threads", str(options.threads)]
    command += ["--runs", str(options.runs if engine == "vulkan" else options.cpu_runs)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0 or not done.stdout:
        raise SystemExit(f"{engine}: the process ended with code {done.returncode}")
    return json.loads(done.stdout)


def measure(options: argparse.Namespace) -> dict:
    import _pywhispercpp as pw

    lines: list[str] = []
    pw.whisper_log_set(lambda _level, text: lines.append(text))
    settings = pw.whisper_context_default_params()
    settings.use_gpu = options.engine == "vulkan"
    settings.flash_attn = False  # as Witness sets it
    begun = time.perf_counter()
    context = pw.whisper_init_from_file_with_params(str(options.model), settings)
    load = time.perf_counter() - begun
    log = "".join(lines)
    pw.whisper_log_set(None)
    backend = re.search(r"whisper_backend_init_gpu: using (\w+) backend", log)
    if (options.engine == "vulkan") != (backend is not None and backend[1].startswith("Vulkan")):
        raise SystemExit(f"whisper.cpp does not use {options.engine}:\n{log}")

    noise = np.random.default_rng(1).normal(0, 0.1, SECONDS * 16_000).astype(np.float32)
    succeed(pw.whisper_pcm_to_mel(context, noise, len(noise), options.threads))
    times = []
    for _ in range(1 + options.runs):
        begun = time.perf_counter()
        succeed(pw.whisper_encode(context, 0, options.threads))
        times.append(1000 * (time.perf_counter() - begun))

    wish = pw.whisper_full_default_params(pw.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    wish.n_threads, wish.language, wish.max_tokens = options.threads, "en", 32
    wish.no_timestamps, wish.single_segment, wish.temperature_inc = True, True, 0.0
    wish.print_progress = False
    begun = time.perf_counter()
    succeed(pw.whisper_full(context, wish, noise, len(noise)))
    whole = 1000 * (time.perf_counter() - begun)
    found = [
        pw.whisper_full_get_token_data(context, segment, place)
        for segment in range(pw.whisper_full_n_segments(context))
        for place in range(pw.whisper_full_n_tokens(context, segment))
    ]
    sizes = re.findall(r"whisper\w+: +(.+?) += +([\d.]+) MB", log)
    devices = re.findall(r"^ggml_vulkan: \d+ = (.+)$", log, re.M)
    return {
        "device": devices if options.engine == "vulkan" else "cpu",
        "load_s": round(load, 2),
        "first_encode_ms": round(times[0], 1),  # includes compiling the shaders
        "encode_ms": round(statistics.median(times[1:]), 1),
        "encode_ms_all": [round(time, 1) for time in times[1:]],
        "window_ms": round(whole, 1),  # spectrogram, encoder, and a step of the decoder per token
        "tokens": [token.id for token in found],
        "probabilities": [round(token.p, 6) for token in found],
        "memory_mb": {name: float(size) for name, size in sizes},
    }


def succeed(code: int) -> None:
    if code != 0:
        raise SystemExit(f"whisper.cpp returned {code}")


def write(path: Path, shape: str, weights: str) -> None:
    """Write a ggml file of that shape with the layout of whisper.cpp's convert-pt-to-ggml.py."""
    width, heads, encoder, decoder, bands, vocabulary = SHAPES[shape]
    frames, steps = 1500, 448
    noise = np.random.default_rng(0).integers(0, 256, 1 << 22, dtype=np.uint8)
    with path.open("wb") as file:
        sizes = (vocabulary, frames, width, heads, encoder, steps, width, heads, decoder, bands)
        file.write(struct.pack("<12i", 0x67676D6C, *sizes, FILE_KINDS[weights]))
        filters = np.zeros((bands, 201), np.float32)
        filters[np.arange(bands), np.arange(bands) * 200 // bands] = 1
        file.write(struct.pack("<2i", bands, 201) + filters.tobytes())
        texts = [bytes([byte]) for byte in range(256)] + [b" %d" % number for number in range(50_257 - 256)]
        file.write(struct.pack("<i", len(texts)))
        for text in texts:
            file.write(struct.pack("<i", len(text)) + text)

        def tensor(name: str, *dimensions: int, kind: str = "f32", value: float | None = None) -> None:
            """Write a tensor of one value, or random ones around 0; ggml counts dimensions from the last."""
            encoded = name.encode()
            head = struct.pack("<3i", len(dimensions), len(encoded), KINDS[kind])
            file.write(head + struct.pack(f"<{len(dimensions)}i", *dimensions[::-1]) + encoded)
            count = int(np.prod(dimensions))
            data = random(noise, count, kind) if value is None else np.full(count, value, np.float32)
            file.write(data.tobytes())

        def linear(name: str, out: int, into: int, bias: bool = True) -> None:
            tensor(f"{name}.weight", out, into, kind=weights)
            if bias:
                tensor(f"{name}.bias", out, value=0)

        def norm(name: str) -> None:
            tensor(f"{name}.weight", width, value=1)
            tensor(f"{name}.bias", width, value=0)

        def attention(name: str) -> None:
            for part in ("query", "key", "value", "out"):
                linear(f"{name}.{part}", width, width, bias=part != "key")

        def block(name: str, cross: bool) -> None:
            for part in ("attn", "cross_attn") if cross else ("attn",):
                attention(f"{name}.{part}")
                norm(f"{name}.{part}_ln")
            linear(f"{name}.mlp.0", 4 * width, width)
            linear(f"{name}.mlp.2", width, 4 * width)
            norm(f"{name}.mlp_ln")

        tensor("encoder.positional_embedding", frames, width)
        tensor("encoder.conv1.weight", width, bands, 3, kind="f16")
        tensor("encoder.conv1.bias", width, 1, value=0)
        tensor("encoder.conv2.weight", width, width, 3, kind="f16")
        tensor("encoder.conv2.bias", width, 1, value=0)
        for number in range(encoder):
            block(f"encoder.blocks.{number}", cross=False)
        norm("encoder.ln_post")
        tensor("decoder.positional_embedding", steps, width)
        tensor("decoder.token_embedding.weight", vocabulary, width, kind=weights)
        for number in range(decoder):
            block(f"decoder.blocks.{number}", cross=True)
        norm("decoder.ln")


def random(noise: np.ndarray, count: int, kind: str) -> np.ndarray:
    """`count` numbers between about -0.03 and 0.03, in ggml's format of that kind."""
    if kind in ("f32", "f16"):
        numbers = np.resize((noise.astype(np.float32) - 127.5) / 4096, count)
        return numbers.astype(np.float16 if kind == "f16" else np.float32)
    scale = np.frombuffer(np.float16(0.03 / (16 if kind == "q5_0" else 127)).tobytes(), np.uint8)
    size = 22 if kind == "q5_0" else 34  # bytes of 32 numbers: a scale, then their digits
    blocks = np.resize(noise, (count // 32, size))
    blocks[:, :2] = scale
    return blocks


def processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else platform.processor()


if __name__ == "__main__":
    main()
