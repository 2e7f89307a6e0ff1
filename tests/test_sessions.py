"""How models run: in order on many threads, and strictly on a GPU or not at all."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import CALL, SHARED
from witness.sessions import Runtime, cores, ordered_map


def test_results_come_in_order_whatever_finishes_first():
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * 10

    assert list(ordered_map(slow_first, range(20), 4)) == [number * 10 for number in range(20)]
    assert list(ordered_map(slow_first, [], 4)) == []


def test_items_are_made_as_they_are_needed():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    results = ordered_map(lambda number: number, items(), 3)
    next(results)
    assert len(made) <= 5
    results.close()


def test_an_error_stops_the_rest():
    ran = []

    def fail_at_five(number: int) -> int:
        ran.append(number)
        if number == 5:
            raise ValueError("five")
        return number

    with pytest.raises(ValueError, match="five"):
        list(ordered_map(fail_at_five, range(1000), 2))
    assert max(ran) < 20
    assert threading.active_count() < 10


def test_cores():
    assert Runtime(threads=3).worker_count == 3
    assert Runtime().worker_count == cores() >= 1


@pytest.fixture(scope="module")
def doubles(tmp_path_factory) -> Path:
    """Doubles of ROCm's libraries, with which the real MIGraphX provider loads. They compute no model."""
    source = SHARED / "testing" / "fakegpu"
    if not source.is_dir() or not shutil.which("gcc") or not shutil.which("g++"):
        pytest.skip("needs the doubles' source (shared/testing/fakegpu), gcc and g++")
    folder = tmp_path_factory.mktemp("doubles")
    shared = ["-O1", "-shared", "-fPIC"]
    hip = ["-Wl,-soname,libamdhip64.so.7", f"-Wl,--version-script={source / 'hip.map'}"]
    graph = ["-std=c++17", "-Wl,-soname,libmigraphx_c.so.3"]
    for command in (
        ["gcc", *shared, *hip, "-o", folder / "libamdhip64.so.7", source / "fakehip.c"],
        ["g++", *shared, *graph, "-o", folder / "libmigraphx_c.so.3", source / "fakemgx.cpp"],
    ):
        subprocess.run(command, check=True)
    return folder


def on_gpu(doubles: Path | None, *args: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, **variables}
    if doubles is not None:
        environment["LD_LIBRARY_PATH"] = str(doubles)
    return subprocess.run(
        [sys.executable, "-m", "witness", str(CALL), "-q", "--offline", "--device", "migraphx", *args],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def refusal(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 6, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "--device cpu" in line
    return line


def test_a_gpu_that_computes_nonsense_is_refused(doubles):
    """The provider takes the whole graph, compiles and runs it; only the comparison with the CPU notices."""
    assert "the GPU" in refusal(on_gpu(doubles))


def test_no_device(doubles):
    assert "GPU 0" in refusal(on_gpu(doubles, FAKE_NDEV="0"))


def test_a_device_that_is_not_there(doubles):
    assert "GPU 3" in refusal(on_gpu(doubles, "--gpu", "3"))


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there may be a real ROCm here")
def test_no_rocm():
    refusal(on_gpu(None))
