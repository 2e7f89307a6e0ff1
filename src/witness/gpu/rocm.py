"""A card and the libraries that drive it, found as the system's loader finds them, without loading them.

The MIGraphX provider is the one built into onnxruntime, or AMD's plug-in (the package
onnxruntime-ep-migraphx), which AMD alone ships since ROCm 10 and onnxruntime loads since 1.24. Both have the
same name and name their compiled graphs alike; the names of their options differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from witness._version import pip_install
from witness.child import Message
from witness.errors import DeviceError
from witness.gpu import cards, loader
from witness.gpu.strict import MIGRAPHX, ProviderOptions
from witness.models.session import load_onnxruntime, runtime_version
from witness.progress import Reporter
from witness.storage import typed_json
from witness.storage.atomic import replace
from witness.storage.cache import cache_folder
from witness.storage.files import sha256_at

PLUGIN = "onnxruntime_ep_migraphx"
"""The Python module of AMD's plug-in. The package of that name on PyPI is empty."""
FIX = "`witness doctor` looks for the reason, --device cpu does without the GPU"
OVERRIDES = re.compile(r"ORT_MIGRAPHX_|MIGRAPHX_")
"""Environment variables that override the settings in code: the cache folder, the precision, the passes."""


# --- the provider ---


@dataclass(frozen=True)
class Provider:
    """The MIGraphX provider of this installation."""

    library: Path
    plugin: bool = False
    """True for AMD's plug-in."""

    @property
    def core(self) -> Path | None:
        """onnxruntime's own library, for the plug-in; None: not needed, or missing.

        The plug-in may be linked with libonnxruntime.so.1, which no wheel has as a file: AMD's page for ROCm
        10.0 has people make a link of that name.
        """
        folder = Path(load_onnxruntime().__file__).parent / "capi"
        return next(iter(sorted(folder.glob("libonnxruntime.so.*"))), None) if self.plugin else None


def find_provider() -> Provider | None:
    """Return the plug-in if it is installed, as a deliberate choice; else the built-in provider, if any."""
    plugin = plugin_library()
    if plugin is not None:
        return Provider(plugin, plugin=True)
    runtime = load_onnxruntime()
    file = Path(runtime.__file__).parent / "capi" / "libonnxruntime_providers_migraphx.so"
    built_in = MIGRAPHX in runtime.get_available_providers() and file.exists()
    return Provider(file) if built_in else None


def plugin_library() -> Path | None:
    if find_spec(PLUGIN) is None:
        return None
    module = import_module(PLUGIN)  # it only knows its own files
    path = getattr(module, "get_library_path", None)
    try:
        return None if path is None else Path(path())
    except FileNotFoundError:
        return None


def provider_options(
    provider: Provider, folder: str, *, gpu: int, fp16: bool, exhaustive: bool
) -> ProviderOptions:
    """Return the provider's options; `folder` must belong to one model, shape, precision, GPU and version."""
    common = {"fp16_enable": str(int(fp16)), "exhaustive_tune": str(int(exhaustive))}
    if provider.plugin:
        options = {"device_id": str(gpu), "cache_dir": folder, **common}
        return ProviderOptions(plugin=str(provider.library), options=options)
    options = {f"migraphx_{name}": value for name, value in common.items()}
    options |= {"device_id": str(gpu), "migraphx_model_cache_dir": folder}
    # Otherwise its arena for inputs and outputs grows by powers of two. PyPI's wheels drop the word, and take
    # 9 MiB (docs/amd-gpu.md). The plug-in has no arena, and does not know it.
    options["migraphx_arena_extend_strategy"] = "kSameAsRequested"
    return ProviderOptions(plugin=None, options=options)


def note_ignored_variables(reporter: Reporter) -> None:
    """Name the environment variables that would change the compiled graphs; the child does not get them."""
    if ignored := sorted(name for name in os.environ if OVERRIDES.match(name)):
        reporter.note(f"ignored, because they change what MIGraphX runs: {', '.join(ignored)}")


# --- a card with its libraries ---


@dataclass(frozen=True)
class Stack:
    """A card, and the libraries that drive it."""

    card: cards.Card
    runtime: str
    """As in `graph_cache.Key`."""
    migraphx: str
    """As in `graph_cache.Key`."""
    libraries: tuple[Path, ...]
    """To be loaded by these paths, in this order: for the plug-in onnxruntime's own; HIP; MIGraphX."""
    provider: Provider

    @property
    def gfx(self) -> str:
        """The card's architecture, or the one that HSA_OVERRIDE_GFX_VERSION passes it off as."""
        parts = os.environ.get("HSA_OVERRIDE_GFX_VERSION", "").split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            return "gfx{}{:x}{:x}".format(*map(int, parts))
        return self.card.gfx

    def request(self, name: str, folder: Path, *, fp16: bool = False, exhaustive: bool = False) -> Message:
        """Return the parts of a request for a model by that name, whose compiled graph is in `folder`."""
        options = provider_options(
            self.provider, str(folder), gpu=self.card.index, fp16=fp16, exhaustive=exhaustive
        )
        return {"name": name, "libraries": [str(path) for path in self.libraries], "provider": options}

    @property
    def title(self) -> str:
        name = self.card.name
        return name if self.gfx in name else f"{name} ({self.gfx})"


