"""A folder of recordings with references -> hypotheses, scores and a report that can be checked.

Each recording runs in a child process. What is done is kept, so the same command continues after a stop (at
any byte: a recording counts as done when its record holds the sha256 of its RTTM).

    OUT/run.json          settings, hardware, versions, models; they must be the same when the run continues
    OUT/rttm/NAME.rttm    the hypothesis
    OUT/files/NAME.json   what the recording cost
    OUT/report.html, report.md, report.json and two pictures
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from witness.bench import accuracy_report, child, manifest, records, scoring
from witness.bench.accuracy_report import AccuracyOutcome
from witness.bench.manifest import Models
from witness.bench.measurement import Failure
from witness.bench.plan import AccuracyPlan, Case
from witness.bench.records import Cost, Record
from witness.bench.scoring import FileScore
from witness.errors import DeviceError, ModelError, PartlyFailedError, UsageError
from witness.formats import rttm, writers
from witness.models import catalogue
from witness.options import Options, Runtime
from witness.progress import Reporter
from witness.storage import atomic
from witness.text import clock, number

HOPELESS = {error.exit_code for error in (UsageError, ModelError, DeviceError)}
"""Exit codes of failures that every recording would have."""


def run(plan: AccuracyPlan, reporter: Reporter) -> list[FileScore]:
    """Run what is not done yet, score everything, write the report. The reporter gets a note per recording.

    Raises:
        UsageError: `plan.out` was begun with anything else, or `plan.split` is "test" and the settings are
            neither the program's own nor those of the finished DEV run `plan.tuned_on`.
        PartlyFailedError: recordings failed; all the others and the report are written.
        WitnessError: a failure that every recording would have; once it is fixed, the run can continue.
    """
    scoring.score({})  # raises now if what it needs is not installed
    begun = manifest.begin(plan.out, manifest.make(plan, reporter))
    options = _options(plan, begun.models)
    kept = {case.name: record for case in plan.cases if (record := records.done(plan.out, case.name))}
    if kept:
        reporter.note(f"{plan.out}: {len(kept)} of {len(plan.cases)} recordings are done already")
    left = _TimeLeft(case.length for case in plan.cases if case.name not in kept)
    whole, past = sum(case.length for case in plan.cases), 0.0
    outcome = AccuracyOutcome(begun, [], [])
    reporter.progress("recordings", 0, whole)
    for place, case in enumerate(plan.cases, start=1):
        record = kept.get(case.name) or _run_one(case, plan.out, options, plan.runtime, begun.models)
        pair = list(case.reference), records.hypothesis(plan.out, record)
        (score,) = scoring.score({case.name: pair}, plan.uem, as_pyannote=plan.as_pyannote)
        outcome.records.append(record)
        outcome.scores.append(score)
        if case.name not in kept:
            left.done(case.length)
            reporter.note(f"{place} of {len(plan.cases)}  {_line(record, score)}  {left}")
        past += case.length
        reporter.progress("recordings", past, whole)
    _write_report(plan.out, outcome)
    if failed := [record.name for record in outcome.failed]:
        raise PartlyFailedError(
            f"{len(failed)} of {len(plan.cases)} recordings failed ({', '.join(failed[:5])}) and count as "
            f"missed; {plan.out}/report.md says why, and the same command tries them again"
        )
    return outcome.scores


def score_other(plan: AccuracyPlan, hypotheses: Path) -> list[FileScore]:
    """Another system's turns, RTTM files below `hypotheses`, on the recordings of the plan, scored alike.

    What it lacks counts as all missed. Raises InputError.
    """
    theirs = scoring.read(hypotheses)
    pairs = scoring.pair({case.name: list(case.reference) for case in plan.cases}, theirs)
    return scoring.score(pairs, plan.uem, as_pyannote=plan.as_pyannote)


def _options(plan: AccuracyPlan, models: Models) -> Options:
    """The options of the children, which work in another folder."""
    choice = models.choice if models.choice in catalogue.SETS else str(Path(models.choice).absolute())
    return replace(plan.options, models=choice, whisper="none", offline=True)


def _run_one(case: Case, out: Path, options: Options, runtime: Runtime, expected: Models) -> Record:
    """Run a recording, once more if its process died, and keep what came of it."""
    crashes = []
    result = child.run(case.audio, options, runtime)
    if isinstance(result, Failure) and result.crashed:
        crashes.append(result.message)
        result = child.run(case.audio, options, runtime)
    if isinstance(result, Failure):
        if result.exit_code in HOPELESS:
            raise result.error()
        record = Record(case.name, tuple(crashes), result.message)
        records.keep(out, record)
        return record
    for role, sha256 in (("segmentation", expected.segmentation), ("embedding", expected.embedding)):
        if result.models[role] != sha256:
            raise UsageError(
                f"{case.name}: the {role} model changed during the run; start from scratch in another folder"
            )
    content = rttm.serialize(case.name, result.turns).encode()
    record = Record(case.name, tuple(crashes), None, Cost.of(result, content))
    records.keep(out, record, content)
    return record


def _line(record: Record, score: FileScore) -> str:
    """How a recording went: duration, speed, DER; or why it failed."""
    if record.cost is None:
        return f"{record.name}  FAILED: {record.error}"
    return (
        f"{record.name}  {clock(record.cost.duration)}  {record.cost.times_real_time:.1f} times real time  "
        f"DER {number(score.der('strict'), '.1f')}"
    )


class _TimeLeft:
    """The time that the recordings left will take, from the speed so far."""

    def __init__(self, lengths: Iterable[float]) -> None:
        """`lengths`: seconds of every recording that is to be run."""
        self._left = sum(lengths)
        self._past = 0.0
        self._begun = time.monotonic()

    def done(self, length: float) -> None:
        """Count a recording of that many seconds as run."""
        self._left -= length
        self._past += length

    def __str__(self) -> str:
        pace = (time.monotonic() - self._begun) / max(self._past, 1e-9)
        return f"{clock(math.ceil(max(0.0, self._left) * pace))} left"


def _write_report(out: Path, outcome: AccuracyOutcome) -> None:
    """Write the report; and into run.json, if nothing failed, that the run is finished."""
    for name, text in accuracy_report.files(outcome).items():
        atomic.write(writers.encode(text), out / name)
    if outcome.manifest.finished is None and not outcome.failed:
        finished = replace(outcome.manifest, finished=manifest.now())
        manifest.write_json(out / "run.json", finished.to_json())
