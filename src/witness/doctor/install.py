"""How to install MIGraphX: which packages have it on a distribution, and for the ROCm that is there.

`build.sh` says the same (tests/test_scripts.py holds the two together); docs/amd-gpu.md has the sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

APT = "sudo apt update && sudo apt install"
SOURCE = f"add AMD's package source of MIGraphX (docs/amd-gpu.md), then {APT}"
DEB = "amdrocm-migraphx_2.16.0-3.py312_amd64.deb"
OF_ROCM = {
    (7, 1): f"{APT} migraphx",
    (7, 2): f"{APT} migraphx",
    (7, 14): f"download {DEB} from AMD (docs/amd-gpu.md), then sudo dpkg -i {DEB}",
    (10, 0): f"{SOURCE} amdrocm-migraphx",
}
"""ROCm from AMD below /opt -> how to add MIGraphX to it, on Ubuntu and Debian."""
OF_ROCM_10 = f"{SOURCE} amdrocm10-migraphx"
"""The same for ROCm 10.1 and newer."""
WITHOUT_ROCM = "add AMD's two package sources (docs/amd-gpu.md), then sudo apt install amdrocm10-migraphx"
UBUNTU_HAS_IT = (26, 10)
"""From this Ubuntu on, its own packages have MIGraphX with its GPU part; Debian's have the CPU part only."""
OTHERS = {
    "fedora": "sudo dnf install migraphx (Fedora 44 or newer, or EPEL 10; before that: ./build.sh)",
    "arch": "sudo pacman -S migraphx",
}
"""ID of a distribution -> how to install ROCm with MIGraphX there."""


def advice(distribution: Mapping[str, str], rocm: tuple[int, int] | None) -> str:
    """How to install MIGraphX; `distribution` has the fields of /etc/os-release, `rocm` is `installed`."""
    name, number = (distribution.get(key, "") for key in ("ID", "VERSION_ID"))
    names = [name, *distribution.get("ID_LIKE", "").split()]
    if "ubuntu" in names or "debian" in names:
        if rocm is None and name == "ubuntu" and _numbers(number) >= UBUNTU_HAS_IT:
            return "sudo apt install libmigraphx-c3 (from universe)"
        if rocm is not None and rocm >= (10, 1):
            return OF_ROCM_10
        return WITHOUT_ROCM if rocm is None else OF_ROCM.get(rocm, WITHOUT_ROCM)
    ways = (OTHERS[name] for name in names if name in OTHERS)
    return next(ways, "install ROCm 7.1 or newer with MIGraphX (docs/amd-gpu.md)")


def installed(root: Path) -> tuple[int, int] | None:
    """The newest ROCm from AMD below `root`/opt, such as (7, 2); None: there is none, or it does not say."""
    folders = (*root.glob("opt/rocm-*"), *root.glob("opt/rocm/core-*"))
    named = [re.search(r"-(\d+)\.(\d+)", folder.name) for folder in folders]
    found = [(int(match[1]), int(match[2])) for match in named if match]
    for path in root.glob("opt/rocm*/lib/libamdhip64.so.*.*.*"):
        # libamdhip64.so.7.2.70204 is of ROCm 7.2.4; since 7.14 the last number is another one.
        match = re.search(r"\.so\.(\d+)\.\d+\.(\d+)", path.name)
        if match and int(match[2]) // 10000 == int(match[1]):
            found.append((int(match[1]), int(match[2]) // 100 % 100))
    return max(found, default=None)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
