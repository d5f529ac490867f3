"""Build the guesslang artifact: the SavedModel in the PyPI package, which names the language of a text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_wheels import build_artifact, fetch_wheel, unpack_folder

EXAMPLE = Path(__file__).resolve().parent

PACKAGE, VERSION = "guesslang", "2.2.1"
MODEL_IN_WHEEL = "guesslang/data/model"

SNIPPET = '''\
from pathlib import Path


def count_lines(folder):
    """Count the lines of every text file below a folder."""
    total = 0
    for path in sorted(Path(folder).rglob("*.txt")):
        with path.open() as lines:
            total += sum(1 for line in lines)
    return total


if __name__ == "__main__":
    print(count_lines("."))
'''
SAMPLE = {"signature_name": "predict", "instances": [{"content": SNIPPET}]}


def fill(artifact: Path) -> None:
    """Write the model and the sample request into the artifact's folder."""
    unpack_folder(fetch_wheel(PACKAGE, VERSION), MODEL_IN_WHEEL, artifact / "guesslang" / "1")
    (artifact / "sample.json").write_text(json.dumps(SAMPLE) + "\n", encoding="utf-8")


if __name__ == "__main__":
    build_artifact(EXAMPLE, fill)
