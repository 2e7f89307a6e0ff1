"""Checks for AMD cards: under Linux the cards, their device files and memory, ROCm and compiled graphs; under
Windows the HIP of the driver and of SDKs, by their files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from witness.doctor.machine import Check, Machine
from witness.errors import GraphError
from witness.gpu import cards, graph_cache, loader, rocm, strict, versions
from witness.models import catalogue, store
from witness.options import Recognizer
from witness.recognition import gpus
from witness.schema import ModelFile

GIB = 1 << 30
SLOW_MIGRAPHX = (2, 17)
"""Compiled YOLO models 4 to 11 times slower (AMDMIGraphX#5234); some packages of it do not load (#5235)."""


# --- cards ---


def check_cards(machine: Machine) -> Iterator[Check]:
    if machine.system != "linux":
        return
    if not machine.cards:
        displays = cards.list_displays(machine.root)
        if displays:
            fix = "load the kernel's amdgpu driver with its compute part; in a container: --device /dev/kfd"
            yield Check("cards", None, f"{len(displays)} AMD cards, but none that can compute (no KFD)", fix)
        else:
            yield Check("cards", None, "no AMD card: the voice model runs on the CPU")
        return
    best = cards.best_card(machine.cards)
    for card in machine.cards:
        free = "?" if card.memory_free is None else f"{card.memory_free / GIB:.1f}"
        finding = f"{card.index if card.index >= 0 else 'hidden'}: {card.name} ({card.gfx}), "
        finding += f"{free} of {card.memory_total / GIB:.1f} GiB free"
        finding += ", integrated" if card.integrated else ""
        since = card.listed_since
        if since and not machine.lists(card):
            installed, needed = (".".join(map(str, version)) for version in (machine.rocm or (), since))
            finding += f", not on AMD's list for ROCm {installed} but on that for {needed}"
            yield Check("card", None, finding, f"ROCm {needed} or newer: {machine.install_for(since)}")
        elif card.supported == "listed":
            use = "; used unless --gpu says otherwise" if card is best and len(machine.cards) > 1 else ""
            yield Check("card", True, f"{finding}, on AMD's list for MIGraphX{use}")
        else:
            fix = "the voice model runs on the CPU; words through Vulkan"
            yield Check("card", None, f"{finding}, not on AMD's list for MIGraphX", fix)
    yield from _permissions(machine)
    yield from _memory(best)


def _memory(card: cards.Card | None) -> Iterator[Check]:
    engine = gpus.recognizer() or Recognizer.WHISPER_CPP
    usual = catalogue.default_whisper(engine, gpu=True)
    for status in store.list_models(roles={"whisper"}):
        if card is None or status.file.name != usual or status.path is None:
            continue
        needed = gpus.memory(ModelFile(usual, status.path, "", engine))
        lack = None if needed is None else card.lack_for_both(needed)
        if lack is None:
            yield Check("memory", True, f"the {card.name} has room for both engines with {usual} in {engine}")
        else:
            fix = "they run one after the other, or at the same time with a smaller --whisper"
            yield Check("memory", None, lack, fix)


def _permissions(machine: Machine) -> Iterator[Check]:
    renders = sorted((machine.root / "dev/dri").glob("renderD*"))
    for path in [machine.root / "dev/kfd", *renders]:
        name = f"/dev/{path.relative_to(machine.root / 'dev')}"
        if not path.exists():
            fix = f"in a container: --device {name}; otherwise load the amdgpu driver"
            yield machine.gpu_check(name, False, "is missing", fix)
        elif os.access(path, os.R_OK | os.W_OK):
            yield Check(name, True, "can be read and written")
        else:
            group = _group(path)
            finding = f"cannot be read and written; it belongs to the group {group}"
            fix = f"sudo usermod -aG {group} $USER, then log in again"
            yield machine.gpu_check(name, False, finding, fix)


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):
        return "render"


# --- ROCm and MIGraphX ---


