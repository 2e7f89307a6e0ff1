"""Rooms, distances, noise, equalizers and codecs, for whole batches on the GPU.

Why so much of it: most training speakers have one clip, made with one microphone in one room. A network
that sees each voice in its own condition only learns the condition. So every crop gets its own, and crops
of different speakers share one. All randomness comes from the generator that is passed in: the same seed
gives the same batch (on one device type).
"""

import math
from dataclasses import dataclass

import torch

from data import FRAME, SAMPLE_RATE, Corpus, Voices

ROOM_LENGTH = 8000  # samples: 0.5 s of room response
EARLY = 6  # reflections of a far microphone's room that are heard one by one


@dataclass
class Dice:
    """Random numbers on one device from one generator."""

    generator: torch.Generator

    @classmethod
    def seeded(cls, device: torch.device | str, *numbers: int) -> "Dice":
        seed = 0
        for number in numbers:
            seed = (seed * 1_000_003 + number) % (2**63)
        return cls(torch.Generator(device=device).manual_seed(seed))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        draw = torch.rand(*shape, generator=self.generator, device=self.generator.device)
        return draw * (high - low) + low

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.generator.device)

    def chance(self, probability: float | torch.Tensor, *shape: int) -> torch.Tensor:
        return self.uniform(*shape) < probability

    def below(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=self.generator, device=self.generator.device)

    def choice(self, values: list[float], weights: list[float], *shape: int) -> torch.Tensor:
        edges = torch.tensor(weights, device=self.generator.device).cumsum(0)
        at = torch.searchsorted(edges / edges[-1], self.uniform(*shape)).clamp(max=len(values) - 1)
        return torch.tensor(values, device=self.generator.device)[at]

    def weighted(self, weight: torch.Tensor, count: int, *, repeat: bool = True) -> torch.Tensor:
        return torch.multinomial(weight, count, replacement=repeat, generator=self.generator)


def decibels(level: torch.Tensor) -> torch.Tensor:
    return 10 ** (level / 20)


def loudness(samples: torch.Tensor) -> torch.Tensor:
    """Root mean square along the last axis, kept as an axis of length 1."""
    return samples.pow(2).mean(-1, keepdim=True).sqrt()


def convolve(samples: torch.Tensor, response: torch.Tensor) -> torch.Tensor:
    size = samples.shape[-1] + response.shape[-1]
    size = -(-size // 4096) * 4096
    product = torch.fft.rfft(samples, size) * torch.fft.rfft(response, size)
    return torch.fft.irfft(product, size)[..., : samples.shape[-1]]


def room_responses(dice: Dice, rooms: int, sources: int, far: torch.Tensor | None = None) -> torch.Tensor:
    """(rooms, sources, ROOM_LENGTH): sources at different distances in the same room share its decay and
    color.

    Where `far`, (rooms,) bool, is true, one microphone stands away from all: their distances are about one,
    the direct sound is fainter than the room, and a table and walls give early reflections.

    A statistical room: a direct sound, then reflections that grow denser and decay, high frequencies faster
    than low ones. The ratio of direct to reverberant sound stands for the distance: -4 dB (across the room)
    to 18 dB (close).
    """
    device = dice.generator.device
    time = torch.arange(ROOM_LENGTH, device=device) / SAMPLE_RATE
    decay = 6.9 / (0.08 + 0.72 * dice.uniform(rooms, 1, 1) ** 1.5)  # per second, from the reverberation time
    damping = dice.uniform(rooms, 1, 1, low=1.1, high=3.0)
    density = ((time + 0.002) / dice.uniform(rooms, 1, 1, low=0.01, high=0.04)).clamp(max=1.0) ** 2
    present = dice.uniform(rooms, sources, ROOM_LENGTH) < density
    tail = dice.normal(rooms, sources, ROOM_LENGTH) * present / density.sqrt()
    first = dice.uniform(rooms, sources, 1, low=0.001, high=0.006)
    tail = tail * (time > first)
    spectrum = torch.fft.rfft(tail, 2 * ROOM_LENGTH)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, spectrum.shape[-1], device=device)
    low_pass = 1 / (1 + (frequency / dice.uniform(rooms, 1, 1, low=800, high=3000)) ** 2)
    low = torch.fft.irfft(spectrum * low_pass)[..., :ROOM_LENGTH]
    tail = low * torch.exp(-decay * time) + (tail - low) * torch.exp(-decay * damping * time)
    nearness = dice.uniform(rooms, 1, 1, low=-4, high=14) + dice.uniform(rooms, sources, 1, low=-4, high=4)
    if far is not None:
        distance = dice.uniform(rooms, 1, 1, low=-9, high=2) + dice.uniform(
            rooms, sources, 1, low=-1.5, high=1.5
        )
        nearness = torch.where(far[:, None, None], distance, nearness)
    tail = tail / (tail.norm(dim=-1, keepdim=True) + 1e-8) / decibels(nearness)
    tail[..., 0] = 1.0
    if far is not None:
        delay = (SAMPLE_RATE * 0.001 * dice.uniform(rooms, sources, EARLY, low=0.8, high=30)).long()
        gain = dice.uniform(rooms, sources, EARLY, low=-0.7, high=0.7) * torch.exp(
            -delay / (0.02 * SAMPLE_RATE)
        )
        tail = tail.scatter_add(-1, delay, gain * far[:, None, None])
    return tail / tail.norm(dim=-1, keepdim=True)


