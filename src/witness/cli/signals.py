"""Ctrl-C, SIGTERM and SIGHUP end a command, even where a library drops the exception that they raise.

PyAV does so in about half of the cases in which a signal arrives while it decodes. So the arrival is also
remembered, and whatever reports progress raises again.
"""

from __future__ import annotations

import signal
from types import FrameType

from witness.errors import CancelledError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

_received: list[int] = []


def listen() -> None:
    """Handle the signals from now on. SIGINT stays ignored where a shell had it ignored."""
    _received.clear()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def check() -> None:
    """Raise CancelledError if a signal has arrived. From any thread."""
    if _received:
        raise CancelledError("interrupted")


def exit_code() -> int:
    """The exit code for the signal that has arrived."""
    return 128 + _received[0] if _received else INTERRUPTED


def _handle(number: int, _frame: FrameType | None) -> None:
    """Leave through every `finally`, so that nothing stays behind."""
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
