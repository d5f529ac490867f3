from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pierhead.prometheus_text import Metric, Page, read_page, value_text

COUNTER = Metric("a_total", "counter", "A \\ and\na line", ("x",))
HISTOGRAM = Metric("h", "histogram", "H")
ODD_TEXTS = ['a"b', "a\\b", "a\nb", "\\n", "}", '"} 5\nforged 1', "", "é", "\r", "\u2028", "{,=}"]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_label_values_come_back_and_forge_nothing(text: str) -> None:
    page = Page()
    page.set(COUNTER, 2, text)
    encoded = page.encode().decode()

    (family,) = text_string_to_metric_families(encoded)
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"x": text}, 2.0)]
    assert read_page(encoded, COUNTER.sentence, 10).encode() == page.encode()


def test_surrogates_do_not_break_the_page() -> None:
    page = Page()
    page.set(COUNTER, 1, "caf\udce9")

    assert b'a_total{x="caf?"} 1\n' in page.encode()


def test_help_and_type_stand_before_each_family_once() -> None:
    page = Page()
    page.set(COUNTER, 1, "b")
    page.set(COUNTER, 2, "a")

    assert page.encode().decode() == (
        '# HELP a_total A \\\\ and\\na line\n# TYPE a_total counter\na_total{x="b"} 1\na_total{x="a"} 2\n'
    )


def test_histogram_is_cumulative() -> None:
    page = Page()
    page.add_histogram(HISTOGRAM, (), (0.5, 1.0), (1, 2, 3), 7.25)

    assert page.encode().decode().splitlines()[2:] == [
        'h_bucket{le="0.5"} 1',
        'h_bucket{le="1"} 3',
        'h_bucket{le="+Inf"} 6',
        "h_sum 7.25",
        "h_count 6",
    ]


def test_equal_series_are_added_and_others_stay() -> None:
    one, other = Page(), Page()
    one.set(COUNTER, 1, "a")
    other.set(COUNTER, 2, "a")
    other.set(COUNTER, 3, "b")
    one.merge(other)

    assert list(one.families["a_total"].samples.values()) == [3, 3]


def test_family_of_another_kind_is_left_out() -> None:
    one, other = Page(), Page()
    one.set(COUNTER, 1, "a")
    other.set(Metric("a_total", "gauge", "", ("x",)), 2, "a")
    one.merge(other)

    assert list(one.families["a_total"].samples.values()) == [1]


def test_samples_are_read_into_their_declared_families() -> None:
    text = (
        "# TYPE :t:h histogram\n"
        ':t:h_bucket{m="a",le="10"} 1\n:t:h_bucket{m="a",le="+Inf"} 2\n:t:h_sum{m="a"} 12.5\n'
        "# TYPE :t:c counter\n:t:c{} 3\nbare 4 1700000000000\n"
    )
    page = read_page(text, "S", 10)

    kinds = {name: (family.kind, len(family.samples)) for name, family in page.families.items()}
    assert kinds == {":t:h": ("histogram", 3), ":t:c": ("counter", 1), "bare": ("untyped", 1)}


@pytest.mark.parametrize(
    "line",
    ["", "a", "a{", 'a{x="} 1', 'a{x="b"', "1a 1", "a one", 'a{x="b"}} 1', "a{x=b} 1", "a 1 2 3", "\0 1"],
)
def test_lines_that_are_no_samples_are_left_out(line: str) -> None:
    assert not read_page(line, "", 10).families


def test_samples_are_read_up_to_a_bound() -> None:
    page = read_page("".join(f'a{{x="{number}"}} 1\n' for number in range(20)), "", 7)

    assert len(page.families["a"].samples) == 7


def test_long_line_is_read_in_linear_time() -> None:
    assert not read_page('a{x="' + '\\"' * 200_000, "", 10).families
    assert not read_page("a{" + 'x="",' * 100_000, "", 10).families


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.1, "0.1"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e300, "1e+300")],
)
def test_numbers_are_written_as_the_format_has_them(value: float, text: str) -> None:
    assert text == value_text(value)
