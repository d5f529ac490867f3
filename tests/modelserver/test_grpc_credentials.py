"""gRPC over TLS, on real ports, with certificates made on the spot."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from tests.modelserver.fake_runtime import FakePlatform

from pierhead.errors import Code, ServingError
from pierhead.modelserver.dataplane import DataPlane
from pierhead.modelserver.grpc_credentials import read_credentials
from pierhead.modelserver.grpc_server import GrpcAddress, GrpcServer
from pierhead.modelserver.protobuf_codec import ProtobufCodec
from pierhead.modelserver.registry import Registry, Retries
from pierhead.serving_stubs import ServingStubs

SECONDS = 10


@dataclass(frozen=True)
class Identity:
    """A key and the certificate that it signed itself, PEM."""

    key: str
    certificate: str


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    folder = tmp_path_factory.mktemp("identity")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True, timeout=SECONDS)
    return Identity(key.read_text(), certificate.read_text())


def write_config(path: Path, identity: Identity, *more: str) -> str:
    lines = {"server_key": identity.key, "server_cert": identity.certificate}
    texts = [f"{name}: {text!r}" for name, text in lines.items()]
    path.write_text("\n".join([*texts, *more]))
    return str(path)


@contextmanager
def tls_server(port: int, config: str) -> Iterator[None]:
    registry = Registry(FakePlatform(), Retries())
    registry.load("half", 1, Path("/half/1"))
    server = GrpcServer(DataPlane(registry), ProtobufCodec(), threads=1)
    server.start(GrpcAddress(port, "127.0.0.1", credentials=read_credentials(config)))
    yield
    server.stop(SECONDS)


def ask_status(stubs: ServingStubs, channel: grpc.Channel) -> int:
    request = stubs.get_model_status.GetModelStatusRequest()
    request.model_spec.name = "half"
    with channel:
        response = stubs.ModelServiceStub(channel).GetModelStatus(request, timeout=SECONDS)
    return len(response.model_version_status)


def test_port_with_certificate_speaks_tls_only(
    stubs: ServingStubs, identity: Identity, tmp_path: Path, free_ports: Callable[[int], int]
) -> None:
    port = free_ports(1)
    trusted = grpc.ssl_channel_credentials(identity.certificate.encode())
    with tls_server(port, write_config(tmp_path / "ssl", identity)):
        assert ask_status(stubs, grpc.secure_channel(f"localhost:{port}", trusted)) == 1
        with pytest.raises(grpc.RpcError):
            ask_status(stubs, grpc.insecure_channel(f"localhost:{port}"))


def test_client_without_certificate_is_refused_where_one_is_wanted(
    stubs: ServingStubs, identity: Identity, tmp_path: Path, free_ports: Callable[[int], int]
) -> None:
    port = free_ports(1)
    root = identity.certificate.encode()
    config = write_config(
        tmp_path / "ssl", identity, f"custom_ca: {identity.certificate!r}", "client_verify: true"
    )
    known = grpc.ssl_channel_credentials(root, identity.key.encode(), root)
    with tls_server(port, config):
        assert ask_status(stubs, grpc.secure_channel(f"localhost:{port}", known)) == 1
        with pytest.raises(grpc.RpcError):
            ask_status(stubs, grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(root)))


def test_without_a_file_the_port_is_plain() -> None:
    assert read_credentials("") is None


@pytest.mark.parametrize(
    "text", ["server_key: 'k'", "nonsense", "server_key: 'k' server_cert: 'c' client_verify: true"]
)
def test_unusable_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ssl").write_text(text)
    with pytest.raises(ServingError) as caught:
        read_credentials(str(tmp_path / "ssl"))

    assert caught.value.code is Code.INVALID_ARGUMENT


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="Invalid protobuf file"):
        read_credentials(str(tmp_path / "ssl"))
