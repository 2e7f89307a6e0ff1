"""`witness score`: scores of turns or words against a reference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from witness.cli import options
from witness.errors import UsageError
from witness.progress import Reporter
from witness.storage import atomic


@click.command(cls=options.Command, short_help="Score speakers and words against a reference.")
@click.argument("reference", type=options.PATH)
@click.argument("hypothesis", type=options.PATH)
@options.flag("--words", "Score words: STM, CTM or JSON files instead of RTTM.")
@click.option("--uem", type=options.PATH, help="Score only these parts of the recordings.")
@click.option(
    "--against", type=options.PATH, help="Compare with a second hypothesis, recording by recording."
)
@options.AS_PYANNOTE
@options.JSON
@click.option("--csv", "as_csv", is_flag=True, help="Print a CSV table, one row per recording.")
@click.option("--html", type=options.PATH, help="Also write an HTML report.")
def score(
    reference: Path,
    hypothesis: Path,
    words: bool,
    uem: Path | None,
    against: Path | None,
    as_pyannote: bool,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Score HYPOTHESIS against REFERENCE: RTTM files, JSON files of `witness run`, or folders of them.

    Prints DER under every named convention, JER and speaker counts, with 95 % intervals over files. A
    recording that is missing from the hypothesis counts as all missed. Needs the extra `bench`.

    With --words: STM, CTM or JSON files (of `witness run -f json`, or SegLST), or folders of them. Prints
    WER, cpWER, the cost of the speaker labels, words under the wrong speaker, and errors of word times.

    \b
    Examples:
      witness score call.rttm out/call.json
      witness score --words call.stm out/call.json --json
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; choose one")
    if words and as_pyannote:
        raise UsageError("--as-pyannote is for turns; leave out --as-pyannote or --words")
    if words and uem is not None:
        raise UsageError("--uem is for turns, and --words scores whole recordings; leave one of them out")
    from witness.bench import lines, score_report, scoring, words_report
    from witness.bench.report import Report
    from witness.bench.words import score as score_words

    read: Callable[[Path], Mapping[str, Any]] = lines.read
    measure: Callable[..., list[Any]] = score_words
    make: Callable[..., Report] = words_report.make
    nothing: Any = lines.Said(())
    if not words:
        parts = None if uem is None else scoring.read_uem(uem)
        read, make, nothing = scoring.read, score_report.make, []
        measure = partial(scoring.score, uem=parts, as_pyannote=as_pyannote)

    def scored(hypotheses: Mapping[str, Any]) -> list[Any]:
        return measure(scoring.pair(references, hypotheses, nothing), reporter=reporter)

    with options.progress(quiet=False) as reporter:
        references = lines.read(reference, lines.REFERENCES) if words else scoring.read(reference)
        hypotheses = read(hypothesis)
        scores = scored(hypotheses)
        report = make(scores, None if against is None else scored(read(against)))
        _note_unpaired(references, hypotheses, reporter)
    form = report.to_json if as_json else report.to_csv if as_csv else report.to_text
    if html is not None:
        atomic.write(report.to_html().encode("utf-8", "replace"), html)
    atomic.write(form().encode(), None)


def _note_unpaired(references: Collection[str], hypotheses: Collection[str], reporter: Reporter) -> None:
    """Note recordings without a counterpart, and single ones that are paired in spite of their names."""
    if len(references) == len(hypotheses) == 1 and set(references) != set(hypotheses):
        (reference,), (hypothesis,) = references, hypotheses
        reporter.note(
            f"the reference is of {reference}, the hypothesis of {hypothesis}; scored as one recording"
        )
    if len(references) > 1 or len(hypotheses) > 1:
        missing, unknown = set(references) - set(hypotheses), set(hypotheses) - set(references)
        options.note_unpaired(reporter, missing, "are not in the hypothesis and count as all missed")
        options.note_unpaired(reporter, unknown, "are not in the reference and are not scored")
