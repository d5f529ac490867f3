"""Prometheus' text format, version 0.0.4: families of samples, written, read and added up.

What is read may hold anything, since models and attributes are named by clients: a line that is no sample is
left out, names are cut down to the format's letters, and label values are escaped when they are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["CONTENT_TYPE", "Family", "Labels", "Metric", "Page", "SampleKey", "read_page", "value_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
ADDED_SUFFIXES = ("_bucket", "_sum", "_count")
VALUE = r'"((?:[^"\\\n]|\\.)*)"'
LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*{VALUE}[ \t]*(?:,|$)")
SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    r'(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]*([^ \t\n]+)(?:[ \t]+-?\d+)?[ \t]*'
)
TYPE = re.compile(r"#[ \t]+TYPE[ \t]+([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]+([a-z]+)[ \t]*")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
Labels = tuple[tuple[str, str], ...]
SampleKey = tuple[str, Labels]


@dataclass(frozen=True)
class Metric:
    """What is said of a metric beside its values: a row of the manual's table."""

    name: str
    kind: str
    sentence: str
    labels: tuple[str, ...] = ()


@dataclass
class Family:
    """A metric's samples by name and labels; those of a histogram have its name with a suffix."""

    name: str
    kind: str
    sentence: str
    samples: dict[SampleKey, float] = field(default_factory=dict)

    def add(self, key: SampleKey, value: float) -> None:
        """Add a value to what stands at the key."""
        self.samples[key] = self.samples.get(key, 0.0) + value

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page; samples stand in the order in which they came."""
        sentence = self.sentence.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {self.name} {sentence}"
        yield f"# TYPE {self.name} {self.kind}"
        for (name, labels), value in self.samples.items():
            yield f"{name}{_labels_text(labels)} {value_text(value)}"


class Page:
    """Families by their names, each once, whatever they were gathered from."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def family(self, metric: Metric) -> Family:
        """Return the family of a metric, made where there is none."""
        found = self.families.get(metric.name)
        if found is None:
            found = Family(metric.name, metric.kind, metric.sentence)
            self.families[metric.name] = found
        return found

    def set(self, metric: Metric, value: float, *label_values: str) -> None:
        """Set the one sample of a metric that has these label values."""
        key = metric.name, tuple(zip(metric.labels, label_values, strict=True))
        self.family(metric).samples[key] = value

    def add_histogram(
        self, metric: Metric, labels: Labels, limits: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """Add a distribution; `counts` are those of the single buckets, with one more for what is above."""
        family, height = self.family(metric), 0
        for limit, count in zip((*limits, math.inf), counts, strict=True):
            height += count
            family.add((f"{metric.name}_bucket", (*labels, ("le", value_text(limit)))), height)
        family.add((f"{metric.name}_sum", labels), total)
        family.add((f"{metric.name}_count", labels), height)

    def merge(self, other: Page) -> None:
        """Add another page's samples; a family of the same name and another kind is left out."""
        for family in other.families.values():
            mine = self.family(Metric(family.name, family.kind, family.sentence))
            if mine.kind == family.kind:
                for key, value in family.samples.items():
                    mine.add(key, value)

    def encode(self) -> bytes:
        """Return the page's text, its families in the order of their names."""
        lines = (line for _, family in sorted(self.families.items()) for line in family.lines())
        return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def read_page(text: str, sentence: str, most_samples: int) -> Page:
    """Return what a page holds, at most so many samples; its families get the sentence as their help."""
    page, kinds, count = Page(), dict[str, str](), 0
    for line in text.split("\n"):
        if line.startswith("#"):
            declared = TYPE.fullmatch(line)
            if declared and declared[2] in KINDS:
                kinds.setdefault(declared[1], declared[2])
        elif (sample := _read_sample(line)) is not None and count < most_samples:
            count += 1
            (name, labels), value = sample
            family = _family_name(name, kinds)
            metric = Metric(family, kinds.get(family, "untyped"), sentence)
            page.family(metric).add((name, labels), value)
    return page


def _read_labels(text: str) -> Labels | None:
    labels, position = [], 0
    while position < len(text.rstrip()):
        match = LABEL.match(text, position)
        if match is None:
            return None
        labels.append((match[1], ESCAPED.sub(_unescaped, match[2])))
        position = match.end()
    return tuple(labels)


def value_text(value: float) -> str:
    """Return a number as the format has it; whole numbers without a fraction."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _read_sample(line: str) -> tuple[SampleKey, float] | None:
    match = SAMPLE.fullmatch(line)
    labels = _read_labels(match[2] or "") if match else None
    if match is None or labels is None:
        return None
    try:
        return (match[1], labels), float(match[3])
    except ValueError:
        return None


def _family_name(sample: str, kinds: dict[str, str]) -> str:
    """Return the family that a sample belongs to, which was declared before it."""
    for suffix in ADDED_SUFFIXES:
        family = sample.removesuffix(suffix)
        if family != sample and kinds.get(family) in {"histogram", "summary"}:
            return family
    return sample


def _labels_text(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
