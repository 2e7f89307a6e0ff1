"""The application: all routes, behind the guard."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware

from witness.serve import answers, front, library, openai_api, pages, recordings
from witness.serve.desk import Desk
from witness.serve.guard import Guard


def application(desk: Desk, names: Sequence[str] = (), ticket: str | None = None) -> Starlette:
    """The desk as an ASGI application. `names` and `ticket` are as `Guard` takes them."""
    app = Starlette(
        routes=[
            *front.routes(),
            *library.routes(),
            *pages.routes(),
            *recordings.routes(),
            *openai_api.routes(),
        ],
        middleware=[
            Middleware(Guard, token=desk.token, limits=desk.limits, names=names, ticket=ticket),
        ],
        exception_handlers=answers.HANDLERS,
    )
    app.state.desk = desk
    return app
