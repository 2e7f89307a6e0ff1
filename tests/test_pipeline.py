"""All stages together, with a whisper model made by `ggml`: tiny, known words, real format."""

import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import soundfile

import ggml
import witness
from conftest import CALL, DATA, in_process, strict_der
from recordings import children, gone, worked
from witness import Engine, Options, Runtime, diarize, pipeline, transcribe
from witness.cli import enroll
from witness.diarization import clustering, vbx
from witness.errors import InputError, ModelError, TranscriptionError, UsageError
from witness.formats import findings, rttm, writers
from witness.gpu import cards
from witness.models import on_disk, store
from witness.options import Bounds, Recognizer
from witness.progress import AboutMachine, Reporter
from witness.recognition import recognizer
from witness.schema import ModelFile, Speaker, Turn, Word
from witness.text import count
from witness.transcript import assemble, corrections
from witness.transcript.store import save
from witness.work import produce

pytestmark = pytest.mark.usefixtures("open_models")

OFFLINE = {"models": "builtin", "offline": True}


@pytest.fixture(scope="module")
def whisper(tmp_path_factory) -> Path:
    return ggml.write(tmp_path_factory.mktemp("model") / "tones.bin")


@pytest.fixture
def transcript(toned):
    return toned


def test_every_word_is_inside_the_recording_and_has_a_speaker_or_says_why_not(transcript):
    assert transcript.failure is None
    assert len(transcript.words) > 10
    names = {speaker.id for speaker in transcript.speakers}
    assert names == {"SPEAKER_01", "SPEAKER_02"}
    for word in transcript.words:
        assert 0 <= word.start <= word.end <= transcript.audio.duration
        assert (word.speaker in names) == word.supported
    assert [word for utterance in transcript.utterances for word in utterance.words] == list(transcript.words)
    assert transcript.device == {"embedding": "cpu", "whisper": "cpu"}
    assert transcript.language == "en"


@pytest.mark.parametrize(
    ("invented", "said"), [(0, []), (1, ["1 word", " is only"]), (2, ["2 words", " are only"])]
)
def test_invented_words_are_counted_in_english(invented, said):
    words = [Word(n, n + 1, " Thanks", supported=n >= invented) for n in range(3)]
    lines = list(corrections._mismatches(words, []))
    assert len(lines) == bool(said)
    assert all(part in line for line in lines for part in said)


def test_words_go_to_the_speaker_of_their_time(transcript):
    supported = [word for word in transcript.words if word.supported]
    invented = len(transcript.words) - len(supported)
    assert any(line.startswith(f"{count(invented, 'word')} where") for line in transcript.warnings) == (
        invented > 0
    )
    unheard = [utterance for utterance in transcript.utterances if not utterance.words]
    assert any(line.startswith("[inaudible]") for line in transcript.warnings) == bool(unheard)
    right = [
        any(t.start < word.end and word.start < t.end and t.speaker == word.speaker for t in transcript.turns)
        for word in supported
    ]
    assert np.mean(right) > 0.9
    assert {word.speaker for word in supported} == {"SPEAKER_01", "SPEAKER_02"}


@pytest.fixture(scope="module")
def brief(whisper, short):
    """What the 15 s of the call give, and (done, total) of each stage's steps."""
    steps: dict[str, list[tuple[float, float]]] = {}

    def progress(stage: str, done: float, total: float) -> None:
        steps.setdefault(stage, []).append((done, total))

    options = Options(whisper=str(whisper), speakers=2, **OFFLINE)
    return transcribe(str(short), options, progress=progress), steps


def test_progress_reaches_the_end_of_every_stage(brief):
    _, stages = brief
    assert set(stages) == {"decode", "segmentation", "embedding", "clustering", "transcription"}
    for stage, steps in stages.items():
        done, total = zip(*steps, strict=True)
        assert list(done) == sorted(done), stage
        assert done[-1] == pytest.approx(total[-1], rel=0.01), stage


def test_diarize_has_no_words_and_the_same_turns(brief, short):
    found = diarize(short, Options(speakers=2, **OFFLINE))
    assert found.turns == brief[0].turns
    assert found.words == ()
    assert found.models["whisper"] is None
    assert found.warnings == ()  # nothing was asked for that is missing
    assert {(u.speaker, u.text) for u in found.utterances} == {("SPEAKER_01", None), ("SPEAKER_02", None)}


def test_close_to_the_exact_reference(diarized):
    (reference,) = rttm.parse(CALL.with_suffix(".rttm").read_text()).values()
    assert strict_der([(reference, diarized.turns, diarized.audio.duration)]) < 0.10


