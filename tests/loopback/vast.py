"""A vast.ai REST API on the loopback interface, for the real vastai CLI to talk to (VAST_URL).

Served: GET /api/v0/instances/ID/, what `vastai show instance ID` asks for. An instance that is gone is
`{"instances": null}` with status 200, as the service answers.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

Json = dict[str, Any]

KEY = "loopback-key"
_INSTANCE = re.compile(r"GET /api/v0/instances/(\d+)/?")


def instance(number: int, **details: Any) -> Json:
    """An instance as the service describes it, cut to what tells where it is; `details` overrides."""
    row = {
        "id": number,
        "actual_status": "running",
        "intended_status": "running",
        "num_gpus": 1,
        "gpu_name": "RTX 4090",
    }
    row |= {"ssh_host": "ssh5.vast.ai", "ssh_port": 10000 + number, "public_ipaddr": "192.0.2.1", "ports": {}}
    return {**row, "dph_total": 0.5, "label": None, "start_date": 1_700_000_000.0, "extra_env": [], **details}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        api = cast("_Server", self.server).api
        request = f"{self.command} {urlsplit(self.path).path}"
        api.requests.append(request)
        if api.fail_with:
            self._reply(api.fail_with, {"success": False, "error": "server_error", "msg": "something broke"})
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self._reply(401, {"success": False, "error": "auth_error", "msg": "Invalid user key"})
        elif found := _INSTANCE.fullmatch(request):
            self._reply(200, {"instances": api.instances.get(int(found.group(1)))})
        else:
            self._reply(404, {"success": False, "error": "not_found", "msg": f"no such endpoint: {request}"})

    def _reply(self, code: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: VastApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)


class VastApi:
    """The server, its instances, and the faults that a test can set at any time."""

    def __init__(self) -> None:
        self.instances: dict[int, Json] = {}
        self.requests: list[str] = []
        self.fail_with = 0  # an HTTP status for every request
        self._server = _Server(self)
        self.port = self._server.server_address[1]
        self.environ = {"VAST_URL": f"http://127.0.0.1:{self.port}", "VAST_API_KEY": KEY, "VASTAI_NO_UPDATE_CHECK": "1"}

    def __enter__(self) -> VastApi:  # noqa: PYI034 (Self is not in Python 3.10)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._server.shutdown()
        self._server.server_close()

    def add_instance(self, number: int, **details: Any) -> Json:
        """Add an instance; `details` are keys of its row."""
        self.instances[number] = instance(number, **details)
        return self.instances[number]
