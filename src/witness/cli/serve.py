"""`witness serve`: the desk in a browser."""

from __future__ import annotations

import re
import secrets
import sys
from contextlib import closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from witness._version import install
from witness.cli import options, signals
from witness.errors import CancelledError, UsageError, WitnessError
from witness.options import Device, Options, Runtime
from witness.progress import Reporter

ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", re.IGNORECASE)
"""An origin as a browser sends it."""
NEEDS = ("starlette", "uvicorn", "python_multipart")
"""Packages of the extra `serve`."""

_transcript = options.together(
    *(options.LANGUAGE, options.TRANSLATE, options.FAST_WORDS, options.VOCABULARY, options.PROMPT),
    options.CHANNELS,
    *(options.KNOWN, options.MODELS, options.WHISPER, options.RECOGNIZER, options.FAST, options.PRECISION),
    options.OFFLINE,
)


@click.command(
    "serve", cls=options.Command, short_help="Read, search and correct transcripts in the browser."
)
@click.argument(
    "folder",
    default=".",
    type=options.LocalPath(path_type=Path, exists=True, file_okay=False),
    metavar="[FOLDER]",
)
@options.whole("--port", 0, 65535, "Port to listen at; 0: any. [default: 8420, or any if it is taken]")
@options.text(
    "--host",
    "ADDRESS",
    "Address to listen at; one that others can reach needs --token, and --cert or --insecure.",
    "127.0.0.1",
)
@options.text("--cert", "FILE", "Certificate (PEM) to encrypt with; needs --key.", type=options.FILE)
@options.text("--key", "FILE", "Its private key (PEM).", type=options.FILE)
@options.flag("--insecure", "Let others reach it without encryption: the network can read along.")
@options.text(
    "--public", "URL", "Address of a proxy on this machine that leads others here: https://desk.example."
)
@options.text(
    "--users", "FILE", "People with tokens of their own who may read, comment or write.", type=options.FILE
)
@options.text(
    "--token",
    "TEXT",
    "The key to the desk, or WITNESS_TOKEN in the environment. [default: a new one]",
    envvar="WITNESS_TOKEN",
)
@options.several(
    "--origin",
    "origins",
    "URL",
    "A web app whose pages may use OpenAI's API here, with the token: https://app.example. May be repeated.",
)
@options.flag("--watch", "Transcribe recordings that appear below FOLDER, whoever puts them there.")
@options.flag("--no-browser", "Open no browser, only print the address.")
@options.whole(
    *("--jobs", 1, options.MOST),
    "Recordings at a time; each takes the memory of the models once more.",
    default=1,
    show_default=True,
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
    cert: Path | None,
    key: Path | None,
    insecure: bool,
    public: str | None,
    users: Path | None,
    token: str | None,
    origins: tuple[str, ...],
    watch: bool,
    no_browser: bool,
    jobs: int,
    quiet: bool,
    **asked: Any,
) -> None:
    """Open a desk in the browser for the transcripts below FOLDER [default: this one].

    Listen, correct, search, export; drop recordings to have them transcribed. Other programs use the same
    address as OpenAI's API for transcriptions, with the token as the key. Ctrl-C ends it. Needs the extra
    `serve`.

    \b
    Examples:
      witness serve out/
      witness serve out/ --watch --whisper small
    """
    if not all(map(find_spec, NEEDS)):
        raise WitnessError(f"witness serve needs starlette and uvicorn; fix: {install('serve')}")
    for option, origin in (*(("--origin", url) for url in origins), ("--public", public)):
        if origin is not None and not ORIGIN.fullmatch(origin.rstrip("/")):
            raise UsageError(
                f"{option} {origin} is not an origin; give scheme, host and port: https://app.example"
            )
    if (cert is None) != (key is None):
        raise UsageError("--cert and --key belong together; give both")
    machine = options.take(Runtime, asked)
    choices = Options(**asked)

    from witness.serve import editing, roles, server
    from witness.serve.app_state import AppState
    from witness.serve.library.library import Library
    from witness.serve.queue import Queue, watch_folder
    from witness.serve.server import application
    from witness.serve.uploads import Uploads
    from witness.serve.worker import Worker
    from witness.work import pool, produce
    from witness.work.overrides import JobOverrides
    from witness.work.produce import Settings

    if token is not None and not roles.is_token(token):
        raise UsageError(f"--token is too easy to guess; give at least {roles.SHORTEST} letters and digits")
    shared = not server.is_loopback(host)
    if token is None and shared:
        raise UsageError(f"--host {host} can be reached by others; give a --token, too")
    if shared and cert is None and not insecure:
        raise UsageError(
            f"--host {host} would send everything in the clear; give --cert and --key, or --insecure if you "
            "trust the network"
        )
    certificate = None if cert is None or key is None else server.Certificate(cert, key)
    if certificate is not None:
        certificate.load()
    people = () if users is None else roles.read(users)
    public = (public or "").rstrip("/")
    names = (*server.names(host), *([urlsplit(public).hostname or ""] if public else []))
    printed, shown, scanned = (secrets.token_urlsafe() for _ in range(3))  # each opens one browser, once
    listening = server.bind(host, port)
    library = Library(folder)
    runtime = pool.worker_runtime(jobs, Device(machine.device), machine.threads)

    def resolve(overrides: JobOverrides) -> Settings:
        return produce.resolve_settings(overrides.apply(choices), reporter=reporter)

    with (
        listening,
        options.progress(quiet) as reporter,
        closing(Worker(editing.prepare)) as editor,
        closing(Worker(editing.prepare)) as finder,
        Uploads(library.folder) as uploads,
        Queue(library.folder, resolve, replace(runtime, gpu=machine.gpu), jobs) as queue,
    ):
        desk = AppState(
            library.folder,
            token or secrets.token_urlsafe(),
            library,
            choices,
            queue=queue,
            uploads=uploads,
            editor=editor,
            finder=finder,
        )
        scheme = "http" if certificate is None else "https"
        url = server.address(host, listening, scheme)

        def ready() -> None:
            options.say(f"{url}?ticket={printed}")
            if shared or public:
                others = f"{public}/" if public else server.address_for_others(host, listening, scheme)
                _invite(others, scanned, reporter)
            if not no_browser and not server.browse(f"{url}?ticket={shown}"):
                reporter.note("no browser could be opened here; open the address yourself")
            if token is None and sys.stderr.isatty():
                reporter.note(f"the token, for other browsers and for programs: {desk.token}")
            elif token is None:  # a journal would keep the token
                reporter.note("the token is shown on a terminal only; for programs, give WITNESS_TOKEN")
            reporter.note(f"serving {library.folder}; Ctrl-C ends it")
            editor.start()

        try:
            watched = watch_folder(library, queue, reporter) if watch else nullcontext()
            with library.watched(reporter), watched:
                tickets, encrypted = (printed, shown, scanned), certificate is not None
                app = application(
                    desk, names, tickets, origins=origins, users=people, public=public, encrypted=encrypted
                )
                server.run(app, listening, ready, certificate)
        except (KeyboardInterrupt, SystemExit, CancelledError):
            if signals.exit_code() != signals.INTERRUPTED:
                raise  # otherwise Ctrl-C is the way to end a server


def _invite(url: str, ticket: str, reporter: Reporter) -> None:
    """Tell how others get here: the address, and on a terminal a QR code, which works once."""
    from witness.serve import server

    reporter.note(f"others open {url} and give the token")
    if not sys.stderr.isatty():
        return
    try:
        code = server.qr_code(f"{url}?ticket={ticket}")
    except ImportError:
        reporter.note(f"a QR code needs segno; fix: {install('serve')}")
        return
    reporter.note(f"a phone that scans this is let in as you are, once:\n{code}")
