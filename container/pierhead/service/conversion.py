"""The built-in conversion, for hooks: what requests without hooks get, before and after the user's own code.

`read_request` and `write_answer` can stand as `input_handler` and `output_handler` themselves; requests then
get byte for byte the answers that they get without hooks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import IO, Any

from pierhead.formats.documents import Document
from pierhead.formats.encodings import content_coding
from pierhead.formats.json_answers import render_document, rewrite_answer
from pierhead.formats.json_document import exact
from pierhead.formats.numeric_array import NumericArray
from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.formats.predict_json import Layout, PredictDocument, PredictInputs
from pierhead.formats.tensors import Array
from pierhead.service.context import Context
from pierhead.service.prediction import fit_arrays
from pierhead.service.response import ModelResponse

__all__ = ["ModelRequest", "read_request", "write_answer"]


class ModelRequest:
    """A request to the model, whatever its Content-Type was; `input_handler` may return it.

    `body` is what the caller sent. Arrays may be changed or replaced in `arrays` before it is returned.
    """

    def __init__(self, body: bytes, document: Document | None, context: Context) -> None:
        self.body = body
        self._document = document
        self._context = context

    @property
    def is_predict(self) -> bool:
        """Whether the request is a prediction; `classify` and `regress` have a body and values alone."""
        return self._document is not None

    @property
    def signature_name(self) -> str:
        """The signature that the request names, empty for the default one."""
        return self._document.signature_name if self._document is not None else ""

    @cached_property
    def values(self) -> Any:
        """The request as Python values, as JSON would hold it: `{"instances": [...]}` or `{"inputs": ...}`.

        Of a body that is no text, such as numpy's files, the values are the arrays' own.
        """
        if self._document is None:
            return json.loads(self.body)
        if isinstance(self._document, PredictDocument):
            return _plain(self._document.root)
        return {"inputs": {name: array.tolist() for name, array in self.arrays.items()}}

    @property
    def json_body(self) -> bytes:
        """The request as the model server's REST API takes it; a body that is no JSON document as it is."""
        return (
            render_document(self._document.root) if isinstance(self._document, PredictDocument) else self.body
        )

    @property
    def arrays(self) -> dict[str, Array]:
        """The model's inputs by name, in the dtypes of its signature; texts are bytes in object arrays.

        Raises ServingError, which answers the caller with 400, where the request does not fit the signature.
        """
        return self._inputs.arrays

    @property
    def layout(self) -> Layout:
        """How the answer is laid out: by instance for `instances`, by tensor for `inputs`."""
        return self._inputs.layout

    @cached_property
    def _inputs(self) -> PredictInputs:
        if self._document is None:
            raise ValueError(f"a {self._context.method} request has no arrays")
        return self._document.tensors(self._context.signature(self.signature_name))


def read_request(data: IO[bytes], context: Context) -> ModelRequest:
    """Return the request of any Content-Type that is read without hooks.

    Raises UnsupportedMediaType (415), or ServingError (400) where the body is not of its type.
    """
    content_coding(context.request_headers.get("Content-Encoding"))
    body = data.read()
    if context.method != "predict":
        return ModelRequest(body, None, context)
    document = parse_payload(body, context.request_content_type, context.max_decompressed_bytes)
    return ModelRequest(body, document, context)


def write_answer(
    response: ModelResponse, context: Context, *, outputs: Mapping[str, Any] | None = None
) -> tuple[bytes, str]:
    """Return the model's answer as body and content type, in the type that the caller's Accept asks for.

    `outputs`, arrays or lists by name, are written in place of the model's own. Where the model refused the
    request this raises, and the caller gets the model server's answer. Raises NotAcceptable (406), or
    ServingError (400) for outputs that the type cannot hold.
    """
    response.raise_for_status()
    if context.method != "predict":
        return response.content, response.headers["Content-Type"]
    media_type = response_type(context.accept_header, context.default_accept)
    if response.layout is None:
        return rewrite_answer(response.content, media_type)
    arrays = response.outputs if outputs is None else fit_arrays(outputs, {})
    return render_payload(arrays, response.layout, media_type), media_type


def _plain(value: Any) -> Any:
    """Return a value without arrays in it: lists and numbers in their places."""
    if isinstance(value, NumericArray):
        return exact(value)
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(element) for element in value] if isinstance(value, list) else value
