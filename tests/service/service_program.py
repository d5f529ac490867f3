"""The real program of the handler workers, before a stand-in for the supervisor."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue

from pierhead.control import Accepted, Message, ServicePlan, WorkerReady, decode, encode, write_plan

SECONDS = 60


class UnixConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


@dataclass
class FakeSupervisor:
    """Accepts every report and keeps it."""

    path: str
    reports: Queue[Message] = field(default_factory=Queue)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                self.reports.put(decode(lines.readline()))
                connection.sendall(encode(Accepted()))


@dataclass
class Service:
    """The running program."""

    process: subprocess.Popen[str]
    socket: str
    supervisor: FakeSupervisor
    log: Path

    def ready(self) -> int:
        report = self.supervisor.reports.get(timeout=SECONDS)
        assert isinstance(report, WorkerReady)
        return report.pid

    def post(self, body: bytes, path: str = "/invocations", **headers: str) -> tuple[int, bytes]:
        connection = UnixConnection(self.socket)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def supervising(path: Path) -> Iterator[FakeSupervisor]:
    """Take reports at a control socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        fake = FakeSupervisor(str(path))
        listener.bind(fake.path)
        listener.listen()
        thread = threading.Thread(target=fake.serve, args=(listener,))
        thread.start()
        try:
            yield fake
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def running_program(
    plan: ServicePlan, folder: Path, supervisor: FakeSupervisor, log: Path, **environ: str
) -> Iterator[Service]:
    """Run the program with its plan in `folder`."""
    write_plan(plan, folder / "plan.json")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pierhead.service", str(folder / "plan.json")],
            stdout=output,
            stderr=output,
            text=True,
            cwd=log.parent,
            env={
                **os.environ,
                "HOME": str(log.parent / "home"),
                "TMPDIR": str(log.parent / "none"),
                **environ,
            },
        )
        try:
            yield Service(process, plan.socket, supervisor, log)
        finally:
            process.kill()
            process.wait()
