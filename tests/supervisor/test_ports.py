"""Which ports the model servers get."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from pierhead.control import ServerAddress
from pierhead.errors import Code, ConfigError, ServingError
from pierhead.settings import PortRange
from pierhead.supervisor.ports import REST_SECONDS, PortPool, allocate_ports, is_free


def all_free(_: int) -> bool:
    return True


def test_without_a_range_ports_count_up_from_the_well_known_ones() -> None:
    expected = (ServerAddress(9000, 8501), ServerAddress(9001, 8502))

    assert expected == allocate_ports(2, None, all_free)


def test_without_a_range_ports_in_use_are_passed_over() -> None:
    addresses = allocate_ports(2, None, lambda port: port not in (9000, 8502))

    assert (ServerAddress(9001, 8501), ServerAddress(9002, 8503)) == addresses


def test_range_is_used_in_pairs_from_its_low_end() -> None:
    addresses = allocate_ports(2, PortRange(7000, 7009), all_free)

    assert (ServerAddress(7000, 7001), ServerAddress(7002, 7003)) == addresses


def test_ports_of_a_range_that_are_in_use_are_passed_over() -> None:
    addresses = allocate_ports(2, PortRange(7000, 7009), lambda port: port != 7001)

    assert (ServerAddress(7000, 7002), ServerAddress(7003, 7004)) == addresses


def test_range_may_be_used_to_its_last_port() -> None:
    assert (ServerAddress(7000, 7001),) == allocate_ports(1, PortRange(7000, 7001), all_free)


def test_range_with_too_few_free_ports_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        ConfigError, match="SAGEMAKER_SAFE_PORT_RANGE='7000-7003': 4 ports are needed, 3 are free"
    ):
        allocate_ports(2, PortRange(7000, 7003), lambda port: port != 7002)


@pytest.mark.parametrize("ports", [None, PortRange(7000, 9999)])
def test_ports_never_overlap(ports: PortRange | None) -> None:
    addresses = allocate_ports(1024, ports, all_free)

    taken = [port for each in addresses for port in (each.grpc_port, each.rest_port)]
    assert len(set(taken)) == len(taken) == 2048


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_port_that_is_taken_is_not_handed_out_again() -> None:
    pool = PortPool(PortRange(7000, 7003), all_free)

    assert (ServerAddress(7000, 7001),) == pool.take(1)
    assert (ServerAddress(7002, 7003),) == pool.take(1)


def test_ports_taken_one_by_one_are_those_taken_at_once() -> None:
    pool = PortPool(None, lambda port: port != 9001)

    assert PortPool(None, lambda port: port != 9001).take(3) == (*pool.take(1), *pool.take(2))


def test_taking_none_hands_out_none() -> None:
    assert PortPool(PortRange(7000, 7000), all_free).take(0) == ()


def test_exhausted_range_is_refused_with_who_holds_it() -> None:
    pool = PortPool(PortRange(7000, 7004), all_free)
    pool.take(2)

    with pytest.raises(ServingError) as refusal:
        pool.take(1)
    assert Code.RESOURCE_EXHAUSTED == refusal.value.code
    assert (
        refusal.value.message
        == "SAGEMAKER_SAFE_PORT_RANGE='7000-7004': 2 ports are needed, 1 are free; models hold 4"
    )


def test_refusal_takes_nothing() -> None:
    pool = PortPool(PortRange(7000, 7003), all_free)
    with pytest.raises(ServingError):
        pool.take(3)

    assert (ServerAddress(7000, 7001), ServerAddress(7002, 7003)) == pool.take(2)


def test_no_free_port_at_all_is_refused_without_a_range() -> None:
    with pytest.raises(ServingError, match="no two ports above 8500 are free") as refusal:
        PortPool(None, lambda _: False).take(1)
    assert Code.RESOURCE_EXHAUSTED == refusal.value.code


def test_whether_a_port_is_free_is_asked_anew_each_time() -> None:
    busy = {7000}
    pool = PortPool(PortRange(7000, 7003), lambda port: port not in busy)

    assert (ServerAddress(7001, 7002),) == pool.take(1)
    busy.clear()
    assert (ServerAddress(7000, 7003),) == pool.take(1)


def test_port_given_back_is_used_again_for_want_of_others() -> None:
    pool = PortPool(PortRange(7000, 7003), all_free)
    first, second = pool.take(2)
    pool.give_back([first])

    assert (first,) == pool.take(1)
    pool.give_back([second])
    assert (second,) == pool.take(1)


def test_port_given_back_rests_while_there_are_others() -> None:
    pool = PortPool(PortRange(7000, 7005), all_free)
    first = pool.take(1)
    pool.give_back(first)

    assert (ServerAddress(7002, 7003), ServerAddress(7004, 7005)) == pool.take(2)
    assert first == pool.take(1)


def test_of_resting_ports_the_one_unused_longest_comes_first() -> None:
    pool = PortPool(PortRange(7000, 7003), all_free)
    first, second = pool.take(2)
    pool.give_back([second])
    pool.give_back([first])

    assert (second, first) == pool.take(2)


def test_port_that_has_rested_is_as_good_as_a_new_one() -> None:
    clock = Clock()
    pool = PortPool(None, all_free, clock)
    first = pool.take(1)
    pool.give_back(first)
    clock.now += REST_SECONDS

    assert first == pool.take(1)


def test_ports_do_not_grow_without_end_where_models_come_and_go() -> None:
    clock = Clock()
    pool = PortPool(None, all_free, clock)
    highest = 0
    for _ in range(200):
        addresses = pool.take(2)
        highest = max(highest, *(each.grpc_port for each in addresses))
        clock.now += 10
        pool.give_back(addresses)

    assert highest < 9000 + 3 * REST_SECONDS / 10


def test_giving_back_twice_or_what_nobody_took_changes_nothing() -> None:
    pool = PortPool(PortRange(7000, 7003), all_free)
    addresses = pool.take(1)
    pool.give_back(addresses)
    pool.give_back([*addresses, ServerAddress(1, 2)])
    taken = pool.take(2)

    assert {7000, 7001, 7002, 7003} == {port for each in taken for port in (each.grpc_port, each.rest_port)}


def test_threads_never_get_the_same_port() -> None:
    pool = PortPool(PortRange(7000, 7399), all_free)

    def take_and_return(_: int) -> tuple[ServerAddress, ...]:
        pool.give_back(pool.take(2))
        return pool.take(1)

    with ThreadPoolExecutor(8) as threads:
        taken = [
            port
            for (each,) in threads.map(take_and_return, range(100))
            for port in (each.grpc_port, each.rest_port)
        ]

    assert 200 == len(set(taken)) == len(taken)


def test_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_port_that_somebody_listens_on_everywhere_is_not_free() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_port_that_was_let_go_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert is_free(port)
