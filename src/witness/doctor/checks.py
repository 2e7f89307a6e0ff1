"""What this machine has of all that Witness can use: found or not, why not, and the cure.

A check is True (works), False (broken, although it is needed here) or None (not there and not needed, or
worth knowing). Needed is what a transcript on the CPU takes; and, with a card that AMD lists for MIGraphX,
the way to it. Nothing is downloaded or changed, and libraries of drivers are loaded in child processes.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from witness import files
from witness._version import __version__
from witness.amd import cards, graphs
from witness.doctor import probes
from witness.errors import GraphError, WitnessError
from witness.models import store
from witness.recognition import ggml, recognizer
from witness.schema import ModelFile

GIB = 1 << 30
ROOM = 1 * GIB
"""Free disk space below which nothing useful can be fetched or kept: the models of a CPU take 0.1 GB."""
ROCM = 7
"""The major version of the HIP library that the onnxruntime-migraphx wheels of PyPI were linked with."""
SLOW_MIGRAPHX = (2, 17)
"""Compiles 4 to 11 times slower (AMDMIGraphX#5234); some packages of it do not load (#5235)."""
LIBRARIES = (
    "opt/rocm*/lib",
    "usr/lib64",
    "usr/lib64/rocm/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib",
    "usr/local/lib",
)
"""Below the root: where AMD's packages and the distributions put ROCm."""
VARIABLES = re.compile(
    r"(HSA_OVERRIDE_GFX_VERSION|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|CUDA_VISIBLE_DEVICES|HIP_PATH|"
    r"LD_LIBRARY_PATH|VK_(DRIVER_FILES|ICD_FILENAMES)|HF_HUB_OFFLINE|OMP_NUM_THREADS|"
    r"(ORT_MIGRAPHX|MIGRAPHX|GGML_VK|WITNESS)_\w+)"
)
"""Variables of the environment that change which card, library or model is used."""
INSTALL = {
    "fedora": "sudo dnf install migraphx (Fedora 44 or newer; before that: ./build.sh)",
    "arch": "sudo pacman -S migraphx",
    "ubuntu": "add AMD's package source (README, AMD GPUs), then sudo apt install migraphx",
}
INSTALL["debian"] = INSTALL["linuxmint"] = INSTALL["ubuntu"]


@dataclass(frozen=True)
class Check:
    """One part of the machine."""

    name: str
    ok: bool | None
    found: str
    cure: str | None = None


@dataclass(frozen=True)
class Machine:
    """Where to look: this machine, or a folder that stands for another one."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    """As in `sys.platform`."""
    here: Path = field(default_factory=Path.cwd)
    ask: Callable[..., dict[str, Any]] = probes.ask

    @cached_property
    def cards(self) -> tuple[cards.Card, ...]:
        return cards.cards(self.root, self.environment) if self.system == "linux" else ()

    @property
    def wants_gpu(self) -> bool:
        """There is a card that AMD lists and nobody hides, so that MIGraphX ought to run."""
        return any(card.supported == "listed" and card.index >= 0 for card in self.cards)

    def gpu_check(self, name: str, works: bool, found: str, cure: str | None = None) -> Check:
        """A check of the way to the GPU, which is broken only where there is a card for it."""
        if works:
            return Check(name, True, found)
        return Check(name, False, found, cure) if self.wants_gpu else Check(name, None, found)

    @cached_property
    def distribution(self) -> dict[str, str]:
        """ID, VERSION_ID and PRETTY_NAME of /etc/os-release."""
        try:
            text = (self.root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        return {key: value.strip("\"'") for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M)}

    @property
    def install_rocm(self) -> str:
        names = [self.distribution.get("ID", ""), *self.distribution.get("ID_LIKE", "").split()]
        found = (INSTALL[name] for name in names if name in INSTALL)
        return next(found, "install ROCm 7 and MIGraphX (README, AMD GPUs)")

    def libraries(self, name: str) -> list[str]:
        """The file names of all versions of a library, the longest (that say most) first."""
        folders = [folder for pattern in LIBRARIES for folder in self.root.glob(pattern)]
        own = self.environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        folders += [Path(part) for part in own if part]
        found = {
            path.name
            for folder in folders
            for sub in ("", "migraphx/lib")
            for path in (folder / sub).glob(name)
        }
        return sorted(found, key=len, reverse=True)


def examine(machine: Machine | None = None) -> tuple[Check, ...]:
    """Every check of this machine, or of another. What goes wrong inside one is its finding."""
    machine = machine or Machine()
    found: list[Check] = []
    for part in PARTS:
        # The doctor is for machines on which nothing is as it should be.
        try:
            found += part(machine)
        except Exception as error:  # noqa: PERF203
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"
            found.append(Check(part.__name__.strip("_"), None, line, "please report this"))
    return tuple(_private(check) for check in found)


def healthy(checks: Iterable[Check]) -> bool:
    """Whether nothing that is needed is broken."""
    return all(check.ok is not False for check in checks)


def to_text(checks: Iterable[Check]) -> str:
    """A line for each check, and its cure below."""
    rows = list(checks)
    width = max(len(check.name) for check in rows)
    lines = []
    for check in rows:
        mark = {True: "ok", False: "NO", None: "-"}[check.ok]
        lines.append(f"{mark:2}  {check.name:{width}}  {check.found}")
        if check.cure:
            kind = "cure" if check.ok is False else "hint"
            lines.append(f"{'':{width + 4}}  {kind}: {check.cure}")
    if healthy(rows):
        lines.append("\nall that is needed here works")
    return "\n".join(lines) + "\n"


def to_json(checks: Iterable[Check]) -> str:
    """One document for bug reports. It names no user, no host, and no folder of the user's."""
    rows = list(checks)
    document = {"schema": "witness-doctor/1", "witness": __version__, "ok": healthy(rows)}
    return (
        json.dumps({**document, "checks": [asdict(check) for check in rows]}, indent=1, ensure_ascii=False)
        + "\n"
    )


# --- what every machine needs ---


def _python(machine: Machine) -> Iterator[Check]:
    system = machine.distribution.get("PRETTY_NAME") or platform.system()
    found = f"{platform.python_version()} on {system}, {platform.machine()}, {platform.release()}"
    able = (3, 10) <= sys.version_info[:2] < (3, 15) and sys.maxsize > 2**32
    yield Check("python", able, found, None if able else "a 64-bit Python 3.10 to 3.14")


def _onnxruntime(_machine: Machine) -> Iterator[Check]:
    names = (
        "onnxruntime",
        "onnxruntime-migraphx",
        "onnxruntime-gpu",
        "onnxruntime-directml",
        "onnxruntime-rocm",
    )
    found = {name: _version(name) for name in names}
    there = [f"{name} {number}" for name, number in found.items() if number]
    if len(there) != 1:
        cure = f"pip uninstall {' '.join(name for name in names if found[name])}; then install Witness again"
        yield Check("onnxruntime", False, f"{' and '.join(there) or 'none'}: they share their files", cure)
    try:
        from witness import sessions  # the import is what may fail

        begun = time.perf_counter()
        import numpy as np

        model = sessions.Model(str(store.BUILTIN_FOLDER / "segmentation.onnx"), "builtin-segmentation")
        shape = model(np.zeros((1, 1, 160_000), np.float32)).shape
    except (ImportError, WitnessError, OSError) as error:
        yield Check("onnxruntime", False, str(error), "pip install --force-reinstall witness")
        return
    took = time.perf_counter() - begun
    works = shape == (1, 589, 7)
    yield Check(
        "onnxruntime", works, f"{there[0] if there else ''}: the builtin model ran on the CPU ({took:.2f} s)"
    )


def _whisper(machine: Machine) -> Iterator[Check]:
    number = _version("pywhispercpp")
    answer = machine.ask("whisper")
    if "error" in answer:
        cure = "pip install --force-reinstall pywhispercpp"
        yield Check("whisper.cpp", False, f"pywhispercpp {number}: {answer['error']}", cure)
        return
    has_gpu = recognizer.has_gpu_backend()
    devices = [line for line in answer["log"] if re.match(r"ggml_\w+: \d+ = ", line)]
    backend = "; ".join(re.sub(r"^ggml_(\w+): \d+ = ([^|]+?)\s*\|.*", r"\1: \2", line) for line in devices)
    if has_gpu:
        found = f"pywhispercpp {number} runs on {backend or 'the CPU: it was built for a GPU but finds none'}"
        yield Check("whisper.cpp", True if backend else None, found, None if backend else "see vulkan")
    else:
        build = "scripts/install-vulkan.sh builds it for the GPU" if machine.cards else None
        yield Check("whisper.cpp", True, f"pywhispercpp {number} runs on the CPU", build)


def _decoding(_machine: Machine) -> Iterator[Check]:
    try:
        import av
        import av.codec
    except ImportError as error:
        yield Check("decoding", False, str(error), "pip install --force-reinstall av")
        return
    missing = [name for name in ("aac", "flac", "mp3", "opus", "vorbis", "pcm_s16le") if not _decodes(name)]
    ffmpeg = ".".join(str(part) for part in av.library_versions.get("libavcodec", ()))
    found = f"PyAV {av.__version__} with libavcodec {ffmpeg}"
    if missing:
        yield Check(
            "decoding", False, f"{found}, without {', '.join(missing)}", "pip install --force-reinstall av"
        )
    else:
        yield Check("decoding", True, f"{found}; no ffmpeg program is needed")


def _decodes(codec: str) -> bool:
    import av.codec

    return codec in av.codec.codecs_available


def _models(_machine: Machine) -> Iterator[Check]:
    # Whisper's gigabytes would take seconds to hash: their size is looked at, `models verify` does the rest.
    recognizers = store.list_models(roles={"whisper"})
    found = (*store.list_models(verify=True, roles={"segmentation", "embedding", "plda"}), *recognizers)
    for status in found:
        entry = status.file
        if status.state == "damaged":
            cure = f"witness models fetch {entry.name} --force"
            yield Check(
                "models", False, f"{entry.name} fails its sha256", cure if entry.repository else "reinstall"
            )
        elif status.path and entry.role == "whisper" and Path(status.path).stat().st_size != entry.size:
            cure = f"witness models fetch {entry.name} --force"
            yield Check("models", False, f"{entry.name} has not its {entry.size} bytes", cure)
    there = [status.file.name for status in found if status.path]
    missing = {status.file.name for status in found if not status.path}
    standard = set(store.SETS["standard"].files)
    words = any(status.path for status in recognizers)
    complete = words and not standard & missing
    fetch = None if complete else "witness models fetch (a first run does it too)"
    yield Check("models", complete or None, f"here: {', '.join(there)}", fetch)


def _disk(_machine: Machine) -> Iterator[Check]:
    from huggingface_hub import constants

    for name, folder in (("models", Path(constants.HF_HUB_CACHE)), ("cache", files.cache_folder())):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        writable = os.access(there, os.W_OK)
        found = f"{free / 1e9:,.0f} GB free in {folder}" + ("" if writable else ", which may not be written")
        able = free >= ROOM and writable
        yield Check(f"disk for {name}", able, found, None if able else "make room or rights there")


def _variables(machine: Machine) -> Iterator[Check]:
    found = {name: value for name, value in machine.environment.items() if VARIABLES.fullmatch(name)}
    for name, value in sorted(found.items()):
        cure: str | None = None
        if name == "HSA_OVERRIDE_GFX_VERSION":
            cure = (
                "unset it where AMD lists the card; on RDNA 2 it makes some cards work and others do nothing"
            )
        elif name.startswith("ORT_MIGRAPHX_"):
            cure = "unset it; Witness ignores it, for it would beat its own cache folder and precision"
        yield Check("variable", None, f"{name}={value}", cure)


# --- AMD cards under Linux ---


def _cards(machine: Machine) -> Iterator[Check]:
    if machine.system != "linux":
        return
    if not machine.cards:
        displays = cards.displays(machine.root)
        if displays:
            cure = "load the kernel's amdgpu driver with its compute part; in a container: --device /dev/kfd"
            yield Check("cards", None, f"{len(displays)} AMD cards, but none that can compute (no KFD)", cure)
        else:
            yield Check("cards", None, "no AMD card: the voice model runs on the CPU")
    best = cards.best(machine.cards)
    for card in machine.cards:
        free = "?" if card.memory_free is None else f"{card.memory_free / GIB:.1f}"
        found = f"{card.index if card.index >= 0 else 'hidden'}: {card.name} ({card.gfx}), "
        found += f"{free} of {card.memory_total / GIB:.1f} GiB free" + (
            ", integrated" if card.integrated else ""
        )
        if card.supported == "listed":
            use = "; used unless --gpu says otherwise" if card is best and len(machine.cards) > 1 else ""
            yield Check("card", True, f"{found}, on AMD's list for MIGraphX{use}")
        else:
            cure = "the voice model runs on the CPU; whisper.cpp can use the card by Vulkan"
            yield Check("card", None, f"{found}, not on AMD's list for MIGraphX", cure)
    yield from _rights(machine)
    yield from _memory(machine)


def _memory(machine: Machine) -> Iterator[Check]:
    """Whether the best card has room for both engines with the words' usual model, if that is here."""
    card, usual = cards.best(machine.cards), store.default_whisper(gpu=True)
    for status in store.list_models(roles={"whisper"}):
        if card is None or status.file.name != usual or status.path is None:
            continue
        needed = ggml.gpu_memory(ModelFile(usual, status.path, ""))
        lack = None if needed is None else card.lack_for_both(needed)
        if lack is None:
            yield Check("memory", True, f"the {card.name} has room for both engines with {usual}")
        else:
            yield Check(
                "memory", None, lack, "they run one after the other, or with a smaller --whisper at once"
            )


def _rights(machine: Machine) -> Iterator[Check]:
    """Whether the device files of the cards may be used."""
    if not machine.cards:
        return
    renders = sorted((machine.root / "dev/dri").glob("renderD*"))
    for path in [machine.root / "dev/kfd", *renders]:
        name = f"/dev/{path.relative_to(machine.root / 'dev')}"
        if not path.exists():
            cure = f"in a container: --device {name}; else load the amdgpu driver"
            yield machine.gpu_check(name, False, "not there", cure)
        elif os.access(path, os.R_OK | os.W_OK):
            yield Check(name, True, "may be read and written")
        else:
            group = _group(path)
            found = f"may not be read and written; it belongs to the group {group}"
            yield machine.gpu_check(name, False, found, f"sudo usermod -aG {group} $USER, then log in again")


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):
        return "render"