def noise_clips(dice: Dice, corpus: Corpus, count: int, frames: int) -> torch.Tensor:
    """(count, samples) of recorded noise and music, each repeated to length, from a random place."""
    clip = (
        corpus.noise[dice.below(len(corpus.noise), count)]
        if len(corpus.noise)
        else dice.below(len(corpus.start), count)
    )
    length = corpus.frames[clip][:, None]
    at = (dice.uniform(count, 1) * length).long() + torch.arange(frames, device=corpus.device)
    return (corpus.audio[corpus.start[clip][:, None] + at % length].float() / 32768).view(count, -1)


def colored_noise(dice: Dice, count: int, samples: int) -> torch.Tensor:
    """White to brown, with a random slope."""
    spectrum = torch.fft.rfft(dice.normal(count, samples))
    frequency = torch.linspace(1, SAMPLE_RATE / 2, spectrum.shape[-1], device=spectrum.device)
    slope = dice.uniform(count, 1, low=0.0, high=1.3)
    return torch.fft.irfft(spectrum * (frequency / 1000 + 0.05) ** -slope, samples)


def babble(dice: Dice, corpus: Corpus, voices: Voices, count: int, frames: int) -> torch.Tensor:
    """Four voices at once: (count, samples)."""
    clip = voices.draw(dice.below(len(voices), count, 4), dice.uniform(count, 4))
    length = corpus.frames[clip][..., None]
    at = (dice.uniform(count, 4, 1) * length).long() + torch.arange(frames, device=corpus.device)
    return (
        (corpus.audio[corpus.start[clip][..., None] + at % length].float() / 32768).view(count, 4, -1).sum(1)
    )


