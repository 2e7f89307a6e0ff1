"""The pages' ES modules: the modules that an entry imports, and one script of them for a page in a file.

A page opened from the disk can load no other file, and its policy names the hash of its only script. So each
module becomes a function that takes its imports from the functions before it. A browser would do the same,
but for three cases, which raise an error here: values that change after their export, modules that import
each other in a circle, and all but the plain forms of import and export.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from importlib import resources

FILE = "web/editor/file.js"
"""The entry of a page in a file."""

IMPORT = re.compile(r'^import (?:\{([^{}]*)\} from )?"([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(
    r"^export (?=(?:async )?function ([\w$]+)|class ([\w$]+)|const ([\w$]+)|const \{ ([\w$, ]+) \} =)",
    re.MULTILINE,
)
REFUSED = re.compile(r"^(?:import|export)\b.*|\bimport(?:\(|\.meta).*", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*/\*(?:[^*]|\*(?!/))*\*/\n", re.MULTILINE)
"""A comment on lines of its own, such as descriptions and types, which the page does not need."""


@cache
def text(name: str) -> str:
    """Return a file, by its path in the package."""
    return resources.files("witness").joinpath(name).read_text("utf-8")


@cache
def needed(entry: str) -> tuple[str, ...]:
    """Return the modules that an entry imports, and itself last, in the order of a browser. Raises
    ValueError."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in order:
            for _, path in IMPORT.findall(text(name)):
                visit(_resolve(name, path), (*above, name))
            order.append(name)

    visit(entry, ())
    return tuple(order)


@cache
def script(entry: str) -> str:
    """Return one script that does the same as the entry. Raises ValueError for forms that it does not
    support."""
    names = needed(entry)
    variables = {name: f"${number}" for number, name in enumerate(names)}
    parts = [_function(name, variables) for name in names]
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def _resolve(name: str, path: str) -> str:
    """Return the path in the package of a module that `name` imports."""
    if not path.startswith("."):
        raise ValueError(f"{name}: {path} is not the path of a module")
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _function(name: str, variables: dict[str, str]) -> str:
    """Return a module as a function that returns its exports by name."""
    body, imports = text(name), []
    for names, path in IMPORT.findall(body):
        source = _resolve(name, path)
        fields = [tuple(part.split(" as ")) for part in _split(names)]
        if missing := {field[0] for field in fields} - set(_exported(source)):
            raise ValueError(f"{name}: {source} does not export {', '.join(sorted(missing))}")
        if fields:
            imports.append(f"const {{ {', '.join(map(': '.join, fields))} }} = {variables[source]};\n")
    body = EXPORT.sub("", IMPORT.sub("", COMMENT.sub("", body)))
    if wrong := REFUSED.search(body):
        raise ValueError(f"{name}: {wrong[0]!r} is not supported in a page that is a file")
    exports = f"return {{ {', '.join(_exported(name))} }};\n"
    return f"const {variables[name]} = (() => {{\n{''.join(imports)}{body}{exports}}})();\n"


@cache
def _exported(name: str) -> list[str]:
    """Return the names that a module exports."""
    return [name for match in EXPORT.findall(text(name)) for group in match for name in _split(group)]


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
