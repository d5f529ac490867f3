from __future__ import annotations

from pathlib import Path

import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Signature, TensorSpec
from pierhead.modelserver.dataplane import DataPlane, ModelSpec
from pierhead.modelserver.multi_inference import Task, task_calls
from pierhead.modelserver.registry import Registry, Retries

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
STRINGS, FLOATS = TensorSpec("DT_STRING", (-1,)), TensorSpec("DT_FLOAT", (-1,))
SIGNATURES = {
    "serving_default": Signature("serving_default", CLASSIFY, {"inputs": STRINGS}, {"scores": FLOATS}),
    "r": Signature("r", REGRESS, {"inputs": STRINGS}, {"outputs": FLOATS}),
    "elsewhere": Signature("elsewhere", REGRESS, {"inputs": STRINGS}, {"outputs": FLOATS}),
}
FEEDS = {"serving_default": {"inputs": "e:0"}, "r": {"inputs": "e:0"}, "elsewhere": {"inputs": "f:0"}}


@pytest.fixture
def plane() -> DataPlane:
    platform = FakePlatform()
    registry = Registry(platform, Retries())
    registry.load("m", 3, Path("/m/3"))
    platform.runtimes[0].signatures = dict(SIGNATURES)
    platform.runtimes[0].feeds = FEEDS
    return DataPlane(registry)


def test_each_task_is_a_run_of_its_signature(plane: DataPlane) -> None:
    tasks = [Task(ModelSpec("m"), CLASSIFY), Task(ModelSpec("m", signature_name="r"), REGRESS)]
    calls = task_calls(plane, tasks, [b"example"])

    assert [(call.api, call.signature.name, call.outputs) for _, call in calls] == [
        ("Classify", "serving_default", ("scores",)),
        ("Regress", "r", ("outputs",)),
    ]


@pytest.mark.parametrize(
    ("tasks", "code", "message"),
    [
        ([], Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        ([("", "", CLASSIFY)], Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        ([("n", "", CLASSIFY)], Code.NOT_FOUND, "Servable not found for request: Latest(n)"),
        (
            [("m", "", CLASSIFY), ("", "r", REGRESS)],
            Code.INVALID_ARGUMENT,
            "Found ModelSpec with an empty model name.",
        ),
        (
            [("m", "", CLASSIFY), ("n", "r", REGRESS)],
            Code.INVALID_ARGUMENT,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [("m", "", CLASSIFY), ("m", "serving_default", REGRESS)],
            Code.INVALID_ARGUMENT,
            "Duplicate evaluation of signature: serving_default",
        ),
        (
            [("m", "z", CLASSIFY)],
            Code.INVALID_ARGUMENT,
            "Requested signature not found in model graph: z",
        ),
        ([("m", "r", "x")], Code.UNIMPLEMENTED, "Unsupported signature method_name: x"),
        (
            [("m", "r", REGRESS), ("m", "elsewhere", REGRESS)],
            Code.INVALID_ARGUMENT,
            "Input tensor must be the same for all Signatures.",
        ),
    ],
)
def test_tasks_that_cannot_be_done_are_told(
    plane: DataPlane, tasks: list[tuple[str, str, str]], code: Code, message: str
) -> None:
    asked = [Task(ModelSpec(model, signature_name=name), method) for model, name, method in tasks]
    with pytest.raises(ServingError) as caught:
        task_calls(plane, asked, [b"example"])

    assert (caught.value.code, caught.value.message) == (code, message)


def test_no_example_is_refused(plane: DataPlane) -> None:
    with pytest.raises(ServingError, match=r"Input is empty\."):
        task_calls(plane, [Task(ModelSpec("m"), CLASSIFY)], [])
