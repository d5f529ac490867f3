"""What output_handler gets: the model server's answer, used like a `requests.Response`.

The answer came as tensors over gRPC; its JSON is written when somebody reads it, and never twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

from werkzeug.datastructures import Headers

from pierhead.formats.predict_json import Layout
from pierhead.formats.tensors import Array

__all__ = ["ModelResponse", "ResponseError"]

LOWEST_ERROR = 400


class ResponseError(OSError):
    """The model server refused the request; raised by `raise_for_status`."""


class ModelResponse:
    """A model server's answer: status, JSON body, and the outputs as numpy arrays where it has some.

    `layout` says whether the JSON is laid out by instance or by tensor; None where it is no prediction.
    """

    encoding = "utf-8"

    def __init__(
        self,
        status_code: int,
        write_content: Callable[[], bytes],
        *,
        url: str,
        outputs: Mapping[str, Array] | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.status_code = status_code
        self.url = url
        self.headers = Headers({"Content-Type": "application/json"})
        self.outputs: dict[str, Array] = dict(outputs or {})
        self.layout = layout
        self._write_content = write_content

    def __repr__(self) -> str:
        return f"<ModelResponse [{self.status_code}]>"

    def __bool__(self) -> bool:
        return self.ok

    @cached_property
    def content(self) -> bytes:
        """The body, as the model server's REST API writes it."""
        return self._write_content()

    @cached_property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(self.encoding)

    def json(self, **options: Any) -> Any:
        """Return the body's value; `options` are those of `json.loads`."""
        return json.loads(self.content, **options)

    def iter_content(self, chunk_size: int = 1 << 16) -> Iterator[bytes]:
        """Yield the body in pieces."""
        for start in range(0, len(self.content), chunk_size):
            yield self.content[start : start + chunk_size]

    @property
    def ok(self) -> bool:
        """Whether the model server served the request."""
        return self.status_code < LOWEST_ERROR

    @property
    def reason(self) -> str:
        """The status in words."""
        known = {status.value: status.phrase for status in HTTPStatus}
        return known.get(self.status_code, "Client Error")

    def raise_for_status(self) -> None:
        """Raise where the model server refused the request.

        The error is requests' HTTPError where the user's code has imported requests: it is what that code
        catches.
        """
        if not self.ok:
            kind: Any = getattr(sys.modules.get("requests"), "HTTPError", ResponseError)
            raise kind(f"{self.status_code} {self.reason} for url: {self.url}: {self.text}")
