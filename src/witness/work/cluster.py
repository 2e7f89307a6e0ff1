"""The jobs of a batch on a Dask cluster: the same futures as from `pool`, by other machines.

Each Dask worker has a `pool` of its own, so that a recording that ends its process ends no Dask worker, and
limits hold. Models are fetched and verified on each machine; the folders of the recordings and of the results
have the same paths on all of them. Dask gives the jobs of a lost Dask worker to another.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from witness._version import install
from witness.errors import WitnessError
from witness.options import Device
from witness.progress import SILENT, Reporter
from witness.work.plan import share
from witness.work.pool import Pool
from witness.work.produce import Job, Outcome, Watcher, job_from_json, job_to_json

PATIENCE = 10
"""Seconds after which a scheduler that does not answer is given up."""

_lock = threading.Lock()
_pools: list[Pool] = []


@contextmanager
def connect(address: str, reporter: Reporter = SILENT) -> Iterator[Callable[[Job, Watcher], Future[Outcome]]]:
    """A function that submits a job to the cluster whose scheduler is at `address`; nobody can watch it.

    Raises WitnessError.
    """
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
        executor = client.get_executor(pure=False)  # type: ignore[no-untyped-call]
        yield lambda job, _: executor.submit(work, job_to_json(job))


def work(line: str) -> Outcome:
    """Do a job, inside a Dask worker."""
    from distributed import get_worker

    job = job_from_json(line)
    threads = get_worker().state.nthreads
    with _lock:
        if not _pools:
            pool = Pool([None] * threads)
            pool.__enter__()
            atexit.register(pool.__exit__, None, None, None)
            _pools.append(pool)
    runtime = share(threads, Device(job.settings.runtime.device))
    return _pools[0].submit(replace(job, settings=replace(job.settings, runtime=runtime))).result()
