"""The floor of the HTTP door: its protocol class with a constant answer behind it, and no model."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

from pierhead.modelserver.http_messages import Answer, Request
from pierhead.modelserver.http_protocol import HttpServer

ANSWER = Answer(200, b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}')


def constant_answer(_: Request) -> Answer:
    """Return what half_plus_two answers to 1, 2 and 5."""
    return ANSWER


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    with ThreadPoolExecutor(1) as threads:
        server = HttpServer(constant_answer, threads)
        await server.start("127.0.0.1", port)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
