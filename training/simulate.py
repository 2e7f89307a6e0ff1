"""Simulated conversations of training speakers, planned and rendered in batches on the GPU.

A conversation is a table `source[row, speaker, frame]`: which 10 ms row of the corpus each speaker's
microphone holds, or -1. Turns follow one another with pauses or overlaps; there are backchannels, lively
and slow conversations, and speakers of different levels at different distances, in one room or each in
their own. Half of them sound as if one microphone had recorded everybody (channels.py), in some two people
are one voice at two speeds, and in some a speaker moves: what tells people apart must be the voice.
"""

import torch
from augment import (
    Dice,
    add_events,
    add_gusts,
    add_music,
    add_noise,
    add_rests,
    convolve,
    damage,
    decibels,
    equalize,
    room_responses,
)

from data import FRAME, Corpus, Voices

FADE = 80  # samples: 5 ms, where a stretch of a clip begins or ends
ONE_CHANNEL = 0.5  # share of the conversations made of the flat clips
ALIKE = 0.15  # share of the windows in which two people are one voice, slow and fast
ONE_CLIP = 0.75  # share of the windows in which nobody is heard in more than one clip, as in one recording
CALM = 0.35  # share of the conversations in which all that disturbs is 10 to 30 dB fainter
HEATED = 0.85  # how often a turn starts early in a discussion in which people talk over one another
MOVING = 0.15  # share of the conversations in which everybody changes place once


def plan(
    dice: Dice,
    corpus: Corpus,
    voices: Voices,
    rows: int,
    frames: int,
    cast: torch.Tensor,
    turns: int,
    kept: torch.Tensor | None = None,
) -> torch.Tensor:
    """(rows, speakers, frames) source rows; `cast` is (rows, speakers) voices, -1 for a chair that stays
    empty; `kept`, alike, is the place from 0 to 1 of the only clip that each is heard in, NaN for any clip.
    """
    device = corpus.device
    seats = cast.shape[1]
    row = torch.arange(rows, device=device)
    frame = torch.arange(frames, device=device)
    source = torch.full((rows, seats, frames), -1, dtype=torch.long, device=device)
    people = (cast >= 0).sum(1)  # seats are filled from the left
    lively = dice.choice(
        [0.28, 0.6, 0.03, 0.0, HEATED], [0.44, 0.17, 0.09, 0.08, 0.22], rows
    )  # how often a turn starts before the last ends
    heated = lively == HEATED
    typical = torch.log(
        dice.choice([70.0, 140.0, 240.0, 400.0, 800.0], [0.22, 0.30, 0.22, 0.14, 0.12], rows)
    )  # turn length, frames
    now = -dice.below(300, rows)
    current = torch.full((rows,), -1, device=device)
    last_start, last_length = now.clone(), torch.zeros(rows, dtype=torch.long, device=device)
    free = torch.full((rows, seats), -999, dtype=torch.long, device=device)
    for _ in range(turns):
        u = dice.uniform(10, rows)
        speaker = (u[0] * people).long().clamp(max=seats - 1)
        again = (people > 1) & (speaker == current) & (u[1] < 0.75)
        speaker = torch.where(again, (speaker + 1) % people.clamp(min=1), speaker)
        drawn = u[2] if kept is None else torch.where(kept.isnan(), u[2][:, None], kept)[row, speaker]
        clip = voices.draw(cast[row, speaker].clamp(min=0), drawn)
        length = corpus.frames[clip]
        aside = (people > 1) & (current >= 0) & (speaker != current) & (last_length > 80)
        aside &= u[3] < torch.where(heated, 0.5, 0.15)
        wanted = torch.exp(typical + 0.8 * dice.normal(rows)).clamp(25, 1500)
        wanted = torch.where(aside, 25 + 65 * u[4], wanted).long()
        onset = corpus.stretches[clip, 0, (u[5] * corpus.stretch_count[clip]).long()] - 3
        anywhere = (u[5] * (length - wanted).clamp(min=1)).long()
        begin = torch.where(u[6] < 0.75, onset, anywhere).clamp(min=0)
        end = begin + wanted
        offsets = corpus.stretches[clip, 1]
        offset = torch.where(offsets >= end[:, None], offsets, torch.full_like(offsets, 10**6)).amin(1)
        end = torch.where((offset - end < 120) & (u[7] < 0.8), offset + 3, end)
        size = torch.minimum(end, length) - begin
        start = torch.where(aside, last_start + (u[8] * last_length).long(), now)
        start = torch.maximum(start, free[row, speaker] + 2)
        good = (size >= 10) & (people > 0) & (start < frames)
        size = torch.where(good, size, torch.zeros_like(size))
        place = frame - start[:, None]
        inside = (place >= 0) & (place < size[:, None])
        source[row, speaker] = torch.where(
            inside, (corpus.start[clip] + begin)[:, None] + place, source[row, speaker]
        )
        free[row, speaker] = torch.where(good, start + size, free[row, speaker])
        spread = -torch.log(u[9].clamp(min=1e-6))
        pause = torch.where(dice.chance(0.85, rows), 35 * spread, 220 * spread)
        pause = torch.where(lively == 0, 300 * spread, pause)  # a recording in which hardly anyone speaks
        sooner = torch.where(heated, -160 * spread, -60 * spread)
        gap = torch.where(dice.uniform(rows) < lively, sooner, pause)
        after = torch.maximum(start + size + gap.long(), last_start + 10)
        turn = good & ~aside
        last_start = torch.where(turn, start, last_start)
        last_length = torch.where(turn, size, last_length)
        current = torch.where(turn, speaker, current)
        now = torch.where(turn, after, now + torch.where(good, 0, 5))
    one_channel = dice.chance(ONE_CHANNEL, len(source), 1, 1)
    return torch.where((source >= 0) & one_channel, source + corpus.flat, source)


