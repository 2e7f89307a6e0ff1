"""References of named corpora as RTTM files for `witness bench accuracy`.

    python benchmarks/corpora.py NAME AUDIO REFERENCES OUT [--uem UEM]
    witness bench accuracy --audio AUDIO --rttm OUT [--uem OUT] -o RUN

Nothing is downloaded. docs/benchmarks.md has the figures that others publish on them, each with its source
and convention.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from witness.bench import scoring
from witness.errors import InputError, WitnessError
from witness.formats import rttm
from witness.schema import Turn
from witness.storage import files

TOKEN_GAP = 0.5
"""Longest silence in seconds between words of one turn: an .nlp file has words, and no turns."""
NO_SPEECH = re.compile(r"^\s*(<[^>]*>\s*)*$")
"""Label of an interval without speech: nothing, or marks such as <sil>."""


@dataclass(frozen=True)
class Corpus:
    """Origin, files and usual scoring of a corpus."""

    title: str
    get: str
    """Address and license."""
    audio: str
    """Its recordings that are meant."""
    reference: str
    """Its reference files that are meant, and the way they become turns."""
    convention: str
    """Scoring of the figures that others publish on it."""
    endings: tuple[str, ...]
    """Endings of its reference files, the preferred one first."""


CORPORA = {
    "aishell4": Corpus(
        "AISHELL-4, test",
        "openslr.org/111, test.tar.gz (CC BY-SA 4.0)",
        "test/wav: eight channels, mixed",
        "test/TextGrid: the .rttm files there, else every non-empty interval of a .TextGrid is a turn",
        "no collar, overlap counted, whole recordings",
        (".rttm", ".TextGrid"),
    ),
    "alimeeting": Corpus(
        "AliMeeting, Eval or Test, far",
        "openslr.org/119 (CC BY-SA 4.0)",
        "audio_dir of *_Ali_far: eight channels, mixed",
        "textgrid_dir of *_Ali_far: each non-empty interval of a speaker's tier is a turn",
        "no collar, overlap counted, whole recordings",
        (".TextGrid",),
    ),
    "ami": Corpus(
        "AMI, test of the full-corpus partition, Mix-Headset or Array1-01",
        "groups.inf.ed.ac.uk/ami (CC BY 4.0); references: github.com/BUTSpeechFIT/AMI-diarization-setup",
        "the 16 recordings of the test part, ES2004a.Mix-Headset.wav and so on",
        "only_words/rttms/test, as they are; --uem takes the files in uems/test",
        "no collar, overlap counted, the parts of the UEM",
        (".rttm",),
    ),
    "earnings21": Corpus(
        "Earnings-21",
        "github.com/revdotcom/speech-datasets, earnings21 (CC BY-SA 4.0)",
        "earnings21/media: 44 recordings",
        "the .rttm files of Rev (rttms, since 2023-12), or transcripts/nlp_references: words of one speaker "
        f"with up to {TOKEN_GAP} s between them are one turn, and words without times are left out",
        "no collar, overlap counted, whole recordings",
        (".rttm", ".nlp"),
    ),
}
"""Name -> corpus."""


def read(folder: Path, corpus: Corpus) -> dict[str, list[Turn]]:
    """Read the turns of each recording below `folder`, by the name of its reference. Raises InputError."""
    for ending in corpus.endings:
        paths = sorted(path for path in folder.rglob(f"*{ending}") if not path.name.startswith("."))
        names = [path.stem for path in paths]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{folder}: {twice}{ending} is there twice; give each recording once")
        if paths:
            return {path.stem: READERS[ending](path) for path in paths}
    raise InputError(f"{folder}: no {' or '.join(corpus.endings)} file there; give {corpus.reference}")


def belongs(recording: str, name: str) -> bool:
    """Tell whether a reference belongs to a recording: ES2004a belongs to ES2004a.Mix-Headset."""
    return recording == name or recording.startswith((f"{name}.", f"{name}_"))


def convert(corpus: Corpus, references: Path, audio: Path, out: Path, uem: Path | None = None) -> list[str]:
    """Write OUT/RECORDING.rttm for each recording below `audio` that has a reference, and its line of `uem`.

    Returns the names of references without a recording. Raises InputError.
    """
    turns = read(references, corpus)
    parts = {} if uem is None else scoring.read_uem(uem)
    recordings = sorted(path.stem for path in audio.rglob("*") if path.is_file())
    out.mkdir(parents=True, exist_ok=True)
    missing = []
    for name in sorted(turns):
        names = [recording for recording in recordings if belongs(recording, name)]
        if len(names) > 1:
            raise InputError(f"{audio}: {' and '.join(names)} belong to {name}; keep one of them there")
        for recording in names:
            (out / f"{recording}.rttm").write_text(rttm.serialize(recording, turns[name]), "utf-8")
            lines = [f"{recording} 1 {start} {end}\n" for start, end in parts.get(name, ())]
            if lines:
                (out / f"{recording}.uem").write_text("".join(lines), "utf-8")
        missing += [] if names else [name]
    return missing


def read_rttm(path: Path) -> list[Turn]:
    """Raises InputError."""
    return [turn for turns in scoring.read(path).values() for turn in turns]


def read_textgrid(path: Path) -> list[Turn]:
    """Read each non-empty interval of each speaker's tier. Raises InputError, WitnessError."""
    try:
        from praatio import textgrid
        from praatio.utilities.errors import PraatioException
    except ImportError as error:
        raise WitnessError("TextGrid files need praatio; fix: pip install praatio") from error
    try:
        files.opened(path).close()  # for a pipe, praatio would wait
        grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False)
        tiers = [tier for tier in grid.tiers if isinstance(tier, textgrid.IntervalTier)]
    except (PraatioException, OSError, ValueError, IndexError) as error:
        raise InputError(f"{path}: not a TextGrid that can be read ({error})") from error
    turns = [
        Turn(float(start), float(end), tier.name.strip() or f"tier {number}")
        for number, tier in enumerate(tiers, start=1)
        for start, end, label in tier.entries
        if not NO_SPEECH.match(label)
    ]
    return sorted(turns, key=lambda turn: (turn.start, turn.end, turn.speaker))


