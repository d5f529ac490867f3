"""Settings that reach other programs than the supervisor, seen from outside."""

from __future__ import annotations

import json
from pathlib import Path

from running_stack import StartStack


def test_batching_limits_and_timeouts_reach_the_model_servers(
    start_stack: StartStack, half_plus_two: Path
) -> None:
    stack = start_stack(
        half_plus_two,
        SAGEMAKER_TFS_ENABLE_BATCHING="true",
        SAGEMAKER_TFS_MAX_BATCH_SIZE="4",
        PIERHEAD_TIMEOUT_SECONDS="90",
    )

    fits = stack.invoke(json.dumps({"instances": [1.0] * 4}))
    too_large = stack.invoke(json.dumps({"instances": [1.0] * 5}))

    assert fits.json() == {"predictions": [2.5] * 4}
    assert too_large.status == 400
    assert "Task size 5 is larger than maximum input batch size 4" in too_large.json()["error"]
    assert "proxy_read_timeout 90s;" in (stack.run_folder / "nginx.conf").read_text()


def test_a_body_above_the_payload_limit_is_413(start_stack: StartStack, half_plus_two: Path) -> None:
    stack = start_stack(half_plus_two, SAGEMAKER_MAX_PAYLOAD_IN_MB="1")

    small = stack.invoke(json.dumps({"instances": [1.0]}))
    large = stack.invoke(b" " * (1 << 20) + b'{"instances": [1.0]}')

    assert small.status == 200
    assert large.status == 413
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in large.json()["error"]
