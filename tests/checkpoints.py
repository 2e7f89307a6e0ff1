"""Small networks in PyTorch's checkpoint format, made without PyTorch, and wheels that hold them."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def written(
    arrays: Arrays, *, before: bytes = b"", within: str | None = None, root: str = "archive"
) -> bytes:
    """A checkpoint as torch.save writes it: a pickle of the second protocol in a zip, with raw numbers.

    `before` are instructions at the beginning; `within` is a key of a dictionary around the arrays.
    """
    program, files = io.BytesIO(), {}
    program.write(b"\x80\x02" + before)
    if within:
        program.write(b"}(" + _text("epoch") + b"K\x07" + _text(within))
    program.write(b"}(")
    for number, (name, array) in enumerate(arrays.items()):
        files[f"data/{number}"] = array.tobytes()
        kind = "Float" if array.dtype == np.float32 else "Long"
        storage = b"(" + _text("storage") + f"ctorch\n{kind}Storage\n".encode() + _text(str(number))
        storage += _text("cpu") + _number(array.size) + b"tQ"
        strides = [int(np.prod(array.shape[place + 1 :])) for place in range(array.ndim)]
        program.write(_text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00")
        program.write(_numbers(array.shape) + _numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR")
    program.write(b"uu." if within else b"u.")
    return zipped(
        {f"{root}/{name}": content for name, content in {"data.pkl": program.getvalue(), **files}.items()}
    )


def zipped(files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip with files of no particular time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return content.getvalue()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _numbers(numbers: Any) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def segmentation(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """PyanNet with four filters and an LSTM of two layers of two."""
    rng = np.random.default_rng(seed)
    times = (2 * np.pi * np.arange(-125, 0) / 16_000).astype(np.float32)
    arrays: dict[str, Any] = {
        "sincnet.conv1d.0.filterbank.low_hz_": np.array([[100.0], [900.0]]),
        "sincnet.conv1d.0.filterbank.band_hz_": np.array([[300.0], [2000.0]]),
        "sincnet.conv1d.0.filterbank.window_": np.hamming(250)[:125],
        "sincnet.conv1d.0.filterbank.n_": times[None],
    }
    shapes = {"sincnet.conv1d.1": (3, 4, 5), "sincnet.conv1d.2": (3, 3, 5)}
    shapes |= {"linear.0": (4, 4), "linear.1": (4, 4), "classifier": (7, 4)}
    for name, shape in shapes.items():
        arrays |= {f"{name}.weight": rng.normal(size=shape), f"{name}.bias": rng.normal(size=shape[0])}
    for name, size in {"wav_norm1d": 1, "norm1d.0": 4, "norm1d.1": 3, "norm1d.2": 3}.items():
        arrays |= {f"sincnet.{name}.weight": np.ones(size), f"sincnet.{name}.bias": np.zeros(size)}
    for layer, inputs in enumerate((3, 4)):
        for way in ("", "_reverse"):
            for kind, shape in {
                "weight_ih": (8, inputs),
                "weight_hh": (8, 2),
                "bias_ih": 8,
                "bias_hh": 8,
            }.items():
                arrays[f"lstm.{kind}_l{layer}{way}"] = rng.normal(size=shape)
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def campplus(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """CAM++ with two channels, one layer a block and vectors of six numbers."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}

    def normalized(name: str, size: int, learned: bool = True) -> None:
        arrays[f"{name}.running_mean"] = rng.normal(size=size)
        arrays[f"{name}.running_var"] = rng.uniform(0.5, 2, size)
        arrays[f"{name}.num_batches_tracked"] = np.array(7, np.int64)
        if learned:
            arrays[f"{name}.weight"], arrays[f"{name}.bias"] = rng.normal(size=(2, size))

    def convolved(name: str, *shape: int, bias: bool = False) -> None:
        arrays[f"{name}.weight"] = rng.normal(size=shape)
        if bias:
            arrays[f"{name}.bias"] = rng.normal(size=shape[0])

    convolved("head.conv1", 2, 1, 3, 3)
    normalized("head.bn1", 2)
    for layer in (1, 2):
        for block in (0, 1):
            name = f"head.layer{layer}.{block}"
            for part in (1, 2):
                convolved(f"{name}.conv{part}", 2, 2, 3, 3)
                normalized(f"{name}.bn{part}", 2)
            if not block:
                convolved(f"{name}.shortcut.0", 2, 2, 1, 1)
                normalized(f"{name}.shortcut.1", 2)
    convolved("head.conv2", 2, 2, 3, 3)
    normalized("head.bn2", 2)
    convolved("xvector.tdnn.linear", 4, 20, 5)
    normalized("xvector.tdnn.nonlinear.batchnorm", 4)
    for block in (1, 2, 3):
        name = f"xvector.block{block}.tdnnd1"
        normalized(f"{name}.nonlinear1.batchnorm", 4)
        convolved(f"{name}.linear1", 4, 4, 1)
        normalized(f"{name}.nonlinear2.batchnorm", 4)
        convolved(f"{name}.cam_layer.linear_local", 2, 4, 3)
        convolved(f"{name}.cam_layer.linear1", 2, 4, 1, bias=True)
        convolved(f"{name}.cam_layer.linear2", 2, 2, 1, bias=True)
        normalized(f"xvector.transit{block}.nonlinear.batchnorm", 6)
        convolved(f"xvector.transit{block}.linear", 4, 6, 1)
    normalized("xvector.out_nonlinear.batchnorm", 4)
    convolved("xvector.dense.linear", 6, 8, 1)
    normalized("xvector.dense.nonlinear.batchnorm", 6, learned=False)
    return {
        name: np.ascontiguousarray(array) if array.dtype == np.int64 else array.astype(np.float32)
        for name, array in ((name, np.asarray(array)) for name, array in arrays.items())
    }
