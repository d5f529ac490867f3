"""Model servers that speak TensorFlow Serving's gRPC.

Requests take the servers in turn; only a call that no server has seen, because the connection was refused,
goes to another one. Signatures are asked for once for each model and version, and again when the version that
answers has moved or a call was refused. Source: TensorFlow Serving's contract, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import grpc

from pierhead.control import ModelPlan, ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import DEFAULT_SIGNATURE, Array, Signature, TensorSpec
from pierhead.service.backend import Prediction
from pierhead.service.call import Call
from pierhead.service.channel import LazyChannel, open_channel
from pierhead.serving_stubs import ServingStubs
from pierhead.tensor_protos import DTYPE_NAMES, read_tensor, write_tensor

__all__ = ["TfsBackend"]

SIGNATURES = "signature_def"
REFUSED = "failed to connect"


@dataclass(frozen=True)
class ServedModel:
    """The version that answered, and its signatures by name."""

    version: int
    signatures: Mapping[str, Signature]


class TfsBackend:
    """A `Backend` over gRPC; each server has one channel for us and one, opened if used, for the hooks."""

    def __init__(
        self, stubs: ServingStubs, servers: Sequence[ServerAddress], models: Sequence[ModelPlan]
    ) -> None:
        self._stubs = stubs
        self._turns = cycle(servers)
        self._services = {
            server: stubs.PredictionServiceStub(open_channel(server.grpc_port)) for server in servers
        }
        self._channels = {server: LazyChannel(_opener(server.grpc_port)) for server in servers}
        self._newest = {model.name: model.versions[-1] for model in models if model.versions}
        self._served: dict[tuple[str, int | None], ServedModel] = {}

    def next_server(self) -> ServerAddress:
        """Return the server whose turn it is."""
        return next(self._turns)

    def served_version(self, model: str, version: int | None) -> int | None:
        """Return the version asked for, else the newest known."""
        return self._newest.get(model) if version is None else version

    def channel(self, server: ServerAddress) -> grpc.Channel:
        """Return the channel of the hooks, which is none of ours."""
        return self._channels[server]

    def signature(self, call: Call, name: str) -> Signature:
        """Return a signature; raise ServingError as the model server's REST API does."""
        wanted = name or DEFAULT_SIGNATURE
        served = self._served.get((call.model, call.version))
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
            self._served.pop((call.model, call.version), None)
            raise
        version = answer.model_spec.version.value
        self._note_version(call, version)
        outputs = {name: read_tensor(proto, name) for name, proto in answer.outputs.items()}
        return Prediction(outputs, version)

    def _ask_signatures(self, call: Call) -> ServedModel:
        request = self._stubs.get_model_metadata.GetModelMetadataRequest(metadata_field=[SIGNATURES])
        _write_spec(request.model_spec, call)
        answer = self._ask(call, "GetModelMetadata", request)
        definitions = self._stubs.get_model_metadata.SignatureDefMap()
        answer.metadata[SIGNATURES].Unpack(definitions)
        signatures = {
            name: _read_signature(name, definition) for name, definition in definitions.signature_def.items()
        }
        served = ServedModel(answer.model_spec.version.value, signatures)
        self._note_version(call, served.version)
        self._served[call.model, call.version] = served
        return served

    def _note_version(self, call: Call, version: int) -> None:
        known = self._served.get((call.model, call.version))
        if known is not None and known.version != version:
            del self._served[call.model, call.version]
        if call.version is None:
            self._newest[call.model] = version

    def _ask(self, call: Call, method: str, request: Any) -> Any:
        """Return the answer of the call's server, or of another one where its connection is refused."""
        others = [server for server in self._services if server != call.server]
        refusals = []
        for server in (call.server, *others):
            try:
                return getattr(self._services[server], method)(request, timeout=call.timeout)
            except grpc.RpcError as problem:
                error = _serving_error(problem)
                if not _was_refused(error):
                    raise error from problem
                refusals.append(error)
        raise refusals[0]


def _opener(port: int) -> Callable[[], grpc.Channel]:
    return lambda: open_channel(port)


def _write_spec(spec: Any, call: Call) -> None:
    spec.name = call.model
    if call.version is not None:
        spec.version.value = call.version


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


def _serving_error(problem: Any) -> ServingError:
    code = Code(problem.code().value[0])
    return ServingError(code, problem.details() or code.name)


def _was_refused(error: ServingError) -> bool:
    """Return whether the request never left: grpcio says so by its message alone."""
    return error.code is Code.UNAVAILABLE and error.message.startswith(REFUSED)
