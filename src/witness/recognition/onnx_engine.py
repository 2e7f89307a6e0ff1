"""The child process that runs onnx-asr: `python -m witness.recognition.onnx_engine`.

onnx-asr knows how Parakeet, Canary and other models are made ready for onnxruntime, and how their text is
found. It needs no package but numpy and the onnxruntime that is here. Its requests and replies, as
`witness.child` carries them:

    {"model": folder, "gpu": bool, "workers": n}
        -> {"device": "cpu", "languages": [codes], "detects": bool, "translates": bool, "prompts": bool}
    {"threads": n, "language": code or null, "task": "transcribe" or "translate", "prompt": text,
     "careful": bool} + float32
        -> {"ended": true, "language": code or null, "tokens": [...], "logprob": number or null}

The payload is up to 30 seconds of samples, mono at 16 kHz. A token is [its bytes as Latin-1, its start in
1/100 s from the first sample, its end]; the end is null, because none of these models tells it, and so is the
start with those that tell no times (Canary). `languages` is empty where a model does not say what it knows.

`gpu`, `workers`, `threads` and `careful` change nothing: a session runs on the CPU in one thread, so that the
text does not depend on their number, and a second try would find the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from witness.child import Buffer, Message, serve
from witness.schema import SAMPLE_RATE, Float32
from witness.sessions import CPU, one_thread, reason

LONGEST = 30 * SAMPLE_RATE
"""Samples of a piece: what these models were trained on, and what their memory grows with the square of."""

INSTALL = "onnx-asr is not installed; fix: pip install 'witness[parakeet]'"
QUANTIZED = re.compile(r"[._-](u?int8|q8|int4|uint4|q4|q4f16|bnb4|quantized)(?=[._-])")
"""In the name of a file whose weights have 8 bits or less: such exports of Parakeet lose words, mostly in
pieces over 20 s (github.com/istupakov/onnx-asr/issues/126, github.com/k2-fsa/sherpa-onnx/issues/2605)."""
HALF = re.compile(r"[._-]fp16(?=[._-])")
"""In the name of a file in half precision; the full one is called the same without it."""
FULL = "quantized models lose words; fix: get the files in full precision (encoder-model.onnx and so on)"
INTEGER = {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}
INTEGER |= {"DequantizeLinear", "MatMulNBits"}
"""What a quantized model computes with, whatever its file is called."""

SPECIAL = re.compile(r"<.*>")
"""A token that is not text: <unk>, <pad>, <|en|>."""
LANGUAGE = re.compile(r"<\|([a-z]{2})\|>")
CLOSING = tuple(".,?!;:…%)]}")
"""What no space comes before. SentencePiece may put one there, which onnx-asr's own text leaves out."""


class _Server:
    """Loads the model of the first request, and then answers with it."""

    def __init__(self) -> None:
        self._engine: _Engine | None = None

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        """As the module's docstring says. Raises RuntimeError."""
        if self._engine is None:
            self._engine = _Engine(Path(request["model"]))
            return self._engine.abilities, ()
        return self._engine.answer(np.frombuffer(payload, np.float32), request), ()


class _Engine:
    """A loaded model. Raises RuntimeError with one line if the folder cannot be used or the model fails."""

    def __init__(self, folder: Path) -> None:
        kind = _kind(folder)
        self._model = _load(folder, kind)
        # Only a model with an attention decoder is told what to do; its vocabulary has a token per language.
        self._instructed = kind.endswith("-aed")
        vocabulary = folder / "vocab.txt"
        spoken = LANGUAGE.findall(vocabulary.read_text("utf-8")) if self._instructed else []
        self._languages = sorted(set(spoken))

    @property
    def abilities(self) -> Message:
        """The reply to the first request."""
        return {
            "device": "cpu",
            "languages": self._languages,
            "detects": False,
            "translates": self._instructed,
            "prompts": False,
        }

    def answer(self, samples: Float32, request: Message) -> Message:
        """The reply to a request that comes with samples: (n,) mono at 16 kHz."""
        if not 0 < len(samples) <= LONGEST:
            raise RuntimeError(f"a piece of {len(samples)} samples; it takes 1 to {LONGEST}")
        if request["prompt"]:
            raise RuntimeError("models that onnx-asr runs take no prompt; fix: leave it out")
        language: str | None = request["language"]
        asked: dict[str, str] = {}
        if self._instructed:
            if language is None:
                raise RuntimeError("this model cannot tell the language; fix: say which one it is")
            asked["language"] = language
        if request["task"] == "translate":
            if not self._instructed:
                raise RuntimeError("this model cannot translate; fix: use Whisper or Canary")
            asked["target_language"] = "en"
        try:
            result = self._model.recognize(samples, sample_rate=SAMPLE_RATE, **asked)
        except Exception as error:  # onnxruntime's and the library's are a dozen unrelated classes
            raise RuntimeError(f"the model failed ({_said(error)})") from error
        places = result.timestamps or [None] * len(result.tokens)
        return {
            "ended": True,
            "language": language,
            "tokens": _tokens(result.tokens, places),
            "logprob": float(np.mean(result.logprobs)) if result.logprobs else None,
        }


