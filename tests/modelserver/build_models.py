"""Builds the SavedModel of the model server's tests; a script, because importing TensorFlow takes long."""

from __future__ import annotations

import sys

import tensorflow as tf

FLOATS = tf.TensorSpec([None], tf.float32, name="x")


class Half(tf.Module):  # type: ignore[misc]
    """y = x / 2 + 2, and functions that show the server's other sides."""

    @tf.function(input_signature=[FLOATS])  # type: ignore[untyped-decorator]
    def half(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * 0.5 + 2.0}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="a"),
            tf.TensorSpec([None], tf.string, name="b"),
        ]
    )
    def pair(self, a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"product": tf.matmul(a, tf.ones([2, 1])), "text": tf.strings.join([b, "!"])}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec([None], tf.string, name="inputs")]
    )
    def classify(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = tf.stack([feature_x(inputs), -feature_x(inputs)], axis=1)
        return {"classes": tf.where(scores < 0, "negative", "positive"), "scores": scores}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec([None], tf.string, name="inputs")]
    )
    def regress(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": feature_x(inputs) * 0.5 + 2.0}

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec(None, tf.float32, name="decimal"),
            tf.TensorSpec(None, tf.int64, name="integer"),
            tf.TensorSpec(None, tf.string, name="string"),
            tf.TensorSpec(None, tf.bool, name="truth"),
        ]
    )
    def echo(
        self, decimal: tf.Tensor, integer: tf.Tensor, string: tf.Tensor, truth: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return {
            "decimal_back": tf.identity(decimal),
            "integer_back": tf.identity(integer),
            "string_back_bytes": tf.identity(string),
            "truth_back": tf.identity(truth),
        }

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="n")])  # type: ignore[untyped-decorator]
    def count(self, n: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"reached": tf.while_loop(lambda i: i < n, lambda i: (i + 1,), [tf.constant(0)])[0]}


def feature_x(examples: tf.Tensor) -> tf.Tensor:
    """Return the feature `x` of serialised tf.Examples, which each must have."""
    return tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]


if __name__ == "__main__":
    model = Half()
    signatures = {
        "serving_default": model.half,
        "pair": model.pair,
        "count": model.count,
        "echo": model.echo,
        "classify": model.classify,
        "regress": model.regress,
    }
    tf.saved_model.save(model, sys.argv[1], signatures=signatures)
