"""What can be made again, kept in the user's cache folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from witness.storage.atomic import replace
from witness.storage.files import read, sha256


def cache_folder() -> Path:
    """Where Witness keeps what it can make again: WITNESS_CACHE, otherwise the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness", appauthor=False))


def told_before(what: str) -> bool:
    """Whether a person on this machine has been told this; from now on they have."""
    place = cache_folder() / "told" / sha256(what.encode())[:16]
    if place.exists():
        return True
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return False


def cached(folder: Path, names: Sequence[str], make: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """What `make` returns: from files of these names in `folder` if they are whole, otherwise made and kept.

    Their sha256 are kept beside them. Where nothing can be kept, everything is made each time.
    """
    manifest = folder / "sha256.json"
    try:
        contents = [read(folder / name) for name in names]
        if json.loads(read(manifest)) == [sha256(content) for content in contents]:
            return contents
    except (OSError, ValueError):
        pass  # not made yet, or damaged; all are made again
    made = make()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(names, made, strict=True):
            replace(content, folder / name)
        replace(json.dumps([sha256(content) for content in made]).encode(), manifest)
    return made
