"""Engines and models that recognize words, on the same recordings: time, memory, WER, errors of word times.

    pip install '.[bench]'
    python benchmarks/recognizers.py FOLDER --run ctranslate2=MODEL --run whisper.cpp=MODEL [--json OUT]

FOLDER holds NAME.flac or .wav beside NAME.stm. MODEL is what `--whisper` takes: a name, a file, or a folder.
Every recording is transcribed by `witness run` in separate processes: with `--serial`, when the engine has
the machine to itself; with the diarizer beside it; and without words. Rounds go over all of that again,
engines in another order, so that a slow moment of the machine affects all of them. Figures are medians of
the rounds, with the lowest and the highest.

"alone" and "beside" are times real time of recognition itself, loading included; "whole" is that of `witness
run`, from start to end. Processor time is that of recognition: of the run with `--serial` minus that of the
run without words. Memory is the largest process at its peak. `load_before` should be near 0: on a busy
machine only processor times mean something.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import harness
import real_words

from witness.bench import lines, words, words_report

WAYS = {"alone": "--serial", "beside": "--parallel"}


class Row(NamedTuple):
    """Cost of one process."""

    run: str
    """ENGINE=MODEL; empty: without words."""
    way: str
    round: int
    recording: str
    cost: dict[str, float]
    document: Any = None


def options_of(run: str) -> list[str]:
    """`ENGINE=MODEL` as options of `witness run`."""
    engine, _, model = run.partition("=")
    if not model:
        sys.exit(f"--run {run}: not ENGINE=MODEL")
    return ["--recognizer", engine, "--whisper", model]


def measure(recordings: list[Path], runs: list[str], rounds: int, common: list[str]) -> list[Row]:
    """Everything that was measured."""
    rows = []
    with TemporaryDirectory() as scratch:
        for number in range(rounds):
            for place, recording in enumerate(recordings):
                cost = harness.transcribe(recording, Path(scratch), ["--whisper", "none", *common])
                rows.append(Row("", "without words", number, recording.stem, cost))
                turned = (place + number) % len(runs)
                for run in (runs * 2)[turned : turned + len(runs)]:
                    for way, switch in WAYS.items():
                        options = [*options_of(run), switch, *common]
                        cost = harness.transcribe(recording, Path(scratch), options)
                        document = json.loads(Path(scratch, f"{recording.stem}.json").read_bytes())
                        cost["recognition"] = document["timing"]["transcription"]
                        rows.append(Row(run, way, number, recording.stem, cost, document))
                sys.stderr.write(f"round {number + 1} of {rounds}: {recording.stem}\n")
    return rows


def summary(run: str, rows: list[Row], references: dict[str, lines.Said], audio: float) -> dict[str, Any]:
    """The figures of one engine and model over all recordings."""
    rounds = range(max(row.round for row in rows) + 1)
    ours = [row for row in rows if row.run == run]

    def totals(of: str, way: str, key: str) -> list[float]:
        """Of all recordings, round by round."""
        some = [row for row in rows if (row.run, row.way) == (of, way)]
        return [sum(row.cost[key] for row in some if row.round == number) for number in rounds]

    def speeds(way: str, key: str) -> dict[str, float]:
        return harness.spread([audio / seconds for seconds in totals(run, way, key)])

    both, speakers = totals(run, "alone", "processor"), totals("", "without words", "processor")
    documents = {row.recording: row.document for row in ours if row.way == "alone" and row.round == 0}
    scored = words_report.summary(
        words.score({name: (said, lines.transcript(documents[name])) for name, said in references.items()})
    )
    figures = ("wer", "cpwer", "start_error", "end_error", "lost_words")
    return {
        "engine": run.partition("=")[0],
        "model": ours[0].document["models"]["whisper"],
        "device": ours[0].document["device"]["whisper"],
        "alone": speeds("alone", "recognition"),
        "beside": speeds("beside", "recognition"),
        "whole": speeds("beside", "wall"),
        "processor_seconds": harness.spread([one - other for one, other in zip(both, speakers, strict=True)]),
        "peak_memory_mb": max(row.cost["peak_memory_mb"] for row in ours),
        **{key: scored[key] for key in figures if key in scored},
    }


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="append", required=True, metavar="ENGINE=MODEL", dest="runs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", default="builtin", help="of the diarizer")
    args = parser.parse_args()

    pairs = list(real_words.material(args.folder))
    references = {path.stem: real_words.only(path) for _, path in pairs}
    common = ["--models", args.models, "--offline", "--device", "cpu", "--threads", str(args.threads)]
    rows = measure([recording for recording, _ in pairs], args.runs, args.repeat, common)
    documents = {row.recording: row.document for row in rows if row.document}
    audio = sum(document["audio"]["duration"] for document in documents.values())
    asked = [
        f"--run {engine}={Path(model).name}" for engine, _, model in (run.partition("=") for run in args.runs)
    ]
    result = {
        "command": " ".join(["python benchmarks/recognizers.py FOLDER", *asked]),
        "recordings": [recording.stem for recording, _ in pairs],
        "audio_seconds": round(audio, 1),
        "threads": args.threads,
        "repeat": args.repeat,
        "normalization": words.NORMALIZATION,
        "runs": [summary(run, rows, references, audio) for run in args.runs],
    }
    harness.show(result, args.json)


if __name__ == "__main__":
    main()
