"""Report of the scores of words. It states the normalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from witness.bench import report, words
from witness.bench.report import Report, rate, rounded
from witness.bench.words import CONFUSED, COST, CPWER, TCPWER, WER, Counts, Times, WordScore
from witness.formats.html import Table
from witness.text import number

KEYS = {WER: "wer", CPWER: "cpwer", COST: "speaker_cost", TCPWER: "tcpwer", CONFUSED: "wrong_speaker"}
"""Names of the measures in JSON and CSV."""
PARTS = Counts._fields[:3]
"""Sorts of errors in JSON and CSV."""
FILE_HEADS = [
    *("recording", "words", "WER", "sub", "del", "ins", "cpWER", "tcpWER", "wrong speaker"),
    *("starts", "ends", "speakers", "true"),
]


def make(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> Report:
    """Make the report of scores, with the differences from `others`; times are rounded to milliseconds."""
    document = {"schema": "witness-words/1", **summary(scores), "against": None}
    parts: list[Table | str] = [_pooled_table(scores)]
    if others is not None:
        differences = words.compare(scores, others)
        by_name = {measure.name: each for measure, each in differences.items()}
        parts.append(report.difference_table("minus --against, points", by_name))
        by_key = {KEYS[measure]: each for measure, each in differences.items()}
        document["against"] = report.difference_figures(by_key)
    document["recordings"] = [recording(score) for score in scores]
    if len(scores) > 1:
        parts.append(Table("Recordings", [FILE_HEADS, *map(_file_row, scores)]))
    lost = [
        [score.uri, f"{word.time:.1f} s", word.speaker or "-", word.text]
        for score in scores
        for word in score.lost
    ]
    if lost:
        heads = ["recording", "about", "speaker", "word"]
        parts.append(Table("Words that are missing", [heads, *lost], (0, 2, 3), page_only=True))
    title = f"Words of {len(scores)} recordings scored"
    return Report(title, _beside(scores), parts, document, _csv_rows(scores))


def _csv_rows(scores: Sequence[WordScore]) -> list[list[object]]:
    """Return the words and errors of each measure; a difference is one of all files."""
    shown = [measure for measure in words.MEASURES if measure is not COST]
    heads = [f"{KEYS[measure]} {part}" for measure in shown for part in Counts._fields]
    rows: list[list[object]] = [["uri", *heads, "start_error", "end_error", "speakers", "true_speakers"]]
    for score in scores:
        cells = [cell for measure in shown for cell in score.counts.get(measure, [""] * len(Counts._fields))]
        true_count, count = score.speakers or ("", "")
        medians = [_seconds(words.times(errors)) for errors in (score.starts, score.ends)]
        rows.append([score.uri, *cells, *medians, count, true_count])
    return rows


def summary(scores: Sequence[WordScore]) -> dict[str, Any]:
    """Return the pooled figures for JSON."""
    digits = [sum(score.digits[side] for score in scores) for side in (0, 1)]
    return {
        "normalization": words.NORMALIZATION,
        **{
            KEYS[measure]: {**report.pooled_figures(pooled, "rate", PARTS), "words": int(pooled.total)}
            for measure, pooled in words.pool(scores).items()
        },
        "start_error": _times(words.times([error for score in scores for error in score.starts])),
        "end_error": _times(words.times([error for score in scores for error in score.ends])),
        "lost_words": sum(len(score.lost) for score in scores),
        "words_with_digits": {"reference": digits[0], "hypothesis": digits[1]},
        "unsupported_words": sum(score.unsupported for score in scores),
        "inaudible_seconds": rounded(sum(score.inaudible for score in scores)),
    }


def recording(score: WordScore) -> dict[str, Any]:
    """Return the figures of one recording for JSON."""
    true_count, count = score.speakers or (None, None)
    return {
        "uri": score.uri,
        **{
            KEYS[measure]: {"rate": rounded(score.rate(measure)), **counts._asdict()}
            for measure, counts in score.counts.items()
            if measure is not COST
        },
        "start_error": _times(words.times(score.starts)),
        "end_error": _times(words.times(score.ends)),
        "speakers": count,
        "true_speakers": true_count,
        "words_with_digits": {"reference": score.digits[0], "hypothesis": score.digits[1]},
        "unsupported_words": score.unsupported,
        "inaudible_seconds": rounded(score.inaudible),
        "lost": [{**word._asdict(), "time": round(word.time, 3)} for word in score.lost],
    }


# --- tables ---


def _pooled_table(scores: Sequence[WordScore]) -> Table:
    rows = [(measure.name, measure.meaning, pooled) for measure, pooled in words.pool(scores).items()]
    table = report.pooled_table("% of the words", ("sub", "del", "ins"), rows)
    for row in table.rows:
        if row[0] == CONFUSED.name:  # its errors are of one sort
            row[3:6] = ["", "", ""]
    return table


def _beside(scores: Sequence[WordScore]) -> list[str]:
    """Make the lines under the table, of figures that are not rates."""
    total = sum(score.counts[WER].words for score in scores)
    lost = [word for score in scores for word in score.lost]
    lines = [
        f"{total} words in the reference, {len(lost)} of them missing, "
        f"{sum(not word.overlapped for word in lost)} of these where only one person speaks"
    ]
    for name, errors in (
        ("starts", [error for score in scores for error in score.starts]),
        ("ends", [error for score in scores for error in score.ends]),
    ):
        if times := words.times(errors):
            lines.append(
                f"{name} of {times.words} words: {times.median:.2f} s off (median), "
                f"{times.percentile_95:.2f} s (95th percentile); "
                f"{abs(times.late):.2f} s {'early' if times.late < 0 else 'late'} (median)"
            )
    if any(score.speakers for score in scores):
        right = sum(bool(score.speakers and score.speakers[0] == score.speakers[1]) for score in scores)
        lines.append(f"number of speakers: right in {right} of {len(scores)} recordings")
    if crowded := [score.uri for score in scores if score.speakers and CPWER not in score.counts]:
        lines.append(
            f"no cpWER, which takes {words.MOST_SPEAKERS} speakers at most, because of {', '.join(crowded)}"
        )
    references, hypotheses = (sum(score.digits[side] for score in scores) for side in (0, 1))
    lines.append(f"words with digits: {references} in the reference, {hypotheses} in the hypothesis")
    return [*lines, f"normalization: {words.NORMALIZATION}"]


def _file_row(score: WordScore) -> list[str]:
    wer = score.counts[WER]
    true_count, count = map(str, score.speakers or ("-", "-"))
    return [
        score.uri,
        str(wer.words),
        rate(score.rate(WER)),
        *(str(part) for part in wer[:3]),
        *(rate(score.rate(measure)) for measure in (CPWER, TCPWER, CONFUSED)),
        *(_seconds(words.times(errors)) for errors in (score.starts, score.ends)),
        count,
        true_count,
    ]


# --- JSON ---


def _times(times: Times | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {name: round(value, 3) for name, value in asdict(times).items()}


def _seconds(times: Times | None) -> str:
    return number(None if times is None else times.median, ".2f")
