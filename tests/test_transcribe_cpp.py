"""transcribe.cpp: its child process with a model whose words are known, its devices, and what uses a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ct2
import ggml
from conftest import DATA
from test_doctor import machine, one
from witness.child import Child, RefusedError
from witness.doctor import checks
from witness.models import recognizers
from witness.options import Options, Recognizer
from witness.recognition import gpus
from witness.recognition.engine import DecodeOptions
from witness.recognition.recognizer import TrackRecognizer
from witness.schema import ModelFile

LOW, HIGH = 300.0, 3000.0
LOW_SCRIPT = ggml.LOW_SCRIPT[:20]
"""transcribe.cpp never says some tokens: in the place of Whisper's symbols. None of these is said below."""
SOUND = ggml.tones(HIGH, HIGH, LOW, LOW, None)
WORDS = [" eins", " zwei", " three", " four"]
HEAR = {"do": "hear", "number": 0, **asdict(DecodeOptions(1, None))}
needs_it = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, recognizers.MODULES[Recognizer.TRANSCRIBE_CPP])),
    reason="the extra `vulkan` is not installed",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Callable[[int], ModelFile]:
    """A model whose words are known, and the same one to time them."""
    folder = tmp_path_factory.mktemp("models")

    def write(vocabulary: int = ggml.ENGLISH_ONLY) -> ModelFile:
        path = ggml.write(folder / f"{vocabulary}.bin", LOW_SCRIPT, vocabulary=vocabulary)
        aligner = ct2.write(folder / f"{vocabulary}", LOW_SCRIPT, vocabulary=vocabulary)
        _write_tokenizer(aligner)
        return ModelFile("known", str(path), "", Recognizer.TRANSCRIBE_CPP, str(aligner))

    return write


