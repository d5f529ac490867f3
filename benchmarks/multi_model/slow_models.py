"""Models that are long in loading: `python -m benchmarks.multi_model.slow_models FOLDER`.

Each computes half_plus_two and takes `SECONDS` more than that to load: `warm_up` has a warm-up request that
keeps TensorFlow busy for so long, `import` has hooks that sleep while they are imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

SECONDS = 10.0
RECORDS = "tf_serving_warmup_requests"
HOOKS = f"""\
import time

from pierhead.hooks import read_request as input_handler
from pierhead.hooks import write_answer as output_handler

time.sleep({SECONDS})
"""


class HalfPlusTwo(tf.Module):  # type: ignore[misc]
    """Half of each number plus two, and a computation that ends after a given time."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])  # type: ignore[untyped-decorator]
    def half_plus_two(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what the model is for."""
        return {"y": x / 2.0 + 2.0}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float64, name="seconds")])  # type: ignore[untyped-decorator]
    def spin(self, seconds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return how often an addition was done in so many seconds."""
        end = tf.timestamp() + seconds
        turns = tf.while_loop(lambda _: tf.timestamp() < end, lambda count: (count + 1,), (0,))
        return {"turns": turns[0]}


def build(folder: Path) -> None:
    """Build both artifacts below a folder."""
    model = HalfPlusTwo()
    signatures = {"serving_default": model.half_plus_two, "spin": model.spin}
    for name in ("warm_up", "import"):
        tf.saved_model.save(model, str(folder / name / "half_plus_two" / "1"), signatures=signatures)
    extra = folder / "warm_up" / "half_plus_two" / "1" / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / RECORDS)) as writer:
        writer.write(_record().SerializeToString())
    code = folder / "import" / "code"
    code.mkdir()
    (code / "inference.py").write_text(HOOKS)


def _record() -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = "spin"
    request.inputs["seconds"].CopyFrom(tf.make_tensor_proto(SECONDS, tf.float64))
    return log


if __name__ == "__main__":
    build(Path(sys.argv[1]))
