"""AMD's cards, and versions of onnxruntime-migraphx, MIGraphX and ROCm that can be loaded together.

Read from wheels, headers and package lists; docs/amd-gpu.md names the source of each row. No row was tried on
a card, so none says that a combination works.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from witness.storage import typed_json

COMPARED = LISTED_ON = date(2026, 11, 24)
"""The days of comparing the releases, and of reading AMD's lists of cards."""
HIP = 7
"""The major version of the HIP library that every wheel on PyPI needs: libamdhip64.so.7."""
STACK_GLIBC = (2, 41)
"""From this glibc on, a library that asks for an executable stack is refused (CTranslate2#1849)."""


@dataclass(frozen=True)
class Wheel:
    """A version of onnxruntime-migraphx on PyPI, for Linux on x86-64."""

    version: str
    glibc: tuple[int, int]
    """The oldest that has all functions which its libraries need; its tag says 2.34 in every case here."""
    executable_stack: bool
    """True if the Python module asks for one, without need."""


PRIVATE_BUILDER = "onnxruntime-rocm-build"
"""In the home page of PyPI's 1.23.2 and 1.24.2; its owner calls them unofficial (onnxruntime#27218, 2026-01).

The later ones name Microsoft in their metadata, and in their binaries the same folders and the same branch.
"""


@dataclass(frozen=True)
class Release:
    """A release of ROCm, and its fitness for the wheels."""

    rocm: str
    migraphx: tuple[int, int]
    """The version of MIGraphX that belongs to it."""
    hip: int
    """The major version of its HIP library."""
    fault: str | None = None
    """The reason against it; None: nothing that was compared speaks against it."""
    compared: Literal["header", "names", "nothing"] = "header"
    """The header of its C interface, the names of its libraries, or nothing: AMD's page alone names it."""


@dataclass(frozen=True)
class Architecture:
    """The facts about an architecture of AMD's graphics cards."""

    name: str = "AMD GPU"
    listed: bool = False
    """On AMD's list for MIGraphX: the support pages of ROCm 10.0 to 10.2 (docs/amd-gpu.md)."""
    since: tuple[int, int] | None = None
    """The ROCm whose page is the first to name it; None: that of 10.0, or MIGraphX's changes before it."""
    integrated: bool = False


@dataclass(frozen=True)
class _Tables:
    """The content of versions.json."""

    architectures: dict[str, Architecture]
    wheels: tuple[Wheel, ...]
    releases: tuple[Release, ...]


_TABLES = typed_json.decode(Path(__file__).with_suffix(".json").read_bytes(), _Tables)
ARCHITECTURES = _TABLES.architectures
"""LLVM's name -> facts. Products from LLVM's AMDGPUUsage and ROCm's tables; 1033 to 1036 from memory."""
WHEELS = _TABLES.wheels
"""From PyPI.

All need libmigraphx_c.so.3 and libamdhip64.so.7 with the symbol versions hip_4.2, hip_5.3 and hip_6.0. 1.23.0
is left out: it was made for ROCm 7.0, whose numbers of the types it has, and Witness takes 1.23.1 and newer.
AMD's own (1.23.1 for ROCm 7.1, 1.23.2 for 7.2 and 7.14) are not on PyPI and were not opened.
"""
RELEASES = _TABLES.releases
"""From the oldest. The interface is libmigraphx_c.so.3 in all that were compared."""


def origin(version: str, page: str) -> str:
    """Name the maker of that version of onnxruntime-migraphx; `page` is its metadata's home page."""
    if "+rocm" in version or version == "1.23.1":
        return "AMD's"
    if PRIVATE_BUILDER in page:
        return "PyPI's, by a private builder: neither AMD's nor Microsoft's"
    if version == "1.23.2":
        return "AMD's, or of unknown origin"
    if version in {wheel.version for wheel in WHEELS}:
        said = "its metadata names Microsoft, its binary the folders and the branch of a private builder"
        return f"PyPI's, of unclear origin: {said}"
    return "of unknown origin"


def wheel_fault(version: str | None, glibc: str) -> str | None:
    """Return the reason why PyPI's wheel does not load with that glibc ("2.36"); None: no reason is known."""
    wheel = next((wheel for wheel in WHEELS if wheel.version == version), None)
    match = re.match(r"(\d+)\.(\d+)", glibc)
    if wheel is None or match is None:
        return None
    here = int(match[1]), int(match[2])
    if here < wheel.glibc:
        return f"needs glibc {'.'.join(map(str, wheel.glibc))}, and this is glibc {glibc}"
    if wheel.executable_stack and here >= STACK_GLIBC:
        return f"asks for an executable stack, which glibc {glibc} refuses"
    return None


def release_of(migraphx: tuple[int, ...]) -> Release | None:
    """Return the release of ROCm with that version of MIGraphX; None: it was not compared."""
    return next((release for release in RELEASES if release.migraphx == migraphx[:2]), None)
