"""Builds SavedModels of every age, and broken ones: `python build_aged_models.py FOLDER`.

A script, because importing TensorFlow takes long. Each model gets a folder with the version 1.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

v1 = tf.compat.v1
ROOT = Path(sys.argv[1])
WARMUP = Path("1", "assets.extra", "tf_serving_warmup_requests")


def save_graph(
    name: str, session: Any, signatures: dict[str, Any], tags: tuple[str, ...] = ("serve",), **more: Any
) -> None:
    builder = v1.saved_model.Builder(str(ROOT / name / "1"))
    builder.add_meta_graph_and_variables(session, list(tags), signatures, **more)
    builder.save()


def signature(inputs: dict[str, Any], outputs: dict[str, Any], method: str = "predict") -> Any:
    described = [
        {key: v1.saved_model.build_tensor_info(value) for key, value in side.items()}
        for side in (inputs, outputs)
    ]
    return v1.saved_model.build_signature_def(*described, f"tensorflow/serving/{method}")


def build_graph_with_tables() -> None:
    """TensorFlow 1: a variable, a lookup table whose words come from an asset, an op that initialises."""
    vocabulary = ROOT / "vocabulary.txt"
    vocabulary.write_text("cat\ndog\nowl\n")
    with tf.Graph().as_default(), v1.Session() as session:
        file = tf.constant(str(vocabulary))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, file)
        initializer = tf.lookup.TextFileInitializer(
            file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        table = tf.lookup.StaticHashTable(initializer, -1)
        words = v1.placeholder(tf.string, [None], "words")
        weights = v1.get_variable("weights", initializer=[10.0, 20.0, 30.0])
        ids = table.lookup(words)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        outputs = {"id": ids, "weight": tf.gather(weights, tf.maximum(ids, 0))}
        signatures = {"serving_default": signature({"words": words}, outputs)}
        assets = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)
        save_graph("tables", session, signatures, main_op=v1.tables_initializer(), assets_collection=assets)
    vocabulary.unlink()


def build_graph_without_variables() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        save_graph("stateless", session, {"serving_default": signature({"x": x}, {"y": x * 3.0})})


def build_large() -> None:
    """A variable of 64 MB."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        weights = v1.get_variable("weights", initializer=tf.ones([1 << 24]))
        session.run(v1.global_variables_initializer())
        save_graph("large", session, {"serving_default": signature({"x": x}, {"y": x + weights[0]})})


def build_graph_of_other_tags() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        signatures = {"serving_default": signature({"x": x}, {"y": x * 5.0})}
        save_graph("tagged", session, signatures, tags=("serve", "gpu"))


def build_ragged() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.string, [None], "x")
        outputs = {"parts": tf.strings.split(x), "length": tf.strings.length(x)}
        save_graph("ragged", session, {"serving_default": signature({"x": x}, outputs)})


def build_examples() -> None:
    """Classify and regress on tf.Examples."""
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], "examples")
        parsed = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        classify = {"scores": parsed["x"] * 2.0}
        regress = {"outputs": parsed["x"] + 1.0}
        signatures = {
            "serving_default": signature({"inputs": examples}, classify, "classify"),
            "regress": signature({"inputs": examples}, regress, "regress"),
        }
        save_graph("examples", session, signatures)


