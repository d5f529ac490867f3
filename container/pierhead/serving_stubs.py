"""The message classes and gRPC stubs of tensorflow-serving-api, without TensorFlow.

The stubs import `tensorflow.core...._pb2` modules, and through them the whole of `tensorflow`: 2.9 s and
590 MB. While they are imported, a bare package stands in `tensorflow`'s place: its submodules are found on
disk, its `__init__` does not run, and a later `import tensorflow` is the real one. Where no TensorFlow is
installed, `tensorflow_messages` declares the few messages that the stubs need.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pierhead.tensorflow_messages import declare_messages

__all__ = ["ServingStubs", "import_serving_stubs"]


@dataclass(frozen=True)
class ServingStubs:
    """The modules of tensorflow-serving-api by their short names, and the classes of its two services."""

    predict: Any
    get_model_metadata: Any
    get_model_status: Any
    model_management: Any
    model_server_config: Any
    classification: Any
    regression: Any
    inference: Any
    PredictionServiceStub: Any
    ModelServiceStub: Any
    PredictionServiceServicer: Any
    ModelServiceServicer: Any
    add_PredictionServiceServicer_to_server: Any  # noqa: N815 - the generated name
    add_ModelServiceServicer_to_server: Any  # noqa: N815 - the generated name


def import_serving_stubs() -> ServingStubs:
    """Return the stubs; call it once in a process, at its start, before threads import modules."""
    with _tensorflow_without_init():
        prediction = importlib.import_module("tensorflow_serving.apis.prediction_service_pb2_grpc")
        model = importlib.import_module("tensorflow_serving.apis.model_service_pb2_grpc")
        config = importlib.import_module("tensorflow_serving.config.model_server_config_pb2")
        return ServingStubs(
            **{name: importlib.import_module(f"tensorflow_serving.apis.{name}_pb2") for name in _API_MODULES},
            model_server_config=config,
            PredictionServiceStub=prediction.PredictionServiceStub,
            ModelServiceStub=model.ModelServiceStub,
            PredictionServiceServicer=prediction.PredictionServiceServicer,
            ModelServiceServicer=model.ModelServiceServicer,
            add_PredictionServiceServicer_to_server=prediction.add_PredictionServiceServicer_to_server,
            add_ModelServiceServicer_to_server=model.add_ModelServiceServicer_to_server,
        )


_API_MODULES = (
    "predict",
    "get_model_metadata",
    "get_model_status",
    "model_management",
    "classification",
    "regression",
    "inference",
)


@contextmanager
def _tensorflow_without_init() -> Iterator[None]:
    if "tensorflow" in sys.modules:
        yield
        return
    installed = find_spec("tensorflow")
    bare = ModuleType("tensorflow")
    bare.__path__ = list(installed.submodule_search_locations or ()) if installed else []
    sys.modules["tensorflow"] = bare
    try:
        if not installed:
            declare_messages()
        yield
    finally:
        # A later `import tensorflow` runs for real; what was imported below it stays and is shared.
        del sys.modules["tensorflow"]
