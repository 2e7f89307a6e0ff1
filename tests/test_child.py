"""Children that answer, refuse, die, hang and grow. What each does is said by the requests of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recordings import gone
from witness import child
from witness.child import Child, DiedError, Limits, RefusedError, TooLargeError, TooSlowError

PATIENCE = 60  # seconds for what takes one or two; the machine may be busy

SCRIPTED = """
import ctypes, os, signal, sys, time
from witness.child import serve

def hold_the_gil():
    # A function of C called this way keeps all threads of Python waiting.
    ctypes.PyDLL(None).sleep(ctypes.c_uint(3600))

def answer(request, payload):
    mark = request.get("mark")
    if mark:
        open(mark, "w").close()
    exec(request.get("run", ""))
    return {"ran": True, "where": os.getcwd()}, [payload[::-1], b"", memoryview(b"end")]

serve(answer)
"""
"""Runs the code of a request, once it has made the file that the request calls "mark"."""

TELLS_LAYERS = """
import os
from witness.child import serve

serve(lambda request, payload: ({"layers": os.environ.get("VK_LOADER_LAYERS_DISABLE")}, []))
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts such a child, or one of other code; all are gone after the test."""
    children: list[Child] = []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def start(code: str = SCRIPTED, name: str = "scripted") -> Child:
        (tmp_path / f"{name}.py").write_text(code)
        children.append(Child(name))
        return children[-1]

    yield start
    for one in children:
        one.kill()


def wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_payload_goes_and_comes(start):
    asked = start()
    long = os.urandom(3_000_000)  # many times what a pipe holds
    for payload in (b"", b"abc", long, memoryview(long)[5:]):
        reply, content = asked.ask({"payload": 1}, payload)
        assert reply == {"ran": True, "where": Path(child.HOME.anchor).as_posix()}
        assert content == bytes(payload)[::-1] + b"end"


def test_what_a_child_prints_is_no_reply(start):
    asked = start()
    code = "print('x' * 100_000); os.write(1, b'{}' * 1000); sys.stdout.flush()"
    assert asked.ask({"run": code})[0]["ran"]


def test_a_refusal_is_one_line_and_the_child_goes_on(start):
    asked = start()
    with pytest.raises(RefusedError, match=r"^no such shape$"):
        asked.ask({"run": "raise ValueError('no such\\n shape')"})
    with pytest.raises(RefusedError, match=r"^ZeroDivisionError$"):
        asked.ask({"run": "raise ZeroDivisionError"})
    assert asked.ask({})[0]["ran"]


def test_a_reply_that_is_no_json_is_a_refusal(start):
    asked = start(SCRIPTED.replace('"ran": True', '"ran": {1}'))
    with pytest.raises(RefusedError, match="not JSON serializable"):
        asked.ask({})


def test_news_is_heard_before_the_reply_and_never_after_it(start):
    code = """
from witness.child import serve_telling

kept = []

def answer(request, payload, tell):
    for late in kept:
        late({"of": "an earlier request"})
    for number in range(3):
        tell({"number": number})
    kept.append(tell)
    return {"heard": payload.decode()}, [payload]

