"""What the server offers beside what `tensorflow_model_server` offers; the manual's tables are made of it.

A test asks a real door for each gRPC method, so that the table cannot promise what is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["GRPC_METHODS", "REST_ROUTES", "Offer", "Offered"]


class Offered(StrEnum):
    """How an offer stands to the original's."""

    SAME = "same"
    DIFFERENT = "different"
    ABSENT = "absent"
    OURS = "ours"


@dataclass(frozen=True)
class Offer:
    """A route or a method, and what is to be said of it."""

    name: str
    offered: Offered = Offered.SAME
    remark: str = ""


CHOICE = "[/versions/V or /labels/L]"
PREDICTION = "tensorflow.serving.PredictionService"
MODEL = "tensorflow.serving.ModelService"
HEALTH = "grpc.health.v1.Health"
PROFILER = "tensorflow.ProfilerService"
WITH_PROFILER = "with `enable_profiler`; its first call [opens a further port](model_server.md#profiling)"
REST_ROUTES = (
    Offer(f"POST /v1/models/NAME{CHOICE}:predict"),
    Offer(f"POST /v1/models/NAME{CHOICE}:classify"),
    Offer(f"POST /v1/models/NAME{CHOICE}:regress"),
    Offer("GET /v1/models/NAME[/versions/V or /labels/L]", remark="a label is overlooked, as there"),
    Offer(f"GET /v1/models/NAME{CHOICE}/metadata"),
    Offer("GET /v1/models", remark="400: the name is missing"),
    Offer("OPTIONS /v1/...", remark="CORS, with `rest_api_enable_cors_support`"),
    Offer(
        "GET /monitoring/prometheus/metrics",
        Offered.DIFFERENT,
        "with `monitoring_config_file`; without the metrics of TensorFlow's own core and of request logs",
    ),
    Offer("anything else below /v1/", remark="400 Malformed request"),
    Offer("anything else", Offered.DIFFERENT, "404 as there; a head beyond 1 MiB ends its connection"),
    Offer(
        "POST /invocations/v1/models/NAME[/versions/V]:METHOD",
        Offered.OURS,
        "what nginx's direct path asks, in any [format](requests.md)",
    ),
    Offer(
        "POST /invocations",
        Offered.OURS,
        "with `invocations_model`: of a multi-model endpoint; [custom attributes](requests.md) choose",
    ),
)
GRPC_METHODS = (
    Offer(f"{PREDICTION}/Predict", remark="a tensor may claim 256 MB more than was sent for it"),
    Offer(f"{PREDICTION}/Classify"),
    Offer(f"{PREDICTION}/Regress"),
    Offer(f"{PREDICTION}/MultiInference"),
    Offer(f"{PREDICTION}/GetModelMetadata"),
    Offer(f"{MODEL}/GetModelStatus"),
    Offer(
        f"{MODEL}/HandleReloadConfigRequest",
        Offered.DIFFERENT,
        "`metric_names`: the increase over all label sets; 0 without `monitoring_config_file`",
    ),
    Offer(f"{HEALTH}/Check", remark="with `enable_grpc_healthcheck_service`"),
    Offer(f"{HEALTH}/Watch", remark="with `enable_grpc_healthcheck_service`"),
    Offer(f"{PROFILER}/Profile", Offered.DIFFERENT, WITH_PROFILER),
    Offer(f"{PROFILER}/Terminate", Offered.DIFFERENT, WITH_PROFILER),
    Offer(f"{PROFILER}/Monitor", remark="UNIMPLEMENTED, as TensorFlow's profiler server answers it"),
    Offer(f"{PROFILER}/StartContinuousProfiling", Offered.DIFFERENT, WITH_PROFILER),
    Offer(f"{PROFILER}/StopContinuousProfiling", Offered.DIFFERENT, WITH_PROFILER),
    Offer(f"{PROFILER}/GetSnapshot", Offered.DIFFERENT, WITH_PROFILER),
    Offer("tensorflow.serving.SessionService/SessionRun", remark="UNIMPLEMENTED, as there"),
)
