"""The child process that runs whisper.cpp: `python -m witness.recognition.whisper_cpp`.

A damaged model or a GPU driver can end a process without warning, so whisper.cpp lives alone in one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import _pywhispercpp as pw
import numpy as np

from witness.languages import LANGUAGES
from witness.models.ggml_header import inspect
from witness.recognition import engine
from witness.recognition.engine import Abilities, ChunkResult, DecodeOptions, EngineToken, Load, SpeechEngine
from witness.schema import Float32

LOG_LEVEL_ERROR = 4  # ggml.h

RETURN_CODES = {
    -2: "no spectrogram could be made",
    -3: "the language could not be detected",
    -6: "the encoder failed",
    -7: "there is not enough memory",
    -8: "the decoder failed",
    -9: "the decoder failed",
}
"""Errors that `whisper_full` returns; pywhispercpp's own `transcribe` drops them."""

DISCRETE = re.compile(r"ggml_vulkan: (\d+) = .*\| uma: 0 \|")


class WhisperCppEngine(SpeechEngine):
    """Model of whisper.cpp."""

    def __init__(self, load: Load) -> None:
        self._threads = load.threads
        header = inspect(load.model)
        self._lines: list[str] = []
        self._errors: list[str] = []
        context = pw.whisper_context_default_params()
        context.use_gpu = load.gpu
        # Word times come from the attention of some heads, which flash attention does not keep: with it,
        # whisper.cpp silently leaves the times out. On the CPU it also makes the result depend on the number
        # of threads: docs/decisions/2026-11-22-constants.md, "Flash attention".
        context.flash_attn = False
        context.dtw_token_timestamps = True
        context.dtw_aheads_preset = getattr(pw, f"WHISPER_AHEADS_{header.alignment_heads}")
        context.dtw_n_top = max(1, header.text_layers // 2)  # where no set is published
        # The callback sees lines that go nowhere otherwise, the names of the GPUs among them. It must be gone
        # before the interpreter ends, or its next call is a crash.
        pw.whisper_log_set(self._note)
        try:
            if context.use_gpu:
                pw.whisper_print_system_info()  # the first to ask makes Vulkan list its devices
                if "GGML_VK_VISIBLE_DEVICES" not in os.environ:  # or the first of those
                    context.gpu_device = best_device(self._lines)
            self._context = pw.whisper_init_from_file_with_params(load.model, context)
        finally:
            pw.whisper_log_set(None)
        # A model that does not load is a null pointer and no exception; the first use of it is the crash.
        if any(line.startswith("whisper_init") for line in self._errors):
            raise RuntimeError(self._errors[0])
        # One worker: its own threads share a piece.
        languages = LANGUAGES[: header.languages]
        self.abilities = Abilities(device_name(self._lines), languages, translates=len(languages) > 1)
        self._end = pw.whisper_token_eot(self._context)

    def detect_language(self, samples: Float32) -> str:
        """Return the code of the language of a piece."""
        parameters = _parameters(DecodeOptions(self._threads, None))
        parameters.detect_language = True
        self._run(parameters, samples)
        return self._detected_language()

    def count(self, text: str) -> int:
        """Return the number of tokens of a prompt."""
        # Without room, it writes nothing and returns the negative of the missing room; pywhispercpp can offer
        # room for no more than one token.
        return -int(pw.whisper_tokenize(self._context, f" {text.strip()}", 0, 0))

    def recognize_piece(self, samples: Float32, options: DecodeOptions) -> ChunkResult:
        """Return the text of a piece."""
        self._run(_parameters(options), samples)
        tokens = [
            pw.whisper_full_get_token_data(self._context, segment, number)
            for segment in range(pw.whisper_full_n_segments(self._context))
            for number in range(pw.whisper_full_n_tokens(self._context, segment))
        ]
        text = [token for token in tokens if token.id < self._end]
        return ChunkResult(
            # Not whisper_full_get_token_text: it raises where a token ends inside a character.
            [
                EngineToken(
                    pw.whisper_token_to_bytes(self._context, token.id).decode("latin-1"),
                    None,
                    token.t_dtw,
                    token.p,
                )
                for token in text
            ],
            options.language or self._detected_language(),
            ended=not tokens or tokens[-1].id == self._end,
            logprob=sum(token.plog for token in text) / len(text) if text else None,
        )

    def _detected_language(self) -> str:
        return str(pw.whisper_lang_str(pw.whisper_full_lang_id(self._context)))

    def _run(self, parameters: Any, samples: Float32) -> None:
        code = pw.whisper_full(self._context, parameters, np.ascontiguousarray(samples), len(samples))
        if code != 0:
            raise RuntimeError(f"{RETURN_CODES.get(code, 'it failed')} (whisper_full returned {code})")

    def _note(self, level: int, text: str) -> None:
        sys.stderr.write(text)
        line = " ".join(text.split())
        if line:
            self._lines.append(line)
            if level == LOG_LEVEL_ERROR:
                self._errors.append(line)


def _parameters(options: DecodeOptions) -> Any:
    """Return parameters for `whisper_full`: new ones for each call, because they keep earlier settings."""
    strategies = pw.whisper_sampling_strategy
    parameters = pw.whisper_full_default_params(
        strategies.WHISPER_SAMPLING_GREEDY if options.greedy else strategies.WHISPER_SAMPLING_BEAM_SEARCH
    )
    parameters.n_threads = options.threads
    parameters.language = options.language or "auto"
    parameters.translate = options.translate
    if options.prompt:
        parameters.initial_prompt = f" {options.prompt.strip()}"
    parameters.print_progress = False
    # Each piece on its own, so that a text that has gone wrong is not carried on.
    parameters.no_context = True
    # A piece fits whisper's window, so its time stamps are not needed to find the next one. A wrong stamp
    # would make whisper.cpp hear a part twice or not at all, and one below 0.16 s aborts the process: the
    # median filter of the word times is wider than that.
    parameters.no_timestamps = True
    # Against invented text: no sound effects, and another, bolder try where the text is improbable, repeats
    # itself (entropy) or never ends.
    parameters.suppress_blank = True
    parameters.suppress_nst = True
    parameters.no_speech_thold = 0.6
    parameters.logprob_thold = -1.0
    parameters.entropy_thold = 2.4
    parameters.temperature_inc = 0.2
    return parameters


def best_device(lines: Sequence[str]) -> int:
    """Return Vulkan's number of the first discrete card that whisper.cpp printed in `lines`, or 0.

    whisper.cpp itself takes the first device, on many desktops the processor's own. ("uma: 1": it shares the
    machine's memory.)
    """
    return next((int(match[1]) for line in lines if (match := DISCRETE.match(line))), 0)


def device_name(lines: Sequence[str]) -> str:
    """Find the device in lines that whisper.cpp printed while loading: "cpu", "vulkan: <name>", "metal"."""
    text = "\n".join(lines)
    backend = re.search(r"^whisper_backend_init_gpu: using ([A-Za-z]+)(\d*) backend", text, re.M)
    if not backend or "whisper_backend_init_gpu: failed" in text:
        return "cpu"
    api, number = backend[1].lower(), backend[2] or "0"
    name = re.search(rf"^ggml_vulkan: {number} = (.+) \([^()]*\) \| ", text, re.M)
    return f"{api}: {name[1]}" if name else api


if __name__ == "__main__":
    engine.run(WhisperCppEngine)
