"""A request to try a model with, as a `curl` line that can be copied.

The artifact's own `sample.EXT` comes first. Without one the body is made from the model's signature: one
instance of zeros in the row format, or all inputs in the columnar format where an input has no batch
dimension. Source: TensorFlow Serving's REST API, `instances` and `inputs`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pierhead_sagemaker.signatures import DEFAULT_SIGNATURE, Signature, Tensor

__all__ = ["Sample", "curl_with_body", "curl_with_sample", "find_sample", "make_body"]

MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".json": "application/json",
        ".jsonl": "application/jsonlines",
        ".csv": "text/csv",
        ".wav": "audio/wav",
        ".npy": "application/x-npy",
        ".jpg": "image/jpeg",
        ".jpeg": "image/jpeg",
        ".png": "image/png",
        ".txt": "text/plain",
    }
)
LONGEST_INLINE_BODY = 200
BODY_FILE = "request.json"


@dataclass(frozen=True)
class Sample:
    """A request body that the artifact brings, and its type."""

    path: Path
    media_type: str


def find_sample(root: Path) -> Sample | None:
    """Return the `sample.EXT` at the artifact's root; of several, the first in the order of MEDIA_TYPES."""
    candidates = (Sample(root / f"sample{ending}", media_type) for ending, media_type in MEDIA_TYPES.items())
    return next((sample for sample in candidates if sample.path.is_file()), None)


def curl_with_sample(url: str, sample: Sample) -> str:
    """Return the line that sends the artifact's sample."""
    return _curl(url, sample.media_type, ["--data-binary", f"@{sample.path}"])


def curl_with_body(url: str, signature: Signature, folder: Path) -> str:
    """Return the line that sends a body made for the signature; a long body is written into `folder`."""
    body = json.dumps(make_body(signature))
    if len(body) < LONGEST_INLINE_BODY:
        return _curl(url, "application/json", ["-d", body])
    path = folder / BODY_FILE
    path.write_text(body, encoding="utf-8")
    return _curl(url, "application/json", ["--data-binary", f"@{path}"])


def make_body(signature: Signature) -> dict[str, Any]:
    """Return a predict request for the signature, row format where every input has a batch dimension."""
    body: dict[str, Any] = {}
    if signature.name != DEFAULT_SIGNATURE:
        body["signature_name"] = signature.name
    if signature.inputs and all(_is_batched(tensor) for tensor in signature.inputs):
        body["instances"] = _instances(signature.inputs)
    else:
        values = {tensor.name: _zeros(tensor.dtype, tensor.shape or ()) for tensor in signature.inputs}
        body["inputs"] = _bare_if_single(values)
    return body


def _instances(inputs: Sequence[Tensor]) -> list[Any]:
    first = inputs[0]
    if len(inputs) == 1 and len(first.shape or (-1,)) == 1:
        return _scalars(first.dtype)
    values = {tensor.name: _zeros(tensor.dtype, (tensor.shape or (-1,))[1:]) for tensor in inputs}
    return [_bare_if_single(values)]


def _scalars(dtype: str) -> list[Any]:
    match _zero(dtype):
        case float():
            return [1.0, 2.0, 5.0]
        case bool() | str() as value:
            return [value]
        case _:
            return [1, 2, 5]


def _bare_if_single(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


def _is_batched(tensor: Tensor) -> bool:
    return tensor.shape is None or (len(tensor.shape) > 0 and tensor.shape[0] == -1)


def _zeros(dtype: str, shape: Sequence[int]) -> Any:
    value = _zero(dtype)
    for size in reversed(shape):
        value = [value] * (1 if size < 0 else size)
    return value


def _zero(dtype: str) -> Any:
    if dtype == "string":
        return "text"
    if dtype == "bool":
        return False
    return 0 if dtype.startswith(("int", "uint", "qint", "quint")) else 0.0


def _curl(url: str, media_type: str, data: Sequence[str]) -> str:
    return shlex.join(["curl", "-s", "-X", "POST", url, "-H", f"Content-Type: {media_type}", *data])
