"""The MIGraphX provider: the one built into onnxruntime, or AMD's plug-in, which it loads (since 1.24).

The plug-in, the package onnxruntime-ep-migraphx, is all that AMD ships since ROCm 10. Both have the same name
and name their compiled graphs alike; the names of their options differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from witness.errors import DeviceError
from witness.models.session import CPU, load_onnxruntime, reason

MIGRAPHX = "MIGraphXExecutionProvider"
PLUGIN = "onnxruntime_ep_migraphx"
"""The Python module of AMD's plug-in. The package of that name on PyPI is empty."""


@dataclass(frozen=True)
class Provider:
    """Where the provider is."""

    library: Path
    plugin: bool = False
    """It is AMD's plug-in."""

    @property
    def core(self) -> Path | None:
        """onnxruntime's own library, for the plug-in; None: it is not needed or not there.

        It may be linked with libonnxruntime.so.1, which no wheel has as a file: AMD's page for ROCm 10.0 has
        people make a link of that name.
        """
        folder = Path(load_onnxruntime().__file__).parent / "capi"
        return next(iter(sorted(folder.glob("libonnxruntime.so.*"))), None) if self.plugin else None


class Wish(TypedDict):
    """What a child is told about the provider."""

    plugin: str | None
    """The library of the plug-in; None: the one that is built in."""
    options: dict[str, str]
    """In the provider's own words."""


def find() -> Provider | None:
    """The plug-in if it is installed, since somebody chose it; else the built-in one; None: there is none."""
    plugin = plugin_library()
    if plugin is not None:
        return Provider(plugin, plugin=True)
    runtime = load_onnxruntime()
    file = Path(runtime.__file__).parent / "capi" / "libonnxruntime_providers_migraphx.so"
    there = MIGRAPHX in runtime.get_available_providers() and file.exists()
    return Provider(file) if there else None


def plugin_library() -> Path | None:
    """Return the library of AMD's plug-in; None: it is not installed."""
    if find_spec(PLUGIN) is None:
        return None
    module = import_module(PLUGIN)  # it only knows its own files
    path = getattr(module, "get_library_path", None)
    try:
        return None if path is None else Path(path())
    except FileNotFoundError:
        return None


def provider_options(provider: Provider, folder: str, *, gpu: int, fp16: bool, exhaustive: bool) -> Wish:
    """`folder` must belong to one model, shape, precision, GPU and library version alone."""
    common = {"fp16_enable": str(int(fp16)), "exhaustive_tune": str(int(exhaustive))}
    if provider.plugin:
        options = {"device_id": str(gpu), "cache_dir": folder, **common}
        return Wish(plugin=str(provider.library), options=options)
    options = {f"migraphx_{name}": value for name, value in common.items()}
    options |= {"device_id": str(gpu), "migraphx_model_cache_dir": folder}
    # Otherwise its arena for inputs and outputs grows by powers of two. PyPI's wheels drop the word, and take
    # 9 MiB (docs/amd-gpu.md). The plug-in has no arena, and does not know it.
    options["migraphx_arena_extend_strategy"] = "kSameAsRequested"
    return Wish(plugin=None, options=options)


def open_session(source: bytes, options: Any, wish: Wish | None, *, cpu: bool) -> Any:
    """A session with the provider, and with the CPU for what that does not take if `cpu` is true.

    Without `wish`, on the CPU. Raises DeviceError, or what onnxruntime raises.
    """
    runtime = load_onnxruntime()
    if wish is None:
        return runtime.InferenceSession(source, options, providers=[CPU], enable_fallback=False)
    if not cpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if wish["plugin"] is None:
        providers: list[Any] = [(MIGRAPHX, wish["options"])]
        providers += [CPU] if cpu else []
        return runtime.InferenceSession(source, options, providers=providers, enable_fallback=False)
    devices = plugin_devices(wish["plugin"])
    gpu = int(wish["options"].get("device_id", 0))
    if gpu >= len(devices):
        # onnxruntime looks for cards in /sys/class/drm, which some containers hide.
        raise DeviceError(f"the plug-in finds {len(devices)} cards, so there is no number {gpu}")
    options.add_provider_for_devices([devices[gpu]], wish["options"])
    return runtime.InferenceSession(source, options, enable_fallback=False)


@cache
def plugin_devices(library: str) -> list[Any]:
    """The cards that the plug-in offers, in its order. Raises DeviceError."""
    runtime = load_onnxruntime()
    if not says_assignment():
        raise DeviceError(f"the plug-in needs onnxruntime 1.24 or newer, and this is {runtime.__version__}")
    try:
        runtime.register_execution_provider_library(f"witness {MIGRAPHX}", library)
    except Exception as error:  # onnxruntime raises a dozen unrelated classes
        raise DeviceError(f"the plug-in does not start ({reason(error)})") from error
    return [device for device in runtime.get_ep_devices() if device.ep_name == MIGRAPHX]


def says_assignment() -> bool:
    """Whether onnxruntime says which provider has each node, as it does since 1.24."""
    return hasattr(load_onnxruntime().InferenceSession, "get_provider_graph_assignment_info")


def ask_for_assignment(options: Any, folder: str) -> None:
    """Have a session with these `options` record its nodes for `assignment`; `folder` holds a profile."""
    if says_assignment():
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    else:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))


def assignment(session: Any, feeds: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(provider, operator) of every node; where onnxruntime does not tell, of all that run for `feeds`.

    There a graph that MIGraphX took is one node.
    """
    if says_assignment():
        return [
            (part.ep_name, node.op_type)
            for part in session.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ]
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_bytes())
    ran = [event.get("args", {}) for event in events if event["name"].endswith("_kernel_time")]
    return [(event["provider"], event["op_name"]) for event in ran]
