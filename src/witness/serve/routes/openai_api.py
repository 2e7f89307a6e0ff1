"""OpenAI's transcription interface, for programs that speak it already.

A request has its turn before the recordings of the folder and leaves nothing there, and the work ends when
the client leaves; unless the recording is to be kept, which puts it among those of the folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from witness.errors import WitnessError
from witness.formats.output_paths import name_of
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.serve import errors
from witness.serve.app_state import AppState
from witness.serve.openai import answers, jobs, schema
from witness.serve.openai.jobs import Work
from witness.serve.openai.schema import TranscriptionRequest
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.recordings import DEAF
from witness.serve.uploads import Form, Upload, drain
from witness.work.produce import Job, Settings

Written = Sequence[tuple[Format, Path]]
"""Formats, and the files that the answer is made of."""

AT_ONCE = 100
"""Requests that may be sent, wait and be worked on at the same time."""
PACE = 1.0
"""Seconds between two comments of a stream."""
PATIENCE = 10
"""Times `PACE` that a stream waits to begin, unless the work is begun."""


def routes() -> list[Endpoint]:
    """The interface."""
    places = Places()
    return [
        Endpoint("GET", "/v1/models", Role.READ, list_models),
        Endpoint("GET", "/v1/models/{name:path}", Role.READ, show_model),
        Endpoint("POST", "/v1/audio/transcriptions", Role.WRITE, _Transcriptions(places)),
        Endpoint("POST", "/v1/audio/translations", Role.WRITE, _Transcriptions(places, translate=True)),
    ]


async def list_models(request: Request) -> Response:
    """The names that a request may give as its model."""
    settings = await asyncio.wrap_future(request.app.state.desk.queue.models.request())
    models = [_model(name) for name in schema.models(settings)]
    return JSONResponse({"object": "list", "data": models})


async def show_model(request: Request) -> Response:
    """One of them."""
    settings = await asyncio.wrap_future(request.app.state.desk.queue.models.request())
    if not schema.is_model(name := request.path_params["name"], settings):
        why = "is not here; GET /v1/models lists those that are"
        raise errors.FieldError("model", why, "model_not_found")
    return JSONResponse(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "witness"}


class Places:
    """How many requests are here."""

    taken = 0


class _Transcriptions:
    """An ASGI application: the recording must stay until the answer is sent."""

    def __init__(self, places: Places, *, translate: bool = False) -> None:
        self._places, self._translate = places, translate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises HTTPException, UsageError before anything is sent."""
        request = Request(scope, receive)
        if self._places.taken >= AT_ONCE:
            await drain(request)
            raise HTTPException(429, f"{AT_ONCE} requests are at work; try again", {"Retry-After": "30"})
        self._places.taken += 1
        desk = request.app.state.desk
        try:
            async with desk.uploads.received(request) as form:
                recording = _only(form)
                settings = await asyncio.wrap_future(desk.queue.models.request())
                wish = schema.wish(form.fields, settings, translate=self._translate)
                written = [(kind, Path(name_of(form.folder / "result", kind))) for kind in wish.formats]
                if wish.keep:
                    working = jobs.keeping(desk.queue, desk.folder, recording, receive)
                else:
                    samples = await run_in_threadpool(_write_samples, wish, form.folder)
                    job = replace(_job(recording, wish, written, settings), samples=samples)
                    working = jobs.working(desk.queue, job, recording, receive)
                with suppress(ClientDisconnect):  # nobody reads an answer
                    async with working as work:
                        answer = _Answer(work, wish, written, desk, settings)
                        await answer(scope, receive, _patient(send))
        finally:
            self._places.taken -= 1


def _only(form: Form) -> Upload:
    """The recording of a form. Raises UsageError if there is not just one."""
    if [upload.field for upload in form.uploads] != ["file"]:
        raise errors.FieldError("file", "send one recording in the field `file`, with its file name")
    return form.uploads[0]


