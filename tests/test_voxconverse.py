"""The benchmark for volunteers: a small VoxConverse from a server on 127.0.0.1."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import shutil
import sys
import threading

import pytest

import checkpoints
from conftest import CALL, ROOT
from witness.models import download

LABELS = b"SPEAKER abcde 1 0.60 3.60 <NA> <NA> a <NA> <NA>\nSPEAKER abcde 1 4.20 4.70 <NA> <NA> b <NA> <NA>\n"


@pytest.fixture
def vox(monkeypatch):
    pytest.importorskip("pyannote.metrics", reason="the extra `bench` is not installed")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import voxconverse

    monkeypatch.setattr(download, "_dead", {})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(voxconverse.LABELS_SHA256, "test", hashlib.sha256(LABELS).hexdigest())
    return voxconverse


@pytest.fixture
def server(tmp_path):
    """The two archives as they are published; the value is where."""
    import soundfile

    folder = tmp_path / "www"
    folder.mkdir()
    samples, rate = soundfile.read(CALL, frames=9 * soundfile.info(CALL).samplerate, dtype="int16")
    soundfile.write(folder / "abcde.wav", samples, rate)
    recording = (folder / "abcde.wav").read_bytes()
    audio = {"voxconverse_test_wav/abcde.wav": recording, "voxconverse_test_wav/other.wav": b"no"}
    (folder / "test.zip").write_bytes(checkpoints.zipped({**audio, "__MACOSX/._abcde.wav": b"junk"}))
    labels = {"voxconverse-master/test/abcde.rttm": LABELS, "voxconverse-master/dev/fghij.rttm": b"other"}
    (folder / "labels.zip").write_bytes(checkpoints.zipped(labels))
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()


def run(vox, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["voxconverse.py", *map(str, arguments)])
    vox.main()


@pytest.mark.slow
def test_one_table(vox, server, tmp_path, monkeypatch, capsys):
    url, asked = server
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    places = ["--audio", f"{url}/{{split}}.zip", "--labels", f"{url}/labels.zip"]
    arguments = [tmp_path / "vox", "--models", "builtin", "--models", "campplus", "--threads", "1", *places]
    run(vox, monkeypatch, *arguments)
    said = capsys.readouterr()
    head, builtin, campplus = said.out.splitlines()[:3]
    assert head.split()[0] == "models"
    assert "1 of 1" in builtin
    assert "not run: cannot fetch" in campplus
    assert "another project's has" in said.err
    result = json.loads((tmp_path / "vox" / "test" / "result.json").read_text())
    (first, second) = result["rows"]
    rate = first["der"]["strict"]
    assert 0 <= rate["low"] <= rate["der"] <= rate["high"] < 60
    assert first["speakers"]["exact"] == 1
    assert second["why_not"]
    assert (
        result["archive_sha256"] == hashlib.sha256((tmp_path / "www" / "test.zip").read_bytes()).hexdigest()
    )
    kept = {path.name for path in (tmp_path / "vox" / "test" / "wav").iterdir()}
    assert kept == {"abcde.wav", "archive.sha256"}
    before = list(asked)
    run(vox, monkeypatch, *arguments)  # everything is here already
    assert asked == before
    assert capsys.readouterr().out.splitlines()[1] == builtin


def test_other_labels_are_refused(vox, server, tmp_path, monkeypatch):
    url, _ = server
    monkeypatch.setitem(vox.LABELS_SHA256, "test", "0" * 64)
    with pytest.raises(SystemExit, match=r"not the labels of version 0\.3"):
        run(vox, monkeypatch, tmp_path / "vox", "--labels", f"{url}/labels.zip")
    with pytest.raises(SystemExit, match="answered 404"):
        run(vox, monkeypatch, tmp_path / "other", "--labels", f"{url}/nothing.zip")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["below FOLDER", "in the folder of --audio"])
def test_recordings_that_are_here_need_no_network(vox, server, tmp_path, monkeypatch, capsys, place):
    _, asked = server
    folder = tmp_path / "vox"
    audio = folder / "voxconverse_test_wav" if place == "below FOLDER" else tmp_path / "elsewhere"
    for path in (audio, folder / "labels"):
        path.mkdir(parents=True)
    shutil.copy(tmp_path / "www" / "abcde.wav", audio)
    (folder / "labels" / "abcde.rttm").write_bytes(LABELS)
    more = [] if place == "below FOLDER" else ["--audio", audio]
    monkeypatch.setattr(vox, "fetch_page", None)
    monkeypatch.setattr(vox, "fetch_end", None)
    run(vox, monkeypatch, folder, "--models", "builtin", "--threads", "1", *more)
    assert "1 of 1" in capsys.readouterr().out.splitlines()[1]
    assert not asked
    if more:
        (audio / "abcde.wav").unlink()
        (folder / "test" / "wav" / "abcde.wav").unlink()
        with pytest.raises(SystemExit, match=r"elsewhere lacks 1 recordings of test, abcde\.wav"):
            run(vox, monkeypatch, folder, *more)


@pytest.mark.usefixtures("vox")
def test_the_accuracy_benchmark_prints_a_table(tmp_path, monkeypatch, capsys):
    import accuracy

    shutil.copy(CALL, tmp_path / "call.flac")
    shutil.copy(CALL.with_suffix(".rttm"), tmp_path / "call.rttm")
    monkeypatch.setattr(sys, "argv", ["accuracy.py", str(tmp_path), "--json", str(tmp_path / "x.json")])
    accuracy.main()
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["recordings", "files", "DER", "%"]
    (group,) = json.loads((tmp_path / "x.json").read_text())["groups"].values()
    assert row.split()[:3] == ["*", "1", str(group["der"])]
