"""All by itself: the largest prediction, asked for over the model server's REST API."""

import json
from typing import IO

import requests

from pierhead.hooks import Context, HookError


def handler(data: IO[bytes], context: Context) -> tuple[str | bytes, str]:
    """Return body and content type."""
    answer = requests.post(context.rest_uri, data.read(), timeout=context.timeout)
    if not answer.ok:
        raise HookError(answer.json()["error"], answer.status_code)
    predictions = answer.json()["predictions"]
    return json.dumps({"largest": max(predictions)}), "application/json"
