"""A recording -> a transcript: the only file that knows the order of the stages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from witness import (
    audio,
    clustering,
    embedding,
    gpu,
    merging,
    migraphx,
    models,
    reconstruction,
    segmentation,
    tracing,
    transcription,
    vbx,
    writers,
)
from witness.errors import ModelError, UsageError, WitnessError
from witness.schema import (
    Count,
    Float32,
    ModelFile,
    Note,
    Progress,
    Recognition,
    Speaker,
    Transcript,
    Turn,
    Utterance,
    Word,
    no_note,
    no_progress,
)
from witness.sessions import Runtime

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""In this order in `Transcript.timing`; a stage that did not run is None there."""


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
    """Exactly so many; with channels="split", in each channel."""
    min_speakers: int | None = None
    max_speakers: int | None = None
    channels: Literal["mix", "split"] = "mix"
    precision: Literal["fp32", "fp16"] = "fp32"
    """Of the voice model on a GPU; the CPU's is always fp32."""
    offline: bool = False
    """Open no socket: use the model files that are here."""

    def bounds(self) -> clustering.SpeakerBounds:
        """How many speakers there may be. Raises UsageError if nothing can satisfy it."""
        if self.speakers is not None and (self.min_speakers, self.max_speakers) != (None, None):
            raise UsageError("--speakers says all; leave out --min-speakers and --max-speakers")
        least = self.min_speakers if self.speakers is None else self.speakers
        most = self.max_speakers if self.speakers is None else self.speakers
        return clustering.SpeakerBounds(1 if least is None else least, most)


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
    return _Run(options, runtime, progress, note).transcribe(os.fspath(path))


@dataclass(frozen=True)
class _Track:
    """What the diarizer finds in one track."""

    names: list[str]
    diarization: reconstruction.Diarization
    turns: list[Turn]
    exclusive: list[Turn]
    count: Count


