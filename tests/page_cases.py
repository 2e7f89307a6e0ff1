"""Corrections of made-up talks, and what Witness makes of them: the table that holds the page equal to it.

    PYTHONPATH=tests python tests/page_cases.py        writes tests/data/page_cases.json

The page derives all that it shows from its steps, without a server, in web/editor/derive.js and what that
uses; `witness redo` does the same in `transcript.assemble`. tests/web/cases.test.js has the page's modules do
what is in the table, test_web.py has Python do it, and both must come to what is written there. The talks are
random, from fixed seeds: with two tracks, overlaps, long paragraphs, words where nobody speaks, and speech
without words.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from witness.diarization.reconstruction import Diarization
from witness.formats import html
from witness.options import Bounds, Layout
from witness.schema import (
    FRAME_STEP,
    Correction,
    Count,
    Evidence,
    Findings,
    Recognition,
    Source,
    Transcript,
    Turn,
    Word,
)
from witness.transcript import assemble, corrections

PATH = Path(__file__).parent / "data" / "page_cases.json"
TALKS = (*range(9), 15, 61)
"""Seeds. In 15 people stop for breath within speech without words, and have more turns than a page names them
by; in 61 words of both tracks begin at the same time."""
CASES = 8
"""Sets of corrections of each talk, the first of them empty."""
VOCABULARY = (
    *("yes", "no", "well", "so", "Anna", "budget", "the", "of", "maybe", "zwölf", "こんにちは", "😀", "I"),
    *("it's", "over", "said", "first", "one two", "-"),
)
ENDS = (".", "?", "!", '."', "。", "…", "،", ",", ").", "؟")
NAMES = ("Anna", "Ben", "Zoë <b>", "李", "O'Hara")

Step = list[dict[str, Any]]


def talk(seed: int) -> corrections.Draft:
    """Who said what in a talk, before anybody corrected it."""
    rng = random.Random(seed)
    two_tracks = seed % 3 == 1
    heard = seed % 6 != 5  # whether a recognizer listened
    monologue = seed % 4 == 2
    duration = 200.0 if monologue else rng.uniform(25, 50)
    tracks, words = [], []
    for number in range(2 if two_tracks else 1):
        prefix = f"CH{number + 1}_" if two_tracks else ""
        who = _track(rng, duration, prefix, 1 if monologue else rng.randint(1, 2 if two_tracks else 4))
        tracks.append(who)
        words.append(_words(rng, who, duration, monologue) if heard else None)
    findings = Findings(
        audio=Source("talk.wav", duration, len(tracks), "0" * 64),
        models={},
        device={"embedding": "cpu", "whisper": "cpu" if heard else None},
        rule=None,
        plda={},
        channels=Layout.CALL if two_tracks else Layout.MIX,
        tracks=(),
    )
    recognition = Recognition((), "en", "cpu")
    who = assemble.DiarizedRecording(findings, Bounds(), tuple(tracks))
    foreign = tuple(((5.0, 30.0),) if seed % 4 == 3 else () for _ in tracks)
    draft = assemble.label_words(who, [recognition if heard else None for _ in tracks])
    return replace(draft, words=tuple(words), not_english=foreign)


def _track(rng: random.Random, duration: float, prefix: str, people: int) -> assemble.DiarizedTrack:
    """People take turns, with pauses and overlaps."""
    frames = int(duration / FRAME_STEP)
    active = np.zeros((frames, people), np.bool_)
    place, who = rng.uniform(0, 3), 0
    while place < duration:
        length = rng.uniform(50, 90) if people == 1 and duration > 100 else rng.choice((0.4, 2, 3, 5, 7))
        active[int(place / FRAME_STEP) : int((place + length) / FRAME_STEP), who] = True
        place += length + rng.choice((-0.7, 0.0, 0.1, 0.3, 0.8, 2.4))
        who = rng.choice([other for other in range(people) if other != who] or [0])
    votes = active.astype(np.uint16) * np.array([rng.randint(1, 3) for _ in range(people)], np.uint16)
    evidence = Evidence(votes, np.full(frames, 3, np.uint16))
    diarization = Diarization.in_order_of_appearance(evidence, active).steadied()
    names = [f"{prefix}SPEAKER_{1 + number:02d}" for number in range(diarization.active.shape[1])]
    return assemble.DiarizedTrack(names, diarization, Count(len(names), len(names), 1.0))


def _words(rng: random.Random, who: assemble.DiarizedTrack, duration: float, slow: bool) -> list[Word]:
    """Words of most turns, some that nobody said, and none in the others."""
    words: list[Word] = []
    free = 0.0
    for turn in who.turns(Source("", duration, 1, "").transcribed):
        if rng.random() < 0.2:
            continue
        place = max(free, round(turn.start + rng.choice((0.0, 0.05, -0.2)), 3))
        while place < turn.end:
            length = rng.choice((1.1, 1.9, 2.7) if slow else (0.0, 0.1, 0.24, 0.5))
            text = f" {rng.choice(VOCABULARY)}{rng.choice(ENDS) if rng.random() < 0.15 else ''}"
            sure = round(rng.uniform(0.3, 1), 3)
            words.append(Word(place, round(place + length, 3), text, turn.speaker, sure))
            gap = rng.choice((0.0, 0.02, 0.1, 0.1, 0.399, 0.4, 0.401, 1.2, 1.99, 2.01, 3.0))
            place = round(place + length + (gap if rng.random() < 0.3 else 0.0), 3)
        free = words[-1].end
    for _ in range(rng.randint(0, 2)):
        start = round(rng.uniform(0, duration - 1), 3)
        words.append(Word(start, round(start + 0.3, 3), " Thanks.", None, None, supported=False))
    return sorted(words, key=lambda word: word.start)


class Steps:
    """Steps that a person could take in the page of a talk, and what the page saves of them."""

    def __init__(self, draft: corrections.Draft, rng: random.Random) -> None:
        self.draft, self.rng = draft, rng
        self.base = corrections.apply(draft)
        self.data = data_of(self.base)
        self.ids = [speaker for speaker, _ in self.data["speakers"]]
        words, silent = self.data["words"], self.data["silent"]
        columns = (silent["start"], silent["end"], silent["track"])
        gaps = list(zip(*columns, strict=True)) if self.data["listened"] else []
        own = zip(words["start"], words["end"], words["track"], strict=True)
        # The words of the page: a place for each stretch without words is among them.
        self.places = sorted([(*one, -1) for one in own] + [(*one, n) for n, one in enumerate(gaps)])
        self.middles = sorted((start + end) / 2 for start, end, *_ in self.places)
        self.filled: set[int] = set()
        self.steps: list[Step] = []

    def take(self) -> None:
        """One more step, of any kind that is possible."""
        rng, people = self.rng, range(len(self.ids))
        words = [place for place in self.places if place[3] < 0 or place[3] in self.filled]
        kinds = (
            ["name", "merge"]
            + ["move", "new", "text", "split", "join", "start", "end"] * bool(words)
            + ["fill"] * self._has_gaps()
        )
        kind = rng.choice(kinds)
        who = rng.choice(people)
        if kind == "merge" and len(people) > 1:
            gone = rng.choice([other for other in people if other != who])
            self.steps.append([{"kind": "merge", "who": who, "gone": gone}])
        elif kind == "fill":
            gap = rng.randrange(len(self.data["silent"]["start"]))
            self.filled.add(gap)
            self.steps.append([{"kind": "fill", "gap": gap, "text": rng.choice(("Yes.", "one two", "…"))}])
        elif kind in ("start", "end"):
            word = rng.choice(words)
            at = max(0, word[0] + rng.randrange(-3000, 3000))
            self.steps.append([{"kind": kind, "pieces": self._pieces([word]), "at": at}])
        elif kind in ("move", "new", "text", "split", "join"):
            first = rng.randrange(len(words))
            many = 1 if kind in ("split", "join") else rng.randint(1, 8)
            pieces = self._pieces(words[first : first + many])
            if kind == "text":
                text = rng.choice(("", "one two", "x.", "ß"))
                self.steps.append([{"kind": "text", "text": text, "pieces": pieces}])
            elif kind in ("split", "join"):
                self.steps.append([{"kind": kind, "pieces": pieces}])
            elif kind == "move":
                self.steps.append([{"kind": "move", "who": who, "pieces": pieces}])
            else:
                self.ids.append("")  # the id comes when all is put together
                added: Step = [{"kind": "new", "who": len(self.ids) - 1, "pieces": pieces}]
                name = {"kind": "name", "who": len(self.ids) - 1, "name": rng.choice(NAMES)}
                self.steps.append([*added, name] if rng.random() < 0.5 else added)
        else:
            self.steps.append([{"kind": "name", "who": who, "name": rng.choice(NAMES)}])

    def _has_gaps(self) -> bool:
        return bool(self.data["listened"] and self.data["silent"]["start"])

    def _pieces(self, words: Sequence[tuple[int, int, int, int]]) -> list[list[float]]:
        """As piecesOf of transcript.js: runs of middles that follow each other, a millisecond wider."""
        ranks = sorted(self.middles.index((start + end) / 2) for start, end, *_ in words)
        runs = [
            [rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda one: one[1] - one[0])
        ]
        return [[self.middles[run[0]] - 1, self.middles[run[-1]] + 1] for run in runs]

    def corrections(self) -> tuple[Correction, ...] | None:
        """What the page saves; None: somebody can no longer be told from the others by where they talk."""
        made = [one for step in self.steps for one in step]
        new = [_of_words(one) for one in made if one["kind"] == "new"]
        if len(set(new)) < len(new):
            return None
        added = corrections._added_speakers(self.draft, new)
        ids = [*self.ids[: len(self.ids) - len(new)], *(added[one] for one in new)]
        fills = [self._fill(one) for one in made if one["kind"] == "fill"]
        _, turns = corrections._completed(self.draft, [*fills, *new], added)
        found = [self._correction(one, ids, turns) for one in made]
        talk, merged = (
            corrections.TurnIndex(turns),
            corrections.merged_speakers(found, corrections.TurnIndex(turns)),
        )
        together = corrections.TurnIndex(
            corrections.unite_turns(sorted(corrections._renamed(turn, merged) for turn in turns))
        )
        for one, correction in zip(made, found, strict=True):
            for key, spans in (("who", correction.speaker), ("gone", correction.other)):
                if key in one and one["kind"] != "new":
                    last = merged.get(ids[one[key]], ids[one[key]])
                    if talk.speaker_within(spans) != ids[one[key]] or together.speaker_within(spans) != last:
                        return None
        self.ids = ids
        return tuple(found)

    def _correction(self, one: dict[str, Any], ids: Sequence[str], turns: Sequence[Turn]) -> Correction:
        def anchor(who: int) -> Any:  # in whole milliseconds, as the page has the turns
            shown = [Turn(_ms(turn.start), _ms(turn.end), turn.speaker) for turn in turns]
            spans = corrections.anchor(ids[who], [turn for turn in shown if turn.start < turn.end])
            return tuple((start / 1000, end / 1000) for start, end in spans)

        if one["kind"] == "name":
            return Correction("name", anchor(one["who"]), one["name"])
        if one["kind"] == "merge":
            return Correction("merge", anchor(one["who"]), None, anchor(one["gone"]))
        if one["kind"] == "fill":
            return self._fill(one)
        found = _of_words(one)
        return replace(found, speaker=anchor(one["who"])) if one["kind"] == "move" else found

    def _fill(self, one: dict[str, Any]) -> Correction:
        times = [self.data["silent"][key][one["gap"]] / 1000 for key in ("start", "end")]
        return Correction("fill", (), None, (tuple(times),), one["text"])

    def expected(self, given: Sequence[Correction]) -> dict[str, Any]:
        """What Witness makes of it: paragraphs, and those who speak with their share of it."""
        found = corrections.apply(self.draft, given)
        number = {speaker: place for place, speaker in enumerate(self.ids)}
        names = {one.id: one.name for one in found.speakers}
        ordered = sorted(found.utterances, key=lambda one: (_ms(one.start), _ms(one.end)))
        return {
            "paragraphs": [
                [
                    *(_ms(one.start), _ms(one.end), number.get(one.speaker, -1), names.get(one.speaker)),
                    *(
                        "".join(word.text for word in one.words),
                        sum(not word.supported for word in one.words),
                    ),
                ]
                for one in ordered
            ],
            "speakers": sorted([number[one.id], one.name, round(one.share, 4)] for one in found.speakers),
        }


def data_of(transcript: Transcript) -> dict[str, Any]:
    """What the page of a transcript holds."""
    text = html.transcript_page(transcript, "talk", None)
    block = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    return json.loads(block)


def _of_words(one: dict[str, Any]) -> Correction:
    spans = tuple((start / 1000, end / 1000) for start, end in one["pieces"])
    at = one["at"] / 1000 if "at" in one else None
    return Correction(one["kind"], (), None, spans, one.get("text"), at=at)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _as_page(one: Correction) -> dict[str, Any]:
    spans = {key: [list(span) for span in getattr(one, key)] for key in ("speaker", "other")}
    return {"kind": one.kind, "speaker": spans["speaker"], "name": one.name} | {
        "other": spans["other"],
        "text": one.text,
        **({} if one.at is None else {"at": one.at}),
    }


def cases(seed: int) -> Iterator[dict[str, Any]]:
    """Steps on a talk, the corrections that they come to, and what follows from those."""
    draft, tried = talk(seed), 0
    yield {"steps": [], "corrections": [], **Steps(draft, random.Random(0)).expected(())}
    for number in range(1, CASES):
        while True:
            tried += 1
            steps = Steps(draft, random.Random(1000 * seed + tried))
            for _ in range(1 + steps.rng.randrange(2 + number)):
                steps.take()
            given = steps.corrections()
            if given is not None:
                break
        yield {
            "steps": steps.steps,
            "corrections": list(map(_as_page, given)),
            **steps.expected(given),
        }


def table() -> str:
    """The file."""
    talks = [{"data": Steps(talk(seed), random.Random(0)).data, "cases": list(cases(seed))} for seed in TALKS]
    lines = ",\n".join(
        '{"data":\n' + _line(one["data"]) + ',\n"cases": [\n' + ",\n".join(map(_line, one["cases"])) + "\n]}"
        for one in talks
    )
    return f"[{lines}]\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    PATH.write_text(table(), "utf-8")
    sys.stdout.write(f"{PATH}: {PATH.stat().st_size} bytes\n")
