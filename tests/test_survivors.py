"""Limits and checks whose loss no other test would notice (`fuzz/mutations.py`); the figures are literal."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from starlette.exceptions import HTTPException

from test_anonymous import named
from test_fuzz import FUZZ
from test_serve_takes import begin, desk  # noqa: F401 - a fixture
from witness.errors import InputError
from witness.models import download
from witness.options import Options
from witness.recognition import engine_client
from witness.recognition.engine import Abilities
from witness.schema import ModelFile
from witness.serve import editing, roles, security
from witness.serve.app_state import Quotas
from witness.serve.queue import BusyError, Queue
from witness.serve.routes import transcripts
from witness.storage import cache, checkpoint, transaction
from witness.transcript import trash
from witness.transcript.anonymous import anonymize
from witness.work import overrides
from witness.work.batch import Batch

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and locks of a POSIX system")


def test_every_mutation_still_applies(monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import mutations

    assert [line for line in map(mutations.fault, mutations.TABLE) if line] == []
    assert len(set(mutations.TABLE)) == 60


# --- files ---


@posix
def test_a_lock_file_that_was_replaced_meanwhile_is_no_lock(tmp_path, monkeypatch):
    lock, real, calls = tmp_path / ".talk.lock", transaction.try_lock, []

    def late(descriptor):
        if not calls:  # its last owner removes it, and another process makes it anew
            lock.unlink()
            lock.touch()
        calls.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(transaction, "try_lock", late)
    descriptor = transaction.lock_file(lock)
    assert len(calls) == 2
    assert os.path.samestat(os.fstat(descriptor), lock.lstat())
    os.close(descriptor)


@posix
def test_files_on_their_way_replace_nothing(tmp_path):
    moving = tmp_path / ".talk.moving"
    moving.mkdir()
    for name in ("v.txt", "v.srt", "v.csv"):
        (moving / name).write_text("moved")
    (tmp_path / "talk.txt").write_text("mine")
    (tmp_path / "talk.srt").symlink_to("nowhere")
    transaction.settle(tmp_path, "talk")
    assert (tmp_path / "talk.txt").read_text() == "mine"
    assert (tmp_path / "talk.srt").is_symlink()
    assert (tmp_path / "talk.csv").read_text() == "moved"
    assert sorted(path.name for path in moving.iterdir()) == ["v.srt", "v.txt"]


def test_a_journal_is_kept_for_a_week(tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path))
    for days in (6, 8):
        with checkpoint.Journal() as journal:
            journal.open(f"talk of {days}")
            journal.add("record", b"1")
    paths = {
        days: next((tmp_path / "unfinished").glob(f"*{checkpoint.key(f'talk of {days}').hex()}.journal"))
        for days in (6, 8)
    }
    for days, path in paths.items():
        os.utime(path, (time.time() - days * 86_400,) * 2)
    with checkpoint.Journal() as journal:
        journal.open("another")
        assert {days: path.exists() for days, path in paths.items()} == {6: True, 8: False}


def test_texts_of_another_device_or_version_are_not_taken(monkeypatch):
    monkeypatch.setattr(engine_client, "_start", lambda *_, **__: None)
    monkeypatch.setattr(engine_client.gpus, "has_gpu_backend", lambda: False)

    def key(device: str, version: str) -> str:
        monkeypatch.setattr(engine_client, "_version", lambda _: version)
        model = ModelFile("tiny", "/tiny", "0" * 64)
        engine = engine_client.RemoteEngine(model, threads=1, journal=checkpoint.Journal())
        engine.abilities = Abilities(device, ())
        return engine._key("options", np.zeros(10, np.float32))

    assert key("cpu", "1.0") == key("cpu", "1.0")
    assert len({key("cpu", "1.0"), key("vulkan: a card", "1.0"), key("cpu", "1.1")}) == 3


@pytest.mark.parametrize(
    ("about", "listed"),
    [
        ({"name": "a", "folder": "link"}, True),
        ({"name": "a", "folder": "../outside"}, False),
        ({"name": "a", "folder": "sub/../../outside"}, False),
        ({"name": "a", "folder": "/tmp"}, False),  # noqa: S108
        ({"name": "../outside/a", "folder": ""}, False),
        ({"name": "a", "folder": "", "id": "another"}, False),
    ],
    ids=str,
)
def test_the_trash_puts_nothing_outside(tmp_path, about, listed):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    entry = root / trash.TRASH / "0123456789abcdef"
    entry.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (entry / "v.json").write_text("{}")
    (entry / "about").write_text(json.dumps({"id": entry.name, "at": 1.0, **about}))
    assert len(trash.list_trash(root)) == listed
    with pytest.raises(InputError, match="leads out" if listed else "not in the trash"):
        trash.restore(root, entry.name)
    assert not list(outside.iterdir())


# --- the desk ---


def test_a_slow_body_is_timed_from_its_beginning():
    async def drip():
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> None:
        receive = security._limited(drip, Quotas(patience=0.2, slowest=1000), 1 << 20)
        for _ in range(40):
            await receive()

    begun = time.monotonic()
    with pytest.raises(security._RefusedError, match="too long"):
        asyncio.run(read())
    assert time.monotonic() - begun < 1.5


@posix
def test_tokens_that_a_group_can_read_are_refused(tmp_path):
    path = tmp_path / "people"
    path.write_text("anna write 0123456789abcdef")
    for mode in (0o640, 0o620, 0o604):
        path.chmod(mode)
        with pytest.raises(InputError, match="chmod 600"):
            roles.read(path)
    path.chmod(0o600)
    assert roles.read(path)[0].name == "anna"


def test_a_token_has_16_characters():
    assert not roles.is_token("x" * 15)
    assert roles.is_token("x" * 16)


def test_too_many_windows_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "_watching", {object() for _ in range(200)})
    with pytest.raises(HTTPException) as refused:
        transcripts.events(tmp_path)
    assert refused.value.status_code == 429
    transcripts._watching.pop()
    assert transcripts.events(tmp_path).status_code == 200


def test_unfinished_recordings_are_few(desk):  # noqa: F811
    for _ in range(50):
        begin(desk)
    answer = desk.client.post("/api/takes", json={"name": "a.webm"})
    assert (answer.status_code, "50 recordings are not finished" in answer.text) == (422, True)


@posix
def test_a_copy_that_browsers_play_is_private(shelved, tmp_path, monkeypatch):
    other = shelved.with_name("toned.aiff")
    shelved.with_name("toned.wav").rename(other)
    document = json.loads(shelved.read_text())
    document["audio"]["path"] = str(other)
    shelved.write_text(json.dumps(document))

    def keep_nothing(folder, names, _, **__):
        folder.mkdir(parents=True)
        return [b"sound" for _ in names]

    monkeypatch.setattr(cache, "cached", keep_nothing)
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    assert stat.S_IMODE(editing.recording(shelved).stat().st_mode) == 0o600


def test_recordings_that_wait_are_few():
    def room(waiting: int) -> int:
        return Queue._room(SimpleNamespace(_jobs=SimpleNamespace(waiting=range(waiting))))

    assert room(999) == 1
    with pytest.raises(BusyError, match="1000"):
        room(1000)


# --- exports, settings, downloads ---


def test_the_sound_around_a_name_is_covered():
    talk = named(("SPEAKER_00", "I am Anna today"))
    word = next(word for word in talk.utterances[0].words if "Anna" in word.text)
    ((start, end),) = anonymize(talk).covered
    assert (round(word.start - start, 3), round(end - word.end, 3)) == (0.15, 0.15)


def test_any_is_the_word_for_any_language():
    assert overrides.parse({"language": "any"}).apply(Options(language="de")).language is None


def test_a_recording_that_is_written_again_is_not_complete(monkeypatch):
    batch, now = SimpleNamespace(_growing={}), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def is_complete(size: int, mtime: int, after: float) -> bool:
        now[0] += after
        return Batch._is_complete(batch, "a.wav", (size, mtime))

    assert not is_complete(5, 1, 0.0)
    assert not is_complete(5, 2, 10.0)
    assert not is_complete(5, 2, 3.9)
    assert is_complete(5, 2, 0.2)


def test_a_section_has_its_length():
    section, url = download.Section(10, 100), "http://localhost/file"
    answer = SimpleNamespace(headers={"Content-Range": "bytes 10-19/100"}, length=10)
    assert download._start(answer, url, (0, 10), download.HUB, section) == 0
    answer.length = 5
    with pytest.raises(download.FetchError, match="another part"):
        download._start(answer, url, (0, 10), download.HUB, section)
