"""`recognition.onnx_engine`: words, times and refusals of onnx-asr, by small models of the same interface."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ggml
import onnxasr
from onnxasr import HIGH, LOW
from witness._version import install
from witness.child import Child, DiedError, RefusedError
from witness.errors import WitnessError
from witness.options import Options
from witness.recognition.engine import DecodeOptions
from witness.recognition.recognizer import TrackRecognizer
from witness.schema import ModelFile

MODULE = "witness.recognition.onnx_engine"
LOAD = {"do": "load", "gpu": False, "threads": 2, "aligner": None}
HEAR = {"do": "hear", "number": 0, **asdict(DecodeOptions(1, None))}
needs_onnx_asr = pytest.mark.skipif(
    importlib.util.find_spec("onnx_asr") is None, reason="onnx-asr is not here: pip install onnx-asr"
)

SOUND = ggml.tones(None, LOW, None, HIGH, None)

Ask = Callable[..., dict]


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def started(environment: dict[str, str] | None = None) -> Child:
        children.append(Child(MODULE, environment and {**os.environ, **environment}))
        return children[-1]

    yield started
    for child in children:
        child.kill()


@pytest.fixture(scope="module")
def patient() -> Iterator[Child]:
    """A child that is asked for one folder after another, good and bad."""
    child = Child(MODULE)
    yield child
    child.kill()


@pytest.fixture
def loaded(patient) -> Callable[[Path], tuple[dict, Ask]]:
    """What a model says of itself, and a function that asks it."""

    def load(folder: Path) -> tuple[dict, Ask]:
        reply, _ = patient.ask({**LOAD, "model": str(folder)})

        def ask(samples: np.ndarray, **other: object) -> dict:
            data = np.ascontiguousarray(samples, np.float32).data
            patient.ask({**HEAR, "lengths": [len(samples)], **other}, data)
            (heard,) = patient.ask({"do": "heard", "number": 0})[0]["heard"]
            return heard

        return reply, ask

    return load


def refusal(child: Child, folder: Path) -> str:
    with pytest.raises(RefusedError) as caught:
        child.ask({**LOAD, "model": str(folder)})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def texts(reply: dict) -> list[str]:
    return [text.encode("latin-1").decode() for text, *_ in reply["tokens"]]


# --- words and times ---


@needs_onnx_asr
@pytest.mark.parametrize("kind", ["tdt", "rnnt", "ctc"])
def test_each_tone_is_its_word_at_its_time(loaded, tmp_path, kind):
    about, ask = loaded(onnxasr.write(tmp_path, kind))
    assert about == {
        "device": "cpu",
        "languages": [],
        "workers": 2,
        "batch": 1,
        "prompts": False,
        "translates": False,
        "compares_languages": False,
        "repeats_above": 0.0,
    }
    reply = ask(ggml.tones(None, LOW, None, HIGH, HIGH, None, LOW, None))
    assert reply["ended"] is True
    assert reply["language"] is None
    assert texts(reply) == [" grün", " tief", " grün"]
    starts, ends = [[token[place] for token in reply["tokens"]] for place in (1, 2)]
    assert starts == pytest.approx([100, 300, 600], abs=9)  # a frame is 0.08 s
    assert ends == pytest.approx([start + 50 for start in starts], abs=1)
    assert -1 < reply["logprob"] <= 0
    assert ask(ggml.tones(HIGH, None), language="de")["language"] == "de"


@needs_onnx_asr
def test_silence_has_no_words(loaded, tmp_path):
    _, ask = loaded(onnxasr.write(tmp_path))
    reply = ask(ggml.tones(None, None))
    assert reply == {"ended": True, "language": None, "tokens": [], "logprob": None, "unclear": False}


@needs_onnx_asr
def test_a_piece_has_at_most_thirty_seconds(loaded, tmp_path):
    _, ask = loaded(onnxasr.write(tmp_path))
    assert len(ask(ggml.tones(*[LOW, HIGH] * 15))["tokens"]) == 30
    for samples in (np.zeros(30 * 16000 + 1), np.zeros(0)):
        with pytest.raises(RefusedError, match="it takes 1 to 480000"):
            ask(samples)
    assert texts(ask(SOUND)) == [" grün", " tief"]  # the model is still there


@needs_onnx_asr
@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (("▁grün", "<|nospeech|>"), [" grün", " grün"]),
        (("▁", "."), ["", ".", ""]),
        (("▁grün", "▁."), [" grün", ".", " grün"]),
        (("▁grün", "▁3.5"), [" grün", " 3.5", " grün"]),
        (("<unk>", "<pad>"), []),
    ],
)
def test_tokens_that_are_not_text(loaded, tmp_path, tokens, said):
    _, ask = loaded(onnxasr.write(tmp_path, "ctc", tokens))
    reply = ask(ggml.tones(None, LOW, None, HIGH, None, LOW, None))
    assert [text.rstrip() for text in texts(reply)] == said


@needs_onnx_asr
def test_threads_do_not_change_a_byte(loaded, tmp_path):
    onnxasr.write(tmp_path)
    noise = np.random.default_rng(3).standard_normal(16000 * 8).astype(np.float32) * 0.05
    samples = ggml.tones(None, LOW, HIGH, None, LOW, HIGH, HIGH, None) + noise
    replies = [loaded(tmp_path)[1](samples, threads=threads, greedy=threads > 1) for threads in (1, 4)]
    assert replies[0] == replies[1]
    assert replies[0]["tokens"]


@needs_onnx_asr
def test_canary_is_told_the_language_and_translates(loaded, tmp_path):
    about, ask = loaded(onnxasr.write(tmp_path, "aed"))
    assert about["languages"] == ["de", "en"]
    assert about["translates"]
    sound = ggml.tones(None, LOW, None)
    reply = ask(sound, language="de")
    assert (texts(reply), reply["language"]) == ([" hallo"], "de")
    assert reply["tokens"][0][1:3] == [0, 50]  # it tells no times
    assert texts(ask(sound, language="de", translate=True)) == [" hello"]
    with pytest.raises(RefusedError, match="the model failed"):
        ask(sound, language="xx")


@needs_onnx_asr
@pytest.mark.parametrize(
    ("kind", "wish", "said"),
    [
        ("tdt", Options(translate=True), "cannot translate; --whisper"),
        ("tdt", Options(prompt="Anna"), "takes neither a prompt nor a vocabulary; --whisper"),
        ("aed", Options(language="fr"), "does not know the language 'fr'"),
        ("aed", Options(), "cannot tell the language; fix: say which one it is (--language)"),
    ],
)
def test_what_these_models_cannot_do_is_said(tmp_path, kind, wish, said):
    model = ModelFile("tones", str(onnxasr.write(tmp_path, kind)), "", "onnx-asr")
    with TrackRecognizer(model, wish, threads=1) as running:
        running.send(SOUND)
        with pytest.raises(WitnessError) as caught:
            running.result()
    assert said in str(caught.value)


@needs_onnx_asr
def test_words_through_the_recognizer(tmp_path):
    model = ModelFile("tones", str(onnxasr.write(tmp_path)), "", "onnx-asr")
    audio = ggml.tones(*[None, LOW, None, HIGH] * 12)  # 48 s: two pieces
    found = []
    for threads in (1, 2):
        with TrackRecognizer(model, threads=threads) as running:
            running.send(audio)
            found.append(running.result())
    assert found[0] == found[1]
    assert [word.text for word in found[0].words] == [" grün", " tief"] * 12
    np.testing.assert_allclose([word.start for word in found[0].words], np.arange(1, 48, 2), atol=0.15)
    assert (found[0].device, found[0].language) == ("cpu", None)


# --- folders that cannot be used ---


@needs_onnx_asr
def test_half_precision_is_used_where_there_is_no_full_one(loaded, tmp_path):
    onnxasr.write(tmp_path, suffix=".fp16")
    onnxasr.write(tmp_path / "other", "ctc")
    (tmp_path / "other" / "model.onnx").rename(tmp_path / "nemo80.onnx")  # exports have it, nobody needs it
    _, ask = loaded(tmp_path)
    assert texts(ask(SOUND)) == [" grün", " tief"]


@needs_onnx_asr
@pytest.mark.parametrize("suffix", [".int8", "_q4", ".uint8"])
@pytest.mark.parametrize("kind", ["tdt", "ctc"])
def test_quantized_files_alone_are_refused(patient, tmp_path, kind, suffix):
    said = refusal(patient, onnxasr.write(tmp_path, kind, suffix=suffix))
    assert said.startswith("it has quantized files only, and quantized models lose words; fix: ")


@needs_onnx_asr
def test_quantized_files_beside_full_ones_are_left_alone(loaded, tmp_path):
    onnxasr.write(tmp_path)
    (tmp_path / "encoder-model.int8.onnx").write_bytes(b"not looked at")
    _, ask = loaded(tmp_path)
    assert texts(ask(SOUND)) == [" grün", " tief"]


@needs_onnx_asr
def test_a_quantized_model_under_a_plain_name_is_refused(patient, tmp_path):
    onnxasr.write(tmp_path)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    shape = {"a": (TensorProto.INT8, [1, 1]), "b": (TensorProto.INT8, [1, 1])}
    onnxasr.save(tmp_path / "encoder-model.onnx", [node], {}, shape, {"c": (TensorProto.INT32, [1, 1])})
    assert refusal(patient, tmp_path).startswith("encoder-model.onnx is quantized, and quantized models lose")


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


@needs_onnx_asr
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_remove("encoder-model.onnx"), "it is incomplete: File 'encoder-model.onnx' not found"),
        (_remove("decoder_joint-model.onnx"), "it is incomplete: File 'decoder_joint-model.onnx' not found"),
        (_remove("vocab.txt"), "it is incomplete: File 'vocab.txt' not found"),
        (_remove("config.json"), "it has no config.json; fix:"),
        (_write("config.json", b"{"), "its config.json names no model_type"),
        (_write("config.json", b"[]"), "its config.json names no model_type"),
        (_write("config.json", b'{"model_type": 3}'), "its config.json names the model_type 3"),
        (
            _write("config.json", b'{"model_type": "gpt"}'),
            "onnx-asr cannot use it (Model 'gpt' not supported",
        ),
        (_write("config.json", b'{"model_type": "a/b"}'), "onnx-asr cannot use it (Invalid model type 'a/b'"),
        (_write("vocab.txt", b"nothing"), "onnx-asr cannot use it ("),
        (
            _write("encoder-model.onnx", b"RIFF not a model"),
            "encoder-model.onnx is damaged or not an ONNX file",
        ),
        (lambda folder: onnxasr.write(folder, "ctc"), "it is incomplete"),
    ],
    ids=range(12),
)
def test_a_folder_that_is_not_whole_is_one_line(patient, tmp_path, damage, said):
    folder = tmp_path / "model"
    onnxasr.write(folder)
    damage(folder)
    if (folder / "model.onnx").exists():
        (folder / "model.onnx").unlink()
    line = refusal(patient, folder)
    assert said in line
    assert "fix:" in line


@needs_onnx_asr
def test_a_model_of_another_kind_fails_in_one_line(loaded, tmp_path):
    """The config says what it is not: the outputs do not fit."""
    onnxasr.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    model = onnx.load(tmp_path / "encoder-model.onnx")
    model.graph.output[0].name = model.graph.node[1].output[0] = "something"
    onnx.save(model, tmp_path / "encoder-model.onnx")
    assert config["model_type"] == "nemo-conformer-tdt"
    _, ask = loaded(tmp_path)
    with pytest.raises(RefusedError, match="the model failed"):
        ask(ggml.tones(None, LOW, None))


def test_what_is_not_a_folder(patient, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "none", tmp_path / "file"):
        assert refusal(patient, path).startswith("it is not a folder; fix:")


def test_without_the_extra_it_says_what_to_install(start, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['onnx_asr'] = None\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    line = refusal(start({"PYTHONPATH": path}), onnxasr.write(tmp_path / "model"))
    assert line == f"onnx-asr is not installed; fix: {install('parakeet')}"


@needs_onnx_asr
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSEGV to send")
def test_a_crash_is_the_death_of_the_child_alone(start, tmp_path):
    child = start()
    child.ask({**LOAD, "model": str(onnxasr.write(tmp_path))})
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(DiedError, match="SIGSEGV"):
        child.ask({"do": "heard", "number": 0})


@needs_onnx_asr
def test_nothing_is_fetched(start, tmp_path):
    """Not even for a folder that is named as a model of the hub is, and lacks a file."""
    folder = onnxasr.write(tmp_path / "nemo-parakeet-tdt-0.6b-v3")
    (folder / "encoder-model.onnx").unlink()
    (folder / "config.json").write_text('{"model_type": "nemo-parakeet-tdt-0.6b-v3"}')
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.addaudithook(lambda event, _: event[:7] == 'socket.' and sys.exit('a socket'))\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert "it is incomplete" in refusal(start({"PYTHONPATH": path}), folder)