def _kind(folder: Path) -> str:
    """The kind of model, as its config.json names it. Raises RuntimeError."""
    if not folder.is_dir():
        raise RuntimeError("it is not a folder; fix: name the folder that holds the model's files")
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    except FileNotFoundError:
        raise RuntimeError("it has no config.json; fix: copy all files of the model") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"its config.json names no model_type ({_said(error)})"
        raise RuntimeError(f"{why}; fix: copy it again") from error
    if not isinstance(kind, str):
        raise RuntimeError(f"its config.json names the model_type {kind!r}; fix: copy it again")
    return kind


def _load(folder: Path, kind: str) -> Any:
    """The model, in full precision or else in half. Raises RuntimeError."""
    try:
        import onnx_asr
        from onnx_asr.utils import ModelFileNotFoundError
    except ImportError as error:
        raise RuntimeError(INSTALL if error.name == "onnx_asr" else f"onnx-asr: {error}") from error
    files = [file for file in folder.glob("*.onnx") if not QUANTIZED.search(file.name)]
    for file in files:
        _check_precision(file)
    halves = {name for file in files if (name := HALF.sub("", file.name)) != file.name}
    try:
        # The folder exists, so the library opens no socket.
        model = onnx_asr.load_model(
            kind,
            folder,
            quantization="fp16" if halves - {file.name for file in files} else None,
            sess_options=one_thread(),
            providers=[CPU],
        )
    except ModelFileNotFoundError as error:
        if len(files) < len(list(folder.glob("*.onnx"))):
            raise RuntimeError(f"it has quantized files only, and {FULL}") from error
        raise RuntimeError(f"it is incomplete: {error} fix: copy all files of the model") from error
    except Exception as error:  # as those of `recognize`
        raise RuntimeError(f"onnx-asr cannot use it ({_said(error)}); fix: copy all files again") from error
    return model.with_timestamps()


def _check_precision(file: Path) -> None:
    """Raise RuntimeError if the file is a quantized model, or none."""
    import onnx

    try:
        model = onnx.load(file, load_external_data=False)
    except Exception as error:  # protobuf's
        raise RuntimeError(f"{file.name} is damaged or not an ONNX file; fix: copy it again") from error
    if INTEGER & {node.op_type for node in model.graph.node}:
        raise RuntimeError(f"{file.name} is quantized, and {FULL}")


def _said(error: Exception) -> str:
    return reason(error) or type(error).__name__


def _tokens(texts: Sequence[str], places: Sequence[float | None]) -> list[list[str | int | None]]:
    """The tokens of the reply; those that are not text are left out."""
    kept = [(text, place) for text, place in zip(texts, places, strict=True) if not SPECIAL.fullmatch(text)]
    tokens: list[list[str | int | None]] = []
    for number, (text, place) in enumerate(kept):
        after = text[1:] or "".join(later for later, _ in kept[number + 1 : number + 2])
        if text.startswith(" ") and after.startswith(CLOSING):
            text = text[1:]
        start = None if place is None else round(100 * place)
        tokens.append([text.encode().decode("latin-1"), start, None])
    return tokens


if __name__ == "__main__":
    serve(_Server().answer)
