"""The benchmark against other programs: its table, from results made by hand."""

from __future__ import annotations

import json
import sys

import pytest

from conftest import ROOT


@pytest.mark.slow
def test_the_figures_of_every_program(tmp_path, monkeypatch):
    # Here, not at the head: each worker collects every file, and this is a third of what that costs.
    pytest.importorskip("pyannote.metrics", reason="the extra `bench` is not installed")
    pytest.importorskip("soundfile", reason="the extra `bench` is not installed")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import against_peers

    truth = [(0.0, 6.0, "a"), (6.0, 10.0, "b")]
    hypotheses = {  # DER strict: 0, 40 % confusion, 20 % missed, 100 % missed
        "witness-campplus": truth,
        "witness-builtin": [(0.0, 10.0, "x")],
        "pyannote": [(0.0, 6.0, "x"), (6.0, 8.0, "y")],
        "senko": [],
    }
    (tmp_path / "kept").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"{name}.flac").write_bytes(name.encode())
        lines = (
            f"SPEAKER {name} 1 {start} {end - start} <NA> <NA> {who} <NA> <NA>\n" for start, end, who in truth
        )
        (tmp_path / f"{name}.rttm").write_text("".join(lines))
        for place, (program, turns) in enumerate(hypotheses.items()):
            cost = {
                "processor": 1.0 + place,
                "wall": 9.0,
                "memory": 100.0 * (place + 1),
                "version": str(place),
            }
            told = {**cost, "turns": turns, "duration": 10.0}
            (tmp_path / "kept" / f"{name}.{program}.json").write_text(json.dumps(told))
    out = tmp_path / "out.json"
    places = ["--out", tmp_path / "kept", "--pyannote", "none", "--senko", "none", "--json", out]
    monkeypatch.setattr(sys, "argv", ["against_peers.py", str(tmp_path), *map(str, places)])
    against_peers.main()
    found = json.loads(out.read_text())["groups"]["*"]
    assert {name: one["der"]["strict"]["der"] for name, one in found.items()} == {
        "witness:campplus": 0.0,
        "witness:builtin": 40.0,
        "pyannote": 20.0,
        "senko": 100.0,
    }
    assert found["pyannote"]["der"]["collar-0.25-each-side"]["der"] == pytest.approx(19.4)  # 1.75 of 9 s
    assert found["pyannote"]["points_above_witness"]["strict"] == [20.0, [20.0, 20.0]]
    assert [one["speakers"]["exact"] for one in found.values()] == [2, 0, 2, 0]
    assert found["senko"]["processor_seconds_per_minute"] == 24.0
    assert found["senko"]["peak_memory_mb"] == 400