@pytest.mark.slow
def test_a_fast_run_does_less_says_so_and_does_not_depend_on_threads(diarized):
    one, three = (
        diarize(CALL, Options(fast=True, **OFFLINE), Runtime(threads=threads)) for threads in (1, 3)
    )
    assert findings.encode(one.findings) == findings.encode(three.findings)
    assert one.turns == three.turns
    assert len(one.findings.tracks[0].vectors) < len(diarized.findings.tracks[0].vectors)
    (reference,) = rttm.parse(CALL.with_suffix(".rttm").read_text()).values()
    assert strict_der([(reference, one.turns, one.audio.duration)]) < 0.12
    assert [json.loads(writers.content(found, "json"))["fast"] for found in (diarized, one)] == [False, True]
    kept = findings.decode(findings.encode(one.findings), "kept")
    assert corrections.apply(assemble.make_draft(kept)).fast
    assert corrections.apply(assemble.make_draft(kept)).turns == one.turns


def test_a_long_call_has_the_speakers_of_a_short_one(diarized):
    """Over ten minutes of it once made one speaker of its two, 1.147 apart, by a step in the threshold."""
    (track,) = diarized.findings.tracks
    times = 1 + int(600 / diarized.audio.duration)
    for repeats in (1, times, 4 * times):
        found = clustering.cluster(
            np.tile(track.vectors, (repeats, 1, 1)),
            np.tile(track.windows.active, (repeats, 1, 1)),
            diarized.findings.rule,
            step=track.windows.step,
        )
        assert found.count.found == 2


def test_a_set_with_a_plda_goes_through_variational_clustering(diarized, short, tmp_path, monkeypatch):
    """The builtin networks with a PLDA that changes nothing but the length of a vector."""
    dims = 192
    parts = {"mean1": np.zeros(dims), "mean2": np.zeros(dims), "mu": np.zeros(dims)}
    parts |= {"lda": np.eye(dims), "tr": 2 * np.eye(dims), "psi": np.full(dims, 4.0)}
    files = {}
    for name, array in parts.items():
        np.save(tmp_path / f"plda_{name}.npy", array)
        files[name] = ModelFile(f"plda-{name}", str(tmp_path / f"plda_{name}.npy"), "")
    builtin = store.diarization_models("builtin", offline=True)
    rule = replace(builtin.rule, threshold=0.9)
    chosen = replace(builtin, rule=rule, plda=files)
    monkeypatch.setattr(store, "diarization_models", lambda *_, **__: chosen)
    calls = []
    refine = vbx.refine
    monkeypatch.setattr(vbx, "refine", lambda *args, **kwargs: calls.append(1) or refine(*args, **kwargs))
    part = diarize(short, Options(models="community-1"))
    assert calls == [1]
    # The vectors of the whole call are known; what is new is what is made of them.
    settings = {"rule": part.findings.rule, "plda": part.findings.plda}
    found = corrections.apply(assemble.make_draft(replace(diarized.findings, **settings)))
    assert calls == [1, 1]
    (count,) = found.counts
    assert (count.found, count.runner_up) == (2, None)
    (reference,) = rttm.parse(CALL.with_suffix(".rttm").read_text()).values()
    assert strict_der([(reference, found.turns, found.audio.duration)]) < 0.10
    assert corrections.apply(assemble.make_draft(part.findings, Bounds(speakers=3))).counts[0].found == 3


def test_the_number_of_speakers_comes_with_its_share_of_the_votes(diarized):
    (count,) = diarized.counts
    assert count.found == len(diarized.speakers) == 2
    assert count.share > 0.8
    assert str(count).startswith(f"2 with {100 * count.share:.0f}% of the votes")
    (asked,) = corrections.apply(assemble.make_draft(diarized.findings, Bounds(speakers=2))).counts
    assert (asked.found, asked.runner_up, asked.share) == (2, None, None)
    assert str(asked) == "2"


@pytest.mark.parametrize(
    ("seconds", "longest", "ghost"),
    [(1.5, 1.5, True), (1.5, 0.5, True), (3.0, 3.0, False), (1.9, 1.9, True), (2.5, 0.5, False)],
)
def test_ghosts_are_rare_and_never_speak_for_long(seconds, longest, ghost):
    turns = [Turn(0.0, 100.0, "A")]
    turns += [Turn(200 + 10 * n, 200 + 10 * n + longest, "B") for n in range(round(seconds / longest))]
    total = sum(turn.duration for turn in turns)
    spoken = {name: sum(t.duration for t in turns if t.speaker == name) for name in "AB"}
    speakers = [Speaker(name, seconds, seconds / total) for name, seconds in spoken.items()]
    assert corrections.ghost_speakers(speakers, turns) == (["B"] if ghost else [])


