"""A mixture and who is active when -> each speaker's sound where two speak at once."""

import time

import numpy as np

RATE, SIZE, HOP = 16000, 512, 256
STEP = HOP / RATE
WINDOW = np.sqrt(np.hanning(SIZE + 1)[:-1]).astype(np.float32)
SOLO, AROUND, LONGEST, JOIN, TOGETHER = 3.0, 0.5, 10.0, 1.0, 14.0


def spectrum(x):
    x = np.pad(x, (SIZE // 2, SIZE // 2 + -len(x) % HOP))
    f = np.lib.stride_tricks.sliding_window_view(x, SIZE)[::HOP]
    return np.fft.rfft(f * WINDOW).astype(np.complex64)


def sound(s, n):
    f = np.fft.irfft(s, SIZE).astype(np.float32) * WINDOW
    out = np.zeros((len(f) + 1) * HOP, np.float32)
    norm = np.zeros_like(out)
    for half in (0, 1):
        out[half * HOP : half * HOP + len(f) * HOP] += f[:, half * HOP : (half + 1) * HOP].ravel()
        norm[half * HOP : half * HOP + len(f) * HOP] += np.tile(
            WINDOW[half * HOP : (half + 1) * HOP] ** 2, len(f)
        )
    return (out / np.maximum(norm, 1e-4))[SIZE // 2 : SIZE // 2 + n]


def runs(b):
    e = np.flatnonzero(np.diff(np.concatenate(([0], b.astype(np.int8), [0]))))
    return list(zip(e[::2].tolist(), e[1::2].tolist()))


def near(b, frames):
    return np.convolve(b, np.ones(2 * frames + 1))[frames : frames + len(b)] > 0.5


def on(frames, step, count):
    """activity (frames, speakers) at `step` s -> at STEP, `count` frames."""
    at = np.clip(((np.arange(count) + 0.5) * STEP / step).astype(int), 0, len(frames) - 1)
    return frames[at]


def solo(active, who, center):
    """Frames in which `who` speaks alone, the best SOLO seconds: the longest runs, near ones first."""
    alone = active[:, who] & (active.sum(1) == 1)
    found = [(a + 3, b - 3) for a, b in runs(alone) if b - a > 20]
    found.sort(key=lambda r: -min(r[1] - r[0], SOLO / STEP) + 0.02 * abs((r[0] + r[1]) / 2 - center) * STEP)
    out, left = [], int(SOLO / STEP)
    for a, b in found:
        out.append((a, min(b, a + left)))
        left -= out[-1][1] - a
        if left < 30:
            break
    return sorted(out)


def stretches(active):
    """(start, end, a, b) in frames: around each overlap."""
    both = active.sum(1) >= 2
    found = []
    for a, b in runs(both):
        if (b - a) * STEP < 0.15:
            continue
        who = tuple(sorted(np.argsort(-active[a:b].sum(0), kind="stable")[:2].tolist()))
        if (
            found
            and found[-1][2:] == who
            and (a - found[-1][1]) * STEP < JOIN
            and (b - found[-1][0]) * STEP < LONGEST - 2 * AROUND
        ):
            found[-1] = (found[-1][0], b, *who)
        else:
            found.append((a, b, *who))
    out = []
    for a, b, p, q in found:
        while (b - a) * STEP > LONGEST:
            cut = a + int(LONGEST / STEP)
            out.append((a, cut, p, q))
            a = cut
        out.append((a, b, p, q))
    return out


def around(a, b, count):
    return max(0, a - int(AROUND / STEP)), min(count, b + int(AROUND / STEP))


def grouped(found, count):
    """Stretches of the same two, as many as are heard at once."""
    groups = []
    for one in found:
        length = lambda some: sum(b - a for a, b in (around(s[0], s[1], count) for s in some)) * STEP
        if groups and groups[-1][-1][2:] == one[2:] and length([*groups[-1], one]) <= TOGETHER:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


class Separator:
    def __init__(self, path, threads=1):
        import onnxruntime as ort

        o = ort.SessionOptions()
        o.intra_op_num_threads = threads
        self.s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
        self.heard = 0.0
        self.took = 0.0

    def __call__(self, x, act):
        """x (n,), act (frames, 2) -> (2, n)"""
        scale = max(float(x.std()), 1e-6)
        s = spectrum(x / scale)
        act = act[: len(s)]
        act = np.pad(act, ((0, len(s) - len(act)), (0, 0)))
        odd = len(s) % 2
        count = len(s)
        s, act = np.pad(s, ((0, odd), (0, 0))), np.pad(act, ((0, odd), (0, 0)))
        t = time.process_time()
        y = self.s.run(
            None, {"spectrum": np.stack((s.real, s.imag), -1)[None], "active": act[None].astype(np.float32)}
        )[0][0][:count]
        self.took += time.process_time() - t
        self.heard += len(x) / RATE
        y = (y[..., 0] + 1j * y[..., 1]).transpose(2, 0, 1)
        return np.stack([sound(v, len(x)) for v in y]) * scale


def tracks(samples, active, net, margin=0.2, keep=0.0):
    """samples (n,), active (frames, speakers) at STEP -> (speakers, n), and [(start s, end s, a, b)]."""
    n, speakers = len(samples), active.shape[1]
    env = np.stack([near(active[:, k], int(margin / STEP)) for k in range(speakers)])

    # alone: the mixture itself, with soft edges
    def soft(b):
        e = np.repeat(b.astype(np.float32), HOP)[:n]
        e = np.pad(e, (0, n - len(e)))
        return np.convolve(e, np.hanning(322)[1:-1] / np.hanning(322).sum(), "same").astype(np.float32)

    out = np.stack([samples * soft(env[k]) for k in range(speakers)])
    places = []
    for group in grouped(stretches(active), len(active)):
        p, q = group[0][2:]
        center = (group[0][0] + group[-1][1]) / 2
        parts, acts = [], []
        for who in (p, q):
            for s, e in solo(active, who, center):
                parts.append(samples[s * HOP : e * HOP])
                acts.append(active[s:e][:, (p, q)])
        before = sum(map(len, parts))
        spans = [around(a, b, len(active)) for a, b, *_ in group]
        bodies = [samples[f * HOP : e * HOP] for f, e in spans]
        heard = net(
            np.concatenate([*parts, *bodies]),
            np.concatenate([*acts, *(active[f:e][:, (p, q)] for f, e in spans)]),
        )[:, before:]
        for (a, b, *_), (first, _last), body in zip(group, spans, bodies):
            y, heard = heard[:, : len(body)], heard[:, len(body) :]
            # inside the overlap what was separated, with a quarter of a second of both sides where the other is not sure to be silent
            inside = np.zeros(len(active), bool)
            inside[a:b] = True
            inside = near(inside, int(0.25 / STEP))
            mix = soft(inside)[first * HOP : first * HOP + len(body)]
            for k, who in enumerate((p, q)):
                here = slice(first * HOP, first * HOP + len(body))
                gate = soft(env[who])[here]
                voice = (y[k] + keep * (body - y[k])) * gate
                out[who, here] = out[who, here] * (1 - mix) + voice * mix
            places.append((a * STEP, b * STEP, p, q))
    return out, places
