"""Cards as six machines show them; tests/data/make_gpus.py wrote these."""

from pathlib import Path

import pytest

from conftest import DATA
from witness.gpu import cards

GPUS = DATA / "gpus"
MIB, GIB = 1 << 20, 1 << 30


def cards_of(machine: str, **environment: str) -> tuple[cards.Card, ...]:
    return cards.list_cards(GPUS / machine, environment)


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        ("rx9070", [("Radeon RX 9070", "gfx1201", False, "listed")]),
        (
            "rx9070_igpu",
            [
                ("Radeon Graphics", "gfx1036", True, "unlisted"),
                ("Radeon RX 9070", "gfx1201", False, "listed"),
            ],
        ),
        ("strix_halo", [("Radeon 8060S Graphics", "gfx1151", True, "listed")]),
        ("rx5700", [("Radeon RX 5700", "gfx1010", False, "unlisted")]),
        ("no_amd", []),
        (
            "two_cards",
            [
                ("Radeon RX 7900 XTX", "gfx1100", False, "listed"),
                ("Radeon RX 9070 XT", "gfx1201", False, "listed"),
            ],
        ),
    ],
)
def test_the_cards_of_a_machine(machine, found):
    assert [(card.name, card.gfx, card.integrated, card.supported) for card in cards_of(machine)] == found
    assert [card.index for card in cards_of(machine)] == list(range(len(found)))


def test_memory_of_a_card_is_its_own():
    (card,) = cards_of("rx9070")
    assert (card.memory_total, card.memory_used) == (17_095_983_104, 1_200 * MIB)
    assert card.memory_free == 17_095_983_104 - 1_200 * MIB


def test_memory_of_an_apu_is_what_it_may_map_and_the_machine_has():
    (card,) = cards_of("strix_halo")
    assert card.memory_total == 512 * MIB + 62 * GIB
    # 61.5 GiB of GTT are unused, but only 50 GiB of the machine's memory are.
    assert card.memory_free == 212 * MIB + 50 * GIB


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("rx9070", "Radeon RX 9070"),
        ("rx9070_igpu", "Radeon RX 9070"),  # not the integrated one, which comes first
        ("strix_halo", "Radeon 8060S Graphics"),
        ("rx5700", "Radeon RX 5700"),
        ("two_cards", "Radeon RX 7900 XTX"),
    ],
)
def test_the_best_card(machine, name):
    card = cards.pick_card(cards_of(machine))
    assert card is not None
    assert card.name == name


def test_there_is_no_best_of_none():
    assert cards.pick_card(cards_of("no_amd")) is None
    assert cards.pick_card(cards_of("two_cards", ROCR_VISIBLE_DEVICES="")) is None


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({}, [0, 1]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, [-1, 0]),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0"}, [-1, 0]),  # HIP counts what ROCr left
        ({"ROCR_VISIBLE_DEVICES": ""}, [-1, -1]),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, [-1, 0]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [0, -1]),
        ({"HIP_VISIBLE_DEVICES": "1,7,0"}, [-1, 0]),  # nothing counts after what is wrong
        ({"HIP_VISIBLE_DEVICES": "1,1"}, [-1, 0]),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, [-1, -1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5a3c0f11aabbccdd"}, [-1, 0]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5A3C0F11AABBCCDD,0"}, [1, 0]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000bad,0"}, [-1, -1]),
    ],
)
def test_variables_hide_and_reorder_cards_as_they_do_for_hip(environment, indices):
    assert [card.index for card in cards_of("two_cards", **environment)] == indices


def test_a_card_is_picked_by_its_ordinal_or_the_best():
    found = cards_of("rx9070_igpu")
    assert cards.pick_card(found, None) is cards.pick_card(found, 1) is found[1]
    assert cards.pick_card(found, 0) is found[0]
    assert cards.pick_card(found, 2) is None
    assert cards.pick_card((), None) is None


def test_a_hidden_card_is_not_the_best():
    card = cards.pick_card(cards_of("two_cards", HIP_VISIBLE_DEVICES="1"))
    assert card is not None
    assert (card.name, card.index) == ("Radeon RX 9070 XT", 0)


def test_nothing_but_the_topology(tmp_path):
    """In a container without /sys/class/drm: the size from the node, the name from the architecture."""
    import shutil

    shutil.copytree(GPUS / "rx9070/sys/class/kfd", tmp_path / "sys/class/kfd")
    (card,) = cards.list_cards(tmp_path, {})
    assert (card.name, card.memory_total, card.memory_used, card.memory_free) == (
        "Radeon RX 9070",
        17_095_983_104,
        None,
        None,
    )


def test_damaged_files_are_no_cards(tmp_path):
    node = tmp_path / cards.NODES / "1"
    node.mkdir(parents=True)
    assert cards.list_cards(tmp_path) == ()  # no properties, as for a card that a cgroup hides
    (node / "properties").write_bytes(b"\xff\xfe gfx_target_version\nsimd_count twelve\n\n")
    assert cards.list_cards(tmp_path) == ()


@pytest.mark.parametrize(
    ("version", "name"), [(120001, "gfx1201"), (90012, "gfx90c"), (90010, "gfx90a"), (110501, "gfx1151")]
)
def test_names_of_architectures(version, name):
    assert cards.gfx_name(version) == name


def test_displays():
    assert [path.parent.name for path in cards.list_displays(GPUS / "two_cards")] == ["card0", "card1"]
    assert cards.list_displays(GPUS / "no_amd") == ()
    assert cards.list_displays(Path("/nowhere")) == ()


def test_this_machine_can_be_asked():
    assert all(card.gfx.startswith("gfx") for card in cards.list_cards())
