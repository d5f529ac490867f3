"""Whose hooks answer for a model, and that those of one never meet those of another (C21)."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from artifacts import artifact_with_hooks, stub_model
from field_stacks import EMBEDDED, STUB
from multi_model_stack import RESULT, ModelsStack, begin, leaving_nothing, refusal
from running_stack import wait_for
from stub_binary import StubBinary

ENDPOINTS = ((STUB, 1),)
BUCKET = "team-models"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
OWN = """
    import os

    import util
    from helpers.deep import NAME


    def handler(data, context):
        return f"{util.TAG} {NAME} {context.model_name} {os.getpid()}", "text/plain"
    """
SHARED = """
    import json
    import os

    import util
    from helpers.deep import NAME


    def input_handler(data, context):
        return data.read()


    def output_handler(response, context):
        answer = json.loads(response.content)["predictions"]
        path = context.rest_uri.partition("/v1/models/")[2]
        return f"{util.TAG} {NAME} {context.model_name} {os.getpid()} {path} {answer}", "text/plain"
    """
SHARED_FILES = {
    "inference.py": SHARED.replace("\n    ", "\n").encode(),
    "util.py": b'TAG = "shared"\n',
    "helpers/__init__.py": b"",
    "helpers/deep.py": b'NAME = "of all"\n',
}
USES_PACKAGE = """
    import tiny_package


    def handler(data, context):
        return f"{tiny_package.VERSION} {tiny_package.__file__}", "text/plain"
    """
# Builds the folder that it lies in, and needs no package to do so.
BUILD_BACKEND = """\
import zipfile

INFO = "tiny_package-{version}.dist-info"
METADATA = "Metadata-Version: 2.1\\nName: tiny_package\\nVersion: {version}\\n"


def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny_package-{version}-py3-none-any.whl"
    with zipfile.ZipFile(f"{{folder}}/{{name}}", "w") as wheel:
        wheel.write("tiny_package.py")
        wheel.writestr(f"{{INFO}}/METADATA", METADATA)
        wheel.writestr(f"{{INFO}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{{INFO}}/RECORD", "")
    return name
"""
PROJECT = """\
[project]
name = "tiny_package"
version = "{version}"

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def own_hooks(folder: Path, model: Path, tag: str) -> Path:
    """Return an artifact whose hooks and modules are called as those of all others, and say another tag."""
    artifact = artifact_with_hooks(folder, model, OWN, util_py=f"TAG = {tag!r}\n")
    (artifact / "code" / "helpers").mkdir()
    (artifact / "code" / "helpers" / "__init__.py").touch()
    (artifact / "code" / "helpers" / "deep.py").write_text(f"NAME = 'of {tag}'\n")
    return artifact


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Yield the address of a server that speaks S3's API and holds the universal script."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - it is nobody's
    )
    client.create_bucket(Bucket=BUCKET)
    for name, content in SHARED_FILES.items():
        client.put_object(Bucket=BUCKET, Key=f"all/code/{name}", Body=content)
    yield address
    server.stop()


def universal(address: str, prefix: str = "all/code") -> dict[str, str]:
    """Return the settings of an endpoint with the universal script."""
    return {
        **KEYS,
        "AWS_ENDPOINT_URL": address,
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET": BUCKET,
        "SAGEMAKER_MULTI_MODEL_UNIVERSAL_PREFIX": prefix,
    }


@pytest.fixture(scope="module", params=[(EMBEDDED, 1), (STUB, 4)], ids=["embedded-1", "stub-4"])
def endpoint_with_script(
    request: pytest.FixtureRequest,
    store: str,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ModelsStack]:
    """Yield an endpoint with the universal script."""
    server, workers = request.param
    stub = StubBinary(tmp_path_factory.mktemp("shared") / "stub") if server == STUB else None
    environ = {"SAGEMAKER_GUNICORN_WORKERS": str(workers), **universal(store)}
    with ModelsStack(free_ports(31), stub, **environ) as stack:
        stack.wait_until_ready()
        yield stack


@pytest.fixture
def shared(endpoint_with_script: ModelsStack) -> Iterator[ModelsStack]:
    """Yield that endpoint without a model, and hold it to leave nothing of those that it loads."""
    with leaving_nothing(endpoint_with_script) as models:
        yield models


def load_both(stack: ModelsStack, first: tuple[str, Path], second: tuple[str, Path]) -> None:
    """Load two models at the same time."""
    for loading in [begin_load(stack, *model) for model in (first, second)]:
        loading()


def begin_load(stack: ModelsStack, name: str, artifact: Path) -> Callable[[], None]:
    stack.lay(name, artifact)
    answer = begin(stack.load, name)

    def end() -> None:
        assert 200 == answer.result(60).status, stack.log

    return end


def test_models_with_modules_of_the_same_names_never_mix(
    shared: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    workers = 4 if shared.stub is not None else 1
    load_both(
        shared,
        ("a", own_hooks(tmp_path / "a", half_plus_two, "A")),
        ("b", own_hooks(tmp_path / "b", half_plus_two, "B")),
    )
    shared.load_new("c", half_plus_two)
    shared.load_new("d", half_plus_two)

    names = ["a", "b", "c", "d"] * 25
    with ThreadPoolExecutor(12) as callers:
        answers = list(callers.map(shared.invoke_model, names))

    pids: dict[str, set[str]] = defaultdict(set)
    tags = {"a": "A of A a", "b": "B of B b", "c": "shared of all c", "d": "shared of all d"}
    for name, answer in zip(names, answers, strict=True):
        text = answer.body.decode()
        assert (200, "text/plain") == (answer.status, answer.content_type.partition(";")[0]), text
        assert text.startswith(f"{tags[name]} "), text
        if name in "cd":
            assert text.endswith(f" {name}:predict [2.5, 3.0, 4.5]"), text
        pids["cd" if name in "cd" else name].add(text.split()[len(tags[name].split())])
    assert pids["a"].isdisjoint(pids["b"] | pids["cd"])
    assert pids["b"].isdisjoint(pids["cd"])
    assert [workers > 1] * 3 == [len(each) > 1 for each in pids.values()]

    replace_and_check(shared, own_hooks(tmp_path / "a2", half_plus_two, "A2"))


def replace_and_check(stack: ModelsStack, artifact: Path) -> None:
    """Put other code into the place of model a, and hold every worker to run it."""
    assert 200 == stack.unload("a").status
    stack.load_new("a", artifact)
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: stack.invoke_model("a").body.decode(), range(40)))
    assert {"A2 of A2 a"} == {answer.rpartition(" ")[0] for answer in answers}


