"""Builds a SavedModel that tells each row how many ran with it; a script, as importing TensorFlow is slow."""

from __future__ import annotations

import sys

import tensorflow as tf


class Together(tf.Module):  # type: ignore[misc]
    """`rows` is the size of the batch, `twice` shows whose row it is."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])  # type: ignore[untyped-decorator]
    def together(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"rows": tf.fill(tf.shape(x), tf.shape(x)[0]), "twice": x * 2.0}


if __name__ == "__main__":
    model = Together()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.together})
