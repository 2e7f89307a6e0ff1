"""A card and the libraries that drive it, found as the system's loader finds them, without loading them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from witness.errors import DeviceError
from witness.gpu import cards, loader, provider
from witness.gpu.provider import Provider
from witness.models.session import runtime_version
from witness.progress import Reporter
from witness.storage.atomic import replace
from witness.storage.cache import cache_folder
from witness.storage.files import sha256_at

FIX = "`witness doctor` looks for the reason, --device cpu does without the GPU"
OVERRIDES = re.compile(r"ORT_MIGRAPHX_|MIGRAPHX_")
"""Variables that override what is given in code: another cache folder, another precision, other passes."""


@dataclass(frozen=True)
class Stack:
    """A card, and the libraries that drive it."""

    card: cards.Card
    runtime: str
    """As in `graphs.Key`."""
    migraphx: str
    """As in `graphs.Key`."""
    libraries: tuple[Path, ...]
    """To be loaded by these paths, in this order: for the plug-in onnxruntime's own; HIP; MIGraphX."""
    provider: Provider

    @property
    def gfx(self) -> str:
        """The card's architecture, or what HSA_OVERRIDE_GFX_VERSION passes it off as."""
        parts = os.environ.get("HSA_OVERRIDE_GFX_VERSION", "").split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            return "gfx{}{:x}{:x}".format(*map(int, parts))
        return self.card.gfx

    @property
    def title(self) -> str:
        """The card's name and architecture, for messages."""
        name = self.card.name
        return name if self.gfx in name else f"{name} ({self.gfx})"


def choose_card(index: int | None) -> cards.Card:
    """The card of that ordinal; None: the best. Raises DeviceError."""
    there = [card for card in cards.cards() if card.index >= 0]
    chosen = cards.pick(there, index)
    if chosen is not None:
        return chosen
    if there:
        names = ", ".join(f"{card.index} ({card.name})" for card in there)
        raise DeviceError(f"there is no GPU {index}; there is {names}; --gpu chooses one")
    raise DeviceError(f"no AMD GPU is visible (/sys/class/kfd); {FIX}")


def stack(card: cards.Card) -> Stack:
    """The card with the libraries that this installation has for it. Loads none. Raises DeviceError."""
    chosen = provider.find()
    if chosen is None:
        raise DeviceError("this onnxruntime has no MIGraphX; fix: pip install onnxruntime-migraphx")
    if Path("/dev/kfd").exists() and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        raise DeviceError(
            "no permission to use /dev/kfd; fix: sudo usermod -aG render,video $USER, and log in again"
        )
    needed = _needed_by(chosen).files
    hip = [path for name, path in needed.items() if name.startswith("libamdhip")]
    interface = [path for name, path in needed.items() if name.startswith("libmigraphx_c.")]
    # MIGraphX opens the library of its GPU by name, from its own folder.
    beside = [path for library in interface for path in library.resolve().parent.glob("libmigraphx*.so*")]
    libraries = {path.resolve() for name, path in needed.items() if name.startswith("libmigraphx")}
    libraries |= {path.resolve() for path in beside}
    hashes = hashes_of([chosen.library, *libraries])
    digest = hashlib.sha256()
    for path in sorted(libraries):
        digest.update(path.name.encode() + bytes.fromhex(hashes[path]))
    return Stack(
        card,
        f"{runtime_version()}, provider {hashes[chosen.library][:16]}",
        f"{', '.join(path.resolve().name for path in interface)} {digest.hexdigest()[:16]}",
        (*([] if chosen.core is None else [chosen.core]), *hip, *interface),
        chosen,
    )


def hashes_of(paths: Iterable[Path]) -> dict[Path, str]:
    """The sha256 of each file, in hexadecimal. Raises OSError.

    MIGraphX's libraries are hundreds of megabytes, so the hashes are written to the cache folder, and used as
    long as path, size, time of change and inode are the same. Where that fails, all files are read.
    """
    store = cache_folder() / "libraries.json"
    try:
        recorded = json.loads(store.read_bytes())
        entries = {path: entry for path, entry in recorded.items() if Path(path).exists()}
    except (OSError, ValueError, AttributeError):
        recorded, entries = None, {}  # not there yet, or damaged
    hashes: dict[Path, str] = {}
    for path in paths:
        status = path.stat()
        identity = [status.st_size, status.st_mtime_ns, status.st_ino]
        entry = entries.get(str(path))
        if not (isinstance(entry, list) and entry[:-1] == identity):
            # Looked at before it is read: if it changes meanwhile, the next call reads it again.
            entry = entries[str(path)] = [*identity, sha256_at(path)]
        hashes[path] = entry[-1]
    if entries != recorded:
        with suppress(OSError):
            store.parent.mkdir(parents=True, exist_ok=True)
            replace(json.dumps(entries).encode(), store)
    return hashes


def _needed_by(chosen: Provider) -> loader.LoaderTrace:
    """What the loader finds for the provider, which is all that it needs. Raises DeviceError."""
    try:
        found = loader.trace(chosen.library, chosen.core)
    except OSError as error:
        raise DeviceError(f"{loader.LOADER} finds no libraries of ROCm ({error})") from error
    if found.missing:
        way = loader.way_to(found.missing, Path("/"), os.environ)
        raise DeviceError(
            f"the loader does not find {', '.join(found.missing)}, which onnxruntime's MIGraphX needs; "
            + (f"fix: {way}" if way else f"install ROCm with MIGraphX of that version; {FIX}")
        )
    if found.lacking:
        raise DeviceError(
            f"the installed ROCm lacks {', '.join(found.lacking)}, which onnxruntime's MIGraphX needs; "
            f"install a newer one; {FIX}"
        )
    return found


def note_ignored(reporter: Reporter) -> None:
    """Say which environment variables would change what is compiled; the child does not get them."""
    if ignored := sorted(name for name in os.environ if OVERRIDES.match(name)):
        reporter.note(f"ignored, because they change what MIGraphX runs: {', '.join(ignored)}")
