"""What this machine has of all that Witness can use: what was found, why it does not work, and the fix.

Needed is what a transcript on the CPU takes; and, with a card that AMD lists for MIGraphX, what that takes.
Nothing is downloaded or changed, and the libraries of drivers are loaded in child processes.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from witness._version import __version__
from witness.child import one_line
from witness.doctor import amd, common
from witness.doctor.machine import Check, Machine
from witness.doctor.windows import windows
from witness.text import table

PARTS: tuple[Callable[[Machine], Iterable[Check]], ...] = (
    common.python,
    common.onnxruntime,
    common.whisper,
    common.recognizers,
    common.decoding,
    common.models,
    common.disk,
    amd.all_cards,
    amd.rocm,
    amd.compiled_graphs,
    windows,
    common.vulkan,
    common.variables,
)
"""In this order."""
MARKS = {True: "ok", False: "NO", None: "-"}


def examine(machine: Machine | None = None) -> tuple[Check, ...]:
    """Every check of this machine, or of another. What goes wrong inside one is a check, too."""
    machine = machine or Machine()
    checks: list[Check] = []
    for part in PARTS:
        # The doctor is for machines on which nothing is as it should be.
        try:
            checks += part(machine)
        except Exception as error:  # noqa: PERF203
            finding = f"{type(error).__name__}: {one_line(error)}"
            checks.append(Check(part.__name__, None, finding, "this is a bug, please report it"))
    return tuple(_private(check) for check in checks)


def healthy(checks: Iterable[Check]) -> bool:
    """Whether nothing that is needed is broken."""
    return all(check.ok is not False for check in checks)


def to_text(checks: Iterable[Check]) -> str:
    """A line for each check, and its fix below."""
    checks = list(checks)
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append((MARKS[check.ok], check.name, " ".join(check.finding.split())))
        if check.fix:
            rows.append(("", "", f"{'fix' if check.ok is False else 'hint'}: {check.fix}"))
    text = table(rows, left=(0, 1, 2))
    missing = ", ".join(check.name for check in checks if check.missing)
    if healthy(checks) and missing:
        text += f"\n\nnothing is broken, but this is missing: {missing}; the hint says how to get it"
    elif healthy(checks):
        text += "\n\nall that is needed on this machine works"
    return f"{text}\n"


def to_json(checks: Iterable[Check]) -> str:
    """One document for bug reports. It names no user, no host, and no folder of the user's."""
    checks = list(checks)
    document = {
        "schema": "witness-doctor/1",
        "witness": __version__,
        "ok": healthy(checks),
        "checks": [
            {
                "name": check.name,
                "ok": check.ok,
                "missing": check.missing,
                "found": check.finding,
                "cure": check.fix,
            }
            for check in checks
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _private(check: Check) -> Check:
    """Without what tells who the user is: home becomes ~, a folder by the user's name becomes USER."""
    user = ""
    with suppress(Exception):  # no such user in a container
        user = getpass.getuser()

    def clean(text: str) -> str:
        for home in {str(Path.home()), str(Path.home().resolve())}:
            if len(home) > 1:
                text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
        if user:
            text = re.sub(rf"(?<=[/\\]){re.escape(user)}(?=[/\\]|$)", "USER", text)
        return text

    return replace(check, finding=clean(check.finding), fix=check.fix and clean(check.fix))
