from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from pierhead.errors import Code, NotAcceptable, ServingError, UnsupportedMediaType
from pierhead.formats.payloads import parse_payload, render_payload, response_type
from pierhead.formats.predict_json import Layout, PredictDocument, PredictInputs, parse_predict
from pierhead.formats.tensors import Array, Signature, TensorSpec

LINES = "application/jsonlines"
ALIASES = ["application/jsons", "application/x-jsonlines", "application/json-lines"]


def signature(**inputs: str) -> Signature:
    return Signature(
        "serving_default", "", {name: TensorSpec(dtype, None) for name, dtype in inputs.items()}, {}
    )


def inputs(body: bytes, content_type: str | None, dtype: str = "DT_FLOAT") -> PredictInputs:
    return parse_payload(body, content_type).tensors(signature(x=dtype))


def values(body: bytes, content_type: str | None, dtype: str = "DT_FLOAT") -> Any:
    return inputs(body, content_type, dtype).arrays["x"].tolist()


def instances(body: bytes, content_type: str) -> Any:
    """The instances that a body stands for, as its JSON request would have them."""
    document = parse_payload(body, content_type)
    assert isinstance(document, PredictDocument)
    found: Any = document.root["instances"]
    return found.array.tolist() if hasattr(found, "array") else found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"instances":[1.0,2.0,5.0]}', [1.0, 2.0, 5.0]),
        (b'{"inputs":[1.0,2.0,5.0]}', [1.0, 2.0, 5.0]),
        (b"[1.0,2.0,5.0]", [[1.0, 2.0, 5.0]]),
        (b"[[1.0,2.0],[3.0,4.0]]", [[1.0, 2.0], [3.0, 4.0]]),
        (b'{"x":[1]}', [[1.0]]),
        (b'[{"x":[1]},{"x":[2]}]', [[1.0], [2.0]]),
        (b"7", [7.0]),
        (b"1.0 2.0\n5.0", [1.0, 2.0, 5.0]),
        (b"[1, 2]\n[3, 4]", [[1.0, 2.0], [3.0, 4.0]]),
        (b"[1, 2][3, 4]", [[1.0, 2.0], [3.0, 4.0]]),
        (b"[1,\n2]\n[3,\n4]\n", [[1.0, 2.0], [3.0, 4.0]]),
        (b'{"x":1}{"x":2}', [1.0, 2.0]),
        (b'\xef\xbb\xbf{"x":1}\n{"x":2}\n', [1.0, 2.0]),
        (b'\xef\xbb\xbf{"instances":[1]}', [1.0]),
    ],
)
def test_bare_json_is_wrapped(body: bytes, expected: Any) -> None:
    assert expected == values(body, "application/json")


@pytest.mark.parametrize("content_type", [None, "", "Application/JSON; charset=utf-8", "application/json;"])
def test_missing_type_is_json_and_parameters_do_not_matter(content_type: str | None) -> None:
    assert values(b'{"instances":[1]}', content_type) == [1.0]


@pytest.mark.parametrize("content_type", [LINES, *ALIASES])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"1.0\n2.0\n5.0\n", [1.0, 2.0, 5.0]),
        (b"1.0", [1.0]),
        (b"[1,2,5]", [[1.0, 2.0, 5.0]]),
        (b"[[1,2],[3,4]]", [[[1.0, 2.0], [3.0, 4.0]]]),
        (b"[1,2]\r\n\r\n[3,4]\r\n", [[1.0, 2.0], [3.0, 4.0]]),
        (b'{"x":1}\n{"x":2}\n', [1.0, 2.0]),
        (b'{"x":1}', [1.0]),
        (b"NaN\n1\n", [np.nan, 1.0]),
        (b'{"instances":[1,2]}\n', [1.0, 2.0]),
    ],
)
def test_each_line_is_an_instance(content_type: str, body: bytes, expected: Any) -> None:
    np.testing.assert_array_equal(expected, values(body, content_type))


def test_whole_request_keeps_its_layout_and_signature() -> None:
    document = parse_payload(b'{"signature_name":"s","inputs":{"x":1}}', None)

    assert document.signature_name == "s"
    assert Layout.COLUMNAR is document.tensors(signature(x="DT_FLOAT")).layout


@pytest.mark.parametrize("content_type", ["application/json", LINES])
def test_several_whole_requests_are_refused(content_type: str) -> None:
    with pytest.raises(ServingError, match="only value"):
        parse_payload(b'{"instances":[1]}\n{"instances":[2]}', content_type)


