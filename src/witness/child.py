"""A child process that may crash, hang or grow, and messages to and from it.

A damaged recording, a damaged model or a driver can end a process without warning, so work with them runs in
a child. Parent and child take turns. A message, either way, is a JSON line and then as many bytes as its
"size":

    {"do": "run", "shape": [1, 80], "size": 320}\n + 320 bytes   ->   {"shape": [256], "size": 1024}\n + ...

An error in the child arrives as {"error": line}. Before its reply the child may send news of the work,
messages with "news" and no payload. Its standard output carries replies alone; all other output goes to a
log, whose last lines explain a death. A child never outlives its parent.
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
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of every child, before it imports numpy: sums must not depend on the number of cores, and the
stages bring their own threads. Not OMP_NUM_THREADS, which whisper.cpp obeys."""

HOME = Path(__file__).parents[1]
"""The folder with this package, for `python -m`, which looks for modules in the current folder first: the
user's may have a queue.py."""

TICK = 0.5
"""Seconds between two looks at the limits; on Windows, Ctrl-C gets through no sooner."""
LOG = 1 << 16
"""Bytes of the end of the log to read after a death."""

Buffer = bytes | memoryview
Message = dict[str, Any]
C = TypeVar("C", bound="Child")


@dataclass(frozen=True)
class Limits:
    """Limits of a request; None: no limit."""

    seconds: float | None = None
    """From the request, sending it included, to the reply."""
    memory: int | None = None
    """Bytes in the memory of the child and its own children. Enforced on Linux, which tells them."""


class ChildError(Exception):
    """The child gave no usable answer."""


class RefusedError(ChildError):
    """The child answered with an error, and is still there. The message is its line."""


class LimitError(ChildError):
    """The child was ended because the request took more than its limit."""


class TooSlowError(LimitError):
    """It took too long."""


class TooLargeError(LimitError):
    """It took too much memory."""


class DiedError(ChildError):
    """The child ended before it answered. The message is the cause: "signal SIGSEGV", "exit code 1"."""

    def __init__(self, cause: str, log: Sequence[str]) -> None:
        super().__init__(cause)
        self.log = tuple(log)
        """The last lines of its log, with folded white space and without empty ones."""

    @property
    def last_words(self) -> str:
        """The last of these lines in parentheses, after a space; empty without a log."""
        return f" ({self.log[-1][-200:]})" if self.log else ""


def _defaults() -> dict[str, str]:
    """Return the environment of a child, apart from the caller's."""
    if sys.platform != "win32":
        return SINGLE_THREADED
    # Overlays and recorders of games hang themselves into every program that uses Vulkan, and some crash it:
    # cjpais/Handy#2049, 2026-09-08.
    return {**SINGLE_THREADED, "VK_LOADER_LAYERS_DISABLE": "~implicit~"}


