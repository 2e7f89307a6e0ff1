"""Recognizers on a GPU through Vulkan: words, time, a lost device; and one window of a large model.

    python benchmarks/vulkan.py words RECORDING.wav --run whisper.cpp=MODEL --run transcribe-cpp=MODEL,ALIGNER
    python benchmarks/vulkan.py window --engine transcribe-cpp

`words` has each engine hear the recording (16 kHz, mono, 16 bits) in a child process, as Witness does,
without the diarizer: seconds, device, warnings, the number of words, and whether every round has the same.
ALIGNER is a folder in CTranslate2's format. `window` measures 30 s of noise with random weights of
large-v3-turbo's shape (q5_0), as whisper_vulkan.py writes them: encoder, and all of it.

A device that is lost: build lost_device.c beside this file as its first line says, and run with
LD_PRELOAD=./lost.so LOST_AFTER=300.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import whisper_vulkan

from witness.recognition.recognizer import TrackRecognizer, TranscribeOptions
from witness.schema import ModelFile


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("what", choices=["words", "window"])
    parser.add_argument("recording", nargs="?", type=Path)
    parser.add_argument("--run", action="append", default=[], metavar="ENGINE=MODEL[,ALIGNER]")
    parser.add_argument("--engine", choices=["whisper.cpp", "transcribe-cpp"], default="transcribe-cpp")
    parser.add_argument("--cpu", action="store_true", help="without the GPU")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--language", default="en")
    options = parser.parse_args()
    rows = words(options) if options.what == "words" else [window(options)]
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")


def words(options: argparse.Namespace) -> list[dict]:
    """What each engine heard, round by round, the engines in turn."""
    with wave.open(str(options.recording)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (16_000, 1, 2):
            raise SystemExit(f"{options.recording}: not 16 kHz, mono, 16 bits")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    texts: dict[str, list] = {}
    rows = []
    for number in range(options.rounds):
        for run in options.run:
            engine, _, paths = run.partition("=")
            model, _, aligner = paths.partition(",")
            chosen = ModelFile(Path(model).name, model, "", engine, aligner or None)
            begun = time.perf_counter()
            with TrackRecognizer(
                chosen, TranscribeOptions(options.language), threads=options.threads, gpu=not options.cpu
            ) as recognizer:
                recognizer.send(samples)
                found = recognizer.result()
            heard = [(word.start, word.end, word.text) for word in found.words]
            rows.append(
                {
                    "run": run,
                    "round": number,
                    "recognition_s": round(found.seconds, 3),
                    "with_loading_s": round(time.perf_counter() - begun, 3),
                    "device": found.device,
                    "words": len(heard),
                    "as_first": heard == texts.setdefault(run, heard),
                    "warnings": found.warnings,
                }
            )
    return rows


def window(options: argparse.Namespace) -> dict:
    noise = np.random.default_rng(1).normal(0, 0.1, 30 * 16_000).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        whisper_vulkan.write(path, "large-v3-turbo", "q5_0")
        measured = _transcribe_cpp if options.engine == "transcribe-cpp" else _whisper_cpp
        return {"engine": options.engine, **measured(str(path), noise, options)}


def _transcribe_cpp(path: str, noise: np.ndarray, options: argparse.Namespace) -> dict:
    import transcribe_cpp

    from witness.recognition.transcribe_cpp import best

    device = None if options.cpu else best(transcribe_cpp.backends())
    model = transcribe_cpp.Model(path, device=device, backend="auto" if device else "cpu")
    session = model.session(n_threads=options.threads)
    never = {"logprob_thold": -np.inf, "compression_ratio_thold": np.inf, "no_speech_thold": np.inf}
    wish = transcribe_cpp.WhisperRunOptions(seed=1, temperature_inc=0.0, **never)
    whole, encoder = [], []
    for _ in range(1 + options.rounds):
        begun = time.perf_counter()
        found = session.run(noise, language="en", timestamps="none", family=wish)
        whole.append(round(1000 * (time.perf_counter() - begun)))
        encoder.append(round(found.timings.encode_ms))
    return {"encode_ms": encoder, "window_ms": whole, "tokens": "256 at most"}


def _whisper_cpp(path: str, noise: np.ndarray, options: argparse.Namespace) -> dict:
    import _pywhispercpp as pw

    context = pw.whisper_context_default_params()
    context.use_gpu, context.flash_attn = not options.cpu, False
    context.dtw_token_timestamps = True
    context.dtw_aheads_preset = pw.WHISPER_AHEADS_LARGE_V3_TURBO
    whisper = pw.whisper_init_from_file_with_params(path, context)
    pw.whisper_pcm_to_mel(whisper, noise, len(noise), options.threads)
    wish = pw.whisper_full_default_params(pw.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    wish.n_threads, wish.language, wish.print_progress = options.threads, "en", False
    wish.no_timestamps, wish.single_segment, wish.temperature_inc = True, True, 0.0
    whole, encoder = [], []
    for _ in range(1 + options.rounds):
        begun = time.perf_counter()
        pw.whisper_encode(whisper, 0, options.threads)
        encoder.append(round(1000 * (time.perf_counter() - begun)))
        begun = time.perf_counter()
        pw.whisper_full(whisper, wish, noise, len(noise))
        whole.append(round(1000 * (time.perf_counter() - begun)))
    segments = range(pw.whisper_full_n_segments(whisper))
    tokens = sum(pw.whisper_full_n_tokens(whisper, number) for number in segments)
    return {"encode_ms": encoder, "window_ms": whole, "tokens": tokens}


if __name__ == "__main__":
    main()
