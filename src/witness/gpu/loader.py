"""The libraries that another library needs: the files that the system's loader finds, and other copies.

Nothing is loaded. Only the standard library is imported, because `doctor.probes` uses it in a child process.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LOADER = "/lib64/ld-linux-x86-64.so.2"  # glibc's; the ABI fixes the path, and the provider is for x86-64 only
FOLDERS = (
    "opt/rocm*/lib",
    "opt/rocm/core*/lib",
    "opt/rocm/extras-*/lib",
    "usr/lib64",
    "usr/lib64/rocm/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib",
    "usr/local/lib",
)
"""The folders of ROCm's libraries below the root, from AMD's packages and the distributions.

`core` is of ROCm 7.14 and newer, `extras` of 10.1 and newer. MIGraphX's own parts lie in migraphx/lib below.
"""
PACKAGES = ("migraphx_libs", "migraphx_libs/lib", "_rocm_sdk_*/lib")
"""The same below the folder of Python's packages, from AMD's wheels of ROCm 10."""


@dataclass(frozen=True)
class LoaderTrace:
    """The loader's report on a library."""

    files: dict[str, Path]
    """Name of a needed library -> the file that would be loaded."""
    missing: tuple[str, ...]
    """The names of the needed libraries without a file."""
    lacking: tuple[str, ...]
    """Functions of HIP and MIGraphX that it needs and that the files do not have; () if some are missing."""


def trace(library: Path, preloaded: Path | None = None) -> LoaderTrace:
    """Ask the loader about `library`, in a process that has `preloaded`.

    Raises OSError if it does not run or cannot read the file.
    """
    with tempfile.TemporaryDirectory(prefix="witness-", dir="/tmp") as folder:
        more = {}
        if preloaded is not None:
            # The loader takes a space or a colon for the end of a name.
            link = Path(folder, "preloaded.so")
            link.symlink_to(preloaded)
            more["LD_PRELOAD"] = str(link)
        result = subprocess.run(
            [LOADER, str(library)],
            # Not the user's folder: onnxruntime's list of folders to search has the current one in it.
            cwd="/",
            # Together these are `ldd -r`: list, resolve every function, and print the others.
            env={
                **os.environ,
                **more,
                "LD_TRACE_LOADED_OBJECTS": "1",
                "LD_WARN": "yes",
                "LD_BIND_NOW": "yes",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    lines = re.findall(r"^\s*(\S+) => (not found|/.*?)(?: \(0x[0-9a-f]+\))?$", result.stdout, re.MULTILINE)
    if result.returncode != 0 and not lines:
        raise OSError(result.stderr.strip() or f"{LOADER} ended with {result.returncode}")
    missing = tuple(sorted({name for name, path in lines if path == "not found"}))
    # onnxruntime brings the provider's other functions (Provider_GetHost) when it loads it.
    lacking = re.findall(r"undefined symbol: ((?:migraphx_|hip)\w+)", result.stdout + result.stderr)
    files = {name: Path(path) for name, path in lines if path != "not found"}
    return LoaderTrace(files, missing, () if missing else tuple(sorted(set(lacking))))


def find_on_disk(pattern: str, root: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the library files of that name in ROCm's folders, even those that the loader ignores."""
    site = glob.escape(sysconfig.get_paths()["purelib"]).lstrip("/")
    patterns = (*FOLDERS, *(f"{site}/{folder}" for folder in PACKAGES))
    folders = [folder for parent in patterns for folder in sorted(root.glob(parent))]
    folders += [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    return [
        path
        for folder in folders
        for sub in ("", "migraphx/lib")
        for path in sorted((folder / sub).glob(pattern))
    ]


def search_path_fix(missing: Iterable[str], root: Path, environment: Mapping[str, str]) -> str | None:
    """Return the command that leads the loader to missing libraries; None: one is not on the disk.

    ROCm 7.14 and newer put HIP, and since 10.1 MIGraphX too, into folders that the provider does not search.
    """
    folders = []
    for name in missing:
        paths = find_on_disk(f"{name}*", root, {})
        if not paths:
            return None
        folders.append(f"/{paths[0].parent.relative_to(root)}")
    if environment.get("LD_LIBRARY_PATH"):  # an empty part would be the current folder
        folders.append("$LD_LIBRARY_PATH")
    return f"export LD_LIBRARY_PATH={':'.join(dict.fromkeys(folders))}"
