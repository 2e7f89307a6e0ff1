"""A short slice of the fuzz campaign; tests/fuzz/campaign.py runs as much of it as one likes."""

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
