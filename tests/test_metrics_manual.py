"""docs/metrics.md names every metric that there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pierhead.modelserver.metrics import PREFIX, Gauge, Histogram, Metrics
from pierhead.prometheus_text import Metric
from pierhead.service import metrics as worker
from pierhead.supervisor.metrics import models, page, processes, requests
from pierhead.supervisor.metrics.servers import SENTENCE

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


def manual_table() -> str:
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in (
        *requests.METRICS,
        *worker.METRICS,
        *server_metrics(),
        *processes.METRICS,
        *models.METRICS,
        *page.METRICS,
    ):
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.sentence} |")
    return "\n".join(lines) + "\n"


def server_metrics() -> Iterator[Metric]:
    for metric in vars(Metrics()).values():
        if isinstance(metric, Gauge):
            yield Metric(metric.name, "gauge", SENTENCE, metric.labels)
            continue
        kind = "histogram" if isinstance(metric, Histogram) else "counter"
        yield Metric(PREFIX + metric.name, kind, SENTENCE, metric.labels)


def test_manual_has_the_table_of_all_metrics() -> None:
    assert manual_table() in PAGE.read_text(), f"put this table into {PAGE.name}:\n{manual_table()}"


def test_our_names_have_the_prefix_and_say_their_unit() -> None:
    ours = (*requests.METRICS, *worker.METRICS, *processes.METRICS, *models.METRICS, *page.METRICS)

    for metric in ours:
        assert metric.name.startswith("pierhead_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert (metric.kind == "histogram") == metric.name.endswith("_duration_seconds") or (
            metric.name == "pierhead_scrape_duration_seconds"
        )
