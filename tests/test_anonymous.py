"""What is given away without names, in text and sound."""

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from conftest import CALL
from test_writers import said, transcript
from witness.audio import decode, sound
from witness.formats import json_document, writers
from witness.formats.registry import Format
from witness.schema import SAMPLE_RATE, Correction, Part, Source, Speaker, Turn, Word
from witness.transcript.anonymous import MARGIN, anonymize


def named(*lines: tuple[str, str], names=("Anna Schmidt", "Will Ng")):
    """A talk of two with these names; a line is an id and what it says, a word a second."""
    found, start = [], 0.0
    for speaker, text in lines:
        found.append(said(speaker, start, text))
        start += 10.0
    made = transcript(found)
    ids = sorted({one.speaker for one in found})
    speakers = [Speaker(one, 10.0, 0.5, name) for one, name in zip(ids, names, strict=False)]
    turns = [Turn(one.start, one.end, one.speaker) for one in found]
    return replace(made, speakers=tuple(speakers), turns=tuple(turns))


def texts(found) -> list[str]:
    return [utterance.text for utterance in found.transcript.utterances]


def test_names_become_codes_in_the_order_in_which_people_speak():
    talk = named(
        ("SPEAKER_02", "I am Will, and this is Anna Schmidt, of course."),
        ("SPEAKER_01", "Thank you, Will. ANNA will do; Anna's or Annas, not Annabel."),
    )
    found = anonymize(talk)
    assert [speaker.name for speaker in found.transcript.speakers] == ["P02", "P01"]
    assert texts(found) == [
        "I am P01, and this is P02, of course.",
        "Thank you, P01. P02 will do; P02's or P02s, not Annabel.",
    ]
    words = list(talk.utterances[0].words)
    covered = [word for word in words if word.text.strip(" ,.") in ("Will", "Anna", "Schmidt")]
    inside = [any(a <= word.start and word.end <= b for a, b in found.covered) for word in covered]
    assert all(inside)
    assert not any(a < words[0].end - 1e-9 - MARGIN < b for a, b in found.covered)


def test_a_name_of_two_is_nobody_s_and_other_words_are_hidden_too():
    talk = named(("SPEAKER_01", "The Schmidts of munich, Dr. Meyer."), names=("Anna Schmidt", "Ole Schmidt"))
    talk = replace(talk, speakers=(*talk.speakers, Speaker("SPEAKER_02", 1.0, 0.1, "Ole Schmidt")))
    assert texts(anonymize(talk, ["Munich", "Meyer"])) == ["The […]s of […], Dr. […]."]


def test_a_passage_that_somebody_wrote_is_covered_where_the_name_is():
    talk = named(("SPEAKER_01", "x"))
    word = Word(10.0, 20.0, " one two three Anna four five six", "SPEAKER_01", corrected=True)
    talk = replace(talk, utterances=(replace(talk.utterances[0], words=(word,), start=10.0, end=20.0),))
    found = anonymize(talk)
    assert texts(found) == ["one two three P01 four five six"]
    ((start, end),) = found.covered
    assert 13.5 < start < 15.0
    assert 15.0 < end < 16.5


def test_scripts_without_spaces():
    talk = named(("SPEAKER_01", "我叫田中先生"), names=("田中",))
    assert texts(anonymize(talk)) == ["我叫P01先生"]


@pytest.mark.parametrize("form", Format)
def test_no_format_tells_a_name(form):
    talk = named(("SPEAKER_01", "I am Anna Schmidt."), ("SPEAKER_02", "And I am Will Ng."))
    talk = replace(
        talk,
        audio=replace(talk.audio, path="/calls/anna/interview_anna_Schmidt-1.wav"),
        corrections=(Correction("name", ((0.0, 1.0),), "Anna Schmidt"),),
        warnings=("/calls/anna/interview_anna_Schmidt-1.wav: is short",),
    )
    found = anonymize(json_document.in_milliseconds(talk))
    assert found.transcript.audio.path == "recording"
    content = writers.content(found.transcript, form)
    if form in (Format.DOCX, Format.QDPX):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"".join(map(archive.read, archive.namelist()))
    for name in ("anna", "schmidt"):
        assert name.encode() not in content.lower()
    assert b"P01" in content


