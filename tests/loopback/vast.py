"""A vast.ai REST API on the loopback interface, for the real vastai CLI to talk to (VAST_URL).

Served, as vastai 1.9.1 asks for it:

- `GET /api/v1/instances/?limit&after_token`: a page of the account's instances in the order of their numbers, with
  `next_token` and `total_instances`; both the flat and the paged listing of the CLI read it;
- `GET /api/v0/instances/ID/`: one; an instance that is gone is `{"instances": null}` with status 200;
- `DELETE /api/v0/instances/ID/`: destroys one, 404 where it is not;
- `POST /api/v0/bundles/`: the offers that the body asks for, priced with the disk it asks for (`allocated_storage`), in
  its order, cut at its limit; a condition on what an offer does not say is not met;
- `GET /api/v0/users/current`: the account;
- `GET /api/v0/ssh/` its ssh keys, `POST /api/v0/ssh/` one more, 400 for one that it has.

A request is known by its line, as in `GET /api/v0/instances/7/`; a further page by `GET /api/v1/instances/ after 25`.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import eq, ge, gt, le, lt, ne
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

KEY = "loopback-key"
LIST = "GET /api/v1/instances/"
SEARCH = "POST /api/v0/bundles/"
USER = "GET /api/v0/users/current"
SSH_KEYS, ADD_SSH_KEY = "GET /api/v0/ssh/", "POST /api/v0/ssh/"
MOST_IN_A_PAGE = 25
HOURS_IN_A_MONTH = 720
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


def offer(number: int, gpu: str = "RTX 4090", price: float = 0.4, **details: Any) -> Json:
    """An offer as the service describes it, with the price of its GPUs alone; `details` overrides."""
    row = {"id": number, "ask_contract_id": number, "gpu_name": gpu, "num_gpus": 1, "gpu_ram": 24564}
    row |= {"dph_base": price, "storage_cost": 0.15, "min_bid": price / 2, "disk_space": 500.0, "cuda_max_good": 12.8}
    row |= {"reliability": 0.99, "geolocation": "Sweden, SE", "inet_down": 700.0, "inet_up": 500.0, "machine_id": 500}
    row |= {"verification": "verified", "verified": True, "external": False, "rentable": True, "rented": False}
    return {**row, "duration": 864_000.0, **details}


def user(**details: Any) -> Json:
    """The account as the service describes it, cut to its money; `details` overrides."""
    row = {"id": 1, "username": "somebody", "email": "somebody@example.com", "api_key": KEY, "ssh_key": None}
    return {**row, "credit": 12.5, "balance": 0.0, "balance_threshold": 5.0, "can_pay": True, **details}


def destroy_request(number: int) -> str:
    return f"DELETE /api/v0/instances/{number}/"


def failure(error: str, said: str) -> Json:
    return {"success": False, "error": error, "msg": said}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
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
        limit = int(query.get("limit", MOST_IN_A_PAGE))
        self._reply(*self._answer(api, request, after, limit, json.loads(sent or b"{}")))

    do_DELETE = do_POST = do_GET

    def _answer(
        self, api: VastApi, request: str, after: int, limit: int, sent: Json
    ) -> tuple[int, Json | list[Json] | bytes]:
        if api.fail_with:
            return api.fail_with, failure("server_error", "something broke")
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            return 401, failure("auth_error", "Invalid user key")
        if request in api.answers:
            return api.answers[request]
        if request.startswith(LIST):
            return 200, api.page(after, min(limit, MOST_IN_A_PAGE))
        if request == SEARCH:
            return 200, {"offers": api.search(sent)}
        if request == USER:
            return 200, api.user
        if request in (SSH_KEYS, ADD_SSH_KEY):
            return (200, api.ssh_keys) if request == SSH_KEYS else api.add_ssh_key(sent["ssh_key"])
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

    def _reply(self, code: int, answer: Json | list[Json] | bytes) -> None:
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
        self.offers: dict[int, Json] = {}
        self.searches: list[Json] = []  # the bodies of the searches
        self.user = user()
        self.ssh_keys: list[Json] = []
        self.answers: dict[str, tuple[int, Json | list[Json] | bytes]] = {}  # what a request gets instead, by its line
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

    def add_offer(self, number: int, gpu: str = "RTX 4090", price: float = 0.4, **details: Any) -> Json:
        """Add an offer; `details` are keys of its row."""
        self.offers[number] = offer(number, gpu, price, **details)
        return self.offers[number]

    def search(self, query: Json) -> list[Json]:
        """The offers that a search finds, as the service prices, sorts and cuts them."""
        self.searches.append(query)
        rows = [priced(row, query) for row in self.offers.values()]
        tests = {name: value for name, value in query.items() if isinstance(value, dict)}
        rows = [row for row in rows if all(meets(row.get(name), test) for name, test in tests.items())]
        for name, direction in reversed(query.get("order", [])):
            rows.sort(key=lambda row: row.get(name) or 0, reverse=direction == "desc")
        return rows[: query.get("limit", 64)]

    def add_ssh_key(self, text: str) -> tuple[int, Json]:
        """Register a key, whatever its text is: the service takes a path for one, too."""
        if any(row["public_key"] == text for row in self.ssh_keys):
            return 400, failure("invalid_args", "SSH key already exists")
        row = {
            "id": len(self.ssh_keys) + 101,
            "user_id": 1,
            "public_key": text,
            "created_at": 1.7e9,
            "deleted_at": None,
        }
        self.ssh_keys.append(row)
        return 200, {"success": True, "key": self.ssh_keys[-1]}

    def about_instances(self) -> list[str]:
        """The requests, without those of every start of the CLI (the names of GPUs, the user's role)."""
        return [request for request in self.requests if "/instances/" in request]

    def destroyed(self) -> list[str]:
        """The requests that destroy anything."""
        return [request for request in self.requests if request.startswith("DELETE ")]


def priced(row: Json, query: Json) -> Json:
    """An offer with its price in all; its own `dph_total` stays, if it has one."""
    price = row["min_bid"] if query.get("type") == "bid" else row["dph_base"]
    disk = row["storage_cost"] * query.get("allocated_storage", 5.0) / HOURS_IN_A_MONTH
    return {"dph_total": round(price + disk, 6), **row}


def meets(value: Any, tests: Json) -> bool:
    """Whether a value meets conditions such as `{"gte": "0.95"}`; one that is not there meets none."""
    return value is not None and all(_meets(value, name, wanted) for name, wanted in tests.items())


def _meets(value: Any, name: str, wanted: Any) -> bool:
    if name in ("in", "notin"):
        return (str(value).rpartition(",")[2].strip() in wanted) == (name == "in")
    if isinstance(value, int | float) and not isinstance(value, bool):
        wanted = float(wanted)
    return bool({"eq": eq, "neq": ne, "gt": gt, "gte": ge, "lt": lt, "lte": le}[name](value, wanted))


def page_token(number: int) -> str:
    """The token of the page behind an instance, of the service's form."""
    return base64.b64encode(json.dumps({"values": {"id": number}}).encode()).decode()


def read_token(token: str) -> int:
    return int(json.loads(base64.b64decode(token))["values"]["id"])
