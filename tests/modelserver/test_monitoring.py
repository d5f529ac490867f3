from __future__ import annotations

from pathlib import Path

import pytest

from pierhead.errors import Code, ServingError
from pierhead.modelserver.http_messages import Answer
from pierhead.modelserver.monitoring import Monitoring, read_monitoring_config


def test_without_a_file_or_unless_enabled_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "monitoring"
    file.write_text('prometheus_config { path: "/x" }')

    assert read_monitoring_config("") is None
    assert read_monitoring_config(str(file)) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ("prometheus_config: { enable: true, path: '/x' } # why not", "/x"),
    ],
)
def test_page_stands_where_the_file_says(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "monitoring"
    file.write_text(text)
    monitoring = read_monitoring_config(str(file))

    assert monitoring
    assert monitoring.owns(path)
    assert monitoring.owns(f"{path}?a=b")
    assert not monitoring.owns(f"{path}/")


@pytest.mark.parametrize("text", ["prometheus_config {", "unknown: 1", None])
def test_file_that_cannot_be_read_is_told(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "monitoring"
    if text:
        file.write_text(text)
    with pytest.raises(ServingError) as caught:
        read_monitoring_config(str(file))

    assert (caught.value.code, caught.value.message) == (
        Code.INVALID_ARGUMENT,
        f"Invalid protobuf file: '{file}'",
    )


def test_query_is_refused_in_plain_text() -> None:
    answer = Monitoring("/x").page("/x?a=b")

    assert (answer.status, answer.content_type) == (400, "text/plain")
    assert answer.body == b"Unexpected path: /x?a=b. Should be /x"


def test_answer_is_counted_when_it_is_made() -> None:
    monitoring = Monitoring()
    work = monitoring.counted("m", "predict", lambda: lambda: Answer(200))
    assert b'status="OK"' not in monitoring.page("/monitoring/prometheus/metrics").body

    assert callable(work)
    work()

    lines = monitoring.metrics.page().decode().splitlines()
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 1' in lines
    assert (
        ':tensorflow:serving:request_latency_count{model_name="m",API="predict",entrypoint="REST"} 1' in lines
    )


def test_refusal_is_counted_but_not_timed() -> None:
    monitoring = Monitoring()
    monitoring.counted("m", "", lambda: Answer(404, code=Code.NOT_FOUND))
    page = monitoring.metrics.page()

    assert b'request_count{model_name="m",status="NOT_FOUND"} 1' in page
    assert b"request_latency_count" not in page
