"""Audio -> words, by whisper.cpp in a child process (`recognition.child`).

The audio is cut where it is quietest into pieces that fit whisper's window, and each is recognised on its
own: that bounds memory, shows progress, and a text that goes wrong goes wrong for one piece only.

Word times come from whisper's attention (dynamic time warping), not from its time stamps: those are seconds
apart, and whisper.cpp spreads the words between them by their length, and then moves them by the loudness of
another place in all segments but the first. Who said a word depends on its time.
"""

from __future__ import annotations

import os
import queue
import re
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from witness.audio import spool
from witness.child import Child, DiedError, RefusedError
from witness.errors import TranscriptionError, UsageError
from witness.recognition.tokens import Token, piece_tokens, repair, to_words
from witness.reporter import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Bool, Float32, ModelFile, Recognition, Samples

FRAME_RATE = 50  # per second; whisper's encoder has a frame every 20 ms
FRAME = SAMPLE_RATE // FRAME_RATE  # samples
WINDOW = 30 * FRAME_RATE  # frames; what whisper hears at once
SHORTEST = WINDOW // 4  # frames; what whisper cannot finish is not cut shorter than this
QUIET = 10  # frames; a cut is in the middle of the 0.2 s with the least energy
MARGIN = 10  # frames of silence that are kept around what sounds
PADDED = SAMPLE_RATE  # samples; whisper.cpp skips less than 0.1 s, and reads beyond the end of very little
SILENCE = 10 / 32768
"""Half the difference of highest and lowest sample (-70 dBFS, ten steps of 16-bit audio) of a silent frame.

Converters and codecs idle there. whisper hears the shape of a spectrum, not its level, and invents words.
"""
DENSE = 180  # tokens per piece; whisper gives up at 220, and scripts far from Latin take many for a word

UNFINISHED = "no words from {} to {}: whisper finds no end to its text there, as it does with noise and music"
RELOAD = "`witness models verify` checks a model, `witness models fetch` gets a new one"
SMALLER = "a smaller model needs less memory"
NO_GPU = "GGML_VK_VISIBLE_DEVICES= keeps whisper.cpp off the GPU"

MAGIC = 0x67676D6C  # "ggml", at the beginning of a model

T = TypeVar("T")

CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr "
    "bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn "
    "yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su "
    "yue"
)
LANGUAGES = tuple(CODES.split())
"""The codes of the languages that whisper knows, in its order; here, so that asking needs no whisper.cpp."""


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
        reporter: Reporter = SILENT,
    ) -> None:
        """Start the child, which begins to load `model`, and return at once.

        `language` is one of LANGUAGES, or None to find it out. `gpu`: use one if whisper.cpp was built to; if
        that fails, early or late, the CPU goes on, and a warning of the recognition says so.
        `progress` is called from another thread with ("transcription", seconds done, seconds sent), counting
        all tracks. Raises UsageError if there is no such language.
        """
        if language is not None:
            check_language(language)
        self._path = str(Path(model.path).absolute())
        self._language = language
        self._threads = threads
        self._gpu = gpu and has_gpu_backend()
        self._reporter = reporter
        self._tracks: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Recognition | Exception] = queue.SimpleQueue()
        self._seconds = 0.0  # of all tracks that were sent
        self._done = 0.0
        self._owed = 0  # tracks whose result was not asked for yet
        self._failure: Exception | None = None
        self._device = "cpu"
        self._warnings: list[str] = []  # for the next recognition
        self._starting = threading.Lock()
        self._leaving = False
        self._child = _start(gpu=self._gpu)
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def send(self, samples: Samples) -> None:
        """Have one track recognised: (n,) mono at 16 kHz, not to be changed before its result is there."""
        self._seconds += len(samples) / SAMPLE_RATE
        self._owed += 1
        self._tracks.put(samples)

    def set_threads(self, threads: int) -> None:
        """Use so many cores from the next piece on. The words do not depend on it."""
        self._threads = threads

    def result(self) -> Recognition:
        """Wait for the earliest track that was sent and not yet asked for.

        Raises TranscriptionError if the model cannot be used or whisper.cpp fails, UsageError if the model
        does not know the language.
        """
        if not self._owed:
            raise ValueError("there is no track whose result was not asked for")
        while self._failure is None:
            try:
                # Without a limit of time, Ctrl-C would not get through on Windows.
                found = self._results.get(timeout=0.5)
            except queue.Empty:
                self._reporter.check()
                continue
            if isinstance(found, Recognition):
                self._owed -= 1
                return found
            self._failure = found
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
        self._server.join()

    # The rest runs in the helper thread.

    def _serve(self) -> None:
        """Recognise the tracks, one piece after the other, and report what comes of it."""
        try:
            loaded = self._insist(self._load)
            known = LANGUAGES[: loaded["languages"]]
            if self._language is not None and self._language not in known:
                only = "it knows only English" if len(known) == 1 else "it is older than that"
                raise UsageError(
                    f"{self._path} does not know the language {self._language!r} ({only}); "
                    "--whisper chooses another model"
                )
            language = known[0] if len(known) == 1 else self._language
            while (samples := self._tracks.get()) is not None:
                self._results.put(self._recognise(samples, language))
        except Exception as error:  # raised again by result()
            self._results.put(error)

    def _load(self) -> dict[str, Any]:
        loaded = self._ask({"model": self._path, "gpu": self._gpu}, "while loading")
        self._device = loaded["device"]
        if self._gpu and self._device == "cpu":
            self._gpu = False
            self._warnings.append("whisper.cpp can use a GPU but found none, so it ran on the CPU")
        return loaded

    def _insist(self, work: Callable[[], T]) -> T:
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

    def _recognise(self, samples: Samples, language: str | None) -> Recognition:
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
                self._warnings.append(UNFINISHED.format(_clock(piece.start), _clock(piece.end)))
            place = piece.last
            self._reporter.progress("transcription", self._done + min(piece.end, duration), self._seconds)
        self._done += duration
        self._reporter.progress("transcription", self._done, self._seconds)
        words = repair(to_words(tokens), duration)
        seconds = time.perf_counter() - begun
        warnings, self._warnings = tuple(self._warnings), []
        return Recognition(tuple(words), language, self._device, warnings, seconds)

    def _hear(self, samples: Samples, piece: Piece, language: str | None) -> dict[str, Any]:
        """The child's reply about one piece."""
        part = np.ascontiguousarray(samples[piece.first * FRAME : piece.last * FRAME], np.float32)
        part = np.pad(part, (0, max(0, PADDED - len(part))))
        when = f"at {_clock(piece.start)} of the recording, with"

        def work() -> dict[str, Any]:
            return self._ask({"threads": self._threads, "language": language}, when, part)

        return self._insist(work)

    def _ask(self, request: dict[str, Any], when: str, samples: Float32 | None = None) -> dict[str, Any]:
        try:
            return self._child.ask(request, b"" if samples is None else samples.data)[0]
        except RefusedError as error:
            raise TranscriptionError(
                f"{self._path}: {error}; {RELOAD}"
                if samples is None
                else f"whisper.cpp failed {when} {self._path}: {error}; {self._cure()}"
            ) from error
        except DiedError as error:
            raise TranscriptionError(self._death(error, when)) from error

    def _cure(self) -> str:
        return SMALLER if self._device == "cpu" else f"{SMALLER}, and {NO_GPU}"

    def _death(self, error: DiedError, when: str) -> str:
        telling = [line for line in error.log[-20:] if re.search(r"error|fail|assert|terminate", line, re.I)]
        last = f" ({telling[-1]})" if telling else ""
        if last.startswith((" (ImportError", " (ModuleNotFoundError")):
            return f"whisper.cpp does not start{last}; cure: pip install --force-reinstall pywhispercpp"
        cure = f"{RELOAD}; {SMALLER}" if "load" in when else self._cure()
        return f"whisper.cpp stopped with {error} {when} {self._path}{last}; {cure}"


