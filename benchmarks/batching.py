"""What batching gains: clients of one row each, on a wide network and on a deep one of many small operations.

Run as `python -m benchmarks.batching [CLIENTS] [SECONDS]`; each server stands alone while it is measured.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.load import HttpLoad, LoadResult
from benchmarks.servers import model_server

__all__ = ["measure"]

# Width and number of the dense layers.
NETWORKS = {"wide": (1024, 3), "deep": (64, 200)}
PARAMETERS = "max_batch_size { value: 16 } batch_timeout_micros { value: 2000 }"
BUILD = "build"


def measure(network: str, clients: int, seconds: float) -> dict[str, tuple[LoadResult, float]]:
    """Return figures without batching, with it, and with it but no waiting; and the server's us of CPU each.

    The latter is the one to compare where others use the machine.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, body, files = folder / "dense", folder / "body.json", folder / "batching.config"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.batching", BUILD, str(model / "1"), network], check=True
        )
        body.write_text(json.dumps({"instances": [[0.5] * NETWORKS[network][0]]}))
        results = {}
        for label, parameters in {
            "off": "",
            "on, 2000 us": PARAMETERS,
            "on, 0 us": PARAMETERS.replace("2000", "0"),
        }.items():
            files.write_text(parameters)
            flags = ["--enable_batching", f"--batching_parameters_file={files}"] if parameters else []
            with model_server("dense", model, *flags) as server:
                load = HttpLoad(server.rest_port, "/v1/models/dense:predict", str(body), "", clients, seconds)
                result(replace(load, seconds=1.0))
                used = server.cpu_seconds()
                figures = result(load)
                results[label] = figures, (server.cpu_seconds() - used) / figures.answers * 1e6
        return results


def result(load: HttpLoad) -> LoadResult:
    """Return the figures of a load that a process of its own makes."""
    command = [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(load))]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return LoadResult(**json.loads(ended.stdout))


def build(folder: str, network: str) -> None:
    """Write a network."""
    width, layers = NETWORKS[network]
    tf = importlib.import_module("tensorflow")
    weights = [
        tf.Variable(tf.random.stateless_normal([width, width], [layer, 0], stddev=width**-0.5))
        for layer in range(layers)
    ]
    narrow = tf.Variable(tf.ones([width, 8]) / width)

    def predict(x: object) -> dict[str, object]:
        for each in weights:
            x = tf.nn.relu(tf.matmul(x, each))
        return {"y": tf.matmul(x, narrow)}

    module = tf.Module()
    module.weights, module.narrow = weights, narrow
    module.predict = tf.function(predict, input_signature=[tf.TensorSpec([None, width], tf.float32, "x")])
    tf.saved_model.save(module, folder, {"serving_default": module.predict})


def main(arguments: list[str]) -> None:
    """Print a line for each setting."""
    if arguments[:1] == [BUILD]:
        build(arguments[1], arguments[2])
        return
    clients = int(arguments[0]) if arguments else 16
    seconds = float(arguments[1]) if len(arguments) > 1 else 6.0
    rows = [(network, *row) for network in NETWORKS for row in measure(network, clients, seconds).items()]
    for network, label, (figures, cpu) in rows:
        sys.stdout.write(
            f"{network}, batching {label:12} {figures.requests_per_second:6.0f} requests/s, "
            f"p50 {figures.p50_ms:6.2f}, p99 {figures.p99_ms:6.2f} ms, {cpu:5.0f} us CPU\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
