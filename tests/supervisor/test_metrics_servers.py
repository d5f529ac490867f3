from __future__ import annotations

import http.client
import http.server
import threading
import time
from collections.abc import Iterator

import pytest

from pierhead.supervisor.metrics.servers import RisingTotal, ServerMetrics

PAGE = '# TYPE :t:c counter\n:t:c{{m="a"}} {count}\n# TYPE :t:g gauge\n:t:g{{}} {gauge}\n'


class FakeServer(http.server.ThreadingHTTPServer):
    """A model server whose page the test writes."""

    daemon_threads = True
    page = ""
    status = 200
    pid: int | None = 1
    pause = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.go_on = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing of an asker that left."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        assert self.path == "/monitoring/prometheus/metrics"
        self.send_response(self.server.status)
        self.end_headers()
        for part in self.server.page.splitlines(keepends=True):
            self.wfile.write(part.encode())
            self.server.go_on.wait(self.server.pause)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server
        server.go_on.set()
        server.shutdown()


@pytest.fixture
def metrics(server: FakeServer) -> ServerMetrics:
    return ServerMetrics("model-server-1", server.server_address[1], lambda: server.pid)


def values(metrics: ServerMetrics) -> list[float]:
    return [value for family in metrics.page().families.values() for value in family.samples.values()]


def refresh(metrics: ServerMetrics, seconds: float = 5) -> None:
    metrics.refresh(time.monotonic() + seconds)


def test_counters_are_summed_over_lives_and_gauges_are_not(
    server: FakeServer, metrics: ServerMetrics
) -> None:
    seen = []
    for server.pid, count, gauge in ((1, 5, 50), (1, 7, 70), (2, 1, 10), (3, 2, 20), (3, 9, 90)):
        server.page = PAGE.format(count=count, gauge=gauge)
        refresh(metrics)
        seen.append(values(metrics))

    assert seen == [[5, 50], [7, 70], [8, 10], [10, 20], [17, 90]]


def test_series_that_a_successor_has_not_yet_stays(server: FakeServer, metrics: ServerMetrics) -> None:
    server.page = PAGE.format(count=5, gauge=1)
    refresh(metrics)
    server.pid, server.page = 2, ""
    refresh(metrics)

    assert values(metrics) == [5]


@pytest.mark.parametrize("pid", [None, 1])
def test_page_of_a_server_that_changed_meanwhile_is_not_taken(pid: int | None, server: FakeServer) -> None:
    pids = iter((1, 2)) if pid else iter((None, None))
    metrics = ServerMetrics("m", server.server_address[1], lambda: next(pids))
    server.page = PAGE.format(count=5, gauge=1)

    with pytest.raises(OSError, match="started again"):
        refresh(metrics)
    assert not values(metrics)


def test_server_without_a_page_keeps_what_it_had(server: FakeServer, metrics: ServerMetrics) -> None:
    server.page = PAGE.format(count=5, gauge=1)
    refresh(metrics)
    server.status = 404

    with pytest.raises(OSError, match="404"):
        refresh(metrics)
    assert values(metrics) == [5, 1]


def test_server_that_trickles_is_given_up_in_time(server: FakeServer, metrics: ServerMetrics) -> None:
    server.page, server.pause = "a 1\n" * 100, 0.1
    start = time.monotonic()

    with pytest.raises((OSError, http.client.HTTPException)):
        refresh(metrics, 0.4)
    assert time.monotonic() - start < 2


def test_total_never_falls() -> None:
    total = RisingTotal()

    assert [total.update(pid, value) for pid, value in ((1, 5), (1, 4), (None, 0), (2, 1), (2, 3))] == [
        5.0,
        5.0,
        5.0,
        6.0,
        8.0,
    ]