@pytest.mark.slow
def test_words_and_turns_do_not_depend_on_schedule_or_threads(toned, tmp_path):
    """More than one of whisper's windows (30 s), and than one block of the voice model (26 s)."""
    whisper = Path(toned.audio.path).with_name("tones.bin")
    options = (*("--models", "builtin", "--offline", "--speakers", 2), "--whisper", whisper)
    how = ("--serial", "--threads", 1, "-f", "json", "-o", "found.json", "-q")
    assert in_process(tmp_path, toned.audio.path, *options, *how).returncode == 0
    serial = json.loads((tmp_path / "found.json").read_text())
    save(toned, [("json", tmp_path / "kept.json")])
    parallel = json.loads((tmp_path / "kept.json").read_text())
    stages = [(tmp_path / found.pop("findings")["file"]).read_bytes() for found in (serial, parallel)]
    assert stages[0] == stages[1]
    assert [found.pop("timing")["mode"] for found in (serial, parallel)] == ["serial", "parallel"]
    assert serial == parallel


GIB = 1 << 30
LARGE = ((1280, 20, 32), 1_081_140_203)  # large-v3-q5_0: width, heads, decoder layers; bytes of the file
TURBO = ((1280, 20, 4), 574_041_195)
TINY = ((384, 6, 4), 32_152_673)


def whisper_file(path: Path, shape: tuple[int, int, int], size: int) -> ModelFile:
    """The head of a model of that shape, in a file of that size, most of which is a hole."""
    width, heads, layers = shape
    sizes = (51866, 1500, width, heads, 32, 448, width, heads, layers, 128, 8)
    with path.open("wb") as file:
        file.write(struct.pack("<12i", 0x67676D6C, *sizes))
        file.truncate(size)
    return ModelFile("large", str(path), "")


@pytest.mark.parametrize(
    ("free", "model", "waits"),
    [
        (16 * GIB, LARGE, False),
        (8 * GIB, LARGE, True),
        (16 * GIB, TURBO, False),
        (12 * GIB, TURBO, False),
        (8 * GIB, TURBO, True),  # nothing else uses it, and still
        (8 * GIB, TINY, True),
    ],
)
def test_too_little_memory_for_both_engines(tmp_path, monkeypatch, free, model, waits):
    monkeypatch.setattr(pipeline.graph_cache, "folders", lambda: [tmp_path])
    (card,) = cards.list_cards(DATA / "gpus" / "rx9070", {})
    monkeypatch.setattr(cards, "list_cards", lambda: (replace(card, memory_free=free),))
    monkeypatch.setattr(pipeline.gpus, "recognizer", lambda: Recognizer.WHISPER_CPP)
    whisper = whisper_file(tmp_path / "whisper.bin", *model)
    notes = []

    def decide(**runtime) -> bool:
        engine = Engine(Options(), Runtime(**runtime))
        run = pipeline._Run(engine, Reporter(note=notes.append), [])
        return run._too_little_memory(whisper)

    assert decide(device="auto") == decide(device="migraphx") == waits
    assert len(notes) == (2 if waits else 0)
    assert all(line.startswith("one engine after the other: the Radeon RX 9070 has ") for line in notes)
    assert not decide(device="cpu")
    assert not decide(device="migraphx", parallel=True)
    assert not decide(device="migraphx", gpu=1)  # there is no such card, which others will say
    monkeypatch.setattr(cards, "list_cards", lambda: (replace(card, memory_free=free, supported="unlisted"),))
    assert not decide(device="auto")
    monkeypatch.setattr(cards, "list_cards", lambda: (replace(card, memory_free=free),))
    monkeypatch.setattr(pipeline.graph_cache, "folders", list)
    assert not decide(device="auto")  # without a compiled graph the voice model is on the CPU


def test_serial_or_parallel():
    with pytest.raises(UsageError, match="exclude each other"):
        transcribe(str(CALL), Options(**OFFLINE), Runtime(serial=True, parallel=True))


