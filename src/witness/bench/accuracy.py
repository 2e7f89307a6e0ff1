"""Benchmark of a folder of recordings with references: hypotheses, scores and a report that can be checked.

Each recording runs in a child process. Finished recordings are kept, so the same command continues after a
stop (at any byte: a recording counts as done when its record holds the sha256 of its RTTM).

    OUT/run.json          settings, hardware, versions, models; they must be the same when the run continues
    OUT/rttm/NAME.rttm    the hypothesis
    OUT/files/NAME.json   the cost of the recording
    OUT/report.html, report.md, report.json and two pictures
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from witness.bench import accuracy_report, measurement, run_folder, scoring
from witness.bench.accuracy_report import AccuracyOutcome
from witness.bench.measurement import Failure
from witness.bench.run_folder import AccuracyPlan, Case, Done, Failed, Models, Record
from witness.bench.scoring import FileScore
from witness.errors import (
    DeviceError,
    InputError,
    ModelError,
    PartlyFailedError,
    UsageError,
)
from witness.formats import rttm, writers
from witness.formats.registry import Format
from witness.models import catalogue
from witness.options import Options, Runtime
from witness.progress import Reporter
from witness.storage import atomic, files
from witness.text import clock, number

NO_AUDIO = {".uem", ".lab", *(f".{form.ending.rpartition('.')[2].lower()}" for form in Format)}
"""Endings of other files that lie beside recordings."""
HOPELESS = {error.exit_code for error in (UsageError, ModelError, DeviceError)}
"""Exit codes of failures that every recording would have."""


def run(plan: AccuracyPlan, reporter: Reporter) -> list[FileScore]:
    """Run the remaining recordings, score all, write the report. The reporter gets a note per recording.

    Raises:
        UsageError: `plan.out` was begun with other settings or another program, or `plan.split` is "test" and
            no run on "dev" tried its settings.
        PartlyFailedError: recordings failed; all the others and the report are written.
        WitnessError: a failure that every recording would have; once it is fixed, the run can continue.
    """
    scoring.score({})  # raises now if a package that it needs is not installed
    begun = run_folder.begin(plan.out, run_folder.make(plan, reporter))
    options = _child_options(plan, begun.models)
    kept = {case.name: done for case in plan.cases if (done := run_folder.done(plan.out, case.name))}
    if kept:
        reporter.note(f"{plan.out}: {len(kept)} of {len(plan.cases)} recordings are done already")
    whole, past = sum(case.length for case in plan.cases), 0.0
    remaining = sum(case.length for case in plan.cases if case.name not in kept)
    worked, started = 0.0, time.monotonic()
    outcome = AccuracyOutcome(begun, [], [])
    reporter.progress("recordings", 0, whole)
    for number_done, case in enumerate(plan.cases, start=1):
        record = kept.get(case.name) or _run_case(case, plan.out, options, plan.runtime, begun.models)
        pair = list(case.reference), run_folder.hypothesis(plan.out, record)
        (score,) = scoring.score({case.name: pair}, plan.uem, as_pyannote=plan.as_pyannote)
        outcome.records.append(record)
        outcome.scores.append(score)
        if case.name not in kept:
            worked += case.length
            pace = (time.monotonic() - started) / max(worked, 1e-9)
            left = clock(math.ceil(max(0.0, remaining - worked) * pace))
            reporter.note(f"{number_done} of {len(plan.cases)}  {_line(record, score)}  {left} left")
        past += case.length
        reporter.progress("recordings", past, whole)
    _write_report(plan.out, outcome)
    if failed := [record.name for record in outcome.failed]:
        raise PartlyFailedError(
            f"{len(failed)} of {len(plan.cases)} recordings failed ({', '.join(failed[:5])}) and count as "
            f"missed; {plan.out}/report.html says why, and the same command tries them again"
        )
    return outcome.scores


def score_other(plan: AccuracyPlan, hypotheses: Path) -> list[FileScore]:
    """Score another system's turns, RTTM files below `hypotheses`, on the recordings of the plan.

    A recording that it lacks counts as all missed. Raises InputError.
    """
    theirs = scoring.read(hypotheses)
    pairs = scoring.pair({case.name: list(case.reference) for case in plan.cases}, theirs, [])
    return scoring.score(pairs, plan.uem, as_pyannote=plan.as_pyannote)


def find(audio: Path, references: Path) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Pair the recordings below `audio` with the RTTM files below `references`.

    Returns the pairs, and the names of references without audio. A recording is named after its file without
    the ending, and so is an RTTM file about one recording; a file about several goes by the names in it.
    Raises InputError.
    """
    turns = scoring.read(references, by_file=True)
    if named := next((name for name in turns if "/" in name), None):
        raise InputError(f"{references}: {named} cannot be the name of a file; rename it there")
    recordings = _recordings(audio)
    cases, missing = [], []
    for name, reference in sorted(turns.items()):
        paths = recordings.get(name, [])
        if len(paths) > 1:
            raise InputError(f"{paths[0]}: {paths[1]} has the same name; keep one of them below {audio}")
        if paths:
            cases.append(Case(name, paths[0], tuple(reference)))
        else:
            missing.append(name)
    if not cases:
        raise InputError(f"{audio}: no recording there has the name of a reference in {references}")
    return tuple(cases), tuple(missing)


