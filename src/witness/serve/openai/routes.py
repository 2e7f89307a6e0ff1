"""Routes of OpenAI's transcription interface, for programs that speak it already.

A request has its turn before the recordings of the folder and leaves nothing in it, and the work ends when
the client leaves; unless the recording is kept, which puts it among those of the folder.
"""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from witness import languages
from witness.errors import InputError, UsageError, WitnessError
from witness.formats.output_paths import name_of
from witness.formats.registry import Format
from witness.models import recognizers, store
from witness.models.ct2_header import TOKENIZER
from witness.options import Options, PageAudio
from witness.serve import editing, errors
from witness.serve.app_state import AppState, discard
from witness.serve.endpoints import Endpoint, queue_of, respond
from witness.serve.openai import schema
from witness.serve.openai.schema import TranscriptionRequest
from witness.serve.queue import Queue
from witness.serve.roles import Role
from witness.serve.routes.recordings import ALIVE, EventStream, wait_until_gone
from witness.serve.uploads import Form, Upload
from witness.serve.worker import Worker
from witness.storage.files import read
from witness.work.produce import Job, Outcome, Segment, Settings, Watcher, Writing

Targets = Sequence[tuple[Format, Path]]
"""Formats, and the files that the answer is made of."""
TYPES = {"text": "text/plain; charset=utf-8", "srt": "text/plain; charset=utf-8", "vtt": "text/vtt"}
"""Media types of answers other than JSON."""
LEAST_PROBABILITY = 0.0005
"""Stands for a probability that was rounded to 0."""
FRAMES = 100
"""Frames of Whisper in a second; `seek` counts them."""
POSITIONS = 50
"""Positions of Whisper's encoder in a second: the input tokens."""
UNKNOWN = "unknown"
"""Stands for the language of a recording without speech: clients need a string."""

Tokens = Callable[[str], Sequence[int]]
"""Returns the numbers of a text's tokens."""

AT_ONCE = 100
"""Requests that may be sent, wait and be worked on at the same time."""
LONGEST = 6 * 3600.0
"""Seconds that a request may take once its recording has arrived."""
PACE = 1.0
"""Seconds between two comments of a stream."""
PATIENCE = 10
"""Times `PACE` that a stream waits to begin, unless the work has begun."""
_STATUS = {UsageError.exit_code: 400, InputError.exit_code: 400}


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/v1/models", Role.READ, list_models),
        Endpoint("GET", "/v1/models/{name:path}", Role.READ, show_model),
        Endpoint("POST", "/v1/audio/transcriptions", Role.WRITE, Transcriptions()),
        Endpoint("POST", "/v1/audio/translations", Role.WRITE, Transcriptions(translate=True)),
    ]


async def list_models(request: Request) -> Response:
    """List the names that a request may give as its model."""
    settings = await asyncio.wrap_future(queue_of(request).models.request())
    return respond({"object": "list", "data": [_model(name) for name in schema.models(settings)]})


async def show_model(request: Request) -> Response:
    """Describe a model."""
    settings = await asyncio.wrap_future(queue_of(request).models.request())
    if not schema.is_model(name := request.path_params["name"], settings):
        why = "is not here; GET /v1/models lists those that are"
        raise errors.FieldError("model", why, "model_not_found")
    return respond(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "witness"}


_requests: set[object] = set()
"""The current requests."""


