"""Which ports the model servers get."""

from __future__ import annotations

import socket

import pytest

from pierhead.control import ServerAddress
from pierhead.errors import ConfigError
from pierhead.settings import PortRange
from pierhead.supervisor.ports import allocate_ports, is_free


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
