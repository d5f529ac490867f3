"""Fetches the hooks that models of a multi-model endpoint share, from S3, before the handler workers start.

`python -m pierhead.universal_code BUCKET PREFIX FOLDER [-- COMMAND ...]` makes FOLDER anew from all objects
below s3://BUCKET/PREFIX, then becomes COMMAND, which installs its requirements.txt, where there is one to
install. It is a program of its own so that nothing else of the stack pays for boto3's import. Source: the
TensorFlow Serving image's contract, Configuration.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from pierhead.errors import PierheadError, StartError
from pierhead.logs import LogWriter, configure_logging
from pierhead.settings import Settings, log_settings
from pierhead.tether import end_with_parent

__all__ = ["Place", "fetch_code", "main", "open_s3", "relative_path"]

USAGE = "usage: python -m pierhead.universal_code BUCKET PREFIX FOLDER [-- COMMAND ...]"
PROGRAM = "universal-code"
THREADS = 8
CONNECT_SECONDS = 5
READ_SECONDS = 20
ATTEMPTS = 3
LOUD_LOGGERS = ("boto3", "botocore", "s3transfer", "urllib3")
ONE_THREAD = TransferConfig(use_threads=False)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where the objects are; `prefix` is empty or ends in a slash, so that `code` never takes in `code2`."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, bucket: str, prefix: str) -> Place:
        """Return the place that a prefix with or without slashes at its ends means."""
        name = prefix.strip("/")
        return cls(bucket, f"{name}/" if name else "")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def main() -> None:
    """Fetch, then become the command; exit non-zero with a sentence in the log where something is missing."""
    words = sys.argv[1:]
    if len(words) < 3 or words[3:4] not in ([], ["--"]):
        sys.exit(USAGE)
    place, folder, command = Place.of(*words[:2]), Path(words[2]).absolute(), words[4:]
    try:
        _start_log(os.environ)
        end_with_parent()
        program = Settings.from_env({"SAGEMAKER_PROGRAM": os.environ.get("SAGEMAKER_PROGRAM", "")}).program
        fetch_code(place, folder, program)
    except PierheadError as problem:
        log.error("%s", problem)
        sys.exit(1)
    if command and _wants_packages(folder):
        os.execv(command[0], command)  # noqa: S606


def fetch_code(place: Place, folder: Path, program: str) -> None:
    """Make `folder` anew from the objects of a place, whole or not at all.

    Raises StartError where it cannot be read, where it does not hold `program`, and for keys that are no
    paths below a folder.
    """
    started = time.monotonic()
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        client = open_s3(os.environ)
        files = dict(_list_files(client, place))
        _refuse_missing(files, place, program)
        shutil.rmtree(partial, ignore_errors=True)
        size = _download(client, place, files, partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except ClientError as problem:
        raise StartError(f"cannot fetch {place}: {_describe(problem)}") from problem
    except (BotoCoreError, Boto3Error, OSError) as problem:
        sentence = " ".join(str(problem).split())  # boto3's may have several lines
        raise StartError(f"cannot fetch {place}: {sentence}") from problem
    seconds = time.monotonic() - started
    log.info("fetched %s: %d files, %d bytes, %.1f s", place, len(files), size, seconds)


def open_s3(environ: Mapping[str, str]) -> Any:
    """Return a client by boto3's default chain, with short waits; SageMaker names the region AWS_REGION."""
    session = boto3.Session()
    return session.client(
        "s3",
        region_name=session.region_name or environ.get("AWS_REGION") or None,
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            max_pool_connections=THREADS,
        ),
    )


def relative_path(key: str, place: Place) -> str:
    """Return what an object's key is below the place; raise StartError where that is no path in a folder."""
    path = key.removeprefix(place.prefix)
    parts = path.split("/")
    if not path.isprintable() or any(part in {"", ".", ".."} for part in parts):
        raise StartError(f"{place}: the key {key!r} cannot be the path of a file")
    return path


def _list_files(client: Any, place: Place) -> Iterator[tuple[str, str]]:
    """Yield path and key of each object; a key that ends in a slash stands for a folder."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.prefix)
    for page in pages:
        for item in page.get("Contents", ()):
            key = item["Key"]
            if not key.endswith("/"):
                yield relative_path(key, place), key


def _refuse_missing(files: Mapping[str, str], place: Place, program: str) -> None:
    if not files:
        raise StartError(f"{place} holds no files (SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET and _PREFIX)")
    if program not in files:
        raise StartError(f"{place} holds no {program} (SAGEMAKER_PROGRAM)")


def _download(client: Any, place: Place, files: Mapping[str, str], folder: Path) -> int:
    """Write all files below a folder; return their size in bytes. The first failure ends it."""

    def download(path: str, key: str) -> int:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(place.bucket, key, str(file), Config=ONE_THREAD)
        return file.stat().st_size

    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(download, files.keys(), files.values()))


def _describe(problem: ClientError) -> str:
    """Return what S3 said; the answer to HEAD has no sentence, and says little more than its status."""
    error = problem.response.get("Error", {})
    return f"{error.get('Message', 'no reason given')} ({problem.operation_name}: {error.get('Code', '?')})"


def _wants_packages(folder: Path) -> bool:
    """Return whether requirements.txt is to be installed; `lib/` wins over it."""
    file, library = folder / "requirements.txt", folder / "lib"
    if file.is_file() and library.is_dir():
        log.warning("requirements.txt is not installed: lib/ is used as it is")
    return file.is_file() and not library.is_dir()


def _start_log(environ: Mapping[str, str]) -> None:
    settings = log_settings(environ)
    configure_logging(PROGRAM, settings.level, LogWriter(settings.style, settings.descriptor))
    for name in LOUD_LOGGERS:
        # At the level debug they write the headers that they send, and with these session tokens.
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
