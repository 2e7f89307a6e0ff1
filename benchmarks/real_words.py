"""Functions of `words.py real`, `rules` and `compare`: words that were really recognized."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import harness

from witness.bench import lines, measurement, words, words_report
from witness.bench.lines import Row, Said
from witness.bench.words import COST, CPWER, WER, Counts, Lost, WordScore

RECORDINGS = (".flac", ".wav")


def material(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Every recording with an STM of the same name."""
    found = [
        (recording, path)
        for path in sorted(folder.glob("*.stm"))
        for ending in RECORDINGS
        if (recording := path.with_suffix(ending)).exists()
    ]
    if not found:
        sys.exit(f"{folder}: has no NAME.stm beside a NAME.flac or NAME.wav")
    yield from found


# --- words.py real ---


def real(folder: Path, cache: Path, options: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Transcribe every recording with an STM, and score it: the result, and what to print of it.

    What was done is kept in `cache`, and not done again by the same program with the same options.
    """
    settings = {"options": list(options), "source_sha256": measurement.source_sha256()}
    cache.mkdir(parents=True, exist_ok=True)
    notes = cache / "run.json"
    kept = json.loads(notes.read_text()) if notes.exists() else {**settings, "cost": {}}
    if {key: kept[key] for key in settings} != settings:
        sys.exit(f"{cache}: holds the run of another program or other options; choose another --cache")
    for done, (recording, _) in enumerate(pairs := list(material(folder)), start=1):
        if recording.stem not in kept["cost"]:
            kept["cost"][recording.stem] = harness.transcribe(recording, cache, options)
            notes.write_text(json.dumps(kept))
        sys.stderr.write(f"{recording.stem}: {done} of {len(pairs)}\n")
    documents = {
        recording.stem: json.loads((cache / f"{recording.stem}.json").read_bytes()) for recording, _ in pairs
    }
    if not all(document["models"]["whisper"] for document in documents.values()):
        sys.exit("no words were recognized: name a Whisper model by --whisper after FOLDER")
    figures, scores = report({path.stem: only(path) for _, path in pairs}, documents, kept["cost"])
    result = {
        "command": " ".join(["python benchmarks/words.py real FOLDER", *map(shown, options)]),
        "models": next(iter(documents.values()))["models"],
        **figures,
    }
    return result, text(result, scores)


def report(
    references: dict[str, Said], documents: dict[str, Any], costs: dict[str, dict[str, float]]
) -> tuple[dict[str, Any], list[WordScore]]:
    """Pooled figures, cost, and each recording, with the words that are missing; and the scores."""
    found = {name: lines.transcript(document) for name, document in documents.items()}
    scores = words.score({name: (said, found[name]) for name, said in references.items()})
    # What the text leaves out as unsupported is in the JSON, and no word is lost that is there.
    everything = words.score({name: (said, _everything(found[name])) for name, said in references.items()})
    audio = {name: document["audio"]["duration"] for name, document in documents.items()}
    summed = {key: sum(cost[key] for cost in costs.values()) for key in ("wall", "processor")}
    figures = {
        "audio_seconds": round(sum(audio.values()), 1),
        **words_report.summary(scores),
        "lost_alone": sum(not word.overlapped for score in scores for word in score.lost),
        "lost_from_json_too": sum(len(score.lost) for score in everything),
        "cost": {
            **{key: round(value, 2) for key, value in summed.items()},
            "times_real_time": round(sum(audio.values()) / summed["wall"], 2),
            "times_real_time_of_a_core": round(sum(audio.values()) / summed["processor"], 2),
            "peak_memory_mb": max(cost["peak_memory_mb"] for cost in costs.values()),
        },
        "recordings": [
            {
                **words_report.recording(score),
                "language": documents[score.uri]["language"],
                "words_by_speaker": _by_speaker(found[score.uri]),
                "cost": costs[score.uri],
                "timing": documents[score.uri]["timing"],
            }
            for score in scores
        ],
    }
    return figures, scores


def text(result: dict[str, Any], scores: Sequence[WordScore]) -> str:
    """Render the result for people."""
    cost = result["cost"]
    lost = [
        f"  {score.uri}  {word.time:.1f} s  {word.speaker}: {word.text}{' (overlapped)' * word.overlapped}\n"
        for score in scores
        for word in score.lost
    ]
    return (
        f"{words_report.make(scores).to_text()}\n"
        f"{cost['wall']:.0f} s for {result['audio_seconds']:.0f} s of audio, {cost['processor']:.0f} s of "
        f"processor time, {cost['peak_memory_mb']:.0f} MB\n"
        f"{len(lost)} words of the reference are missing, {result['lost_from_json_too']} of them "
        f"from the JSON, too\n{''.join(lost)}"
    )


def _everything(said: Said) -> Said:
    """Add the words without a voice, as those of one more speaker."""
    unheard = [Row(line.start, line.end, "nobody", line.text) for line in said.unsupported]
    return Said(
        tuple(sorted([*said.lines, *unheard], key=lambda line: line.start)), said.language, (), said.inaudible
    )


def _by_speaker(said: Said) -> dict[str, int]:
    speakers = [str(line.speaker) for line in said.lines]
    return {speaker: speakers.count(speaker) for speaker in sorted(set(speakers))}


def only(path: Path) -> Said:
    """The one recording of a reference."""
    found = lines.read(path)
    if len(found) != 1:
        sys.exit(f"{path}: has {len(found)} recordings; give each its own file")
    return next(iter(found.values()))


def shown(option: str) -> str:
    """An option without the folders of this machine."""
    return Path(option).name if os.sep in option else option


# --- words.py compare ---


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The second result minus the first, of the recordings that both have."""
    if first["normalization"] != second["normalization"]:
        sys.exit("the results were normalized in different ways; measure one of them again")
    sides = [{item["uri"]: _score(item) for item in result["recordings"]} for result in (first, second)]
    both = [uri for uri in sides[0] if uri in sides[1]]
    if not both:
        sys.exit("the results have no recording in common")
    for uri in both:
        if sides[0][uri].counts[WER].words != sides[1][uri].counts[WER].words:
            sys.exit(f"{uri}: has another reference in the second result; measure one of them again")
    before, after = ([side[uri] for uri in both] for side in sides)
    differences = words.compare(after, before)
    pooled = [words.pool(scores) for scores in (before, after)]
    missing = [
        {(score.uri, *word[:3]) for score in scores for word in score.lost} for scores in (before, after)
    ]
    return {
        "recordings": both,
        "measures": {
            measure.name: {
                "first": round(pooled[0][measure].rate, 2),
                "second": round(pooled[1][measure].rate, 2),
                "difference": round(difference.points, 2),
                "interval": difference.interval and [round(edge, 2) for edge in difference.interval],
            }
            for measure, difference in differences.items()
        },
        **{
            key: [result[key] for result in (first, second)]
            for key in ("start_error", "end_error", "unsupported_words", "inaudible_seconds", "cost")
        },
        "no_longer_lost": sorted(missing[0] - missing[1]),
        "newly_lost": sorted(missing[1] - missing[0]),
    }


def _score(item: dict[str, Any]) -> WordScore:
    """A recording of a result, without what only the transcripts know."""
    keys = {key: measure for measure, key in words_report.KEYS.items()}
    counts = {
        keys[key]: Counts(**{part: item[key][part] for part in Counts._fields}) for key in keys if key in item
    }
    if CPWER in counts:
        by_speaker, all_words = counts[CPWER], counts[WER]
        cost = [one - other for one, other in zip(by_speaker[:3], all_words[:3], strict=True)]
        counts[COST] = Counts(*cost, all_words.words)
    speakers = (item["true_speakers"], item["speakers"]) if item["speakers"] is not None else None
    return WordScore(
        item["uri"],
        counts,
        (),
        (),
        tuple(Lost(**word) for word in item["lost"]),
        (item["words_with_digits"]["reference"], item["words_with_digits"]["hypothesis"]),
        speakers,
        item["unsupported_words"],
        item["inaudible_seconds"],
    )
