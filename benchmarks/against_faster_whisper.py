"""The whole of Witness, speakers included, against faster-whisper alone: same recording, same model, in turn.

    python3 -m venv peer && peer/bin/pip install 'faster-whisper>=1.2,<1.3'
    pip install '.[bench]'
    python benchmarks/against_faster_whisper.py FILE --peer-python peer/bin/python --model FOLDER [--json OUT]

faster-whisper brings an onnxruntime of its own, which would overwrite that of Witness, so it lives in another
environment. The model is a CTranslate2 folder; both get it, unless --whisper names another file for Witness.
faster-whisper runs in int8 and in two ways, both with beam 5 and without the times of words: as it comes, and
its batched pipeline; in the same language, if --language is given. Each round runs all three, in separate
processes, in another order every time; the time is that of the process from start to end, with loading. A
ratio is that of the medians; "low" and "high" are the lowest and highest ratio of a round. With a FILE.stm
beside FILE the words of all are scored. `taskset -c 0-7` gives all of them eight cores; then also --threads
8. Options that this script does not know are given to `witness run`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import harness
import real_words

from witness.bench import lines, words, words_report

PEER = """
import json, sys
from faster_whisper import BatchedInferencePipeline, WhisperModel
model, recording, threads, language, options = sys.argv[1:]
model = WhisperModel(model, device="cpu", compute_type="int8", cpu_threads=int(threads))
if "batch_size" in options:
    model = BatchedInferencePipeline(model)
segments, _ = model.transcribe(recording, language=language or None, **json.loads(options))
said = [
    (part.start, part.end, text)
    for segment in segments
    for part, text in [(word, word.word) for word in segment.words or ()] or [(segment, segment.text)]
]
keys = ("session_id", "speaker", "start_time", "end_time", "words")
print(json.dumps([dict(zip(keys, ("peer", None, *row), strict=True)) for row in said]))
"""
WITNESS = "witness"
PEERS = {
    "faster-whisper": {},
    "faster-whisper batched": {"batch_size": 8},
}
VERSIONS = """
import json
from importlib.metadata import version
print(json.dumps({name: version(name) for name in ("faster-whisper", "ctranslate2", "onnxruntime")}))
"""


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("recording", type=Path, metavar="FILE")
    parser.add_argument("--peer-python", required=True, metavar="PATH")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--whisper", help="for Witness, if it is not --model")
    parser.add_argument("--language", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    args, others = parser.parse_known_args()

    peer = [
        args.peer_python,
        "-c",
        PEER,
        str(args.model),
        str(args.recording),
        str(args.threads),
        args.language,
    ]
    ours = ["--whisper", args.whisper or str(args.model), "--threads", str(args.threads), "--offline"]
    ours += ["--models", "builtin", "--device", "cpu", *others]
    ours += ["--language", args.language] if args.language else []
    asked = [args.peer_python, "-c", VERSIONS]
    peer_versions = subprocess.run(asked, check=True, capture_output=True).stdout
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in (WITNESS, *PEERS)}
    with TemporaryDirectory() as scratch:
        mine = Path(scratch, f"{args.recording.stem}.json")
        for _, name in harness.in_turn(list(costs), args.repeat):
            if name == WITNESS:
                costs[name].append(harness.transcribe(args.recording, Path(scratch), ours))
            else:
                theirs = Path(scratch, f"{name}.json")
                costs[name].append(harness.measured([*peer, json.dumps(PEERS[name])], theirs))
        document = json.loads(mine.read_bytes())
        found = {WITNESS: lines.transcript(document)}
        for name in PEERS:
            found[name] = next(iter(lines.read(Path(scratch, f"{name}.json")).values()))
    audio = document["audio"]["duration"]
    reference = args.recording.with_suffix(".stm")
    result: dict[str, Any] = {
        "command": "python benchmarks/against_faster_whisper.py FILE --peer-python PATH --model FOLDER",
        "recording": args.recording.name,
        "audio_seconds": round(audio, 1),
        "model": args.model.name,
        "models": document["models"],
        "options": [real_words.shown(option) for option in ours],
        "threads": args.threads,
        "programs": {
            name: {
                "wall": [cost["wall"] for cost in rows],
                "processor": [cost["processor"] for cost in rows],
                "peak_memory_mb": max(cost["peak_memory_mb"] for cost in rows),
                "times_real_time": round(audio / median(cost["wall"] for cost in rows), 2),
                "words": sum(len(row.text.split()) for row in found[name].lines),
                **({"scores": score(reference, found[name])} if reference.exists() else {}),
            }
            for name, rows in costs.items()
        },
        "witness_times_as_fast": {
            name: {
                key: harness.ratio(
                    [cost[key] for cost in costs[name]], [cost[key] for cost in costs[WITNESS]]
                )
                for key in ("wall", "processor")
            }
            for name in PEERS
        },
        "peer_versions": json.loads(peer_versions),
    }
    harness.show(result, args.json)


def score(reference: Path, found: lines.Said) -> dict[str, Any]:
    """Of the words of one program; that of faster-whisper has no speakers, and so no cpWER."""
    scored = words_report.summary(words.score({"both": (real_words.only(reference), found)}))
    return {key: scored[key] for key in ("wer", "cpwer", "start_error", "end_error") if key in scored}


if __name__ == "__main__":
    main()