class Transcriptions:
    """An ASGI application: the recording must stay until the answer is sent."""

    def __init__(self, *, translate: bool = False) -> None:
        self._translate = translate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises HTTPException, UsageError before anything is sent."""
        request = Request(scope, receive)
        if len(_requests) >= AT_ONCE:
            await discard(request.receive)
            raise HTTPException(429, f"{AT_ONCE} requests are at work; try again", {"Retry-After": "30"})
        _requests.add(request)
        desk = request.app.state.desk
        try:
            async with desk.uploads.received(request) as form:
                recording = _only_upload(form)
                settings = await asyncio.wrap_future(desk.queue.models.request())
                asked = schema.parse(form.fields, settings, translate=self._translate)
                targets = [(form_, Path(name_of(form.folder / "result", form_))) for form_ in asked.formats]
                if asked.keep:
                    working = keep(desk.queue, desk.folder, recording, receive)
                else:
                    samples = await run_in_threadpool(_write_samples, asked, form.folder)
                    job = replace(_job(recording, asked, targets, settings), samples=samples)
                    working = transcribe(desk.queue, job, recording, receive)
                with suppress(ClientDisconnect):
                    async with working as work:
                        answer = await _Answer(work, asked, targets, desk, settings).respond()
                        await answer(scope, receive, send)
        finally:
            _requests.discard(request)


def _only_upload(form: Form) -> Upload:
    """Return the recording of a form. Raises UsageError unless there is exactly one."""
    if [upload.field for upload in form.uploads] != ["file"]:
        raise errors.FieldError("file", "send one recording in the field `file`, with its file name")
    return form.uploads[0]


def _job(recording: Upload, asked: TranscriptionRequest, targets: Targets, settings: Settings) -> Job:
    settings = replace(settings, options=asked.options, writing=Writing(False, PageAudio.NONE))
    return Job(str(recording.path), tuple(targets), settings, resumable=False)


def _write_samples(asked: TranscriptionRequest, folder: Path) -> tuple[tuple[str, str], ...]:
    """Write the samples of known speakers to files without endings, and return names and paths."""
    samples = []
    for number, (name, sample) in enumerate(asked.known):
        path = folder / f"known-{number}"
        path.write_bytes(sample)
        samples.append((name, str(path)))
    return tuple(samples)


# --- the work that a request waits for ---


@asynccontextmanager
async def transcribe(queue: Queue, job: Job, recording: Upload, receive: Receive) -> AsyncIterator[Work]:
    """Have a job done, and cancel it at the end if it is not done by then."""
    work = Work(recording, receive)
    future = queue.submit(job, Watcher(work.report, work.take))
    future.add_done_callback(lambda done: work.end(_outcome(done)))
    try:
        yield work
    finally:
        work.gone.cancel()
        if not future.done():  # also for a request that is canceled
            await asyncio.shield(asyncio.to_thread(queue.stop, future))


def _outcome(future: Future[Outcome]) -> Outcome | None:
    return None if future.cancelled() or future.exception() is not None else future.result()


@asynccontextmanager
async def keep(queue: Queue, folder: Path, recording: Upload, receive: Receive) -> AsyncIterator[Work]:
    """Queue a recording in the folder, where its work goes on after the end."""
    work = Work(recording, receive)
    (job,) = await run_in_threadpool(queue.add, [(recording.path, recording.name)])
    work.result = folder / name_of(job.output, Format.JSON)
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(look)

    def look() -> None:
        news = listener.take()
        for status in news or ():
            if status.id == job.id:
                work.report(status.stage or status.state, status.share, 1.0)
                work.take(0, status.said)
                if status.state not in ("waiting", "working"):
                    done = status.state == "done"
                    work.end(Outcome() if done else Outcome(status.why or "it was canceled", 1))
        if news is None:
            work.end(None)

    listener = queue.board.listen(wake)
    try:
        yield work
    finally:
        work.gone.cancel()
        queue.board.forget(listener)


def export(editor: Worker, transcript: Path, targets: Targets) -> None:
    """Write a transcript in other formats. Raises WitnessError, OSError."""
    for form, path in targets:
        path.write_bytes(editor.call(editing.export, transcript, form)[1])


class Work:
    """The work on a recording that a client waits for."""

    def __init__(self, recording: Upload, receive: Receive) -> None:
        self.news = ""
        """Stage and percentage."""
        self.said: list[Segment] = []
        """Final segments so far."""
        self.result: Path | None = None
        """The transcript, if it is kept."""
        self.gone = asyncio.ensure_future(wait_until_gone(receive))
        """Done when the client has left."""
        self._recording = recording
        self._loop = asyncio.get_running_loop()
        self._late = self._loop.time() + LONGEST
        self._outcome: asyncio.Future[Outcome | None] = self._loop.create_future()

    def report(self, stage: str, done: float, total: float) -> None:
        """Take progress, as `Watcher.progress`."""
        self.news = f"{stage} {100 * done / total:.0f} %" if total > 0 else stage

    def take(self, first: int, segments: Sequence[Segment]) -> None:
        """Take final segments, as `Watcher.said`; another worker may send some again."""
        self.said += segments[max(0, len(self.said) - first) :]

    def end(self, outcome: Outcome | None) -> None:
        """Take the outcome, in any thread; None: the work cannot end."""

        def take() -> None:
            if not self._outcome.done():
                self._outcome.set_result(outcome)

        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(take)

    async def ended(self, seconds: float = ALIVE) -> bool:
        """Tell whether the work ends within a time.

        Raises ClientDisconnect if the client has left, HTTPException if the work failed or takes too long.
        """
        either: set[asyncio.Future[Any]] = {self._outcome, self.gone}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._outcome.done():
            self._check(self._outcome.result())
            return True
        if self.gone.done():
            raise ClientDisconnect
        if self._loop.time() > self._late:
            raise HTTPException(504, f"it took longer than {LONGEST / 3600:g} h; send a shorter recording")
        return False

    def _check(self, outcome: Outcome | None) -> None:
        if outcome is None:
            raise HTTPException(503, "the server is ending, or its worker cannot be started; try again later")
        if outcome.error is None:
            return
        status = 507 if outcome.full else _STATUS.get(outcome.code, 500)
        # The client knows the recording by the name that it sent.
        raise HTTPException(status, outcome.error.replace(str(self._recording.path), self._recording.name))


@dataclass(frozen=True)
class _Answer:
    """The answer to a request."""

    work: Work
    asked: TranscriptionRequest
    targets: Targets
    desk: AppState
    settings: Settings

    async def respond(self) -> Response:
        """Return the answer, when the work has ended or its stream can begin.

        Raises ClientDisconnect, HTTPException, WitnessError.
        """
        # The desk's own model, whatever name the request gave, as a header takes it.
        headers = {"OpenAI-Model": quote(schema.models(self.settings)[0])}
        if self.asked.stream:
            return EventStream(self._events(await self._begun()), headers)
        while not await self.work.ended():
            pass
        body = await run_in_threadpool(lambda: answer_body(self.asked, self._paths(), self._tokens()))
        media_type = TYPES.get(self.asked.response, "application/json")
        return Response(body, media_type=media_type, headers=headers)

    async def _begun(self) -> bool:
        """Wait until the recording is read, and tell whether the work has ended.

        So a recording that cannot be read has an error status, as in an answer without a stream.
        """
        for _ in range(PATIENCE):
            if await self.work.ended(PACE):
                return True
            if self.work.news:
                break
        return False

    async def _events(self, ended: bool) -> AsyncIterator[str]:
        """Yield each segment once it is final, and comments meanwhile; an error is the last event."""
        yield ": begun\n\n"
        try:
            sent = 0
            while not (ended or await self.work.ended(PACE)):
                segments = self.work.said[:]
                for event in stream_events(self.asked, segments, sent):
                    yield f"data: {json.dumps(event)}\n\n"
                sent = len(segments)
                yield f": {self.work.news}\n\n"
            for event in await run_in_threadpool(self._last_events, sent):
                yield f"data: {json.dumps(event)}\n\n"
        except (HTTPException, WitnessError) as error:
            status = error.status_code if isinstance(error, HTTPException) else 500
            message = error.detail if isinstance(error, HTTPException) else str(error)
            body = errors.error(status, errors.public(message, self.desk)).body
            yield f"data: {bytes(body).decode()}\n\n"
        yield "data: [DONE]\n\n"

    def _last_events(self, sent: int) -> list[Mapping[str, Any]]:
        return list(final_events(self.asked, self._paths(), sent, self._tokens()))

    def _tokens(self) -> Tokens:
        return tokenizer(self.settings.options) if needs_tokens(self.asked) else lambda _: ()

    def _paths(self) -> list[Path]:
        """Return the files of the transcript. Raises WitnessError, OSError."""
        if self.work.result is not None:
            export(self.desk.editor, self.work.result, self.targets)
        return [path for _, path in self.targets]


# --- the shapes of answers ---
#
# In the package openai, the classes Transcription, TranscriptionVerbose, TranscriptionDiarized, Translation,
# TranslationVerbose and the events TranscriptionText...; tests/test_serve_openai.py holds them against these.


@lru_cache(maxsize=1)
def tokenizer(options: Options) -> Tokens:
    """Return the model's tokenizer; without one, all texts have no tokens. Raises ModelError."""
    model = store.recognizer_model(options, gpu=None, available=recognizers.installed())
    path = Path(model.path) / TOKENIZER if model is not None else Path()
    if not path.is_file():
        return lambda _: ()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids if text else ()


