"""`witness score`: how well one set of turns matches another."""

from __future__ import annotations

from pathlib import Path

import click

from witness import files
from witness.cli import options
from witness.errors import UsageError


@click.command()
@click.argument("reference", type=click.Path(path_type=Path))
@click.argument("hypothesis", type=click.Path(path_type=Path))
@click.option("--uem", type=click.Path(path_type=Path), help="Score only these parts of the recordings.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="Compare with a second hypothesis, recording by recording.",
)
@options.JSON
@click.option("--csv", "as_csv", is_flag=True, help="Print a CSV table, one row per recording.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML report.")
def score(
    reference: Path,
    hypothesis: Path,
    uem: Path | None,
    against: Path | None,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Score HYPOTHESIS against REFERENCE: RTTM files, or folders of them.

    Prints DER under every named convention, JER and speaker counts, with 95 % intervals over files. A
    recording that is missing from the hypothesis counts as all missed. Needs the extra `bench`.
    """
    from witness.bench import score_report, scoring

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; choose one")
    references, hypotheses = scoring.read(reference), scoring.read(hypothesis)
    parts = None if uem is None else scoring.read_uem(uem)
    with options.progress(quiet=False) as reporter:
        scores = scoring.score(scoring.pair(references, hypotheses), parts, reporter=reporter)
        others = None
        if against is not None:
            pairs = scoring.pair(references, scoring.read(against))
            others = scoring.score(pairs, parts, reporter=reporter)
        if len(references) > 1 or len(hypotheses) > 1:
            missing, unknown = set(references) - set(hypotheses), set(hypotheses) - set(references)
            options.note_unpaired(reporter, missing, "are not in the hypothesis and count as all missed")
            options.note_unpaired(reporter, unknown, "are not in the reference and are not scored")
    form = score_report.to_json if as_json else score_report.to_csv if as_csv else score_report.to_text
    if html is not None:
        files.write(score_report.to_html(scores, others).encode("utf-8", "replace"), html)
    files.write(form(scores, others).encode(), None)
