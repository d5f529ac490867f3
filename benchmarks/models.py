"""The models of the benchmark, built into a folder: half_plus_two, and a small convolutional network.

Run as a script (`python -m benchmarks.models FOLDER`), because importing TensorFlow takes seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tensorflow as tf

CHECKOUT = Path(__file__).resolve().parents[1]
IMAGE = tf.TensorSpec([None, 224, 224, 3], tf.float32, name="image")
ROWS = tf.TensorSpec([None, 4], tf.float32, name="rows")


class Image(tf.Module):  # type: ignore[misc]
    """Two convolutions with strides, and ten scores."""

    def __init__(self) -> None:
        random = tf.random.Generator.from_seed(7)
        self.first = tf.Variable(random.normal([7, 7, 3, 8], stddev=0.1))
        self.second = tf.Variable(random.normal([5, 5, 8, 16], stddev=0.1))
        self.scores = tf.Variable(random.normal([16, 10]))

    @tf.function(input_signature=[IMAGE])  # type: ignore[untyped-decorator]
    def classify(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probability of each of ten classes."""
        hidden = tf.nn.relu(tf.nn.conv2d(image, self.first, 4, "SAME"))
        hidden = tf.nn.relu(tf.nn.conv2d(hidden, self.second, 4, "SAME"))
        return {"scores": tf.nn.softmax(tf.reduce_mean(hidden, [1, 2]) @ self.scores)}


class Table(tf.Module):  # type: ignore[misc]
    """The sum of each row."""

    @tf.function(input_signature=[ROWS])  # type: ignore[untyped-decorator]
    def total(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return one number for each row."""
        return {"total": tf.reduce_sum(rows, 1)}


def build(folder: Path) -> None:
    """Build all models below a folder, each as `NAME/1`."""
    script = CHECKOUT / "examples" / "half_plus_two" / "build.py"
    subprocess.run([sys.executable, str(script), str(folder / "artifact")], check=True, capture_output=True)
    (folder / "artifact" / "half_plus_two").rename(folder / "half_plus_two")
    image, table = Image(), Table()
    tf.saved_model.save(image, str(folder / "image" / "1"), signatures=image.classify)
    tf.saved_model.save(table, str(folder / "table" / "1"), signatures=table.total)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
