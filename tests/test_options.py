"""Every option of `run` and `batch` reaches what does the work, and what cannot have an effect is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from witness import machine_limits, pipeline, tracing
from witness.audio import fifo, sound
from witness.cli import options
from witness.cli.batch import batch_command
from witness.cli.main import main
from witness.cli.run import LiveText, run
from witness.errors import InputError, UsageError
from witness.formats import output_paths
from witness.options import Bounds, Options, Runtime
from witness.progress import LongNote, Reporter
from witness.schema import Count, Source, Transcript
from witness.storage import atomic
from witness.transcript import store
from witness.work import batch, cluster, folder, pool, produce
from witness.work.produce import Settings

Seen = list[object]
MODELS = dict.fromkeys(("segmentation", "embedding", "whisper"))
RULES = Path(__file__).parent / "data" / "replace.txt"

TRANSCRIPT = {
    "speakers": ["--speakers", "2"],
    "min_speakers": ["--min-speakers", "2"],
    "max_speakers": ["--max-speakers", "2"],
    "language": ["--language", "de"],
    "translate": ["--translate"],
    "fast_words": ["--fast-words"],
    "replaced": ["--replace", str(RULES)],
    "vocabulary": ["--vocabulary", __file__],
    "prompt": ["--prompt", "Anna at the desk."],
    "start": ["--from", "1:30"],
    "end": ["--to", "2:30"],
    "channels": ["--channels", "split"],
    "known": ["--known", "people"],
    "models": ["--models", "builtin"],
    "whisper": ["--whisper", "none"],
    "recognizer": ["--recognizer", "whisper.cpp"],
    "fast": ["--fast"],
    "precision": ["--precision", "fp16"],
    "offline": ["--offline"],
}
BOTH = TRANSCRIPT | {
    "formats": ["-f", "json"],
    "device": ["--device", "cpu"],
    "threads": ["--threads", "3"],
    "html_audio": ["--html-audio", "link"],
    "pauses": ["--pauses", "0.5"],
    "fillers": ["--fillers", "drop"],
    "line_width": ["--line-width", "30"],
    "lines": ["--lines", "1"],
    "words": ["--words", "4"],
    "speaker_names": ["--speaker-names", "tag"],
    "times": ["--times", "drop"],
    "no_findings": ["--no-findings"],
    "force": ["--force"],
    "quiet": ["-q"],
}
RUN = BOTH | {
    "to": ["-o", "elsewhere"],
    "gpu": ["--gpu", "1"],
    "serial": ["--serial"],
    "parallel": ["--parallel"],
    "profile": ["--profile", "trace.json"],
    "verbose": ["-v"],
}
BATCH = BOTH | {
    "out": ["-o", "elsewhere"],
    "jobs": ["--jobs", "2"],
    "gpus": ["--gpu", "0,1"],
    "retry_failed": ["--retry-failed"],
    "watch": ["--watch"],
    "limit_time": ["--limit-time", "9.5"],
    "limit_memory": ["--limit-memory", "1.5"],
    "scheduler": ["--scheduler", "tcp://there:8786"],
}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"# people\n\n", "is empty"),
        ("Łódź".encode("utf-16"), "save it as UTF-8"),
        ("Anna".encode("utf-16-le"), "zero bytes"),
        (b"Anna\n" * 20_000, "too long for a vocabulary; give at most 64 KiB"),
        ("é\n".encode() * 30_000, "too long"),  # the limit divides a letter
    ],
)
def test_what_is_not_a_vocabulary_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(content)
    with pytest.raises(click.BadParameter, match=problem) as failure:
        options.terms(path)
    assert str(path) in failure.value.message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_vocabulary_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo, "PATIENCE", 0.1)
    pipe = tmp_path / "names"
    os.mkfifo(pipe)
    with pytest.raises(click.BadParameter, match="no program has written into this pipe"):
        options.terms(pipe)
    monkeypatch.undo()
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"Anna\nLena\n"))
    writer.start()
    assert options.terms(pipe) == ("Anna", "Lena")
    writer.join()


def test_a_vocabulary_is_a_term_a_line(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeff# people\r\nWanjiru  Oyelaran\r\n\r\n نیم\u200cفاصله\r\n".encode())
    assert options.terms(path) == ("Wanjiru Oyelaran", "نیم\u200cفاصله")
    path.write_bytes(b"Anna\x1b[31m\n")
    assert options.terms(path) == ("Anna\x1b[31m",)  # the recognizer says that it hears of no command
    assert Options(vocabulary=["Anna", "K2"]).vocabulary == ("Anna", "K2")
    with pytest.raises(UsageError, match="list of names"):
        Options(vocabulary="Anna")


def names(command: click.Command) -> set[str]:
    return {str(parameter.name) for parameter in command.params if isinstance(parameter, click.Option)}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the commands hand on, instead of any work."""
    seen: Seen = []

    def note(name: str, result: object = None) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            kwargs = {key: value for key, value in kwargs.items() if key not in ("progress", "reporter")}
            seen.append((name, args, {key: kwargs[key] for key in kwargs if not callable(kwargs[key])}))
            return result

        return call

    @contextmanager
    def progress(quiet: bool, *_: object, **__: object):
        seen.append(("quiet", quiet))
        yield Reporter(note=lambda line: seen.append(("note", line)))

    class Engine:
        def __init__(self, wanted: Options, runtime: Runtime, **_: object) -> None:
            seen.append((wanted, runtime))

        def transcribe(self, recording: str, **_: object) -> object:
            seen.append(recording)
            return transcript

    class Batch:
        todo = tuple(range(100))

        def __init__(self, request: folder.BatchRequest, settings: Settings) -> None:
            seen.append((request, settings))
            self.request = request

        def run(self, _workers: object, runtime: Runtime, **_: object) -> None:
            seen.append(runtime)

        def summary(self) -> batch.BatchSummary:
            return batch.BatchSummary(1, 0, 0, 0, 0, 1.0)

        def table(self) -> str:
            return ""

        def outdated(self) -> list[str]:
            return []

    class Pool:
        def __init__(self, gpus: list[int | None]) -> None:
            seen.append(tuple(gpus))

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None: ...

    transcript = Transcript(
        Source("call.wav", 1.0, 1, "0"),
        MODELS,
        MODELS,
        {},
        None,
        (),
        (),
        (),
        (),
        counts=(Count(2),),
        asked=Bounds(2),
    )
    monkeypatch.setattr(options, "progress", progress)
    monkeypatch.setattr(output_paths, "plan", note("plan", (("txt", None),)))
    monkeypatch.setattr(output_paths, "prepared", note("prepared", nullcontext()))
    monkeypatch.setattr(atomic, "write", note("write"))
    monkeypatch.setattr(pipeline, "Engine", Engine)
    monkeypatch.setattr(LiveText, "finish", lambda self, *_: seen.append(("show", self._form, self._style)))
    monkeypatch.setattr(sound, "take", note("take"))
    monkeypatch.setattr(store, "save", note("save", []))
    trace = SimpleNamespace(document=lambda: "{}")
    monkeypatch.setattr(tracing, "recording", lambda _: nullcontext(trace))
    monkeypatch.setattr(produce, "resolve_settings", note("settle", SimpleNamespace(weights=0)))
    monkeypatch.setattr(machine_limits, "cores", lambda: 8)
    monkeypatch.setattr(machine_limits, "memory", lambda: None)
    monkeypatch.setattr(pool, "Pool", Pool)
    monkeypatch.setattr(cluster, "connect", lambda *_: nullcontext(note("cluster", seen.append(_[0]))))
    monkeypatch.setattr(batch, "Batch", Batch)
    return seen


