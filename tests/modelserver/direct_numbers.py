"""What TensorFlow itself makes of inputs: a script, because importing TensorFlow takes long.

`direct_numbers.py KERAS_FOLDER RUNS_FILE` exports a Keras model, and then for each run of the file loads its
model, feeds the arrays of `inputs` (.npz) to a signature and saves the signature's outputs to `outputs`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def export_keras(folder: str) -> None:
    """Export a small network of Keras 3 with convolutions and dense layers."""
    keras = tf.keras
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((24, 24, 3), name="image"),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(16, 3, activation="gelu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.export(folder, verbose=False)


def outputs(folder: str, signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a signature's outputs, from a session as any program would make it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        definition = meta_graph.signature_def[signature]
        feeds = {definition.inputs[name].name: array for name, array in inputs.items()}
        fetches = {name: info.name for name, info in definition.outputs.items()}
        values: dict[str, Any] = session.run(fetches, feeds)
        return values


def main() -> None:
    keras_folder, runs_file = sys.argv[1:]
    export_keras(keras_folder)
    for run in json.loads(Path(runs_file).read_text()):
        with np.load(run["inputs"]) as inputs:
            # Texts are kept as bytes of one length; those of TensorFlow have their own.
            arrays = {
                name: array.astype(object) if array.dtype.kind == "S" else array
                for name, array in inputs.items()
            }
        found = outputs(run["folder"], run["signature"], arrays)
        texts = {name: array.astype("S") for name, array in found.items() if array.dtype == object}
        np.savez(run["outputs"], **{**found, **texts})


if __name__ == "__main__":
    main()
