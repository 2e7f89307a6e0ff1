"""Check in a child process that onnxruntime does not crash over a model that is not pinned.

onnxruntime crashes over some models. The child opens the model in the same way as this process and runs it
once; a model that it survives is remembered by the model's sha256 and onnxruntime's version, so later runs do
not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from witness.child import Buffer, Child, DiedError, LimitError, Limits, Message, RefusedError, serve
from witness.diarization import embedding, segmentation, segmentation_cut, voice_model
from witness.errors import ModelError
from witness.models import catalogue, session
from witness.schema import WINDOW_SAMPLES, ModelFile
from witness.storage import atomic, cache

LIMIT = 300.0
"""Seconds. The standard models take two."""
MODULE = "witness.diarization.crash_check"
"""The module of the child."""


def try_model(role: str, model: ModelFile) -> None:
    """Try a "segmentation" or "embedding" model in a child, unless it is pinned or was tried before.

    Raises ModelError if the child dies or hangs over it. Complaints of the child about the model are left to
    the loader.
    """
    if catalogue.find_by_sha256(model.sha256):
        return
    survived = cache.cache_folder() / "tried" / f"{model.sha256}-{role}"
    with suppress(OSError, ValueError):
        if survived.read_text() == session.runtime_version():
            return
    request = {"role": role, "name": model.name, "path": model.path, "sha256": model.sha256}
    fix = "fix: use another export of this model, in float32"
    try:
        with Child(MODULE) as child:
            child.ask(request, limits=Limits(LIMIT))
    except RefusedError:
        return
    except LimitError as error:
        raise ModelError(f"{model.path}: takes over {LIMIT:.0f} s to open and run once; {fix}") from error
    except DiedError as error:
        raise ModelError(f"{model.path}: onnxruntime crashes over it ({error}); {fix}") from error
    with suppress(OSError):  # where nothing can be kept, it is tried each time
        survived.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(session.runtime_version().encode(), survived)


def _answer(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    model = ModelFile(request["name"], request["path"], request["sha256"])
    if request["role"] == "segmentation":
        starts = np.arange(segmentation.GROUP) * segmentation_cut.GRID
        segmentation.load(model)(np.zeros(int(starts[-1]) + WINDOW_SAMPLES, np.float32), starts)
    else:
        voice = voice_model.load(model)
        if isinstance(voice, embedding.VoiceModel):
            voice.block_trunk(np.zeros(embedding.BLOCK_SHAPE, np.float32))
    return {}, ()


if __name__ == "__main__":
    serve(_answer)
