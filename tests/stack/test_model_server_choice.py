"""A tensorflow_model_server on PATH is used, with its own flags and nothing of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from running_stack import StartStack

# A stand-in that says so: the real binary is not to be had here. It passes its flags on to our own server.
STAND_IN = """\
#!{python}
import os, sys
open({record!r}, "w").write("\\n".join(sys.argv[1:]))
os.execv({python!r}, [{python!r}, "-m", "pierhead.modelserver", *sys.argv[1:]])
"""


def test_a_binary_on_path_serves_json_directly_and_the_rest_through_workers(
    start_stack: StartStack, half_plus_two: Path, tmp_path: Path
) -> None:
    binary, record = tmp_path / "tensorflow_model_server", tmp_path / "flags"
    binary.write_text(STAND_IN.format(python=sys.executable, record=str(record)))
    binary.chmod(0o755)
    stack = start_stack(half_plus_two, PATH=f"{tmp_path}:{os.environ['PATH']}")

    predictions = [
        stack.invoke('{"instances": [1.0, 2.0, 5.0]}').json(),
        stack.invoke("1.0\n2.0\n5.0\n", "text/csv").json(),
        stack.invoke("1.0\n2.0\n5.0\n", "application/jsonlines").json(),
    ]
    bare = stack.invoke("[1.0, 2.0, 5.0]")

    assert predictions == [{"predictions": [2.5, 3.0, 4.5]}] * 3
    assert bare.json() == {"predictions": [[2.5, 3.0, 4.5]]}
    flags = [line.partition("=")[0] for line in record.read_text().splitlines()]
    assert "--model_config_file" in flags
    assert "--bind_address" not in flags
    assert stack.stop() == 0
