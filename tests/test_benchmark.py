"""The accuracy benchmark as it is run: real children, killed in the middle, resumed, refused."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import soundfile

from conftest import CALL, ROOT, in_process
from witness.bench import accuracy, accuracy_report, measurement, run_folder, scoring
from witness.bench.accuracy import find, unscored
from witness.bench.run_folder import AccuracyPlan
from witness.errors import InputError, ModelError, PartlyFailedError, UsageError, WitnessError
from witness.formats import rttm
from witness.options import Options, Runtime
from witness.progress import SILENT
from witness.schema import Turn

NAMES = ("a first", "b", "c")
BUILTIN = ("--models", "builtin", "--offline")


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """Three clips of the call of 7 s, and a reference each."""
    folder = tmp_path_factory.mktemp("pair")
    samples, rate = soundfile.read(CALL, dtype="float32")
    (folder / "deep").mkdir()
    for number, name in enumerate(NAMES):
        place = (6 + 7 * number) * rate
        soundfile.write(folder / "deep" / f"{name}.flac", samples[place : place + 7 * rate], rate)
        turns = [Turn(0.5, 3.0, "x"), Turn(3.0, 6.5, "y")]
        (folder / f"{name}.rttm").write_text(rttm.serialize("whatever", turns))
    return folder


def command(pair: Path, out: Path, *more: str) -> list[str]:
    head = ["bench", "accuracy", "--audio", str(pair)]
    return [*head, "--rttm", str(pair), "-o", str(out), *BUILTIN, *more]


def benchmarked(*args: object) -> subprocess.CompletedProcess:
    """Of a command that succeeds; the recordings have processes of their own."""
    done = in_process(*args)
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.fixture(scope="module")
def finished(pair, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    out = tmp_path_factory.mktemp("bench") / "out"
    return out, benchmarked(pair, *command(pair, out, "--split", "dev"))


@pytest.mark.slow
def test_a_run_leaves_everything_that_can_be_checked(pair, finished):
    out, process = finished
    assert {path.name for path in out.iterdir()} == {
        *("run.json", "rttm", "files", "report.html", "report.md", "report.json"),
        *("der_by_duration.svg", "accuracy_by_speed.svg"),
    }
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["split"] == "dev"
    assert manifest["finished"]
    assert manifest["hardware"]["cores"] >= 1
    assert "numpy" in manifest["versions"]
    assert len(manifest["models"]["segmentation"]) == 64
    report = json.loads((out / "report.json").read_text())
    walls = [record["wall"] for record in report["files"]]
    assert report["times_real_time"] == pytest.approx(21 / sum(walls), rel=0.01)
    # What is scored is what is kept.
    hypotheses = {path.stem: path for path in (out / "rttm").iterdir()}
    assert sorted(hypotheses) == sorted(NAMES)
    there = {name: scoring.read(pair / f"{name}.rttm")["whatever"] for name in NAMES}
    found = {name: next(iter(scoring.read(path).values())) for name, path in hypotheses.items()}
    strict = scoring.pool(scoring.score(scoring.pair(there, found, [])))["strict"]
    assert report["score"]["conventions"][0]["der"] == pytest.approx(strict.rate, abs=0.005)
    text = (out / "report.md").read_text()
    html = (out / "report.html").read_text()
    for convention in scoring.CONVENTIONS:
        assert f"| {convention.name} |" in text
        assert f">{convention.name}</td>" in html
    assert f"| strict | {strict.rate:.2f} |" in text
    assert f"<td>{strict.rate:.2f}</td>" in html
    assert html.count("<svg") == 2
    assert process.stdout.decode().startswith("DER, % of the speech")
    *lines, last = process.stderr.decode().splitlines()
    assert last.startswith(f"wrote {out} (")
    assert [line.split("  ")[0] for line in lines] == [f"note: {n} of 3" for n in (1, 2, 3)]
    assert all("  DER " in line and line.endswith(" left") for line in lines)


def test_pictures_are_svg_and_show_every_recording(finished):
    out, _ = finished
    drawn = ElementTree.parse(out / "der_by_duration.svg").getroot()  # noqa: S314
    circles = drawn.findall("{http://www.w3.org/2000/svg}circle")
    assert {circle[0].text.split(":")[0] for circle in circles} == set(NAMES)
    text = "".join(ElementTree.parse(out / "accuracy_by_speed.svg").getroot().itertext())  # noqa: S314
    for other in accuracy_report.PUBLISHED:
        assert other.name in text
    assert "Witness, this run" in text


@pytest.mark.slow
def test_killed_in_the_middle_and_resumed(pair, finished, tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "witness", *command(pair, out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not (out / "files" / f"{NAMES[0]}.json").exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = (out / "files" / f"{NAMES[0]}.json").read_bytes()
    assert not (out / "report.html").exists()
    # What a machine that lost its power may leave behind.
    (out / "files" / f"{NAMES[1]}.json").write_bytes(kept[: len(kept) // 2])
    (out / "rttm" / f"{NAMES[2]}.rttm").write_bytes(b"SPEAKER c 1 0.")

    again = benchmarked(pair, *command(pair, out))
    assert b"1 of 3 recordings are done already" in again.stderr
    assert (out / "files" / f"{NAMES[0]}.json").read_bytes() == kept
    for name in NAMES:
        assert (out / "rttm" / f"{name}.rttm").read_bytes() == (
            finished[0] / "rttm" / f"{name}.rttm"
        ).read_bytes()
    report, whole = (json.loads((folder / "report.json").read_text()) for folder in (out, finished[0]))
    assert report["score"] == whole["score"]

    # Once more, all is done: the same report without a child.
    before = (out / "report.html").read_bytes()
    benchmarked(pair, *command(pair, out))
    assert (out / "report.html").read_bytes() == before


def test_what_is_written_is_read_back(finished):
    """Folders of before can be continued: the documents have these keys, and give themselves back."""
    out, _ = finished
    document = json.loads((out / "run.json").read_text())
    assert list(document) == [
        *("schema", "split", "settings", "settings_sha256", "tuned_on", "models", "runtime", "recordings"),
        *("without_audio", "references_sha256", "hardware", "versions", "source_sha256", "load_before"),
        *("begun", "finished"),
    ]
    assert list(document["models"]) == ["choice", "segmentation", "embedding", "plda", "rule"]
    assert list(document["hardware"]) == ["processor", "cores", "memory_gb", "system"]
    assert as_json(msgspec.convert(document, run_folder.RunManifest)) == document
    document = json.loads((out / "files" / "b.json").read_text())
    assert list(document) == [
        *("name", "crashes", "error", "audio_sha256", "duration", "wall", "timing", "cpu", "peak_memory_mb"),
        *("device", "warnings", "rttm_sha256"),
    ]
    assert as_json(msgspec.convert(document, run_folder.Done)) == document
    failed = {"name": "b", "crashes": ["signal SIGSEGV"], "error": "damaged", "rttm_sha256": None}
    assert as_json(msgspec.convert(failed, run_folder.Failed)) == failed


def as_json(one: run_folder.RunManifest | run_folder.Record) -> dict:
    return json.loads(json.dumps(msgspec.to_builtins(one)))


def test_the_report_of_an_older_run_is_understood():
    document = json.loads((ROOT / "benchmarks" / "results" / "eval_builtin" / "report.json").read_text())
    files = document.pop("files")
    own = {name: document[name] for name in run_folder.RunManifest.__struct_fields__}
    assert as_json(msgspec.convert(document, run_folder.RunManifest)) == {"schema": run_folder.SCHEMA, **own}
    for file in files:
        assert as_json(msgspec.convert(file, run_folder.Done)) == file


# --- in this process, with other children ---

REPLY = {
    "audio": {"path": "x", "duration": 7.0, "channels": 1, "sha256": "0" * 64},
    "device": {"embedding": "cpu", "whisper": None},
    "timing": {"wall": 0.5, "mode": None},
    "turns": [
        {"start": 0.5, "end": 3.0, "speaker": "SPEAKER_01"},
        {"start": 3.0, "end": 6.0, "speaker": "SPEAKER_02"},
    ],
    "words": 0,
    "warnings": [],
    "failure": None,
    "wall": 0.5,
    "cpu": {"witness": 0.4, "whisper": 0.0},
    "peak_memory_mb": 100.0,
    "whisper_peak_memory_mb": None,
    "spans": [{"stage": "embedding", "begin": 1.0, "wall": 0.1, "cpu": 0.2}],
    "calls": [{"model": "m", "shape": [1, 2], "begin": 1.0, "wall": 0.1, "cpu": 0.1, "thread": 1}],
}


@pytest.fixture
def bench(pair, tmp_path, monkeypatch):
    """`bench(**kwargs)` with children that do what `bench.script` says."""

    def run(folder="out", split=None, tuned_on=None, options=None, script=None):
        cases, missing = find(pair, pair)
        made = run_folder.make(AccuracyPlan((), tmp_path, options=built), SILENT).models
        models = {"segmentation": made.segmentation, "embedding": made.embedding, "whisper": None}
        lines = [
            f"reply = {{**{REPLY!r}, 'models': {models!r}}}",
            script or "",
            "return {'measured': reply}, ()",
        ]
        body = textwrap.indent("\n".join(lines), "    ")
        code = f"import os, pathlib, sys\nfrom witness.child import serve\ndef answer(request, _):\n{body}\n"
        (tmp_path / "scripted.py").write_text(f"{code}serve(answer)\n")
        monkeypatch.setattr(measurement, "MODULE", "scripted")
        plan = AccuracyPlan(cases, tmp_path / folder, missing, options or built, Runtime(), split, tuned_on)
        return accuracy.run(plan, SILENT)

    built = Options(models="builtin", offline=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return run


ONCE = """
mark = pathlib.Path({!r}) / pathlib.Path(request['path']).stem
if not mark.exists():
    mark.touch()
    print("about to crash", file=sys.stderr)
    os.abort()
