"""Every format in and out, with the same answer on the direct path and through the handler workers."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifacts import artifact_with_hooks
from running_stack import Answer, RunningStack
from test_model_server_choice import make_stand_in

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
JSON, LINES, CSV = "application/json", "application/jsonlines", "text/csv"
NPY, NPZ, RAW = "application/x-npy", "application/x-npz", "application/octet-stream"
BUILT_IN = """
    from pierhead.hooks import read_request, write_answer


    def input_handler(data, context):
        return read_request(data, context)


    def output_handler(response, context):
        return write_answer(response, context)
    """
LARGEST_MB = 2


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    script = Path(__file__).with_name("build_format_models.py")
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True, timeout=150)
    return folder


@pytest.fixture(scope="module")
def stacks(
    models: Path, free_ports: Callable[[int], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, RunningStack]]:
    """Yield a stack for each way: direct, by a binary on PATH and the default handler, and by hooks."""
    environ = {
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "numbers",
        "PIERHEAD_MAX_DECOMPRESSED_MB": str(LARGEST_MB),
    }
    stand_in = make_stand_in(tmp_path_factory.mktemp("stand-in"))
    hooks = artifact_with_hooks(tmp_path_factory.mktemp("hooks"), models, BUILT_IN)
    with ExitStack() as running:
        started = {
            "direct": RunningStack(models, free_ports(9), **environ),
            "binary": RunningStack(models, free_ports(9), **environ, **stand_in),
            "hooks": RunningStack(hooks, free_ports(9), **environ),
        }
        for stack in started.values():
            running.enter_context(stack)
        for stack in started.values():
            stack.wait_until_ready()
        yield started


def answers(
    stacks: dict[str, RunningStack],
    body: bytes,
    content_type: str,
    accept: str = "",
    model: str = "numbers",
    **headers: str,
) -> Answer:
    """Return the answer that all ways give, which is the same."""
    named = {"Accept": accept, ATTRIBUTES: f"tfs-model-name={model}", **headers}
    given = {way: stack.invoke(body, content_type, **named) for way, stack in stacks.items()}

    assert {"direct": given["direct"]} | given == dict.fromkeys(given, given["direct"])
    return given["direct"]


PREDICTIONS = b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'
ROWS = b'{"instances":[1.0,2.0,5.0]}'


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, ROWS),
        ("application/json;verbose=true", ROWS),
        ("application/json; charset=ISO-8859-1", ROWS),
        ("application/json; charset=utf-16", ROWS.decode().encode("utf-16")),
        (LINES, b"1.0\n2.0\n\n5.0"),
        (JSON, b"1.0\n2.0\n5.0"),
        (CSV, b"1.0\r\n2.0\r\n5.0\r\n"),
        ("text/csv; label_size=1", b'1.0\n" 2.0 "\n5.0'),
        (NPY, npy([1.0, 2.0, 5.0])),
        (NPY, npy([1, 2, 5])),
    ],
)
def test_a_body_of_instances_gives_predictions(
    stacks: dict[str, RunningStack], content_type: str, body: bytes
) -> None:
    assert answers(stacks, body, content_type) == Answer(200, JSON, PREDICTIONS)


def test_an_archive_is_a_request_by_tensors(stacks: dict[str, RunningStack]) -> None:
    answer = answers(stacks, npz(x=np.array([1.0, 2.0])), NPZ)

    assert (answer.status, answer.json()) == (200, {"outputs": [2.5, 3.0]})


@pytest.mark.parametrize(
    ("accept", "content_type", "expected"),
    [
        ("", JSON, PREDICTIONS),
        ("*/*", JSON, PREDICTIONS),
        ("application/json;verbose=true", JSON, PREDICTIONS),
        ("application/json, application/jsonlines", JSON, PREDICTIONS),
        ("application/jsonlines;q=0.9, */*;q=0.1", LINES, b"2.5\n3.0\n4.5\n"),
        ("image/png, text/csv", CSV, b"2.5\n3.0\n4.5\n"),
        ("text/*", CSV, b"2.5\n3.0\n4.5\n"),
        (NPY, NPY, npy(np.array([2.5, 3.0, 4.5], np.float32))),
    ],
)
def test_accept_chooses_a_concrete_type(
    stacks: dict[str, RunningStack], accept: str, content_type: str, expected: bytes
) -> None:
    assert answers(stacks, ROWS, JSON, accept) == Answer(200, content_type, expected)


@pytest.mark.parametrize("accept", ["image/png", "image/*, text/html", "application/*;q=0, text/html"])
def test_nothing_that_can_be_written_is_406_in_json(stacks: dict[str, RunningStack], accept: str) -> None:
    answer = answers(stacks, ROWS, JSON, accept)

    assert (answer.status, answer.content_type) == (406, JSON)
    assert "application/x-npy" in answer.json()["error"]


PAIR = b'{"instances":[{"a":1,"b":"x"},{"a":3,"b":"y"}]}'


def test_several_outputs_are_an_archive_and_no_array(stacks: dict[str, RunningStack]) -> None:
    archive = answers(stacks, PAIR, JSON, NPZ, "pair")
    array = answers(stacks, PAIR, JSON, NPY, "pair")

    assert (archive.status, archive.content_type) == (200, NPZ)
    with np.load(io.BytesIO(archive.body)) as outputs:
        assert {name: outputs[name].tolist() for name in outputs.files} == {
            "half": [0.5, 1.5],
            "loud": ["x!", "y!"],
            "raw_bytes": ["eA==", "eQ=="],
        }
    assert (array.status, array.content_type) == (406, JSON)
    assert "3 outputs (half, loud, raw_bytes)" in array.json()["error"]


@pytest.mark.parametrize("accept", [LINES, CSV])
def test_several_outputs_in_lines(stacks: dict[str, RunningStack], accept: str) -> None:
    assert answers(stacks, PAIR, JSON, accept, "pair").body.count(b"\n") == 2


def test_several_inputs_come_in_an_archive(stacks: dict[str, RunningStack]) -> None:
    body = npz(a=np.array([1, 3]), b=np.array(["x", "y"]))
    expected = {"half": [0.5, 1.5], "loud": ["x!", "y!"], "raw_bytes": [{"b64": "eA=="}, {"b64": "eQ=="}]}

    answer = answers(stacks, body, NPZ, "", "pair")

    assert (answer.status, answer.json()) == (200, {"outputs": expected})


IMAGE = bytes(range(256)) * 4


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("size", b'{\n    "outputs": 1024\n}'),
        ("sizes", b'{\n    "predictions": [1024\n    ]\n}'),
    ],
)
@pytest.mark.parametrize(
    "content_type",
    [RAW, "application/x-image", "image/png", "audio/wav", "application/x-tfexample", "text/plain"],
)
def test_raw_bytes_are_the_only_string(
    stacks: dict[str, RunningStack], content_type: str, model: str, expected: bytes
) -> None:
    assert answers(stacks, IMAGE, content_type, "", model) == Answer(200, JSON, expected)


def test_raw_bytes_have_the_rank_of_the_signature(stacks: dict[str, RunningStack]) -> None:
    answer = answers(stacks, b"a b", "text/plain", "", "table")

    assert (answer.status, answer.json()) == (200, {"predictions": [["a b"]]})


@pytest.mark.parametrize("content_type", [RAW, "application/x-image", "text/plain", "application/pdf", "x"])
@pytest.mark.parametrize("body", [IMAGE, ROWS])
def test_types_that_the_model_cannot_take_are_named(
    stacks: dict[str, RunningStack], content_type: str, body: bytes
) -> None:
    answer = answers(stacks, body, content_type)

    assert (answer.status, answer.content_type) == (415, JSON)
    assert f"Content-Type {content_type} " in answer.json()["error"]
    assert "application/json, " in answer.json()["error"]


@pytest.mark.parametrize("content_type", [JSON, LINES, CSV, NPY, NPZ, RAW, "image/png"])
@pytest.mark.parametrize("headers", [{}, {"Content_Encoding": "gzip"}])
def test_empty_bodies_are_400(
    stacks: dict[str, RunningStack], content_type: str, headers: dict[str, str]
) -> None:
    answer = answers(stacks, b"", content_type, **headers)

    assert (answer.status, answer.content_type) == (400, JSON)
    assert "empty" in answer.json()["error"]


@pytest.mark.parametrize(
    ("content_type", "body", "reason"),
    [
        (JSON, b'{"instances":[1,', "JSON Parse error"),
        (CSV, b'1\n2,"3', "at line: 2"),
        (LINES, b"1\n{", "JSON Parse error"),
        (JSON, b'{"user":[10],"item":[10]}', "does not have named input"),
        (JSON, b'{"instances":["\xff"]}', "not of expected type: float"),
        (CSV, b"\xff,1", "not of expected type: float"),
        ("text/csv; charset=utf-16", b"1", "not text in utf-16"),
        (NPY, b"\x93NUMPY\x01\x00", "cut off"),
        (NPY, npy(np.array(["a"])), "does not fit the input's type, float"),
        (NPZ, b"PK\x03\x04", "no archive"),
        (NPZ, npz(y=np.zeros(1)), "names of the inputs, x; found: y"),
        (NPZ, npz(format=np.array(b"csr"), shape=np.zeros(2), data=np.zeros(1)), "sparse matrix"),
    ],
)
def test_bodies_that_cannot_be_read_are_400_with_the_reason(
    stacks: dict[str, RunningStack], content_type: str, body: bytes, reason: str
) -> None:
    answer = answers(stacks, body, content_type, LINES)

    assert (answer.status, answer.content_type) == (400, JSON)
    assert reason in answer.json()["error"]


@pytest.mark.parametrize("encoding", ["gzip", "GZip", "x-gzip", "identity, gzip", "identity"])
@pytest.mark.parametrize(("content_type", "body"), [(JSON, ROWS), (CSV, b"1\n2\n5"), (NPY, npy([1, 2, 5]))])
def test_gzip_is_decoded(
    stacks: dict[str, RunningStack], content_type: str, body: bytes, encoding: str
) -> None:
    sent = gzip.compress(body) if "gzip" in encoding.lower() else body

    assert answers(stacks, sent, content_type, Content_Encoding=encoding) == Answer(200, JSON, PREDICTIONS)


@pytest.mark.parametrize(
    ("content_type", "encoding", "body", "status", "reason"),
    [
        (JSON, "gzip", gzip.compress(ROWS, mtime=0)[:-4], 400, "cut off"),
        (JSON, "gzip", ROWS, 400, "not gzip"),
        (
            CSV,
            "gzip",
            gzip.compress(b"1" * ((LARGEST_MB << 20) + 1), mtime=0),
            413,
            f"DECOMPRESSED_MB={LARGEST_MB}",
        ),
        (NPZ, "", npz(x=np.zeros(LARGEST_MB << 20)), 413, f"DECOMPRESSED_MB={LARGEST_MB}"),
        (JSON, "br", ROWS, 415, "Content-Encoding br "),
        (JSON, "gzip, gzip", gzip.compress(gzip.compress(ROWS, mtime=0), mtime=0), 415, "gzip, gzip"),
        ("text/csv; charset=koi8-r", "", b"1", 415, "koi8-r"),
    ],
)
def test_encodings_that_cannot_be_followed_are_refused(
    stacks: dict[str, RunningStack], content_type: str, encoding: str, body: bytes, status: int, reason: str
) -> None:
    answer = answers(stacks, body, content_type, **({"Content_Encoding": encoding} if encoding else {}))

    assert (answer.status, answer.content_type) == (status, JSON)
    assert reason in answer.json()["error"]


def test_csv_of_many_rows(stacks: dict[str, RunningStack]) -> None:
    answer = answers(stacks, b"1.0\n" * 300_000, CSV, LINES)

    assert answer.body == b"2.5\n" * 300_000


def test_all_are_still_well(stacks: dict[str, RunningStack]) -> None:
    assert [stack.ping() for stack in stacks.values()] == [200, 200, 200]
    assert [stack.log.count("Traceback") for stack in stacks.values()] == [0, 0, 0]
