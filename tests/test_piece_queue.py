"""`recognition.piece_queue`: how many pieces an engine has in hand, and which of them were heard already."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from witness.recognition.chunking import Piece
from witness.recognition.engine import Abilities, ChunkResult
from witness.recognition.piece_queue import PieceQueue


@dataclass
class Engine:
    """Has in hand what was sent and not received; `finished` are those that it is done with."""

    abilities: Abilities
    sent: list[int] = field(default_factory=list)
    in_hand: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def send(self, group):
        number = len(self.sent)
        self.sent.append(len(group))
        self.in_hand[number] = len(group)
        return number

    def done(self, number):
        assert number in self.in_hand
        return number in self.finished

    def receive(self, number):
        return [ChunkResult([], f"{number}.{place}") for place in range(self.in_hand.pop(number))]


def hearing(engine, count, **other):
    some = [Piece(np.arange(30 * number, 30 * number + 30)) for number in range(count)]
    return some, PieceQueue(engine, engine.send, some, count=count, **other)


@pytest.mark.parametrize(("workers", "beside", "held"), [(1, 1, 1), (2, 1, 2), (8, 1, 8), (8, 2, 4)])
def test_while_somebody_works_on_a_piece_every_worker_has_one(workers, beside, held):
    engine = Engine(Abilities("cpu", (), workers=workers, batch=1))
    some, heard = hearing(engine, 20, beside=beside)
    before = []
    for number, (piece, found) in enumerate(heard):
        assert piece is some[number]
        assert found.language == f"{number}.0"
        before.append(len(engine.in_hand))
    assert len(before) == 20
    assert before[: 19 - held] == [held] * (19 - held)
    assert before[-1] == 0


def test_a_first_piece_is_alone_with_two_workers_and_beside_others_with_more():
    engine = Engine(Abilities("cpu", (), workers=2, batch=4))
    _, heard = hearing(engine, 9, soon=True)
    next(heard)
    assert (engine.sent, engine.in_hand) == ([1], {})
    next(heard)
    assert engine.sent == [1, 4, 4]
    engine = Engine(Abilities("cpu", (), workers=4, batch=4))
    _, heard = hearing(engine, 9, soon=True)
    next(heard)
    assert engine.sent == [1, 2, 2, 2, 2]


def test_pieces_of_a_group_are_ready_together():
    engine = Engine(Abilities("cpu", (), workers=2, batch=4))
    _, heard = hearing(engine, 12)
    assert engine.sent == []
    next(heard)
    assert engine.sent == [3, 3, 3]
    assert heard.ready()
    next(heard)
    next(heard)
    assert not heard.ready()
    engine.finished.add(1)
    assert heard.ready()


def test_nobody_asks_how_far_a_lone_worker_is():
    """What it hears may depend on what it heard before, and so must not depend on when it is asked."""
    engine = Engine(Abilities("cpu", (), workers=1, batch=1))
    _, heard = hearing(engine, 3)
    next(heard)
    engine.finished |= {1, 2}
    assert not heard.ready()


def test_nothing_is_ready_after_the_last():
    engine = Engine(Abilities("cpu", (), workers=4, batch=1))
    _, heard = hearing(engine, 2)
    assert len(list(heard)) == 2
    assert not heard.ready()
    with pytest.raises(StopIteration):
        next(heard)
