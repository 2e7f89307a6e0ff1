"""Messages, help and pages in idiomatic English: what crept in before is kept out."""

import ast
import re

import click
import pytest

from conftest import ROOT
from test_readme import PAGES, commands
from witness.cli import options
from witness.cli.main import cli

IDIOMS = "longer|more|less|better|worse|closer|further|nearer|need|way|one\\b|use\\b|slower|faster|other"
FORBIDDEN = {
    rf"\b(?<!there )(?:is|are|was|were) no (?!{IDIOMS})\w+": "say: is not a ...",
    r"\bfound out\b": "say: detected",
    r"\balike voices\b": "say: voices that sound alike",
    r"(?:^|\. )What (?:\w+ ){1,6}(?:is|are|was|has been)\b[^?.]*\.": "begin with the subject, not with What",
    r"\bit is (?:the|a) \w+ (?:that|who) \w+s\b": "name the subject first",
    r"\binformations\b|\bsoftwares\b|\badvices\b": "has no plural",
    r"\bpossibility to\b": "say: a way to",
    r"\ballows to\b": "say: lets you",
}
"""A pattern, and how to say it instead."""


def glossary() -> dict[str, str]:
    """The tables of the glossary, `write | not`: as patterns, with what to write."""
    found = {}
    table = False
    for row in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if not row.startswith("|"):
            table = False
        elif cells == ["write", "not"]:
            table = True
        elif table and not cells[0].startswith("---"):
            write, refused = cells
            for words in refused.split("; "):
                found |= {
                    rf"(?<!\w){re.escape(word.rstrip('.'))}(?!\w)": f"say: {write}"
                    for word in words.split(", ")
                }
    return found


FORBIDDEN |= glossary()


def faults(text: str) -> list[str]:
    """What is forbidden in a text, each with the advice."""
    text = re.sub(r"`[^`]*`|https?://\S+", "", text)
    return [
        f"{found[0].strip()!r}: {advice}"
        for pattern, advice in FORBIDDEN.items()
        for found in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE)
    ]


def messages(tree: ast.AST) -> list[str]:
    """The texts of a module that people may see: string literals that are sentences, no documentation."""
    documentation = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    } | {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts.append(
                "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            texts.append(node.value)
    return [
        text for text in texts if re.search(r"\w \w+ \w", text) and not re.fullmatch(r"[a-z ]{200,}", text)
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: path.stem)
def test_messages_are_idiomatic(path):
    assert [fault for text in messages(ast.parse(path.read_text())) for fault in faults(text)] == []


@pytest.mark.parametrize(
    "path", [path for path in PAGES.values() if path.name != "glossary.md"], ids=lambda path: path.name
)
def test_pages_are_idiomatic(path):
    assert faults(path.read_text()) == []


@pytest.mark.parametrize(
    ("path", "command"), commands(cli), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_help_is_idiomatic_and_its_summary_is_not_cut(path, command):
    texts = [
        command.help,
        *(option.help or "" for option in command.params if isinstance(option, click.Option)),
    ]
    assert faults("\n".join(texts)) == []
    if len(path) == 1:
        assert not command.get_short_help_str(60).endswith("...")


def test_a_command_with_many_options_lists_them_in_sections():
    many = [command for _, command in commands(cli) if isinstance(command, options.Command)]
    assert len(many) >= 3
    for command in many:
        text = command.get_help(click.Context(command))
        assert text.index("Words:") < text.index("Speakers:") < text.index("Other:"), command.name


def test_the_check_notices():
    assert faults("that is no recording")
    assert faults("What the engine hears is checked again.")
    assert not faults("there is no recording here; it is no longer needed")
