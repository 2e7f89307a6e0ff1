"""How many words are right whose probability lies in a range, of an engine's own first hearing.

    pip install '.[bench]'
    python benchmarks/word_probabilities.py FOLDER --engine whisper.cpp --model MODEL [--only NAME ...]

FOLDER holds NAME.flac or .wav beside NAME.stm. The engine hears each piece once, in this process, as Witness
cuts them. A word is right if it is aligned with the same word of the text. AUC: how often a right word is
more probable than a wrong one.
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path

import harness
import numpy as np
import real_words
from word_times import MODULES

from witness.audio import decode
from witness.bench.lines import Row, Said
from witness.bench.words import align
from witness.bench.words import tokens as words_of
from witness.recognition import tokens
from witness.recognition.chunking import Loudness, pieces
from witness.recognition.engine_worker import DecodeOptions, Load
from witness.recognition.track_input import PADDED

EDGES = (0.0, 0.3, 0.5, 0.7, 0.9, 0.97, 1.01)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=["ctranslate2", "whisper.cpp"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--language", default="en")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of recordings")
    options = parser.parse_args()
    module, name = MODULES[options.engine]
    kind = getattr(importlib.import_module(f"witness.recognition.{module}"), name)
    engine = kind(Load(options.model, False, options.threads))
    told: list[tuple[float, bool]] = []
    for recording, reference in real_words.material(options.folder):
        if options.only and recording.stem not in options.only:
            continue
        samples = decode.load(str(recording)).samples[0]
        heard = []
        for piece in pieces(Loudness.of(samples)):
            cut = piece.cut(samples)
            cut = np.pad(cut, (0, max(0, PADDED - len(cut))))
            (result,) = engine.hear([cut], DecodeOptions(options.threads, options.language))
            heard.append(tokens.piece_tokens(result.tokens, piece))
        words = tokens.place(tokens.to_words(heard), len(samples) / 16_000)
        rows = tuple(Row(word.start, word.end, str(n), word.text) for n, word in enumerate(words))
        sides = (words_of(text, options.language) for text in (real_words.only(reference), Said(rows)))
        right: dict[int, bool] = {}
        for true, ours in align(*sides):
            if ours:
                place = int(str(ours.speaker))
                right[place] = right.get(place, True) and true is not None and true.text == ours.text
        told += [(float(words[n].probability or 0), one) for n, one in right.items()]
    values = np.array([one for one, _ in told])
    good = np.array([one for _, one in told])
    ranges = {}
    for low, high in pairwise(EDGES):
        inside = (values >= low) & (values < high)
        share = round(100 * float(good[inside].mean()), 1) if inside.any() else None
        ranges[f"{low:g} to {min(high, 1):g}"] = {"words": int(inside.sum()), "right": share}
    better = values[good][:, None] - values[~good][None, :]
    harness.show(
        {
            "engine": options.engine,
            "model": Path(options.model).name,
            "words": len(told),
            "right": round(100 * float(good.mean()), 1),
            "ranges": ranges,
            "auc": round(float((better > 0).mean() + (better == 0).mean() / 2), 3),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
