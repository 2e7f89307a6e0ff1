"""What several test files share. Tests that need the project's shared material skip where it is not there."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from witness.child import SINGLE_THREADED

# As the command line sets it; before numpy starts its threads it counts for the tests' own process too.
os.environ |= {**SINGLE_THREADED, **os.environ}
# Ignored in whatever a shell runs in the background, and inherited: tests that interrupt would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
CALL = DATA / "call.flac"


def pytest_report_header() -> list[str]:
    import onnxruntime

    return [
        f"python {platform.python_version()}, numpy {np.__version__}, onnxruntime {onnxruntime.__version__} "
        f"{onnxruntime.get_available_providers()}",
        f"shared material: {SHARED if SHARED.is_dir() else 'not here, the tests that need it are skipped'}",
    ]


@pytest.fixture(scope="session")
def golden():
    """pyannote's own intermediate arrays, by name."""
    folder = SHARED / "data" / "golden"
    if not folder.is_dir():
        pytest.skip("pyannote's golden arrays are not here (shared/data/golden)")
    return lambda name: np.load(folder / f"{name}.npy", allow_pickle=False)


@pytest.fixture(scope="session")
def evaluation() -> Path:
    """The recordings with references."""
    folder = SHARED / "data" / "eval"
    if not folder.is_dir():
        pytest.skip("the evaluation recordings are not here (shared/data/eval)")
    return folder


@pytest.fixture(scope="session")
def toned(tmp_path_factory):
    """The call, with words that a model of tones hears all along; the recording lies in its own folder."""
    import soundfile

    import ggml
    from witness import Options, transcribe

    folder = tmp_path_factory.mktemp("toned")
    samples, rate = soundfile.read(CALL, dtype="float32")
    tone = 0.2 * np.sin(2 * np.pi * ggml.LOW * np.arange(len(samples)) / rate)
    soundfile.write(folder / "toned.wav", samples + tone, rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WITNESS_CACHE", str(folder / "cache"))
        whisper = ggml.write(folder / "tones.bin")
        options = Options(models="builtin", offline=True, whisper=str(whisper), speakers=2)
        return transcribe(folder / "toned.wav", options)


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The lines that the doubles write, by their first word."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FAKE_LOG", str(path))
    return lambda word: [line for line in path.read_text().splitlines() if line.startswith(word)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """One cache of cut models for the whole run, apart from the user's."""
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path_factory.getbasetemp() / "witness-cache"))


@pytest.fixture(scope="session")
def doubles(tmp_path_factory) -> Path:
    """A folder with doubles of ROCm's libraries, with which the real MIGraphX provider runs; see fakegpu."""
    from witness.amd.strict import provider_library

    if provider_library() is None:
        pytest.skip("this onnxruntime has no MIGraphX provider (Linux on x86-64 has)")
    if not shutil.which("gcc") or not shutil.which("g++"):
        pytest.skip("the doubles of ROCm's libraries need gcc and g++")
    source, folder = DATA.parent / "fakegpu", tmp_path_factory.mktemp("rocm")
    shared = ["-O1", "-shared", "-fPIC"]
    hip = ["-Wl,-soname,libamdhip64.so.7", f"-Wl,--version-script={source / 'hip.map'}"]
    graph = ["-std=c++17", "-Wl,-soname,libmigraphx_c.so.3"]
    for command in (
        ["gcc", *shared, *hip, "-o", folder / "libamdhip64.so.7", source / "fakehip.c"],
        ["g++", *shared, *graph, "-o", folder / "libmigraphx_c.so.3", source / "fakemgx.cpp"],
    ):
        subprocess.run(command, check=True)
    return folder


def a_card(**facts):
    """A Radeon RX 9070, or a card with other `facts`; what nobody asks for is None."""
    from dataclasses import fields

    from witness.amd import cards

    known = {"index": 0, "name": "Radeon RX 9070", "gfx": "gfx1201", "integrated": False}
    known |= {"memory_total": 16 << 30, "supported": "listed", "node": Path("/nowhere"), **facts}
    return cards.Card(**{field.name: known.get(field.name) for field in fields(cards.Card)})


def fake_card(monkeypatch, doubles: Path, **facts) -> None:
    """Make this process and its children believe in `a_card`."""
    import onnxruntime

    from witness.amd import cards

    monkeypatch.setattr(cards, "cards", lambda: (a_card(**facts),))
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    monkeypatch.setenv("FAKE_ORT", str(library))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(doubles))


def strict_der(pairs) -> float:
    """Pooled DER of (reference turns, hypothesis turns, seconds): collar 0, overlap counted."""
    from pyannote.core import Annotation, Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate

    def annotation(turns) -> Annotation:
        result = Annotation()
        for number, turn in enumerate(turns):
            result[Segment(turn.start, turn.end), number] = turn.speaker
        return result

    error = DiarizationErrorRate()
    for reference, hypothesis, seconds in pairs:
        error(annotation(reference), annotation(hypothesis), uem=Timeline([Segment(0, seconds)]))
    return abs(error)
