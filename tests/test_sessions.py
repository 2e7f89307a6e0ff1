"""How models run: in order on many threads. What runs on a GPU is in test_migraphx."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from witness import machine_limits
from witness.errors import DeviceError, InputError
from witness.gpu.strict import pins
from witness.models.session import on_cores, run_once, short_reason
from witness.options import Runtime


def test_results_come_in_order_whatever_finishes_first():
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * 10

    with on_cores(4) as mapped:
        assert list(mapped(slow_first, range(20))) == [number * 10 for number in range(20)]
        assert list(mapped(slow_first, [])) == []


def test_items_are_made_as_they_are_needed():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    with on_cores(3) as mapped:
        next(mapped(lambda number: number, items()))
        assert len(made) <= 5


def test_an_error_stops_the_rest():
    ran = []

    def fail_at_five(number: int) -> int:
        ran.append(number)
        if number == 5:
            raise ValueError("five")
        return number

    with pytest.raises(ValueError, match="five"), on_cores(2) as mapped:
        list(mapped(fail_at_five, range(1000)))
    assert max(ran) < 20
    assert threading.active_count() < 10


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_the_threads_of_blas_do_not_wait_on_our_cores():
    """They did in a loop, for a third of the processor time; the limit ends with the last who set it."""
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        if before != {2}:
            pytest.skip(f"a BLAS that does not take a number of threads: {before}")
        with on_cores(2):
            with on_cores(1):
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "/build/ep.cc:70 CreateProvider(x) [ONNXRuntimeError] : 11 : EP_FAIL : /build/webgpu.cc:136 "
            "Init(const Config&)::<lambda()> status == Success was false. Failed to get an adapter:\n none\n",
            "Failed to get an adapter: none",
        ),
        ("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got 3", "2 : INVALID_ARGUMENT : Got 3"),
        ("words " * 100, "words " * 49 + "words"),
    ],
)
def test_the_reason_is_the_end_of_what_onnxruntime_says(said, line):
    assert short_reason(RuntimeError(said)) == line


def test_cores():
    assert Runtime(threads=3).cores == 3
    assert Runtime().cores == machine_limits.cores() >= 1


def test_pins():
    assert pins(["B", "T", 80], [1, 998, 80]) == {"B": 1, "T": 998}
    for shape in ([1, 998], [1, 998, 40]):
        with pytest.raises(DeviceError, match="cannot be pinned"):
            pins(["B", "T", 80], shape)
    with pytest.raises(DeviceError, match="cannot be pinned"):
        pins([None, 80], [1, 80])  # onnxruntime pins by name, and this dimension has none


def test_what_several_threads_want_is_done_once():
    done = []

    def work():
        done.append(len(done))
        time.sleep(0.01)  # the others come meanwhile
        return "ok"

    wanted = run_once(work)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: wanted(), range(8))) == ["ok"] * 8
    assert done == [0]


def test_an_error_is_everybody_s_error():
    tries = []

    @run_once
    def work():
        tries.append(1)
        raise InputError("x.wav: is empty")

    for _ in range(2):
        with pytest.raises(InputError, match="is empty"):
            work()
    assert tries == [1]
