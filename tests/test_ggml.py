"""ggml files whose headers lie: refused in one way, and soon; whisper.cpp would trust them."""

import os
import random
import struct
import time

import pytest

import ggml as made
from witness.models import ggml_header

PLACES = 4 + ggml_header.FIELDS.size


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    return made.write(tmp_path_factory.mktemp("ggml") / "tones.bin").read_bytes()


def outcome(path, content) -> str:
    path.write_bytes(content)
    try:
        return f"{ggml_header.inspect(str(path)).text_layers} layers"
    except RuntimeError as error:
        return str(error)


def test_whatever_a_header_says(whole, tmp_path):
    """Single fields, small and huge, negative and zero; a file that is cut; bytes that were turned."""
    path, said = tmp_path / "x.bin", set()
    for number in range(100):
        chance = random.Random(number)
        content = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3])):
            match chance.randrange(3):
                case 0:
                    value = chance.choice([0, 1, -1, 2**31 - 1, -(2**31), 1 << 16, chance.randrange(1 << 31)])
                    struct.pack_into("<i", content, 4 * chance.randrange(PLACES // 4 + 2), value)
                case 1:
                    del content[chance.randrange(len(content)) :]
                    content += bytes(4)
                case 2:
                    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            if len(content) < PLACES + 12:
                content += bytes(PLACES + 12)
        said.add(outcome(path, bytes(content)))
    refusals = {"it is not a Whisper model in ggml format", "the file is damaged or incomplete"}
    assert said >= refusals
    assert all(line in refusals or line.endswith(" layers") for line in said)


def test_a_number_of_tokens_that_no_model_has_costs_no_time(whole, tmp_path):
    """Each token of no text is four zeros: 2**32 - 1 of them could be walked through for a minute."""
    bands, bins = struct.unpack_from("<2I", whole, PLACES)
    place = PLACES + 8 + 4 * bands * bins
    path = tmp_path / "x.bin"
    path.write_bytes(whole[:place] + struct.pack("<I", 2**32 - 1))
    os.truncate(path, 400_000_000)  # which takes no room on most disks
    begun = time.process_time()
    with pytest.raises(RuntimeError, match="the file is damaged or incomplete"):
        ggml_header.inspect(str(path))
    assert time.process_time() - begun < 2