serve_telling(answer)
"""
    asked, news = start(code), []
    for _ in range(2):
        assert asked.ask({}, b"x" * 100_000, hear=news.append)[1] == b"x" * 100_000
    assert news == [{"number": number} for number in (0, 1, 2, 0, 1, 2)]
    with pytest.raises(ZeroDivisionError):  # and its reply is not taken for that to the next request
        asked.ask({}, hear=lambda _: 1 / 0)
    with pytest.raises(DiedError):
        asked.ask({})


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_death_by_a_signal_with_last_words(start):
    asked = start()
    with pytest.raises(DiedError) as caught:
        asked.ask({"run": "os.write(2, b'first\\n\\n  free():  invalid pointer\\n'); os.abort()"})
    assert str(caught.value) == "signal SIGABRT"
    assert caught.value.log == ("first", "free(): invalid pointer")
    assert caught.value.last_words == " (free(): invalid pointer)"
    with pytest.raises(DiedError, match="SIGABRT"):  # whoever asks a dead child
        asked.ask({})


def test_death_without_words(start):
    with pytest.raises(DiedError) as caught:
        start().ask({"run": "os._exit(3)"})
    assert (str(caught.value), caught.value.last_words) == ("exit code 3", "")


def test_a_long_log_is_read_from_its_end(start):
    with pytest.raises(DiedError) as caught:
        start().ask({"run": "os.write(2, b'word ' * 1_000_000 + b'\\nthe end\\n'); os._exit(1)"})
    assert caught.value.last_words == " (the end)"
    assert len(caught.value.log) == 2
    assert len(caught.value.log[0]) <= child.LOG


def test_a_module_that_cannot_be_imported(start):
    with pytest.raises(DiedError, match="exit code 1") as caught:
        start("import nonsense").ask({})
    assert "ModuleNotFoundError: No module named 'nonsense'" in caught.value.last_words


@pytest.mark.parametrize("reply", ['{"size": 4', '{"size": 4}\\n', '{"size": 4}\\n123'])
def test_half_a_reply_is_none(start, reply):
    code = f"import os, sys\nsys.stdin.readline()\nos.write(1, b'{reply}')\nos.close(1)\nos._exit(7)"
    with pytest.raises(DiedError, match="exit code 7"):
        start(code).ask({})


def test_a_limit_of_time(start):
    asked = start()
    waited: list[float] = []
    begun = time.monotonic()
    with pytest.raises(TooSlowError, match=r"^no answer within 1\.2 s$"):
        asked.ask({"run": "time.sleep(3600)"}, limits=Limits(1.2), waiting=waited.append)
    assert time.monotonic() - begun >= 1.2
    assert waited == sorted(waited)
    assert len(waited) >= 2
    assert gone(asked.pid)
    # Also of a child that does not even read, so that a large request is never sent whole.
    deaf = start("import time\ntime.sleep(3600)", "deaf")
    with pytest.raises(TooSlowError):
        deaf.ask({}, bytes(3_000_000), limits=Limits(0.2))
    assert gone(deaf.pid)


def test_within_its_limits(start):
    limits = Limits(seconds=PATIENCE, memory=2_000_000_000)
    assert start().ask({"run": "time.sleep(1.2)"}, limits=limits)[0]["ran"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_limit_of_memory_counts_a_childs_own_children(start, tmp_path):
    mark = tmp_path / "grown"
    grow = "import time\ntaken = bytearray(200_000_000)\ntime.sleep(3600)"
    code = (
        "import subprocess\n"
        f"process = subprocess.Popen([sys.executable, '-c', {grow!r}])\n"
        f"open({str(mark)!r}, 'w').write(str(process.pid))\n"
        "process.wait()\n"
    )
    asked = start()
    with pytest.raises(TooLargeError, match=r"^it took 0\.\d GB of memory, and 0\.1 GB are allowed$"):
        asked.ask({"run": code}, limits=Limits(PATIENCE, 150_000_000))
    assert gone(asked.pid)
    os.kill(int(mark.read_text()), signal.SIGKILL)  # it has no pipe to its parent


def test_killed_by_another_thread_while_it_is_asked(start, tmp_path):
    asked, mark = start(), tmp_path / "begun"

    def kill() -> None:
        wait_for(mark.exists)
        asked.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(DiedError):
        asked.ask({"mark": str(mark), "run": "time.sleep(3600)"})
    killer.join()
    assert gone(asked.pid)
    assert asked.kill() == asked.kill()


def test_what_the_waiting_raises_ends_the_child(start):
    """Its reply would be taken for that to the next request."""
    asked = start()

    def cancel(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked.ask({"run": "time.sleep(3600)"}, waiting=cancel)
    assert gone(asked.pid)
    with pytest.raises(DiedError):
        asked.ask({})


def test_a_killed_child_is_gone(start):
    asked = start()
    asked.ask({"run": "os._exit = lambda code: time.sleep(3600)"})  # as a driver that hangs over its end
    asked.kill()
    assert gone(asked.pid)
    with pytest.raises(DiedError):
        asked.ask({})


def test_the_environment_is_single_threaded_unless_told_otherwise(start, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    code = "raise ValueError(os.environ['OPENBLAS_NUM_THREADS'] + os.environ['MKL_NUM_THREADS'])"
    with pytest.raises(RefusedError, match=r"^13$"):
        start().ask({"run": code})


PARENT = """
import sys, threading
from witness.child import Child
asked = Child("scripted")
asked.ask({{}})
print(asked.pid, flush=True)
try:
    asked.ask({request!r})
