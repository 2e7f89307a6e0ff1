"""Models that installed Python packages have: a folder of files, or the halves of one that must be joined."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from witness.errors import ModelError
from witness.models.catalogue import CatalogueFile
from witness.storage import atomic, files


def folder(entry: CatalogueFile) -> Path | None:
    """The folder in the package that has the model, without importing it; None if it is not installed.

    Of a model in halves, the folder that has the last one.
    """
    if entry.halves:
        halves = [_in_package(half) for half in entry.halves]
        found = halves[-1] and halves[-1].parent
        there = [*halves, *(found and found / part.file for part in entry.others)]
    else:
        found = _in_package(entry.package)
        there = [found and found / part.file for part in entry.parts]
    # Not Path.exists, which raises in a folder that may not be read.
    return found if all(path and os.path.exists(path) for path in there) else None  # noqa: PTH110


def _in_package(path: str) -> Path | None:
    """A file or a folder in a Python package, by the package's name and the path in it."""
    package, _, inside = path.partition("/")
    spec = find_spec(package) if package else None
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return Path(roots[0], inside) if roots else None


def join(entry: CatalogueFile, source: Path, target: Path) -> Path:
    """Put a model in halves together in `target`, once, and verify it; returns `target`. Raises ModelError.

    `source`: the `folder` of the last half.
    """
    from filelock import FileLock

    fix = f"run: pip install --force-reinstall {entry.installed_by}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            for part in entry.parts:
                if os.path.exists(target / part.file):  # noqa: PTH110 - as in `cache`
                    continue
                weights = part.file == entry.file
                paths = map(_in_package, entry.halves) if weights else (source / part.file,)
                content = b"".join(files.read(path, part.size) for path in paths if path)
                if (found := files.sha256(content)) != part.sha256:
                    raise ModelError(
                        f"{part.file} of {entry.name} is damaged: in its packages it has sha256 {found}, "
                        f"expected {part.sha256}; {fix}"
                    )
                atomic.replace(content, target / part.file)
    except OSError as error:
        raise ModelError(
            f"cannot put {entry.name} together in {target} ({error.strerror or error}); "
            "free disk space, or set WITNESS_CACHE to a folder that can be written"
        ) from error
    return target
