"""Checkpoints are read without running them, and converted to the networks that their authors defined."""

from __future__ import annotations

import io
import re
import struct
import zipfile

import numpy as np
import pytest

import checkpoints
from witness.models import convert, session

SEGMENTATION = checkpoints.written(checkpoints.segmentation(), within="state_dict")
CAMPPLUS = checkpoints.written(checkpoints.campplus())


def of_program(program: bytes, **files: bytes) -> bytes:
    return checkpoints.zipped(
        {"a/data.pkl": program, **{f"a/data/{name}": data for name, data in files.items()}}
    )


def test_arrays_come_back() -> None:
    for content, arrays in ((SEGMENTATION, checkpoints.segmentation()), (CAMPPLUS, checkpoints.campplus())):
        found = convert.read_checkpoint(content)
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found[name], array)


def test_foreign_objects_are_placeholders() -> None:
    """As in pyannote's file: versions, enumerations and settings of its own classes."""
    foreign = b"cpyannote.audio.core.task\nSpecifications\n)\x81}(X\x01\x00\x00\x00aK\x01ub0"
    program = b"\x80\x02}(X\x04\x00\x00\x00spec" + foreign.removesuffix(b"0")
    inner = zipfile.ZipFile(io.BytesIO(CAMPPLUS))
    arrays = inner.read("archive/data.pkl").removeprefix(b"\x80\x02").removesuffix(b".")
    program += b"X\x0a\x00\x00\x00state_dict" + arrays + b"u."
    files = {name: inner.read(name) for name in inner.namelist()}
    found = convert.read_checkpoint(checkpoints.zipped({**files, "archive/data.pkl": program}))
    assert list(found) == list(checkpoints.campplus())


@pytest.mark.parametrize(
    "call", [b"cos\nsystem\n", b"cbuiltins\neval\n", b"cposix\nsystem\n", b"cwitness.files\nread\n"]
)
def test_nothing_is_called(call: bytes, tmp_path, monkeypatch) -> None:
    """The usual attack: a function and its arguments, which pickle would call."""
    monkeypatch.chdir(tmp_path)
    command = b"X\x0c\x00\x00\x00touch attack"
    for program in (
        b"\x80\x02" + call + b"(" + command + b"tR.",
        b"\x80\x02}(X\x0a\x00\x00\x00state_dict}(X\x01\x00\x00\x00a" + call + b"(" + command + b"tRuu.",
    ):
        with pytest.raises(ValueError, match="arrays"):
            convert.read_checkpoint(of_program(program))
    with pytest.raises(ValueError, match="instruction INST"):
        convert.read_checkpoint(of_program(b"\x80\x02(" + command + b"ios\nsystem\n."))
    with pytest.raises(ValueError, match="instruction STACK_GLOBAL"):
        convert.read_checkpoint(of_program(b"\x80\x04X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93."))
    assert list(tmp_path.iterdir()) == []


def tensor(count: int, shape: bytes, strides: bytes, offset: int = 0, kind: bytes = b"Float") -> bytes:
    """A program with one array of a file "0"."""
    storage = b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"Storage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    storage += b"J" + struct.pack("<i", count) + b"tQ"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"J" + struct.pack("<i", offset)
    return b"\x80\x02}(X\x01\x00\x00\x00a" + made + shape + strides + b"\x89ccollections\nOrderedDict\n)RtRu."


@pytest.mark.parametrize(
    ("program", "sign"),
    [
        (tensor(4, b"K\x04\x85", b"K\x01\x85"), None),
        (tensor(5, b"K\x04\x85", b"K\x01\x85"), "smaller than requested"),
        (tensor(4, b"K\x05\x85", b"K\x01\x85"), "incompatible with shape"),
        (tensor(4, b"K\x04\x85", b"K\x01\x85", offset=1), "incompatible with shape"),
        (tensor(4, b"K\x04\x85", b"K\x01\x85", offset=-1), "incompatible with shape"),
        (tensor(4, b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), "incompatible with shape"),
        (tensor(4, b"K\x02K\x02\x86", b"K\x01K\x03\x86"), "incompatible with shape"),
        (tensor(4, b"K\x04\x85", b"K\x02\x85"), "incompatible with shape"),
        (tensor(4, b"K\x04\x85", b"K\x01\x85", kind=b"Half"), "another kind"),
        (b"\x80\x02}.", "no dictionary"),
        (b"\x80\x02K\x01.", "no dictionary"),
        (b"\x80\x02}(X\x01\x00\x00\x00aK\x01u.", "something else"),
        (b"\x80\x02u.", "not a PyTorch checkpoint"),
        (b"\x80\x02" + b"(" * 1000 + b"t" * 1000 + b".", "no dictionary"),
        (b"", "."),
    ],
)
def test_what_does_not_fit_is_refused(program: bytes, sign: str | None) -> None:
    content = of_program(program, **{"0": np.arange(4, dtype=np.float32).tobytes()})
    if sign is None:
        np.testing.assert_array_equal(convert.read_checkpoint(content)["a"], np.arange(4))
        return
    with pytest.raises(ValueError, match=sign) as failure:
        convert.read_checkpoint(content)
    assert "\n" not in str(failure.value)


def test_arrays_may_lie_in_another_order() -> None:
    """As PyTorch keeps a transposed array: the steps say it."""
    content = of_program(
        tensor(4, b"K\x02K\x02\x86", b"K\x01K\x02\x86"), **{"0": np.arange(4, dtype=np.float32).tobytes()}
    )
    np.testing.assert_array_equal(convert.read_checkpoint(content)["a"], [[0, 2], [1, 3]])


@pytest.mark.parametrize(
    ("name", "content"), [("segmentation-3.0", SEGMENTATION), ("campplus-zh-en", CAMPPLUS)]
)
def test_mutated_files_end_in_one_line(name: str, content: bytes) -> None:
    """Bits flipped anywhere, most of them in the pickle, and files cut short."""
    rng = np.random.default_rng(0)
    start = content.index(b"\x80\x02")
    refused = 0
    for round_ in range(300):
        mutated = bytearray(content)
        for place in rng.integers(*((0, len(content)) if round_ % 3 == 0 else (start, start + 4000)), 3):
            mutated[place] ^= 1 << rng.integers(8)
        if round_ % 10 == 0:
            mutated = mutated[: rng.integers(len(content))]
        why = refusal(name, bytes(mutated))
        assert "\n" not in why
        refused += bool(why)
    assert refused > 200


def refusal(name: str, content: bytes) -> str:
    """Why a file cannot be converted; nothing if it can."""
    try:
        convert.onnx_of(name, content)
    except ValueError as error:
        return str(error)
    return ""


def test_the_networks_keep_their_contracts() -> None:
    segmentation = session.Model(convert.onnx_of("segmentation-3.0", SEGMENTATION), "segmentation")
    scores = segmentation(np.random.default_rng(1).normal(size=(2, 1, 160_000)).astype(np.float32))
    assert scores.shape == (2, 589, 7)
    np.testing.assert_allclose(np.exp(scores).sum(axis=-1), 1, rtol=1e-5)
    embedding = session.Model(convert.onnx_of("campplus-zh-en", CAMPPLUS), "embedding")
    feats = np.random.default_rng(1).normal(size=(3, 453, 80)).astype(np.float32)
    vectors = embedding(feats)
    assert vectors.shape == (3, 6)
    assert (vectors < 0).any()  # no ReLU after the last normalization
    for feat, vector in zip(feats, vectors, strict=True):
        np.testing.assert_allclose(embedding(feat[None])[0], vector, rtol=1e-3, atol=1e-4)


def test_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("the checkpoint has no sincnet")):
        convert.onnx_of("segmentation-3.0", CAMPPLUS)
    with pytest.raises(ValueError, match=re.escape("the checkpoint has no head.conv1.weight")):
        convert.onnx_of("campplus-zh-en", SEGMENTATION)


def test_filters_are_those_of_numpys_sines() -> None:
    """And their bytes do not depend on the processor: only what IEEE 754 defines exactly is used."""
    angles = np.random.default_rng(0).uniform(-400, 400, 10_000)
    sine, cosine = convert._sine(angles)
    np.testing.assert_allclose(sine, np.sin(angles), atol=2e-14)
    np.testing.assert_allclose(cosine, np.cos(angles), atol=2e-14)
