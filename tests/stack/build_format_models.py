"""Builds the models of test_formats.py below a folder; a script, because importing TensorFlow takes long."""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf


class Formats(tf.Module):  # type: ignore[misc]
    """One function for each model."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])  # type: ignore[untyped-decorator]
    def numbers(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * 0.5 + 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="x")])  # type: ignore[untyped-decorator]
    def sizes(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"size": tf.strings.length(x)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="x")])  # type: ignore[untyped-decorator]
    def size(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"size": tf.strings.length(x)}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, name="x")])  # type: ignore[untyped-decorator]
    def table(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"back": tf.identity(x)}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="a"),
            tf.TensorSpec([None], tf.string, name="b"),
        ]
    )
    def pair(self, a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"half": a * 0.5, "loud": tf.strings.join([b, "!"]), "raw_bytes": tf.identity(b)}


if __name__ == "__main__":
    module = Formats()
    for name in ("numbers", "sizes", "size", "table", "pair"):
        folder = Path(sys.argv[1]) / name / "1"
        tf.saved_model.save(module, str(folder), signatures=getattr(module, name))
