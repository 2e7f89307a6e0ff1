"""A whisper model whose words are known: it hears tones, and says what the test told it to.

`write` makes a real ggml file (fixed weights, 7 MB, no training) that whisper.cpp loads and runs like any
other. The model divides its 30 s window into thirty slots of one second. In slot n it hears a low tone, a
high tone or nothing, and then says token n of the low script, token n of the high script, or that the text
is over. So the text proves which audio reached whisper.cpp, and its times prove where:

* The first convolution subtracts the high mel bands from the low ones, so one channel of the encoder's output
  is "low tone here" and another "high tone here"; its positional embedding says which slot a frame is in.
* The decoder's positional embedding says which slot comes next. Cross-attention looks at exactly the frames
  of that slot (this is also what whisper.cpp's word times are computed from) and adds what was heard there.
* A token's embedding is "my slot" + "my tone", the end's is a constant between the two: a slot's token wins
  only where both match, and the end wins in silence.
* The languages are slots too: at the first step a low tone in slot 0 means English, a high one German.

Everything else (self-attention, MLPs) is zero.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

LOW, HIGH = (
    300.0,
    2900.0,
)  # Hz, inside the bands that the first convolution compares, on both mel scales in use
ENGLISH_ONLY, MULTILINGUAL = (
    51864,
    51865,
)  # sizes of the vocabulary; whisper.cpp derives the special ids from it
SLOTS, FRAMES, STEPS, WIDTH, BANDS = 30, 1500, 448, 64, 80
LOW_AXIS, HIGH_AXIS, END_AXIS = 30, 31, 32  # axes 0 to 29 are the slots
LOUD = 1000.0  # decoder positions outweigh the embedding of the last token, which shares the residual stream
SPACE = b" "  # whisper.cpp looks its id up when it suppresses blanks

Array = npt.NDArray[np.float32]


def script(text: str) -> list[bytes]:
    """One token per word, each with its leading space."""
    return [f" {word}".encode() for word in text.split()]


LOW_SCRIPT = script(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty a b c d e f g h i j"
)
HIGH_SCRIPT = script(
    "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig A B C D E F G H I J"
)


def tone(frequency: float, time: Array) -> Array:
    """Of amplitude 1 at these times, in seconds; fainter ones above it, because one alone is not heard."""
    chord = ((0, 1.0), (230, 0.3), (460, 0.3), (690, 0.3))  # in bands that nothing compares
    return sum(level * np.sin(2 * np.pi * (frequency + more) * time) for more, level in chord)


def tones(*seconds: float | None, amplitude: float = 0.5) -> Array:
    """(16000 * len(seconds),): one second of a tone of each frequency, or of silence for None."""
    time = np.arange(16_000) / 16_000
    parts = [np.zeros(16_000) if f is None else amplitude * tone(f, time) for f in seconds]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def write(
    path: Path,
    low: Sequence[bytes] = LOW_SCRIPT,
    high: Sequence[bytes] = HIGH_SCRIPT,
    *,
    vocabulary: int = ENGLISH_ONLY,
    endless: bool = False,
    width: int = WIDTH,
    layers: int = 1,
    steps: int = STEPS,
) -> Path:
    """Write the model to `path`; up to 30 tokens a script. `endless`: it never says that the text is over.

    `width` and `layers`: as much work as a model of that size, for the same words. `steps`: half of them are
    the longest text that whisper.cpp lets it say.
    """
    tokens = [SPACE, *low, *high]
    weights, start = embedding(low, high, vocabulary, endless=endless, width=width)
    with path.open("wb") as file:
        sizes = (vocabulary, FRAMES, width, 1, layers, steps, width, 1, layers, BANDS)
        file.write(struct.pack("<12i", 0x67676D6C, *sizes, 1))
        file.write(struct.pack("<2i", BANDS, 201) + _mel_filters().tobytes())
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, tensor in tensors(weights, start, layers, steps).items():
            _write_tensor(file, name, tensor)
    return path


def embedding(
    low: Sequence[bytes], high: Sequence[bytes], vocabulary: int, *, endless: bool = False, width: int = WIDTH
) -> tuple[Array, int]:
    """(vocabulary, width): what each token stands for; and the number of tokens before the first word."""
    multilingual = vocabulary >= MULTILINGUAL
    end = 50257 if multilingual else 50256
    start = 4 if multilingual else 2  # start (language, task) no-timestamps
    weights = np.zeros((vocabulary, width), np.float32)
    for first, words, axis in ((1, low, LOW_AXIS), (1 + len(low), high, HIGH_AXIS)):
        for slot in range(len(words)):
            weights[first + slot, [slot, axis]] = 10
    weights[end, END_AXIS] = 0 if endless else 10
    if multilingual:
        weights[end + 2, LOW_AXIS] = weights[end + 4, HIGH_AXIS] = 10  # <|en|>, <|de|>
    return weights, start


def tensors(embedding: Array, start: int, layers: int = 1, steps: int = STEPS) -> dict[str, Array]:
    """Every tensor that whisper.cpp demands; all layers but the first of each kind do nothing."""
    width = embedding.shape[1]
    found = {
        "encoder.positional_embedding": _slot_codes(np.arange(FRAMES) // (FRAMES // SLOTS), width) * 20,
        **_convolutions(width),
        **_norm("encoder.ln_post", width),
        "decoder.positional_embedding": _decoder_positions(start, width, steps),
        "decoder.token_embedding.weight": embedding,
        **_norm("decoder.ln", width),
    }
    for layer in range(layers):
        found |= _block(f"encoder.blocks.{layer}", width) | _block(f"decoder.blocks.{layer}", width)
        found |= _attention(f"decoder.blocks.{layer}.cross_attn", width)
        found |= _norm(f"decoder.blocks.{layer}.cross_attn_ln", width)
    look, hear = np.diag([1.0] * SLOTS + [0.0] * (width - SLOTS)), np.zeros((width, width))
    hear[[LOW_AXIS, HIGH_AXIS], [LOW_AXIS, HIGH_AXIS]] = 1
    # Scores are divided by the root of the width.
    look *= 2.7 * (width / WIDTH) ** 0.25
    cross = "decoder.blocks.0.cross_attn"
    found[f"{cross}.query.weight"] = found[f"{cross}.key.weight"] = look.astype(np.float32)
    found[f"{cross}.value.weight"] = hear.astype(np.float32)
    found[f"{cross}.out.weight"] = (LOUD * hear).astype(np.float32)
    return found


def _decoder_positions(start: int, width: int, steps: int) -> Array:
    slots = np.arange(steps) - (start - 1)
    slots[: start - 1] = 0
    positions = _slot_codes(slots % SLOTS, width)
    positions[:, END_AXIS] = 1.5
    return LOUD * positions


def _slot_codes(slots: npt.NDArray[np.intp], width: int) -> Array:
    """(len(slots), width): one axis per slot."""
    return np.eye(SLOTS, width, dtype=np.float32)[slots]


def _convolutions(width: int) -> dict[str, Array]:
    low, high = slice(7, 15), slice(51, 55)  # mel bands around 300 Hz and 3 kHz
    first, second = np.zeros((width, BANDS, 3), np.float32), np.zeros((width, width, 3), np.float32)
    first[LOW_AXIS, low, 1], first[LOW_AXIS, high, 1] = 1 / 8, -1 / 4
    first[HIGH_AXIS] = -first[LOW_AXIS]
    second[LOW_AXIS, LOW_AXIS, 1] = second[HIGH_AXIS, HIGH_AXIS, 1] = 1
    none = np.zeros((width, 1), np.float32)
    return {
        "encoder.conv1.weight": 3 * first,
        "encoder.conv1.bias": none,
        "encoder.conv2.weight": second,
        "encoder.conv2.bias": none,
    }


def _norm(name: str, width: int) -> dict[str, Array]:
    return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}


def _attention(name: str, width: int) -> dict[str, Array]:
    square, line = np.zeros((width, width), np.float32), np.zeros(width, np.float32)
    weights = {f"{name}.{part}.weight": square for part in ("query", "key", "value", "out")}
    return weights | {f"{name}.{part}.bias": line for part in ("query", "value", "out")}


def _block(name: str, width: int) -> dict[str, Array]:
    wide = np.zeros((4 * width, width), np.float32)
    return {
        **_attention(f"{name}.attn", width),
        **_norm(f"{name}.attn_ln", width),
        **_norm(f"{name}.mlp_ln", width),
        f"{name}.mlp.0.weight": wide,
        f"{name}.mlp.0.bias": np.zeros(4 * width, np.float32),
        f"{name}.mlp.2.weight": np.ascontiguousarray(wide.T),
        f"{name}.mlp.2.bias": np.zeros(width, np.float32),
    }


def _mel_filters() -> Array:
    """(80, 201): triangles on a mel scale; close enough to whisper's own for telling two tones apart."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), BANDS + 2) / 2595) - 1)
    bins = np.linspace(0, 8000, 201)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def _write_tensor(file: object, name: str, tensor: Array) -> None:
    """Large tensors as 16-bit floats, as whisper.cpp expects them; ggml counts dimensions from the last."""
    half = tensor.ndim >= 2 and not name.endswith(("bias", "positional_embedding"))
    encoded = name.encode()
    header = struct.pack("<3i", tensor.ndim, len(encoded), 1 if half else 0)
    shape = struct.pack(f"<{tensor.ndim}i", *tensor.shape[::-1])
    data = np.ascontiguousarray(tensor, np.float16 if half else np.float32).tobytes()
    file.write(header + shape + encoded + data)  # type: ignore[attr-defined]
