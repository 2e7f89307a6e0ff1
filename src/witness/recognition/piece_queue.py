"""Queue of pieces for an engine, which decodes as many at a time as it has workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice

from witness.recognition.chunking import Piece
from witness.recognition.engine_client import RemoteEngine
from witness.recognition.fallback import Recognized

ALONE = 2
"""Most workers that all wait for the first piece: its words come sooner, and the rest no later. More workers
would wait too long: docs/decisions/2026-11-24-time-of-recognition.md, "More cores"."""

Send = Callable[[Sequence[Piece]], int]
"""Sends pieces of one language to the engine, and returns the number that `receive` takes."""


class PieceQueue:
    """Iterator of the texts of some pieces, in their order; the texts do not depend on the groups."""

    def __init__(
        self,
        engine: RemoteEngine,
        send: Send,
        pieces: Iterable[Piece],
        *,
        count: int,
        beside: int = 1,
        soon: bool = False,
    ) -> None:
        """Queue `pieces`, about `count`.

        `beside`: tracks that share the workers; `soon`: the first piece alone, so that its words come soon.
        """
        self._engine, self._send = engine, send
        abilities = self._abilities = engine.abilities
        rest = iter(pieces)
        size = group_size(count - soon, abilities.workers, abilities.batch)
        self._groups = chain(_groups(islice(rest, 1 if soon else 0), 1), _groups(rest, size))
        self._sent: deque[tuple[int, list[Piece]]] = deque()
        self._workers = max(1, abilities.workers // beside)
        self._alone = soon and abilities.workers <= ALONE
        self._texts: deque[Recognized] = deque()

    def __iter__(self) -> Iterator[Recognized]:
        return self

    def __next__(self) -> Recognized:
        if not self._texts:
            # One group more than there are workers, so that none of them waits for the next.
            self._fill(1 if self._alone else self._workers + 1)
            if not self._sent:
                raise StopIteration
            number, group = self._sent.popleft()
            self._texts.extend(zip(group, self._engine.receive(number), strict=True))
            if not self._alone:  # no worker is idle while the caller works on these texts
                self._fill(self._workers)
            self._alone = False
        return self._texts.popleft()

    def ready(self) -> bool:
        """Return whether the next text is there.

        Of an engine with one worker, only received texts count: its text may depend on the one before.
        """
        if self._texts or self._abilities.workers == 1 or not self._sent:
            return bool(self._texts)
        return self._engine.done(self._sent[0][0])

    def _fill(self, count: int) -> None:
        """Send groups until `count` are in the engine."""
        for group in islice(self._groups, max(0, count - len(self._sent))):
            self._sent.append((self._send(group), group))


def _groups(pieces: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Group consecutive pieces in one language, at most `size` together."""
    for _, alike in groupby(pieces, key=lambda piece: piece.language):
        while group := list(islice(alike, size)):
            yield group


def group_size(pieces: int, workers: int, limit: int) -> int:
    """Return the size of groups, at most `limit`, that lets all workers end at about the same time.

    Pieces together save work, but only once every worker has some do they save time.
    """
    rounds = -(-pieces // (workers * limit))
    return max(1, min(limit, -(-pieces // max(1, rounds * workers))))
