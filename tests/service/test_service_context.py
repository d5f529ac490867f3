from __future__ import annotations

import grpc
import pytest
from werkzeug.datastructures import Headers

from pierhead.control import ServerAddress
from pierhead.formats.tensors import Signature
from pierhead.service.call import NO_SERVER, Call
from pierhead.service.channel import LazyChannel
from pierhead.service.context import Context, describe_request

CALL = Call("half", None, "predict", ServerAddress(9000, 8501), 30.0)
CHANNEL = LazyChannel(lambda: grpc.insecure_channel("127.0.0.1:1"))


def describe(call: Call = CALL, **headers: str) -> Context:
    fields = Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return describe_request(
        call,
        fields,
        served_version=3,
        channel=CHANNEL,
        signature=lambda name: Signature(name, "", {}, {}),
        default_accept="application/json",
        max_decompressed_bytes=1 << 20,
    )


def test_first_fields_are_those_of_the_contract_in_order() -> None:
    expected = (
        "model_name",
        "model_version",
        "method",
        "rest_uri",
        "grpc_port",
        "channel",
        "custom_attributes",
        "request_content_type",
        "accept_header",
        "content_length",
        "timeout",
    )

    assert expected == Context._fields[: len(expected)]


def test_no_field_is_none_without_headers() -> None:
    context = describe()

    assert None not in context
    assert context.model_version == "3"
    assert context.custom_attributes == ""
    assert context.request_content_type == "application/json"
    assert context.accept_header == "application/json"
    assert context.content_length == 0


def test_headers_arrive_verbatim() -> None:
    context = describe(
        X_Amzn_SageMaker_Custom_Attributes="threshold=0.7,tenant=a",
        X_Amzn_SageMaker_Inference_Id="abc",
        Accept="text/plain",
        Content_Type="text/csv; charset=utf-8",
        Content_Length="12",
    )

    assert context.custom_attributes == "threshold=0.7,tenant=a"
    assert context.request_headers["x-amzn-sagemaker-inference-id"] == "abc"
    assert context.accept_header == "text/plain"
    assert context.request_content_type == "text/csv; charset=utf-8"
    assert context.content_length == 12


def test_rest_and_grpc_are_of_the_same_server() -> None:
    context = describe(Call("half", None, "classify", ServerAddress(9002, 8503), 30.0))

    assert context.rest_uri == "http://127.0.0.1:8503/v1/models/half:classify"
    assert context.grpc_port == "9002"


def test_without_a_model_server_there_is_no_address() -> None:
    context = describe(Call("model", None, "predict", NO_SERVER, 30.0))

    assert ("", "") == (context.rest_uri, context.grpc_port)


def test_rest_uri_names_the_version_that_the_request_names() -> None:
    context = describe(Call("half", 2, "predict", ServerAddress(9000, 8501), 30.0))

    assert context.rest_uri == "http://127.0.0.1:8501/v1/models/half/versions/2:predict"


@pytest.mark.parametrize("accept", ["", "*/*", " */* "])
def test_any_accept_is_the_default(accept: str) -> None:
    assert describe(Accept=accept).accept_header == "application/json"


def test_chunked_body_has_length_minus_one() -> None:
    assert describe(Transfer_Encoding="chunked").content_length == -1


def test_channel_opens_on_first_use_and_again_after_close() -> None:
    opened = []

    def open_real() -> grpc.Channel:
        opened.append(grpc.insecure_channel("127.0.0.1:1"))
        return opened[-1]

    with LazyChannel(open_real) as channel:
        assert isinstance(channel, grpc.Channel)
        assert opened == []
        channel.unary_unary("/a/b")
        channel.unary_unary("/a/b")
        assert len(opened) == 1
    channel.unary_unary("/a/b")
    assert len(opened) == 2
    channel.close()
