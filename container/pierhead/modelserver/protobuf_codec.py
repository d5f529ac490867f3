"""The data plane's types to and from the messages of TensorFlow Serving, and two of them as JSON.

Layouts of the JSON: TensorFlow Serving's contract, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from pierhead.errors import Code, ServingError
from pierhead.formats.examples_json import Examples
from pierhead.formats.tensors import Array
from pierhead.modelserver.classification import Classifications
from pierhead.modelserver.dataplane import Metadata, ModelSpec, Prediction
from pierhead.modelserver.registry import VersionStatus
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import read_tensor, write_example, write_tensor, write_typed_tensor

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
        return self.read_task_spec(request)

    def read_task_spec(self, task: Any) -> ModelSpec:
        """Return the model spec of one of several tasks; one that is not there is empty."""
        spec = task.model_spec
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

    def read_examples(self, inputs: Any) -> list[bytes]:
        """Return the serialised tf.Examples of an Input; the context, if any, stands before each of them.

        Put together so, protobuf reads the two as one message, whose features are those of both.
        """
        match inputs.WhichOneof("kind"):
            case "example_list":
                return [example.SerializeToString() for example in inputs.example_list.examples]
            case "example_list_with_context":
                listed = inputs.example_list_with_context
                context = listed.context.SerializeToString()
                return [context + example.SerializeToString() for example in listed.examples]
            case _:
                return []

    def serialised(self, examples: Examples) -> list[bytes]:
        """Return the serialised tf.Examples of a REST request.

        Raises ServingError INVALID_ARGUMENT for a feature whose name protobuf cannot hold.
        """
        inputs = self.stubs.classification.ClassificationRequest().input
        listed: Any = inputs.example_list
        try:
            if examples.context is not None:
                listed = inputs.example_list_with_context
                write_example(examples.context, listed.context)
            for example in examples.examples:
                write_example(example, listed.examples.add())
        except UnicodeEncodeError as problem:
            raise ServingError(Code.INVALID_ARGUMENT, "the name of a feature is not UTF-8") from problem
        return self.read_examples(inputs)

    def classification(self, spec: ModelSpec, result: Classifications) -> Any:
        """Return a ClassificationResponse."""
        response = self.stubs.classification.ClassificationResponse()
        _write_spec(spec, response.model_spec)
        _write_classifications(result, response.result)
        return response

    def regression(self, spec: ModelSpec, result: Array) -> Any:
        """Return a RegressionResponse."""
        response = self.stubs.regression.RegressionResponse()
        _write_spec(spec, response.model_spec)
        _write_regressions(result, response.result)
        return response

    def multi_inference(self, results: Sequence[tuple[ModelSpec, Classifications | Array]]) -> Any:
        """Return a MultiInferenceResponse."""
        response = self.stubs.inference.MultiInferenceResponse()
        for spec, result in results:
            entry = response.results.add()
            _write_spec(spec, entry.model_spec)
            if isinstance(result, list):
                _write_classifications(result, entry.classification_result)
            else:
                _write_regressions(result, entry.regression_result)
        return response

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


def _write_classifications(result: Classifications, message: Any) -> None:
    for classes in result:
        entry = message.classifications.add()
        for label, score in classes:
            try:
                entry.classes.add(label=label.decode(), score=score)
            except UnicodeDecodeError as problem:
                # A field of protobuf's type `string` holds nothing else.
                raise ServingError(Code.INTERNAL, f"the label {label!r} is not UTF-8") from problem


def _write_regressions(result: Array, message: Any) -> None:
    for value in result.tolist():
        message.regressions.add(value=value)


def _json(message: Any) -> str:
    text: str = json_format.MessageToJson(
        message,
        indent=1,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        ensure_ascii=False,
    )
    return text + "\n"
