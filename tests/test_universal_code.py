"""The shared hooks of a multi-model endpoint, fetched from a server that speaks S3's API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from pierhead.errors import StartError
from pierhead.universal_code import Place, open_s3, relative_path

BUCKET = "team-models"
HOOKS = b"def handler(data, context): ...\n"
TOKEN = "session-token-that-is-secret"  # noqa: S105 - it is nobody's
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_SESSION_TOKEN": TOKEN}
PYTHON_PATH = {name: os.environ[name] for name in ("PATH",) if name in os.environ}


class ObjectStore:
    """A server that speaks S3's API, and a client that fills it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = self._open("s3")
        self._client.create_bucket(Bucket=BUCKET)

    def put(self, files: Mapping[str, bytes]) -> None:
        for key, content in files.items():
            self._client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def make_stranger(self) -> Mapping[str, str]:
        """Return the keys of a user who may do nothing."""
        users = self._open("iam")
        users.create_user(UserName="stranger")
        made = users.create_access_key(UserName="stranger")["AccessKey"]
        return {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}

    def check_rights(self, check: bool) -> None:
        count = b"0" if check else b"inf"
        requests.post(f"{self.url}/moto-api/reset-auth", data=count, timeout=10).raise_for_status()

    def _open(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - it is nobody's
        )


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield ObjectStore(f"http://{host}:{port}")
    server.stop()


class Run:
    """The program, run to its end."""

    def __init__(self, url: str, folder: Path, prefix: str, *command: str, **environ: str) -> None:
        bucket = environ.pop("bucket", BUCKET)
        words = ["--", *command] if command else []
        done = subprocess.run(
            [sys.executable, "-m", "pierhead.universal_code", bucket, prefix, str(folder), *words],
            env={**PYTHON_PATH, "HOME": "/nonexistent", "AWS_ENDPOINT_URL": url, **KEYS, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.status, self.output, self.log = done.returncode, done.stdout, done.stderr
        self.folder = folder

    def files(self) -> Mapping[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def refusal(self) -> str:
        """Return the only line of the log, after time and level."""
        assert self.status == 1
        assert not self.folder.exists()
        (line,) = self.log.splitlines()
        return line.partition(" ERROR universal-code: ")[2]


@pytest.mark.parametrize("prefix", ["whole/code", "whole/code/", "/whole/code/"])
def test_all_objects_below_the_prefix_and_no_others_are_fetched(
    store: ObjectStore, tmp_path: Path, prefix: str
) -> None:
    below = {"inference.py": HOOKS, "lib/deep/a b.py": b"1", "größe.txt": b"", "data.bin": bytes(300_000)}
    store.put({f"whole/code/{name}": content for name, content in below.items()})
    store.put({"whole/code/": b"", "whole/code/empty/": b"", "whole/code2/other.py": b"", "whole/code": b""})

    run = Run(store.url, tmp_path / "code", prefix)

    assert run.status == 0, run.log
    assert below == run.files()
    (line,) = run.log.splitlines()
    assert "INFO universal-code: fetched s3://team-models/whole/code/: 4 files, 300033 bytes, " in line


def test_more_objects_than_a_page_holds_are_fetched(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")
    names = {"inference.py", *(f"many/{number}.txt" for number in range(40))}
    store.put({f"pages/{name}": name.encode() for name in names})

    run = Run(store.url, tmp_path / "code", "pages")

    assert {name: name.encode() for name in names} == run.files()


def test_what_was_there_before_is_replaced(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"fresh/inference.py": HOOKS})
    for name in ("code", "code.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old.py").touch()

    assert {"inference.py": HOOKS} == Run(store.url, tmp_path / "code", "fresh").files()
    assert ["code"] == os.listdir(tmp_path)


def test_other_program_may_be_named(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"other/serve_it.py": HOOKS})

    assert Run(store.url, tmp_path / "code", "other", SAGEMAKER_PROGRAM="serve_it.py").status == 0


def test_program_that_is_missing_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"none/deeper/inference.py": HOOKS})

    refusal = Run(store.url, tmp_path / "code", "none").refusal()

    assert refusal == "s3://team-models/none/ holds no inference.py (SAGEMAKER_PROGRAM)"


def test_prefix_that_is_missing_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    refusal = Run(store.url, tmp_path / "code", "nowhere").refusal()

    assert refusal.startswith("s3://team-models/nowhere/ holds no files (")


