"""Words to speakers: Witness's merging against other rules, on the same words and the same diarization.

    pip install '.[bench]'
    python benchmarks/words.py simulated RTTM_FOLDER
    python benchmarks/words.py real FOLDER --cache RUN [OPTIONS OF witness run] [--json OUT]
    python benchmarks/words.py compare BEFORE.json AFTER.json
    python benchmarks/words.py rules FOLDER RUN [--set NAME=VALUE]

`simulated` takes real turn-taking and overlap from RTTM files and simulates the rest with a fixed seed: words
of known speaker and time in every turn, then what a recognizer and a diarizer would make of them.

- Words last 0.1 to 0.7 s, two to four per second, in sentences of 3 to 16 with pauses between them.
- The recognizer's ends of words are wrong by up to 0.3 s (standard deviation 0.12 s, similar for neighboring
  words). A word begins where the one before ended, so that pauses belong to the word after them; then
  `tokens.place` does what it does in Witness. It misses 3 % of the words and a tenth of the sentence ends,
  writes one of two voices that speak at the same time (6 times in 10 the one that continues for longer), and
  invents a phrase in a quarter of the silences of two seconds or more.
- The diarizer hears everything ten times, as overlapping windows do. Its edges are wrong by a standard
  deviation of 0.15 s. It misses short turns more often than long ones, and some of what is covered by another
  voice; it takes some turns for another speaker's, and hears speech in a few silences. Its rates were set so
  that DER on VoxConverse DEV has the published size and parts of a good diarizer (pyannote community-1:
  strict 7.2, false alarm 2.3, missed 2.3, confusion 2.6). `--diarizer exact` makes it perfect.

`real` transcribes FOLDER/*.flac and *.wav with an STM of the same name, each by `witness run` in a separate
process, and scores them as `witness score --words` does: WER, cpWER and what the speaker labels cost, words
under the wrong speaker, errors of word times, the words that are missing and when they were said, wall and
processor time (of all processes together, from start to end) and memory (of the largest process). Options
that it does not know are given to `witness run`; name FOLDER before them. RUN keeps transcripts and findings.

`compare` pairs two such results: differences with an interval from a bootstrap over files, and which words
are no longer, or newly, missing.

`rules` takes the words of such a RUN, so that rules can be held against each other in seconds, without a
model. A word's own speaker is known where it is aligned with the same word of the reference; all others count
as invented. `--told` tells the diarizer the true number of speakers.

Measures of the rules, over all files: word-diarization error, the share of the recognized true words that
got another speaker or none (speakers are mapped one to one for the fewest errors; the interval is from a
bootstrap over files); how much of it no rule could repair ("unheard"), because the diarizer does not hear the
word's own speaker while it is said; and cpWER (meeteval), in which missed and invented words count, too.
Words without a speaker are left out of the text, whatever the rule.

Files are halved by the order of their names: "tune" (even) may be used to choose constants, "check" (odd) may
not. `--set NAME=VALUE` tries another constant of `witness.transcript.assemble`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import harness
import numpy as np
import real_words

from witness.bench import lines, pooling, scoring
from witness.bench.lines import Row, Said
from witness.bench.words import align, normalize, owners, tokens
from witness.diarization import reconstruction
from witness.diarization.reconstruction import Diarization
from witness.formats import findings, rttm
from witness.options import Bounds
from witness.recognition import tokens as spoken_tokens
from witness.schema import FRAME_DURATION, FRAME_STEP, Evidence, Turn, Word
from witness.transcript import assemble

HEARINGS = 10  # windows of 10 s, one per second, over each frame
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "we")
INVENTED = ("Thank you.", "Thanks for watching!", "See you in the next video.", "Okay.")
ENDS = (".", ".", ".", "?", "!")


@dataclass(frozen=True)
class Heard:
    """Input of merging, and the truth."""

    uri: str
    said: list[tuple[str, str]]
    """Everything that was said: speaker, text."""
    words: list[Word]
    """Recognized words, in order."""
    truth: list[str | None]
    """The speaker of each of them; None for an invented word."""
    spoken: list[Word]
    """Each of them when it was said."""
    segments: list[int]
    """The recognizer's segment of each of them, when 6 of 10 sentence ends end one."""
    sentences: list[int]
    """The segment of each of them, when all sentence ends end one."""
    diarization: Diarization
    names: list[str]
    turns: list[Turn]
    """The diarizer's, not the truth."""


