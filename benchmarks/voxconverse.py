"""VoxConverse, fetched and run with Witness's sets of models: one table for a README, from anybody's machine.

    pip install '.[bench]'
    python benchmarks/voxconverse.py FOLDER
    python benchmarks/voxconverse.py FOLDER --split dev --models campplus --models builtin

Uses the recordings and labels that lie anywhere in FOLDER (`abcde.wav`, `abcde.rttm`), or in the folder of
`--audio`, and needs no network if all are there. Else fetches the recordings (43 hours for test, 20 for dev:
about 5 and 2.3 GB, and as much again until they are unpacked) from Oxford and the labels, version 0.3, from
GitHub into FOLDER; a broken transfer continues. Then every set of models diarizes all recordings, each in a
process of its own; after a stop the same command continues. A set whose files are not available is left out,
and the table says so. The table goes to stdout;
FOLDER/SPLIT/result.json has all of it, with the machine: attach it to an issue if you want the figures in
Witness's pages. Settings are the program's own: on test nothing is tuned.

VoxConverse: Chung, Huh, Nagrani, Afouras and Zisserman, Interspeech 2020; labels and recordings are for
research, CC BY 4.0; the copyright of the videos stays with their owners.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from witness import __version__, text
from witness.bench import accuracy, measurement, run_folder, scoring
from witness.bench.scoring import FileScore
from witness.errors import ModelError, WitnessError
from witness.models.download import FetchError, NetworkError, Route, download, fetch_end, fetch_page
from witness.options import Options, Runtime
from witness.progress import Reporter
from witness.storage import atomic, files

AUDIO = "https://www.robots.ox.ac.uk/~vgg/data/voxconverse/data/voxconverse_{split}_wav.zip"
LABELS = "https://github.com/joonson/voxconverse/archive/refs/heads/master.zip"
ROUTE = Route("--audio and --labels")
LABELS_SHA256 = {
    "dev": "5ea4279a632d3310f619fdcc79f6218fa2c2dc2849e3e4e321510e061cdad535",
    "test": "25554c05f4d9c5bce4e887dafaed878b0817bebf6770d63126c28f387783eeb8",
}
"""Of all RTTM files of a part, one after the other by name: labels 0.3."""
AUDIO_SHA256 = {
    "dev": "e83a68b5df3bc945a3cf4544102038792ae79972753c585769e58ea677c523a8",
    "test": "472ebf1eaeb1dcb5c311b07a8b5c31bcedcccbf98f386d90a88cde2452da8c68",
}
"""Of the archives, as another public project has them; a difference is told and not refused."""
LARGEST_LABELS = 64 << 20
SETS = ("standard", "campplus", "builtin")
CONVENTIONS = ("strict", "collar-0.25-each-side")
HEADS = ("models", "DER strict", "95 %", "DER ±0.25 s", "95 %", "speakers right", "±1", "× real time", "MB")


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def sha256_of_labels(folder: Path) -> str:
    """Return the sha256 of all RTTM files of a folder, one after the other by name."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.rttm")))).hexdigest()


def collect_labels(folder: Path, split: str, root: Path) -> None:
    """Copy the labels of a part into `folder` if a folder below `root` has them."""
    if not any(folder.glob("*.rttm")):
        for source in sorted({path.parent for path in root.rglob("?????.rttm")}):
            if sha256_of_labels(source) == LABELS_SHA256[split]:
                folder.mkdir(parents=True)
                for path in source.glob("*.rttm"):
                    atomic.write(path.read_bytes(), folder / path.name)
                return


