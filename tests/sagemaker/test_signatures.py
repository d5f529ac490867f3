"""Metadata of the model server, as read for people and for example requests."""

from __future__ import annotations

from typing import Any

from pierhead_sagemaker.signatures import Signature, Tensor, fetch_signatures, parse_signatures


def tensor(dtype: str, *sizes: int, unknown_rank: bool = False) -> dict[str, Any]:
    dimensions = [{"size": str(size), "name": ""} for size in sizes]
    return {"dtype": dtype, "tensor_shape": {"dim": dimensions, "unknown_rank": unknown_rank}, "name": "x:0"}


def document(**signatures: dict[str, Any]) -> dict[str, Any]:
    return {"model_spec": {"name": "m"}, "metadata": {"signature_def": {"signature_def": signatures}}}


def test_signatures_are_read_with_dtypes_and_shapes() -> None:
    found = {
        "inputs": {"b": tensor("DT_FLOAT", -1, 3), "a": tensor("DT_INT64")},
        "outputs": {"y": tensor("DT_STRING", unknown_rank=True)},
    }

    expected = Signature(
        "serve", (Tensor("a", "int64", ()), Tensor("b", "float32", (-1, 3))), (Tensor("y", "string", None),)
    )
    assert (expected,) == parse_signatures(document(serve=found))
    assert str(expected) == "a int64 [], b float32 [?, 3] -> y string [...]"


def test_serving_default_comes_first_and_the_initialiser_is_left_out() -> None:
    found = document(a={}, serving_default={}, __saved_model_init_op={}, z={})

    assert [signature.name for signature in parse_signatures(found)] == ["serving_default", "a", "z"]


def test_no_model_server_is_no_failure(free_port: int) -> None:
    assert fetch_signatures(free_port, "m") is None
