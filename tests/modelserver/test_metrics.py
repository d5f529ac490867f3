from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pierhead.modelserver.metrics import MOST_LABEL_SETS, Counter, Gauge, Histogram, Metrics


def test_counter_counts_for_each_set_of_labels() -> None:
    counter = Counter("request_count", ("model_name", "status"))
    counter.add("half", "OK")
    counter.add("half", "OK")
    counter.add("other", "NOT_FOUND", amount=3)

    assert list(counter.lines()) == [
        "# TYPE :tensorflow:serving:request_count counter",
        ':tensorflow:serving:request_count{model_name="half",status="OK"} 2',
        ':tensorflow:serving:request_count{model_name="other",status="NOT_FOUND"} 3',
    ]


def test_histogram_is_cumulative_and_ends_at_infinity() -> None:
    histogram = Histogram("h", ("API",), (10.0, 18.0))
    for value in (1, 12, 17, 1000):
        histogram.record(value, "Predict")

    assert list(histogram.lines()) == [
        "# TYPE :tensorflow:serving:h histogram",
        ':tensorflow:serving:h_bucket{API="Predict",le="10"} 1',
        ':tensorflow:serving:h_bucket{API="Predict",le="18"} 3',
        ':tensorflow:serving:h_bucket{API="Predict",le="+Inf"} 4',
        ':tensorflow:serving:h_sum{API="Predict"} 1030',
        ':tensorflow:serving:h_count{API="Predict"} 4',
    ]


def test_gauge_is_asked_when_the_page_is() -> None:
    values = iter((1.0, 0.5))
    gauge = Gauge("pierhead_waiting", lambda: next(values))

    assert list(gauge.lines()) == ["# TYPE pierhead_waiting gauge", "pierhead_waiting 1"]
    assert list(gauge.lines()) == ["# TYPE pierhead_waiting gauge", "pierhead_waiting 0.5"]


def test_metric_without_labels_has_empty_braces() -> None:
    counter, histogram = Counter("c", ()), Histogram("h", (), (1.0,))
    counter.add()
    histogram.record(5)

    assert ":tensorflow:serving:c{} 1" in counter.lines()
    assert {':tensorflow:serving:h_bucket{le="+Inf"} 1', ":tensorflow:serving:h_sum{} 5"} <= set(
        histogram.lines()
    )


def test_latencies_have_34_buckets() -> None:
    metrics = Metrics()
    metrics.request_latency.record(5, "m", "predict", "REST")
    buckets = [line for line in metrics.request_latency.lines() if "_bucket" in line]

    limits = [line.partition("le=")[2].split("}")[0] for line in buckets]

    assert len(limits) == 34
    assert limits[:4] == ['"10"', '"18"', '"32.4"', '"58.32"']


def test_label_values_cannot_break_the_page() -> None:
    counter = Counter("c", ("model_name",))
    counter.add('a"b\\c\nd')

    assert list(counter.lines())[1] == ':tensorflow:serving:c{model_name="a\\"b\\\\c\\nd"} 1'


def test_name_of_any_bytes_is_given_back() -> None:
    metrics = Metrics()
    metrics.request_count.add("caf\udce9", "NOT_FOUND")

    assert b'model_name="caf\xe9"' in metrics.page()


def test_names_from_clients_cannot_fill_the_memory() -> None:
    counter, histogram = Counter("c", ("model_name",)), Histogram("h", ("model_name",), (1.0,))
    for number in range(MOST_LABEL_SETS + 5):
        counter.add(str(number))
        histogram.record(1, str(number))
    counter.add("0")

    assert len(list(counter.lines())) == MOST_LABEL_SETS + 2
    assert ':tensorflow:serving:c{model_name="(other)"} 5' in counter.lines()
    assert counter.total() == MOST_LABEL_SETS + 6
    assert ':tensorflow:serving:c{model_name="0"} 2' in counter.lines()
    assert len([line for line in histogram.lines() if "_count" in line]) == MOST_LABEL_SETS + 1


def test_threads_lose_no_count() -> None:
    counter = Counter("c", ())

    def count() -> None:
        for _ in range(1000):
            counter.add()

    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(count)

    assert ":tensorflow:serving:c{} 4000" in counter.lines()


def test_page_is_in_the_order_of_names_and_ends_with_a_newline() -> None:
    page = Metrics().page().decode()
    names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]

    assert names == sorted(names)
    assert page.endswith("\n")


def test_counter_is_found_by_its_own_name_or_the_page_s() -> None:
    metrics = Metrics()
    metrics.request_count.add("half", "OK", amount=2)
    metrics.request_count.add("other", "NOT_FOUND")

    assert metrics.count("/tensorflow/serving/request_count") == 3
    assert metrics.count(":tensorflow:serving:request_count") == 3


@pytest.mark.parametrize("name", ["", "request_count", "/tensorflow/serving/request_latency", "/other"])
def test_what_is_no_counter_counts_nothing(name: str) -> None:
    metrics = Metrics()
    metrics.request_count.add("half", "OK")
    metrics.request_latency.record(5, "half", "predict", "REST")

    assert metrics.count(name) == 0
