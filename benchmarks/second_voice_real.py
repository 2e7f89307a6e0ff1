"""cpWER of the two real calls, mixed into one channel, with exact and with found activity.

python second_voice_found.py FOUND, then python second_voice_real.py FOUND separator.onnx, in a checkout beside shared/.
What was recognized is kept in FOUND.
"""

import sys, json, pathlib
import numpy as np, soundfile
import overlaps as ov
from second_voice import *
from witness.schema import Evidence

FOUND = sys.argv[1]
cache = pathlib.Path(FOUND) / "recognized.json"
C = json.loads(cache.read_text()) if cache.exists() else {}
model = store.recognizer_model(Options(whisper="base"), gpu=None, available=engines.installed())


def spans_to_act(path, names, n):
    act = np.zeros((n // ov.HOP + 2, len(names)), bool)
    for l in open(path):
        f = l.split()
        k = names.index(f[7])
        act[int(float(f[3]) / ov.STEP) : int((float(f[3]) + float(f[4])) / ov.STEP), k] = True
    return act


def found(name, two, n):
    z = np.load(f"{FOUND}/found_{name}_{two}.npz")
    a = z["active"]
    t = (np.arange(n // ov.HOP + 2) + 0.5) * ov.STEP
    at = np.clip(((t - FRAME_DURATION / 2) / FRAME_STEP).round().astype(int), 0, len(a) - 1)
    return a[at], Evidence(z["votes"], z["windows"]), a


def words_of(ws):
    return [[w.start, w.end, w.text, w.probability] for w in ws]


def rec(key, x, sp):
    if key not in C:
        C[key] = words_of(recognize(model, [(x, sp)])[0].words)
        cache.write_text(json.dumps(C))
    from witness.schema import Word

    return [Word(a, b, t, probability=p) for a, b, t, p in C[key]]


def lab(words, act, ev=None, fr=None):
    if ev is None:
        frames = int(len(act) * ov.STEP / FRAME_STEP)
        t = (
            ((np.arange(frames) * FRAME_STEP + FRAME_DURATION / 2) / ov.STEP)
            .astype(int)
            .clip(0, len(act) - 1)
        )
        fr = act[t]
        ev = Evidence((fr * 10).astype(np.uint8), np.full(frames, 10, np.uint8))
    return [
        (w.speaker, (w.start + w.end) / 2, w.text, w.probability)
        for w in merging.label(words, ev, fr, [str(k) for k in range(act.shape[1])])
        if w.speaker
    ]


def perms(conv, hyp):
    """score with the better assignment of speakers"""
    h = [t[:3] for t in hyp]
    best = None
    for m in ({"0": "0", "1": "1"}, {"0": "1", "1": "0"}):
        s = score(conv, [(m.get(k, k), t, w) for k, t, w in h])
        if best is None or s[5:8].sum() < best[5:8].sum():
            best = s
    return best


def main(nets):
    cases = []
    stm = Path("shared/data/eval/pyannote_sample.stm")
    x, _ = soundfile.read(stm.with_suffix(".flac"), dtype="float32")
    rows = list(lines.read(stm).values())[0].lines
    who = sorted({r.speaker for r in rows})
    names = sorted({l.split()[7] for l in open(stm.with_suffix(".rttm"))})
    print(who, names)
    act = spans_to_act(stm.with_suffix(".rttm"), names, len(x))
    ws = []
    for r in rows:
        t = normalize(r.text, "en")
        for i, w in enumerate(t):
            a = r.start + (r.end - r.start) * i / len(t)
            b = r.start + (r.end - r.start) * (i + 1) / len(t)
            ws.append(
                (
                    who.index(r.speaker),
                    a,
                    b,
                    w,
                    bool(
                        act[int(a / ov.STEP) : max(int(b / ov.STEP), int(a / ov.STEP) + 1)].all(1).mean()
                        >= 0.5
                    ),
                )
            )
    cases.append(("pyannote", x, act, ws))
    y, _ = soundfile.read("shared/data/dev/aws_call_49.2ch.ogg", dtype="float32")
    y = y.T.copy()
    names = sorted({l.split()[7] for l in open("shared/data/dev/aws_call_49.rttm")})
    print(names)
    x = y.mean(0)
    act = spans_to_act("shared/data/dev/aws_call_49.rttm", names, len(x))
    e = [(y[k] ** 2) for k in (0, 1)]
    # which channel is whom
    on = np.repeat(act, ov.HOP, 0)[: len(x)]
    if e[0][on[:, 0] & ~on[:, 1]].mean() < e[1][on[:, 0] & ~on[:, 1]].mean():
        y = y[::-1]
    ws = []
    for k in (0, 1):
        for w in rec(f"aws_ref{k}", y[k], speech(act[:, k : k + 1], len(x))):
            for t in normalize(w.text, "en"):
                ws.append(
                    (
                        k,
                        w.start,
                        w.end,
                        t,
                        bool(
                            act[
                                int(w.start / ov.STEP) : max(int(w.end / ov.STEP), int(w.start / ov.STEP) + 1)
                            ]
                            .all(1)
                            .mean()
                            >= 0.5
                        ),
                    )
                )
    cases.append(("aws", x, act, ws))
    for name, x, act0, ws in cases:
        for kind in ("exact", "found"):
            if kind == "exact":
                act, ev, fr = act0, None, None
            else:
                act, ev, fr = found(name, 0, len(x))
            conv = dict(active=act, words=sorted(ws, key=lambda t: t[1]))
            print("==", name, kind, act.shape[1], "speakers", len(ws), "words")
            m = lab(rec(f"{name}_{kind}_mix", x, speech(act, len(x))), act, ev, fr)
            show("mix", np.stack([perms(conv, m)]))
            for path in nets:
                net = ov.Separator(path)
                tag = Path(path).stem
                made, places = ov.tracks(x, act, net)
                print(
                    f"heard {net.heard:.0f} s, took {net.took:.1f}, overlapped {sum(b - a for a, b, *_ in places):.1f} s"
                )
                h = []
                for k in range(act.shape[1]):
                    if act[:, k].sum() * ov.STEP < 0.3:
                        continue
                    h += [
                        (str(k), (w.start + w.end) / 2, w.text, w.probability)
                        for w in rec(f"{name}_{kind}_{tag}_{k}", made[k], speech(act[:, k : k + 1], len(x)))
                    ]
                h.sort(key=lambda t: t[1])
                show(tag + " throughout", np.stack([perms(conv, h)]))

                def inside(t, m=0.3):
                    return any(a - m <= t <= b + m for a, b, *_ in places)

                for drop in (0, 0.2, 0.4):
                    hh = [t for t in h if not inside(t[1]) or t[3] is None or t[3] >= drop]
                    if drop:
                        show(f"{tag} throughout, drop {drop}", np.stack([perms(conv, hh)]))
                    for mar in (0.0, 0.3):
                        show(
                            f"{tag} replaced {mar}, drop {drop}",
                            np.stack(
                                [
                                    perms(
                                        conv,
                                        sorted(
                                            [t for t in m if not inside(t[1], mar)]
                                            + [t for t in hh if inside(t[1], mar)],
                                            key=lambda t: t[1],
                                        ),
                                    )
                                ]
                            ),
                        )


main(sys.argv[2:])
