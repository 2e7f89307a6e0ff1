"""The Python interface, as docs/python.md has it."""

import io
import re
import subprocess
import sys
import threading
import warnings
from contextlib import redirect_stdout

import numpy as np
import pytest
import soundfile

import ggml
import witness
from conftest import CALL, ROOT
from witness import (
    CancelledError,
    Engine,
    InputError,
    ModelError,
    Options,
    Runtime,
    Transcript,
    UsageError,
    WitnessError,
    diarize,
    transcribe,
)

PAGE = (ROOT / "docs" / "python.md").read_text()
pytestmark = pytest.mark.usefixtures("open_models")

OPTIONS = Options(models="builtin", whisper="none", offline=True)

pytestmark = pytest.mark.usefixtures("open_models")


@pytest.fixture(scope="module")
def transcript(short):
    return diarize(short, OPTIONS)


def test_every_name_is_there_and_documented():
    for name in witness.__all__:
        assert getattr(witness, name) is not None
        assert name in dir(witness)
        assert name.startswith("__") or name in PAGE
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = witness.nothing


def test_importing_witness_imports_nothing_heavy():
    code = "import sys, witness; sys.exit(bool({'numpy', 'onnxruntime', 'av'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    """In one place, in order, as a reader would; with a model of tones in the place of a Whisper model."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    for name in ("call", "monday", "tuesday"):
        soundfile.write(tmp_path / f"{name}.wav", samples[: 12 * rate], rate)
    monkeypatch.chdir(tmp_path)
    whisper = ggml.write(tmp_path / "tones.bin")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 8
    standing_in = {
        "Options(speakers=2)": f"Options(models='builtin', whisper={str(whisper)!r}, offline=True)",
        'whisper="base",': f"whisper={str(whisper)!r}, models='builtin', offline=True,",
        "with Engine() as engine:": (
            f"with Engine(Options(whisper={str(whisper)!r}, models='builtin', offline=True)) as engine:"
        ),
        'diarize(soundfile.read("call.wav"))': (
            "diarize(soundfile.read('call.wav'), Options(models='builtin', offline=True))"
        ),
        'transcribe("call.wav", progress': (
            "transcribe('call.wav', Options(models='builtin', whisper='none', offline=True), progress"
        ),
        'diarize("call.wav")': "diarize('call.wav', Options(models='builtin', offline=True))",
        "(reference, ": "(transcript.to_annotation(), ",
    }
    code = "\n".join(blocks)
    for theirs, ours in standing_in.items():
        assert theirs in code
        code = code.replace(theirs, ours)
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()) as said:
        warnings.simplefilter("ignore")
        exec(code, {"__name__": "__main__"})  # noqa: S102
    said = said.getvalue()
    assert "monday.wav ['SPEAKER_01', 'SPEAKER_02']" in said
    assert "whisper.cpp Part(start=2.0, end=10.0)" in said.replace("start=2,", "start=2.0,").replace(
        "end=10)", "end=10.0)"
    )
    assert "decode: done\ncancelled\n" in said
    assert said.strip().endswith("0.00")  # of a transcript against itself


def test_mistakes_of_a_program_are_found_by_its_types(tmp_path):
    """As a user has it who checks a program with `mypy --strict`; test_samples.py has the examples."""
    mypy = pytest.importorskip("mypy.api", reason="mypy is not installed")
    names = "from witness import Options, Runtime, transcribe"
    wrong = 'Options(recognizer=3)\nRuntime(device=None)\ntranscribe("call.wav").to("docx").encode()\n'
    (tmp_path / "wrong.py").write_text(f"{names}\n\n{wrong}")
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    said, _, _ = mypy.run([*config, str(tmp_path / "wrong.py")])
    assert "Found 3 errors in 1 file (checked 1 source file)" in said, said
    assert "wrong.py:" in said


@pytest.mark.parametrize("recording", [b"call.wav", None, io.BytesIO(b"RIFF"), 3, ["call.wav"]])
def test_what_is_not_a_recording_is_refused(recording):
    with pytest.raises(InputError, match="a recording is a path, or samples and their rate"):
        diarize(recording, OPTIONS)


