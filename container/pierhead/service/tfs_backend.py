"""Model servers that speak TensorFlow Serving's gRPC.

Requests take the servers in turn; only a call that no server has seen, because the connection was refused,
goes to another one. Signatures are asked for once for each model and version, and again when the version that
answers has moved or a call was refused. A server that tells none is asked again after a while, and serves by
its REST API meanwhile. Source: TensorFlow Serving's contract, section 4.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import grpc

from pierhead.contract.headers import REQUEST_ID
from pierhead.contract.status import HTTP_STATUS, MULTI_MODEL_STATUS
from pierhead.control import ModelPlan, ServerAddress
from pierhead.errors import Code, ModelServerAway, ServingError
from pierhead.formats.tensors import DEFAULT_SIGNATURE, Array, Signature, TensorSpec
from pierhead.logs import current_request_id
from pierhead.service.backend import Prediction, RestAnswer
from pierhead.service.call import Call, Servable
from pierhead.service.channel import LazyChannel, open_channel
from pierhead.service.rest_forward import forward
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import DTYPE_NAMES, read_tensor, write_tensor

__all__ = ["TfsBackend"]

SIGNATURES = "signature_def"
METADATA_KEY = REQUEST_ID.lower()
REFUSED = "failed to connect"
METADATA_SECONDS = 5.0
RECONNECT_SECONDS = 2.0
RETRY_SECONDS = 0.05
NO_SIGNATURES_SECONDS = 10.0
# What grpcio says where the connection failed, and not the model server refused; it may hold addresses.
BROKEN = re.compile(
    rf"{REFUSED}|ipv[46]:|socket closed|recvmsg|sendmsg|connection reset|broken pipe|goaway|endpoint", re.I
)
log = logging.getLogger(__name__)


class Refused(Exception):
    """No server took the connection."""


@dataclass(frozen=True)
class ServedModel:
    """The version that answered, and its signatures by name."""

    version: int
    signatures: Mapping[str, Signature]


class TfsBackend:
    """A `Backend` over gRPC; each server has one channel for us and one, opened if used, for the hooks."""

    def __init__(
        self,
        stubs: ServingStubs,
        servers: Sequence[ServerAddress],
        models: Sequence[ModelPlan],
        *,
        multi_model: bool = False,
    ) -> None:
        self._stubs = stubs
        self._statuses = MULTI_MODEL_STATUS if multi_model else HTTP_STATUS
        self._turns = cycle(servers)
        self._services = {
            server: stubs.PredictionServiceStub(open_channel(server.grpc_port)) for server in servers
        }
        self._channels = {server: LazyChannel(_opener(server.grpc_port)) for server in servers}
        self._newest = {model.name: model.versions[-1] for model in models if model.versions}
        self._served: dict[Servable, ServedModel] = {}
        self._silent_until: dict[str, float] = {}

    def next_server(self) -> ServerAddress:
        """Return the server whose turn it is."""
        return next(self._turns)

    def served_version(self, model: str, version: int | None) -> int | None:
        """Return the version asked for, else the newest known."""
        return self._newest.get(model) if version is None else version

    def channel(self, server: ServerAddress) -> grpc.Channel:
        """Return the channel of the hooks, which is none of ours."""
        return self._channels[server]

    def tells_signatures(self, call: Call) -> bool:
        """Return whether the model's signatures can be had.

        False where GetModelMetadata fails for another reason than that the model, its version or its label
        is unknown, which `signature` tells.
        """
        if call.servable in self._served:
            return True
        if time.monotonic() < self._silent_until.get(call.model, 0.0):
            return False
        try:
            self._ask_signatures(call)
        except ServingError as problem:
            return self._note_silence(call, problem)
        return True

    def _note_silence(self, call: Call, problem: ServingError) -> bool:
        """Return whether the model is unknown; else remember that there are no signatures."""
        if problem.code is Code.NOT_FOUND or (call.label and problem.code is Code.INVALID_ARGUMENT):
            return True
        # A server that is away is soon back, and has signatures then.
        if problem.code is not Code.UNAVAILABLE:
            log.info("no signatures: model=%s %s: %s", call.model, problem.code.name, problem.message)
            self._silent_until[call.model] = time.monotonic() + NO_SIGNATURES_SECONDS
        return False

    def forward(self, call: Call, body: bytes) -> RestAnswer:
        """Return the REST answer of the call's server, or of another where its connection is refused.

        A want of memory has the status that it has everywhere here.
        """
        answer = forward(body, call, self._others(call))
        if answer.status != HTTP_STATUS[Code.RESOURCE_EXHAUSTED]:
            return answer
        return replace(answer, status=self._statuses[Code.RESOURCE_EXHAUSTED])

    def signature(self, call: Call, name: str) -> Signature:
        """Return a signature; raise ServingError as the model server's REST API does."""
        wanted = name or DEFAULT_SIGNATURE
        served = self._served.get(call.servable)
        if served is None or wanted not in served.signatures:
            served = self._ask_signatures(call)
        if wanted not in served.signatures:
            raise ServingError(
                Code.INVALID_ARGUMENT, f'Serving signature name: "{name}" not found in signature def'
            )
        return served.signatures[wanted]

    def predict(self, call: Call, signature_name: str, inputs: Mapping[str, Array]) -> Prediction:
        """Run the model and return all of its outputs."""
        request = self._stubs.predict.PredictRequest()
        _write_spec(request.model_spec, call)
        request.model_spec.signature_name = signature_name
        for name, array in inputs.items():
            write_tensor(array, request.inputs[name])
        try:
            answer = self._ask(call, "Predict", request)
        except ServingError:
            # The refusal may come of a signature that is no longer the served version's.
            self._served.pop(call.servable, None)
            raise
        # Before the outputs are made, which may be as large.
        del request
        version = answer.model_spec.version.value
        self._note_version(call, version)
        outputs = {name: read_tensor(proto, name) for name, proto in answer.outputs.items()}
        return Prediction(outputs, version)

    def _ask_signatures(self, call: Call) -> ServedModel:
        request = self._stubs.get_model_metadata.GetModelMetadataRequest(metadata_field=[SIGNATURES])
        _write_spec(request.model_spec, call)
        short = replace(call, timeout=min(call.timeout, METADATA_SECONDS))
        answer = self._ask(short, "GetModelMetadata", request)
        definitions = self._stubs.get_model_metadata.SignatureDefMap()
        answer.metadata[SIGNATURES].Unpack(definitions)
        signatures = {
            name: _read_signature(name, definition) for name, definition in definitions.signature_def.items()
        }
        served = ServedModel(answer.model_spec.version.value, signatures)
        self._note_version(call, served.version)
        self._served[call.servable] = served
        return served

    def _note_version(self, call: Call, version: int) -> None:
        known = self._served.get(call.servable)
        if known is not None and known.version != version:
            del self._served[call.servable]
        if call.version is None and call.label is None:
            self._newest[call.model] = version

    def _ask(self, call: Call, method: str, request: Any) -> Any:
        """Return the answer of the call's server, or of another one where its connection is refused."""
        # A channel tries a refused connection again after a moment, and the server may be back before that.
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            with suppress(Refused):
                return self._ask_in_turn(call, method, request)
            if time.monotonic() >= deadline:
                raise ModelServerAway
            time.sleep(RETRY_SECONDS)

    def _ask_in_turn(self, call: Call, method: str, request: Any) -> Any:
        for server in (call.server, *self._others(call)):
            try:
                return getattr(self._services[server], method)(
                    request, timeout=call.timeout, metadata=request_metadata()
                )
            except grpc.RpcError as problem:
                if not _was_refused(problem):
                    raise _serving_error(problem, server) from problem
        raise Refused

    def _others(self, call: Call) -> list[ServerAddress]:
        return [server for server in self._services if server != call.server]


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata that name the request to a model server, for its log."""
    request_id = current_request_id()
    return ((METADATA_KEY, request_id),) if request_id else ()


def _opener(port: int) -> Callable[[], grpc.Channel]:
    return lambda: open_channel(port)


def _write_spec(spec: Any, call: Call) -> None:
    spec.name = call.model
    if call.version is not None:
        spec.version.value = call.version
    if call.label is not None:
        spec.version_label = call.label


def _read_signature(name: str, definition: Any) -> Signature:
    return Signature(
        name=name,
        method_name=definition.method_name,
        inputs={alias: _read_spec(info) for alias, info in definition.inputs.items()},
        outputs={alias: _read_spec(info) for alias, info in definition.outputs.items()},
    )


def _read_spec(info: Any) -> TensorSpec:
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
    return TensorSpec(DTYPE_NAMES.get(info.dtype, f"DT_{info.dtype}"), sizes)


def _serving_error(problem: Any, server: ServerAddress) -> ServingError:
    code, message = Code(problem.code().value[0]), problem.details() or ""
    if code is Code.UNAVAILABLE and BROKEN.search(message):
        log.warning("the model server broke off: port=%s %s", server.grpc_port, message)
        return ModelServerAway()
    return ServingError(code, message or code.name)


def _was_refused(problem: Any) -> bool:
    """Return whether the request never left: grpcio says so by its message alone."""
    is_away = problem.code() is grpc.StatusCode.UNAVAILABLE
    return is_away and (problem.details() or "").startswith(REFUSED)
