"""A runtime and a platform without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pierhead.errors import Code, ServingError
from pierhead.formats.tensors import Array, Signature, TensorSpec

FLOATS = TensorSpec("DT_FLOAT", (-1,))
HALF = Signature("serving_default", "tensorflow/serving/predict", {"x": FLOATS}, {"y": FLOATS})
PAIR = Signature("pair", "", {"a": FLOATS, "b": FLOATS}, {"sum": FLOATS, "difference": FLOATS})


def add_and_subtract(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"sum": inputs["a"] + inputs["b"], "difference": inputs["a"] - inputs["b"]}


class FakeRuntime:
    """Halves and adds two; `pair` adds and subtracts, and has a default for `b` where one is given."""

    definitions: Mapping[str, bytes] = {}
    steady = frozenset({"serving_default", "pair"})
    feeds: Mapping[str, Mapping[str, str]] = {
        "serving_default": {"x": "x:0"},
        "pair": {"a": "a:0", "b": "b:0"},
    }

    def __init__(self, defaults: Mapping[str, Mapping[str, Array]] | None = None) -> None:
        self.signatures = {HALF.name: HALF, PAIR.name: PAIR}
        self.defaults = defaults or {}
        self.functions: dict[str, Callable[[Mapping[str, Array]], dict[str, Array]]] = {
            "serving_default": lambda inputs: {"y": inputs["x"] / 2 + 2},
            "pair": add_and_subtract,
        }
        self.runs: list[tuple[bool, int]] = []
        self.is_unloaded = False

    def run(
        self,
        signature: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        in_caller: bool = False,
        timeout_ms: int = 0,
    ) -> dict[str, Array]:
        self.runs.append((in_caller, timeout_ms))
        values = self.functions[signature](inputs)
        return {name: values[name] for name in outputs}

    def unload(self) -> None:
        self.is_unloaded = True


class FakePlatform:
    """Loads fake runtimes, after `failures` failed attempts for each folder."""

    def __init__(self, failures: int = 0, defaults: Mapping[str, Mapping[str, Array]] | None = None) -> None:
        self.failures = failures
        self.defaults = defaults
        self.attempts: list[Path] = []
        self.runtimes: list[FakeRuntime] = []

    def load(self, folder: Path) -> FakeRuntime:
        self.attempts.append(folder)
        if self.attempts.count(folder) <= self.failures:
            raise ServingError(Code.NOT_FOUND, f"nothing at {folder}")
        self.runtimes.append(FakeRuntime(self.defaults))
        return self.runtimes[-1]
