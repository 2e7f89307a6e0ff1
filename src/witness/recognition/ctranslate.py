"""The child process that runs CTranslate2: `python -m witness.recognition.ctranslate`.

It recognizes several pieces at the same time. The words do not depend on their number or on the number of
cores, and no thread spins while it waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np

from witness import machine_limits
from witness.models import ct2_header
from witness.recognition import aligner, engine
from witness.recognition.aligner import NO_TIMES, Aligner, view
from witness.recognition.engine import PROMPT, Abilities, ChunkResult, DecodeOptions, Load, SpeechEngine
from witness.recognition.language_tracking import PART, SAMPLED, keep_allowed, may_change
from witness.recognition.vad import FRAME
from witness.schema import SAMPLE_RATE, Float32

BATCH = 4
"""Pieces that are decoded together: every step reads all weights once instead of once for each.
docs/decisions/2026-11-22-recognizers.md, "Batches"."""
WORKERS = 16
"""Most groups of pieces at the same time; with 16 on 16 cores recognition took 0.42 of the time that it took
with 4 (docs/decisions/2026-11-23-cores.md)."""
BEAMS = 5
"""Beams of a search, Whisper's own default: docs/decisions/2026-11-24-beam.md."""
BRIEF, BRIEF_FRAMES = 4 * SAMPLE_RATE, 1000
"""Most samples of a piece that a second try encodes in 10 s instead of 30, and the frames of these 10 s:
docs/decisions/2026-11-24-brief-windows.md."""
ALONE = PART * FRAME
"""Most samples of a part whose language is detected in 10 s by itself."""
KEPT = 16
"""Encoded pieces, of 3 MB each with `base`, that are kept until they are recognized."""
POSITIONS = aligner.FRAMES // 2
"""Positions of the encoder for a piece."""
LONGEST = 448
"""Context of Whisper's decoder in tokens, those of the prompt included."""
PREVIOUS = "<|startofprev|>"


def workers(header: ct2_header.Ct2Header, threads: int) -> int:
    """Return the number of simultaneous groups: one per core, if half of the free memory has room.

    A process with a part of the cores has the same part of that memory.
    """
    limit = min(threads, WORKERS)
    if (free := machine_limits.memory()) is None:
        return limit
    room = free / 2 * threads / max(threads, machine_limits.cores())
    return max(1, min(limit, int(room / memory(header))))


def memory(header: ct2_header.Ct2Header) -> int:
    """Return the most bytes of a group of pieces: the encoder's attention, the decoder's keys and values.

    At most a tenth less than measured (docs/decisions/2026-11-23-cores.md).
    """
    attention = 1.8 * header.heads * POSITIONS**2
    attended = BATCH * header.decoder_layers * 2 * POSITIONS * header.width
    return int(4 * (attention + attended))


