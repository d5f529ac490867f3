"""Names of the HTTP headers that SageMaker sends and reads, and of our own."""

from __future__ import annotations

__all__ = ["CUSTOM_ATTRIBUTES", "INFERENCE_ID", "REQUEST_ID"]

CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
INFERENCE_ID = "X-Amzn-SageMaker-Inference-Id"
REQUEST_ID = "X-Request-Id"
