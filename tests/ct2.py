"""The model of `tests/ggml.py`, whose words are known, as a folder in CTranslate2's format."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ggml

LANGUAGES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la
mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be
tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su
""".split()  # noqa: SIM905 - a table
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

Arrays = Mapping[str, npt.NDArray[np.generic]]


def write(
    folder: Path,
    low: Sequence[bytes] = ggml.LOW_SCRIPT,
    high: Sequence[bytes] = ggml.HIGH_SCRIPT,
    *,
    vocabulary: int = ggml.ENGLISH_ONLY,
    endless: bool = False,
) -> Path:
    """Write the model to `folder`, without tokenizer.json; the arguments are those of `ggml.write`."""
    folder.mkdir(parents=True, exist_ok=True)
    embedding, start = ggml.embedding(low, high, vocabulary, endless=endless)
    (folder / "model.bin").write_bytes(content(variables(ggml.tensors(embedding, start))))
    end = 50257 if vocabulary >= ggml.MULTILINGUAL else 50256
    tokens = [written(token) for token in (ggml.SPACE, *low, *high)]
    tokens += [f"unused{number}" for number in range(end - len(tokens))]
    if vocabulary >= ggml.MULTILINGUAL:
        tokens[-1] = (
            ""  # by this token, which the published models have, CTranslate2 knows a multilingual one
        )
    special = ["endoftext", "startoftranscript", *LANGUAGES, *TASKS]
    tokens += [f"<|{name}|>" for name in special] + [f"<|{n / 50:.2f}|>" for n in range(1501)]
    (folder / "vocabulary.json").write_text(json.dumps(tokens))
    config = {
        "suppress_ids": [],
        "suppress_ids_begin": [0, end],
        "alignment_heads": [[0, 0]],
        "lang_ids": list(range(end + 2, end + 2 + len(LANGUAGES))),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def written(token: bytes) -> str:
    """Bytes as GPT-2 writes them: what cannot be printed is a character from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte if byte in printable else 256 + others.index(byte)) for byte in token)


def variables(tensors: Mapping[str, ggml.Array]) -> dict[str, npt.NDArray[np.generic]]:
    """Every tensor under CTranslate2's name: query, key and value in one, and what it has no default for."""
    found: dict[str, npt.NDArray[np.generic]] = {
        "decoder/activation": np.int8(3),  # GELU
        "decoder/alignment_heads": np.int16(1),
        "decoder/alignment_layer": np.int16(-1),
        "decoder/num_heads": np.int16(1),
        "encoder/num_heads": np.int16(1),
        "decoder/pre_norm": np.int8(1),
        "decoder/embeddings/weight": tensors["decoder.token_embedding.weight"].astype(np.float16),
    }
    for layer in ("conv1", "conv2"):
        found[f"encoder/{layer}/weight"] = tensors[f"encoder.{layer}.weight"]
        found[f"encoder/{layer}/bias"] = tensors[f"encoder.{layer}.bias"][:, 0]
    for part, norm in (("encoder", "ln_post"), ("decoder", "ln")):
        found[f"{part}/position_encodings/encodings"] = tensors[f"{part}.positional_embedding"]
        found |= _norm(tensors, f"{part}.{norm}", f"{part}/layer_norm")
        ours, theirs = f"{part}.blocks.0", f"{part}/layer_0"
        attention = {"self_attention": ("attn", (("query", "key", "value"), ("out",)))}
        if part == "decoder":
            attention["attention"] = ("cross_attn", (("query",), ("key", "value"), ("out",)))
        for name, (mine, groups) in attention.items():
            found |= _norm(tensors, f"{ours}.{mine}_ln", f"{theirs}/{name}/layer_norm")
            for number, group in enumerate(groups):
                linear = f"{theirs}/{name}/linear_{number}"
                rows = [tensors[f"{ours}.{mine}.{one}.weight"] for one in group]
                none = np.zeros(len(rows[0]), np.float32)  # a key has no bias
                biases = [tensors.get(f"{ours}.{mine}.{one}.bias", none) for one in group]
                found |= {f"{linear}/weight": np.concatenate(rows), f"{linear}/bias": np.concatenate(biases)}
        found |= _norm(tensors, f"{ours}.mlp_ln", f"{theirs}/ffn/layer_norm")
        for number, mine in enumerate(("0", "2")):
            found[f"{theirs}/ffn/linear_{number}/weight"] = tensors[f"{ours}.mlp.{mine}.weight"]
            found[f"{theirs}/ffn/linear_{number}/bias"] = tensors[f"{ours}.mlp.{mine}.bias"]
    return found


def _norm(tensors: Mapping[str, ggml.Array], ours: str, theirs: str) -> dict[str, npt.NDArray[np.generic]]:
    return {f"{theirs}/gamma": tensors[f"{ours}.weight"], f"{theirs}/beta": tensors[f"{ours}.bias"]}


def content(arrays: Arrays, *, spec: str = "WhisperSpec", version: int = 6, aliases: bool = True) -> bytes:
    """A model.bin of these arrays."""
    parts = [struct.pack("<I", version), _string(spec), struct.pack("<2I", 3, len(arrays))]
    for name, value in sorted(arrays.items()):
        array = np.asarray(value)
        data = np.ascontiguousarray(array).tobytes()
        parts += [_string(name), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        parts += [struct.pack("<BI", TYPES[array.dtype.name], len(data)), data]
    shared = [("decoder/projection/weight", "decoder/embeddings/weight")] if aliases else []
    parts.append(struct.pack("<I", len(shared)))
    return b"".join([*parts, *(_string(name) for pair in shared for name in pair)])


def _string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw
