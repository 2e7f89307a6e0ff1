"""Models in CTranslate2's format, read without CTranslate2: what is whole, and what is refused."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ct2 as writer
import ggml
from conftest import ROOT
from witness.errors import ModelError, UsageError
from witness.models import ct2_header, user_files
from witness.models import ggml_header as ggml_file
from witness.options import Options
from witness.recognition.aligner import mel_filters
from witness.recognition.recognizer import check_model

sys.path.insert(0, str(ROOT / "benchmarks"))
import ct2_to_ggml


@pytest.fixture(scope="module")
def arrays() -> writer.Arrays:
    embedding, start = ggml.embedding(ggml.LOW_SCRIPT, ggml.HIGH_SCRIPT, ggml.MULTILINGUAL)
    return writer.variables(ggml.tensors(embedding, start))


@pytest.fixture(scope="module")
def tiny() -> bytes:
    """A file with every kind of field, and little in it."""
    return writer.content({"a": np.zeros((2, 3), np.float32), "decoder/embeddings/weight": np.int8(1)})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writer.write(tmp_path_factory.mktemp("original"), vocabulary=ggml.MULTILINGUAL)


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A model of which files may be replaced."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in original.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def put(folder: Path, name: str, content: bytes) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(content)


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as failure:
        ct2_header.inspect(folder)
    line = str(failure.value)
    assert "\n" not in line
    assert str(folder) in line
    assert "download it again" in line
    return line


# --- whole ones ---


def test_a_folder_says_what_it_holds(folder: Path) -> None:
    assert ct2_header.inspect(folder) == ct2_header.Ct2Header(51865, 80, 64, 1, 1, 1, 448)
    assert ct2_header.inspect(folder).multilingual
    found = user_files.read_recognizer(folder)
    assert (found.name, found.path, found.engine) == ("model", str(folder), "ctranslate2")
    check_model(found, Options(language="de", translate=True))
    english = user_files.read_recognizer(writer.write(folder.parent / "english"))
    assert not ct2_header.inspect(Path(english.path)).multilingual
    check_model(english, Options(language="en", translate=False))
    with pytest.raises(
        UsageError, match=r"english does not know the language 'de' \(it knows only English\)"
    ):
        check_model(english, Options(language="de", translate=False))


def test_either_vocabulary_will_do(folder: Path) -> None:
    tokens = ct2_header.read_vocabulary(folder)
    (folder / "vocabulary.json").unlink()
    (folder / "vocabulary.txt").write_text("\n".join(tokens) + "\n", "utf-8")
    assert ct2_header.read_vocabulary(folder) == tokens
    assert ct2_header.inspect(folder).tokens == len(tokens)


@pytest.mark.parametrize("type_", ["int8", "int16"])
def test_quantized_weights_have_scales(folder: Path, arrays: writer.Arrays, type_: str) -> None:
    name = "encoder/layer_0/ffn/linear_0/weight"
    quantized = {**arrays, name: arrays[name].astype(type_)}
    put(folder, "model.bin", writer.content(quantized))
    assert "no scale" in refusal(folder)
    quantized[f"{name}_scale"] = np.ones(256, np.float32)
    put(folder, "model.bin", writer.content(quantized))
    ct2_header.inspect(folder)


# --- damaged and foreign ones ---


@pytest.mark.parametrize("name", ["model.bin", "config.json", "vocabulary.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name} is missing" in refusal(folder)


def without(name: str) -> Callable[[writer.Arrays], writer.Arrays]:
    return lambda arrays: {key: value for key, value in arrays.items() if key != name}


def reshaped(name: str, *shape: int) -> Callable[[writer.Arrays], writer.Arrays]:
    return lambda arrays: {**arrays, name: np.zeros(shape, np.float32)}


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (without("encoder/conv2/bias"), "encoder/conv2/bias is missing"),
        (without("decoder/layer_0/ffn/linear_0/weight"), "the decoder has no layers"),
        (without("decoder/num_heads"), "num_heads"),
        (reshaped("decoder/num_heads"), "num_heads"),
        (lambda arrays: {**arrays, "decoder/num_heads": np.int16(0)}, "no Whisper model has these sizes"),
        (lambda arrays: {**arrays, "decoder/num_heads": np.int16(7)}, "no Whisper model has these sizes"),
        (reshaped("encoder/conv1/weight", 64, 81, 3), "no Whisper model has these sizes"),
        (reshaped("encoder/conv1/weight", 64, 80), "encoder/conv1/weight is missing or has another form"),
        (reshaped("decoder/layer_0/attention/linear_1/weight", 64, 64), "linear_1/weight is missing or has"),
        (reshaped("decoder/embeddings/weight", 0, 64), "embeddings/weight is missing or has another form"),
    ],
)
def test_arrays_that_do_not_fit(
    folder: Path, arrays: writer.Arrays, change: Callable[[writer.Arrays], writer.Arrays], sign: str
) -> None:
    put(folder, "model.bin", writer.content(change(arrays)))
    assert sign in refusal(folder)


@pytest.mark.parametrize(
    ("content", "sign"),
    [
        (b"", "model.bin"),
        (b"lmgg" + bytes(100), "not a Whisper model in CTranslate2's format"),
        (b"<html>please log in</html>", "not a Whisper model in CTranslate2's format"),
        (writer.content({}, spec="TransformerSpec"), "'TransformerSpec', not a Whisper model"),
        (writer.content({}), "claims to hold 0 variables"),
        (
            struct.pack("<IH", 6, 12) + b"WhisperSpec\0" + struct.pack("<2I", 3, 2**32 - 1),
            "4294967295 variables",
        ),
        (writer.content({"a": np.int8(1)}, aliases=True), "stands for something that is missing"),
        (writer.content({"a": np.int8(1)}, aliases=False) + b"!", "something after its end"),
    ],
)
def test_files_of_another_kind(folder: Path, content: bytes, sign: str) -> None:
    put(folder, "model.bin", content)
    assert sign in refusal(folder)


def test_every_truncation_is_noticed(tiny: bytes) -> None:
    assert set(ct2_header.read_variables(tiny)) == {
        "a",
        "decoder/embeddings/weight",
        "decoder/projection/weight",
    }
    for length in range(len(tiny)):
        with pytest.raises(ValueError, match=r"\w"):
            ct2_header.read_variables(tiny[:length])


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=200), place=st.integers(0, 120), change=st.binary(min_size=1, max_size=8))
def test_no_bytes_do_harm(tiny: bytes, content: bytes, place: int, change: bytes) -> None:
    """Random ones, and a file of which some were changed: either it is whole, or there is a ValueError."""
    changed = tiny[:place] + change + tiny[place + len(change) :]
    for one in (content, changed, tiny[:30] + content):
        try:
            found = ct2_header.read_variables(one)
        except ValueError:
            continue
        assert all(variable.start + variable.size <= len(one) for variable in found.values())


@pytest.mark.parametrize(
    ("name", "text", "sign"),
    [
        ("vocabulary.json", '["a", "<|endoftext|>"]', "it has 2 tokens, and the weights have 51865"),
        ("vocabulary.json", '["a"]', "lacks <|endoftext|>"),
        ("vocabulary.json", '{"a": 1}', "not a list of tokens"),
        ("vocabulary.json", "[1]", "not a list of tokens"),
        ("vocabulary.json", "[" * 100_000, "vocabulary"),
        ("vocabulary.json", "\udc80", "vocabulary"),
        ("config.json", "", "config.json"),
        ("config.json", "[]", "config.json"),
        ("config.json", '{"suppress_ids": [51865]}', "not from 0 to 51864"),
        ("config.json", '{"suppress_ids": [-1]}', "not from 0 to 51864"),
        ("config.json", '{"suppress_ids": "all"}', "not from 0 to 51864"),
        ("config.json", '{"lang_ids": [true]}', "not from 0 to 51864"),
        ("config.json", '{"alignment_heads": [[1, 0]]}', "not from 0 to 0"),
        ("config.json", '{"alignment_heads": [[0]]}', "config.json"),
        ("config.json", '{"alignment_heads": [0]}', "config.json"),
        ("config.json", " " * (1 << 20) + "{}", "larger than any of its kind"),
        ("tokenizer.json", '{"model": []}', "tokenizer.json"),
        ("tokenizer.json", "{", "tokenizer.json"),
    ],
)
def test_texts_that_do_not_fit(folder: Path, name: str, text: str, sign: str) -> None:
    put(folder, name, text.encode("utf-8", "surrogateescape"))
    assert sign in refusal(folder)


def test_a_folder_of_onnx_asr(tmp_path: Path) -> None:
    (tmp_path / "encoder-model.onnx").write_bytes(b"encoder")
    (tmp_path / "encoder-model.int8.onnx").write_bytes(b"quantized")
    (tmp_path / "decoder_joint-model.onnx").write_bytes(b"decoder")
    (tmp_path / "vocab.txt").write_text("<unk> 0\n▁the 1\n<blk> 2\n", "utf-8")
    found = user_files.read_recognizer(tmp_path)
    assert (found.engine, found.path) == ("onnx-asr", str(tmp_path))
    assert found.sha256 == user_files.read_model(tmp_path / "encoder-model.onnx", "").sha256
    (tmp_path / "encoder-model.onnx").unlink()
    (tmp_path / "decoder_joint-model.onnx").unlink()
    with pytest.raises(ModelError, match="int8 weights only"):
        user_files.read_recognizer(tmp_path)
    (tmp_path / "encoder-model.int8.onnx").unlink()
    with pytest.raises(ModelError, match="no encoder in"):
        user_files.read_recognizer(tmp_path)
    for text in ("", "a\n", "a 0\nb 2\n", "a 0\nb x\n"):
        (tmp_path / "vocab.txt").write_text(text)
        with pytest.raises(ModelError, match=r"vocab\.txt is not a vocabulary"):
            user_files.read_recognizer(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(ModelError, match="no model in the folder"):
        user_files.read_recognizer(tmp_path)


# --- to ggml and back ---


def test_the_converter_gives_back_what_the_ggml_file_has(tmp_path: Path) -> None:
    """Byte for byte but for the mel filters, which `tests/ggml.py` has on another scale."""
    folder = writer.write(tmp_path / "model")
    converted = ct2_to_ggml.convert(folder, tmp_path / "converted.bin")
    header = ggml_file.inspect(str(converted))
    plain = ggml.write(tmp_path / "plain.bin")
    assert header == ggml_file.inspect(str(plain))
    assert tensors(converted) == tensors(plain)
    assert ct2_to_ggml.texts(folder)[:3] == ["Ġ", "Ġone", "Ġtwo"]
    assert [ct2_to_ggml.in_bytes(writer.written(bytes([n]))) for n in range(256)] == [
        bytes([n]) for n in range(256)
    ]


def tensors(path: Path) -> dict[bytes, bytes]:
    """Name of a tensor -> its shape and bytes, from a ggml file with 16-bit matrices."""
    data = path.read_bytes()
    place = 48 + 8 + 4 * 80 * 201
    (count,) = struct.unpack_from("<i", data, place)
    place += 4
    for _ in range(count):
        place += 4 + struct.unpack_from("<i", data, place)[0]
    found = {}
    while place < len(data):
        rank, length, kind = struct.unpack_from("<3i", data, place)
        shape = struct.unpack_from(f"<{rank}i", data, place + 12)
        begin = place + 12 + 4 * rank + length
        end = begin + int(np.prod(shape)) * (2 if kind else 4)
        found[data[begin - length : begin]] = data[place : begin - length] + data[begin:end]
        place = end
    return found


@pytest.mark.parametrize("bands", [80, 128])
def test_mel_filters_have_equal_area(bands: int) -> None:
    filters = mel_filters(bands)
    assert filters.shape == (bands, 201)
    # Each triangle has the area 1 per hertz; with 40 Hz a bin only the wide ones are sampled well.
    assert np.allclose(filters[bands * 3 // 4 :].sum(axis=1) * 40, 1, atol=0.05)
    assert np.argmax(filters, axis=1).tolist() == sorted(np.argmax(filters, axis=1).tolist())


def test_ctranslate2_reads_it_too(folder: Path) -> None:
    """The test model itself: the same words as whisper.cpp finds in it."""
    engine = pytest.importorskip("ctranslate2")
    sound = np.pad(ggml.tones(ggml.LOW, ggml.LOW, ggml.HIGH), (0, 27 * 16_000))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, 200, mode="reflect"), 400)[::160][:3000]
    power = np.abs(np.fft.rfft(windows * np.hanning(401)[:-1])) ** 2
    mel = np.log10(np.maximum(mel_filters(80) @ power.T, 1e-10))
    features = ((np.maximum(mel, mel.max() - 8) + 4) / 4).astype(np.float32)[None]
    model = engine.models.Whisper(str(folder), compute_type="int8")
    view = engine.StorageView.from_array(np.ascontiguousarray(features))
    prompt = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    (result,) = model.generate(view, [prompt], beam_size=1, max_length=20)
    assert result.sequences[0] == ["Ġone", "Ġtwo", "Ġdrei"]
    assert model.detect_language(view)[0][0][0] == "<|en|>"
    assert json.loads((folder / "config.json").read_text())["lang_ids"][0] == 50259


def test_all_of_a_piece_tells_its_language(folder: Path) -> None:
    """With the silence after it; without that Whisper took one piece in five for another language."""
    pytest.importorskip("ctranslate2")
    from witness.recognition.aligner import view
    from witness.recognition.ctranslate import CTranslate2Engine
    from witness.recognition.engine import Load

    engine = CTranslate2Engine(Load(str(folder), gpu=False, threads=1))
    sound = np.pad(ggml.tones(ggml.LOW, ggml.HIGH), (0, 4 * 16_000))
    whole, frames = engine._whisper, len(sound) // 320
    (expected,) = whole.model.detect_language(view(whole.encode(sound)))
    assert engine.detect_languages(sound, [frames]) == [{token[2:-2]: share for token, share in expected}]
    (expected,) = whole.model.detect_language(view(whole.encode(sound[:32_000], 1000)))  # a part of 2 s
    assert engine.detect_languages(sound[:32_000], [100]) == [
        {token[2:-2]: share for token, share in expected}
    ]
    assert len(engine.detect_languages(sound, [frames // 2, frames])) == 2
