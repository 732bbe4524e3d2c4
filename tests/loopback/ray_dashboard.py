"""A Ray dashboard of a few jobs: GET /api/jobs/, /api/jobs/ID, /api/jobs/ID/logs and /api/cluster_status.

Shapes as recorded from Ray 2.60 under tests/recorded/ray; for what needs no real Ray.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote


class RayDashboard:
    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.usage = {"CPU": [2.0, 8.0], "GPU": [4.0, 4.0]}
        dashboard = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, text = dashboard.answer(unquote(self.path))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def add_job(self, submission_id: str, status: str, log: str = "", entrypoint: str = "python train.py") -> None:
        ended = int(time.time() * 1000) if status in ("SUCCEEDED", "FAILED", "STOPPED") else None
        self.logs[submission_id] = log
        self.jobs[submission_id] = {
            "type": "SUBMISSION", "job_id": None, "submission_id": submission_id, "driver_info": None,
            "status": status, "entrypoint": entrypoint, "message": f"Job is {status}.", "error_type": None,
            "start_time": int(time.time() * 1000) - 60000, "end_time": ended, "metadata": {}, "runtime_env": {},
            "driver_exit_code": {"SUCCEEDED": 0, "FAILED": 1}.get(status),
        }  # fmt: skip

    def answer(self, path: str) -> tuple[int, str]:
        if path == "/api/jobs/":
            return 200, json.dumps(list(self.jobs.values()))
        if path == "/api/cluster_status":
            report = {"usage": self.usage, "resourceDemand": [], "pgDemand": []}
            return 200, json.dumps({"result": True, "data": {"clusterStatus": {"loadMetricsReport": report}}})
        name = path.removeprefix("/api/jobs/").removesuffix("/logs")
        if name not in self.jobs:
            return 404, f"Job {name} does not exist"
        return 200, json.dumps({"logs": self.logs[name]} if path.endswith("/logs") else self.jobs[name])

    def __enter__(self) -> RayDashboard:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
