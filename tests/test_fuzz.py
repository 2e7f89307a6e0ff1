"""Short slices of the fuzz campaigns; tests/fuzz/*.py run as much of them as one likes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the campaign forks")


def test_damaged_recordings_of_every_kind():
    command = [sys.executable, FUZZ / "campaign.py", "--first", "100000", "--count", "56"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["kinds"] >= 20
    assert set(summary["exit_codes"]) == {"0", "4"}


def test_what_strangers_send():
    command = [sys.executable, FUZZ / "strangers.py", "--first", "100000", "--count", "42"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert all(len(codes) > 0 for codes in summary["exit_codes"].values())
    assert {code for codes in summary["exit_codes"].values() for code in codes} >= {"0", "4", "5", "6"}


def test_the_campaign_of_strangers_notices(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import strangers

    assert "hung" in strangers.complaint("rule", (-14, 60.0, 0, ""), tmp_path)
    assert "exit code 4" in strangers.complaint("rule", (4, 1.0, 0, ""), tmp_path)
    assert "lines on stderr" in strangers.complaint("rule", (5, 1.0, 0, "one\ntwo\n"), tmp_path)
    assert "lines on stderr" in strangers.complaint("rule", (5, 1.0, 0, "please report it\n"), tmp_path)
    assert "2000 MB" in strangers.complaint("archive", (0, 1.0, 2 * 10**9, ""), tmp_path)
    (tmp_path / "call.json").write_text('{"a": NaN}')
    assert "no result: NaN" in strangers.complaint("stages", (0, 1.0, 0, ""), tmp_path)
    (tmp_path / "call.json").write_text("{}")
    assert strangers.complaint("stages", (0, 1.0, 0, ""), tmp_path) is None
    (tmp_path / ".witness-1").touch()
    assert "left behind" in strangers.complaint("stages", (0, 1.0, 0, ""), tmp_path)


def test_the_campaign_notices(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    import campaign
    import corpus

    out = tmp_path / "out.json"
    assert "hung" in campaign.complaint(-14, 20.0, 0, "", out)
    assert "exit code -11" in campaign.complaint(-11, 1.0, 0, "", out)
    assert "lines on stderr" in campaign.complaint(4, 1.0, 0, "Traceback\nError\n", out)
    assert "2000 MB" in campaign.complaint(0, 1.0, 2 * 10**9, "", out)
    assert "no result" in campaign.complaint(0, 1.0, 0, "", out)
    out.write_text("{}")
    assert campaign.complaint(0, 1.0, 0, "", out) is None
    whole = {"a": bytes(range(256)) * 20, "b": bytes(5000)}
    assert [corpus.mutated(n, whole) for n in range(50)] == [corpus.mutated(n, whole) for n in range(50)]
