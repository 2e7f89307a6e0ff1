"""`witness models`: the model files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from witness import text
from witness.cli import options

if TYPE_CHECKING:
    from witness.models.store import OnDisk

HEADERS = ("", "name", "role or recognizer", "size", "license", "source", "state", "sha256", "path")
LEVELS = {"Fast": "base", "Balanced": "small", "Best": "large-v3-turbo"}
SHORT = 12
"""Digits of a sha256 in a table: enough to compare by eye."""


@click.group("models", cls=options.Group, invoke_without_command=True)
@click.pass_context
def models_group(ctx: click.Context) -> None:
    """List, find, fetch and verify the models."""
    options.help_alone(ctx)


@models_group.command("list")
@options.flag("--all", "Show every model: name, role, size, license, source, state, sha256 and path.")
@options.JSON
def models_list(all: bool, as_json: bool) -> None:  # noqa: A002 - the option's name
    """Show the models for words: a fast one, a balanced one and the best one, with their sizes.

    With --all, a star marks what `auto` takes without fetching. A model that was installed as a Python
    package is `installed`. The sha256 is shortened; --json has all of it, for every model. A note says which
    model recognizes words.

    \b
    Examples:
      witness models list          Fast, Balanced and Best
      witness models list --all    every model, speaker models too
    """
    from witness.models import store

    if all or as_json:
        _print(store.list_models(), as_json)
    else:
        _print_levels()
    if not as_json:
        words = store.find_word_model(**_engines())
        better = f"; for the better one, run: {words.fix}" if words.fix else ""
        mark = "* marks the models that auto would use without fetching; " if all else ""
        click.echo(
            f"note: {mark}--whisper auto is {words.finding}{better}",
            err=True,
        )


@models_group.command("path")
@click.argument("name")
def models_path(name: str) -> None:
    """Print where the model NAME is on this disk. Exit code 5 if it is missing.

    \b
    Examples:
      witness models path builtin-embedding
      witness models path faster-whisper-base
    """
    from witness.errors import ModelError
    from witness.models import store

    (model,) = store.list_models(names=(name,))
    if model.path is None:
        raise ModelError(f"{name} is not on this machine; run: {model.file.fetch}")
    options.say(str(model.path))


@models_group.command("fetch")
@click.argument("names", nargs=-1)
@options.flag("--force", "Also fetch files that are already here, to replace damaged ones.")
@options.flag("--offline", "Open no socket; name the missing models.")
@click.option(
    "--recognizer",
    type=click.Choice(["auto", "whisper.cpp", "ctranslate2", "transcribe-cpp"]),
    default="auto",
    show_default=True,
    help="Whose models a size stands for; auto is the one that `witness run` uses.",
)
def models_fetch(names: tuple[str, ...], force: bool, offline: bool, recognizer: str) -> None:
    """Download and verify models.

    NAMES are names of models or sets (standard, community-1, campplus), or sizes such as base: the
    recognizer's model of that size. Without any, the models for a first run are fetched.

    \b
    Examples:
      witness models fetch
      witness models fetch standard small
    """
    from witness.models import recognizers, store
    from witness.options import Recognizer
    from witness.recognition import gpus

    available = recognizers.installed() if recognizer == "auto" else (Recognizer(recognizer),)
    gpu = gpus.recognizer()
    with options.progress(quiet=False) as reporter:
        models = store.fetch_models(
            names,
            gpu=gpu if gpu in available else None,
            available=available,
            offline=offline,
            force=force,
            reporter=reporter,
        )
    for file in models:
        options.say(f"{file.name}\t{file.path}")


@models_group.command("verify")
@options.JSON
def models_verify(as_json: bool) -> None:
    """Check the sha256 of every file on the disk. Exit code 5 if one is damaged.

    The table is that of `witness models list --all`.

    \b
    Examples:
      witness models verify
      witness models verify --json
    """
    from witness.errors import ModelError
    from witness.models import store

    models = store.list_models(verify=True)
    _print(models, as_json)
    damaged = [model.file for model in models if model.state == "damaged"]
    if damaged:
        fix = " && ".join(f"{file.fetch} --force" for file in damaged)
        raise ModelError(f"damaged: {', '.join(file.name for file in damaged)}; run: {fix}")


def _engines() -> dict[str, Any]:
    """Return the engines that `auto` chooses models for."""
    from witness.models import recognizers
    from witness.recognition import gpus

    return {"gpu": gpus.recognizer(), "available": recognizers.installed()}


def _print_levels() -> None:
    """Print a model of each level, for the recognizer that `auto` chooses."""
    from witness.models import catalogue, recognizers, store

    engine = recognizers.choose_recognizer(**_engines())
    rows = [("words", "option", "size", "state")]
    for level, size in LEVELS.items():
        if (file := catalogue.find_by_size(size, engine)) is not None:
            forms = filter(None, (file, catalogue.find_twin(file)))
            here = any(model.path for model in store.list_models([form.name for form in forms]))
            state = "here" if here else "fetched at its first use"
            rows.append((level, f"--whisper {size}", f"{file.total / 1e6:,.0f} MB", state))
    options.say(text.table(rows, left=(0, 1, 3)))


def _print(models: Sequence[OnDisk], as_json: bool) -> None:
    from witness.models import store

    taken = store.auto_models(**_engines())
    if as_json:
        rows = [{**_row(model), "auto": model.file.name in taken} for model in models]
        options.say(json.dumps(rows, indent=1))
        return
    table = [HEADERS]
    for model in models:
        file = model.file
        mark = "*" if file.name in taken else ""
        size = f"{file.total / 1e6:,.1f} MB"
        role, sha256 = file.engine or file.role, file.sha256[:SHORT]
        where = str(model.path or "-")
        row = mark, file.name, role, size, file.license, file.source, model.state, sha256, where
        table.append(row)
    options.say(text.table(table, left=(0, 1, 2, 4, 5, 6, 7, 8)))


def _row(model: OnDisk) -> dict[str, object]:
    file = model.file
    keys = {"recognizer": "engine", "size": "total", "licence": "license"}
    names = ["name", "role", "recognizer", "source", "repository", "revision", "file", "size", "sha256"]
    names += ["files", "package", "licence", "attribution"]
    row = {name: getattr(file, keys.get(name, name), None) for name in names}
    files, package = [asdict(part) for part in file.parts], file.checkpoint and asdict(file.checkpoint)
    return {**row, "files": files, "package": package, "state": model.state, "path": model.path}