# --- the speech ---


def speak(turns: Sequence[Turn], rng: np.random.Generator) -> list[tuple[str, Word]]:
    """Fill each turn with words; return them with their speakers, in order of their beginnings."""
    found = []
    for turn in turns:
        place, left = turn.start, int(rng.integers(3, 17))
        sentence: list[Word] = []
        while turn.end - place > 0.12:
            length = min(float(np.clip(rng.lognormal(np.log(0.26), 0.4), 0.1, 0.7)), turn.end - place)
            left -= 1
            last = turn.end - place - length < 0.25
            ends = left <= 0 or (last and rng.random() < 0.8)
            text = _text(length, rng) + (str(rng.choice(ENDS)) if ends else "")
            sentence.append(Word(place, place + length, f" {text}"))
            pause = rng.uniform(0.1, 0.6) if ends else rng.uniform(0.2, 0.6) if rng.random() < 0.08 else 0.0
            place += length + pause + rng.exponential(0.02)
            if ends:
                left = int(rng.integers(3, 17))
        found += [(turn.speaker, word) for word in sentence]
    return sorted(found, key=lambda item: item[1].start)


def _text(length: float, rng: np.random.Generator) -> str:
    """A word of about as many letters as can be said in that time."""
    return "".join(rng.choice(SYLLABLES, max(1, round(length / 0.13))))


# --- the recognizer ---


def recognize(
    said: Sequence[tuple[str, Word]], duration: float, rng: np.random.Generator
) -> tuple[list[Word], list[str | None], list[Word]]:
    """Make the words that Witness gets from whisper, the speaker of each (None: invented), and its times."""
    drowned = _drowned(said, rng)
    kept: list[tuple[Word, str | None]] = [
        (word, speaker) for speaker, word in said if rng.random() >= 0.03 and (speaker, word) not in drowned
    ]
    invented = [(word, None) for word in _invented([word for _, word in said], duration, rng)]
    kept = sorted([*kept, *invented], key=lambda item: item[0].end)
    drift, before, words = 0.0, 0.0, []
    for word, _ in kept:
        drift = 0.5 * drift + rng.normal(0.0, 0.12 * np.sqrt(1 - 0.25))
        end = float(np.clip(word.end + np.clip(drift, -0.3, 0.3), before, duration))
        # Punctuation takes part of a pause, and the next word the rest.
        start = before + (rng.random() * max(0.0, word.start - before) if _ends(words) else 0.0)
        text = word.text.rstrip(".?!") if rng.random() < 0.1 else word.text
        words.append(Word(min(start, end), end, text))
        before = end
    spoken = [word for word, _ in kept]
    return spoken_tokens.place(words, duration), [speaker for _, speaker in kept], spoken


def _drowned(said: Sequence[tuple[str, Word]], rng: np.random.Generator) -> set[tuple[str, Word]]:
    """The words that are not written because a recognizer writes one of two voices at the same time."""
    runs = [
        (speaker, words)
        for speaker in sorted({speaker for speaker, _ in said})
        for words in _stretches([word for who, word in said if who == speaker])
    ]
    runs.sort(key=lambda run: run[1][-1].end - run[1][0].start)
    edges = np.array([(words[0].start, words[-1].end) for _, words in runs])
    drowned = set()
    for place, (speaker, _) in enumerate(runs):
        start, end = edges[place]
        longer = np.flatnonzero((edges[:, 0] < end) & (edges[:, 1] > start))
        for other in longer[longer > place]:
            if runs[other][0] != speaker:
                losers, span = (
                    (runs[place], edges[other]) if rng.random() < 0.6 else (runs[other], (start, end))
                )
                drowned |= {
                    (losers[0], word) for word in losers[1] if span[0] < (word.start + word.end) / 2 < span[1]
                }
    return drowned


