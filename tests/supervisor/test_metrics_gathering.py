from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from pierhead.prometheus_text import Metric, Page
from pierhead.supervisor.metrics.page import MetricsPage

VALUE = Metric("value", "gauge", "", ("part",))


@dataclass
class FakePart:
    """A part that hangs or fails as the test tells it."""

    name: str
    error: Exception | None = None
    may_go_on: threading.Event = field(default_factory=threading.Event)
    refreshed: int = 0

    def refresh(self, _deadline: float) -> None:
        self.may_go_on.wait(20)
        self.refreshed += 1
        if self.error:
            raise self.error

    def page(self) -> Page:
        page = Page()
        page.set(VALUE, self.refreshed, self.name)
        return page


def prompt(name: str, error: Exception | None = None) -> FakePart:
    part = FakePart(name, error)
    part.may_go_on.set()
    return part


def lines(page: MetricsPage) -> set[str]:
    return set(page.encode().decode().splitlines())


@pytest.mark.parametrize("error", [OSError("x"), ValueError("x")])
def test_part_that_fails_is_named_and_the_others_are_there(error: Exception) -> None:
    page = MetricsPage([prompt("a"), prompt("b", error)])

    assert {
        'pierhead_scrape_part_up{part="a"} 1',
        'pierhead_scrape_part_up{part="b"} 0',
        'value{part="a"} 1',
    } <= lines(page)


def test_part_that_hangs_costs_the_bound_once_and_has_one_thread() -> None:
    hanging = FakePart("b")
    page = MetricsPage([hanging, prompt("a")], gather_seconds=0.3)
    threads = threading.active_count()
    start = time.monotonic()
    for _ in range(4):
        found = lines(page)
    seconds = time.monotonic() - start

    assert {
        'pierhead_scrape_part_up{part="b"} 0',
        'value{part="b"} 0',
        'pierhead_scrape_part_up{part="a"} 1',
    } <= found
    assert seconds < 1.0, "only the first page waits for it"
    assert threads + 1 == threading.active_count()
    hanging.may_go_on.set()


def test_part_is_asked_again_when_it_no_longer_hangs() -> None:
    part = FakePart("a")
    page = MetricsPage([part], gather_seconds=0.1)
    assert 'pierhead_scrape_part_up{part="a"} 0' in lines(page)
    part.may_go_on.set()
    deadline = time.monotonic() + 10
    while 'pierhead_scrape_part_up{part="a"} 1' not in lines(page):
        assert time.monotonic() < deadline


def test_askers_at_the_same_time_share_a_page() -> None:
    part = FakePart("a")
    page = MetricsPage([part], gather_seconds=5)
    with ThreadPoolExecutor(8) as askers:
        answers = [askers.submit(page.encode) for _ in range(8)]
        part.may_go_on.set()
        pages = {answer.result(20) for answer in answers}

    assert part.refreshed <= 2
    assert len(pages) <= 2


def test_page_is_never_older_than_the_question() -> None:
    page = MetricsPage([prompt("a")])

    assert 'value{part="a"} 1' in lines(page)
    assert 'value{part="a"} 2' in lines(page)
