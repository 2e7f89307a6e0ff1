"""A recording -> a transcript: the only file that knows the order of the stages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from witness import (
    clustering,
    corrections,
    embedding,
    gpu,
    merging,
    migraphx,
    models,
    reconstruction,
    segmentation,
    source,
    tracing,
    transcription,
    vbx,
    voices,
    writers,
)
from witness.errors import ModelError, UsageError, WitnessError
from witness.schema import (
    FRAME_STEP,
    Bool,
    Bounds,
    Correction,
    Count,
    Float64,
    Map,
    ModelFile,
    Note,
    Progress,
    Recognition,
    Samples,
    Segmentation,
    Speaker,
    Stages,
    Track,
    Transcript,
    Turn,
    Utterance,
    Word,
    no_note,
    no_progress,
)
from witness.sessions import Runtime, workers

if TYPE_CHECKING:
    from witness import audio

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""In this order in `Transcript.timing`; a stage that did not run is None there."""

LONG = 3 * 3600.0
"""Seconds of a recording whose results need the memory that the models keep, 0.3 GB; a day's are 0.9 GB."""

GHOST_SHARE = 0.02  # of all speech; with GHOST_TURN noScribe's rule, right for 69 % of what it names
GHOST_TURN = 2.0  # seconds


@dataclass(frozen=True)
class Options:
    """What changes the result; the counterpart of `sessions.Runtime`, which changes the speed."""

    models: str = "auto"
    """"auto", a name of `models.SETS` or a folder with segmentation.onnx and embedding.onnx."""
    whisper: str = "auto"
    """"auto", "none", the name of a model or the path of a ggml file."""
    language: str | None = None
    """ISO 639-1 code; None: found out."""
    speakers: int | None = None
    """Exactly so many; with channels="split", in each channel; of a call that "auto" found, in all."""
    min_speakers: int | None = None
    max_speakers: int | None = None
    channels: Literal["auto", "mix", "split"] = "auto"
    """"auto": split if they are the two sides of a call."""
    precision: Literal["fp32", "fp16"] = "fp32"
    """Of the voice model on a GPU; the CPU's is always fp32."""
    fast: bool = False
    """Windows further apart, and voices from speech without the pauses around it: a little less accurate."""
    offline: bool = False
    """Open no socket: use the model files that are here."""
    known: str | None = None
    """A folder of voices to recognise; None: nobody is."""

    @property
    def asked(self) -> Bounds:
        return Bounds(self.speakers, self.min_speakers, self.max_speakers)


def diarize(
    path: str | os.PathLike[str],
    options: Options = Options(),
    runtime: Runtime = Runtime(),
    *,
    progress: Progress = no_progress,
    note: Note = no_note,
) -> Transcript:
    """Who spoke when in the recording at `path` ("-": standard input). The transcript has no words.

    Raises InputError, ModelError, DeviceError or UsageError.
    """
    return transcribe(path, replace(options, whisper="none"), runtime, progress=progress, note=note)


def transcribe(
    path: str | os.PathLike[str],
    options: Options = Options(),
    runtime: Runtime = Runtime(),
    *,
    progress: Progress = no_progress,
    note: Note = no_note,
) -> Transcript:
    """Who spoke when and what they said in the recording at `path` ("-": standard input).

    Without a speech recogniser there are no words, and a warning says why; if it was asked for by name or
    failed on the way, `Transcript.failure` holds the error, and the speakers are delivered all the same.
    Raises InputError, ModelError (of the diarizer's models), DeviceError or UsageError.
    """
    return Engine(options, runtime, progress=progress, note=note).transcribe(path)


