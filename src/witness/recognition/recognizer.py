"""Audio -> words, by an engine in a child process.

The audio is cut into pieces that fit the engine's window (`pieces`), and each is recognized on its own: that
bounds memory, shows progress, and a text that goes wrong goes wrong for one piece only. A text that cannot be
what was said is heard again with more care, and so is speech in which no word was found.

The times of words come from Whisper's attention (dynamic time warping), not from its time stamps, which are
seconds apart. Who said a word depends on its time.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from witness.child import Child, DiedError, RefusedError
from witness.errors import TranscriptionError, UsageError
from witness.models.engines import INSTALL
from witness.options import Options
from witness.options import Recognizer as Name
from witness.recognition import gpus
from witness.recognition.context import fit
from witness.recognition.convincing import Found, convincing, flaw, to_lines
from witness.recognition.languages import MULTI, check_language
from witness.recognition.pieces import WINDOW, Loudness, Piece, gaps, pieces
from witness.recognition.server import PROMPT, Abilities, Heard, Load, Order
from witness.recognition.speech import Speech
from witness.recognition.tokens import Token, piece_tokens, place, runs, to_words
from witness.reporter import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Float32, ModelFile, Recognition, Samples, Word

CHILDREN = {
    Name.WHISPER_CPP: "witness.recognition.whisper_cpp",
    Name.CTRANSLATE2: "witness.recognition.ctranslate",
    Name.ONNX_ASR: "witness.recognition.onnx_engine",
    Name.TRANSCRIBE_CPP: "witness.recognition.transcribe_cpp",
}
"""Recognizer -> the module that its child process runs."""
PADDED = SAMPLE_RATE
"""Samples that the child gets at least: whisper.cpp skips less than 0.1 s, and reads past the end of less."""
WINDOW_OF_ONE = WINDOW // 3
"""Frames of a piece in a recording of several languages: a piece has one."""
TELLING = 20
"""Pieces, ten minutes of speech, among which the one that tells the language is chosen."""
MANY = 4 * WINDOW
"""Frames of a track for which two pieces are worth recognizing together; twice as many: four."""

RELOAD = "`witness models verify` checks a model, `witness models fetch` gets a new one"
SMALLER = "a smaller model needs less memory"
NO_GPU = "GGML_VK_VISIBLE_DEVICES= keeps it off the GPU"


@dataclass(frozen=True)
class Wish:
    """What to hear."""

    language: str | None = None
    """A code, None to find out the language of each track, or MULTI to find out that of each piece."""
    translate: bool = False
    """Into English."""
    prompt: str = ""
    """A text that could have been said before: names, terms, spelling."""
    vocabulary: tuple[str, ...] = ()
    """Names and terms, the most important ones first: there is room for a hundred or less."""
    start: float = 0.0
    """Where in the recording the tracks begin, in seconds, for messages; words count from there."""


def wish(options: Options) -> Wish:
    """What these options ask for."""
    return Wish(options.language, options.translate, options.prompt, options.vocabulary, options.start)


class Recognizer:
    """An engine in a child process, for one recording: a context manager that ends the child when left.

        with Recognizer(model, Wish(), threads=4) as recognizer:
            recognizer.send(samples)
            recognition = recognizer.result()

    Several tracks may be sent; the results come in the same order. What goes wrong with the model or the
    child is raised by `result`, so that work beside it can go on.
    """

    def __init__(
        self,
        model: ModelFile,
        wish: Wish = Wish(),
        *,
        threads: int,
        gpu: bool = True,
        reporter: Reporter = SILENT,
    ) -> None:
        """Start the child, which begins to load `model`, and return at once.

        `threads`: cores for an engine on the CPU; the words do not depend on them. `gpu`: use one if
        the engine can; if that fails, early or late, the CPU goes on, and a warning of the
        recognition says so. `reporter.progress` is called from another thread with ("transcription", seconds
        done, seconds sent), counting all tracks. Raises UsageError if there is no such language.
        """
        if wish.language is not None:
            check_language(wish.language)
        self._name = Name(model.engine or Name.WHISPER_CPP)
        self._path = str(Path(model.path).absolute())
        self._aligner = model.aligner
        self._wish = wish
        self._threads = threads
        able = self._name == Name.TRANSCRIBE_CPP or (
            self._name == Name.WHISPER_CPP and gpus.has_gpu_backend()
        )
        self._gpu = gpu and able
        self._reporter = reporter
        self._tracks: queue.SimpleQueue[tuple[Samples, Speech | None] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Recognition | Exception] = queue.SimpleQueue()
        self._seconds = 0.0
        """Of all tracks that were sent."""
        self._done = 0.0
        """Seconds of the tracks that are recognized."""
        self._owed = 0
        """Tracks whose result was not asked for yet."""
        self._failure: Exception | None = None
        self._loaded = Abilities("cpu", ())
        self._prompt = ""
        """What the engine is told was said before."""
        self._warnings: list[str] = []
        """For the next recognition."""
        self._starting = threading.Lock()
        self._leaving = False
        self._sent: deque[tuple[dict[str, Any], Piece, Sequence[Float32]]] = deque()
        """The requests to hear something that are not answered yet."""
        self._turn = threading.Event()
        self._turn.set()
        self._child = _start(self._name, gpu=self._gpu)
        self._helper = threading.Thread(target=self._recognize_all, daemon=True)
        self._helper.start()

    def send(self, samples: Samples, speech: Speech | None = None) -> None:
        """Have a track recognized: (n,) mono at 16 kHz, which must not change before its result is there.

        `speech`: where somebody speaks, which another thread may still be finding out; None: anywhere.
        """
        self._seconds += len(samples) / SAMPLE_RATE
        self._owed += 1
        self._tracks.put((samples, speech))

    def hold(self) -> None:
        """Do nothing on the CPU before `go_on`: whoever works there meanwhile needs all of its cores.

        Two that share the cores take longer than one after the other; a model is loaded all the same.
        """
        self._turn.clear()

    def go_on(self) -> None:
        """The cores are free."""
        self._turn.set()

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
            self._child.kill()  # it holds nothing worth saving, and may be deep inside the engine
        self._turn.set()
        self._tracks.put(None)
        self._helper.join()

    # --- the helper thread ---

    def _recognize_all(self) -> None:
        """Recognize the tracks, one piece after the other, and put what comes of it in `_results`."""
        try:
            self._load()
            self._check_wish()
            self._prompt = self._context()
            while (track := self._tracks.get()) is not None:
                self._results.put(self._recognize(*track))
        except Exception as error:  # raised again by result()
            self._results.put(error)

    def _check_wish(self) -> None:
        """Raise UsageError if the model cannot do what is asked for."""
        able, wish = self._loaded, self._wish
        problem = None
        if able.languages and wish.language not in (None, MULTI, *able.languages):
            only = "it knows only English" if list(able.languages) == ["en"] else "it knows others"
            problem = f"does not know the language {wish.language!r} ({only})"
        elif wish.translate and not able.translates:
            problem = "cannot translate"
        elif (wish.prompt or wish.vocabulary) and not able.prompts:
            problem = "takes neither a prompt nor a vocabulary"
        if problem:
            raise UsageError(f"{self._path} {problem}; --whisper chooses another model")

    def _context(self) -> str:
        """What the engine is told was said before: of the vocabulary, as much as it takes."""
        terms, prompt = self._wish.vocabulary, self._wish.prompt
        if not terms and not prompt:
            return ""
        text, left_out = fit(terms, prompt, self._count, PROMPT)
        if self._count(prompt) > PROMPT:
            self._warnings.append(
                f"the prompt is longer than the {PROMPT} tokens that the recognizer takes, so it heard only "
                "the end; shorten it"
            )
        if left_out:
            self._warnings.append(
                f"the vocabulary is longer than the recognizer takes: the last {len(left_out)} of "
                f"{len(terms)} terms were left out, from {left_out[0]!r} on; put the important ones first"
            )
        return text

    def _count(self, text: str) -> int:
        """The tokens of a text."""
        tokens: int = self._with_fallback(lambda: self._ask({"do": "count", "text": text}))["tokens"]
        return tokens

    def _recognize(self, samples: Samples, speech: Speech | None) -> Recognition:
        """The words of a track. Raises TranscriptionError."""
        self._wait()
        begun = time.perf_counter()
        track = _Track(samples, Loudness.of(samples), speech)
        duration = len(samples) / SAMPLE_RATE
        longest = WINDOW_OF_ONE if self._wish.language == MULTI else WINDOW
        coming = pieces(track.loudness, speech, self._check, longest=longest)
        first: list[Piece] = []
        language = self._known_language()
        if language is None:
            first = list(islice(coming, TELLING))
            language = self._language(track, first)
        # On a GPU it runs beside the diarizer, and needs few cores itself.
        cores = self._threads if self._loaded.device == "cpu" else self._threads - self._threads // 4
        order = Order(
            max(1, cores),
            None if language == MULTI else language,
            self._wish.translate,
            self._prompt,
        )
        heard = self._convincing(track, chain(first, coming), order)
        words = _words(heard, track)
        heard_again = self._hear_again(track, words, order)
        words = sorted([*words, *heard_again], key=lambda word: word.start)
        self._done += duration
        self._progress(0.0)
        counted = Counter(one.language for _, one in heard if one.tokens)
        if language in (None, MULTI):
            language = counted.most_common(1)[0][0] if counted else None
        seconds = time.perf_counter() - begun
        warnings, self._warnings = tuple(self._warnings), []
        return Recognition(tuple(words), language, self._loaded.device, warnings, seconds)

    def _known_language(self) -> str | None:
        """The language, or MULTI, if there is nothing to find out."""
        if len(self._loaded.languages) == 1:
            return self._loaded.languages[0]
        return self._wish.language

    def _language(self, track: _Track, first: Sequence[Piece]) -> str | None:
        """That of a whole track; None: the engine cannot tell, or there is nothing to hear."""
        if (piece := track.loudness.most_speech(first)) is None:
            return None
        reply = self._with_fallback(lambda: self._ask({"do": "language"}, piece, [track.part(piece)]))
        language: str | None = reply["language"]
        return language

    def _convincing(self, track: _Track, some: Iterable[Piece], order: Order) -> list[Found]:
        """What was heard in some pieces, in order, with warnings about what is doubtful."""
        careful = replace(order, careful=True, prompt="")
        heard, notes = convincing(
            self._hear_first(track, some, order),
            lambda some: self._hear(track, some, careful),
            track.loudness,
        )
        self._warnings += to_lines(notes, self._minutes)
        return heard

    def _hear_first(self, track: _Track, some: Iterable[Piece], order: Order) -> Iterator[Found]:
        """What was heard in each piece, in order, with progress."""
        duration = len(track.samples) / SAMPLE_RATE
        for piece, heard in self._hear(track, some, order):
            self._progress(min(piece.end, duration))
            yield piece, heard

    def _minutes(self, seconds: float) -> str:
        """When in the recording something is: 0:07, 61:05."""
        whole = int(self._wish.start + seconds)
        return f"{whole // 60}:{whole % 60:02d}"

    def _progress(self, seconds: float) -> None:
        """So many seconds of the present track are done."""
        self._reporter.progress("transcription", self._done + seconds, self._seconds)

    def _hear(self, track: _Track, some: Iterable[Piece], order: Order) -> Iterator[Found]:
        """What was heard in each piece, in order; as many at a time as the engine has workers."""
        left = iter(some)
        size = min(self._loaded.batch, 1 if len(track) < MANY else 2 if len(track) < 2 * MANY else 4)
        waiting: deque[list[Piece]] = deque()
        while group := list(islice(left, size)):
            parts = [track.part(piece) for piece in group]
            request = {"do": "hear", "lengths": [len(part) for part in parts], **asdict(order)}
            self._sent.append((request, group[0], parts))
            self._with_fallback(lambda: self._ask(*self._sent[-1]), sent=len(self._sent) - 1)
            waiting.append(group)
            # One more than there are workers, so that none of them waits for the next.
            if len(waiting) > self._loaded.workers:
                yield from self._next(waiting.popleft())
        while waiting:
            yield from self._next(waiting.popleft())

    def _next(self, group: Sequence[Piece]) -> Iterator[Found]:
        """What was heard in the earliest of the groups that the child was sent."""
        reply = self._with_fallback(lambda: self._ask({"do": "next"}, group[0]), sent=len(self._sent))
        self._sent.popleft()
        return zip(group, (Heard(**one) for one in reply["heard"]), strict=True)

    def _hear_again(self, track: _Track, words: Sequence[Word], order: Order) -> list[Word]:
        """The words that a second look finds where somebody speaks and the first found none."""
        if track.speech is None:
            return []
        missing = gaps(track.speech, track.loudness, words)
        careful = replace(order, careful=True)
        found: list[Word] = []
        for piece, heard in self._hear(track, missing, careful):
            if heard.tokens and flaw(piece, heard) is None:
                first, last = piece.start, piece.end
                found += [
                    word
                    for word in _words([(piece, heard)], track)
                    if first <= (word.start + word.end) / 2 <= last and not _said(word, words)
                ]
        return found

    # --- the child ---

    def _wait(self) -> None:
        """On a CPU that others use, until they are done."""
        while self._loaded.device == "cpu" and not self._turn.wait(0.5):
            self._check()

    def _check(self) -> None:
        if self._leaving:
            raise TranscriptionError("nobody waits for the words any more")

    def _load(self) -> None:
        """Have the child load the model. Raises TranscriptionError."""
        self._with_fallback(self._loading)

    def _loading(self) -> dict[str, Any]:
        load = Load(self._path, self._gpu, self._threads, self._aligner)
        reply = self._ask({"do": "load", **asdict(load)})
        self._loaded = Abilities(**reply)
        if self._gpu and self._loaded.device == "cpu":
            self._gpu = False
            self._warnings.append(f"{self._name} can use a GPU but found none, so it ran on the CPU")
        return reply

    def _with_fallback(self, work: Callable[[], dict[str, Any]], sent: int = 0) -> dict[str, Any]:
        """The result of `work`; if it fails with a GPU, then of a second try without, in a new child.

        That is sent first what the old one was: `sent` of the requests in `_sent`.
        """
        try:
            return work()
        except TranscriptionError as error:
            with self._starting:
                if not self._gpu or self._leaving:
                    raise
                self._gpu = False
                self._child.kill()
                self._child = _start(self._name, gpu=False)
            self._warnings.append(f"{self._name} failed on the GPU, so the CPU went on: {error}")
        if work != self._loading:
            self._loading()
        for one in islice(self._sent, sent):
            self._ask(*one)
        return work()

    def _ask(
        self, request: dict[str, Any], piece: Piece | None = None, parts: Sequence[Float32] = ()
    ) -> dict[str, Any]:
        """The child's reply. Raises TranscriptionError, whose message says when and names the model."""
        when = "while loading" if piece is None else f"at {self._minutes(piece.start)} of the recording, with"
        payload = np.concatenate(parts).data if parts else b""
        try:
            return self._child.ask(request, payload)[0]
        except RefusedError as error:
            raise TranscriptionError(
                f"{self._path}: {error}; {RELOAD}"
                if piece is None
                else f"{self._name} failed {when} {self._path}: {error}; {self._fix()}"
            ) from error
        except DiedError as error:
            raise TranscriptionError(self._death(error, when)) from error

    def _fix(self) -> str:
        return SMALLER if self._loaded.device == "cpu" else f"{SMALLER}, and {NO_GPU}"

    def _death(self, error: DiedError, when: str) -> str:
        """The message about a child that died."""
        telling = [line for line in error.log[-20:] if re.search(r"error|fail|assert|terminate", line, re.I)]
        last = f" ({telling[-1]})" if telling else ""
        if last.startswith((" (ImportError", " (ModuleNotFoundError")):
            return f"{self._name} does not start{last}; fix: {INSTALL[self._name]} --force-reinstall"
        fix = f"{RELOAD}; {SMALLER}" if "load" in when else self._fix()
        return f"{self._name} stopped with {error} {when} {self._path}{last}; {fix}"


