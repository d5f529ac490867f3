from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pierhead.supervisor.metrics.requests import RequestLog
from running_stack import wait_for


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    return tmp_path / "requests.pipe"


@pytest.fixture
def requests(pipe: Path) -> Iterator[RequestLog]:
    requests = RequestLog(pipe)
    requests.open()
    yield requests
    requests.close()


def lines(requests: RequestLog) -> list[str]:
    return [line for line in requests.page().encode().decode().splitlines() if not line.startswith("#")]


def test_lines_are_counted_by_route_and_status(requests: RequestLog, pipe: Path) -> None:
    pipe.write_text("ping 200 0.000\ninvocations 200 0.012\ninvocations 200 0.012\ninvocations 499 70.250\n")
    wait_for(lambda: len(lines(requests)) > 30, 5)

    assert {
        'pierhead_http_requests_total{route="invocations",status="200"} 2',
        'pierhead_http_requests_total{route="invocations",status="499"} 1',
        'pierhead_http_requests_total{route="ping",status="200"} 1',
        'pierhead_http_request_duration_seconds_bucket{route="invocations",le="0.01"} 0',
        'pierhead_http_request_duration_seconds_bucket{route="invocations",le="0.025"} 2',
        'pierhead_http_request_duration_seconds_bucket{route="invocations",le="+Inf"} 3',
        'pierhead_http_request_duration_seconds_sum{route="invocations"} 70.274',
        'pierhead_http_request_duration_seconds_bucket{route="ping",le="0.001"} 1',
        "pierhead_http_request_lines_unread_total 0",
    } <= set(lines(requests))


@pytest.mark.parametrize(
    "junk", ["x\n", "Ping 200 0.1\n", 'ping" 200 0.000\n', "ping 2000 0.000\n", "é 200 0\n"]
)
def test_junk_is_counted_as_such(junk: str, requests: RequestLog, pipe: Path) -> None:
    pipe.write_text(junk)

    wait_for(lambda: lines(requests) == ["pierhead_http_request_lines_unread_total 1"], 5)


def test_line_may_come_in_parts(requests: RequestLog, pipe: Path) -> None:
    with pipe.open("w") as writer:
        for part in ("pi", "ng 20", "0 0.0", "00", "\n"):
            writer.write(part)
            writer.flush()

    wait_for(lambda: 'pierhead_http_requests_total{route="ping",status="200"} 1' in lines(requests), 5)


def test_many_writers_lose_no_line(requests: RequestLog, pipe: Path) -> None:
    block = "ping 200 0.000\n" * 273
    write = f"[os.write(pipe, {block.encode()!r}) for _ in range(100)]"
    program = f"import os; pipe = os.open({str(pipe)!r}, os.O_WRONLY); {write}"
    writers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]

    assert [0, 0] == [writer.wait(30) for writer in writers]
    wanted = f'pierhead_http_requests_total{{route="ping",status="200"}} {2 * 100 * 273}'
    wait_for(lambda: wanted in lines(requests), 10)


def test_reader_that_is_gone_is_told(pipe: Path) -> None:
    requests = RequestLog(pipe)

    with pytest.raises(OSError, match="not read"):
        requests.refresh(0)


def test_end_of_one_writer_is_not_the_end(requests: RequestLog, pipe: Path) -> None:
    for _ in range(3):
        pipe.write_text("ping 200 0.000\n")

    wait_for(lambda: 'pierhead_http_requests_total{route="ping",status="200"} 3' in lines(requests), 5)
