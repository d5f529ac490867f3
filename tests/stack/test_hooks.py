"""What hooks are promised, in the whole stack: their request, errors, modules, files and prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from running_stack import Answer, RunningStack, wait_for

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
# Names that modules of the stack have, or that a careless path would find elsewhere.
NAMES = (
    "app",
    "hooks",
    "service",
    "settings",
    "errors",
    "logs",
    "control",
    "container",
    "sagemaker",
    "utils",
    "model",
    "context",
)
INFERENCE = """
    import json
    import logging
    import urllib.request
    from pathlib import Path

    import flask
    import grpc

    from pierhead.hooks import HookError

    {imports}

    WHOSE = [{modules}]
    LABELS = open("labels.txt").read().split()
    log = logging.getLogger(__name__)
    print("printed at import")
    log.info("logged at import")


    def handler(data, context):
        return globals()["act_" + data.read().decode()](context)


    def act_context(context):
        named = {{name: str(getattr(context, name)) for name in context._fields[:11] if name != "channel"}}
        named["inference_id"] = context.request_headers["X-Amzn-SageMaker-Inference-Id"]
        return json.dumps(named), "application/json"


    def act_bare_context(context):
        return json.dumps([value is not None for value in context])


    def act_model(context):
        grpc.channel_ready_future(context.channel).result(timeout=10)
        request = urllib.request.Request(context.rest_uri, b'{{"instances": [1.0]}}')
        with urllib.request.urlopen(request, timeout=context.timeout) as answer:
            return answer.read(), "application/json"


    def act_modules(context):
        return json.dumps(WHOSE), "application/json"


    def act_files(context):
        beside = (Path(__file__).parent / "labels.txt").read_text().split()
        return json.dumps([LABELS, beside, open("labels.txt").read().split()]), "application/json"


    def act_speak(context):
        print("printed in a request")
        log.info("logged in a request")
        return b""


    def act_value_error(context):
        raise ValueError("bad field x")


    def act_non_ascii(context):
        raise ValueError("größer als π, 太大")


    def act_no_message(context):
        raise KeyError("tenant")


    def act_hook_error(context):
        raise HookError("not like this", status=422)


    def act_abort(context):
        flask.abort(409, "twice")


    def act_exit(context):
        raise SystemExit(3)


    def act_none(context):
        return None


    def act_bare(context):
        return "bare"


    def act_triple(context):
        return "a", "text/plain", 200


    def act_dict(context):
        return {{"a": 1}}


    def act_stream(context):
        yield "generators "
        yield b"stream"
    """


@pytest.fixture(scope="module")
def stack(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    imports = "\n    ".join(f"import {name}" for name in NAMES)
    modules = ", ".join(f"{name}.WHOSE" for name in NAMES)
    source = INFERENCE.format(imports=imports, modules=modules)
    folder = tmp_path_factory.mktemp("hooks")
    files = {f"{name}_py": f"WHOSE = 'mine: {name}'\n" for name in NAMES}
    artifact = artifact_with_hooks(folder, half_plus_two, source, labels_txt="cat dog\n", **files)
    with RunningStack(artifact, free_ports(9)) as running:
        running.wait_until_ready()
        yield running


def act(stack: RunningStack, name: str, **headers: str) -> Answer:
    return stack.invoke(name, "text/plain", **headers)


def test_request_reaches_the_handler_as_it_was_sent(stack: RunningStack) -> None:
    headers = {
        ATTRIBUTES: "threshold=0.7,tenant=a",
        "X-Amzn-SageMaker-Inference-Id": "abc",
        "Accept": "text/plain",
    }

    found = act(stack, "context", **headers).json()

    port = stack.ports[1]
    assert found["custom_attributes"] == "threshold=0.7,tenant=a"
    assert found["inference_id"] == "abc"
    assert (found["request_content_type"], found["accept_header"]) == ("text/plain", "text/plain")
    assert (found["model_name"], found["model_version"], found["method"]) == ("half_plus_two", "1", "predict")
    assert found["rest_uri"] == f"http://127.0.0.1:{port}/v1/models/half_plus_two:predict"
    assert found["grpc_port"] == str(stack.ports[0])
    assert found["content_length"] == str(len("context"))


def test_nothing_is_none_because_a_header_is_missing(stack: RunningStack) -> None:
    assert all(act(stack, "bare_context").json())


def test_addresses_in_the_context_can_be_used(stack: RunningStack) -> None:
    assert act(stack, "model").json() == {"predictions": [2.5]}


def test_modules_beside_the_hooks_may_have_any_name(stack: RunningStack) -> None:
    assert act(stack, "modules").json() == [f"mine: {name}" for name in NAMES]


def test_files_beside_the_hooks_are_found_by_relative_names(stack: RunningStack) -> None:
    assert act(stack, "files").json() == [["cat", "dog"]] * 3


@pytest.mark.parametrize(
    ("name", "status", "sentence"),
    [
        ("value_error", 500, "bad field x"),
        ("non_ascii", 500, "größer als π, 太大"),
        ("no_message", 500, "KeyError: 'tenant'"),
        ("hook_error", 422, "not like this"),
        ("abort", 409, "twice"),
        ("exit", 500, "SystemExit: 3"),
        ("none", 500, "handler returned None; wanted is (body, content_type), with a body of"),
        ("triple", 500, "handler returned a tuple of 3 values; wanted is (body, content_type), with"),
        ("dict", 500, "handler returned a value of type dict; wanted is (body, content_type), with"),
    ],
)
def test_failure_is_an_answer_and_the_next_request_works(
    stack: RunningStack, name: str, status: int, sentence: str
) -> None:
    answer = act(stack, name)

    assert (status, "application/json") == (answer.status, answer.content_type)
    assert answer.json()["error"].startswith(sentence)
    assert "/" not in answer.json()["error"]
    assert act(stack, "bare").body == b"bare"


def test_traceback_is_in_the_log_once_with_the_requests_id(stack: RunningStack) -> None:
    before = len(stack.log)

    act(stack, "value_error")

    wait_for(lambda: "POST /invocations 500" in stack.log[before:], 10, lambda: stack.log)
    written = stack.log[before:]
    (request_id,) = re.findall(r"nginx \[(\w+)\]: POST /invocations 500", written)
    assert written.count("Traceback") == 1
    assert f"[{request_id}]: inference.py failed: bad field x" in written
    assert "in act_value_error" in written
    assert "/pierhead/" not in written


def test_chosen_status_of_the_callers_fault_leaves_no_traceback(stack: RunningStack) -> None:
    before = len(stack.log)

    act(stack, "hook_error")

    wait_for(lambda: "POST /invocations 422" in stack.log[before:], 10, lambda: stack.log)
    assert "Traceback" not in stack.log[before:]


def test_bare_body_has_the_default_type(stack: RunningStack) -> None:
    answer = act(stack, "bare")

    assert (answer.status, answer.content_type, answer.body) == (200, "application/json", b"bare")


def test_generator_function_is_a_handler(stack: RunningStack) -> None:
    assert act(stack, "stream").body == b"generators stream"


def test_prints_and_logs_appear_once_and_at_once(stack: RunningStack) -> None:
    assert stack.log.count("printed at import") == 1
    assert stack.log.count("logged at import") == 1

    act(stack, "speak")

    wait_for(lambda: "logged in a request" in stack.log, 5, lambda: stack.log)
    assert stack.log.count("printed in a request") == 1
    assert stack.log.count("logged in a request") == 1
    lines = {line.split(": ", 1)[1]: line for line in stack.log.splitlines() if "in a request" in line}
    assert " INFO handler-workers" in lines["logged in a request"]
    assert " INFO handler-workers" in lines["printed in a request"]


def test_errors_stand_in_json_that_any_client_reads(stack: RunningStack) -> None:
    assert json.loads(act(stack, "non_ascii").body.decode("utf-8"))["error"] == "größer als π, 太大"
