"""Mixtures of `languages.py` as others hear them: Witness told each turn's language, and faster-whisper.

    python benchmarks/by_turns.py FOLDER OUT [--whisper base] [--peer-python PATH --model FOLDER]
    witness score --words FOLDER OUT/told

FOLDER holds NAME.flac beside NAME.stm, whose lines have their language in the label. OUT gets a folder of
NAME.seglst.json for each way: "told" is Witness, which gets each turn by itself, cut at the times of the
reference, and its language; "auto" and "multilingual" are faster-whisper, in an environment of its own
(against_faster_whisper.py), int8 and otherwise as it comes, and with multilingual=True.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import harness
import soundfile

from witness import Engine, Options, Runtime

PEER = """
import json, sys
from pathlib import Path
from faster_whisper import WhisperModel
model, out, *recordings = sys.argv[1:]
model = WhisperModel(model, device="cpu", compute_type="int8")
keys = ("session_id", "speaker", "start_time", "end_time", "words")
for recording in map(Path, recordings):
    for way in ("auto", "multilingual"):
        found, _ = model.transcribe(str(recording), word_timestamps=True, multilingual=way == "multilingual")
        words = [word for segment in found for word in segment.words]
        rows = [(recording.stem, None, word.start, word.end, word.word) for word in words]
        folder = Path(out, way)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps([dict(zip(keys, row)) for row in rows])
        (folder / f"{recording.stem}.seglst.json").write_text(text)
"""
LINE = re.compile(r"\S+ \S+ \S+ (?P<start>\S+) (?P<end>\S+) <(?P<language>[^>]+)> ")


def turns(reference: Path) -> Iterator[tuple[str, float, float]]:
    """Language, start and end of each turn, in seconds."""
    lines = filter(None, map(LINE.match, reference.read_text("utf-8").splitlines()))
    for language, run in groupby(lines, key=lambda line: line["language"]):
        first, *rest = run
        yield language, float(first["start"]), float((rest or [first])[-1]["end"])


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--whisper", default="base")
    parser.add_argument("--peer-python")
    parser.add_argument("--model")
    asked = parser.parse_args()
    recordings = sorted(asked.folder.glob("*.flac"))
    engines: dict[str, Engine] = {}
    for recording in recordings:
        samples, rate = soundfile.read(recording, dtype="float32")
        rows = []
        for language, start, end in turns(recording.with_suffix(".stm")):
            if language not in engines:
                options = Options(models="builtin", offline=True, whisper=asked.whisper, language=language)
                engines[language] = Engine(options, Runtime(device="cpu"))
            found = engines[language].transcribe((samples[int(start * rate) : int(end * rate)], rate))
            rows += [
                {
                    "session_id": recording.stem,
                    "speaker": None,
                    "start_time": start + word.start,
                    "end_time": start + word.end,
                    "words": word.text,
                }
                for word in found.words
            ]
        path = asked.out / "told" / f"{recording.stem}.seglst.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    if asked.peer_python:
        command = [asked.peer_python, "-c", PEER, asked.model, str(asked.out), *map(str, recordings)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
