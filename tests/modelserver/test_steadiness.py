from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pierhead.modelserver.runtimes.steadiness import is_steady


def node(name: str, operation: str, *inputs: str, calls: str = "") -> Any:
    function = SimpleNamespace(name=calls)
    attribute = SimpleNamespace(func=function, list=SimpleNamespace(func=[function]))
    return SimpleNamespace(name=name, op=operation, input=inputs, attr={"f": attribute})


def graph(*nodes: Any, **functions: list[Any]) -> Any:
    library = [
        SimpleNamespace(signature=SimpleNamespace(name=name), node_def=body)
        for name, body in functions.items()
    ]
    return SimpleNamespace(node=nodes, library=SimpleNamespace(function=library))


@pytest.mark.parametrize(
    "operation", ["Range", "While", "DecodeJpeg", "StatefulUniformInt", "QueueDequeueV2"]
)
def test_operation_that_goes_by_values_is_unsteady(operation: str) -> None:
    assert not is_steady(graph(node("x", "Placeholder"), node("y", operation, "x")), ["y:0"])


def test_only_what_leads_to_the_outputs_counts() -> None:
    whole = graph(node("x", "Placeholder"), node("y", "Mul", "x:0", "^x"), node("z", "Range", "x"))

    assert is_steady(whole, ["y:0"])
    assert not is_steady(whole, ["y:0", "z:0"])


def test_functions_are_looked_into() -> None:
    call = node("y", "StatefulPartitionedCall", calls="f")

    assert is_steady(graph(call, f=[node("a", "Mul")]), ["y:0"])
    assert not is_steady(graph(call, f=[node("a", "If", calls="g")], g=[node("a", "While")]), ["y:0"])


def test_names_in_a_function_are_its_own() -> None:
    call, loop = node("y", "PartitionedCall", calls="f"), node("a", "While")

    assert is_steady(graph(call, loop, f=[node("b", "Mul", "a:output:0")]), ["y:0"])


def test_function_that_calls_itself_is_looked_into_once() -> None:
    assert is_steady(graph(node("y", "f"), f=[node("a", "f")]), ["y:0"])
