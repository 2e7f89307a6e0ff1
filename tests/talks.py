"""Conversations for the tests of the page: one from tests/data/call.stm, and made-up ones of any length."""

from __future__ import annotations

import hashlib
import random
from itertools import groupby

from msgspec import structs

from conftest import CALL, DATA
from witness.schema import Source, Speaker, Transcript, Turn, Utterance, Word
from witness.transcript import corrections


def transcript(words, turns, *, path="talk.wav", duration=60.0, sha256="0" * 64, **others) -> Transcript:
    """With the utterances and shares that follow from the words and turns, as after a recognizer."""
    seconds = {}
    for turn in sorted(turns):
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    total = sum(seconds.values()) or 1.0
    others = {
        "models": {"segmentation": None, "embedding": None, "whisper": None},
        "device": {"embedding": "cpu", "whisper": "cpu"},
        "timing": {},
        "language": "en",
        "utterances": tuple(corrections.group_utterances(words)) if words else (),
        **others,
    }
    return Transcript(
        audio=Source(str(path), duration, 1, sha256),
        speakers=tuple(Speaker(key, value, value / total) for key, value in sorted(seconds.items())),
        turns=tuple(sorted(turns)),
        words=tuple(words),
        **others,
    )


def call(**others) -> Transcript:
    """The call as it was spoken; some words are doubtful, invented or inaudible, to show how that looks."""
    ids = {"agent": "SPEAKER_01", "caller": "SPEAKER_02"}
    words: list[Word] = []
    turns = []
    for line in (DATA / "call.rttm").read_text().splitlines():
        _, _, _, start, length, _, _, who, *_ = line.split()
        turns.append(Turn(float(start), float(start) + float(length), ids[who]))
    for line in (DATA / "call.stm").read_text().splitlines():
        _, _, who, start, end, text = line.split(maxsplit=5)
        words += spread(text, ids[who], float(start), float(end))
    words.sort(key=lambda word: word.start)
    words = [structs.replace(word, overlap=_both(word, turns)) for word in words]
    by_text = {word.text.strip(): place for place, word in enumerate(words)}
    for text, sure in {"Uh-huh.": 0.48, "Okay.": 0.55, "cabinet.": 0.57}.items():
        words[by_text[text]] = structs.replace(words[by_text[text]], speaker_confidence=sure)
    ghosts = [
        structs.replace(word, supported=False)
        for word in spread("Thanks for watching.", None, 26.2, 27.4, None)
    ]
    words = sorted([*words, *ghosts], key=lambda word: word.start)
    sha256 = hashlib.sha256(CALL.read_bytes()).hexdigest()
    return transcript(words, turns, path=CALL, duration=60.69, sha256=sha256, **others)


def spread(text: str, who: str | None, start: float, end: float, sure: float | None = 0.97) -> list[Word]:
    """The words of a line, each as long as it is written."""
    parts = text.split()
    letters = sum(len(part) + 1 for part in parts)
    words = []
    for part in parts:
        length = (end - start) * (len(part) + 1) / letters
        before = words[-1].end if words else start
        words.append(Word(round(before, 3), round(before + length, 3), f" {part}", who, sure))
    return words


def _both(word: Word, turns: list[Turn]) -> bool:
    others = [turn for turn in turns if turn.speaker != word.speaker]
    shared = sum(max(0.0, min(turn.end, word.end) - max(turn.start, word.start)) for turn in others)
    return shared > 0.5 * (word.end - word.start)


def long(n_words: int, hours: float, n_speakers: int = 4, seed: int = 0) -> Transcript:
    """A talk of so many words; its last tenth is one sentence without an end."""
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(4000)]
    pace = hours * 3600 / n_words
    words: list[Word] = []
    who, left = 0, 0
    for n in range(n_words):
        if left == 0 and n < 0.9 * n_words:
            who, left = (who + rng.randrange(1, n_speakers)) % n_speakers, rng.randint(3, 90)
        left = max(0, left - 1)
        end = "." if left == 0 and n < 0.9 * n_words - 1 else ""
        start = n * pace
        words.append(
            Word(
                round(start, 3),
                round(start + 0.9 * pace, 3),
                f" {rng.choice(vocabulary)}{end}",
                f"SPEAKER_{1 + who:02d}",
                round(rng.uniform(0.5, 1), 2),
            )
        )
    turns = []
    for speaker, group in groupby(words, key=lambda word: word.speaker):
        said = list(group)
        turns.append(Turn(said[0].start, said[-1].end, speaker))
    return transcript(words, turns, path="long.wav", duration=hours * 3600)


def silent(n_speakers: int = 3) -> Transcript:
    """Speakers without words: nobody listened for them."""
    turns = [Turn(3.0 * n, 3.0 * n + 2.5, f"SPEAKER_{1 + n % n_speakers:02d}") for n in range(4 * n_speakers)]
    return transcript(
        (),
        turns,
        duration=12.0 * n_speakers,
        utterances=tuple(Utterance(turn.start, turn.end, turn.speaker) for turn in turns),
        device={"embedding": "cpu", "whisper": None},
        language=None,
    )