def _write_tokenizer(folder: Path) -> None:
    """tokenizer.json of a vocabulary of whole words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import ByteLevel

    words = json.loads((folder / "vocabulary.json").read_text())
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, words[0]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def child() -> Iterator[Child]:
    with Child("witness.recognition.transcribe_cpp") as started:
        yield started


def load(child: Child, file: ModelFile, **other: object) -> dict:
    request = {"model": file.path, "aligner": file.aligner, "gpu": False, "threads": 1, **other}
    return child.ask({"do": "load", **request})[0]


def hear(child: Child, samples: np.ndarray, **other: object) -> dict:
    child.ask({**HEAR, "lengths": [len(samples)], **other}, np.ascontiguousarray(samples, np.float32).data)
    (heard,) = child.ask({"do": "heard", "number": 0})[0]["heard"]
    return heard


# --- the child ---


@needs_it
def test_words_and_their_times(child, model):
    about = load(child, model())
    assert about == {
        "device": "cpu",
        "languages": ["en"],
        "workers": 1,
        "batch": 1,
        "prompts": True,
        "translates": False,
        "compares_languages": False,
        "repeats_above": None,
    }
    heard = hear(child, SOUND)
    assert [text for text, *_ in heard["tokens"]] == WORDS
    starts = [start for _, start, *_ in heard["tokens"]]
    assert {probability for *_, probability in heard["tokens"]} == {None}  # another model timed them
    assert starts == pytest.approx([0, 100, 200, 300], abs=50)
    assert (heard["language"], heard["ended"], heard["logprob"]) == ("en", True, None)


@needs_it
def test_the_language_is_told(child, model):
    about = load(child, model(ggml.MULTILINGUAL))
    assert about["translates"]
    assert len(about["languages"]) == 99
    for tone, code in ((LOW, "en"), (HIGH, "de")):
        sound = ggml.tones(tone, tone, tone)
        asked = {"do": "languages", "ends": [50]}
        assert child.ask(asked, sound.data)[0] == {"languages": [{code: 1.0}]}
        assert hear(child, sound)["language"] == code


@needs_it
def test_what_cannot_be_loaded(child, model, tmp_path):
    file = model()
    (tmp_path / "cut.bin").write_bytes(Path(file.path).read_bytes()[:-100])
    for other, problem in (
        (replace(file, path=str(tmp_path / "cut.bin")), "the file is damaged or incomplete"),
        (replace(file, aligner=None), "no model that times words"),
    ):
        with pytest.raises(RefusedError, match=problem):
            load(child, other)


@needs_it
@pytest.mark.parametrize(("cores", "threads"), [(2, 2), (64, 8)])
def test_many_cores_would_wait_for_one_another(model, monkeypatch, cores, threads):
    import transcribe_cpp

    from witness.recognition.engine import Load
    from witness.recognition.transcribe_cpp import TranscribeCppEngine

    asked = []
    monkeypatch.setattr(transcribe_cpp.Model, "session", lambda _, n_threads: asked.append(n_threads))
    file = model()
    TranscribeCppEngine(Load(file.path, False, cores, file.aligner))
    assert asked == [threads]


@needs_it
def test_without_a_gpu_the_cpu_does_it_and_a_warning_says_so(model, monkeypatch):
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "")
    with TrackRecognizer(model(), Options(language="en"), threads=1) as hearing:
        hearing.send(SOUND)
        found = hearing.result()
    assert [word.text for word in found.words] == WORDS
    assert found.device == "cpu"
    assert found.warnings == ("transcribe-cpp can use a GPU but found none, so it ran on the CPU",)


@needs_it
def test_a_card_comes_before_a_part_of_the_processor():
    from witness.recognition.transcribe_cpp import best_device

    devices = [
        SimpleNamespace(kind=kind, device_type=type_, description=name)
        for name, kind, type_ in (
            ("Xeon", "cpu", "cpu"),
            ("llvmpipe", "vulkan", "cpu"),
            ("Vega 8", "vulkan", "igpu"),
            ("RX 9070", "vulkan", "gpu"),
            ("RX 480", "vulkan", "gpu"),
        )
    ]
    for left, name in ((5, "RX 9070"), (3, "Vega 8"), (2, "llvmpipe")):
        assert best_device(devices[:left]).description == name
    assert best_device(devices[:1]) is None


# --- which recognizer uses a GPU ---


def finds(monkeypatch, *devices: tuple[str, str], built: bool = False, installed: bool = True) -> None:
    gpus.recognizer.cache_clear()
    monkeypatch.setattr(gpus.sys, "platform", "linux")
    monkeypatch.delenv("GGML_VK_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "has_gpu_backend", lambda: built)
    here = (Recognizer.WHISPER_CPP, Recognizer.CTRANSLATE2, *[Recognizer.TRANSCRIBE_CPP] * installed)
    monkeypatch.setattr(recognizers, "installed", lambda: here)
    listed = [{"name": "a card", "kind": kind, "type": type_} for kind, type_ in devices]
    monkeypatch.setattr(gpus, "devices", lambda: {"version": "0.4.1", "devices": listed})


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    gpus.recognizer.cache_clear()


def test_a_card_makes_transcribe_cpp_the_choice(monkeypatch):
    finds(monkeypatch, ("vulkan", "gpu"), ("cpu", "cpu"))
    assert gpus.recognizer() == Recognizer.TRANSCRIBE_CPP
    assert (
        recognizers.choose_recognizer(gpus.recognizer(), recognizers.installed()) == Recognizer.TRANSCRIBE_CPP
    )
    finds(monkeypatch, ("vulkan", "igpu"), built=True)
    assert gpus.recognizer() == Recognizer.WHISPER_CPP
    finds(monkeypatch, ("vulkan", "gpu"), installed=False)
    assert gpus.recognizer() is None
    finds(monkeypatch, ("vulkan", "gpu"))


@pytest.mark.parametrize(
    ("name", "kind", "used"),
    [
        ("AMD Radeon(TM) Graphics", "igpu", False),
        ("AMD Radeon 780M Graphics", "igpu", False),
        ("AMD Radeon RX 6700 XT", "gpu", True),
        ("NVIDIA GeForce RTX 3060", "gpu", True),
        ("Intel(R) Iris(R) Xe Graphics", "igpu", True),
    ],
)
def test_on_windows_the_graphics_of_ryzens_are_left_alone(monkeypatch, name, kind, used):
    """AMD's driver crashes there: handy-computer/transcribe.cpp#163."""
    finds(monkeypatch, ("vulkan", kind))
    listed = [{"name": name, "kind": "vulkan", "type": kind}]
    monkeypatch.setattr(gpus, "devices", lambda: {"version": "0.4.1", "devices": listed})
    assert gpus.recognizer() == Recognizer.TRANSCRIBE_CPP
    gpus.recognizer.cache_clear()
    monkeypatch.setattr(gpus.sys, "platform", "win32")
    assert gpus.recognizer() == (Recognizer.TRANSCRIBE_CPP if used else None)
    gpus.recognizer.cache_clear()


def test_a_software_driver_is_used_by_request(monkeypatch):
    finds(monkeypatch, ("vulkan", "cpu"))
    assert gpus.recognizer() is None
    gpus.recognizer.cache_clear()
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    assert gpus.recognizer() == Recognizer.TRANSCRIBE_CPP


def test_a_library_that_does_not_start_is_no_gpu(monkeypatch, tmp_path):
    (tmp_path / "transcribe_cpp.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    answer = gpus.devices()
    finds(monkeypatch)
    assert "SIGABRT" in answer["error"]
    monkeypatch.setattr(gpus, "devices", lambda: answer)
    assert gpus.recognizer() is None
    report = checks.examine(machine(DATA / "gpus" / "no_amd"))
    check = one(report, "transcribe-cpp")
    assert check.ok is False
    assert "SIGABRT" in check.finding
    assert "transcribe-cpp" not in one(report, "recognizers").finding


def test_the_doctor_names_the_card(monkeypatch):
    finds(monkeypatch, ("vulkan", "gpu"), ("cpu", "cpu"))
    report = checks.examine(machine(DATA / "gpus" / "no_amd"))
    assert one(report, "transcribe-cpp").finding == "transcribe-cpp 0.4.1 finds vulkan: a card"
    assert one(report, "recognizers").finding.endswith("--recognizer auto is transcribe-cpp")
    finds(monkeypatch, ("cpu", "cpu"))
    check = one(checks.examine(machine(DATA / "gpus" / "no_amd")), "transcribe-cpp")
    assert (check.ok, check.fix) == (None, "see vulkan")
