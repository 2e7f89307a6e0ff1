"""The named corpora of the benchmark: their own references as turns, and which recording each is about."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import CALL, DATA, ROOT
from witness.bench import accuracy, scoring
from witness.cli.main import cli
from witness.errors import InputError
from witness.schema import Turn

sys.path.insert(0, str(ROOT / "benchmarks"))
import corpora
from corpora import CORPORA

TEXTGRID = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 9
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "N_SPK8013"
        xmin = 0
        xmax = 9
        intervals: size = 4
        intervals [1]:
            xmin = 0
            xmax = 1.5
            text = ""
        intervals [2]:
            xmin = 1.5
            xmax = 4.25
            text = "你好"
        intervals [3]:
            xmin = 4.25
            xmax = 5
            text = "<sil>"
        intervals [4]:
            xmin = 5
            xmax = 9
            text = "<$> 对"
    item [2]:
        class = "IntervalTier"
        name = "N_SPK8014"
        xmin = 0
        xmax = 9
        intervals: size = 1
        intervals [1]:
            xmin = 4
            xmax = 6
            text = "好"
"""
NLP = """token|speaker|ts|endTs|punctuation|case|tags|wer_tags
Good|1|0.50|0.80||UC|[]|[]
morning|1|0.85|1.30|.|LC|[]|[]
everyone|1|||.|LC|[]|[]
Thanks|2|1.40|1.80||UC|[]|[]
So|2|2.40|2.60|,|UC|[]|[]
"Yes|1|2.70|3.00|.|UC|[]|[]
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "audio").mkdir()
    (tmp_path / "references").mkdir()
    return tmp_path


def test_a_textgrid(folder):
    pytest.importorskip("praatio")
    path = folder / "references" / "R8001_M8004.TextGrid"
    path.write_text(TEXTGRID, encoding="utf-8")
    assert corpora.read_textgrid(path) == [
        Turn(1.5, 4.25, "N_SPK8013"),
        Turn(4.0, 6.0, "N_SPK8014"),
        Turn(5.0, 9.0, "N_SPK8013"),
    ]
    path.write_text("nonsense")
    with pytest.raises(InputError, match=r"R8001_M8004\.TextGrid: not a TextGrid"):
        corpora.read_textgrid(path)


def test_an_nlp_file(folder):
    path = folder / "references" / "4320211.nlp"
    path.write_text(NLP)
    assert corpora.read_nlp(path) == [
        Turn(0.5, 1.3, "1"),  # the word without times is left out
        Turn(1.4, 1.8, "2"),
        Turn(2.4, 2.6, "2"),  # after a gap of 0.6 s
        Turn(2.7, 3.0, "1"),
    ]
    for damage in ("token|speaker\na|1\n", NLP.replace("0.80", "x")):
        path.write_text(damage)
        with pytest.raises(InputError, match=r"not an \.nlp file"):
            corpora.read_nlp(path)


@pytest.mark.parametrize(
    ("recording", "name", "its"),
    [
        ("ES2004a.Mix-Headset", "ES2004a", True),
        ("ES2004a", "ES2004a", True),
        ("R8001_M8004_MS801", "R8001_M8004", True),
        ("ES2004ab", "ES2004a", False),
        ("4320211", "432021", False),
    ],
)
def test_which_recording_a_reference_is_about(recording, name, its):
    assert corpora.belongs(recording, name) == its


def test_recordings_and_references_of_a_corpus(folder):
    pytest.importorskip("praatio")
    for name in ("R8001_M8004_MS801.wav", "R8009_M8020_MS810.wav"):
        (folder / "audio" / name).touch()
    (folder / "references" / "R8001_M8004.TextGrid").write_text(TEXTGRID, encoding="utf-8")
    (folder / "references" / "R8999_M8999.TextGrid").write_text(TEXTGRID, encoding="utf-8")
    (folder / "all.uem").write_text("R8001_M8004 1 0 8.5\n")
    places = folder / "references", folder / "audio", folder / "out"
    missing = corpora.convert(CORPORA["alimeeting"], *places, folder / "all.uem")
    cases, unpaired = accuracy.find(folder / "audio", folder / "out")
    assert [(case.name, case.audio.name, len(case.reference)) for case in cases] == [
        ("R8001_M8004_MS801", "R8001_M8004_MS801.wav", 3)
    ]
    assert (missing, unpaired) == (["R8999_M8999"], ())
    assert accuracy.unscored(folder / "audio", cases) == {"R8009_M8020_MS810"}
    assert scoring.read_uem(folder / "out") == {"R8001_M8004_MS801": [(0.0, 8.5)]}
    with pytest.raises(InputError, match=r"no \.rttm or \.nlp file there; give the \.rttm files of Rev"):
        corpora.convert(CORPORA["earnings21"], *places)
    (folder / "audio" / "R8001_M8004_MS802.wav").touch()
    with pytest.raises(InputError, match="MS801 and R8001_M8004_MS802 belong to R8001_M8004"):
        corpora.convert(CORPORA["alimeeting"], *places)


def test_rttm_files_are_preferred(folder, monkeypatch, capsys):
    (folder / "audio" / "4320211.mp3").touch()
    (folder / "references" / "4320211.nlp").write_text(NLP)
    places = [str(folder / name) for name in ("audio", "references", "out")]
    monkeypatch.setattr(sys, "argv", ["corpora.py", "earnings21", *places])
    corpora.main()
    cases, _ = accuracy.find(folder / "audio", folder / "out")
    assert len(cases[0].reference) == 4
    assert "Earnings-21" in capsys.readouterr().err
    (folder / "references" / "4320211.rttm").write_text("SPEAKER x 1 0.5 1.0 <NA> <NA> A <NA> <NA>\n")
    corpora.main()
    cases, _ = accuracy.find(folder / "audio", folder / "out")
    assert cases[0].reference == (Turn(0.5, 1.5, "A"),)


def test_a_folder_of_uem_files(tmp_path):
    (tmp_path / "a.uem").write_text("ES2004a 1 0.0 1049.4\n")
    (tmp_path / "b.uem").write_text("ES2004b 1 0.0 100\nES2004b 1 200 300\n")
    assert scoring.read_uem(tmp_path) == {
        "ES2004a": [(0.0, 1049.4)],
        "ES2004b": [(0.0, 100.0), (200.0, 300.0)],
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.uem file"):
        scoring.read_uem(tmp_path / "empty")


def test_every_corpus_says_where_it_is_from_and_how_it_is_scored():
    for name, corpus in CORPORA.items():
        assert all((corpus.title, corpus.get, corpus.audio, corpus.reference, corpus.convention)), name
        assert set(corpus.endings) <= set(corpora.READERS)


@pytest.mark.parametrize("wish", ["peer", "=here", "peer=nowhere"])
def test_another_system_needs_a_name_and_a_folder(folder, wish):
    (folder / "audio" / "call.flac").symlink_to(CALL)
    arguments = [
        "--audio",
        str(folder / "audio"),
        "--rttm",
        str(DATA),
        "-o",
        str(folder / "out"),
        "--impl",
        wish,
    ]
    result = CliRunner().invoke(cli, ["bench", "accuracy", *arguments])
    assert result.exit_code != 0
    assert "give a name and a folder" in str(result.exception)


@pytest.mark.slow
def test_another_system_is_scored_beside_ours(folder):
    pytest.importorskip("pyannote.metrics")
    (folder / "audio" / "call.flac").symlink_to(CALL)
    (folder / "references" / "call.rttm").write_bytes((DATA / "call.rttm").read_bytes())
    (folder / "theirs").mkdir()
    (folder / "theirs" / "call.rttm").write_bytes((DATA / "call.rttm").read_bytes())
    (folder / "call.uem").write_text("call 1 0 30\n")
    result = CliRunner().invoke(
        cli,
        [
            *("bench", "accuracy", "--audio", str(folder / "audio"), "--rttm", str(folder / "references")),
            *("-o", str(folder / "out"), "--models", "builtin", "--offline"),
            *("--uem", str(folder / "call.uem"), "--impl", f"peer={folder / 'theirs'}"),
        ],
    )
    assert result.exit_code == 0, (result.output, result.exception)
    ours, theirs = result.stdout.split("\npeer\n")
    assert "minus witness, points of DER" in theirs
    assert "minus witness" not in ours
    assert theirs.splitlines()[2].split()[1] == "0.0" or " 0.00" in theirs
    (folder / "call.uem").write_text("other 1 0 30\n")
    again = CliRunner().invoke(
        cli,
        [
            *("bench", "accuracy", "--audio", str(folder / "audio"), "--rttm", str(folder / "references")),
            *(
                "-o",
                str(folder / "out"),
                "--models",
                "builtin",
                "--offline",
                "--uem",
                str(folder / "call.uem"),
            ),
        ],
    )
    assert "has no line for call" in str(again.exception)
