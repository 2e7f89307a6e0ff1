"""Checks for every machine: Python, onnxruntime, whisper.cpp, decoding, models, disk, Vulkan, variables."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from witness._version import DISTRIBUTION
from witness.doctor.machine import Check, Machine, package_version
from witness.errors import WitnessError
from witness.models import catalogue, recognizers, store
from witness.options import Recognizer
from witness.recognition import gpus
from witness.storage import cache

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
REINSTALL_AV = "pip install --force-reinstall av"


def check_python(machine: Machine) -> Iterator[Check]:
    system = machine.distribution.get("PRETTY_NAME") or platform.system()
    finding = f"{platform.python_version()} on {system}, {platform.machine()}, {platform.release()}"
    able = (3, 10) <= sys.version_info[:2] < (3, 15) and sys.maxsize > 2**32
    yield Check("python", able, finding, None if able else "use a 64-bit Python 3.10 to 3.14")


def check_onnxruntime(_machine: Machine) -> Iterator[Check]:
    versions = {name: package_version(name) for name in ONNXRUNTIMES}
    installed = [f"{name} {number}" for name, number in versions.items() if number]
    if len(installed) != 1:
        extra = " ".join(name for name, number in versions.items() if number)
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
        yield Check("onnxruntime", False, str(error), f"pip install --force-reinstall {DISTRIBUTION}")
        return
    took = time.perf_counter() - begun
    name = installed[0] if installed else ""
    finding = f"{name}: the builtin model ran on the CPU ({took:.2f} s)"
    yield Check("onnxruntime", shape == (1, 589, 7), finding)


def check_whisper(machine: Machine) -> Iterator[Check]:
    """Check that whisper.cpp starts, and name its device."""
    number = package_version("pywhispercpp")
    answer = machine.ask("whisper")
    if "error" in answer:
        reinstall = "pip install --force-reinstall pywhispercpp"
        yield Check("whisper.cpp", False, f"pywhispercpp {number}: {answer['error']}", reinstall)
    elif gpus.has_gpu_backend():
        lines = [line for line in answer["log"] if re.match(r"ggml_\w+: \d+ = ", line)]
        devices = "; ".join(re.sub(r"^ggml_(\w+): \d+ = ([^|]+?)\s*\|.*", r"\1: \2", line) for line in lines)
        where = devices or "the CPU: it was built for a GPU but finds none"
        fix = None if devices else "see vulkan"
        yield Check("whisper.cpp", bool(devices) or None, f"pywhispercpp {number} runs on {where}", fix)
    else:
        yield Check("whisper.cpp", True, f"pywhispercpp {number} runs on the CPU")


def check_recognizers(machine: Machine) -> Iterator[Check]:
    """Check that CTranslate2 starts, and name the recognizer in use."""
    able = list(recognizers.installed())
    number = package_version("ctranslate2")
    if Recognizer.CTRANSLATE2 in able:
        answer = machine.ask("ctranslate2")
        if "error" in answer:
            able.remove(Recognizer.CTRANSLATE2)
            reinstall = "pip install --force-reinstall ctranslate2, or pip uninstall it"
            yield Check("ctranslate2", False, f"ctranslate2 {number}: {answer['error']}", reinstall)
        else:
            types = ", ".join(answer["types"])
            yield Check("ctranslate2", True, f"ctranslate2 {number} runs on the CPU ({types})")
    else:
        fix = f"{recognizers.INSTALL[Recognizer.CTRANSLATE2]} (faster on a CPU; most systems have wheels)"
        yield Check("ctranslate2", None, "not installed; whisper.cpp recognizes words", fix)
    gpu = yield from _transcribe_cpp(machine, able)
    yield Check(
        "recognizers",
        bool(able),
        f"{', '.join(able)}; --recognizer auto is {recognizers.choose_recognizer(gpu, able)}",
    )
    words = store.find_word_model(gpu=gpu, available=able)
    usual = words.fix is None
    yield Check("words", usual or None, words.finding, words.fix, missing=words.model is None)


def _transcribe_cpp(machine: Machine, able: list[Recognizer]) -> Generator[Check, None, Recognizer | None]:
    """Check that transcribe.cpp starts, and name its card; return the recognizer that uses a GPU."""
    if Recognizer.TRANSCRIBE_CPP not in able:
        if machine.cards and not gpus.has_gpu_backend():
            fix = f"{recognizers.INSTALL[Recognizer.TRANSCRIBE_CPP]} (words on the GPU, through Vulkan)"
            yield Check("transcribe-cpp", None, "not installed; words are recognized on the CPU", fix)
        return gpus.recognizer()
    answer = gpus.devices()
    if "error" in answer:
        able.remove(Recognizer.TRANSCRIBE_CPP)
        reinstall = "pip install --force-reinstall transcribe-cpp, or pip uninstall it"
        yield Check("transcribe-cpp", False, str(answer["error"]), reinstall)
        return None
    number = answer["version"]
    names = [device["name"] for device in answer["devices"] if device["kind"] == "vulkan"]
    if names:
        yield Check("transcribe-cpp", True, f"transcribe-cpp {number} finds vulkan: {', '.join(names)}")
    else:
        yield Check("transcribe-cpp", None, f"transcribe-cpp {number} finds no GPU", "see vulkan")
    return gpus.recognizer()


def check_decoding(_machine: Machine) -> Iterator[Check]:
    try:
        import av
        from av.codec import codecs_available
    except ImportError as error:
        yield Check("decoding", False, str(error), REINSTALL_AV)
        return
    usual = ("aac", "flac", "mp3", "opus", "vorbis", "pcm_s16le")
    missing = [name for name in usual if name not in codecs_available]
    ffmpeg = ".".join(str(part) for part in av.library_versions.get("libavcodec", ()))
    finding = f"PyAV {av.__version__} with libavcodec {ffmpeg}"
    if missing:
        yield Check("decoding", False, f"{finding}, without {', '.join(missing)}", REINSTALL_AV)
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
