from __future__ import annotations

import numpy as np

from pierhead.modelserver.pace import Pace, size_class

KIND = ("serving_default", 5)


def recorded(*seconds: float) -> Pace:
    pace = Pace()
    for each in seconds:
        pace.record(KIND, each)
    return pace


def test_unknown_run_is_not_short() -> None:
    assert not Pace().is_short(KIND)


def test_measured_run_is_short_or_long() -> None:
    assert recorded(0.0001).is_short(KIND)
    assert not recorded(0.1).is_short(KIND)


def test_one_long_run_makes_a_class_long() -> None:
    assert not recorded(0.0001, 0.1).is_short(KIND)


def test_slow_first_run_is_soon_forgotten() -> None:
    assert recorded(0.02, *[0.0001] * 6).is_short(KIND)


def test_sizes_are_measured_apart() -> None:
    small, large = ({"x": np.zeros(count, np.float32)} for count in (3, 3000))

    assert size_class("s", small) != size_class("s", large)


def test_strings_count_by_their_number() -> None:
    assert size_class("s", {"x": np.array([b"a" * 1000], object)}) == ("s", 7)
