"""`witness doctor`: what this machine has of all that Witness can use."""

from __future__ import annotations

import click

from witness.cli import options
from witness.errors import WitnessError
from witness.storage import atomic


@click.command("doctor", cls=options.Command, short_help="Check this machine and say how to fix it.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document without private data, for bug reports."
)
def doctor_command(as_json: bool) -> None:
    """Check what this machine has of all that Witness can use, and say how to fix the rest.

    Exit code 1 if something is broken that is needed here: what runs on the CPU and, with a card that AMD
    lists for MIGraphX, what runs on it.

    \b
    Examples:
      witness doctor
      witness doctor --json
    """
    from witness.doctor import checks

    report = checks.examine()
    atomic.write((checks.to_json if as_json else checks.to_text)(report).encode(), None)
    if not checks.healthy(report):
        broken = dict.fromkeys(check.name for check in report if check.ok is False)
        raise WitnessError(f"broken: {', '.join(broken)}; the report says how to fix it")
