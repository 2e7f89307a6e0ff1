"""Words and times of whisper.cpp in its child process, on a model that says what the tests tell it to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import _pywhispercpp as pw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ggml
from witness import languages
from witness.child import Child
from witness.errors import CancelledError, TranscriptionError, UsageError
from witness.languages import LANGUAGES
from witness.models.ggml_header import FIELDS, MAGIC, GgmlHeader
from witness.options import Options
from witness.progress import AboutMachine, Reporter, no_progress
from witness.recognition import engine_client, gpus, tokens, whisper_cpp
from witness.recognition.chunking import BRIEF, WINDOW, Loudness, Piece, gaps, pieces
from witness.recognition.engine import ChunkResult, EngineToken
from witness.recognition.fallback import Coverage, Note, check_texts, doubt, format_notes, recognize_gaps
from witness.recognition.language_tracking import (
    Tracker,
    TrackLanguages,
    decide,
    keep_allowed,
    may_change,
)
from witness.recognition.recognizer import (
    TrackRecognizer,
    context,
    fit,
    without_control_tokens,
)
from witness.recognition.tokens import Token
from witness.recognition.track_input import TrackInput
from witness.recognition.vad import FRAME, FRAME_RATE, Speech
from witness.schema import (
    FRAME_DURATION,
    FRAME_STEP,
    FRAMES,
    LOCAL_SPEAKERS,
    SAMPLE_RATE,
    ModelFile,
    Segmentation,
    Word,
)
from witness.transcript import corrections

L, H = ggml.LOW, ggml.HIGH


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("whisper")


@pytest.fixture(scope="module")
def model(folder):
    return ggml.write(folder / "english.bin")


@pytest.fixture(scope="module")
def multilingual(folder):
    return ggml.write(folder / "multilingual.bin", vocabulary=ggml.MULTILINGUAL)


@pytest.fixture(scope="module")
def endless(folder):
    """It needs seconds for a piece: it never comes to the end of its text, and is asked again and again."""
    return ggml.write(folder / "endless.bin", endless=True)


def started(path, *, language=None, threads=1, progress=no_progress):
    model = ModelFile("synthetic", str(path), "", "whisper.cpp")
    return TrackRecognizer(model, Options(language=language), threads=threads, reporter=Reporter(progress))


def recognize(path, *tracks, **options):
    with started(path, **options) as running:
        for track in tracks:
            running.send(track)
        return [running.result() for _ in tracks]


def failure(path, samples=None, **options) -> str:
    with pytest.raises(TranscriptionError) as caught:
        recognize(path, ggml.tones(L) if samples is None else samples, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def texts(words):
    return [word.text for word in words]


def alive(pid):
    """Running; a zombie, whose parent has not yet asked, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


# ── The real child and the real whisper.cpp ──


def test_words_and_times(model):
    (found,) = recognize(model, ggml.tones(L, L, H, L, H))
    assert texts(found.words) == [" one", " two", " drei", " four", " fünf"]
    np.testing.assert_allclose([word.end for word in found.words], [1, 2, 3, 4, 5], atol=0.08)
    starts = [word.start for word in found.words]
    assert all(number <= start < number + 0.6 for number, start in enumerate(starts))
    assert (found.language, found.warnings) == ("en", ())
    assert found.device == "cpu" or gpus.has_gpu_backend()


def test_a_character_split_over_two_tokens(folder):
    low = [b" caf", b"\xc3", b"\xa9", b" au", b" \xe6\x97", b"\xa5\xe6", b"\x9c\xac"]
    (found,) = recognize(ggml.write(folder / "split.bin", low=low), ggml.tones(*[L] * 7))
    assert "".join(texts(found.words)) == " café au 日本"
    assert found.words[0].text == " café"
    assert found.words[0].end == pytest.approx(3, abs=0.08)


def test_a_character_split_over_two_pieces(folder):
    """The first piece ends inside a character, and the second begins with the rest of it."""
    path = ggml.write(folder / "torn.bin", low=[b"\xa9", *ggml.LOW_SCRIPT[1:24], b" caf\xc3"])
    audio = ggml.tones(*[L] * 25, None, None, *[L] * 9)
    (found,) = recognize(path, audio)
    assert texts(found.words)[0] == "\ufffd two"  # the very first has nothing to go on from
    assert texts(found.words)[22:26] == [" d", " café", " two", " three"]


@pytest.mark.slow
def test_the_language_is_heard_where_most_is_said(multilingual):
    quiet = 0.01 * ggml.tones(*[L] * 27, None, None)
    (found,) = recognize(multilingual, np.concatenate([quiet, ggml.tones(*[H] * 9)]))
    assert found.language == "de"
    (found,) = recognize(multilingual, ggml.tones(L, H))
    assert found.language == "en"
    assert texts(found.words) == [" one", " zwei"]
    (found,) = recognize(multilingual, ggml.tones(L, H), language="fr")
    assert found.language == "fr"


@pytest.mark.slow
def test_long_audio_is_cut_and_put_together(model):
    spoken = [*[L] * 24, None, *[H] * 23, None, *[L] * 24, None, *[H] * 21]
    steps = []
    (found,) = recognize(model, ggml.tones(*spoken), progress=lambda *step: steps.append(step))
    assert len(spoken) == 95
    expected = []
    for script, first, count in (
        (ggml.LOW_SCRIPT, 0, 24),
        (ggml.HIGH_SCRIPT, 25, 23),
        (ggml.LOW_SCRIPT, 49, 24),
        (ggml.HIGH_SCRIPT, 74, 21),
    ):
        expected += [(script[number].decode(), first + number + 1) for number in range(count)]
    assert texts(found.words) == [text for text, _ in expected]
    np.testing.assert_allclose([word.end for word in found.words], [end for _, end in expected], atol=0.3)
    assert {(stage, total) for stage, _, total in steps} == {("transcription", 95.0)}
    done = [seconds for _, seconds, _ in steps]
    assert done == sorted(done)
    assert len(done) >= 4
    assert done[-1] == 95.0


def test_two_tracks_one_child(model):
    steps = []
    first, second = recognize(
        model, ggml.tones(L, L), ggml.tones(H, H, H), progress=lambda *step: steps.append(step)
    )
    assert texts(first.words) == [" one", " two"]
    assert texts(second.words) == [" eins", " zwei", " drei"]
    assert second.words[0].start < 1  # each from its own beginning
    assert [step[1] for step in steps] == sorted(step[1] for step in steps)
    assert steps[-1] == ("transcription", 5.0, 5.0)


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing(model):
    audio = ggml.tones(*[L, H, H] * 9, None, *[H, L] * 6)
    one, two, four = (recognize(model, audio, threads=threads) for threads in (1, 2, 4))
    assert one == two == four


def child_of(folder, code):
    """What starts a child that runs the code."""
    (folder / "child_of_a_test.py").write_text(code)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return lambda: Child("child_of_a_test", {**os.environ, "PYTHONPATH": path})


