"""The back end before the embedded model server, which stands in for tensorflow_model_server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import make_plan

from pierhead.control import ModelPlan, ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import TensorSpec
from pierhead.service.app import create_app
from pierhead.service.call import Call
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import WholeHandler
from pierhead.service.hooks import WholeHook
from pierhead.service.tfs_backend import TfsBackend
from pierhead.serving_stubs import import_serving_stubs
from pierhead.settings import Settings

BUILD = Path(__file__).parents[2] / "examples" / "half_plus_two" / "build.py"
MODELS = (ModelPlan("half_plus_two", (1,)),)
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SECONDS = 60


def free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def wait_until_served(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None
        connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            connection.request("GET", "/v1/models/half_plus_two")
            answer = connection.getresponse()
            if b"AVAILABLE" in answer.read():
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    pytest.fail("the model server did not become ready")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerAddress]:
    artifact = tmp_path_factory.mktemp("artifact")
    subprocess.run([sys.executable, str(BUILD), str(artifact)], check=True, timeout=SECONDS)
    grpc_port, rest_port = free_ports()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pierhead.modelserver", "--model_name=half_plus_two"),
            *(f"--port={grpc_port}", f"--rest_api_port={rest_port}", "--bind_address=127.0.0.1"),
            f"--model_base_path={artifact / 'half_plus_two'}",
        ]
    )
    try:
        wait_until_served(process, rest_port)
        yield ServerAddress(grpc_port, rest_port)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def backend(address: ServerAddress) -> TfsBackend:
    return TfsBackend(import_serving_stubs(), [address], MODELS)


@pytest.fixture(scope="module")
def client(address: ServerAddress, backend: TfsBackend) -> FlaskClient:
    plan = make_plan(servers=(address,), models=MODELS, default_model="half_plus_two")
    handler = DefaultHandler(backend, "application/json")
    return create_app(plan, Settings.from_env({}), backend, handler).test_client()


def test_signature_is_the_models(backend: TfsBackend, address: ServerAddress) -> None:
    signature = backend.signature(Call("half_plus_two", None, "predict", address, 10.0), "")

    assert signature.inputs == {"x": TensorSpec("DT_FLOAT", (-1,))}
    assert list(signature.outputs) == ["y"]


def test_wrong_dtype_is_refused_with_the_servers_reason(backend: TfsBackend, address: ServerAddress) -> None:
    with pytest.raises(ServingError, match="float but double is provided") as refusal:
        backend.predict(Call("half_plus_two", 1, "predict", address, 10.0), "", {"x": np.ones(3)})

    assert refusal.value.code == Code.INVALID_ARGUMENT


def ask_rest(address: ServerAddress, path: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", address.rest_port, timeout=SECONDS)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("method", ["predict", "classify", "regress"])
def test_default_handler_answers_as_rest_does(
    client: FlaskClient, address: ServerAddress, method: str
) -> None:
    body = b'{"instances": [1.0, 2.0, 5.0]}'

    answer = client.post("/invocations", data=body, headers={ATTRIBUTES: f"tfs-method={method}"})

    assert ask_rest(address, f"/v1/models/half_plus_two:{method}", body) == (answer.status_code, answer.data)


def test_unknown_version_is_refused_with_the_servers_sentence(client: FlaskClient) -> None:
    answer = client.post(
        "/invocations", data=b'{"instances": [1]}', headers={ATTRIBUTES: "tfs-model-version=7"}
    )

    assert (answer.status_code, answer.get_json()) == (
        404,
        {"error": "Servable not found for request: Specific(half_plus_two, 7)"},
    )


def test_handler_reaches_the_model_by_its_context(address: ServerAddress, backend: TfsBackend) -> None:
    def handler(data: SimpleNamespace, context: SimpleNamespace) -> tuple[bytes, str]:
        target = context.rest_uri.removeprefix("http://")
        host, _, path = target.partition("/")
        connection = HTTPConnection(host, timeout=context.timeout)
        connection.request("POST", f"/{path}", data.read())
        answer = connection.getresponse().read()
        connection.close()
        return answer, context.accept_header

    plan = make_plan(servers=(address,), models=MODELS, default_model="half_plus_two")
    app = create_app(plan, Settings.from_env({}), backend, WholeHandler(WholeHook(handler)))
    answer = app.test_client().post("/invocations", data=b'{"instances": [1.0]}')

    assert json.loads(answer.data) == {"predictions": [2.5]}