class Engine:
    """The models that some options ask for: chosen, verified and opened once, for any number of recordings.

    Only whisper.cpp starts anew for each recording, beside the decoding: what it makes of an unclear passage
    depends on the random numbers it drew before, and so would depend on the recordings before.
    """

    def __init__(
        self,
        options: Options = Options(),
        runtime: Runtime = Runtime(),
        *,
        progress: Progress = no_progress,
        note: Note = no_note,
    ) -> None:
        self.options = options
        self.runtime = runtime
        self.progress = progress
        self.note = note
        self.warnings: list[str] = []
        """What there was to say about the choice of models; it holds for every transcript."""

    def transcribe(self, path: str | os.PathLike[str]) -> Transcript:
        """As the function of that name."""
        run = _Run(self.options, self.runtime, self.progress, self.note, asked=self.options.asked)
        return run.transcribe(self, os.fspath(path))

    @cached_property
    def chosen(self) -> models.DiarizationModels:
        """Raises ModelError."""
        return models.diarization_models(
            self.options.models, offline=self.options.offline, progress=self.progress, note=self._warn
        )

    @cached_property
    def whisper(self) -> tuple[ModelFile | None, WitnessError | None]:
        """The recogniser's model, or why there is none although it was asked for by name."""
        try:
            return models.whisper_model(
                self.options.whisper,
                offline=self.options.offline,
                gpu=transcription.has_gpu_backend(),
                progress=self.progress,
                note=self._warn,
            ), None
        except ModelError as error:
            return None, error

    @cached_property
    def segmenter(self) -> segmentation.SegmentationModel:
        """Raises ModelError."""
        return segmentation.load(self.chosen.segmentation)

    @cached_property
    def voice(self) -> embedding.VoiceModel:
        """On the CPU. Raises ModelError."""
        return embedding.load(self.chosen.embedding)

    @cached_property
    def plda(self) -> dict[str, Float64]:
        """As in `Stages`. Raises ModelError."""
        return vbx.read(self.chosen.plda)

    @cached_property
    def known(self) -> voices.Known | None:
        """Raises InputError, ModelError."""
        if self.options.known is None:
            return None
        embedding = self.chosen.embedding
        threshold = models.stranger_threshold(embedding)
        return voices.Known(voices.read(Path(self.options.known), embedding.sha256, self._warn), threshold)

    def open(self) -> None:
        """Open the diarizer's models, as they are needed otherwise. Raises ModelError."""
        _ = self.segmenter, self.voice

    def release(self) -> None:
        """Give back the memory of the models, which are opened again if they are needed."""
        for model in ("segmenter", "voice"):
            self.__dict__.pop(model, None)

    @property
    def files(self) -> dict[str, ModelFile | None]:
        """As in `Transcript.models`."""
        chosen = self.chosen
        return {
            "segmentation": chosen.segmentation,
            "embedding": chosen.embedding,
            "whisper": self.whisper[0],
        }

    def _warn(self, line: str) -> None:
        self.warnings.append(line)
        self.note(line)


def redo(
    stages: Stages,
    asked: Bounds = Bounds(),
    known: Sequence[Correction] = (),
    *,
    note: Note = no_note,
) -> Transcript:
    """A transcript from what the models found earlier, with another number of speakers and corrections.

    No model runs and no file is read. Raises UsageError if nothing can satisfy `asked`.
    """
    begun = time.perf_counter()
    run = _Run(Options(), Runtime(), no_progress, note, asked=asked, corrections=tuple(known))
    return run.transcript(stages, run.diarize(stages), begun)


def voiceprints(stages: Stages, asked: Bounds = Bounds()) -> dict[str, voices.Print]:
    """Speaker -> print, of the speakers that `redo` would find."""
    run = _Run(Options(), Runtime(), no_progress, no_note, asked=asked)
    return _prints(stages, run.diarize(stages))


def _prints(stages: Stages, diarized: list[_Diarized]) -> dict[str, voices.Print]:
    found: dict[str, voices.Print] = {}
    for track, who in zip(stages.tracks, diarized, strict=True):
        alone = who.found.active & (who.found.active.sum(axis=1, keepdims=True) == 1)
        seconds = [float(count) * FRAME_STEP for count in alone.sum(axis=0)]
        owners = reconstruction.owners(track.windows, who.found)
        for name, one in zip(who.names, voices.prints(track, owners, seconds), strict=True):
            found[name] = found[name] + one if name in found else one
    return found


def bounds(asked: Bounds) -> clustering.SpeakerBounds:
    """How many speakers there may be. Raises UsageError if nothing can satisfy it."""
    if asked.speakers is not None and (asked.min_speakers, asked.max_speakers) != (None, None):
        raise UsageError("--speakers says all; leave out --min-speakers and --max-speakers")
    least = asked.min_speakers if asked.speakers is None else asked.speakers
    most = asked.max_speakers if asked.speakers is None else asked.speakers
    return clustering.SpeakerBounds(1 if least is None else least, most)


