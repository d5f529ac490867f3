"""What PIERHEAD_METRICS changes in the plan and in nginx's configuration, and the door of the page."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pytest

from pierhead.settings import Settings
from pierhead.supervisor.doors import MetricsDoor
from pierhead.supervisor.nginx_config import find_template, render_nginx_config
from pierhead.supervisor.run_folder import RunFolder


@pytest.mark.parametrize(
    ("readers", "has_page", "is_bounded"),
    [("loopback", True, True), ("all", True, False), ("off", False, False)],
)
def test_setting_decides_who_may_read(
    readers: str, has_page: bool, is_bounded: bool, short_folder: Path
) -> None:
    run = RunFolder.make(short_folder / "run")
    text = render_nginx_config(
        find_template(),
        Settings.from_env({"PIERHEAD_METRICS": readers}),
        run=run,
        servers=(),
        default_model="m",
        has_hooks=True,
        is_embedded=True,
    )

    assert has_page == ("location = /metrics" in text)
    assert has_page == (str(run.request_pipe) in text)
    assert is_bounded == ("deny all" in text)


@pytest.mark.parametrize(("method", "body"), [("GET", b"a 1\n"), ("HEAD", b"")])
def test_door_shows_the_page_with_its_type(method: str, body: bytes, short_folder: Path) -> None:
    path = short_folder / "metrics.sock"
    door = MetricsDoor(path, lambda: b"a 1\n")
    door.open()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            connection.sendall(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
            assert body == response.read()
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            response.close()
    finally:
        door.close()
