from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import numpy as np
import pytest
from tests.service.service_fakes import FakeModelServer, new_fake, running

from pierhead.control import ModelPlan, ServerAddress
from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import TensorSpec
from pierhead.service.call import Call
from pierhead.service.tfs_backend import TfsBackend

X = np.array([1.0, 2.0, 5.0], np.float32)
MODELS = (ModelPlan("a", (1, 2)),)


@pytest.fixture
def fake() -> FakeModelServer:
    return new_fake()


@pytest.fixture
def address(fake: FakeModelServer) -> Iterator[ServerAddress]:
    with running(fake) as address:
        yield address


@pytest.fixture
def backend(fake: FakeModelServer, address: ServerAddress) -> TfsBackend:
    return TfsBackend(fake.stubs, [address], MODELS)


def call(address: ServerAddress, model: str = "a", version: int | None = None, timeout: float = 10.0) -> Call:
    return Call(model, version, "predict", address, timeout)


def closed_address() -> ServerAddress:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return ServerAddress(listener.getsockname()[1], 1)


def test_prediction_holds_outputs_and_version(backend: TfsBackend, address: ServerAddress) -> None:
    prediction = backend.predict(call(address), "", {"x": X})

    assert prediction.outputs["y"].tolist() == [2.5, 3.0, 4.5]
    assert prediction.version == 1


def test_signature_is_read_from_the_metadata(backend: TfsBackend, address: ServerAddress) -> None:
    signature = backend.signature(call(address), "")

    assert signature.name == "serving_default"
    assert signature.inputs == {"x": TensorSpec("DT_FLOAT", (-1, 1))}
    assert signature.outputs == {"y": TensorSpec("DT_FLOAT", None)}


def test_signatures_are_asked_for_once(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer
) -> None:
    for _ in range(3):
        backend.signature(call(address), "")

    assert fake.metadata_calls == 1


def test_signatures_are_renewed_when_the_version_moves(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer
) -> None:
    backend.signature(call(address), "")
    fake.version = 3
    backend.predict(call(address), "", {"x": X})
    backend.signature(call(address), "")

    assert fake.metadata_calls == 2
    assert backend.served_version("a", None) == 3


def test_signatures_are_renewed_after_a_refusal(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer
) -> None:
    backend.signature(call(address), "")
    fake.version, fake.input_name = 3, "z"
    with pytest.raises(ServingError):
        backend.predict(call(address), "", {"x": X})

    assert list(backend.signature(call(address), "").inputs) == ["z"]


def test_unknown_signature_is_refused_as_by_rest(backend: TfsBackend, address: ServerAddress) -> None:
    with pytest.raises(ServingError, match='Serving signature name: "other" not found') as refusal:
        backend.signature(call(address), "other")

    assert refusal.value.code == Code.INVALID_ARGUMENT


def test_newest_version_is_the_plans_until_a_server_says_otherwise(backend: TfsBackend) -> None:
    assert backend.served_version("a", None) == 2
    assert backend.served_version("a", 1) == 1
    assert backend.served_version("b", None) is None


@pytest.mark.parametrize(
    ("model", "shape", "code", "message"),
    [
        ("nope", (1,), Code.NOT_FOUND, "Servable not found for request: Latest(nope)"),
        ("a", (1, 1, 1), Code.RESOURCE_EXHAUSTED, "too much"),
    ],
)
def test_code_and_message_are_the_servers(
    backend: TfsBackend, address: ServerAddress, model: str, shape: tuple[int, ...], code: Code, message: str
) -> None:
    with pytest.raises(ServingError) as refusal:
        backend.predict(call(address, model), "", {"x": np.ones(shape, np.float32)})

    assert (code, message) == (refusal.value.code, refusal.value.message)


def test_deadline_is_the_calls(backend: TfsBackend, address: ServerAddress, fake: FakeModelServer) -> None:
    fake.delay = 1.0

    with pytest.raises(ServingError) as refusal:
        backend.predict(call(address, timeout=0.1), "", {"x": X})

    assert refusal.value.code == Code.DEADLINE_EXCEEDED


