"""The version and the commands that install packages, for modules that must not import the front door."""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"
DISTRIBUTION = "witness-transcribe"
"""The name on the package index, where `witness` is another program. Command and import are `witness`."""


def install(extra: str, *flags: str) -> str:
    """Return the command that installs the packages of an extra, beside this Witness.

    It names them one by one: Witness itself may come from a folder, a file or a repository that pip cannot
    find by name.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = [line.replace('"', "'").partition(";") for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        lines = []
    packages = [name.strip() for name, _, marker in lines if f"extra == '{extra}'" in marker]
    return pip_install(*flags, *(packages or ("-e", f"{Path(__file__).parents[2]}[{extra}]")))


def pip_install(*arguments: str) -> str:
    """Return the command that installs packages beside this Witness: by pipx, uv or pip."""
    command = [sys.executable, "-m", "pip", "install"]
    if Path(sys.prefix, "pipx_metadata.json").exists():
        flags = any(argument.startswith("-") for argument in arguments)
        name = Path(sys.prefix).name
        command = ["pipx", "runpip", name, "install"] if flags else ["pipx", "inject", name]
    elif find_spec("pip") is None:  # uv makes environments without it
        command = ["uv", "pip", "install", "--python", sys.executable]
    line = shlex.join([*command, *arguments])
    return line.replace("'", '"') if os.name == "nt" else line
