"""Reports of the scores of words in text, JSON, CSV and HTML. Each states the normalization."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from witness.bench import words
from witness.bench.score_report import rate
from witness.bench.words import CONFUSED, COST, CPWER, TCPWER, WER, PooledWords, Times, WordScore
from witness.formats import html
from witness.text import number, table

KEYS = {WER: "wer", CPWER: "cpwer", COST: "speaker_cost", TCPWER: "tcpwer", CONFUSED: "wrong_speaker"}
"""Names of the measures in JSON and CSV."""
HEADS = ["% of the words", "", "95 %", "sub", "del", "ins", "meaning"]
LEFT = (0, 6)
"""The columns of text in these tables."""
FILE_HEADS = [
    *("recording", "words", "WER", "sub", "del", "ins", "cpWER", "tcpWER", "wrong speaker"),
    *("starts", "ends", "speakers", "true"),
]


def to_text(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """Render tables of the pooled figures, the differences from `others`, and recordings."""
    parts = [table([HEADS, *_pooled_rows(scores)], LEFT) + "\n" + "\n".join(_beside(scores))]
    if others is not None:
        parts.append(table(_difference_rows(scores, others)))
    if len(scores) > 1:
        parts.append(table([FILE_HEADS, *map(_file_row, scores)]))
    return "\n\n".join(parts) + "\n"


def to_html(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """Render a page with the same tables, and the words that are missing."""
    parts: list[html.Table | str] = [html.Table("All recordings", [HEADS, *_pooled_rows(scores)], LEFT)]
    if others is not None:
        parts.append(html.Table("Against the other hypothesis", _difference_rows(scores, others)))
    if len(scores) > 1:
        parts.append(html.Table("Recordings", [FILE_HEADS, *map(_file_row, scores)]))
    lost = [
        [score.uri, f"{word.time:.1f} s", word.speaker or "-", word.text]
        for score in scores
        for word in score.lost
    ]
    if lost:
        heads = ["recording", "about", "speaker", "word"]
        parts.append(html.Table("Words that are missing", [heads, *lost], (0, 2, 3)))
    return html.report_page(f"Words of {len(scores)} recordings scored", _beside(scores), parts)


def to_json(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """Serialize one document; rates in percent, rounded to hundredths, seconds to milliseconds."""
    document = {"schema": "witness-words/1", **summary(scores)}
    document["against"] = (
        None
        if others is None
        else {
            KEYS[difference.measure]: {
                "difference": _rounded(difference.points),
                "interval": _interval(difference.interval),
            }
            for difference in words.compare(scores, others)
        }
    )
    document["recordings"] = [recording(score) for score in scores]
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def to_csv(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """Write a row per recording: the words and errors of each measure."""
    del others  # a difference is one of all files, and has no row
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    shown = [measure for measure in words.MEASURES if measure is not COST]
    parts = ("substitutions", "deletions", "insertions", "words")
    heads = [f"{KEYS[measure]} {part}" for measure in shown for part in parts]
    rows.writerow(["uri", *heads, "start_error", "end_error", "speakers", "true_speakers"])
    for score in scores:
        cells: list[object] = []
        for measure in shown:
            cells += score.counts.get(measure, [""] * len(parts))
        true_count, count = score.speakers or ("", "")
        medians = [_seconds(words.times(errors)) for errors in (score.starts, score.ends)]
        rows.writerow([score.uri, *cells, *medians, count, true_count])
    return out.getvalue()


def summary(scores: Sequence[WordScore]) -> dict[str, Any]:
    """Return the pooled figures for JSON."""
    digits = [sum(score.digits[side] for score in scores) for side in (0, 1)]
    return {
        "normalization": words.NORMALIZATION,
        **{KEYS[pooled.measure]: _pooled(pooled) for pooled in words.pool(scores)},
        "start_error": _times(words.times([error for score in scores for error in score.starts])),
        "end_error": _times(words.times([error for score in scores for error in score.ends])),
        "lost_words": sum(len(score.lost) for score in scores),
        "words_with_digits": {"reference": digits[0], "hypothesis": digits[1]},
        "unsupported_words": sum(score.unsupported for score in scores),
        "inaudible_seconds": _rounded(sum(score.inaudible for score in scores)),
    }


def recording(score: WordScore) -> dict[str, Any]:
    """Return the figures of one recording for JSON."""
    true_count, count = score.speakers or (None, None)
    return {
        "uri": score.uri,
        **{
            KEYS[measure]: {"rate": _rounded(score.rate(measure)), **counts._asdict()}
            for measure, counts in score.counts.items()
            if measure is not COST
        },
        "start_error": _times(words.times(score.starts)),
        "end_error": _times(words.times(score.ends)),
        "speakers": count,
        "true_speakers": true_count,
        "words_with_digits": {"reference": score.digits[0], "hypothesis": score.digits[1]},
        "unsupported_words": score.unsupported,
        "inaudible_seconds": _rounded(score.inaudible),
        "lost": [{**word._asdict(), "time": round(word.time, 3)} for word in score.lost],
    }


# --- tables ---


def _pooled_rows(scores: Sequence[WordScore]) -> list[list[str]]:
    rows = []
    for pooled in words.pool(scores):
        name, meaning = pooled.measure
        interval = " to ".join(map(rate, pooled.interval)) if pooled.interval else "-"
        parts = [rate(part) for part in (pooled.substitutions, pooled.deletions, pooled.insertions)]
        if pooled.measure is CONFUSED:
            parts = ["", "", ""]
        rows.append([name, rate(pooled.rate), interval, *parts, meaning])
    return rows


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


def _difference_rows(scores: Sequence[WordScore], others: Sequence[WordScore]) -> list[list[str]]:
    rows = [["minus --against, points", "", "95 %"]]
    for difference in words.compare(scores, others):
        interval = "{:+.2f} to {:+.2f}".format(*difference.interval) if difference.interval else "-"
        rows.append([difference.measure.name, f"{difference.points:+.2f}", interval])
    return rows


# --- JSON ---


def _pooled(pooled: PooledWords) -> dict[str, Any]:
    return {
        "rate": _rounded(pooled.rate),
        "interval": _interval(pooled.interval),
        "substitutions": _rounded(pooled.substitutions),
        "deletions": _rounded(pooled.deletions),
        "insertions": _rounded(pooled.insertions),
        "words": pooled.words,
    }


def _times(times: Times | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {name: round(value, 3) for name, value in asdict(times).items()}


def _seconds(times: Times | None) -> str:
    return number(None if times is None else times.median, ".2f")


def _interval(edges: tuple[float, float] | None) -> list[float | None] | None:
    return None if edges is None else [_rounded(edge) for edge in edges]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
