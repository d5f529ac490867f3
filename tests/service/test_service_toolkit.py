from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import make_plan

from pierhead.control import ModelPlan
from pierhead.errors import HookShapeError, UserCodeError
from pierhead.service.app import create_app
from pierhead.service.no_model_servers import NoModelServers
from pierhead.service.toolkit.handler import ToolkitHandler
from pierhead.service.toolkit.hooks import toolkit_hooks
from pierhead.settings import Settings

CONTEXT: Any = object()


class Doubling:
    """A model with scikit-learn's method."""

    def predict(self, data: Any) -> Any:
        return np.asarray(data) * 2


def load_doubling(model_dir: str) -> Doubling:
    return Doubling()


def handler(functions: Mapping[str, Any]) -> ToolkitHandler:
    hooks = toolkit_hooks({"model_fn": load_doubling, **functions}, "inference.py")
    return ToolkitHandler.load(hooks, "/the/model", CONTEXT)


def client(**functions: Callable[..., Any]) -> FlaskClient:
    plan = make_plan(models=(ModelPlan("model", ()),), default_model="model", servers=())
    return create_app(plan, Settings.from_env({}), NoModelServers(), handler(functions)).test_client()


def post(served: FlaskClient, body: bytes, content_type: str = "", accept: str = "") -> tuple[int, bytes]:
    headers = {"Content-Type": content_type, "Accept": accept}
    answer = served.post("/invocations", data=body, headers={k: v for k, v in headers.items() if v})
    return answer.status_code, answer.data


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("", b"[[1, 2], [3, 4]]", [[2, 4], [6, 8]]),
        ("application/json; charset=utf-8", b"[1.5]", [3.0]),
        ("application/json", b"3", 6),
        ("application/jsonlines", b"[1, 2]\n[3, 4]\n", [[2, 4], [6, 8]]),
        ("application/jsonlines", b"[1, 2]\n", [[2, 4]]),
        ("text/csv", b"1,2\n3,4\n", [[2, 4], [6, 8]]),
        ("text/csv", b"1,2\n", [[2, 4]]),
        ("text/csv", b"1\n2\n", [[2], [4]]),
        ("application/x-npy", npy([[1, 2]]), [[2, 4]]),
    ],
)
def test_default_input_is_an_array(content_type: str, body: bytes, expected: Any) -> None:
    status, answer = post(client(), body, content_type)

    assert (200, expected) == (status, json.loads(answer))


def test_archive_is_arrays_by_name() -> None:
    served = client(predict_fn=lambda data, _: data["a"] + data["b"])

    assert post(served, npz(a=[1, 2], b=[3, 4]), "application/x-npz") == (200, b"[4, 6]")


def test_cells_of_csv_may_be_text() -> None:
    served = client(predict_fn=lambda data, _: [[str(type(cell)) for cell in row] for row in data])

    assert post(served, b"a,1\n", "text/csv", "text/csv") == (200, b"<class 'str'>,<class 'int'>\n")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", b"[[2, 4]]"),
        ("*/*", b"[[2, 4]]"),
        ("text/csv", b"2,4\n"),
        ("image/png, text/csv;q=0.5", b"2,4\n"),
        ("application/x-npy", npy(np.array([[2, 4]]))),
    ],
)
def test_default_output_is_what_the_caller_accepts(accept: str, expected: bytes) -> None:
    assert post(client(), b"[[1, 2]]", accept=accept) == (200, expected)


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ({"label": "a", "scores": np.array([0.5, 1.0])}, b'{"label": "a", "scores": [0.5, 1.0]}'),
        ([np.float32(1.5), b"text"], b'[1.5, "text"]'),
        (None, b"null"),
    ],
)
def test_json_holds_what_numpy_gives(prediction: Any, expected: bytes) -> None:
    assert post(client(predict_fn=lambda *_: prediction), b"[1]") == (200, expected)


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status"),
    [
        (b"x", "image/png", "", 415),
        (b"[1]", "", "image/png", 406),
        (b"[[1, 2], [3]]", "", "", 400),
        (b"1,2\n3\n", "text/csv", "", 400),
        (b"{", "", "", 400),
        (b"", "", "", 400),
        (b"\xff", "text/csv", "", 400),
        (npy(np.array([{}], object)), "application/x-npy", "", 400),
    ],
)
def test_what_cannot_be_read_or_written_is_refused(
    body: bytes, content_type: str, accept: str, status: int
) -> None:
    found, answer = post(client(), body, content_type, accept)

    assert status == found
    assert json.loads(answer)["error"]


