"""People whose voices are known: a list, their recordings, and a search for one voice in all recordings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from witness.diarization import voices
from witness.errors import InputError, WitnessError
from witness.serve.app_state import AppState, body_of, desk_of
from witness.serve.editing import views
from witness.serve.library.library import ListedRecording
from witness.serve.roles import Endpoint, Role
from witness.text import printable


class Person(Struct):
    """A person whose voice is known."""

    name: str


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/api/people", Role.READ, list_people),
        Endpoint("GET", "/api/people/search", Role.READ, search),
        Endpoint("POST", "/api/people/forget", Role.WRITE, forget),
    ]


def list_people(request: Request) -> Response:
    """List the people, and the recordings with a speaker of their name."""
    desk = desk_of(request)
    rows, _ = desk.library.recordings()
    people, unreadable = [], []
    for path in sorted(desk.known.glob("*.json")):
        try:
            voice = voices.read_one(path)
        except InputError as error:
            unreadable.append(str(error))
            continue
        recordings = [{"id": row.id, "recording": _title(row)} for row in rows if voice.name in row.speakers]
        people.append({"name": voice.name, "seconds": round(voice.seconds, 1), "recordings": recordings})
    return JSONResponse({"people": people, "left": unreadable})


async def forget(request: Request) -> Response:
    """Delete a person's voice; names in transcripts stay."""
    body = await body_of(request, Person)
    await run_in_threadpool(voices.forget, body.name, desk_of(request).known)
    return JSONResponse({})


async def search(request: Request) -> Response:
    """Search all recordings for a person's voice, and return a line of JSON after each."""
    name = request.query_params.get("name", "")
    return StreamingResponse(_search(desk_of(request), name), media_type="application/x-ndjson")


async def _search(desk: AppState, name: str) -> AsyncIterator[str]:
    rows, _ = await run_in_threadpool(desk.library.recordings)
    total, seen, failed = len(rows), 0, 0
    for row in rows:
        result = views.VoiceSearch()
        try:
            path = await run_in_threadpool(desk.library.find, row.id)
            if path is None:  # it failed, or was deleted
                total -= 1
                continue
            result = await desk.finder.run(views.find_voice, path, desk.known, name)
        except WitnessError:  # damaged, or without its findings; the library says so
            failed += 1
        if not result.is_transcript:
            total -= 1
            continue
        seen += 1
        line: dict[str, Any] = {"seen": seen, "total": total, "left": failed}
        if result.match is not None:
            line["found"] = {**structs.asdict(result.match), "id": row.id, "recording": _title(row)}
        yield json.dumps(line) + "\n"
    yield json.dumps({"seen": total, "total": total, "left": failed}) + "\n"


def _title(row: ListedRecording) -> str:
    return printable(f"{row.folder}/{row.name}".lstrip("/"))