def choose_card(index: int | None) -> cards.Card:
    """Return the card of that ordinal; None: the best. Raises DeviceError."""
    visible = [card for card in cards.list_cards() if card.index >= 0]
    chosen = cards.pick_card(visible, index)
    if chosen is not None:
        return chosen
    if visible:
        names = ", ".join(f"{card.index} ({card.name})" for card in visible)
        raise DeviceError(f"there is no GPU {index}; there is {names}; --gpu chooses one")
    raise DeviceError(f"no AMD GPU is visible (/sys/class/kfd); {FIX}")


def find_stack(card: cards.Card) -> Stack:
    """Return the card with this installation's libraries for it. Loads none. Raises DeviceError."""
    provider = find_provider()
    if provider is None:
        fix = pip_install("onnxruntime-migraphx")
        raise DeviceError(f"this onnxruntime has no MIGraphX; fix: {fix}")
    if Path("/dev/kfd").exists() and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        raise DeviceError(
            "no permission to use /dev/kfd; fix: sudo usermod -aG render,video $USER, and log in again"
        )
    needed = _needed_libraries(provider)
    hip = [path for name, path in needed.items() if name.startswith("libamdhip")]
    interface = [path for name, path in needed.items() if name.startswith("libmigraphx_c.")]
    # MIGraphX opens the library of its GPU by name, from its own folder.
    beside = [path for library in interface for path in library.resolve().parent.glob("libmigraphx*.so*")]
    libraries = {path.resolve() for name, path in needed.items() if name.startswith("libmigraphx")}
    libraries |= {path.resolve() for path in beside}
    hashes = hashes_of([provider.library, *libraries])
    digest = hashlib.sha256()
    for path in sorted(libraries):
        digest.update(path.name.encode() + bytes.fromhex(hashes[path]))
    return Stack(
        card,
        f"{runtime_version()}, provider {hashes[provider.library][:16]}",
        f"{', '.join(path.resolve().name for path in interface)} {digest.hexdigest()[:16]}",
        (*([] if provider.core is None else [provider.core]), *hip, *interface),
        provider,
    )


def _needed_libraries(provider: Provider) -> dict[str, Path]:
    try:
        trace = loader.trace(provider.library, provider.core)
    except OSError as error:
        raise DeviceError(f"{loader.LOADER} finds no libraries of ROCm ({error})") from error
    if fault := library_fault(trace.missing, trace.lacking, Path("/"), os.environ):
        finding, export = fault
        fix = export or f"install ROCm 7.1 or newer with MIGraphX; {FIX}"
        raise DeviceError(f"onnxruntime's MIGraphX does not start: {finding}; fix: {fix}")
    return trace.files


def library_fault(
    missing: Sequence[str], lacking: Sequence[str], root: Path, environment: Mapping[str, str]
) -> tuple[str, str | None] | None:
    """Return the fault of the libraries that the provider needs, and the command that leads to them, if any.

    None: no fault is known. The arguments are those of `loader.LoaderTrace` and `loader.find_on_disk`.
    """
    if missing:
        finding = f"{' and '.join(missing)} cannot be found"
        if export := loader.search_path_fix(missing, root, environment):
            finding += ", although the files are there: the loader does not look in their folders"
        return finding, export
    if lacking:
        return f"{' and '.join(lacking)} is in none of its libraries: they are too old", None
    return None


def hashes_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the sha256 of each file, in hexadecimal. Raises OSError.

    MIGraphX's libraries are hundreds of megabytes, so the hashes are written to the cache folder, and used as
    long as path, size, time of change and inode are the same. If that fails, all files are read.
    """
    store = cache_folder() / "libraries.json"
    try:
        recorded = typed_json.decode(store.read_bytes(), dict[str, tuple[int, int, int, str]])
    except (OSError, ValueError):
        recorded = {}  # not written yet, or damaged
    entries = {path: entry for path, entry in recorded.items() if Path(path).exists()}
    hashes: dict[Path, str] = {}
    for path in paths:
        status = path.stat()
        identity = status.st_size, status.st_mtime_ns, status.st_ino
        if str(path) not in entries or entries[str(path)][:3] != identity:
            # The status is read before the content: if the file changes meanwhile, the next call reads it.
            entries[str(path)] = *identity, sha256_at(path)
        hashes[path] = entries[str(path)][3]
    if entries != recorded:
        with suppress(OSError):
            store.parent.mkdir(parents=True, exist_ok=True)
            replace(json.dumps(entries).encode(), store)
    return hashes
