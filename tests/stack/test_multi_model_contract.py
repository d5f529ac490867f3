"""What SageMaker asks of `/models`, answered by its contract (C20), whichever model server runs behind it."""

from __future__ import annotations

import http.client
import re
from pathlib import Path
from typing import Any

import pytest

from artifacts import artifact_with_hooks
from multi_model_stack import BODY, RESULT, ModelsStack, description, refusal
from running_stack import Answer
from test_routing import servable, three_servables

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SAYS_B = """
    def handler(data, context):
        return "this is b", "text/plain"
    """


def test_a_platform_goes_through_the_life_of_a_model(models: ModelsStack, half_plus_two: Path) -> None:
    url = models.lay("a", half_plus_two)

    assert 200 == models.ping()
    assert {"models": []} == models.request("GET", "/models").json()
    loaded = models.load("a")
    assert (200, "application/json") == (loaded.status, loaded.content_type)
    assert description("a", url) == loaded.json()
    assert {"models": [description("a", url)]} == models.request("GET", "/models").json()
    described = models.request("GET", "/models/a")
    assert (200, description("a", url)) == (described.status, described.json())
    assert 409 == refusal(models.load("a"))[0]
    assert 404 == refusal(models.request("GET", "/models/zzz"))[0]
    assert (404, "model 'zzz' is not loaded") == refusal(models.invoke_model("zzz"))
    assert 404 == refusal(models.unload("zzz"))[0]
    answer = models.invoke_model("a", X_Amzn_SageMaker_Target_Model="b.tar.gz")
    assert (200, RESULT) == (answer.status, answer.json())
    unloaded = models.unload("a")
    assert (200, "application/json") == (unloaded.status, unloaded.content_type)
    assert 404 == refusal(models.unload("a"))[0]
    assert 404 == refusal(models.request("GET", "/models/a"))[0]
    assert 404 == refusal(models.invoke_model("a"))[0]
    assert {} == models.listed()
    assert 200 == models.ping()


def test_a_model_serves_again_after_it_was_unloaded(models: ModelsStack, half_plus_two: Path) -> None:
    models.load_new("again", half_plus_two)
    assert 200 == models.unload("again").status

    assert 200 == models.load("again").status
    assert RESULT == models.invoke_model("again").json()


def test_members_that_are_not_known_are_passed_over(models: ModelsStack, half_plus_two: Path) -> None:
    url = models.lay("more", half_plus_two)

    assert 200 == models.order({"model_name": "more", "url": url, "gpu_id": 3}).status


def test_a_link_to_another_place_inside_the_models_folder_is_followed(
    models: ModelsStack, half_plus_two: Path
) -> None:
    models.lay("target", half_plus_two)
    link = models.models_folder / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(models.url("target"))

    assert description("linked", str(link)) == models.load("linked", str(link)).json()
    assert {"linked": str(link)} == models.listed()
    assert RESULT == models.invoke_model("linked").json()


def test_the_url_is_told_as_it_was_given(models: ModelsStack, half_plus_two: Path) -> None:
    url = f"{Path(models.lay('given', half_plus_two)).parent}/../given//model/"

    assert description("given", url) == models.load("given", url).json()
    assert description("given", url) == models.request("GET", "/models/given").json()


@pytest.mark.parametrize(
    "name",
    [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x" * 255,
        "y" * 92,
        "y" * 93,
        "0",
        "invoke",
        "models",
        "a..b",
        "Mixed.Case_and-more",
    ],
    ids=lambda name: f"{name[:12]}-{len(name)}",
)
def test_any_name_of_the_grammar_is_loaded_invoked_and_unloaded(
    models: ModelsStack, half_plus_two: Path, name: str
) -> None:
    if models.stub is not None and len(name) not in (64, 255):
        pytest.skip("a few are enough where each takes a second")
    url = models.lay("named", half_plus_two)

    assert description(name, url) == models.load(name, url).json()
    assert {name: url} == models.listed()
    assert description(name, url) == models.request("GET", f"/models/{name}").json()
    assert RESULT == models.invoke_model(name).json()
    assert 200 == models.unload(name).status
    assert 404 == refusal(models.invoke_model(name))[0]


