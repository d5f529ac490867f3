"""The stub on PATH, and the stacks that field cases run on; see field_stacks.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import artifact_with_hooks
from field_stacks import ALL, EMBEDDED, HANDLER, PASSING_ON, STUB, FieldStack, wanted
from multi_model_stack import ModelsStack, leaving_nothing
from running_stack import RunningStack
from stub_binary import StubBinary


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `field` once for each combination that its module wants."""
    if "field" in metafunc.fixturenames:
        matrix = wanted(metafunc.module, "FIELD_MATRIX", ALL)
        ids = ["-".join(pair) for pair in matrix]
        metafunc.parametrize("field", matrix, ids=ids, indirect=True, scope="module")
    if "endpoint" in metafunc.fixturenames:
        pairs = wanted(metafunc.module, "ENDPOINTS", ((EMBEDDED, 1), (STUB, 2)))
        ids = [f"{server}-{workers}" for server, workers in pairs]
        metafunc.parametrize("endpoint", pairs, ids=ids, indirect=True, scope="module")


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> StubBinary:
    """Return the stub for this module: start stacks with its `environ`, read its records."""
    return StubBinary(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="module")
def field(
    request: pytest.FixtureRequest,
    half_plus_two: Path,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[FieldStack]:
    """Yield a running stack of the combination `(server, path)`."""
    server, path = request.param
    folder = tmp_path_factory.mktemp("field")
    artifact = half_plus_two
    if path == HANDLER:
        hooks = wanted(request.module, "FIELD_HOOKS", PASSING_ON)
        artifact = artifact_with_hooks(folder, half_plus_two, hooks)
    binary = StubBinary(folder / "stub") if server == STUB else None
    environ = wanted(request.module, "FIELD_ENVIRON", {})
    environ = environ if binary is None else binary.environ(**environ)
    with RunningStack(artifact, free_ports(9), **environ) as stack:
        stack.wait_until_ready()
        yield FieldStack(stack, server, path, binary)


@pytest.fixture(scope="module")
def endpoint(
    request: pytest.FixtureRequest,
    free_ports: Callable[[int], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ModelsStack]:
    """Yield a multi-model endpoint of a combination `(server, number of shared handler workers)`.

    A test module has its own combinations in `ENDPOINTS`, and settings in `ENDPOINT_ENVIRON`.
    """
    server, workers = request.param
    stub = StubBinary(tmp_path_factory.mktemp("endpoint") / "stub") if server == STUB else None
    environ = {"SAGEMAKER_GUNICORN_WORKERS": str(workers), **wanted(request.module, "ENDPOINT_ENVIRON", {})}
    with ModelsStack(free_ports(31), stub, **environ) as stack:
        stack.wait_until_ready()
        yield stack


@pytest.fixture
def models(endpoint: ModelsStack) -> Iterator[ModelsStack]:
    """Yield the endpoint without a model, and hold it to leave nothing of those that it loads."""
    with leaving_nothing(endpoint) as models:
        yield models
