"""TensorFlow SavedModels, loaded through the graph loader into a Session.

The graph loader serves models that `tf.saved_model.load` refuses, and a Session's callable costs a tenth of
an eager signature. Declared shapes are never checked: an operation objects, or the answer stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import op_def_registry

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec
from pierhead.modelserver.exhaustion import is_exhaustion
from pierhead.modelserver.runtimes.session_options import SessionOptions
from pierhead.modelserver.runtimes.steadiness import is_steady

__all__ = ["SavedModelPlatform", "SessionOptions", "list_operations"]

CALLABLES = 128
RUN_IN_CALLER = -1
LOAD_FAILURES = (MemoryError, OSError, RuntimeError, ValueError, TypeError, KeyError)
# What the Session of Python puts before an operation's own message.
EXECUTION_PREFIX = re.compile(
    r"\AGraph execution error:\n\n(?:Detected at node .*?\nNode: .*?\n)?", re.DOTALL
)
CODES = frozenset(int(code) for code in Code)


def list_operations() -> None:
    """Let TensorFlow list its operations, as it does once in a process; no thread is started for it.

    It does so at the first name that it does not know, such as that of a model's first function: 20 ms.
    """
    op_def_registry.get("")


@dataclass(frozen=True)
class SavedModelPlatform:
    """Loads SavedModels into Sessions."""

    options: SessionOptions = field(default_factory=SessionOptions)

    def load(self, folder: Path) -> SavedModelRuntime:
        """Return the SavedModel in a folder; raise ServingError where it cannot be loaded."""
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph, config=self.options.config())
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(session, list(self.options.tags), str(folder))
            return SavedModelRuntime(session, meta_graph.signature_def, _steady_signatures(meta_graph))
        except tf.errors.OpError as problem:
            session.close()
            raise _translated(problem) from problem
        except LOAD_FAILURES as problem:
            session.close()
            raise ServingError(_load_failure_code(problem), str(problem)) from problem


class SavedModelRuntime:
    """A SavedModel in a Session."""

    def __init__(self, session: Any, definitions: Mapping[str, Any], steady: frozenset[str]) -> None:
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
        self.steady = steady
        # Bound to the Session and not to this object, which would then refer to itself and live on.
        self._callable = lru_cache(CALLABLES)(partial(_make_callable, session, self._definitions))

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
        return {name: _array(values[place]) for name, place in zip(outputs, places, strict=True)}

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
    session: Any,
    definitions: Mapping[str, Any],
    signature: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    in_caller: bool,
    timeout_ms: int,
) -> tuple[Callable[..., list[Any]], list[int]]:
    definition = definitions[signature]
    fetches = [_tensor_name(definition.outputs, name) for name in outputs]
    distinct = list(dict.fromkeys(fetches))
    options = config_pb2.CallableOptions(
        feed=[_tensor_name(definition.inputs, name) for name in inputs], fetch=distinct
    )
    options.run_options.inter_op_thread_pool = RUN_IN_CALLER if in_caller else 0
    options.run_options.timeout_in_ms = timeout_ms
    try:
        call = session._make_callable_from_options(options)
    except tf.errors.OpError as problem:
        raise _translated(problem) from problem
    return call, [distinct.index(fetch) for fetch in fetches]


def _tensor_name(tensors: Mapping[str, Any], alias: str) -> str:
    """Return the graph's name of a tensor; raise ServingError for a ragged or sparse one, which has more."""
    info = tensors[alias]
    kind = info.WhichOneof("encoding")
    if kind != "name":
        word = {"composite_tensor": "ragged", "coo_sparse": "sparse"}.get(kind, "without a name")
        message = f"Tensor {alias} of the signature is {word}: only dense tensors can be served"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    return str(info.name)


def _steady_signatures(meta_graph: Any) -> frozenset[str]:
    return frozenset(
        name
        for name, each in meta_graph.signature_def.items()
        if is_steady(meta_graph.graph_def, (info.name for info in each.outputs.values()))
    )


def _array(value: Any) -> Array:
    """Return what a Session fetched as an array; it gives a scalar of DT_STRING as bare bytes."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


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
    return ServingError(code, EXECUTION_PREFIX.sub("", problem.message))


def _load_failure_code(problem: Exception) -> Code:
    if is_exhaustion(problem):
        return Code.RESOURCE_EXHAUSTED
    is_missing = "does not exist" in str(problem) or "could not be found" in str(problem)
    return Code.NOT_FOUND if is_missing else Code.INVALID_ARGUMENT
