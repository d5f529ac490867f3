"""Names of the HTTP headers that SageMaker sends and reads."""

from __future__ import annotations

__all__ = ["CUSTOM_ATTRIBUTES", "REQUEST_ID"]

CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
REQUEST_ID = "X-Pierhead-Request-Id"
