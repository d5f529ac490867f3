"""The frame of the field cases: one test on {embedded, stub} x {direct, handler path}.

In a test module:

    from field_stacks import FieldStack

    FIELD_ENVIRON = {"SAGEMAKER_GUNICORN_WORKERS": "2"}   # optional: settings and knobs of the stub
    FIELD_HOOKS = "def handler(data, context): ..."       # optional: inference.py of the handler path
    FIELD_MATRIX = ALL                                    # optional: the combinations that are wanted

    def test_a_rule(field: FieldStack) -> None:
        answer = field.invoke('{"instances": [1.0]}')
        assert answer.status == 200
        if field.stub is not None:                        # with the stub: what arrived there
            assert field.stub.predictions()[-1].json() == {"instances": [1.0]}

`field` (in this folder's conftest) is one running stack for each combination, started once for the whole
module: about 1.5 s with the stub, 7 s with the embedded server. All serve version 1 of half_plus_two.
A test with needs of its own takes `start_stack(artifact, **stub.environ(DELAY="1"))`, where `stub` is the
module's `StubBinary`, or `start_stack(artifact, **environ)` for the embedded server. The knobs are listed in
`stub_model_server.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from running_stack import Answer, RunningStack
from stub_binary import StubBinary

EMBEDDED, STUB = "embedded", "stub"
DIRECT, HANDLER = "direct", "handler"
ALL = ((EMBEDDED, DIRECT), (EMBEDDED, HANDLER), (STUB, DIRECT), (STUB, HANDLER))
ON_STUB = ((STUB, DIRECT), (STUB, HANDLER))
ON_EMBEDDED = ((EMBEDDED, DIRECT), (EMBEDDED, HANDLER))
WITH_HANDLER = ((EMBEDDED, HANDLER), (STUB, HANDLER))

PASSING_ON = """
    def input_handler(data, context):
        return data.read()


    def output_handler(response, context):
        if response.status_code != 200:
            raise ValueError(response.text)
        return response.content, "application/json"
    """


@dataclass(frozen=True)
class FieldStack:
    """A running stack, which model server it has, which way its requests go, and the stub if that is it."""

    stack: RunningStack
    server: str
    path: str
    stub: StubBinary | None

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        """POST to /invocations; a header's name is written with underscores."""
        return self.stack.invoke(body, content_type, **headers)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send any request."""
        return self.stack.request(method, path, body, headers)


def wanted(module: Any, name: str, default: Any) -> Any:
    """Return a test module's own value, where it has one."""
    return getattr(module, name, default)
