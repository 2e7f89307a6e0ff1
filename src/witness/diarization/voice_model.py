"""A voice model file -> the way to embed with it: one pass over all that is spoken, or stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterable

from witness.diarization import embedding, embedding_cut, stretches
from witness.diarization.embedding import VoiceModel
from witness.diarization.embedding_cut import NotInBlocksError
from witness.diarization.stretches import StretchModel
from witness.progress import SILENT, Reporter
from witness.schema import Float32, Map, ModelFile, Samples, Segmentation, map_serially

AnyVoiceModel = VoiceModel | StretchModel


def load(model: ModelFile) -> AnyVoiceModel:
    """Open a voice model on the CPU: cut at its pooling if it can be. Raises ModelError."""
    try:
        return embedding.load(model)
    except NotInBlocksError:
        return stretches.load(model)


def embed(
    samples: Samples,
    windows: Iterable[Segmentation],
    model: AnyVoiceModel,
    *,
    context: int = embedding_cut.CONTEXT,
    mapper: Map = map_serially,
    reporter: Reporter = SILENT,
) -> Float32:
    """(windows, 3, dims) float32, as `embedding.embed`, which alone uses `context`, or `stretches.embed`."""
    if isinstance(model, StretchModel):
        return stretches.embed(samples, windows, model, mapper=mapper, reporter=reporter)
    return embedding.embed(samples, windows, model, context=context, mapper=mapper, reporter=reporter)
