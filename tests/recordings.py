"""Folders of short recordings for the tests of batches, and what these ask about processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest
import soundfile

from conftest import CALL, in_process
from witness.work import pool, produce, worker

OPTIONS = ("--models", "builtin", "--offline")


def make(folder: Path, count: int, seconds: float = 4.0) -> list[Path]:
    """So many pieces of the call, all different, `seconds` long each."""
    folder.mkdir(parents=True, exist_ok=True)
    samples, rate = soundfile.read(CALL, dtype="float32")
    paths = []
    for number in range(count):
        first = int(number * 0.37 * rate) % int(len(samples) - seconds * rate)
        paths.append(folder / f"call{number:02d}.flac")
        soundfile.write(paths[-1], samples[first : first + int(seconds * rate)], rate)
    return paths


def start(*args: object, cwd: Path, inject: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
    """`witness batch ARGS`; `inject` is code that runs at the start of each of its Python processes."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "error", **environment}
    if inject is not None:
        place = cwd / "injected"
        place.mkdir(exist_ok=True)
        (place / "sitecustomize.py").write_text(inject)
        environment["PYTHONPATH"] = os.pathsep.join([str(place), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "witness", "batch", *map(str, args), *OPTIONS]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=cwd, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
    )


def run(
    *args: object,
    cwd: Path,
    inject: str | None = None,
    code: int = 0,
    timeout: float = 180,
    **environment: str,
) -> tuple[str, str]:
    """(stdout, stderr) of a batch that must end with `code`."""
    process = start(*args, cwd=cwd, inject=inject, **environment)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == code, err.decode()
    assert "Traceback" not in err.decode()
    return out.decode(), err.decode()


class Here(pool.Pool):
    """Does the jobs in this process, whose models stay open."""

    def submit(self, job: produce.Job, _: object = None) -> Future[produce.Outcome]:
        """As `Pool.submit`, without starting a process."""
        future: Future[produce.Outcome] = Future()
        future.set_result(worker.perform(worker.from_json(worker.to_json(job), produce.Job)))
        return future


def here(*args: object, cwd: Path, code: int = 0) -> tuple[str, str]:
    """As `run`, in this process: where neither the batch's nor a worker's is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Pool", Here)
        result = in_process(cwd, "batch", *args, *OPTIONS)
    out, err = result.stdout.decode(), result.stderr.decode()
    assert result.returncode == code, err
    assert "Traceback" not in err
    return out, err


def children(pid: int, module: str = "") -> list[int]:
    """The processes that any thread of `pid` started, or those of them that run a module."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += [int(child) for child in task.read_text().split()]
    return [child for child in found if module in command_of(child)]


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def worked(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether a process ends within that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False
