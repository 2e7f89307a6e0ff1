"""The pages as a site, and the dates of their sources."""

import re
import shlex
import sys

import pytest

from conftest import ROOT, in_process
from witness.cli.main import cli
from witness.formats.registry import Format
from witness.transcript import store

sys.path.insert(0, str(ROOT / "docs"))
import hooks


def test_links_out_of_the_site_are_plain_names():
    kept = "[json](json.md) [usage](usage.md#files) [web](https://example.org) [here](#there)"
    assert hooks.within(f"{kept} [code](../tests/conftest.py)", "usage.md") == f"{kept} code"


def recipes() -> list[list[str]]:
    """Return the words of every command in the recipes."""
    page = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    lines = re.findall(r"^    witness (.*)$", page, re.MULTILINE)
    return [shlex.split(line.partition(" | ")[0]) for line in lines]


@pytest.mark.parametrize("words", recipes(), ids=" ".join)
def test_a_recipe_is_a_command(words, tmp_path, monkeypatch):
    """Its options and their values exist and fit each other."""
    monkeypatch.chdir(tmp_path)
    for word in words:
        path = tmp_path / word
        if word.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        elif re.search(r"\.(?:wav|mp4|json|txt)$", word):
            path.parent.mkdir(exist_ok=True)
            path.write_text("Kestrel K2\n")
    name, *rest = words if words[0] in cli.commands else ["run", *words]
    with cli.commands[name].make_context(name, rest) as context:
        assert context.params


@pytest.mark.parametrize("words", [words for words in recipes() if words[0] == "convert"], ids=" ".join)
def test_a_recipe_of_another_format_writes_it(words, toned, tmp_path):
    path = tmp_path / words[1]
    if words[1].endswith("/"):
        path /= "talk.json"
    path.parent.mkdir()
    store.save(toned, [("json", path)])
    done = in_process(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    forms = [form for place, word in enumerate(words) if word == "-f" for form in words[place + 1].split(",")]
    written = {file.name.removeprefix(f"{path.stem}.") for file in tmp_path.rglob(f"{path.stem}.*")}
    assert done.stdout or {Format(form).ending for form in forms} <= written


DATED = re.compile(r"2026-\d\d-\d\d|\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b")
"""A day of 2026 or a commit."""


def test_every_row_about_rocm_has_the_date_of_its_source():
    page = (ROOT / "docs" / "amd-gpu.md").read_text(encoding="utf-8")
    tables = [table.splitlines() for table in re.findall(r"(?:^ *\|.*\n)+", page, re.MULTILINE)]
    rows = [row for head, _, *rows in tables if "source" in head for row in rows]
    assert len(rows) >= 22
    assert [row for row in rows if not DATED.search(row)] == []


def test_every_command_for_a_system_outside_the_tables_has_the_date_of_its_source():
    """In its own step or line of a list, or behind a link to what is dated."""
    page = (ROOT / "docs" / "amd-gpu.md").read_text(encoding="utf-8")
    text = re.sub(r"(?:^ *\|.*\n)+", "\n", page, flags=re.MULTILINE)
    steps = re.split(r"\n\s*\n|\n(?= *(?:- |\d\. ))", text)
    commands = [step for step in steps if re.search(r"`[^`]*\b(?:apt|dnf|pacman|usermod|dpkg)\b[^`]* ", step)]
    assert len(commands) >= 7
    assert [step for step in commands if not DATED.search(step) and "[mgx10." not in step] == []
