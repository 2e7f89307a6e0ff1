"""A process of our own that may crash, hang or grow, and the way to talk to it.

A damaged recording, a damaged model or a driver can end a process without warning, so whatever may meet one
runs in a child. Parent and child take turns. A message, either way, is a JSON line and then as many bytes
as its "size" says:

    {"do": "run", "shape": [1, 80], "size": 320}\n + 320 bytes   ->   {"shape": [256], "size": 1024}\n + ...

What the child raises arrives as {"error": line}. Its standard output carries replies alone; whatever else it
prints goes to a log, whose last lines explain a death. A child never outlives its parent.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast

SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""For every process of ours, before it imports numpy: sums must not depend on the number of cores, and the
stages bring their own threads. Not OMP_NUM_THREADS, which whisper.cpp obeys."""

HOME = Path(__file__).parents[1]
"""The folder that holds this package: `python -m` looks for modules in the current folder first, which must
not be the user's, who may have a queue.py."""

TICK = 0.5
"""Seconds between two looks at the limits; on Windows, Ctrl-C gets through no sooner."""
LOG = 1 << 16
"""Bytes of the end of the log that are looked at after a death."""

Buffer = bytes | memoryview
Message = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a request may take; None: no limit."""

    seconds: float | None = None
    memory: int | None = None
    """Bytes in the memory of the child and its own children; looked at where the system says (Linux)."""


class ChildError(Exception):
    """The child gave no answer that could be used."""


class RefusedError(ChildError):
    """The child answered with an error, and is still there. The message is its line."""


class LimitError(ChildError):
    """The child was ended because the request took more than its limit."""


class DiedError(ChildError):
    """The child ended before it answered. The message is the cause: "signal SIGSEGV", "exit code 1"."""

    def __init__(self, cause: str, log: Sequence[str]) -> None:
        super().__init__(cause)
        self.log = tuple(log)
        """The last lines that it printed, white space folded, empty ones left out."""

    @property
    def last_words(self) -> str:
        """The last of these lines in parentheses, after a space; nothing if there is none."""
        return f" ({self.log[-1][-200:]})" if self.log else ""


def no_waiting(seconds: float) -> None:
    """For a caller who has nothing to do while a child works."""


class Child:
    """A process that runs `serve`, from the parent's side. Not safe to `ask` from two threads at once."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Start `python -m MODULE`, with `environment` in the place of this process's if it is given."""
        self._log = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - closed by kill()
        self._ended = threading.Lock()
        self._code: int | None = None
        self._lifeline: int | None = None
        command = [sys.executable, "-m", module]
        inherited: list[int] = []
        if os.name == "posix":
            theirs, self._lifeline = os.pipe()
            command.append(str(theirs))
            inherited.append(theirs)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=HOME,
                env={**SINGLE_THREADED, **(os.environ if environment is None else environment)},
                pass_fds=inherited,
            )
        except BaseException:
            self._log.close()
            if self._lifeline is not None:
                os.close(self._lifeline)
            raise
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        # Never None: both were asked for.
        self._stdin, self._stdout = cast(
            "tuple[IO[bytes], IO[bytes]]", (self._process.stdin, self._process.stdout)
        )
        self._replies: queue.SimpleQueue[tuple[Message, bytes] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"reads {module}", daemon=True)
        self._reader.start()

    def ask(
        self,
        request: Mapping[str, Any],
        payload: Buffer = b"",
        *,
        limits: Limits = Limits(),
        waiting: Callable[[float], None] = no_waiting,
    ) -> tuple[Message, bytes]:
        """The reply and its bytes. `waiting` is called with the seconds so far, twice a second.

        Raises RefusedError, and LimitError or DiedError, after which the child is gone.
        """
        with suppress(OSError, ValueError):  # it is dead, and the reply that does not come says so
            self._stdin.write(json.dumps({**request, "size": len(payload)}).encode() + b"\n")
            self._stdin.write(payload)
            self._stdin.flush()
        begun = time.monotonic()
        while True:
            try:
                answer = self._replies.get(timeout=TICK)
                break
            except queue.Empty:
                pass
            waited = time.monotonic() - begun
            waiting(waited)
            if exceeded := self._exceeded(waited, limits):
                self.kill()
                raise LimitError(exceeded)
        if answer is None:
            self._replies.put(None)  # for whoever asks a dead child once more
            raise self._obituary()
        if "error" in answer[0]:
            raise RefusedError(str(answer[0]["error"]))
        return answer

    def finish(self, seconds: float = 5.0) -> str | None:
        """Let the child end by itself; the cause of its death if that went wrong."""
        with suppress(OSError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        code = self.kill()
        return None if code == 0 else cause_of_death(code)

    def kill(self) -> int:
        """End the child now, if it has not ended; its exit code. May be called from any thread, and again."""
        self._process.kill()
        code = self._process.wait()
        with self._ended:
            if self._code is None:
                self._code = code
                self._reader.join()
                if self._lifeline is not None:
                    os.close(self._lifeline)
                for pipe in (self._stdin, self._stdout):
                    with suppress(OSError):  # about a request that was never read
                        pipe.close()
                self._lines = self._last_lines()
                self._log.close()
        return code

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        """Hand on replies until there are no more; then None."""
        with suppress(OSError, ValueError):  # half a message is none
            while (line := self._stdout.readline()).endswith(b"\n"):
                reply: Message = json.loads(line)
                content = self._stdout.read(reply["size"])
                if len(content) < reply["size"]:
                    break
                self._replies.put((reply, content))
        self._replies.put(None)

    def _exceeded(self, waited: float, limits: Limits) -> str | None:
        if limits.seconds is not None and waited > limits.seconds:
            return f"no answer within {limits.seconds:g} s"
        if limits.memory is not None and (taken := resident(self._process.pid)) > limits.memory:
            return f"it took {taken / 1e9:.1f} GB of memory, and {limits.memory / 1e9:.1f} GB are allowed"
        return None

    def _obituary(self) -> DiedError:
        # Its end of the pipe is closed, so it is ending; what hangs on its way out is not waited for.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        return DiedError(cause_of_death(self.kill()), self._lines)

    def _last_lines(self) -> list[str]:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return [text for line in lines if (text := " ".join(line.split()))]


def cause_of_death(code: int) -> str:
    """An exit code in words: "exit code 1", "signal SIGSEGV"."""
    if code >= 0:
        return f"exit code {code}" if code < 256 else f"exit code {code:#x}"  # Windows has large ones
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def resident(pid: int) -> int:
    """Bytes in the memory of a process and its children, as Linux counts them; 0 where nobody knows."""
    total = 0
    with suppress(OSError, ValueError):
        found = re.search(r"^VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
        total += int(found[1]) * 1024 if found else 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident(int(child)) for child in (task / "children").read_text().split())
    return total


# --- the child's side ---


def serve(answer: Callable[[Message, bytes], tuple[Message, Sequence[Buffer]]]) -> NoReturn:
    """Answer requests until the parent is gone, and end the process without tearing anything down.

    What `answer` raises is told to the parent in one line. Drivers may abort when they are torn down.
    """
    if len(sys.argv) > 1:
        _die_with(int(sys.argv[1]))
    # Ctrl-C goes to every process of the terminal; what becomes of this one is the parent's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever C code prints must not get between the replies
    # Some drivers look for their libraries in the current folder.
    os.chdir(Path(HOME.anchor))
    requests: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
    # A thread of its own, because the main one is inside C code for most of the time.
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        request, payload = requests.get()
        parts: Sequence[Buffer] = ()
        try:
            reply, parts = answer(request, payload)
        except Exception as error:  # C++ exceptions arrive as RuntimeError, MemoryError and others
            reply, parts = {"error": one_line(error)}, ()
        head = {**reply, "size": sum(map(len, parts))}
        replies.write(json.dumps(head).encode() + b"\n")
        for part in parts:
            replies.write(part)
        replies.flush()


def one_line(error: BaseException) -> str:
    """What an exception says, in one line; its class if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def _read_requests(stdin: IO[bytes], requests: queue.SimpleQueue[tuple[Message, bytes]]) -> None:
    """Put requests in the queue until the parent is gone, and then end the process."""
    while line := stdin.readline():
        request = json.loads(line)
        payload = stdin.read(request["size"])
        if len(payload) < request["size"]:
            break
        requests.put((request, payload))
    # Not sys.exit: it would wait for the main thread, or pull its memory from under a running computation.
    os._exit(0)


def _die_with(pipe: int) -> None:
    """End this process when the other end of `pipe` is closed, whatever it is doing.

    By a signal (SIGIO, which ends a process), because some libraries keep all threads of Python waiting for
    minutes, and nobody should find a process that goes on compiling for half an hour.
    """
    import fcntl

    with suppress(OSError):  # where it does not work, the thread that reads requests has to do
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
