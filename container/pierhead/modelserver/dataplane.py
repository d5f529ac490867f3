"""What the server does for a request, on numpy arrays and plain types; the doors convert to and from it.

Messages are those of TensorFlow Serving's contract, sections 1.4 and 4.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.pace import size_class
from pierhead.modelserver.registry import Registry, Servable, VersionStatus
from pierhead.modelserver.runtimes.base import Runtime

__all__ = ["DEFAULT_SIGNATURE", "Call", "DataPlane", "Metadata", "ModelSpec", "Prediction"]

DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class ModelSpec:
    """Which model a request is for; without version and label it is for the latest version."""

    name: str
    version: int | None = None
    label: str | None = None
    signature_name: str = ""


@dataclass(frozen=True)
class Call:
    """A run that is about to happen: inputs and wanted outputs of one signature of a servable."""

    servable: Servable
    signature: Signature
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]

    @property
    def is_short(self) -> bool:
        """Whether runs like this one were short so far."""
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
    """The calls of both doors."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, spec: ModelSpec) -> Servable:
        """Return the servable that a spec names; raise ServingError where there is none."""
        if not spec.name:
            raise ServingError(Code.INVALID_ARGUMENT, "ModelSpec has no name specified.")
        if spec.label is not None:
            raise ServingError(Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {spec.label}")
        return self._registry.find(spec.name, spec.version)

    def predict_call(
        self, spec: ModelSpec, inputs: Mapping[str, Array], output_filter: Sequence[str] = ()
    ) -> Call:
        """Return the run that a gRPC predict request asks for; raise ServingError by section 4."""
        servable = self.find(spec)
        name = spec.signature_name or DEFAULT_SIGNATURE
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        complete = _complete_inputs(servable.runtime, signature, inputs)
        return Call(servable, signature, complete, _wanted_outputs(signature, output_filter))

    def run(self, call: Call, *, in_caller: bool = False, timeout_ms: int = 0) -> Prediction:
        """Run a call; raise ServingError with the operation's code and message."""
        servable = call.servable
        outputs = servable.runtime.run(
            call.signature.name, call.inputs, call.outputs, in_caller=in_caller, timeout_ms=timeout_ms
        )
        spec = ModelSpec(servable.name, servable.version, signature_name=call.signature.name)
        return Prediction(spec, outputs)

    def metadata(self, spec: ModelSpec) -> Metadata:
        """Return the signatures of a servable."""
        servable = self.find(spec)
        return Metadata(ModelSpec(servable.name, servable.version), servable.runtime.definitions)

    def status(self, spec: ModelSpec) -> tuple[VersionStatus, ...]:
        """Return the states of one or all versions, highest first; a label is ignored."""
        return self._registry.statuses(spec.name, spec.version)


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