class Child:
    """A process that runs `serve`, from the parent's side.

    Only one thread may `ask`; any may `kill` meanwhile, and then the one that asked gets DiedError.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Start `python -m MODULE`, with `environment` or else that of this process.

        Returns at once; a module that cannot be imported is the DiedError of the first request. Raises
        OSError if the system cannot start a process.
        """
        self._log = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - closed by kill()
        self._ending = threading.Lock()
        self._code: int | None = None
        self._lines: list[str] = []
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
                env={**_defaults(), **(os.environ if environment is None else environment)},
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
        self._requests: queue.SimpleQueue[tuple[bytes, Buffer] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[tuple[Message, bytes] | None] = queue.SimpleQueue()
        self._talker = threading.Thread(target=self._talk, name=f"talks to {module}", daemon=True)
        self._talker.start()

    @property
    def pid(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    def ask(
        self,
        request: Mapping[str, Any],
        payload: Buffer = b"",
        *,
        limits: Limits = Limits(),
        waiting: Callable[[float], None] = lambda _: None,
        hear: Callable[[Message], None] = lambda _: None,
    ) -> tuple[Message, bytes]:
        """Return the reply and its bytes.

        Calls `waiting` with the seconds so far, twice a second without news, and `hear` with each message of
        news.

        Raises RefusedError; and LimitError or DiedError, after which the child is gone. It is gone, too, if
        one of the callbacks raises, because its reply would pass for that to the next request.
        """
        if self._code is not None:
            raise self._death()
        head = json.dumps({**request, "size": memoryview(payload).nbytes}).encode() + b"\n"
        self._requests.put((head, payload))
        try:
            reply = self._wait(limits, waiting, hear)
        except BaseException:
            self.kill()
            raise
        if reply is None:
            raise self._death()
        if "error" in reply[0]:
            raise RefusedError(str(reply[0]["error"]))
        return reply

    def kill(self) -> int:
        """End the child now, and return its exit code. May be called from any thread, and again."""
        self._process.kill()
        code = self._process.wait()
        with self._ending:
            if self._code is None:
                self._requests.put(None)
                self._talker.join()
                lifeline, self._lifeline = self._lifeline, None
                if lifeline is not None:
                    os.close(lifeline)
                self._stdout.close()
                self._lines = self._last_lines()
                self._code = code
                self._log.close()
        return code

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _talk(self) -> None:
        """Send each request, and hand on the news and its reply; None after the last one.

        In a thread of its own: a child that hangs before it reads would block a sender of more than the pipe
        holds, and no limit would end that.
        """
        with suppress(OSError, ValueError, KeyError):  # the child is dead, or sent no reply
            while (request := self._requests.get()) is not None:
                for part in request:
                    self._stdin.write(part)
                self._stdin.flush()
                while (line := self._stdout.readline()).endswith(b"\n"):
                    reply: Message = json.loads(line)
                    size = reply.pop("size")
                    if "news" not in reply:
                        break
                    self._replies.put((reply, b""))
                else:
                    break
                content = self._stdout.read(size)
                if len(content) < size:
                    break
                self._replies.put((reply, content))
        self._replies.put(None)
        with suppress(OSError):  # about a request that was never read
            self._stdin.close()

    def _wait(
        self, limits: Limits, waiting: Callable[[float], None], hear: Callable[[Message], None]
    ) -> tuple[Message, bytes] | None:
        """Wait for the reply; None: the child is dead. Raises LimitError."""
        begun = time.monotonic()
        waited = 0.0
        while True:
            left = TICK if limits.seconds is None else min(TICK, max(0.0, limits.seconds - waited))
            with suppress(queue.Empty):
                reply = self._replies.get(timeout=left)
                if reply is None or "news" not in reply[0]:
                    return reply
                hear(reply[0]["news"])
            waited = time.monotonic() - begun
            waiting(waited)
            if limits.seconds is not None and waited >= limits.seconds:
                raise TooSlowError(f"no answer within {limits.seconds:g} s")
            if limits.memory is not None and (taken := resident(self.pid)) > limits.memory:
                raise TooLargeError(
                    f"it took {taken / 1e9:.1f} GB of memory, and {limits.memory / 1e9:.1f} GB are allowed"
                )

    def _death(self) -> DiedError:
        """Return the cause of a missing reply, and end the child."""
        # Its end of the pipe is closed, so it is ending; one that hangs on its way out is killed.
        try:
            cause = cause_of_death(self._process.wait(5.0))
        except subprocess.TimeoutExpired:
            cause = "half a reply"
        self.kill()
        return DiedError(cause, self._lines)

    def _last_lines(self) -> list[str]:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return [text for line in lines if (text := " ".join(line.split()))]


def ask_once(module: str, request: Mapping[str, Any], seconds: float) -> Message:
    """Return the reply of a new child, which then ends; {"error": line} after any failure."""
    try:
        with Child(module) as child:
            return child.ask(request, limits=Limits(seconds))[0]
    except DiedError as error:
        return {"error": f"the process ended with {error}{error.last_words}"}
    except (ChildError, OSError) as error:
        return {"error": str(error)}


def cause_of_death(code: int) -> str:
    """Describe an exit code: "exit code 1", "signal SIGSEGV"."""
    if code >= 0:
        return f"exit code {code}" if code < 256 else f"exit code {code:#x}"  # Windows has large ones
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def resident(pid: int) -> int:
    """Return the bytes in the memory of a process and its children, on Linux; 0 on other systems."""
    total = 0
    with suppress(OSError, ValueError):
        match = re.search(r"^VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
        total += int(match[1]) * 1024 if match else 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident(int(child)) for child in (task / "children").read_text().split())
    return total


# --- the child's side ---

Answer = Callable[[Message, bytes], tuple[Message, Sequence[Buffer]]]
"""Takes a request and its payload, and returns the reply and the parts of its payload."""


Tell = Callable[[Message], None]
"""Sends the parent news of the current request, from any thread."""

TellingAnswer = Callable[[Message, bytes, Tell], tuple[Message, Sequence[Buffer]]]
"""An `Answer` that may send news before the reply."""


def serve(answer: Answer) -> NoReturn:
    """Answer requests until the parent is gone, and end the process without tearing anything down.

    An error of `answer` goes to the parent in one line. Drivers may abort when they are torn down.
    """
    serve_telling(lambda request, payload, _: answer(request, payload))


def serve_telling(answer: TellingAnswer) -> NoReturn:
    """Answer requests like `serve`, with news."""
    if len(sys.argv) > 1:
        _die_with(int(sys.argv[1]))
    # Ctrl-C goes to every process of the terminal; the parent decides about this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of C code must not get between the replies
    # Some drivers look for their libraries in the current folder.
    os.chdir(Path(HOME.anchor))
    requests: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
    # A thread of its own, because the main one is inside C code for most of the time.
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    lock = threading.Lock()
    working = 0  # the number of the request: late news must not pass for news of the next one

    def tell(number: int, news: Message) -> None:
        with lock:
            if number == working:
                replies.write(json.dumps({"news": news, "size": 0}).encode() + b"\n")
                replies.flush()

    try:
        while True:
            request = requests.get()
            working += 1
            head, parts = _reply(answer, *request, partial(tell, working))
            with lock:
                working += 1
                replies.write(head)
                for part in parts:
                    replies.write(part)
                replies.flush()
    except BaseException:  # the parent is gone, or this is no error of the work
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _reply(
    answer: TellingAnswer, request: Message, payload: bytes, tell: Tell
) -> tuple[bytes, Sequence[Buffer]]:
    """Return the JSON line and the parts after it."""
    parts: Sequence[Buffer] = ()
    try:
        reply, parts = answer(request, payload, tell)
        head = json.dumps({**reply, "size": sum(memoryview(part).nbytes for part in parts)})
    except Exception as error:  # C++ exceptions arrive as RuntimeError, MemoryError and others
        head, parts = json.dumps({"error": one_line(error), "size": 0}), ()
    return head.encode() + b"\n", parts


def one_line(error: BaseException) -> str:
    """Return the message of an exception in one line, or else its class."""
    return " ".join(str(error).split()) or type(error).__name__


def _read_requests(stdin: IO[bytes], requests: queue.SimpleQueue[tuple[Message, bytes]]) -> None:
    """Put requests in the queue until the parent is gone, and then end the process."""
    while (line := stdin.readline()).endswith(b"\n"):
        request = json.loads(line)
        size = request.pop("size")
        payload = stdin.read(size)
        if len(payload) < size:
            break
        requests.put((request, payload))
    # Not sys.exit: it would wait for the main thread, or pull its memory from under a running computation.
    os._exit(0)


def _die_with(pipe: int) -> None:
    """End this process when the other end of `pipe` is closed, even in the middle of C code.

    By a signal (SIGIO, which ends a process), because some libraries keep all threads of Python waiting for
    minutes, and a compilation would go on for half an hour.
    """
    import fcntl
    import select

    with suppress(OSError):  # without it, the thread that reads requests still ends the process
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([pipe], [], [], 0)[0]:  # closed before: no signal will tell
            os._exit(0)
