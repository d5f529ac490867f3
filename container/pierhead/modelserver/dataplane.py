"""What the server does for a request, on numpy arrays and plain types; the doors convert to and from it.

Messages are those of TensorFlow Serving's contract, sections 1.4 and 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import DEFAULT_SIGNATURE, Array, Signature
from pierhead.modelserver.example_methods import INPUTS, ExamplesMethod
from pierhead.modelserver.metrics import Metrics
from pierhead.modelserver.pace import size_class
from pierhead.modelserver.registry import Registry, Servable, VersionStatus
from pierhead.modelserver.runtimes.base import DeferringRuntime, Runtime
from pierhead.modelserver.waiter import Waiter

__all__ = ["DEFAULT_SIGNATURE", "PREDICT", "Call", "DataPlane", "Metadata", "ModelSpec", "Prediction"]

PREDICT = "Predict"
# TensorFlow Serving's name of the way in which a Session runs, a label of its metrics.
RUNTIME = "TF1"
PREDICT_METHODS = tuple(f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


@dataclass(frozen=True)
class ModelSpec:
    """Which model a request is for; without version and label it is for the latest version."""

    name: str
    version: int | None = None
    label: str | None = None
    signature_name: str = ""


@dataclass(frozen=True)
class Call:
    """A run that is about to happen: inputs and wanted outputs of one signature of a servable.

    `api` is the method that asks for it, by gRPC's name.
    """

    servable: Servable
    signature: Signature
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    api: str = PREDICT

    @property
    def is_short(self) -> bool:
        """Whether this run is going to be short: such ones were so far, and its values cannot change that."""
        if self.signature.name not in self.servable.runtime.steady:
            return False
        return self.servable.pace.is_short(size_class(self.signature.name, self.inputs))

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Let the time spent inside move the figure that `is_short` reads."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.servable.pace.record(size_class(self.signature.name, self.inputs), seconds)


@dataclass(frozen=True)
class Prediction:
    """The outputs of a run by name, and the spec that was effective: version and signature filled in."""

    spec: ModelSpec
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Metadata:
    """A version's signatures, as serialised SignatureDef messages."""

    spec: ModelSpec
    definitions: Mapping[str, bytes] = field(default_factory=dict)


