"""half_plus_two for Triton's python backend: `x` float32 [n] in, `y` float32 [n] out."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as backend  # type: ignore[import-not-found]


class TritonPythonModel:
    """The class that the backend looks for."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the answer to each request."""
        return [backend.InferenceResponse([_half_plus_two(request)]) for request in requests]


def _half_plus_two(request: Any) -> Any:
    rows = backend.get_input_tensor_by_name(request, "x").as_numpy()
    return backend.Tensor("y", rows / np.float32(2) + np.float32(2))