def gpu_memory(model: ModelFile) -> int | None:
    """Bytes that whisper.cpp takes on a GPU with this model; None if the file is no such model.

    By the sizes that whisper.cpp 1.8.5 prints while it loads models of the six published shapes: keys and
    values (16 bits; 1536 places of the audio, and 512 of the text, times 7 once a text must be tried again
    with five candidates), and buffers that grow with the width.
    """
    try:
        with Path(model.path).open("rb") as file:
            magic, *sizes = struct.unpack("<12i", file.read(48))
            total = file.seek(0, os.SEEK_END)
    except (OSError, struct.error):
        return None
    if magic != MAGIC:
        return None
    width, layers = sizes[6], sizes[8]
    return int(total + 4 * width * layers * (1536 + 7 * 512) + 100_000_000 + 340_000 * width)


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
    environment = {
        # Threads that wait without sleeping take the cores from the diarizer, and then from each other: on
        # two cores beside two busy programs, random weights of the size of base took 8 s to over a minute
        # for 29 s of audio, and 5 to 8 s this way.
        "OMP_WAIT_POLICY": "passive",
        "GGML_NO_BACKTRACE": "1",  # no debugger after a failed assertion
        **os.environ,
    }
    if not gpu:  # a driver that crashes does so when it is asked for its devices
        environment["GGML_VK_VISIBLE_DEVICES"] = ""
    return Child("witness.recognition.child", environment)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass(frozen=True)
class Piece:
    """Frames `first` to `last` (excluded) of a track."""

    first: int
    last: int

    @property
    def frames(self) -> int:
        return self.last - self.first

    @property
    def start(self) -> float:
        return self.first / FRAME_RATE

    @property
    def end(self) -> float:
        return self.last / FRAME_RATE


@dataclass(frozen=True)
class Loudness:
    """How loud a track is, by frames of 20 ms."""

    sounding: Bool
    """(frames,): not silent."""
    energy: Float32
    """(frames,)"""

    @staticmethod
    def of(samples: Samples) -> Loudness:
        count = -(-len(samples) // FRAME)
        sounding, energy = np.empty(count, np.bool_), np.empty(count, np.float32)
        for start, part in spool.pieces(samples, WINDOW * FRAME):
            frames = np.pad(part, (0, -len(part) % FRAME)).reshape(-1, FRAME)
            there = slice(start // FRAME, start // FRAME + len(frames))
            sounding[there] = np.ptp(frames, axis=1) / 2 >= SILENCE
            energy[there] = np.einsum("ij,ij->i", frames, frames)
        return Loudness(sounding, energy)

    def next_piece(self, place: int, longest: int) -> Piece | None:
        """What to recognise next from frame `place` on, at most `longest` frames; None: only silence is left.

        Silence before and after is left out, and a longer stretch ends where its last third is quietest.
        """
        if not self.sounding[place:].any():
            return None
        first = max(place, place + int(self.sounding[place:].argmax()) - MARGIN)
        last = len(self.energy)
        if last - first > longest:
            earliest = first + 2 * longest // 3
            quiet = np.convolve(self.energy[earliest : first + longest], np.ones(QUIET), "valid")
            last = earliest + int(quiet.argmin()) + QUIET // 2
        final = first + int(np.flatnonzero(self.sounding[first:last])[-1])
        return Piece(first, min(last, final + 1 + MARGIN))

    def most_speech(self) -> Piece | None:
        """The piece with the most frames that are nearly as loud as the loudest; None: only silence."""
        if not self.sounding.any():
            return None
        loud = float(np.percentile(self.energy[self.sounding], 95)) * 10**-2.5
        pieces, place = [], 0
        while (piece := self.next_piece(place, WINDOW)) is not None:
            pieces.append(piece)
            place = piece.last
        return max(pieces, key=lambda piece: int((self.energy[piece.first : piece.last] > loud).sum()))
