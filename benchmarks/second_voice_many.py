"""Conversations of two, three and five, with activity found by campplus: cpWER of the mixture and of separated tracks throughout."""

import sys, resource
import numpy as np, soundfile, meeteval
import overlaps as ov
from second_voice import *
from witness.pipeline import diarize
from witness.transcript import assemble

model = store.recognizer_model(Options(whisper="base"), gpu=None, available=engines.installed())


def cpu():
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


def text(hyp):
    by = {}
    for k, t, w in sorted(hyp, key=lambda t: t[1]):
        by.setdefault(k, []).extend(normalize(w, "en"))
    return {k: " ".join(v) for k, v in by.items()}


for name in sys.argv[2:]:
    x, _ = soundfile.read(EVAL / f"{name}.flac", dtype="float32")
    rows = list(lines.read(EVAL / f"{name}.stm").values())[0].lines
    ref = {}
    for r in sorted(rows, key=lambda r: r.start):
        ref[r.speaker] = (ref.get(r.speaker, "") + " " + " ".join(normalize(r.text, "en"))).strip()
    t = diarize((x, 16000), Options(models="campplus"))
    d = assemble.who(t.findings).tracks[0].diarization
    a = d.active
    n = len(x)
    tt = (np.arange(n // ov.HOP + 2) + 0.5) * ov.STEP
    act = a[np.clip(((tt - FRAME_DURATION / 2) / FRAME_STEP).round().astype(int), 0, len(a) - 1)]
    c0 = cpu()
    m = recognize(model, [(x, speech(act, n))])[0]
    c1 = cpu()
    hyp = [
        (w.speaker, w.start, w.text)
        for w in merging.label(m.words, d.evidence, a, [str(k) for k in range(a.shape[1])])
        if w.speaker
    ]

    def cp(h):
        e = meeteval.wer.cp_word_error_rate(ref, text(h))
        return f"cpWER {100 * e.error_rate:.1f}, ins {e.insertions} del {e.deletions} sub {e.substitutions} of {e.length}"

    print(
        name,
        f"{n / RATE:.0f} s, {a.shape[1]} of {len(ref)} speakers, overlapped {(act.sum(1) > 1).sum() * ov.STEP:.1f} s; recognition {c1 - c0:.1f} s",
    )
    print("  mix", cp(hyp), flush=True)
    net = ov.Separator(sys.argv[1])
    made, places = ov.tracks(x, act, net)
    c2 = cpu()
    out = recognize(model, [(made[k], speech(act[:, k : k + 1], n)) for k in range(a.shape[1])])
    c3 = cpu()
    h = [(str(k), w.start, w.text, w.probability) for k, o in enumerate(out) for w in o.words]
    inside = lambda t: any(p - 0.3 <= t <= q + 0.3 for p, q, *_ in places)
    print(f"  heard {net.heard:.0f} s, took {net.took:.1f} s; recognition {c3 - c2:.1f} s")
    print("  throughout", cp([w[:3] for w in h]))
    print("  throughout, drop 0.4", cp([w[:3] for w in h if not inside(w[1]) or w[3] is None or w[3] >= 0.4]))
    print(
        "  replaced",
        cp([w for w in hyp if not inside(w[1])] + [w[:3] for w in h if inside(w[1])]),
        flush=True,
    )
