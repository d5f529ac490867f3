from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.classification import CLASSIFY
from pierhead.modelserver.dataplane import DataPlane, ModelSpec
from pierhead.modelserver.example_methods import ExamplesMethod
from pierhead.modelserver.registry import Registry, Retries, State
from pierhead.modelserver.regression import REGRESS

X = np.array([1, 2, 5], np.float32)
PAIR = ModelSpec("m", signature_name="pair")


def make_plane(defaults: Mapping[str, Mapping[str, Array]] | None = None) -> DataPlane:
    registry = Registry(FakePlatform(defaults=defaults), Retries())
    registry.load("m", 3, Path("/m/3"))
    return DataPlane(registry)


def refusal(spec: ModelSpec, inputs: Mapping[str, Array], *output_filter: str) -> tuple[Code, str]:
    with pytest.raises(ServingError) as caught:
        make_plane().predict_call(spec, inputs, output_filter)
    return caught.value.code, caught.value.message


def test_prediction_tells_the_effective_spec() -> None:
    plane = make_plane()
    prediction = plane.run(plane.predict_call(ModelSpec("m"), {"x": X}))

    assert ModelSpec("m", 3, signature_name="serving_default") == prediction.spec
    assert prediction.outputs["y"].tolist() == [2.5, 3.0, 4.5]


def test_output_filter_chooses_outputs() -> None:
    plane = make_plane()

    assert {"sum"} == set(plane.run(plane.predict_call(PAIR, {"a": X, "b": X}, ["sum"])).outputs)
    assert {"sum", "difference"} == set(plane.run(plane.predict_call(PAIR, {"a": X, "b": X})).outputs)


def test_missing_input_takes_its_default() -> None:
    plane = make_plane({"pair": {"b": X}})
    prediction = plane.run(plane.predict_call(PAIR, {"a": X}))

    assert prediction.outputs["difference"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ModelSpec(""), "ModelSpec has no name specified."),
        (ModelSpec("m", label="l"), "Unrecognized servable version label: l"),
        (ModelSpec("n", label="l"), "Unrecognized servable version label: l"),
    ],
)
def test_spec_that_names_nothing_is_invalid(spec: ModelSpec, message: str) -> None:
    assert (Code.INVALID_ARGUMENT, message) == refusal(spec, {"x": X})


def test_unknown_signature_is_a_failed_precondition() -> None:
    expected = Code.FAILED_PRECONDITION, 'Serving signature key "z" not found.'

    assert expected == refusal(ModelSpec("m", signature_name="z"), {"x": X})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"a": X},
            "input size does not match signature: 1!=2 len({a}) != len({a,b}). Sent extra: {}. "
            "Missing but required: {b}.",
        ),
        (
            {"a": X, "b": X, "z": X},
            "input size does not match signature: 3!=2 len({a,b,z}) != len({a,b}). Sent extra: {z}. "
            "Missing but required: {}.",
        ),
        (
            {"a": X, "z": X},
            "Signature input alias: b(feed name: b:0) not found in request and no default value provided. "
            "Inputs expected to be in the request {a,z}, or default input alias set: ",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_told(inputs: dict[str, Array], message: str) -> None:
    assert (Code.INVALID_ARGUMENT, message) == refusal(PAIR, inputs)


def test_unknown_input_beside_a_default_is_told() -> None:
    with pytest.raises(ServingError, match="Used request inputs: a, request input: a,z"):
        make_plane({"pair": {"b": X}}).predict_call(PAIR, {"a": X, "z": X})


def test_bad_output_filter_is_told() -> None:
    unknown = (
        "output tensor alias not found in signature: z Outputs expected to be in the set {difference,sum}."
    )

    assert (Code.INVALID_ARGUMENT, unknown) == refusal(PAIR, {"a": X, "b": X}, "z")
    assert refusal(PAIR, {"a": X, "b": X}, "sum", "sum")[1] == "duplicate output tensor alias: sum"


def test_label_stands_for_a_version() -> None:
    registry = Registry(FakePlatform(), Retries())
    for version in (3, 4):
        registry.load("m", version, Path(f"/m/{version}"))
    registry.replace_labels({"m": {"stable": 3}})
    plane = DataPlane(registry)

    assert plane.find(ModelSpec("m")).version == 4
    assert plane.find(ModelSpec("m", label="stable")).version == 3


def test_method_name_is_checked_on_demand() -> None:
    registry = Registry(FakePlatform(), Retries())
    registry.load("m", 3, Path("/m/3"))
    plane = DataPlane(registry, checks_method_names=True)

    assert plane.predict_call(ModelSpec("m"), {"x": X})
    with pytest.raises(ServingError) as caught:
        plane.predict_call(PAIR, {"a": X, "b": X})
    assert (caught.value.code, caught.value.message) == (
        Code.INTERNAL,
        "Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
        "tensorflow/serving/classify, tensorflow/serving/regress}. Was: ",
    )


@pytest.mark.parametrize("method", [CLASSIFY, REGRESS])
def test_examples_go_to_a_known_signature_that_suits(method: ExamplesMethod[Any]) -> None:
    plane = make_plane()
    with pytest.raises(ServingError, match="No signature was found with the name: z"):
        plane.examples_call(ModelSpec("m", signature_name="z"), method, [b"example"])
    with pytest.raises(ServingError, match=f"No {method.noun} inputs found in SignatureDef: "):
        plane.examples_call(ModelSpec("m"), method, [b"example"])


def test_status_ignores_a_label() -> None:
    (status,) = make_plane().status(ModelSpec("m", label="nobody"))

    assert (status.version, status.state) == (3, State.AVAILABLE)


def test_measured_call_becomes_short() -> None:
    plane = make_plane()
    call = plane.predict_call(ModelSpec("m"), {"x": X})
    assert not call.is_short

    with call.measured():
        plane.run(call)

    assert call.is_short
