"""Two models one after the other, over gRPC: what the first answers is the second one's input.

The second one's name comes from the request: `X-Amzn-SageMaker-Custom-Attributes: second=NAME`.
"""

import json
from typing import IO, Any

from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from pierhead.hooks import Context

FLOAT = 1  # tensorflow's DT_FLOAT


def handler(data: IO[bytes], context: Context) -> tuple[str, str]:
    """Return body and content type for a list of numbers."""
    attributes = dict(pair.split("=", 1) for pair in context.custom_attributes.split(",") if "=" in pair)
    values = json.load(data)
    for model in (context.model_name, attributes.get("second", context.model_name)):
        values = ask(model, values, context)
    return json.dumps(values), "application/json"


def ask(model: str, values: list[float], context: Context) -> Any:
    """Return the model's output; a refusal of the model server reaches the caller with its status."""
    request = PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].dtype = FLOAT
    request.inputs["x"].tensor_shape.dim.add(size=len(values))
    request.inputs["x"].float_val.extend(values)
    answer = PredictionServiceStub(context.channel).Predict(request, timeout=context.timeout)
    output = answer.outputs["y"]
    # A model server answers in either of the two forms.
    return list(output.float_val) or list(memoryview(output.tensor_content).cast("f"))
