"""Rights at the desk: people with a token of their own, who may read, comment or write.

A file names them, a line each:

    # name role token
    anna write tQ3vC0mJx7ZkW2pL
    bert read  9fKd83hsLq0WmZx1

Every endpoint declares the least role that may use it. A route without a declaration is for those who may
write.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from witness.errors import InputError
from witness.options import Choice

SHORTEST = 16
"""Characters of a token; a shorter one can be guessed."""


class Role(Choice):
    """The rights of a person; each role may do all that those before it may."""

    READ = "read"
    COMMENT = "comment"
    WRITE = "write"

    def includes(self, least: Role) -> bool:
        """Tell whether this role may do all that `least` may."""
        order = list(Role)
        return order.index(self) >= order.index(least)


@dataclass(frozen=True)
class User:
    """A person who may use the desk."""

    name: str
    role: Role
    token: str


def is_token(text: str) -> bool:
    """Tell whether a text is long enough for a token, and a browser can send it."""
    return len(text) >= SHORTEST and text.isascii() and text.isprintable() and " " not in text


def read(path: Path) -> tuple[User, ...]:
    """Read the people in a file. Raises InputError that names the line."""
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise InputError(f"{path}: others can read the tokens in it; run: chmod 600 {path}")
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"{path}: cannot be read ({why}); give a file of people") from error
    users: list[User] = []
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
        if any(name == user.name or token == user.token for user in users):
            raise InputError(f"{path}, line {number}: this name or token is in the file twice")
        users.append(User(name, Role(role), token))
    if not users:
        raise InputError(f"{path}: has no people; write a line for each person: name, role, token")
    return tuple(users)