def test_servers_take_turns(fake: FakeModelServer) -> None:
    servers = [ServerAddress(9000, 8501), ServerAddress(9001, 8502)]
    backend = TfsBackend(fake.stubs, servers, MODELS)

    assert servers * 2 == [backend.next_server() for _ in range(4)]


def test_refused_connection_goes_to_another_server(fake: FakeModelServer, address: ServerAddress) -> None:
    dead = closed_address()
    backend = TfsBackend(fake.stubs, [dead, address], MODELS)

    assert backend.predict(call(dead), "", {"x": X}).version == 1


def test_no_server_at_all_is_unavailable(fake: FakeModelServer) -> None:
    dead = closed_address()
    backend = TfsBackend(fake.stubs, [dead], MODELS)

    with pytest.raises(ServingError) as refusal:
        backend.predict(call(dead), "", {"x": X})

    assert refusal.value.code == Code.UNAVAILABLE


def test_messages_beyond_four_megabytes_pass(backend: TfsBackend, address: ServerAddress) -> None:
    values = np.ones(3_000_000, np.float32)

    prediction = backend.predict(call(address), "", {"x": values})

    assert len(prediction.outputs["y"]) == 3_000_000


def test_a_label_is_what_the_server_is_asked_for(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer
) -> None:
    labelled = Call("a", None, "predict", address, 10.0, "stable")

    backend.signature(labelled, "")
    backend.predict(labelled, "", {"x": X})

    assert fake.labels == ["stable", "stable"]
    assert backend.served_version("a", None) == 2  # a label says nothing about the newest version


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN])
def test_a_server_that_tells_no_signatures_is_not_asked_for_them_each_time(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer, code: grpc.StatusCode
) -> None:
    fake.metadata_refusal = code

    answers = [backend.tells_signatures(call(address, version=version)) for version in (None, 1, 2)]

    assert [False] * 3 == answers
    assert fake.metadata_calls == 1


@pytest.mark.parametrize(
    ("code", "label"),
    [(grpc.StatusCode.NOT_FOUND, None), (grpc.StatusCode.INVALID_ARGUMENT, "stable")],
)
def test_an_unknown_model_or_label_is_told_by_its_signature(
    backend: TfsBackend,
    address: ServerAddress,
    fake: FakeModelServer,
    code: grpc.StatusCode,
    label: str | None,
) -> None:
    fake.metadata_refusal = code
    asked = Call("a", None, "predict", address, 10.0, label)

    assert backend.tells_signatures(asked)
    with pytest.raises(ServingError, match="asked to refuse"):
        backend.signature(asked, "")


def test_a_server_that_is_away_is_asked_again(
    backend: TfsBackend, address: ServerAddress, fake: FakeModelServer
) -> None:
    fake.metadata_refusal = grpc.StatusCode.UNAVAILABLE
    assert not backend.tells_signatures(call(address))

    fake.metadata_refusal = None

    assert backend.tells_signatures(call(address))


def test_nobody_is_told_addresses(fake: FakeModelServer) -> None:
    dead = closed_address()
    backend = TfsBackend(fake.stubs, [dead], MODELS)

    for ask in (
        lambda: backend.predict(call(dead), "", {"x": X}),
        lambda: backend.forward(call(dead), b"{}"),
    ):
        with pytest.raises(
            ServingError, match=r"^the model server is away or broke off; it is being started again$"
        ):
            ask()


class FullServer(BaseHTTPRequestHandler):
    """A model server's REST API that has no memory."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(429)
        self.end_headers()
        self.wfile.write(b'{"error": "full"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("multi_model", "status"), [(False, 429), (True, 507)])
def test_want_of_memory_in_rest_has_the_status_that_it_has_everywhere(
    fake: FakeModelServer, multi_model: bool, status: int
) -> None:
    with HTTPServer(("127.0.0.1", 0), FullServer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = ServerAddress(1, server.server_port)
        backend = TfsBackend(fake.stubs, [address], MODELS, multi_model=multi_model)
        answer = backend.forward(call(address), b"{}")
        thread.join()

    assert (status, b'{"error": "full"}') == (answer.status, answer.body)
