"""The shared handler workers of a multi-model endpoint: which model answers, at each request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from tests.service.service_fakes import FakeBackend, make_plan

from pierhead.control import ModelPlan, ServicePlan, write_plan
from pierhead.errors import Code, ModelServerAway, ServingError
from pierhead.service.app import Router, Service, create_models_app
from pierhead.service.default_handler import DefaultHandler
from pierhead.service.hook_handlers import PairHandler
from pierhead.service.hooks import HookPair
from pierhead.service.loaded_models import LoadedModels
from pierhead.settings import Settings

BODY = b'{"instances": [1.0]}'
SETTINGS = Settings.from_env({"SAGEMAKER_MULTI_MODEL": "true"})


class Endpoint:
    """A run folder as the supervisor keeps it, and the workers' app on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "loaded").mkdir()
        self.count = 0
        self.made: list[ServicePlan] = []
        self.backend = FakeBackend()
        self.hooks: HookPair | None = None
        self.models = LoadedModels(folder / "loaded", self.make)
        self.client: FlaskClient = create_models_app(SETTINGS, self.models.find).test_client()

    def make(self, plan: ServicePlan) -> Service:
        self.made.append(plan)
        handler: Any = DefaultHandler(self.backend, "application/json")
        if self.hooks is not None:
            handler = PairHandler(self.hooks, self.backend, multi_model=True)
        return Service(Router(plan, SETTINGS, self.backend), handler)

    def load(self, name: str, **fields: Any) -> None:
        self.count += 1
        folder = self.folder / "models" / str(self.count)
        folder.mkdir(parents=True)
        plan = make_plan(models=(ModelPlan(name, (1,)),), default_model=name, **fields)
        write_plan(plan, folder / "plan.json")
        (self.folder / "loaded" / name).symlink_to(f"../models/{self.count}")

    def unload(self, name: str) -> None:
        (self.folder / "loaded" / name).unlink()

    def invoke(self, name: str, **headers: str) -> tuple[int, Any]:
        answer = self.client.post(
            f"/models/{name}/invoke", data=BODY, content_type="application/json", headers=headers
        )
        assert answer.content_type == "application/json"
        return answer.status_code, answer.json

    def refusal(self, name: str, **headers: str) -> tuple[int, str]:
        status, document = self.invoke(name, **headers)
        return status, document["error"]


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    return Endpoint(tmp_path)


def test_loaded_model_answers_under_its_name(endpoint: Endpoint) -> None:
    endpoint.load("m")

    assert (200, {"predictions": [2.5]}) == endpoint.invoke("m")
    assert [("m", None, "predict")] == endpoint.backend.calls


def test_service_is_made_once_for_a_load(endpoint: Endpoint) -> None:
    endpoint.load("m")

    assert [200, 200, 200] == [endpoint.invoke("m")[0] for _ in range(3)]
    assert len(endpoint.made) == 1


def test_unknown_model_is_404(endpoint: Endpoint) -> None:
    assert (404, "model 'm' is not loaded") == endpoint.refusal("m")


def test_unloaded_model_answers_nobody(endpoint: Endpoint) -> None:
    endpoint.load("m")
    endpoint.invoke("m")

    endpoint.unload("m")

    assert (404, "model 'm' is not loaded") == endpoint.refusal("m")


def test_model_loaded_again_is_a_new_one(endpoint: Endpoint) -> None:
    endpoint.load("m")
    endpoint.invoke("m")
    endpoint.unload("m")
    endpoint.load("m")

    assert endpoint.invoke("m")[0] == 200
    assert len(endpoint.made) == 2


def test_model_that_goes_between_link_and_plan_is_404(endpoint: Endpoint) -> None:
    (endpoint.folder / "loaded" / "m").symlink_to("../models/9")

    assert (404, "model 'm' is not loaded") == endpoint.refusal("m")


def test_models_that_are_gone_are_forgotten_at_the_next_load(endpoint: Endpoint) -> None:
    endpoint.load("m")
    first = endpoint.models.find("m")
    endpoint.unload("m")
    endpoint.load("n")
    endpoint.models.find("n")

    endpoint.load("m")

    assert endpoint.models.find("m") is not first


def test_model_with_workers_of_its_own_is_never_answered_for(endpoint: Endpoint) -> None:
    endpoint.load("m", code="/models/m/code", hooks="/models/m/code/inference.py")

    assert (503, "model 'm' is being started again") == endpoint.refusal("m")
    assert endpoint.made == []


@pytest.mark.parametrize("name", ["-m", ".m", "m%2Fn", "..%2Fm", "m%22", "%C3%A9", "m" * 256, "a//b"])
def test_bad_name_is_400(name: str, endpoint: Endpoint) -> None:
    status, sentence = endpoint.refusal(name)

    assert status == 400
    assert "is no name of a model" in sentence


@pytest.mark.parametrize("name", ["m", "0" * 64, "m" * 255, "a.b_c-d"])
def test_good_name_is_taken(name: str, endpoint: Endpoint) -> None:
    endpoint.load(name)

    assert endpoint.invoke(name)[0] == 200


def test_headers_that_name_another_model_never_reach_it(endpoint: Endpoint) -> None:
    endpoint.load("m")
    endpoint.load("n")

    target = endpoint.invoke("m", **{"X-Amzn-SageMaker-Target-Model": "n.tar.gz"})
    attribute = endpoint.invoke("m", **{"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=n"})

    assert (200, 404) == (target[0], attribute[0])
    assert {"m"} == {model for model, _, _ in endpoint.backend.calls}


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (ServingError(Code.RESOURCE_EXHAUSTED, "no memory"), 507),
        (ServingError(Code.UNAVAILABLE, "away"), 503),
        (ModelServerAway(), 503),
        (ServingError(Code.INVALID_ARGUMENT, "bad"), 400),
    ],
)
@pytest.mark.parametrize("has_hooks", [False, True])
def test_refusals_have_the_statuses_that_the_platform_acts_on(
    refusal: ServingError, status: int, has_hooks: bool, endpoint: Endpoint
) -> None:
    endpoint.backend.refusal = refusal
    if has_hooks:
        endpoint.hooks = HookPair(lambda data, _: data.read(), _refuse_failures)
    endpoint.load("m")

    assert (status, refusal.message) == endpoint.refusal("m")


def _refuse_failures(response: Any, context: Any) -> Any:
    if response.status_code != 200:
        raise ValueError(response.text)
    return response.content, "application/json"


def test_other_routes_and_methods_are_refused_in_json(endpoint: Endpoint) -> None:
    answers = [
        endpoint.client.post("/invocations", data=BODY),
        endpoint.client.post("/models/m", data=BODY),
        endpoint.client.get("/models/m/invoke"),
    ]

    assert [404, 404, 405] == [answer.status_code for answer in answers]
    assert all("error" in (answer.json or {}) for answer in answers)
