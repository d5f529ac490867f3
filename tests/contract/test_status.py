"""Every canonical code has an HTTP status."""

from __future__ import annotations

import pytest

from pierhead.contract.status import HTTP_STATUS, STATUSES, status_of
from pierhead.errors import Code, ConfigError, HookShapeError, ModelServerAway, PierheadError, ServingError


def test_every_code_has_a_status() -> None:
    assert set(Code) == set(HTTP_STATUS)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.OK, 200),
        (Code.INVALID_ARGUMENT, 400),
        (Code.FAILED_PRECONDITION, 400),
        (Code.NOT_FOUND, 404),
        (Code.RESOURCE_EXHAUSTED, 429),
        (Code.INTERNAL, 500),
        (Code.UNIMPLEMENTED, 501),
        (Code.UNAVAILABLE, 503),
        (Code.DEADLINE_EXCEEDED, 504),
    ],
)
def test_code_has_the_status_of_the_rest_api(code: Code, status: int) -> None:
    assert status == HTTP_STATUS[code]


def test_failures_are_statuses_of_failures() -> None:
    assert all(400 <= status < 600 for code, status in HTTP_STATUS.items() if code is not Code.OK)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        *((kind("why"), status) for kind, status in STATUSES.items()),
        (HookShapeError("why"), 500),
        (ConfigError(["why"]), 500),
        (ServingError(Code.UNAVAILABLE, "why"), 503),
        (ModelServerAway(), 502),
    ],
)
def test_error_has_its_kind_s_status(problem: PierheadError, status: int) -> None:
    assert status == status_of(problem)