class CTranslate2Engine(SpeechEngine):
    """Model of CTranslate2."""

    def __init__(self, load: Load) -> None:
        header = ct2_header.inspect(Path(load.model))
        count = workers(header, load.threads)
        self._whisper = whisper = Aligner(load.model, header, threads=load.threads, workers=count)
        self.abilities = Abilities(
            "cpu",
            whisper.languages,
            count,
            BATCH,
            translates=whisper.multilingual,
            compares_languages=whisper.multilingual,
            repeats_above=BRIEF / SAMPLE_RATE,
        )
        self._encoded: dict[bytes, Float32] = {}
        self._lock = Lock()

    def detect_languages(self, samples: Float32, ends: Sequence[int]) -> Sequence[Mapping[str, float]]:
        """Return the probability of each language in each part of a piece, or in a piece with one part."""
        if len(ends) == 1 and len(samples) <= ALONE:
            return [self._languages_of_all(self._whisper.encode(samples, BRIEF_FRAMES))]
        encoded = self._encode(samples)
        self._keep(samples, encoded)
        return self._languages(encoded, ends) if len(ends) > 1 else [self._languages_of_all(encoded)]

    def recognize(self, pieces: Sequence[Float32], options: DecodeOptions) -> Sequence[ChunkResult]:
        """Return the text of each piece, (n,) samples of at most 30 s."""
        if options.again:
            return self._recognize_again(pieces, options)
        encoded = [self._encode(piece) for piece in pieces]
        if options.among is not None and options.language:
            return self._recognize_clear(encoded, pieces, options)
        return self._decode(encoded, pieces, options)

    def _recognize_again(self, pieces: Sequence[Float32], options: DecodeOptions) -> Sequence[ChunkResult]:
        """Return the texts of a second try, whose pieces are often brief."""
        results: dict[int, ChunkResult] = {}
        for brief in (True, False):
            numbers = [number for number, piece in enumerate(pieces) if (len(piece) <= BRIEF) == brief]
            group = [pieces[number] for number in numbers]
            frames = BRIEF_FRAMES if brief else aligner.FRAMES
            encoded = [self._whisper.encode(piece, frames) for piece in group]
            results |= zip(numbers, self._decode(encoded, group, options), strict=True)
        return [results[number] for number in range(len(pieces))]

    def _recognize_clear(
        self, encoded: Sequence[Float32], pieces: Sequence[Float32], options: DecodeOptions
    ) -> Sequence[ChunkResult]:
        """Return the texts of pieces that are certainly in one language; the others are `unclear`."""
        results = [ChunkResult([], None, unclear=True)] * len(pieces)
        clear = []
        for number, (encoding, piece) in enumerate(zip(encoded, pieces, strict=True)):
            frames = min(POSITIONS, max(1, len(piece) // FRAME))
            parts = max(1, round(frames / SAMPLED))
            languages = self._languages(encoding, [frames * part // parts for part in range(1, parts + 1)])
            allowed = [keep_allowed(part, options.among or ()) for part in languages]
            if may_change(allowed, options.language or ""):
                self._keep(piece, encoding)
            else:
                clear.append(number)
        texts = self._decode(
            [encoded[number] for number in clear], [pieces[number] for number in clear], options
        )
        for number, text in zip(clear, texts, strict=True):
            results[number] = text
        return results

    def _decode(
        self, encoded: Sequence[Float32], pieces: Sequence[Float32], options: DecodeOptions
    ) -> Sequence[ChunkResult]:
        if not encoded:
            return []
        whisper = self._whisper
        languages = [options.language or self._language(encoding) for encoding in encoded]
        starts = [whisper.start(language, options.translate) for language in languages]
        before = self._before(options.prompt)
        longest = min(LONGEST, len(before) + 5 + LONGEST // 2)
        batch = np.concatenate(encoded)
        results = whisper.model.generate(
            view(batch),
            [[*before, *start, whisper.ids[NO_TIMES]] for start in starts],
            beam_size=1 if options.greedy else BEAMS,
            max_length=longest,
            return_scores=True,
            suppress_blank=True,
        )
        texts = []
        for number, result in enumerate(results):
            ids = result.sequences_ids[0]
            full = len(ids) + len(before) + len(starts[number]) + 1 >= longest
            tokens = whisper.times(
                encoded[number],
                starts[number],
                [token for token in ids if token < whisper.end],
                len(pieces[number]),
            )
            texts.append(ChunkResult(tokens, languages[number], not full, float(result.scores[0])))
        return texts

    def count(self, text: str) -> int:
        """Return the number of tokens of a prompt."""
        return len(self._whisper.tokenize(text))

    def _keep(self, samples: Float32, encoded: Float32) -> None:
        """Keep an encoded piece until it is recognized."""
        with self._lock:
            self._encoded[samples.tobytes()] = encoded
            while len(self._encoded) > KEPT:
                self._encoded.pop(next(iter(self._encoded)))

    def _encode(self, samples: Float32) -> Float32:
        with self._lock:
            encoded = self._encoded.pop(samples.tobytes(), None)
        return self._whisper.encode(samples) if encoded is None else encoded

    def _language(self, encoded: Float32) -> str:
        languages = self._languages_of_all(encoded)
        return max(languages, key=lambda code: languages[code])

    def _languages_of_all(self, encoded: Float32) -> dict[str, float]:
        """Return the probability of each language in a whole piece with the silence after it.

        Whisper learned languages so, and without the silence its answer is much worse.
        """
        if not self._whisper.multilingual:
            return {"en": 1.0}
        (languages,) = self._whisper.model.detect_language(view(encoded))
        return _by_code(languages)

    def _languages(self, encoded: Float32, ends: Sequence[int]) -> list[dict[str, float]]:
        """Return the probability of each language in each part, while the decoder attends to it alone."""
        if not self._whisper.multilingual:
            return [{"en": 1.0}] * len(ends)
        # The same number of positions of each part, so that one step of the decoder does for all: some
        # of them several times in a short part, evenly spaced ones in a long part.
        parts = np.concatenate(
            [
                encoded[:, np.linspace(start, max(start, end - 1), SAMPLED).round().astype(np.intp)]
                for start, end in pairwise((0, *ends))
            ]
        )
        return [_by_code(part) for part in self._whisper.model.detect_language(view(parts))]

    def _before(self, prompt: str) -> list[int]:
        """Return the tokens of a text that could have been said before; the last ones of a long text."""
        if not prompt:
            return []
        return [self._whisper.ids[PREVIOUS], *self._whisper.tokenize(prompt)[-PROMPT:]]


def _by_code(languages: Sequence[tuple[str, float]]) -> dict[str, float]:
    return {token.strip("<|>"): probability for token, probability in languages}


if __name__ == "__main__":
    engine.run(CTranslate2Engine)
