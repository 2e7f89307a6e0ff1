"""OpenAI's interface, asked by unmodified clients for node: OpenAI's own, and that of the AI SDK."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from conftest import ROOT
from test_serve_openai import MODEL
from test_serve_openai import greeting as greeting
from test_serve_openai import pytestmark as pytestmark
from test_serve_openai import server as server
from test_serve_openai import settings as settings
from witness.serve.openai import schema


def understood(package, script, server, recording):
    """What a client understood of each answer."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / package).is_dir():
        pytest.skip(f"node or {package} for it is not here; npm ci")
    command = [node, str(ROOT / "tests" / "web" / script), server.url, str(recording)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(server, greeting):
    return understood("openai", "openai_client.js", server, greeting)


def test_the_ai_sdk_takes_every_answer_that_it_asks_for(server, greeting):
    found = understood("@ai-sdk/openai", "ai_sdk_client.js", server, greeting)
    segments, words, plain = (found[name] for name in ("segments", "words", "json"))
    assert "service desk" in plain["text"]
    assert [one["text"] for one in segments["segments"]] == [segments["text"]]
    assert (segments["language"], segments["durationInSeconds"]) == ("en", 4.2)
    assert " ".join(one["text"] for one in words["segments"]) == words["text"]
    error = found["refused"]["data"]["error"]
    assert (found["refused"]["status"], error["code"], error["param"]) == (404, "model_not_found", "model")


def test_each_format_says_the_same(found):
    text = found["json"]["text"]
    assert "at the service desk" in text
    assert found["text"].strip() == text
    assert found["srt"].startswith("1\n00:00:0")
    assert found["vtt"].startswith("WEBVTT\n")
    for form in ("verbose", "diarized", "logprobs"):
        assert found[form]["text"] == text
    assert " ".join(word["word"] for word in found["verbose"]["words"]) == text
    assert [one["speaker"] for one in found["diarized"]["segments"]] == ["SPEAKER_01"]
    assert found["logprobs"]["logprobs"]
    assert found["models"] == [MODEL, *schema.ALIASES]


def test_a_stream_is_understood_event_by_event(found):
    kinds = [event["type"] for event in found["events"]]
    assert kinds[-1] == "transcript.text.done"
    assert set(kinds[:-1]) == {"transcript.text.delta"}
    said = "".join(event["delta"] for event in found["events"][:-1])
    done = found["events"][-1]
    assert said == done["text"] == found["json"]["text"]
    assert done["usage"]["type"] == "tokens"
    assert done["logprobs"] == found["logprobs"]["logprobs"]


def test_a_refusal_is_the_client_s_own_error(found):
    refused = found["refused"]
    assert refused["bad"]
    assert (refused["status"], refused["param"]) == (400, "response_format")
    translated = found["translated"]  # by a model that knows English only
    assert (translated["bad"], "cannot translate" in translated["message"]) == (True, True)