COUNTING_CHILD = """
from witness.child import serve
workers, waiting = {}, {{}}
def answer(request, _):
    if request["do"] == "load":
        return {{"device": "cpu", "languages": ["en"], "workers": workers, "batch": 4}}, ()
    if request["do"] == "hear":
        waiting[request["number"]] = count = len(request["lengths"])
        with open({!r}, "a") as log:
            log.write(f"{{count}}\\n")
        return {{}}, ()
    if request["do"] == "done":
        return {{"done": True}}, ()
    return {{"heard": [{{"tokens": [], "language": "en"}}] * waiting.pop(request["number"])}}, ()
serve(answer)
"""
"""Hears nothing, and writes down how many pieces it was given together."""


@pytest.mark.parametrize(
    ("seconds", "workers", "together"),
    [
        (60, 1, 2),  # no other worker is idle meanwhile
        (60, 2, 1),
        (130, 2, 3),
        (250, 2, 3),  # two rounds of two groups
        (250, 4, 3),
        (250, 16, 1),  # four together would be work for two workers
        (610, 4, 4),
    ],
)
def test_pieces_are_heard_together_once_every_worker_has_some(
    model, monkeypatch, tmp_path, seconds, workers, together
):
    log = tmp_path / "log"
    start = child_of(tmp_path, COUNTING_CHILD.format(workers, str(log)))
    monkeypatch.setattr(engine_client, "_start", lambda *_, **__: start())
    recognize(model, ggml.tones(*[L] * seconds))
    groups = [int(line) for line in log.read_text().split()]
    assert max(groups) == together
    assert sum(groups) >= seconds / 30


def test_on_a_cpu_it_waits_for_its_turn(model):
    steps = []
    with started(model, progress=lambda *step: steps.append(step)) as running:
        running.hold()
        running.send(ggml.tones(L, H))
        time.sleep(1.5)
        assert steps == []
        running.go_on()
        assert texts(running.result().words) == [" one", " zwei"]


def test_silence_has_no_words(endless):
    """Never sent to whisper: this model would talk."""
    noise = np.random.default_rng(0).uniform(-1e-4, 1e-4, 50_000).astype(np.float32)
    found = recognize(endless, *(noise[:samples] for samples in (0, 1, 16_000, 50_000)))
    assert [one.words for one in found] == [()] * 4


def test_a_third_of_a_second(model):
    (found,) = recognize(model, ggml.tones(L)[:5333])
    assert texts(found.words) == [" one"]
    assert 0 <= found.words[0].start <= found.words[0].end <= 1 / 3


def test_text_without_end_is_left_out_and_said_so(folder):
    """The longest text of this model is a short one, because it is asked for it again and again."""
    brief = ggml.write(folder / "brief.bin", endless=True, steps=32)
    (found,) = recognize(brief, ggml.tones(L, H))
    assert found.words == ()
    (warning,) = found.warnings
    assert "0:00 to 0:02" in warning


def test_nothing_is_printed(model, capfd):
    recognize(model, ggml.tones(L))
    assert capfd.readouterr() == ("", "")


def test_modules_of_the_current_folder_are_not_run(model, tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    (found,) = recognize(os.path.relpath(model), ggml.tones(L))
    assert texts(found.words) == [" one"]


def test_the_child_imports_little():
    code = "import sys, witness.recognition.whisper_cpp; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"onnxruntime", "onnx", "scipy", "requests", "tqdm", "av"} & set(result.stdout.split())


# ── Processes ──


@pytest.fixture
def working(monkeypatch):
    """Waits until the child has been given a piece, and a little more, so that it is inside whisper_full."""
    begun = threading.Event()
    hear = TrackRecognizer._decode

    def watched(*arguments, **options):
        begun.set()
        return hear(*arguments, **options)

    def wait():
        assert begun.wait(60)
        time.sleep(0.3)

    monkeypatch.setattr(TrackRecognizer, "_decode", watched)
    return wait


def test_leaving_ends_the_child_at_once(endless, working):
    with started(endless) as running:
        running.send(ggml.tones(*[L] * 29))
        working()
        pid = running._engine._child.pid
        assert alive(pid)
        begun = time.monotonic()
    assert time.monotonic() - begun < 15  # the piece takes much longer
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # not even a zombie


def test_whoever_waits_for_words_can_change_their_mind(endless):
    """Nothing is reported while a long piece is heard, so whoever waits has to look."""

    def check():
        raise CancelledError("cancelled")

    model = ModelFile("synthetic", str(endless), "")
    with TrackRecognizer(model, threads=1, reporter=Reporter(check=check)) as running:
        running.send(ggml.tones(*[L] * 29))
        with pytest.raises(CancelledError):
            running.result()
        pid = running._engine._child.pid
    assert not alive(pid)


def test_an_exception_ends_the_child(model):
    running = started(model)
    with pytest.raises(KeyboardInterrupt), running:
        raise KeyboardInterrupt
    assert not alive(running._engine._child.pid)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_child_is_an_error_of_one_line(endless, working):
    with started(endless) as running:
        running.send(ggml.tones(*[L] * 29))
        working()
        running._engine._child.kill()
        begun = time.monotonic()
        with pytest.raises(TranscriptionError, match=r"^[^\n]*SIGKILL at 0:00[^\n]*endless\.bin[^\n]*$"):
            running.result()
        assert time.monotonic() - begun < 15
        running.send(ggml.tones(L))
        with pytest.raises(TranscriptionError, match="SIGKILL"):
            running.result()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_child_leaves_ctrl_c_to_its_parent(model):
    with started(model) as running:
        running.send(ggml.tones(L))
        running.result()
        os.kill(running._engine._child.pid, signal.SIGINT)
        running.send(ggml.tones(L, L))
        assert len(running.result().words) == 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_parent_leaves_no_orphan(endless):
    code = (
        "import sys, time, ggml\nfrom witness.recognition.recognizer import TrackRecognizer\n"
        "from witness.schema import ModelFile\n"
        "running = TrackRecognizer(ModelFile('m', sys.argv[1], ''), threads=1)\n"
        "running.send(ggml.tones(*[300.0] * 29))\n"
        "print(running._engine._child.pid, flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code, str(endless)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())
        time.sleep(1)
        assert alive(pid)
        parent.kill()
    assert wait_until(lambda: not alive(pid), 15)


# ── Models that are none ──


def test_a_missing_model(tmp_path):
    assert "No such file" in failure(tmp_path / "none.bin")


@pytest.mark.parametrize("content", [b"", b"lmgg", b"not a model, but text", b"GGUF" + bytes(5000)])
def test_another_kind_of_file(tmp_path, content):
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    assert "witness models" in failure(path)


@pytest.mark.parametrize("size", [40, 60, 3000, 65_000, 7_000_000, -1])
def test_a_truncated_model(model, tmp_path, size):
    path = tmp_path / "short.bin"
    path.write_bytes(model.read_bytes()[:size])
    assert "damaged" in failure(path)


@pytest.mark.parametrize("place", range(4, 48, 4))
def test_a_flipped_byte_in_the_header(model, tmp_path, place):
    """Whoever notices it, the walk over the file, whisper.cpp or the operating system: no crash here."""
    data = bytearray(model.read_bytes())
    data[place] ^= 0x7F
    path = tmp_path / "flipped.bin"
    path.write_bytes(data)
    failure(path)


def test_a_crash_while_loading(model, monkeypatch):
    """As a damaged file that passes every check would do it: the child dies before its first answer."""
    start = engine_client._start

    def start_and_crash(name, *, gpu):
        child = start(name, gpu=gpu)
        os.kill(child.pid, signal.SIGSEGV)
        return child

    monkeypatch.setattr(engine_client, "_start", start_and_crash)
    message = failure(model)
    assert "SIGSEGV while loading" in message
    assert "witness models verify" in message


GPU_CHILD = """
import os
from witness.child import serve
how, pieces = {!r}, {!r}
def answer(request, _):
    global pieces
    if request["do"] == "load" and how != "load":
        return {{"device": "vulkan: A Card", "languages": ["en"], "workers": 1, "batch": 1}}, ()
    if request["do"] == "hear":
        return {{}}, ()
    if pieces:
        pieces -= 1
        return {{"heard": [{{"tokens": [], "language": "en"}}]}}, ()
    if how == "error":
        raise RuntimeError("the encoder failed (whisper_full returned -6)")
    os.abort()
serve(answer)
"""
"""Answers like a child on a GPU, which fails while loading, or after so many pieces."""


@pytest.fixture
def on_gpu(monkeypatch, tmp_path):
    """`on_gpu(how, pieces)`: the first child is one that fails on its GPU; what each was started with."""
    start, started = engine_client._start, []

    def prepare(how, pieces):
        failing = child_of(tmp_path, GPU_CHILD.format(how, pieces))

        def fail_first(name, *, gpu):
            started.append(gpu)
            return failing() if gpu else start(name, gpu=gpu)

        monkeypatch.setattr(engine_client, "_start", fail_first)
        return started

    monkeypatch.setattr(gpus, "has_gpu_backend", lambda: True)
    return prepare


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("load", 0), "SIGABRT while loading"),
        (("crash", 0), "SIGABRT at 0:00 of the recording"),
        (("error", 0), "the encoder failed"),
    ],
)
def test_what_fails_on_the_gpu_is_done_on_the_cpu(model, on_gpu, arguments, cause):
    started = on_gpu(*arguments)
    (found,) = recognize(model, ggml.tones(L, L, L))
    assert started == [True, False]
    assert texts(found.words) == [" one", " two", " three"]
    assert found.device == "cpu"
    (warning,) = found.warnings
    assert warning.startswith("whisper.cpp failed on the GPU, so the CPU went on: ")
    assert cause in warning
    assert isinstance(warning, AboutMachine)


