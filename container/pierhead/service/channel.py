"""The gRPC channel that the user's code gets: opened on first use, and again after it was closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

__all__ = ["CHANNEL_OPTIONS", "LazyChannel", "open_channel"]

# Messages as large as TensorFlow Serving's own limit. A refused connection is tried again at once: grpcio's
# default waits up to two minutes, and a restarted model server would look dead that long.
CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(port: int) -> grpc.Channel:
    """Return a channel to a model server on loopback."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)


class LazyChannel(grpc.Channel):
    """A channel like any other that costs nothing until it is used."""

    def __init__(self, open_real: Callable[[], grpc.Channel]) -> None:
        self._open_real = open_real
        self._real: grpc.Channel | None = None

    @property
    def _channel(self) -> grpc.Channel:
        if self._real is None:
            self._real = self._open_real()
        return self._real

    def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        """Follow the channel's state; see grpc.Channel."""
        return self._channel.subscribe(*args, **kwargs)

    def unsubscribe(self, *args: Any, **kwargs: Any) -> Any:
        """Stop following the channel's state; see grpc.Channel."""
        return self._channel.unsubscribe(*args, **kwargs)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable for a method of that kind; see grpc.Channel."""
        return self._channel.unary_unary(*args, **kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable for a method of that kind; see grpc.Channel."""
        return self._channel.unary_stream(*args, **kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable for a method of that kind; see grpc.Channel."""
        return self._channel.stream_unary(*args, **kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable for a method of that kind; see grpc.Channel."""
        return self._channel.stream_stream(*args, **kwargs)

    def close(self) -> None:
        """Close the channel; the next use opens a new one."""
        real, self._real = self._real, None
        if real is not None:
            real.close()

    def __enter__(self) -> LazyChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
