"""A multi-model endpoint as SageMaker sees it: models are laid into folders, loaded, invoked and unloaded."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import family, listening_ports

from running_stack import Answer, RunningStack
from stub_binary import StubBinary

__all__ = ["BODY", "RESULT", "Holdings", "ModelsStack", "begin", "description", "leaving_nothing", "refusal"]

BODY = '{"instances": [1.0, 2.0, 5.0]}'
RESULT = {"predictions": [2.5, 3.0, 4.5]}
COUNTS = re.compile(r"metrics/\w+_(\d+)\.db")


@dataclass(frozen=True)
class Holdings:
    """What a stack has: its processes, the ports they listen on, and the entries of its run folder.

    The counts of a worker that has ended are taken from its files when /metrics is read: that is done before,
    and those of workers that run are left out.
    """

    processes: frozenset[int]
    ports: frozenset[int]
    files: frozenset[str]


class ModelsStack(RunningStack):
    """One `./serve` process that begins without a model; with `stub` that is its model server."""

    PORTS_BEHIND = 30

    def __init__(self, first_port: int, stub: StubBinary | None = None, /, **environ: str) -> None:
        settings = {"SAGEMAKER_MULTI_MODEL": "true", **environ}
        settings = settings if stub is None else stub.environ(**settings)
        super().__init__(None, first_port, **settings)
        self.stub = stub
        self.models_folder.mkdir()

    @property
    def models_folder(self) -> Path:
        return self.folder / "ml" / "models"

    def url(self, name: str) -> str:
        """Return the folder into which SageMaker unpacks a model."""
        return str(self.models_folder / name / "model")

    def lay(self, name: str, artifact: Path) -> str:
        """Copy an artifact to where SageMaker unpacks it, in place of what is there, and return its url."""
        shutil.rmtree(self.url(name), ignore_errors=True)
        shutil.copytree(artifact, self.url(name))
        return self.url(name)

    def load(self, name: str, url: str | None = None) -> Answer:
        """Ask for a model to be loaded."""
        return self.order({"model_name": name, "url": self.url(name) if url is None else url})

    def order(self, document: Any) -> Answer:
        """POST any JSON to /models."""
        return self.request("POST", "/models", json.dumps(document).encode())

    def load_new(self, name: str, artifact: Path) -> None:
        """Lay a model down and load it."""
        self.lay(name, artifact)
        answer = self.load(name)
        assert (200, description(name, self.url(name))) == (answer.status, answer.json()), self.log

    def unload(self, name: str) -> Answer:
        return self.request("DELETE", f"/models/{name}")

    def invoke_model(
        self, name: str, body: bytes | str = BODY, content_type: str = "application/json", **headers: str
    ) -> Answer:
        """POST to a model; a header's name is written with underscores."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        return self.request("POST", f"/models/{name}/invoke", data, {"Content-Type": content_type, **named})

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send any request; one whose body is an iterable goes in chunks."""
        is_whole = isinstance(body, bytes)
        framing = {} if is_whole else {"Transfer-Encoding": "chunked"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(
                method, path, body, {**framing, **(headers or {})}, encode_chunked=not is_whole
            )
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Content-Type", ""), response.read())

    def listed(self) -> Mapping[str, str]:
        """Return the urls of all loaded models by name."""
        answer = self.request("GET", "/models")
        assert (200, "application/json") == (answer.status, answer.content_type)
        return {each["modelName"]: each["modelUrl"] for each in answer.json()["models"]}

    def unload_all(self) -> None:
        for name in self.listed():
            answer = self.unload(name)
            assert 200 == answer.status, answer

    def holdings(self) -> Holdings:
        """Return what there is now."""
        assert 200 == self.request("GET", "/metrics").status
        processes = family(self.process.pid)
        files = {str(file.relative_to(self.run_folder)) for file in self.run_folder.rglob("*")}
        counts = {name for name in files if (match := COUNTS.fullmatch(name)) and int(match[1]) in processes}
        return Holdings(
            frozenset(processes), frozenset(listening_ports(processes)), frozenset(files - counts)
        )


@contextlib.contextmanager
def leaving_nothing(stack: ModelsStack) -> Iterator[ModelsStack]:
    """Unload all models in the end, and hold the stack to have nothing left of them."""
    before = stack.holdings()
    yield stack
    stack.unload_all()
    assert before == stack.holdings()


def description(name: str, url: str) -> dict[str, str]:
    """Return what the endpoint says of a model."""
    return {"modelName": name, "modelUrl": url}


def refusal(answer: Answer) -> tuple[int, str]:
    """Return an error's status and sentence; every error is JSON with that alone."""
    assert answer.content_type == "application/json", answer
    assert list(answer.json()) == ["error"], answer
    sentence = answer.json()["error"]
    assert isinstance(sentence, str)
    assert sentence
    assert "Traceback" not in sentence
    return answer.status, sentence


def begin(act: Callable[..., Answer], *values: Any) -> Future[Answer]:
    """Do something in a thread, and return the answer to come."""
    thread = ThreadPoolExecutor(1)
    answer = thread.submit(act, *values)
    thread.shutdown(wait=False)
    return answer
