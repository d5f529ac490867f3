"""The built-in conversion, with a step of its own on either side: all types of bodies still work."""

from typing import IO

from pierhead.hooks import Context, ModelRequest, ModelResponse, read_request, write_answer


def input_handler(data: IO[bytes], context: Context) -> ModelRequest:
    """Return the request with inputs that are never negative."""
    request = read_request(data, context)
    request.arrays["x"] = request.arrays["x"].clip(min=0)
    return request


def output_handler(response: ModelResponse, context: Context) -> tuple[bytes, str]:
    """Return the answer with rounded outputs, in the type that the caller accepts."""
    response.raise_for_status()
    return write_answer(response, context, outputs={"y": response.outputs["y"].round(1)})
