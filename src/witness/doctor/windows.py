"""Checks for AMD cards under Windows: the HIP of the driver and of SDKs, by their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from witness.doctor.machine import Check, Machine


def windows(machine: Machine) -> Iterator[Check]:
    """The driver and the HIP SDKs. HIP_PATH is not trusted: it may name a version that is gone."""
    if machine.system != "win32":
        return
    cpu = "the voice model runs on the CPU: onnxruntime's MIGraphX provider is for Linux"
    yield Check("migraphx", None, cpu)
    system = Path(machine.environment.get("SystemRoot", r"C:\Windows")) / "System32"
    programs = Path(machine.environment.get("ProgramFiles", r"C:\Program Files"))
    driver = sorted({_major(path) for path in system.glob("amdhip64*.dll")})
    if driver:
        yield Check("driver", True, f"brings HIP {driver[-1]}")
    else:
        fix = "install AMD's Adrenalin driver, if there is an AMD card"
        yield Check("driver", None, "brings no HIP", fix)
    sdks = sorted(folder for folder in (programs / "AMD" / "ROCm").glob("*") if (folder / "bin").is_dir())
    for sdk in sdks:
        majors = sorted({_major(path) for path in (sdk / "bin").glob("amdhip64*.dll")})
        finding = f"{sdk.name}: " + (f"HIP {majors[-1]}" if majors else "no amdhip64")
        if not any((sdk / "bin").glob("amd_comgr*.dll")):
            yield Check("hip sdk", False, f"{finding}, no amd_comgr", "install this HIP SDK again")
        elif majors and driver and driver[-1] not in majors:
            fix = f"use the HIP SDK {driver[-1]}, or the driver for {majors[-1]}: otherwise no kernel loads"
            yield Check("hip sdk", False, f"{finding}, but the driver brings HIP {driver[-1]}", fix)
        else:
            yield Check("hip sdk", True, finding)
    told = machine.environment.get("HIP_PATH")
    if told and not any(_same(Path(told), sdk) for sdk in sdks):
        yield Check("HIP_PATH", None, f"{told} is not a HIP SDK on this machine", "unset it, or correct it")
    crash = "AMD's driver crashes on the graphics of its processors (handy-computer/transcribe.cpp#163)"
    hint = "--recognizer auto leaves them alone, and takes other cards"
    yield Check("known bug", None, f"words by Vulkan: {crash}", hint)
    flash = "whisper.cpp's flash attention crashed on an RX 9070 XT (whisper.cpp#3806); Witness never uses it"
    yield Check("known bug", None, flash)


def _major(path: Path) -> int:
    """amdhip64_6.dll is 6; amdhip64.dll is HIP 5 and older."""
    match = re.search(r"_(\d+)\.dll$", path.name, re.I)
    return int(match[1]) if match else 5


def _same(one: Path, other: Path) -> bool:
    """Whether two paths name the same folder, as Windows compares them."""
    return os.path.normcase(one.absolute()).rstrip("\\/") == os.path.normcase(other.absolute()).rstrip("\\/")