def _stretches(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Stretches of one speaker's words without a pause of a second."""
    stretch: list[Word] = []
    for word in words:
        if stretch and word.start - stretch[-1].end >= 1.0:
            yield stretch
            stretch = []
        stretch.append(word)
    if stretch:
        yield stretch


def _invented(words: Sequence[Word], duration: float, rng: np.random.Generator) -> Iterator[Word]:
    """Phrases over some of the silences of two seconds or more."""
    for start, end in silences([(word.start, word.end) for word in words], duration):
        if end - start >= 2.0 and rng.random() < 0.25:
            phrase = str(rng.choice(INVENTED)).split()
            begins = rng.uniform(start, end - 1.5)
            ends = np.sort(rng.uniform(begins, min(end, begins + 3.0), len(phrase)))
            for text, begin, stop in zip(phrase, [begins, *ends], ends, strict=False):
                yield Word(float(begin), float(stop), f" {text}")


def silences(spans: Sequence[tuple[float, float]], duration: float) -> Iterator[tuple[float, float]]:
    place = 0.0
    for start, end in sorted(spans):
        if start > place:
            yield place, start
        place = max(place, end)
    if duration > place:
        yield place, duration


def _ends(words: Sequence[Word]) -> bool:
    return not words or words[-1].text.endswith((".", "?", "!"))


def segment(words: Sequence[Word], at_sentence_end: float, rng: np.random.Generator) -> list[int]:
    """The segment of each word: segments end at that share of sentence ends, long pauses, and after 10 s."""
    numbers: list[int] = []
    begun = 0.0
    for place, word in enumerate(words):
        pause = word.start - words[place - 1].end if place else 0.0
        cut = (_ends(words[:place]) and rng.random() < at_sentence_end) or (
            pause >= 1.0 and rng.random() < 0.9
        )
        if not place or cut or word.end - begun > 10.0:
            begun = word.start
            numbers.append(numbers[-1] + 1 if numbers else 0)
        else:
            numbers.append(numbers[-1])
    return numbers


# --- the diarizer ---


def hear(turns: Sequence[Turn], duration: float, rng: np.random.Generator, *, exact: bool) -> Diarization:
    """The evidence and the activity that imperfect windows vote for; with `exact`, perfect ones."""
    speakers = sorted({turn.speaker for turn in turns})
    frames = round(duration / FRAME_STEP) + 1
    middles = np.arange(frames) * FRAME_STEP + FRAME_DURATION / 2
    heard = np.zeros((HEARINGS, frames, len(speakers)), np.bool_)

    def put(start: float, end: float, speaker: int, hearings: Sequence[int], value: bool = True) -> None:
        heard[hearings, np.searchsorted(middles, start) : np.searchsorted(middles, end), speaker] = value

    if exact:
        for turn in turns:
            put(turn.start, turn.end, speakers.index(turn.speaker), range(HEARINGS))
    else:
        _hear_wrongly(turns, duration, speakers, put, rng)

    votes = heard.sum(axis=0, dtype=np.uint8)
    count = np.rint(heard.sum(axis=2).mean(axis=0)).astype(np.intp)
    place = np.argsort(np.argsort(-votes.astype(int), axis=1, kind="stable"), axis=1, kind="stable")
    evidence = Evidence(votes, np.full(frames, HEARINGS, np.uint8))
    return Diarization.in_order_of_appearance(evidence, (place < count[:, None]) & (votes > 0))


def _hear_wrongly(
    turns: Sequence[Turn],
    duration: float,
    speakers: Sequence[str],
    put: Callable[..., None],
    rng: np.random.Generator,
) -> None:
    for turn in turns:
        length = turn.duration
        missed = 0.2 if length < 0.5 else 0.08 if length < 1 else 0.02 if length < 2 else 0.003
        if rng.random() < missed:
            continue
        taken = 0.15 if length < 1 else 0.08 if length < 2 else 0.04
        voice = speakers.index(turn.speaker)
        if rng.random() < taken:
            voice = int(rng.integers(len(speakers)))
        shift = rng.normal((-0.09, 0.09), 0.14)
        miss = rng.beta(0.4, 1.6 if length < 1 else 10.0)
        for hearing in range(HEARINGS):
            if rng.random() >= miss:
                start, end = np.array([turn.start, turn.end]) + shift + rng.normal(0.0, 0.05, 2)
                put(start, end, voice, [hearing])
    for turn in turns:
        for other in turns:
            start, end = max(turn.start, other.start), min(turn.end, other.end)
            if turn.speaker != other.speaker and start < end and turn.duration < other.duration:
                missed = rng.uniform(0.0, 0.8)
                for hearing in range(HEARINGS):
                    if rng.random() < missed:
                        put(start, end, speakers.index(turn.speaker), [hearing], False)
    for start, end in silences([(turn.start, turn.end) for turn in turns], duration):
        if end - start >= 1.0 and rng.random() < 0.1:
            begins = rng.uniform(start, end - 0.5)
            some = np.flatnonzero(rng.random(HEARINGS) < 0.6).tolist()
            put(begins, begins + rng.uniform(0.3, 1.0), int(rng.integers(len(speakers))), some)


# --- the rules ---


def largest_turn(heard: Heard, segments: Sequence[int]) -> list[str | None]:
    """The original Witness's: all words of a segment go to the one turn that covers most of it."""
    result: list[str | None] = []
    for _, group in groupby(zip(segments, heard.words, strict=True), key=lambda item: item[0]):
        words = [word for _, word in group]
        covered = _overlaps(heard.turns, words[0].start, words[-1].end)
        best = int(covered.argmax()) if len(covered) else 0
        result += [heard.turns[best].speaker if len(covered) and covered[best] > 0 else None] * len(words)
    return result


def largest_sum(heard: Heard) -> list[str | None]:
    """whisperX's: each word goes to the speaker whose turns cover most of it in total."""
    result: list[str | None] = []
    for word in heard.words:
        covered = _overlaps(heard.turns, word.start, word.end)
        sums: dict[str, float] = {}
        for place in np.flatnonzero(covered > 0):
            turn = heard.turns[place]
            sums[turn.speaker] = sums.get(turn.speaker, 0.0) + float(covered[place])
        result.append(max(sums, key=lambda speaker: sums[speaker]) if sums else None)
    return result


def witness(heard: Heard) -> list[str | None]:
    found = assemble.label(heard.words, heard.diarization.evidence, heard.diarization.active, heard.names)[0]
    return [word.speaker for word in found]


def _overlaps(turns: Sequence[Turn], start: float, end: float) -> np.ndarray:
    edges = np.array([(turn.start, turn.end) for turn in turns]).reshape(-1, 2)
    return np.minimum(edges[:, 1], end) - np.maximum(edges[:, 0], start)


RULES: dict[str, Callable[[Heard], list[str | None]]] = {
    "largest turn per segment (original)": lambda heard: largest_turn(heard, heard.segments),
    "the same, a segment a sentence": lambda heard: largest_turn(heard, heard.sentences),
    "largest sum per word (whisperX)": largest_sum,
    "witness": witness,
}


# --- measures ---


def wrong_words(truth: Sequence[str | None], found: Sequence[str | None]) -> tuple[int, int]:
    """(words with another speaker than their own or none, words), speakers mapped for the fewest."""
    names = mapping(truth, found)
    wrong = [names.get(there) != (here or "") for there, here in zip(truth, found, strict=True) if there]
    return sum(wrong), len(wrong)


def unheard(heard: Heard, found: Sequence[str | None]) -> int:
    """Count the wrong words that no rule could repair: their speaker is not active while they are said."""
    names = mapping(heard.truth, found)
    count = 0
    for there, here, word in zip(heard.truth, found, heard.spoken, strict=True):
        if there and names.get(there) != (here or ""):
            first = int(word.start / FRAME_STEP)
            frames = heard.diarization.active[first : max(first + 1, int(word.end / FRAME_STEP))]
            count += there not in names or not frames[:, heard.names.index(names[there])].any()
    return count


def mapping(truth: Sequence[str | None], found: Sequence[str | None]) -> dict[str, str]:
    """True speaker -> found speaker, one to one, for the fewest wrong words."""
    return owners([(there, here) for there, here in zip(truth, found, strict=True) if there and here])


def cpwer(heard: Heard, found: Sequence[str | None]) -> tuple[int, int]:
    """(errors, words said) of meeteval's cpWER; punctuation does not count."""
    from meeteval.wer import cp_word_error_rate

    said = _streams(heard.said)
    written = _streams(
        [(speaker, word.text) for word, speaker in zip(heard.words, found, strict=True) if speaker]
    )
    result = cp_word_error_rate(said, written, reference_sort=False, hypothesis_sort=False)
    return int(result.errors), int(result.length)


def _streams(items: Sequence[tuple[str, str]]) -> dict[str, str]:
    streams: dict[str, list[str]] = {}
    for speaker, text in items:
        streams.setdefault(speaker, []).extend(normalize(text))
    return {speaker: " ".join(words) for speaker, words in streams.items()} or {"": ""}


# --- material ---


def simulated(folder: Path, half: str, diarizer: str) -> Iterator[Heard]:
    references = scoring.read(folder)
    for place, (uri, turns) in enumerate(sorted(references.items())):
        if half != "all" and place % 2 != (half == "check"):
            continue
        rng = np.random.default_rng([7, place])
        duration = max(turn.end for turn in turns) + 2.0
        found = hear(turns, duration, rng, exact=diarizer == "exact")
        yield _heard(uri, speak(turns, rng), duration, found, rng)


def saved(folder: Path, run: Path, half: str, *, told: bool) -> Iterator[Heard]:
    """The words and the diarizer's evidence of a run of `real`."""
    for place, (_, path) in enumerate(real_words.material(folder)):
        if half != "all" and place % 2 != (half == "check"):
            continue
        stages = run / f"{path.stem}.findings.npz"
        found = findings.decode(stages.read_bytes(), str(stages))
        if len(found.tracks) != 1 or found.tracks[0].recognition is None:
            sys.exit(f"{stages}: has several tracks, or no words; `rules` is for one track with words")
        heard = found.tracks[0].recognition
        (reference,) = lines.read(path).values()
        asked = Bounds(len({line.speaker for line in reference.lines})) if told else Bounds()
        (track,) = assemble.diarize(found, asked).tracks
        # The place of each word, where `align` expects a speaker.
        numbered = [Row(word.start, word.end, str(n), word.text) for n, word in enumerate(heard.words)]
        truth: list[str | None] = [None] * len(heard.words)
        said = list(heard.words)
        sides = (tokens(text, heard.language) for text in (reference, Said(tuple(numbered))))
        for true, ours in align(*sides):
            if true and ours and true.text == ours.text:
                truth[int(str(ours.speaker))] = true.speaker
                said[int(str(ours.speaker))] = Word(true.time, true.time, true.text)
        rng = np.random.default_rng([9, place])
        yield Heard(
            path.stem,
            [(str(line.speaker), line.text) for line in reference.lines],
            list(heard.words),
            truth,
            said,
            segment(heard.words, 0.6, rng),
            segment(heard.words, 1.0, rng),
            track.diarization,
            track.names,
            track.turns(found.audio.transcribed),
        )


def _heard(
    uri: str,
    said: list[tuple[str, Word]],
    duration: float,
    found: Diarization,
    rng: np.random.Generator,
) -> Heard:
    names = [f"S{number}" for number in range(found.active.shape[1])]
    words, truth, spoken = recognize(said, duration, rng)
    turns = reconstruction.turns(found.active.T, names, duration)
    texts = [(speaker, word.text) for speaker, word in said]
    segments, sentences = segment(words, 0.6, rng), segment(words, 1.0, rng)
    return Heard(uri, texts, words, truth, spoken, segments, sentences, found, names, turns)


def der(folder: Path, material: Sequence[Heard]) -> dict[str, float] | None:
    """Strict DER and its parts, in percent, of the turns that the rules are given; None without RTTMs."""
    references = {
        path.stem: turns
        for path in sorted(folder.glob("*.rttm"))
        for turns in rttm.parse(path.read_text()).values()
    }
    if not {heard.uri for heard in material} <= set(references):
        return None
    scores = scoring.score({heard.uri: (references[heard.uri], heard.turns) for heard in material})
    strict = scoring.pool(scores)["strict"]
    names = ("der", *scoring.Seconds._fields[:3])
    return {name: round(value, 1) for name, value in zip(names, (strict.rate, *strict.parts), strict=True)}


def difference(material: Sequence[Heard], usual: Sequence[list[str | None]]) -> dict[str, object]:
    """Subtract unchanged Witness from Witness with --set: points, and an interval from a bootstrap over
    files."""
    sides = [
        np.array(
            [
                (*wrong_words(heard.truth, speakers), *cpwer(heard, speakers))
                for heard, speakers in zip(material, found, strict=True)
            ],
            np.float64,
        )
        for found in ([witness(heard) for heard in material], usual)
    ]
    result: dict[str, object] = {}
    for name, (errors, words) in {"word_diarization_error": (0, 1), "cpwer": (2, 3)}.items():
        drawn = [pooling.drawn_sums(side) for side in sides]
        rates = [100 * side[:, errors] / side[:, words] for side in drawn]
        points = [100 * side[:, errors].sum() / side[:, words].sum() for side in sides]
        interval = pooling.middle_95(rates[0] - rates[1])
        result[name] = [round(float(points[0] - points[1]), 2), [round(edge, 2) for edge in interval]]
    return result


def summary(material: Sequence[Heard]) -> dict[str, object]:
    rows: dict[str, object] = {}
    draws = np.random.default_rng(0).integers(len(material), size=(10_000, len(material)))
    for name, rule in RULES.items():
        found = [rule(heard) for heard in material]
        counts = np.array(
            [
                (*wrong_words(heard.truth, speakers), *cpwer(heard, speakers))
                for heard, speakers in zip(material, found, strict=True)
            ]
        )
        invented = [
            speaker
            for heard, speakers in zip(material, found, strict=True)
            for there, speaker in zip(heard.truth, speakers, strict=True)
            if there is None
        ]
        wrong, words, errors, length = counts.sum(axis=0).tolist()
        sums = counts[draws].sum(axis=1)
        rates = 100 * sums[:, 0] / sums[:, 1]
        rows[name] = {
            "word_diarization_error": round(100 * wrong / words, 2),
            "interval": [round(float(edge), 2) for edge in np.percentile(rates, [2.5, 97.5])],
            "cpwer": round(100 * errors / length, 2),
            "of_it_unheard": round(
                100
                * sum(unheard(heard, speakers) for heard, speakers in zip(material, found, strict=True))
                / words,
                2,
            ),
            "invented_words_kept": sum(speaker is not None for speaker in invented),
            "words": words,
            "wrong": wrong,
            "without_speaker": sum(
                speaker is None and there is not None
                for heard, speakers in zip(material, found, strict=True)
                for there, speaker in zip(heard.truth, speakers, strict=True)
            ),
            "invented_words": len(invented),
        }
    return rows


def set_constants(constants: Sequence[str]) -> None:
    for constant in constants:
        name, _, value = constant.partition("=")
        if not hasattr(assemble, name):
            sys.exit(f"--set {constant}: witness.transcript.assemble has no {name}")
        setattr(assemble, name, float(value))


def rules(args: argparse.Namespace) -> dict[str, object]:
    """`simulated` and `rules`."""
    if args.material == "simulated":
        material = list(simulated(args.folder, args.half, args.diarizer))
    else:
        material = list(saved(args.folder, args.run, args.half, told=args.told))
    usual = [witness(heard) for heard in material]
    set_constants(args.constants)
    kinds = {
        "simulated": getattr(args, "diarizer", None),
        "rules": "that of the run",
    }
    return {
        "material": args.material,
        "half": args.half,
        "diarizer": kinds[args.material],
        "der": der(args.folder, material),
        "set": args.constants,
        "files": len(material),
        "rules": summary(material),
        **({"set_minus_usual": difference(material, usual)} if args.constants else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="material", required=True)
    for name in ("simulated", "rules"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "rules":
            command.add_argument("run", type=Path, help="--cache of `real`")
            command.add_argument("--told", action="store_true", help="the true number of speakers is known")
        if name == "simulated":
            command.add_argument("--diarizer", choices=["noisy", "exact"], default="noisy")
        command.add_argument("--half", choices=["tune", "check", "all"], default="all")
        command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="constants")
    command = commands.add_parser("real")
    command.add_argument("folder", type=Path)
    command.add_argument("--cache", type=Path, required=True, metavar="RUN")
    command = commands.add_parser("compare")
    command.add_argument("first", type=Path)
    command.add_argument("second", type=Path)
    for command in commands.choices.values():
        command.add_argument("--json", type=Path, metavar="OUT")
    args, others = parser.parse_known_args()
    if others and args.material != "real":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if args.material == "real":
        result, text = real_words.real(args.folder, args.cache, others)
        if args.json:
            args.json.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")
        sys.stdout.write(text)
    elif args.material == "compare":
        sides = [json.loads(path.read_text()) for path in (args.first, args.second)]
        harness.show(real_words.compare(*sides), args.json)
    else:
        harness.show(rules(args), args.json)


if __name__ == "__main__":
    main()