@dataclass(frozen=True)
class _Track:
    """What there is to recognize."""

    samples: Samples
    loudness: Loudness
    speech: Speech | None

    def __len__(self) -> int:
        """In frames."""
        return len(self.loudness.energy)

    @cached_property
    def spoken(self) -> Sequence[tuple[float, float]]:
        """From when to when somebody is likely to speak, in seconds, once the diarizer is done."""
        return () if self.speech is None else runs(self.speech.likely())

    def part(self, piece: Piece) -> Float32:
        """The samples of a piece."""
        cut = piece.cut(self.samples)
        return np.pad(cut, (0, max(0, PADDED - len(cut))))


def _said(word: Word, words: Sequence[Word]) -> bool:
    """Whether one of some words, which are in order, is said at the same time."""
    first = bisect_right(words, word.start, key=lambda old: old.end)
    return first < len(words) and words[first].start < word.end


def _words(heard: Sequence[Found], track: _Track) -> list[Word]:
    """The words of some pieces, in order, at the times when somebody speaks."""
    tokens: list[list[Token]] = [piece_tokens(one.tokens, piece) for piece, one in heard]
    duration = len(track.samples) / SAMPLE_RATE
    return place(to_words(tokens), duration, track.spoken)


def _start(name: Name, *, gpu: bool) -> Child:
    """A child that waits for its model, with GPUs or without."""
    environment = {
        # Threads that wait without sleeping take the cores from the diarizer, and then from each other:
        # docs/decisions/2026-11-22-constants.md, "The recognizer's threads".
        "OMP_WAIT_POLICY": "passive",
        "GGML_NO_BACKTRACE": "1",  # no debugger after a failed assertion
        # CTranslate2 takes and returns large blocks all the time; in large pages that costs a third of the
        # system's time. docs/decisions/2026-11-22-recognizers.md, "Large pages".
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        **os.environ,
    }
    if not gpu:  # a driver that crashes does so when it is asked for its devices
        environment["GGML_VK_VISIBLE_DEVICES"] = ""
    return Child(CHILDREN[name], environment)