def test_a_transcript_is_kept_and_read_in_every_format(toned, tmp_path):
    toned.save(tmp_path / "call.json")
    read = Transcript.load(str(tmp_path / "call.json"))
    assert [word.text.strip() for word in read.words] == [word.text.strip() for word in toned.words]
    for name in ("call.srt", "call.docx", "call.qda.txt"):
        read.save(tmp_path / name)
    assert (tmp_path / "call.srt").read_text() == read.to("srt") == toned.to("srt")
    assert read.to("docx") == (tmp_path / "call.docx").read_bytes()
    with pytest.raises(UsageError, match="names no format"):
        read.save(tmp_path / "call.mp3")
    with pytest.raises(UsageError, match="choose one of txt, "):
        read.to("mp3")
    with pytest.raises(InputError, match="cannot be read"):
        Transcript.load(tmp_path / "nothing.json")


@pytest.mark.slow
def test_an_engine_is_open_while_it_is_used(transcript, short):
    with Engine(OPTIONS, Runtime(threads=1)) as engine:
        assert "segmenter" in vars(engine)
        assert engine.transcribe(short).turns == transcript.turns
    assert "segmenter" not in vars(engine)
    with pytest.raises(ModelError), Engine(Options(models="nowhere/", offline=True)):
        pytest.fail("it was opened")


def test_samples_give_what_the_file_gives(transcript, short):
    samples, rate = soundfile.read(short, dtype="float32")
    whole = diarize((samples, rate), OPTIONS)
    assert whole.turns == transcript.turns
    assert np.array_equal(
        whole.findings.tracks[0].vectors, transcript.findings.tracks[0].vectors, equal_nan=True
    )
    assert whole.audio.path == "<samples>"
    assert whole.audio.duration == transcript.audio.duration


def test_integers_are_samples_too(transcript, short):
    samples, rate = soundfile.read(short, dtype="int16")
    assert diarize((samples, rate), OPTIONS).turns == transcript.turns


def test_an_engine_takes_one_recording_after_the_other(transcript, short):
    engine = Engine(OPTIONS, Runtime(threads=1))
    assert [engine.transcribe(short).turns for _ in range(2)] == [transcript.turns] * 2


@pytest.mark.parametrize("stage", ["decode", "segmentation", "embedding", "clustering"])
def test_cancelled_in_any_stage(short, stage):
    cancel = threading.Event()
    seen = []

    def progress(name: str, _done: float, _total: float) -> None:
        seen.append(name)
        if name == stage:
            cancel.set()

    with pytest.raises(CancelledError):
        transcribe(short, OPTIONS, progress=progress, cancel=cancel)
    assert seen[-1] == stage or stage in seen[-3:]  # two stages report at the same time


def test_cancelled_while_words_are_recognized(tmp_path):
    """With a recognizer that never comes to the end of its text, so that only cancelling ends it soon."""
    whisper = ggml.write(tmp_path / "endless.bin", endless=True)
    tones = 0.2 * ggml.tones(*[ggml.LOW] * 40)
    soundfile.write(tmp_path / "tones.wav", tones, 16_000)
    cancel = threading.Event()
    options = Options(models="builtin", whisper=str(whisper), offline=True)

    def progress(name: str, _done: float, _total: float) -> None:
        if name == "clustering":
            cancel.set()

    with pytest.raises(CancelledError):
        transcribe(tmp_path / "tones.wav", options, progress=progress, cancel=cancel)


def test_what_a_callback_raises_reaches_the_caller(short):
    def progress(name: str, _done: float, _total: float) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError):
        diarize(short, OPTIONS, progress=progress)


def test_words_for_choices_are_checked():
    assert Options(channels="split") == Options(channels=witness.options.Channels.SPLIT)
    for make in (lambda: Options(channels="both"), lambda: Runtime(device="gpu")):
        with pytest.raises(UsageError, match="choose one of auto, "):
            make()


def test_an_annotation_of_pyannote(transcript):
    annotation = transcript.to_annotation()
    assert annotation.uri == "call"
    tracks = [(part.start, part.end, label) for part, _, label in annotation.itertracks(yield_label=True)]
    assert tracks == [(turn.start, turn.end, turn.speaker) for turn in sorted(transcript.turns)]


def test_an_annotation_without_pyannote(transcript, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyannote.core", None)
    with pytest.raises(WitnessError, match=r"pip install pyannote\.core"):
        transcript.to_annotation()
