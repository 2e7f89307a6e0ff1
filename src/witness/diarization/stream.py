"""Samples -> activity and voice vectors of one track: segmentation and embedding at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from witness.diarization import embedding, segmentation, voice_model
from witness.diarization.segmentation import SegmentationModel
from witness.diarization.stretches import StretchModel
from witness.diarization.voice_model import AnyVoiceModel
from witness.progress import SILENT, Reporter
from witness.schema import Map, Samples, Segmentation, Track, map_serially
from witness.tracing import Stopwatch


@dataclass(frozen=True)
class Networks:
    """The diarizer's models, opened, and what belongs to them."""

    segmentation: SegmentationModel
    voice: AnyVoiceModel
    faint: float | None = None
    """Level of the faintest speech, in dB below the loud parts of a recording, as in `schema.Rule`; None:
    any."""
    fast: bool = False
    """Take windows further apart and less context around speech."""
    voice_mapper: Map | None = None
    """Runs the blocks of the voice model, if not the `mapper` that runs everything else."""


def stream(
    samples: Samples,
    networks: Networks,
    *,
    mapper: Map = map_serially,
    watch: Stopwatch | None = None,
    listener: Callable[[Segmentation], None] | None = None,
    reporter: Reporter = SILENT,
) -> Track:
    """Segment a track and embed its voices.

    `samples` is (samples,) float32 at 16 kHz. Embedding draws windows on demand, so memory never holds the
    whole recording. The result does not depend on `mapper`. `watch` gets the seconds of
    "segmentation" and "embedding", each from beginning to end; they overlap. `listener` gets each group of
    windows at once. Progress is that of the two stages.
    """
    watch = watch or Stopwatch()
    stretches = isinstance(networks.voice, StretchModel)
    step = segmentation.step_of(len(samples), fast=networks.fast, stretches=stretches)
    windows: list[Segmentation] = []

    def segmented() -> Iterator[Segmentation]:
        with watch.stage("segmentation"):
            for piece in segmentation.stream(
                samples,
                networks.segmentation,
                step=step,
                faint=networks.faint,
                mapper=mapper,
                reporter=reporter,
            ):
                windows.append(piece)
                if listener is not None:
                    listener(piece)
                yield piece

    with watch.stage("embedding"):
        vectors = voice_model.embed(
            samples,
            segmented(),
            networks.voice,
            context=embedding.FAST_CONTEXT if networks.fast else embedding.CONTEXT,
            mapper=networks.voice_mapper or mapper,
            reporter=reporter,
        )
    return Track(Segmentation.joined(windows), vectors)
