"""Recordings of one language and of two by turns, with their texts, out of Common Voice.

    pip install '.[bench]'
    python benchmarks/languages.py COMMON_VOICE OUT --languages fr en --half check [--seconds 100] [--count 3]
                                   [--seed 0] [--at-most X --peer-python PATH --model FOLDER]
    python benchmarks/words.py real OUT --cache RUN --whisper base

COMMON_VOICE holds a folder for each language, with validated.tsv and clips/, as Common Voice is published.
Half of its people, those of "tune", may be used to choose constants; the others may not.

Each of COUNT mixtures has turns of 3 to 20 s, drawn from SEED, until SECONDS are full and both languages were
spoken: clips of one language, without what is silent around them, 0.2 to 0.6 s apart. Up to 1 s after a turn,
the next one begins, two times in three in the other language. No clip is used twice, so there are fewer
mixtures once a language has no clip left. OUT gets NAME.flac beside NAME.stm; NAME is "fr-en-0" for a
mixture, and "fr-0" for its clips of one language alone. Each line of an STM has the language in its label,
as <fr>.

`--at-most` leaves out what the model cannot recognize, whatever it is told, so that errors speak of
languages: a clip is in if faster-whisper (in an environment of its own, against_faster_whisper.py), int8 and
otherwise as it comes, has at most X % WER of the clip by itself, told its language. Witness is not asked.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
import numpy as np
import soundfile

from witness.audio import decode
from witness.bench import words
from witness.bench.lines import Row, Said
from witness.recognition.chunking import Loudness
from witness.recognition.vad import FRAME
from witness.schema import SAMPLE_RATE, Float32

TURN = (3.0, 20.0)
"""Seconds that a turn is to take; its last clip makes it longer."""
WITHIN, BETWEEN = (0.2, 0.6), (0.0, 1.0)
"""Seconds between two clips of a turn, and between two turns."""
FAINT = 30
"""dB below the loudest of a clip's frames of 20 ms: what is so faint around all others is cut."""
SWITCH = 2 / 3
"""How probable it is that the next turn is in the other language."""
HALVES = ("tune", "check")
Clip = tuple[str, str, str, Float32, float]
"""Language, person, text, samples, seconds until the next."""
PEER = """
import json, sys
from faster_whisper import WhisperModel
model, language, *paths = sys.argv[1:]
model = WhisperModel(model, device="cpu", compute_type="int8")
heard = (model.transcribe(path, language=language)[0] for path in paths)
print(json.dumps(["".join(segment.text for segment in segments) for segments in heard]))
"""


def rows(folder: Path, half: str) -> Iterator[dict[str, str]]:
    """The clips of half of the people of a language, in the order of the table."""
    people: dict[str, int] = {}
    with (folder / "validated.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if people.setdefault(row["client_id"], len(people)) % 2 == HALVES.index(half):
                yield row


def wer_of_peer(folder: Path, found: list[dict[str, str]], peer: str, model: str) -> list[float]:
    """Percent of each clip by itself."""
    paths = [str(folder / "clips" / row["path"]) for row in found]
    command = [peer, "-c", PEER, model, folder.name, *paths]
    texts = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    pairs = {
        path: (Said((Row(0.0, 1.0, None, row["sentence"]),)), Said((Row(0.0, 1.0, None, heard),)))
        for path, row, heard in zip(paths, found, texts, strict=True)
    }
    return [score.rate(words.WER) or 0.0 for score in words.score(pairs)]


def clips(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[str, str, str, Float32]]:
    """Language, person, text and samples of each clip of a language."""
    found = list(rows(folder, asked.half))
    if asked.at_most is not None:
        rates = wer_of_peer(folder, found, asked.peer_python, asked.model)
        found = [row for row, rate in zip(found, rates, strict=True) if rate <= asked.at_most]
    for row in found:
        (samples,) = decode.load(str(folder / "clips" / row["path"]), channels="mix").samples
        yield folder.name, row["client_id"][:12], row["sentence"], spoken(samples[: len(samples)])


def spoken(samples: Float32) -> Float32:
    """Without what is faint at the beginning and the end."""
    energy = Loudness.of(samples).energy
    loud = np.flatnonzero(energy > energy.max() / 10 ** (FAINT / 10))
    return samples[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


def write(out: Path, name: str, said: list[Clip]) -> None:
    """A recording and its text."""
    rows, parts, place = [], [], 0
    for language, person, text, samples, pause in said:
        start, place = place, place + len(samples)
        times = f"{start / SAMPLE_RATE:.3f} {place / SAMPLE_RATE:.3f}"
        rows.append(f"{name} 1 {person} {times} <{language}> {text}\n")
        gap = np.zeros(round(pause * SAMPLE_RATE), np.float32)
        parts += [samples, gap]
        place += len(gap)
    soundfile.write(out / f"{name}.flac", np.concatenate(parts), SAMPLE_RATE)
    (out / f"{name}.stm").write_text("".join(rows), "utf-8")


def turn(coming: Iterator[tuple[str, str, str, Float32]], rng: np.random.Generator) -> list[Clip]:
    """What is said in one language before the next turn begins; nothing when no clip is left."""
    found: list[Clip] = []
    least = rng.uniform(*TURN)
    while sum(len(samples) / SAMPLE_RATE + pause for *_, samples, pause in found) < least:
        if (clip := next(coming, None)) is None:
            break
        found.append((*clip, rng.uniform(*WITHIN)))
    if not found:
        return []
    *before, last = found
    return [*before, (*last[:4], rng.uniform(*BETWEEN))]


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--languages", nargs=2, required=True)
    parser.add_argument("--half", choices=HALVES, required=True)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-most", type=float, metavar="X")
    parser.add_argument("--peer-python", metavar="PATH")
    parser.add_argument("--model", metavar="FOLDER")
    options = parser.parse_args()
    if options.at_most is not None and not (options.peer_python and options.model):
        parser.error("--at-most needs --peer-python and --model")
    options.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(options.seed)
    both = [clips(options.folder / language, options) for language in options.languages]
    for number in range(options.count):
        mixed: list[Clip] = []
        alone: list[list[Clip]] = [[], []]
        side = int(rng.integers(2))
        least = options.seconds * SAMPLE_RATE
        while sum(len(samples) for *_, samples, _ in mixed) < least or not all(alone):
            if not (said := turn(both[side], rng)):
                break
            mixed += said
            alone[side] += said
            side ^= int(rng.random() < SWITCH)
        if not all(alone):
            break
        write(options.out, f"{'-'.join(options.languages)}-{number}", mixed)
        for language, own in zip(options.languages, alone, strict=True):
            write(options.out, f"{language}-{number}", own)


if __name__ == "__main__":
    main()
