"""What GET /execution-parameters tells a transform job: how to cut its input and how many requests to send.

Source: SageMaker's platform contract, section 3.
"""

from __future__ import annotations

import json

from pierhead.settings import Settings, available_cpus

__all__ = ["execution_parameters"]

SAGEMAKERS_PAYLOAD_MB = 6
# SageMaker takes no more at the same time, over all concurrent requests.
LARGEST_TOTAL_MB = 100


def execution_parameters(settings: Settings, *, has_hooks: bool) -> str:
    """Return the answer's body: the job's own variables, where they are set, else what suits the stack."""
    megabytes = SAGEMAKERS_PAYLOAD_MB if settings.max_payload_mb is None else settings.max_payload_mb
    return json.dumps(
        {
            "MaxConcurrentTransforms": settings.max_concurrent_transforms
            or _sensible_concurrency(settings, megabytes, has_hooks=has_hooks),
            "BatchStrategy": _strategy(settings.batch_strategy),
            "MaxPayloadInMB": megabytes,
        }
    )


def _sensible_concurrency(settings: Settings, megabytes: int, *, has_hooks: bool) -> int:
    """Return how many requests are worked on at the same time, within what SageMaker takes."""
    wanted = available_cpus()
    if has_hooks:
        is_threaded = settings.gunicorn_worker_class == "gthread"
        wanted = settings.gunicorn_workers * (settings.gunicorn_threads if is_threaded else 1)
    return max(1, min(wanted, LARGEST_TOTAL_MB // max(1, megabytes)))


def _strategy(text: str | None) -> str:
    return "SINGLE_RECORD" if text in {"single_record", "singlerecord"} else "MULTI_RECORD"
