"""People whose voices are known: a list, their recordings, and a search for one voice in all recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from witness.diarization import voices
from witness.errors import InputError, WitnessError
from witness.serve import editing
from witness.serve.app_state import AppState
from witness.serve.endpoints import Endpoint
from witness.serve.library.library import ListedRecording
from witness.serve.roles import Role
from witness.text import printable
from witness.transcript.store import OtherJsonError


class Person(Struct):
    """A person whose voice is known."""

    name: str


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/api/people", Role.READ, list_people),
        Endpoint("GET", "/api/people/search", Role.READ, search),
        Endpoint("POST", "/api/people/forget", Role.WRITE, forget),
    ]


def list_people(desk: AppState) -> dict[str, Any]:
    """List the people, and the recordings with a speaker of their name."""
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
    return {"people": people, "left": unreadable}


def forget(desk: AppState, body: Person) -> dict[str, Any]:
    """Delete a person's voice; names in transcripts stay."""
    voices.forget(body.name, desk.known)
    return {}


def search(request: Request, desk: AppState) -> Response:
    """Search all recordings for a person's voice, and return a line of JSON after each."""
    lines = _search(desk, request.query_params.get("name", ""))
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _search(desk: AppState, name: str) -> Iterator[str]:
    rows, _ = desk.library.recordings()
    total, seen, failed = len(rows), 0, 0
    for row in rows:
        match = None
        try:
            path = desk.library.find(row.id)
            if path is None:  # it failed, or was deleted
                total -= 1
                continue
            match = desk.finder.call(editing.find_voice, path, desk.known, name)
        except OtherJsonError:
            total -= 1
            continue
        except WitnessError:  # damaged, or without its findings; the library says so
            failed += 1
        seen += 1
        line: dict[str, Any] = {"seen": seen, "total": total, "left": failed}
        if match is not None:
            line["found"] = {**match, "id": row.id, "recording": _title(row)}
        yield json.dumps(line) + "\n"
    yield json.dumps({"seen": total, "total": total, "left": failed}) + "\n"


def _title(row: ListedRecording) -> str:
    return printable(f"{row.folder}/{row.name}".lstrip("/"))
