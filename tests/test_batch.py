"""`witness batch`: the recordings it finds, the names of their results, and those that are done again."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile

import ct2
from conftest import CALL, in_process
from recordings import OPTIONS, here, make, run, start
from witness import Engine, machine_limits, pipeline
from witness.cli.batch import BatchCourse
from witness.errors import InputError, UsageError, WitnessError
from witness.options import Channels, Device, Options, PageAudio, Runtime
from witness.progress import Reporter
from witness.schema import ModelFile
from witness.storage import atomic, files
from witness.work import batch, folder, pool, produce
from witness.work.manifest import Entry, Manifest
from witness.work.produce import Job, Outcome, Settings, Writing
from witness.work.queue import LostError
from witness.work.worker import from_json, to_json


def outputs(found, manifest) -> dict[str, str]:
    return {Path(source).name: name for source, name in folder.assign(found, manifest)}


def entry(output: str, source: str = "/in/a.wav", **more) -> Entry:
    return Entry(output, source, 1, 1, "0" * 64, "s", "done", **more)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def report(out: Path) -> dict[str, dict]:
    document = json.loads((out / "report.json").read_text())
    assert document["schema"] == batch.SCHEMA
    return {Path(entry["source"]).name: entry for entry in document["files"]}


# --- recordings and names ---


def test_a_folder_is_searched_and_its_tree_kept(tmp_path):
    for name in (
        "in/a.wav",
        "in/sub/deep/b.MP3",
        "in/.hidden/c.wav",
        "in/.d.wav",
        "in/notes.txt",
        "in/t/x.wav",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = folder.find([f"{tmp_path}/in"], tmp_path / "in" / "t")
    assert [place for _, place in found] == ["a.wav", "sub/deep/b.MP3"]
    # Each of several folders keeps its name; a named file is taken whatever its ending.
    found = folder.find([f"{tmp_path}/in/sub", f"{tmp_path}/in/t", f"{tmp_path}/in/notes.txt"], tmp_path)
    assert [place for _, place in found] == ["notes.txt", "sub/deep/b.MP3", "t/x.wav"]
    assert [place for _, place in folder.find([f"{tmp_path}/in/**/*.wav"], tmp_path)] == [
        "a.wav",
        "x.wav",
    ]
    with pytest.raises(UsageError, match="no recording"):
        folder.find([f"{tmp_path}/in/*.aiff"], tmp_path)


def test_an_address_is_refused_with_the_command_that_fetches_it(tmp_path):
    with pytest.raises(InputError, match=r"yt-dlp -x .* 'https://a.b/c.mp3\?d'"):
        folder.find([str(CALL), "https://a.b/c.mp3?d"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_never_collide(tmp_path):
    manifest = Manifest(tmp_path / "m")
    found = [
        ("/in/a.mp3", "a.mp3"),
        ("/in/a.wav", "a.wav"),
        ("/in/b.wav", "b.wav"),
        ("/in/report.wav", "report.wav"),
    ]
    assert outputs(found, manifest) == {
        "a.mp3": "a.mp3",
        "a.wav": "a.wav",
        "b.wav": "b",
        "report.wav": "report.wav",  # report.json is the batch's own
    }
    composed, apart = unicodedata.normalize("NFC", "é.wav"), unicodedata.normalize("NFD", "é.wav")
    alike = ["Call.wav", "call.wav", composed, apart, "STRASSE.wav", "straße.wav"]
    given = outputs([(f"/in/{name}", name) for name in alike], manifest).values()
    assert len({unicodedata.normalize("NFC", name).casefold() for name in given}) == len(alike)


def test_a_name_once_given_stays(tmp_path):
    manifest = Manifest(tmp_path / "m")
    wav = tmp_path / "a.wav"
    wav.touch()
    manifest.append(entry("a", str(wav)))
    found = [(f"{tmp_path}/a.mp3", "a.mp3"), (str(wav), "a.wav")]
    assert outputs(found, manifest) == {"a.mp3": "a.mp3", "a.wav": "a"}
    # The recording of another folder does not take it while that one exists.
    assert outputs([("/elsewhere/a.wav", "a.wav")], manifest) == {"a.wav": "a.wav"}
    wav.unlink()
    assert outputs([("/elsewhere/a.wav", "a.wav")], manifest) == {"a.wav": "a"}


def test_long_names_leave_room_for_their_endings(tmp_path):
    long = ["ü" * 120 + ".wav", "ü" * 120 + "x.wav", "ü" * 125 + ".wav"]
    given = outputs([(f"/in/{name}", name) for name in long], Manifest(tmp_path / "m"))
    assert len(set(given.values())) == 3
    for name in given.values():
        (tmp_path / f"{name}.findings.npz").touch()


# --- the manifest ---


def test_a_manifest_is_true_after_every_byte(tmp_path):
    path = tmp_path / "manifest.jsonl"
    whole = Manifest(path)
    for number in range(3):
        whole.append(entry(f"ü{number}", f"/in/\udcff{number}.wav", error="\n", duration=1.5))
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    assert len(ends) == 3
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        manifest = Manifest(path)
        # The last line may lack nothing but its line break.
        expected = sum(cut >= end - 1 for end in ends)
        assert len(manifest.entries) == expected
        if cut % 97 == 0 or cut in ends:
            manifest.append(entry("after"))
            assert len(Manifest(path).entries) == expected + 1
    assert Manifest(path).entries == {**whole.entries, "after": entry("after")}


SETTINGS = Settings(Options(models="builtin", offline=True), Runtime(), {})


class Workers:
    """Workers of a batch that call a function of the test."""

    def __init__(self, do=lambda _: Outcome(), workers: int = 1) -> None:
        self.workers = workers
        self.most = 0
        self._open: set[Future] = set()
        self._do, self._threads = do, ThreadPoolExecutor(workers)

    def submit(self, job: Job, _: object) -> Future:
        future = self._threads.submit(self._do, job)
        self._open.add(future)
        self.most = max(self.most, sum(not other.done() for other in list(self._open)))
        future.add_done_callback(self._open.discard)
        return future


LINE = asdict(entry("a", "/in/a.wav", duration=1.5))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("output", value)
            for value in ("../esc/pwn", "/etc/pwn", "a/../../b", "", ".", "a\0b", "\ud800", 7)
        ),
        *(("source", value) for value in (None, ["x"], "a\0", "\udfff")),
        *(("size", value) for value in (-1, 1.5, "1", None, True, 10**400)),
        ("mtime_ns", 1 << 64),
        *(("sha256", value) for value in ("0" * 63, "Z" * 64, 0)),
        *(("state", value) for value in ("finished", None, ["done"], {})),
        *(("error", value) for value in (7, "\ud800")),
        *(("code", value) for value in (None, -1, "0")),
        *(("duration", value) for value in (float("nan"), float("inf"), -1, "1", [[]])),
        ("seconds", None),
        ("speakers", 1.5),
        ("more", 1),
    ],
)
def test_a_line_of_the_manifest_that_is_not_valid_is_dropped_and_named(tmp_path, field, value):
    path = tmp_path / "manifest.jsonl"
    good = json.dumps(LINE)
    bad = json.dumps({**LINE, "output": "b", "source": "/in/b.wav", field: value})
    path.write_text(f"{good}\n{bad}\n")
    manifest = Manifest(path)
    assert list(manifest.entries) == ["a"]
    (line,) = manifest.dropped
    assert line.startswith(f"{path}: line 2 is not used: ")
    assert field == "more" or field in line
    line.encode()


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "[]", "null", "7", '{"output": 1}', "{}", '{"a":' * 50_000, "\x1b[2J", "9" * 5000]
)
def test_a_line_of_the_manifest_that_is_something_else(tmp_path, line):
    path = tmp_path / "manifest.jsonl"
    path.write_text(f"{line}\n{json.dumps(LINE)}\n")
    manifest = Manifest(path)
    assert list(manifest.entries) == ["a"]
    assert len(manifest.dropped) == 1


def test_a_job_survives_the_way_to_a_worker():
    options = Options(
        models="builtin", channels=Channels.SPLIT, vocabulary=("Łódź",), prompt="a", translate=True
    )
    runtime = Runtime(Device.CPU, threads=2)
    settings = Settings(options, runtime, {"whisper": None}, ("a warning",), Writing(False, PageAudio.LINK))
    job = Job("/in/\udcff.wav", (("json", Path("/out/a.json")),), settings, 2.5, 10**9)
    assert from_json(to_json(job), Job) == job


def test_workers_fit_the_machine(monkeypatch):
    monkeypatch.setattr(machine_limits, "cores", lambda: 8)
    assert pool.worker_count(None, 100, None) == 8
    assert pool.worker_count(None, 100, 4 * pool.PEAK) == 4
    assert pool.worker_count(3, 100, 4 * pool.PEAK) == 3
    assert pool.worker_count(None, 100, 4 * pool.PEAK, weights=pool.PEAK) == 2
    assert pool.worker_count(None, 2, None) == 2
    assert pool.worker_count(None, 0, 1) == 1
    assert pool.worker_runtime(2, Device.CPU) == Runtime(Device.CPU, threads=4)
    assert pool.worker_runtime(8, Device.CPU) == Runtime(Device.CPU, threads=1, serial=True)
    assert pool.worker_runtime(8, Device.AUTO, 3) == Runtime(threads=3)


def test_the_fingerprint_follows_the_result_and_nothing_else():
    """Recordings are done again if it changes: by an option or a model, not by the machine."""
    hashes = {"segmentation": "0" * 64, "embedding": "1" * 64, "whisper": "3" * 64}
    usual = Settings(Options(), Runtime(threads=3), hashes)
    same = Settings(
        Options(models="builtin", whisper="base", offline=True, known="/people"), Runtime(), hashes
    )
    assert folder.fingerprint(
        replace(same, warnings=("a warning",), writing=Writing(keep_findings=False))
    ) == folder.fingerprint(usual)
    others = [
        Options(vocabulary=("Anna",)),
        Options(language="en"),
        Options(speakers=2),
        Options(channels=Channels.SPLIT),
        Options(fast=True),
        Options(start=1.0),
    ]
    found = {folder.fingerprint(replace(usual, options=options)) for options in others}
    found |= {
        folder.fingerprint(replace(usual, models=hashes | {"known": "2" * 64})),
        folder.fingerprint(usual),
    }
    assert len(found) == len(others) + 2


def test_a_batch_settles_on_a_model_and_counts_its_memory(tmp_path):
    model = ct2.write(tmp_path / "tones")
    settings = produce.resolve_settings(Options(whisper=str(model), models="builtin", offline=True))
    assert settings.options.whisper == str(model)
    assert settings.weights == sum(file.stat().st_size for file in model.iterdir()) > 0


def test_a_worker_s_recognizer_has_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(machine_limits, "cores", lambda: 12)
    given = []
    monkeypatch.setattr(
        pipeline.recognition, "TrackRecognizer", lambda *_, threads, **__: given.append(threads) or Mock()
    )
    for workers in (1, 3, 12):
        engine = Engine(Options(), pool.worker_runtime(workers, Device.CPU))
        pipeline._Run(engine, Reporter(), [])._recognizer(ModelFile("m", "", ""))
    assert given == [12, 4, 1]


# --- whole batches ---


@pytest.mark.slow
def test_a_batch_resumes_and_tells_the_truth(tmp_path):
    make(tmp_path / "in" / "sub", 2, 1.0)
    (tmp_path / "in" / "bad.mp3").write_bytes(b"no sound at all" * 100)
    arguments = ("in", "-o", "out", "--whisper", "none")
    stdout, stderr = run(*arguments, "-f", "json", cwd=tmp_path, code=3)
    assert names(tmp_path / "out") == [
        *("manifest.jsonl", "report.json"),
        *("sub/call00.findings.npz", "sub/call00.json", "sub/call01.findings.npz", "sub/call01.json"),
    ]
    assert "3 recordings: 2 done, 1 failed" in stdout
    assert "bad.mp3: is not in a format" in stdout
    assert "failed: " in stderr
    found = report(tmp_path / "out")
    assert {name: entry["state"] for name, entry in found.items()} == {
        "bad.mp3": "failed",
        "call00.flac": "done",
        "call01.flac": "done",
    }
    assert found["bad.mp3"]["code"] == 4
    assert found["call00.flac"]["files"] == ["sub/call00.json"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "sub").iterdir()}

    # Again: nothing to do, and the failure is not forgotten.
    stdout, _ = here(*arguments, "-f", "json", cwd=tmp_path, code=3)
    assert "3 recordings: 0 done, 2 done before, 1 failed" in stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "sub").iterdir()} == before

    # The bad one is repaired: only it is done. Its content is new, so --retry-failed is not even needed.
    shutil.copy(tmp_path / "in" / "sub" / "call00.flac", tmp_path / "in" / "bad.mp3")
    stdout, _ = here(*arguments, "-f", "json", cwd=tmp_path)
    assert "1 done, 2 done before" in stdout

    # A copy elsewhere, with other times, is known by its content once the original is gone.
    (tmp_path / "in").rename(tmp_path / "moved")
    (tmp_path / "moved" / "bad.mp3").touch()
    stdout, _ = here("moved", *arguments[1:], "-f", "json", cwd=tmp_path)
    assert "0 done, 3 done before" in stdout

    # Other settings and other formats are work; --force is, too.
    stdout, _ = here("moved", *arguments[1:], "-f", "json", "--speakers", 1, cwd=tmp_path)
    assert "3 done" in stdout
    stdout, _ = here("moved", *arguments[1:], "-f", "json", "-f", "srt", "--speakers", 1, cwd=tmp_path)
    assert "3 done" in stdout
    stdout, _ = here("moved/bad.mp3", *arguments[1:], "-f", "json", "--speakers", 1, "--force", cwd=tmp_path)
    assert "1 recording: 1 done" in stdout


@pytest.mark.slow
def test_what_cannot_be_a_recording_or_is_not_ours_stops_nothing(tmp_path):
    """A hostile manifest, a stranger's file in the place of a result, a pipe, results with corrections."""
    make(tmp_path / "in", 3, 1.0)
    os.mkfifo(tmp_path / "in" / "pipe.wav")
    (tmp_path / "in" / "socket.wav").symlink_to("/dev/null")
    arguments = ("in", "-o", "out", "-f", "json", "--whisper", "none", "--jobs", 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "call01.json").write_text('{"mine": 1}')
    (tmp_path / "out" / "call02.findings.npz").mkdir()
    source = str(tmp_path / "in" / "call00.flac")
    line = {**LINE, "source": source, "output": "../esc/pwn", "state": "failed", "sha256": None}
    (tmp_path / "out" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    stdout, stderr = run(*arguments, cwd=tmp_path, code=3)
    assert "line 1 is not used: its output cannot be" in stderr
    assert "out/call01.json: is there already and not of this batch; fix: move it away, or use" in stdout
    assert "call02.findings.npz: is there already" in stdout
    assert "pipe.wav is not a regular file" in stdout
    assert "socket.wav is not a regular file" in stdout
    assert "5 recordings: 1 done, 4 failed" in stdout
    assert (tmp_path / "out" / "call01.json").read_text() == '{"mine": 1}'
    assert not (tmp_path / "esc").exists()
    assert json.loads((tmp_path / "out" / "call00.json").read_text())["audio"]["path"] == source
    # A recording that is done is replaced by a pipe: the parent does not wait for it, either.
    (tmp_path / "in" / "call00.flac").unlink()
    os.mkfifo(tmp_path / "in" / "call00.flac")
    stdout, _ = run(*arguments, "--retry-failed", cwd=tmp_path, code=3)
    assert "call00.flac is not a regular file" in stdout
    assert "5 recordings: 0 done, 5 failed" in stdout
    (tmp_path / "in" / "call00.flac").unlink()
    # Found again when it was refused, and written over when asked.
    here("in/call01.flac", *arguments[1:], "--retry-failed", cwd=tmp_path, code=3)
    here("in/call01.flac", *arguments[1:], "--force", cwd=tmp_path)
    document = json.loads((tmp_path / "out" / "call01.json").read_text())
    # A batch that has lost its manifest knows its own results, and the work of a person.
    (tmp_path / "out" / "manifest.jsonl").unlink()
    here("in/call01.flac", *arguments[1:], cwd=tmp_path)
    name = {"kind": "name", "speaker": [[0, 1]], "name": "Anna", "other": [], "text": None}
    document["corrections"] = [name]
    (tmp_path / "out" / "call01.json").write_text(json.dumps(document))
    here("in/call01.flac", *arguments[1:], "--speakers", 1, cwd=tmp_path)  # the name was from --known
    document["corrected"] = True
    corrected = json.dumps(document)
    (tmp_path / "out" / "call01.json").write_text(corrected)
    stdout, _ = here("in/call01.flac", *arguments[1:], "--speakers", 2, cwd=tmp_path, code=3)
    assert "call01.json: holds corrections, which a new transcript would lose" in stdout
    assert (tmp_path / "out" / "call01.json").read_text() == corrected


def test_a_format_of_what_is_done_is_written_from_the_transcript_with_its_corrections(tmp_path):
    make(tmp_path / "in", 2, 1.0)
    arguments = ("in", "-o", "out", "--whisper", "none")
    here(*arguments, cwd=tmp_path)
    path = tmp_path / "out" / "call00.json"
    assert in_process(tmp_path, "redo", path, "--name", "SPEAKER_01=Zoe").returncode == 0
    assert "Zoe" in path.with_suffix(".txt").read_text()
    before = {file: file.stat().st_mtime_ns for file in path.parent.glob("call*")}
    stdout, stderr = here(*arguments, "-f", "json", "-f", "srt", "-f", "md", cwd=tmp_path)
    assert "2 written from existing transcripts" in stdout
    assert "earlier run" not in stderr
    assert "Zoe" in path.with_suffix(".srt").read_text()
    assert "Zoe" in path.with_suffix(".md").read_text()
    assert {file: file.stat().st_mtime_ns for file in before} == before  # nothing was transcribed again
    stdout, _ = here(*arguments, "-f", "srt", cwd=tmp_path)
    assert "2 done before" in stdout
    # Other settings give another transcript, which would disagree with the corrections.
    stdout, _ = here(*arguments, "-f", "vtt", "--speakers", 1, cwd=tmp_path, code=3)
    assert "call00.json: holds corrections" in stdout
    assert "1 done, 1 failed" in stdout


def test_a_result_without_its_line_in_the_manifest_is_ours(tmp_path):
    """As after a kill -9 between the two: only JSON tells whose it is."""
    make(tmp_path / "in", 1, 1.0)
    arguments = ("in", "-o", "out", "-f", "txt", "--whisper", "none", "--jobs", 1)
    here(*arguments, cwd=tmp_path)
    manifest = tmp_path / "out" / "manifest.jsonl"
    begun, done = manifest.read_text().splitlines()
    assert (json.loads(begun)["state"], json.loads(done)["state"]) == ("begun", "done")
    manifest.write_text(begun + "\n")
    stdout, _ = here(*arguments, cwd=tmp_path)
    assert "1 recording: 1 done" in stdout


def test_no_room_for_the_sound_of_one_recording_is_no_end_of_the_batch(tmp_path, monkeypatch):
    from witness.audio import spool

    make(tmp_path / "in", 2, 1.0)
    append, failed = spool.Spool.append, []

    def once(self, samples):
        if failed:
            return append(self, samples)
        failed.append(1)
        raise self._trouble(OSError(28, "No space left on device")) from OSError(28, "No space")

    monkeypatch.setattr(spool.Spool, "append", once)
    stdout, _ = here("in", "-o", "out", "--whisper", "none", "--jobs", 1, cwd=tmp_path, code=3)
    assert "2 recordings: 1 done, 1 failed" in stdout
    assert "cannot hold the decoded sound (No space left on device)" in stdout


@pytest.mark.slow
def test_results_are_those_of_a_single_run(short, tmp_path):
    shutil.copy(short, tmp_path / "call.flac")
    run("call.flac", "-o", "out", "-f", "json", "--whisper", "none", cwd=tmp_path)
    in_process(tmp_path, tmp_path / "call.flac", "-o", "call.json", *OPTIONS, "--whisper", "none")
    batched, single = (json.loads((tmp_path / where).read_text()) for where in ("out/call.json", "call.json"))
    del batched["timing"], single["timing"]
    assert batched == single  # the hash of the findings, too


def test_failures_are_retried_when_asked(tmp_path):
    make(tmp_path / "in", 1, 1.0)
    (tmp_path / "in" / "bad.wav").touch()
    here("in", "-o", "out", "--whisper", "none", cwd=tmp_path, code=3)
    lines = (tmp_path / "out" / "manifest.jsonl").read_text().count("\n")
    here("in", "-o", "out", "--whisper", "none", cwd=tmp_path, code=3)
    assert (tmp_path / "out" / "manifest.jsonl").read_text().count("\n") == lines
    stdout, _ = here("in", "-o", "out", "--whisper", "none", "--retry-failed", cwd=tmp_path, code=3)
    assert (tmp_path / "out" / "manifest.jsonl").read_text().count("\n") == lines + 1
    assert "1 done before, 1 failed" in stdout


def test_two_batches_on_one_folder(tmp_path):
    with (
        folder.locked(tmp_path / "out"),
        pytest.raises(WitnessError, match="another batch"),
        folder.locked(tmp_path / "out"),
    ):
        pass
    with folder.locked(tmp_path / "out"):
        make(tmp_path / "in", 1, 1.0)
        _, err = here("in", "-o", "out", "--whisper", "none", cwd=tmp_path, code=1)
    assert "another batch is at work in out" in err


@pytest.mark.slow
def test_watch_takes_a_recording_once_it_stops_growing(tmp_path):
    first, second = make(tmp_path / "made", 2)
    (tmp_path / "in").mkdir()
    process = start(
        "in", "-o", "out", "-f", "json", "--whisper", "none", "--watch", "--jobs", 1, cwd=tmp_path
    )
    try:
        content = second.read_bytes()
        with (tmp_path / "in" / "grows.flac").open("wb", buffering=0) as file:
            for place in range(0, len(content), len(content) // 12):
                file.write(content[place : place + len(content) // 12])
                time.sleep(0.6)
                assert not (tmp_path / "out" / "grows.json").exists()
            shutil.copy(first, tmp_path / "in" / "whole.flac")
        end = time.monotonic() + 60
        manifest = tmp_path / "out" / "manifest.jsonl"
        while time.monotonic() < end:
            if manifest.exists() and manifest.read_text().count('"state": "done"') == 2:
                break
            time.sleep(0.2)
        duration = json.loads((tmp_path / "out" / "grows.json").read_text())["audio"]["duration"]
        assert duration == pytest.approx(4.0, abs=0.1)
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    # That is how one ends it: no failure, and the table.
    assert process.returncode == 0, err.decode()
    assert out.decode().startswith("2 recordings: 2 done; ")
    lines = err.decode().splitlines()
    assert sorted(lines) == [f"note: done: {tmp_path}/in/{name}.flac" for name in ("grows", "whole")]


def test_an_outcome_without_room_ends_the_batch(tmp_path):
    from witness.errors import OutputError

    make(tmp_path / "in", 2, 1.0)
    with folder.locked(tmp_path / "out"):
        work = batch.Batch(folder.BatchRequest([f"{tmp_path}/in"], tmp_path / "out", ["json"]), SETTINGS)
        workers = Workers(lambda job: Outcome(f"{job.source}: no space", 1, full=True))
        with pytest.raises(OutputError, match="run the same command again to continue"):
            work.run(workers, Runtime())
    assert work.summary() == batch.BatchSummary(
        done=0, skipped=0, failed=0, left=2, check=0, audio_seconds=0.0
    )
    assert len(report(tmp_path / "out")) == 2


def test_what_a_killed_worker_left_goes_with_the_batch(tmp_path):
    make(tmp_path / "in" / "sub", 1, 1.0)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    begin = "-".join([*atomic.scratch_name().split("-")[:2], str(dead.pid)])
    left = [tmp_path / "out" / place for place in (f"{begin}-a", f"sub/{begin}-b")]
    with folder.locked(tmp_path / "out"):
        work = batch.Batch(folder.BatchRequest([f"{tmp_path}/in"], tmp_path / "out", ["json"]), SETTINGS)

        def leave(_: Job) -> Outcome:
            for path in left:
                path.parent.mkdir(exist_ok=True)
                path.touch()
            return Outcome(None, 0)

        work.run(Workers(leave), Runtime())
    assert not any(path.exists() for path in left)


def test_progress_is_readable_in_a_log(monkeypatch):
    from witness.cli import batch as command

    now = [0.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    lines: list[str] = []
    tell = command._tell(Reporter(note=lines.append), BatchCourse())
    for second in range(0, 100, 5):
        now[0] = float(second)
        tell(batch.BatchProgress(second, 200, 1, second * 36.0, 7425.4 if second else None))
    assert lines == [
        "35 of 200 recordings, 0.35 h of audio, 1 failed, about 2:03:45 left",
        "70 of 200 recordings, 0.70 h of audio, 1 failed, about 2:03:45 left",
    ]


def test_files_of_other_formats_from_an_earlier_run_are_told_of(tmp_path):
    """They are left alone: a person may have worked on them."""
    work = object.__new__(batch.Batch)
    work._formatted = set()
    work.request = folder.BatchRequest(inputs=(), out=tmp_path, formats=("md",))
    fields = {"size": 1, "mtime_ns": 1, "sha256": None, "settings": "", "error": None, "code": 0}
    entries = {name: Entry(name, f"/in/{name}.wav", state="done", **fields) for name in ("new", "old")}
    work.results = {
        "new": batch.Result(entries["new"], "done"),
        "old": batch.Result(entries["old"], "skipped"),
    }
    for name in ("new.md", "new.json", "new.txt", "new.findings.npz", "old.srt"):
        (tmp_path / name).touch()
    assert work.outdated() == ["txt", "json"]
    work.request = replace(work.request, formats=("md", "json"))
    assert work.outdated() == []  # with a JSON all that lies beside it is written


def test_what_is_done_but_should_be_looked_at_is_a_group_of_its_own(tmp_path):
    whole, cut, silent = make(tmp_path / "in", 3)
    samples, rate = soundfile.read(CALL, frames=8 * soundfile.info(CALL).samplerate, dtype="int16")
    soundfile.write(cut.with_suffix(".wav"), samples, rate)
    content = cut.with_suffix(".wav").read_bytes()
    cut.with_suffix(".wav").write_bytes(content[: len(content) // 2])
    cut.unlink()
    soundfile.write(silent, np.zeros(4 * rate), rate)
    arguments = ("in", "-o", "out", "-f", "json", "-f", "txt", "--whisper", "none", "--jobs", 1)
    for words in ("3 done, 2 to check", "0 done, 3 done before, 2 to check"):
        stdout, _ = here(*arguments, cwd=tmp_path)
        first, second, sums = stdout.splitlines()
        assert first.startswith(
            f"done, but check  {cut.with_suffix('.wav')}: ends early (the header promises "
        )
        assert second == f"done, but check  {silent}: no speech was found in this recording"
        assert sums.startswith(f"3 recordings: {words}; ")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"] == 2
    doubts = {Path(row["source"]).name: len(row["doubts"]) for row in report["files"]}
    assert doubts == {whole.name: 0, cut.with_suffix(".wav").name: 1, silent.name: 1}
    text = (tmp_path / "out" / f"{cut.stem}.txt").read_text()
    assert text.startswith(f"[{cut.with_suffix('.wav')}: ends early (the header promises ")


def test_the_same_bytes_are_recognized_once(tmp_path, monkeypatch):
    """Identical files of one run, one that comes later, and one that was moved with its corrections."""
    first, other = make(tmp_path / "in", 2)
    shutil.copy(first, tmp_path / "in" / "copy.flac")
    recognized = []
    transcribe = Engine.transcribe

    def counted(self, recording, **more):
        recognized.append(Path(recording).name)
        return transcribe(self, recording, **more)

    monkeypatch.setattr(Engine, "transcribe", counted)
    arguments = ("in", "-o", "out", "-f", "json", "-f", "txt", "--whisper", "none", "--jobs", 1)
    stdout, err = here(*arguments, cwd=tmp_path)
    assert "3 recordings: 3 done" in stdout
    assert recognized == ["call00.flac", "call01.flac"]
    assert "has the same bytes as" in err

    out = tmp_path / "out"
    documents = {name: json.loads((out / f"{name}.json").read_text()) for name in ("call00", "copy")}
    assert documents["copy"]["audio"]["path"] == str(tmp_path / "in" / "copy.flac")
    for document in documents.values():
        del document["audio"]["path"], document["timing"], document["findings"]
    assert documents["copy"] == documents["call00"]
    in_process(tmp_path, "redo", "out/copy.json", "-q", "--name", "SPEAKER_01=Anna")  # it has its findings
    assert "Anna" in (out / "copy.txt").read_text()

    (tmp_path / "in" / "new").mkdir()
    moved = (tmp_path / "in" / "copy.flac").rename(tmp_path / "in" / "new" / "moved.flac")
    recognized.clear()
    stdout, err = here(*arguments, cwd=tmp_path)
    assert recognized == []
    assert f"{moved} was {tmp_path / 'in' / 'copy.flac'} before, and was not recognized again" in err
    assert "Anna" in (out / "new" / "moved.txt").read_text()
    assert (out / "copy.json").exists()  # nothing is lost
    assert "3 recordings: 1 done, 2 done before" in stdout
    assert other.exists()


def work_on(tmp_path, contents: list[str], workers: Workers) -> batch.Batch:
    """A batch over recordings with these contents, with stand-ins for the work and the results."""
    (tmp_path / "in").mkdir()
    for number, content in enumerate(contents):
        (tmp_path / "in" / f"{number:04d}.wav").write_text(content)
    with folder.locked(tmp_path / "out"):
        work = batch.Batch(folder.BatchRequest([f"{tmp_path}/in"], tmp_path / "out", ["json"]), SETTINGS)
        work.run(workers, Runtime())
    return work


def transcribed(job: Job) -> Outcome:
    """The outcome of a recording whose work takes no time; its JSON says only whose it is."""
    sha256 = hashlib.sha256(Path(job.source).read_bytes()).hexdigest()
    audio = {"path": job.source, "sha256": sha256}
    document = {"schema": "witness/1", "audio": audio, "corrections": [], "timing": {"decode": None}}
    for _, path in job.files:
        Path(path).write_text(json.dumps(document))
    return Outcome(sha256=sha256, duration=1.0, seconds=1.0, twin=job.twin)


@pytest.mark.slow
def test_each_of_many_files_of_one_size_is_read_once(tmp_path, monkeypatch):
    reads: Counter[str] = Counter()
    sha256_at = files.sha256_at

    def counted(path):
        reads[str(path)] += 1
        return sha256_at(path)

    monkeypatch.setattr(files, "sha256_at", counted)
    copies = 100
    contents = [f"{number % (2000 - copies):08d}" for number in range(2000)]
    twins = []
    workers = Workers(lambda job: twins.append(job.twin) or transcribed(job), workers=2)
    work = work_on(tmp_path, contents, workers)
    assert work.summary().done == 2000
    assert set(reads.values()) == {1}
    assert len(reads) > 1000
    assert sum(twin is not None for twin in twins) == copies


def test_no_more_than_twice_the_workers_are_submitted_at_a_time(tmp_path):
    def slow(job: Job) -> Outcome:
        time.sleep(0.01)
        return transcribed(job)

    workers = Workers(slow, workers=3)
    work = work_on(tmp_path, [str(number) for number in range(60)], workers)
    assert work.summary().done == 60
    assert workers.most == 6


def test_copies_at_the_same_time_wait_for_the_first(tmp_path):
    begun = []
    workers = Workers(lambda job: begun.append(job.twin) or time.sleep(0.05) or transcribed(job), workers=4)
    assert work_on(tmp_path, ["the same"] * 4, workers).summary().done == 4
    assert begun == [None] + [str(tmp_path / "out" / "0000.json")] * 3


def test_a_recording_whose_disk_fails_is_tried_once_more_after_the_others(tmp_path):
    order = []

    def fails(job: Job) -> Outcome:
        order.append(Path(job.source).name)
        if order.count("0000.wav") < 2 and order[-1] == "0000.wav":
            return Outcome("the disk failed", 4, later=True)
        return Outcome("it failed again", 4, later=True) if order[-1] == "0001.wav" else transcribed(job)

    work = work_on(tmp_path, ["a", "bb", "ccc"], Workers(fails))
    assert order == ["0000.wav", "0001.wav", "0002.wav", "0000.wav", "0001.wav"]
    assert (work.summary().done, work.summary().failed) == (2, 1)


def test_what_a_cluster_lost_is_left_for_the_next_run(tmp_path):
    def lost(job: Job) -> Outcome:
        if job.source.endswith("0001.wav"):
            raise LostError(f"{job.source}: its Dask worker is lost (KilledWorker)")
        return transcribed(job)

    work = work_on(tmp_path, ["a", "bb", "ccc"], Workers(lost))
    assert (work.summary().done, work.summary().left, work.summary().failed) == (2, 1, 0)
    assert report(tmp_path / "out")["0001.wav"]["state"] == "left"
    again = batch.Batch(folder.BatchRequest([f"{tmp_path}/in"], tmp_path / "out", ["json"]), SETTINGS)
    assert [Path(item.source).name for item in again.todo] == ["0001.wav"]
