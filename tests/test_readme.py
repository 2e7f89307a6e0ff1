"""The README says what the program does, and its first two command lines are the ones that CI runs."""

import re

import click
import pytest

from conftest import ROOT
from witness.cli.main import cli
from witness.formats.writers import WRITERS
from witness.options import Format

README = (ROOT / "README.md").read_text()


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name, command in group.commands.items():
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize(
    ("path", "command"), commands(cli), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_is_in_the_readme_and_has_help(path, command):
    assert command.help
    assert all(part in README for part in path)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_every_format_is_in_the_readme_and_can_be_written():
    assert set(Format) == set(WRITERS)
    for name in Format:
        assert re.search(rf"\b{name}\b", README)


def test_the_first_two_commands():
    blocks = [line.strip() for line in README.splitlines() if line.startswith("    ")]
    main_job, tests = blocks[:2]
    assert main_job.endswith(".venv/bin/witness tests/data/call.flac")
    assert tests.endswith(".venv/bin/python -m pytest")
    # The same steps, one a line.
    steps = [step.replace("-q ", "") for step in tests.split(" && ")]
    script = (ROOT / ".ci" / "run").read_text().replace("--quiet --disable-pip-version-check ", "")
    assert all(step in script for step in steps)


def test_every_file_that_the_readme_points_to_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_dependency_is_explained():
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("]", text.index("dependencies = ["))]
    for name in re.findall(r'"([A-Za-z0-9_-]+)', block):
        assert re.search(rf"\b{name}\b", README[README.index("## Development") :]), name


def test_nothing_of_a_developers_machine_is_in_the_repository():
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("*.md")]:
        assert not re.search(r"/(home|root|Users)/\w", path.read_text()), path