@pytest.mark.parametrize("body", [b"", b" \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("content_type", ["application/json", LINES, "text/csv"])
def test_empty_body_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(ServingError, match="The document is empty") as raised:
        parse_payload(body, content_type)

    assert Code.INVALID_ARGUMENT is raised.value.code


@pytest.mark.parametrize(
    "body", [b'{"instances":[1,', b"{'x':1}", b"[1\n2]", b"[1],[2\n3]", b"[[1]\n[2]],[[3],[4]]"]
)
@pytest.mark.parametrize("content_type", ["application/json", LINES])
def test_body_that_is_no_json_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(ServingError, match="JSON Parse error"):
        parse_payload(body, content_type)


def test_named_columns_without_a_key_get_the_model_server_s_reason() -> None:
    with pytest.raises(ServingError, match=r"Expecting tensor|does not have named input"):
        inputs(b'{"user":[10],"item":[10]}', "application/json")


@pytest.mark.parametrize("content_type", ["application/pdf", "video/mp4", "application/x-www-form-url"])
def test_unknown_type_is_named(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=f"{content_type}.*application/json.*text/csv"):
        parse_payload(b"1", content_type)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"1.0,2.0,5.0", [[1.0, 2.0, 5.0]]),
        (b"1.0\n2.0\n5.0", [1.0, 2.0, 5.0]),
        (b"1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        (b"1,2\r3,4\r", [[1, 2], [3, 4]]),
        (b"\n1\n\n  \n2\n", [1, 2]),
        (b"\xef\xbb\xbf1,2", [[1, 2]]),
        (b"iris,0.5,1.0,1.5", [["iris", 0.5, 1.0, 1.5]]),
        (b'5,"pine, ""Tarama"" dip"', [[5, 'pine, "Tarama" dip']]),
        (b"thanks, finally got through", [["thanks", " finally got through"]]),
        (b'"two\nlines",1', [["two\nlines", 1]]),
        (b'"two\r\nlines"\r\n"b"', ["two\r\nlines", "b"]),
        (b'"1",2', [[1, 2]]),
        (b"1e5", [1e5]),
        (b"-0", [0]),
        (b" 7 ", [7]),
        (b"01", ["01"]),
        (b"+1,.5,1.,0x1", [["+1", ".5", "1.", "0x1"]]),
        (b"1e400", ["1e400"]),
        (b"true,null", [["true", "null"]]),
        (b"foo", ["foo"]),
        (b"foo\nbar", ["foo", "bar"]),
        (b"[1,2]", [["[1", "2]"]]),
        (b"1,,2", [[1, "", 2]]),
        (b'""', [""]),
        (b"1,2\n3", [[1, 2], 3]),
        ("é,1".encode(), [["é", 1]]),
    ],
)
def test_csv_rows_are_instances(body: bytes, expected: Any) -> None:
    assert expected == instances(body, "text/csv")


def test_nan_in_csv_is_a_number() -> None:
    np.testing.assert_array_equal([[1.0, np.nan, -np.inf]], values(b"1,NaN,-Infinity", "text/csv"))


def test_csv_numbers_keep_their_kind() -> None:
    assert values(b"1,2", "text/csv", "DT_INT64") == [[1, 2]]
    with pytest.raises(ServingError, match="not of expected type: int64"):
        inputs(b"1,2.0", "text/csv", "DT_INT64")


def test_csv_bytes_that_are_not_utf8_come_through() -> None:
    assert values(b"\xff\xfe", "text/csv", "DT_STRING") == [b"\xff\xfe"]


def test_csv_cell_may_be_as_large_as_the_body() -> None:
    assert values(b"a" * 200_000, "text/csv", "DT_STRING") == [b"a" * 200_000]


@pytest.mark.parametrize(("body", "line"), [(b'a,"b\nc\nd', 1), (b'1,2\n3,"x', 2), (b'a\n"b\nc"\n"d"x\n', 4)])
def test_unbalanced_quote_names_its_line(body: bytes, line: int) -> None:
    with pytest.raises(ServingError, match=f"line: {line}$") as raised:
        parse_payload(body, "text/csv")

    assert Code.INVALID_ARGUMENT is raised.value.code


def test_instances_of_one_row_and_of_many_nest_alike() -> None:
    assert instances(b"foo", "text/csv") + instances(b"bar", "text/csv") == instances(b"foo\nbar", "text/csv")
    assert instances(b"a,1", "text/csv") * 2 == instances(b"a,1\na,1", "text/csv")


@pytest.mark.parametrize("row", [b"1.0,2.0,5.0\n", b"iris,2.0,5.0\n"])
def test_csv_scales_with_its_rows(row: bytes) -> None:
    few, many = (min(_seconds(row * count) for _ in range(2)) for count in (30_000, 300_000))

    # Ten times is linear and a hundred quadratic; between them is room for a busy machine.
    assert many < 40 * max(few, 0.05)


def _seconds(body: bytes) -> float:
    """Return the processor's time for reading a CSV body."""
    started = time.process_time()
    assert len(instances(body, "text/csv")) == body.count(b"\n")
    return time.process_time() - started


