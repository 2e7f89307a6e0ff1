"""Ctrl-C, SIGTERM and SIGHUP, which end a command within two seconds at any time.

The first of them raises an exception, so that every `finally` runs; but not while PyAV works, which drops or
prints half of those that are raised in what it calls. So the arrival is also remembered, and whatever reports
progress or can be canceled raises. If the process is still there after a moment, because of a long call into
C for instance, it is ended from another thread, without what is half written.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from witness.errors import CancelledError
from witness.storage import atomic
from witness.text import printable

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

PATIENCE = 1.0
"""Seconds from the first signal to the end of the process."""

arrived = threading.Event()
"""Set once a signal has arrived. Nobody may wait for it: the handler sets it, maybe in the middle of that."""

_DECODING = tuple(
    str(Path(__file__).parents[1] / "audio" / name) for name in ("ffmpeg.py", "frames.py", "sound.py")
)
"""Modules that call PyAV; they report progress all the time."""

_received: list[int] = []
_told = threading.Lock()  # held once it is said that the command was interrupted
_wake: queue.SimpleQueue[int] = queue.SimpleQueue()  # whose `put` a handler may call at any time
_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


_guard = threading.Thread()


def listen() -> None:
    """Handle the signals from now on. SIGINT stays ignored where a shell had it ignored."""
    global _guard, _wake
    _received.clear()
    arrived.clear()
    if not _guard.is_alive():  # it would not survive a fork
        _wake = queue.SimpleQueue()
        _guard = threading.Thread(target=_see_it_leave, args=(_wake,), daemon=True)
        _guard.start()
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def leave(code: int) -> NoReturn:
    """End the process. A signal that arrives from now on ends it at once, and prints nothing."""
    for number in _NUMBERS:
        if signal.getsignal(number) == _handle:
            signal.signal(number, signal.SIG_DFL)
    if _received:  # Python would wait for its threads, which may be in the middle of something long
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def check() -> None:
    """Raise CancelledError if a signal has arrived. From any thread."""
    if _received:
        raise CancelledError("interrupted")


def exit_code() -> int:
    """The exit code for the signal that has arrived."""
    return 128 + _received[0] if _received else INTERRUPTED


def complain(message: str) -> None:
    """Print the message in one line on stderr."""
    if sys.stderr is not None:  # print would use stdout instead
        with suppress(OSError):
            print(f"witness: {printable(' '.join(message.split()))}", file=sys.stderr)  # noqa: T201


def say_interrupted() -> None:
    """Print that Ctrl-C interrupted the command; another signal needs no message."""
    if exit_code() == INTERRUPTED and _told.acquire(blocking=False):
        complain("interrupted; unfinished results were not written")


def _handle(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, so that nothing stays behind; only once, not to disturb that."""
    _received.append(number)
    if len(_received) > 1:
        return
    arrived.set()
    _wake.put(number)
    while frame is not None:
        if frame.f_code.co_filename in _DECODING:
            return
        frame = frame.f_back
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _see_it_leave(wake: queue.SimpleQueue[int]) -> None:
    """Wait for a signal, and end the process if it has not ended by itself a moment later."""
    number = wake.get()
    time.sleep(PATIENCE)
    atomic.abandon()
    say_interrupted()
    os._exit(128 + number)
