"""Short text files that a person writes: names and terms, and what is written for what is heard."""

from __future__ import annotations

from pathlib import Path

import click

from witness.audio import fifo
from witness.storage import files
from witness.text import without_commands

LARGEST = 1 << 16
"""Bytes of such a file; a recognizer listens to far less."""


def terms(path: Path | None) -> tuple[str, ...]:
    """The lines of a file of names and terms, without empty ones and comments (#).

    Raises click's BadParameter, which ends as UsageError does.
    """
    return () if path is None else _lines_of(path, "a vocabulary", "one name or term a line")


def rules(path: Path | None) -> tuple[tuple[str, str], ...]:
    """What is heard and what is written, of a file with lines like "cooper netties = Kubernetes".

    Raises click's BadParameter, which ends as UsageError does.
    """
    found: list[tuple[str, str]] = []
    for line in (
        () if path is None else _lines_of(path, "a list of replacements", "lines like HEARD = WRITTEN")
    ):
        heard, sign, written = (part.strip() for part in line.partition("="))
        many = [one.strip() for one in heard.split(",")]
        if without_commands(line) != line:
            raise click.BadParameter(f"{path}: {line[:80]!r} has control characters; take them out")
        if not sign or not written or not all(many):
            raise click.BadParameter(
                f"{path}: {line[:80]!r} is not a rule; write it as HEARD, HEARD = WRITTEN"
            )
        found += [(one, written) for one in many]
    return tuple(found)


def _lines_of(path: Path, what: str, form: str) -> tuple[str, ...]:
    """The lines of a short text file, without empty ones and comments (#). Raises click's BadParameter."""
    try:
        read = fifo.read if path.is_fifo() else files.read_some
        content = read(path, LARGEST + 1)
        lines = [] if len(content) > LARGEST else content.decode("utf-8-sig").splitlines()
    except fifo.SilentError as error:
        raise click.BadParameter(f"{path}: {error.strerror}; give a text file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read as text; save it as UTF-8, {form}") from error
    found = [" ".join(line.split()) for line in lines]
    given = tuple(line for line in found if line and not line.startswith("#"))
    if len(content) > LARGEST:
        raise click.BadParameter(f"{path} is too long for {what}; give at most {LARGEST >> 10} KiB, {form}")
    if b"\0" in content:
        raise click.BadParameter(f"{path} has zero bytes, so it is not a text; save it as UTF-8, {form}")
    if not given:
        raise click.BadParameter(f"{path} is empty; write {form}")
    return given
