"""The pages say what the program does, and the README's first two command lines are the ones that CI runs."""

import re

import click
import pytest

from conftest import ROOT
from witness import errors
from witness._version import DISTRIBUTION
from witness.cli.main import cli
from witness.formats.registry import Format
from witness.options import Device

README = (ROOT / "README.md").read_text()
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "docs").glob("*.md"))}
PAGES |= {name: ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
NOTES = sorted((ROOT / "docs" / "decisions").glob("*.md"))
TEXT = README + "".join(path.read_text() for name, path in PAGES.items() if name.startswith("docs/"))
USAGE = PAGES["docs/usage.md"].read_text()
DEVELOP = PAGES["docs/develop.md"].read_text()


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name, command in group.commands.items():
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def anchors(text: str) -> set[str]:
    """What a link may name after #: headings, as GitHub writes them."""
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    ("path", "command"), commands(cli), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_is_documented_and_has_help(path, command):
    assert command.help
    assert f"witness {' '.join(path)}" in USAGE
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_the_tables_of_formats_are_the_registry():
    """They list every format with the file that it writes, and no other."""
    table = USAGE[USAGE.index("### Formats") : USAGE.index("A file is called after its format")]
    rows = [row.split("|")[1:3] for row in re.findall(r"^\| [a-z].*$", table, re.MULTILINE)]
    listed = {}
    for words, names in rows[1:]:
        listed |= dict(zip(words.strip().split(", "), re.findall(r"`call\.(.*?)`", names), strict=True))
    assert listed == {form: form.ending for form in Format}


def test_every_device_is_in_the_table_of_options():
    row = re.search(r"^\| `--device (.*?);", USAGE, re.MULTILINE)[1]
    assert re.findall(r"[a-z]+", row) == list(Device)


def test_every_exit_code_is_documented():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.WitnessError)}
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", USAGE, re.MULTILINE)}
    assert codes | {0, 130} == documented


def test_the_readme_takes_a_minute():
    assert len(README.splitlines()) <= 120


def test_the_first_two_commands():
    blocks = [line.strip() for line in README.splitlines() if line.startswith("    ")]
    main_job, tests = blocks[:2]
    assert main_job.endswith(".venv/bin/witness tests/data/call.flac")
    assert tests.endswith(".venv/bin/python -m pytest")
    # The same steps, one a line.
    steps = [step.replace("-q ", "") for step in tests.split(" && ")]
    script = (
        (ROOT / ".ci" / "run").read_text().replace("--quiet --disable-pip-version-check --no-compile ", "")
    )
    assert all(step in script for step in steps)


def test_every_link_leads_somewhere():
    for path in [*PAGES.values(), *NOTES]:
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text()):
            name, _, anchor = target.partition("#")
            page = path.parent / name if name else path
            assert page.exists(), (path, target)
            if anchor:
                assert anchor in anchors(page.read_text()), (path, target)


def test_every_page_is_reached_from_the_readme():
    for name in PAGES:
        assert name == "README.md" or f"({name})" in README, name


def test_every_result_is_named_in_a_page():
    pages = TEXT + "".join(path.read_text() for path in NOTES)
    for path in (ROOT / "benchmarks" / "results").iterdir():
        assert re.search(rf"results/{path.name}\b", pages), path.name


def test_every_dependency_is_explained():
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("]", text.index("dependencies = ["))]
    for name in re.findall(r'"([A-Za-z0-9_-]+)', block):
        assert re.search(rf"\b{name}\b", DEVELOP[DEVELOP.index("## Dependencies") :]), name


def test_the_name_on_the_package_index_is_one():
    """`witness` there is another program: no page and no message may have anybody install that one."""
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^name = "(.*?)"', text, re.MULTILINE)[1] == DISTRIBUTION
    everything = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.*")]
    for path in [*everything, *ROOT.glob("src/**/*.py")]:
        assert not re.search(r"pip\w* install (?:-\S+ )*'?witness(?![\w-])", path.read_text()), path


def test_what_brings_words_on_a_gpu_brings_all_that_they_need_offline():
    """The model of `words` times what transcribe-cpp recognizes where no model hub is reached."""
    text = (ROOT / "pyproject.toml").read_text()
    words, gpu = (
        set(re.findall('"(.+?)"', re.search(rf"^{name} = \[(.*?)^\]$", text, re.M | re.S)[1]))
        for name in ("words", "vulkan")
    )
    assert words < gpu


def test_nothing_of_a_developers_machine_is_in_the_repository():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.*")]
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *pages]:
        assert not re.search(r"/(home|root|Users)/\w", path.read_text()), path
