"""Who speaks when in the two real calls, as the speaker models campplus find it: python second_voice_found.py FOUND."""

import sys, numpy as np, soundfile
from witness.pipeline import diarize
from witness.options import Options, Bounds
from witness.transcript import assemble

x, r = soundfile.read("shared/data/dev/aws_call_49.2ch.ogg", dtype="float32")
print(x.shape, r)
import soxr

for name, rec in (
    ("pyannote", (soundfile.read("shared/data/eval/pyannote_sample.flac", dtype="float32"))),
    ("aws", (x.mean(1), r)),
):
    for two in (0, 1):
        t = diarize(rec, Options(models="campplus", speakers=2 if two else None), note=print)
        who = assemble.who(t.findings, Bounds(speakers=2) if two else Bounds())
        d = who.tracks[0]
        print(name, two, d.names, d.diarization.active.mean(0), (d.diarization.active.sum(1) > 1).mean())
        np.savez(
            f"{sys.argv[1]}/found_{name}_{two}.npz",
            active=d.diarization.active,
            votes=d.diarization.evidence.votes,
            windows=d.diarization.evidence.windows,
        )
