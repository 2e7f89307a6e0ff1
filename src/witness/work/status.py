"""How it stands with the recordings of the queue, and what somebody who listens has not heard of it yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MOST_WAITING = 1000
"""Recordings that may wait."""
MOST_ENDED = 200
"""Recordings that are done, failed or canceled of which listeners are told."""
BEHIND = 2 * (MOST_WAITING + MOST_ENDED)
"""Recordings of which a listener may not have heard yet."""

LATEST = 3
"""Segments that listeners are told of what was said so far."""

State = Literal["waiting", "working", "done", "failed", "canceled"]


@dataclass(frozen=True)
class JobStatus:
    """How it stands with a recording: what listeners are told."""

    id: str
    """That of its transcript."""
    name: str
    state: State
    stage: str | None = None
    """What is done with it now."""
    share: float = 0.0
    """Of the work on it that is done."""
    seconds_left: float | None = None
    seconds_after: float | None = None
    """From the end of this one until those that wait now are done, too; None: not known."""
    why: str | None = None
    """Of a recording that failed, or still waits though nothing is before it."""
    said: tuple[Mapping[str, Any], ...] = ()
    """The segments that are final so far, as `worker.Segment`."""
    output: str = ""
    """Its results below the folder, without their endings."""
    source: str = ""
    """The path of the recording."""

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "stage": self.stage,
            "share": round(self.share, 3),
            "seconds_left": _whole(self.seconds_left),
            "seconds_after": _whole(self.seconds_after),
            "why": self.why,
            "said": [{"speaker": one["speaker"], "text": one["text"]} for one in self.said[-LATEST:]],
            "transcript": self.id if self.state == "done" else None,
        }


class Listener:
    """What somebody has not heard yet: of each recording the latest."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._news: dict[str, JobStatus] = {}
        self._dropped = False

    def tell(self, standing: JobStatus) -> bool:
        """Keep a standing for `take`; False: too much was kept already, and this one will hear no more."""
        with self._lock:
            self._news.pop(standing.id, None)  # it goes to the end
            self._news[standing.id] = standing
            self._dropped = self._dropped or len(self._news) > BEHIND
            dropped = self._dropped
        self._wake()
        return not dropped

    def drop(self) -> None:
        """Tell nothing more."""
        with self._lock:
            self._dropped = True
        self._wake()

    def take(self) -> list[JobStatus] | None:
        """What is new, the oldest first; None: there will be no more."""
        with self._lock:
            if self._dropped:
                return None
            news, self._news = list(self._news.values()), {}
        return news


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
