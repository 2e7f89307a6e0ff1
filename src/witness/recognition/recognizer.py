"""Audio -> words, by an engine in a child process.

The audio is cut into pieces that fit the engine's window (`pieces`), and each is recognized on its own: that
bounds memory, shows progress, and a text that goes wrong goes wrong for one piece only. A text that cannot be
what was said is heard again with more care, and so is speech in which no word was found.

The times of words come from Whisper's attention (dynamic time warping), not from its time stamps, which are
seconds apart. Who said a word depends on its time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import inf
from types import TracebackType

from witness.errors import TranscriptionError, UsageError
from witness.languages import MULTI, parse
from witness.options import Options
from witness.progress import SILENT, Reporter
from witness.recognition import track_languages
from witness.recognition.cached_engine import ResumingEngine
from witness.recognition.chunking import WINDOW, Loudness, Piece, pieces
from witness.recognition.decode_queue import Hearing
from witness.recognition.engine_client import Remote
from witness.recognition.engine_worker import PROMPT, DecodeOptions
from witness.recognition.fallback import Found, Note, convincing, second_look, to_lines
from witness.recognition.prompting import fit_or_warn
from witness.recognition.tokens import NEAR
from witness.recognition.track_input import TrackWork, ends_inside, in_order, language_near
from witness.recognition.track_languages import TrackLanguages
from witness.recognition.vad import Speech
from witness.schema import SAMPLE_RATE, ModelFile, Recognition, Samples, Word
from witness.storage.checkpoint import Journal

WINDOW_OF_ONE = WINDOW // 3
"""Frames of a piece in a recording of several languages: a piece has one."""
TELLING = 20
"""Pieces, ten minutes of speech, among which the one that tells the language is chosen."""


SETTLED = 3.0
"""Seconds before a piece that is not heard yet in which no word of it can lie."""

Sound = tuple[Samples, Speech | None]
"""A track, and where somebody speaks in it; None: anywhere."""
Listener = Callable[[int, Recognition, float], None]
"""Called with the number of a track, counted from 0, its words so far, all of which are final, and a time
before which no other word of the track will begin."""


def no_listener(track: int, heard: Recognition, until: float) -> None:
    """For a caller who waits for all of them."""


@dataclass(frozen=True)
class TranscribeOptions:
    """What to hear."""

    language: str | None = None
    """A code, or several with commas between them that may be spoken; None: any; MULTI to hear pieces of ten
    seconds, each in its own."""
    translate: bool = False
    """Into English."""
    fast_words: bool = False
    """As `Options.fast_words`."""
    prompt: str = ""
    """A text that could have been said before: names, terms, spelling."""
    vocabulary: tuple[str, ...] = ()
    """Names and terms, the most important ones first: there is room for a hundred or less."""
    start: float = 0.0
    """Where in the recording the tracks begin, in seconds, for messages; words count from there."""


def wish(options: Options) -> TranscribeOptions:
    """What these options ask for."""
    return TranscribeOptions(
        options.language,
        options.translate,
        options.fast_words,
        options.prompt,
        tuple(options.vocabulary),
        options.start,
    )


class TrackRecognizer:
    """An engine in a child process, for one recording: a context manager that ends the child when left.

        with Recognizer(model, TranscribeOptions(), threads=4) as recognizer:
            recognizer.send(samples)
            recognition = recognizer.result()

    Several tracks may be sent; the results come in the same order. What goes wrong with the model or the
    child is raised by `result`, so that work beside it can go on.
    """

    def __init__(
        self,
        model: ModelFile,
        wish: TranscribeOptions = TranscribeOptions(),
        *,
        threads: int,
        gpu: bool = True,
        reporter: Reporter = SILENT,
        journal: Journal | None = None,
    ) -> None:
        """Start the child, which begins to load `model`, and return at once.

        `threads`: cores for an engine on the CPU; the words do not depend on them. `gpu`: use one if
        the engine can; if that fails, early or late, the CPU goes on, and a warning of the
        recognition says so. `reporter.progress` is called from another thread with ("transcription", seconds
        done, seconds sent), counting all tracks. What `journal` has is not heard again, and what is heard
        goes into it. Raises UsageError if there is no such language.
        """
        if wish.language is not None:
            wish = replace(wish, language=parse(wish.language))
        self._wish = wish
        self._name = model.name
        self._threads = threads
        self._reporter = reporter
        self._tracks: queue.SimpleQueue[Sequence[Sound] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Recognition | Exception] = queue.SimpleQueue()
        self._seconds = 0.0
        """Of all tracks that were sent."""
        self._listener: Listener = no_listener
        self._done: list[float] = []
        """Seconds of each track that are recognized."""
        self._together = 1
        """Tracks that are recognized at the same time."""
        self._owed = 0
        """Tracks whose result was not asked for yet."""
        self._failure: Exception | None = None
        self._refusal: UsageError | None = None
        self._prompt = ""
        """What the engine is told was said before."""
        self._warnings: list[str] = []
        """For the next recognition."""
        self._leaving = False
        self._turn = threading.Event()
        self._turn.set()
        self._engine = Remote(model, threads=threads, gpu=gpu)
        self._resuming = ResumingEngine(self._engine, model, journal or Journal())
        self._helper = threading.Thread(target=self._recognize_all, daemon=True)
        self._helper.start()

    def send(self, samples: Samples, speech: Speech | None = None) -> None:
        """Have a track recognized: (n,) mono at 16 kHz, which must not change before its result is there.

        `speech`: where somebody speaks, which another thread may still be finding out; None: anywhere.
        """
        self.send_all([(samples, speech)])

    def send_all(self, tracks: Sequence[Sound]) -> None:
        """As `send`, for the tracks of one recording.

        They are recognized in the order of time, so that the text begins with what was said first, unless it
        is still being found out where somebody speaks when their turn comes: then track by track.
        """
        self._seconds += sum(len(samples) for samples, _ in tracks) / SAMPLE_RATE
        self._owed += len(tracks)
        self._tracks.put(tracks)

    def listen(self, listener: Listener) -> None:
        """Have words told as they become final, from another thread; before the first track is sent."""
        self._listener = listener

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

    def check(self) -> None:
        """Raise UsageError once it is known that the model cannot do what is asked for."""
        if self._refusal is not None:
            raise self._refusal

    def __enter__(self) -> TrackRecognizer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        self._engine.kill()
        self._turn.set()
        self._tracks.put(None)
        self._helper.join()

    # --- the helper thread ---

    def _recognize_all(self) -> None:
        """Recognize the tracks, one piece after the other, and put what comes of it in `_results`."""
        try:
            self._engine.load()
            self._check_wish()
            self._prompt, warnings = fit_or_warn(
                self._wish.vocabulary, self._wish.prompt, self._engine.count, PROMPT
            )
            self._warnings += warnings
            while (tracks := self._tracks.get()) is not None:
                self._wait()
                known = all(speech is None or speech.finished for _, speech in tracks)
                for some in [tracks] if known else [[track] for track in tracks]:
                    for heard in self._recognize_some(some):
                        self._results.put(heard)
        except Exception as error:  # raised again by result()
            self._refusal = error if isinstance(error, UsageError) else None
            self._results.put(error)

    def _check_wish(self) -> None:
        """Raise UsageError if the model cannot do what is asked for."""
        able, wish = self._engine.abilities, self._wish
        problem = None
        unknown = set(track_languages.asked(wish.language)) - set(able.languages) if able.languages else set()
        if unknown:
            only = "it knows only English" if list(able.languages) == ["en"] else "it knows others"
            problem = f"does not know the language {min(unknown)!r} ({only})"
        elif wish.translate and not able.translates:
            problem = "cannot translate"
        elif (wish.prompt or wish.vocabulary) and not able.prompts:
            problem = "takes neither a prompt nor a vocabulary"
        if problem:
            raise UsageError(f"{self._engine.path} {problem}; --whisper chooses another model")

    def _recognize_some(self, tracks: Sequence[Sound]) -> list[Recognition]:
        """The words of some tracks, always of the one that is known least far. Raises TranscriptionError."""
        self._together = len(tracks)
        work = [self._recognize(len(self._done) + place, *one) for place, one in enumerate(tracks)]
        self._done += [0.0] * len(tracks)
        until, seconds = [0.0] * len(tracks), [0.0] * len(tracks)
        heard: dict[int, Recognition] = {}
        while len(heard) < len(tracks):
            place = min((one for one in range(len(tracks)) if one not in heard), key=lambda one: until[one])
            begun = time.perf_counter()
            try:
                until[place] = next(work[place])
            except StopIteration as end:
                heard[place] = end.value
            seconds[place] += time.perf_counter() - begun
        return [replace(heard[place], seconds=taken) for place, taken in enumerate(seconds)]

    def _recognize(
        self, number: int, samples: Samples, speech: Speech | None
    ) -> Generator[float, None, Recognition]:
        """The words of a track; says from time to time until when it is recognized."""
        track = TrackWork(number, samples, Loudness.of(samples), speech)
        duration = len(samples) / SAMPLE_RATE
        longest = WINDOW_OF_ONE if self._wish.language == MULTI else WINDOW
        coming = pieces(track.loudness, speech, self._check, longest=longest)
        first: list[Piece] = []
        languages = TrackLanguages(track, self._wish.language, self._resuming, self._when)
        language = track_languages.known(self._wish.language, self._engine.abilities.languages)
        changes = language is None and self._engine.abilities.compares_languages
        if language is None:
            first = list(islice(coming, TELLING))
            language = languages.main(first)
        # On a GPU it runs beside the diarizer, and needs few cores itself.
        cores = (
            self._threads if self._engine.abilities.device == "cpu" else self._threads - self._threads // 4
        )
        order = DecodeOptions(
            max(1, cores),
            None if language == MULTI else language,
            self._wish.translate,
            self._prompt,
            greedy=self._wish.fast_words,
            among=languages.asked if changes and language else None,
        )
        every: Iterable[Piece] = chain(first, coming)
        if speech is None or speech.finished:
            every = list(every)  # so that they can be shared out evenly
        hearing = self._hear(track, every, order, soon=True)
        first_heard = self._in_their_languages(track, hearing, order, languages)
        doubts = None
        if list(self._engine.abilities.languages) == ["en"] and not languages.asked:
            doubts = track_languages.Doubts()
            first_heard = doubts.counted(first_heard)
        words, notes = yield from self._words(track, first_heard, hearing.ready, order)
        if doubts and doubts.prevail:
            self._warnings.append(track_languages.not_english(self._name))
        else:
            self._warnings += to_lines(notes, self._minutes)
        self._progress(track, duration)
        counted = Counter(word.language for word in words)
        if counted:
            language = counted.most_common(1)[0][0]
        elif language == MULTI:
            language = None
        self._warnings += track_languages.to_line(words, self._minutes)
        warnings = (*self._engine.warnings, *self._warnings)
        self._engine.warnings, self._warnings = [], []
        return Recognition(tuple(words), language, self._engine.abilities.device, warnings)

    def _words(
        self,
        track: TrackWork,
        first: Iterable[Found],
        ready: Callable[[], bool],
        order: DecodeOptions,
    ) -> Generator[float, None, tuple[list[Word], list[Note]]]:
        """The words of a track, of whose pieces are given what was heard first, with notes about what is
        doubtful. While the next piece is `ready`, it waits for more to look at, so that all cores have work.
        The listener is told of words as they become final.

        Says after each piece until when all were heard."""
        careful = replace(order, greedy=False, again=True, prompt="", among=None)
        words: list[Word] = []
        open_: list[Found] = []  # pieces that are not words yet
        found: list[Word] = []  # by the second look
        notes: list[Note] = []
        looked, told = 0.0, False

        def look(until: float) -> None:
            """Take the second look where no word that is still to come can be."""
            nonlocal looked, told
            left = list(track.gaps(words, looked))
            certain = left
            if until < inf:
                after = words[-1].start if words else 0.0
                certain = [gap for gap in left if gap.end <= min(until - SETTLED, after)]
                if told and len(certain) < self._engine.abilities.workers and ready():
                    return
            told = True
            if certain:
                found.extend(self._look_again(track, certain, words, order))
                looked = certain[-1].end
            horizon = min([until, *(gap.start for gap in left[len(certain) :])]) - NEAR
            so_far = tuple(word for word in in_order(words, found) if word.start < horizon)
            self._listener(track.number, Recognition(so_far, None, self._engine.abilities.device), horizon)

        again = partial(self._hear, track, order=careful)
        for heard, said in convincing(first, again, track.loudness, track.coverage):
            notes += said
            open_ += heard
            if not heard or ends_inside(heard[-1][1].tokens):
                continue
            words += track.words(open_, words)
            open_.clear()
            if track.speech is None or track.speech.finished:
                look(heard[-1][0].end)
            yield heard[-1][0].end
        words += track.words(open_, words)
        look(inf)
        return in_order(words, found), notes

    def _in_their_languages(
        self, track: TrackWork, first: Iterable[Found], order: DecodeOptions, languages: TrackLanguages
    ) -> Iterator[Found]:
        """What was heard in each piece, in order, with progress, each in its language."""

        def heard() -> Iterator[Found]:
            for found in first:
                self._progress(track, min(found[0].end, len(track.samples) / SAMPLE_RATE))
                yield found

        known_now = replace(order, among=None)
        return languages.decided(
            heard(), order.language or "", lambda missing: self._hear(track, missing, known_now)
        )

    def _minutes(self, seconds: float) -> str:
        """When in the recording something is: 0:07, 61:05."""
        whole = int(self._wish.start + seconds)
        return f"{whole // 60}:{whole % 60:02d}"

    def _when(self, piece: Piece) -> str:
        return f"at {self._minutes(piece.start)} of the recording,"

    def _progress(self, track: TrackWork, seconds: float) -> None:
        """So many seconds of a track are done."""
        self._done[track.number] = seconds
        self._reporter.progress("transcription", sum(self._done), self._seconds)

    def _hear(
        self, track: TrackWork, some: Iterable[Piece], order: DecodeOptions, *, soon: bool = False
    ) -> Hearing:
        """What was heard in each piece, in order."""

        def send(group: Sequence[Piece]) -> int:
            told = replace(order, language=group[0].language or order.language)
            return self._resuming.send([track.part(piece) for piece in group], told, self._when(group[0]))

        count = len(some) if isinstance(some, Sized) else len(track) // WINDOW
        return Hearing(self._resuming, send, some, count=count, beside=self._together, soon=soon)

    def _look_again(
        self,
        track: TrackWork,
        some: Sequence[Piece],
        words: Sequence[Word],
        order: DecodeOptions,
    ) -> list[Word]:
        """The words that a second look finds in some gaps between `words`."""
        careful = replace(order, greedy=False, again=True, among=None)
        return second_look(
            [replace(gap, language=language_near(words, gap)) for gap in some],
            partial(self._hear, track, order=careful),
            lambda found: track.words([found]),
            words,
            track.loudness,
            track.coverage,
        )

    def _wait(self) -> None:
        """On a CPU that others use, until they are done."""
        while self._engine.abilities.device == "cpu" and not self._turn.wait(0.5):
            self._check()

    def _check(self) -> None:
        if self._leaving:
            raise TranscriptionError("nobody waits for the words anymore")
