"""The three inference methods as HTTP bodies ask for them: what a body says becomes a run.

The order of checks is TensorFlow Serving's (contract, section 1.4). For predict: the body parses, the model
is found, its signature is found, the tensors convert. For classify and regress the whole body converts before
the model is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pierhead.errors import Code, ServingError
from pierhead.formats.examples_json import parse_examples, render_classifications, render_regressions
from pierhead.formats.predict_json import Layout, PredictInputs
from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.classification import CLASSIFY
from pierhead.modelserver.dataplane import DEFAULT_SIGNATURE, DataPlane, ModelSpec
from pierhead.modelserver.example_methods import ExamplesMethod
from pierhead.modelserver.http_messages import Answer
from pierhead.modelserver.inference_route import Inference
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.regression import REGRESS

__all__ = ["Document", "HttpMethods"]

Result = TypeVar("Result")


class Document(Protocol):
    """A predict request's body that parses, before the model is known."""

    @property
    def signature_name(self) -> str:
        """The signature asked for; empty for the default one."""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the tensors for a signature's inputs; raise ServingError where they do not convert."""


class HttpMethods:
    """Understands bodies; every method raises ServingError with the contract's message."""

    def __init__(self, plane: DataPlane, codec: ProtobufCodec) -> None:
        self._plane = plane
        self._codec = codec

    def predict(
        self,
        spec: ModelSpec,
        body: bytes,
        parse: Callable[[bytes], Document],
        render: Callable[[Mapping[str, Array], Layout], Answer],
    ) -> Inference:
        """Return the predict run of a body in a format, whose answer is in another."""
        document = parse(body)
        servable = self._plane.find(spec)
        name = document.signature_name or DEFAULT_SIGNATURE
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            message = f'Serving signature name: "{name}" not found in signature def'
            raise ServingError(Code.INVALID_ARGUMENT, message)
        inputs = document.tensors(signature)
        call = self._plane.whole_call(servable, signature, inputs.arrays)
        return Inference(call, lambda outputs: render(outputs, inputs.layout))

    def examples(self, method: str, spec: ModelSpec, body: bytes) -> Inference:
        """Return the run of `classify` or `regress`, whatever the body's declared type: it is always JSON."""
        if method == "classify":
            return self._examples(CLASSIFY, spec, body, render_classifications)
        return self._examples(REGRESS, spec, body, render_regressions)

    def _examples(
        self,
        method: ExamplesMethod[Result],
        spec: ModelSpec,
        body: bytes,
        render: Callable[[Any], bytes],
    ) -> Inference:
        parsed = parse_examples(body)
        examples = self._codec.serialised(parsed)
        call = self._plane.examples_call(
            replace(spec, signature_name=parsed.signature_name), method, examples
        )
        return Inference(call, lambda outputs: Answer(200, render(method.read(outputs, len(examples)))))
