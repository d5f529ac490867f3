"""Which nginx and which model server are found."""

from __future__ import annotations

import os

import pytest

from pierhead.errors import StartError
from pierhead.settings import Settings
from pierhead.supervisor.binaries import find_model_server, find_nginx


def nothing(_: str) -> None:
    return None


def everything(name: str) -> str:
    return f"/usr/bin/{name}"


def choose(model_server: str) -> Settings:
    return Settings.from_env({"PIERHEAD_MODEL_SERVER": model_server})


def test_nginx_on_the_path_comes_first() -> None:
    assert find_nginx(everything) == "/usr/bin/nginx"


def test_packaged_nginx_is_found_and_can_be_run() -> None:
    assert os.access(find_nginx(nothing), os.X_OK)


@pytest.mark.parametrize("wanted", ["auto", "tensorflow_model_server"])
def test_model_server_on_the_path_is_taken(wanted: str) -> None:
    assert find_model_server(choose(wanted), everything) == "/usr/bin/tensorflow_model_server"


def test_embedded_server_is_taken_in_spite_of_one_on_the_path() -> None:
    assert find_model_server(choose("embedded"), everything) is None


@pytest.mark.parametrize("wanted", ["auto", "embedded"])
def test_embedded_server_is_taken_where_none_is_on_the_path(wanted: str) -> None:
    assert find_model_server(choose(wanted), nothing) is None


def test_model_server_that_is_wanted_and_missing_is_refused() -> None:
    with pytest.raises(StartError, match="PIERHEAD_MODEL_SERVER=tensorflow_model_server"):
        find_model_server(choose("tensorflow_model_server"), nothing)


def test_triton_is_refused() -> None:
    with pytest.raises(StartError, match="tritonserver is not served"):
        find_model_server(choose("tritonserver"), everything)
