"""For `mkdocs build`: the README as the first page, all formats in their table, links that stay inside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from witness.formats.registry import Format

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as index.md."""
    from mkdocs.structure.files import File

    text = (ROOT / "README.md").read_text("utf-8").replace("(docs/", "(")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A page as the site shows it."""
    text = with_formats(markdown) if page.file.src_uri == "usage.md" else markdown
    return within(text, page.file.src_uri)


def with_formats(text: str) -> str:
    """The table of formats with a row for those that nobody has described at length."""
    begin = text.index("### Formats")
    last = max(
        row.end() for row in re.finditer(r"^\|.*\|$", text[begin : text.index("\n\nA file is", begin)], re.M)
    )
    table = text[begin : begin + last]
    named = {word for row in re.findall(r"^\| ([a-z, ]+) \|", table, re.M) for word in row.split(", ")}
    rows = [
        f"\n| {form} | `call.{form.ending}` | {form.about.label} |" for form in Format if form not in named
    ]
    return text[: begin + last] + "".join(rows) + text[begin + last :]


def within(text: str, page: str) -> str:
    """The text with links that lead out of the site, to code and data, as plain names."""
    folder = (ROOT / "docs" / page).parent

    def link(match: re.Match[str]) -> str:
        label, target = match[1], match[2].partition("#")[0]
        there = (folder / target).resolve()
        inside = not target or (there.is_file() and ROOT / "docs" in there.parents and there.suffix != ".py")
        return match[0] if inside or "://" in target else label

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, text)