def _rocm(machine: Machine) -> Iterator[Check]:
    """ROCm's and MIGraphX's libraries, and whether onnxruntime's provider finds them."""
    if machine.system != "linux":
        return
    install = machine.install_rocm
    provider, files = _provider(machine)
    # One that build.sh made from source wants ROCm 6, and finds MIGraphX where no package would put it.
    wanted = max((_major(name) for name in files if "amdhip64" in name), default=ROCM)
    there = [Path(name).name for pair in files.items() if pair[1].startswith("/") for name in pair]
    hip = _versions(machine, "libamdhip64.so.*", there)
    majors = sorted({_major(name) for name in hip})
    if not hip:
        yield machine.gpu_check("rocm", False, "no HIP library", install)
    else:
        cure = f"{install}: this onnxruntime needs libamdhip64.so.{wanted}"
        yield machine.gpu_check("rocm", wanted in majors, f"ROCm {majors[-1]} ({hip[0]})", cure)
    numbers = [
        number for number in map(_migraphx_version, _versions(machine, "libmigraphx.so.*", there)) if number
    ]
    if not _versions(machine, "libmigraphx_c.so.*", there):
        yield machine.gpu_check("migraphx", False, "no MIGraphX library", install)
    elif not numbers:
        yield Check("migraphx", True, "MIGraphX of unknown version")
    else:
        slow = numbers[0][:2] == SLOW_MIGRAPHX
        cure = "2.17 compiles 4 to 11 times slower (AMDMIGraphX#5234): take another version of ROCm"
        found = f"MIGraphX {'.'.join(map(str, numbers[0]))}"
        yield Check("migraphx", None if slow else True, found, cure if slow else None)
    yield provider
    planted = [name for name in ("libmigraphx_c.so.3", "libamdhip64.so.7") if (machine.here / name).exists()]
    if planted:
        cure = "leave this folder: onnxruntime's provider would load it from here"
        yield Check("current folder", False, f"holds {' and '.join(planted)}", cure)