except KeyboardInterrupt:
    print(asked.kill(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc")
@pytest.mark.parametrize("busy", ["time.sleep(3600)", "hold_the_gil()"])
def test_a_killed_parent_leaves_no_orphan(start, tmp_path, busy):
    start().kill()  # it has written the module
    mark = tmp_path / "begun"
    code = PARENT.format(request={"mark": str(mark), "run": busy})
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        wait_for(mark.exists)
        assert not gone(pid, 0.5)
        parent.kill()
    assert gone(pid, PATIENCE)


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc")
def test_a_child_whose_parent_died_before_it_was_ready(start, tmp_path):
    """The signal that tells of the death came too early for it."""
    start().kill()
    slow, mark = tmp_path / "slow.py", tmp_path / "begun"
    slow.write_text(
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.02)\n" + SCRIPTED
    )
    code = "from witness.child import Child\nChild('slow').ask({'run': 'hold_the_gil()'})"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_for(lambda: mark.exists() and mark.read_text())
        parent.kill()
    (tmp_path / "go").touch()
    assert gone(int(mark.read_text()), PATIENCE)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_is_left_to_the_parent(start, tmp_path):
    start().kill()
    mark = tmp_path / "begun"
    code = PARENT.format(request={"mark": str(mark), "run": "time.sleep(3600)"})
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        pid = int(parent.stdout.readline())
        wait_for(mark.exists)
        os.killpg(parent.pid, signal.SIGINT)
        # It died of the parent's kill, not of the interruption.
        assert int(parent.stdout.readline()) == -signal.SIGKILL
        assert parent.wait(PATIENCE) == 0
    assert gone(pid)


@pytest.mark.parametrize(
    ("code", "cause"),
    [(0, "exit code 0"), (3, "exit code 3"), (0xC0000005, "exit code 0xc0000005"), (-999, "signal 999")],
)
def test_causes(code, cause):
    assert child.cause_of_death(code) == cause


def test_only_the_standard_library_is_imported():
    """Every child imports it first, and the doctor's must not fail where numpy does."""
    code = (
        "import sys; before = set(sys.modules); import json, witness.child\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(json.dumps(sorted(new - sys.stdlib_module_names)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == ["witness"]


@pytest.mark.parametrize("text", ["subprocess.Popen", "OPENBLAS_NUM_THREADS", "signal.Signals"])
def test_processes_are_started_and_buried_in_one_place(text):
    sources = Path(child.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if text in path.read_text()] == ["child.py"]
    assert text in Path(child.__file__).read_text()


@pytest.mark.parametrize(
    ("system", "own", "layers"),
    [("win32", None, "~implicit~"), ("win32", "none", "none"), ("linux", None, None)],
)
def test_overlays_of_games_are_kept_out_under_windows(start, monkeypatch, system, own, layers):
    monkeypatch.delenv("VK_LOADER_LAYERS_DISABLE", raising=False)
    if own is not None:
        monkeypatch.setenv("VK_LOADER_LAYERS_DISABLE", own)
    with monkeypatch.context() as there:
        there.setattr(child.sys, "platform", system)
        one = start(TELLS_LAYERS)
    assert one.ask({})[0]["layers"] == layers
