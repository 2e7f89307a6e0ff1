"""Where what is built and published comes from: the workflows, and what CI installs."""

import re
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def names(requirements):
    """Of packages, as the index compares them."""
    return {
        re.split(r"[\s\[<>=!~;]", one)[0].replace("_", "-").replace(".", "-").lower() for one in requirements
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_leave_no_key(path):
    text = path.read_text()
    uses = re.findall(r"uses: (\S+)(?:  # (\S+))?", text)
    assert uses
    for action, version in uses:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r"v\d+\.\d+\.\d+", version), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert re.search(r"^permissions:\n  contents: read$", text, re.MULTILINE)


def test_an_action_has_one_commit_everywhere():
    used = {one for path in WORKFLOWS for one in re.findall(r"uses: ([\w/-]+)@(\S+)", path.read_text())}
    assert len({action for action, _ in used}) == len(used)


def test_what_ci_installs_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert all("==" in line.partition(";")[0] for line in pinned)
    wanted = [*project["dependencies"]]
    for extra in ("dev", "docs", "bench"):
        wanted += project["optional-dependencies"][extra]
    assert names(wanted) <= names(pinned)
    assert "constraints.txt" in (ROOT / ".ci" / "run").read_text()
    assert "constraints.txt" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_floors_are_above_known_holes_and_internals_have_a_ceiling():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    serve = project["optional-dependencies"]["serve"]
    assert "jinja2>=3.1.6" in project["dependencies"]
    assert "h11>=0.16" in serve
    (uvicorn,) = (one for one in serve if one.startswith("uvicorn"))
    assert "<" in uvicorn  # serve/server.py derives from its H11Protocol
