"""Audio -> words, by whisper.cpp in a child process (`recognition.child`).

The audio is cut where it is quietest into pieces that fit Whisper's window, and each is recognized on its
own: that bounds memory, shows progress, and a text that goes wrong goes wrong for one piece only.

The times of words come from Whisper's attention (dynamic time warping), not from its time stamps: those are
seconds apart, and whisper.cpp spreads the words between them by their length, and then moves them by the
loudness of another place in all segments but the first. Who said a word depends on its time.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from witness.child import Child, DiedError, RefusedError
from witness.errors import TranscriptionError, UsageError
from witness.recognition.pieces import FRAME, SHORTEST, WINDOW, Loudness, Piece
from witness.recognition.tokens import Token, piece_tokens, repair, to_words
from witness.reporter import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Float32, ModelFile, Recognition, Samples

DENSE = 180
"""Tokens that a piece should have at most. Whisper stops at 220; scripts far from Latin take many a word."""
PADDED = SAMPLE_RATE
"""Samples that the child gets at least: whisper.cpp skips less than 0.1 s, and reads past the end of less."""

UNFINISHED = "no words from {} to {}: whisper finds no end to its text there, as it does with noise and music"
RELOAD = "`witness models verify` checks a model, `witness models fetch` gets a new one"
SMALLER = "a smaller model needs less memory"
NO_GPU = "GGML_VK_VISIBLE_DEVICES= keeps whisper.cpp off the GPU"

T = TypeVar("T")

CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr "
    "bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn "
    "yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su "
    "yue"
)
LANGUAGES = tuple(CODES.split())
"""The codes of the languages that Whisper knows, in its order; here, so that a check needs no whisper.cpp."""


class Recognizer:
    """whisper.cpp in a child process, for one recording: a context manager that ends the child when left.

        with Recognizer(model, language=None, threads=4) as recognizer:
            recognizer.send(samples)
            recognition = recognizer.result()

    Several tracks may be sent; the results come in the same order. What goes wrong with the model or the
    child is raised by `result`, so that work beside it can go on.
    """

    def __init__(
        self,
        model: ModelFile,
        *,
        language: str | None,
        threads: int,
        gpu: bool = True,
        start: float = 0.0,
        reporter: Reporter = SILENT,
    ) -> None:
        """Start the child, which begins to load `model`, and return at once.

        `language` is one of LANGUAGES, or None to detect it. `gpu`: use one if whisper.cpp was built for it;
        if that fails, early or late, the CPU goes on, and a warning of the recognition says so.
        `start`: where the tracks begin in the recording, in seconds, for messages; words count from there.
        `reporter.progress` is called from another thread with ("transcription", seconds done, seconds sent),
        counting all tracks. Raises UsageError if there is no such language.
        """
        if language is not None:
            check_language(language)
        self._path = str(Path(model.path).absolute())
        self._language = language
        self._threads = threads
        self._gpu = gpu and has_gpu_backend()
        self._start = start
        self._reporter = reporter
        self._tracks: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Recognition | Exception] = queue.SimpleQueue()
        self._seconds = 0.0
        """Of all tracks that were sent."""
        self._done = 0.0
        """Seconds of the tracks that are recognized."""
        self._owed = 0
        """Tracks whose result was not asked for yet."""
        self._failure: Exception | None = None
        self._device = "cpu"
        self._warnings: list[str] = []
        """For the next recognition."""
        self._starting = threading.Lock()
        self._leaving = False
        self._child = _start(gpu=self._gpu)
        self._helper = threading.Thread(target=self._recognize_all, daemon=True)
        self._helper.start()

    def send(self, samples: Samples) -> None:
        """Have a track recognized: (n,) mono at 16 kHz, which must not change before its result is there."""
        self._seconds += len(samples) / SAMPLE_RATE
        self._owed += 1
        self._tracks.put(samples)

    def set_threads(self, threads: int) -> None:
        """Use so many cores from the next piece on. The words do not depend on it."""
        self._threads = threads

    def result(self) -> Recognition:
        """Wait for the words of the earliest track that was sent and not yet asked for.

        Raises TranscriptionError if the model cannot be used or whisper.cpp fails, UsageError if the model
        does not know the language, CancelledError if the reporter's `check` does.
        """
        if not self._owed:
            raise ValueError("there is no track whose result was not asked for")
        while self._failure is None:
            self._reporter.check()
            try:
                # Without a limit of time, Ctrl-C would not get through on Windows.
                outcome = self._results.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(outcome, Recognition):
                self._owed -= 1
                return outcome
            self._failure = outcome
        raise self._failure

    def __enter__(self) -> Recognizer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._starting:
            self._leaving = True
            self._child.kill()  # it holds nothing worth saving, and may be deep inside whisper.cpp
        self._tracks.put(None)
        self._helper.join()

    # --- the helper thread ---

    def _recognize_all(self) -> None:
        """Recognize the tracks, one piece after the other, and put what comes of it in `_results`."""
        try:
            loaded = self._with_fallback(self._load)
            languages = LANGUAGES[: loaded["languages"]]
            if self._language is not None and self._language not in languages:
                only = "it knows only English" if len(languages) == 1 else "it is older than that"
                raise UsageError(
                    f"{self._path} does not know the language {self._language!r} ({only}); "
                    "--whisper chooses another model"
                )
            language = languages[0] if len(languages) == 1 else self._language
            while (samples := self._tracks.get()) is not None:
                self._results.put(self._recognize(samples, language))
        except Exception as error:  # raised again by result()
            self._results.put(error)

    def _load(self) -> dict[str, Any]:
        """Have the child load the model; its reply. Raises TranscriptionError."""
        loaded = self._ask({"model": self._path, "gpu": self._gpu}, "while loading")
        self._device = loaded["device"]
        if self._gpu and self._device == "cpu":
            self._gpu = False
            self._warnings.append("whisper.cpp can use a GPU but found none, so it ran on the CPU")
        return loaded

    def _with_fallback(self, work: Callable[[], T]) -> T:
        """The result of `work`; if it fails with a GPU, then of a second try without, in a new child."""
        try:
            return work()
        except TranscriptionError as error:
            with self._starting:
                if not self._gpu or self._leaving:
                    raise
                self._gpu = False
                self._child.kill()
                self._child = _start(gpu=False)
            self._warnings.append(f"whisper.cpp failed on the GPU, so the CPU went on: {error}")
        if work == self._load:
            return work()
        self._load()
        return work()

    def _recognize(self, samples: Samples, language: str | None) -> Recognition:
        """The words of a track. Raises TranscriptionError."""
        begun = time.perf_counter()
        loudness = Loudness.of(samples)
        duration = len(samples) / SAMPLE_RATE
        if language is None and (piece := loudness.most_speech()) is not None:
            language = self._hear(samples, piece, None)["language"]
        tokens: list[list[Token]] = []
        place, longest = 0, WINDOW
        while (piece := loudness.next_piece(place, longest)) is not None:
            reply = self._hear(samples, piece, language)
            if not reply["ended"] and piece.frames > SHORTEST:
                longest = max(piece.frames // 2, SHORTEST)
                continue
            if reply["ended"]:
                tokens.append(piece_tokens(reply["tokens"], piece.start, min(piece.end, duration)))
                fitting = DENSE * max(piece.frames, SHORTEST) // max(len(reply["tokens"]), 1)
                longest = min(max(fitting, SHORTEST), WINDOW)
            else:
                begin, end = (_minutes(self._start + time) for time in (piece.start, piece.end))
                self._warnings.append(UNFINISHED.format(begin, end))
            place = piece.last
            self._reporter.progress("transcription", self._done + min(piece.end, duration), self._seconds)
        self._done += duration
        self._reporter.progress("transcription", self._done, self._seconds)
        words = repair(to_words(tokens), duration)
        seconds = time.perf_counter() - begun
        warnings, self._warnings = tuple(self._warnings), []
        return Recognition(tuple(words), language, self._device, warnings, seconds)

    def _hear(self, samples: Samples, piece: Piece, language: str | None) -> dict[str, Any]:
        """The child's reply about a piece. Raises TranscriptionError."""
        part = np.ascontiguousarray(samples[piece.first * FRAME : piece.last * FRAME], np.float32)
        part = np.pad(part, (0, max(0, PADDED - len(part))))
        when = f"at {_minutes(self._start + piece.start)} of the recording, with"

        def work() -> dict[str, Any]:
            return self._ask({"threads": self._threads, "language": language}, when, part)

        return self._with_fallback(work)

    def _ask(self, request: dict[str, Any], when: str, samples: Float32 | None = None) -> dict[str, Any]:
        """The child's reply. Raises TranscriptionError, whose message says `when` and names the model."""
        try:
            return self._child.ask(request, b"" if samples is None else samples.data)[0]
        except RefusedError as error:
            raise TranscriptionError(
                f"{self._path}: {error}; {RELOAD}"
                if samples is None
                else f"whisper.cpp failed {when} {self._path}: {error}; {self._fix()}"
            ) from error
        except DiedError as error:
            raise TranscriptionError(self._death(error, when)) from error

    def _fix(self) -> str:
        return SMALLER if self._device == "cpu" else f"{SMALLER}, and {NO_GPU}"

    def _death(self, error: DiedError, when: str) -> str:
        """The message about a child that died."""
        telling = [line for line in error.log[-20:] if re.search(r"error|fail|assert|terminate", line, re.I)]
        last = f" ({telling[-1]})" if telling else ""
        if last.startswith((" (ImportError", " (ModuleNotFoundError")):
            return f"whisper.cpp does not start{last}; fix: pip install --force-reinstall pywhispercpp"
        fix = f"{RELOAD}; {SMALLER}" if "load" in when else self._fix()
        return f"whisper.cpp stopped with {error} {when} {self._path}{last}; {fix}"