def read_nlp(path: Path) -> list[Turn]:
    """Join the words of an .nlp file of Rev to turns. Raises InputError."""
    try:
        content = io.StringIO(files.read(path).decode(), newline="")
        rows = list(csv.DictReader(content, delimiter="|", quoting=csv.QUOTE_NONE))
        timed = [(float(row["ts"]), float(row["endTs"]), row["speaker"]) for row in rows if row["ts"].strip()]
    except (OSError, UnicodeDecodeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not an .nlp file with token, speaker, ts and endTs ({error})") from error
    turns: list[Turn] = []
    for start, end, speaker in timed:
        last = turns[-1] if turns else None
        if last is not None and last.speaker == speaker and start - last.end <= TOKEN_GAP:
            turns[-1] = Turn(last.start, max(last.end, end), speaker)
        else:
            turns.append(Turn(start, end, speaker))
    return turns


READERS: dict[str, Callable[[Path], list[Turn]]] = {
    ".rttm": read_rttm,
    ".TextGrid": read_textgrid,
    ".nlp": read_nlp,
}
"""Ending of a reference file -> its reader."""


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("audio", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--uem", type=Path, help="UEM file or folder of the corpus")
    args = parser.parse_args()
    corpus = CORPORA[args.corpus]
    try:
        missing = convert(corpus, args.references, args.audio, args.out, args.uem)
    except WitnessError as error:
        sys.exit(str(error))
    sys.stderr.write(f"{corpus.title} ({corpus.get}): {corpus.reference}\n")
    sys.stderr.write(f"others publish: {corpus.convention}\n")
    if missing:
        sys.stderr.write(f"{len(missing)} references have no recording: {', '.join(missing[:20])}\n")


if __name__ == "__main__":
    main()