@dataclass
class _Run:
    """One recording on its way through the stages."""

    options: Options
    runtime: Runtime
    progress: Progress
    note: Note
    timing: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    device: str = "cpu"
    """What ran the voice model."""
    serial: bool = False
    """The words wait for the speakers."""

    def transcribe(self, path: str) -> Transcript:
        begun = time.perf_counter()
        bounds = self.options.bounds()
        if self.runtime.serial and self.runtime.parallel:
            raise UsageError("--serial or --parallel, not both")
        if self.options.language is not None:
            transcription.check_language(self.options.language)
        audio.check(path)  # before any model is fetched for it
        with ExitStack() as stack:
            whisper, failure = self._whisper_model()
            self.serial = self.runtime.serial or self._too_little_memory(whisper)
            recognizer = None
            if whisper is not None and not self.serial:
                # Started before anything else: it loads its model while the audio is decoded.
                recognizer = stack.enter_context(self._recognizer(whisper))
            chosen = models.diarization_models(
                self.options.models, offline=self.options.offline, progress=self.progress, note=self.warn
            )
            with self._timed("decode"):
                recording = audio.load(path, channels=self.options.channels, progress=self.progress)
            for warning in recording.warnings:
                self.warn(warning)
            if recognizer is not None:
                for samples in recording.samples:
                    recognizer.send(samples)
            tracks = self._diarize(recording, chosen, bounds)
            if whisper is not None and self.serial:
                # Not before: its model would fill the GPU's memory.
                recognizer = stack.enter_context(self._recognizer(whisper))
                for samples in recording.samples:
                    recognizer.send(samples)
            recognitions: list[Recognition] = []
            if recognizer is not None:
                try:
                    recognitions = self._recognise(recognizer, recording)
                except WitnessError as error:
                    failure = error
        if failure is not None:
            self.warnings.append(f"no words: {failure}")  # said aloud by whoever gets `failure`
        words, utterances = self._merge(tracks, recognitions)
        turns = sorted(turn for track in tracks for turn in track.turns)
        if not turns:
            self.warn("no speech was found in this recording")
        speakers = _speakers(turns)
        for name in ghosts(speakers, turns):
            self.warn(f"{name} may be nobody: little speech in all, and never {GHOST_TURN:.0f} s at a time")
        return Transcript(
            audio=recording.source,
            models={"segmentation": chosen.segmentation, "embedding": chosen.embedding, "whisper": whisper},
            device={
                "embedding": self.device,
                "whisper": recognitions[0].device if recognitions else None,
            },
            timing=self._times(time.perf_counter() - begun, recognitions),
            language=next((found.language for found in recognitions if found.language), None),
            speakers=speakers,
            turns=tuple(turns),
            utterances=tuple(utterances),
            words=tuple(words),
            warnings=tuple(self.warnings),
            counts=tuple(track.count for track in tracks),
            failure=failure,
        )

    def _times(self, wall: float, recognitions: list[Recognition]) -> dict[str, float | str | None]:
        mode = None if not recognitions else "serial" if self.serial else "parallel"
        return {**{stage: self.timing.get(stage) for stage in STAGES}, "wall": wall, "mode": mode}

    def warn(self, line: str) -> None:
        self.warnings.append(line)
        self.note(line)

    def _whisper_model(self) -> tuple[ModelFile | None, WitnessError | None]:
        """The recogniser's model, or why there is none although it was asked for by name."""
        try:
            return models.whisper_model(
                self.options.whisper,
                offline=self.options.offline,
                gpu=transcription.has_gpu_backend(),
                progress=self.progress,
                note=self.warn,
            ), None
        except ModelError as error:
            return None, error

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

    def _diarize(
        self, recording: audio.Audio, chosen: models.DiarizationModels, bounds: clustering.SpeakerBounds
    ) -> list[_Track]:
        segmenter = segmentation.load(chosen.segmentation)
        with self._voice(chosen.embedding, recording) as voice:
            return self._tracks(recording, chosen, bounds, segmenter, voice)

    @contextmanager
    def _voice(self, model: ModelFile, recording: audio.Audio) -> Iterator[embedding.VoiceModel]:
        """The voice model, its full blocks on the GPU if that is wanted and pays."""
        voice = embedding.load(model)
        with migraphx.accelerate(
            voice.trunk_part,
            f"trunk of {model.name}",
            embedding.BLOCK_SHAPE,
            voice.trunk,
            self.runtime,
            calls=sum(embedding.full_blocks(len(samples)) for samples in recording.samples),
            precision=self.options.precision,
            progress=self.progress,
            note=self.note,
            warn=self.warn,
        ) as gpu:
            yield voice if gpu is None else replace(voice, block_trunk=gpu)
        if gpu is not None:
            self.device = gpu.device

    def _tracks(
        self,
        recording: audio.Audio,
        chosen: models.DiarizationModels,
        bounds: clustering.SpeakerBounds,
        segmenter: Callable[[Float32], Float32],
        voice: embedding.VoiceModel,
    ) -> list[_Track]:
        plda = vbx.load(chosen.plda) if chosen.plda else None
        threads = self.runtime.worker_count
        tracks = []
        for number, samples in enumerate(recording.samples, start=1):
            prefix = f"CH{number}_" if self.options.channels == "split" else ""
            with self._timed("segmentation"):
                windows = segmentation.segment(samples, segmenter, threads=threads, progress=self.progress)
            with self._timed("embedding"):
                vectors = embedding.embed(samples, windows, voice, threads=threads, progress=self.progress)
            with self._timed("clustering"):
                self.progress("clustering", 0, 1)
                clusters = clustering.cluster(vectors, windows.active, chosen.rule, bounds=bounds, plda=plda)
                found = reconstruction.reconstruct(
                    windows, clusters.labels, most=bounds.most
                ).in_order_of_appearance()
                names = [f"{prefix}SPEAKER_{number:02d}" for number in range(found.active.shape[1])]
                duration = recording.source.duration
                tracks.append(
                    _Track(
                        names,
                        found,
                        reconstruction.turns(found.active, names, duration),
                        reconstruction.turns(found.exclusive(), names, duration),
                        clusters.count,
                    )
                )
                self.progress("clustering", 1, 1)
            if names and len(names) not in bounds:
                self.warn(f"{bounds} asked for, but only {len(names)} could be told apart")
        return tracks

    def _recognise(self, recognizer: transcription.Recognizer, recording: audio.Audio) -> list[Recognition]:
        if not self.serial:
            recognizer.set_threads(self.runtime.worker_count)  # the diarizer is done
        found = [recognizer.result() for _ in recording.samples]
        self.timing["transcription"] = sum(recognition.seconds for recognition in found)
        for recognition in found:
            for warning in recognition.warnings:
                self.warn(warning)
        return found

    def _merge(
        self, tracks: list[_Track], recognitions: list[Recognition]
    ) -> tuple[list[Word], list[Utterance]]:
        words: list[Word] = []
        utterances: list[Utterance] = []
        with self._timed("merging"):
            if not recognitions:
                utterances = [
                    Utterance(turn.start, turn.end, turn.speaker)
                    for track in tracks
                    for turn in track.exclusive
                ]
            for track, recognition in zip(tracks, recognitions, strict=False):
                found = track.diarization
                labelled = merging.label(recognition.words, found.evidence, found.active, track.names)
                words += labelled
                unheard = merging.inaudible(track.exclusive, labelled)
                utterances += merging.utterances(labelled) + unheard
                self._cross_check(labelled, unheard)
        return sorted(words, key=_when), sorted(utterances, key=_when)

    def _cross_check(self, words: list[Word], unheard: list[Utterance]) -> None:
        """Say where one engine heard something and the other did not."""
        if invented := sum(not word.supported for word in words):
            self.warn(f"{invented} words where no speech was heard are in the JSON only")
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


def _speakers(turns: list[Turn]) -> tuple[Speaker, ...]:
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    total = sum(seconds.values())
    return tuple(Speaker(name, spoken, spoken / total) for name, spoken in sorted(seconds.items()))
