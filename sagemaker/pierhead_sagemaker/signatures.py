"""A model's signatures, as the model server's REST metadata tells them.

Source: TensorFlow Serving's contract, section 5. `-1` stands for a dimension of unknown size, a shape of None
for an unknown number of dimensions.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

__all__ = ["DEFAULT_SIGNATURE", "Signature", "Tensor", "fetch_signatures", "parse_signatures"]

DEFAULT_SIGNATURE = "serving_default"
# TensorFlow adds it to every model for its own use; it takes and returns nothing.
INITIALISER = "__saved_model_init_op"
DTYPE_NAMES: Mapping[str, str] = MappingProxyType(
    {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16"}
)
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Tensor:
    """An input or output: its name in requests, its dtype as numpy calls it, and its declared shape."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.dtype} [...]"
        sizes = ", ".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{self.name} {self.dtype} [{sizes}]"


@dataclass(frozen=True)
class Signature:
    """A signature with its inputs and outputs, both by name."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"


def fetch_signatures(rest_port: int, model: str) -> tuple[Signature, ...] | None:
    """Return the signatures of a model's newest version, or None where the server does not tell them."""
    connection = http.client.HTTPConnection("127.0.0.1", rest_port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"/v1/models/{quote(model, safe='')}/metadata")
        response = connection.getresponse()
        body = response.read()
        return parse_signatures(json.loads(body)) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        # A server of another kind may listen on this port: whatever it says, the model is served.
        return None
    finally:
        connection.close()


def parse_signatures(document: Any) -> tuple[Signature, ...]:
    """Return the signatures in a metadata document, `serving_default` first, the others by name.

    Raises LookupError, TypeError, AttributeError or ValueError for a document of another shape.
    """
    found = document["metadata"]["signature_def"]["signature_def"]
    names = sorted(found, key=lambda name: (name != DEFAULT_SIGNATURE, name))
    return tuple(
        Signature(name, _tensors(found[name].get("inputs", {})), _tensors(found[name].get("outputs", {})))
        for name in names
        if name != INITIALISER
    )


def _tensors(found: Mapping[str, Any]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, _dtype(info["dtype"]), _shape(info.get("tensor_shape", {})))
        for name, info in sorted(found.items())
    )


def _dtype(name: str) -> str:
    return DTYPE_NAMES.get(name) or name.removeprefix("DT_").lower()


def _shape(info: Mapping[str, Any]) -> tuple[int, ...] | None:
    if info.get("unknown_rank"):
        return None
    return tuple(int(dimension["size"]) for dimension in info.get("dim", ()))
