"""Turn-taking of real meetings for the windows of the embedding's training: who speaks when, no sound.

    meetings = talk.load(TIMING)                       # RTTM files, a meeting each
    table = torch.from_numpy(talk.table(talk.training_part(meetings)))
    active = talk.windows(dice, table, rows, seats, frames)

Its gaps, backchannels, interruptions and turns as short as a laugh are real. The timings that ours rest on
are the AMI corpus's (CC BY 4.0; README.md); nothing of them is kept in the repository.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from augment import Dice
from numpy.typing import NDArray
from torch.nn import functional

from witness.formats import rttm

RATE = 100  # frames a second
LONGEST_SILENCE = 800  # frames: a longer one, a break or a drawing on the board, is cut to this
EIGHTH = 8  # every eighth meeting is kept from training, to judge by

Meeting = NDArray[np.bool_]
"""(people, frames of 10 ms): who speaks."""


def load(folder: Path) -> list[Meeting]:
    """Read the meetings of the RTTM files in and under a folder, in order of their names.

    Raises FileNotFoundError if there are none.
    """
    meetings = []
    for path in sorted(folder.rglob("*.rttm")):
        for turns in rttm.parse(path.read_text(), path.name).values():
            people = sorted({turn.speaker for turn in turns})
            active = np.zeros((len(people), round(max(turn.end for turn in turns) * RATE) + 1), bool)
            for turn in turns:
                active[people.index(turn.speaker), round(turn.start * RATE) : round(turn.end * RATE)] = True
            meetings.append(active)
    if not meetings:
        raise FileNotFoundError(f"{folder}: has no RTTM files")
    return meetings


def training_part(meetings: Sequence[Meeting]) -> list[Meeting]:
    """Leave out every eighth meeting."""
    return [meeting for number, meeting in enumerate(meetings) if number % EIGHTH != EIGHTH - 1]


def table(meetings: Sequence[Meeting]) -> Meeting:
    """Join all meetings, without their breaks, into (frames, people).

    People of the second meeting have the seats of those of the first.
    """
    seats = max(len(meeting) for meeting in meetings)
    parts = [_without_breaks(meeting) for meeting in meetings]
    return np.concatenate([np.pad(part, ((0, seats - len(part)), (0, 0))).T for part in parts])


def windows(dice: Dice, active: torch.Tensor, rows: int, seats: int, frames: int) -> torch.Tensor:
    """Draw (rows, seats, frames) bool from a `table`: windows of meetings, with those who speak most."""
    at = dice.below(len(active) - frames, rows)
    active = active[at[:, None] + torch.arange(frames, device=at.device)].transpose(1, 2)
    loudest = active.sum(-1).argsort(1, descending=True)[:, :seats]
    loudest = loudest.gather(1, torch.argsort(dice.uniform(rows, loudest.shape[1]), 1))
    active = active.gather(1, loudest[..., None].expand(-1, -1, frames))
    return functional.pad(active, (0, 0, 0, seats - active.shape[1]))


def _without_breaks(active: Meeting) -> Meeting:
    """Leave out the frames in which silence has lasted longer than LONGEST_SILENCE."""
    frame = np.arange(active.shape[1])
    last = np.maximum.accumulate(np.where(active.any(0), frame, -1))
    return active[:, frame - last <= LONGEST_SILENCE]
