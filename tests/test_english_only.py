"""An English-only model keeps all words, and one warning says that they may be those of another language."""

from __future__ import annotations

import numpy as np
import pytest

from witness.recognition.chunking import Piece
from witness.recognition.engine import ChunkResult, EngineToken
from witness.recognition.language_tracking import Doubts
from witness.recognition.vad import FRAME_RATE

GOOD, IMPROBABLE = ("a sentence of a few words", -0.3), ("no, I was a horse", -0.9)
LOOP = ("so it is " * 20, -0.1)


def prevail(*texts: tuple[str, float]) -> bool:
    """Count the doubts about pieces of 20 s with these texts and mean log probabilities."""
    doubts = Doubts()
    frames = np.arange(20 * FRAME_RATE)
    pieces = [
        (
            Piece(frames + number * len(frames)),
            ChunkResult([EngineToken(f" {word}", 0, 50) for word in text.split()], "en", True, logprob),
        )
        for number, (text, logprob) in enumerate(texts)
    ]
    assert list(doubts.counted(pieces)) == pieces
    return doubts.prevail


@pytest.mark.parametrize("flawed", [IMPROBABLE, LOOP])
def test_a_recording_is_in_another_language_if_more_than_half_of_its_texts_are_flawed(flawed):
    assert prevail(flawed, flawed, flawed, GOOD)
    assert not prevail(flawed, GOOD, flawed, GOOD)
    assert not prevail(("yes", -1.4), ("", -1.4), ("", -1.4))  # too little to say
