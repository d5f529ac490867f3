"""What SageMaker asks of `/models`, read and refused by the rules of its contract, and what it is answered.

Source: SageMaker's platform contract, section 2. Names are opaque; what is asked is never trusted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote_to_bytes

from pierhead.contract.model_names import NAME_PATTERN
from pierhead.errors import Code, ServingError

__all__ = ["LoadOrder", "describe_model", "list_page", "read_load_order", "read_model_name"]

PAGE_SIZE = 100
LONGEST_QUERY = 2048
MOST_FIELDS = 16
NAME = re.compile(NAME_PATTERN)
NUMBER = re.compile("[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True)
class LoadOrder:
    """The body of a load request."""

    name: str
    url: str


def read_load_order(body: bytes) -> LoadOrder:
    """Return what the body of a load request asks for; raise ServingError where it is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise _invalid('the body must be JSON: {"model_name": NAME, "url": PATH}') from problem
    if not isinstance(document, dict):
        raise _invalid("the body must be a JSON object with model_name and url")
    name, url = (_read_text(document, key) for key in ("model_name", "url"))
    return LoadOrder(_checked(name), url)


def read_model_name(text: str) -> str:
    """Return the model that a percent-encoded path names; raise ServingError for what is no name."""
    return _checked(unquote_to_bytes(text).decode("utf-8", "replace"))


def describe_model(name: str, url: str) -> dict[str, str]:
    """Return a model as the platform lists it."""
    return {"modelName": name, "modelUrl": url}


def list_page(models: Mapping[str, str], query: str) -> dict[str, object]:
    """Return one page of the models, which are sorted by name, and the next page's token if there is one.

    A token is the last name of the page before, so that models which come and go move nobody past another.
    """
    asked = _read_query(query)
    names = list(models)
    first = bisect_right(names, _read_token(asked)) if asked.get("next_page_token", [""])[-1] else 0
    page = names[first : first + _read_limit(asked)]
    listed: dict[str, object] = {"models": [describe_model(name, models[name]) for name in page]}
    if page and page[-1] != names[-1]:
        listed["nextPageToken"] = page[-1]
    return listed


def _read_query(query: str) -> Mapping[str, list[str]]:
    try:
        return parse_qs(query[:LONGEST_QUERY], keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as problem:
        raise _invalid(f"the query has more than {MOST_FIELDS} fields") from problem


def _read_token(asked: Mapping[str, list[str]]) -> str:
    token = asked["next_page_token"][-1]
    if NAME.fullmatch(token) is None:
        raise _invalid("next_page_token is none that this endpoint has given")
    return token


def _read_limit(asked: Mapping[str, list[str]]) -> int:
    text = asked.get("limit", [str(PAGE_SIZE)])[-1]
    if NUMBER.fullmatch(text) is None:
        raise _invalid("limit must be a whole number of at least 1")
    return min(int(text), PAGE_SIZE)


def _read_text(document: Mapping[str, object], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise _invalid(f"{key} is missing, or is no text")
    return value


def _checked(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise _invalid(
            "a model's name has 1 to 255 letters, digits, dots, dashes and underscores, and begins with a "
            "letter or digit"
        )
    return name


def _invalid(sentence: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, sentence)
