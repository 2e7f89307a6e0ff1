"""Recordings of one language and of two in turn, with their texts, out of Common Voice.

    pip install '.[bench]'
    python benchmarks/languages.py COMMON_VOICE OUT --languages fr en [--seconds 90] [--count 3]
    python benchmarks/words.py real OUT --cache RUN --whisper base

COMMON_VOICE holds a folder for each language, with validated.tsv and clips/, as Common Voice is published. Of
COUNT mixtures, each has as many clips as fill SECONDS, with half a second between them: one of the first
language, one of the second, one of the first again and so on. OUT gets NAME.flac beside NAME.stm; NAME is
"fr-en-0" for a mixture, and "fr-0" for its clips of one language.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import harness
import numpy as np
import soundfile

from witness.audio import decode
from witness.schema import SAMPLE_RATE, Float32

GAP = 0.5
"""Seconds between two clips."""
Clip = tuple[str, str, Float32]
"""Person, text, samples."""


def clips(folder: Path) -> Iterator[Clip]:
    """The clips of a language, in the order of the table."""
    with (folder / "validated.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            (samples,) = decode.load(str(folder / "clips" / row["path"]), channels="mix").samples
            yield row["client_id"][:12], row["sentence"], samples[: len(samples)]


def write(out: Path, name: str, said: list[Clip]) -> None:
    """A recording and its text."""
    gap = np.zeros(round(GAP * SAMPLE_RATE), np.float32)
    rows, parts, place = [], [], 0
    for person, text, samples in said:
        start, place = place, place + len(samples)
        rows.append(f"{name} 1 {person} {start / SAMPLE_RATE:.3f} {place / SAMPLE_RATE:.3f} {text}\n")
        parts += [samples, gap]
        place += len(gap)
    soundfile.write(out / f"{name}.flac", np.concatenate(parts), SAMPLE_RATE)
    (out / f"{name}.stm").write_text("".join(rows), "utf-8")


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs=2, required=True)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    both = [clips(options.folder / language) for language in options.languages]
    for number in range(options.count):
        said: list[list[Clip]] = [[], []]
        while sum(len(one) for _, _, one in (*said[0], *said[1])) < options.seconds * SAMPLE_RATE:
            for side in (0, 1):
                said[side].append(next(both[side]))
        mixed = [clip for pair in zip(*said, strict=True) for clip in pair]
        write(options.out, f"{'-'.join(options.languages)}-{number}", mixed)
        for language, own in zip(options.languages, said, strict=True):
            write(options.out, f"{language}-{number}", own)


if __name__ == "__main__":
    main()
