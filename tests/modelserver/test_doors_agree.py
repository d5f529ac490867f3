"""The same tensors through gRPC and through REST: a real server gives the same answers to both."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.modelserver.running_server import RunningServer

from pierhead.formats.predict_json import Layout, render_predict
from pierhead.formats.tensors import Array
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import read_tensor, write_tensor

SECONDS = 30
DTYPES = {
    "decimal": (np.float32, st.floats(width=32, allow_subnormal=False)),
    "integer": (np.int64, st.integers(-(2**63), 2**63 - 1)),
    "string": (np.object_, st.binary(max_size=8)),
    "truth": (np.bool_, st.booleans()),
}


def tensors(shape: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[dict[str, Array]]:
    """Return a strategy of one tensor of each dtype, each of a shape of its own."""
    return st.fixed_dictionaries(
        {name: arrays.arrays(dtype, shape, elements=values) for name, (dtype, values) in DTYPES.items()}
    )


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Array]:
    rows = draw(st.integers(1, 3))
    shapes = arrays.array_shapes(min_dims=0, max_dims=2, max_side=3)
    return draw(tensors(shapes.map(lambda shape: (rows, *shape))))


@pytest.fixture(scope="module")
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def ask_grpc(channel: grpc.Channel, stubs: ServingStubs, inputs: dict[str, Array]) -> dict[str, Array]:
    request = stubs.predict.PredictRequest()
    request.model_spec.name = "half"
    request.model_spec.signature_name = "echo"
    for name, array in inputs.items():
        write_tensor(array, request.inputs[name])
    response = stubs.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)
    return {name: read_tensor(proto, name) for name, proto in sorted(response.outputs.items())}


def ask_rest(session: requests.Session, server: RunningServer, layout: Layout, body: Any) -> bytes:
    key = "instances" if layout is Layout.ROW else "inputs"
    text = json.dumps({"signature_name": "echo", key: body})
    answer = session.post(server.url("/v1/models/half:predict"), text, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.content


def json_value(array: Array) -> Any:
    """Return what stands for an array in a request; strings, of any bytes, as base64."""
    if array.dtype != np.object_:
        return array.tolist()
    if array.ndim == 0:
        return {"b64": base64.b64encode(array.item()).decode()}
    return [json_value(np.asarray(part, object)) for part in array]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=tensors(arrays.array_shapes(min_dims=0, max_dims=3, max_side=3)))
def test_columnar_answers_agree(
    server: RunningServer,
    channel: grpc.Channel,
    session: requests.Session,
    stubs: ServingStubs,
    inputs: dict[str, Array],
) -> None:
    body = {name: json_value(array) for name, array in inputs.items()}
    outputs = ask_grpc(channel, stubs, inputs)

    for name, array in inputs.items():
        back = next(value for key, value in outputs.items() if key.startswith(name))
        assert (array.dtype, array.shape) == (back.dtype, back.shape)
        np.testing.assert_array_equal(array, back)
    assert ask_rest(session, server, Layout.COLUMNAR, body) == render_predict(outputs, Layout.COLUMNAR)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=batches())
def test_row_answers_agree(
    server: RunningServer,
    channel: grpc.Channel,
    session: requests.Session,
    stubs: ServingStubs,
    inputs: dict[str, Array],
) -> None:
    columns = {name: json_value(array) for name, array in inputs.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    outputs = ask_grpc(channel, stubs, inputs)

    assert ask_rest(session, server, Layout.ROW, rows) == render_predict(outputs, Layout.ROW)
