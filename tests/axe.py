"""axe, which finds what keeps people with other eyes, ears or hands out, on a page as it is now."""

from __future__ import annotations

import pytest

from conftest import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 390, "height": 844}
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": PHONE},
}


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


def everywhere(page) -> list[str]:
    """What axe finds in light, in dark, and on a phone."""
    page.emulate_media(reduced_motion="reduce")  # no color on its way to another
    size, found = page.viewport_size, faults(page)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {one}" for one in faults(page)]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    found += [f"phone: {one}" for one in faults(page)]
    page.set_viewport_size(size)
    return found
