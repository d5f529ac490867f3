"""Handler workers of each class, seen from port 8080: many requests, model calls, recycling, stop."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks, model_for_the_stub
from running_stack import Answer, RunningStack, descendants, wait_for
from stub_binary import StubBinary

CLASSES = ("gevent", "gthread", "sync")
HOOKS = """
    import boto3
    import requests
    import threading
    import time
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    started = threading.Event()
    threading.Thread(target=started.set, daemon=True).start()
    threading.Thread(target=threading.Event().wait, name="endless").start()


    def handler(data, context):
        action, _, value = data.read().decode().partition(" ")
        return ACTIONS[action](value, context), "text/plain"


    def echo(value, context):
        return value


    def sleep(value, context):
        time.sleep(float(value))
        return "slept"


    def wait_for_file(value, context):
        print("waiting for", value, flush=True)
        while not Path(value).exists():
            time.sleep(0.01)
        return "seen"


    def work_in_threads(value, context):
        with ThreadPoolExecutor(4) as pool:
            return f"{sum(pool.map(int, range(10)))} {started.wait(5)}"


    def ask_model(value, context):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = context.model_name
        tensor = request.inputs["x"]
        tensor.dtype = 1
        tensor.tensor_shape.dim.add().size = int(value)
        tensor.tensor_content = bytes(4 * int(value))
        stub = prediction_service_pb2_grpc.PredictionServiceStub(context.channel)
        answer = stub.Predict(request, timeout=context.timeout)
        (output,) = answer.outputs.values()
        return str(len(output.tensor_content))


    ACTIONS = {
        "echo": echo,
        "sleep": sleep,
        "wait": wait_for_file,
        "threads": work_in_threads,
        "model": ask_model,
    }
    """
AT_A_TIME = {
    "gevent": {"SAGEMAKER_GUNICORN_WORKERS": "4"},
    "gthread": {"GUNICORN_CMD_ARGS": "--workers 2 --worker-class gthread --threads 6 --timeout 90"},
    "sync": {"SAGEMAKER_GUNICORN_WORKERS": "4", "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"},
}


@pytest.fixture(scope="module", params=CLASSES)
def worker_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stack(
    worker_class: str,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("workers")
    artifact = artifact_with_hooks(folder, model_for_the_stub(folder), HOOKS)
    environ = StubBinary(folder / "stub").environ(**AT_A_TIME[worker_class])
    with RunningStack(artifact, free_ports(9), **environ) as running:
        running.wait_until_ready()
        yield running


def invoke_all(stack: RunningStack, bodies: list[str]) -> list[Answer]:
    """Send all bodies at the same time."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(stack.invoke, bodies))


def test_500_small_posts_at_once(stack: RunningStack) -> None:
    answers = invoke_all(stack, [f"echo {number}" for number in range(500)])

    assert Counter({200: 500}) == Counter(answer.status for answer in answers)
    assert [str(number).encode() for number in range(500)] == [answer.body for answer in answers]
    assert "temporarily unavailable" not in stack.log
    assert "MonkeyPatchWarning" not in stack.log


def test_as_many_workers_run_as_are_asked_for(stack: RunningStack, worker_class: str) -> None:
    workers = 2 if worker_class == "gthread" else 4

    assert workers == len(list(descendants(stack.pid_of("handler-workers"))))


def test_six_sleepers_sleep_side_by_side(stack: RunningStack, worker_class: str) -> None:
    if worker_class == "sync":
        pytest.skip("its four workers take four requests at a time")
    begun = time.monotonic()

    answers = invoke_all(stack, ["sleep 1"] * 6)

    assert [200] * 6 == [answer.status for answer in answers]
    assert time.monotonic() - begun < 2.5


def test_hooks_use_threads(stack: RunningStack) -> None:
    assert b"45 True" == stack.invoke("threads").body


def test_hooks_call_the_model_over_grpc(stack: RunningStack) -> None:
    answers = invoke_all(stack, ["model 1000"] * 20)

    assert {(200, b"4000")} == {(answer.status, answer.body) for answer in answers}


