"""Named corpora of `witness bench accuracy`: where they are, and how their own references become turns.

Nothing is downloaded, and nothing is tuned on them here. docs/benchmarks.md has the figures that others
publish on them, each with its source and convention.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from witness.errors import InputError, WitnessError
from witness.schema import Turn
from witness.storage import files

TOKEN_GAP = 0.5
"""Seconds of silence up to which words of one speaker are one turn: an .nlp file has words, and no turns."""
NO_SPEECH = re.compile(r"^\s*(<[^>]*>\s*)*$")
"""What an annotator writes where nobody speaks: nothing, or marks such as <sil>."""


@dataclass(frozen=True)
class Corpus:
    """A corpus, and how its references are read."""

    title: str
    get: str
    """Where it is from."""
    audio: str
    """Which of its recordings are meant for --audio."""
    reference: str
    """Which of its files are meant for --rttm, and how they become turns."""
    convention: str
    """How the figures are made that others publish on it."""
    endings: tuple[str, ...]
    """Of its reference files, the preferred one first."""


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


def read(folder: Path, corpus: Corpus) -> dict[str, list[Turn]] | None:
    """The turns of each recording below `folder`, by its name; None: they are RTTM files, as of any other.

    Raises InputError.
    """
    for ending in corpus.endings:
        paths = sorted(path for path in folder.rglob(f"*{ending}") if not path.name.startswith("."))
        names = [path.stem for path in paths]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{folder}: {twice}{ending} is there twice; give each recording once")
        if paths:
            return None if ending == ".rttm" else {path.stem: READERS[ending](path) for path in paths}
    raise InputError(
        f"{folder}: no {' or '.join(corpus.endings)} file there; --corpus wants {corpus.reference}"
    )


def belongs(recording: str, name: str) -> bool:
    """Whether a reference of that name is about the recording: ES2004a is about ES2004a.Mix-Headset."""
    return recording == name or recording.startswith((f"{name}.", f"{name}_"))


def read_textgrid(path: Path) -> list[Turn]:
    """Each non-empty interval of each tier, which is a speaker's. Raises InputError, WitnessError."""
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
        Turn(float(start), float(end), tier.name.strip() or f"tier {place}")
        for place, tier in enumerate(tiers, start=1)
        for start, end, label in tier.entries
        if not NO_SPEECH.match(label)
    ]
    return sorted(turns, key=lambda turn: (turn.start, turn.end, turn.speaker))


def read_nlp(path: Path) -> list[Turn]:
    """The words of an .nlp file of Rev, joined to turns. Raises InputError."""
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


READERS: dict[str, Callable[[Path], list[Turn]]] = {".TextGrid": read_textgrid, ".nlp": read_nlp}
"""Ending of a reference file -> what reads it."""
