"""What nginx says by itself when a request fails before, or without, anything behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pierhead.settings import Settings

__all__ = ["NGINX_ERRORS", "NginxError", "nginx_errors"]


@dataclass(frozen=True)
class NginxError:
    """A status, its sentence, what to do about it, and the status of nginx's own that it stands for."""

    status: int
    sentence: str
    advice: str
    alias: int | None = None

    @property
    def caught(self) -> str:
        """Return the statuses as nginx's directive `error_page` names them."""
        return str(self.status) if self.alias is None else f"{self.alias} ={self.status}"


ROUTES = "POST /invocations and GET /ping, /execution-parameters and /metrics are answered"
MODEL_ROUTES = (
    "POST and GET /models, GET and DELETE /models/NAME, POST /models/NAME/invoke "
    "and GET /ping, /execution-parameters and /metrics are answered"
)
NGINX_ERRORS = (
    NginxError(
        400, "the request is not valid HTTP", "Repair the client; nginx's log names the fault at level info."
    ),
    NginxError(
        403,
        "only the container itself may read /metrics",
        "Set PIERHEAD_METRICS=all, where who reaches the port may know them.",
    ),
    NginxError(
        404,
        f"there is nothing at this path: {ROUTES}",
        "Correct the path.",
    ),
    NginxError(
        405,
        f"this path does not take that method: {ROUTES}",
        "Correct the method.",
    ),
    NginxError(408, "the request did not arrive in time", "Send the request without pauses of a minute."),
    NginxError(
        413,
        "the body is larger than SAGEMAKER_MAX_PAYLOAD_IN_MB allows",
        "Send less, or raise the setting; unset, there is no limit.",
    ),
    NginxError(414, "the path is too long", "8 kB are taken; queries are not used."),
    NginxError(431, "the header is too large", "A line may have 8 kB, all together 32 kB.", alias=494),
    NginxError(500, "nginx failed; its log has the reason", "Read the log."),
    NginxError(
        501, "this transfer encoding is not understood", "Send a Content-Length, or chunks without encodings."
    ),
    NginxError(
        502,
        "nothing answers behind nginx, or it broke off; it is being started again",
        "Try again; the log says which process ended, and why.",
    ),
    NginxError(503, "nothing answers behind nginx yet", "Wait until /ping is 200."),
    NginxError(
        504,
        "no answer within {seconds} s ({setting})",
        "Send less at once, or raise PIERHEAD_TIMEOUT_SECONDS, which raises every limit of time.",
    ),
    NginxError(505, "this version of HTTP is not spoken", "Use HTTP/1.1."),
)


AWAY, NOT_YET = 502, 503


def nginx_errors(settings: Settings) -> tuple[NginxError, ...]:
    """Return the table with the settings' values in its sentences.

    At a multi-model endpoint whatever is away is 503: the platform may send the request again.
    """
    seconds, setting = settings.proxy_read_timeout_seconds, settings.request_limit
    errors = [
        replace(error, sentence=error.sentence.format(seconds=seconds, setting=setting))
        for error in NGINX_ERRORS
    ]
    if settings.multi_model:
        errors = [
            replace(error, status=NOT_YET, alias=AWAY) if error.status == AWAY else error
            for error in errors
            if error.status != NOT_YET
        ]
        errors = [replace(error, sentence=error.sentence.replace(ROUTES, MODEL_ROUTES)) for error in errors]
    return tuple(errors)