class Words(tf.Module):  # type: ignore[misc]
    """TensorFlow 2: strings in and out, a variable, and a resource that an asset initialises."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = tf.Variable("!")

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec([None], tf.string, name="text")]
    )
    def __call__(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"shout": tf.strings.upper(text) + self.mark}


class Scaled(tf.Module):  # type: ignore[misc]
    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="x"),
            tf.TensorSpec([], tf.float32, name="factor"),
        ]
    )
    def __call__(self, x: tf.Tensor, factor: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * factor}


def build_functions() -> None:
    tf.saved_model.save(Words(), str(ROOT / "words" / "1"))
    tf.saved_model.save(Scaled(), str(ROOT / "defaults" / "1"))
    with edited("defaults") as model:
        defaults = model.meta_graphs[0].signature_def["serving_default"].defaults
        defaults["factor"].CopyFrom(tf.make_tensor_proto(7.0, tf.float32))
    inputs = tf.keras.Input((2,), name="features")
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones", bias_initializer="ones")
    tf.keras.Model(inputs, layer(inputs)).export(str(ROOT / "keras" / "1"), verbose=False)


class edited:  # noqa: N801 - a context manager
    """Lets a saved_model.pb be changed."""

    def __init__(self, name: str) -> None:
        self.file = ROOT / name / "1" / "saved_model.pb"

    def __enter__(self) -> Any:
        self.model = saved_model_pb2.SavedModel.FromString(self.file.read_bytes())
        return self.model

    def __exit__(self, *_: object) -> None:
        self.file.write_bytes(self.model.SerializeToString())


def build_broken() -> None:
    shutil.copytree(ROOT / "stateless", ROOT / "unknown_op")
    with edited("unknown_op") as model:
        for node in model.meta_graphs[0].graph_def.node:
            node.op = "OpOfTheFuture" if node.op == "Mul" else node.op
    shutil.copytree(ROOT / "keras", ROOT / "torn_variables")
    (data,) = (ROOT / "torn_variables" / "1" / "variables").glob("*.data-*")
    data.write_bytes(data.read_bytes()[:10])
    shutil.copytree(ROOT / "keras", ROOT / "wrong_variables")
    (data,) = (ROOT / "wrong_variables" / "1" / "variables").glob("*.data-*")
    data.write_bytes(bytes(len(data.read_bytes())))
    shutil.copytree(ROOT / "keras", ROOT / "lost_variables")
    shutil.rmtree(ROOT / "lost_variables" / "1" / "variables")
    shutil.copytree(ROOT / "tables", ROOT / "lost_asset")
    shutil.rmtree(ROOT / "lost_asset" / "1" / "assets")
    (ROOT / "no_graph" / "1").mkdir(parents=True)
    (ROOT / "no_graph" / "1" / "saved_model.pb").write_bytes(b"no graph at all")
    (ROOT / "empty_graph" / "1").mkdir(parents=True)
    (ROOT / "empty_graph" / "1" / "saved_model.pb").write_bytes(b"")
    (ROOT / "no_model" / "1").mkdir(parents=True)


def build_warmed() -> None:
    """Copies with warm-up requests: good ones of each kind, a refused one, and a damaged file."""
    for name, source in {"warm": "examples", "cold": "keras", "damaged": "keras"}.items():
        shutil.copytree(ROOT / source, ROOT / name)
        (ROOT / name / WARMUP).parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(ROOT / "warm" / WARMUP)) as writer:
        for log in example_logs():
            writer.write(log.SerializeToString())
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.name = "cold"
    log.predict_log.request.inputs["features"].CopyFrom(tf.make_tensor_proto(np.zeros((1, 3), np.float32)))
    with tf.io.TFRecordWriter(str(ROOT / "cold" / WARMUP)) as writer:
        writer.write(log.SerializeToString())
    (ROOT / "damaged" / WARMUP).write_bytes(struct.pack("<QI", 4, 0) + b"none")


def example_logs() -> list[Any]:
    logs = [prediction_log_pb2.PredictionLog() for _ in range(5)]
    classify, regress = logs[1].classify_log.request, logs[2].regress_log.request
    multi, predict = logs[3].multi_inference_log.request, logs[4].predict_log.request
    regress.model_spec.signature_name = "regress"
    for name, method in {"serving_default": "classify", "regress": "regress"}.items():
        task = multi.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "recorded as another", name
    for request in (classify, regress, multi):
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(1.5)
    predict.model_spec.name = "recorded as another"
    predict.model_spec.version.value = 99
    serialised = example.SerializeToString()
    predict.inputs["inputs"].CopyFrom(tf.make_tensor_proto([serialised], tf.string))
    return logs


if __name__ == "__main__":
    ROOT.mkdir(parents=True)
    build_graph_with_tables()
    build_graph_without_variables()
    build_large()
    build_graph_of_other_tags()
    build_ragged()
    build_examples()
    build_functions()
    build_broken()
    build_warmed()