def check_language(code: str) -> None:
    """Raise UsageError if whisper knows no language of that code. Needs no model."""
    if code not in LANGUAGES:
        some = ", ".join(LANGUAGES[:12])
        raise UsageError(f"whisper does not know the language {code!r}; its codes are {some}, ...")


def has_gpu_backend() -> bool:
    """Whether this whisper.cpp was built to use a GPU, be there one or not. Loads nothing."""
    spec = find_spec("_pywhispercpp")
    if spec is None or spec.origin is None:
        return False
    if sys.platform == "darwin" and os.uname().machine == "arm64":
        return True  # Metal is built in, without a file of its own
    home = Path(spec.origin).parent
    libraries = [path for folder in (home, home / "pywhispercpp.libs") for path in folder.glob("*ggml-*")]
    return any(re.search(r"ggml-(vulkan|cuda|hip|sycl|metal)", path.name) for path in libraries)


def _start(*, gpu: bool) -> Child:
    """A child that waits for its model, with GPUs or without."""
    environment = {
        # Threads that wait without sleeping take the cores from the diarizer, and then from each other:
        # docs/decisions/2026-11-22-constants.md, "The recognizer's threads".
        "OMP_WAIT_POLICY": "passive",
        "GGML_NO_BACKTRACE": "1",  # no debugger after a failed assertion
        **os.environ,
    }
    if not gpu:  # a driver that crashes does so when it is asked for its devices
        environment["GGML_VK_VISIBLE_DEVICES"] = ""
    return Child("witness.recognition.child", environment)


def _minutes(seconds: float) -> str:
    """0:07, 61:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
