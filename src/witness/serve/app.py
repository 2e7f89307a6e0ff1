"""The application: all routes, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware

from witness.serve import errors
from witness.serve.app_state import AppState
from witness.serve.library import catalog
from witness.serve.routes import exports, home, openai_api, people, recordings, transcripts
from witness.serve.security import Guard


def application(
    desk: AppState, names: Sequence[str] = (), tickets: Sequence[str] = (), origins: Sequence[str] = ()
) -> Starlette:
    """The desk as an ASGI application. `names`, `tickets` and `origins` are as `Guard` takes them."""
    app = Starlette(
        routes=[
            *home.routes(),
            *catalog.routes(),
            *transcripts.routes(),
            *recordings.routes(),
            *exports.routes(),
            *people.routes(),
            *openai_api.routes(),
        ],
        middleware=[
            Middleware(
                Guard, token=desk.token, limits=desk.limits, names=names, tickets=tickets, origins=origins
            ),
        ],
        exception_handlers=errors.HANDLERS,
    )
    app.state.desk = desk
    return app
