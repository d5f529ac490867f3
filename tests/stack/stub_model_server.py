"""STUB: a fake `tensorflow_model_server` for tests. It says so when it starts, and it runs no model.

It takes the real binary's flags, answers its REST and gRPC APIs for the models of its configuration, and
records its command line and every request in the folder `STUB_RECORDS` (read by `stub_binary.py`). A number
in becomes `0.5 * x + 2`, anything else comes back as it is.

Knobs are environment variables, lines `NAME=value` of a file `knobs` in a model's folder, which hold for the
whole process, or a marker `NAME=value` within the first 64 KB of a body:

- READY_AFTER: seconds until it listens (the real one refuses connections while it loads). With LISTEN_EARLY=1
  it listens at once, with its models LOADING.
- READY_WHEN: a path; it does not listen before there is something.
- DELAY: seconds that a prediction takes.
- DIE_ON: a word; a body that holds it ends the process.
- REPLY_MB: the size of the answer, which is one long text.
- REFUSE: a canonical code's name, with which predictions are refused (RESOURCE_EXHAUSTED).
- EXIT_AT_LOAD: a message; it is printed, and the process ends with status 1.
- IGNORE_TERM: set to ignore SIGTERM.
- NO_METADATA: set to have no GetModelMetadata, and no metadata over REST.
- INPUT_DTYPE: the dtype of the only input `x` in the metadata; DT_FLOAT without it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import text_format

from pierhead.contract.status import HTTP_STATUS
from pierhead.errors import Code
from pierhead.serving_stubs import ServingStubs, import_serving_stubs
from pierhead.tensor_protos import DTYPE_NUMBERS, read_tensor, write_tensor

SAYS_SO = "STUB: this is a fake tensorflow_model_server for tests; it runs no model"
MARKED_PART = 1 << 16
LONGEST_RECORD = 1 << 20
MEGABYTE = 1 << 20
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(?::(predict|classify|regress)|(/metadata))?")
RESULT_KEYS = {"instances": "predictions", "inputs": "outputs", "examples": "results"}


class Refusal(Exception):
    """A request refused with a canonical code and a sentence."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def knob(name: str, body: bytes = b"") -> str:
    """Return what a marker in the body, else the environment, says; empty where neither does."""
    marker = re.search(rb"\b%s=([\w.-]+)" % name.encode(), body[:MARKED_PART])
    return marker[1].decode() if marker else os.environ.get(name, "")


class Records:
    """Two files in one folder: a line of JSON for each start, and one for each request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add_start(self, arguments: list[str]) -> None:
        self._append("starts.jsonl", {"arguments": arguments})

    def add_request(self, *, door: str, method: str, path: str, headers: list[Any], body: bytes) -> None:
        """Record a request; of a body above 1 MB only the length and the digest."""
        text = base64.b64encode(body).decode() if len(body) <= LONGEST_RECORD else None
        digest = hashlib.sha256(body).hexdigest()
        request = {"door": door, "method": method, "path": path, "headers": headers, "body": text}
        self._append("requests.jsonl", request | {"length": len(body), "sha256": digest})

    def _append(self, name: str, record: dict[str, Any]) -> None:
        line = json.dumps({"pid": os.getpid(), "time": time.time(), **record}) + "\n"
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


@dataclass
class Stub:
    """What both doors share: models with their versions, and the behaviour that knobs ask for."""

    stubs: ServingStubs
    models: Mapping[str, list[int]]
    records: Records
    loaded: threading.Event = field(default_factory=threading.Event)

    def version(self, name: str, version: int | None) -> int:
        """Return the version that answers; raise Refusal with the real server's sentence."""
        versions = self.models.get(name, []) if self.loaded.is_set() else []
        if not versions or version not in (None, *versions):
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refusal(Code.NOT_FOUND, f"Servable not found for request: {wanted}")
        return versions[-1] if version is None else version

    def behave(self, body: bytes) -> None:
        """Do what the knobs ask for before a prediction."""
        word = knob("DIE_ON", body).encode()
        if word and word in body:
            os._exit(9)
        time.sleep(float(knob("DELAY", body) or 0))
        refusal = knob("REFUSE", body)
        if refusal:
            raise Refusal(Code[refusal], f"the stub was asked to refuse with {refusal}")


def reply_text(body: bytes) -> str | None:
    """Return the long text that REPLY_MB asks for."""
    size = knob("REPLY_MB", body)
    return "x" * int(float(size) * MEGABYTE) if size else None


