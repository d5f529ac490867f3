"""Build the basic_pitch artifact: the SavedModel in the PyPI package, and hooks that take WAV files."""

from __future__ import annotations

import math
import struct
import sys
import wave
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_wheels import build_artifact, copy_code, fetch_wheel, unpack_folder

EXAMPLE = Path(__file__).resolve().parent

PACKAGE, VERSION = "basic-pitch", "0.4.0"
MODEL_IN_WHEEL = "basic_pitch/saved_models/icassp_2022/nmp"

SAMPLE_RATE = 22_050
SAMPLE_SECONDS = 2
SAMPLE_HERTZ = 440.0


def fill(artifact: Path) -> None:
    """Write the model, its hooks and the sample request into the artifact's folder."""
    unpack_folder(fetch_wheel(PACKAGE, VERSION), MODEL_IN_WHEEL, artifact / "basic_pitch" / "1")
    copy_code(EXAMPLE, artifact)
    write_sine(artifact / "sample.wav")


def write_sine(path: Path) -> None:
    """Write a mono 16-bit WAV file of the sine that orchestras tune to, at half of full scale."""
    count = SAMPLE_RATE * SAMPLE_SECONDS
    turn = 2 * math.pi * SAMPLE_HERTZ / SAMPLE_RATE
    samples = [round(16_384 * math.sin(turn * index)) for index in range(count)]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(struct.pack(f"<{count}h", *samples))


if __name__ == "__main__":
    build_artifact(EXAMPLE, fill)
