"""For `mkdocs build`: the README as the first page, and links that stay inside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as index.md."""
    from mkdocs.structure.files import File

    text = (ROOT / "README.md").read_text("utf-8").replace("(docs/", "(").replace('"docs/', '"')
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A page as the site shows it."""
    return within(markdown, page.file.src_uri)


def within(text: str, page: str) -> str:
    """The text with links that lead out of the site, to code and data, as plain names."""
    folder = (ROOT / "docs" / page).parent

    def link(match: re.Match[str]) -> str:
        label, target = match[1], match[2].partition("#")[0]
        there = (folder / target).resolve()
        inside = not target or (there.is_file() and ROOT / "docs" in there.parents and there.suffix != ".py")
        return match[0] if inside or "://" in target else label

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, text)
