"""`witness models`: the model files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from witness.cli import options

if TYPE_CHECKING:
    from witness.models.store import ModelStatus


@click.group("models", invoke_without_command=True)
@click.pass_context
def models_group(ctx: click.Context) -> None:
    """The model files: which there are, fetch them, check them."""
    options.help_alone(ctx)


@models_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def models_list(as_json: bool) -> None:
    """Every file that Witness knows: name, role, size, licence, sha256, and where it lies."""
    from witness.models import store

    _print_models(store.list_models(), as_json)


@models_group.command("fetch")
@click.argument("names", nargs=-1)
@click.option("--force", is_flag=True, help="Also what is here already; for damaged files.")
@click.option("--offline", is_flag=True, help="Open no socket; say what is missing.")
def models_fetch(names: tuple[str, ...], force: bool, offline: bool) -> None:
    """Download NAMES (of files, or "standard"), or what a first run would, and verify them."""
    from witness.models import store
    from witness.recognition import recognizer

    gpu = recognizer.has_gpu_backend()
    with options.progress(quiet=False) as reporter:
        found = store.fetch_models(names, gpu=gpu, offline=offline, force=force, reporter=reporter)
    for file in found:
        click.echo(f"{file.name}\t{file.path}")


@models_group.command("verify")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def models_verify(as_json: bool) -> None:
    """Hash every file that is here. Exit code 5 if one is damaged."""
    from witness.errors import ModelError
    from witness.models import store

    found = store.list_models(verify=True)
    _print_models(found, as_json)
    damaged = [status.file.name for status in found if status.state == "damaged"]
    if damaged:
        cure = f"witness models fetch --force {' '.join(damaged)}"
        raise ModelError(f"damaged: {', '.join(damaged)}; cure: {cure}")


def _print_models(found: Sequence[ModelStatus], as_json: bool) -> None:
    """A line a file, or JSON."""
    rows = [{**asdict(status.file), "state": status.state, "path": status.path} for status in found]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        size = f"{row['size'] / 1e6:,.1f} MB"
        head = f"{row['name']:25} {row['role']:13}{size:>11}  {row['licence']:10} {row['state']:8}"
        click.echo(f"{head} {row['sha256']}  {row['path'] or '-'}")
