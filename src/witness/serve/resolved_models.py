"""The models that recordings are transcribed with: chosen, fetched and checked once for each override."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from witness.work.overrides import JobOverrides
from witness.work.produce import Settings

Resolve = Callable[[JobOverrides], Settings]
"""Chooses and checks the models for overrides; it may take minutes. Raises WitnessError."""


class ResolvedModels:
    """The settings resolved so far; any thread may ask."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._futures: dict[JobOverrides, Future[Settings]] = {}

    def request(self, overrides: JobOverrides = JobOverrides()) -> Future[Settings]:
        """Return the settings for overrides. After an error, the next request tries again."""
        overrides = overrides.for_models
        with self._lock:
            future = self._futures.get(overrides)
            if future is None or (future.done() and future.exception() is not None):
                future = self._futures[overrides] = Future()
                future.set_running_or_notify_cancel()  # so that no client can cancel it
                threading.Thread(target=self._run, args=(overrides, future), daemon=True).start()
            return future

    def ready(self, overrides: JobOverrides = JobOverrides()) -> Settings | None:
        """Return the settings for overrides if they are resolved."""
        with self._lock:
            future = self._futures.get(overrides.for_models)
        done = future is not None and future.done() and future.exception() is None
        return future.result() if future is not None and done else None

    def _run(self, overrides: JobOverrides, future: Future[Settings]) -> None:
        try:
            future.set_result(self._resolve(overrides))
        except BaseException as error:
            future.set_exception(error)


def with_overrides(settings: Settings, overrides: JobOverrides) -> Settings:
    """Add to resolved settings the overrides that need no other model."""
    rest = replace(overrides, whisper=None, language=None)
    return replace(settings, options=rest.apply(settings.options))
