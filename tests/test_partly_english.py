"""What a model that knows English only writes for another language is left out, and no English with it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from witness.recognition import english
from witness.recognition.chunking import Piece
from witness.recognition.engine_worker import ChunkResult, EngineToken
from witness.recognition.fallback import Found
from witness.recognition.vad import FRAME_RATE


def heard_as(*said: tuple[str, float], at: int = 0, ended: bool = True) -> Found:
    """What was heard in a piece of 20 s: words that are a second apart, each with its probability."""
    frames = np.arange(at * 20 * FRAME_RATE, (at + 1) * 20 * FRAME_RATE)
    tokens = [EngineToken(f" {text}", 100 * n, 100 * n + 50, one) for n, (text, one) in enumerate(said)]
    logprob = math.fsum(math.log(one) for _, one in said) / max(1, len(said))
    return Piece(frames), ChunkResult(tokens, "en", ended, logprob)


def words(probability: float, count: int, first: int = 0) -> list[tuple[str, float]]:
    return [(f"w{first + n}", probability) for n in range(count)]


SURE, UNSURE = words(0.99, 18), words(0.1, 18, 100)


def in_english(*pieces):
    """The texts that are English of some pieces, and where others are."""
    judge = english.Judge()
    said = ["".join(token.text for token in one.tokens).split() for _, one in judge.believed(pieces)]
    return said, list(judge.not_english)


def texts_of(*said):
    return [[text for text, _ in one] for one in said]


def test_improbable_words_of_an_english_model_are_another_language():
    pieces = [heard_as(*one, at=n) for n, one in enumerate((SURE, UNSURE, UNSURE, SURE))]
    said, spans = in_english(*pieces)
    assert said == texts_of(SURE, SURE)
    assert spans == [(20.0, 60.0)]


def test_of_a_piece_in_two_languages_the_english_stays():
    first, last = words(0.99, 4), words(0.99, 4, 50)
    pieces = [heard_as(*SURE), heard_as(*first, *words(0.1, 12, 200), *last, at=1), heard_as(*SURE, at=2)]
    said, spans = in_english(*pieces)
    assert said == texts_of(SURE, [*first, *last], SURE)
    assert spans == [(23.5, 36.0)]  # from the last English word to the next one
    pieces[2] = heard_as(*UNSURE, at=2)
    pieces[1] = heard_as(*first, *words(0.1, 12, 200), at=1)
    assert in_english(*pieces)[1] == [(23.5, 60.0)]


def test_what_is_kept_of_a_piece_has_its_own_probability_and_times():
    piece, heard = heard_as(*UNSURE, *SURE[:2])
    heard = replace(heard, tokens=[token._replace(start=None) for token in heard.tokens], ended=False)
    ((_, kept), *_) = english.Judge().believed([(piece, heard), heard_as(*SURE, at=1)])
    assert kept.logprob == pytest.approx(math.log(0.99))
    assert kept.ended
    assert kept.tokens[0].start == heard.tokens[len(UNSURE) - 1].end


def test_a_word_is_not_parted():
    """Though some of its tokens are improbable."""
    piece, heard = heard_as(*SURE, *UNSURE)
    parts = [
        token._replace(text=token.text.strip()) if n == 18 else token for n, token in enumerate(heard.tokens)
    ]
    ((_, kept),) = english.Judge().believed([(piece, replace(heard, tokens=parts))])
    assert [token.text for token in kept.tokens] == [token.text for token in parts[: len(kept.tokens)]]
    assert parts[len(kept.tokens)].text.startswith(" ")


def test_what_is_said_again_is_no_evidence():
    """Of a loop, later rounds are probable in any language."""
    phrase = ["I", "see", "the", "idea", "of", "it"]
    loop = [(text, 0.1 if n < 6 else 0.99) for n, text in enumerate(phrase * 15)]
    assert in_english(heard_as(*loop)) == ([], [(0.0, 20.0)])
    chorus = [(text, 0.99) for text in phrase * 15]
    assert in_english(heard_as(*chorus)) == (texts_of(chorus), [])
    assert in_english(heard_as(*words(0.05, 3))) == (texts_of(words(0.05, 3)), [])  # too little to say


def test_a_doubtful_sentence_among_english_ones_is_english():
    doubtful = words(0.2, 8)
    pieces = [heard_as(*SURE), heard_as(*doubtful, at=1), heard_as(*SURE, at=2)]
    assert in_english(*pieces) == (texts_of(SURE, doubtful, SURE), [])


def test_clear_english_waits_for_nothing():
    def pieces():
        yield heard_as(*SURE)
        yield heard_as(*UNSURE, at=1)
        yield heard_as(*SURE, at=2)
        raise AssertionError("the fourth was asked for")

    coming = english.Judge().believed(pieces())
    assert next(coming)[0].start == 0
    assert next(coming)[0].start == 40  # nor is another language a reason to wait for the end


@given(
    st.lists(st.sampled_from([2.0, 0.5, -0.5, -2.0, -6.0]), max_size=40), st.sampled_from([None, True, False])
)
def test_what_follows_changes_no_word_that_is_settled(evidence, before):
    path, settled = english.course(evidence, before, last=False)
    for more in ([3.0] * 20, [-3.0] * 20, [-3.0] * 5):
        assert english.course([*evidence, *more], before, last=True)[0][:settled] == path[:settled]


def test_a_second_look_at_another_language_finds_no_words():
    judge = english.Judge()
    found = list(judge.undoubted([heard_as(*UNSURE), heard_as(*SURE, at=1)]))
    assert [len(one.tokens) for _, one in found] == [0, len(SURE)]
    assert judge.not_english == ((0.0, 20.0),)
