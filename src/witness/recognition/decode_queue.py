"""Pieces of a track -> what was heard in each, as many at a time as the engine has workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from witness.recognition.cached_engine import ResumingEngine
from witness.recognition.chunking import Piece
from witness.recognition.fallback import Found
from witness.recognition.track_input import evenly, groups

ALONE = 2
"""With so many workers or fewer the first piece is heard before all others: its words come sooner, and all of
them no later. More would wait too long (docs/decisions/2026-11-24-time-of-recognition.md, "More cores")."""

Send = Callable[[Sequence[Piece]], int]
"""Asks the engine for pieces of one language, and gives the number by which it is received."""


class Hearing:
    """An iterator of what was heard in some pieces, in their order, which does not depend on the groups."""

    def __init__(
        self,
        engine: ResumingEngine,
        send: Send,
        some: Iterable[Piece],
        *,
        count: int,
        beside: int = 1,
        soon: bool = False,
    ) -> None:
        """`count`: how many pieces there are, more or less; `beside`: tracks that share the workers; `soon`:
        the first piece by itself, so that its words are there soon.
        """
        self._engine, self._send = engine, send
        able = self._able = engine.abilities
        left = iter(some)
        size = evenly(count - soon, able.workers, able.batch)
        self._coming = chain(groups(islice(left, 1 if soon else 0), 1), groups(left, size))
        self._waiting: deque[tuple[int, list[Piece]]] = deque()
        self._most = max(1, able.workers // beside)
        self._alone = soon and able.workers <= ALONE
        self._heard: deque[Found] = deque()

    def __iter__(self) -> Iterator[Found]:
        return self

    def __next__(self) -> Found:
        if not self._heard:
            # One group more than there are workers, so that none of them waits for the next.
            self._fill(1 if self._alone else self._most + 1)
            if not self._waiting:
                raise StopIteration
            number, group = self._waiting.popleft()
            self._heard.extend(zip(group, self._engine.receive(number), strict=True))
            if not self._alone:  # nobody is idle while these pieces are worked on
                self._fill(self._most)
            self._alone = False
        return self._heard.popleft()

    def ready(self) -> bool:
        """Whether the next piece was heard already.

        Of an engine with one worker it is not asked: what that hears may depend on what it heard before.
        """
        if self._heard or self._able.workers == 1 or not self._waiting:
            return bool(self._heard)
        return self._engine.done(self._waiting[0][0])

    def _fill(self, most: int) -> None:
        """Ask for groups, until so many are waited for."""
        for group in islice(self._coming, max(0, most - len(self._waiting))):
            self._waiting.append((self._send(group), group))
