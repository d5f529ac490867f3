"""Build the half_plus_two artifact: a SavedModel, made here with TensorFlow, that computes y = x / 2 + 2."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_wheels import build_artifact

EXAMPLE = Path(__file__).resolve().parent

SAMPLE = {"instances": [1.0, 2.0, 5.0]}


def fill(artifact: Path) -> None:
    """Write the model and the sample request into the artifact's folder."""
    save_model(artifact / "half_plus_two" / "1")
    (artifact / "sample.json").write_text(json.dumps(SAMPLE) + "\n", encoding="utf-8")


def save_model(folder: Path) -> None:
    """Save the model: `x` float32 [n] in, `y` float32 [n] out, signature `serving_default`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Importing it takes seconds, and an artifact that is already there needs none of it.
    import tensorflow as tf  # noqa: PLC0415

    tf.get_logger().setLevel("ERROR")
    model = tf.Module()
    model.slope, model.offset = tf.Variable(0.5), tf.Variable(2.0)

    def half_plus_two(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": model.slope * x + model.offset}

    signature = tf.function(half_plus_two, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(model, str(folder), signatures={"serving_default": signature})


if __name__ == "__main__":
    build_artifact(EXAMPLE, fill)
