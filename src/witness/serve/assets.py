"""What the desk's pages are made of: modules and style sheets, by addresses that name their content."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

from witness.formats import modules

FOLDERS = ("web/editor", "web/templates", "web/lists")
"""In the package; what modules import is where it is on the disk, seen from there."""
TYPES = {".css": "text/css", ".js": "text/javascript"}
"""Ending -> type; nothing else is given out."""


@cache
def files() -> dict[str, bytes]:
    """Path in the package -> content."""
    return {
        f"{folder}/{file.name}": file.read_bytes()
        for folder in FOLDERS
        for file in sorted(resources.files("witness").joinpath(folder).iterdir(), key=lambda one: one.name)
        if file.name.endswith(tuple(TYPES))
    }


@cache
def version() -> str:
    """Part of every address, and another one for other files: browsers keep them and never ask again."""
    digest = hashlib.sha256()
    for name, content in files().items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def address(name: str) -> str:
    """Where a browser finds a file."""
    return f"/static/{version()}/{name}"


def script(entry: str) -> list[str]:
    """The addresses of the modules that an entry needs, its own the last."""
    return [address(name) for name in modules.needed(entry)]
