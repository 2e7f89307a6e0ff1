"""Probes of drivers' libraries, in a child process: they may be missing, hang, or end the process.

Requests and replies, as `witness.child` carries them:

    {"probe": "vulkan", "arguments": []}      ->  {"devices": [{"name", "type", "driver"}, ...]}
    {"probe": "provider", "arguments": [..]}  ->  {"files": {name: path}, "devices", "hip",
                                                   "missing": [names], "lacking": [functions]}
    {"probe": "whisper", "arguments": []}     ->  {"log": [lines], "system": line}
    {"probe": "ctranslate2", "arguments": []} ->  {"types": [names]}

Only the standard library, `gpu.loader` and the probed package are imported.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from witness.child import Buffer, Message, ask_once, serve
from witness.gpu import loader

TYPES = ("other", "integrated", "discrete", "virtual", "cpu")
"""VkPhysicalDeviceType, in order."""
AMD = re.compile(r"lib(migraphx|amdhip64|hsa-)")
_MachineWords = ctypes.c_uint64 * 8
"""A C structure of small numbers and pointers, with its padding."""
LIMIT = 20.0  # seconds; a first use of HIP takes about one


def ask(probe: str, *arguments: str, timeout: float = LIMIT) -> dict[str, Any]:
    """Return the answer of a probe, from a child; {"error": line} after any failure."""
    return ask_once("witness.doctor.probes", {"probe": probe, "arguments": arguments}, timeout)


def vulkan() -> dict[str, Any]:
    """Return the devices of the Vulkan loader and their drivers, through the C interface (vulkan_core.h)."""
    names = {"win32": "vulkan-1.dll", "darwin": "libvulkan.1.dylib"}
    library = ctypes.CDLL(names.get(sys.platform, "libvulkan.so.1"))
    # VkApplicationInfo {type 0, next, name, version, engine, version, api 1.1}, VkInstanceCreateInfo {type 1}
    application = _MachineWords(0, 0, 0, 0, 0, 0x401000 << 32)
    instance = ctypes.c_void_p()
    settings = _MachineWords(1, 0, 0, ctypes.addressof(application))
    code = library.vkCreateInstance(ctypes.byref(settings), None, ctypes.byref(instance))
    if code != 0:
        # -9, VK_ERROR_INCOMPATIBLE_DRIVER: the loader is there, but no driver that it knows starts.
        return {"error": "no Vulkan driver starts" if code == -9 else f"vkCreateInstance returned {code}"}
    count = ctypes.c_uint32()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    devices = []
    for handle in handles:
        # VkPhysicalDeviceDriverProperties {type, next, id, name[256], info[256], version}, chained to
        # VkPhysicalDeviceProperties2 {type, next, {api, driver, vendor, device, type, name[256], ...}}
        driver = ctypes.create_string_buffer((1000196000).to_bytes(8, "little"), 1024)
        head = (1000059001).to_bytes(8, "little") + ctypes.addressof(driver).to_bytes(8, "little")
        facts = ctypes.create_string_buffer(head, 4096)
        library.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), facts)
        number = int.from_bytes(facts.raw[32:36], "little")
        devices.append(
            {
                "name": _string(facts.raw[36:292]),
                "type": TYPES[number] if number < len(TYPES) else "other",
                "driver": f"{_string(driver.raw[20:276])} {_string(driver.raw[276:532])}".strip(),
            }
        )
    return {"devices": devices}


def provider(path: str, core: str | None = None) -> dict[str, Any]:
    """Return the libraries that the loader finds for the MIGraphX provider at `path`, and HIP's devices.

    `core` is onnxruntime's own library if the provider is linked with it. The provider is not loaded: outside
    onnxruntime it crashes immediately.
    """
    trace = loader.trace(Path(path), None if core is None else Path(core))
    files = {name: str(file) for name, file in trace.files.items() if AMD.match(name)}
    answer: dict[str, Any] = {
        "files": files,
        "missing": trace.missing,
        "lacking": trace.lacking,
        "devices": None,
        "hip": None,
    }
    if files and not (trace.missing or trace.lacking):
        for name, file in files.items():
            if name.startswith("libmigraphx_c"):
                ctypes.CDLL(file)
        hip = ctypes.CDLL(next(file for name, file in files.items() if name.startswith("libamdhip64")))
        count = ctypes.c_int()
        answer |= {"hip": hip.hipGetDeviceCount(ctypes.byref(count)), "devices": count.value}
    return answer


def whisper() -> dict[str, Any]:
    import _pywhispercpp as pw

    lines: list[str] = []
    pw.whisper_log_set(lambda _level, text: lines.append(text))
    system = pw.whisper_print_system_info()
    pw.whisper_log_set(None)
    text = system.decode() if isinstance(system, bytes) else str(system)
    return {"log": "".join(lines).splitlines(), "system": text}


def ctranslate2() -> dict[str, Any]:
    import ctranslate2 as module

    return {"types": sorted(module.get_supported_compute_types("cpu"))}


def _string(data: bytes) -> str:
    return data.split(b"\0")[0].decode("utf-8", "replace")


PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    probe.__name__: probe for probe in (vulkan, provider, whisper, ctranslate2)
}


def _answer(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    return PROBES[request["probe"]](*request["arguments"]), ()


if __name__ == "__main__":
    serve(_answer)
