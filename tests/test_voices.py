"""Known people: who is enrolled, who is recognized, who stays a stranger."""

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from conftest import CALL, in_process
from recordings import OPTIONS as SET
from witness import Options, transcribe
from witness.cli.enroll import enroll
from witness.cli.main import cli
from witness.diarization import voices
from witness.diarization.cohort import NEAREST, Cohort
from witness.diarization.voices import Known, Print, Voice, new_voice
from witness.errors import InputError, OutputError, UsageError
from witness.formats import rttm
from witness.models import store
from witness.options import Layout
from witness.pipeline import Engine
from witness.progress import Reporter
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    WINDOW_SAMPLES,
    Findings,
    ModelFile,
    Segmentation,
    Source,
    Track,
)
from witness.transcript import assemble, corrections

pytestmark = pytest.mark.usefixtures("open_models")

OPTIONS = Options(models="builtin", offline=True, whisper="none")
MODEL = ModelFile("model", "", "m")


def unit(*values: float) -> np.ndarray:
    return np.array(values) / np.linalg.norm(values)


def voice(name: str, vector: np.ndarray) -> Voice:
    return new_voice(name, MODEL, Print(vector * 20.0, 20.0))


# --- by hand ---


def strangers(dims: int = 64) -> Cohort:
    """A cohort of voices in all directions."""
    vectors = np.random.default_rng(0).normal(0, 1, (100, dims))
    return Cohort(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_a_score_counts_from_how_alike_strangers_are():
    cohort = strangers()
    one, other = unit(1, *[0] * 63), unit(1, 1, *[0] * 62)
    near = [np.sort(cohort.vectors @ voice)[-NEAREST:] for voice in (one, other)]
    expected = np.mean([(one @ other - cosines.mean()) / cosines.std() for cosines in near])
    assert cohort.score(one, other) == pytest.approx(expected)
    assert cohort.score(other, one) == pytest.approx(expected)
    # Where all voices sound alike, as on one line, the same cosine is worth less.
    alike = cohort.vectors + unit(1, 1, *[0] * 62)
    alike /= np.linalg.norm(alike, axis=1, keepdims=True)
    assert Cohort(alike).score(one, other) < expected - 2


def test_who_is_recognized_and_who_is_not():
    def near(*first: float) -> np.ndarray:
        return unit(*first, *[0] * 60)

    anna, bo = voice("Anna", near(1, 0, 0, 0)), voice("Bo", near(0, 1, 0, 0))
    known = Known((anna, bo), strangers())
    heard = {
        "S0": Print(near(1, 0.1, 0, 0) * 30, 30.0),
        "S1": Print(near(1, 0.3, 0, 0) * 30, 30.0),  # like Anna, but S0 is more so
        "S2": Print(near(0, 0.3, 1, 0) * 30, 30.0),  # 0.29 from Bo: a stranger
        "S3": Print(near(0, 1, 0, 0) * 2, 2.0),  # Bo to the dot, but too short to say
        "S4": Print(np.zeros(64), 0.0),
    }
    assert {s: v.name for s, (v, _) in voices.recognize(heard, known).items()} == {"S0": "Anna"}
    assert voices.recognize(heard, Known((), strangers())) == {}
    assert voices.recognize({}, known) == {}


def test_a_voice_is_a_plain_file(tmp_path):
    path = voices.write(voice('Zoë / "Z"', unit(*range(1, 257))), tmp_path / "known")
    assert path.name == "Zoë _ _Z_.json"
    if os.name == "posix":
        assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert json.loads(path.read_text())["name"] == 'Zoë / "Z"'
    (read,) = voices.read(tmp_path / "known", MODEL)
    assert read.name == 'Zoë / "Z"'
    assert read.vector == pytest.approx(unit(*range(1, 257)), abs=1e-6)
    before = voices.fingerprint(tmp_path / "known")
    notes: list[str] = []
    assert voices.read(tmp_path / "known", ModelFile("another", "", "a"), Reporter(note=notes.append)) == ()
    assert notes == [
        'Zoë / "Z" was enrolled with model, not with another, and is not recognized; fix: enroll again'
    ]
    with pytest.raises(UsageError, match="choose another name"):
        voices.write(voice("Zoë ? 'Z'", unit(1, 0)), tmp_path / "known")
    path.unlink()
    with pytest.raises(InputError, match="has no voiceprint"):
        voices.read(tmp_path / "known", MODEL)
    assert voices.fingerprint(tmp_path / "known") != before


def test_where_a_voice_goes_is_checked_before_the_work(tmp_path):
    long = voices.write(voice("\U0001d518" * 100, unit(*range(1, 257))), tmp_path)
    assert len(os.fsencode(long.name)) <= 255
    assert voices.read(tmp_path, MODEL)[0].name == "\U0001d518" * 100
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="change --known"):
            voices.path_of("Anna", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", long.name]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "witness-voice/1", "name": "a", "embedding": "m", "vector": [0.5]}']
)
def test_files_that_hold_no_voice(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        voices.read(tmp_path, MODEL)
    with pytest.raises(InputError, match="no such folder"):
        voices.read(tmp_path / "none", MODEL)


@pytest.mark.parametrize(
    ("field", "token", "says"),
    [
        ("seconds", "NaN", "malformed"),
        ("seconds", "1" + "0" * 400, "$.seconds"),
        ("seconds", "-1", "$.seconds"),
        ("vector", "[1.0]", "$.vector"),
        ("vector", "[" + "0," * 255 + "1e300]", "$.vector[255]"),
        ("vector", "[" + "0," * 255 + "0]", "$.vector"),
        ("vector", "[" * 100_000, "$.vector[0]"),
        ("name", '"\\ud800"', "malformed"),
        ("name", '"\\u001b[31m"', "is not a name"),
        ("embedding", "7", "$.embedding"),
    ],
)
def test_voices_that_were_tampered_with(tmp_path, field, token, says):
    path = voices.write(voice("Ana", unit(*range(1, 257))), tmp_path)
    document = json.loads(path.read_text())
    document[field] = "@"
    path.write_text(json.dumps(document).replace('"@"', token))
    with pytest.raises(InputError) as failure:
        voices.read(tmp_path, MODEL)
    assert says in str(failure.value)
    assert str(path) in str(failure.value)


# --- with the builtin models ---


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> dict[str, list[Path]]:
    """Speaker -> two recordings of what they say alone, from the two halves of the call."""
    folder = tmp_path_factory.mktemp("speech")
    samples, rate = soundfile.read(CALL, dtype="float32")
    (turns,) = rttm.parse(CALL.with_suffix(".rttm").read_text()).values()
    recordings: dict[str, list[Path]] = {}
    for speaker in ("agent", "caller"):
        own = [t for t in turns if t.speaker == speaker]
        others = [t for t in turns if t.speaker != speaker]
        alone = [t for t in own if all(o.end <= t.start or t.end <= o.start for o in others)]
        half = sum(t.duration for t in alone) / 2
        parts, seconds = ([], []), 0.0
        for turn in alone:
            parts[seconds >= half].append(samples[int(turn.start * rate) : int(turn.end * rate)])
            seconds += turn.duration
        recordings[speaker] = [folder / f"{speaker}{n}.wav" for n in (0, 1)]
        for path, pieces in zip(recordings[speaker], parts, strict=True):
            soundfile.write(path, np.concatenate(pieces), rate)
    return recordings


@pytest.fixture(scope="module")
def known(speech, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    result = in_process(folder, "enroll", "Agnes", *speech["agent"], "--known", folder, "-q", *SET)
    assert result.stdout.decode() == f"{folder / 'Agnes.json'}\n"
    return folder


@pytest.mark.slow
def test_the_enrolled_is_named_and_the_stranger_is_not(known, short):
    found = transcribe(short, OPTIONS)
    assert [speaker.name for speaker in found.speakers] == [None, None]  # off unless asked for
    notes: list[str] = []
    named = transcribe(short, replace(OPTIONS, known=str(known)), note=notes.append)
    assert named.turns == found.turns
    assert [speaker.name for speaker in named.speakers] == ["Agnes", None]
    assert any("SPEAKER_01 sounds like Agnes" in note for note in notes)
    # It is a correction like any other, so later redos keep it.
    assert [correction.name for correction in named.corrections] == ["Agnes"]


def test_what_is_not_one_voice_is_refused(speech, short):
    engine = Engine(OPTIONS)
    with pytest.raises(InputError, match="2 speakers"):
        enroll("A", [str(short)], engine)
    with pytest.raises(InputError, match="different person"):
        enroll("A", [str(speech["agent"][0]), str(speech["caller"][0])], engine)


def test_after_a_change_of_models_voices_are_made_again(known, short, tmp_path):
    folder = Path(shutil.copytree(known, tmp_path / "people"))
    made = voices.read_one(folder / "Agnes.json")
    assert made.model == "builtin-embedding"
    assert [Path(one.path).name for one in made.recordings] == ["agent0.wav", "agent1.wav"]
    old = replace(made, embedding="0" * 64, model="older", vector=made.vector[::-1])
    again = ("enroll", "--again", "--known", folder, *SET, "-q")
    # One of the recordings is gone, so nothing is lost.
    voices.write(replace(old, recordings=(voices.VoiceSource(str(tmp_path / "gone.wav"), "0"),)), folder)
    failed = in_process(tmp_path, *again)
    assert failed.returncode == 4
    assert "not made again: Agnes" in failed.stderr.decode()
    assert "gone.wav cannot be read" in failed.stderr.decode()
    assert voices.read_one(folder / "Agnes.json").model == "older"
    voices.write(old, folder)
    notes: list[str] = []
    named = transcribe(short, replace(OPTIONS, known=str(folder)), note=notes.append)
    assert not any(speaker.name for speaker in named.speakers)
    assert (
        "Agnes was enrolled with older, not with builtin-embedding, and is not recognized; "
        f"fix: witness enroll --again --known {folder}"
    ) in notes
    done = in_process(tmp_path, *again)
    assert done.stdout.decode() == f"{folder / 'Agnes.json'}\n"
    assert (folder / "Agnes.json").read_bytes() == (known / "Agnes.json").read_bytes()
    assert in_process(tmp_path, *again).stdout == b""  # nothing is left to do


def test_without_a_name_there_is_nobody_to_enroll():
    for wrong in (["enroll"], ["enroll", "Anna"], ["enroll", "--again", "Anna", "a.wav"]):
        result = CliRunner().invoke(cli, wrong)
        assert isinstance(result.exception, UsageError)


def test_the_pair_knows_people(pair, speech, short, tmp_path):
    for name, path in pair.items():
        role = "segmentation" if name.startswith("segmentation") else "embedding"
        shutil.copyfile(path, tmp_path / f"{role}.onnx")
    options = Options(models=str(tmp_path), offline=True, whisper="none")
    voice = enroll("Agnes", [str(path) for path in speech["agent"]], Engine(options))
    voices.write(voice, tmp_path / "known")
    found = transcribe(short, replace(options, known=str(tmp_path / "known"), speakers=2))
    assert [speaker.name for speaker in found.speakers] == ["Agnes", None]


def one_voice(alike: float, spread: float) -> SimpleNamespace:
    """An engine that finds one speaker, whose halves are `alike` (cosine) and whose vectors spread."""
    rng = np.random.default_rng(0)
    n = 40
    vectors = np.full((n, LOCAL_SPEAKERS, 256), np.nan, np.float32)
    vectors[:, 0] = rng.normal(0, spread / 16, (n, 256))
    vectors[:, 0, 0] += np.where(np.arange(n) < n // 2, 1.0, alike)
    vectors[:, 0, 1] += np.where(np.arange(n) < n // 2, 0.0, np.sqrt(1 - alike**2))
    active = np.zeros((n, FRAMES, LOCAL_SPEAKERS), np.bool_)
    active[:, 100:400, 0] = True
    chosen = store.diarization_models("builtin", offline=True)
    findings = Findings(
        audio=Source("talk.wav", n * 10.0, 1, "0" * 64),
        models={},
        device={"whisper": None},
        rule=chosen.rule,
        plda={},
        channels=Layout.MIX,
        tracks=(Track(Segmentation(active, np.arange(n) * WINDOW_SAMPLES), vectors),),
    )
    # 0.603 is the cosine that is needed.
    cohort = SimpleNamespace(score=lambda one, other: float(one @ other) / 0.603 * voices.THRESHOLD)
    return SimpleNamespace(
        chosen=chosen, cohort=cohort, transcribe=lambda _: corrections.apply(assemble.make_draft(findings))
    )


def test_two_people_who_were_taken_for_one_are_refused_or_doubted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    talk = Path("talk.wav")
    talk.touch()
    notes: list[str] = []
    with pytest.raises(InputError, match="sounds like two people"):
        enroll("A", [str(talk)], one_voice(0.58, 0.05), Reporter(note=notes.append))
    assert notes == []
    assert enroll("A", [str(talk)], one_voice(0.7, 0.55), Reporter(note=notes.append)).name == "A"
    assert [note.split(";")[0] for note in notes] == ["talk.wav: there may be two people in it"]
    enroll("A", [str(talk)], one_voice(0.95, 0.5), Reporter(note=notes.append))
    assert len(notes) == 1


def test_a_folder_without_a_voice_ends_the_command_before_the_work(short, tmp_path):
    (tmp_path / "people").mkdir()
    result = CliRunner().invoke(
        cli, ["run", str(short), "--known", str(tmp_path / "people"), "--offline", "-q"]
    )
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 4
    assert "has no voiceprint" in str(result.exception)


def test_too_little_is_refused(tmp_path):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(tmp_path / "short.wav", samples[int(0.6 * rate) : int(4.1 * rate)], rate)
    soundfile.write(tmp_path / "silence.wav", np.zeros(5 * rate), rate)
    engine = Engine(OPTIONS)
    with pytest.raises(InputError, match="too little"):
        enroll("A", [str(tmp_path / "short.wav")], engine)
    with pytest.raises(InputError, match="no speech"):
        enroll("A", [str(tmp_path / "silence.wav")], engine)


def test_others_are_too_many_by_their_share_or_their_seconds():
    assert voices.others([]) == voices.others([9.0]) == voices.others([0.4, 19.6]) == 0
    assert voices.others([19.0, 1.0, 0.5]) == 1.5  # of 20.5 s
    assert voices.others([2.5, 100.0]) == 2.5


@pytest.mark.slow
def test_a_batch(known, short, tmp_path):
    def run(*, code: int = 0) -> tuple[str, str]:
        options = ("-o", "out", "-f", "json", "--whisper", "none", "--known", "people", *SET)
        done = in_process(tmp_path, "batch", short, *options)
        assert done.returncode == code, done.stderr
        return done.stdout.decode(), done.stderr.decode()

    def names() -> list[str | None]:
        document = json.loads((tmp_path / "out" / "call.json").read_text())
        return [speaker["name"] for speaker in document["speakers"]]

    folder = shutil.copytree(known, tmp_path / "people")
    run()
    assert names() == ["Agnes", None]
    assert "1 done before" in run()[0]
    agnes = json.loads((folder / "Agnes.json").read_text())
    (folder / "Agnes.json").unlink()  # forgotten
    assert "people: has no voiceprint" in run(code=4)[1]
    other = {**agnes, "name": "Bo", "vector": agnes["vector"][::-1]}
    (folder / "Bo.json").write_text(json.dumps(other))
    run()  # the batch is made again
    assert names() == [None, None]
