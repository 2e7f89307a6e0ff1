"""The child process that runs whisper.cpp: `python -m witness.recognition.child`, started by `recognizer`.

A damaged model or a GPU driver can end a process without warning, so whisper.cpp lives alone in one. Its
requests and replies, as `witness.child` carries them:

    {"model": path, "gpu": bool}                      ->  {"device": name, "languages": n}
    {"threads": n, "language": null} + float32        ->  {"language": code}
    {"threads": n, "language": code} + float32        ->  {"ended": bool, "tokens": [...]}

The payload is 1 to 30 seconds of samples, mono at 16 kHz. A token is [its bytes as Latin-1, its end in
1/100 s from the first sample]; `ended` is false if whisper never came to the end of the text. `languages` is
how many of whisper's the model knows, English alone or nearly all.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _pywhispercpp as pw
import numpy as np
import numpy.typing as npt

from witness.child import Buffer, Message, serve

LOG_LEVEL_ERROR = 4  # ggml.h

RETURN_CODES = {
    -2: "no spectrogram could be made",
    -3: "the language could not be found out",
    -6: "the encoder failed",
    -7: "there is not enough memory",
    -8: "the decoder failed",
    -9: "the decoder failed",
}
"""What `whisper_full` returns; pywhispercpp's own `transcribe` drops it."""

MAGIC = 0x67676D6C  # "ggml"
ENGLISH_ONLY, MULTILINGUAL = 51864, 51865  # tokens; from this number whisper.cpp derives the special ones
ALIGNMENT_HEADS = {
    (4, 4, 6): "TINY",
    (6, 6, 8): "BASE",
    (12, 12, 12): "SMALL",
    (24, 24, 16): "MEDIUM",
    (32, 32, 20): "LARGE_V2",
    (32, 4, 20): "LARGE_V3_TURBO",
}
"""By layers of encoder and decoder and heads of the decoder. large-v1 cannot be told from v2, and is rare."""
BLOCKS = dict(
    zip(
        (0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14),
        [(4, 1), (2, 1), *((size, 32) for size in (18, 20, 22, 24, 34))]
        + [(size, 256) for size in (84, 110, 144, 176, 210)],
        strict=True,
    )
)
"""Bytes of a block, and numbers in it, by ggml's number of the format."""

DISCRETE = re.compile(r"ggml_vulkan: (\d+) = .*\| uma: 0 \|")


class _Server:
    """Loads the model of the first request, and then answers with it."""

    def __init__(self) -> None:
        self._engine: _Engine | None = None

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        """As the module's docstring says. Raises RuntimeError."""
        if self._engine is None:
            self._engine = _Engine(request)
            return {"device": self._engine.device, "languages": self._engine.languages}, ()
        samples = np.frombuffer(payload, np.float32)
        return self._engine.answer(samples, request["threads"], request["language"]), ()


class _Engine:
    """A loaded model. It raises RuntimeError with one line when the file is no good or whisper.cpp fails."""

    def __init__(self, request: dict[str, Any]) -> None:
        header = inspect(request["model"])
        self.languages = header.languages
        self._lines: list[str] = []
        self._errors: list[str] = []
        context = pw.whisper_context_default_params()
        context.use_gpu = request["gpu"]
        # Word times come from the attention of some heads, which flash attention does not keep: with it,
        # whisper.cpp silently leaves the times out. On the CPU it also makes the result depend on the number
        # of threads: a model of the shape of base with random weights gave four different sets of token
        # probabilities with 1, 2, 3 and 4 threads, and without it the same 220 ids, probabilities and times.
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
            self._context = pw.whisper_init_from_file_with_params(request["model"], context)
        finally:
            pw.whisper_log_set(None)
        # A model that does not load is a null pointer and no exception; the first use of it is the crash.
        if any(line.startswith("whisper_init") for line in self._errors):
            raise RuntimeError(self._errors[0])
        self.device = device_name(self._lines)
        self._end = pw.whisper_token_eot(self._context)

    def answer(self, samples: npt.NDArray[np.float32], threads: int, language: str | None) -> dict[str, Any]:
        """The reply to a request that comes with audio."""
        self._run(samples, _parameters(threads, language))
        if language is None:
            return {"language": pw.whisper_lang_str(pw.whisper_full_lang_id(self._context))}
        found = [
            pw.whisper_full_get_token_data(self._context, segment, place)
            for segment in range(pw.whisper_full_n_segments(self._context))
            for place in range(pw.whisper_full_n_tokens(self._context, segment))
        ]
        return {
            "ended": not found or found[-1].id == self._end,
            # Not whisper_full_get_token_text: it raises where a token ends inside a character.
            "tokens": [
                (pw.whisper_token_to_bytes(self._context, token.id).decode("latin-1"), token.t_dtw)
                for token in found
                if token.id < self._end
            ],
        }

    def _run(self, samples: npt.NDArray[np.float32], parameters: Any) -> None:
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