def handed_on(seen: Seen, command: click.Command, *args: str) -> str:
    seen.clear()
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 0, (result.output, result.exception)
    return repr(seen)


@pytest.mark.parametrize("name", sorted(names(run) | set(RUN)))
def test_every_option_of_run_reaches_its_goal(seen, name):
    plain = handed_on(seen, run, "call.wav")
    assert handed_on(seen, run, "call.wav") == plain
    assert handed_on(seen, run, "call.wav", *RUN[name]) != plain


@pytest.mark.parametrize("name", sorted(names(batch_command) | set(BATCH)))
def test_every_option_of_batch_reaches_its_goal(seen, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    usual = ["in", "-o", "out"]
    if name == "gpus":
        usual += ["--device", "migraphx"]
    plain = handed_on(seen, batch_command, *usual)
    assert handed_on(seen, batch_command, *usual) == plain
    assert handed_on(seen, batch_command, *usual, *BATCH[name]) != plain


@pytest.mark.parametrize("command", [run, batch_command], ids=lambda command: command.name)
def test_an_option_that_nobody_takes_is_an_error(tmp_path, monkeypatch, command):
    """It does not vanish among the others."""
    monkeypatch.chdir(tmp_path)
    args = ["call.wav", "-o", "out", "--novel"]
    monkeypatch.setattr(command, "params", [*command.params, click.Option(["--novel"], is_flag=True)])
    result = CliRunner().invoke(command, args)
    assert isinstance(result.exception, TypeError)
    assert "novel" in str(result.exception)


def test_what_both_commands_share_has_the_same_words():
    of_run, of_batch = ({p.name: p for p in command.params} for command in (run, batch_command))
    for name in [*TRANSCRIPT, "device", "html_audio", "pauses", "no_findings", "quiet"]:
        assert of_run[name].to_info_dict() == of_batch[name].to_info_dict()


def test_limits_are_in_seconds_and_bytes(seen, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handed_on(seen, batch_command, "in", "-o", "out", "--limit-time", "9.5", "--limit-memory", "1.5")
    (order,) = [
        entry[0] for entry in seen if isinstance(entry, tuple) and isinstance(entry[0], folder.BatchRequest)
    ]
    assert (order.limit_time, order.limit_memory) == (9.5, 1_500_000_000)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line about a wrong use of `witness batch in -o out`."""
    with pytest.raises(SystemExit) as stop:
        main(["batch", "in", "-o", "out", *args])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("limit", ["--limit-time", "--limit-memory"])
def test_a_limit_that_nothing_reaches_is_refused(tmp_path, monkeypatch, capsys, limit):
    monkeypatch.chdir(tmp_path)
    assert f"'{limit}': nan is not a number" in refused(capsys, limit, "nan")


@pytest.mark.parametrize("device", ["auto", "cpu", "migraphx"])
@pytest.mark.parametrize("cards", ["banana", "", "0,", "-1", "0,²"])
def test_cards_that_are_no_numbers(tmp_path, monkeypatch, capsys, device, cards):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "--device", device, "--gpu", cards)
    assert line == f"witness: --gpu {cards}: write it as 0 or 0,1"
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--jobs", "2"], "--jobs has"),
        (["--gpu", "0"], "--gpu has"),
        (["--threads", "1"], "--threads has"),
        (["--jobs", "2", "--threads", "1"], "--jobs and --threads have"),
    ],
)
def test_what_a_cluster_decides_by_itself_is_refused(tmp_path, monkeypatch, capsys, args, named):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "--scheduler", "tcp://127.0.0.1:9", *args)
    assert f"{named} no effect with --scheduler" in line
    assert not Path("out").exists()


def test_a_long_note_is_told_once_per_machine_and_not_before_a_refusal(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    note = LongNote("other models: the network is gone", "other models; `witness doctor` says more")

    def told(*, verbose: bool = False, refused: bool = False) -> list[str]:
        with suppress(InputError), options.progress(quiet=False, verbose=verbose) as reporter:
            reporter.note(note)
            reporter.progress("download", 0, 1)
            if refused:
                raise InputError("no recording")
            reporter.progress("decode", 0, 1)
        return capsys.readouterr().err.splitlines()

    assert told(refused=True) == []
    assert told() == [f"note: {note}"]
    assert told() == [f"note: {note.short}"]
    assert told(verbose=True) == [f"note: {note}"]
    assert told(refused=True) == []


def test_the_shell_completes_models_and_languages():
    def completed(command: str, begun: str) -> list[str]:
        (option,) = (one for one in run.params if f"--{command}" in one.opts)
        return [item.value for item in option.shell_complete(click.Context(run), begun)]

    assert {"tiny", "tiny.en"} <= set(completed("whisper", "tin"))
    assert {"auto", "none", "base", "faster-whisper-base"} <= set(completed("whisper", ""))
    assert completed("whisper", "./models/x") == ["./models/x"]  # a path
    assert completed("language", "de") == ["de"]
    assert completed("language", "ger") == ["de"]
    assert completed("language", "de,en") == ["de,en"]
    assert "multi" in completed("language", "")
