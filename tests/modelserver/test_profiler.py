"""The profiler's service: passing calls on, and TensorFlow's own server behind a real model server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.modelserver.fake_profiler import ENDLESS, FakeProfiler
from tests.modelserver.running_server import RunningServer

from pierhead.modelserver.profiler import SERVICE, ProfilerService

SECONDS = 30
DURATION_MS = 50


def varint_field(number: int, value: int) -> bytes:
    """Return a field of a message, for numbers below 16 and values below 128."""
    return bytes([number << 3, value])


def bytes_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def profile_request(folder: Path, session: str) -> bytes:
    """Return a ProfileRequest: duration_ms, opts (version, host_tracer_level, duration_ms), its file."""
    options = varint_field(5, 1) + varint_field(2, 2) + varint_field(9, DURATION_MS)
    places = [str(folder), session, "host"]
    fields = [bytes_field(number, text.encode()) for number, text in enumerate(places, start=5)]
    return varint_field(1, DURATION_MS) + bytes_field(4, options) + b"".join(fields)


def method_of(channel: grpc.Channel, name: str) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{name}")


def ask(channel: grpc.Channel, method: str, body: bytes, seconds: float | None = SECONDS) -> bytes:
    answer: bytes = method_of(channel, method)(body, timeout=seconds)
    return answer


def refusal(channel: grpc.Channel, method: str, body: bytes, seconds: float = SECONDS) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, method, body, seconds)
    code: grpc.StatusCode = caught.value.code()
    return code


@contextmanager
def served(service: ProfilerService, port: int) -> Iterator[grpc.Channel]:
    """Serve the service alone, and yield a channel to it."""
    server = grpc.server(ThreadPoolExecutor(1), handlers=[service.handler()])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(0).wait()
    service.stop()


@pytest.fixture
def profiler() -> Iterator[FakeProfiler]:
    profiler = FakeProfiler()
    yield profiler
    profiler.stop()


@pytest.fixture
def channel(profiler: FakeProfiler, free_ports: Callable[[int], int]) -> Iterator[grpc.Channel]:
    with served(ProfilerService(profiler.start), free_ports(1)) as channel:
        yield channel


@pytest.mark.parametrize("seconds", [None, SECONDS])
def test_bytes_pass_both_ways(channel: grpc.Channel, seconds: float | None) -> None:
    assert b"answer to \xff" == ask(channel, "Profile", b"\xff", seconds)


def test_refusal_passes_with_its_words(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, "Terminate", b"")

    assert grpc.StatusCode.NOT_FOUND is caught.value.code()
    assert caught.value.details() == "no such session"


def test_deadline_passes(channel: grpc.Channel, profiler: FakeProfiler) -> None:
    assert grpc.StatusCode.DEADLINE_EXCEEDED is refusal(channel, "Profile", ENDLESS, seconds=0.3)
    assert profiler.gave_up.wait(SECONDS)


def test_cancellation_passes(channel: grpc.Channel, profiler: FakeProfiler) -> None:
    call = method_of(channel, "Profile").future(ENDLESS)
    assert profiler.is_waiting.wait(SECONDS)
    call.cancel()

    assert profiler.gave_up.wait(SECONDS)


def test_profiler_starts_once_and_at_the_first_call(channel: grpc.Channel, profiler: FakeProfiler) -> None:
    assert profiler.ports == []

    barrier = threading.Barrier(3)

    def first_call(_: int) -> bytes:
        barrier.wait(SECONDS)
        return ask(channel, "Profile", b"")

    with ThreadPoolExecutor(3) as callers:
        assert [b"answer to "] * 3 == list(callers.map(first_call, range(3)))
    assert len(profiler.ports) == 1


def test_real_server_profiles_itself(server: RunningServer, tmp_path: Path) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        ask(channel, "Profile", profile_request(tmp_path, "first"))

        assert (tmp_path / "first" / "host.xplane.pb").exists()
        assert ask(channel, "Terminate", bytes_field(1, b"first")) == b""
        assert grpc.StatusCode.UNIMPLEMENTED is refusal(channel, "Monitor", varint_field(1, DURATION_MS))


def test_real_server_without_the_flag_has_no_such_service(full_server: RunningServer) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{full_server.grpc_port}") as channel:
        assert grpc.StatusCode.UNIMPLEMENTED is refusal(channel, "Profile", varint_field(1, DURATION_MS))