"""
NEVER = "if request['path'].endswith('b.flac'): os.abort()"
UNREADABLE = """
if request['path'].endswith('b.flac'):
    reply = {'error': 'b.flac: could not be read | <b>', 'exit_code': 4}
"""
NO_MODEL = "reply = {'error': 'no model', 'exit_code': 5}"


def record(folder: Path, name: str) -> dict:
    return json.loads((folder / "out" / "files" / f"{name}.json").read_text())


def test_a_crashed_child_gets_a_second_try(bench, tmp_path):
    scores = bench(script=ONCE.format(str(tmp_path)))
    assert len(scores) == 3
    for name in NAMES:
        found = record(tmp_path, name)
        assert found["error"] is None
        (crash,) = found["crashes"]
        assert "about to crash" in crash


@pytest.mark.slow
@pytest.mark.parametrize(("script", "crashes"), [(NEVER, 1), (UNREADABLE, 0)])
def test_a_recording_that_fails_costs_itself_only(bench, tmp_path, script, crashes):
    with pytest.raises(PartlyFailedError, match=r"1 of 3 .*\(b\)"):
        bench(script=script)
    assert len(record(tmp_path, "b")["crashes"]) == crashes
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["finished"] is None
    missed = next(row for row in report["score"]["recordings"] if row["uri"] == "b")
    assert missed["der"]["strict"] == 100
    for name, escaped in (("report.html", "read | &lt;b&gt;"), ("report.md", r"read \| &lt;b>")):
        text = (tmp_path / "out" / name).read_text()
        assert "1 recordings failed" in text
        assert "could not be read | <b>" not in text
        assert (crashes == 0) == (f"could not be {escaped}" in text)
    # Once it is fixed, the same command runs that recording only.
    assert len(bench(script="assert request['path'].endswith('b.flac')")) == 3
    assert json.loads((tmp_path / "out" / "run.json").read_text())["finished"]


def test_what_every_recording_would_meet_ends_the_run(bench, tmp_path):
    with pytest.raises(WitnessError, match="no model") as caught:
        bench(script=NO_MODEL)
    assert caught.value.exit_code == ModelError.exit_code
    assert not list((tmp_path / "out" / "files").iterdir())


def test_a_run_cannot_go_on_with_other_settings(bench):
    bench()
    with pytest.raises(UsageError, match="other settings"):
        bench(options=Options(models="builtin", offline=True, max_speakers=3))
    with pytest.raises(UsageError, match="other split"):
        bench(split="dev")


@pytest.mark.slow
def test_settings_are_not_tuned_on_test(bench, tmp_path):
    tuned = Options(models="builtin", offline=True, max_speakers=3)
    bench("defaults", split="test")
    with pytest.raises(UsageError, match=r"max_speakers.*--tuned-on"):
        bench("tuned", split="test", options=tuned)
    with pytest.raises(InputError, match=r"run\.json"):
        bench("tuned", split="test", options=tuned, tuned_on=tmp_path / "nowhere")
    bench("dev", split="dev", options=tuned)
    with pytest.raises(UsageError, match="has recordings of this run"):
        bench("tuned", split="test", options=tuned, tuned_on=tmp_path / "dev")
    # The same on other recordings.
    path = tmp_path / "dev" / "run.json"
    dev = {**json.loads(path.read_text()), "recordings": ["others"]}
    for change, complaint in (
        ({"finished": None}, "not finished"),
        ({"split": None}, "not a run with --split dev"),
        ({"settings_sha256": "0"}, "other settings"),
    ):
        path.write_text(json.dumps({**dev, **change}))
        with pytest.raises(UsageError, match=complaint):
            bench("tuned", split="test", options=tuned, tuned_on=tmp_path / "dev")
    path.write_text(json.dumps(dev))
    bench("tuned", split="test", options=tuned, tuned_on=tmp_path / "dev")
    recorded = json.loads((tmp_path / "tuned" / "run.json").read_text())
    assert recorded["tuned_on"]["settings_sha256"] == recorded["settings_sha256"]
    assert len(recorded["tuned_on"]["run_sha256"]) == 64


def test_recordings_are_paired_by_name(pair, tmp_path):
    (tmp_path / "many.rttm").write_text("".join(rttm.serialize(uri, [Turn(0, 1, "x")]) for uri in ("b", "z")))
    cases, missing = find(pair, tmp_path)
    assert [case.name for case in cases] == ["b"]
    assert missing == ("z",)
    assert unscored(pair, cases) == {*NAMES} - {"b"}
    (tmp_path / "twice").mkdir()
    for ending in ("wav", "mp3"):
        (tmp_path / "twice" / f"b.{ending}").touch()
    with pytest.raises(InputError, match="same name"):
        find(tmp_path / "twice", tmp_path)
    with pytest.raises(InputError, match="has the name"):
        find(tmp_path / "many.rttm", pair)
