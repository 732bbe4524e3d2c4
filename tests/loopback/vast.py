"""A vast.ai REST API on the loopback interface, for the real vastai CLI to talk to (VAST_URL).

Served, as vastai 1.9.1 asks for it:

- `GET /api/v1/instances/?limit&after_token`: a page of the account's instances in the order of their numbers, with
  `next_token` and `total_instances`; both the flat and the paged listing of the CLI read it;
- `GET /api/v0/instances/ID/`: one; an instance that is gone is `{"instances": null}` with status 200;
- `DELETE /api/v0/instances/ID/`: destroys one, 404 where it is not.

A request is known by its line, as in `GET /api/v0/instances/7/`; a further page by `GET /api/v1/instances/ after 25`.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

KEY = "loopback-key"
LIST = "GET /api/v1/instances/"
MOST_IN_A_PAGE = 25
_INSTANCE = re.compile(r"(GET|DELETE) /api/v0/instances/(\d+)/?")


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


def destroy_request(number: int) -> str:
    return f"DELETE /api/v0/instances/{number}/"


def failure(error: str, said: str) -> Json:
    return {"success": False, "error": error, "msg": said}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api = cast("_Server", self.server).api
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        after = read_token(query["after_token"]) if "after_token" in query else 0
        request = f"{self.command} {url.path}" + (f" after {after}" if after else "")
        api.requests.append(request)
        if api.hang == request:
            api.hanging.set()
            api.stopped.wait()
            return
        self._reply(*self._answer(api, request, after, int(query.get("limit", MOST_IN_A_PAGE))))

    do_DELETE = do_GET

    def _answer(self, api: VastApi, request: str, after: int, limit: int) -> tuple[int, Json | bytes]:
        if api.fail_with:
            return api.fail_with, failure("server_error", "something broke")
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            return 401, failure("auth_error", "Invalid user key")
        if request in api.answers:
            return api.answers[request]
        if request.startswith(LIST):
            return 200, api.page(after, min(limit, MOST_IN_A_PAGE))
        if not (found := _INSTANCE.fullmatch(request)):
            return 404, failure("not_found", f"no such endpoint: {request}")
        number = int(found[2])
        if found[1] == "GET":
            return 200, {"instances": api.instances.get(number)}
        if number not in api.instances:
            return 404, failure("no_such_instance", f"Instance {number} not found")
        if not api.keeps_destroyed:
            del api.instances[number]
        return 200, {"success": True}

    def _reply(self, code: int, answer: Json | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
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

    def handle_error(self, request: object, client_address: object) -> None:
        """A CLI that was killed hangs up: nothing to tell."""


class VastApi:
    """The server, its instances, and the faults that a test can set at any time."""

    def __init__(self) -> None:
        self.instances: dict[int, Json] = {}
        self.requests: list[str] = []
        self.fail_with = 0  # an HTTP status for every request
        self.answers: dict[str, tuple[int, Json | bytes]] = {}  # what a request gets instead, by its line
        self.hang: str | None = None  # a request that gets no answer before the server stops
        self.hanging, self.stopped = threading.Event(), threading.Event()
        self.keeps_destroyed = False  # a destroyed instance stays listed until the test takes it out
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
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def add_instance(self, number: int, **details: Any) -> Json:
        """Add an instance; `details` are keys of its row."""
        self.instances[number] = instance(number, **details)
        return self.instances[number]

    def page(self, after: int = 0, limit: int = MOST_IN_A_PAGE) -> Json:
        """A page of the listing, with the instances behind number `after`."""
        numbers = sorted(number for number in self.instances if number > after)
        rows = [self.instances[number] for number in numbers[:limit]]
        token = page_token(numbers[limit - 1]) if len(numbers) > limit else None
        total, labels = len(self.instances), {"": len(rows)}
        page = {"success": True, "instances_found": len(rows), "total_instances": total, "label_counts": labels}
        return {**page, "next_token": token, "instances": rows}

    def about_instances(self) -> list[str]:
        """The requests, without those of every start of the CLI (the names of GPUs, the user's role)."""
        return [request for request in self.requests if "/instances/" in request]

    def destroyed(self) -> list[str]:
        """The requests that destroy anything."""
        return [request for request in self.requests if not request.startswith("GET ")]


def page_token(number: int) -> str:
    """The token of the page behind an instance, of the service's form."""
    return base64.b64encode(json.dumps({"values": {"id": number}}).encode()).decode()


def read_token(token: str) -> int:
    return int(json.loads(base64.b64decode(token))["values"]["id"])
