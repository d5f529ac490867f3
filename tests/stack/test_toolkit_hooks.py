"""The SageMaker inference toolkit's functions in the whole stack, with and without a SavedModel."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from artifacts import artifact_of_code, artifact_with_hooks
from running_stack import RunningStack, StartStack

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
LINEAR = """
    import numpy as np


    def model_fn(model_dir):
        print("model_fn was called")
        return np.load(f"{model_dir}/weights.npy")


    def predict_fn(data, model):
        return data @ model
    """
NEXT_TO_A_MODEL = """
    import json
    from pathlib import Path

    import requests


    def model_fn(model_dir, context):
        return sorted(path.name for path in Path(model_dir).iterdir()), context.model_name


    def transform_fn(model, data, content_type, accept, context):
        answer = requests.post(context.rest_uri, data, timeout=context.timeout)
        return json.dumps([model, answer.json()["predictions"]]), "application/json"
    """


@pytest.fixture(scope="module")
def stack(
    free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    artifact = artifact_of_code(tmp_path_factory.mktemp("linear"), LINEAR)
    np.save(artifact / "weights.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    with RunningStack(artifact, free_ports(9), SAGEMAKER_GUNICORN_WORKERS="2") as running:
        running.wait_until_ready()
        yield running


def test_model_is_loaded_once_in_each_worker_and_no_server_is_started(stack: RunningStack) -> None:
    assert stack.log.count("model_fn was called") == 2
    assert "model name=model loaded by inference.py, without model servers" in stack.log
    assert "model-server" not in stack.log.replace("without model servers", "")
    assert "nursery" not in stack.log


@pytest.mark.parametrize(
    ("content_type", "body", "accept", "expected"),
    [
        ("application/json", "[[1, 1], [2, 2]]", "*/*", b"[[4.0, 6.0], [8.0, 12.0]]"),
        ("text/csv", "1,1\n2,2\n", "text/csv", b"4.0,6.0\n8.0,12.0\n"),
        ("application/jsonlines", "[1, 1]\n", "application/json", b"[[4.0, 6.0]]"),
    ],
)
def test_formats_of_the_toolkit_work(
    stack: RunningStack, content_type: str, body: str, accept: str, expected: bytes
) -> None:
    answer = stack.invoke(body, content_type, Accept=accept)

    assert (answer.status, answer.body) == (200, expected)


@pytest.mark.parametrize(
    ("content_type", "accept", "attributes", "status"),
    [
        ("image/png", "*/*", "", 415),
        ("text/csv", "image/png", "", 406),
        ("text/csv", "*/*", "tfs-model-name=other", 404),
        ("text/csv", "*/*", "tfs-method=delete", 400),
    ],
)
def test_what_cannot_be_served_is_refused_in_json(
    stack: RunningStack, content_type: str, accept: str, attributes: str, status: int
) -> None:
    answer = stack.invoke("1,1\n", content_type, Accept=accept, **{ATTRIBUTES: attributes})

    assert (status, "application/json") == (answer.status, answer.content_type)
    assert answer.json()["error"]


def test_functions_beside_a_saved_model_get_its_folder_and_reach_its_server(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    stack = start_stack(artifact_with_hooks(tmp_path, half_plus_two, NEXT_TO_A_MODEL))

    answer = stack.invoke('{"instances": [1.0]}')

    assert answer.json() == [[["code", "half_plus_two"], "half_plus_two"], [2.5]]


def refused(stack: RunningStack) -> str:
    """Return the log of a stack that has to end by itself with a status that is not 0."""
    assert stack.process.wait(45) == 1, stack.log
    return stack.log


@pytest.mark.parametrize(
    ("inference", "sentence", "tracebacks"),
    [
        (
            """
            def model_fn(model_dir):
                raise ValueError("the weights are torn")
            """,
            "model_fn failed: ValueError: the weights are torn",
            1,
        ),
        ("def model_fn(:", "inference.py cannot be imported: SyntaxError", 0),
        ("def handler(data, context): pass", "code/inference.py could serve without a SavedModel if", 0),
    ],
)
def test_start_that_cannot_succeed_ends_with_one_reason(
    start_stack: StartStack, tmp_path: Path, inference: str, sentence: str, tracebacks: int
) -> None:
    artifact = artifact_of_code(tmp_path / "artifact", inference)

    log = refused(start_stack(artifact, wait=False, SAGEMAKER_GUNICORN_WORKERS="2"))

    assert log.count(sentence) == 1
    assert tracebacks == log.count("Traceback")
    assert "/pierhead/" not in log


def test_ping_waits_for_the_model_however_long_it_takes_to_load(
    start_stack: StartStack, tmp_path: Path
) -> None:
    """The load goes on for longer than a worker may be silent in a request."""
    gate = tmp_path / "gate"
    inference = f"""
        import socket


        def model_fn(model_dir):
            print("loading")
            with socket.socket(socket.AF_UNIX) as gate:
                gate.connect({str(gate)!r})
                gate.recv(1)
            return None


        def predict_fn(data, model):
            return data
        """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(gate))
        listener.listen()
        listener.settimeout(30)
        stack = start_stack(
            artifact_of_code(tmp_path / "artifact", inference),
            wait=False,
            SAGEMAKER_GUNICORN_TIMEOUT_SECONDS="1",
        )
        worker, _ = listener.accept()
        listener.settimeout(2.5)
        with pytest.raises(TimeoutError):
            listener.accept()  # a worker in the first one's place
        assert stack.ping() != 200
        worker.sendall(b"o")
        worker.close()
        stack.wait_until_ready()

    assert stack.log.count("loading") == 1
    assert stack.invoke("[1]").body == b"[1]"
