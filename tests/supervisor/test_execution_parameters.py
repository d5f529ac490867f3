from __future__ import annotations

import json
from typing import Any

import pytest

from pierhead.settings import Settings, available_cpus
from pierhead.supervisor.execution_parameters import execution_parameters

CPUS = available_cpus()


@pytest.mark.parametrize(
    ("environ", "has_hooks", "concurrent", "strategy", "megabytes"),
    [
        ({}, False, CPUS, "MULTI_RECORD", 6),
        ({}, True, 1, "MULTI_RECORD", 6),
        ({"SAGEMAKER_GUNICORN_WORKERS": "4"}, True, 4, "MULTI_RECORD", 6),
        ({"SAGEMAKER_GUNICORN_WORKERS": "40"}, True, 16, "MULTI_RECORD", 6),
        (
            {
                "SAGEMAKER_GUNICORN_WORKERS": "2",
                "SAGEMAKER_GUNICORN_THREADS": "3",
                "SAGEMAKER_GUNICORN_WORKER_CLASS": "gthread",
            },
            True,
            6,
            "MULTI_RECORD",
            6,
        ),
        (
            {
                "SAGEMAKER_BATCH": "True",
                "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
                "SAGEMAKER_MAX_PAYLOAD_IN_MB": "20",
                "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "5",
            },
            True,
            5,
            "SINGLE_RECORD",
            20,
        ),
        ({"SAGEMAKER_BATCH_STRATEGY": "SingleRecord"}, True, 1, "SINGLE_RECORD", 6),
        ({"SAGEMAKER_BATCH_STRATEGY": "MultiRecord"}, True, 1, "MULTI_RECORD", 6),
        (
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0", "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "0"},
            True,
            1,
            "MULTI_RECORD",
            0,
        ),
        (
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "100", "SAGEMAKER_GUNICORN_WORKERS": "4"},
            True,
            1,
            "MULTI_RECORD",
            100,
        ),
    ],
)
def test_parameters_are_the_jobs_or_what_suits_the_stack(
    environ: dict[str, str], has_hooks: bool, concurrent: int, strategy: str, megabytes: int
) -> None:
    expected: dict[str, Any] = {
        "MaxConcurrentTransforms": concurrent,
        "BatchStrategy": strategy,
        "MaxPayloadInMB": megabytes,
    }

    assert expected == json.loads(execution_parameters(Settings.from_env(environ), has_hooks=has_hooks))
