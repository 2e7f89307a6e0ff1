"""The child process that runs onnx-asr: `python -m witness.recognition.onnx_engine`.

onnx-asr prepares the input of Parakeet, Canary and other models for onnxruntime, and decodes their text. It
needs numpy and the installed onnxruntime only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from witness._version import install
from witness.models.session import CPU, one_thread, short_reason
from witness.recognition import engine
from witness.recognition.engine import Abilities, ChunkResult, DecodeOptions, EngineToken, Load, SpeechEngine
from witness.schema import SAMPLE_RATE, Float32

LONGEST = 30 * SAMPLE_RATE
"""Samples of a piece: these models were trained on at most so many, and memory grows with their square."""

WORKERS = 4
"""Most pieces at the same time."""
LONGEST_TOKEN = 0.5
"""Seconds; the rest until the next token is a pause."""

QUANTIZED = re.compile(r"[._-](u?int8|q8|int4|uint4|q4|q4f16|bnb4|quantized)(?=[._-])")
"""In the name of a file whose weights have 8 bits or less: such exports of Parakeet lose words, mostly in
pieces over 20 s (github.com/istupakov/onnx-asr/issues/126, github.com/k2-fsa/sherpa-onnx/issues/2605)."""
HALF = re.compile(r"[._-]fp16(?=[._-])")
"""In the name of a file in half precision; the file in full precision has the same name without it."""
FULL = "quantized models lose words; fix: get the files in full precision (encoder-model.onnx and so on)"
INTEGER = {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}
INTEGER |= {"DequantizeLinear", "MatMulNBits"}
"""Operators of quantized models, under any name of the file."""

SPECIAL = re.compile(r"<.*>")
"""A token that is not text: <unk>, <pad>, <|en|>."""
LANGUAGE = re.compile(r"<\|([a-z]{2})\|>")
CLOSING = tuple(".,?!;:…%)]}")
"""Characters that follow a word without a space. SentencePiece may put one there; onnx-asr omits it."""


class OnnxAsrEngine(SpeechEngine):
    """Model of onnx-asr.

    A session runs in one thread, so that the text does not depend on the number of threads.
    """

    def __init__(self, load: Load) -> None:
        folder = Path(load.model)
        model_type = _model_type(folder)
        self._model = _load(folder, model_type)
        # Only a model with an attention decoder takes instructions; its vocabulary has a token per language.
        self._instructed = model_type.endswith("-aed")
        vocabulary = folder / "vocab.txt"
        spoken = LANGUAGE.findall(vocabulary.read_text("utf-8")) if self._instructed else []
        self.abilities = Abilities(
            "cpu",
            sorted(set(spoken)),
            workers=min(load.threads, WORKERS),
            prompts=False,
            translates=self._instructed,
            repeats_above=0.0,
        )

    def detect_languages(self, samples: Float32, ends: Sequence[int]) -> Sequence[dict[str, float]]:  # noqa: ARG002
        """Return nothing: these models do not tell the language. Raises RuntimeError if they need it."""
        if self._instructed:
            raise RuntimeError("this model cannot tell the language; fix: say which one it is (--language)")
        return []

    def count(self, text: str) -> int:  # noqa: ARG002 - `SpeechEngine`
        """Raise RuntimeError: these models take no prompt."""
        raise RuntimeError("this model takes no prompt")

    def recognize_piece(self, samples: Float32, options: DecodeOptions) -> ChunkResult:
        """Return the text of a piece."""
        if not 0 < len(samples) <= LONGEST:
            raise RuntimeError(f"a piece of {len(samples)} samples; it takes 1 to {LONGEST}")
        instructions: dict[str, str] = {}
        if self._instructed and options.language:
            instructions["language"] = options.language
            instructions["target_language"] = "en" if options.translate else options.language
        try:
            result = self._model.recognize(samples, sample_rate=SAMPLE_RATE, **instructions)
        except Exception as error:  # onnxruntime's and the library's are a dozen unrelated classes
            raise RuntimeError(f"the model failed ({_describe(error)})") from error
        return ChunkResult(
            _tokens(result.tokens, result.timestamps, result.logprobs, len(samples) / SAMPLE_RATE),
            options.language,
            logprob=float(np.mean(result.logprobs)) if result.logprobs else None,
        )


def _model_type(folder: Path) -> str:
    """Read the type of the model in its config.json. Raises RuntimeError."""
    if not folder.is_dir():
        raise RuntimeError("it is not a folder; fix: name the folder that holds the model's files")
    try:
        model_type = json.loads((folder / "config.json").read_bytes())["model_type"]
    except FileNotFoundError:
        raise RuntimeError("it has no config.json; fix: copy all files of the model") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"its config.json names no model_type ({_describe(error)})"
        raise RuntimeError(f"{why}; fix: copy it again") from error
    if not isinstance(model_type, str):
        raise RuntimeError(f"its config.json names the model_type {model_type!r}; fix: copy it again")
    return model_type


def _load(folder: Path, model_type: str) -> Any:
    """Load the model in full precision or else in half. Raises RuntimeError."""
    try:
        import onnx_asr
        from onnx_asr.utils import ModelFileNotFoundError
    except ImportError as error:
        missing = f"onnx-asr is not installed; fix: {install('parakeet')}"
        raise RuntimeError(missing if error.name == "onnx_asr" else f"onnx-asr: {error}") from error
    files = [file for file in folder.glob("*.onnx") if not QUANTIZED.search(file.name)]
    for file in files:
        _check_precision(file)
    halves = {name for file in files if (name := HALF.sub("", file.name)) != file.name}
    try:
        # The folder exists, so the library opens no socket.
        model = onnx_asr.load_model(
            model_type,
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
        raise RuntimeError(
            f"onnx-asr cannot use it ({_describe(error)}); fix: copy all files again"
        ) from error
    return model.with_timestamps()


def _check_precision(file: Path) -> None:
    """Raise RuntimeError if the file is quantized or not a model."""
    import onnx

    try:
        model = onnx.load(file, load_external_data=False)
    except Exception as error:  # protobuf's
        raise RuntimeError(f"{file.name} is damaged or not an ONNX file; fix: copy it again") from error
    if INTEGER & {node.op_type for node in model.graph.node}:
        raise RuntimeError(f"{file.name} is quantized, and {FULL}")


def _describe(error: Exception) -> str:
    return short_reason(error) or type(error).__name__


def _tokens(
    texts: Sequence[str],
    starts: Sequence[float] | None,
    logprobs: Sequence[float] | None,
    seconds: float,
) -> list[EngineToken]:
    """Return the tokens of a piece that are text.

    A token ends where the next one begins, or LONGEST_TOKEN later, because these models tell no ends. Models
    without any times (Canary) have their tokens spread evenly over the piece.
    """
    if starts is None:
        starts = [seconds * number / max(1, len(texts)) for number in range(len(texts))]
    probabilities = [math.exp(logprob) for logprob in logprobs] if logprobs else [None] * len(texts)
    rows = [row for row in zip(texts, starts, probabilities, strict=True) if not SPECIAL.fullmatch(row[0])]
    ends = [*(start for _, start, _ in rows[1:]), seconds][: len(rows)]
    tokens: list[EngineToken] = []
    for number, ((text, start, probability), end) in enumerate(zip(rows, ends, strict=True)):
        after = text[1:] or "".join(later for later, *_ in rows[number + 1 : number + 2])
        if text.startswith(" ") and after.startswith(CLOSING):
            text = text[1:]
        last = min(end, start + LONGEST_TOKEN)
        coded = text.encode().decode("latin-1")
        tokens.append(EngineToken(coded, round(100 * start), round(100 * last), probability))
    return tokens


if __name__ == "__main__":
    engine.run(OnnxAsrEngine)
