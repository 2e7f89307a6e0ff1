"""Draw docs/speed-light.svg and docs/speed-dark.svg: the time of a conversation, from benchmarks/results.

python docs/speed_chart.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
CORES = (2, 4, 8, 16)
SERIES = {
    "witness": "Witness: words and speakers",
    "faster-whisper": "faster-whisper: words alone",
    "faster-whisper batched": "faster-whisper, batched: words alone",
}
COLORS = {
    "light": ("#1f2328", "#d1d9e0", ("#0b6e99", "#9a9fa5", "#c9a227")),
    "dark": ("#e6edf3", "#3d444d", ("#4db8e8", "#868d95", "#e0bd4a")),
}
"""Text, lines, and the bars of each series."""
WIDTH, HEIGHT = 720, 270
LEFT, TOP, BOTTOM = 24, 66, 232
BAR, GAP = 40, 172


def walls(cores: int) -> dict[str, float]:
    """Return the median seconds of each program."""
    figures = json.loads((RESULTS / f"against_faster_whisper_beam_{cores}_cores.json").read_text())
    return {name: median(figures["programs"][name]["wall"]) for name in SERIES}


def chart(theme: str) -> str:
    """Return the picture as SVG."""
    ink, line, fills = COLORS[theme]
    seconds = {cores: walls(cores) for cores in CORES}
    scale = (BOTTOM - TOP) / max(max(times.values()) for times in seconds.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="13" fill="{ink}" role="img">',
        "<title>Seconds for a conversation of 3 minutes, by cores</title>",
        f'<text x="{LEFT}" y="18" font-weight="bold">Seconds for a conversation of 3 minutes</text>',
    ]
    x = LEFT
    for label, fill in zip(SERIES.values(), fills, strict=True):
        parts.append(f'<rect x="{x}" y="31" width="11" height="11" fill="{fill}"/>')
        parts.append(f'<text x="{x + 17}" y="41">{label}</text>')
        x += 30 + 6.7 * len(label)
    for place, cores in enumerate(CORES):
        left = LEFT + place * GAP
        for number, (name, fill) in enumerate(zip(SERIES, fills, strict=True)):
            height = seconds[cores][name] * scale
            x = left + number * (BAR + 4)
            parts.append(
                f'<rect x="{x}" y="{BOTTOM - height:.1f}" width="{BAR}" height="{height:.1f}" fill="{fill}"/>'
            )
            parts.append(
                f'<text x="{x + BAR / 2}" y="{BOTTOM - height - 5:.1f}" text-anchor="middle">'
                f"{seconds[cores][name]:.1f}</text>"
            )
        middle = left + (3 * BAR + 8) / 2
        parts.append(f'<text x="{middle}" y="{BOTTOM + 20}" text-anchor="middle">{cores} cores</text>')
    parts.append(f'<path d="M{LEFT} {BOTTOM}H{WIDTH - LEFT}" stroke="{line}"/>')
    return "\n".join((*parts, "</svg>", ""))


def main() -> None:
    for theme in COLORS:
        (HERE / f"speed-{theme}.svg").write_text(chart(theme), "utf-8")


if __name__ == "__main__":
    main()
