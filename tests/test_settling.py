"""What is printed while words are recognized is how the complete transcript begins."""

from __future__ import annotations

import asyncio
import json
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from witness.formats import json_document, writers
from witness.models import catalogue
from witness.options import Layout
from witness.schema import (
    FRAMES,
    SAMPLE_RATE,
    Findings,
    ModelFile,
    Recognition,
    Segmentation,
    Source,
    Track,
    Word,
)
from witness.serve.openai import routes as openai_routes
from witness.serve.openai.routes import Work
from witness.transcript import assemble, corrections, partial
from witness.transcript.partial import NOT_BEGUN, PartialTrack
from witness.work import worker

ENDS = (".", "?", "!", "", "", "", "", "")


def findings(seed: int) -> Findings:
    """Two minutes of people who talk, at the same time now and then, with words that lie beside them, too."""
    chance = np.random.default_rng(seed)
    windows = int(chance.integers(20, 110))
    layout = Layout.CALL if seed % 3 == 0 else Layout.MIX
    tracks = []
    for _ in range(2 if layout == Layout.CALL else 1):
        speakers = int(chance.integers(1, 4))
        ends = np.cumsum(chance.exponential(4.0, 80) + 0.3)
        owner = chance.integers(-1, speakers, 80)
        second = np.arange(windows)[:, None] + np.arange(FRAMES) * 10 / FRAMES
        talking = owner[np.minimum(np.searchsorted(ends, second), 79)]
        active = np.stack([talking == one for one in range(3)], axis=-1)
        active |= (chance.random((windows, 1, 3)) < 0.05) & (np.arange(3) < speakers)
        people = chance.normal(size=(3, 256))
        noise = chance.normal(scale=0.2, size=(windows, 3, 256))
        vectors = (people + noise).astype(np.float32)
        vectors[active.sum(axis=1) < 60] = np.nan
        words: list[Word] = []
        place = 0.0
        while place < windows + 8:
            pause = chance.exponential(6.0) if chance.random() < 0.05 else chance.exponential(0.05)
            start = place + pause
            place = start + chance.uniform(0, 0.6)
            mark = str(chance.choice(ENDS)) if seed % 4 else ""
            words.append(Word(start, place, f" word{len(words)}{mark}", probability=0.9))
        starts = np.arange(windows) * SAMPLE_RATE
        heard = Recognition(tuple(words), "en", "cpu")
        tracks.append(Track(Segmentation(active, starts), vectors, heard))
    models = {role: ModelFile(role, "", role[0] * 64) for role in ("segmentation", "embedding")}
    return Findings(
        audio=Source("call.wav", windows + 9.0, len(tracks), "a" * 64),
        models={**models, "whisper": ModelFile("tiny", "", "w" * 64, "ctranslate2")},
        device={"embedding": "cpu", "whisper": "cpu"},
        rule=catalogue.SETS["builtin"].rule,
        plda={},
        channels=layout,
        tracks=tuple(tracks),
    )


def courses(tracks: tuple[Track, ...], chance: np.random.Generator, *, in_turn: bool = False):
    """What is known of all tracks, again and again: always more of the one that is known least far, as the
    recognizer does it, or one track after the other, as it does beside the diarizer."""
    known = [NOT_BEGUN] * len(tracks)
    counts = [0] * len(tracks)
    while left := [number for number, one in enumerate(known) if one.until < inf]:
        number = left[0] if in_turn else min(left, key=lambda one: known[one].until)
        heard = tracks[number].recognition
        if counts[number] == len(heard.words):
            known[number] = PartialTrack(heard, inf)
        else:
            counts[number] = count = min(len(heard.words), counts[number] + int(chance.integers(1, 30)))
            part = Recognition(heard.words[:count], None, "cpu")
            # Between the last word and the next, anywhere.
            last = heard.words[count - 1].end
            after = heard.words[count].start if count < len(heard.words) else last
            known[number] = PartialTrack(part, float(chance.uniform(min(last, after), after)))
        yield list(known)


