"""The AMD cards and their free memory, from the kernel alone, without ROCm's tools.

ROCm itself reads the compute driver's topology (/sys/class/kfd), so its order and its architecture numbers
are HIP's; the display side of the same card (/sys/class/drm) knows its memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from witness import machine_limits
from witness.gpu.versions import ARCHITECTURES, Architecture

NODES = "sys/class/kfd/kfd/topology/nodes"
PCI_NAMES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
AMD = "0x1002"  # PCI vendor

VOICE_MODEL = 5 << 30
"""Bytes for the voice model on a GPU, with what HIP, MIGraphX and MIOpen take.

Measured elsewhere, on an RX 9070 with MIGraphX 2.12: 4 to 5 GiB, and 15.2 together with whisper.cpp."""
MARGIN = 3 << 30
"""Bytes that stay free if both engines run at the same time, so that a card of 8 GB never has them.

The 15.2 GiB of both are more than the two take alone, and the desktop grows, too."""


@dataclass(frozen=True)
class Card:
    """An AMD GPU that can compute."""

    index: int
    """HIP's ordinal under ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES; -1: they hide it."""
    name: str
    """As PCI knows it ("Radeon RX 9070"), else by its architecture."""
    gfx: str
    """LLVM's name of the architecture, "gfx1201"."""
    integrated: bool
    """Part of a processor: its memory is the machine's."""
    memory_total: int
    """Bytes of VRAM; of an integrated card, with the machine's memory that the driver may map (GTT)."""
    memory_used: int | None
    """Bytes; None: the driver does not say."""
    memory_free: int | None
    """Bytes; of an integrated card no more than the machine has free. None: the driver does not say."""
    supported: Literal["listed", "unlisted"]
    """Its standing on AMD's list for MIGraphX."""
    node: Path
    """Its node in the topology of the compute driver."""
    device: Path | None
    """Its folder on the display side; None: hidden, as in some containers."""

    @property
    def listed_since(self) -> tuple[int, int] | None:
        """The first ROCm with the card on AMD's list, if it is not on the list of 10.0."""
        return ARCHITECTURES.get(self.gfx, Architecture()).since

    def lack_for_both(self, whisper: int) -> str | None:
        """Return the reason if it has no room for the voice model and `whisper` bytes more."""
        needed = VOICE_MODEL + MARGIN + whisper
        free = self.memory_total if self.memory_free is None else self.memory_free
        if free >= needed:
            return None
        return f"the {self.name} has {free / 1e9:.1f} GB free, and both engines need {needed / 1e9:.1f} GB"


