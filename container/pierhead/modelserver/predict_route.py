"""One predict request over HTTP, from body to body, whatever the format.

The order of checks is TensorFlow Serving's (contract, section 1.4): the body parses, the model is found, its
signature is found, the tensors convert, the model runs, the outputs convert. Small bodies and short runs are
done at once; anything else becomes work for a thread.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pierhead.errors import Code, PierheadError, ServingError
from pierhead.formats.predict_json import Layout, PredictInputs
from pierhead.formats.tensors import Array, Signature
from pierhead.modelserver.dataplane import DEFAULT_SIGNATURE, Call, DataPlane, ModelSpec
from pierhead.modelserver.http_messages import Answer, Request, Work

__all__ = ["Document", "Exchange", "PredictRoute"]

SMALL_BODY = 1 << 16
LARGEST_INFLATED = 100 << 20
GZIP_WINDOW = 31


class Document(Protocol):
    """A request's body that parses, before the model is known."""

    @property
    def signature_name(self) -> str:
        """The signature asked for; empty for the default one."""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the tensors for a signature's inputs; raise ServingError where they do not convert."""


@dataclass(frozen=True)
class Exchange:
    """How a body becomes a document, how outputs become an answer, and how a refusal becomes one."""

    parse: Callable[[bytes], Document]
    render: Callable[[Mapping[str, Array], Layout], Answer]
    refuse: Callable[[PierheadError], Answer]


@dataclass(frozen=True)
class PredictRoute:
    """Answers predict requests; `timeout_ms` bounds the run, 0 does not."""

    plane: DataPlane
    timeout_ms: int = 0

    def answer(self, spec: ModelSpec, request: Request, exchange: Exchange) -> Answer | Work:
        """Return the answer, or the work that makes it."""
        if _is_gzipped(request) or len(request.body) > SMALL_BODY:
            return partial(self._answer_large, spec, request, exchange)
        try:
            call, layout = self._call(spec, request.body, exchange)
        except PierheadError as refusal:
            return exchange.refuse(refusal)
        if call.is_short:
            return self._run(call, layout, exchange, in_caller=True)
        return partial(self._run, call, layout, exchange)

    def _answer_large(self, spec: ModelSpec, request: Request, exchange: Exchange) -> Answer:
        body = _inflated(request.body) if _is_gzipped(request) else request.body
        try:
            call, layout = self._call(spec, body, exchange)
        except PierheadError as refusal:
            return exchange.refuse(refusal)
        return self._run(call, layout, exchange)

    def _call(self, spec: ModelSpec, body: bytes, exchange: Exchange) -> tuple[Call, Layout]:
        document = exchange.parse(body)
        servable = self.plane.find(spec)
        name = document.signature_name or DEFAULT_SIGNATURE
        signature = servable.runtime.signatures.get(name)
        if signature is None:
            message = f'Serving signature name: "{name}" not found in signature def'
            raise ServingError(Code.INVALID_ARGUMENT, message)
        inputs = document.tensors(signature)
        return Call(servable, signature, inputs.arrays, tuple(signature.outputs)), inputs.layout

    def _run(self, call: Call, layout: Layout, exchange: Exchange, *, in_caller: bool = False) -> Answer:
        try:
            with call.measured():
                prediction = self.plane.run(call, in_caller=in_caller, timeout_ms=self.timeout_ms)
                return exchange.render(prediction.outputs, layout)
        except PierheadError as refusal:
            return exchange.refuse(refusal)


def _is_gzipped(request: Request) -> bool:
    return "gzip" in request.headers.get("content-encoding", "")


def _inflated(body: bytes) -> bytes:
    """Return a gzip body inflated; empty where it is no gzip, or too large (contract, section 1.1)."""
    inflater = zlib.decompressobj(GZIP_WINDOW)
    try:
        inflated = inflater.decompress(body, LARGEST_INFLATED)
    except zlib.error:
        return b""
    return inflated if inflater.eof else b""