def _versions(machine: Machine, pattern: str, there: list[str]) -> list[str]:
    """The names of a library's versions in the usual folders and among those that were found elsewhere."""
    return machine.libraries(pattern) + [name for name in there if fnmatch(name, pattern)]


def _provider(machine: Machine) -> tuple[Check, dict[str, str]]:
    """Whether the provider finds its libraries and HIP its devices; and AMD's libraries, name to path."""
    spec = find_spec("onnxruntime")
    folder = Path(spec.origin).parent / "capi" if spec and spec.origin else Path()
    library = folder / "libonnxruntime_providers_migraphx.so"
    if not library.exists():
        cure = "pip install --force-reinstall onnxruntime-migraphx, after pip uninstall onnxruntime"
        return machine.gpu_check("provider", False, "this onnxruntime has no MIGraphX", cure), {}
    answer = machine.ask("provider", str(library))
    if "error" in answer:
        return machine.gpu_check("provider", False, answer["error"], machine.install_rocm), {}
    files: dict[str, str] = answer["files"]
    if answer["missing"]:
        found = f"{' and '.join(answer['missing'])} cannot be found"
        return machine.gpu_check("provider", False, found, machine.install_rocm), files
    found = f"finds {', '.join(sorted(files.values()))}"
    if answer["devices"]:
        return Check("provider", True, f"{found}; HIP sees {answer['devices']} devices"), files
    cure = "see the cards and device files above, and HIP_VISIBLE_DEVICES"
    found = f"{found}; HIP sees no device (code {answer['hip']})"
    return machine.gpu_check("provider", False, found, cure), files


