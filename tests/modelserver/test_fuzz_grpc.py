"""Messages of any kind at the gRPC port: each call ends with a code that says why, the server stays well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.modelserver.running_server import RunningServer
from tests.modelserver.wellness import Wellness

from pierhead.serving_stubs import ServingStubs

SECONDS = 20
EXAMPLES = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
METHODS = [
    f"/tensorflow.serving.{method}"
    for method in (
        "PredictionService/Predict",
        "PredictionService/Classify",
        "PredictionService/Regress",
        "PredictionService/MultiInference",
        "PredictionService/GetModelMetadata",
        "ModelService/GetModelStatus",
    )
]
# UNKNOWN is a fault of the server's, DEADLINE_EXCEEDED and UNAVAILABLE are its silence.
FAULTS = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
}
Ask = Callable[[str, bytes], grpc.StatusCode]
SIZES = st.sampled_from([-1, 0, 1, 2, 3, 2**20, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)])


@pytest.fixture(autouse=True, scope="module")
def stays_well(server: RunningServer) -> Iterator[None]:
    with Wellness(server).kept():
        yield


@pytest.fixture(scope="module")
def ask(server: RunningServer) -> Iterator[Ask]:
    """Return a function that sends bytes to a method and returns the code of the answer."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:

        def send(method: str, message: bytes) -> grpc.StatusCode:
            call: Any = channel.unary_unary(method)
            try:
                call(message, timeout=SECONDS)
            except grpc.RpcError as problem:
                code: grpc.StatusCode = problem.code()
                return code
            return grpc.StatusCode.OK

        yield send


def tensor_request(stubs: ServingStubs, tensor: dict[str, Any], sizes: list[int], signature: str = "") -> Any:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = signature
    for name in ("a", "b") if signature == "pair" else ("x",):
        for field, value in tensor.items():
            if isinstance(value, list):
                getattr(request.inputs[name], field).extend(value)
            else:
                setattr(request.inputs[name], field, value)
        for size in sizes:
            request.inputs[name].tensor_shape.dim.add().size = size
    return request


TENSORS = st.fixed_dictionaries(
    {"dtype": st.one_of(st.just(1), st.integers(-1, 130))},
    optional={
        "tensor_content": st.binary(max_size=16),
        "float_val": st.lists(st.floats(width=32), max_size=3),
        "double_val": st.lists(st.floats(), max_size=3),
        "int_val": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "half_val": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "string_val": st.lists(st.binary(max_size=4), max_size=3),
        "int64_val": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "bool_val": st.lists(st.booleans(), max_size=3),
        "scomplex_val": st.lists(st.floats(width=32), max_size=3),
    },
)


@EXAMPLES
@given(method=st.sampled_from(METHODS), message=st.binary(max_size=100))
def test_any_bytes_are_answered(ask: Ask, method: str, message: bytes) -> None:
    assert ask(method, message) not in FAULTS


@EXAMPLES
@given(data=st.data())
def test_damaged_message_is_answered(ask: Ask, stubs: ServingStubs, data: st.DataObject) -> None:
    message = bytearray(tensor_request(stubs, {"dtype": 1, "float_val": [1.0, 2.0]}, [2]).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))

    assert ask(data.draw(st.sampled_from(METHODS)), bytes(message)) not in FAULTS


@EXAMPLES
@given(
    tensor=TENSORS, sizes=st.lists(SIZES, max_size=4), signature=st.sampled_from(["", "pair", "count", "z"])
)
def test_any_tensor_is_answered(
    ask: Ask, stubs: ServingStubs, tensor: dict[str, Any], sizes: list[int], signature: str
) -> None:
    if signature == "count":
        tensor = {"dtype": 3, "int_val": [7]}
    request = tensor_request(stubs, tensor, sizes, signature)

    assert ask(METHODS[0], request.SerializeToString()) not in FAULTS


@pytest.mark.parametrize(
    "sizes",
    [[2**62, 0, 2**62], [2**40], [2**33, 2**33], [1] * 300, [0] * 300, [2**27 + 1], [-1], [100_000_000]],
)
@pytest.mark.parametrize("tensor", [{"dtype": 1}, {"dtype": 7}, {"dtype": 1, "float_val": [1.0]}])
def test_shape_that_nothing_was_sent_for_is_refused(
    ask: Ask, stubs: ServingStubs, tensor: dict[str, Any], sizes: list[int]
) -> None:
    request = tensor_request(stubs, tensor, sizes)

    assert ask(METHODS[0], request.SerializeToString()) is grpc.StatusCode.INVALID_ARGUMENT


def test_repeated_value_may_fill_a_tensor(ask: Ask, stubs: ServingStubs) -> None:
    request = tensor_request(stubs, {"dtype": 1, "float_val": [1.0]}, [1_000_000])

    assert ask(METHODS[0], request.SerializeToString()) is grpc.StatusCode.OK
