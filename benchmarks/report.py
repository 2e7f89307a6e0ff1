"""Where the benchmarks put what they measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def show(result: object, path: Path | None) -> None:
    """Print the result as JSON, and write it to a file where one was named."""
    text = json.dumps(result, ensure_ascii=False, indent=1) + "\n"
    sys.stdout.write(text)
    if path:
        path.write_text(text, encoding="utf-8")