def voices_only(corpus: Corpus, source: torch.Tensor) -> torch.Tensor:
    """The planned clips as sound, one track per speaker, faded at every cut: (..., frames) -> (...,
    samples).
    """
    active = source >= 0
    tracks = corpus.audio[source.clamp(min=0)].float() / 32768
    jump = torch.ones_like(active)
    jump[..., 1:] = source[..., 1:] != source[..., :-1] + 1
    ends = torch.zeros_like(active)
    ends[..., :-1] = jump[..., 1:]
    ramp = torch.arange(FRAME, device=source.device) / FADE
    envelope = torch.where(jump[..., None], ramp.clamp(max=1), torch.ones_like(ramp))
    envelope = torch.where(ends[..., None], envelope * (2 - ramp).clamp(max=1), envelope)
    return (tracks * envelope * active[..., None]).flatten(-2)


def render(
    dice: Dice,
    corpus: Corpus,
    voices: Voices,
    source: torch.Tensor,
    *,
    moving: float = MOVING,
    calm: float = CALM,
) -> torch.Tensor:
    """(rows, speakers, frames) -> (rows, samples): levels, rooms, noise, channel; `moving`: in how many rows
    people change place; `calm`: how many are hardly disturbed.
    """
    rows, seats, _ = source.shape
    active = source >= 0
    tracks = voices_only(corpus, source)
    level = tracks.pow(2).sum(-1, keepdim=True) / (active.sum(-1, keepdim=True) * FRAME + 1)
    spread = dice.choice([2.0, 4.0, 8.0], [0.3, 0.4, 0.3], rows, 1, 1)
    gain = 0.05 * decibels((spread * dice.normal(rows, seats, 1)).clamp(-16, 12))
    gain = torch.where(
        dice.chance(0.1, rows, seats, 1), gain * decibels(dice.uniform(rows, seats, 1, low=-15, high=0)), gain
    )
    tracks = tracks / (level.sqrt() + 1e-4) * gain
    # One who moves is two sources, one after the other.
    later = _moved(dice, active) & dice.chance(moving, rows, 1, 1)
    later = later.repeat_interleave(FRAME, -1)
    step = decibels((4 * dice.normal(rows, seats, 1)).clamp(-8, 8))
    tracks = torch.where(later, tracks * step, tracks)
    wet = dice.chance(0.7, rows).nonzero()[:, 0]
    if len(wet):
        together = room_responses(dice, len(wet), 2 * seats)
        apart = room_responses(dice, len(wet) * 2 * seats, 1).view(len(wet), 2 * seats, -1)
        one_room = dice.chance(0.75, len(wet), 1, 1)
        response = torch.where(one_room, together, apart)
        here, moved = response.chunk(2, 1)
        dry = tracks[wet]
        sound = convolve(dry * ~later[wet], here) + convolve(dry * later[wet], moved)
        tracks = tracks.index_copy(0, wet, sound)
    clean = tracks.sum(1)
    mix = add_noise(dice, corpus, voices, clean, probability=0.85, low=0.0, high=32.0)
    mix = add_music(dice, mix, probability=0.2)
    mix = add_events(dice, corpus, mix, probability=0.5)
    mix = add_gusts(dice, corpus, voices, mix, probability=0.4)
    mix = add_rests(dice, corpus, mix, probability=0.5, low=-25.0, high=10.0)
    if calm:
        fainter = decibels(-dice.uniform(rows, 1, low=10, high=30))
        mix = clean + (mix - clean) * torch.where(dice.chance(calm, rows, 1), fainter, 1.0)
    mix = equalize(dice, mix, probability=0.7)
    return damage(dice, mix)


