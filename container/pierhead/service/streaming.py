"""A body that streams, as the WSGI server takes it: part by part, and broken off where the user's code fails.

By then the status has left. The connection is closed before the body's end, so that the client can tell a
broken answer from a whole one; a line in the body could be taken for a part of it.
"""

from __future__ import annotations

import errno
import logging
from itertools import chain

from pierhead.errors import PierheadError
from pierhead.service.answers import Answer
from pierhead.service.chunks import Chunks
from pierhead.service.user_code import explain_failure

__all__ = ["StreamedBody"]

log = logging.getLogger(__name__)


class StreamedBody:
    """The parts of an answer, the first included."""

    def __init__(self, first: bytes, rest: Chunks) -> None:
        self._parts = chain((first,), rest)
        self._rest = rest

    @classmethod
    def of(cls, answer: Answer) -> StreamedBody | None:
        """Return the body of an answer that streams, None for one that is complete."""
        return None if answer.rest is None else cls(answer.body, answer.rest)

    def __iter__(self) -> StreamedBody:
        return self

    def __next__(self) -> bytes:
        """Return the next part; raise OSError to have the connection closed at once.

        gunicorn takes such an error for the client's going away: it closes the connection, without a last
        chunk and without a traceback of its own.
        """
        try:
            return next(self._parts)
        except PierheadError as problem:
            self._log(problem)
            raise OSError(errno.EPIPE, "the stream was broken off") from problem

    def close(self) -> None:
        """Close the user's iterator; the server calls this at the end, and when the client has gone."""
        try:
            self._rest.close()
        except PierheadError as problem:
            self._log(problem)

    def _log(self, problem: PierheadError) -> None:
        log.error("inference.py failed while streaming: %s", explain_failure(problem))
