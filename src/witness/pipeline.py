"""A recording -> a transcript: the only module that knows the order of the stages."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from witness.audio import source
from witness.diarization import cohort, crash_check, embedding, segmentation, vbx, voice_model, voices
from witness.diarization.stream import Networks, stream
from witness.diarization.stretches import StretchModel
from witness.diarization.voice_model import AnyVoiceModel
from witness.errors import CancelledError, InputError, UsageError, WitnessError
from witness.formats import findings as kept_findings
from witness.gpu import cards, graph_cache, migraphx
from witness.gpu.migraphx import Subject
from witness.models import recognizers, store
from witness.models.session import on_cores, run_once
from witness.options import Channels, Device, Layout, Mode, Options, Precision, Runtime
from witness.progress import AboutMachine, Note, Progress, Reporter, no_check, no_note, no_progress
from witness.recognition import gpus
from witness.recognition import recognizer as recognition
from witness.recognition.vad import Speech
from witness.schema import Findings, Float64, ModelFile, Recognition, Track, Transcript
from witness.storage.checkpoint import Journal
from witness.tracing import Stopwatch
from witness.transcript import assemble, corrections
from witness.transcript.partial import NOT_BEGUN, OnPartial, PartialTranscripts

if TYPE_CHECKING:
    from witness.audio import decode
    from witness.audio.decode import Recording

LONG = 3 * 3600.0
"""Seconds of a recording whose results need the memory that the models keep, 0.3 GB; a day's are 0.9 GB."""


def diarize(
    recording: Recording,
    options: Options = Options(),
    runtime: Runtime = Runtime(),
    *,
    progress: Progress = no_progress,
    note: Note = no_note,
    cancel: threading.Event | None = None,
) -> Transcript:
    """Tell who spoke when, as `transcribe` without words."""
    options = replace(options, whisper="none")
    return transcribe(recording, options, runtime, progress=progress, note=note, cancel=cancel)


def transcribe(
    recording: Recording,
    options: Options = Options(),
    runtime: Runtime = Runtime(),
    *,
    progress: Progress = no_progress,
    note: Note = no_note,
    cancel: threading.Event | None = None,
) -> Transcript:
    """Tell who spoke when, and the words.

    `recording` is the path of any audio or video file, "-" for standard input, or samples and their rate:
    ((samples,) or (samples, channels), rate), as soundfile.read returns them, floats within [-1, 1] or
    integers. `progress(stage, done, total)` is called from any thread, `note(line)` with a line that a person
    should read at once. Setting `cancel` ends the work soon, with CancelledError.

    Without a speech recognizer there are no words, and a warning says why; if it failed on the way,
    `Transcript.failure` holds the error, and the speakers are delivered all the same.
    Raises InputError, ModelError, DeviceError or UsageError.
    """
    return Engine(options, runtime, progress=progress, note=note, cancel=cancel).transcribe(recording)


