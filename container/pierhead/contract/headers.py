"""Names of the HTTP headers that SageMaker sends and reads, and of our own."""

from __future__ import annotations

__all__ = ["CUSTOM_ATTRIBUTES", "INFERENCE_ID", "REQUEST_ID", "REQUEST_ID_KEY", "TARGET_MODEL"]

CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
INFERENCE_ID = "X-Amzn-SageMaker-Inference-Id"
# The model's key below the endpoint's S3 prefix: for logs alone, it names nothing in the container.
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
REQUEST_ID = "X-Request-Id"
# Its name in a WSGI environment (PEP 3333).
REQUEST_ID_KEY = "HTTP_X_REQUEST_ID"
