"""The child process that runs CTranslate2: `python -m witness.recognition.ctranslate`.

Several pieces are recognized at the same time. The words do not depend on how many they are, nor on the
number of cores, and no thread spins while it waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np

from witness import machine_limits
from witness.models import ct2
from witness.recognition import engine_worker, mel
from witness.recognition.aligner import NO_TIMES, Aligner, view
from witness.recognition.engine_worker import PROMPT, ChunkResult, DecodeOptions, Load
from witness.recognition.language_tracking import HEARD, PART, among, may_change
from witness.recognition.vad import FRAME
from witness.schema import SAMPLE_RATE, Float32

BATCH = 4
"""Pieces that are decoded together: every step reads all weights once instead of once for each.
docs/decisions/2026-11-22-recognizers.md, "Batches"."""
WORKERS = 16
"""The most groups of pieces at the same time; with 16 on 16 cores recognition took 0.42 of the time that it
took with 4 (docs/decisions/2026-11-23-cores.md)."""
BEAMS = 5
"""Of a search; Whisper's own default: docs/decisions/2026-11-24-beam.md."""
BRIEF, BRIEF_FRAMES = 4 * SAMPLE_RATE, 1000
"""What is heard again and has so many samples or fewer is encoded in 10 s instead of 30:
docs/decisions/2026-11-24-brief-windows.md."""
ALONE = PART * FRAME
"""Samples of a part that tells its language by itself; of so few, 10 s are encoded, too."""
KEPT = 16
"""Encoded pieces, of 3 MB each with `base`, that are not encoded again when they are heard."""
POSITIONS = mel.FRAMES // 2
"""That the encoder makes of a piece."""
LONGEST = 448
"""Tokens that Whisper's decoder sees at once, those of the prompt included."""
PREVIOUS = "<|startofprev|>"


def workers(header: ct2.Ct2Header, threads: int) -> int:
    """How many groups are recognized at the same time: one per core, if half of the free memory has room.

    A process that has a part of the cores has as large a part of that memory.
    """
    most = min(threads, WORKERS)
    if (free := machine_limits.memory()) is None:
        return most
    room = free / 2 * threads / max(threads, machine_limits.cores())
    return max(1, min(most, int(room / memory(header))))


def memory(header: ct2.Ct2Header) -> int:
    """Bytes that a group of pieces takes at most: attention in the encoder, and what the decoder attends to.

    At most a tenth less than measured (docs/decisions/2026-11-23-cores.md).
    """
    attention = 1.8 * header.heads * POSITIONS**2
    attended = BATCH * header.decoder_layers * 2 * POSITIONS * header.width
    return int(4 * (attention + attended))