class DataPlane:
    """The calls of both doors.

    `checks_method_names` keeps a method to signatures that were made for it; `metrics` are told of runs.
    """

    def __init__(
        self, registry: Registry, *, checks_method_names: bool = False, metrics: Metrics | None = None
    ) -> None:
        self._registry = registry
        self._checks_method_names = checks_method_names
        self.metrics = metrics

    def find(self, spec: ModelSpec) -> Servable:
        """Return the servable that a spec names; raise ServingError where there is none."""
        if not spec.name:
            raise ServingError(Code.INVALID_ARGUMENT, "ModelSpec has no name specified.")
        return self._registry.find(spec.name, spec.version, spec.label)

    def check_known(self, spec: ModelSpec) -> None:
        """Raise ServingError for an unknown model or label; an unknown version is found out by `find`."""
        try:
            self.find(spec)
        except ServingError as refusal:
            is_served = bool(self._registry.available_versions(spec.name))
            if refusal.code is not Code.NOT_FOUND or not is_served:
                raise

    def predict_call(
        self, spec: ModelSpec, inputs: Mapping[str, Array], output_filter: Sequence[str] = ()
    ) -> Call:
        """Return the run that a gRPC predict request asks for; raise ServingError by section 4."""
        servable = self.find(spec)
        name = spec.signature_name or DEFAULT_SIGNATURE
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        self._check_predict_method(signature)
        complete = _complete_inputs(servable.runtime, signature, inputs)
        return Call(servable, signature, complete, _wanted_outputs(signature, output_filter))

    def whole_call(self, servable: Servable, signature: Signature, inputs: Mapping[str, Array]) -> Call:
        """Return the predict run where every input is there and every output wanted, as in REST requests."""
        self._check_predict_method(signature)
        return Call(servable, signature, inputs, tuple(signature.outputs))

    def examples_call(self, spec: ModelSpec, method: ExamplesMethod[Any], examples: Sequence[bytes]) -> Call:
        """Return the run of a method on serialised tf.Examples; raise ServingError by section 4."""
        servable = self.find(spec)
        name = spec.signature_name or DEFAULT_SIGNATURE
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            raise ServingError(Code.INVALID_ARGUMENT, f"No signature was found with the name: {name}")
        return self.signature_call(servable, signature, method, examples)

    def signature_call(
        self,
        servable: Servable,
        signature: Signature,
        method: ExamplesMethod[Any],
        examples: Sequence[bytes],
    ) -> Call:
        """Return the run of a method on a signature; raise ServingError where they do not suit."""
        if self._checks_method_names:
            method.check_method_name(signature)
        outputs = method.outputs(signature)
        if not examples:
            raise ServingError(Code.INVALID_ARGUMENT, "Input is empty.")
        return Call(servable, signature, {INPUTS: np.array(examples, object)}, outputs, method.api)

    def run(self, call: Call, *, in_caller: bool = False, timeout_ms: int = 0) -> Prediction:
        """Run a call; raise ServingError with the operation's code and message."""
        start = time.perf_counter()
        outputs = call.servable.runtime.run(
            call.signature.name, call.inputs, call.outputs, in_caller=in_caller, timeout_ms=timeout_ms
        )
        return self._prediction(call, outputs, start)

    def begin(
        self, call: Call, runtime: DeferringRuntime, waiter: Waiter, *, timeout_ms: int = 0
    ) -> Callable[[], Prediction]:
        """Begin a run, and return what returns or raises its outcome once the waiter is told."""
        start = time.perf_counter()
        outputs = runtime.begin(
            call.signature.name, call.inputs, call.outputs, waiter=waiter, timeout_ms=timeout_ms
        )
        return lambda: self._prediction(call, outputs(), start)

    def metadata(self, spec: ModelSpec) -> Metadata:
        """Return the signatures of a servable."""
        servable = self.find(spec)
        return Metadata(ModelSpec(servable.name, servable.version), servable.runtime.definitions)

    def status(self, spec: ModelSpec) -> tuple[VersionStatus, ...]:
        """Return the states of one or all versions, highest first; a label is ignored."""
        return self._registry.statuses(spec.name, spec.version)

    def _prediction(self, call: Call, outputs: Mapping[str, Array], start: float) -> Prediction:
        servable = call.servable
        if self.metrics:
            microseconds = (time.perf_counter() - start) * 1e6
            self.metrics.runtime_latency.record(microseconds, servable.name, call.api, RUNTIME)
        spec = ModelSpec(servable.name, servable.version, signature_name=call.signature.name)
        return Prediction(spec, outputs)

    def _check_predict_method(self, signature: Signature) -> None:
        if self._checks_method_names and signature.method_name not in PREDICT_METHODS:
            methods = ", ".join(PREDICT_METHODS)
            raise ServingError(
                Code.INTERNAL,
                f"Expected prediction signature method_name to be one of {{{methods}}}. "
                f"Was: {signature.method_name}",
            )


def _complete_inputs(runtime: Runtime, signature: Signature, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs with defaults filled in; raise ServingError where names or number do not fit."""
    defaults = runtime.defaults.get(signature.name, {})
    sent, declared = set(inputs), set(signature.inputs)
    if len(sent) > len(declared) or (len(sent) < len(declared) and not defaults):
        raise ServingError(Code.INVALID_ARGUMENT, _size_mismatch(sent, declared))
    for alias in sorted(declared - sent - set(defaults)):
        feed = runtime.feeds[signature.name][alias]
        raise ServingError(
            Code.INVALID_ARGUMENT,
            f"Signature input alias: {alias}(feed name: {feed}) not found in request and no default value "
            f"provided. Inputs expected to be in the request {{{_names(sent)}}}, or default input alias set: "
            f"{_names(set(defaults))}",
        )
    if sent - declared:
        used = _names(sent & declared)
        message = f"Inputs contains invalid name. Used request inputs: {used}, request input: {_names(sent)}"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    return {alias: inputs[alias] if alias in inputs else defaults[alias] for alias in signature.inputs}


def _size_mismatch(sent: set[str], declared: set[str]) -> str:
    return (
        f"input size does not match signature: {len(sent)}!={len(declared)} "
        f"len({{{_names(sent)}}}) != len({{{_names(declared)}}}). "
        f"Sent extra: {{{_names(sent - declared)}}}. Missing but required: {{{_names(declared - sent)}}}."
    )


def _wanted_outputs(signature: Signature, output_filter: Sequence[str]) -> tuple[str, ...]:
    """Return the outputs that a filter leaves, all without one."""
    for place, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            message = (
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {{{_names(set(signature.outputs))}}}."
            )
            raise ServingError(Code.INVALID_ARGUMENT, message)
        if alias in output_filter[:place]:
            raise ServingError(Code.INVALID_ARGUMENT, f"duplicate output tensor alias: {alias}")
    return tuple(sorted(output_filter)) or tuple(signature.outputs)


def _names(names: set[str]) -> str:
    return ",".join(sorted(names))
