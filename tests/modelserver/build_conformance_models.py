"""Builds the models of the conformance cases below a folder; a script, because TensorFlow imports slowly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tests.modelserver.conformance_cases import (
    ANSWERS,
    CLASSIFIER,
    REGRESSOR,
    Case,
    echo_models,
    shown_cases,
    signature_names,
    tensors_of,
)

v1 = tf.compat.v1
Signatures = dict[str, Any]


def save(folder: Path, make: Callable[[], Signatures]) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        builder = v1.saved_model.Builder(str(folder / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=make())
        builder.save()


def signature(inputs: dict[str, tf.Tensor], outputs: dict[str, tf.Tensor], method: str = "predict") -> Any:
    sides = [
        {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in side.items()}
        for side in (inputs, outputs)
    ]
    return v1.saved_model.build_signature_def(*sides, f"tensorflow/serving/{method}")


def echo(dtypes: dict[str, str]) -> Signatures:
    inputs = {name: v1.placeholder(types_pb2.DataType.Value(dtype)) for name, dtype in sorted(dtypes.items())}
    outputs = {name: tf.identity(tensor) for name, tensor in inputs.items()} or {"none": tf.constant(0)}
    return dict.fromkeys(signature_names(), signature(inputs, outputs))


def classifier() -> Signatures:
    """Return a classifier that labels an example with its bytes."""
    inputs = v1.placeholder(tf.string, [None])
    outputs = {"classes": tf.expand_dims(tf.io.encode_base64(inputs), 1)}
    return dict.fromkeys(signature_names(), signature({"inputs": inputs}, outputs, "classify"))


def regressor() -> Signatures:
    """Return a regressor that gives the number of an example's bytes."""
    inputs = v1.placeholder(tf.string, [None])
    outputs = {"outputs": tf.cast(tf.strings.length(inputs), tf.float32)}
    return dict.fromkeys(signature_names(), signature({"inputs": inputs}, outputs, "regress"))


def answers() -> Signatures:
    anything = {"x": v1.placeholder(tf.int32)}
    listed = {"inputs": v1.placeholder(tf.string, [None])}
    predictions = {
        case["id"]: signature(anything, constants(case)) for case in shown_cases("response", "predict")
    }
    classes = {
        case["id"]: signature(listed, class_constants(case), "classify")
        for case in shown_cases("response", "classify")
    }
    values = {
        case["id"]: signature(
            listed, {"outputs": tf.constant([float(each) for each in case["result"]], tf.float32)}, "regress"
        )
        for case in shown_cases("response", "regress")
    }
    return predictions | classes | values


def constants(case: Case) -> dict[str, tf.Tensor]:
    return {
        name: tf.constant(array, tf.string if array.dtype == np.object_ else None)
        for name, array in tensors_of(case, case["tensors"]).items()
    }


def class_constants(case: Case) -> dict[str, tf.Tensor]:
    scores = {"scores": tf.constant([[score for _, score in row] for row in case["result"]], tf.float32)}
    labels = [[label for label, _ in row] for row in case["result"]]
    return scores | ({"classes": tf.constant(labels)} if any(map(any, labels)) else {})


def build(folder: Path) -> None:
    for name, dtypes in echo_models().items():
        save(folder / name, partial(echo, dtypes))
    save(folder / CLASSIFIER, classifier)
    save(folder / REGRESSOR, regressor)
    save(folder / ANSWERS, answers)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
