"""Power cuts: whatever was not synced is lost, and nothing that was acknowledged."""

import json
import os
import random
import subprocess
import sys

import pytest

from test_fuzz import FUZZ

WAYS = ("save", "files", "upload", "take", "journal", "trash")


@pytest.mark.fuzz
@pytest.mark.skipif(os.name == "nt", reason="folders are not synced there")
@pytest.mark.parametrize("way", WAYS)
def test_a_power_cut_loses_nothing_that_was_acknowledged(way):
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    command = [sys.executable, FUZZ / "power.py", "--way", way, "--first", "1000", "--count", "200"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["cuts"] == 200
    assert summary["steps"][way] > 20


@pytest.fixture
def disks(monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import disks

    return disks


def survivors(disk, root) -> set:
    """Return the states of a folder after many power cuts at the last step: names and contents."""
    states = set()
    for number in range(300):
        disk.restore(disk.step, random.Random(number))
        states.add(tuple(sorted((str(p.relative_to(root)), p.read_bytes()) for p in root.rglob("*"))))
    return states


def test_the_disk_loses_what_was_not_synced(disks, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    with disks.watched(root) as disk:
        (root / "new").write_bytes(b"new")
        (root / "new").rename(root / "old")
    states = survivors(disk, root)
    assert (("old", b"old"),) in states
    assert (("old", b"new"),) in states
    assert (("old", bytes(3)),) in states
    assert () not in states


def test_the_disk_keeps_what_was_synced(disks, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with disks.watched(root) as disk:
        with (root / "new").open("wb") as file:
            file.write(b"new")
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(root, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        (root / "later").write_bytes(b"")
    assert survivors(disk, root) == {
        (("new", b"new"),),
        (("later", b""), ("new", b"new")),
    }
