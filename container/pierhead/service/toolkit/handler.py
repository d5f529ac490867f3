"""Requests with the SageMaker inference toolkit's functions: the model is an object in this worker."""

from __future__ import annotations

from typing import IO, Any

from pierhead.errors import HookShapeError, ServingError, UserCodeError
from pierhead.service.answers import Answer, read_answer
from pierhead.service.call import Call
from pierhead.service.context import Context
from pierhead.service.hook_errors import HookError
from pierhead.service.toolkit.formats import decode_input, encode_prediction, read_text
from pierhead.service.toolkit.hooks import ToolkitHooks
from pierhead.service.user_code import call_user_code

__all__ = ["ToolkitHandler"]


class ToolkitHandler:
    """Answers requests by `transform_fn`, or by `input_fn`, `predict_fn` and `output_fn`."""

    def __init__(self, hooks: ToolkitHooks, model: Any) -> None:
        self._functions = {
            "input_fn": _decode,
            "predict_fn": _predict,
            "output_fn": _encode,
            **hooks.functions,
        }
        self._model = model

    @classmethod
    def load(cls, hooks: ToolkitHooks, model_dir: str, context: Context) -> ToolkitHandler:
        """Return the handler with its model; raise UserCodeError, which names the function, where that fails.

        `context` is that of a request without headers: there is none yet.
        """
        functions = hooks.functions
        if "pre_model_fn" in functions:
            _start("pre_model_fn", functions["pre_model_fn"], model_dir, context)
        model = _start("model_fn", functions["model_fn"], model_dir, context)
        if not {"predict_fn", "transform_fn"} & functions.keys() and not hasattr(model, "predict"):
            raise HookShapeError(
                f"{hooks.file} defines no predict_fn(data, model), and model_fn returned a value of type "
                f"{type(model).__name__}, which has no method predict"
            )
        if "model_warmup_fn" in functions:
            _start("model_warmup_fn", functions["model_warmup_fn"], model_dir, model, context)
        return cls(hooks, model)

    def __call__(self, data: IO[bytes], _call: Call, context: Context) -> Answer:
        """Return what the functions return; raise UserCodeError where one fails."""
        content_type, accept = context.request_content_type, context.accept_header
        body = read_text(data.read(), content_type)
        if "transform_fn" in self._functions:
            result = self._ask("transform_fn", self._model, body, content_type, accept, context)
            return read_answer(result, context, "transform_fn")
        inputs = self._ask("input_fn", body, content_type, context)
        prediction = self._ask("predict_fn", inputs, self._model, context)
        result = self._ask("output_fn", prediction, accept, context)
        return read_answer(result, context, "output_fn")

    def _ask(self, name: str, *values: Any) -> Any:
        return call_user_code(self._functions[name], *values)


def _start(name: str, function: Any, *values: Any) -> Any:
    try:
        return call_user_code(function, *values)
    except (UserCodeError, ServingError) as problem:
        # These stand for failed calls, whose own text holds addresses.
        told = isinstance(problem, HookError | ServingError)
        cause = problem if told else problem.__cause__ or problem
        raise UserCodeError(f"{name} failed: {type(cause).__name__}: {cause}") from cause


def _decode(body: str | bytes, content_type: str, context: Context) -> Any:
    return decode_input(body, content_type, context.max_decompressed_bytes)


def _predict(data: Any, model: Any, _context: Context) -> Any:
    return model.predict(data)


def _encode(prediction: Any, accept: str, context: Context) -> Any:
    return encode_prediction(prediction, accept, context.default_accept)
