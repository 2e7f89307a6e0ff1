"""Simulated conversations of two whose every word is known: what is found of the words said at the same time."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import overlaps as ov
import soundfile

from witness.bench import lines
from witness.bench.words import Spoken, align, normalize
from witness.models import engines, store
from witness.options import Options
from witness.recognition import recognizer as R
from witness.recognition.vad import Speech
from witness.schema import FRAME_DURATION, FRAME_SAMPLES, FRAME_STEP, FRAMES, Evidence, Segmentation
from witness.transcript import merging

EVAL = Path("shared/data/eval")
RATE = 16000
CAREFUL = False


def sentences():
    """speaker -> [(samples, text)], of the Common Voice simulations, where nobody else speaks."""
    found = {}
    for stm in sorted(EVAL.glob("sim_cven*.stm")):
        rows = list(lines.read(stm).values())[0].lines
        x, _ = soundfile.read(stm.with_suffix(".flac"), dtype="float32")
        for r in rows:
            if any(o is not r and o.start < r.end and r.start < o.end for o in rows):
                continue
            found.setdefault(r.speaker, []).append((x[int(r.start * RATE) : int(r.end * RATE)], r.text))
    return found


def libri(model):
    """The held out LibriSpeech voices; what the recognizer makes of each clip by itself stands for its text."""
    cache = Path("libri.json")
    D = Path("shared/data/train")
    j = json.loads((D / "index.json").read_text())
    parts = {}
    clips = []
    for p, s, n, k, sp in j["index"]:
        if sp == 1 and "librispeech_test_other" in j["speakers"][k]:
            if p not in parts:
                parts[p] = soundfile.read(D / f"part{p}.ogg", dtype="float32")[0]
            clips.append((j["speakers"][k].split("/")[-1], parts[p][s : s + n]))
    if not cache.exists():
        out = recognize(model, [(c, None) for _, c in clips])
        cache.write_text(json.dumps(["".join(w.text for w in r.words).strip() for r in out]))
    found = {}
    for (who, c), text in zip(clips, json.loads(cache.read_text())):
        found.setdefault(who, []).append((c, text))
    return found


def frames_of(x):
    e = np.pad(x, (0, -len(x) % ov.HOP)).reshape(-1, ov.HOP).__pow__(2).sum(1)
    loud = e > np.percentile(e, 95) * 10**-3
    b = ov.near(loud, 8)
    return ~ov.near(~b, 6)


def conversations(voices, seed=0, seconds=1e9):
    rng = np.random.default_rng(seed)
    names = sorted(voices)
    left = {k: list(v) for k, v in voices.items()}
    out = []
    while True:
        able = sorted([k for k in names if len(left[k]) >= 3], key=lambda k: -len(left[k]))
        if len(able) < 2:
            break
        pair = able[:2]
        count = min(5, *(len(left[k]) for k in pair))
        own = {k: [left[k].pop(0) for _ in range(count)] for k in pair}
        level = {k: 10 ** (rng.uniform(-2, 2) / 20) for k in pair}
        place, said = 0.3, []
        for i in range(count):
            a, b = pair if i % 2 == 0 else pair[::-1]
            (xa, ta), (xb, tb) = own[a][i], own[b][i]
            la, lb = len(xa) / RATE, len(xb) / RATE
            sa = place
            sb = place + la + 0.3 if i == 0 else place + rng.uniform(0.15, 0.65) * la
            said += [(a, sa, xa, ta), (b, sb, xb, tb)]
            place = max(sa + la, sb + lb) + 0.5
        n = int((place + 0.3) * RATE)
        tracks = np.zeros((2, n), np.float32)
        active = np.zeros((n // ov.HOP + 2, 2), bool)
        words = []
        spans = []
        for who, start, x, text in said:
            k = pair.index(who)
            rms = np.sqrt((x[np.repeat(frames_of(x), ov.HOP)[: len(x)]] ** 2).mean())
            x = x / rms * 0.05 * level[who]
            s = int(start * RATE)
            tracks[k, s : s + len(x)] += x
            f = frames_of(x)
            f0 = round(start / ov.STEP)
            active[f0 : f0 + len(f), k] |= f[: len(active) - f0]
            on = np.flatnonzero(f)
            t0, t1 = start + on[0] * ov.STEP, start + (on[-1] + 1) * ov.STEP
            spans.append((k, t0, t1))
            tokens = normalize(text, "en")
            weight = np.cumsum([0] + [len(w) + 1 for w in tokens]) / sum(len(w) + 1 for w in tokens)
            for w, u, v in zip(tokens, weight, weight[1:]):
                words.append((k, t0 + (t1 - t0) * u, t0 + (t1 - t0) * v, w))
        flagged = []
        for k, u, v, w in words:
            covered = sum(max(0.0, min(v, e) - max(u, s)) for o, s, e in spans if o != k)
            flagged.append((k, u, v, w, covered >= 0.5 * (v - u)))
        out.append(dict(pair=pair, tracks=tracks, active=active, words=sorted(flagged, key=lambda t: t[1])))
    return out


def speech(active, n):
    any_ = active.any(1)
    total = n // FRAME_SAMPLES + 2 * FRAMES
    t = ((np.arange(total) * FRAME_STEP + FRAME_DURATION / 2) / ov.STEP).astype(int)
    fr = np.where(t < len(any_), any_[np.clip(t, 0, len(any_) - 1)], False)
    starts = np.arange(0, max(1, n - 9 * RATE), RATE)
    w = np.zeros((len(starts), FRAMES, 3), bool)
    for i, s in enumerate(starts):
        f = round(s / FRAME_SAMPLES)
        w[i, :, 0] = fr[f : f + FRAMES]
    sp = Speech(n)
    sp.add(Segmentation(w, starts))
    sp.finish()
    return sp


def recognize(model, some, threads=1):
    """[(samples, Speech or None)] -> recognitions"""
    with R.TrackRecognizer(model, R.TranscribeOptions(language="en", careful=CAREFUL), threads=threads) as r:
        for x, s in some:
            r.send(np.ascontiguousarray(x, np.float32), s)
        return [r.result() for _ in some]


def label(rec, active):
    frames = int(len(active) * ov.STEP / FRAME_STEP)
    t = ((np.arange(frames) * FRAME_STEP + FRAME_DURATION / 2) / ov.STEP).astype(int).clip(0, len(active) - 1)
    act = active[t]
    ev = Evidence((act * 10).astype(np.uint8), np.full(frames, 10, np.uint8))
    return [
        (w.speaker, (w.start + w.end) / 2, w.text)
        for w in merging.label(rec.words, ev, act, [str(k) for k in range(active.shape[1])])
        if w.speaker
    ]


def score(conv, hyp):
    """hyp [(speaker, time, text)]"""
    right = found = over = ins = sub = dele = total = 0
    rightsolo = solo = 0
    toks = [(k, t, w) for k, t, text in hyp for w in normalize(text, "en")]
    S = lambda w, t, k: Spoken(w, None, None, t, str(k))
    for k in (0, 1):
        ref = [r for r in conv["words"] if r[0] == k]
        a = align(
            [S(r[3], r[1], i) for i, r in enumerate(ref)], [S(w, t, s) for s, t, w in toks if s == str(k)]
        )
        other = align(
            [S(r[3], r[1], i) for i, r in enumerate(ref)], [S(w, t, s) for s, t, w in toks if s != str(k)]
        )
        ok = {int(x.speaker) for x, y in a if x and y and x.text == y.text}
        ok2 = {
            int(x.speaker) for x, y in other if x and y and x.text == y.text and abs(x.time - y.time) < 1.5
        }
        ins += sum(x is None for x, y in a)
        dele += sum(y is None for x, y in a)
        sub += sum(bool(x and y and x.text != y.text) for x, y in a)
        total += len(ref)
        over += sum(r[4] for r in ref)
        solo += sum(not r[4] for r in ref)
        right += sum(ref[i][4] for i in ok)
        found += sum(ref[i][4] for i in ok | ok2)
        rightsolo += sum(not ref[i][4] for i in ok)
    return np.array([right, found, over, rightsolo, solo, ins, sub, dele, total])


def show(name, s):
    r, f, o, rs, so, i, su, d, t = s.sum(0)
    print(
        f"{name:28s} overlapped {o}: found {100 * f / o:.0f} %, under the right speaker {100 * r / o:.0f} %; alone {100 * rs / so:.0f} % of {so}; ins {i} sub {su} del {d}; cpWER {100 * (i + su + d) / t:.1f}",
        flush=True,
    )


def sides(model, convs, made):
    """made: per conv (2, n) tracks -> hyps"""
    some = [
        (t[k], speech(c["active"][:, k : k + 1], t.shape[1])) for c, t in zip(convs, made) for k in (0, 1)
    ]
    out = recognize(model, some)
    return [
        [(str(k), (w.start + w.end) / 2, w.text) for k in (0, 1) for w in out[2 * i + k].words]
        for i in range(len(convs))
    ]


def sdr(est, ref):
    return 10 * np.log10((ref**2).sum() / (((est - ref) ** 2).sum() + 1e-9))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--net")
    p.add_argument("--set", default="cv")
    p.add_argument("--ways", default="mix,oracle,masked")
    p.add_argument("--careful", action="store_true")
    p.add_argument("--keep", type=float, default=0.0)
    o = p.parse_args()
    CAREFUL = o.careful
    model = store.recognizer_model(Options(whisper="base"), gpu=None, available=engines.installed())
    convs = conversations(sentences() if o.set == "cv" else libri(model))
    print(len(convs), "conversations", sum(c["tracks"].shape[1] for c in convs) / RATE, "s", flush=True)
    for way in o.ways.split(","):
        t0 = time.process_time()
        if way == "mix":
            out = recognize(
                model, [(c["tracks"].sum(0), speech(c["active"], c["tracks"].shape[1])) for c in convs]
            )
            hyps = [label(r, c["active"]) for r, c in zip(out, convs)]
        elif way == "oracle":
            hyps = sides(model, convs, [c["tracks"] for c in convs])
        else:
            net = ov.Separator(o.net) if way == "sep" else (lambda x, a: np.stack((x, x)))
            made = [ov.tracks(c["tracks"].sum(0), c["active"], net, keep=o.keep)[0] for c in convs]
            if way == "sep":
                both = [np.repeat(c["active"].all(1), ov.HOP)[: c["tracks"].shape[1]] for c in convs]
                before = np.mean(
                    [
                        sdr(c["tracks"].sum(0)[b], c["tracks"][k][b])
                        for c, b in zip(convs, both)
                        for k in (0, 1)
                    ]
                )
                after = np.mean(
                    [sdr(m[k][b], c["tracks"][k][b]) for c, m, b in zip(convs, made, both) for k in (0, 1)]
                )
                print(
                    f"SNR in the overlap {before:.1f} -> {after:.1f} dB; net heard {net.heard:.0f} s in {net.took:.1f} processor s"
                )
            hyps = sides(model, convs, made)
        show(way, np.stack([score(c, h) for c, h in zip(convs, hyps)]))
        if way == "sep":
            for c, h in list(zip(convs, hyps))[:1]:
                for k in "01":
                    print(
                        k,
                        " ".join(w[3] for w in c["words"] if str(w[0]) == k),
                        "\n =",
                        "".join(t for s, _, t in h if s == k),
                    )