def test_what_the_gpu_did_before_it_failed_is_kept(model, on_gpu):
    on_gpu("crash", 1)
    first, second = recognize(model, ggml.tones(L), ggml.tones(L, H))
    assert (first.words, first.device, first.warnings) == ((), "vulkan: A Card", ())  # as the fake said
    assert (texts(second.words), second.device, len(second.warnings)) == ([" one", " zwei"], "cpu", 1)


def test_what_fails_on_the_cpu_too_is_an_error(folder, on_gpu):
    started = on_gpu("load", 0)
    broken = folder / "no-model.bin"
    broken.write_bytes(b"no model at all")
    assert "not a Whisper model" in failure(broken)
    assert started == [True, False]


def test_leaving_while_the_gpu_fails_starts_no_other_child(endless, on_gpu):
    starts = on_gpu("crash", 1000000)
    with started(endless) as running:
        running.send(ggml.tones(*[L] * 60))
    assert starts == [True]


def test_the_first_discrete_card_is_chosen():
    own = "ggml_vulkan: 0 = AMD Radeon Graphics (RADV RAPHAEL) (radv) | uma: 1 | fp16: 1 | bf16: 0"
    card = "ggml_vulkan: 1 = AMD Radeon RX 9070 (RADV GFX1201) (radv) | uma: 0 | fp16: 1 | bf16: 1"
    assert whisper_cpp.best_device([own, card]) == 1
    assert whisper_cpp.best_device([card.replace("1 =", "0 ="), own.replace("0 =", "1 =")]) == 0
    assert whisper_cpp.best_device([own]) == 0
    assert whisper_cpp.best_device([]) == 0


@pytest.mark.parametrize(
    ("width", "layers", "printed"),
    [
        # What whisper.cpp 1.8.5 printed beside the file's size: keys and values of text (once) and audio,
        # and the buffers of convolution, encoder, attention and decoder, in MB.
        (384, 4, 3.15 + 9.44 + 13.21 + 64.81 + 3.89 + 144.98),
        (512, 6, 6.29 + 18.87 + 16.28 + 85.88 + 4.66 + 161.80),
        (768, 12, 18.87 + 56.62 + 22.42 + 128.02 + 6.20 + 166.54),
        (1024, 24, 50.33 + 150.99 + 28.57 + 170.17 + 7.73 + 221.22),
        (1280, 4, 10.49 + 31.46 + 36.15 + 212.31 + 9.27 + 275.90),
        (1280, 32, 83.89 + 251.66 + 36.15 + 212.31 + 9.27 + 275.90),
    ],
)
def test_memory_on_a_gpu(tmp_path, width, layers, printed):
    path = tmp_path / "model.bin"
    sizes = (51866, 1500, width, width // 64, 32, 448, width, width // 64, layers, 128, 8)
    path.write_bytes(MAGIC + FIELDS.pack(*sizes) + bytes(1_000_000))
    retries = 6 * 4 * width * layers * 512 / 1e6
    needed = gpus.memory(ModelFile("m", str(path), "")) / 1e6
    assert needed == pytest.approx(1 + printed + retries, rel=0.1)


def test_memory_on_a_gpu_by_recognizer(tmp_path):
    """large-v3-turbo-q5_0 took 1158 and 1302 MiB of an H100; CTranslate2 and onnx-asr stay on the CPU."""
    path = tmp_path / "model.bin"
    path.write_bytes(MAGIC + FIELDS.pack(51866, 1500, 1280, 20, 32, 448, 1280, 20, 4, 128, 8))
    with path.open("r+b") as file:
        file.truncate(574_041_195)
    whisper, transcribe, ctranslate, onnx = (
        gpus.memory(ModelFile("m", str(path), "", engine))
        for engine in ("whisper.cpp", "transcribe-cpp", "ctranslate2", "onnx-asr")
    )
    assert whisper == pytest.approx(1158 << 20, rel=0.03)
    assert transcribe == pytest.approx(1302 << 20, rel=0.03)
    assert ctranslate == onnx == 0


def test_memory_of_what_is_no_model(tmp_path):
    for content in (b"", b"lmgg", bytes(100)):
        (tmp_path / "no-model.bin").write_bytes(content)
        assert gpus.memory(ModelFile("m", str(tmp_path / "no-model.bin"), "")) is None
    assert gpus.memory(ModelFile("m", str(tmp_path / "missing.bin"), "")) is None


@pytest.mark.skipif(not gpus.has_gpu_backend(), reason="this whisper.cpp was built for the CPU")
def test_words_on_the_gpu_of_this_machine(model):
    (found,) = recognize(model, ggml.tones(L, H, L))
    if found.device == "cpu":
        pytest.skip(f"no GPU was used: {found.warnings}")
    assert texts(found.words) == [" one", " zwei", " three"]
    assert found.warnings == ()


def test_languages_are_those_of_whisper(model, multilingual):
    known = tuple(pw.whisper_lang_str(number) for number in range(pw.whisper_lang_max_id() + 1))
    assert known == LANGUAGES
    with pytest.raises(UsageError, match=r"'xx'.*en, zh, de"):
        started(model, language="xx")
    with pytest.raises(UsageError, match="only English"):
        recognize(model, ggml.tones(L), language="de")
    with pytest.raises(UsageError, match="'yue'"):  # came with the 100th language, in large-v3
        recognize(multilingual, ggml.tones(L), language="yue")


# ── Without a child ──


@pytest.mark.parametrize(
    ("shape", "heads", "languages"),
    [
        ((51865, 1500, 384, 6, 4, 448, 384, 6, 4, 80), "TINY", 99),
        ((51864, 1500, 512, 8, 6, 448, 512, 8, 6, 80), "BASE_EN", 1),
        ((51865, 1500, 1280, 20, 32, 448, 1280, 20, 32, 80), "LARGE_V2", 99),
        ((51866, 1500, 1280, 20, 32, 448, 1280, 20, 32, 128), "LARGE_V3", 100),
        ((51866, 1500, 1280, 20, 32, 448, 1280, 20, 4, 128), "LARGE_V3_TURBO", 100),
        ((51866, 1500, 1280, 20, 32, 448, 1280, 20, 2, 128), "N_TOP_MOST", 100),
    ],
)
def test_what_a_header_says(shape, heads, languages):
    header = GgmlHeader(*shape, 1)
    assert header.plausible
    assert (header.alignment_heads, header.languages) == (heads, languages)
    assert hasattr(pw, f"WHISPER_AHEADS_{heads}")


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        (["whisper_backend_init_gpu: no GPU found"], "cpu"),
        (
            [
                "ggml_vulkan: 0 = AMD Radeon RX 9070 (RADV GFX1201) (radv) | uma: 0 | fp16: 1",
                "whisper_backend_init_gpu: using Vulkan0 backend",
            ],
            "vulkan: AMD Radeon RX 9070 (RADV GFX1201)",
        ),
        (["whisper_backend_init_gpu: using Metal backend"], "metal"),
        (
            [
                "whisper_backend_init_gpu: using Vulkan0 backend",
                "whisper_backend_init_gpu: failed to initialize Vulkan0 backend",
            ],
            "cpu",
        ),
        (["whisper_backend_init_gpu: no GPU found", "whisper_backend_init: using BLAS backend"], "cpu"),
    ],
)
def test_device_name(lines, device):
    assert whisper_cpp.device_name(lines) == device


