"""`witness models`: the model files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from witness import text
from witness.cli import options

if TYPE_CHECKING:
    from witness.models.store import OnDisk


@click.group("models", invoke_without_command=True)
@click.pass_context
def models_group(ctx: click.Context) -> None:
    """List, fetch and verify the model files."""
    options.help_alone(ctx)


@models_group.command("list")
@options.JSON
def models_list(as_json: bool) -> None:
    """Show every model file: name, role, size, license, state, sha256 and path."""
    from witness.models import store

    _print(store.list_models(), as_json)


@models_group.command("fetch")
@click.argument("names", nargs=-1)
@click.option(
    "--force", is_flag=True, help="Also fetch files that are already here, to replace damaged ones."
)
@click.option("--offline", is_flag=True, help="Open no socket; say what is missing.")
def models_fetch(names: tuple[str, ...], force: bool, offline: bool) -> None:
    """Download and verify model files.

    NAMES are names of files or sets (standard, community-1). Without any, what a first run needs is fetched.
    """
    from witness.models import store
    from witness.recognition import recognizer

    gpu = recognizer.has_gpu_backend()
    with options.progress(quiet=False) as reporter:
        models = store.fetch_models(names, gpu=gpu, offline=offline, force=force, reporter=reporter)
    for file in models:
        click.echo(f"{file.name}\t{file.path}")


@models_group.command("verify")
@options.JSON
def models_verify(as_json: bool) -> None:
    """Check the sha256 of every file on the disk. Exit code 5 if one is damaged."""
    from witness.errors import ModelError
    from witness.models import store

    models = store.list_models(verify=True)
    _print(models, as_json)
    damaged = [model.file.name for model in models if model.state == "damaged"]
    if damaged:
        fix = f"witness models fetch --force {' '.join(damaged)}"
        raise ModelError(f"damaged: {', '.join(damaged)}; run: {fix}")


def _print(models: Sequence[OnDisk], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_row(model) for model in models], indent=1))
        return
    rows = []
    for model in models:
        file = model.file
        size = f"{file.size / 1e6:,.1f} MB"
        rows.append(
            [file.name, file.role, size, file.license, model.state, file.sha256, str(model.path or "-")]
        )
    click.echo(text.table(rows, left=(0, 1, 3, 4, 5, 6)))


def _row(model: OnDisk) -> dict[str, str | int | None]:
    file = model.file
    return {
        "name": file.name,
        "role": file.role,
        "repository": file.repository,
        "revision": file.revision,
        "file": file.file,
        "size": file.size,
        "sha256": file.sha256,
        "licence": file.license,
        "attribution": file.attribution,
        "state": model.state,
        "path": model.path,
    }
