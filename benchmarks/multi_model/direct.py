"""What many models cost a request: one at /models/NAME/invoke and, in a second stack, at /invocations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.load import HttpLoad, LoadResult
from benchmarks.multi_model.endpoint import Endpoint
from benchmarks.multi_model.rounds import result_of

__all__ = ["Pair", "measure_pairs"]

CLIENTS = 16


@dataclass(frozen=True)
class Pair:
    """One round: the answers on both paths."""

    single: LoadResult
    multi: LoadResult

    @property
    def ratio(self) -> float:
        """The rate of many models by the rate of the single one."""
        return self.multi.requests_per_second / self.single.requests_per_second


def measure_pairs(many: Endpoint, single: Endpoint, name: str, rounds: int, seconds: float) -> list[Pair]:
    """Return rounds that take turns, after one that does not count."""
    load = many.http_load([name], CLIENTS, seconds)
    other = replace(load, port=single.port, path="/invocations")
    pairs = [_pair(load, other, multi_first=number % 2 == 0) for number in range(rounds + 1)]
    return pairs[1:]


def _pair(many: HttpLoad, single: HttpLoad, *, multi_first: bool) -> Pair:
    if multi_first:
        multi = result_of(many)
        return Pair(result_of(single), multi)
    return Pair(result_of(single), result_of(many))
