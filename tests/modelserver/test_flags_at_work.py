"""Flags whose effect shows only in a whole server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.modelserver.running_server import COMMAND, run_to_end, wait_until

from pierhead.serving_stubs import ServingStubs

SECONDS = 30
PRINT_CONFIG = """
import sys
from pathlib import Path
from pierhead.modelserver.runtimes.platform_config import read_platform_config
from pierhead.modelserver.runtimes.session_options import SessionOptions, read_session_config

config = read_session_config(Path(sys.argv[1]))
print(SessionOptions(intra_op_threads=3, mixed_precision="bfloat16", file_config=config).config())
options = read_platform_config(Path(sys.argv[2]))
print(options.tags, options.config())
"""
PLATFORM = """
platform_configs { key: "tensorflow" value { source_adapter_config {
  [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] { legacy_config {
    session_config { device_count { key: "CPU" value: 7 } }
    saved_model_tags: "serve" saved_model_tags: "gpu"
    batching_parameters { max_batch_size { value: 4 } }
  } }
} } }
"""


def is_serving(stubs: ServingStubs, target: str) -> bool:
    request = stubs.get_model_status.GetModelStatusRequest()
    request.model_spec.name = "half"
    with grpc.insecure_channel(target) as channel:
        try:
            stubs.ModelServiceStub(channel).GetModelStatus(request, timeout=SECONDS)
        except grpc.RpcError:
            return False
    return True


def test_server_with_a_socket_and_one_port_for_two_apis_says_what_it_leaves_out(
    half_model: Path, stubs: ServingStubs, free_ports: Callable[[int], int], tmp_path: Path
) -> None:
    port, socket = free_ports(1), tmp_path / "grpc"
    session = tmp_path / "session"
    session.write_text("inter_op_parallelism_threads: 1")
    flags = [f"--port={port}", f"--rest_api_port={port}", f"--grpc_socket_path={socket}"]
    more = [
        "--bind_address=127.0.0.1",
        f"--tensorflow_session_config_file={session}",
        "--prefer_tflite_model",
    ]
    model = ["--model_name=half", f"--model_base_path={half_model}"]
    limit = "--grpc_channel_arguments=grpc.max_receive_message_length=8,grpc.primary_user_agent=x"
    process = subprocess.Popen(
        [*COMMAND, *flags, *more, *model, limit, "--prefer_tflite_model"], stderr=subprocess.PIPE, text=True
    )
    try:
        # The message limit of eight bytes still lets the name of the model through.
        wait_until(lambda: is_serving(stubs, f"unix:{socket}") or process.poll() is not None)
        assert is_serving(stubs, f"127.0.0.1:{port}")
    finally:
        process.terminate()
        _, log = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert "rest_api_port cannot be the same as port" in log
    assert 1 == log.count("--prefer_tflite_model has no effect: TFLite")
    assert not socket.exists()


def test_session_options_come_from_files_too(tmp_path: Path) -> None:
    file, platform = tmp_path / "session", tmp_path / "platform"
    platform.write_text(PLATFORM)
    file.write_text("intra_op_parallelism_threads: 1 inter_op_parallelism_threads: 2")
    command = [sys.executable, "-c", PRINT_CONFIG, str(file), str(platform)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout

    assert "intra_op_parallelism_threads: 3\ninter_op_parallelism_threads: 2\n" in shown
    assert "auto_mixed_precision_onednn_bfloat16: ON" in shown
    assert """('serve', 'gpu') device_count {\n  key: "CPU"\n  value: 7\n}\n""" in shown


@pytest.mark.parametrize(
    "flag", ["tensorflow_session_config_file", "ssl_config_file", "platform_config_file"]
)
def test_unreadable_file_ends_the_start(flag: str, half_model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("}")
    ended = run_to_end(f"--{flag}={tmp_path}/file", "--port=1", f"--model_base_path={half_model}")

    assert ended.returncode == 255
    assert "Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: " in ended.stdout