def text(transcript, form="txt", pauses=None) -> bytes:
    return writers.content(json_document.in_milliseconds(transcript.styled({"pauses": pauses})), form)


@pytest.mark.slow
@pytest.mark.parametrize(  # one track has but one order
    ("seed", "in_turn"), [*((seed, False) for seed in range(12)), *((seed, True) for seed in range(0, 12, 3))]
)
def test_what_is_final_is_how_the_transcript_begins(seed, in_turn):
    found = findings(seed)
    who = assemble.diarize(found)
    complete = corrections.apply(assemble.make_draft(found))
    whole, marked = text(complete), text(complete, pauses=0.3)
    subtitles = text(complete, "srt")
    lengths, cues = [], [b""]
    for tracks in courses(found.tracks, np.random.default_rng(seed), in_turn=in_turn):
        so_far = partial.final_part(who, tracks)
        count = len(so_far.utterances)
        assert so_far.utterances == complete.utterances[:count]
        assert whole.startswith(text(so_far))
        assert marked.startswith(text(so_far, pauses=0.3))
        lengths.append(count)
        before = cues[-1]
        cues.append(text(so_far, "srt"))
        assert subtitles.startswith(cues[-1])
        assert cues[-1].startswith(before)
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(complete.utterances)
    assert cues[-1] == subtitles
    if len(found.tracks) == 1 and seed % 4:
        assert len(cues[-2]) > len(subtitles) / 2
    # Not all at the end: there is a text when half of the words are known, or half of the last track.
    if seed % 4:
        assert lengths[-len(lengths) // (2 * len(found.tracks) if in_turn else 2)] > 0


@pytest.mark.parametrize("seed", [1, 3])
def test_watchers_of_a_job_are_told_every_segment_once(seed):
    found = findings(seed)
    who, complete = assemble.diarize(found), corrections.apply(assemble.make_draft(found))
    told: list[dict] = []

    def said(first, segments):
        assert first == len(told)
        told.extend(segments)

    heard = worker._new_segments(said, {})
    for tracks in courses(found.tracks, np.random.default_rng(seed)):
        heard(partial.final_part(who, tracks))
    assert told == json.loads(complete.to("openai"))["segments"]


def test_what_a_second_worker_tells_again_is_not_told_twice():
    told = [{"text": str(number)} for number in range(6)]

    async def taken():
        work = Work(None, asyncio.Event().wait)
        for first, last in [(0, 2), (2, 4), (0, 3), (3, 6)]:  # the third begins again
            work.take(first, told[first:last])
        work.gone.cancel()
        return work.said

    assert asyncio.run(taken()) == told


def test_a_stream_is_the_same_however_it_was_cut():
    segments = [{"id": f"seg_{n}", "text": text} for n, text in enumerate(["", "One.", "Two.", "", "Six."])]
    wish = SimpleNamespace(response="diarized_json")
    whole = list(openai_routes.stream_events(wish, segments, 0))
    for cut in range(len(segments) + 1):
        begun = openai_routes.stream_events(wish, segments[:cut], 0)
        assert [*begun, *openai_routes.stream_events(wish, segments, cut)] == whole
    assert [event["delta"] for event in whole if "delta" in event] == ["One.", " Two.", " Six."]


@pytest.mark.parametrize("seed", range(6))
def test_labels_that_are_settled_stay(seed):
    found = findings(seed)
    who = assemble.diarize(found)
    track, words = who.tracks[0], found.tracks[0].recognition.words
    given = track.diarization.evidence, track.diarization.active, track.names
    final, _ = assemble.label(words, *given)
    counts = []
    for known in range(0, len(words), 7):
        labeled, count = assemble.label(words[:known], *given)
        assert labeled[:count] == final[:count]
        counts.append(count)
    assert counts == sorted(counts)
