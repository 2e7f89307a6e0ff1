"""People whose voices are known: a list, who appears where, and a search for one in all recordings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from witness.diarization import voices
from witness.errors import InputError, WitnessError
from witness.serve.app_state import AppState, body_of
from witness.serve.editing import views
from witness.serve.library.library import ListedRecording
from witness.serve.roles import Endpoint, Role
from witness.text import printable


class Person(Struct):
    """A person whose voice is known."""

    name: str


def routes() -> list[Endpoint]:
    """What the list of people asks for."""
    return [
        Endpoint("GET", "/api/people", Role.READ, list_people),
        Endpoint("GET", "/api/people/search", Role.READ, search),
        Endpoint("POST", "/api/people/forget", Role.WRITE, forget),
    ]


def list_people(request: Request) -> Response:
    """All whose voices are known, and the recordings in which somebody has their name."""
    desk: AppState = request.app.state.desk
    rows, _ = desk.library.recordings()
    people, left = [], []
    for path in sorted(desk.known.glob("*.json")):
        try:
            voice = voices.read_one(path)
        except InputError as error:
            left.append(str(error))
            continue
        there = [{"id": row.id, "recording": _called(row)} for row in rows if voice.name in row.speakers]
        people.append({"name": voice.name, "seconds": round(voice.seconds, 1), "recordings": there})
    return JSONResponse({"people": people, "left": left})


async def forget(request: Request) -> Response:
    """Delete a person's voice; names in transcripts stay."""
    body = await body_of(request, Person)
    await run_in_threadpool(voices.forget, body.name, request.app.state.desk.known)
    return JSONResponse({})


async def search(request: Request) -> Response:
    """Lines of JSON: the recordings in which a person is heard, as they are searched."""
    desk: AppState = request.app.state.desk
    wanted = request.query_params.get("name", "")
    return StreamingResponse(_search(desk, desk.known, wanted), media_type="application/x-ndjson")


async def _search(desk: AppState, known: Path, wanted: str) -> AsyncIterator[str]:
    rows, _ = await run_in_threadpool(desk.library.recordings)
    total, seen, left = len(rows), 0, 0
    for row in rows:
        found = views.VoiceSearch()
        try:
            path = await run_in_threadpool(desk.library.find, row.id)
            if path is None:  # it failed, or is gone
                total -= 1
                continue
            found = await desk.finder.run(views.find_voice, path, known, wanted)
        except WitnessError:  # without its findings, or damaged; the library says so
            left += 1
        if not found.is_transcript:
            total -= 1
            continue
        seen += 1
        line: dict[str, Any] = {"seen": seen, "total": total, "left": left}
        if found.match is not None:
            line["found"] = {**structs.asdict(found.match), "id": row.id, "recording": _called(row)}
        yield json.dumps(line) + "\n"
    yield json.dumps({"seen": total, "total": total, "left": left}) + "\n"


def _called(row: ListedRecording) -> str:
    return printable(f"{row.folder}/{row.name}".lstrip("/"))