def computed(value: Any) -> Any:
    """Return `0.5 * x + 2` for every number within a JSON value, and all else as it is."""
    if isinstance(value, list):
        return [computed(each) for each in value]
    if isinstance(value, dict):
        return {key: computed(each) for key, each in value.items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return 0.5 * value + 2 if is_number else value


def json_answer(body: bytes) -> Any:
    """Return the REST answer's value; raise Refusal for what the real server cannot read."""
    try:
        root = json.loads(body)
    except ValueError as problem:
        raise Refusal(Code.INVALID_ARGUMENT, f"JSON Parse error: {problem}") from problem
    keys = [key for key in RESULT_KEYS if isinstance(root, dict) and key in root]
    if not keys:
        raise Refusal(Code.INVALID_ARGUMENT, "Missing 'inputs' or 'instances' key")
    text = reply_text(body)
    return {RESULT_KEYS[keys[0]]: computed(root[keys[0]]) if text is None else [text]}


class RestHandler(BaseHTTPRequestHandler):
    """The REST door: status, metadata and the three methods."""

    protocol_version = "HTTP/1.1"
    stub: Stub

    def do_GET(self) -> None:
        self._record(b"")
        self._answer(self._get)

    def do_POST(self) -> None:
        body = self._read_body()
        self._record(body)
        self._answer(lambda: self._post(body))

    def _get(self) -> Any:
        name, version, _, metadata = self._parts()
        if metadata:
            if knob("NO_METADATA"):
                raise Refusal(Code.NOT_FOUND, "the stub has no metadata")
            served = self.stub.version(name, version)
            spec = {"name": name, "version": str(served), "signature_name": ""}
            return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": rest_signatures()}}}
        if name not in self.stub.models:
            raise Refusal(Code.NOT_FOUND, f"Could not find any versions of model {name}")
        versions = self.stub.models[name] if version is None else [version]
        state = "AVAILABLE" if self.stub.loaded.is_set() else "LOADING"
        status = {"error_code": "OK", "error_message": ""}
        listed = [{"version": str(each), "state": state, "status": status} for each in reversed(versions)]
        return {"model_version_status": listed}

    def _post(self, body: bytes) -> Any:
        name, version, method, _ = self._parts()
        if method is None:
            raise Refusal(Code.NOT_FOUND, f"Malformed request: POST {self.path}")
        self.stub.version(name, version)
        self.stub.behave(body)
        return json_answer(body)

    def _parts(self) -> tuple[str, int | None, str | None, str | None]:
        match = PATH.fullmatch(self.path)
        if match is None:
            raise Refusal(Code.NOT_FOUND, f"Malformed request: {self.command} {self.path}")
        name, version, method, metadata = match.groups()
        return name, None if version is None else int(version), method, metadata

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return b"".join(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _record(self, body: bytes) -> None:
        headers = [list(pair) for pair in self.headers.items()]
        self.stub.records.add_request(
            door="rest", method=self.command, path=self.path, headers=headers, body=body
        )

    def _answer(self, answer: Callable[[], Any]) -> None:
        try:
            status, value = 200, answer()
        except Refusal as refusal:
            status, value = HTTP_STATUS[refusal.code], {"error": str(refusal)}
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing for a request: the records have it."""


class RestServer(ThreadingHTTPServer):
    """The REST door's listener; as patient with bursts as the real one."""

    request_queue_size = 1024

    def handle_error(self, *_: Any) -> None:
        """Be silent about clients that broke off."""


def rest_signatures() -> dict[str, Any]:
    """Return the signatures as REST's metadata shows them."""
    shape = {"dim": [], "unknown_rank": True}
    inputs = {"x": {"name": "x:0", "dtype": input_dtype(), "tensor_shape": shape}}
    outputs = {"y": {"name": "y:0", "dtype": input_dtype(), "tensor_shape": shape}}
    return {
        "serving_default": {
            "inputs": inputs,
            "outputs": outputs,
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        }
    }


def input_dtype() -> str:
    """Return the dtype of the only input."""
    return knob("INPUT_DTYPE") or "DT_FLOAT"


class GrpcDoor:
    """The gRPC door: Predict and GetModelMetadata."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    def add_to(self, server: grpc.Server) -> None:
        stubs = self._stub.stubs
        servicer = stubs.PredictionServiceServicer()
        servicer.Predict = self._refusing("Predict", self._predict)
        if not knob("NO_METADATA"):
            servicer.GetModelMetadata = self._refusing("GetModelMetadata", self._metadata)
        stubs.add_PredictionServiceServicer_to_server(servicer, server)

    def _refusing(self, method: str, answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            headers = [[key, str(value)] for key, value in context.invocation_metadata()]
            body = request.SerializeToString()
            self._stub.records.add_request(door="grpc", method=method, path="", headers=headers, body=body)
            try:
                return answer(request)
            except Refusal as refusal:
                context.abort(grpc.StatusCode[refusal.code.name], str(refusal))

        return call

    def _version(self, spec: Any) -> int:
        return self._stub.version(spec.name, spec.version.value if spec.HasField("version") else None)

    def _predict(self, request: Any) -> Any:
        answer = self._stub.stubs.predict.PredictResponse()
        answer.model_spec.name = request.model_spec.name
        answer.model_spec.version.value = self._version(request.model_spec)
        answer.model_spec.signature_name = request.model_spec.signature_name or "serving_default"
        arrays = {name: read_tensor(proto, name) for name, proto in request.inputs.items()}
        body = b" ".join(text for each in arrays.values() for text in texts_of(each))
        self._stub.behave(body)
        text = reply_text(body)
        for name, array in arrays.items():
            output = "y" if len(arrays) == 1 else name
            value = computed_array(array) if text is None else np.array([text.encode()], object)
            write_tensor(value, answer.outputs[output])
        return answer

    def _metadata(self, request: Any) -> Any:
        metadata = self._stub.stubs.get_model_metadata
        answer = metadata.GetModelMetadataResponse()
        answer.model_spec.name = request.model_spec.name
        answer.model_spec.version.value = self._version(request.model_spec)
        signatures = metadata.SignatureDefMap()
        definition = signatures.signature_def["serving_default"]
        definition.method_name = "tensorflow/serving/predict"
        for infos, name in ((definition.inputs, "x"), (definition.outputs, "y")):
            infos[name].name = f"{name}:0"
            infos[name].dtype = DTYPE_NUMBERS[input_dtype()]
            infos[name].tensor_shape.unknown_rank = True
        answer.metadata["signature_def"].Pack(signatures)
        return answer


def texts_of(array: Any) -> list[bytes]:
    """Return the texts of an array of strings: markers may be in them."""
    return list(array.reshape(-1)) if array.dtype == object else []


def computed_array(array: Any) -> Any:
    """Return `0.5 * x + 2` in the array's own dtype; texts and truth values as they are."""
    return (array * 0.5 + 2).astype(array.dtype) if array.dtype.kind in "iuf" else array


def read_flags(arguments: list[str]) -> dict[str, str]:
    """Return the flags by name; a flag without a value is `true`."""
    pairs = (argument.lstrip("-").partition("=") for argument in arguments)
    return {name: value if sign else "true" for name, sign, value in pairs}


def read_models(flags: Mapping[str, str], stubs: ServingStubs) -> dict[str, list[int]]:
    """Return the versions of each model that the flags configure."""
    if "model_config_file" not in flags:
        return {flags["model_name"]: versions_below(Path(flags["model_base_path"]))}
    return {
        each.name: sorted(each.model_version_policy.specific.versions)
        or versions_below(Path(each.base_path))[-1:]
        for each in read_config(flags["model_config_file"], stubs)
    }


def read_config(path: str, stubs: ServingStubs) -> list[Any]:
    """Return the models of a configuration file."""
    config = stubs.model_server_config.ModelServerConfig()
    text_format.Parse(Path(path).read_text(), config)
    return list(config.model_config_list.config)


def take_knobs(flags: Mapping[str, str], stubs: ServingStubs) -> None:
    """Take the knobs that lie beside the versions of a model into the environment."""
    for model in read_config(flags["model_config_file"], stubs) if "model_config_file" in flags else ():
        file = Path(model.base_path) / "knobs"
        lines = file.read_text().splitlines() if file.exists() else []
        os.environ.update(dict(line.split("=", 1) for line in lines))


def versions_below(folder: Path) -> list[int]:
    """Return the integer names in a model's folder, ascending."""
    return sorted(int(child.name) for child in folder.iterdir() if child.name.isdigit())


def main(arguments: list[str]) -> None:
    """Serve until a signal."""
    sys.stderr.write(f"{SAYS_SO}\n")
    if "--version" in arguments:
        return
    records = Records(Path(os.environ["STUB_RECORDS"]))
    records.add_start(arguments)
    flags = read_flags(arguments)
    stubs = import_serving_stubs()
    take_knobs(flags, stubs)
    if knob("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if knob("EXIT_AT_LOAD"):
        sys.exit(knob("EXIT_AT_LOAD"))
    stub = Stub(stubs, read_models(flags, stubs), records)
    serve(stub, flags, float(knob("READY_AFTER") or 0))


def serve(stub: Stub, flags: Mapping[str, str], seconds: float) -> None:
    """Open the doors and answer; the process ends by a signal."""
    while knob("READY_WHEN") and not Path(knob("READY_WHEN")).exists():
        time.sleep(0.01)
    if not knob("LISTEN_EARLY"):
        time.sleep(seconds)
        stub.loaded.set()
    door = grpc.server(ThreadPoolExecutor(64), options=[("grpc.max_receive_message_length", -1)])
    GrpcDoor(stub).add_to(door)
    door.add_insecure_port(f"127.0.0.1:{flags.get('port', '8500')}")
    door.start()
    RestHandler.stub = stub
    threading.Timer(seconds, stub.loaded.set).start()
    with RestServer(("127.0.0.1", int(flags["rest_api_port"])), RestHandler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
