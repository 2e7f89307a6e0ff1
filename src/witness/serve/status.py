"""How it stands with each recording of the queue, for all who want to know: any thread may ask or listen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from witness.errors import WitnessError
from witness.work.status import MOST_ENDED, JobStatus, Listener

MOST_LISTENERS = 200


class BusyError(WitnessError):
    """There is no room for more now; later there will be."""


class UnknownError(WitnessError):
    """There is no recording with that id."""


class Board:
    """Standings, and those who hear of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standings: dict[str, JobStatus] = {}
        self._listeners: list[Listener] = []
        self._closed = False

    def standings(self) -> list[JobStatus]:
        """All that listeners are told of first."""
        with self._lock:
            return list(self._standings.values())

    def states(self) -> Mapping[str, str]:
        """ "waiting" or "working", by the ids of the transcripts that are to be."""
        return {one.id: one.state for one in self.standings() if one.state in ("waiting", "working")}

    def standing(self, recording: str) -> JobStatus:
        """That of one recording. Raises UnknownError."""
        with self._lock:
            if recording not in self._standings:
                raise UnknownError("there is no recording with this id; reload the page")
            return self._standings[recording]

    def knows(self, recording: str) -> bool:
        """Whether there is a standing of it."""
        with self._lock:
            return recording in self._standings

    def tell(self, standing: JobStatus) -> None:
        """Take a standing, and have all hear of it who have not heard the same before."""
        with self._lock:
            if self._standings.get(standing.id) == standing:
                return
            self._standings[standing.id] = standing
            self._listeners = [one for one in self._listeners if one.tell(standing)]
            ended = [one.id for one in self._standings.values() if one.state not in ("waiting", "working")]
            for old in ended[: max(0, len(ended) - MOST_ENDED)]:
                del self._standings[old]

    def change(self, recording: str, **fields: Any) -> None:
        """Tell the same standing with other fields. Raises UnknownError."""
        self.tell(replace(self.standing(recording), **fields))

    def listen(self, wake: Callable[[], None]) -> Listener:
        """Hear of all recordings now, and of each change; `wake` is called from another thread when there is
        something to take. Raises BusyError."""
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS or self._closed:
                raise BusyError("too many windows are open; close some")
            listener = Listener(wake)
            self._listeners.append(listener)
            for standing in self._standings.values():
                listener.tell(standing)
        return listener

    def forget(self, listener: Listener) -> None:
        """A listener has left."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def close(self) -> None:
        """Tell nobody anything anymore."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.drop()
