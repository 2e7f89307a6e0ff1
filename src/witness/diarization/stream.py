"""Samples -> what the models find in one track: voices of what is segmented already, meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from witness.diarization import embedding, segmentation
from witness.diarization.embedding import VoiceModel
from witness.diarization.segmentation import SegmentationModel
from witness.reporter import SILENT, Reporter
from witness.schema import Map, Samples, Segmentation, Track, in_turn
from witness.tracing import Stopwatch


@dataclass(frozen=True)
class Networks:
    """The models, opened, and what belongs to them."""

    segmentation: SegmentationModel
    voice: VoiceModel
    faint: float | None = None
    """As in `schema.Rule`."""
    voice_mapper: Map | None = None
    """What runs the blocks of the voice model; None: what runs everything else."""


def stream(
    samples: Samples,
    networks: Networks,
    *,
    fast: bool = False,
    mapper: Map = in_turn,
    watch: Stopwatch | None = None,
    reporter: Reporter = SILENT,
) -> Track:
    """Segment a track and embed its voices, both at the same time.

    `samples` is (samples,) float32 at 16 kHz. Windows are drawn by the embedding as it needs them, so memory
    holds what is in work and never the whole recording. The result does not depend on `mapper`. `watch` gets
    the seconds of "segmentation" and "embedding", each from its beginning to its end.
    """
    watch = watch or Stopwatch()
    windows: list[Segmentation] = []

    def segmented() -> Iterator[Segmentation]:
        with watch.stage("segmentation"):
            for piece in segmentation.stream(
                samples,
                networks.segmentation,
                step=segmentation.step_of(len(samples), fast=fast),
                faint=networks.faint,
                mapper=mapper,
                reporter=reporter,
            ):
                windows.append(piece)
                yield piece

    with watch.stage("embedding"):
        vectors = embedding.embed(
            samples,
            segmented(),
            networks.voice,
            context=embedding.FAST_CONTEXT if fast else embedding.CONTEXT,
            mapper=networks.voice_mapper or mapper,
            reporter=reporter,
        )
    return Track(Segmentation.joined(windows), vectors)
