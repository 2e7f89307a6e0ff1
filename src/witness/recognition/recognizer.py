"""Audio -> words, by an engine in a child process.

The audio is cut into pieces that fit the engine's window (`pieces`), and each is recognized on its own: that
bounds memory, shows progress, and a text that goes wrong goes wrong for one piece only. A text that cannot be
true is recognized again with more care, and so is speech without words.

The times of words come from Whisper's attention (dynamic time warping), not from its time stamps, which are
seconds apart. The speaker of a word depends on its time.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import inf
from types import TracebackType

from witness.errors import TranscriptionError, UsageError
from witness.languages import MULTI
from witness.models import user_files
from witness.options import Options
from witness.progress import SILENT, Reporter
from witness.recognition import language_tracking
from witness.recognition.chunking import WINDOW, Loudness, Piece, pieces
from witness.recognition.engine import PROMPT, Abilities, DecodeOptions
from witness.recognition.engine_client import RemoteEngine
from witness.recognition.fallback import DROPPED, Note, Recognized, check_texts, format_notes, recognize_gaps
from witness.recognition.language_tracking import TrackLanguages
from witness.recognition.piece_queue import PieceQueue
from witness.recognition.tokens import NEAR, ends_inside
from witness.recognition.track_input import TrackInput, language_near
from witness.recognition.vad import FRAME_RATE, Speech
from witness.schema import SAMPLE_RATE, ModelFile, Recognition, Samples, Word
from witness.storage.checkpoint import Journal
from witness.text import without_commands

MULTI_WINDOW = WINDOW // 3
"""Frames of a piece in a recording of several languages: a piece has one."""
TELLING = 20
"""Pieces, ten minutes of speech, among them the piece that tells the language of the track."""
SETTLED = 3.0
"""Seconds before a piece that certainly hold none of its words."""
CONTROL_TOKEN = re.compile(r"<\|[^<>|]*\|>")
"""<|endoftext|>, <|fr|>, <|0.00|>: a tokenizer takes them for the commands that they spell."""

Sound = tuple[Samples, Speech | None]
"""A track and its speech; None: anywhere."""
Listener = Callable[[int, Recognition, float], None]
"""Called with the index of a track, its final words so far, and a time before all its later words."""


def no_listener(track: int, recognition: Recognition, until: float) -> None:
    """Ignore the words until all are there."""


class TrackRecognizer:
    """An engine in a child process, for one recording: a context manager that ends the child when left.

        with TrackRecognizer(model, Options(), threads=4) as recognizer:
            recognizer.send(samples)
            recognition = recognizer.result()

    Several tracks may be sent; the results come in the same order. `result` raises failures of the model and
    of the child, so that work beside it can continue.
    """

    def __init__(
        self,
        model: ModelFile,
        options: Options = Options(),
        *,
        threads: int,
        reporter: Reporter = SILENT,
        journal: Journal | None = None,
    ) -> None:
        """Start the child, which begins to load `model`, and return at once.

        `options.start`: second of the recording at which the tracks begin; words count from there. `threads`:
        cores for an engine on the CPU; the words do not depend on them. A GPU is used if the engine can; if
        that fails, early or late, the CPU continues, and a warning of the recognition says so.
        `reporter.progress` is called from another thread with ("transcription", seconds done, seconds sent),
        counting all tracks. Texts in `journal` are not recognized again, and new ones are added.
        """
        self._options = options
        self._model = model
        self._threads = threads
        self._reporter = reporter
        self._seconds = 0.0
        """Of all tracks that were sent."""
        self._listener: Listener = no_listener
        self._done: list[float] = []
        """Recognized seconds of each track."""
        self._together = 1
        """Tracks that are recognized at the same time."""
        self._prompt = ""
        """The vocabulary and the prompt, as the engine gets them."""
        self._warnings: list[str] = []
        """Warnings for the next recognition."""
        self._leaving = False
        self._cores_free = threading.Event()
        self._cores_free.set()
        self._engine = RemoteEngine(model, threads=threads, journal=journal or Journal())
        self._pool = ThreadPoolExecutor(1)
        self._prepared = self._pool.submit(self._prepare)
        self._results: deque[tuple[Future[list[Recognition]], int]] = deque()
        """The work that recognizes a track, and the index in its result, of each track not taken yet."""

    def send(self, samples: Samples, speech: Speech | None = None) -> None:
        """Queue a track: (n,) mono at 16 kHz, which must not change before its result is there.

        `speech`: another thread may still be writing it; None: anywhere.
        """
        self.send_all([(samples, speech)])

    def send_all(self, tracks: Sequence[Sound]) -> None:
        """Queue the tracks of one recording.

        They are recognized in the order of time, so that the text begins with the first words; but track by
        track if the speech of some is not final when their turn comes.
        """
        self._seconds += sum(len(samples) for samples, _ in tracks) / SAMPLE_RATE
        work = self._pool.submit(self._recognize_all, tracks)
        self._results += [(work, number) for number in range(len(tracks))]

    def listen(self, listener: Listener) -> None:
        """Call `listener` from another thread as words become final; set it before the first track."""
        self._listener = listener

    def hold(self) -> None:
        """Pause the CPU until `go_on`, for work that needs all cores.

        Two that share the cores take longer than one after the other; the model is loaded all the same.
        """
        self._cores_free.clear()

    def go_on(self) -> None:
        """End the pause."""
        self._cores_free.set()

    def result(self) -> Recognition:
        """Wait for the words of the next track.

        Raises TranscriptionError if the model cannot be used or the engine fails, UsageError if the model
        does not know the language, CancelledError if the reporter's `check` does.
        """
        work, number = self._results[0]
        while not work.done():
            self._reporter.check()
            wait([work], 0.5)  # without a limit of time, Ctrl-C would not get through on Windows
        recognition = work.result()[number]
        self._results.popleft()
        return recognition

    def check(self) -> None:
        """Raise UsageError if the model turned out to be unable to obey the options."""
        if self._prepared.done() and isinstance(error := self._prepared.exception(), UsageError):
            raise error

    def __enter__(self) -> TrackRecognizer:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        self._engine.kill()
        self._cores_free.set()
        self._pool.shutdown(cancel_futures=True)

    # --- the thread of the pool ---

    def _prepare(self) -> None:
        """Load the model. Raises UsageError if it cannot obey the options."""
        self._engine.load()
        if problem := _problem(self._engine.abilities, self._options):
            raise UsageError(f"{self._engine.path} {problem}; --whisper chooses another model")
        self._prompt, self._warnings = fit_or_warn(
            self._options.vocabulary, self._options.prompt, self._engine.count, PROMPT
        )

    def _recognize_all(self, tracks: Sequence[Sound]) -> list[Recognition]:
        self._prepared.result()
        while self._engine.abilities.device == "cpu" and not self._cores_free.wait(0.5):
            self._check()
        final = all(speech is None or speech.finished for _, speech in tracks)
        groups = [tracks] if final else [[track] for track in tracks]
        return [recognition for group in groups for recognition in self._recognize_together(group)]

    def _recognize_together(self, tracks: Sequence[Sound]) -> list[Recognition]:
        """Recognize some tracks, always the one that is least far. Raises TranscriptionError."""
        self._together = len(tracks)
        work = [self._recognize(len(self._done) + number, *track) for number, track in enumerate(tracks)]
        self._done += [0.0] * len(tracks)
        until, seconds = [0.0] * len(tracks), [0.0] * len(tracks)
        results: dict[int, Recognition] = {}
        while len(results) < len(tracks):
            rest = (number for number in range(len(tracks)) if number not in results)
            track = min(rest, key=lambda number: until[number])
            begun = time.perf_counter()
            try:
                until[track] = next(work[track])
            except StopIteration as end:
                results[track] = end.value
            seconds[track] += time.perf_counter() - begun
        return [replace(results[number], seconds=spent) for number, spent in enumerate(seconds)]

    def _recognize(
        self, number: int, samples: Samples, speech: Speech | None
    ) -> Generator[float, None, Recognition]:
        """Recognize a track; yield from time to time the second until which it is done."""
        track = TrackInput(number, samples, Loudness.of(samples), speech)
        duration = len(samples) / SAMPLE_RATE
        longest = MULTI_WINDOW if self._options.language == MULTI else WINDOW
        coming = pieces(track.loudness, speech, self._check, longest=longest)
        first: list[Piece] = []
        languages = TrackLanguages(track, self._options.language, self._engine, self._when)
        abilities = self._engine.abilities
        language = language_tracking.fixed_language(self._options.language, abilities.languages)
        changes = language is None and abilities.compares_languages
        if language is None:
            first = list(islice(coming, TELLING))
            language = languages.main(first)
        # On a GPU it runs beside the diarizer, and needs few cores itself.
        cores = self._threads if abilities.device == "cpu" else self._threads - self._threads // 4
        decoding = DecodeOptions(
            max(1, cores),
            None if language == MULTI else language,
            self._options.translate,
            self._prompt,
            greedy=self._options.fast_words,
            among=languages.requested if changes and language else None,
        )
        every: Iterable[Piece] = chain(first, coming)
        if speech is None or speech.finished:
            every = list(every)  # so that they can be shared out evenly
        queue = self._decode(track, every, decoding, soon=True)
        decided = partial(self._decode, track, options=replace(decoding, among=None))
        texts = languages.decide(self._with_progress(track, queue), decoding.language or "", decided)
        doubts = None
        if list(abilities.languages) == ["en"] and not languages.requested:
            doubts = language_tracking.Doubts()
            texts = doubts.counted(texts)
        words, notes = yield from self._words(track, texts, queue.ready, decoding)
        if doubts and doubts.prevail:
            self._warnings.append(language_tracking.not_english(self._model.name))
            notes = [note for note in notes if note.text == DROPPED]
        self._warnings += format_notes(notes, self._minutes)
        self._progress(track, duration)
        counted = Counter(word.language for word in words)
        if counted:
            language = counted.most_common(1)[0][0]
        elif language == MULTI:
            language = None
        self._warnings += language_tracking.several_languages(words, self._minutes)
        warnings = (*self._engine.warnings, *self._warnings)
        self._engine.warnings, self._warnings = [], []
        return Recognition(tuple(words), language, self._engine.abilities.device, warnings)

    def _words(
        self,
        track: TrackInput,
        first: Iterable[Recognized],
        ready: Callable[[], bool],
        decoding: DecodeOptions,
    ) -> Generator[float, None, tuple[list[Word], list[Note]]]:
        """Return the words of a track from the first texts of its pieces, with notes about doubtful ones.

        While the next piece is `ready`, gaps wait for more gaps, so that all cores have work. The listener
        gets words as they become final. Yields after each piece its end.
        """
        careful = replace(decoding, greedy=False, again=True, prompt="", among=None)
        words: list[Word] = []
        unfinished: list[Recognized] = []  # pieces that are not words yet
        from_gaps: list[Word] = []
        notes: list[Note] = []
        searched, reported = 0.0, False

        def search_gaps(until: float) -> None:
            """Recognize the gaps that no later word can fill."""
            nonlocal searched, reported
            gaps = list(track.gaps(words, searched))
            certain = gaps
            if until < inf:
                after = words[-1].start if words else 0.0
                certain = [gap for gap in gaps if gap.end <= min(until - SETTLED, after)]
                if reported and len(certain) < self._engine.abilities.workers and ready():
                    return
            reported = True
            if certain:
                from_gaps.extend(self._recognize_gaps(track, certain, words, decoding))
                searched = certain[-1].end
            horizon = min([until, *(gap.start for gap in gaps[len(certain) :])]) - NEAR
            so_far = tuple(word for word in _in_order(words, from_gaps) if word.start < horizon)
            self._listener(track.number, Recognition(so_far, None, self._engine.abilities.device), horizon)

        again = partial(self._decode, track, options=careful)
        repeats = partial(self._repeats, decoding)
        for texts, more_notes in check_texts(first, again, track.loudness, track.coverage, repeats):
            notes += more_notes
            unfinished += texts
            if not texts or ends_inside(texts[-1][1].tokens):
                continue
            words += track.words(unfinished, words)
            unfinished.clear()
            if track.speech is None or track.speech.finished:
                search_gaps(texts[-1][0].end)
            yield texts[-1][0].end
        words += track.words(unfinished, words)
        search_gaps(inf)
        return _in_order(words, from_gaps), notes

    def _repeats(self, decoding: DecodeOptions, piece: Piece) -> bool:
        """Return whether a second try would give the same text: the same search, and no prompt to drop."""
        above = self._engine.abilities.repeats_above
        searched = above is not None and len(piece) > above * FRAME_RATE
        return searched and not decoding.greedy and not decoding.prompt

    def _with_progress(self, track: TrackInput, texts: Iterable[Recognized]) -> Iterator[Recognized]:
        for piece, text in texts:
            self._progress(track, min(piece.end, len(track.samples) / SAMPLE_RATE))
            yield piece, text

    def _minutes(self, seconds: float) -> str:
        """Format a time in the recording: 0:07, 61:05."""
        whole = int(self._options.start + seconds)
        return f"{whole // 60}:{whole % 60:02d}"

    def _when(self, piece: Piece) -> str:
        return f"at {self._minutes(piece.start)} of the recording,"

    def _progress(self, track: TrackInput, seconds: float) -> None:
        self._done[track.number] = seconds
        self._reporter.progress("transcription", sum(self._done), self._seconds)

    def _decode(
        self, track: TrackInput, pieces: Iterable[Piece], options: DecodeOptions, *, soon: bool = False
    ) -> PieceQueue:
        """Return the texts of pieces, in order."""

        def send(group: Sequence[Piece]) -> int:
            in_language = replace(options, language=group[0].language or options.language)
            return self._engine.send(
                [track.part(piece) for piece in group], in_language, self._when(group[0])
            )

        count = len(pieces) if isinstance(pieces, Sized) else len(track) // WINDOW
        return PieceQueue(self._engine, send, pieces, count=count, beside=self._together, soon=soon)

    def _recognize_gaps(
        self, track: TrackInput, gaps: Sequence[Piece], words: Sequence[Word], decoding: DecodeOptions
    ) -> list[Word]:
        """Return the words that a second try finds in gaps between `words`."""
        careful = replace(decoding, greedy=False, again=True, among=None)
        return recognize_gaps(
            [replace(gap, language=language_near(words, gap)) for gap in gaps],
            partial(self._decode, track, options=careful),
            lambda text: track.words([text]),
            words,
            track.loudness,
            track.coverage,
        )

    def _check(self) -> None:
        if self._leaving:
            raise TranscriptionError("the recognizer was closed before all words were there")


def _in_order(words: Sequence[Word], from_gaps: Sequence[Word]) -> list[Word]:
    return sorted([*words, *from_gaps], key=lambda word: word.start)


def check_model(model: ModelFile, options: Options) -> None:
    """Raise UsageError if an English-only model is to recognize another language or to translate.

    A file that cannot be read passes: loading it raises an error that says why.
    """
    english = Abilities("cpu", ["en"], translates=False)
    if user_files.english_only(model) and (problem := _problem(english, options)):
        raise UsageError(f"{model.name} {problem}; --whisper chooses another model")


def _problem(abilities: Abilities, options: Options) -> str | None:
    """Return the option that a model with these abilities cannot obey, or None."""
    unknown = set(language_tracking.requested(options.language)) - set(abilities.languages)
    english = list(abilities.languages) == ["en"]
    if unknown and abilities.languages:
        only = "it knows only English" if english else "it knows others"
        return f"does not know the language {min(unknown)!r} ({only})"
    if options.translate and not abilities.translates:
        return "cannot translate (it knows only English)" if english else "cannot translate"
    if (options.prompt or options.vocabulary) and not abilities.prompts:
        return "takes neither a prompt nor a vocabulary"
    return None


def without_control_tokens(text: str) -> str:
    """Return the text without control tokens and control characters."""
    return without_commands(CONTROL_TOKEN.sub(" ", without_commands(text)))


def context(terms: Sequence[str], prompt: str) -> str:
    """Join the terms and the prompt, which comes last: the text nearest to the speech counts most.

    The wording: docs/decisions/2026-11-22-words.md, "Vocabulary".
    """
    glossary = f"Glossary: {', '.join(terms)}." if terms else ""
    return f"{glossary} {prompt}".strip()


def fit(
    terms: Sequence[str], prompt: str, count: Callable[[str], int], room: int
) -> tuple[str, Sequence[str]]:
    """Return the context with as many of the first terms as fit into `room` tokens, and the other terms.

    `count` returns the tokens of a text. A prompt that is too long by itself comes back whole, without terms;
    the engine uses its end.
    """
    fitting = bisect_right(
        range(1, len(terms) + 1), room, key=lambda number: count(context(terms[:number], prompt))
    )
    return context(terms[:fitting], prompt), terms[fitting:]


def fit_or_warn(
    vocabulary: Sequence[str], prompt: str, count: Callable[[str], int], room: int
) -> tuple[str, list[str]]:
    """Clean a person's vocabulary and prompt and fit them, with warnings about everything that is dropped."""
    plain_prompt = without_control_tokens(prompt)
    terms = [term for term in map(without_control_tokens, vocabulary) if term]
    warnings = [
        f"control characters and control tokens such as <|endoftext|> were taken out of the {option}"
        for option, texts in (("prompt", (prompt,)), ("vocabulary", vocabulary))
        if any(without_control_tokens(text) != " ".join(text.split()) for text in texts)
    ]
    if not terms and not plain_prompt:
        return "", warnings
    text, left_out = fit(terms, plain_prompt, count, room)
    if count(plain_prompt) > room:
        warnings.append(
            f"the prompt is longer than the {room} tokens that the recognizer takes, so it heard only the "
            "end; shorten it"
        )
    if left_out:
        warnings.append(
            f"the vocabulary is longer than the recognizer takes: the last {len(left_out)} of {len(terms)} "
            f"terms were left out, from {left_out[0]!r} on; put the important ones first"
        )
    return text, warnings
