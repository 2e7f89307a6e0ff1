"""Choices, on voices that were kept back from training: guessed runs of English Common Voice, number divisible by 25.

python second_voice_choices.py separator.onnx 14, in a checkout beside shared/.
"""

import sys, json
import numpy as np, soundfile
import overlaps as ov
from second_voice import *

D = Path("shared/data/train")
j = json.loads((D / "index.json").read_text())
parts = {}
clips = []
for p, s, n, k, sp in j["index"]:
    if (
        sp == 0
        and k % 25 == 0
        and j["speakers"][k].startswith("train_pseudo/commonvoice_en")
        and 2.5 * RATE < n < 8 * RATE
    ):
        clips.append((p, s, n, k))
by = {}
for c in clips:
    by.setdefault(c[3], []).append(c)
keep = [k for k in sorted(by) if len(by[k]) >= 4][: int(sys.argv[2])]
print(len(keep), "speakers")
model = store.recognizer_model(Options(whisper="base"), gpu=None, available=engines.installed())
use = []
for k in keep:
    for p, s, n, _ in by[k][:5]:
        if p not in parts:
            parts[p] = soundfile.read(D / f"part{p}.ogg", dtype="float32")[0]
        use.append((str(k), parts[p][s : s + n].copy()))
parts.clear()
cache = Path(f"dev_texts_{len(keep)}.json")
if not cache.exists():
    out = recognize(model, [(c, None) for _, c in use])
    cache.write_text(json.dumps(["".join(w.text for w in r.words).strip() for r in out]))
voices = {}
for (who, c), t in zip(use, json.loads(cache.read_text())):
    if len(t.split()) >= 3:
        voices.setdefault(who, []).append((c, t))
convs = conversations(voices)
print(
    len(convs),
    "conversations",
    sum(c["tracks"].shape[1] for c in convs) / RATE,
    "s",
    sum(w[4] for c in convs for w in c["words"]),
    "overlapped words",
    flush=True,
)


class Both:
    """Hears twice, exchanged."""

    def __init__(s, n):
        s.n = n
        s.heard = 0

    def __call__(s, x, a):
        return (s.n(x, a) + s.n(x, a[:, ::-1])[::-1]) / 2


def snr(made):
    both = [np.repeat(c["active"].all(1), ov.HOP)[: c["tracks"].shape[1]] for c in convs]
    return np.mean([sdr(m[k][b], c["tracks"][k][b]) for c, m, b in zip(convs, made, both) for k in (0, 1)])


net = ov.Separator(sys.argv[1])


def make(net=net, **kw):
    old = {k: getattr(ov, k) for k in kw if k not in ("keep", "net")}
    for k in old:
        setattr(ov, k, kw[k])
    h = getattr(net, "heard", 0)
    out = [ov.tracks(c["tracks"].sum(0), c["active"], net, keep=kw.get("keep", 0.0))[0] for c in convs]
    for k, v in old.items():
        setattr(ov, k, v)
    return out


made = {}
V = {
    "s2t9": dict(SOLO=2.0, TOGETHER=9.0),
    "alone": dict(SOLO=2.0, TOGETHER=0.1),
    "around1": dict(SOLO=2.0, TOGETHER=9.0, AROUND=1.0),
    "twice": dict(SOLO=2.0, TOGETHER=9.0, net=Both(net)),
    "keep.05": dict(SOLO=2.0, TOGETHER=9.0, keep=0.05),
    "s3t14": dict(SOLO=3.0, TOGETHER=14.0),
    "s4t14": dict(SOLO=4.0, TOGETHER=14.0),
    "s5t14": dict(SOLO=5.0, TOGETHER=14.0),
    "s4t9": dict(SOLO=4.0, TOGETHER=9.0),
    "s6t9": dict(SOLO=6.0, TOGETHER=9.0),
}
for name, kw in V.items():
    h0, t0 = net.heard, net.took
    made[name] = make(**kw)
    print(name, f"SNR {snr(made[name]):.2f} heard {net.heard - h0:.0f} took {net.took - t0:.1f}", flush=True)


def sided(m, careful=False):
    some = [(t[k], speech(c["active"][:, k : k + 1], t.shape[1])) for c, t in zip(convs, m) for k in (0, 1)]
    with R.TrackRecognizer(model, R.TranscribeOptions(language="en", careful=careful), threads=1) as r:
        for x, s in some:
            r.send(np.ascontiguousarray(x, np.float32), s)
        out = [r.result() for _ in some]
    return [
        [(str(k), (w.start + w.end) / 2, w.text) for k in (0, 1) for w in out[2 * i + k].words]
        for i in range(len(convs))
    ]


for name in ("s2t9", "s4t14"):
    show(name, np.stack([score(c, h) for c, h in zip(convs, sided(made[name]))]))
show("s4t14 careful", np.stack([score(c, h) for c, h in zip(convs, sided(made["s4t14"], True))]))
for k in (0.05, 0.1):
    m = make(SOLO=4.0, TOGETHER=14.0, keep=k)
    show(f"s4t14 keep {k}", np.stack([score(c, h) for c, h in zip(convs, sided(m))]))
show(
    "oracle",
    np.stack([score(c, h) for c, h in zip(convs, sides(model, convs, [c["tracks"] for c in convs]))]),
)
