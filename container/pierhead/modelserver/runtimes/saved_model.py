"""TensorFlow SavedModels, loaded through the graph loader into a Session.

The graph loader serves models that `tf.saved_model.load` refuses, and a Session's callable costs a tenth of
an eager signature. Declared shapes are never checked: an operation objects, or the answer stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec

__all__ = ["SavedModelPlatform", "SessionOptions"]

CALLABLES = 128
RUN_IN_CALLER = -1
LOAD_FAILURES = (OSError, RuntimeError, ValueError, TypeError, KeyError)
CODES = frozenset(int(code) for code in Code)


@dataclass(frozen=True)
class SessionOptions:
    """How Sessions are made: threads (0 is TensorFlow's choice), the share of a GPU's memory, graph tags."""

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    gpu_memory_fraction: float = 0.0
    tags: tuple[str, ...] = ("serve",)

    def config(self) -> Any:
        """Return the ConfigProto of these options."""
        gpu = config_pb2.GPUOptions(per_process_gpu_memory_fraction=self.gpu_memory_fraction)
        return config_pb2.ConfigProto(
            intra_op_parallelism_threads=self.intra_op_threads,
            inter_op_parallelism_threads=self.inter_op_threads,
            gpu_options=gpu,
            allow_soft_placement=True,
        )


@dataclass(frozen=True)
class SavedModelPlatform:
    """Loads SavedModels into Sessions."""

    options: SessionOptions = SessionOptions()

    def load(self, folder: Path) -> SavedModelRuntime:
        """Return the SavedModel in a folder; raise ServingError where it cannot be loaded."""
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph, config=self.options.config())
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(session, list(self.options.tags), str(folder))
        except tf.errors.OpError as problem:
            session.close()
            raise _translated(problem) from problem
        except LOAD_FAILURES as problem:
            session.close()
            raise ServingError(_load_failure_code(problem), str(problem)) from problem
        return SavedModelRuntime(session, meta_graph.signature_def)


class SavedModelRuntime:
    """A SavedModel in a Session."""

    def __init__(self, session: Any, definitions: Mapping[str, Any]) -> None:
        self._session = session
        self._definitions = dict(definitions)
        self.signatures = {name: _signature_of(name, each) for name, each in self._definitions.items()}
        self.definitions = {name: each.SerializeToString() for name, each in self._definitions.items()}
        self.defaults = {
            name: {alias: tf.make_ndarray(value) for alias, value in each.defaults.items()}
            for name, each in self._definitions.items()
        }
        self.feeds = {
            name: {alias: info.name for alias, info in each.inputs.items()}
            for name, each in self._definitions.items()
        }
        self._dtypes = {name: _input_dtypes(each) for name, each in self._definitions.items()}
        self._callable = lru_cache(CALLABLES)(self._make_callable)

    def run(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        in_caller: bool = False,
        timeout_ms: int = 0,
    ) -> dict[str, Array]:
        """Return the wanted outputs; raise ServingError with the operation's code and message."""
        self._check_dtypes(signature, inputs)
        call, places = self._callable(signature, tuple(inputs), tuple(outputs), in_caller, timeout_ms)
        try:
            values = call(*inputs.values())
        except tf.errors.OpError as problem:
            raise _translated(problem) from problem
        return {name: np.asarray(values[place]) for name, place in zip(outputs, places, strict=True)}

    def unload(self) -> None:
        """Close the Session."""
        self._callable.cache_clear()
        self._session.close()

    def _check_dtypes(self, signature: str, inputs: Mapping[str, Array]) -> None:
        wanted = self._dtypes[signature]
        for place, (name, array) in enumerate(inputs.items()):
            if array.dtype != wanted[name]:
                problem = f"{_spoken(wanted[name])} but {_spoken(array.dtype)} is provided"
                raise ServingError(Code.INVALID_ARGUMENT, f"Expects arg[{place}] to be {problem}")

    def _make_callable(
        self,
        signature: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        in_caller: bool,
        timeout_ms: int,
    ) -> tuple[Callable[..., list[Any]], list[int]]:
        definition = self._definitions[signature]
        fetches = [definition.outputs[name].name for name in outputs]
        distinct = list(dict.fromkeys(fetches))
        options = config_pb2.CallableOptions(
            feed=[definition.inputs[name].name for name in inputs], fetch=distinct
        )
        options.run_options.inter_op_thread_pool = RUN_IN_CALLER if in_caller else 0
        options.run_options.timeout_in_ms = timeout_ms
        try:
            call = self._session._make_callable_from_options(options)
        except tf.errors.OpError as problem:
            raise _translated(problem) from problem
        return call, [distinct.index(fetch) for fetch in fetches]


def _signature_of(name: str, definition: Any) -> Signature:
    inputs = _specs(definition.inputs.items())
    return Signature(name, definition.method_name, inputs, _specs(definition.outputs.items()))


def _specs(tensors: Iterable[tuple[str, Any]]) -> dict[str, TensorSpec]:
    return {
        alias: TensorSpec(types_pb2.DataType.Name(info.dtype), _shape_of(info.tensor_shape))
        for alias, info in sorted(tensors)
    }


def _shape_of(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)


def _input_dtypes(definition: Any) -> dict[str, np.dtype[Any]]:
    return {
        alias: np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype) for alias, info in definition.inputs.items()
    }


def _spoken(dtype: np.dtype[Any]) -> str:
    """Return TensorFlow's word for a dtype in messages: `float` for DT_FLOAT."""
    return str(types_pb2.DataType.Name(tf.as_dtype(dtype).as_datatype_enum)).removeprefix("DT_").lower()


def _translated(problem: Any) -> ServingError:
    code = Code(problem.error_code) if problem.error_code in CODES else Code.UNKNOWN
    return ServingError(code, problem.message)


def _load_failure_code(problem: Exception) -> Code:
    is_missing = "does not exist" in str(problem) or "could not be found" in str(problem)
    return Code.NOT_FOUND if is_missing else Code.INVALID_ARGUMENT