def test_the_code_of_a_model_can_be_taken_away(
    shared: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    if shared.stub is not None:
        pytest.skip("the workers are the same with the stub")
    shared.load_new("turns", own_hooks(tmp_path / "own", half_plus_two, "own"))
    assert shared.invoke_model("turns").body.startswith(b"own of own turns ")
    assert 200 == shared.unload("turns").status

    shared.load_new("turns", half_plus_two)

    assert shared.invoke_model("turns").body.startswith(b"shared of all turns ")


def test_a_universal_script_that_is_not_there_ends_the_start(
    store: str, free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    environ = universal(store, "no/such/prefix")
    with ModelsStack(free_ports(31), StubBinary(tmp_path / "stub"), **environ) as stack:
        assert 0 != stack.process.wait(30)
        assert f"s3://{BUCKET}/no/such/prefix/ holds no files" in stack.log
        assert "Traceback" not in stack.log


def test_without_a_universal_script_the_built_in_conversion_answers(
    models: ModelsStack, tmp_path: Path
) -> None:
    models.load_new("bare", stub_model(tmp_path))

    answer = models.invoke_model("bare", "1\n5\n", "text/csv", Accept="text/csv")

    assert (200, b"2.5\n4.5\n") == (answer.status, answer.body)
    assert RESULT == models.invoke_model("bare").json()


def test_hooks_that_cannot_be_imported_leave_the_others_alone(
    models: ModelsStack, half_plus_two: Path, tmp_path: Path
) -> None:
    models.load_new("well", own_hooks(tmp_path / "well", half_plus_two, "well"))
    models.lay("ill", artifact_with_hooks(tmp_path / "ill", half_plus_two, "import util"))

    status, sentence = refusal(models.load("ill"))

    assert 500 == status
    assert "No module named 'util'" in sentence
    assert ["well"] == list(models.listed())
    assert models.invoke_model("well").body.startswith(b"well of well well ")


def with_requirement(folder: Path, requirement: str) -> Path:
    """Return an artifact whose hooks need a package."""
    model = stub_model(folder / "model")
    return artifact_with_hooks(folder, model, USES_PACKAGE, requirements_txt=f"{requirement}\n")


def source_tree(artifact: Path, version: str) -> None:
    """Put the source of a package, with all that builds it, into the artifact."""
    folder = artifact / "code" / "tiny"
    folder.mkdir()
    (folder / "tiny_package.py").write_text(f"VERSION = {version!r}\n")
    (folder / "backend.py").write_text(BUILD_BACKEND.format(version=version))
    (folder / "pyproject.toml").write_text(PROJECT.format(version=version))


def wheel(artifact: Path, version: str) -> None:
    """Put a wheel of the package into the artifact."""
    info = f"tiny_package-{version}.dist-info"
    name = f"tiny_package-{version}-py3-none-any.whl"
    with zipfile.ZipFile(artifact / "code" / name, "w") as file:
        file.writestr("tiny_package.py", f"VERSION = {version!r}\n")
        metadata = f"Metadata-Version: 2.1\nName: tiny_package\nVersion: {version}\n"
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def test_models_have_different_versions_of_a_package_side_by_side(
    models: ModelsStack, tmp_path: Path
) -> None:
    older = with_requirement(tmp_path / "older", f"--no-index\n{models.url('older')}/code/tiny")
    source_tree(older, "1.0")
    newer = with_requirement(
        tmp_path / "newer", f"--no-index\n{models.url('newer')}/code/tiny_package-2.0-py3-none-any.whl"
    )
    wheel(newer, "2.0")
    load_both(models, ("older", older), ("newer", newer))

    for _ in range(10):
        assert b"1.0" == models.invoke_model("older").body.split()[0]
        assert b"2.0" == models.invoke_model("newer").body.split()[0]
    for name in ("older", "newer"):
        assert str(models.run_folder / "models").encode() in models.invoke_model(name).body


def test_a_requirement_may_be_a_path_relative_to_the_code_folder(models: ModelsStack, tmp_path: Path) -> None:
    # The platform makes up the name of a model's folder: nobody could write down the whole path.
    artifact = with_requirement(tmp_path / "relative", "--no-index\n./tiny")
    source_tree(artifact, "1.5")

    models.load_new("relative", artifact)

    assert b"1.5" == models.invoke_model("relative").body.split()[0]


def test_a_package_that_cannot_be_had_fails_its_load_and_leaves_nothing(
    models: ModelsStack, tmp_path: Path
) -> None:
    before = models.holdings()
    models.lay("needy", with_requirement(tmp_path, "--no-index\nnot-to-be-had"))

    status, sentence = refusal(models.load("needy"))

    assert 500 == status
    assert "requirements" in sentence
    wait_for(lambda: "No matching distribution found for not-to-be-had" in models.log, 5)
    assert before == models.holdings()
    models.load_new("needy", stub_model(tmp_path / "repaired"))
