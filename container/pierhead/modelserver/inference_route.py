"""One inference request over HTTP, from body to body, whatever the method and the format.

Small bodies and short runs are done at once, and runs that wait for others wait without a thread; anything
else becomes work for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pierhead.errors import PierheadError
from pierhead.formats.encodings import GZIP, decoded
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import Call, DataPlane, Prediction
from pierhead.modelserver.exhaustion import REFUSALS, refusal_of
from pierhead.modelserver.http_messages import Answer, AwaitedWork, Request, Work
from pierhead.modelserver.runtimes.base import DeferringRuntime
from pierhead.modelserver.waiter import Waiter

__all__ = ["CONTENT_ENCODING", "Exchange", "Inference", "InferenceRoute", "inflated"]

# A broken body costs up to half a microsecond for each byte until it is refused.
SMALL_BODY = 1 << 14
# And up to 10 microseconds for each bracket.
FEW_BRACKETS = 1000
# Rendering more takes longer than handing it to a thread.
FEW_VALUES = 1 << 12
LARGEST_INFLATED = 100 << 20
CONTENT_ENCODING = "content-encoding"


@dataclass(frozen=True)
class Inference:
    """A request that was understood: the run that it asks for, and what makes the answer of the outputs."""

    call: Call
    render: Callable[[Mapping[str, Array]], Answer]


@dataclass(frozen=True)
class Exchange:
    """How a body is understood, and how a refusal becomes an answer; both raise or take PierheadError.

    `decode` undoes the Content-Encoding of a request that has one. A body that grows in the reading is
    `large` whatever its size.
    """

    understand: Callable[[bytes], Inference]
    refuse: Callable[[PierheadError], Answer]
    decode: Callable[[Request], bytes]
    large: bool = False


@dataclass(frozen=True)
class InferenceRoute:
    """Answers inference requests; `timeout_ms` bounds the run, 0 does not."""

    plane: DataPlane
    timeout_ms: int = 0

    def answer(self, request: Request, exchange: Exchange) -> Answer | Work:
        """Return the answer, or the work that makes it."""
        if exchange.large or CONTENT_ENCODING in request.headers or not _is_small(request.body):
            return partial(self._answer_large, request, exchange)
        try:
            inference = exchange.understand(request.body)
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))
        if inference.call.is_short:
            return self._run(inference, exchange, in_caller=True)
        return self._awaited(inference, exchange) or partial(self._run, inference, exchange)

    def _answer_large(self, request: Request, exchange: Exchange) -> Answer | AwaitedWork:
        try:
            inference = exchange.understand(exchange.decode(request))
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))
        return self._awaited(inference, exchange) or self._run(inference, exchange)

    def _awaited(self, inference: Inference, exchange: Exchange) -> AwaitedWork | None:
        runtime = inference.call.servable.runtime
        if not isinstance(runtime, DeferringRuntime):
            return None
        return AwaitedWork(partial(self._begin, inference, exchange, runtime))

    def _begin(
        self, inference: Inference, exchange: Exchange, runtime: DeferringRuntime, waiter: Waiter
    ) -> Answer | Callable[[], Answer | Work]:
        try:
            outcome = self.plane.begin(inference.call, runtime, waiter, timeout_ms=self.timeout_ms)
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))
        return partial(self._end, inference, exchange, outcome)

    def _end(
        self, inference: Inference, exchange: Exchange, outcome: Callable[[], Prediction]
    ) -> Answer | Work:
        """Return the answer, or the work that makes it where outputs are many."""
        try:
            outputs = outcome().outputs
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))
        render = partial(self._rendered, inference, exchange, outputs)
        is_small = all(array.size <= FEW_VALUES for array in outputs.values())
        return render() if is_small else render

    def _rendered(self, inference: Inference, exchange: Exchange, outputs: Mapping[str, Array]) -> Answer:
        try:
            return inference.render(outputs)
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))

    def _run(self, inference: Inference, exchange: Exchange, *, in_caller: bool = False) -> Answer:
        call = inference.call
        try:
            with call.measured():
                prediction = self.plane.run(call, in_caller=in_caller, timeout_ms=self.timeout_ms)
                return inference.render(prediction.outputs)
        except REFUSALS as problem:
            return exchange.refuse(refusal_of(problem))


def _is_small(body: bytes) -> bool:
    return len(body) <= SMALL_BODY and body.count(b"[") + body.count(b"{") <= FEW_BRACKETS


def inflated(request: Request) -> bytes:
    """Return a gzip body inflated; empty where it is no gzip, or too large (contract, section 1.1)."""
    if "gzip" not in request.headers.get(CONTENT_ENCODING, ""):
        return request.body
    try:
        return decoded(request.body, GZIP, LARGEST_INFLATED)
    except PierheadError:
        return b""
