from __future__ import annotations

import threading

from pierhead.modelserver.polling import Poller

SECONDS = 30.0


class Work:
    """Counts how often it is done; fails each time where it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.count = 0
        self.reached = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        if self.count == 3:
            self.reached.set()
        if self.fails:
            raise OSError("the disk is gone")


def test_work_returns() -> None:
    work = Work()
    poller = Poller(0.001, work)
    poller.start()

    assert work.reached.wait(SECONDS)
    poller.stop(SECONDS)


def test_work_that_fails_returns() -> None:
    work = Work(fails=True)
    poller = Poller(0.001, work)
    poller.start()

    assert work.reached.wait(SECONDS)
    poller.stop(SECONDS)


def test_work_is_not_begun_after_the_stop() -> None:
    work = Work()
    poller = Poller(3600.0, work)
    poller.start()
    poller.stop(SECONDS)

    assert work.count == 0
