"""Cache for regenerable data, in the user's cache folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from witness.storage.atomic import replace
from witness.storage.files import read, sha256


def cache_folder() -> Path:
    """Return the folder of regenerable data: WITNESS_CACHE, otherwise the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness", appauthor=False))


def was_shown(message: str) -> bool:
    """Tell whether this machine has shown a message before, and remember it as shown."""
    mark = cache_folder() / "told" / sha256(message.encode())[:16]
    if mark.exists():
        return True
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return False


def cached(folder: Path, names: Sequence[str], make: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """Return the contents of these files in `folder` if they are whole, otherwise those that `make` returns.

    New contents are kept there, with their sha256 beside them. Where nothing can be kept, `make` runs each
    time.
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
