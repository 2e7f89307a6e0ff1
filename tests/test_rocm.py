"""The hashes of MIGraphX's libraries: read once, and read again when a file changes."""

import json
import os
from pathlib import Path

import pytest

from conftest import fake_card
from witness.gpu import rocm
from witness.storage import files


@pytest.fixture
def read(tmp_path, monkeypatch) -> list[str]:
    """The names of the files that were read, in a cache of this test's own."""
    names: list[str] = []

    def sha256_at(path: Path) -> str:
        names.append(path.name)
        return files.sha256_at(path)

    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rocm, "sha256_at", sha256_at)
    return names


@pytest.fixture
def libraries(tmp_path) -> list[Path]:
    paths = [tmp_path / f"libmigraphx{part}.so" for part in ("", "_c", "_gpu")]
    for path in paths:
        path.write_bytes(path.name.encode() * 100)
    return paths


def hashes(libraries: list[Path]) -> dict[Path, str]:
    """What `rocm.hashes_of` gives, which must be true."""
    answer = rocm.hashes_of(libraries)
    assert answer == {path: files.sha256(path.read_bytes()) for path in libraries}
    return answer


def test_a_second_call_reads_no_library(libraries, read):
    first = hashes(libraries)
    assert sorted(read) == sorted(path.name for path in libraries)
    read.clear()
    assert hashes(libraries) == first
    assert hashes(libraries[:1]) == {libraries[0]: first[libraries[0]]}
    assert hashes(libraries) == first
    assert read == []


def test_a_changed_file_is_hashed_again(libraries, read):
    hashes(libraries)
    read.clear()
    path = libraries[1]
    before = path.stat()

    def changed() -> None:
        hashes(libraries)
        assert read == [path.name]
        read.clear()
        hashes(libraries)
        assert read == []

    path.write_bytes(b"longer" * 1000)  # another size
    changed()
    path.write_bytes(b"change" * 1000)  # another time
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    changed()
    # Another file in its place, of the same size and time, as a package manager puts it there.
    other = path.with_suffix(".new")
    other.write_bytes(b"update" * 1000)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    other.replace(path)
    changed()


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"a": 1}', b"{", b'{"PATH": "x"}', b'{"PATH": []}'])
def test_a_damaged_store_is_written_again(libraries, read, tmp_path, damage):
    hashes(libraries)
    store = tmp_path / "cache" / "libraries.json"
    store.write_bytes(damage.replace(b"PATH", os.fsencode(libraries[0])))
    read.clear()
    hashes(libraries)
    assert len(read) == 3
    hashes(libraries)
    assert len(read) == 3


def test_files_that_are_gone_are_forgotten(libraries, read, tmp_path):
    hashes(libraries)
    libraries.pop().unlink()
    hashes(libraries)
    entries = json.loads((tmp_path / "cache" / "libraries.json").read_text())
    assert set(entries) == set(map(str, libraries))
    assert len(read) == 3


def test_without_a_cache_all_is_read(libraries, read, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    hashes(libraries)
    hashes(libraries)
    assert len(read) == 6


def test_a_stack_is_the_same_with_and_without_the_store(doubles, read, monkeypatch, tmp_path):
    fake_card(monkeypatch, doubles)
    card = rocm.choose_card(None)
    first = rocm.find_stack(card)
    assert {"libmigraphx_c.so.3", "libonnxruntime_providers_migraphx.so"} <= set(read)
    read.clear()
    assert rocm.find_stack(card) == first
    assert read == []
    (tmp_path / "cache" / "libraries.json").unlink()
    assert rocm.find_stack(card) == first
    assert read
