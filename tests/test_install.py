"""The commands that messages and pages name to install a missing package."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from conftest import ORIGINAL, ROOT
from witness import _version

if sys.version_info >= (3, 11):
    import tomllib

PAGES = [*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/*.md"))]


def pip(environment: Path, *args: object) -> None:
    command = [environment / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", *args]
    subprocess.run([*map(str, command)], check=True, env=ORIGINAL, timeout=300)


def link_dependencies(environment: Path) -> None:
    """Put all packages of this environment into another one, but Witness and those of the extra docx."""
    (target,) = environment.glob("lib/python*/site-packages")
    for source in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"(?i).*witness|pip\b|(python_)?docx|__pycache__|.*\.pth$", source.name):
            link = target / source.name
            if not link.exists():
                link.symlink_to(source)


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """An environment with pipx and uv, and a wheel of this checkout that needs no package."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
    try:
        subprocess.run(
            [folder / "bin/pip", "install", "-q", "pipx", "uv"], check=True, env=ORIGINAL, timeout=300
        )
    except subprocess.CalledProcessError:
        pytest.skip("no package index can be reached")
    build = [folder / "bin/pip", "wheel", "-q", "--no-deps", "-w", folder / "dist", ROOT]
    subprocess.run(build, check=True, env=ORIGINAL, timeout=300)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            if name.endswith(".dist-info/METADATA"):
                content = re.sub(rb"Requires-Dist: (?!.*extra ==).*\n", b"", content)
            archive.writestr(name, content)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the paths here are those of POSIX")
@pytest.mark.parametrize("way", ["editable", "wheel", "index", "pipx", "uv"])
def test_the_fix_for_a_missing_package_works_however_witness_was_installed(tools, tmp_path, diarized, way):
    (wheel,) = (tools / "dist").glob("*.whl")
    folder = tmp_path / "an environment"
    environment = {
        **ORIGINAL,
        "PATH": os.pathsep.join([str(tools / "bin"), ORIGINAL.get("PATH", os.defpath)]),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PYTHONPATH": "",
    }

    def run(command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            shlex.split(command),
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=check,
            timeout=300,
        )

    if way == "pipx":
        run(f"pipx install '{wheel}'")
        folder = tmp_path / "pipx" / "venvs" / "witness-transcribe"
    elif way == "uv":
        run(f"uv venv -q --python '{sys.executable}' '{folder}'")
        run(f"uv pip install -q --no-deps --python '{folder}/bin/python' '{wheel}'")
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
        source = {"editable": ["-e", ROOT], "wheel": [wheel]}.get(way)
        pip(folder, *(source or ["--no-index", "--find-links", wheel.parent, "witness-transcribe"]))
    link_dependencies(folder)
    diarized.save(tmp_path / "call.json")
    convert = f"'{folder}/bin/witness' convert call.json -f docx"
    failed = run(convert, check=False)
    assert failed.returncode == 1, failed.stderr
    fix = re.search(r"docx needs python-docx; fix: (.*)", failed.stderr)
    assert fix is not None, failed.stderr
    assert ("pipx inject" in fix[1], "uv pip" in fix[1]) == (way == "pipx", way == "uv")
    run(fix[1])
    run(convert)
    assert (tmp_path / "call.docx").stat().st_size > 1000
    shutil.rmtree(folder)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no tomllib")
def test_every_install_command_names_what_the_extra_needs(monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {extra: {re.split(r"[<>=\[;]", line)[0] for line in lines} for extra, lines in extras.items()}
    wheel = [f'{line}; extra == "{extra}"' for extra, lines in extras.items() for line in lines]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wheel)
    asked = {"docx", "serve", "words", "parakeet", "vulkan", "bench", "cluster"}
    for extra in asked:
        words = shlex.split(_version.install(extra))
        assert words[:4] == [sys.executable, "-m", "pip", "install"]
        assert {re.split(r"[<>=]", word)[0] for word in words[4:]} == names[extra]
    used = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text("utf-8")
        used |= set(re.findall(r"\binstall\(['\"](\w+)['\"]", text)) | set(re.findall(r'extra="(\w+)"', text))
        assert path.name == "_version.py" or "pip install" not in text, path
    assert used <= asked
    for page in PAGES:
        for group in re.findall(r"install[^`\n]*'\.\[([\w,]+)\]'", page.read_text("utf-8")):
            assert set(group.split(",")) <= set(extras), page


def test_a_checkout_without_an_installation_installs_itself(monkeypatch):
    def missing(name: str) -> None:
        raise __import__("importlib.metadata").metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", missing)
    assert shlex.split(_version.install("docx"))[4:] == ["-e", f"{ROOT}[docx]"]


def test_people_install_words_and_desk_with_one_line():
    extras = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'desk = ["witness-transcribe[serve,words]"]' in extras
    for page in ("README.md", "docs/troubleshooting.md"):
        text = (ROOT / page).read_text("utf-8")
        assert "pipx install '.[desk]'" in text
        assert "pipx install '.[words" not in text