def _major(name: str) -> int:
    found = re.search(r"\.so\.(\d+)", name)
    return int(found[1]) if found else 0


def _migraphx_version(name: str) -> tuple[int, int, int] | None:
    """libmigraphx.so.2012000.0.60403 is 2.12.0."""
    found = re.fullmatch(r"libmigraphx\.so\.(\d+)(\d{3})(\d{3})(\..*)?", name)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _graphs(machine: Machine) -> Iterator[Check]:
    """The compiled graphs that are kept; `witness gpu status` holds them against the libraries too."""
    if machine.system != "linux":
        return
    folders = graphs.folders()
    if not folders and machine.wants_gpu:
        yield Check("compiled graphs", None, "none yet: the voice model runs on the CPU", "witness gpu warm")
    for folder in folders:
        found = graphs.look(folder)
        if isinstance(found, GraphError):
            yield Check("compiled graph", None, f"{folder.name}: {found}", "witness gpu warm makes it anew")
        else:
            key = found.key
            size = f"{found.size / 1e6:.0f} MB"
            yield Check("compiled graph", True, f"{found.name}, {key.gfx}, {key.precision}, {size}")


# --- AMD cards under Windows ---


def _windows(machine: Machine) -> Iterator[Check]:
    """The HIP of the driver and of SDKs, by their files; HIP_PATH may name a version that is gone."""
    if machine.system != "win32":
        return
    cpu = "the voice model runs on the CPU: onnxruntime's MIGraphX provider is for Linux"
    yield Check("migraphx", None, cpu, "Windows ML has one for RDNA 3 and newer, which Witness does not use")
    system = Path(machine.environment.get("SystemRoot", r"C:\Windows")) / "System32"
    programs = Path(machine.environment.get("ProgramFiles", r"C:\Program Files"))
    driver = sorted({_dll_major(path) for path in system.glob("amdhip64*.dll")})
    if driver:
        yield Check("driver", True, f"brings HIP {driver[-1]}")
    else:
        yield Check(
            "driver", None, "brings no HIP", "install AMD's Adrenalin driver, if there is an AMD card"
        )
    sdks = sorted(folder for folder in (programs / "AMD" / "ROCm").glob("*") if (folder / "bin").is_dir())
    for sdk in sdks:
        majors = sorted({_dll_major(path) for path in (sdk / "bin").glob("amdhip64*.dll")})
        found = f"{sdk.name}: " + (f"HIP {majors[-1]}" if majors else "no amdhip64")
        if not any((sdk / "bin").glob("amd_comgr*.dll")):
            yield Check("hip sdk", False, f"{found}, no amd_comgr", "install this HIP SDK again")
        elif majors and driver and driver[-1] not in majors:
            cure = f"use the HIP SDK {driver[-1]}, or the driver for {majors[-1]}: else kernels do not load"
            yield Check("hip sdk", False, f"{found}, but the driver brings HIP {driver[-1]}", cure)
        else:
            yield Check("hip sdk", True, found)
    told = machine.environment.get("HIP_PATH")
    if told and not any(_same(Path(told), sdk) for sdk in sdks):
        yield Check("HIP_PATH", None, f"{told} is no HIP SDK that is here", "unset it, or correct it")
    flash = "whisper.cpp's flash attention crashed on an RX 9070 XT (whisper.cpp#3806); Witness never uses it"
    yield Check("known bug", None, flash)


