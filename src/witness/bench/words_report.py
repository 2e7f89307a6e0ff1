"""Scores of words -> text, JSON, CSV, HTML. How texts are normalized is said in every one of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from witness.bench import words
from witness.bench.score_report import rate
from witness.bench.words import CONFUSED, COST, CPWER, TCPWER, WER, PooledWords, Times, WordScore
from witness.formats import html
from witness.text import number, table

KEYS = {WER: "wer", CPWER: "cpwer", COST: "speaker_cost", TCPWER: "tcpwer", CONFUSED: "wrong_speaker"}
"""What the measures are called in JSON and CSV."""
HEADS = ["% of the words", "", "95 %", "sub", "del", "ins", "meaning"]
LEFT = (0, 6)
"""The columns of text in these tables."""
FILE_HEADS = [
    *("recording", "words", "WER", "sub", "del", "ins", "cpWER", "tcpWER", "wrong speaker"),
    *("starts", "ends", "speakers", "true"),
]


def to_text(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """A table of the pooled figures, the differences from `others`, and a table of several recordings."""
    parts = [table([HEADS, *_pooled_rows(scores)], LEFT) + "\n" + "\n".join(_beside(scores))]
    if others is not None:
        parts.append(table(_difference_rows(scores, others)))
    if len(scores) > 1:
        parts.append(table([FILE_HEADS, *map(_file_row, scores)]))
    return "\n\n".join(parts) + "\n"


def to_html(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """A page with the same tables, and the words that are missing."""
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
    """One document; rates in percent, rounded to hundredths, seconds to milliseconds."""
    document = {"schema": "witness-words/1", **summary(scores)}
    document["against"] = (
        None
        if others is None
        else {
            KEYS[one.measure]: {"difference": _rounded(one.points), "interval": _interval(one.interval)}
            for one in words.compare(scores, others)
        }
    )
    document["recordings"] = [recording(score) for score in scores]
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def to_csv(scores: Sequence[WordScore], others: Sequence[WordScore] | None = None) -> str:
    """A row per recording: the words and errors of each measure."""
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
        true, found = score.speakers or ("", "")
        medians = [_seconds(words.times(errors)) for errors in (score.starts, score.ends)]
        rows.writerow([score.uri, *cells, *medians, found, true])
    return out.getvalue()


def summary(scores: Sequence[WordScore]) -> dict[str, Any]:
    """The pooled figures as JSON has them."""
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
    """One recording as JSON has it."""
    true, found = score.speakers or (None, None)
    return {
        "uri": score.uri,
        **{
            KEYS[measure]: {"rate": _rounded(score.rate(measure)), **counts._asdict()}
            for measure, counts in score.counts.items()
            if measure is not COST
        },
        "start_error": _times(words.times(score.starts)),
        "end_error": _times(words.times(score.ends)),
        "speakers": found,
        "true_speakers": true,
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
    """Lines under the table: what is no rate."""
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
        if found := words.times(errors):
            lines.append(
                f"{name} of {found.words} words: {found.median:.2f} s off (median), "
                f"{found.percentile_95:.2f} s (95th percentile); "
                f"{abs(found.late):.2f} s {'early' if found.late < 0 else 'late'} (median)"
            )
    if any(score.speakers for score in scores):
        right = sum(bool(score.speakers and score.speakers[0] == score.speakers[1]) for score in scores)
        lines.append(f"number of speakers: right in {right} of {len(scores)} recordings")
    if crowded := [score.uri for score in scores if score.speakers and CPWER not in score.counts]:
        lines.append(
            f"no cpWER, which takes {words.MOST_SPEAKERS} speakers at most, because of {', '.join(crowded)}"
        )
    there, here = (sum(score.digits[side] for score in scores) for side in (0, 1))
    lines.append(f"words with digits: {there} in the reference, {here} in the hypothesis")
    return [*lines, f"normalization: {words.NORMALIZATION}"]


def _file_row(score: WordScore) -> list[str]:
    wer = score.counts[WER]
    true, found = map(str, score.speakers or ("-", "-"))
    return [
        score.uri,
        str(wer.words),
        rate(score.rate(WER)),
        *(str(part) for part in wer[:3]),
        *(rate(score.rate(measure)) for measure in (CPWER, TCPWER, CONFUSED)),
        *(_seconds(words.times(errors)) for errors in (score.starts, score.ends)),
        found,
        true,
    ]


def _difference_rows(scores: Sequence[WordScore], others: Sequence[WordScore]) -> list[list[str]]:
    rows = [["minus --against, points", "", "95 %"]]
    for one in words.compare(scores, others):
        interval = "{:+.2f} to {:+.2f}".format(*one.interval) if one.interval else "-"
        rows.append([one.measure.name, f"{one.points:+.2f}", interval])
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


def _times(found: Times | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "words": found.words,
        "median": round(found.median, 3),
        "percentile_95": round(found.percentile_95, 3),
        "late": round(found.late, 3),
    }


def _seconds(found: Times | None) -> str:
    return number(None if found is None else found.median, ".2f")


def _interval(edges: tuple[float, float] | None) -> list[float | None] | None:
    return None if edges is None else [_rounded(edge) for edge in edges]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