def test_gpu_backend_is_seen_by_its_library(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus.sys, "platform", "linux")
    origin = type("Spec", (), {"origin": str(tmp_path / "_pywhispercpp.so")})
    monkeypatch.setattr(gpus, "find_spec", lambda _: origin)
    (tmp_path / "libggml-cpu.so").touch()
    assert not gpus.has_gpu_backend()
    (tmp_path / "pywhispercpp.libs").mkdir()
    (tmp_path / "pywhispercpp.libs" / "libggml-vulkan-0123.so.0").touch()
    assert gpus.has_gpu_backend()


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=40), st.lists(st.integers(0, 160), max_size=30))
def test_characters_survive_any_split(text, cuts):
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges)]
    found = tokens.characters(parts)
    assert len(found) == len(parts)
    assert "".join(found) == text
    for part, characters in zip(parts, found, strict=True):  # each has those that begin in it
        assert len(characters) == sum(byte & 0xC0 != 0x80 for byte in part)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6), max_size=12))
def test_characters_of_anything(parts):
    assert "".join(tokens.characters(parts)) == b"".join(parts).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([b" caf\xc3", b"\xa9"], [" café", ""]),
        ([b"\xe6", b"\x97", b"\xa5"], ["日", "", ""]),
        ([b"a", b"\xc3"], ["a", "\ufffd"]),
        ([b"\xc3", b"\xc3\xa9"], ["\ufffd", "é"]),
        ([b"\xe2\x82", b"A"], ["\ufffd", "A"]),
    ],
)
def test_characters(parts, expected):
    assert tokens.characters(parts) == expected


def split(*pieces: list[bytes]) -> list[str]:
    parsed = [[Token(part, n, n + 1) for n, part in enumerate(piece)] for piece in pieces]
    return texts(tokens.to_words(parsed))


def test_words_of_tokens():
    assert split([b" Don", b"'t", b",", b" stop", b"!", b' "', b"Yes", b'"', b" ..."]) == [
        *(" Don't,", " stop!", ' "Yes" ...'),
    ]
    assert split(["你好".encode(), "，".encode(), "世".encode(), "界".encode(), b"ok", b"!"]) == [
        *("你好，", "世", "界", "ok!"),
    ]
    assert split(["ラ".encode(), "ー".encode(), "メン".encode()]) == ["ラー", "メン"]
    assert split([b"..."], [b" yes"], [b"no", b" \xe2\x99\xaa"], [b" \xe2\x99\xaa"]) == [" yes", " no ♪"]
    assert split([b" -", b"Yes"]) == [" -Yes"]


def test_tokens_follow_each_other_inside_their_piece():
    ends = [(" a", 50), ("b", 40), (" c", -1), (" d", 200), (" e", 900)]
    found = tokens.piece_tokens(
        [EngineToken(text, None, end) for text, end in ends], Piece(np.arange(500, 700))
    )
    assert [(token.start, token.end) for token in found] == [
        *((10.0, 10.5), (10.5, 10.5), (10.5, 10.5), (10.5, 12.0), (12.0, 14.0)),
    ]


def test_tokens_are_where_they_were_before_the_pause_was_cut_out():
    piece = Piece(np.r_[500:600, 900:1000])  # 10 to 12 s and 18 to 20 s
    found = tokens.piece_tokens(
        [EngineToken(" a", 0, 200), EngineToken(" b", 200, 250), EngineToken(" c", 250, 400)], piece
    )
    assert [(token.start, token.end) for token in found] == [(10.0, 12.0), (18.0, 18.5), (18.5, 20.0)]


def test_a_word_is_said_where_somebody_speaks():
    likely = np.zeros(1000, bool)
    likely[50:150] = likely[400:500] = True  # 1 to 3 s and 8 to 10 s
    words = [Word(1.0, 2.9, " how"), Word(3.2, 3.6, " you?"), Word(3.6, 8.4, " good"), Word(14, 14.2, " um")]
    placed = [(word.start, word.end) for word in tokens.place(words, 20.0, tokens.runs(likely))]
    # "you?" lies in the pause, near to the speech before it, which "how" fills; nobody speaks near "um".
    np.testing.assert_allclose(placed, [(2.9 - 0.76, 2.9), (2.9, 3.0), (8.0, 8.4), (14, 14.2)])


