"""The stub behaves as its knobs say, and the frame of the field cases runs on all four combinations."""

from __future__ import annotations

import hashlib
import json

from field_stacks import DIRECT, STUB, FieldStack
from running_stack import wait_for


def test_numbers_are_halved_and_two_is_added_on_every_combination(field: FieldStack) -> None:
    answer = field.invoke('{"instances": [1.0, 2.0, 5.0]}')

    assert (answer.status, answer.json()) == (200, {"predictions": [2.5, 3.0, 4.5]})


def test_the_stub_says_that_it_is_one_and_records_what_it_gets(field: FieldStack) -> None:
    if field.stub is None:
        assert "STUB" not in field.stack.log
        return
    field.stub.forget()
    field.invoke('{"instances": [7.0]}', X_Test="kept")

    (recorded,) = field.stub.predictions()

    assert "STUB: this is a fake tensorflow_model_server" in field.stack.log
    flags = [flag.partition("=")[0] for flag in field.stub.starts()[0]]
    assert {"--port", "--rest_api_port", "--model_config_file"} <= set(flags)
    if field.path == DIRECT:
        assert (recorded.door, recorded.path) == ("rest", "/v1/models/half_plus_two:predict")
        assert recorded.header("x-test") == "kept"
        assert recorded.json() == {"instances": [7.0]}
    else:
        assert (recorded.door, recorded.method) == ("grpc", "Predict")


def test_a_long_reply_is_asked_for_by_a_marker(field: FieldStack) -> None:
    if (field.server, field.path) != (STUB, DIRECT):
        return
    body = json.dumps({"instances": ["REPLY_MB=3"]})

    (text,) = field.invoke(body).json()["predictions"]

    assert hashlib.sha256(b"x" * (3 << 20)).digest() == hashlib.sha256(text.encode()).digest()


def test_a_refusal_is_asked_for_by_a_marker(field: FieldStack) -> None:
    if (field.server, field.path) != (STUB, DIRECT):
        return

    answer = field.invoke('{"instances": ["REFUSE=RESOURCE_EXHAUSTED"]}')

    assert answer.status == 429
    assert "RESOURCE_EXHAUSTED" in answer.json()["error"]


def test_a_deadly_word_ends_the_stub_and_it_comes_back(field: FieldStack) -> None:
    if (field.server, field.path) != (STUB, DIRECT):
        return

    lost = field.invoke('{"instances": ["DIE_ON=poison"]}')

    assert lost.status == 502
    wait_for(lambda: field.invoke('{"instances": [1.0]}').status == 200, 10, lambda: field.stack.log)
