"""What AMD cards there are, from KFD's topology in sysfs. No ROCm tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LISTED = {"gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201"}
"""AMD's lists for MIGraphX, ROCm 10.1."""


@dataclass(frozen=True)
class Card:
    """One GPU that KFD knows."""

    index: int
    """HIP's ordinal; -1 if it is hidden by ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES."""
    name: str
    gfx: str
    integrated: bool
    memory_total: int
    memory_used: int | None
    supported: str
    """"listed" or "unlisted"."""
    node: Path


def cards(root: Path = Path("/")) -> tuple[Card, ...]:
    """The cards below `root`, in KFD's order."""
    found: list[Card] = []
    topology = root / "sys/class/kfd/kfd/topology/nodes"
    for node in sorted(topology.glob("*"), key=lambda path: int(path.name)):
        try:
            lines = (node / "properties").read_text().splitlines()
        except OSError:
            continue
        facts = dict(line.split() for line in lines if len(line.split()) == 2)
        version = int(facts.get("gfx_target_version", 0))
        if version == 0:
            continue
        gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        total = sum(int(size) for size in facts.get("local_mem_size", "0").split())
        supported = "listed" if gfx in LISTED else "unlisted"
        found.append(Card(len(found), gfx, gfx, False, total, None, supported, node))
    return tuple(found)


def best(found: Sequence[Card]) -> Card | None:
    """The card to use if none is asked for: one that AMD lists, rather a discrete one, the most memory."""
    return max(
        (card for card in found if card.index >= 0),
        key=lambda card: (card.supported == "listed", not card.integrated, card.memory_total, -card.index),
        default=None,
    )
