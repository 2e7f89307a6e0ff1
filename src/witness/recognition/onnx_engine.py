"""The child process that runs onnx-asr: `python -m witness.recognition.onnx_engine`.

onnx-asr knows how Parakeet, Canary and other models are made ready for onnxruntime, and how their text is
found. It needs no package but numpy and the onnxruntime that is here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from witness._version import install
from witness.models.session import CPU, one_thread, short_reason
from witness.recognition import engine_worker
from witness.recognition.engine_worker import ChunkResult, DecodeOptions, EngineToken, Load
from witness.schema import SAMPLE_RATE, Float32

LONGEST = 30 * SAMPLE_RATE
"""Samples of a piece: what these models were trained on, and what their memory grows with the square of."""

WORKERS = 4
"""The most pieces at the same time."""
LONGEST_TOKEN = 0.5
"""Seconds; what is left until the next one is a pause."""

INSTALL = f"onnx-asr is not installed; fix: {install('parakeet')}"
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


class OnnxAsrEngine:
    """A loaded model, a `WorkerEngine`. Raises RuntimeError with one line if the folder cannot be used or
    the model fails.

    A second try would find the same text, and a session runs in one thread, so that the text does not
    depend on their number.
    """

    def __init__(self, load: Load) -> None:
        folder = Path(load.model)
        kind = _kind(folder)
        self._model = _load(folder, kind)
        # Only a model with an attention decoder is told what to do; its vocabulary has a token per language.
        self._instructed = self.translates = kind.endswith("-aed")
        vocabulary = folder / "vocab.txt"
        spoken = LANGUAGE.findall(vocabulary.read_text("utf-8")) if self._instructed else []
        self.languages: Sequence[str] = sorted(set(spoken))
        self.device = "cpu"
        self.workers = min(load.threads, WORKERS)
        self.batch = 1
        self.prompts = self.compares_languages = False

    def languages_of(self, samples: Float32, ends: Sequence[int]) -> Sequence[Mapping[str, float]]:  # noqa: ARG002
        """None: these models hear the language and do not tell it. Raises RuntimeError if it must be told."""
        if self._instructed:
            raise RuntimeError("this model cannot tell the language; fix: say which one it is (--language)")
        return []

    def hear(self, pieces: Sequence[Float32], order: DecodeOptions) -> Sequence[ChunkResult]:
        """What is said in each piece."""
        return [self._hear(samples, order) for samples in pieces]

    def count(self, text: str) -> int:  # noqa: ARG002 - `engine_worker.WorkerEngine`
        """Raises RuntimeError: these models take no prompt."""
        raise RuntimeError("this model takes no prompt")

    def _hear(self, samples: Float32, order: DecodeOptions) -> ChunkResult:
        if not 0 < len(samples) <= LONGEST:
            raise RuntimeError(f"a piece of {len(samples)} samples; it takes 1 to {LONGEST}")
        asked: dict[str, str] = {}
        if self._instructed and order.language:
            asked["language"] = order.language
            asked["target_language"] = "en" if order.translate else order.language
        try:
            result = self._model.recognize(samples, sample_rate=SAMPLE_RATE, **asked)
        except Exception as error:  # onnxruntime's and the library's are a dozen unrelated classes
            raise RuntimeError(f"the model failed ({_said(error)})") from error
        return ChunkResult(
            _tokens(result.tokens, result.timestamps, result.logprobs, len(samples) / SAMPLE_RATE),
            order.language,
            logprob=float(np.mean(result.logprobs)) if result.logprobs else None,
        )


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
    return short_reason(error) or type(error).__name__


def _tokens(
    texts: Sequence[str],
    places: Sequence[float] | None,
    logprobs: Sequence[float] | None,
    seconds: float,
) -> list[EngineToken]:
    """The tokens of a piece; those that are not text are left out.

    A token ends where the next one begins, or soon, because none of these models tells it. Those that tell no
    times at all (Canary) have their text spread over the piece, a token as long as the other.
    """
    if places is None:
        places = [seconds * number / max(1, len(texts)) for number in range(len(texts))]
    told = [math.exp(one) for one in logprobs] if logprobs else [None] * len(texts)
    every = zip(texts, places, told, strict=True)
    kept = [(text, place, sure) for text, place, sure in every if not SPECIAL.fullmatch(text)]
    ends = [*(place for _, place, _ in kept[1:]), seconds][: len(kept)]
    tokens: list[EngineToken] = []
    for number, ((text, place, sure), end) in enumerate(zip(kept, ends, strict=True)):
        after = text[1:] or "".join(later for later, *_ in kept[number + 1 : number + 2])
        if text.startswith(" ") and after.startswith(CLOSING):
            text = text[1:]
        last = min(end, place + LONGEST_TOKEN)
        coded = text.encode().decode("latin-1")
        tokens.append(EngineToken(coded, round(100 * place), round(100 * last), sure))
    return tokens


if __name__ == "__main__":
    engine_worker.run(OnnxAsrEngine)
