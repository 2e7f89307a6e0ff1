"""The telephone call with words: cpWER of the mixture and of the separated voices, with exact activity."""

import sys
from pathlib import Path

import numpy as np
import overlaps as ov
import soundfile
from second_voice import *

stm = Path("shared/data/eval/pyannote_sample.stm")
x, _ = soundfile.read(stm.with_suffix(".flac"), dtype="float32")
rows = list(lines.read(stm).values())[0].lines
who = sorted({r.speaker for r in rows})
n = len(x)
act = np.zeros((n // ov.HOP + 2, 2), bool)
spk = sorted({l.split()[7] for l in open(stm.with_suffix(".rttm"))})
print(spk, who)
for l in open(stm.with_suffix(".rttm")):
    f = l.split()
    k = spk.index(f[7])
    if k < 2:
        act[int(float(f[3]) / ov.STEP) : int((float(f[3]) + float(f[4])) / ov.STEP), k] = True
words = []
for r in rows:
    t = normalize(r.text, "en")
    for i, w in enumerate(t):
        a = r.start + (r.end - r.start) * i / len(t)
        b = r.start + (r.end - r.start) * (i + 1) / len(t)
        words.append(
            (
                who.index(r.speaker),
                a,
                b,
                w,
                bool(
                    act[int(a / ov.STEP) : max(int(b / ov.STEP), int(a / ov.STEP) + 1)].all(1).mean() >= 0.5
                ),
            )
        )
conv = dict(active=act, words=sorted(words, key=lambda t: t[1]))
model = store.recognizer_model(Options(whisper="base"), gpu=None, available=engines.installed())
t0 = time.process_time()
out = recognize(model, [(x, speech(act, n))])
mix = label(out[0], act)
print("recognition", time.process_time() - t0)
print(len(who), "speakers", len(words), "words")
show("mix", np.stack([score(conv, mix)]))
net = ov.Separator(sys.argv[1])
made, places = ov.tracks(x, act, net)
print("heard", net.heard, "took", net.took)
h = sides(model, [dict(conv, tracks=None)], [made])[0]
show("separated throughout", np.stack([score(conv, h)]))
inside = lambda t: any(a - 0.3 <= t <= b + 0.3 for a, b, *_ in places)
show(
    "replaced in overlaps",
    np.stack(
        [
            score(
                conv,
                sorted(
                    [w for w in mix if not inside(w[1])] + [w for w in h if inside(w[1])], key=lambda w: w[1]
                ),
            )
        ]
    ),
)
