"""MultiInference: several classify and regress signatures of one model on the same examples.

Checks and messages: TensorFlow Serving's contract, section 4. Each task is a run of its own here, where the
original fetches all outputs in one; the results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pierhead.errors import Code
from pierhead.modelserver.classification import CLASSIFY
from pierhead.modelserver.dataplane import DEFAULT_SIGNATURE, Call, DataPlane, ModelSpec
from pierhead.modelserver.example_methods import INPUTS, ExamplesMethod, refused
from pierhead.modelserver.registry import Servable
from pierhead.modelserver.regression import REGRESS

__all__ = ["Task", "task_calls"]

METHODS: dict[str, ExamplesMethod[Any]] = {method.method_name: method for method in (CLASSIFY, REGRESS)}


@dataclass(frozen=True)
class Task:
    """One signature to run, and by which method, under TensorFlow's name of it."""

    spec: ModelSpec
    method_name: str

    @property
    def signature_name(self) -> str:
        """The signature, the default one filled in."""
        return self.spec.signature_name or DEFAULT_SIGNATURE


def task_calls(
    plane: DataPlane, tasks: Sequence[Task], examples: Sequence[bytes]
) -> list[tuple[ExamplesMethod[Any], Call]]:
    """Return each task's method and run, all on one servable; raise ServingError by section 4."""
    first = tasks[0].spec if tasks else ModelSpec("")
    servable = plane.find(first)
    calls = list(_calls(plane, servable, tasks, examples))
    if len({servable.runtime.feeds[call.signature.name][INPUTS] for _, call in calls}) > 1:
        raise refused("Input tensor must be the same for all Signatures.")
    return calls


def _calls(
    plane: DataPlane, servable: Servable, tasks: Sequence[Task], examples: Sequence[bytes]
) -> Iterator[tuple[ExamplesMethod[Any], Call]]:
    seen: set[str] = set()
    for task in tasks:
        name = task.signature_name
        _check_spec(task.spec, servable)
        if name in seen:
            raise refused(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            raise refused(f"Requested signature not found in model graph: {name}")
        method = METHODS.get(task.method_name)
        if method is None:
            message = f"Unsupported signature method_name: {task.method_name}"
            raise refused(message, Code.UNIMPLEMENTED)
        yield method, plane.signature_call(servable, signature, method, examples)


def _check_spec(spec: ModelSpec, servable: Servable) -> None:
    if not spec.name:
        raise refused("Found ModelSpec with an empty model name.")
    if spec.name != servable.name:
        raise refused("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