@dataclass(frozen=True)
class _Diarized:
    """Who speaks in one track, by the columns of `found`; two columns of one name are one speaker."""

    names: list[str]
    found: reconstruction.Diarization
    count: Count

    def turns(self, duration: float, *, exclusive: bool = False) -> list[Turn]:
        active: Iterable[Bool] = self.found.active.T
        if exclusive:
            alone = self.found.exclusive()
            active = (alone == speaker for speaker in range(len(self.names)))
        return reconstruction.turns(active, self.names, duration)

    def renamed(self, names: dict[str, str]) -> _Diarized:
        merged = [names.get(name, name) for name in self.names]
        kept = list(dict.fromkeys(merged))
        return _Diarized(kept, self.found.merged([kept.index(name) for name in merged]), self.count)


@dataclass
class _Run:
    """One recording on its way through the stages."""

    options: Options
    runtime: Runtime
    progress: Progress
    note: Note
    asked: Bounds = Bounds()
    corrections: tuple[Correction, ...] = ()
    known: voices.Known | None = None
    timing: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    device: str = "cpu"
    """What ran the voice model."""
    serial: bool = False
    """The words wait for the speakers."""

    def transcribe(self, engine: Engine, path: str) -> Transcript:
        begun = time.perf_counter()
        bounds(self.asked)
        if self.runtime.serial and self.runtime.parallel:
            raise UsageError("--serial or --parallel, not both")
        if self.options.language is not None:
            transcription.check_language(self.options.language)
        source.check(path)  # before any model is fetched for it
        with ExitStack() as stack:
            whisper, failure = engine.whisper
            self.serial = self.runtime.serial or self._too_little_memory(whisper)
            recognizer = None
            if whisper is not None and not self.serial:
                # Started before anything else: it loads its model while the audio is decoded.
                recognizer = stack.enter_context(self._recognizer(whisper))
            chosen = engine.chosen
            self.known = engine.known
            recording = self._decode(path, engine)
            for warning in recording.warnings:
                self.warn(warning)
            if recognizer is not None:
                for samples in recording.samples:
                    recognizer.send(samples)
            tracks = self._hear(recording, engine)
            if recording.source.duration > LONG:
                engine.release()
            if whisper is not None and self.serial:
                # Not before: its model would fill the GPU's memory.
                recognizer = stack.enter_context(self._recognizer(whisper))
                for samples in recording.samples:
                    recognizer.send(samples)
            stages = Stages(
                audio=recording.source,
                models=engine.files,
                device={"embedding": self.device, "whisper": None},
                rule=chosen.rule,
                plda=engine.plda,
                channels=recording.channels,
                tracks=tracks,
                fast=self.options.fast,
            )
            diarized = self.diarize(stages)  # beside the recogniser
            if recognizer is not None:
                try:
                    stages = self._with_words(stages, self._recognise(recognizer, recording))
                except WitnessError as error:
                    failure = error
        if failure is not None:
            self.warnings.append(f"no words: {failure}")  # said aloud by whoever gets `failure`
        stages = replace(stages, warnings=(*engine.warnings, *self.warnings))
        return replace(self.transcript(stages, diarized, begun), failure=failure)

    def _decode(self, path: str, engine: Engine) -> audio.Audio:
        """The recording, while the models are opened."""
        with ThreadPoolExecutor(1) as opener:
            opened = opener.submit(engine.open)
            from witness import audio  # here, because the recogniser's process starts before any heavy import

            with self._timed("decode"):
                recording = audio.load(path, channels=self.options.channels, progress=self.progress)
            opened.result()
        return recording

    def diarize(self, stages: Stages) -> list[_Diarized]:
        """Who speaks in each track."""
        with self._timed("clustering"):
            self.progress("clustering", 0, 1)
            wanted = bounds(self.asked)
            if stages.channels == "call":
                found = self._sides(stages, wanted)
            else:
                found = [self._diarize(stages, number, wanted) for number in range(len(stages.tracks))]
            reconstruction.fill_pauses([track.found.active for track in found], stages.rule.pause)
            self.progress("clustering", 1, 1)
        return found

    def _sides(self, stages: Stages, wanted: clustering.SpeakerBounds) -> list[_Diarized]:
        """Who speaks on each side of a call: two sides never share a speaker, and `wanted` is for both."""
        most = None if wanted.most is None else max(1, wanted.most - 1)
        found = [self._diarize(stages, side, clustering.SpeakerBounds(1, most)) for side in (0, 1)]
        counts = [len(side.names) for side in found]
        if wanted.most == 1:
            return [side.renamed(dict.fromkeys(side.names, "SPEAKER_00")) for side in found]
        least, total = wanted.least, sum(counts)
        target = max(least, total if wanted.most is None else min(wanted.most, total))
        if total == target or not all(counts):
            return found
        # The split that changes what was found the least; where two are as good, the first side has more.
        first = min(range(target - 1, 0, -1), key=lambda n: abs(n - counts[0]) + abs(target - n - counts[1]))
        shares = (first, target - first)
        return [
            self._diarize(stages, side, clustering.SpeakerBounds(share, share))
            for side, share in enumerate(shares)
        ]

    def _diarize(self, stages: Stages, number: int, wanted: clustering.SpeakerBounds) -> _Diarized:
        track = stages.tracks[number]
        prefix = "" if stages.channels == "mix" else f"CH{number + 1}_"
        active = track.windows.active
        plda = vbx.from_parameters(stages.plda) if stages.plda else None
        clusters = clustering.cluster(
            track.vectors, active, stages.rule, step=track.windows.step, bounds=wanted, plda=plda
        )
        found = reconstruction.reconstruct(track.windows, clusters.labels, most=wanted.most)
        names = [f"{prefix}SPEAKER_{number:02d}" for number in range(found.active.shape[1])]
        return _Diarized(names, found, clusters.count)

    def transcript(self, stages: Stages, diarized: list[_Diarized], begun: float) -> Transcript:
        """The result, corrected. What the stages already warned of is not said again."""
        self.warnings[:] = stages.warnings
        duration = stages.audio.duration
        counts = [len(track.names) for track in diarized]
        if stages.channels == "call":
            counts = [len({name for track in diarized for name in track.names})]
        for count in counts:
            if count and count not in bounds(self.asked):
                self.warn(f"{bounds(self.asked)} asked for, but only {count} could be told apart")
        heard = sorted(turn for track in diarized for turn in track.turns(duration))
        if not heard:
            self.warn("no speech was found in this recording")
        merged = corrections.merges(self.corrections, heard)
        named = [track.renamed(merged) for track in diarized]
        turns = _united(sorted(turn for track in named for turn in track.turns(duration)))
        self._recognise_voices(stages, named, turns)
        with self._timed("merging"):
            words, utterances = self._merge(stages, diarized, merged, turns)
        recognitions = [track.recognition for track in stages.tracks if track.recognition]
        speakers = _speakers(turns, self._names(turns))
        for name in ghosts(speakers, turns):
            self.warn(f"{name} may be nobody: little speech in all, and never {GHOST_TURN:.0f} s at a time")
        return Transcript(
            audio=stages.audio,
            models=stages.models,
            device=stages.device,
            timing=self._times(time.perf_counter() - begun, recognitions),
            language=next((found.language for found in recognitions if found.language), None),
            speakers=speakers,
            turns=tuple(turns),
            utterances=tuple(utterances),
            words=tuple(words),
            warnings=tuple(self.warnings),
            counts=tuple(track.count for track in diarized),
            stages=stages,
            fast=stages.fast,
            asked=self.asked,
            corrections=self.corrections,
        )

    def _recognise_voices(self, stages: Stages, diarized: list[_Diarized], turns: list[Turn]) -> None:
        """Name the speakers that are known; what somebody corrected comes later, and so counts more."""
        if self.known is None:
            return
        for speaker, (voice, alike) in voices.recognise(_prints(stages, diarized), self.known).items():
            self.note(
                f"{speaker} sounds like {voice.name} (cosine {alike:.2f}, {self.known.threshold} needed)"
            )
            found = Correction("name", corrections.anchor(speaker, turns), voice.name)
            self.corrections = (found, *self.corrections)

    def _names(self, turns: list[Turn]) -> dict[str, str]:
        found = corrections.names(self.corrections, turns)
        for speaker, given in found.items():
            if len(given) > 1:
                self.warn(f"{' and '.join(given)} are one speaker here; {speaker} is called {given[-1]}")
        return {speaker: given[-1] for speaker, given in found.items()}

    def _times(self, wall: float, recognitions: list[Recognition]) -> dict[str, float | str | None]:
        mode = None
        if recognitions and "transcription" in self.timing:  # or it was an earlier run that heard them
            mode = "serial" if self.serial else "parallel"
        return {**{stage: self.timing.get(stage) for stage in STAGES}, "wall": wall, "mode": mode}

    def warn(self, line: str) -> None:
        self.warnings.append(line)
        self.note(line)

    def _too_little_memory(self, whisper: ModelFile | None) -> bool:
        """Whether both engines may use the card, and it has no room for both."""
        if whisper is None or self.runtime.device == "cpu" or self.runtime.parallel:
            return False
        if not transcription.has_gpu_backend():
            return False
        # "auto" never puts the voice model on a card that AMD does not list.
        able = [card for card in gpu.cards() if self.runtime.device != "auto" or card.supported == "listed"]
        card = gpu.pick(able, self.runtime.gpu)
        needed = transcription.gpu_memory(whisper)
        if card is None or needed is None or (lack := card.lack_for_both(needed)) is None:
            return False
        cure = "a smaller --whisper, or --parallel, runs them side by side"
        self.note(f"one engine after the other: {lack}; {cure}")
        return True

    def _recognizer(self, whisper: ModelFile) -> transcription.Recognizer:
        return transcription.Recognizer(
            whisper,
            language=self.options.language,
            threads=self._whisper_threads(),
            progress=self.progress,
        )

    def _whisper_threads(self) -> int:
        """On the CPU, beside the diarizer: most of the cores, for it has most of the work."""
        workers = self.runtime.worker_count
        return workers if self.serial else max(1, workers - max(1, workers // 4))

    def _hear(self, recording: audio.Audio, engine: Engine) -> tuple[Track, ...]:
        """What the diarizer's models find in each track: voices of what is segmented already, meanwhile."""
        tracks = []
        with (
            workers(self.runtime.worker_count) as cores,
            self._voice(engine, recording, cores) as (voice, voices_on),
        ):
            for samples in recording.samples:
                pieces: list[Segmentation] = []
                with self._timed("embedding"):
                    vectors = embedding.embed(
                        samples,
                        self._segmented(samples, engine, cores, pieces),
                        voice,
                        context=embedding.FAST_CONTEXT if self.options.fast else embedding.CONTEXT,
                        mapper=voices_on,
                        progress=self.progress,
                    )
                tracks.append(Track(Segmentation.joined(pieces), vectors))
        return tuple(tracks)

    def _segmented(
        self,
        samples: Samples,
        engine: Engine,
        cores: Map,
        pieces: list[Segmentation],
    ) -> Iterator[Segmentation]:
        """The windows as they are found; they are left in `pieces`, too."""
        with self._timed("segmentation"):
            for piece in segmentation.stream(
                samples,
                engine.segmenter,
                step=segmentation.step_of(len(samples), fast=self.options.fast),
                faint=engine.chosen.rule.faint,
                mapper=cores,
                progress=self.progress,
            ):
                pieces.append(piece)
                yield piece

    @contextmanager
    def _voice(
        self, engine: Engine, recording: audio.Audio, cores: Map
    ) -> Iterator[tuple[embedding.VoiceModel, Map]]:
        """The voice model, on the GPU too if that is wanted and pays, and what runs its blocks."""
        voice = engine.voice
        with migraphx.accelerate(
            voice.trunk_part,
            f"trunk of {engine.chosen.embedding.name}",
            embedding.BLOCK_SHAPE,
            voice.trunk,
            self.runtime,
            calls=sum(embedding.full_blocks(len(samples)) for samples in recording.samples),
            precision=self.options.precision,
            progress=self.progress,
            note=self.note,
            warn=self.warn,
        ) as gpu:
            if gpu is None:
                yield voice, cores
            else:
                with workers(1) as waiting:  # for the GPU, which does one block after the other; no core does
                    yield replace(voice, block_trunk=gpu), waiting
        if gpu is not None:
            self.device = gpu.device

    def _recognise(self, recognizer: transcription.Recognizer, recording: audio.Audio) -> list[Recognition]:
        if not self.serial:
            recognizer.set_threads(self.runtime.worker_count)  # the diarizer is done
        found = [recognizer.result() for _ in recording.samples]
        self.timing["transcription"] = sum(recognition.seconds for recognition in found)
        for recognition in found:
            for warning in recognition.warnings:
                self.warn(warning)
        return found

    def _with_words(self, stages: Stages, recognitions: list[Recognition]) -> Stages:
        tracks = zip(stages.tracks, recognitions, strict=True)
        return replace(
            stages,
            device={**stages.device, "whisper": recognitions[0].device if recognitions else None},
            tracks=tuple(replace(track, recognition=found) for track, found in tracks),
        )

    def _merge(
        self, stages: Stages, diarized: list[_Diarized], merged: dict[str, str], turns: list[Turn]
    ) -> tuple[list[Word], list[Utterance]]:
        """Words and utterances. A merge gives what two speakers said to one, and moves no other word: what
        a person sees in a page is what this makes of it."""
        words: list[Word] = []
        utterances: list[Utterance] = []
        for number, (track, who) in enumerate(zip(stages.tracks, diarized, strict=True)):
            alone = _united(
                [
                    replace(turn, speaker=merged.get(turn.speaker, turn.speaker))
                    for turn in who.turns(stages.audio.duration, exclusive=True)
                ]
            )
            if track.recognition is None:
                utterances += [Utterance(turn.start, turn.end, turn.speaker, track=number) for turn in alone]
                continue
            labelled = merging.label(track.recognition.words, who.found.evidence, who.found.active, who.names)
            labelled = [
                replace(word, speaker=merged[word.speaker]) if word.speaker in merged else word
                for word in labelled
            ]
            labelled = corrections.move(labelled, self.corrections, turns)
            unheard = merging.inaudible(alone, labelled)
            labelled = corrections.spell(labelled, self.corrections)
            words += labelled
            found = merging.utterances(labelled) + unheard
            utterances += [replace(utterance, track=number) for utterance in found]
            self._cross_check(labelled, unheard)
        return sorted(words, key=_when), sorted(utterances, key=_when)

    def _cross_check(self, words: list[Word], unheard: list[Utterance]) -> None:
        """Say where one engine heard something and the other did not."""
        if invented := sum(not word.supported for word in words):
            self.warn(f"{invented} words where no speech was heard are in JSON and page only")
        if unheard:
            seconds = sum(utterance.end - utterance.start for utterance in unheard)
            places = ", ".join(writers.clock(utterance.start) for utterance in unheard[:5])
            more = ", ..." if len(unheard) > 5 else ""
            self.warn(f"[inaudible]: {seconds:.0f} s of speech without words, at {places}{more}")

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begun, trace = time.perf_counter(), tracing.current()
        with nullcontext() if trace is None else trace.stage(stage):
            yield
        self.timing[stage] = self.timing.get(stage, 0.0) + time.perf_counter() - begun


def _when(item: Word | Utterance) -> tuple[float, float]:
    return item.start, item.end


def ghosts(speakers: Sequence[Speaker], turns: Sequence[Turn]) -> list[str]:
    """The speakers that may be a fault of the diarizer: reported, since some are real, and never dropped."""
    longest: dict[str, float] = {}
    for turn in turns:
        longest[turn.speaker] = max(longest.get(turn.speaker, 0.0), turn.duration)
    return [one.id for one in speakers if one.share < GHOST_SHARE and longest[one.id] <= GHOST_TURN]


def _united(turns: list[Turn]) -> list[Turn]:
    """The same turns, those of one speaker that overlap (merged from two tracks) as one."""
    last: dict[str, int] = {}
    united: list[Turn] = []
    for turn in turns:
        place = last.get(turn.speaker)
        if place is not None and turn.start <= united[place].end:
            united[place] = replace(united[place], end=max(united[place].end, turn.end))
        else:
            last[turn.speaker] = len(united)
            united.append(turn)
    return united


def _speakers(turns: list[Turn], names: dict[str, str]) -> tuple[Speaker, ...]:
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    total = sum(seconds.values())
    return tuple(
        Speaker(key, spoken, spoken / total, names.get(key)) for key, spoken in sorted(seconds.items())
    )
