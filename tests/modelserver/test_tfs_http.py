"""Route cases of TensorFlow Serving's REST API, driven against a real server of `half`, version 123."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from tests.modelserver.running_server import RunningServer

CASES = [json.loads(line) for line in Path(__file__).with_name("tfs_http.jsonl").read_text().splitlines()]
MONITORED = "with prometheus enabled"


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_route_answers_as_the_original(request: pytest.FixtureRequest, case: dict[str, Any]) -> None:
    name = "full_server" if case.get("note") == MONITORED else "server"
    status, content_type, body = ask(request.getfixturevalue(name), case)
    expect = case["expect"]

    assert expect["http_status"] == status
    assert expect.get("content_type", content_type) == content_type
    if "body_json" in expect:
        assert json.loads(body) == expect["body_json"]
    if "body_exact" in expect:
        assert body == expect["body_exact"].encode()


def ask(server: RunningServer, case: dict[str, Any]) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=30)
    headers = dict(case.get("headers", {}))
    is_chunked = headers.get("Transfer-Encoding") == "chunked"
    body = case.get("body", "").encode()
    chunks = iter([body[:5], body[5:]]) if is_chunked else body or None
    connection.request(case["method"], case["path"], chunks, headers, encode_chunked=is_chunked)
    response = connection.getresponse()
    answer = response.status, response.headers["Content-Type"], response.read()
    connection.close()
    return answer