def test_tracks_are_recognized_by_themselves(whisper, tmp_path):
    """What each person says, with a low tone on the one channel and a high one on the other."""
    samples, rate = soundfile.read(CALL, frames=96_000, dtype="float32")
    times = np.arange(len(samples)) / rate
    stereo = np.zeros((len(samples), 2), np.float32)
    for channel, (start, end, tone) in enumerate([(0.6, 4.1, ggml.LOW), (4.3, 6.7, ggml.HIGH)]):
        part = slice(int(start * rate), int(end * rate))
        stereo[part, channel] = samples[part] + 0.4 * ggml.tone(tone, times[part])
    soundfile.write(tmp_path / "stereo.wav", stereo, rate)
    options = Options(whisper=str(whisper), channels="split", **OFFLINE)
    found = transcribe(str(tmp_path / "stereo.wav"), options)
    said = [(word.text.strip(), word.speaker) for word in found.words]
    low = [(text, "CH1_SPEAKER_01") for text in ("one", "two", "three")]
    assert said[:4] == [*low, ("eins", "CH2_SPEAKER_02")]
    assert {speaker for _, speaker in said[4:]} <= {"CH2_SPEAKER_02"}  # a second look may find more
    assert found.words[2].end < 4.3 < found.words[3].end


def test_a_model_that_is_missing_ends_the_run_before_the_work(short, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline._Run, "_decode", None)
    with pytest.raises(ModelError, match=r"none\.bin"):
        transcribe(str(short), Options(whisper=str(tmp_path / "none.bin"), **OFFLINE))


def test_a_gpu_that_failed_is_no_doubt_about_the_recording(whisper, short, tmp_path, monkeypatch):
    """`batch` lists what has a doubt as "to check"; a GPU's is not one."""
    failed, improbable = "the engine failed on the GPU, so the CPU went on", "some words are improbable"
    real = recognizer.TrackRecognizer.result

    def result(self):
        return replace(real(self), warnings=(AboutMachine(failed), improbable))

    monkeypatch.setattr(recognizer.TrackRecognizer, "result", result)
    found = transcribe(str(short), Options(whisper=str(whisper), language="en", **OFFLINE))
    assert {failed, improbable} <= {*found.warnings}
    assert failed in found.machine
    assert failed not in found.doubts
    assert improbable in found.doubts
    found.save(tmp_path / "a.json")
    assert failed in json.loads((tmp_path / "a.json").read_text())["machine"]


