"""Status of each recording of the queue, and the listeners of the browsers; any thread may call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from witness.errors import WitnessError

MOST_ENDED = 200
"""Recordings done, failed or canceled that the board keeps."""
MOST_UNREAD = 2400
"""Recordings whose status a listener may not have taken yet; twice as many as the board has at most."""
MOST_LISTENERS = 200
LATEST = 3
"""Segments of the text so far that a row has."""

State = Literal["waiting", "working", "done", "failed", "canceled"]
OPEN = ("waiting", "working")


class BusyError(WitnessError):
    """Queue full; retry later."""


class UnknownError(WitnessError):
    """No recording with that id."""


@dataclass(frozen=True)
class JobStatus:
    """Status of a recording."""

    id: str
    """The id of its transcript."""
    name: str
    state: State
    stage: str | None = None
    """The stage at work now."""
    share: float = 0.0
    """Share of the work that is done."""
    seconds_left: float | None = None
    seconds_after: float | None = None
    """Seconds from the end of this recording until those that wait now are done, too; None: not known."""
    why: str | None = None
    """The reason why it failed, or why it still waits although nothing is before it."""
    said: tuple[Mapping[str, Any], ...] = ()
    """The segments that are final so far, as `produce.Segment`."""
    output: str = ""
    """Its results below the folder, without their endings."""
    source: str = ""
    """The path of the recording."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON."""
        latest = self.said[-LATEST:]
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "stage": self.stage,
            "share": round(self.share, 3),
            "seconds_left": _rounded(self.seconds_left),
            "seconds_after": _rounded(self.seconds_after),
            "why": self.why,
            "said": [{"speaker": segment["speaker"], "text": segment["text"]} for segment in latest],
            "transcript": self.id if self.state == "done" else None,
        }


class Listener:
    """The latest status of each recording that a browser has not taken yet."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._unread: dict[str, JobStatus] = {}
        self._dropped = False

    def put(self, status: JobStatus) -> bool:
        """Keep a status for `take`. Return False if too many were kept; this listener gets no more."""
        with self._lock:
            self._unread.pop(status.id, None)  # it goes to the end
            self._unread[status.id] = status
            self._dropped = self._dropped or len(self._unread) > MOST_UNREAD
            dropped = self._dropped
        self._wake()
        return not dropped

    def drop(self) -> None:
        """Put nothing more."""
        with self._lock:
            self._dropped = True
        self._wake()

    def take(self) -> list[JobStatus] | None:
        """Return the unread statuses, the oldest first; None: there will be no more."""
        with self._lock:
            if self._dropped:
                return None
            unread, self._unread = list(self._unread.values()), {}
        return unread


class StatusBoard:
    """The statuses of all recordings, and their listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, JobStatus] = {}
        self._listeners: list[Listener] = []
        self._closed = False

    def statuses(self) -> list[JobStatus]:
        """Return all, as a new listener gets them."""
        with self._lock:
            return list(self._statuses.values())

    def states(self) -> Mapping[str, str]:
        """Return "waiting" or "working" by the ids of the transcripts that are not done yet."""
        return {status.id: status.state for status in self.statuses() if status.state in OPEN}

    def status(self, recording: str) -> JobStatus:
        """Return the status of one recording. Raises UnknownError."""
        with self._lock:
            if recording not in self._statuses:
                raise UnknownError("there is no recording with this id; reload the page")
            return self._statuses[recording]

    def has(self, recording: str) -> bool:
        """Return whether there is a status of this recording."""
        with self._lock:
            return recording in self._statuses

    def put(self, status: JobStatus) -> None:
        """Set a status, and give it to all listeners unless nothing has changed."""
        with self._lock:
            if self._statuses.get(status.id) == status:
                return
            self._statuses[status.id] = status
            self._listeners = [listener for listener in self._listeners if listener.put(status)]
            ended = [other.id for other in self._statuses.values() if other.state not in OPEN]
            for old in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._statuses[old]

    def change(self, recording: str, **fields: Any) -> None:
        """Set some fields of a status. Raises UnknownError."""
        self.put(replace(self.status(recording), **fields))

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Return a listener with all statuses, which gets each change. Raises BusyError.

        `wake` is called from another thread when there is something to take.
        """
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS or self._closed:
                raise BusyError("too many windows are open; close some")
            listener = Listener(wake)
            self._listeners.append(listener)
            for status in self._statuses.values():
                listener.put(status)
        return listener

    def forget(self, listener: Listener) -> None:
        """Remove a listener that has left."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def close(self) -> None:
        """Drop all listeners, and take no more."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.drop()


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