def check_rocm(machine: Machine) -> Iterator[Check]:
    """Check the wheel, ROCm and MIGraphX: that they fit, and that onnxruntime's provider finds them."""
    if machine.system != "linux":
        return
    provider, needed, files = _provider(machine)
    # A wheel that build.sh made from source needs ROCm 6, and finds MIGraphX where no package puts it.
    hip_needed = max((_major(name) for name in needed if "amdhip64" in name), default=versions.HIP)
    # AMD's wheels were not opened, and one of them has a version that PyPI has, too.
    wheel = None if (machine.wheel or "").startswith("1.23") and not machine.wheel_page else machine.wheel
    if hip_needed == versions.HIP and (fault := versions.wheel_fault(wheel, machine.glibc)):
        fix = "pip install --upgrade onnxruntime-migraphx (1.27.1 or newer; it needs Python 3.11 or newer)"
        yield Check("wheel", False, f"onnxruntime-migraphx {machine.wheel} {fault}", fix)
    if machine.cards and hip_needed == versions.HIP:
        yield from _origin(machine)
    resolved = [Path(name).name for pair in files.items() for name in pair]
    hip = _versions(machine, "libamdhip64.so.*", resolved)
    majors = sorted({_major(name) for name in hip})
    if not hip:
        yield machine.gpu_check("rocm", False, "no HIP library", machine.install_rocm)
    else:
        fix = f"{machine.install_rocm}: this onnxruntime needs libamdhip64.so.{hip_needed}"
        yield machine.gpu_check("rocm", hip_needed in majors, f"HIP {majors[-1]} ({hip[0]})", fix)
    names = _versions(machine, "libmigraphx.so.*", resolved)
    number = next((number for number in map(_migraphx_version, names) if number), None)
    yield _migraphx(machine, number, bool(_versions(machine, "libmigraphx_c.so.*", resolved)))
    if number and hip_needed == versions.HIP and hip_needed in majors and machine.wheel:
        yield _combination(machine, number)
    yield provider
    planted = [name for name in ("libmigraphx_c.so.3", "libamdhip64.so.7") if (machine.here / name).exists()]
    if planted:
        fix = "leave this folder: onnxruntime's provider would load it from here"
        yield Check("current folder", False, f"holds {' and '.join(planted)}", fix)


def _origin(machine: Machine) -> Iterator[Check]:
    """Name the makers of the wheel and of the plug-in, as far as their files say."""
    if machine.wheel:
        maker = versions.origin(machine.wheel, machine.wheel_page)
        yield Check("origin", None, f"onnxruntime-migraphx {machine.wheel} is {maker}")
    if machine.plugin and (library := rocm.plugin_library()):
        finding = f"onnxruntime-ep-migraphx {machine.plugin}: MIGraphX by AMD's plug-in {library.name}"
        yield Check("origin", None, finding)
    elif machine.plugin:
        fix = "pip uninstall onnxruntime-ep-migraphx; AMD's own is not on PyPI (docs/amd-gpu.md)"
        yield Check("origin", None, f"onnxruntime-ep-migraphx {machine.plugin} is empty, as PyPI has it", fix)


def _migraphx(machine: Machine, number: tuple[int, int, int] | None, interface: bool) -> Check:
    if not interface:
        return machine.gpu_check("migraphx", False, "no MIGraphX library", machine.install_rocm)
    if number is None:
        return Check("migraphx", True, "MIGraphX of unknown version")
    finding = f"MIGraphX {'.'.join(map(str, number))}"
    folders = {
        path.parent for path in loader.find_on_disk("libmigraphx.so.*", machine.root, machine.environment)
    }
    if folders and not any(any(folder.glob("libmigraphx_gpu.so*")) for folder in folders):
        finding = f"{finding} without its GPU part (libmigraphx_gpu), as Debian packages it"
        return machine.gpu_check("migraphx", False, finding, machine.install_rocm)
    if number[:2] == SLOW_MIGRAPHX:
        fix = "2.17 compiled some models 4 to 11 times slower (AMDMIGraphX#5234): use another version of ROCm"
        return Check("migraphx", None, finding, fix)
    return Check("migraphx", True, finding)


