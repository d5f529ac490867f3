"""The examples answer what their READMEs say, through the whole stack."""

from __future__ import annotations

import io
import json
import math
import struct
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running_stack import StartStack

SNIPPET = "import os\n\ndef main():\n    for name in os.listdir('.'):\n        print(name)\n"


def tone(*frequencies: float, rate: int = 22_050, seconds: float = 1.0) -> bytes:
    """Return a WAV file that plays the frequencies, in Hz, one after the other."""
    samples = [
        int(20_000 * math.sin(2 * math.pi * frequency * place / rate))
        for frequency in frequencies
        for place in range(int(rate * seconds))
    ]
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return content.getvalue()


def test_basic_pitch_hears_the_notes(
    start_stack: StartStack, example_artifact: Callable[[str], Path]
) -> None:
    artifact = example_artifact("basic_pitch")
    stack = start_stack(artifact)

    sample = stack.invoke((artifact / "sample.wav").read_bytes(), "audio/wav")
    melody = stack.invoke(tone(440.0, 523.25, rate=44_100), "audio/wav")
    no_audio = stack.invoke(b"this is no audio", "audio/wav")

    assert sample.content_type == "application/json"
    assert pitches(sample.body) == [69]
    assert pitches(melody.body) == [69, 72]
    assert no_audio.status == 500
    assert "WAV" in no_audio.json()["error"]


def pitches(body: bytes) -> list[int]:
    return [note["pitch_midi"] for note in json.loads(body)["notes"]]


def test_guesslang_names_the_language(
    start_stack: StartStack, example_artifact: Callable[[str], Path]
) -> None:
    artifact = example_artifact("guesslang")
    stack = start_stack(artifact)

    sample = stack.invoke((artifact / "sample.json").read_bytes())
    body = json.dumps({"signature_name": "classification", "instances": [SNIPPET]})
    classified = stack.invoke(body)
    quoted = '"' + SNIPPET.replace('"', '""') + '"'
    as_csv = stack.invoke(quoted, "text/csv")

    assert best(sample.json()["predictions"][0], "all_classes", "probabilities") == "py"
    assert best(classified.json()["predictions"][0], "classes", "scores") == "py"
    assert best(as_csv.json()["predictions"][0], "classes", "scores") == "py"


def best(prediction: dict[str, list[Any]], names: str, scores: str) -> Any:
    """Return the name with the highest score."""
    return max(zip(prediction[scores], prediction[names], strict=True))[1]