def needs_tokens(asked: TranscriptionRequest) -> bool:
    """Tell whether the answer needs the numbers of tokens."""
    return asked.stream or (asked.response == "verbose_json" and "segment" in asked.granularities)


def answer_body(asked: TranscriptionRequest, paths: Sequence[Path], tokens: Tokens) -> str:
    """Return the answer; `paths` are the files of the request's formats. Raises OSError."""
    texts = [read(path).decode() for path in paths]
    if asked.response in ("srt", "vtt"):
        return texts[0]
    document, *words = map(json.loads, texts)
    if asked.response == "text":
        return f"{document['text']}\n"
    content = {"text": document["text"]}
    if asked.response == "diarized_json":
        content = document
    elif asked.response == "verbose_json":
        content = _verbose(asked, document, words[0], tokens)
    elif asked.logprobs:
        content["logprobs"] = _logprobs(words[0])
    usage = {"usage": {"type": "duration", "seconds": document["duration"]}}
    return json.dumps({**content, **usage}, ensure_ascii=False)


def stream_events(
    asked: TranscriptionRequest, segments: Sequence[Mapping[str, Any]], sent: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a stream for segments after the first `sent`."""
    diarized = asked.response == "diarized_json"
    before = " " if any(segment["text"] for segment in segments[:sent]) else ""
    for segment in segments[sent:]:
        if segment["text"]:
            delta = {"type": "transcript.text.delta", "delta": before + segment["text"]}
            yield {**delta, "segment_id": segment["id"]} if diarized else delta
            before = " "
        if diarized:
            yield segment


def final_events(
    asked: TranscriptionRequest, paths: Sequence[Path], sent: int, tokens: Tokens
) -> Iterator[Mapping[str, Any]]:
    """Yield the events after the end of the work; `paths` as in `body`. Raises OSError."""
    document, *words = (json.loads(read(path)) for path in paths)
    yield from stream_events(asked, document["segments"], sent)
    # The answer without a stream has seconds; typed clients expect tokens here.
    came, went = round(POSITIONS * document["duration"]), len(tokens(document["text"]))
    usage = {"type": "tokens", "input_tokens": came, "output_tokens": went, "total_tokens": came + went}
    done = {"type": "transcript.text.done", "text": document["text"], "usage": usage}
    yield {**done, "logprobs": _logprobs(words[0])} if words else done


def _verbose(
    asked: TranscriptionRequest, document: dict[str, Any], words: dict[str, Any], tokens: Tokens
) -> dict[str, Any]:
    """Return OpenAI's fields, and the speakers.

    `temperature` is 0 because the search is deterministic, and `no_speech_prob` because clients need a number
    and recognizers know it of windows only. `avg_logprob` is the mean over words.
    """
    spoken = "en" if asked.options.translate else words["language"]
    content: dict[str, Any] = {
        "task": "translate" if asked.options.translate else "transcribe",
        "language": languages.NAMES.get(spoken, UNKNOWN),
        "duration": document["duration"],
        "text": document["text"],
    }
    if "segment" in asked.granularities:
        content["segments"] = [
            {
                "id": number,
                "seek": round(segment["start"] * FRAMES),
                "start": segment["start"],
                "end": segment["end"],
                "text": segment["text"],
                "tokens": list(tokens(segment["text"])),
                "temperature": 0.0,
                "avg_logprob": _mean_logprob(segment["words"]),
                "compression_ratio": _compression(segment["text"]),
                "no_speech_prob": 0.0,
                "speaker": segment["speaker"],
            }
            for number, segment in enumerate(words["segments"])
        ]
    if "word" in asked.granularities:
        named = {"score": "probability"}
        content["words"] = [
            {named.get(key, key): value for key, value in word.items()} for word in words["word_segments"]
        ]
    return content


def _logprobs(words: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_logprob(word) for word in words["word_segments"] if "score" in word]


def _logprob(word: Mapping[str, Any]) -> dict[str, Any]:
    """Return a word's probability, where OpenAI has those of tokens."""
    text = f" {word['word']}"
    value = math.log(max(word["score"], LEAST_PROBABILITY))
    return {"token": text, "bytes": list(text.encode()), "logprob": round(value, 4)}


def _mean_logprob(words: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean of the words' log probabilities; 0 without any, because clients need a number."""
    values = [math.log(max(word["score"], LEAST_PROBABILITY)) for word in words if "score" in word]
    return round(sum(values) / len(values), 3) if values else 0.0


def _compression(text: str) -> float:
    """Return the ratio of openai/whisper, utils.py, compression_ratio."""
    content = text.encode()
    return round(len(content) / len(zlib.compress(content)), 3) if content else 0.0
