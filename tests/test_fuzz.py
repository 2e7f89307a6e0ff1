"""Short slices of the fuzz campaigns; the programs in tests/fuzz run as much of them as one likes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the campaign forks")


def run(program: str, *arguments: str) -> dict:
    """The sum of a campaign that found nothing."""
    command = [sys.executable, FUZZ / program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_damaged_recordings_of_every_kind():
    summary = run("campaign.py", "--first", "100000", "--count", "51")
    assert summary["kinds"] >= 40
    assert set(summary["exit_codes"]["recording"]) == {"0", "4"}


def test_hostile_folders():
    assert set(run("folders.py", "--count", "8")["exit_codes"]["folder"]) <= {"0", "1", "3"}


def test_links_at_every_name():
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    summary = run("links.py", "--count", "16")
    assert len(summary["exit_codes"]) == 8
    assert summary["links"] > summary["refused"] > 0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="nothing tells who waits for a core")
def test_signals_at_random_times():
    summary = run("signals.py", "--first", "1", "--count", "2")
    assert sum(summary["exit_codes"].values()) == 2


def test_the_other_campaigns_notice(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import folders
    import signals
    from trials import Ended

    sent = signals.signal.SIGTERM
    (tmp_path / "stderr").touch()
    assert signals.complaint(sent, 143, tmp_path) is None
    assert signals.complaint(sent, None, tmp_path) == "still there"
    assert signals.complaint(sent, 1, tmp_path) == "exit code 1"
    assert signals.complaint(sent, 0, tmp_path) == "no result"
    (tmp_path / "stderr").write_text("Could not import runpy module")  # Python's own
    assert signals.complaint(sent, 1, tmp_path) is None
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.json").write_text("{}")
    assert "left ['a.json']" in signals.complaint(sent, 143, tmp_path)
    (tmp_path / "stderr").write_text("Traceback\n  File /x/witness/cli/main.py")
    assert signals.complaint(sent, 143, tmp_path) == "traceback"

    kept = tmp_path / "mine"
    kept.write_bytes(folders.FOREIGN)
    (tmp_path / "esc").mkdir()
    assert folders.complaint(tmp_path, Ended(1, 1.0, 0, ""), {kept: folders.FOREIGN}) is None
    assert "hung" in folders.complaint(tmp_path, Ended(-14, 60.0, 0, ""), {})
    assert "exit code 4" in folders.complaint(tmp_path, Ended(4, 1.0, 0, ""), {})
    assert "please report" in folders.complaint(tmp_path, Ended(1, 1.0, 0, "a bug, please report it"), {})
    assert "wrote over mine" in folders.complaint(tmp_path, Ended(1, 1.0, 0, ""), {kept: b"other"})
    report = {"files": [{"source": "/in/good.wav", "state": "done", "error": None, "files": ["good.json"]}]}
    (tmp_path / "out" / "report.json").write_text(json.dumps(report))
    assert folders.complaint(tmp_path, Ended(0, 1.0, 0, ""), {}) == "lost a recording"
    (tmp_path / "esc" / "pwn").touch()
    assert "outside" in folders.complaint(tmp_path, Ended(0, 1.0, 0, ""), {})


def test_the_campaign_of_links_notices(tmp_path, monkeypatch):
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    monkeypatch.syspath_prepend(str(FUZZ))
    import links
    from trials import Ended

    links.strangers(tmp_path / "outside", b"{}")
    before = links.state(tmp_path / "outside")
    refused = "F/.call.lock: is a symbolic link, which Witness does not follow here; remove it\n"
    assert links.complaint("run", Ended(4, 1.0, 0, refused), before, before) is None
    assert "exit code 1" in links.complaint("run", Ended(1, 1.0, 0, refused), before, before)
    assert "2 lines" in links.complaint("redo", Ended(4, 1.0, 0, refused * 2), before, before)
    (tmp_path / "outside" / "new").touch()
    after = links.state(tmp_path / "outside")
    assert "outside: ., new" in links.complaint("desk", Ended(0, 1.0, 0, ""), before, after)


def test_what_strangers_send():
    summary = run("impostors.py", "--first", "100000", "--count", "14")
    assert all(len(codes) > 0 for codes in summary["exit_codes"].values())
    assert {code for codes in summary["exit_codes"].values() for code in codes} >= {"0", "4", "5", "6"}


def test_the_campaign_of_strangers_notices(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import impostors
    from trials import Ended

    assert "hung" in impostors.complaint("rule", Ended(-14, 60.0, 0, ""), tmp_path)
    assert "exit code 4" in impostors.complaint("rule", Ended(4, 1.0, 0, ""), tmp_path)
    assert "lines on stderr" in impostors.complaint("rule", Ended(5, 1.0, 0, "one\ntwo\n"), tmp_path)
    assert "please report" in impostors.complaint("rule", Ended(5, 1.0, 0, "please report it\n"), tmp_path)
    assert "2000 MB" in impostors.complaint("archive", Ended(0, 1.0, 2 * 10**9, ""), tmp_path)
    (tmp_path / "call.json").write_text('{"a": NaN}')
    assert "no result: NaN" in impostors.complaint("findings", Ended(0, 1.0, 0, ""), tmp_path)
    (tmp_path / "call.json").write_text("{}")
    assert impostors.complaint("findings", Ended(0, 1.0, 0, ""), tmp_path) is None
    (tmp_path / ".witness-1").touch()
    assert "left behind" in impostors.complaint("findings", Ended(0, 1.0, 0, ""), tmp_path)


def test_the_campaign_notices(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import campaign
    import corpus
    from trials import Ended

    out = tmp_path / "out.json"
    assert "hung" in campaign.complaint(Ended(-14, 20.0, 0, ""), out)
    assert "exit code -11" in campaign.complaint(Ended(-11, 1.0, 0, ""), out)
    assert "Traceback" in campaign.complaint(Ended(4, 1.0, 0, "Traceback\nError\n"), out)
    assert "2 lines on stderr" in campaign.complaint(Ended(4, 1.0, 0, "one\ntwo\n"), out)
    assert "2000 MB" in campaign.complaint(Ended(0, 1.0, 2 * 10**9, ""), out)
    assert "no result" in campaign.complaint(Ended(0, 1.0, 0, ""), out)
    out.write_text("{}")
    assert campaign.complaint(Ended(0, 1.0, 0, ""), out) is None
    whole = {"a": bytes(range(256)) * 20, "b": bytes(5000)}
    assert [corpus.mutated(n, whole) for n in range(50)] == [corpus.mutated(n, whole) for n in range(50)]


def test_three_writers_of_one_transcript_that_are_killed():
    summary = run("saves.py", "--saves", "12", "--kills", "12")
    assert summary["saves"] >= 12
    assert summary["kills"] >= 12


def test_first_fetches_that_are_killed():
    summary = run("fetches.py", "--count", "4")
    assert summary["kills"] >= 4


def test_runs_that_are_killed():
    summary = run("kills.py", "--kills", "2", "--seconds", "36")  # two pieces of Whisper's
    assert summary["kills"] >= 2
    assert summary["done"]
