"""Who may do what: people with a token of their own, who may read, comment or write.

A file names them, a line each:

    # name role token
    anna write tQ3vC0mJx7ZkW2pL
    bert read  9fKd83hsLq0WmZx1

What is not allowed to a role here is refused to it: a new address is for those who may write, until it is
listed.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from witness.errors import InputError
from witness.options import Choice

SHORTEST = 16
"""Characters of a token; a shorter one can be guessed."""


class Role(Choice):
    """What somebody may do; each may do what those before may."""

    READ = "read"
    COMMENT = "comment"
    WRITE = "write"


@dataclass(frozen=True)
class User:
    """Somebody who may use the desk."""

    name: str
    role: Role
    token: str


ASKING = re.compile(r"/api/export|/t/[^/]+/preview")
"""What is sent to these changes nothing."""
COMMENTING = re.compile(r"/t/[^/]+/notes")
"""What is sent to these adds notes, and changes nothing else."""


def may(role: Role, method: str, path: str) -> bool:
    """Whether a request is allowed to the role. GET changes nothing anywhere."""
    if role == Role.WRITE or method in ("GET", "HEAD") or ASKING.fullmatch(path):
        return True
    return role == Role.COMMENT and COMMENTING.fullmatch(path) is not None


def is_token(text: str) -> bool:
    """Whether it is long enough, and a browser can send it."""
    return len(text) >= SHORTEST and text.isascii() and text.isprintable() and " " not in text


def read(path: Path) -> tuple[User, ...]:
    """The people in a file. Raises InputError that names the line."""
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise InputError(f"{path}: others can read the tokens in it; run: chmod 600 {path}")
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"{path}: cannot be read ({why}); give a file of people") from error
    found: list[User] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 3 or fields[1] not in set(Role):
            raise InputError(
                f"{path}, line {number}: write a name, then read, comment or write, then a token"
            )
        name, role, token = fields
        if not is_token(token):
            raise InputError(
                f"{path}, line {number}: the token is too easy to guess; give at least {SHORTEST} letters "
                "and digits"
            )
        if any(name == one.name or token == one.token for one in found):
            raise InputError(f"{path}, line {number}: this name or token is there twice")
        found.append(User(name, Role(role), token))
    if not found:
        raise InputError(f"{path}: names nobody; write a line for each person: name, role, token")
    return tuple(found)
