"""A batch on a real Dask cluster of two workers on this machine: the same files, and one worker is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from recordings import OPTIONS, children, gone, here, make, run

pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="Dask is not here (the extra `cluster`)")


@pytest.fixture
def cluster(tmp_path):
    """(address, pid of the scheduler, pids of the workers), each a process of its own, as on two machines."""
    environment = {**os.environ, "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0"}
    file = tmp_path / "scheduler.json"

    with ExitStack() as started:

        def begin(name: str, *args: object) -> int:
            command = [sys.executable, "-m", "dask", *map(str, args)]
            with (tmp_path / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
            started.callback(process.wait)
            started.callback(process.kill)
            return process.pid

        port = ("--host", "127.0.0.1", "--port", 0)
        scheduler = begin("scheduler", "scheduler", *port, "--no-dashboard", "--scheduler-file", file)
        address = written(file)["address"]
        options = ("--nthreads", 1, "--no-dashboard", "--no-nanny")
        yield (
            address,
            scheduler,
            [begin(name, "worker", address, *options, "--name", name) for name in ("one", "two")],
        )


def written(file: Path) -> dict:
    """The scheduler's file, read here so that no worker does it: Dask opens the file before it fills it."""
    end = time.monotonic() + 60
    while True:
        with suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads(file.read_text())
        assert time.monotonic() < end, "the scheduler did not start"
        time.sleep(0.1)


def documents(folder: Path) -> dict[str, dict]:
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("call*.json")}
    for document in found.values():
        del document["timing"]
    return found


def begun(folder: Path, address: str, workers: list[int]) -> subprocess.Popen[bytes]:
    """Start a batch from `in` to `far`; return it once it knows of two that are done and a worker is busy."""
    command = ["in", "-o", "far", "-f", "json", "--whisper", "none", *OPTIONS, "--scheduler", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", "batch", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 60
    manifest = folder / "far" / "manifest.jsonl"
    while not (
        manifest.exists() and manifest.read_text().count('"state": "done"') >= 2 and children(workers[0])
    ):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_a_cluster_gives_what_one_machine_gives_and_survives_a_lost_worker(cluster, tmp_path):
    address, _, workers = cluster
    recordings = make(tmp_path / "in", 10)
    process = begun(tmp_path, address, workers)
    own = children(workers[0])
    os.kill(workers[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    assert "10 recordings: 10 done" in out.decode()
    assert all(gone(pid) for pid in own)

    here("in", "-o", "near", "-f", "json", "--whisper", "none", cwd=tmp_path)
    assert documents(tmp_path / "far") == documents(tmp_path / "near")
    assert len(documents(tmp_path / "far")) == len(recordings)
    stages = [path.read_bytes() for path in sorted((tmp_path / "far").glob("*.npz"))]
    assert stages == [path.read_bytes() for path in sorted((tmp_path / "near").glob("*.npz"))]


@pytest.mark.slow
def test_what_is_lost_with_the_scheduler_is_left_for_the_next_run(cluster, tmp_path):
    address, scheduler, workers = cluster
    make(tmp_path / "in", 10)
    process = begun(tmp_path, address, workers)
    for pid in (scheduler, *workers):
        os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err.decode()
    assert f"the Dask scheduler at {address} is lost; run the same command again to continue" in err.decode()
    states = [row["state"] for row in json.loads((tmp_path / "far" / "report.json").read_text())["files"]]
    assert set(states) == {"done", "left"}
    out, _ = here("in", "-o", "far", "-f", "json", "--whisper", "none", cwd=tmp_path)
    assert f"10 recordings: {states.count('left')} done, {states.count('done')} done before" in out


def test_a_scheduler_that_does_not_answer(tmp_path):
    make(tmp_path / "in", 1)
    nowhere = ("--scheduler", "tcp://127.0.0.1:9")
    impatient = "from witness.work import cluster; cluster.PATIENCE = 1"
    _, err = run("in", "-o", "out", "--whisper", "none", *nowhere, cwd=tmp_path, inject=impatient, code=1)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err
    assert not list((tmp_path / "out").glob("*.txt"))