def _job(recording: Upload, wish: TranscriptionRequest, written: Written, settings: Settings) -> Job:
    targets = tuple((kind, str(path)) for kind, path in written)
    page = PageAudio.NONE
    settings = replace(settings, options=wish.options, keep_findings=False, html_audio=page, style={})
    return Job(str(recording.path), targets, settings, resumable=False)


def _write_samples(wish: TranscriptionRequest, folder: Path) -> tuple[tuple[str, str], ...]:
    """The samples of known speakers as files; which kind they are is found out when they are read."""
    found = []
    for number, (name, sample) in enumerate(wish.known):
        path = folder / f"known-{number}"
        path.write_bytes(sample)
        found.append((name, str(path)))
    return tuple(found)


def _patient(send: Send) -> Send:
    """Raises ClientDisconnect when what is sent is not read: it would be worked for nobody."""

    async def sending(message: Message) -> None:
        try:
            await asyncio.wait_for(send(message), DEAF)
        except asyncio.TimeoutError:
            raise ClientDisconnect from None

    return sending


@dataclass(frozen=True)
class _Answer:
    """The end of the work, as an answer: an ASGI application."""

    work: Work
    wish: TranscriptionRequest
    written: Written
    desk: AppState
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ClientDisconnect, HTTPException, WitnessError."""
        if self.wish.stream:
            await self._stream(send)
            return
        while not await self.work.ended():
            pass
        body = await run_in_threadpool(self._body, await self._paths())
        kind = answers.TYPES.get(self.wish.response, "application/json")
        headers = {"OpenAI-Model": self._model}
        await Response(body, media_type=kind, headers=headers)(scope, receive, send)

    @property
    def _model(self) -> str:
        """That listens, whatever name was given for it, as a header takes it."""
        return quote(schema.models(self.settings)[0])

    def _body(self, paths: Sequence[Path]) -> str:
        return answers.answer(self.wish, paths, self._tokens())

    def _rest(self, paths: Sequence[Path], told: int) -> list[Mapping[str, Any]]:
        return list(answers.rest(self.wish, paths, told, self._tokens()))

    def _tokens(self) -> answers.Tokens:
        return answers.tokens(self.settings.options) if answers.counts(self.wish) else lambda _: ()

    async def _paths(self) -> list[Path]:
        """What the answer is made of."""
        if self.work.result is not None:
            await run_in_threadpool(jobs.export, self.desk.editor, self.work.result, self.written)
        return [path for _, path in self.written]

    async def _stream(self, send: Send) -> None:
        """Each segment once it is final, and comments meanwhile. What fails is the last event."""
        ended = await self._begun()
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        headers.append((b"openai-model", self._model.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def say(text: str, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        try:
            await say(": begun\n\n")
            told = 0
            while not (ended or await self.work.ended(PACE)):
                segments = self.work.said[:]
                for event in answers.said(self.wish, segments, told):
                    await say(f"data: {json.dumps(event)}\n\n")
                told = len(segments)
                await say(f": {self.work.news}\n\n")
            paths = await self._paths()
            for event in await run_in_threadpool(self._rest, paths, told):
                await say(f"data: {json.dumps(event)}\n\n")
        except HTTPException as error:
            await say(_failed(error.status_code, errors.public(error.detail, self.desk)))
        except WitnessError as error:
            await say(_failed(500, errors.public(str(error), self.desk)))
        await say("data: [DONE]\n\n", more=False)

    async def _begun(self) -> bool:
        """Wait until the recording is read, and tell whether the work has ended.

        So a request whose recording cannot be read is refused with a status, as one without a stream.
        """
        for _ in range(PATIENCE):
            if await self.work.ended(PACE):
                return True
            if self.work.news:
                break
        return False


def _failed(status: int, message: str) -> str:
    """The last event of a stream."""
    return f"data: {bytes(errors.error(status, message).body).decode()}\n\n"
