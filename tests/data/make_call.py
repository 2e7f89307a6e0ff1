# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy", "scipy", "soundfile"]
# ///
"""Make call.flac, call.rttm and call.stm: a short support call between two synthetic voices.

    apt-get install flite        # Debian 12: flite 2.2-5
    python tests/data/make_call.py

The dialogue is ours. The voices are slt (agent) and awb (caller) of CMU Flite, made from the CMU ARCTIC
recordings. Both come under Flite's own licence, which is like BSD's (copyright 1999-2016 Carnegie Mellon
University) and lays no condition on speech made with them.

The same Flite gives the same files: every chance comes from one seed.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.signal
import soundfile

RATE = 8_000
FRAME = RATE // 100
"""10 ms, in which speech is told from pauses."""
BRIDGED = 0.5
"""Seconds. A shorter pause within an utterance belongs to the turn."""
AUDIBLE = 10 ** (-35 / 20)
"""A frame is speech if it is within 35 dB of the loudest of its utterance."""
BAND = (300, 3_400)
"""Hz, the telephone's."""
NOISE = 10 ** (-61 / 20)
"""RMS of the line noise, full scale 1."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Party:
    voice: str
    pitch: float
    """Factor on the voice's own."""
    stretch: float
    """Of durations: above 1 is slower."""
    level: float
    """RMS of speech in dB of full scale."""


@dataclass(frozen=True)
class Line:
    party: str
    text: str
    overlap: float | None = None
    """Seconds by which it begins before the line before ends; None draws a gap."""
    within: float | None = None
    """A backchannel: where in the line before it begins, 0 to 1; that line keeps the floor."""
    pause: float | None = None
    """Seconds of silence before it, instead of a drawn gap."""


PARTIES = {
    "agent": Party("slt", pitch=1.08, stretch=0.98, level=-26.0),
    "caller": Party("awb", pitch=0.94, stretch=0.95, level=-29.5),
}

CALL = [
    Line("agent", "Good morning, this is Laura at the service desk. How can I help you?"),
    Line("caller", "Hello. My internet has been down since last night, and I have tried all I can think of."),
    Line("agent", "Uh-huh.", within=0.55),
    Line("agent", "I am sorry to hear that. Can you tell me which lights are on?"),
    Line("caller", "There is a green one at the top, and a red one below it that keeps blinking."),
    Line("agent", "Okay.", within=0.5),
    Line("agent", "Right. And have you switched it off, and waited for a minute?"),
    Line("caller", "Yes, twice already. It did not help.", overlap=0.7),
    Line("agent", "All right, then let me run a test from here."),
    Line("caller", "Sure, go ahead."),
    Line(
        "agent",
        "I see it now. Your line drops every few minutes, so the box never gets a stable signal.",
        pause=2.4,
    ),
    Line("caller", "Right.", within=0.42),
    Line("caller", "Is that a fault on my side, or on yours?"),
    Line("agent", "It is on ours. We have to replace a part in the street cabinet."),
    Line("caller", "And when will that be? Because I work from home, and I really need it."),
    Line("agent", "I understand. I can send someone tomorrow, between eight and ten.", overlap=0.9),
    Line("caller", "Tomorrow at eight is fine."),
    Line("agent", "Good. You will get a message an hour before he arrives."),
    Line("caller", "Do I have to be at home?", overlap=0.25),
    Line("agent", "No, that is not necessary."),
    Line("caller", "Great. Thank you very much for your help."),
    Line("agent", "You are welcome. Have a nice day."),
    Line("caller", "You too. Bye.", overlap=0.35),
    Line("agent", "Bye bye."),
]