def test_a_tone_covers_spans_and_nothing_else():
    rng = np.random.default_rng(1)
    samples = rng.uniform(-0.5, 0.5, 4 * SAMPLE_RATE).astype(np.float32)
    blocks = np.split(samples, [100, 16_123, 40_000])
    covered = np.concatenate(list(sound.cover(blocks, ((11.0, 11.5), (13.5, 99.0)), begin=10.0)))
    inside = np.zeros(len(samples), bool)
    inside[SAMPLE_RATE : SAMPLE_RATE * 3 // 2] = inside[7 * SAMPLE_RATE // 2 :] = True
    assert (covered[~inside] == samples[~inside]).all()
    spectrum = np.abs(np.fft.rfft(covered[SAMPLE_RATE : SAMPLE_RATE * 3 // 2]))
    assert np.argmax(spectrum) * 2 == sound.PITCH
    assert (np.concatenate(blocks) == samples).all()  # what was given is unchanged


def test_the_mp3_has_the_recording_s_times(tmp_path):
    heard = list(decode.blocks(str(CALL)))
    duration = sum(map(len, heard)) / SAMPLE_RATE
    source = Source(str(CALL), duration, 1, "", Part(2.0, 9.0))
    made = tmp_path / "call.mp3"
    made.write_bytes(sound.mp3(str(CALL), source, ((4.0, 5.0),)))
    assert sound.mp3(str(CALL), source, ((4.0, 5.0),)) == made.read_bytes()
    back = np.concatenate(list(decode.blocks(str(made))))
    assert abs(len(back) / SAMPLE_RATE - duration) < 0.15
    level = [float(np.sqrt(np.mean(part**2))) for part in np.array_split(back, round(duration * 10))]
    assert max(level[:17]) < 1e-3  # what nobody transcribed
    assert max(level[95:]) < 1e-3
    middle = back[round(4.2 * SAMPLE_RATE) : round(4.8 * SAMPLE_RATE)]
    assert abs(np.argmax(np.abs(np.fft.rfft(middle))) / 0.6 - sound.PITCH) < 3


@pytest.mark.parametrize(
    ("names", "text", "clear"),
    [
        (("Sinéad O'Neil",), "ONeil, oneil O'Neil and SO_Neil2", "P01, oneil P01 and P01"),
        (("Will Ng",), "will power Will_Power will2 goodwill Will", "will power P01 P01 goodwill P01"),
        (("Anna Meyer",), "annameyer MeyerAnna XAnna anna@x.org Annabel", "P01 P01 P01 P01@x.org Annabel"),
        (("Caller 12",), "12 times, Caller", "12 times, P01"),
        (("Eva van de Berg",), "van de Berg, Berg van Berger", "van de P01, P01 van Berger"),
        (("Анна Петрова",), "АннаПетрова анна_1 Ань", "P01 P01 Ань"),
    ],
)
def test_names_inside_tokens(names, text, clear):
    assert texts(anonymize(named(("SPEAKER_00", text), names=names))) == [clear]


def test_short_first_names_are_found_in_text_and_sound_and_forms_of_address_stay():
    talk = named(
        ("SPEAKER_01", "I am Jo. Joan met Dr. Li, not JO_Meyer7 or MeyerLi."),
        names=("Jo Meyer", "Dr. Li Ng"),
    )
    talk = replace(talk, speakers=(*talk.speakers, Speaker("SPEAKER_02", 1.0, 0.1, "Dr. Li Ng")))
    found = anonymize(talk)
    assert texts(found) == ["I am P01. Joan met Dr. P02, not P01 or […]."]
    words = talk.utterances[0].words
    hidden = [words[number] for number in (2, 6, 8, 10)]
    assert all(any(a <= word.start and word.end <= b for a, b in found.covered) for word in hidden)
    assert not any(a <= words[3].start and words[3].end <= b for a, b in found.covered)
