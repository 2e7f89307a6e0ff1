"""A Whisper model in CTranslate2's format, as faster-whisper uses it -> a ggml file for whisper.cpp.

    python tests/ct2_to_ggml.py FOLDER FILE

The weights stay the same, rounded to 16 bits where whisper.cpp wants that, so that both engines can be
compared and tested with one model.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from witness.models import ct2_header
from witness.recognition.aligner import mel_filters

Array = npt.NDArray[np.float32]

TYPES = {0: np.float32, 4: np.float16}
"""CTranslate2's number of a type -> numpy's; int8 models have lost what ggml wants."""


class Weights:
    """The arrays of a model.bin by CTranslate2's names."""

    def __init__(self, path: Path) -> None:
        self.data = ct2_header.open_weights(path)
        self.variables = ct2_header.read_variables(self.data)

    def __getitem__(self, name: str) -> Array:
        variable = self.variables[name]
        if variable.type not in TYPES:
            raise SystemExit(f"{name} is quantized; convert a model in float16 or float32")
        count = variable.size // ct2_header.SIZES[variable.type]
        flat = np.frombuffer(self.data, TYPES[variable.type], count, variable.start)
        return flat.reshape(variable.shape).astype(np.float32)

    def number(self, name: str) -> int:
        variable = self.variables[name]
        return int.from_bytes(self.data[variable.start : variable.start + variable.size], "little")

    def layers(self, part: str) -> int:
        """How many layers the "encoder" or "decoder" has."""
        return 1 + max(
            int(name.split("/")[1].removeprefix("layer_"))
            for name in self.variables
            if name.startswith(f"{part}/layer_") and not name.startswith(f"{part}/layer_norm")
        )


def convert(folder: Path, target: Path) -> Path:
    """Write the model in `folder` to `target` in ggml's format, its matrices in 16 bits. Returns `target`."""
    weights = Weights(folder / "model.bin")
    vocabulary, width = weights["decoder/embeddings/weight"].shape
    bands = weights["encoder/conv1/weight"].shape[1]
    sizes = (
        *(vocabulary, len(weights["encoder/position_encodings/encodings"]), width),
        *(weights.number("encoder/num_heads"), weights.layers("encoder")),
        *(len(weights["decoder/position_encodings/encodings"]), width),
        *(weights.number("decoder/num_heads"), weights.layers("decoder")),
        *(bands, 1),  # 1: matrices have 16 bits
    )
    tokens = [in_bytes(token) for token in texts(folder)]
    with target.open("wb") as file:
        file.write(struct.pack("<12i", 0x67676D6C, *sizes))
        file.write(struct.pack("<2i", bands, 201) + mel_filters(bands).tobytes())
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, tensor in tensors(weights):
            write_tensor(file, name, tensor)
    return target


def texts(folder: Path) -> list[str]:
    """The vocabulary up to the first special token: whisper.cpp knows those that follow."""
    words = ct2_header.read_vocabulary(folder)
    return words[: words.index(ct2_header.END_OF_TEXT)]


def in_bytes(token: str) -> bytes:
    """The bytes that a token stands for."""
    return bytes(ct2_header.BYTES[character] for character in token)


def tensors(weights: Weights) -> Iterator[tuple[str, Array]]:
    """Every tensor under OpenAI's name for it."""
    for part in ("encoder", "decoder"):
        yield f"{part}.positional_embedding", weights[f"{part}/position_encodings/encodings"]
        norm = "ln_post" if part == "encoder" else "ln"
        yield from _norm(weights, f"{part}/layer_norm", f"{part}.{norm}")
        for layer in range(weights.layers(part)):
            theirs, ours = f"{part}/layer_{layer}", f"{part}.blocks.{layer}"
            yield from _self_attention(weights, f"{theirs}/self_attention", f"{ours}.attn")
            if part == "decoder":
                yield from _cross_attention(weights, f"{theirs}/attention", f"{ours}.cross_attn")
            yield from _norm(weights, f"{theirs}/ffn/layer_norm", f"{ours}.mlp_ln")
            yield from _linear(weights, f"{theirs}/ffn/linear_0", f"{ours}.mlp.0")
            yield from _linear(weights, f"{theirs}/ffn/linear_1", f"{ours}.mlp.2")
    for layer in ("conv1", "conv2"):
        yield f"encoder.{layer}.weight", weights[f"encoder/{layer}/weight"]
        yield f"encoder.{layer}.bias", weights[f"encoder/{layer}/bias"][:, None]
    yield "decoder.token_embedding.weight", weights["decoder/embeddings/weight"]


def _norm(weights: Weights, theirs: str, ours: str) -> Iterator[tuple[str, Array]]:
    yield f"{ours}.weight", weights[f"{theirs}/gamma"]
    yield f"{ours}.bias", weights[f"{theirs}/beta"]


def _linear(weights: Weights, theirs: str, ours: str) -> Iterator[tuple[str, Array]]:
    yield f"{ours}.weight", weights[f"{theirs}/weight"]
    yield f"{ours}.bias", weights[f"{theirs}/bias"]


def _self_attention(weights: Weights, theirs: str, ours: str) -> Iterator[tuple[str, Array]]:
    """CTranslate2 stacks the rows of query, key and value."""
    yield from _norm(weights, f"{theirs}/layer_norm", f"{ours}_ln")
    yield from _split(weights, f"{theirs}/linear_0", ours, ("query", "key", "value"))
    yield from _linear(weights, f"{theirs}/linear_1", f"{ours}.out")


def _cross_attention(weights: Weights, theirs: str, ours: str) -> Iterator[tuple[str, Array]]:
    """Query by itself: what it looks at comes from elsewhere."""
    yield from _norm(weights, f"{theirs}/layer_norm", f"{ours}_ln")
    yield from _linear(weights, f"{theirs}/linear_0", f"{ours}.query")
    yield from _split(weights, f"{theirs}/linear_1", ours, ("key", "value"))
    yield from _linear(weights, f"{theirs}/linear_2", f"{ours}.out")


def _split(weights: Weights, theirs: str, ours: str, parts: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    matrices = np.split(weights[f"{theirs}/weight"], len(parts))
    biases = np.split(weights[f"{theirs}/bias"], len(parts))
    for part, matrix, bias in zip(parts, matrices, biases, strict=True):
        yield f"{ours}.{part}.weight", matrix
        if part != "key":  # Whisper's keys have none
            yield f"{ours}.{part}.bias", bias


def write_tensor(file: BinaryIO, name: str, tensor: Array) -> None:
    """Matrices in 16 bits, as whisper.cpp expects them; ggml counts dimensions from the last."""
    half = tensor.ndim >= 2 and not name.endswith(("bias", "positional_embedding"))
    encoded = name.encode()
    header = struct.pack("<3i", tensor.ndim, len(encoded), 1 if half else 0)
    shape = struct.pack(f"<{tensor.ndim}i", *tensor.shape[::-1])
    file.write(header + shape + encoded + tensor.astype(np.float16 if half else np.float32).tobytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="model.bin and vocabulary.txt or vocabulary.json")
    parser.add_argument("file", type=Path, help="the ggml file to write")
    arguments = parser.parse_args()
    print(convert(arguments.folder, arguments.file))  # noqa: T201