def _combination(machine: Machine, migraphx: tuple[int, int, int]) -> Check:
    """Compare the wheel with this MIGraphX: `versions` knows of faults, not of their absence."""
    release = versions.release_of(migraphx)
    number = ".".join(map(str, migraphx[:2]))
    plugged = machine.plugin and rocm.plugin_library()
    wheel = (
        f"onnxruntime-ep-migraphx {machine.plugin}" if plugged else f"onnxruntime-migraphx {machine.wheel}"
    )
    if release is None:
        newest = versions.RELEASES[-1]
        compared = f"{'.'.join(map(str, newest.migraphx))} of ROCm {newest.rocm}"
        finding = f"{wheel} with MIGraphX {number}: not compared; the newest that was is {compared}"
        return Check("combination", None, finding)
    finding = f"{wheel} with MIGraphX {number} of ROCm {release.rocm}"
    if release.fault:
        finding = f"{finding}: that MIGraphX {release.fault}"
        return machine.gpu_check("combination", False, finding, f"ROCm 7.1 or newer: {machine.install_rocm}")
    if release.compared == "nothing":
        finding = f"{finding}: not compared ({versions.COMPARED}); AMD's page names that ROCm"
        return Check("combination", None, finding)
    parts = "their files" if release.compared == "header" else "the names of their libraries"
    finding = f"{finding}: {parts} fit (compared {versions.COMPARED}, not tried on a card)"
    return Check("combination", None, finding)


def _versions(machine: Machine, pattern: str, resolved: list[str]) -> list[str]:
    """Return the names of a library's versions in the usual folders and among the loader's files."""
    return machine.libraries(pattern) + [name for name in resolved if fnmatch(name, pattern)]


def _provider(machine: Machine) -> tuple[Check, list[str], dict[str, str]]:
    """Check that the provider finds its libraries and HIP devices; return also the needed names and files."""

    def broken(finding: str, fix: str = machine.install_rocm) -> Check:
        return machine.gpu_check("provider", False, finding, fix)

    provider = rocm.find_provider()
    if provider is None:
        fix = "pip install --force-reinstall onnxruntime-migraphx, after pip uninstall onnxruntime"
        return broken("this onnxruntime has no MIGraphX", fix), [], {}
    if provider.plugin and not strict.records_assignment():
        fix = "pip install --upgrade onnxruntime-migraphx (1.24.2 or newer)"
        return broken("AMD's plug-in needs onnxruntime 1.24 or newer", fix), [], {}
    core = [] if provider.core is None else [str(provider.core)]
    answer = machine.ask("provider", str(provider.library), *core)
    if "error" in answer:
        return broken(answer["error"]), [], {}
    missing: list[str] = answer["missing"]
    files: dict[str, str] = answer["files"]
    needed = [*files, *missing]
    finding = f"finds {', '.join(sorted(files.values()))}"
    if missing:
        export = loader.search_path_fix(missing, machine.root, machine.environment)
        finding = f"{' and '.join(missing)} cannot be found"
        if export:
            finding += ", although the files are there: the loader does not look in their folders"
        check = broken(finding, export or machine.install_rocm)
    elif answer["lacking"]:
        check = broken(f"{' and '.join(answer['lacking'])} is in none of its libraries: they are too old")
    elif answer["devices"]:
        check = Check("provider", True, f"{finding}; HIP sees {answer['devices']} devices")
    else:
        fix = "see the cards and device files above, and HIP_VISIBLE_DEVICES"
        check = broken(f"{finding}; HIP sees no device (code {answer['hip']})", fix)
    return check, needed, files


def _major(name: str) -> int:
    """libamdhip64.so.7.2.70204 is 7."""
    match = re.search(r"\.so\.(\d+)", name)
    return int(match[1]) if match else 0


