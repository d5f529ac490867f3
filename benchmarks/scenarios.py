"""What is measured of a running server: the requests, from how many clients, and through which door."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.conversion import SMALL_BODY, csv_body, image_body
from benchmarks.load import HttpLoad, LoadResult
from benchmarks.servers import CHECKOUT, Server

__all__ = ["GrpcScenario", "HttpScenario", "Sample", "Scenario", "measure", "scenarios"]

JSON, CSV = "application/json", "text/csv"


@dataclass(frozen=True)
class Sample:
    """The figures of one round, and the processor time that the server used for each answer."""

    load: LoadResult
    server_cpu_us: float


@dataclass(frozen=True)
class HttpScenario:
    """Requests over HTTP."""

    name: str
    server: Server
    path: str
    body_file: Path
    clients: int
    content_type: str = JSON

    def command(self, seconds: float) -> list[str]:
        """Return the command of the client."""
        load = HttpLoad(
            self.server.rest_port, self.path, str(self.body_file), self.content_type, self.clients, seconds
        )
        return [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(load))]


@dataclass(frozen=True)
class GrpcScenario:
    """Calls over gRPC."""

    name: str
    server: Server
    clients: int

    def command(self, seconds: float) -> list[str]:
        """Return the command of the client."""
        arguments = [str(self.server.grpc_port), str(self.clients), str(seconds)]
        return [sys.executable, "-m", "benchmarks.grpc_load", *arguments]


Scenario = HttpScenario | GrpcScenario


def scenarios(models: Server, constant: Server, folder: Path) -> list[Scenario]:
    """Return all scenarios; their bodies are written into the folder."""
    small, image, table = folder / "small.json", folder / "image.json", folder / "table.csv"
    small.write_bytes(SMALL_BODY)
    image.write_bytes(image_body())
    table.write_bytes(csv_body())
    half = "/v1/models/half_plus_two:predict"
    total = "/invocations/v1/models/table:predict"
    each: list[Scenario] = []
    for clients in (1, 16):
        each += [
            HttpScenario("constant answer, REST", constant, half, small, clients),
            HttpScenario("half_plus_two, REST", models, half, small, clients),
            GrpcScenario("half_plus_two, gRPC", models, clients),
        ]
    each.append(HttpScenario("image of 3 MB, REST", models, "/v1/models/image:predict", image, 1))
    each.append(HttpScenario("CSV of 1,000 rows, invocations", models, total, table, 1, CSV))
    return each


def measure(each: Sequence[Scenario], rounds: int, seconds: float) -> list[list[Sample]]:
    """Return the samples of each scenario: all once in every round, after one round that does not count."""
    samples: list[list[Sample]] = [[] for _ in each]
    for number in range(rounds + 1):
        for scenario, column in zip(each, samples, strict=True):
            sample = _sample(scenario, seconds if number else seconds / 2)
            if number:
                column.append(sample)
    return samples


def _sample(scenario: Scenario, seconds: float) -> Sample:
    before = scenario.server.cpu_seconds()
    ended = subprocess.run(scenario.command(seconds), cwd=CHECKOUT, check=True, stdout=subprocess.PIPE)
    load = LoadResult(**json.loads(ended.stdout))
    return Sample(load, (scenario.server.cpu_seconds() - before) / load.answers * 1e6)
