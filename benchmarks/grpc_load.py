"""A load of predict calls over gRPC: one channel, a thread for each client, messages made beforehand.

Like `load` it runs in a process of its own, and reports the same figures.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

import grpc
import numpy as np

from benchmarks.load import LoadResult, load_result
from pierhead.serving_stubs import import_serving_stubs
from pierhead.tensor_protos import write_tensor

PREDICT = "/tensorflow.serving.PredictionService/Predict"


def request_bytes() -> bytes:
    """Return the request for half_plus_two of 1, 2 and 5."""
    request = import_serving_stubs().predict.PredictRequest()
    request.model_spec.name = "half_plus_two"
    write_tensor(np.array([1, 2, 5], np.float32), request.inputs["x"])
    message: bytes = request.SerializeToString()
    return message


def run(port: int, clients: int, seconds: float) -> LoadResult:
    """Call for so many seconds from so many threads."""
    message = request_bytes()
    latencies: list[float] = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Callable[..., object] = channel.unary_unary(PREDICT)
        call(message, wait_for_ready=True)
        start, cpu = time.perf_counter(), time.process_time()
        work = (call, message, start + seconds, latencies)
        threads = [threading.Thread(target=_call_until, args=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return load_result(latencies, time.perf_counter() - start, time.process_time() - cpu)


def _call_until(
    call: Callable[[bytes], object], message: bytes, deadline: float, latencies: list[float]
) -> None:
    while (started := time.perf_counter()) < deadline:
        call(message)
        latencies.append(time.perf_counter() - started)


if __name__ == "__main__":
    port, clients, seconds = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(run(int(port), int(clients), float(seconds)))))
