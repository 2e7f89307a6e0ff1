"""`witness serve`: the desk in a browser."""

from __future__ import annotations

import re
import secrets
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from witness._version import install
from witness.cli import options, signals
from witness.errors import CancelledError, UsageError, WitnessError
from witness.options import Device, Options

SHORTEST = 16
"""Characters of a token; a shorter one can be guessed."""
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", re.IGNORECASE)
"""What a browser sends as one."""
NEEDS = ("starlette", "uvicorn", "python_multipart")
"""What the extra `serve` brings."""

_transcript = options.together(
    *(options.LANGUAGE, options.TRANSLATE, options.VOCABULARY, options.PROMPT, options.CHANNELS),
    *(options.KNOWN, options.MODELS, options.WHISPER, options.RECOGNIZER, options.FAST, options.PRECISION),
    options.OFFLINE,
)


@click.command(
    "serve", cls=options.Command, short_help="Read, search and correct transcripts in the browser."
)
@click.argument(
    "folder", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="[FOLDER]"
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port to listen at; 0: any. [default: 8420, or any if it is taken]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen at; one that others can reach needs --token.",
)
@click.option(
    "--token",
    envvar="WITNESS_TOKEN",
    metavar="TEXT",
    help="The key to the desk, or WITNESS_TOKEN in the environment. [default: a new one]",
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A web app whose pages may use OpenAI's API here, with the token: https://app.example. May be "
    "repeated.",
)
@click.option("--no-browser", is_flag=True, help="Open no browser, only print the address.")
@click.option(
    "--jobs",
    type=click.IntRange(1, options.MOST),
    metavar="N",
    default=1,
    show_default=True,
    help="Recordings at a time; each takes the memory of the models once more.",
)
@_transcript
@options.DEVICE
@options.GPU
@options.THREADS
@options.QUIET
def serve_command(
    folder: Path,
    port: int | None,
    host: str,
    token: str | None,
    origins: tuple[str, ...],
    no_browser: bool,
    jobs: int,
    device: str,
    gpu: int | None,
    threads: int | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Open a desk in the browser for the transcripts below FOLDER [default: this one].

    Listen, correct, search, export; drop recordings to have them transcribed. Other programs use the same
    address as OpenAI's API for transcriptions, with the token as the key. Ctrl-C ends it. Needs the extra
    `serve`.
    """
    if not all(map(find_spec, NEEDS)):
        raise WitnessError(f"witness serve needs starlette and uvicorn; fix: {install('serve')}")
    if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
        raise UsageError(f"--token is too easy to guess; give at least {SHORTEST} letters and digits")
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            raise UsageError(
                f"--origin {origin} is not an origin; give scheme, host and port: https://app.example"
            )
    wanted = Options(**asked)

    from witness.jobs import plan
    from witness.serve import server
    from witness.serve.app import application
    from witness.serve.app_state import AppState
    from witness.serve.editing.worker_client import WorkerClient
    from witness.serve.library.catalog import Library
    from witness.serve.queue import Queue
    from witness.serve.uploads import Uploads

    if token is None and not server.is_loopback(host):
        raise UsageError(f"--host {host} can be reached by others; give a --token, too")
    printed, shown = secrets.token_urlsafe(), secrets.token_urlsafe()  # each opens one browser, once
    listening = server.bind(host, port)
    library = Library(folder)
    runtime = replace(plan.share(jobs, Device(device), threads), gpu=gpu)
    with (
        listening,
        options.progress(quiet) as reporter,
        closing(WorkerClient()) as editor,
        closing(WorkerClient()) as finder,
        Uploads(library.folder) as uploads,
        Queue(library.folder, lambda: plan.settle(wanted, reporter=reporter), runtime, jobs) as queue,
    ):
        desk = AppState(
            library.folder,
            token or secrets.token_urlsafe(),
            library,
            wanted,
            runtime,
            queue=queue,
            uploads=uploads,
            editor=editor,
            finder=finder,
        )
        url = server.address(host, listening)

        def ready() -> None:
            options.say(f"{url}?ticket={printed}")
            if not no_browser and not server.browse(f"{url}?ticket={shown}"):
                reporter.note("no browser could be opened here; open the address yourself")
            if token is None:
                reporter.note(f"the token, for other browsers and for programs: {desk.token}")
            reporter.note(f"serving {library.folder}; Ctrl-C ends it")

        try:
            with library.watched(reporter):
                server.run(application(desk, server.names(host), (printed, shown), origins), listening, ready)
        except (KeyboardInterrupt, SystemExit, CancelledError):
            if signals.exit_code() != signals.INTERRUPTED:
                raise  # otherwise it is how one ends a server