def _migraphx_version(name: str) -> tuple[int, int, int] | None:
    """libmigraphx.so.2012000.0.60403 is 2.12.0."""
    match = re.fullmatch(r"libmigraphx\.so\.(\d+)(\d{3})(\d{3})(\..*)?", name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def check_compiled_graphs(machine: Machine) -> Iterator[Check]:
    if machine.system != "linux":
        return
    folders = graph_cache.folders()
    if not folders and machine.wants_gpu:
        yield Check("compiled graphs", None, "none yet: the voice model runs on the CPU", "witness gpu warm")
    for folder in folders:
        graph = graph_cache.read_or_error(folder)
        if isinstance(graph, GraphError):
            yield Check("compiled graph", None, f"{folder.name}: {graph}", "witness gpu warm makes it again")
        else:
            key = graph.key
            finding = f"{graph.name}, {key.gfx}, {key.precision}, {graph.size / 1e6:.0f} MB"
            yield Check("compiled graph", True, finding)


# --- Windows ---


def check_windows(machine: Machine) -> Iterator[Check]:
    """Check the driver and the HIP SDKs, without trust in HIP_PATH: it may name a removed version."""
    if machine.system != "win32":
        return
    cpu = "the voice model runs on the CPU: onnxruntime's MIGraphX provider is for Linux"
    yield Check("migraphx", None, cpu)
    system = Path(machine.environment.get("SystemRoot", r"C:\Windows")) / "System32"
    programs = Path(machine.environment.get("ProgramFiles", r"C:\Program Files"))
    driver = sorted({_dll_major(path) for path in system.glob("amdhip64*.dll")})
    if driver:
        yield Check("driver", True, f"brings HIP {driver[-1]}")
    else:
        fix = "install AMD's Adrenalin driver, if there is an AMD card"
        yield Check("driver", None, "brings no HIP", fix)
    sdks = sorted(folder for folder in (programs / "AMD" / "ROCm").glob("*") if (folder / "bin").is_dir())
    for sdk in sdks:
        majors = sorted({_dll_major(path) for path in (sdk / "bin").glob("amdhip64*.dll")})
        finding = f"{sdk.name}: " + (f"HIP {majors[-1]}" if majors else "no amdhip64")
        if not any((sdk / "bin").glob("amd_comgr*.dll")):
            yield Check("hip sdk", False, f"{finding}, no amd_comgr", "install this HIP SDK again")
        elif majors and driver and driver[-1] not in majors:
            fix = f"use the HIP SDK {driver[-1]}, or the driver for {majors[-1]}: otherwise no kernel loads"
            yield Check("hip sdk", False, f"{finding}, but the driver brings HIP {driver[-1]}", fix)
        else:
            yield Check("hip sdk", True, finding)
    variable = machine.environment.get("HIP_PATH")
    if variable and not any(_same_folder(Path(variable), sdk) for sdk in sdks):
        finding = f"{variable} is not a HIP SDK on this machine"
        yield Check("HIP_PATH", None, finding, "unset it, or correct it")
    crash = "AMD's driver crashes on the graphics of its processors (handy-computer/transcribe.cpp#163)"
    hint = "--recognizer auto leaves them alone, and takes other cards"
    yield Check("known bug", None, f"words by Vulkan: {crash}", hint)
    flash = "whisper.cpp's flash attention crashed on an RX 9070 XT (whisper.cpp#3806); Witness never uses it"
    yield Check("known bug", None, flash)


def _dll_major(path: Path) -> int:
    """amdhip64_6.dll is 6; amdhip64.dll is HIP 5 and older."""
    match = re.search(r"_(\d+)\.dll$", path.name, re.I)
    return int(match[1]) if match else 5


def _same_folder(first: Path, second: Path) -> bool:
    return os.path.normcase(first.absolute()).rstrip("\\/") == os.path.normcase(second.absolute()).rstrip(
        "\\/"
    )
