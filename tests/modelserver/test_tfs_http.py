"""Route cases of TensorFlow Serving's REST API, driven against a real server of `half`, version 123."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from tests.modelserver.running_server import RunningServer

CASES = [json.loads(line) for line in Path(__file__).with_name("tfs_http.jsonl").read_text().splitlines()]
UNSUPPORTED = {
    "classify_unknown_signature": "classify is not served yet",
    "regress_unknown_signature": "regress is not served yet",
    "prometheus_on_query": "monitoring is not served yet",
}


def marked(case: dict[str, Any]) -> Any:
    reason = UNSUPPORTED.get(case["id"])
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(case, id=case["id"], marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_route_answers_as_the_original(server: RunningServer, case: dict[str, Any]) -> None:
    status, content_type, body = ask(server, case)
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
