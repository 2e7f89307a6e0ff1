"""The languages that Whisper knows; here, so that a check needs no engine."""

from __future__ import annotations

from witness.errors import UsageError

CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr "
    "bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn "
    "yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su "
    "yue"
)
LANGUAGES = tuple(CODES.split())
"""The codes of the languages that Whisper knows, in its order."""

MULTI = "multi"
"""In the place of a code: a recording in several languages, which are found out piece by piece."""


def check_language(code: str) -> None:
    """Raise UsageError if whisper knows no language of that code. Needs no model."""
    if code not in (*LANGUAGES, MULTI):
        some = ", ".join(LANGUAGES[:12])
        raise UsageError(
            f"whisper does not know the language {code!r}; its codes are {some}, ..., or {MULTI}"
        )
