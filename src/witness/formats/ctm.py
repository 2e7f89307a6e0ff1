"""CTM, words with times for scorers: recording, channel, start, duration, word, confidence; no speakers.

https://github.com/usnistgov/SCTK/blob/master/doc/infmts.htm, "ctm"
"""

from __future__ import annotations

from witness.formats import rttm
from witness.formats.reading import Reading, ms, single
from witness.schema import Word


def write(reading: Reading) -> str:
    """Return a line for each word, in the order of their starts, which scorers require.

    The confidence is missing without a probability of the recognizer.
    """
    words = [word for line in reading.said for word in single(line.words)]
    uri = rttm.token(reading.title)
    return "".join(
        f"{uri} 1 {ms(word.start):.3f} {ms(word.end) - ms(word.start):.3f} {word.text}{_confidence(word)}\n"
        for word in sorted(words, key=lambda word: ms(word.start))
    )


def _confidence(word: Word) -> str:
    return "" if word.probability is None else f" {word.probability:.3f}"
