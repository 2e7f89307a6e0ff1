"""A batch on a real Dask cluster of two workers on this machine: the same files, and one worker is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recordings import OPTIONS, children, gone, here, make, run

pytest.importorskip("distributed", reason="Dask is not here (the extra `cluster`)")


@pytest.fixture
def cluster(tmp_path):
    """(address, pids of the workers), each a process of its own, as on two machines."""
    environment = {**os.environ, "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0"}
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    started = []

    def begin(*args: object) -> int:
        with (tmp_path / f"dask{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*dask, *map(str, args)], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
        started.append(process)
        return process.pid

    begin("scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", file)
    workers = [
        begin(
            "worker",
            "--scheduler-file",
            file,
            "--nthreads",
            1,
            "--no-dashboard",
            "--no-nanny",
            "--name",
            name,
        )
        for name in ("one", "two")
    ]
    end = time.monotonic() + 60
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    yield json.loads(file.read_text())["address"], workers
    for process in reversed(started):
        process.kill()
        process.wait()


def documents(folder: Path) -> dict[str, dict]:
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("call*.json")}
    for document in found.values():
        del document["timing"]
    return found


def test_a_cluster_gives_what_one_machine_gives_and_survives_a_lost_worker(cluster, tmp_path):
    address, workers = cluster
    recordings = make(tmp_path / "in", 10)
    command = ["in", "-o", "far", "-f", "json", "--whisper", "none", *OPTIONS, "--scheduler", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", "batch", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 60
    while not (len(list((tmp_path / "far").glob("call*.json"))) >= 2 and children(workers[0])):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
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


def test_a_scheduler_that_does_not_answer(tmp_path):
    make(tmp_path / "in", 1)
    nowhere = ("--scheduler", "tcp://127.0.0.1:9")
    impatient = "from witness.batch import cluster; cluster.PATIENCE = 1"
    _, err = run("in", "-o", "out", "--whisper", "none", *nowhere, cwd=tmp_path, inject=impatient, code=1)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err
    assert not list((tmp_path / "out").glob("*.txt"))
