"""Names the request in all that is logged and printed while it is answered, streamed parts included."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.wsgi import ClosingIterator

from pierhead.contract.headers import REQUEST_ID_KEY
from pierhead.logs import request_in_log

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

__all__ = ["named_requests"]


def named_requests(app: WSGIApplication) -> WSGIApplication:
    """Return the WSGI app whose log names the request, from its start to the end of its answer."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        scope = contextlib.ExitStack()
        scope.enter_context(request_in_log(_plain(environ.get(REQUEST_ID_KEY, ""))))
        scope.callback(_flush_prints)
        try:
            parts = app(environ, start_response)
        except BaseException:
            scope.close()
            raise
        return ClosingIterator(parts, [scope.close])

    return answer


def _plain(text: str) -> str:
    """Return nginx's id; nothing else could be sent on to a model server."""
    return text if text.isascii() and text.isalnum() else ""


def _flush_prints() -> None:
    """Write what a hook printed without ending the line: nobody else would end it."""
    sys.stdout.flush()
    sys.stderr.flush()