def test_json_and_csv_reach_input_fn_as_text_and_others_as_bytes() -> None:
    served = client(
        input_fn=lambda data, content_type: f"{type(data).__name__} {content_type}",
        predict_fn=lambda data, _: data,
        output_fn=lambda prediction, _: (prediction, "text/plain"),
    )

    assert post(served, b"[1]") == (200, b"str application/json")
    assert post(served, b"1", "text/csv; charset=utf-8") == (200, b"str text/csv; charset=utf-8")
    assert post(served, b"1", "text/plain") == (200, b"bytes text/plain")


def test_output_fn_may_return_a_body_alone() -> None:
    served = client(output_fn=lambda _, accept: f"{accept}!")

    answer = served.post("/invocations", data=b"[1]", headers={"Accept": "text/html"})

    assert (answer.data, answer.content_type) == (b"text/html!", "text/html")


def test_transform_fn_does_it_all() -> None:
    served = client(transform_fn=lambda model, *_: (str(model.predict([1])), "text/plain"))

    assert post(served, b"[1]") == (200, b"[2]")


def test_functions_that_ask_for_it_get_the_context() -> None:
    def input_fn(data: Any, content_type: str, context: Any) -> Any:
        return context.custom_attributes

    def predict_fn(data: Any, model: Any, scale: int = 3) -> Any:
        return data * scale

    def output_fn(prediction: Any, accept: str, context: Any = None) -> Any:
        return f"{prediction} {context.method}"

    served = client(input_fn=input_fn, predict_fn=predict_fn, output_fn=output_fn)
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "a"}

    assert served.post("/invocations", data=b"", headers=headers).data == b"aaa predict"


def test_model_is_prepared_loaded_and_warmed_in_this_order() -> None:
    calls: list[Any] = []

    def model_fn(model_dir: str, context: Any) -> str:
        calls.append(("load", model_dir, context))
        return "model"

    handler(
        {
            "pre_model_fn": lambda model_dir: calls.append(("pre", model_dir)),
            "model_fn": model_fn,
            "model_warmup_fn": lambda _, model: calls.append(("warm", model)),
            "predict_fn": lambda *_: None,
        }
    )

    assert [("pre", "/the/model"), ("load", "/the/model", CONTEXT), ("warm", "model")] == calls


def test_model_that_cannot_be_loaded_is_a_failure_with_its_function() -> None:
    def model_fn(model_dir: str) -> Any:
        raise KeyError("weights")

    with pytest.raises(UserCodeError, match="model_fn failed: KeyError: 'weights'"):
        handler({"model_fn": model_fn})


def test_model_without_predict_needs_a_predict_fn() -> None:
    with pytest.raises(HookShapeError, match=r"no predict_fn.*type dict, which has no method predict"):
        handler({"model_fn": lambda _: {}})


def nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({"predict_fn": nothing}, "defines predict_fn, but no model_fn"),
        ({"model_fn": nothing, "transform_fn": nothing, "input_fn": nothing}, "transform_fn and input_fn"),
        ({"model_fn": lambda: None}, r"defines model_fn\(\); wanted is model_fn\(model_dir\)"),
        ({"model_fn": 3}, "model_fn in inference.py is no function"),
        ({"model_fn": nothing, "input_fn": lambda a: a}, "wanted is input_fn"),
    ],
)
def test_functions_that_do_not_fit_are_refused(found: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(HookShapeError, match=sentence):
        toolkit_hooks(found, "inference.py")


def test_other_models_are_unknown() -> None:
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=b"}

    assert client().post("/invocations", data=b"[1]", headers=headers).status_code == 404


def test_use_of_a_model_server_says_that_there_is_none() -> None:
    def predict_fn(data: Any, model: Any, context: Any) -> Any:
        context.channel.unary_unary("/x")

    status, answer = post(client(predict_fn=predict_fn), b"[1]")

    assert status == 500
    assert "no model server runs here" in json.loads(answer)["error"]