def test_requests_in_flight_finish_at_the_stop(stack: RunningStack, tmp_path: Path) -> None:
    answers: list[int] = []
    body = f"wait {tmp_path / 'go'}"
    clients = [threading.Thread(target=lambda: answers.append(stack.invoke(body).status)) for _ in range(4)]
    for client in clients:
        client.start()
    wait_for(lambda: stack.log.count(f"waiting for {tmp_path}") == 4, 20, lambda: stack.log)
    begun = time.monotonic()

    stack.process.terminate()
    wait_for(lambda: "SIGTERM: stopping" in stack.log, 5, lambda: stack.log)
    (tmp_path / "go").touch()

    assert 0 == stack.process.wait(20)
    assert time.monotonic() - begun < 7
    for client in clients:
        client.join(10)
    assert [200] * 4 == answers
    assert "Traceback" not in stack.log


def test_large_answers_of_a_model_in_parallel(
    start_stack: Callable[..., RunningStack], half_plus_two: Path, tmp_path: Path
) -> None:
    stack = start_stack(
        artifact_with_hooks(tmp_path, half_plus_two, HOOKS), SAGEMAKER_GUNICORN_TIMEOUT_SECONDS="60"
    )

    answers = invoke_all(stack, ["model 2000000"] * 20)

    assert {(200, b"8000000")} == {(answer.status, answer.body) for answer in answers}


@pytest.mark.parametrize("worker_class", CLASSES)
def test_interrupt_in_a_hook_fails_its_request_alone(
    start_stack: Callable[..., RunningStack], tmp_path: Path, worker_class: str
) -> None:
    hooks = """
    def handler(data, context):
        if data.read() == b"interrupt":
            raise KeyboardInterrupt("by a hook")
        return "well"
    """
    folder = artifact_with_hooks(tmp_path, model_for_the_stub(tmp_path), hooks)
    environ = StubBinary(tmp_path / "stub").environ(SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class)
    stack = start_stack(folder, **environ)

    refused = stack.invoke("interrupt")

    assert (500, {"error": "by a hook"}) == (refused.status, refused.json())
    assert b"well" == stack.invoke("go on").body
    assert stack.log.count("Booting worker") == 1


@pytest.mark.parametrize("worker_class", CLASSES)
def test_recycling_loses_and_delays_nothing(
    start_stack: Callable[..., RunningStack], tmp_path: Path, worker_class: str
) -> None:
    hooks = """
    import time

    def handler(data, context):
        time.sleep(0.02)
        return data.read(), "text/plain"
    """
    stack = start_stack(
        artifact_with_hooks(tmp_path, model_for_the_stub(tmp_path), hooks),
        **StubBinary(tmp_path / "stub").environ(SAGEMAKER_GUNICORN_WORKER_CLASS=worker_class),
        GUNICORN_CMD_ARGS="--max-requests 10 --max-requests-jitter 5",
    )
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=30)
    statuses: Counter[int] = Counter()
    longest = 0.0

    for _ in range(200):
        begun = time.monotonic()
        connection.request("POST", "/invocations", b"x")
        response = connection.getresponse()
        assert b"x" == response.read()
        longest = max(longest, time.monotonic() - begun)
        statuses[response.status] += 1

    connection.close()
    assert Counter({200: 200}) == statuses
    assert longest < 2
    assert stack.log.count("it has had its number of requests") >= 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"GUNICORN_CMD_ARGS": "--bind :80"}, "--bind cannot be used here: nginx finds the workers"),
        ({"GUNICORN_CMD_ARGS": "--worker-class tornado"}, "must be gevent"),
        ({"SAGEMAKER_GUNICORN_WORKER_CLASS": "eventlet"}, "gevent stands in for eventlet"),
    ],
)
def test_what_the_workers_cannot_do_ends_the_start_with_advice(
    start_stack: Callable[..., RunningStack], tmp_path: Path, given: dict[str, str], sentence: str
) -> None:
    stack = start_stack(tmp_path, wait=False, **given)

    assert 1 == stack.process.wait(20)
    assert sentence in stack.log
    assert "Traceback" not in stack.log