def list_cards(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> tuple[Card, ...]:
    """Return every card that the compute driver below `root` knows, in its order.

    `environment` (default: this process's) may hide or reorder them for HIP.
    """
    able = [node for node in _nodes(root) if node[1].get("gfx_target_version")]
    unique = [node[1].get("unique_id", 0) for node in able]
    order = visible_order(unique, os.environ if environment is None else environment)
    return tuple(
        _card(root, node, properties, order.index(number) if number in order else -1)
        for number, (node, properties) in enumerate(able)
    )


def pick_card(cards: Sequence[Card], index: int | None = None) -> Card | None:
    """Return the card with that HIP ordinal, or else the best; None: there is no such card.

    The best is preferably listed by AMD, then discrete, then of most memory.
    """
    return max(
        (card for card in cards if card.index >= 0 and index in (None, card.index)),
        key=lambda card: (card.supported == "listed", not card.integrated, card.memory_total, -card.index),
        default=None,
    )


def visible_order(unique: Sequence[int], environment: Mapping[str, str]) -> list[int]:
    """Return the positions, in HIP's order, of the cards that HIP sees among those with these unique ids.

    ROCr filters first, and HIP counts the rest. Both accept numbers and "GPU-" with the id in hex, and
    ignore everything after the first wrong entry. A variable that is set but empty hides all from ROCr,
    and nothing from HIP (rocclr/device/rocm/rocdevice.cpp), which reads CUDA's variable without its own.
    """
    order = list(range(len(unique)))
    if "ROCR_VISIBLE_DEVICES" in environment:
        order = _chosen(order, unique, environment["ROCR_VISIBLE_DEVICES"])
    choice = environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES")
    return _chosen(order, unique, choice) if choice else order


def _chosen(order: list[int], unique: Sequence[int], choice: str) -> list[int]:
    chosen: list[int] = []
    for part in choice.split(","):
        name = part.strip()
        if re.fullmatch(r"GPU-[0-9A-Fa-f]+", name):
            match = [card for card in order if f"{unique[card]:016x}" == name[4:].lower().zfill(16)]
        else:
            match = order[int(name) :][:1] if re.fullmatch(r"[0-9]{1,4}", name) else []
        if not match:
            break
        chosen += [match[0]] if match[0] not in chosen else []
    return chosen


def list_displays(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the device folders of all AMD cards that the display driver knows, able to compute or not."""
    drm = sorted((root / "sys/class/drm").glob("card*"))
    devices = [card / "device" for card in drm if re.fullmatch(r"card[0-9]+", card.name)]
    return tuple(device for device in devices if _text(device / "vendor") == AMD)


def gfx_name(version: int) -> str:
    """120001 -> "gfx1201": the last two places are hexadecimal digits (90012 is gfx90c)."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _nodes(root: Path) -> list[tuple[Path, dict[str, int]]]:
    """Return each node and its properties. Unreadable nodes are hidden from ROCm as well (cgroups)."""
    try:
        folders = [path for path in (root / NODES).iterdir() if path.name.isdigit()]
    except OSError:
        return []
    return [(path, _properties(path)) for path in sorted(folders, key=lambda path: int(path.name))]


def _card(root: Path, node: Path, properties: dict[str, int], index: int) -> Card:
    gfx = gfx_name(properties["gfx_target_version"])
    device: Path | None = root / f"sys/class/drm/renderD{properties.get('drm_render_minor', 0)}/device"
    if not (device and device.is_dir()):
        device = None
    facts = ARCHITECTURES.get(gfx, Architecture())
    integrated = facts.integrated or properties.get("cpu_cores_count", 0) > 0
    total, used, free = _memory(root, node, device, integrated)
    return Card(
        index=index,
        name=_name(root, device, properties) or facts.name,
        gfx=gfx,
        integrated=integrated,
        memory_total=total,
        memory_used=used,
        memory_free=free,
        supported="listed" if facts.listed else "unlisted",
        node=node,
        device=device,
    )


def _memory(
    root: Path, node: Path, device: Path | None, integrated: bool
) -> tuple[int, int | None, int | None]:
    def pool(name: str) -> tuple[int | None, int | None]:
        if device is None:
            return None, None
        return _number(device / f"mem_info_{name}_total"), _number(device / f"mem_info_{name}_used")

    total, used = pool("vram")
    if total is None:  # heaps 1 and 2 of the kernel's kfd_crat.h are the card's own
        banks = [_properties(bank) for bank in (node / "mem_banks").glob("*")]
        total = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))
    free = None if used is None else max(total - used, 0)
    if not integrated:
        return total, used, free
    mapped, mapped_used = pool("gtt")
    if mapped is None or mapped_used is None or used is None or free is None:
        return total + (mapped or 0), None, None
    spare = max(mapped - mapped_used, 0)
    available = machine_limits.memory(root)
    return total + mapped, used + mapped_used, free + (spare if available is None else min(spare, available))


def _name(root: Path, device: Path | None, properties: dict[str, int]) -> str | None:
    """Return the product's name from the driver or from libdrm's list (device id, revision, name)."""
    if device is None:
        return None
    if product := _text(device / "product_name"):
        return product.removeprefix("AMD ")
    try:
        revision = int(_text(device / "revision"), 16)
    except ValueError:
        return None
    ids = f"{properties.get('device_id', 0):04X}", f"{revision:02X}"
    for path in PCI_NAMES:
        for line in _text(root / path).splitlines():
            parts = [part.strip() for part in line.split(",", 2)]
            if len(parts) == 3 and (parts[0].upper(), parts[1].upper()) == ids:
                return parts[2].removeprefix("AMD ")
    return None


def _properties(folder: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(folder / "properties").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """Return the content of the file without white space around it; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
