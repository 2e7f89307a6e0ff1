"""What axe finds on a page."""

from __future__ import annotations

import pytest

from conftest import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


def faults(page) -> list[str]:
    """What axe finds on a page as it is now, each with the elements that it concerns."""
    if not AXE.is_file():
        pytest.skip("axe is not here; npm ci")
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:150]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
