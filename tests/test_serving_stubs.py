from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

ROUND_TRIP = """
import json, sys
import numpy as np
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import read_tensor, write_tensor, write_typed_tensor
stubs = import_serving_stubs()
loaded = sys.modules.get("tensorflow")
request = stubs.predict.PredictRequest()
request.model_spec.name = "m"
request.model_spec.version.value = 3
write_tensor(np.float32([[1, 2]]), request.inputs["x"])
write_typed_tensor(np.int64([7]), request.inputs["y"])
metadata = stubs.get_model_metadata.SignatureDefMap()
signature = metadata.signature_def["serving_default"]
signature.method_name = "tensorflow/serving/predict"
signature.inputs["x"].name = "x:0"
signature.inputs["x"].dtype = 1
signature.inputs["x"].tensor_shape.dim.add().size = -1
examples = stubs.classification.ClassificationRequest()
feature = examples.input.example_list.examples.add().features.feature["a"]
feature.float_list.value.extend([1.5])
status = stubs.get_model_status.ModelVersionStatus(version=1, state=30)
status.status.error_code = 5
config = stubs.model_server_config.ModelServerConfig()
config.model_config_list.config.add().name = "m"
messages = (request, metadata, examples, status, config)
print(json.dumps({
    "bytes": [message.SerializeToString(deterministic=True).hex() for message in messages],
    "x": read_tensor(request.inputs["x"]).tolist(),
    "error_code": str(status).strip(),
    "loaded": loaded is not None,
    "services": [stubs.PredictionServiceStub.__name__, stubs.add_ModelServiceServicer_to_server.__name__],
    "files": len([name for name in sys.modules if name.startswith("tensorflow.")]),
}))
"""
WITHOUT_TENSORFLOW = """
import sys
from importlib.machinery import PathFinder
class Filtered(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "tensorflow" else super().find_spec(name, path, target)
sys.meta_path[:] = [Filtered if finder is PathFinder else finder for finder in sys.meta_path]
"""
REAL_IMPORT_LATER = """
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
assert tf.constant([1.0]).shape == (1,)
assert tf.make_ndarray(request.inputs["x"]).tolist() == [[1.0, 2.0]]
assert type(request.inputs["x"]) is tensor_pb2.TensorProto
again = import_serving_stubs()
assert again.predict is stubs.predict
"""


def output_of(program: str) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[0])
    return answer


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    return output_of(ROUND_TRIP)


@pytest.fixture(scope="module")
def absent() -> dict[str, Any]:
    return output_of(WITHOUT_TENSORFLOW + ROUND_TRIP)


def test_stubs_leave_tensorflow_unimported(installed: dict[str, Any]) -> None:
    assert installed["loaded"] is False
    assert installed["services"] == ["PredictionServiceStub", "add_ModelServiceServicer_to_server"]


def test_messages_are_the_same_where_tensorflow_is_absent(
    installed: dict[str, Any], absent: dict[str, Any]
) -> None:
    assert installed["bytes"] == absent["bytes"]
    assert installed["x"] == absent["x"] == [[1.0, 2.0]]
    assert installed["error_code"] == absent["error_code"]


def test_only_the_needed_messages_are_declared(absent: dict[str, Any]) -> None:
    assert absent["files"] < 12


def test_real_import_of_tensorflow_works_afterwards() -> None:
    output_of(ROUND_TRIP + REAL_IMPORT_LATER)
