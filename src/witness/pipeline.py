"""A recording -> a transcript: the only file that knows the order of the stages.

What runs a model is here; what is made of the results, outcome.py does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from witness.amd import cards, migraphx
from witness.audio import source
from witness.diarization import embedding, segmentation, vbx, voices
from witness.errors import ModelError, UsageError, WitnessError
from witness.models import store
from witness.recognition import recognizer as recognition
from witness.schema import (
    Bounds,
    Float64,
    Map,
    ModelFile,
    Note,
    Progress,
    Recognition,
    Samples,
    Segmentation,
    Stages,
    Track,
    Transcript,
    no_note,
    no_progress,
)
from witness.sessions import Runtime, workers
from witness.transcript import assemble

if TYPE_CHECKING:
    from witness.audio import decode

LONG = 3 * 3600.0
"""Seconds of a recording whose results need the memory that the models keep, 0.3 GB; a day's are 0.9 GB."""


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
        run = _Run(
            options=self.options,
            runtime=self.runtime,
            progress=self.progress,
            note=self.note,
            asked=self.options.asked,
        )
        return run.transcribe(self, os.fspath(path))

    @cached_property
    def chosen(self) -> store.DiarizationModels:
        """Raises ModelError."""
        return store.diarization_models(
            self.options.models, offline=self.options.offline, progress=self.progress, note=self._warn
        )

    @cached_property
    def whisper(self) -> tuple[ModelFile | None, WitnessError | None]:
        """The recogniser's model, or why there is none although it was asked for by name."""
        try:
            return store.whisper_model(
                self.options.whisper,
                offline=self.options.offline,
                gpu=recognition.has_gpu_backend(),
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
        threshold = store.stranger_threshold(embedding)
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


@dataclass(kw_only=True)
class _Run(assemble.Work):
    """One recording on its way through the stages."""

    options: Options
    runtime: Runtime
    device: str = "cpu"
    """What ran the voice model."""

    def transcribe(self, engine: Engine, path: str) -> Transcript:
        begun = time.perf_counter()
        assemble.bounds(self.asked)
        if self.runtime.serial and self.runtime.parallel:
            raise UsageError("--serial or --parallel, not both")
        if self.options.language is not None:
            recognition.check_language(self.options.language)
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

    def _decode(self, path: str, engine: Engine) -> decode.Audio:
        """The recording, while the models are opened."""
        with ThreadPoolExecutor(1) as opener:
            opened = opener.submit(engine.open)
            from witness.audio import (
                decode,  # here, because the recogniser's process starts before any heavy import
            )

            with self.timed("decode"):
                recording = decode.load(path, channels=self.options.channels, progress=self.progress)
            opened.result()
        return recording

    def _too_little_memory(self, whisper: ModelFile | None) -> bool:
        """Whether both engines may use the card, and it has no room for both."""
        if whisper is None or self.runtime.device == "cpu" or self.runtime.parallel:
            return False
        if not recognition.has_gpu_backend():
            return False
        # "auto" never puts the voice model on a card that AMD does not list.
        able = [card for card in cards.cards() if self.runtime.device != "auto" or card.supported == "listed"]
        card = cards.pick(able, self.runtime.gpu)
        needed = recognition.gpu_memory(whisper)
        if card is None or needed is None or (lack := card.lack_for_both(needed)) is None:
            return False
        cure = "a smaller --whisper, or --parallel, runs them side by side"
        self.note(f"one engine after the other: {lack}; {cure}")
        return True

    def _recognizer(self, whisper: ModelFile) -> recognition.Recognizer:
        return recognition.Recognizer(
            whisper,
            language=self.options.language,
            threads=self._whisper_threads(),
            progress=self.progress,
        )

    def _whisper_threads(self) -> int:
        """On the CPU, beside the diarizer: most of the cores, for it has most of the work."""
        workers = self.runtime.worker_count
        return workers if self.serial else max(1, workers - max(1, workers // 4))

    def _hear(self, recording: decode.Audio, engine: Engine) -> tuple[Track, ...]:
        """What the diarizer's models find in each track: voices of what is segmented already, meanwhile."""
        tracks = []
        with (
            workers(self.runtime.worker_count) as cores,
            self._voice(engine, recording, cores) as (voice, voices_on),
        ):
            for samples in recording.samples:
                pieces: list[Segmentation] = []
                with self.timed("embedding"):
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
        with self.timed("segmentation"):
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
        self, engine: Engine, recording: decode.Audio, cores: Map
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

    def _recognise(self, recognizer: recognition.Recognizer, recording: decode.Audio) -> list[Recognition]:
        if not self.serial:
            recognizer.set_threads(self.runtime.worker_count)  # the diarizer is done
        found = [recognizer.result() for _ in recording.samples]
        self.timing["transcription"] = sum(heard.seconds for heard in found)
        for heard in found:
            for warning in heard.warnings:
                self.warn(warning)
        return found

    def _with_words(self, stages: Stages, recognitions: list[Recognition]) -> Stages:
        tracks = zip(stages.tracks, recognitions, strict=True)
        return replace(
            stages,
            device={**stages.device, "whisper": recognitions[0].device if recognitions else None},
            tracks=tuple(replace(track, recognition=found) for track, found in tracks),
        )
