"""Whose word times are right: each recognizer's own, or those of an aligner for the same text.

    pip install '.[bench]'
    python benchmarks/word_times.py FOLDER --engine whisper.cpp --model MODEL --aligner FOLDER [--aligner ...]

FOLDER holds NAME.flac or .wav beside NAME.stm. The engine hears each piece once, in this process, as Witness
cuts them. "own" are the times that it tells; transcribe-cpp tells those of segments alone, whose words are
spread over them by their letters. Each --aligner, a Whisper model in CTranslate2's format, times the same
text of the same piece. Words keep the part of their time in which the diarizer (builtin models) hears
somebody, as in Witness. Errors are those of the first and the last word of each line of the STM.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import numpy as np
import real_words

from witness import pipeline
from witness.audio import decode
from witness.bench import words, words_report
from witness.bench.lines import Row, Said
from witness.models import ct2
from witness.options import Device, Options, Runtime
from witness.recognition import tokens
from witness.recognition.aligner import Aligner
from witness.recognition.chunking import Loudness, pieces
from witness.recognition.engine_worker import DecodeOptions, EngineToken, Load
from witness.recognition.track_input import PADDED
from witness.schema import Float32

MODULES = {
    "whisper.cpp": ("whisper_cpp", "WhisperCppEngine"),
    "ctranslate2": ("ctranslate", "CTranslate2Engine"),
    "transcribe-cpp": ("transcribe_cpp", "TranscribeCppEngine"),
}
Found = list[EngineToken]


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=list(MODULES), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--aligner", action="append", required=True, dest="aligners")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--language", default="en")
    options = parser.parse_args()
    module, name = MODULES[options.engine]
    kind = getattr(importlib.import_module(f"witness.recognition.{module}"), name)
    needed = options.aligners[0] if options.engine == "transcribe-cpp" else None
    engine = kind(Load(options.model, False, options.threads, needed))
    aligners = {
        Path(path).name: Aligner(
            path, ct2.inspect(Path(path)), threads=options.threads, workers=options.threads
        )
        for path in options.aligners
    }
    pairs: dict[str, dict[str, tuple[Said, Said]]] = {}
    for recording, reference in real_words.material(options.folder):
        said = real_words.only(reference)
        for way, heard in hear(recording, engine, aligners, options).items():
            pairs.setdefault(way, {})[recording.stem] = (said, heard)
        sys.stderr.write(f"{recording.stem}\n")
    figures = ("wer", "start_error", "end_error")
    result: dict[str, Any] = {"engine": options.engine, "model": Path(options.model).name}
    for way, some in pairs.items():
        scored = words_report.summary(words.score(some))
        result[way] = {name: scored[name] for name in figures}
    harness.show(result, options.json)


def hear(
    recording: Path, engine: Any, aligners: dict[str, Aligner], options: argparse.Namespace
) -> dict[str, Said]:
    """What was heard, with the engine's own times and with those of each aligner."""
    samples = decode.load(str(recording)).samples[0]
    order = DecodeOptions(options.threads, options.language)
    timed: dict[str, list[list[tokens.Token]]] = {way: [] for way in ("own", *aligners)}
    for piece in pieces(Loudness.of(samples)):
        cut = piece.cut(samples)
        cut = np.pad(cut, (0, max(0, PADDED - len(cut))))
        for way, found in times(cut, engine, aligners, order):
            timed[way].append(tokens.piece_tokens(found, piece))
    said = pipeline.diarize(
        str(recording), Options(models="builtin", offline=True), Runtime(device=Device.CPU, threads=1)
    )
    spoken = merged(sorted((turn.start, turn.end) for turn in said.turns))
    duration = len(samples) / 16_000
    return {
        way: Said(
            tuple(
                Row(word.start, word.end, None, word.text)
                for word in tokens.place(tokens.to_words(some), duration, spoken)
            ),
            options.language,
        )
        for way, some in timed.items()
    }


def times(
    cut: Float32, engine: Any, aligners: dict[str, Aligner], order: DecodeOptions
) -> Iterator[tuple[str, Found]]:
    """The tokens of a piece, by each way to time them."""
    (heard,) = engine.hear([cut], order)
    yield "own", spread(engine, cut, order) if hasattr(engine, "_result") else list(heard.tokens)
    text = b"".join(token.encode("latin-1") for token, *_ in heard.tokens).decode("utf-8", "replace")
    for name, aligner in aligners.items():
        found = aligner.times(
            aligner.encode(cut), aligner.start(order.language), aligner.tokenize(text), len(cut)
        )
        yield name, found if text.strip() else []


def spread(engine: Any, cut: Float32, order: DecodeOptions) -> Found:
    """transcribe-cpp's segments, their words spread over them by their letters."""
    result = engine._session.run(cut.data, language=order.language, timestamps="segment")
    found: Found = []
    for segment in result.segments:
        some = segment.text.split()
        letters = np.cumsum([0, *map(len, some)])
        length = segment.t1_ms - segment.t0_ms
        edges = (segment.t0_ms + length * letters / max(1, letters[-1])) / 10
        found += [
            EngineToken(f" {word}".encode().decode("latin-1"), int(first), int(last))
            for word, first, last in zip(some, edges, edges[1:], strict=False)
        ]
    return found


def merged(turns: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where somebody speaks."""
    runs: list[tuple[float, float]] = []
    for start, end in turns:
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((start, end))
    return runs


if __name__ == "__main__":
    main()