def test_a_word_is_not_said_with_a_sentence_that_was_not_recognized():
    """Somebody speaks from 1 to 3, 3.5 to 6 and 6.5 to 8 s; of 3.5 to 6 there is no word."""
    runs = [(1.0, 3.0), (3.5, 6.0), (6.5, 8.0)]
    stretched = [Word(1.0, 2.6, " remember"), Word(2.6, 7.0, " The"), Word(7.0, 8.0, " majority")]
    placed = [(word.start, word.end) for word in tokens.place(stretched, 9.0, runs)]
    assert placed[1:] == [(6.5, 7.0), (7.0, 8.0)]
    stretched = [Word(1.0, 2.6, " remember"), Word(2.6, 7.0, " me."), Word(7.0, 8.0, " Otherwise")]
    placed = [(word.start, word.end) for word in tokens.place(stretched, 9.0, runs)]
    assert placed[1:] == [(2.6, 3.0), (7.0, 8.0)]


def test_the_pause_after_a_word_is_not_its_time():
    first, second = tokens.to_words([[Token(b" Well", 0, 1), Token(b",", 1, 4), Token(b" no", 4, 5)]])
    assert (first.end, second.start) == (1, 4)


@pytest.mark.parametrize(("said", "duration"), [(0.04, 9.0), (9.0, 9.0), (0.0, 0.05)])
def test_words_that_were_given_one_moment_can_be_corrected_one_by_one(said, duration):
    texts = [" I'm", " going", " to", " have", " to", " say"]
    words = tokens.place([Word(said, said, text) for text in texts], duration)
    made = corrections.apply_rules([words], [("have to say", "said")])
    assert [word.text for word in corrections.spell_words(words, made)] == [*texts[:3], " said"]


def test_words_are_as_probable_as_their_tokens():
    said = [
        [Token(b" Shei", 0, 1, 0.9), Token(b"la", 1, 2, 0.5), Token(b".", 2, 3, 0.1), Token(b" no", 3, 4)],
    ]
    sheila, no = tokens.to_words(said)
    assert (sheila.probability, no.probability) == (0.7, None)


def test_a_number_takes_as_long_as_its_digits():
    """Otherwise they seem to be speech without words, and are heard again as words of their own."""
    number = Word(1.0, 4.0, " 555-0100.")
    assert tokens.place([number], 5.0) == [number]


moments = st.floats(-5, 60, allow_nan=False)


@settings(deadline=None)
@given(st.lists(st.tuples(moments, moments, st.text("ab'. ", max_size=8)), max_size=15), st.floats(0, 50))
def test_place(found, duration):
    words = [Word(start, end, text) for start, end, text in found]
    repaired = tokens.place(words, duration)
    assert texts(repaired) == texts(words)
    times = [time for word in repaired for time in (word.start, word.end)]
    assert times == sorted(times)
    assert all(0 <= time <= duration for time in times)
    assert all(word.end - word.start <= 0.4 + 0.12 * len(word.text) + 1e-9 for word in repaired)
    assert tokens.place(repaired, duration) == repaired


