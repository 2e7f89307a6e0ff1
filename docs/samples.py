"""Run the commands and the Python examples of the pages, and write their output into the pages.

    python docs/samples.py

In a block of `console`, commands stand after `$ `, each above its output; `…` stands for lines that a page
leaves out. A block of `text` after one of `python` is the output of that example. The commands of a page
share a folder that has the repository's `tests/data`. The models are `campplus`, fetched before by
`witness models fetch campplus`, and `base` of the extra `words`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/tutorial.md", "docs/python.md")
LEFT_OUT = "…"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Sample:
    """A command or an example with its output, as printed on a page and as it is in a run."""

    source: str
    printed: str
    output: str

    @property
    def shortened(self) -> str:
        """Output without the lines that the page leaves out."""
        printed, output = self.printed.splitlines(), self.output.splitlines()
        if LEFT_OUT not in printed:
            return self.output
        first = printed.index(LEFT_OUT)
        last = len(printed) - first - 1
        return "".join(f"{line}\n" for line in (*output[:first], LEFT_OUT, *output[len(output) - last :]))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a run: the code of this checkout and the models of this user."""
    cache = Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness"))
    programs, copy = folder / "bin", folder / "cache"
    programs.mkdir()
    copy.mkdir()
    (copy / "models").symlink_to(cache / "models")
    program = programs / "witness"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m witness "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "WITNESS_CACHE": str(copy),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "BROWSER": "true",
    }


def checkout(folder: Path) -> Path:
    """Make the folder in which the commands of a page run."""
    work = folder / "work"
    (work / "tests").mkdir(parents=True)
    (work / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    return work


def prepare_python(work: Path) -> None:
    """Write the files that the examples in Python name."""
    import soundfile

    samples, rate = soundfile.read(ROOT / "tests" / "data" / "call.flac", dtype="int16")
    for name in ("call", "monday", "tuesday"):
        soundfile.write(work / f"{name}.wav", samples, rate)


def run_command(command: str, work: Path, settings: dict[str, str]) -> str:
    """Return the standard output of a command. Raises RuntimeError if it fails."""
    done = subprocess.run(  # noqa: S602 - the pages are ours
        command, shell=True, cwd=work, env=settings, capture_output=True, text=True, timeout=400, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def run_desk(command: str, work: Path, settings: dict[str, str]) -> str:
    """Start a desk, end it once it serves, and return its address. Raises RuntimeError if it fails."""
    with subprocess.Popen(
        shlex.split(command), cwd=work, env=settings, stdout=subprocess.PIPE, text=True
    ) as desk:
        address = desk.stdout.readline() if desk.stdout else ""
        desk.send_signal(signal.SIGINT)
        desk.wait(60)
    if not address.startswith("http"):
        raise RuntimeError(f"{command} ended with {desk.returncode}")
    return address


def run_example(source: str, work: Path, settings: dict[str, str]) -> str:
    """Return the standard output of an example in Python. Raises RuntimeError if it fails."""
    (work / "example.py").write_text(source)
    return run_command(f"{shlex.quote(sys.executable)} example.py", work, settings)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with its printed output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def play(text: str, folder: Path, done: Callable[[Sample], object] | None = None) -> str:
    """Run the samples of a page, give each to `done`, and return the page with the output of this run."""
    settings, work = environment(folder), checkout(folder)
    if "```python" in text:
        prepare_python(work)

    def sample(source: str, printed: str, run: Callable[[str, Path, dict[str, str]], str]) -> str:
        result = Sample(source, printed, run(source, work, settings))
        if done:
            done(result)
        return result.shortened

    def block(match: re.Match[str]) -> str:
        language, source, printed = match.groups()
        if language == "python":
            output = sample(source, printed or "", run_example)
            return f"```python\n{source}```" + (f"\n\n```text\n{output}```" if output else "")
        lines = []
        for command, before in commands(source):
            output = sample(command, before, run_desk if command.startswith("witness serve") else run_command)
            lines.append(f"$ {command}\n{output}")
        return f"```console\n{''.join(lines)}```"

    return BLOCK.sub(block, text)


def main() -> None:
    for name in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / name
            path.write_text(play(path.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
