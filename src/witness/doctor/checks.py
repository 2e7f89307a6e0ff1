"""The doctor's report: every part of this machine that Witness can use, its faults, and the fixes.

A check can fail for the parts of a transcript on the CPU; and, with a card that AMD lists for MIGraphX, for
the parts that the card needs. Nothing is downloaded or changed, and the libraries of drivers are loaded in
child processes.
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
from witness.text import table

PARTS: tuple[Callable[[Machine], Iterable[Check]], ...] = (
    common.check_python,
    common.check_onnxruntime,
    common.check_whisper,
    common.check_recognizers,
    common.check_decoding,
    common.check_models,
    common.check_disk,
    amd.check_cards,
    amd.check_rocm,
    amd.check_compiled_graphs,
    amd.check_windows,
    common.check_vulkan,
    common.check_variables,
)
"""In this order."""
MARKS = {True: "ok", False: "NO", None: "-"}


def examine(machine: Machine | None = None) -> tuple[Check, ...]:
    """Return every check of this machine, or of another. An error inside a check becomes a check, too."""
    machine = machine or Machine()
    checks: list[Check] = []
    for part in PARTS:
        # The doctor must survive any fault of the machine.
        try:
            checks += part(machine)
        except Exception as error:  # noqa: PERF203
            finding = f"{type(error).__name__}: {one_line(error)}"
            checks.append(
                Check(part.__name__.removeprefix("check_"), None, finding, "this is a bug, please report it")
            )
    return tuple(_private(check) for check in checks)


def healthy(checks: Iterable[Check]) -> bool:
    return all(check.ok is not False for check in checks)


def to_text(checks: Iterable[Check]) -> str:
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
    """Return a document for bug reports. It names no user, no host, and no folder of the user's."""
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
    """Remove the user's identity: home becomes ~, a folder by the user's name becomes USER."""
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