class Engine:
    """Models for some options: chosen, verified and opened once, for any number of recordings.

    Only the speech recognizer starts again for each recording, beside the decoding: the words of whisper.cpp
    for an unclear passage depend on the random numbers it drew before, and so on the recordings before.
    """

    def __init__(
        self,
        options: Options = Options(),
        runtime: Runtime = Runtime(),
        *,
        progress: Progress = no_progress,
        note: Note = no_note,
        cancel: threading.Event | None = None,
    ) -> None:
        """Take the arguments of `transcribe`; open nothing yet."""
        self.options = options
        self.runtime = runtime
        self.warnings: list[str] = []
        """Warnings about the choice of models, for every transcript."""
        self._reporter = Reporter.collect(self.warnings, progress, note, cancel)
        self._callbacks = progress, note, cancel
        self.before_fetching: Callable[[], object] = no_check
        """Called before any model is fetched; an error of it spares the download."""

    def transcribe(
        self, recording: Recording, *, heard: OnPartial | None = None, journal: Journal | None = None
    ) -> Transcript:
        """Tell who spoke when, and the words, as the function `transcribe`.

        `heard` receives the final part while words are recognized. `journal`, not opened yet, keeps finished
        work, which is not done again.
        """
        warnings: list[str] = []
        run = _Run(self, Reporter.collect(warnings, *self._callbacks), warnings, journal)
        if heard is not None:
            run.so_far = PartialTranscripts(heard)
        return run.transcribe(recording)

    @cached_property
    def chosen(self) -> store.DiarizationModels:
        """Files of the diarizer's models. Raises ModelError."""
        return store.diarization_models(
            self.options.models, offline=self.options.offline, reporter=self._choosing
        )

    @cached_property
    def whisper(self) -> ModelFile | None:
        """Model of the recognizer. Raises ModelError, or UsageError if it does not know the language."""
        model = store.recognizer_model(
            self.options,
            gpu=None if self.options.whisper == "none" else gpus.recognizer(),
            available=recognizers.installed(),
            reporter=self._choosing,
        )
        if model is not None:
            recognition.check_model(model, self.options)
        return model

    @cached_property
    def segmenter(self) -> segmentation.SegmentationModel:
        """Raises ModelError."""
        crash_check.try_model("segmentation", self.chosen.segmentation)
        return segmentation.load(self.chosen.segmentation)

    @cached_property
    def voice(self) -> AnyVoiceModel:
        """On the CPU. Raises ModelError."""
        crash_check.try_model("embedding", self.chosen.embedding)
        return voice_model.load(self.chosen.embedding)

    @cached_property
    def plda(self) -> dict[str, Float64]:
        """As in `Findings`. Raises ModelError."""
        return vbx.read(self.chosen.plda)

    @cached_property
    def cohort(self) -> cohort.Cohort:
        """Strangers, to compare voices with. Raises ModelError."""
        return cohort.load(self.chosen.embedding, self.voice)

    @cached_property
    def known(self) -> voices.Known | None:
        """The people to recognize. Raises InputError, ModelError."""
        if self.options.known is None:
            return None
        people = voices.read(Path(self.options.known), self.chosen.embedding, self._choosing)
        return voices.Known(people, self.cohort)

    def share(self, options: Options) -> Engine:
        """Return an engine for other options, with the diarizer's models that are open here already."""
        other = Engine(options, self.runtime)
        other.warnings, other._reporter = self.warnings, self._reporter
        other._callbacks = self._callbacks
        if (options.models, options.offline) == (self.options.models, self.options.offline):
            opened = ("chosen", "segmenter", "voice", "plda", "cohort")
            other.__dict__ |= {name: self.__dict__[name] for name in opened if name in self.__dict__}
        return other

    def open(self) -> None:
        """Open the diarizer's models now, instead of with the first recording. Raises ModelError."""
        _ = self.segmenter, self.voice

    def __enter__(self) -> Engine:
        """Open the models, to notice a missing or damaged one here."""
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give back the memory of the models; a later recording opens them again."""
        for model in ("segmenter", "voice"):
            self.__dict__.pop(model, None)

    @property
    def files(self) -> dict[str, ModelFile | None]:
        """As in `Transcript.models`. Raises ModelError."""
        return {
            "segmentation": self.chosen.segmentation,
            "embedding": self.chosen.embedding,
            "whisper": self.whisper,
        }

    @property
    def _choosing(self) -> Reporter:
        """Reporter that makes notes about the choice of models warnings of every transcript."""

        def progress(stage: str, done: float, total: float) -> None:
            if stage == "download" and not done:
                self.before_fetching()
            self._reporter.progress(stage, done, total)

        return replace(self._reporter, progress=progress, note=self._reporter.warn)


def _with_warnings(findings: Findings, lines: Sequence[str]) -> Findings:
    machine = tuple(str(line) for line in lines if isinstance(line, AboutMachine))
    return replace(findings, warnings=tuple(map(str, lines)), machine=machine)


class _Run:
    """One recording on its way through the stages."""

    def __init__(
        self, engine: Engine, reporter: Reporter, warnings: list[str], journal: Journal | None = None
    ) -> None:
        self.engine = engine
        self.options, self.runtime = engine.options, engine.runtime
        self.reporter = reporter
        self.warnings = warnings
        self.kept = journal is not None
        self.journal = journal or Journal()
        self.watch = Stopwatch()
        self.serial = engine.runtime.serial
        self.recognizer: recognition.TrackRecognizer | None = None
        self.speech: list[Speech] = []
        """Speech of each track; the diarizer writes it, and the recognizer reads it."""
        self.device = "cpu"
        """Device of the voice model."""
        self.so_far = PartialTranscripts(None)

    def transcribe(self, recording: Recording) -> Transcript:
        begun = time.perf_counter()
        self._check(recording)
        with ExitStack() as stack:

            @run_once  # by whoever opens models or the one who decodes; standard input can be read once
            def opened() -> decode.Opened:
                from witness.audio import decode  # here: the recognizer starts before any heavy import

                return stack.enter_context(decode.opened(recording, self.options.part))

            self.engine.before_fetching = opened
            stack.callback(setattr, self.engine, "before_fetching", no_check)
            whisper = self.engine.whisper
            failure: WitnessError | None = None
            self.serial = self.serial or self._too_little_memory(whisper)
            if whisper is not None and not self.serial:
                # Started before anything else: it loads its model while the audio is decoded.
                self.recognizer = stack.enter_context(self._recognizer(whisper))
                if not self.runtime.parallel:
                    self.recognizer.hold()
            people, replaced = self.engine.known, self.options.replaced
            audio = self._decode(opened)
            work = kept_findings.checkpoint_key(
                audio.source, str(audio.channels), self.engine.files, self.options
            )
            if self.kept and self.journal.open(work, self.reporter.note, audio.source.sha256):
                self.reporter.note("this run continues where an earlier one stopped")
            self.speech = [Speech(len(samples)) for samples in audio.samples]
            self.so_far.tracks = [NOT_BEGUN] * len(self.speech)
            self._send(audio)
            findings = self._find(audio)
            if audio.source.transcribed.duration > LONG:
                self.engine.release()
            if whisper is not None and self.serial:
                # Not before: its model would fill the GPU's memory.
                self.recognizer = stack.enter_context(self._recognizer(whisper))
                self._send(audio)
            if self.recognizer is not None:
                self.recognizer.go_on()
            with self.watch.stage("clustering"):  # beside the recognizer
                diarized = assemble.diarize(findings, self.options.asked, self.reporter)
            before_words = replace(findings, warnings=tuple(audio.warnings))
            self.so_far.begin(replace(diarized, findings=before_words), people, replaced)
            if self.recognizer is not None:
                try:
                    findings = self._recognize(self.recognizer, findings)
                except (CancelledError, UsageError):
                    raise
                except WitnessError as error:
                    failure = error
        machine = list(self.engine.warnings)
        if failure is not None:  # the caller reports it
            self.warnings.append(f"no words: {failure}")
        findings = _with_warnings(findings, [*map(AboutMachine, machine), *self.warnings])
        with self.watch.stage("merging"):
            recognitions = [track.recognition for track in findings.tracks]
            draft = assemble.label_words(replace(diarized, findings=findings), recognitions, self.reporter)
            automatic = assemble.automatic_corrections(diarized, draft, people, replaced, self.reporter)
            transcript = corrections.apply(draft, automatic, self.reporter)
        mode = self._mode([recognition for recognition in recognitions if recognition is not None])
        times = assemble.timing(self.watch, time.perf_counter() - begun, mode)
        return replace(transcript, timing=times, failure=failure)

    def _mode(self, recognitions: Sequence[Recognition]) -> Mode | None:
        """Return the mode of the speech recognizer; None: it did not run."""
        if not recognitions:
            return None
        # On the cores that the diarizer needs, the recognizer waits for it.
        waited = self.device == "cpu" and recognitions[0].device == "cpu" and not self.runtime.parallel
        return Mode.SERIAL if self.serial or waited else Mode.PARALLEL

    def _check(self, recording: Recording) -> None:
        """Check the arguments before any model is fetched. Raises InputError, UsageError."""
        assemble.speaker_bounds(self.options.asked)
        if self.runtime.serial and self.runtime.parallel:
            raise UsageError("--serial and --parallel exclude each other")
        if isinstance(recording, tuple):
            return
        if not isinstance(recording, str | os.PathLike):
            raise InputError(
                f"a recording is a path, or samples and their rate, not {type(recording).__name__}; "
                "write it to a file first"
            )
        source.check(os.fspath(recording))

    def _decode(self, opened: Callable[[], decode.Opened]) -> decode.Audio:
        """Decode the recording while the models are opened."""
        with ThreadPoolExecutor(1) as opener:
            models = opener.submit(self.engine.open)
            from witness.audio import decode

            with self.watch.stage("decode"):
                audio = decode.decoded(opened(), Channels(self.options.channels), self.reporter)
            models.result()
        for warning in audio.warnings:
            self.reporter.warn(warning)
        return audio

    def _too_little_memory(self, whisper: ModelFile | None) -> bool:
        """Tell if both engines may use the card, and it has no room for both."""
        if whisper is None or self.runtime.parallel:
            return False
        if self.runtime.device == Device.CPU or gpus.recognizer() is None:
            return False
        # "auto" puts the voice model on no card that AMD does not list, and on none without a compiled graph.
        auto = self.runtime.device == Device.AUTO
        if auto and not graph_cache.folders():
            return False
        able = [card for card in cards.list_cards() if not auto or card.supported == "listed"]
        card = cards.pick_card(able, self.runtime.gpu)
        needed = gpus.memory(whisper)
        if card is None or not needed or (lack := card.lack_for_both(needed)) is None:
            return False
        fix = "a smaller --whisper, or --parallel, runs them at the same time"
        self.reporter.note(f"one engine after the other: {lack}; {fix}")
        return True

    def _recognizer(self, whisper: ModelFile) -> recognition.TrackRecognizer:
        recognizer = recognition.TrackRecognizer(
            whisper, self.options, threads=self.runtime.cores, reporter=self.reporter, journal=self.journal
        )
        recognizer.listen(self.so_far.update)
        self.reporter = self.reporter.checking(recognizer.check)  # it may find that the work is in vain
        return recognizer

    def _send(self, audio: decode.Audio) -> None:
        if self.recognizer is not None:
            self.recognizer.send_all(list(zip(audio.samples, self.speech, strict=True)))

    def _find(self, audio: decode.Audio) -> Findings:
        """Return the findings of the diarizer's models, of this run or of one that was interrupted."""
        name = f"findings {self.runtime.device}"
        if (findings := kept_findings.from_checkpoint(self.journal.get(name))) is not None:
            for track, speech in zip(findings.tracks, self.speech, strict=True):
                speech.add(track.windows)
                speech.finish()
            for warning in findings.warnings:
                self.reporter.warn(AboutMachine(warning) if warning in findings.machine else warning)
            self.device = findings.device["embedding"] or self.device
            return replace(findings, audio=audio.source, models=self.engine.files, warnings=(), machine=())
        before = len(self.warnings)
        tracks = self._tracks(audio)
        findings = Findings(
            audio=audio.source,
            models=self.engine.files,
            device={"embedding": self.device, "whisper": None},
            rule=self.engine.chosen.rule,
            plda=self.engine.plda,
            channels=Layout(audio.channels),
            tracks=tracks,
            fast=self.options.fast,
        )
        self.journal.add(name, kept_findings.encode(_with_warnings(findings, self.warnings[before:])))
        return findings

    def _tracks(self, audio: decode.Audio) -> tuple[Track, ...]:
        """Run the diarizer's models over each track, the voice model on the GPU if that pays."""
        voice, chosen, tracks = self.engine.voice, self.engine.chosen, []
        with ExitStack() as stack:
            mapper = stack.enter_context(on_cores(self.runtime.cores))
            gpu = stack.enter_context(
                migraphx.accelerate(
                    voice_subject(voice, chosen.embedding),
                    self.runtime,
                    calls=sum(embedding.full_blocks(len(samples)) for samples in audio.samples),
                    precision=Precision(self.options.precision),
                    reporter=self.reporter,
                )
            )
            networks = Networks(self.engine.segmenter, voice, chosen.rule.faint, self.options.fast)
            if gpu is not None and not isinstance(voice, StretchModel):
                # The GPU does one block after the other, and no core does: one thread waits for it.
                waiting = stack.enter_context(on_cores(1))
                networks = replace(networks, voice=replace(voice, block_trunk=gpu), voice_mapper=waiting)
                if self.recognizer is not None:
                    self.recognizer.go_on()  # the cores have little to do
            for number, (samples, speech) in enumerate(zip(audio.samples, self.speech, strict=True)):
                try:
                    track = stream(
                        samples,
                        networks,
                        mapper=mapper,
                        watch=self.watch,
                        listener=speech.add,
                        reporter=self.reporter.of_part(number, len(self.speech)),
                    )
                finally:
                    speech.finish()
                tracks.append(track)
        if gpu is not None:
            self.device = gpu.device
        return tuple(tracks)

    def _recognize(self, recognizer: recognition.TrackRecognizer, findings: Findings) -> Findings:
        """Wait for the words of each track, and add them to the findings."""
        results = [recognizer.result() for _ in findings.tracks]
        self.watch.seconds["transcription"] = sum(result.seconds for result in results)
        for result in results:
            for warning in result.warnings:
                self.reporter.warn(warning)
        device = results[0].device if results else None
        tracks = [
            replace(track, recognition=replace(result, warnings=tuple(map(str, result.warnings))))
            for track, result in zip(findings.tracks, results, strict=True)
        ]
        return replace(findings, device={**findings.device, "whisper": device}, tracks=tuple(tracks))


def voice_subject(voice: AnyVoiceModel, file: ModelFile) -> Subject | None:
    """Return the part of a voice model that can run on a GPU; None: its input has no fixed shape."""
    if isinstance(voice, StretchModel):
        return None
    return Subject(voice.trunk_part, f"trunk of {file.name}", embedding.BLOCK_SHAPE, voice.trunk)
