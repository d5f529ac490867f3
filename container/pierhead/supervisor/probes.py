"""Asks a process that is starting whether it answers yet, and reports the first time that it does."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable

from pierhead.supervisor.events import ProbeAnswered

__all__ = ["Probe", "answers_pings", "serves_models", "start_probe"]

Probe = Callable[[], bool]
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.25
ANSWER_SECONDS = 10.0  # while it loads, a model server may take seconds to say so


def start_probe(
    name: str, pid: int, probe: Probe, report: Callable[[ProbeAnswered], None]
) -> threading.Event:
    """Ask again and again, in a thread, until the probe is true; set the event returned to stop asking."""
    cancelled = threading.Event()

    def ask() -> None:
        pause = FIRST_PAUSE
        while not cancelled.is_set():
            if probe():
                report(ProbeAnswered(name, pid))
                return
            cancelled.wait(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)

    threading.Thread(target=ask, daemon=True).start()
    return cancelled


def serves_models(rest_port: int, models: tuple[str, ...]) -> Probe:
    """Return a probe that is true when a model server has each model AVAILABLE, and no version still loads.

    It remembers nothing: a server that has been started again is asked for all of them again.
    """
    return lambda: all(_is_available(rest_port, model) for model in models)


def answers_pings(port: int) -> Probe:
    """Return a probe that is true when nginx passes the supervisor's own answer on, whatever that says."""

    def probe() -> bool:
        answer = _get(port, "/ping")
        return answer is not None and answer[0] in (200, 503)

    return probe


def _is_available(rest_port: int, model: str) -> bool:
    answer = _get(rest_port, f"/v1/models/{urllib.parse.quote(model, safe='')}")
    if answer is None or answer[0] != 200:
        return False
    try:
        versions = json.loads(answer[1])["model_version_status"]
        states = {version["state"] for version in versions}
        # A version that could not be loaded is no reason to wait; one that still may be is.
        return "AVAILABLE" in states and not states & {"START", "LOADING"}
    except (ValueError, KeyError, TypeError):
        return False


def _get(port: int, path: str) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
