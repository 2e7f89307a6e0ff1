"""The doctor's report: every part of this machine that Witness can use, its faults, and the fixes.

A check can fail for the parts of a transcript on the CPU; and, with a card that AMD lists for MIGraphX, for
the parts that the card needs. Nothing is downloaded or changed, and the libraries of drivers are loaded in
child processes.
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
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from witness._version import __version__, pip_install
from witness.child import one_line
from witness.doctor.machine import Check, Machine, package
from witness.errors import GraphError, WitnessError
from witness.gpu import cards, graph_cache, loader, rocm, strict, versions
from witness.models import catalogue, recognizers, store
from witness.options import Recognizer
from witness.recognition import gpus
from witness.schema import ModelFile
from witness.storage import cache
from witness.text import table

LEAST_SPACE = 1 << 30
"""Bytes of free disk space, the least for anything useful: the models for a CPU take 0.1 GB."""
VARIABLES = re.compile(
    r"(HSA_OVERRIDE_GFX_VERSION|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|CUDA_VISIBLE_DEVICES|HIP_PATH|"
    r"LD_LIBRARY_PATH|VK_(DRIVER_FILES|ICD_FILENAMES)|HF_HUB_OFFLINE|OMP_NUM_THREADS|"
    r"(ORT_MIGRAPHX|MIGRAPHX|GGML_VK|WITNESS)_\w+)"
)
"""Environment variables that change which card, library or model is used."""
ONNXRUNTIMES = (
    "onnxruntime",
    "onnxruntime-migraphx",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-rocm",
)
"""Packages that exclude each other, because they share their files."""
GIB = 1 << 30
SLOW_MIGRAPHX = (2, 17)
"""Compiled YOLO models 4 to 11 times slower (AMDMIGraphX#5234); some packages of it do not load (#5235)."""


# --- every machine ---


def check_python(machine: Machine) -> Iterator[Check]:
    system = machine.distribution.get("PRETTY_NAME") or platform.system()
    finding = f"{platform.python_version()} on {system}, {platform.machine()}, {platform.release()}"
    able = (3, 10) <= sys.version_info[:2] < (3, 15) and sys.maxsize > 2**32
    yield Check("python", able, finding, None if able else "use a 64-bit Python 3.10 to 3.14")


def check_onnxruntime(_machine: Machine) -> Iterator[Check]:
    installed = [f"{name} {number}" for name in ONNXRUNTIMES if (number := package(name))]
    if len(installed) != 1:
        extra = " ".join(name.split()[0] for name in installed)
        fix = f"pip uninstall {extra}; then install Witness again"
        finding = f"{' and '.join(installed) or 'none'}: they share their files"
        yield Check("onnxruntime", False, finding, fix)
    try:
        from witness.models import session  # the import may fail

        begun = time.perf_counter()
        import numpy as np

        model = session.Model(str(catalogue.BUILTIN_FOLDER / "segmentation.onnx"), "builtin-segmentation")
        shape = model(np.zeros((1, 1, 160_000), np.float32)).shape
    except (ImportError, WitnessError, OSError) as error:
        fix = _reinstall(installed[0].split()[0] if installed else "onnxruntime")
        yield Check("onnxruntime", False, str(error), fix)
        return
    took = time.perf_counter() - begun
    name = installed[0] if installed else ""
    finding = f"{name}: the builtin model ran on the CPU ({took:.2f} s)"
    yield Check("onnxruntime", shape == (1, 589, 7), finding)


def _reinstall(package: str) -> str:
    return pip_install("--force-reinstall", package)


def check_whisper(machine: Machine) -> Iterator[Check]:
    """Check that whisper.cpp starts, and name its device."""
    name = f"pywhispercpp {package('pywhispercpp')}"
    answer = machine.ask("whisper")
    if "error" in answer:
        yield Check("whisper.cpp", False, f"{name}: {answer['error']}", _reinstall("pywhispercpp"))
    elif gpus.has_gpu_backend():
        lines = [line for line in answer["log"] if re.match(r"ggml_\w+: \d+ = ", line)]
        devices = "; ".join(re.sub(r"^ggml_(\w+): \d+ = ([^|]+?)\s*\|.*", r"\1: \2", line) for line in lines)
        where = devices or "the CPU: it was built for a GPU but finds none"
        fix = None if devices else "see vulkan"
        yield Check("whisper.cpp", bool(devices) or None, f"{name} runs on {where}", fix)
    else:
        yield Check("whisper.cpp", True, f"{name} runs on the CPU")


def check_recognizers(machine: Machine) -> Iterator[Check]:
    """Check that CTranslate2 starts, and name the recognizer in use."""
    able = list(recognizers.installed())
    name = f"ctranslate2 {package('ctranslate2')}"
    if Recognizer.CTRANSLATE2 not in able:
        command = recognizers.install_command(Recognizer.CTRANSLATE2)
        fix = f"{command} (faster on a CPU; most systems have wheels)"
        yield Check("ctranslate2", None, "not installed; whisper.cpp recognizes words", fix)
    elif "error" in (answer := machine.ask("ctranslate2")):
        able.remove(Recognizer.CTRANSLATE2)
        fix = f"{_reinstall('ctranslate2')}, or uninstall it"
        yield Check("ctranslate2", False, f"{name}: {answer['error']}", fix)
    else:
        yield Check("ctranslate2", True, f"{name} runs on the CPU ({', '.join(answer['types'])})")
    gpu = yield from _transcribe_cpp(machine, able)
    finding = f"{', '.join(able)}; --recognizer auto is {recognizers.choose_recognizer(gpu, able)}"
    yield Check("recognizers", bool(able), finding)
    words = store.find_word_model(gpu=gpu, available=able)
    usual = words.fix is None
    yield Check("words", usual or None, words.finding, words.fix, missing=words.model is None)


def _transcribe_cpp(machine: Machine, able: list[Recognizer]) -> Generator[Check, None, Recognizer | None]:
    """Check that transcribe.cpp starts, and name its card; return the recognizer that uses a GPU."""
    if Recognizer.TRANSCRIBE_CPP not in able:
        if machine.cards and not gpus.has_gpu_backend():
            fix = (
                f"{recognizers.install_command(Recognizer.TRANSCRIBE_CPP)} (words on the GPU, through Vulkan)"
            )
            yield Check("transcribe-cpp", None, "not installed; words are recognized on the CPU", fix)
        return gpus.recognizer()
    answer = gpus.devices()
    if "error" in answer:
        able.remove(Recognizer.TRANSCRIBE_CPP)
        fix = f"{_reinstall('transcribe-cpp')}, or uninstall it"
        yield Check("transcribe-cpp", False, str(answer["error"]), fix)
        return None
    names = [device["name"] for device in answer["devices"] if device["kind"] == "vulkan"]
    finding = (
        f"transcribe-cpp {answer['version']} finds {'vulkan: ' + ', '.join(names) if names else 'no GPU'}"
    )
    yield Check("transcribe-cpp", bool(names) or None, finding, None if names else "see vulkan")
    return gpus.recognizer()


def check_decoding(_machine: Machine) -> Iterator[Check]:
    try:
        import av
        from av.codec import codecs_available
    except ImportError as error:
        yield Check("decoding", False, str(error), _reinstall("av"))
        return
    usual = ("aac", "flac", "mp3", "opus", "vorbis", "pcm_s16le")
    missing = [name for name in usual if name not in codecs_available]
    ffmpeg = ".".join(str(part) for part in av.library_versions.get("libavcodec", ()))
    finding = f"PyAV {av.__version__} with libavcodec {ffmpeg}"
    if missing:
        yield Check("decoding", False, f"{finding}, without {', '.join(missing)}", _reinstall("av"))
    else:
        yield Check("decoding", True, f"{finding}; no ffmpeg program is needed")


def check_models(_machine: Machine) -> Iterator[Check]:
    """List the model files on this machine, and check that they are whole."""
    # Whisper's gigabytes would take seconds to hash: only their size is checked, `models verify` does more.
    whispers = store.list_models(roles={"whisper"})
    statuses = (*store.list_models(verify=True, roles={"segmentation", "embedding", "plda"}), *whispers)
    for status in statuses:
        entry = status.file
        fetch = f"{entry.fetch} --force"
        if status.state == "damaged":
            way = "install Witness again" if entry.builtin else fetch
            yield Check("models", False, f"{entry.name} fails its sha256", way)
        elif entry.role == "whisper" and not status.has_its_size:
            yield Check("models", False, f"{entry.name} does not have its {entry.total} bytes", fetch)
    present = [_with_source(status) for status in statuses if status.path]
    missing = {status.file.name for status in statuses if not status.path}
    words = any(status.path for status in whispers)
    complete = words and not set(catalogue.SETS["standard"].files) & missing
    fix = None if complete else "witness models fetch (a first run does it too)"
    finding = f"on this machine: {', '.join(present)}; without a network, --models auto is {store.auto_set()}"
    yield Check("models", complete or None, finding, fix)


def _with_source(status: store.OnDisk) -> str:
    """Return a model's name and the package that it is from."""
    entry = status.file
    if status.state == "installed":
        return f"{entry.name} (installed)"
    made = entry.checkpoint and entry == entry.converted
    return f"{entry.name} (from {entry.source})" if made else entry.name


def check_disk(_machine: Machine) -> Iterator[Check]:
    from huggingface_hub import constants

    for name, folder in (("models", Path(constants.HF_HUB_CACHE)), ("cache", cache.cache_folder())):
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        writable = os.access(existing, os.W_OK)
        finding = f"{free / 1e9:,.0f} GB free in {folder}" + ("" if writable else ", which cannot be written")
        able = free >= LEAST_SPACE and writable
        fix = None if able else "free disk space or fix the folder's permissions"
        yield Check(f"disk for {name}", able, finding, fix)


def check_vulkan(machine: Machine) -> Iterator[Check]:
    driver = "install a Vulkan driver (mesa-vulkan-drivers)"
    answer = machine.ask("vulkan")
    if "error" in answer:
        fix = f"{driver} to run whisper.cpp on the GPU" if machine.cards else None
        yield Check("vulkan", None, answer["error"], fix)
        return
    if not answer["devices"]:
        yield Check("vulkan", None, "no devices", driver)
    for device in answer["devices"]:
        finding = f"{device['name']} ({device['type']}), driver {device['driver']}"
        yield Check("vulkan", True if device["type"] in ("discrete", "integrated") else None, finding)


def check_variables(machine: Machine) -> Iterator[Check]:
    for name, value in sorted(machine.environment.items()):
        if not VARIABLES.fullmatch(name):
            continue
        fix: str | None = None
        if name == "HSA_OVERRIDE_GFX_VERSION":
            fix = "unset it if AMD lists the card; on RDNA 2 it makes some cards work and others do nothing"
        elif name.startswith("ORT_MIGRAPHX_"):
            fix = "unset it; Witness ignores it, because it would override the cache folder and the precision"
        yield Check("variable", None, f"{name}={value}", fix)


# --- AMD: cards ---


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
    best = cards.pick_card(machine.cards)
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
        fix = f"{pip_install('onnxruntime-migraphx>=1.27.1')} (it needs Python 3.11 or newer)"
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
        fix = f"uninstall onnxruntime, then: {_reinstall('onnxruntime-migraphx')}"
        return broken("this onnxruntime has no MIGraphX", fix), [], {}
    if provider.plugin and not strict.records_assignment():
        fix = pip_install("onnxruntime-migraphx>=1.24.2")
        return broken("AMD's plug-in needs onnxruntime 1.24 or newer", fix), [], {}
    core = [] if provider.core is None else [str(provider.core)]
    answer = machine.ask("provider", str(provider.library), *core)
    if "error" in answer:
        return broken(answer["error"]), [], {}
    missing: list[str] = answer["missing"]
    files: dict[str, str] = answer["files"]
    needed = [*files, *missing]
    finding = f"finds {', '.join(sorted(files.values()))}"
    if fault := rocm.library_fault(missing, answer["lacking"], machine.root, machine.environment):
        check = broken(fault[0], fault[1] or machine.install_rocm)
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


def check_windows(machine: Machine) -> Iterator[Check]:
    if machine.system != "win32":
        return
    cpu = "the voice model runs on the CPU: onnxruntime's MIGraphX provider is for Linux"
    yield Check("migraphx", None, cpu)
    crash = "AMD's driver crashes on the graphics of its processors (handy-computer/transcribe.cpp#163)"
    hint = "--recognizer auto leaves them alone, and takes other cards"
    yield Check("known bug", None, f"words by Vulkan: {crash}", hint)
    flash = "whisper.cpp's flash attention crashed on an RX 9070 XT (whisper.cpp#3806); Witness never uses it"
    yield Check("known bug", None, flash)


# --- the report ---


PARTS: tuple[Callable[[Machine], Iterable[Check]], ...] = (
    check_python,
    check_onnxruntime,
    check_whisper,
    check_recognizers,
    check_decoding,
    check_models,
    check_disk,
    check_cards,
    check_rocm,
    check_compiled_graphs,
    check_windows,
    check_vulkan,
    check_variables,
)
"""In this order."""
MARKS = {True: "ok", False: "NO", None: "-"}


def examine(machine: Machine | None = None) -> tuple[Check, ...]:
    """Return every check of this machine, or of another. An error inside a check becomes a check, too."""
    machine = machine or Machine()
    checks: list[Check] = []
    for part in PARTS:
        # The doctor must survive any fault of the machine.
        try:
            checks += part(machine)
        except Exception as error:  # noqa: PERF203
            finding = f"{type(error).__name__}: {one_line(error)}"
            checks.append(
                Check(part.__name__.removeprefix("check_"), None, finding, "this is a bug, please report it")
            )
    return tuple(_private(check) for check in checks)


def healthy(checks: Iterable[Check]) -> bool:
    return all(check.ok is not False for check in checks)


def to_text(checks: Iterable[Check]) -> str:
    checks = list(checks)
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append((MARKS[check.ok], check.name, " ".join(check.finding.split())))
        if check.fix:
            rows.append(("", "", f"{'fix' if check.ok is False else 'hint'}: {check.fix}"))
    text = table(rows, left=(0, 1, 2))
    missing = ", ".join(check.name for check in checks if check.missing)
    if healthy(checks) and missing:
        text += f"\n\nnothing is broken, but this is missing: {missing}; the hint says how to get it"
    elif healthy(checks):
        text += "\n\nall that is needed on this machine works"
    return f"{text}\n"


def to_json(checks: Iterable[Check]) -> str:
    """Return a document for bug reports. It names no user, no host, and no folder of the user's."""
    checks = list(checks)
    document = {
        "schema": "witness-doctor/1",
        "witness": __version__,
        "ok": healthy(checks),
        "checks": [
            {
                "name": check.name,
                "ok": check.ok,
                "missing": check.missing,
                "found": check.finding,
                "cure": check.fix,
            }
            for check in checks
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _private(check: Check) -> Check:
    """Remove the user's identity: home becomes ~, a folder by the user's name becomes USER."""
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

    return replace(check, finding=clean(check.finding), fix=check.fix and clean(check.fix))