def speak(line: Line, rng: np.random.Generator) -> Floats:
    """(samples,) at RATE, band-limited and levelled, from the first sound to the last."""
    party = PARTIES[line.party]
    features = {
        "duration_stretch": party.stretch * rng.uniform(0.92, 1.08),
        "f0_shift": party.pitch * rng.uniform(0.95, 1.05),
        "int_f0_target_stddev": rng.uniform(18, 30),
    }
    options = [part for name, value in features.items() for part in ("--setf", f"{name}={value:.4f}")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.wav"
        subprocess.run(
            ["flite", "-voice", party.voice, *options, "-t", line.text, "-o", str(file)],  # noqa: S607
            check=True,
        )
        sound, rate = soundfile.read(file)
    sound = scipy.signal.resample_poly(sound, RATE, rate)
    # Forwards and backwards, so that nothing moves in time.
    sound = scipy.signal.sosfiltfilt(scipy.signal.butter(4, BAND, "bandpass", fs=RATE, output="sos"), sound)
    active = speech(sound)
    sound = sound[active[0][0] : active[-1][1]]
    loudness = np.sqrt(np.mean(np.concatenate([sound[a:b] for a, b in speech(sound)]) ** 2))
    level = party.level + rng.uniform(-1.5, 1.5)
    return sound * 10 ** (level / 20) / loudness


def speech(sound: Floats) -> list[tuple[int, int]]:
    """(first, past the last) samples of the stretches of speech in one clean utterance."""
    n_frames = len(sound) // FRAME
    loud = np.sqrt(np.mean(sound[: n_frames * FRAME].reshape(n_frames, FRAME) ** 2, axis=1))
    stretches: list[tuple[int, int]] = []
    for frame in np.flatnonzero(loud > AUDIBLE * loud.max()):
        start, end = int(frame) * FRAME, (int(frame) + 1) * FRAME
        if stretches and start - stretches[-1][1] < BRIDGED * RATE:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return stretches


def place(lines: list[Line], sounds: list[Floats], rng: np.random.Generator) -> list[int]:
    """The sample at which each line begins."""
    starts: list[int] = []
    floor_start, floor_end = 0, round(0.6 * RATE)
    for line, sound in zip(lines, sounds, strict=True):
        # Gaps between speakers: median 0.25 s, one in ten beyond 0.6 s.
        gap = min(float(rng.lognormal(np.log(0.25), 0.7)), 1.2)
        if line.within is not None:
            starts.append(floor_start + round(line.within * (floor_end - floor_start)))
            continue
        if line.overlap is not None:
            gap = -line.overlap
        elif line.pause is not None:
            gap = line.pause
        elif not starts:
            gap = 0.0
        floor_start = floor_end + round(gap * RATE)
        floor_end = floor_start + len(sound)
        starts.append(floor_start)
    return starts


def main() -> None:
    rng = np.random.default_rng(20)
    sounds = [speak(line, rng) for line in CALL]
    starts = place(CALL, sounds, rng)
    length = max(start + len(sound) for start, sound in zip(starts, sounds, strict=True)) + round(0.8 * RATE)
    call = np.zeros(length)
    turns: list[tuple[float, float, str]] = []
    utterances: list[tuple[float, float, str, str]] = []
    for line, start, sound in zip(CALL, starts, sounds, strict=True):
        call[start : start + len(sound)] += sound
        active = [((start + a) / RATE, (start + b) / RATE) for a, b in speech(sound)]
        turns += [(a, b, line.party) for a, b in active]
        utterances.append((active[0][0], active[-1][1], line.party, line.text))

    # A hiss that falls with frequency, and a trace of the mains: the first harmonic that passes the band.
    hiss = scipy.signal.lfilter([1.0], [1.0, -0.6], rng.standard_normal(length))
    hiss = scipy.signal.sosfilt(scipy.signal.butter(2, BAND, "bandpass", fs=RATE, output="sos"), hiss)
    hum = np.sin(2 * np.pi * 300 * np.arange(length) / RATE) * np.sqrt(2)
    call += NOISE * (hiss / np.std(hiss) + 0.1 * hum)

    here = Path(__file__).parent
    soundfile.write(here / "call.flac", call, RATE, subtype="PCM_16", compression_level=1.0)
    (here / "call.rttm").write_text(
        "".join(
            f"SPEAKER call 1 {start:.3f} {end - start:.3f} <NA> <NA> {party} <NA> <NA>\n"
            for start, end, party in sorted(turns)
        )
    )
    (here / "call.stm").write_text(
        "".join(
            f"call 1 {party} {start:.3f} {end:.3f} {text}\n" for start, end, party, text in sorted(utterances)
        )
    )


if __name__ == "__main__":
    main()
