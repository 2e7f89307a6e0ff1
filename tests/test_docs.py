"""The pages as a site, and the tutorial as somebody follows it."""

import re
import shlex
import shutil
import sys

from conftest import CALL, ROOT, in_process
from witness.formats.registry import Format
from witness.transcript import store

sys.path.insert(0, str(ROOT / "docs"))
import hooks

USAGE = (ROOT / "docs" / "usage.md").read_text()


def table(text: str) -> str:
    return text[text.index("### Formats") : text.index("A file is called")]


def test_the_site_has_a_row_for_every_format():
    text = hooks.with_formats(USAGE)
    for form in Format:
        assert re.search(rf"^\|.*\b{form}\b.*`call\.{re.escape(form.ending)}`", table(text), re.MULTILINE), (
            form
        )
    assert text.replace(table(text), "") == USAGE.replace(table(USAGE), "")


def test_links_out_of_the_site_are_plain_names():
    kept = "[json](json.md) [usage](usage.md#files) [web](https://example.org) [here](#there)"
    assert hooks.within(f"{kept} [code](../tests/conftest.py)", "usage.md") == f"{kept} code"


def test_the_tutorial_works(toned, tmp_path):
    """All commands on a finished transcript, in their order; the others have tests of their own."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    commands = [shlex.split(line) for line in re.findall(r"^    witness (.*)$", text, re.MULTILINE)]
    assert [command[0] for command in commands if command[0] in ("convert", "redo")] == [
        "convert",
        *["redo"] * 3,
    ]
    assert ["call.flac", "-f", "txt,docx,json", "-o", "out/"] in commands
    shutil.copy(CALL, tmp_path / "call.flac")
    (tmp_path / "out").mkdir()
    store.save(toned, [("json", tmp_path / "out" / "call.json")])
    for command in commands:
        if command[0] in ("convert", "redo"):
            if "--merge" in command:  # two speakers were found, not three
                command = ["SPEAKER_00,SPEAKER_01" if "," in word else word for word in command]
            result = in_process(tmp_path, *command)
            assert result.returncode == 0, (command, result.stderr)
    assert (tmp_path / "out" / "call.srt").read_text().startswith("1\n00:00:0")
    assert "Lauren Hill" in (tmp_path / "out" / "call.json").read_text()


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
