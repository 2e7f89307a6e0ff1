"""The application: all routes, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from witness.serve import errors
from witness.serve.app_state import AppState
from witness.serve.routes import (
    browser_recordings,
    exports,
    home,
    library,
    live,
    notes,
    openai_api,
    people,
    recordings,
    transcripts,
)
from witness.serve.security import Access, Guard


def application(
    desk: AppState, names: Sequence[str] = (), tickets: Sequence[str] = (), **more: Any
) -> Starlette:
    """The desk as an ASGI application. `names`, `tickets` and the rest are those of `security.Access`."""
    access = Access(names=names, tickets=tickets, **more)
    app = Starlette(
        routes=[
            *home.routes(),
            *library.routes(),
            *notes.routes(),
            *transcripts.routes(),
            *live.routes(),
            *recordings.routes(),
            *exports.routes(),
            *people.routes(),
            *browser_recordings.routes(),
            *openai_api.routes(),
        ],
        middleware=[Middleware(Guard, token=desk.token, limits=desk.limits, access=access)],
        exception_handlers=errors.HANDLERS,
    )
    app.state.desk = desk
    return app
