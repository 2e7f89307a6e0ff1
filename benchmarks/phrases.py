"""Do words help voices: do turns become better if what was said as one phrase is one speaker's?

    witness run FOLDER/*.flac --channels mix -f json -o RUN
    python benchmarks/phrases.py FOLDER RUN [--told] [--json FILE]

FOLDER holds FILE.rttm, RUN what `witness run` made of FILE.flac. Each rule changes the turns of the same run;
a phrase ends with a sentence or before a pause of 0.4 s. DER, in percent, with no collar and with 0.25 s on
each side, and what a rule adds to it, with a 95 % interval from drawing recordings. `--told`: the number of
speakers is the true one.

"moved": where one speaker stops and another begins within 0.4 s, both edges move to the nearest end of a
phrase (or of a word) that is near enough. "majority": what one speaker alone has of a phrase goes to whoever
has that share of it. "decoded": frames of a single speaker are decided again, and a change costs so many nats
within a phrase and elsewhere. "limit": phrases go to the speaker whom the reference has there, which no rule
can know.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import report
from scipy.optimize import linear_sum_assignment

from witness.bench import resampling, scoring
from witness.diarization import reconstruction
from witness.formats import findings, rttm
from witness.options import Bounds
from witness.schema import FRAME_DURATION, FRAME_STEP, Bool, Float64, Turn, Word
from witness.transcript import assemble, merging

CONVENTIONS = ("strict", "collar-0.25-each-side")
NEIGHBORS = 0.4  # seconds between the end of a turn and the beginning of the next: a change of speaker


@dataclass(frozen=True)
class Recording:
    name: str
    reference: list[Turn]
    words: list[Word]
    track: assemble.Diarized
    duration: float

    def turns(self, active: Bool) -> list[Turn]:
        return reconstruction.turns(active.T, self.track.names, self.duration)

    @property
    def active(self) -> Bool:
        """(frames, speakers)"""
        return self.track.diarization.active


Rule = Callable[[Recording], list[Turn]]


def load(path: Path, run: Path, *, told: bool) -> Recording:
    (reference,) = rttm.parse(path.read_text()).values()
    stages = run / f"{path.stem}.stages.npz"
    found = findings.decode(stages.read_bytes(), str(stages))
    if len(found.tracks) != 1 or found.tracks[0].recognition is None:
        sys.exit(f"{stages}: has several tracks, or no words; this is for one track with words")
    asked = Bounds(len({turn.speaker for turn in reference})) if told else Bounds()
    (track,) = assemble.who(found, asked).tracks
    words = list(found.tracks[0].recognition.words)
    return Recording(path.stem, reference, words, track, found.audio.duration)


def frame(time: float) -> int:
    return max(0, round((time - FRAME_DURATION / 2) / FRAME_STEP))


def sentence_ends(before: Word, _: Word) -> bool:
    return merging._ends_sentence(before)


def phrases(words: list[Word], ends: Callable[[Word, Word], bool]) -> Iterator[slice]:
    """The frames of each."""
    first = 0
    for place, word in enumerate(words, start=1):
        if place == len(words) or ends(word, words[place]):
            yield slice(frame(words[first].start), frame(word.end) + 1)
            first = place


def shipped(recording: Recording) -> list[Turn]:
    return recording.turns(recording.active)


def moved(recording: Recording, ends: Callable[[Word, Word], bool], near: float) -> list[Turn]:
    pairs = pairwise(recording.words)
    gaps = np.array([(one.end + other.start) / 2 for one, other in pairs if ends(one, other)])
    turns = sorted(shipped(recording))
    for first, one in enumerate(turns):
        for second, other in enumerate(turns):
            end, start = turns[first].end, turns[second].start
            follows = one.start < other.start and one.end < other.end and one.speaker != other.speaker
            if not follows or abs(end - start) > NEIGHBORS or not len(gaps):
                continue
            shift = float(gaps[np.abs(gaps - (end + start) / 2).argmin()]) - (end + start) / 2
            if abs(shift) <= near:
                turns[first] = replace(turns[first], end=max(turns[first].start + FRAME_STEP, end + shift))
                turns[second] = replace(turns[second], start=min(other.end - FRAME_STEP, start + shift))
    return turns


def majority(recording: Recording, ends: Callable[[Word, Word], bool], share: float) -> list[Turn]:
    active = recording.active.copy()
    for part in (active[frames] for frames in phrases(recording.words, ends)):
        alone = part.sum(axis=1) == 1
        spoken = part[alone].sum(axis=0)
        if spoken.any() and spoken.max() >= share * spoken.sum():
            part[alone] = np.arange(len(spoken)) == spoken.argmax()
    return recording.turns(active)


def decoded(recording: Recording, within: float, elsewhere: float) -> list[Turn]:
    active = recording.active.copy()
    alone = np.flatnonzero(active.sum(axis=1) == 1)
    if len(alone):
        votes = recording.track.diarization.evidence[0 : len(active)][alone]
        shares = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1e-9)
        heard = votes.any(axis=1, keepdims=True)  # nobody is, in a filled pause
        costs = np.full(len(active), elsewhere)
        for frames in phrases(recording.words, merging._breaks):
            costs[frames.start + 1 : frames.stop - 1] = within
        changes = [0.0, *(costs[one + 1 : other + 1].min() for one, other in pairwise(alone))]
        scores = np.where(heard, np.log(shares + merging.FLOOR), 0.0)
        path = merging._viterbi(scores, np.array(changes))
        active[alone] = np.arange(active.shape[1]) == path[:, None]
    return recording.turns(active)


def limit(recording: Recording, ends: Callable[[Word, Word], bool]) -> list[Turn]:
    active = recording.active.copy()
    names = sorted({turn.speaker for turn in recording.reference})
    truth = np.zeros((len(active), len(names)), np.bool_)
    for turn in recording.reference:
        truth[frame(turn.start) : frame(turn.end), names.index(turn.speaker)] = True
    shared = truth.T.astype(int) @ active.astype(int)
    ours = dict(zip(*(side.tolist() for side in linear_sum_assignment(-shared)), strict=True))
    for frames in phrases(recording.words, ends):
        said = truth[frames].sum(axis=0)
        if said.any() and int(said.argmax()) in ours:
            part = active[frames]
            part[part.sum(axis=1) == 1] = np.arange(active.shape[1]) == ours[int(said.argmax())]
    return recording.turns(active)


def rules() -> dict[str, Rule]:
    kinds = {"phrase": merging._breaks, "sentence": sentence_ends}
    return {
        "shipped": shipped,
        **{
            f"moved to the end of a {kind} within {near}": partial(moved, ends=ends, near=near)
            for kind, ends in {**kinds, "word": lambda *_: True}.items()
            for near in (0.2, 0.5, 1.0)
        },
        **{
            f"majority of a {kind}, {share}": partial(majority, ends=ends, share=share)
            for kind, ends in kinds.items()
            for share in (0.5, 0.7, 0.9)
        },
        **{
            f"decoded, {within} and {elsewhere}": partial(decoded, within=within, elsewhere=elsewhere)
            for within, elsewhere in ((1.0, 1.0), (3.0, 1.0), (10.0, 1.0), (10.0, 10.0))
        },
        **{f"limit, {kind}": partial(limit, ends=ends) for kind, ends in kinds.items()},
    }


def measure(recordings: list[Recording]) -> dict[str, object]:
    def seconds(rule: Rule) -> Float64:
        """(recordings, conventions, 4)"""
        pairs = {one.name: (one.reference, rule(one)) for one in recordings}
        parts = {one.name: [(0.0, one.duration)] for one in recordings}
        files = {file.uri: file.seconds for file in scoring.score(pairs, parts)}
        return np.array([[files[one.name][name] for name in CONVENTIONS] for one in recordings])

    def rate(sums: Float64) -> Float64:
        result: Float64 = 100 * sums[..., :3].sum(axis=-1) / sums[..., 3]
        return result

    rows: dict[str, object] = {}
    base = seconds(shipped)
    for name, rule in rules().items():
        found = seconds(rule)
        row = {}
        for place, convention in enumerate(CONVENTIONS):
            ours, theirs = found[:, place], base[:, place]
            drawn = rate(resampling.sums(ours)) - rate(resampling.sums(theirs))
            row[convention] = {
                "der": round(float(rate(ours.sum(axis=0))), 2),
                "minus_shipped": round(float(rate(ours.sum(axis=0)) - rate(theirs.sum(axis=0))), 2),
                "interval": [round(edge, 2) for edge in resampling.interval(drawn)],
            }
        rows[name] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--told", action="store_true", help="the true number of speakers is known")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    paths = sorted(args.folder.glob("*.rttm"))
    if not paths:
        sys.exit(f"{args.folder}: has no FILE.rttm")
    recordings = [load(path, args.run, told=args.told) for path in paths]
    result = {
        "recordings": len(recordings),
        "words": sum(len(one.words) for one in recordings),
        "told": args.told,
        "rows": measure(recordings),
    }
    report.show(result, args.json)


if __name__ == "__main__":
    main()