def test_good_times_are_left_alone():
    words = [Word(0.2, 0.5, " so"), Word(0.5, 0.9, " then"), Word(1.4, 1.6, " go")]
    assert tokens.place(words, 2.0) == words
    assert tokens.place([Word(0.0, 9.0, " yes")], 10.0) == [Word(9.0 - 0.4 - 3 * 0.12, 9.0, " yes")]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.5, 40), st.sampled_from([0.0, 0.01, 0.3])), max_size=5),
)
def test_pieces_hold_all_that_sounds(stretches):
    noise = np.random.default_rng(0).uniform(-1, 1, SAMPLE_RATE)
    parts = [level * np.resize(noise, int(seconds * SAMPLE_RATE)) for seconds, level in stretches]
    samples = np.concatenate([np.zeros(0), *parts]).astype(np.float32)
    loudness = Loudness.of(samples)
    assert len(loudness.energy) == -(-len(samples) // FRAME)
    found = list(pieces(loudness))
    assert all(0 < len(piece) <= WINDOW for piece in found)
    assert all(before.frames[-1] < after.frames[0] for before, after in pairwise(found))
    heard = np.zeros(len(loudness.sounding), bool)
    for piece in found:
        heard[piece.frames] = True
    assert heard[loudness.sounding].all()
    assert all(len(piece.cut(samples)) <= len(piece) * FRAME for piece in found)


BEEP = np.sin(2 * np.pi * 1000 * np.arange(8 * SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
DIAL = BEEP / 2 + np.sin(2 * np.pi * 440 * np.arange(8 * SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32) / 2


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.29, 0.31, 8.0])
@pytest.mark.parametrize("sound", [BEEP, DIAL])
def test_tones_are_not_recognized(sound, seconds):
    silence = np.zeros(SAMPLE_RATE, np.float32)
    for tone in (sound[: int(seconds * SAMPLE_RATE)], np.concatenate((silence, sound, silence))):
        loudness = Loudness.of(tone)
        assert list(pieces(loudness)) == []
        assert (
            list(gaps(speech_of([(0.0, 8.0)], 10), Loudness.of(np.resize(tone, 10 * SAMPLE_RATE)), [])) == []
        )


def test_less_than_a_word_is_not_recognized():
    assert list(pieces(Loudness.of(noise(0.29)))) == []
    (piece,) = pieces(Loudness.of(noise(0.31)))
    assert piece.start == 0.0


def test_a_beep_hides_no_words():
    """Nor a hum, which is below all speech."""
    sound = np.concatenate((BEEP, noise(4)))
    (piece,) = pieces(Loudness.of(sound))
    assert len(piece) == len(sound) / FRAME
    hum = np.sin(2 * np.pi * 100 * np.arange(4 * SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    assert list(pieces(Loudness.of(hum + noise(4) / 30)))


def test_a_piece_ends_where_it_is_quietest():
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, 40 * SAMPLE_RATE).astype(np.float32)
    samples[int(24.0 * SAMPLE_RATE) : int(24.3 * SAMPLE_RATE)] *= 0.01  # a pause
    samples[int(10.0 * SAMPLE_RATE) : int(12.0 * SAMPLE_RATE)] *= 0.001  # a better one, but far too early
    first, second = pieces(Loudness.of(samples))
    assert 24.0 < first.end < 24.3
    assert (second.start, second.end) == (first.end, 40.0)


# ── What the diarizer tells ──


def windows(spans, seconds):
    """A segmentation in which one person speaks in these spans, in windows a second apart."""
    active = np.zeros((int(seconds), FRAMES, 3), bool)
    for window in range(len(active)):
        times = window + np.arange(FRAMES) * FRAME_STEP + FRAME_DURATION / 2
        for start, end in spans:
            active[window, :, 1] |= (start <= times) & (times < end)
    return Segmentation.regular(active)


def speech_of(spans, seconds):
    speech = Speech(int(seconds * SAMPLE_RATE))
    speech.add(windows(spans, seconds))
    speech.finish()
    return speech


def noise(seconds):
    return np.random.default_rng(0).uniform(-0.3, 0.3, int(seconds * SAMPLE_RATE)).astype(np.float32)


def test_what_is_silent_is_not_recognized():
    loudness = Loudness.of(noise(60))
    (piece,) = pieces(loudness, speech_of([(5.0, 10.0), (40.0, 45.0)], 60))
    assert (piece.start, piece.end) == pytest.approx((4.5, 45.5), abs=0.06)
    assert len(piece) / 50 == pytest.approx(12.0, abs=0.1)  # half a second is left around speech


def test_a_piece_ends_in_the_longest_pause():
    loudness = Loudness.of(noise(60))
    first, second = pieces(loudness, speech_of([(0.0, 22.0), (22.3, 26.0), (26.8, 50.0)], 60))
    assert first.end == pytest.approx(26.4, abs=0.06)
    assert second.start == first.end


def test_a_piece_ends_in_the_last_good_pause():
    """A window costs the same however full it is."""
    loudness = Loudness.of(noise(60))
    first, _ = pieces(loudness, speech_of([(0.0, 22.0), (24.0, 28.0), (28.6, 50.0)], 60))
    assert first.end == pytest.approx(28.3, abs=0.1)


@pytest.mark.parametrize("group", [1, 7])
def test_pieces_do_not_depend_on_when_the_diarizer_is_done(group):
    """The recognizer waits for what it needs, and no longer."""
    spans = [(float(start), start + 3.7) for start in range(2, 200, 6)]
    found = windows(spans, 210)
    loudness, speech = Loudness.of(noise(210)), Speech(210 * SAMPLE_RATE)
    late = pieces(loudness, speech, lambda: None)
    first: list[Piece] = []
    reader = threading.Thread(target=lambda: first.extend(late))
    reader.start()
    for start in range(0, len(found.starts), group):
        part = slice(start, start + group)
        speech.add(Segmentation(found.active[part], found.starts[part]))
    speech.finish()
    reader.join()
    at_once = list(pieces(loudness, speech_of(spans, 210)))
    assert [list(piece.frames) for piece in first] == [list(piece.frames) for piece in at_once]


def test_speech_without_words_is_heard_again():
    loudness = Loudness.of(noise(30))
    speech = speech_of([(2.0, 12.0), (20.0, 20.8)], 30)
    words = [Word(2.1, 4.0, " so"), Word(4.0, 6.0, " then")]
    (piece,) = gaps(speech, loudness, words)
    assert (piece.start, piece.end) == pytest.approx((6.0, 12.2), abs=0.1)
    assert list(gaps(speech, loudness, [*words, Word(6.0, 12.0, " well")])) == []


# ── What can be believed ──


@pytest.mark.parametrize(
    "text",
    [
        "No. No. No. No, no, no. I said no.",
        "five five five, five five five, zero one zero zero",
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen",
        "Very, very, very good. Thank you. Thank you. Thank you so much. Okay. Okay. Bye. Bye. Bye bye.",
        "Location, location, location, as they say, and then location.",
    ],
)
def test_what_people_say_is_believed(text):
    assert doubt(text, len(text) / 15, -0.3) is None


@pytest.mark.parametrize(
    ("text", "seconds", "logprob", "flaw"),
    [
        ("Then no, no, no, no, no, no, no, no, no.", 10, -0.1, "repeats itself"),
        ("and so on. And so on, and so on, and so on and so on", 10, -0.1, "repeats itself"),
        ("we shall see what it is to be done. " * 4, 20, -0.1, "repeats itself"),
        ("All of this was never said within a second, it is too much.", 1, -0.1, "is too much for the time"),
        ("Thank you.", 20, -1.2, "is improbable"),
    ],
)
def test_what_nobody_says_is_doubted(text, seconds, logprob, flaw):
    assert doubt(text, seconds, logprob) == flaw


LOUD = Loudness.of(noise(30))
WHOLE = Piece(np.arange(WINDOW))
LOOP = "no, " * 20


def _text(heard):
    return "".join(token.text for token in heard.tokens)


def said(text, logprob=-0.2, *, ended=True):
    return ChunkResult([EngineToken(text, 0, 100)], "en", ended, logprob)


def believed(first, *tries, repeats=False):
    """Of one piece that was heard as `first`, then as `tries` and as the last of them ever after.

    The texts, the notes, and how many pieces as long were heard again.
    """
    left, asked = list(tries), []

    def again(some):
        asked.extend(len(piece) for piece in some)
        return [(piece, left.pop(0) if len(left) > 1 else left[0]) for piece in some]

    covers = Coverage(0.0, 0.0, 0.0)
    ((found, notes),) = check_texts([(WHOLE, first)], again, LOUD, lambda *_: covers, lambda _: repeats)
    heard = ["".join(token.text for token in one.tokens) for _, one in found]
    return heard, [note.text for note in notes], sum(asked) / len(WHOLE)


KEPT = "the text is improbable, even when it is heard again; check it"
REPEATED = "the text repeats itself, even when it is heard again; check it"


def test_a_good_text_is_heard_once():
    assert believed(said("Good morning.")) == (["Good morning."], [], 0)


def test_fluent_words_that_are_improbable_come_with_a_warning():
    def heard(probability, tokens=20):
        return ChunkResult(
            [EngineToken(f" word{n}", 0, 100, probability) for n in range(tokens)], "en", True, -0.7
        )

    warned = "the words are less certain than usual; check them"
    assert believed(heard(0.5))[1:] == ([warned], 0)
    assert believed(heard(0.7))[1:] == believed(heard(0.5, 11))[1:] == believed(heard(None))[1:] == ([], 0)


def test_a_loop_is_heard_again():
    again = "heard again, because the first text repeats itself"
    assert believed(said(LOOP), said("No.")) == (["No."], [again], 1)
    assert believed(said(LOOP), said(LOOP), said("No."), said("Yes.")) == (["No.", "Yes."], [again], 2)


def test_a_text_that_a_second_try_would_repeat_goes_straight_to_halves():
    again = "heard again, because the first text repeats itself"
    halves = believed(said(LOOP), said("No."), said("Yes."), repeats=True)
    assert halves == (["No.", "Yes."], [again], 1)
    assert believed(said("Thank you.", -1.2), said("Bank."), repeats=True) == (["Thank you."], [KEPT], 0)


def test_of_two_improbable_texts_the_better_one_is_kept_and_said_to_be_so():
    assert believed(said("Thank you.", -1.5), said("Bank.", -1.2)) == (["Bank."], [KEPT], 1)
    assert believed(said("Thank you.", -1.2), said("Bank.", -1.5)) == (["Thank you."], [KEPT], 1)


def test_what_is_heard_again_is_bounded():
    """What is a loop to the end is kept, with a note for each part."""
    heard, notes, times = believed(said(LOOP), said(LOOP))
    assert (set(heard), set(notes)) == ({LOOP}, {REPEATED})
    assert len(heard) == len(notes) >= 4
    assert 3 <= times <= 5


SENTENCE = " I am not sure about it."
HALF = (
    " So we had a long problem, and nobody found out why the relative time in a section was not the same"
    " as the absolute one, which took all of us two weeks last spring."
)


def spread(text, start, end):
    """The words of a text, each as long as the others, from `start` to `end` seconds into a piece."""
    parts = [f" {word}" for word in text.split()]
    edges = np.linspace(100 * start, 100 * end, len(parts) + 1).round().astype(int).tolist()
    tokens = [EngineToken(*token) for token in zip(parts, edges, edges[1:], strict=False)]
    return ChunkResult(tokens, "en", True, -0.2)


def test_a_text_that_leaves_speech_without_words_is_heard_again_in_halves():
    """One sentence of a window, at the wrong time or stretched, or the end alone of a longer text."""
    track = TrackInput(0, noise(30), LOUD, speech_of([(0.0, 30.0)], 30))

    def complete(first, half):
        asked = []

        def again(some):
            asked.extend(some)
            return [(piece, half(len(piece) / FRAME_RATE)) for piece in some]

        ((found, notes),) = check_texts([(WHOLE, first)], again, LOUD, track.coverage)
        return [(piece.start, _text(heard)) for piece, heard in found], notes, asked

    def full(seconds):
        return spread(HALF, 0, seconds)

    for first in (spread(SENTENCE, 26, 29), spread(SENTENCE, 0, 30), spread(HALF, 20, 30)):
        found, (note,), asked = complete(first, full)
        assert [text for _, text in found] == [HALF, HALF]
        assert found[0][0] == 0.0
        assert 10.0 <= found[1][0] <= 20.0
        assert note.text == "heard again, because the first text leaves speech without words"
        assert len(asked) == 2
    assert complete(spread(HALF + SENTENCE, 0, 30), full) == ([(0.0, HALF + SENTENCE)], [], [])
    # Halves in which nothing is heard, or a loop, take no word away.
    for worse in (spread("", 0, 1), said(LOOP), said(" Bank.", -1.5)):
        found, notes, asked = complete(spread(SENTENCE, 26, 29), lambda _, worse=worse: worse)
        assert (found, notes) == ([(0.0, SENTENCE)], [])
        assert sum(map(len, asked)) <= 3 * WINDOW


def test_where_nothing_is_heard_at_first_halves_are_heard():
    track = TrackInput(0, noise(30), LOUD, speech_of([(0.0, 30.0)], 30))

    def again(some):
        return [
            (piece, spread(HALF if len(piece) < WINDOW else "", 0, len(piece) / FRAME_RATE)) for piece in some
        ]

    found = recognize_gaps([WHOLE], again, lambda one: track.words([one]), [], LOUD, track.coverage)
    assert "".join(word.text for word in found) == HALF + HALF


def test_a_text_without_end_is_left_out_with_a_note():
    endless = said("la", ended=False)
    heard, notes, _ = believed(endless, endless)
    assert heard == []
    assert set(notes) == {"no words: the text never ends, as with music"}


def test_dots_are_no_words():
    """Over noise, Whisper writes them, and heard again, "Thank you."."""
    assert believed(said(" . . . . . . . . . . . . . . . . . . . . . . . .", -3.0)) == ([""], [], 0)


def test_a_warning_for_all_that_is_said_alike():
    notes = [Note(Piece(np.arange(50 * start, 50 * start + 50)), "check it") for start in (9, 0, 3, 5)]
    assert list(format_notes([*notes, Note(WHOLE, "again")], lambda seconds: f"{seconds:.0f}")) == [
        "0 to 30: again",
        "0 to 1, 3 to 4, 5 to 6 and 1 more: check it",
    ]


# ── Names and terms ──


def letters(text):
    return len(text)


def test_the_context():
    assert context(["Zorvath", "Miriven"], "") == "Glossary: Zorvath, Miriven."
    assert context(["Zorvath"], "Good morning.") == "Glossary: Zorvath. Good morning."
    assert context([], " Good morning. ") == "Good morning."


@pytest.mark.parametrize(
    ("given", "heard"),
    [
        ("<|endoftext|> Good\x1b[31m\nmorning.<|0.00|>", "Good [31m morning."),
        ("<|endof<|fr|>text|>", "<|endof text|>"),  # with a space inside it is no token
        ("a < b | c > d, Zoë\u200c", "a < b | c > d, Zoë\u200c"),
        ("<|en|>\x00", ""),
        ("<|e\x1bn|> caf\udce9 \u202ea", "caf a"),  # a byte of Latin-1 in a command
    ],
)
def test_a_prompt_is_text(given, heard):
    assert without_control_tokens(given) == heard


def test_what_is_taken_out_is_told(folder):
    told = "control characters and control tokens such as <|endoftext|> were taken out of the "
    model = ModelFile("synthetic", str(ggml.write(folder / "terms.bin")), "", "whisper.cpp")
    for wish, what in (
        (Options(prompt="Good\x1b[31m morning."), ["prompt"]),
        (
            Options(prompt="<|endoftext|>", vocabulary=("Anna", "Lena\x07")),
            ["prompt", "vocabulary"],
        ),
        (Options(prompt=" Good\n\nmorning.\t", vocabulary=("Anna  K2",)), []),
    ):
        with TrackRecognizer(model, wish, threads=1) as running:
            running.send(ggml.tones(L))
            assert running.result().warnings == tuple(told + one for one in what)


@given(
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=8), st.text("c", max_size=9), st.integers(0, 60)
)
def test_the_first_terms_are_kept_as_far_as_there_is_room(terms, prompt, room):
    text, left_out = fit(terms, prompt, letters, room)
    kept = terms[: len(terms) - len(left_out)]
    assert [*kept, *left_out] == terms
    assert text == context(kept, prompt)
    assert len(text) <= room or not kept
    assert not left_out or len(context(terms[: len(kept) + 1], prompt)) > room


def test_terms_that_are_left_out_are_counted(folder):
    path = ggml.write(folder / "terms.bin")
    terms = ("one one one",) * 100
    model = ModelFile("synthetic", str(path), "", "whisper.cpp")
    with TrackRecognizer(model, Options(vocabulary=terms), threads=1) as running:
        running.send(ggml.tones(L))
        (warning,) = running.result().warnings
    assert "26 of 100 terms were left out" in warning
    assert "\n" not in warning


# ── Languages ──


def told(**probabilities):
    return 8.0, probabilities


def heard_as(*, tokens: int, logprob: float, text: str = " yes", ended: bool = True, at: int = 0):
    """What was heard in a piece of 20 s."""
    said = [EngineToken(text, 0, 1), *[EngineToken("", 1, 1)] * (tokens - 1)]
    frames = np.arange(at * 20 * FRAME_RATE, (at + 1) * 20 * FRAME_RATE)
    return Piece(frames), ChunkResult(said, "en", ended, logprob)


def test_the_language_of_a_part_follows_clear_evidence():
    english, french = told(en=0.95, fr=0.01), told(fr=0.97, en=0.001)
    assert decide([english, french, english], "en")[0] == ["en", "fr", "en"]
    assert decide([french, french], "en")[0] == ["fr", "fr"]
    assert decide([], "en") == ([], 0)


@pytest.mark.parametrize(
    "doubtful",
    [
        told(fr=0.5, en=0.2),  # not clear
        told(cy=0.7, en=0.01),  # clear enough, if any part were clearly Welsh
        (0.5, {"fr": 0.97, "en": 0.01}),  # too short
    ],
)
def test_a_doubtful_part_keeps_the_language_of_the_track(doubtful):
    english, french = told(en=0.95, fr=0.01), told(fr=0.97, en=0.001)
    parts = [english, doubtful, english, french, french]
    assert decide(parts, "en")[0] == ["en", "en", "en", "fr", "fr"]


def test_a_piece_is_heard_at_once_where_no_other_language_is_likely():
    faint = {"en": 0.3, "cy": 0.3, "de": 0.2}
    assert not may_change([faint, {"en": 0.99}], "en")
    assert may_change([{"en": 0.99}, {"en": 0.2, "fr": 0.6}], "en")
    assert may_change([{"en": 0.99}], "fr")


def test_a_part_that_is_in_no_language_keeps_that_of_the_track():
    """As in a Dutch recording in which another part was 0.9 sure to be Urdu."""
    dutch, urdu, neither = told(nl=0.95), (0.6, {"ur": 0.9}), (3.3, {"ur": 0.21, "ml": 0.14, "nl": 0.001})
    assert decide([dutch, urdu, dutch, neither, dutch], "nl")[0] == ["nl"] * 5


def test_what_follows_changes_no_part_that_is_settled():
    english, french, doubtful = told(en=0.95, fr=0.01), told(fr=0.97, en=0.001), told(en=0.4, fr=0.5)
    assert decide([french, told(en=0.95, fr=0.04)], "en") == (["fr", "en"], 1)
    assert decide([english, doubtful, english], "en")[1] == 3
    for some in product([english, french, doubtful], repeat=3):
        parts = [english, french, *some]
        before, settled = decide(parts, "en", "en")
        for last in (english, french):
            assert decide([*parts, last, last], "en", "en")[0][:settled] == before[:settled]


def tracked(*pieces):
    """What a tracker of an English track gives back after each of some pieces of 20 s, and at the end: of a
    piece are given its languages by halves, or None if it was heard in English."""
    tracker, given = Tracker("en"), []
    for place, halves in enumerate(pieces):
        whole, heard = heard_as(tokens=9, logprob=-0.3, at=place)
        if halves is None:
            given.append(tracker.add((whole, heard)))
        else:
            parts = [Piece(half) for half in np.split(whole.frames, 2)]
            given.append(
                tracker.add((whole, replace(heard, unclear=True)), parts, [one for _, one in halves])
            )
    return [
        [(piece.start, piece.end, heard.language if heard else piece.language) for piece, heard in some]
        for some in (*given, tracker.finish())
    ]


def test_a_piece_in_two_languages_becomes_two():
    english, french = told(en=0.95, fr=0.01), told(fr=0.97, en=0.001)
    assert tracked([english, french], None) == [[], [(0, 10, "en"), (10, 20, "fr"), (20, 40, "en")], []]


def test_a_piece_in_another_language_stays_whole():
    french = told(fr=0.97, en=0.001)
    assert tracked([french, french], [french, french])[1:] == [[(0, 20, "fr")], [(20, 40, "fr")]]


def test_a_doubtful_piece_waits_for_no_more_than_it_needs():
    doubtful = told(en=0.4, fr=0.5)
    first, second, third, *rest = tracked(None, [doubtful, doubtful], None)
    assert (first, second, rest) == ([(0, 20, "en")], [], [[]])
    assert third == [(20, 40, "en"), (40, 60, "en")]


class Teller:
    """An engine that takes a part of a piece for French, and says of a part by itself what it is told to."""

    def __init__(self, among, alone):
        self.among, self.alone, self.asked = among, alone, []

    def languages(self, _samples, ends, _when):
        self.asked.append(len(ends))
        return [self.alone] if len(ends) == 1 else [self.among] * len(ends)


@pytest.mark.parametrize(
    ("among", "alone", "heard"),
    [
        ({"fr": 0.97, "en": 0.001}, {"fr": 0.99, "en": 0.001}, "fr"),
        ({"fr": 0.97, "en": 0.001}, {"en": 0.99, "fr": 0.001}, "en"),
        ({"en": 0.6, "fr": 0.3}, None, "en"),  # nothing changes: no part is asked by itself
    ],
)
def test_a_language_changes_only_where_parts_by_themselves_say_so(among, alone, heard):
    sound = noise(20)
    track, engine = TrackInput(0, sound, Loudness.of(sound), None), Teller(among, alone)
    piece, found = heard_as(tokens=9, logprob=-0.3)
    languages = TrackLanguages(track, None, engine, lambda _: "")
    again = []

    def hear(some):
        for one in some:
            again.append(one.language)
            yield one, found

    (result,) = languages.decide([(piece, replace(found, unclear=True))], "en", hear)
    assert result[0].frames.tolist() == piece.frames.tolist()
    assert again == [heard]
    parts, *others = engine.asked
    assert parts > 1
    assert others == ([1] * parts if alone else [])


def test_only_what_may_be_spoken_counts():
    assert keep_allowed({"en": 0.6, "cy": 0.3, "de": 0.1}, ("en", "de")) == pytest.approx(
        {"en": 6 / 7, "de": 1 / 7}
    )
    assert keep_allowed({"en": 0.6}, ()) == {"en": 1.0}
    assert keep_allowed({"cy": 1.0}, ("de",)) == {}


def test_parts_of_a_piece_are_all_of_it():
    piece = Piece(np.r_[100:700, 900:1800])
    parts = piece.parts(Loudness.of(noise(40)), None, 400)
    assert np.concatenate([part.frames for part in parts]).tolist() == piece.frames.tolist()
    assert all(BRIEF <= len(part) <= 400 for part in parts)


def test_a_piece_is_parted_where_voices_change():
    """At 4.0 s without a pause, and at 9.0 s in the middle of one, but not where one window alone says so."""
    seconds = np.arange(FRAMES) * FRAME_STEP
    windows = []
    for start in range(5):
        active = np.zeros((FRAMES, LOCAL_SPEAKERS), np.bool_)
        first, second = (start % 2, 1 - start % 2)
        active[:, first] = start + seconds < 4.0
        active[:, second] = (start + seconds >= 4.0) & (start + seconds < 8.5)
        active[:, first] |= start + seconds >= 9.5
        windows.append(active)
    windows[2][200:220, :2] = windows[2][200:220, :2][:, ::-1]
    speech = Speech(14 * SAMPLE_RATE)
    speech.add(Segmentation.regular(np.stack(windows)))
    speech.finish()
    changes = speech.changes(0, 14 * FRAME_RATE) / FRAME_RATE
    assert changes == pytest.approx([4.0, 9.0], abs=0.06)
    whole = Piece(np.arange(14 * FRAME_RATE))
    parts = whole.parts(Loudness.of(noise(14)), speech, WINDOW)
    assert [part.end for part in parts] == pytest.approx([4.0, 9.0, 14.0], abs=0.06)


@pytest.mark.parametrize(
    ("given", "codes"),
    [("de", "de"), ("German", "de"), ("en, haitian  creole,EN", "en,ht"), ("multi", "multi")],
)
def test_languages_have_names(given, codes):
    assert languages.parse(given) == codes


@pytest.mark.parametrize("given", ["", "xx", "de,", "multi,de", "germanic"])
def test_a_language_that_nobody_knows(given):
    with pytest.raises(UsageError, match="whisper does not know the language") as caught:
        languages.parse(given)
    assert "\n" not in str(caught.value)
