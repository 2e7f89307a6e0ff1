"""The models that recordings are transcribed with: chosen, fetched and checked once for each wish."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from witness.work.overrides import RecordingWish
from witness.work.produce import Settings

Settle = Callable[[RecordingWish], Settings]
"""Chooses and checks the models for a wish; it may take minutes. Raises WitnessError."""


class Settlements:
    """What was settled on so far; any thread may ask."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._lock = threading.Lock()
        self._known: dict[RecordingWish, Future[Settings]] = {}

    def of(self, wish: RecordingWish = RecordingWish()) -> Future[Settings]:
        """The models for a wish. It raises what settling raises; the next call tries again."""
        wish = wish.of_models
        with self._lock:
            known = self._known.get(wish)
            if known is None or (known.done() and known.exception() is not None):
                known = self._known[wish] = Future()
                known.set_running_or_notify_cancel()  # many wait for it, and one of them may leave
                threading.Thread(target=self._now, args=(wish, known), daemon=True).start()
            return known

    def known(self, wish: RecordingWish = RecordingWish()) -> Settings | None:
        """What was settled on for a wish, if it was."""
        with self._lock:
            found = self._known.get(wish.of_models)
        done = found is not None and found.done() and found.exception() is None
        return found.result() if found is not None and done else None

    def _now(self, wish: RecordingWish, settled: Future[Settings]) -> None:
        try:
            settled.set_result(self._settle(wish))
        except BaseException as error:
            settled.set_exception(error)


def with_wish(settings: Settings, wish: RecordingWish) -> Settings:
    """What was settled on for a wish, with the rest of it, which needs no other model."""
    return replace(settings, options=replace(wish, whisper=None, language=None).of(settings.options))
