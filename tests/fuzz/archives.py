"""Archives of compiled graphs from strangers: the same number always gives the same bytes.

The program in it is one in form only, so no card is needed: a file is unpacked and verified, and never run.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from pathlib import Path

import corpus
import documents
import mmh3
import msgpack
import numpy as np

from witness.errors import GraphError, InputError
from witness.gpu import graph_cache
from witness.storage import files

GFX = "gfx1201"


def program() -> bytes:
    """What an .mxr file says, as far as it is read."""
    shape = {"lens": [1, 64, 80], "type": "float_type"}
    nodes = [
        {"name": "@param", "operator": {"parameter": "x"}, "shape": shape},
        {"name": "dot", "operator": {}, "shape": shape},
    ]
    modules = {"main": {"nodes": nodes}}
    return msgpack.packb(
        {"version": graph_cache.MXR_VERSION, "migraphx_version": "2.15.0", "modules": modules}
    )


def parts() -> dict[str, bytes]:
    """Name -> content of a whole archive."""
    content, canary = program(), io.BytesIO()
    np.save(canary, np.zeros((1, 64, 80), np.float32))
    name = f"1-0-{mmh3.hash64(GFX, 0, False, signed=False)[0]:x}-0.mxr"
    key = {"model": "m", "runtime": "r", "migraphx": "x", "gfx": GFX, "precision": "fp32"}
    names = ("compile_s", "load_s", "gpu_ms", "core_ms", "cpu_ms", "cpu_cores", "cosine", "difference")
    manifest = {
        "format": graph_cache.FORMAT,
        "key": {**key, "tuning": "default", "shape": [1, 64, 80]},
        "name": "voice",
        "file": name,
        "size": len(content),
        "sha256": files.sha256(content),
        "version": "2.15.0",
        "canary": files.sha256(canary.getvalue()),
        "measured": dict.fromkeys(names, 1),
    }
    return {
        graph_cache.MANIFEST: json.dumps(manifest).encode(),
        name: content,
        graph_cache.CANARY: canary.getvalue(),
    }


def archive(chance: random.Random) -> bytes:
    """One that was tampered with."""
    inside = parts()
    name = next(name for name in inside if name.endswith(".mxr"))
    manifest = json.loads(inside[graph_cache.MANIFEST])
    way = chance.random()
    if way < 0.35:
        inside[graph_cache.MANIFEST] = documents.mutated(manifest, chance)
    elif way < 0.65:
        inside[name] = _damaged(inside[name], chance) if chance.random() < 0.5 else _repacked(chance)
        manifest |= {"size": len(inside[name]), "sha256": files.sha256(inside[name])}
        inside[graph_cache.MANIFEST] = json.dumps(manifest).encode()
    elif way < 0.75:
        inside[chance.choice(["../evil", "/etc/evil", "a\x00b", "x" * 300, "\u202e", graph_cache.CANARY])] = (
            b"x"
        )
    elif way < 0.8:
        inside[graph_cache.MANIFEST] = b" " * 300_000_000
    content = io.BytesIO()
    method = chance.choice([*[zipfile.ZIP_STORED] * 6, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    if 0.75 <= way < 0.8:
        method = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(content, "w", method, compresslevel=1) as file:
        for inner, data in inside.items():
            file.writestr(inner, data)
    data = content.getvalue()
    if way >= 0.8:
        data = _damaged(data, chance)
    return data


def _damaged(data: bytes, chance: random.Random) -> bytes:
    return chance.choice((*corpus.MUTATIONS, _sizes))(bytearray(data), chance, data) or b"\0"


def _repacked(chance: random.Random) -> bytes:
    """The program with a value that nobody expects."""
    document = msgpack.unpackb(program())
    *folders, last = chance.choice(documents.places(document))
    inner = document
    for key in folders:
        inner = inner[key]
    inner[last] = chance.choice(
        [None, -1, 2**64 - 1, 1e308, float("inf"), float("nan"), "x", b"\xff", [], {}, [[]]]
    )
    return msgpack.packb(document)


def _sizes(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    """Sizes in the directory that the content does not have."""
    place = data.rfind(b"PK\1\2") + chance.choice([16, 20, 24, 28, 30, 32, 42])
    struct.pack_into("<I", data, min(place, len(data) - 4), chance.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF]))
    return bytes(data)


def unpack(file: Path, folder: Path) -> int:
    """The exit code that `witness gpu import` would have for the file, as far as it goes without a card."""
    try:
        graph_cache.unpack(file, folder)
    except (InputError, GraphError) as error:
        return error.exit_code
    return 0
