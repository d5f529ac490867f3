"""Real models give, through both doors of a real server, what TensorFlow itself gives, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from tests.modelserver.running_server import COMMAND, is_answering, wait_until

from pierhead.formats.tensors import Array
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import read_tensor, write_tensor

SECONDS = 60
TEXTS = [b"def half(x):\n    return x / 2\n", b"#include <stdio.h>\nint main(void) { return 0; }\n"]
RANDOM = np.random.default_rng(11)
SOUND = (0.5 * np.sin(np.arange(2 * 43_844) * 0.1)).astype(np.float32).reshape(2, 43_844, 1)
IMAGES = RANDOM.random((3, 24, 24, 3), dtype=np.float32)


@dataclass(frozen=True)
class Run:
    """A signature of a model, and what it is fed."""

    model: str
    signature: str
    inputs: dict[str, Array]


def example(text: bytes) -> bytes:
    """Return a serialised tf.Example whose one feature, `content`, is a short text."""
    entry = field(1, b"content") + field(2, field(1, field(1, text)))
    return field(1, field(1, entry))


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


RUNS = {
    "basic_pitch": Run("basic_pitch", "serving_default", {"input_2": SOUND}),
    "guesslang": Run("guesslang", "predict", {"content": np.array(TEXTS)}),
    "guesslang_examples": Run(
        "guesslang", "classification", {"inputs": np.array([example(each) for each in TEXTS])}
    ),
    "keras": Run("keras", "serving_default", {"image": IMAGES}),
}


@dataclass(frozen=True)
class Served:
    """A server of the models, and what TensorFlow itself gave for each run."""

    rest_port: int
    channel: grpc.Channel
    direct: dict[str, dict[str, Array]]


@pytest.fixture(scope="module")
def folders(
    example_artifact: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    examples = {name: example_artifact(name) / name for name in ("basic_pitch", "guesslang")}
    return {**examples, "keras": tmp_path_factory.mktemp("keras")}


@pytest.fixture(scope="module")
def direct(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Array]]:
    """Return the outputs of each run, computed by TensorFlow in a process of its own."""
    folder = tmp_path_factory.mktemp("direct")
    runs = []
    for name, run in RUNS.items():
        files = {"inputs": f"{folder / name}.in.npz", "outputs": f"{folder / name}.out.npz"}
        np.savez(files["inputs"], **run.inputs)  # type: ignore[arg-type]
        runs.append({"folder": str(folders[run.model] / "1"), "signature": run.signature, **files})
    (folder / "runs.json").write_text(json.dumps(runs))
    script = Path(__file__).with_name("direct_numbers.py")
    command = [sys.executable, str(script), str(folders["keras"] / "1"), str(folder / "runs.json")]
    subprocess.run(command, check=True, capture_output=True, timeout=150)
    return {name: dict(np.load(f"{folder / name}.out.npz")) for name in RUNS}


@pytest.fixture(scope="module")
def served(
    folders: dict[str, Path],
    direct: dict[str, dict[str, Array]],
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    entries = "".join(
        f'config {{ name: "{name}" base_path: "{folder}" model_platform: "tensorflow" }}\n'
        for name, folder in folders.items()
    )
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text(f"model_config_list {{\n{entries}}}\n")
    port = free_ports(2)
    flags = [f"--port={port}", f"--rest_api_port={port + 1}", f"--model_config_file={config}"]
    with subprocess.Popen([*COMMAND, *flags], stderr=subprocess.DEVNULL, env=dict(os.environ)) as process:
        url = f"http://127.0.0.1:{port + 1}/v1/models/keras"
        try:
            wait_until(lambda: is_answering(url) or process.poll() is not None)
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Served(port + 1, channel, direct)
        finally:
            process.terminate()


def post(served: Served, path: str, body: Any) -> Any:
    url = f"http://127.0.0.1:{served.rest_port}/v1/models/{path}"
    answer = requests.post(url, json.dumps(body), timeout=SECONDS)
    assert answer.ok, answer.text[:1000]
    return answer.json()


def as_json(array: Array) -> Any:
    return [text.decode() for text in array.tolist()] if array.dtype.kind == "S" else array.tolist()


def as_array(value: Any, like: Array) -> Array:
    """Return JSON as an array of the dtype of another."""
    return np.array(value, np.str_).astype("S") if like.dtype.kind == "S" else np.array(value, like.dtype)


def assert_same_bits(expected: Array, actual: Array) -> None:
    assert (expected.shape, expected.dtype.kind) == (actual.shape, actual.dtype.kind)
    if expected.dtype.kind == "S":
        assert expected.tolist() == actual.tolist()
    else:
        assert expected.tobytes() == actual.astype(expected.dtype, copy=False).tobytes()


@pytest.mark.parametrize("name", RUNS)
def test_grpc_gives_tensorflow_s_bits(served: Served, stubs: ServingStubs, name: str) -> None:
    run, expected = RUNS[name], served.direct[name]
    request = stubs.predict.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = run.model, run.signature
    for alias, array in run.inputs.items():
        write_tensor(array.astype(object) if array.dtype.kind == "S" else array, request.inputs[alias])
    answer = stubs.PredictionServiceStub(served.channel).Predict(request, timeout=SECONDS)
    actual = {alias: read_tensor(proto) for alias, proto in answer.outputs.items()}

    assert expected.keys() == actual.keys()
    for alias, array in actual.items():
        assert_same_bits(expected[alias], array.astype("S") if array.dtype == object else array)


@pytest.mark.parametrize("layout", ["instances", "inputs"])
@pytest.mark.parametrize("name", RUNS)
def test_rest_gives_tensorflow_s_bits(served: Served, name: str, layout: str) -> None:
    run, expected = RUNS[name], served.direct[name]
    columns = {alias: as_json(array) for alias, array in run.inputs.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    body = {"signature_name": run.signature, layout: rows if layout == "instances" else columns}
    answer = post(served, f"{run.model}:predict", body)
    if layout == "instances":
        found = answer["predictions"]
        outputs = {alias: [row[alias] if len(expected) > 1 else row for row in found] for alias in expected}
    else:
        outputs = answer["outputs"] if len(expected) > 1 else dict.fromkeys(expected, answer["outputs"])

    assert expected.keys() == outputs.keys()
    for alias, value in outputs.items():
        assert_same_bits(expected[alias], as_array(value, expected[alias]))


def test_classify_gives_tensorflow_s_bits(served: Served) -> None:
    body = {"signature_name": "classification", "examples": [{"content": text.decode()} for text in TEXTS]}
    results = post(served, "guesslang:classify", body)["results"]
    expected = served.direct["guesslang_examples"]
    labels = [[label for label, _ in classes] for classes in results]
    scores = [[score for _, score in classes] for classes in results]

    assert_same_bits(expected["classes"], as_array(labels, expected["classes"]))
    assert_same_bits(expected["scores"], as_array(scores, expected["scores"]))