def test_bucket_that_is_missing_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    refusal = Run(store.url, tmp_path / "code", "code", bucket="no-such-bucket").refusal()

    assert (
        refusal == "cannot fetch s3://no-such-bucket/code/: "
        "The specified bucket does not exist (ListObjectsV2: NoSuchBucket)"
    )


def test_text_that_is_no_bucket_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    refusal = Run(store.url, tmp_path / "code", "code", bucket="s3://team-models").refusal()

    assert "Invalid bucket name" in refusal


def test_denied_access_is_refused_with_what_was_denied(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"denied/inference.py": HOOKS})
    stranger = store.make_stranger()
    store.check_rights(True)
    try:
        refusal = Run(store.url, tmp_path / "code", "denied", AWS_SESSION_TOKEN="", **stranger).refusal()
    finally:
        store.check_rights(False)

    assert "cannot fetch s3://team-models/denied/: " in refusal
    assert "(ListObjectsV2: AccessDenied)" in refusal


def test_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"

        refusal = Run(url, tmp_path / "code", "code").refusal()

    assert f'Could not connect to the endpoint URL: "{url}' in refusal


def test_key_that_leaves_the_folder_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"escape/inference.py": HOOKS, "escape/../../up.py": b"1"})

    refusal = Run(store.url, tmp_path / "code", "escape").refusal()

    assert "the key 'escape/../../up.py' cannot be the path of a file" in refusal


def test_key_that_is_file_and_folder_at_once_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"both/inference.py": HOOKS, "both/a": b"1", "both/a/b": b"2"})

    refusal = Run(store.url, tmp_path / "code", "both").refusal()

    assert refusal.startswith("cannot fetch s3://team-models/both/: ")


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "./a", "a//b", "/etc/passwd", "a\n.py", "a\0b", "a/\x1b[31m", ""]
)
def test_path_that_is_none_below_a_folder_is_refused(path: str) -> None:
    place = Place.of("b", "p")

    with pytest.raises(StartError, match="cannot be the path of a file"):
        relative_path(f"p/{path}", place)


@pytest.mark.parametrize("path", ["a", "a/b.py", "..a/b..", "a b/ä", "C:\\x", "~/x", "-rf"])
def test_path_below_a_folder_is_accepted(path: str) -> None:
    assert path == relative_path(f"p/{path}", Place.of("b", "/p"))


@pytest.mark.parametrize(
    ("files", "is_run"),
    [
        ({"requirements.txt": b"x"}, True),
        ({}, False),
        ({"requirements.txt": b"x", "lib/x.py": b""}, False),
        ({"deep/requirements.txt": b"x"}, False),
    ],
)
def test_command_runs_only_for_requirements_that_are_to_be_installed(
    store: ObjectStore, tmp_path: Path, files: Mapping[str, bytes], is_run: bool
) -> None:
    prefix = f"packages{len(files)}{is_run}{len(str(files))}"
    store.put({f"{prefix}/{name}": content for name, content in {**files, "inference.py": HOOKS}.items()})
    folder = tmp_path / "code"
    command = (sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "--")

    run = Run(store.url, folder, prefix, *command)

    assert (
        (7, "['a b', '--']\n") == (run.status, run.output) if is_run else (0, "") == (run.status, run.output)
    )
    assert ("WARNING" in run.log) is ("lib/x.py" in files)


def test_log_is_json_where_that_is_asked_for_and_holds_no_secret(store: ObjectStore, tmp_path: Path) -> None:
    store.put({"secret/inference.py": HOOKS})
    environ = {"PIERHEAD_LOG_FORMAT": "json", "SAGEMAKER_CONTAINER_LOG_LEVEL": "debug"}

    run = Run(store.url, tmp_path / "code", "secret", **environ)

    assert {"universal-code"} == {json.loads(line)["program"] for line in run.log.splitlines()}
    assert TOKEN not in run.log


@pytest.mark.parametrize("words", [(), ("b", "p"), ("b", "p", "f", "pip")])
def test_other_arguments_are_refused_with_the_usage(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pierhead.universal_code", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")


@pytest.mark.parametrize(
    ("environ", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({}, "us-east-1"),
    ],
)
def test_region_is_that_of_boto3_or_else_of_sagemaker(
    monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], region: str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert region == open_s3(environ).meta.region_name
