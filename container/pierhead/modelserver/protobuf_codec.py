"""The data plane's types to and from the messages of TensorFlow Serving, and two of them as JSON.

Layouts of the JSON: TensorFlow Serving's contract, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array
from pierhead.modelserver.dataplane import Metadata, ModelSpec, Prediction
from pierhead.modelserver.registry import VersionStatus
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import read_tensor, write_tensor, write_typed_tensor

__all__ = ["ProtobufCodec"]

SIGNATURE_FIELD = "signature_def"


class ProtobufCodec:
    """Reads requests and builds answers; `as_content` puts predict outputs into `tensor_content`."""

    def __init__(self, *, as_content: bool = False) -> None:
        self.stubs = import_serving_stubs()
        self._write: Callable[[Array, Any], object] = write_tensor if as_content else write_typed_tensor

    def read_spec(self, request: Any) -> ModelSpec:
        """Return the model spec of a request; raise ServingError INVALID_ARGUMENT without one."""
        if not request.HasField("model_spec"):
            raise ServingError(Code.INVALID_ARGUMENT, "Missing ModelSpec")
        spec = request.model_spec
        choice = spec.WhichOneof("version_choice")
        return ModelSpec(
            spec.name,
            version=spec.version.value if choice == "version" else None,
            label=spec.version_label if choice == "version_label" else None,
            signature_name=spec.signature_name,
        )

    def read_inputs(self, request: Any) -> dict[str, Array]:
        """Return the tensors of a predict request; raise ServingError INVALID_ARGUMENT for a bad one."""
        return {alias: read_tensor(request.inputs[alias], alias) for alias in sorted(request.inputs)}

    def prediction(self, prediction: Prediction) -> Any:
        """Return a PredictResponse."""
        response = self.stubs.predict.PredictResponse()
        _write_spec(prediction.spec, response.model_spec)
        for alias, array in prediction.outputs.items():
            self._write(array, response.outputs[alias])
        return response

    def check_metadata_fields(self, names: Sequence[str]) -> None:
        """Raise ServingError INVALID_ARGUMENT unless exactly the signatures are asked for."""
        if not names:
            message = "GetModelMetadataRequest must specify at least one metadata_field"
            raise ServingError(Code.INVALID_ARGUMENT, message)
        for name in names:
            if name != SIGNATURE_FIELD:
                raise ServingError(Code.INVALID_ARGUMENT, f"Metadata field {name} is not supported")

    def metadata(self, metadata: Metadata) -> Any:
        """Return a GetModelMetadataResponse."""
        response = self.stubs.get_model_metadata.GetModelMetadataResponse()
        _write_spec(metadata.spec, response.model_spec)
        response.metadata[SIGNATURE_FIELD].Pack(self._signature_map(metadata.definitions))
        return response

    def metadata_json(self, metadata: Metadata) -> bytes:
        """Return the body of a REST metadata answer."""
        response = self.stubs.get_model_metadata.GetModelMetadataResponse()
        _write_spec(metadata.spec, response.model_spec)
        spec, signatures = _json(response.model_spec), _json(self._signature_map(metadata.definitions))
        text = f'{{\n"model_spec":{spec},\n"metadata": {{"signature_def": {signatures}}}\n}}\n'
        return text.encode()

    def status(self, statuses: Sequence[VersionStatus]) -> Any:
        """Return a GetModelStatusResponse."""
        response = self.stubs.get_model_status.GetModelStatusResponse()
        for status in statuses:
            entry = response.model_version_status.add(version=status.version, state=status.state.value)
            entry.status.error_code = status.code.value
            entry.status.error_message = status.message
        return response

    def status_json(self, statuses: Sequence[VersionStatus]) -> bytes:
        """Return the body of a REST status answer."""
        return _json(self.status(statuses)).encode()

    def _signature_map(self, definitions: Mapping[str, bytes]) -> Any:
        signatures = self.stubs.get_model_metadata.SignatureDefMap()
        for name, definition in definitions.items():
            signatures.signature_def[name].ParseFromString(definition)
        return signatures


def _write_spec(spec: ModelSpec, message: Any) -> None:
    message.name = spec.name
    message.signature_name = spec.signature_name
    message.version.value = spec.version or 0


def _json(message: Any) -> str:
    text: str = json_format.MessageToJson(
        message,
        indent=1,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        ensure_ascii=False,
    )
    return text + "\n"
