"""The manual's hooks do what it says, before a real model server; S3 is a stand-in that knows one object."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from flask.testing import FlaskClient

from local_http import Quiet, serving
from pierhead.control import ModelPlan, ServerAddress, ServicePlan
from pierhead.service.worker import load_app
from pierhead.settings import Settings
from running_stack import RunningStack

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "hooks"
NUMBERS = b'{"instances": [1.0, 2.0, 5.0]}'
OpenExample = Callable[[str], FlaskClient]


@pytest.fixture(scope="module")
def server(half_plus_two: Path, free_ports: Callable[[int], int]) -> Iterator[ServerAddress]:
    """Yield the model server of a running stack."""
    with RunningStack(half_plus_two, free_ports(9)) as stack:
        stack.wait_until_ready()
        yield ServerAddress(stack.ports[0], stack.ports[1])


@pytest.fixture
def open_example(
    server: ServerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenExample]:
    """Yield a function that loads an example as a worker does, and returns a client of it."""
    path = list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    code = tmp_path / "code"
    code.mkdir()

    def load(name: str) -> FlaskClient:
        file = Path(shutil.copy(EXAMPLES / f"{name}.py", code / "inference.py"))
        plan = ServicePlan(
            settings={},
            socket="",
            control_socket="",
            servers=(server,),
            models=(ModelPlan("half_plus_two", (1,)),),
            default_model="half_plus_two",
            code=str(code),
            hooks=str(file),
        )
        settings = Settings.from_env({"SAGEMAKER_GUNICORN_WORKER_CLASS": "gthread"})
        return load_app(plan, settings).test_client()

    yield load
    sys.path[:] = path
    sys.modules.pop("inference", None)


@pytest.fixture
def object_url() -> Iterator[str]:
    """Yield the address of a stand-in for S3 that answers every GET with one predict request."""

    class Answer(Quiet):
        def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
            known = self.path == "/models/request.json"
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(NUMBERS) if known else 0))
            self.end_headers()
            self.wfile.write(NUMBERS if known else b"")

    with serving(Answer) as address:
        yield address


def test_pair_reads_and_writes_lines(open_example: OpenExample) -> None:
    client = open_example("pair")

    text = client.post(
        "/invocations", data="1\n2\n5\n", headers={"Content-Type": "text/plain", "Accept": "text/plain"}
    )
    as_json = client.post("/invocations", data=NUMBERS, content_type="application/json")
    refused = client.post("/invocations", data=b'{"instances": ["a"]}', content_type="application/json")

    assert (text.content_type, text.text) == ("text/plain", "2.5\n3.0\n4.5")
    assert as_json.get_json() == {"predictions": [2.5, 3.0, 4.5]}
    assert refused.status_code == 400
    assert "not of expected type: float" in refused.get_json()["error"]


def test_whole_handler_asks_over_rest(open_example: OpenExample) -> None:
    client = open_example("whole")

    refused = client.post("/invocations", data=b'{"instances": ["a"]}')

    assert client.post("/invocations", data=NUMBERS).get_json() == {"largest": 4.5}
    assert refused.status_code == 400
    assert "not of expected type: float" in refused.get_json()["error"]


def test_streaming_yields_a_part_for_each_value(open_example: OpenExample) -> None:
    answer = open_example("streaming").post("/invocations", data="1\n2\n", content_type="text/csv")

    assert list(answer.iter_encoded()) == [b"data: 2.5\n\n", b"data: 3.0\n\n"]
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in answer.headers


@pytest.mark.parametrize("body", [b'{"fahrenheit": 70}', b"[20]", b"warm"])
def test_chosen_status_refuses_with_its_sentence(open_example: OpenExample, body: bytes) -> None:
    client = open_example("chosen_status")

    answer = client.post("/invocations", data=body)

    assert (answer.status_code, answer.get_json()) == (422, {"error": 'send {"celsius": a number}'})
    assert client.post("/invocations", data=b'{"celsius": 1}').get_json() == {"predictions": [2.5]}


@pytest.mark.parametrize(
    ("content_type", "body", "accept", "expected"),
    [
        ("text/csv", b"-1\n2.3\n", "text/csv", b"2.0\n3.2\n"),
        ("application/jsonlines", b"-1\n2.3\n", "application/jsonlines", b"2.0\n3.2\n"),
        ("application/json", b'{"inputs": 2.3}', "*/*", b'{\n    "outputs": 3.2\n}'),
    ],
)
def test_conversion_keeps_every_format(
    open_example: OpenExample, content_type: str, body: bytes, accept: str, expected: bytes
) -> None:
    headers = {"Content-Type": content_type, "Accept": accept}

    assert open_example("conversion").post("/invocations", data=body, headers=headers).data == expected


def test_two_models_are_asked_one_after_the_other(open_example: OpenExample) -> None:
    client = open_example("two_models")
    named = {"X-Amzn-SageMaker-Custom-Attributes": "second=nope"}

    refused = client.post("/invocations", data=b"[1.0, 2.0]", headers=named)

    assert client.post("/invocations", data=b"[1.0, 2.0]").get_json() == [3.25, 3.5]
    assert refused.status_code == 404
    assert "nope" in refused.get_json()["error"]


def test_request_is_fetched_from_s3(
    open_example: OpenExample, object_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", object_url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "mars-west-1")

    answer = open_example("from_s3").post(
        "/invocations", data=json.dumps({"bucket": "models", "key": "request.json"})
    )

    assert answer.get_json() == {"predictions": [2.5, 3.0, 4.5]}


def test_toolkit_functions_need_no_saved_model(open_example: OpenExample, tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", slope=np.array([2.0, 3.0]), offset=np.array(1.0))

    answer = open_example("toolkit").post(
        "/invocations", data="1,1\n0,2\n", headers={"Content-Type": "text/csv", "Accept": "text/csv"}
    )

    assert answer.data == b"6.0\n7.0\n"
