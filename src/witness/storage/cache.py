"""Cache for regenerable data, in the user's cache folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from witness.storage.atomic import replace
from witness.storage.files import read, sha256


def cache_folder() -> Path:
    """Return the folder of regenerable data: WITNESS_CACHE, otherwise the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness", appauthor=False))


OF_RECORDINGS = OUTLINES, SOUNDS, UNFINISHED = "outlines", "sounds", "unfinished"
"""Folders in it for sound and words of recordings; each name in them begins with a recording's sha256."""


def make_private(folder: Path) -> None:
    """Make a folder that only its user can enter, also where it was open to others. Raises OSError."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if os.name != "nt" and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def forget_recording(sha256: str) -> None:
    """Remove everything that was made of the recording with this sha256. Raises OSError."""
    if re.fullmatch("[0-9a-f]{64}", sha256):
        for name in OF_RECORDINGS:
            for path in (cache_folder() / name).glob(f"{sha256}*"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def was_shown(message: str) -> bool:
    """Tell whether this machine has shown a message before, and remember it as shown."""
    mark = cache_folder() / "told" / sha256(message.encode())[:16]
    if mark.exists():
        return True
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return False


def cached(
    folder: Path, names: Sequence[str], make: Callable[[], Sequence[bytes]], *, private: bool = False
) -> Sequence[bytes]:
    """Return the contents of these files in `folder` if they are whole, otherwise those that `make` returns.

    New contents are kept there, with their sha256 beside them. Where nothing can be kept, `make` runs each
    time. `private`: only the user can read them, and enter `folder` and the one above.
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
        for path in (folder.parent, folder) if private else ():
            make_private(path)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(names, made, strict=True):
            replace(content, folder / name, private=private)
        replace(json.dumps([sha256(content) for content in made]).encode(), manifest, private=private)
    return made
