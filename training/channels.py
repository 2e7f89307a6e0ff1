"""The corpus once more as if one microphone had recorded all of it.

Most voices have one clip, each with its own microphone and its own background, so that in a simulated
conversation the sound of the recording tells the speakers apart and its noise starts and stops with their
speech. No real recording is like that. Here every clip loses its steady background and its long-term
spectrum is moved to that of all the others; half of the simulated conversations are made of these.
"""

import dataclasses
import math

import torch

from data import FRAME, SAMPLE_RATE, Corpus

FFT = 512
BANDS = 14  # centers half an octave apart, 100 Hz to 9 kHz: coarse, so that formants stay the speaker's
STRENGTH = 0.85  # of the difference between a clip's spectrum and the mean one that is taken away
LARGEST = 12.0  # dB that the equalizer may give or take
QUIETEST = 0.25  # gain: the background is lowered by at most 12 dB, for more would leave musical tones


def with_flat(corpus: Corpus, clips: torch.Tensor, *, batch: int = 64) -> Corpus:
    """The corpus with a second version of `clips`: row r of the first is row r + `corpus.flat` now.

    Rows of other clips are silent there. Takes 4 bytes a sample more, and passes over the clips twice.
    """
    flat = torch.zeros_like(corpus.audio)
    order = clips[torch.argsort(corpus.frames[clips])]
    groups = [group for group in order.split(batch) if len(group)]
    spectra = torch.cat([_bands(_cleaned(corpus, group)[0], _speech(corpus, group)) for group in groups])
    spectra = spectra - spectra.mean(1, keepdim=True)
    target = spectra.mean(0)
    for group, own in zip(groups, spectra.split([len(g) for g in groups]), strict=True):
        picture, samples = _cleaned(corpus, group)
        change = (STRENGTH * (target - own)).clamp(-LARGEST, LARGEST)
        gain = 10 ** (change @ _interpolation(corpus.device).t() / 20)
        window = torch.hann_window(FFT, device=corpus.device)
        wave = torch.istft(picture * gain[..., None], FFT, FRAME, window=window, length=samples.shape[1])
        level = samples.pow(2).sum(1, keepdim=True).sqrt() / (wave.pow(2).sum(1, keepdim=True).sqrt() + 1e-6)
        rows = (wave * level * 32767).clamp(-32768, 32767).to(torch.int16).view(len(group), -1, FRAME)
        place, inside = _rows(corpus, group)
        flat[place[inside]] = rows[inside]
    return dataclasses.replace(
        corpus,
        audio=torch.cat([corpus.audio, flat]),
        flags=torch.cat([corpus.flags, corpus.flags]),
        flat=len(corpus.audio),
    )


def _rows(corpus: Corpus, group: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(clips, frames) rows of the corpus, and which of them are the clip's own."""
    longest = int(corpus.frames[group].max())
    frame = torch.arange(longest, device=corpus.device)
    inside = frame < corpus.frames[group][:, None]
    return torch.where(inside, corpus.start[group][:, None] + frame, len(corpus.audio) - 1), inside


def _speech(corpus: Corpus, group: torch.Tensor) -> torch.Tensor:
    rows, inside = _rows(corpus, group)
    return corpus.flags[rows] & inside


def _cleaned(corpus: Corpus, group: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(clips, bins, frames) short-time spectra with less steady noise, and (clips, samples) as recorded."""
    rows, inside = _rows(corpus, group)
    samples = (corpus.audio[rows].float() / 32768 * inside[..., None]).flatten(1)
    window = torch.hann_window(FFT, device=corpus.device)
    picture = torch.stft(samples, FFT, FRAME, window=window, return_complex=True)[..., : inside.shape[1]]
    power = torch.nn.functional.avg_pool2d(picture.abs()[:, None] ** 2, (3, 5), 1, (1, 2))[:, 0]
    ordered = power.masked_fill(~inside[:, None], math.inf).sort(-1).values
    tenth = (corpus.frames[group] // 10).clamp(min=1)[:, None, None].expand(-1, ordered.shape[1], 1)
    noise = 2.0 * ordered.gather(-1, tenth)
    gain = (1 - noise / (power + 1e-12)).clamp(min=QUIETEST**2).sqrt()
    # istft wants the frame after the last sample too.
    return torch.nn.functional.pad(picture * gain, (0, 1)), samples


def _interpolation(device: torch.device) -> torch.Tensor:
    """(bins, BANDS): triangles over the logarithm of the frequency; the outer bands go on to the ends."""
    frequency = torch.linspace(0, SAMPLE_RATE / 2, FFT // 2 + 1, device=device).clamp(min=50)
    place = (2 * torch.log2(frequency / 100)).clamp(0, BANDS - 1)
    return (1 - (place[:, None] - torch.arange(BANDS, device=device)).abs()).clamp(min=0)


def _bands(picture: torch.Tensor, speech: torch.Tensor) -> torch.Tensor:
    """(clips, bins, frames) -> (clips, BANDS) mean level in speech, dB."""
    power = picture.abs()[..., : speech.shape[1]] ** 2
    mean = (power * speech[:, None]).sum(-1) / speech.sum(-1, keepdim=True).clamp(min=1)
    weights = _interpolation(picture.device)
    return 10 * torch.log10(mean @ (weights / weights.sum(0)) + 1e-12)
