"""/metrics of the whole stack: every layer counts each request once, whoever is killed or hangs."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from artifacts import artifact_with_hooks
from running_stack import RunningStack, descendants, wait_for

COUNTING = """
    from prometheus_client import Counter, Gauge

    ROWS = Counter("my_rows", "Rows, of which a\\nline may hold many", ["kind"])
    SIZE = Gauge("my_size_bytes", "The largest body", multiprocess_mode="max")


    def input_handler(data, context):
        body = data.read()
        ROWS.labels('a"b\\n').inc()
        SIZE.set(len(body))
        if body == b"raise":
            raise ValueError("as told")
        return body


    def output_handler(response, context):
        return response.content, context.accept_header
    """
BODY = '{"instances": [1.0]}'
ROUTE = 'pierhead_http_requests_total{route="invocations",status="200"}'
HOOK = 'pierhead_hook_duration_seconds_count{hook="input_handler"}'
CALL = 'pierhead_model_calls_total{code="OK",protocol="grpc"}'
OVER_GRPC = (
    ':tensorflow:serving:request_latency_count{model_name="half_plus_two",API="Predict",entrypoint="GRPC"}'
)
OVER_REST = (
    ':tensorflow:serving:request_latency_count{model_name="half_plus_two",API="predict",entrypoint="REST"}'
)
IN_MODEL = ':tensorflow:serving:runtime_latency_count{model_name="half_plus_two",API="Predict",runtime="TF1"}'
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
Samples = dict[str, float]


@pytest.fixture(scope="module")
def hooked(
    half_plus_two: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    artifact = artifact_with_hooks(tmp_path_factory.mktemp("hooks"), half_plus_two, COUNTING)
    with RunningStack(
        artifact, free_ports(9), SAGEMAKER_TFS_INSTANCE_COUNT="2", SAGEMAKER_GUNICORN_WORKERS="2"
    ) as running:
        running.wait_until_ready()
        yield running


@pytest.fixture(scope="module")
def direct(half_plus_two: Path, free_ports: Callable[[int], int]) -> Iterator[RunningStack]:
    with RunningStack(
        half_plus_two, free_ports(9), SAGEMAKER_TFS_INSTANCE_COUNT="2", PIERHEAD_METRICS="all"
    ) as running:
        running.wait_until_ready()
        yield running


def read(stack: RunningStack) -> Samples:
    """Return the values of the page by their names with labels, as they stand in its lines."""
    answer = stack.request("GET", "/metrics")
    assert answer.status == 200, answer.body
    lines = answer.body.decode().split("\n")
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def total(samples: Samples, family: str) -> float:
    return sum(value for name, value in samples.items() if name.partition("{")[0] == family)


def wait_for_samples(stack: RunningStack, wanted: Callable[[Samples], bool], seconds: float = 10) -> None:
    """Wait: nginx writes its lines a quarter of a second late, and the dead are seen when they are reaped."""
    wait_for(lambda: wanted(read(stack)), seconds, lambda: str(read(stack)))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("name", "keys"),
    [("hooked", (ROUTE, HOOK, CALL, OVER_GRPC, IN_MODEL)), ("direct", (ROUTE, OVER_REST, IN_MODEL))],
)
def test_each_layer_counts_each_request_once(
    name: str, keys: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    stack: RunningStack = request.getfixturevalue(name)
    before = read(stack)
    for _ in range(20):
        assert stack.invoke(BODY).status == 200

    wait_for_samples(stack, lambda after: after.get(ROUTE, 0) == before.get(ROUTE, 0) + 20)
    after = read(stack)
    assert [20.0] * len(keys) == [after[key] - before.get(key, 0) for key in keys]
    assert after.get("pierhead_handler_requests_in_flight", 0) == 0


def test_hooks_metrics_of_their_own_are_shown(hooked: RunningStack) -> None:
    before = read(hooked).get('my_rows_total{kind="a\\"b\\n"}', 0)
    hooked.invoke(BODY)
    hooked.invoke('{"instances": [1.0, 2.0]}')
    after = read(hooked)

    assert before + 2 == after['my_rows_total{kind="a\\"b\\n"}']
    assert after["my_size_bytes"] == len('{"instances": [1.0, 2.0]}')


def test_refusals_and_failures_are_counted_by_status(hooked: RunningStack) -> None:
    key, failures = ROUTE.replace("200", "500"), 'pierhead_hook_failures_total{hook="input_handler"}'
    before = read(hooked)
    assert hooked.invoke("raise").status == 500

    wait_for_samples(hooked, lambda after: after.get(key, 0) == before.get(key, 0) + 1)
    after = read(hooked)
    assert before[failures] + 1 == after[failures]
    status = 'pierhead_handler_requests_total{status="500"}'
    assert before.get(status, 0) + 1 == after[status]


def test_page_is_valid_and_its_histograms_agree(hooked: RunningStack) -> None:
    hooked.invoke(BODY)
    answer = hooked.request("GET", "/metrics")
    families = list(text_string_to_metric_families(answer.body.decode()))

    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation and family.type != "unknown" for family in families)
    histograms = [family for family in families if family.type == "histogram"]
    assert len(histograms) >= 6
    for family in histograms:
        buckets: dict[str, list[float]] = {}
        counts: dict[str, float] = {}
        for sample in family.samples:
            labels = str(sorted(item for item in sample.labels.items() if item[0] != "le"))
            if sample.name.endswith("_bucket"):
                buckets.setdefault(labels, []).append(sample.value)
            elif sample.name.endswith("_count"):
                counts[labels] = sample.value
        assert counts == {labels: values[-1] for labels, values in buckets.items()}
        assert all(values == sorted(values) for values in buckets.values())


def test_routes_are_bounded(direct: RunningStack) -> None:
    for path in ("/models/a", "/models?x", "/anything", "/invocationsx", "/%0a%22", "/metrics?a=b"):
        direct.request("GET", path)
    wanted = {"invocations", "ping", "models", "metrics", "other"}

    wait_for_samples(
        direct,
        lambda after: (
            {name.split('"')[1] for name in after if name.startswith("pierhead_http_requests_total")}
            == wanted
        ),
    )
    assert read(direct)["pierhead_http_request_lines_unread_total"] == 0


def test_names_from_clients_are_counted_and_bounded(direct: RunningStack) -> None:
    before = total(read(direct), ":tensorflow:serving:request_count")
    connection = http.client.HTTPConnection("127.0.0.1", direct.port, timeout=60)
    for number in range(1200):
        connection.request("POST", "/invocations", b"{}", {ATTRIBUTES: f"tfs-model-name=m{number}"})
        response = connection.getresponse()
        response.read()
        assert response.status == 404
    connection.close()
    after = read(direct)

    assert before + 1200 == total(after, ":tensorflow:serving:request_count")
    assert len(after) < 3000


def test_ping_is_prompt_while_a_stopped_model_server_delays_the_page(direct: RunningStack) -> None:
    pid = direct.pid_of("model-server-2")
    before = read(direct)
    page: list[Samples] = []
    start = time.monotonic()
    with stopped(pid):
        scrapes = [threading.Thread(target=lambda: page.append(read(direct))) for _ in range(8)]
        for scrape in scrapes:
            scrape.start()
        pings = []
        while any(scrape.is_alive() for scrape in scrapes):
            asked = time.monotonic()
            assert direct.ping() == 200
            pings.append(time.monotonic() - asked)
        seconds = time.monotonic() - start

    assert len(page) == 8
    assert seconds < 4, "eight askers share two pages"
    assert sorted(pings)[len(pings) // 2] < 0.1
    assert page[0]["pierhead_scrape_duration_seconds"] < 2
    assert page[0]['pierhead_scrape_part_up{part="model-server-2"}'] == 0
    assert page[0]['pierhead_scrape_part_up{part="model-server-1"}'] == 1
    assert before[IN_MODEL] == page[0][IN_MODEL]
    assert read(direct)['pierhead_scrape_part_up{part="model-server-2"}'] == 1


def test_totals_outlive_a_killed_model_server(direct: RunningStack) -> None:
    for _ in range(10):
        direct.invoke(BODY)
    before = read(direct)
    restarts = 'pierhead_process_restarts_total{process="model-server-1",reason="killed"}'
    os.kill(direct.pid_of("model-server-1"), signal.SIGKILL)
    wait_for_samples(direct, lambda after: after.get(restarts, 0) == before.get(restarts, 0) + 1)
    assert not fallen(before, read(direct))

    wait_for(lambda: direct.ping() == 200, 30)
    for _ in range(10):
        direct.invoke(BODY)
    after = read(direct)
    assert before[IN_MODEL] + 10 == after[IN_MODEL]
    assert not fallen(before, after)


def test_totals_outlive_killed_workers_and_their_files_do_not_pile_up(hooked: RunningStack) -> None:
    killed = 'pierhead_process_restarts_total{process="handler-worker",reason="killed"}'
    for _ in range(3):
        hooked.invoke(BODY)
        before = read(hooked)
        count = before.get(killed, 0) + 1
        os.kill(next(handler_workers(hooked)), signal.SIGKILL)
        wait_for_samples(hooked, partial(has_value, killed, count))
        assert not fallen(before, read(hooked))
        wait_for(lambda: len(list(handler_workers(hooked))) == 2, 30)
    hooked.invoke(BODY)
    after = read(hooked)

    assert before[HOOK] + 1 == after[HOOK]
    files = (hooked.run_folder / "metrics").glob("*.db")
    assert {path.stem.rpartition("_")[2] for path in files} <= set(map(str, handler_workers(hooked)))
    assert after["pierhead_ready"] == 1


def test_programs_are_measured(hooked: RunningStack) -> None:
    page = read(hooked)

    for name in ("supervisor", "nginx", "handler-workers", "model-server-1", "model-server-2", "nursery"):
        assert 1 << 20 < page[f'pierhead_process_resident_memory_bytes{{process="{name}"}}'] < 1 << 32
        assert 0 < page[f'pierhead_process_cpu_seconds_total{{process="{name}"}}'] < 1000
    assert 0 < page["pierhead_uptime_seconds"] < 1000
    assert total(page, "pierhead_build_info") == 1


def test_readers_from_elsewhere_are_refused_unless_all_may_read(
    hooked: RunningStack, direct: RunningStack
) -> None:
    address = own_address()

    assert (403, "application/json") == get_at(address, hooked.port)
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == get_at(address, direct.port)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 405), ("DELETE", 405)])
def test_other_methods(method: str, status: int, direct: RunningStack) -> None:
    assert status == direct.request(method, "/metrics").status


def has_value(name: str, value: float, samples: Samples) -> bool:
    return samples.get(name) == value


def fallen(before: Samples, after: Samples) -> list[str]:
    """Return the counters that have become less."""
    suffixes = ("_total", "_count", "_bucket", "request_count")
    return [
        name
        for name, value in before.items()
        if name.partition("{")[0].endswith(suffixes) and after.get(name, 0) < value
    ]


def handler_workers(stack: RunningStack) -> Iterator[int]:
    for pid in descendants(stack.process.pid):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]
        if b"pierhead.service" in command and int(parent) != stack.process.pid:
            yield pid


def own_address() -> str:
    """Return an address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has loopback only")
        address: str = probe.getsockname()[0]
        return address


def get_at(address: str, port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=10)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers["Content-Type"]