def unscored(audio: Path, cases: Sequence[Case]) -> set[str]:
    """Return the names of the recordings below `audio` that are in no case."""
    return set(_recordings(audio)) - {case.audio.stem for case in cases}


def _recordings(folder: Path) -> dict[str, list[Path]]:
    """Find the files below a folder that may be recordings, by their names."""
    paths: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in NO_AUDIO and not path.name.startswith(".") and path.is_file():
            paths.setdefault(path.stem, []).append(path)
    return paths


def _child_options(plan: AccuracyPlan, models: Models) -> Options:
    """Make the options of the children, which work in another folder."""
    choice = models.choice if models.choice in catalogue.SETS else str(Path(models.choice).absolute())
    return replace(plan.options, models=choice, whisper="none", offline=True)


def _run_case(case: Case, out: Path, options: Options, runtime: Runtime, expected: Models) -> Record:
    """Run a recording, once more if its process died, and keep the outcome."""
    crashes = []
    result = measurement.run(case.audio, options, runtime)
    if isinstance(result, Failure) and result.crashed:
        crashes.append(result.message)
        result = measurement.run(case.audio, options, runtime)
    if isinstance(result, Failure):
        if result.exit_code in HOPELESS:
            raise result.error()
        failed = Failed(case.name, tuple(crashes), result.message)
        run_folder.keep(out, failed)
        return failed
    for role, sha256 in (("segmentation", expected.segmentation), ("embedding", expected.embedding)):
        if result.models[role] != sha256:
            raise UsageError(
                f"{case.name}: the {role} model changed during the run; start from scratch in another folder"
            )
    content = rttm.serialize(case.name, result.turns).encode()
    done = Done(
        name=case.name,
        crashes=tuple(crashes),
        error=None,
        audio_sha256=result.audio.sha256,
        duration=result.audio.duration,
        wall=result.seconds("wall") or 0.0,
        timing=result.timing,
        cpu=result.cpu.witness,
        peak_memory_mb=result.peak_memory_mb,
        device=result.device,
        warnings=result.warnings,
        rttm_sha256=files.sha256(content),
    )
    run_folder.keep(out, done, content)
    return done


def _line(record: Record, score: FileScore) -> str:
    """Describe a finished recording: duration, speed, DER; or the error."""
    if not isinstance(record, Done):
        return f"{record.name}  FAILED: {record.error}"
    return (
        f"{record.name}  {clock(record.duration)}  {record.times_real_time:.1f} times real time  "
        f"DER {number(score.der('strict'), '.1f')}"
    )


def _write_report(out: Path, outcome: AccuracyOutcome) -> None:
    """Write the report, and the time in run.json if nothing failed."""
    for name, text in accuracy_report.files(outcome).items():
        atomic.write(writers.encode(text), out / name)
    if outcome.manifest.finished is None and not outcome.failed:
        finished = structs.replace(outcome.manifest, finished=run_folder.now())
        run_folder.write_json(out / "run.json", finished)
