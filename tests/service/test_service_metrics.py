from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pierhead.errors import Code, ServingError
from pierhead.service.hooks import HookPair, WholeHook
from pierhead.service.metrics import WorkerMetrics


@pytest.fixture
def metrics() -> WorkerMetrics:
    return WorkerMetrics()


def values(metric: Any) -> dict[str, float]:
    """Return the samples that are not 0, without the time of their making."""
    samples = (sample for family in metric.collect() for sample in family.samples)
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for sample in samples
        if sample.value and not sample.name.endswith(("_created", "_bucket", "_sum"))
    }


def call(app: Callable[..., Any]) -> Any:
    return app({}, lambda *_: None)


def test_request_is_in_flight_until_its_answer_is_closed(metrics: WorkerMetrics) -> None:
    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("201 Created", [])
        return iter((b"a", b"b"))

    body = call(metrics.counted_app(app))
    assert [b"a", b"b"] == list(body)
    assert values(metrics.in_flight) == {"pierhead_handler_requests_in_flight": 1}
    body.close()
    body.close()

    assert not values(metrics.in_flight)
    assert values(metrics.requests) == {"pierhead_handler_requests_total/201": 1}
    assert values(metrics.seconds) == {"pierhead_handler_request_duration_seconds_count": 1}


@pytest.mark.parametrize("begins", [True, False])
def test_request_that_is_ended_from_outside_is_counted(begins: bool, metrics: WorkerMetrics) -> None:
    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if begins:
            start_response("200 OK", [])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(metrics.counted_app(app))

    status = "200" if begins else "504"
    assert values(metrics.requests) == {f"pierhead_handler_requests_total/{status}": 1}
    assert not values(metrics.in_flight)


def test_hooks_are_timed_and_their_failures_counted(metrics: WorkerMetrics) -> None:
    def fail(_data: Any, _context: Any) -> None:
        raise ValueError

    hooks = metrics.timed_hooks(HookPair(lambda data, context: data + context, fail))
    assert isinstance(hooks, HookPair)
    assert hooks.input_handler(1, 2) == 3
    with pytest.raises(ValueError):  # noqa: PT011
        hooks.output_handler(1, 2)

    assert values(metrics.hook_seconds) == {
        "pierhead_hook_duration_seconds_count/input_handler": 1,
        "pierhead_hook_duration_seconds_count/output_handler": 1,
    }
    assert values(metrics.hook_failures) == {"pierhead_hook_failures_total/output_handler": 1}


def test_timed_hook_keeps_its_name_and_shape(metrics: WorkerMetrics) -> None:
    def handler(data: Any, context: Any) -> Any:
        """Say what it is."""

    hooks = metrics.timed_hooks(WholeHook(handler))

    assert isinstance(hooks, WholeHook)
    assert hooks.handler.__name__ == "handler"
    assert hooks.handler.__doc__ == handler.__doc__


@pytest.mark.parametrize(
    ("problem", "code"),
    [(None, "OK"), (ServingError(Code.NOT_FOUND, "x"), "NOT_FOUND"), (KeyboardInterrupt(), "UNKNOWN")],
)
def test_calls_are_counted_by_code(problem: BaseException | None, code: str, metrics: WorkerMetrics) -> None:
    def ask() -> None:
        with metrics.timed_call("grpc"):
            if problem:
                raise problem

    if problem:
        with pytest.raises(type(problem)):
            ask()
    else:
        ask()

    assert values(metrics.calls) == {f"pierhead_model_calls_total/grpc/{code}": 1}
