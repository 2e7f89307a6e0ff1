"""What the handlers of a request share; they find it at `request.app.state.desk`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from witness.options import Options, Runtime
from witness.serve.editing.worker_client import WorkerClient
from witness.serve.library.library import Library
from witness.storage import files

if TYPE_CHECKING:
    from witness.serve.browser_recordings import Takes
    from witness.serve.queue import Queue
    from witness.serve.uploads import Uploads


KNOWN = "known"
"""The folder of the voices of known people, below the desk's."""


@dataclass(frozen=True)
class Quotas:
    """What one client, or all of them, may take."""

    body: int = 8 << 20
    """Bytes of a request that is no recording; the corrections of a day are smaller."""
    upload: int = 8 << 30
    """Bytes of a request with recordings."""
    patience: float = 30.0
    """Seconds without a byte after which a request is given up."""
    slowest: int = 1000
    """Bytes per second that a request must have on average, after `patience`."""


@dataclass(frozen=True)
class AppState:
    """A folder, and what may be done with it."""

    folder: Path
    """Absolute, without symbolic links."""
    token: str
    """Who knows it may do everything."""
    library: Library
    options: Options = field(default_factory=Options)
    """For recordings that are dropped."""
    runtime: Runtime = field(default_factory=Runtime)
    limits: Quotas = field(default_factory=Quotas)
    queue: Queue | None = None
    uploads: Uploads | None = None
    """Of these two, None: nothing can be dropped here."""
    editor: WorkerClient = field(default_factory=WorkerClient)
    """Works on the transcript that somebody looks at."""
    finder: WorkerClient = field(default_factory=WorkerClient)
    """Reads recordings and searches all transcripts for a voice, which takes longer."""

    @cached_property
    def takes(self) -> Takes:
        """Recordings that browsers make."""
        from witness.serve.browser_recordings import Takes

        return Takes(self.folder, self.limits.upload)

    @property
    def known(self) -> Path:
        """The folder of the voices of known people, which may be missing. Raises ForeignError."""
        if self.options.known:
            return Path(self.options.known)
        files.refuse_link(self.folder / KNOWN)
        return self.folder / KNOWN