def _moved(dice: Dice, active: torch.Tensor) -> torch.Tensor:
    """(rows, seats, frames): each speaker's turns after the first few, which may be none."""
    begins = active.clone()
    begins[..., 1:] &= ~active[..., :-1]
    turn = begins.cumsum(-1)
    return turn > dice.below(4, *active.shape[:2], 1) + 1


def plan_windows(
    dice: Dice,
    corpus: Corpus,
    voices: Voices,
    rows: int,
    *,
    frames: int = 1000,
    seats: int = 3,
    turns: int = 20,
) -> torch.Tensor:
    """(rows, seats, frames) source rows of training windows with nobody to three people, seated at random.

    A plan is a thousand small GPU calls whatever the number of rows: plan for several batches at once.
    """
    people = dice.choice([0.0, 1.0, 2.0, 3.0], [0.14, 0.20, 0.36, 0.30], rows).long().clamp(max=seats)
    cast = dice.weighted(voices.weight, rows * seats).view(rows, seats)
    alike = dice.chance(ALIKE, rows) & (voices.twin[cast[:, 0]] >= 0)
    cast[:, 1] = torch.where(alike, voices.twin[cast[:, 0]], cast[:, 1])
    # Two chairs must not hold the same person, or else the second one is left empty.
    owner = voices.speaker[cast]
    owner[:, 1] = torch.where(alike, -1, owner[:, 1])  # as good as another person
    for seat in range(1, seats):
        same = (owner[:, :seat] == owner[:, seat : seat + 1]).any(1)
        people = torch.where(same, people.clamp(max=seat), people)
    cast = torch.where(torch.arange(seats, device=corpus.device) < people[:, None], cast, -1)
    kept = torch.where(dice.chance(ONE_CLIP, rows, 1), dice.uniform(rows, seats), torch.nan)
    source = plan(dice, corpus, voices, rows, frames, cast, turns, kept)
    shuffled = torch.argsort(dice.uniform(rows, seats), 1)[..., None].expand(-1, -1, frames)
    return source.gather(1, shuffled)


def spoken(corpus: Corpus, source: torch.Tensor) -> torch.Tensor:
    """Mark the speakers of each 10 ms frame, by the speech flags of the clips."""
    return corpus.flags[source.clamp(min=0)] & (source >= 0)


def conversation(
    dice: Dice, corpus: Corpus, voices: Voices, people: int, seconds: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one long recording to judge by, disturbed and with people who move: (samples,) with a peak of
    0.5, and (people, frames) who speaks.
    """
    chosen = dice.weighted(voices.weight, people, repeat=False)
    frames = seconds * 100
    source = plan(dice, corpus, voices, 1, frames, chosen[None], turns=seconds)
    samples = render(dice, corpus, voices, source, moving=0.35, calm=0.0)[0]
    return samples / samples.abs().max() * 0.5, spoken(corpus, source)[0]
