"""The jobs of a batch on a Dask cluster, in the same futures as those of a `pool`.

Each Dask worker has a `pool` of its own, so that a recording that ends its process ends no Dask worker, and
limits hold. Models are fetched and verified on each machine; the folders of the recordings and of the results
have the same paths on all of them. Dask gives the jobs of a lost Dask worker to another.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from witness._version import install
from witness.errors import WitnessError
from witness.options import Device
from witness.progress import SILENT, Reporter
from witness.work.pool import Pool, worker_runtime
from witness.work.produce import Job, Outcome, Watcher
from witness.work.queue import LostError
from witness.work.worker import from_json, to_json

PATIENCE = 10
"""Seconds after which a scheduler that does not answer is given up."""
COUNTED = 2.0
"""Seconds between two counts of the workers."""

_lock = threading.Lock()
_pools: list[Pool] = []


class Cluster:
    """Workers of a Dask cluster; their progress cannot be watched."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address
        self._executor = client.get_executor(pure=False)
        self._workers = 0
        self._counted = -COUNTED

    @property
    def workers(self) -> int:
        """Threads of the Dask workers that are there now."""
        if self._client.status == "running" and time.monotonic() - self._counted >= COUNTED:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            self._workers = sum(worker["nthreads"] for worker in workers)
            self._counted = time.monotonic()
        return self._workers

    def submit(self, job: Job, watcher: Watcher) -> Future[Outcome]:  # noqa: ARG002
        """Have a job done. Raises WitnessError if the scheduler is lost."""
        if self._client.status != "running":
            raise WitnessError(
                f"the Dask scheduler at {self._address} is lost; run the same command again to continue"
            )
        outcome: Future[Outcome] = Future()
        submitted = self._executor.submit(work, to_json(job))
        submitted.add_done_callback(partial(_hand_over, job.source, outcome))
        return outcome


@contextmanager
def connect(address: str, reporter: Reporter = SILENT) -> Iterator[Cluster]:
    """Connect to the cluster whose scheduler is at `address`. Raises WitnessError."""
    try:
        from distributed import Client
    except ImportError as error:
        raise WitnessError(f"--scheduler needs Dask; run: {install('cluster')}") from error
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())[:200]
        raise WitnessError(
            f"no Dask scheduler answers at {address} ({text}); start one: dask scheduler"
        ) from error
    with client:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        reporter.note(f"{workers} Dask workers" if workers else "no Dask workers yet; waiting for one")
        yield Cluster(client, address)


def work(line: str) -> Outcome:
    """Do a job, inside a Dask worker."""
    from distributed import get_worker

    job = from_json(line, Job)
    threads = get_worker().state.nthreads
    with _lock:
        if not _pools:
            pool = Pool([None] * threads)
            pool.__enter__()
            atexit.register(pool.__exit__, None, None, None)
            _pools.append(pool)
    runtime = worker_runtime(threads, Device(job.settings.runtime.device))
    return _pools[0].submit(replace(job, settings=replace(job.settings, runtime=runtime))).result()


def _hand_over(source: str, outcome: Future[Outcome], submitted: Future[Outcome]) -> None:
    """Give a job's outcome the result or the error of the Dask future."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        outcome.set_result(submitted.result())
    except (CancelledError, KilledWorker, CommClosedError) as error:
        outcome.set_exception(LostError(f"{source}: its Dask worker is lost ({type(error).__name__})"))
    except BaseException as error:
        outcome.set_exception(error)