class CTranslate2Engine:
    """A loaded model, a `WorkerEngine`. Raises RuntimeError with one line if it cannot be used."""

    def __init__(self, load: Load) -> None:
        self.device = "cpu"
        self.batch = BATCH
        self.prompts = True
        header = ct2.inspect(Path(load.model))
        self._whisper = Aligner(
            load.model, header, threads=load.threads, workers=workers(header, load.threads)
        )
        self.workers = self._whisper.workers
        self.translates = self.compares_languages = self._whisper.multilingual
        self.languages: Sequence[str] = self._whisper.languages
        self._told: dict[bytes, Float32] = {}
        self._telling = Lock()

    def languages_of(self, samples: Float32, ends: Sequence[int]) -> Sequence[Mapping[str, float]]:
        """How probable each language is in each part of a piece, or in the piece if that is the only one."""
        if len(ends) == 1 and len(samples) <= ALONE:
            return [self._whole(self._whisper.encode(samples, BRIEF_FRAMES))]
        encoded = self._encode(samples)
        self._keep(samples, encoded)
        return self._languages(encoded, ends) if len(ends) > 1 else [self._whole(encoded)]

    def hear(self, pieces: Sequence[Float32], order: DecodeOptions) -> Sequence[ChunkResult]:
        """What is said in each piece, (n,) samples of at most 30 s."""
        if order.again:
            return self._hear_again(pieces, order)
        encoded = [self._encode(piece) for piece in pieces]
        if order.among is not None and order.language:
            return self._hear_clear(encoded, pieces, order)
        return self._hear(encoded, pieces, order)

    def _hear_again(self, pieces: Sequence[Float32], order: DecodeOptions) -> Sequence[ChunkResult]:
        """What is said in pieces that did not convince, or where nothing was heard. Those are often brief."""
        heard: dict[int, ChunkResult] = {}
        for brief in (True, False):
            places = [place for place, piece in enumerate(pieces) if (len(piece) <= BRIEF) == brief]
            some = [pieces[place] for place in places]
            frames = BRIEF_FRAMES if brief else mel.FRAMES
            found = self._hear([self._whisper.encode(piece, frames) for piece in some], some, order)
            heard |= zip(places, found, strict=True)
        return [heard[place] for place in range(len(pieces))]

    def _hear_clear(
        self, encoded: Sequence[Float32], pieces: Sequence[Float32], order: DecodeOptions
    ) -> Sequence[ChunkResult]:
        """What is said where no other language may be spoken."""
        heard = [ChunkResult([], None, unclear=True)] * len(pieces)
        clear = []
        for place, (one, piece) in enumerate(zip(encoded, pieces, strict=True)):
            frames = min(POSITIONS, max(1, len(piece) // FRAME))
            parts = max(1, round(frames / HEARD))
            told = self._languages(one, [frames * part // parts for part in range(1, parts + 1)])
            if may_change([among(part, order.among or ()) for part in told], order.language or ""):
                self._keep(piece, one)
            else:
                clear.append(place)
        found = self._hear([encoded[place] for place in clear], [pieces[place] for place in clear], order)
        for place, result in zip(clear, found, strict=True):
            heard[place] = result
        return heard

    def _hear(
        self, encoded: Sequence[Float32], pieces: Sequence[Float32], order: DecodeOptions
    ) -> Sequence[ChunkResult]:
        if not encoded:
            return []
        whisper = self._whisper
        languages = [order.language or self._language(one) for one in encoded]
        starts = [whisper.start(language, order.translate) for language in languages]
        before = self._before(order.prompt)
        longest = min(LONGEST, len(before) + 5 + LONGEST // 2)
        batch = np.concatenate(encoded)
        results = whisper.model.generate(
            view(batch),
            [[*before, *start, whisper.ids[NO_TIMES]] for start in starts],
            beam_size=1 if order.greedy else BEAMS,
            max_length=longest,
            return_scores=True,
            suppress_blank=True,
        )
        heard = []
        for place, result in enumerate(results):
            numbers = result.sequences_ids[0]
            text = [number for number in numbers if number < whisper.end]
            full = len(numbers) + len(before) + len(starts[place]) + 1 >= longest
            times = whisper.times(encoded[place], starts[place], text, len(pieces[place]))
            heard.append(ChunkResult(times, languages[place], not full, float(result.scores[0])))
        return heard

    def count(self, text: str) -> int:
        """The tokens of a prompt."""
        return len(self._whisper.tokenize(text))

    def _keep(self, samples: Float32, encoded: Float32) -> None:
        """Until the piece is heard again."""
        with self._telling:
            self._told[samples.tobytes()] = encoded
            while len(self._told) > KEPT:
                self._told.pop(next(iter(self._told)))

    def _encode(self, samples: Float32) -> Float32:
        """What the decoder attends to."""
        with self._telling:
            kept = self._told.pop(samples.tobytes(), None)
        return self._whisper.encode(samples) if kept is None else kept

    def _language(self, encoded: Float32) -> str:
        told = self._whole(encoded)
        return max(told, key=lambda code: told[code])

    def _whole(self, encoded: Float32) -> dict[str, float]:
        """How probable each language is in all that was encoded, with the silence after it: Whisper learned
        languages so, and without the silence its answer is much worse."""
        if not self._whisper.multilingual:
            return {"en": 1.0}
        (told,) = self._whisper.model.detect_language(view(encoded))
        return _by_code(told)

    def _languages(self, encoded: Float32, ends: Sequence[int]) -> list[dict[str, float]]:
        """How probable each language is in each part, as the decoder tells that attends to it alone."""
        if not self._whisper.multilingual:
            return [{"en": 1.0}] * len(ends)
        # As many positions of each part, so that one step of the decoder does for all: some several times
        # where it is short, each so and so many where it is long.
        heard = np.concatenate(
            [
                encoded[:, np.linspace(start, max(start, end - 1), HEARD).round().astype(np.intp)]
                for start, end in pairwise((0, *ends))
            ]
        )
        found = self._whisper.model.detect_language(view(heard))
        return [_by_code(part) for part in found]

    def _before(self, prompt: str) -> list[int]:
        """The tokens of a text that could have been said before; of a long one, the last."""
        if not prompt:
            return []
        return [self._whisper.ids[PREVIOUS], *self._whisper.tokenize(prompt)[-PROMPT:]]


def _by_code(told: Sequence[tuple[str, float]]) -> dict[str, float]:
    return {token.strip("<|>"): probability for token, probability in told}


if __name__ == "__main__":
    engine_worker.run(CTranslate2Engine)
