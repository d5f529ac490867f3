"""Clients in threads: each sends one request after another until it is told to stop, and notes what came."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from dataclasses import dataclass, field

from benchmarks.soak.exchanges import Exchange, large_exchange, random_exchange
from benchmarks.soak.hostile import Hostility, is_json_error, random_hostility

__all__ = ["Crowd", "Outcome"]

PATIENCE_SECONDS = 30.0
HOSTILE_SHARE, LARGE_SHARE = 0.05, 0.01
OK = 200
# What a request may get, or lose its connection to, while a process is away.
AWAY = (0, 502, 504)


@dataclass(frozen=True)
class Outcome:
    """What came of a request: `problem` is never to happen, `is_lost` may happen right after a kill."""

    name: str
    began: float
    seconds: float
    status: int
    is_lost: bool = False
    problem: str = ""
    is_hostile: bool = False


@dataclass
class Crowd:
    """All clients of a run, against one port."""

    port: int
    seed: int
    may_stream: bool
    outcomes: list[Outcome] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Let them in."""
        for number in range(count):
            random_ = random.Random(self.seed * 1000 + number)  # noqa: S311 - to be repeated, not secret
            thread = threading.Thread(target=self._run, args=(random_,))
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Let them finish what they are at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_SECONDS)

    def _run(self, random_: random.Random) -> None:
        connection = self._connection()
        while not self._stopping.is_set():
            share = random_.random()
            if share < HOSTILE_SHARE:
                self.outcomes.append(self._provoke(random_hostility(random_)))
                continue
            choose = large_exchange if share < HOSTILE_SHARE + LARGE_SHARE else random_exchange
            outcome = _exchange(connection, choose(random_, may_stream=self.may_stream))
            self.outcomes.append(outcome)
            if outcome.is_lost:
                # Whoever is refused comes back a little later.
                self._stopping.wait(0.05)
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def _provoke(self, hostility: Hostility) -> Outcome:
        began = time.monotonic()
        status, problem = self._answer_to(hostility)
        is_lost = not problem and status not in hostility.allowed and status in AWAY
        if not problem and status not in hostility.allowed and not is_lost:
            problem = f"status {status} and none of {hostility.allowed}"
        seconds = time.monotonic() - began
        return Outcome(hostility.name, began, seconds, status, is_lost, problem, is_hostile=True)

    def _answer_to(self, hostility: Hostility) -> tuple[int, str]:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS) as connection:
                hostility.send(connection)
                if hostility.allowed == (0,):
                    return 0, ""
                response = http.client.HTTPResponse(connection, method="POST")
                response.begin()
                body = response.read()
        except TimeoutError:
            return 0, f"no answer within {PATIENCE_SECONDS:g} s"
        except (OSError, http.client.HTTPException):
            return 0, ""
        return response.status, _refusal_problem(response, body)


def _exchange(connection: http.client.HTTPConnection, exchange: Exchange) -> Outcome:
    began = time.monotonic()
    try:
        connection.request("POST", "/invocations", exchange.body, dict(exchange.headers))
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        connection.close()
        problem = f"no answer within {PATIENCE_SECONDS:g} s"
        return Outcome(exchange.name, began, time.monotonic() - began, 0, problem=problem)
    except (OSError, http.client.HTTPException):
        connection.close()
        return Outcome(exchange.name, began, time.monotonic() - began, 0, is_lost=True)
    seconds = time.monotonic() - began
    if response.status == OK:
        problem = exchange.problem_of(response.headers.get("Content-Type", ""), body)
    else:
        problem = _refusal_problem(response, body)
    is_lost = response.status != OK and not problem and response.status in AWAY
    if response.status != OK and not problem and not is_lost:
        problem = f"status {response.status}: {body[:200]!r}"
    return Outcome(exchange.name, began, seconds, response.status, is_lost, problem)


def _refusal_problem(response: http.client.HTTPResponse, body: bytes) -> str:
    if response.status == OK or is_json_error(response.headers.get("Content-Type", ""), body):
        return ""
    return f"status {response.status} whose body is no JSON error: {body[:200]!r}"