def add_noise(
    dice: Dice,
    corpus: Corpus,
    voices: Voices,
    samples: torch.Tensor,
    *,
    probability: float,
    low: float,
    high: float,
    share: int = 1,
) -> torch.Tensor:
    """Adds one kind of noise to most rows, at `low` to `high` dB below them; `share` rows in turn get the
    same noise.
    """
    rows, length = samples.shape
    groups = -(-rows // share)
    frames = length // FRAME
    kind = dice.uniform(groups, 1)
    noise = noise_clips(dice, corpus, groups, frames)
    noise = torch.where(kind < 0.45, colored_noise(dice, groups, length), noise)
    some = max(1, groups // 8)
    noise[:some] = babble(dice, corpus, voices, some, frames)
    noise = noise / (loudness(noise) + 1e-3)
    ratio = dice.uniform(groups, 1, low=low, high=high)
    ratio[:some] = ratio[:some].clamp(min=10)  # voices behind must stay behind
    on = dice.chance(probability, groups, 1)
    # Rows are shuffled so that the babble group is not always made of the first rows.
    group = (
        torch.argsort(dice.uniform(rows)) // share
        if share == 1
        else torch.arange(rows, device=samples.device) // share
    )
    level = loudness(samples)
    level = torch.where(level > 1e-5, level.clamp(min=0.005), torch.full_like(level, 0.05))
    return samples + noise[group] * level * (decibels(-ratio) * on)[group]


def add_hum(dice: Dice, samples: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Steady noise of a room and its machines, 3 to 25 dB below the voices, in the rows of `where`."""
    rows, length = samples.shape
    noise = colored_noise(dice, rows, length)
    level = loudness(samples).clamp(min=0.002) * decibels(-dice.uniform(rows, 1, low=3, high=25))
    return samples + noise / (loudness(noise) + 1e-6) * level * where[:, None]


def music(dice: Dice, count: int, samples: int) -> torch.Tensor:
    """Chords, a melody and drums that never were: (count, samples). Tonal, loud and not speech."""
    device = dice.generator.device
    time = torch.arange(samples, device=device)
    beat = dice.uniform(count, 1, 1, low=0.15, high=0.6) * SAMPLE_RATE
    length = beat * dice.choice([1.0, 2.0, 4.0], [0.5, 0.3, 0.2], count, 4, 1)
    number = (time / length).long()  # of the note each part plays
    scale = torch.tensor([0.0, 2.0, 4.0, 5.0, 7.0, 9.0, 11.0, 12.0], device=device)
    notes = scale[dice.below(len(scale), count, 4, 256)] + 12 * dice.below(3, count, 4, 1)
    pitch = 55 * 2 ** (dice.uniform(count, 1, 1) + notes.gather(-1, number % 256) / 12)
    phase = 2 * math.pi * (pitch / SAMPLE_RATE).cumsum(-1)
    into = (time - number * length) / SAMPLE_RATE  # seconds since the note began
    envelope = torch.exp(-into * dice.uniform(count, 4, 1, low=0.5, high=8)) * (into / 0.01).clamp(max=1)
    darkness = dice.uniform(count, 4, 1, low=0.6, high=2.0)
    parts = torch.zeros_like(phase)
    for harmonic in range(1, 7):
        parts += torch.sin(harmonic * phase) * harmonic**-darkness * (harmonic * pitch < 7500)
    tune = (parts * envelope * dice.uniform(count, 4, 1)).sum(1)
    beats = (time / beat[:, 0]).frac() * beat[:, 0] / SAMPLE_RATE
    hit = dice.below(2, count, 256).gather(-1, (time / beat[:, 0]).long() % 256)
    drums = dice.normal(count, samples) * torch.exp(-beats * dice.uniform(count, 1, low=8, high=60)) * hit
    tune = tune / (loudness(tune) + 1e-4)
    return tune + drums / (loudness(drums) + 1e-4) * dice.uniform(count, 1, low=0.0, high=0.8)


def applause(dice: Dice, count: int, samples: int) -> torch.Tensor:
    """Many hands: bursts of noise, a few to a few hundred a second: (count, samples)."""
    rate = 10 ** dice.uniform(count, 1, low=0.7, high=2.5) / SAMPLE_RATE
    claps = (dice.uniform(count, samples) < rate) * dice.uniform(count, samples, low=0.2, high=1.0)
    time = torch.arange(2048, device=claps.device) / SAMPLE_RATE
    decay = torch.exp(-time * dice.uniform(count, 1, low=150, high=600))
    return convolve(claps, decay) * colored_noise(dice, count, samples)


def add_music(dice: Dice, samples: torch.Tensor, *, probability: float) -> torch.Tensor:
    """Music or applause behind, between or before the voices; it fades in and out."""
    rows, length = samples.shape
    chosen = dice.chance(probability, rows).nonzero()[:, 0]
    if not len(chosen):
        return samples
    count = len(chosen)
    sound = music(dice, count, length)
    hands = applause(dice, max(1, count // 4), length)
    sound[: len(hands)] = hands
    sound = sound / (loudness(sound) + 1e-4)
    time = torch.linspace(0, 1, length, device=samples.device)
    center, width = dice.uniform(count, 1), dice.uniform(count, 1, low=0.05, high=0.6)
    swell = torch.sigmoid((width - (time - center).abs()) / dice.uniform(count, 1, low=0.005, high=0.1))
    swell = torch.where(dice.chance(0.4, count, 1), torch.ones_like(swell), swell)
    level = loudness(samples[chosen])
    level = torch.where(level > 1e-5, level.clamp(min=0.005), torch.full_like(level, 0.05))
    gain = decibels(dice.uniform(count, 1, low=-25, high=6))
    return samples.index_add(0, chosen, sound * swell * level * gain)


def gusts(dice: Dice, count: int, samples: int) -> torch.Tensor:
    """Low noise that swells and dies away as fast as syllables: breath on a microphone, wind, cloth."""
    device = dice.generator.device
    spectrum = torch.fft.rfft(dice.normal(count, samples))
    frequency = torch.linspace(1, SAMPLE_RATE / 2, spectrum.shape[-1], device=device)
    slope = dice.uniform(count, 1, low=0.5, high=2.5)  # of the amplitude: 3 to 15 dB an octave
    corner = dice.uniform(count, 1, low=30, high=200)
    sound = torch.fft.irfft(spectrum * (1 + (frequency / corner) ** 2) ** (-slope / 2), samples)
    steps = samples // FRAME
    rate = dice.uniform(count, 1, low=0.3, high=9.0)  # changes a second
    wander = torch.fft.rfft(dice.normal(count, steps))
    per_second = torch.linspace(0, 50, wander.shape[-1], device=device)
    wander = torch.fft.irfft(wander / (1 + (per_second / rate) ** 2), steps)
    wander = wander / (wander.std(1, keepdim=True) + 1e-6) * dice.uniform(count, 1, low=3, high=14)  # dB
    level = torch.nn.functional.interpolate(wander[:, None], size=samples, mode="linear")[:, 0]
    return sound * decibels(level.clamp(-40, 25))


def ghosts(dice: Dice, corpus: Corpus, voices: Voices, count: int, samples: int) -> torch.Tensor:
    """Noise with the rhythm of speech in one to three broad bands, tilted at random: (count, samples).

    Nobody would hear words in it, so it is not speech: what makes speech must be its harmonics and formants,
    not that it swells and fades as syllables do.
    """
    clip = voices.draw(dice.below(len(voices), count), dice.uniform(count))
    length = corpus.frames[clip][:, None]
    at = (dice.uniform(count, 1) * length).long() + torch.arange(samples // FRAME, device=corpus.device)
    speech = (corpus.audio[corpus.start[clip][:, None] + at % length].float() / 32768).view(count, -1)
    window = torch.hann_window(512, device=corpus.device)
    power = torch.stft(speech, 512, FRAME, window=window, return_complex=True).abs() ** 2
    noise = torch.stft(dice.normal(count, samples), 512, FRAME, window=window, return_complex=True)
    place = torch.linspace(0, 1, power.shape[1], device=corpus.device)[None, :, None]
    edges = dice.uniform(count, 1, 2, low=0.05, high=0.6).sort(-1).values
    edges = torch.where(dice.uniform(count, 1, 2) < 0.4, torch.full_like(edges, 2.0), edges)  # fewer bands
    band = (place > edges).sum(-1, keepdim=True)
    envelope = torch.zeros_like(power)
    for number in range(3):
        inside = (band == number).float()
        envelope += inside * (power * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp(min=1)
    slope = dice.uniform(count, 1, 1, low=0.0, high=2.2)
    tilt = (place * SAMPLE_RATE / 2 / 100 + 1) ** -slope
    return torch.istft(noise * envelope.sqrt() * tilt, 512, FRAME, window=window, length=samples)


def add_gusts(
    dice: Dice, corpus: Corpus, voices: Voices, samples: torch.Tensor, *, probability: float
) -> torch.Tensor:
    """Gusts or ghosts over some rows, from far below the voices to far above them."""
    chosen = dice.chance(probability, len(samples)).nonzero()[:, 0]
    if not len(chosen):
        return samples
    sound = gusts(dice, len(chosen), samples.shape[1])
    some = len(chosen) // 2
    if some:
        sound[:some] = ghosts(dice, corpus, voices, some, samples.shape[1])
    sound = sound / (loudness(sound) + 1e-6)
    level = loudness(samples[chosen])
    level = torch.where(level > 1e-5, level.clamp(min=0.005), torch.full_like(level, 0.02))
    gain = decibels(dice.uniform(len(chosen), 1, low=-25, high=15))
    return samples.index_add(0, chosen, sound * level * gain)


def rests(dice: Dice, corpus: Corpus, count: int, frames: int) -> torch.Tensor:
    """(count, samples): pieces of what microphones heard while nobody spoke, one after another, each faded.

    In a third of the rows they are of neighboring clips, mostly one microphone; their levels differ.
    """
    slots = max(4, frames // 40)
    number = dice.below(len(corpus.rests), count, slots)
    near = (number[:, :1] + dice.below(4, count, slots)) % len(corpus.rests)
    number = torch.where(dice.chance(0.33, count, 1), near, number)
    first, size = corpus.rests[number].unbind(-1)
    tight = dice.choice([0.0, 20.0, 150.0], [0.4, 0.4, 0.2], count, 1)
    pause = (-torch.log(dice.uniform(count, slots).clamp(min=1e-6)) * tight).long()
    end = (size + pause).cumsum(-1)
    frame = torch.arange(frames, device=corpus.device).expand(count, -1).contiguous()
    slot = torch.searchsorted(end, frame, right=True).clamp(max=slots - 1)
    into = frame - (end - size - pause).gather(1, slot)
    length = size.gather(1, slot)
    sounding = (into >= 0) & (into < length)
    gain = decibels(dice.uniform(count, 1, low=0, high=12) * dice.normal(count, slots))
    gain = (gain / (corpus.rest_level[number] + 1)).gather(1, slot) * sounding
    # 20 ms in and out
    ramp = torch.minimum(into + 1, length - into).clamp(0, 2) / 2
    rows = torch.where(sounding, first.gather(1, slot) + into, -1)
    return (corpus.audio[rows].float() * (gain * ramp)[..., None]).flatten(1)


def add_rests(
    dice: Dice, corpus: Corpus, samples: torch.Tensor, *, probability: float, low: float, high: float
) -> torch.Tensor:
    """Adds `rests` to some rows, `low` to `high` dB above the voices (see data.with_rests)."""
    rows, length = samples.shape
    chosen = dice.chance(probability, rows).nonzero()[:, 0]
    if not len(chosen) or corpus.rests is None or not len(corpus.rests):
        return samples
    sound = rests(dice, corpus, len(chosen), length // FRAME)
    sound = sound / (loudness(sound) + 1e-4)
    level = loudness(samples[chosen])
    level = torch.where(level > 1e-5, level.clamp(min=0.005), torch.full_like(level, 0.02))
    gain = decibels(dice.uniform(len(chosen), 1, low=low, high=high))
    return samples.index_add(0, chosen, sound * level * gain)


def add_events(dice: Dice, corpus: Corpus, samples: torch.Tensor, *, probability: float) -> torch.Tensor:
    """Sounds that come and go: knocks, breaths, rustling, a door, and the rumble below voices in many rooms.

    Steady noise teaches that what changes is speech. These change too, and can be louder than the voices.
    """
    rows, length = samples.shape
    frames, device = length // FRAME, samples.device
    sound = colored_noise(dice, rows, length)
    recorded = noise_clips(dice, corpus, rows, frames)
    spectrum = torch.fft.rfft(dice.normal(rows, length))
    frequency = torch.linspace(0, SAMPLE_RATE / 2, spectrum.shape[-1], device=device)
    corner = 50 * 10 ** dice.uniform(rows, 1, low=0.0, high=0.8)
    rumble = torch.fft.irfft(spectrum / (1 + (frequency / corner) ** 4), length)
    kind = dice.uniform(rows, 1)
    sound = torch.where(kind < 0.65, recorded, sound)
    sound = torch.where(kind < 0.3, rumble, sound)
    sound = sound / (loudness(sound) + 1e-3)
    time = torch.arange(frames, device=device)
    center = dice.uniform(rows, 8, 1) * frames
    width = 2 * 40 ** dice.uniform(rows, 8, 1)  # 20 ms to 0.8 s
    used = torch.arange(8, device=device)[None, :, None] < dice.below(9, rows, 1, 1)
    envelope = (torch.exp(-((time - center) / width).abs()) * used * dice.uniform(rows, 8, 1)).sum(1)
    steady = dice.chance(0.25, rows, 1)
    envelope = torch.where(steady, torch.ones_like(envelope), envelope)
    envelope = torch.nn.functional.interpolate(envelope[:, None], size=length, mode="linear")[:, 0]
    level = loudness(samples)
    level = torch.where(level > 1e-5, level.clamp(min=0.005), torch.full_like(level, 0.02))
    gain = decibels(dice.uniform(rows, 1, low=-22, high=8)) * dice.chance(probability, rows, 1)
    # A rumble may be far louder than the voices above it.
    gain = torch.where(kind < 0.3, gain * decibels(dice.uniform(rows, 1, low=0, high=8)), gain)
    return samples + sound * envelope * level * gain


def equalize(dice: Dice, samples: torch.Tensor, *, probability: float, share: int = 1) -> torch.Tensor:
    """A random smooth equalizer, then for some rows a telephone band or a low-pass."""
    rows, length = samples.shape
    groups = -(-rows // share)
    size = -(-length // 4096) * 4096
    spectrum = torch.fft.rfft(samples, size)
    frequency = torch.linspace(0, SAMPLE_RATE / 2, spectrum.shape[-1], device=samples.device)[None]
    octave = torch.log2((frequency + 60) / 1000)
    gain = dice.uniform(groups, 1, low=-3.5, high=3.5) * octave
    for wave in (0.25, 0.5, 1.0):  # ripples: cycles per octave
        swing = dice.uniform(groups, 1, low=0.0, high=4.0)
        gain = gain + swing * torch.cos(2 * math.pi * (wave * octave + dice.uniform(groups, 1)))
    gain = decibels(gain.clamp(-24, 24))
    kind = dice.uniform(groups, 1)
    phone, dull = kind < 0.22, (kind >= 0.22) & (kind < 0.42)
    low = torch.where(
        phone, dice.uniform(groups, 1, low=150, high=350), dice.uniform(groups, 1, low=0, high=90)
    )
    high = torch.where(phone, dice.uniform(groups, 1, low=3100, high=3900), torch.full_like(low, 8100))
    high = torch.where(dull, dice.uniform(groups, 1, low=3500, high=7500), high)
    keep = torch.sigmoid((frequency - low) / 30) * torch.sigmoid((high - frequency) / 60)
    gain = torch.where(dice.chance(probability, groups, 1), gain * keep, torch.ones_like(gain))
    group = torch.arange(rows, device=samples.device) // share
    return torch.fft.irfft(spectrum * gain[group], size)[:, :length]


def damage(dice: Dice, samples: torch.Tensor, *, share: int = 1) -> torch.Tensor:
    """Damage samples as recording and coding do: mu-law, clipping, 16 bits at a low level, and the holes
    of a lossy codec."""
    rows, length = samples.shape
    group = torch.arange(rows, device=samples.device) // share
    groups = int(group[-1]) + 1
    peak = samples.abs().amax(1, keepdim=True) + 1e-6
    kind = dice.uniform(groups, 1)[group]
    unit = samples / peak
    companded = torch.sign(unit) * torch.log1p(255 * unit.abs()) / math.log(256.0)
    companded = torch.round(companded * 127) / 127
    mu_law = torch.sign(companded) * (torch.exp(companded.abs() * math.log(256.0)) - 1) / 255
    ceiling = dice.uniform(groups, 1, low=0.25, high=0.8)[group]
    steps = decibels(dice.uniform(groups, 1, low=30, high=90))[
        group
    ]  # of the loudest sample: 30 dB = 31 steps
    unit = torch.where(kind < 0.08, mu_law, unit)
    unit = torch.where((kind >= 0.08) & (kind < 0.13), unit.clamp(-ceiling, ceiling), unit)
    unit = torch.where((kind >= 0.13) & (kind < 0.25), torch.round(unit * steps) / steps, unit)
    some = ((kind >= 0.25) & (kind < 0.40))[:, 0].nonzero()[:, 0]
    if len(some):
        window = torch.hann_window(1024, device=samples.device)
        picture = torch.stft(unit[some], 1024, 512, window=window, return_complex=True)
        power = picture.abs()
        depth = decibels(-dice.uniform(groups, 1, 1, low=26, high=46)[group][some])
        around = torch.nn.functional.avg_pool1d(power.transpose(1, 2).flatten(0, 1)[:, None], 33, 1, 16)[:, 0]
        around = around.view(power.shape[0], power.shape[2], power.shape[1]).transpose(1, 2)
        keep = (power > around * 0.5) | (power > power.amax(1, keepdim=True) * depth)
        unit = unit.index_copy(0, some, torch.istft(picture * keep, 1024, 512, window=window, length=length))
    return unit * peak
