"""Custom attributes choose model, version, label and method: one table, on both paths, with both servers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from field_stacks import ALL, DIRECT, HANDLER, STUB, FieldStack
from pierhead.serving_stubs import import_serving_stubs
from running_stack import Answer, RunningStack, StartStack
from stub_binary import RecordedRequest, StubBinary

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
LABELS = "only=1, b:stable=1,b:canary=2"
BODY = '{"instances": [1.0, 2.0, 5.0]}'
EXAMPLES = '{"examples": [{"x": 1.0}]}'
TELLING = """
    import json


    def input_handler(data, context):
        return data.read()


    def output_handler(response, context):
        if "tell=context" in context.custom_attributes:
            path = context.rest_uri.partition("/v1/models/")[2]
            return json.dumps([context.model_name, context.model_version, context.method, path])
        if response.status_code != 200:
            raise ValueError(response.text)
        return response.content, "application/json"
    """


def three_servables(folder: Path, half_plus_two: Path) -> Path:
    """Return an artifact with the models a/1, b/1 and b/2, all the same."""
    for place in ("a/1", "b/1", "b/2"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).symlink_to(half_plus_two / "half_plus_two" / "1")
    return folder


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def routed(
    request: pytest.FixtureRequest,
    half_plus_two: Path,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[FieldStack]:
    server, path = request.param
    folder = tmp_path_factory.mktemp("routed")
    (folder / "models").mkdir()
    artifact = three_servables(folder / "models", half_plus_two)
    if path == HANDLER:
        artifact = artifact_with_hooks(folder, artifact, TELLING)
    binary = StubBinary(folder / "stub") if server == STUB else None
    environ = {"PIERHEAD_VERSION_LABELS": LABELS} | (binary.environ() if binary else {})
    with RunningStack(artifact, free_ports(9), **environ) as stack:
        stack.wait_until_ready()
        yield FieldStack(stack, server, path, binary)


def ask(routed: FieldStack, attributes: str | None, body: str = BODY) -> tuple[Answer, str | None]:
    """Return the answer, and with the stub what it was asked for, else None."""
    if routed.stub is not None:
        routed.stub.forget()
    headers = {} if attributes is None else {ATTRIBUTES: attributes}
    answer = routed.invoke(body, **headers)
    seen = [servable(each) for each in routed.stub.predictions()] if routed.stub is not None else []
    assert len(seen) <= 1, seen
    return answer, seen[0] if seen else None


def servable(request: RecordedRequest) -> str:
    """Return what a request that reached the stub was for, whichever door it came to."""
    if request.door == "rest":
        return request.path.removeprefix("/v1/models/")
    assert request.body is not None
    spec = import_serving_stubs().predict.PredictRequest.FromString(request.body).model_spec
    version = f"/versions/{spec.version.value}" if spec.HasField("version") else ""
    label = f"/labels/{spec.version_label}" if spec.HasField("version_label") else ""
    return f"{spec.name}{version}{label}:predict"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (None, "a:predict"),
        ("", "a:predict"),
        ("tfs-model-name=b", "b:predict"),
        ("tfs-model-name=b,tfs-model-version=1", "b/versions/1:predict"),
        (" tfs-model-name = b ", "b:predict"),
        ("foo,=,a=b=c", "a:predict"),
        ("tfs-model-name=nope,tfs-model-name=b", "b:predict"),
        ("tfs-model-version=00001", "a/versions/1:predict"),
    ],
)
def test_a_prediction_goes_where_the_attributes_say(
    routed: FieldStack, attributes: str | None, expected: str
) -> None:
    answer, seen = ask(routed, attributes)

    assert answer.status == 200, answer.body
    assert answer.json() == {"predictions": [2.5, 3.0, 4.5]}
    if routed.stub is not None:
        assert seen is not None
        assert re.sub("/versions/0*", "/versions/", seen) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("tfs-model-version-label=only", "a/labels/only:predict"),
        ("tfs-model-name=b,tfs-model-version-label=canary", "b/labels/canary:predict"),
        ("tfs-model-version-label = stable , tfs-model-name=b", "b/labels/stable:predict"),
    ],
)
def test_a_label_stands_for_its_version(routed: FieldStack, attributes: str, expected: str) -> None:
    answer, seen = ask(routed, attributes)

    if routed.stub is None:
        assert answer.json() == {"predictions": [2.5, 3.0, 4.5]}
    else:
        assert expected == seen  # the stub knows no labels; what matters is what it was asked


@pytest.mark.parametrize("method", ["classify", "regress"])
def test_the_method_is_the_one_asked_for(routed: FieldStack, method: str) -> None:
    answer, seen = ask(routed, f"tfs-method={method}", EXAMPLES)

    assert answer.content_type == "application/json"
    if routed.stub is not None:
        assert f"a:{method}" == seen
        assert answer.status == 200


@pytest.mark.parametrize(
    ("attributes", "status", "reason"),
    [
        ("tfs-model-name=nope", 404, "Latest(nope)"),
        ("tfs-model-name=nope,tfs-model-version=3", 404, "Specific(nope, 3)"),
        ("tfs-model-version=7", 404, "Specific(a, 7)"),
        ("tfs-method=delete", 400, "tfs-method='delete'"),
        ("tfs-method=", 400, "tfs-method=''"),
        ("tfs-model-name=../x", 400, "tfs-model-name='../x'"),
        ("tfs-model-name=b,tfs-model-name=", 400, "tfs-model-name=''"),
        ("tfs-model-version=one", 400, "tfs-model-version='one'"),
        ("tfs-model-version=9223372036854775808", 400, "tfs-model-version="),
        ("tfs-model-version=" + "9" * 5000, 400, "tfs-model-version="),
        ("tfs-model-version=1,tfs-model-version-label=only", 400, "exclude each other"),
        ("tfs-model-version-label=a/b", 400, "tfs-model-version-label='a/b'"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_reason(
    routed: FieldStack, attributes: str, status: int, reason: str
) -> None:
    answer, _ = ask(routed, attributes)

    assert answer.status == status, answer.body
    assert answer.content_type == "application/json"
    assert reason in answer.json()["error"]


@pytest.mark.parametrize(
    "attributes", ["tfs-model-version-label=nope", "tfs-model-name=nope,tfs-model-version-label=only"]
)
def test_an_unknown_label_is_named(routed: FieldStack, attributes: str) -> None:
    answer, _ = ask(routed, attributes)

    if routed.stub is None or routed.path != DIRECT:
        assert answer.status == 400
        label = attributes.rpartition("=")[2]
        assert answer.json() == {"error": f"Unrecognized servable version label: {label}"}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", ["a", "1", "predict", "a:predict"]),
        ("tfs-model-name=b", ["b", "2", "predict", "b:predict"]),
        ("tfs-model-name=b,tfs-model-version=1", ["b", "1", "predict", "b/versions/1:predict"]),
        ("tfs-model-name=b,tfs-model-version-label=stable", ["b", "1", "predict", "b/labels/stable:predict"]),
    ],
)
def test_hooks_are_told_what_the_attributes_mean(
    routed: FieldStack, attributes: str, expected: list[str]
) -> None:
    if routed.path == DIRECT:
        pytest.skip("there are no hooks on the direct path")

    answer, _ = ask(routed, f"tell=context,{attributes}")

    assert expected == json.loads(answer.body)


def test_pings_need_no_attributes(routed: FieldStack) -> None:
    assert routed.request("GET", "/ping", headers={ATTRIBUTES: "tfs-method=delete"}).status == 200


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("stable=2", "PIERHEAD_VERSION_LABELS: 'stable=2': the model's versions are [1]"),
        ("zz:stable=1", "PIERHEAD_VERSION_LABELS: 'zz:stable=1': 'zz' is none of the artifact's models"),
        ("stable", "must be LABEL=VERSION or MODEL:LABEL=VERSION"),
        ("a=1,a=1", "must give each label of a model once"),
    ],
)
def test_labels_that_name_nothing_end_the_start(
    start_stack: StartStack, half_plus_two: Path, labels: str, reason: str
) -> None:
    stack = start_stack(half_plus_two, wait=False, PIERHEAD_VERSION_LABELS=labels)

    assert stack.process.wait(20) == 1, stack.log
    assert reason in stack.log
    assert "Traceback" not in stack.log
