"""Requests that name an object in S3 in place of sending it."""

import json
from typing import IO

import boto3

from pierhead.hooks import Context, ModelResponse

# Once for each worker, and not for each request. Region and credentials are the endpoint's own.
s3 = boto3.client("s3")


def input_handler(data: IO[bytes], _context: Context) -> bytes:
    """Return the object that {"bucket": ..., "key": ...} names: a predict request."""
    place = json.load(data)
    body: bytes = s3.get_object(Bucket=place["bucket"], Key=place["key"])["Body"].read()
    return body


def output_handler(response: ModelResponse, _context: Context) -> tuple[bytes, str]:
    """Return body and content type."""
    response.raise_for_status()
    return response.content, "application/json"
