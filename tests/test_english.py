"""Messages, help and pages in idiomatic English: what crept in before is kept out."""

import ast
import io
import re
import tokenize

import click
import pytest

from conftest import ROOT
from test_readme import PAGES, commands
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


def test_messages_are_idiomatic():
    found = [
        f"{path}: {fault}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for text in messages(ast.parse(path.read_text()))
        for fault in faults(text)
    ]
    assert found == []


def test_pages_are_idiomatic():
    pages = [path for path in PAGES.values() if path.name != "glossary.md"]
    assert [f"{path}: {fault}" for path in pages for fault in faults(path.read_text())] == []


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
    helps = [command.get_help(click.Context(command)) for _, command in commands(cli)]
    sections = [text for text in helps if "\nWords:" in text]
    assert len(sections) >= 3
    for text in sections:
        starts = [text.index(f"\n{section}:") for section in ("Usual", "Words", "Speakers", "Other")]
        assert starts == sorted(starts)


def test_the_check_notices():
    assert faults("that is no recording")
    assert faults("What the engine hears is checked again.")
    assert not faults("there is no recording here; it is no longer needed")


# --- counts that may only fall ---

QUESTION = re.compile(
    r"(What|Who|Whom|Whoever|Whose|Where|When|How|Why|Which|Whether|Those|All that|That which)\b"
)
"""Openings that hide the subject: a function's docstring begins with a verb, others begin with a noun."""
CONSTRUCTIONS = [
    r"\b(is|was|are|were) (what|who|whoever|whose)\b",
    r"(?<!^)\b(what|whoever|whatever) "
    r"(is|was|are|were|has|have|had|stands|lies|comes|there|they|it|a|the|somebody|nobody)\b",
    r"\b(of|to|in|by|from|for|with|on|under) (which|whom)\b",
    r"\b(that (it|they) (is|are) (one|none)|which (is|are) none|is none|are none|what is no)\b",
    r"\b(somebody|nobody|anybody)\b",
    r"\bas (it|they) (is|are|was|were)\b",
    r"\b(be had|is to be|are to be|gone on with|goes on with)\b",
]
WEAK = {
    "one",
    "found",
    "place",
    "given",
    "known",
    "told",
    "heard",
    "wanted",
    "own",
    "what",
    "who",
    "there",
    "kind",
    "many",
    "most",
    "somebody",
}

LIMITS = {
    "docstrings that open with a question word": 0,
    "texts with a construction": 5,
    "weak names": 21,
    "pages with a construction": 47,
}
"""Counts of today. Lower them with the source; none may rise."""


def wording(source: str):
    """Yield (kind, text) of docstrings, messages of four words and more, and comments."""
    tree = ast.parse(source)
    seen = set()
    for node in ast.walk(tree):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for statement in body if isinstance(body, list) else ():
                value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    seen.add(id(value))
                    yield "docstring", " ".join(value.value.split())
        if isinstance(node, ast.JoinedStr):
            seen |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if (text := "".join(map(str, parts))).count(" ") >= 3:
                yield "message", " ".join(text.split())
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and id(node) not in seen and value.count(" ") >= 3 and value[0].isalpha():
            yield "message", " ".join(value.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comment", token.string.lstrip("# ")


def names(source: str):
    """Yield every variable and parameter that the source binds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def odd(text: str) -> bool:
    return any(re.search(pattern, text) for pattern in CONSTRUCTIONS)


def test_wording_and_names_only_become_better():
    counts = dict.fromkeys(LIMITS, 0)
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text("utf-8")
        for kind, text in wording(source):
            counts["docstrings that open with a question word"] += kind == "docstring" and bool(
                QUESTION.match(text)
            )
            counts["texts with a construction"] += odd(text)
        counts["weak names"] += sum(name in WEAK for name in names(source))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    counts["pages with a construction"] = sum(
        odd(line) for page in pages for line in page.read_text("utf-8").splitlines()
    )
    assert {name: count for name, count in counts.items() if count > LIMITS[name]} == {}


def test_the_patterns_find_what_they_are_for():
    ((kind, text),) = wording('def f():\n    """Whether it is."""\n')
    assert kind == "docstring"
    assert QUESTION.match(text)
    assert odd("the person of whom it speaks")
    assert odd("Nothing is what it seems")
    assert not odd("The person that it names")
    assert [name for name in names("one = 2\nfor turn in f: pass\n") if name in WEAK] == ["one"]
