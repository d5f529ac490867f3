"""The server's counters and histograms, and the page that Prometheus reads.

Names, labels, buckets and format: TensorFlow Serving's contract, section 1.6. Models are named by clients, so
the number of label sets that one metric keeps is bounded; what comes after that is counted together.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

__all__ = ["Counter", "Gauge", "Histogram", "Metrics"]

PREFIX = ":tensorflow:serving:"
MOST_LABEL_SETS = 1_000
REST_OF_LABELS = "(other)"
LATENCY_LIMITS = tuple(10 * 1.8**power for power in range(33))
QUEUING_LIMITS = tuple(100 * 1.2**power for power in range(52))
EXAMPLE_LIMITS = SIZE_LIMITS = tuple(float(2**power) for power in range(20))
Labels = tuple[str, ...]


@dataclass
class Counter:
    """Counts for each set of label values."""

    name: str
    labels: Labels
    _counts: dict[Labels, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *values: str, amount: int = 1) -> None:
        """Raise the count of a set of label values."""
        with self._lock:
            key = _bounded(values, self._counts)
            self._counts[key] = self._counts.get(key, 0) + amount

    def total(self) -> int:
        """Return the count over all sets of label values."""
        with self._lock:
            return sum(self._counts.values())

    def lines(self) -> Iterator[str]:
        """Yield the metric's lines of the page."""
        yield f"# TYPE {PREFIX}{self.name} counter"
        with self._lock:
            counts = dict(self._counts)
        for values, count in counts.items():
            yield f"{PREFIX}{self.name}{{{_text(self.labels, values)}}} {count}"


@dataclass
class _Samples:
    counts: list[int]
    total: float = 0.0


@dataclass
class Histogram:
    """Distributions for each set of label values; `limits` are the upper ends of the buckets but the last."""

    name: str
    labels: Labels
    limits: tuple[float, ...]
    _samples: dict[Labels, _Samples] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, value: float, *values: str) -> None:
        """Add a sample to a set of label values."""
        with self._lock:
            key = _bounded(values, self._samples)
            samples = self._samples.get(key)
            if samples is None:
                samples = self._samples[key] = _Samples([0] * (len(self.limits) + 1))
            samples.counts[bisect_right(self.limits, value)] += 1
            samples.total += value

    def lines(self) -> Iterator[str]:
        """Yield the metric's lines of the page; buckets are cumulative."""
        name = PREFIX + self.name
        yield f"# TYPE {name} histogram"
        with self._lock:
            samples = {key: _Samples(list(each.counts), each.total) for key, each in self._samples.items()}
        ends = [*(f"{limit:g}" for limit in self.limits), "+Inf"]
        for values, each in samples.items():
            text = _text(self.labels, values)
            prefix = f"{text}," if text else ""
            for end, count in zip(ends, accumulate(each.counts), strict=True):
                yield f'{name}_bucket{{{prefix}le="{end}"}} {count}'
            yield f"{name}_sum{{{text}}} {each.total:g}"
            yield f"{name}_count{{{text}}} {sum(each.counts)}"


@dataclass
class Gauge:
    """A value that is asked for when the page is; its name is whole, for it is not TensorFlow Serving's."""

    name: str
    read: Callable[[], float] = float
    labels: Labels = ()

    def lines(self) -> Iterator[str]:
        """Yield the metric's lines of the page."""
        yield f"# TYPE {self.name} gauge"
        yield f"{self.name} {self.read():g}"


def _counter(name: str, *labels: str) -> Callable[[], Counter]:
    return lambda: Counter(name, labels)


def _histogram(name: str, *labels: str, limits: tuple[float, ...]) -> Callable[[], Histogram]:
    return lambda: Histogram(name, labels, limits)


@dataclass
class Metrics:
    """All metrics of a server; latencies are in microseconds."""

    request_count: Counter = field(default_factory=_counter("request_count", "model_name", "status"))
    request_example_count_total: Counter = field(
        default_factory=_counter("request_example_count_total", "model")
    )
    request_example_counts: Histogram = field(
        default_factory=_histogram("request_example_counts", "model", limits=EXAMPLE_LIMITS)
    )
    request_latency: Histogram = field(
        default_factory=_histogram(
            "request_latency", "model_name", "API", "entrypoint", limits=LATENCY_LIMITS
        )
    )
    runtime_latency: Histogram = field(
        default_factory=_histogram("runtime_latency", "model_name", "API", "runtime", limits=LATENCY_LIMITS)
    )
    model_warmup_latency: Histogram = field(
        default_factory=_histogram("model_warmup_latency", "model_path", "status", limits=LATENCY_LIMITS)
    )
    model_warmup_records_read: Counter = field(
        default_factory=_counter("model_warmup_records_read", "model_path", "status")
    )
    queuing_latency: Histogram = field(
        default_factory=_histogram(
            "batching_session:queuing_latency", "thread_pool_name", limits=QUEUING_LIMITS
        )
    )
    wrapped_run_count: Counter = field(default_factory=_counter("batching_session:wrapped_run_count"))
    padding_size: Histogram = field(
        default_factory=_histogram(
            "batching_session:padding_size", "execution_batch_size", limits=SIZE_LIMITS
        )
    )
    input_batch_size: Histogram = field(
        default_factory=_histogram("batching_session:input_batch_size", limits=SIZE_LIMITS)
    )
    processed_batch_size: Histogram = field(
        default_factory=_histogram("batching_session:processed_batch_size", limits=SIZE_LIMITS)
    )

    rest_requests_in_flight: Gauge = field(
        default_factory=lambda: Gauge("pierhead_model_server_rest_requests_in_flight")
    )

    def count(self, name: str) -> int:
        """Return a counter's total by its whole name, 0 where no counter has it.

        The name may be the page's or TensorFlow Serving's own, as in `/tensorflow/serving/request_count`.
        """
        wanted = name.replace("/", ":")
        counters = (metric for metric in vars(self).values() if isinstance(metric, Counter))
        return sum(counter.total() for counter in counters if PREFIX + counter.name == wanted)

    def page(self) -> bytes:
        """Return the page in the order of the metrics' names; labels of any bytes come back as they were."""
        metrics = sorted(vars(self).values(), key=lambda metric: (isinstance(metric, Gauge), metric.name))
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines()).encode(
            errors="surrogateescape"
        )


def _bounded(values: Labels, known: Mapping[Labels, object]) -> Labels:
    """Return the label values, or those of the rest where they are new and there is no room for more."""
    if values in known or len(known) < MOST_LABEL_SETS:
        return values
    return (REST_OF_LABELS,) * len(values)


def _text(labels: Labels, values: Labels) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))


def _escaped(value: str) -> str:
    # A line break, too: the original lets a model's name break the page apart.
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
