"""The pages' ES modules: those that an entry needs, and one script of them for a page that is a file.

A file that is opened from the disk can load no other file, and its policy names the hash of the one script
that may run. So the modules are put into functions, one after the other, each of which takes what it imports
from the functions before it. That is what the browser would make of them, but for three things, which are
refused here: values that change after they were exported, modules that import each other in a circle, and all
forms of import and export but the plain ones.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from importlib import resources

FILE = "web/editor/file.js"
"""The entry of a page that is a file."""

IMPORT = re.compile(r'^import (?:\{([^{}]*)\} from )?"([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(
    r"^export (?=(?:async )?function ([\w$]+)|class ([\w$]+)|const ([\w$]+)|const \{ ([\w$, ]+) \} =)",
    re.MULTILINE,
)
REFUSED = re.compile(r"^(?:import|export)\b.*|\bimport(?:\(|\.meta).*", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*/\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)
"""A comment that has its lines to itself, as descriptions and types have: nobody reads them in a page."""


@cache
def text(name: str) -> str:
    """A file, by its path in the package."""
    return resources.files("witness").joinpath(name).read_text("utf-8")


@cache
def needed(entry: str) -> tuple[str, ...]:
    """The modules that an entry needs, it the last, as a browser runs them. Raises ValueError."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in order:
            for _, given in IMPORT.findall(text(name)):
                visit(_path(name, given), (*above, name))
            order.append(name)

    visit(entry, ())
    return tuple(order)


@cache
def script(entry: str) -> str:
    """One script that does what the module does. Raises ValueError for what it does not know."""
    names = needed(entry)
    number = {name: f"${place}" for place, name in enumerate(names)}
    parts = [_function(name, number) for name in names]
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def _path(name: str, given: str) -> str:
    """The path of what a module imports."""
    if not given.startswith("."):
        raise ValueError(f"{name}: {given} is not the path of a module")
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), given))


def _function(name: str, number: dict[str, str]) -> str:
    """A module as the value of a function: what it exports, by its names."""
    body, taken = text(name), []
    for names, given in IMPORT.findall(body):
        source = _path(name, given)
        fields = [tuple(one.split(" as ")) for one in _listed(names)]
        if missing := {field[0] for field in fields} - set(_exported(source)):
            raise ValueError(f"{name}: {source} does not export {', '.join(sorted(missing))}")
        if fields:
            taken.append(f"const {{ {', '.join(map(': '.join, fields))} }} = {number[source]};\n")
    body = EXPORT.sub("", IMPORT.sub("", COMMENT.sub("", body)))
    if wrong := REFUSED.search(body):
        raise ValueError(f"{name}: {wrong[0]!r} is more than a page that is a file can have")
    given = f"return {{ {', '.join(_exported(name))} }};\n"
    return f"const {number[name]} = (() => {{\n{''.join(taken)}{body}{given}}})();\n"


@cache
def _exported(name: str) -> list[str]:
    """The names of what a module exports."""
    return [one for found in EXPORT.findall(text(name)) for part in found for one in _listed(part)]


def _listed(names: str) -> list[str]:
    return [one.strip() for one in names.split(",") if one.strip()]