def collect_audio(folder: Path, names: Iterable[str], root: Path) -> None:
    """Link the recordings of these names that lie below `root` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    recordings = {path.stem: path for path in sorted(root.rglob("?????.wav"))}
    for name in names:
        target = folder / f"{name}.wav"
        if name in recordings and not target.exists():
            target.symlink_to(recordings[name].resolve())


def fetch_labels(folder: Path, split: str, url: str) -> None:
    """The RTTM files of a part, into `folder`. Exits if they are not those of version 0.3."""
    if not any(folder.glob("*.rttm")):
        content = fetch_page(url, "*/*", LARGEST_LABELS, ROUTE).body
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                if named := re.fullmatch(rf"[^/]+/{split}/([a-z]{{5}}\.rttm)", info.filename):
                    atomic.write(archive.read(info), folder / named[1])
    joined = sha256_of_labels(folder)
    if joined != LABELS_SHA256[split]:
        sys.exit(f"{folder}: not the labels of version 0.3 (sha256 {joined}); delete them, or check --labels")


def fetch_audio(folder: Path, split: str, url: str, names: Iterable[str]) -> str | None:
    """The recordings of these names, as WAV in `folder`; the sha256 of the archive, if fetched."""
    told, archive = folder / "archive.sha256", folder / "archive.zip"
    missing = [name for name in names if not (folder / f"{name}.wav").exists()]
    if not missing:
        return told.read_text().strip() if told.exists() else None
    if Path(url).is_dir():
        sys.exit(f"{url} lacks {len(missing)} recordings of {split}, {missing[0]}.wav among them")
    size, _ = fetch_end(url, 1, ROUTE)
    step = max(1, size // 100)
    shown = 0

    def report(count: int) -> None:
        nonlocal shown
        if count // step > shown:
            shown = count // step
            say(f"{archive.name}: {count >> 20} of {size >> 20} MiB")

    download(url, archive, size, report, route=ROUTE)
    with archive.open("rb") as whole:
        sha256 = files.sha256_of(whole)
    if sha256 != AUDIO_SHA256[split]:
        say(f"note: the archive has sha256 {sha256}, another project's has {AUDIO_SHA256[split]}")
    with zipfile.ZipFile(archive) as members:
        inside = {Path(info.filename).name: info for info in members.infolist() if not info.is_dir()}
        for name in missing:
            if f"{name}.wav" not in inside:
                sys.exit(f"{archive} has no {name}.wav; delete it, or check --audio")
            scratch = folder / f".{name}.part"
            with members.open(inside[f"{name}.wav"]) as source, scratch.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            scratch.replace(folder / f"{name}.wav")
    atomic.write(f"{sha256}\n".encode(), told)
    archive.unlink()
    return sha256


@dataclass(frozen=True)
class Row:
    """Result of a set of models."""

    models: str
    why_not: str | None = None
    """None: it was run."""
    der: dict[str, dict[str, float]] | None = None
    speakers: dict[str, float] | None = None
    times_real_time: float | None = None
    peak_memory_mb: float | None = None

    def cells(self) -> tuple[str, ...]:
        if self.der is None or self.speakers is None:
            return (self.models, f"not run: {self.why_not}", *[""] * (len(HEADS) - 2))
        rates = [
            cell
            for one in self.der.values()
            for cell in (f"{one['der']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}")
        ]
        right = f"{self.speakers['exact']} of {self.speakers['files']}"
        memory = "-" if self.peak_memory_mb is None else f"{self.peak_memory_mb:.0f}"
        return (
            self.models,
            *rates,
            right,
            str(self.speakers["within_one"]),
            f"{self.times_real_time:.0f}",
            memory,
        )


def run(
    models: str, cases: tuple[run_folder.Case, ...], out: Path, runtime: Runtime, split: run_folder.Split
) -> Row:
    """Diarize and score everything with a set of models."""
    plan = run_folder.AccuracyPlan(
        cases=cases, out=out, options=Options(models=models), runtime=runtime, split=split
    )
    try:
        scores = accuracy.run(plan, Reporter(note=say))
    except ModelError as error:
        return Row(models, str(error))
    return row(models, scores, [run_folder.done(out, case.name) for case in cases])


def row(models: str, scores: list[FileScore], done: list[run_folder.Done | None]) -> Row:
    """The figures of a run."""
    pooled = scoring.pool(scores)
    costs = [record for record in done if record]
    memory = [cost.peak_memory_mb for cost in costs if cost.peak_memory_mb is not None]
    return Row(
        models,
        der={
            name: {
                "der": pooled[name].rate,
                "low": pooled[name].interval[0],
                "high": pooled[name].interval[1],
            }
            for name in CONVENTIONS
        },
        speakers={**asdict(scoring.speaker_counts(scores)), "files": len(scores)},
        times_real_time=sum(cost.duration for cost in costs) / sum(cost.wall for cost in costs),
        peak_memory_mb=max(memory, default=None),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--models", action="append", help=f"a set; repeatable; by default {', '.join(SETS)}")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument(
        "--audio", default=AUDIO, help="a folder of recordings, or another address of their archive"
    )
    parser.add_argument("--labels", default=LABELS, help="another place of the archive of labels")
    args = parser.parse_args()
    folder = args.folder / args.split
    try:
        collect_labels(folder / "rttm", args.split, args.folder)
        fetch_labels(folder / "rttm", args.split, args.labels)
        names = sorted(path.stem for path in (folder / "rttm").glob("*.rttm"))
        for root in (args.folder, Path(args.audio)):
            collect_audio(folder / "wav", names, root)
        archive = fetch_audio(folder / "wav", args.split, args.audio.format(split=args.split), names)
        cases, _ = accuracy.find(folder / "wav", folder / "rttm")
        runtime = Runtime(device=args.device, threads=args.threads)
        chosen = args.models or SETS
        rows = [run(name, cases, folder / f"run-{name}", runtime, args.split) for name in chosen]
    except (NetworkError, FetchError, WitnessError) as error:
        sys.exit(str(error))
    result = {
        "witness": __version__,
        "split": args.split,
        "recordings": len(cases),
        "archive_sha256": archive,
        "machine": asdict(measurement.hardware()),
        "versions": measurement.versions(),
        "rows": [asdict(one) for one in rows],
    }
    atomic.write((json.dumps(result, indent=1) + "\n").encode(), folder / "result.json")
    table = [HEADS, *(one.cells() for one in rows)]
    atomic.write(text.table(table, left=(0,)).encode() + b"\n", None)


if __name__ == "__main__":
    main()