def _parameters(threads: int, language: str | None) -> Any:
    """What `whisper_full` is asked to do; made anew for each call, for they keep what was set before."""
    parameters = pw.whisper_full_default_params(pw.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    parameters.n_threads = threads
    parameters.language = language or ""
    parameters.detect_language = language is None
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
    """Vulkan's number of the first discrete card, by what whisper.cpp printed; 0 if there is none.

    It would take the first device, which on many desktops is the processor's own. (uma: its memory is the
    machine's.)
    """
    return next((int(found[1]) for line in lines if (found := DISCRETE.match(line))), 0)


def device_name(lines: Sequence[str]) -> str:
    """What whisper.cpp computes on, by what it printed while loading: "cpu", "vulkan: <name>", "metal"."""
    text = "\n".join(lines)
    found = re.search(r"^whisper_backend_init_gpu: using ([A-Za-z]+)(\d*) backend", text, re.M)
    if not found or "whisper_backend_init_gpu: failed" in text:
        return "cpu"
    kind, number = found[1].lower(), found[2] or "0"
    name = re.search(rf"^ggml_vulkan: {number} = (.+) \([^()]*\) \| ", text, re.M)
    return f"{kind}: {name[1]}" if name else kind


@dataclass(frozen=True)
class Header:
    """What a ggml whisper file says about its model, in the file's order."""

    vocabulary: int
    audio_context: int
    audio_state: int
    audio_heads: int
    audio_layers: int
    text_context: int
    text_state: int
    text_heads: int
    text_layers: int
    bands: int
    weights: int

    @property
    def plausible(self) -> bool:
        heads, layers = (self.audio_heads, self.text_heads), (self.audio_layers, self.text_layers)
        return (
            ENGLISH_ONLY <= self.vocabulary < 60_000
            and self.audio_context == 1500
            and 8 <= self.text_context <= 4096
            and 0 < self.audio_state == self.text_state <= 8192
            and all(0 < number <= 128 and self.audio_state % number == 0 for number in heads)
            and all(0 < number <= 128 for number in layers)
            and self.bands in (80, 128)
        )

    @property
    def languages(self) -> int:
        """How many of whisper's languages the model knows; 1 is English alone."""
        return 1 if self.vocabulary == ENGLISH_ONLY else 99 + self.vocabulary - MULTILINGUAL

    @property
    def alignment_heads(self) -> str:
        """Which heads follow the words, by whisper.cpp's name for the published sets."""
        shape = self.audio_layers, self.text_layers, self.text_heads
        name = ALIGNMENT_HEADS.get(shape, "N_TOP_MOST")
        if name == "LARGE_V2" and self.vocabulary > MULTILINGUAL:
            return "LARGE_V3"
        return f"{name}_EN" if self.vocabulary == ENGLISH_ONLY and shape in ALIGNMENT_HEADS else name


def inspect(path: str) -> Header:
    """The header of a ggml whisper file, after a walk over the structure of the whole file.

    whisper.cpp trusts what it reads: a wrong number can crash it, and a file that lost its end can load.
    Raises RuntimeError if the file cannot be read, is of another kind, or is damaged.
    """
    try:
        with Path(path).open("rb") as file:
            if file.read(4) != struct.pack("<I", MAGIC):
                raise RuntimeError("it is not a whisper model in ggml format")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = Header(*struct.unpack_from("<11i", data, 4))
                if header.plausible and _end(data) == len(data):
                    return header
    except OSError as error:
        raise RuntimeError(f"it cannot be read: {error.strerror}") from error
    except struct.error:
        pass
    raise RuntimeError("the file is damaged or incomplete")


def _end(data: mmap.mmap) -> int:
    """Where the last tensor ends by what the file says; -1 or struct.error if it contradicts itself."""
    bands, bins = struct.unpack_from("<2I", data, 48)
    place = 56 + 4 * bands * bins
    (tokens,) = struct.unpack_from("<I", data, place)
    place += 4
    for _ in range(tokens):
        place += 4 + struct.unpack_from("<I", data, place)[0]
    tensors = 0
    while place < len(data):
        dimensions, name, kind = struct.unpack_from("<3I", data, place)
        if not 1 <= dimensions <= 4 or not 0 < name < 256 or kind not in BLOCKS:
            return -1
        numbers = math.prod(struct.unpack_from(f"<{dimensions}I", data, place + 12))
        block, count = BLOCKS[kind]
        place += 12 + 4 * dimensions + name + numbers // count * block
        tensors += 1
    return place if tensors else -1


if __name__ == "__main__":
    serve(_Server().answer)