def test_a_damaged_model_still_gives_the_speakers(whisper, short, tmp_path):
    """Other damage: tests/test_recognizer.py."""
    content = whisper.read_bytes()
    path = tmp_path / "damaged.bin"
    path.write_bytes(content[: len(content) // 2])
    found = transcribe(str(short), Options(whisper=str(path), **OFFLINE))
    assert isinstance(found.failure, TranscriptionError)
    assert found.failure.exit_code == 1
    assert "damaged.bin" in str(found.failure)
    assert "\n" not in str(found.failure)
    assert len(found.speakers) == 2
    assert found.turns


@pytest.fixture
def long_run(short, tmp_path):
    """A process in the middle of its work, and the pid of its whisper child, which would take minutes."""
    whisper = ggml.write(tmp_path / "endless.bin", endless=True)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "witness", str(short), "-f", "json", "-o", "out"),
            *("--models", "builtin", "--offline", "--whisper", str(whisper)),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    end = time.monotonic() + 30
    while not (found := children(process.pid, "recognition.whisper_cpp")) and time.monotonic() < end:
        time.sleep(0.05)
    while worked(found[0]) < 1 and time.monotonic() < end:
        time.sleep(0.05)
    yield process, found[0], tmp_path / "out"
    process.kill()
    process.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here")


@pytest.mark.slow
@needs_proc
def test_a_whisper_child_killed_in_the_middle(long_run):
    process, child, out = long_run
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    wrote, line = err.decode().splitlines()
    assert wrote.startswith("wrote ")
    death = r"witness: no words: whisper\.cpp stopped with signal SIGKILL at \d:\d\d of the recording"
    assert re.match(death, line)
    document = json.loads((out / "call.json").read_text())
    assert document["turns"]
    assert (len(document["speakers"]), document["words"]) == (2, [])
    assert any("SIGKILL" in warning for warning in document["warnings"])


@pytest.mark.slow
@needs_proc
def test_interrupt_leaves_no_orphan_and_no_file(long_run):
    process, child, out = long_run
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in err.decode()
    assert gone(child)
    assert not out.exists()


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_no_orphan(long_run, kind):
    process, child, _ = long_run
    os.kill(process.pid, kind)
    process.communicate(timeout=20)
    assert gone(child)


@pytest.mark.slow
def test_offline_opens_no_socket(short, tmp_path):
    code = (
        "import sys\n"
        "def watch(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        print('SOCKET', event, args, file=sys.stderr)\n"
        "sys.addaudithook(watch)\n"
        "from witness.cli.main import main\n"
        f"main([{str(short)!r}, '--offline', '-q', '-f', 'rttm', '--to', '7'])\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert b"SPEAKER_02" in result.stdout
    assert b"SOCKET" not in result.stderr


def test_errors_of_the_api(whisper, tmp_path):
    with pytest.raises(InputError, match=r"none\.wav"):
        diarize(str(tmp_path / "none.wav"), Options(**OFFLINE))
    with pytest.raises(UsageError):
        diarize(str(CALL), Options(speakers=2, max_speakers=3, **OFFLINE))
    with pytest.raises(UsageError, match="klingon"):
        transcribe(str(CALL), Options(language="klingon", whisper=str(whisper), **OFFLINE))
    with pytest.raises(AttributeError):
        witness.nonsense  # noqa: B018


@pytest.mark.parametrize("wish", [{"language": "de"}, {"translate": True}])
def test_a_model_for_english_is_refused_other_languages_before_any_work(whisper, short, monkeypatch, wish):
    for work in ("recognition.TrackRecognizer", "_Run._decode", "Engine.open"):
        monkeypatch.setattr(f"witness.pipeline.{work}", lambda *_: pytest.fail("work that is in vain"))
    options = Options(whisper=str(whisper), **wish, **OFFLINE)
    for runtime in (Runtime(), Runtime(serial=True)):
        with pytest.raises(UsageError, match=r"tones\.bin .*knows only English.*--whisper"):
            transcribe(str(short), options, runtime)
    with pytest.raises(UsageError, match="knows only English"):
        produce.resolve_settings(options)  # of a batch: once, not for each recording


def test_a_wish_that_the_model_cannot_fulfill_ends_the_work_as_soon_as_it_is_known(
    whisper, short, monkeypatch
):
    def refused(recognizer):
        wait([recognizer._prepared], 60)  # until the model is loaded, whichever is faster
        real(recognizer)

    real = recognizer.TrackRecognizer.check
    monkeypatch.setattr(recognizer.TrackRecognizer, "check", refused)
    monkeypatch.setattr(
        pipeline.recognition, "check_model", lambda *_, **__: None
    )  # as if the file told nothing
    stages = set()
    options = Options(whisper=str(whisper), language="de", **OFFLINE)
    with pytest.raises(UsageError, match="knows only English"):
        transcribe(str(short), options, progress=lambda stage, *_: stages.add(stage))
    assert not stages


@pytest.mark.parametrize(("longest", "kept"), [(1.0, False), (3600.0, True)])
def test_a_long_recording_gives_the_memory_of_the_models_back_before_its_words(
    short, monkeypatch, longest, kept
):
    monkeypatch.setattr(pipeline, "LONG", longest)
    opened = {}

    def progress(stage: str, *_: float) -> None:
        if stage == "clustering":
            opened[stage] = {"segmenter", "voice"} & set(vars(engine))

    engine = Engine(Options(whisper="none", **OFFLINE), Runtime(threads=1), progress=progress)
    engine.transcribe(short)
    assert opened["clustering"] == ({"segmenter", "voice"} if kept else set())


def test_a_recording_is_looked_at_before_a_model_is_fetched_for_it(tmp_path, monkeypatch):
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("it fetches")

    monkeypatch.setattr(on_disk, "_fetch", fetch)
    monkeypatch.setattr(on_disk, "is_offline", lambda _: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    (tmp_path / "notes.txt").write_text("It was a dark and stormy night.\n" * 50)
    with av.open(str(tmp_path / "silent.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 64
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        container.mux([*stream.encode(frame), *stream.encode()])
    said = {tmp_path / "notes.txt": "not in a format", tmp_path / "silent.mp4": "has no sound track"}
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(closed=False, isatty=bool, buffer=io.BytesIO(b"hello\n" * 9))
    )
    said["-"] = "not in a format"
    for options in (Options(models="standard", whisper="none"), Options(models="builtin", whisper="tiny")):
        for recording, reason in said.items():
            with pytest.raises(InputError, match=reason):
                transcribe(recording, options)
        said["-"] = "is empty"  # it was read
        with pytest.raises(AssertionError, match="it fetches"):
            transcribe(CALL, options)
    with pytest.raises(InputError, match="not in a format"):
        enroll.enroll("Anna", [str(tmp_path / "notes.txt")], Engine(Options(models="standard")))