def test_values_at_the_scale_of_upstream_s_largest_test() -> None:
    assert inputs(b",".join([b"1.5"] * 753_936), "text/csv").arrays["x"].shape == (1, 753_936)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("*", "application/json"),
        ("application/json", "application/json"),
        ("application/jsonlines", "application/jsonlines"),
        ("application/x-jsonlines", "application/x-jsonlines"),
        ("application/json, application/jsonlines", "application/json"),
        ("application/jsonlines, application/json", "application/jsonlines"),
        ("application/jsonlines;q=0.9, */*;q=0.1", "application/jsonlines"),
        ("application/json;q=0.1, text/csv;q=0.2", "text/csv"),
        ("image/png, text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("application/*;q=0.5, image/png", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("application/json;q=0, */*", "application/jsonlines"),
        ("text/csv;q=high", "text/csv"),
        (", ,text/csv", "text/csv"),
    ],
)
def test_response_type_is_the_best_that_can_be_written(accept: str | None, expected: str) -> None:
    assert expected == response_type(accept)


def test_default_stands_in_for_a_missing_header_and_wildcards() -> None:
    assert response_type(None, "text/csv") == "text/csv"
    assert response_type("*/*", "text/csv") == "text/csv"
    assert response_type("application/*", "text/csv") == "application/json"


@pytest.mark.parametrize("accept", ["image/png", "application/json;q=0", "text/plain, image/*"])
def test_nothing_acceptable_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json"):
        response_type(accept)


ROWS = {
    "b": np.array([[1, 2], [3, 4]]),
    "a": np.array([b'say "hi"', b"x,y"], object),
    "z_bytes": np.array([b"\xff", b""], object),
}


def test_json_is_what_the_model_server_writes() -> None:
    body = render_payload({"y": np.array([2.5, 3, 4.5], np.float32)}, Layout.ROW, "application/json")

    assert body == b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


@pytest.mark.parametrize("media_type", [LINES, *ALIASES])
def test_json_lines_hold_an_instance_each(media_type: str) -> None:
    lines = render_payload(ROWS, Layout.ROW, media_type).splitlines(keepends=True)

    assert [json.loads(line) for line in lines] == [
        {"b": [1, 2], "a": 'say "hi"', "z_bytes": {"b64": "/w=="}},
        {"b": [3, 4], "a": "x,y", "z_bytes": {"b64": ""}},
    ]
    assert all(line.endswith(b"\n") for line in lines)


def test_csv_holds_an_instance_a_line_with_outputs_by_name() -> None:
    assert render_payload(ROWS, Layout.ROW, "text/csv") == b'"say ""hi""",1,2,/w==\n"x,y",3,4,\n'


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([2.5, 3.0, 4.5], np.float32), b"2.5\n3.0\n4.5\n"),
        (np.array([[1 / 3], [2]], np.float32), b"0.333333343\n2.0\n"),
        (np.arange(8).reshape(2, 2, 2), b"0,1,2,3\n4,5,6,7\n"),
        (np.array([b"", b"a"], object), b'""\na\n'),
        (np.array([True, False]), b"true\nfalse\n"),
        (np.zeros((0, 2)), b""),
        (np.zeros((2, 0)), b'""\n""\n'),
    ],
)
def test_csv_of_one_output(array: Array, expected: bytes) -> None:
    assert expected == render_payload({"y": array}, Layout.ROW, "text/csv")


@pytest.mark.parametrize(("media_type", "expected"), [(LINES, b"1.5\n"), ("text/csv", b"1.5\n")])
def test_scalar_of_a_columnar_request_is_one_instance(media_type: str, expected: bytes) -> None:
    assert expected == render_payload({"y": np.array(1.5, np.float32)}, Layout.COLUMNAR, media_type)
    with pytest.raises(ServingError, match="no shape information"):
        render_payload({"y": np.array(1.5, np.float32)}, Layout.ROW, media_type)


@pytest.mark.parametrize("media_type", [LINES, "text/csv"])
def test_outputs_of_unequal_batches_have_no_lines(media_type: str) -> None:
    with pytest.raises(ServingError, match="inconsistent batch size"):
        render_payload({"a": np.zeros(2), "b": np.zeros(3)}, Layout.COLUMNAR, media_type)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b'{"instances":[1.0,2.0,5.0]}', None), (b"1.0\n2.0\n5.0", "text/csv"), (b"1.0\n2.0\n5.0\n", LINES)],
)
def test_half_plus_two_by_every_type(body: bytes, content_type: str | None) -> None:
    given = inputs(body, content_type)
    answer = render_payload({"y": given.arrays["x"] / 2 + 2}, given.layout, response_type(None))

    assert json.loads(answer) == {"predictions": [2.5, 3.0, 4.5]}


def test_direct_and_wrapped_requests_read_alike() -> None:
    body = b'{"instances":[{"x":[1.5,2]}]}'

    assert parse_predict(body) == parse_payload(body, None)
