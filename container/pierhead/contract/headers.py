"""Names of the HTTP headers that SageMaker sends and reads, and of our own."""

from __future__ import annotations

__all__ = ["CUSTOM_ATTRIBUTES", "INFERENCE_ID", "REQUEST_ID", "REQUEST_ID_KEY"]

CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
INFERENCE_ID = "X-Amzn-SageMaker-Inference-Id"
REQUEST_ID = "X-Request-Id"
# Its name in a WSGI environment (PEP 3333).
REQUEST_ID_KEY = "HTTP_X_REQUEST_ID"