def test_neither_target_model_nor_attributes_reach_another_loaded_model(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    models.load_new("a", half_plus_two)
    models.load_new("b", artifact_with_hooks(tmp_path, half_plus_two, SAYS_B))

    target = models.invoke_model("a", X_Amzn_SageMaker_Target_Model="b")
    attributes = models.request("POST", "/models/a/invoke", BODY.encode(), {ATTRIBUTES: "tfs-model-name=b"})
    own = models.request("POST", "/models/a/invoke", BODY.encode(), {ATTRIBUTES: "tfs-model-name=a"})

    assert b"this is b" == models.invoke_model("b").body
    assert (200, RESULT) == (target.status, target.json())
    assert 404 == refusal(attributes)[0]
    assert (200, RESULT) == (own.status, own.json())


def test_models_are_listed_in_pages(models: ModelsStack, half_plus_two: Path) -> None:
    if models.stub is not None:
        pytest.skip("who lists the models is the same, and its model server takes longer to start")
    url = models.lay("listed", half_plus_two)
    names = ["B", "a", "a.1", "b", "c"]
    for name in reversed(names):
        assert 200 == models.load(name, url).status

    def page(query: str) -> tuple[list[str], str | None]:
        document = models.request("GET", f"/models{query}").json()
        return [each["modelName"] for each in document["models"]], document.get("nextPageToken")

    first, token = page("?limit=2")
    second, next_token = page(f"?limit=2&next_page_token={token}")
    third, last_token = page(f"?next_page_token={next_token}&limit=2")
    assert (names, None) == (first + second + third, last_token)
    assert [2, 2, 1] == [len(first), len(second), len(third)]
    assert (names, None) == page("")
    assert (names, None) == page("?limit=5")
    assert (names[:4], None) != page("?limit=4")
    assert (names, None) == page("?limit=1000")
    # The last of the first page goes meanwhile: nobody is listed twice, nobody is left out.
    assert 200 == models.unload(first[-1]).status
    assert names[2:] == page(f"?next_page_token={token}")[0]


@pytest.mark.parametrize(
    "places",
    [["1"], ["any/1"], ["deep/er/1"], ["1", "3", "20"], ["named/1", "named/2"]],
    ids=",".join,
)
def test_layouts(models: ModelsStack, half_plus_two: Path, tmp_path: Path, places: list[str]) -> None:
    if models.stub is not None and places[0].startswith(("any", "deep")):
        pytest.skip("a few are enough where each takes a second")
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(half_plus_two / "half_plus_two" / "1")
    models.load_new("laid", tmp_path)

    def ask(attributes: str) -> Answer:
        return models.request("POST", "/models/laid/invoke", BODY.encode(), {ATTRIBUTES: attributes})

    assert RESULT == models.invoke_model("laid").json()
    versions = {place.rpartition("/")[2] for place in places}
    for version in versions:
        answer = ask(f"tfs-model-version={version}")
        assert (200, RESULT) == (answer.status, answer.json()), version
    assert 404 == refusal(ask("tfs-model-version=7"))[0]


def test_attributes_choose_among_the_models_of_an_artifact(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    three_servables(tmp_path, half_plus_two)
    models.load_new("several", tmp_path)
    models.load_new("b2", half_plus_two)

    def ask(attributes: str) -> Answer:
        return models.request("POST", "/models/several/invoke", BODY.encode(), {ATTRIBUTES: attributes})

    asked = ("", "tfs-model-name=several", "tfs-model-name=b", "tfs-model-name=b,tfs-model-version=1")
    if models.stub is not None:
        models.stub.forget()
    answers = [ask(attributes) for attributes in asked]

    assert [(200, RESULT)] * 4 == [(answer.status, answer.json()) for answer in answers]
    if models.stub is not None:
        seen = [servable(request) for request in models.stub.predictions()]
        assert ["several:predict", "several:predict", "b:predict", "b/versions/1:predict"] == seen
    # The first by name has the endpoint's name in place of its own.
    for name in ("a", "b2", "nope"):
        assert 404 == refusal(ask(f"tfs-model-name={name}"))[0]
    assert 400 == refusal(ask("tfs-method=delete"))[0]


def raw_heads(models: ModelsStack, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", models.port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.headers


def test_every_answer_has_a_request_id_and_no_header_of_a_program(models: ModelsStack) -> None:
    for path in ("/models", "/models/zzz", "/models?limit=0", "/ping"):
        headers = raw_heads(models, path)
        assert re.fullmatch("[0-9a-f]{32}", headers["X-Request-Id"])
        assert headers["Server"] in (None, "nginx")


def test_a_graph_that_cannot_be_read_fails_its_load_and_leaves_nothing(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    if models.stub is not None:
        pytest.skip("it reads no graph")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no graph, but words: out of memory")
    models.lay("broken", tmp_path)
    before = models.holdings()

    status, sentence = refusal(models.load("broken"))

    assert 500 == status
    assert "'broken'" in sentence
    assert before == models.holdings()
    models.load_new("broken", half_plus_two)
    assert RESULT == models.invoke_model("broken").json()