def _dll_major(path: Path) -> int:
    """amdhip64_6.dll is 6; amdhip64.dll is HIP 5 and older."""
    found = re.search(r"_(\d+)\.dll$", path.name, re.I)
    return int(found[1]) if found else 5


def _same(one: Path, other: Path) -> bool:
    return os.path.normcase(one.absolute()).rstrip("\\/") == os.path.normcase(other.absolute()).rstrip("\\/")


# --- Vulkan, everywhere ---


def _vulkan(machine: Machine) -> Iterator[Check]:
    answer = machine.ask("vulkan")
    if "error" in answer:
        cure = (
            "install a Vulkan driver (mesa-vulkan-drivers) to run whisper.cpp on the GPU"
            if machine.cards
            else None
        )
        yield Check("vulkan", None, answer["error"], cure)
        return
    if not answer["devices"]:
        yield Check("vulkan", None, "no devices", "install a Vulkan driver (mesa-vulkan-drivers)")
    for device in answer["devices"]:
        found = f"{device['name']} ({device['type']}), driver {device['driver']}"
        yield Check("vulkan", True if device["type"] in ("discrete", "integrated") else None, found)


PARTS: tuple[Callable[[Machine], Iterable[Check]], ...] = (
    _python,
    _onnxruntime,
    _whisper,
    _decoding,
    _models,
    _disk,
    _cards,
    _rocm,
    _graphs,
    _windows,
    _vulkan,
    _variables,
)
"""In this order."""


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _private(check: Check) -> Check:
    """Without what tells who the user is: home becomes ~, a folder by the user's name becomes USER."""
    user = ""
    with suppress(Exception):  # no such user in a container
        user = getpass.getuser()

    def clean(text: str) -> str:
        for home in {str(Path.home()), str(Path.home().resolve())}:
            if len(home) > 1:
                text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
        if user:
            text = re.sub(rf"(?<=[/\\]){re.escape(user)}(?=[/\\]|$)", "USER", text)
        return text

    return Check(check.name, check.ok, clean(check.found), check.cure and clean(check.cure))
