"""The application: all routes, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from witness.serve import browser_recordings, errors
from witness.serve.app_state import AppState
from witness.serve.openai import routes as openai
from witness.serve.routes import exports, home, library, notes, people, recordings, transcripts
from witness.serve.security import Access, Guard

PARTS = (home, library, notes, transcripts, recordings, exports, people, browser_recordings, openai)


def application(
    desk: AppState, names: Sequence[str] = (), tickets: Sequence[str] = (), **more: Any
) -> Starlette:
    """Return the desk as an ASGI application; `names`, `tickets` and the rest are fields of `Access`."""
    access = Access(names=names, tickets=tickets, **more)
    app = Starlette(
        routes=[route for part in PARTS for route in part.routes()],
        middleware=[Middleware(Guard, token=desk.token, limits=desk.limits, access=access)],
        exception_handlers=errors.HANDLERS,
    )
    app.state.desk = desk
    return app
