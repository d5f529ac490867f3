"""A stand-in for `serve`: /ping and signatures over HTTP, ended by SIGTERM; FAKE_* variables steer it.

FAKE_MODE: `dies` before it is ready with status 3, `ends` by itself after the first POST with status 7,
`stubborn` ignores SIGTERM, `silent` is never ready. FAKE_REPORT: a file that takes its pid and environment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

MODE = os.environ.get("FAKE_MODE", "")
FLOATS = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}}
SIGNATURE = {"inputs": {"x": FLOATS}, "outputs": {"y": FLOATS}, "method_name": "tensorflow/serving/predict"}
METADATA = {"metadata": {"signature_def": {"signature_def": {"serving_default": SIGNATURE}}}}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/ping":
            self.answer(503 if MODE == "silent" else 200, b"")
        else:
            self.answer(200, json.dumps(METADATA).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, f"{self.headers['Content-Type']} {len(body)}".encode())
        if MODE == "ends":
            os._exit(7)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name for it
        pass


def end(_number: int, _frame: object) -> None:
    sys.stderr.write("fake: asked to end\n")
    if MODE != "stubborn":
        raise SystemExit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    report = {"pid": os.getpid(), "group": os.getpgid(0), "environment": dict(os.environ)}
    partial = Path(os.environ["FAKE_REPORT"] + ".partial")
    partial.write_text(json.dumps(report))
    partial.rename(os.environ["FAKE_REPORT"])
    sys.stdout.write("fake: started\n")
    sys.stdout.flush()
    if MODE == "dies":
        sys.stderr.write("fake: the model is bad\n")
        raise SystemExit(3)
    rest_port = int(os.environ["SAGEMAKER_SAFE_PORT_RANGE"].partition("-")[0]) + 1
    rest = HTTPServer(("127.0.0.1", rest_port), Answers)
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    HTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Answers).serve_forever(0.05)


if __name__ == "__main__":
    main()
