"""A vast.ai REST API on the loopback interface, for the real vastai CLI to talk to (VAST_URL).

Served, as vastai 1.9.1 asks for it:

- `GET /api/v1/instances/?limit&after_token`: a page of the account's instances in the order of their numbers, with
  `next_token` and `total_instances`; both the flat and the paged listing of the CLI read it;
- `GET /api/v0/instances/ID/`: one; an instance that is gone is `{"instances": null}` with status 200;
- `PUT /api/v0/instances/ID/`: stops or starts one, 404 where it is not;
- `PUT /api/v0/instances/reboot/ID/`: it goes down;
- `DELETE /api/v0/instances/ID/`: destroys one, 404 where it is not;
- `POST /api/v0/bundles/`: the offers that the body asks for, priced with the disk it asks for (`allocated_storage`), in
  its order, cut at its limit; a condition on what an offer does not say is not met;
- `PUT /api/v0/asks/ID/`: rents an offer, which then is rented; 404 (no_such_ask) for one that cannot be had;
- `GET /api/v0/users/current`: the account;
- `GET /api/v0/ssh/` its ssh keys, `POST /api/v0/ssh/` one more, 400 for one that it has.

A request is known by its line, as in `GET /api/v0/instances/7/`; a further page by `GET /api/v1/instances/ after 25`.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.loopback.vast_rows import (
    HOURS_IN_A_MONTH,
    KEY,
    Json,
    failure,
    instance,
    meets,
    no_such_ask,
    offer,
    page_token,
    priced,
    read_token,
    user,
)

Answer = tuple[int, Json | list[Json] | bytes]

LIST = "GET /api/v1/instances/"
OLD_LIST = "GET /api/v0/instances"  # of versions before 1.1; in no pages
SEARCH = "POST /api/v0/bundles/"
USER = "GET /api/v0/users/current"
GPU_NAMES = "GET /api/v0/gpu_names/unique/"
SSH_KEYS, ADD_SSH_KEY = "GET /api/v0/ssh/", "POST /api/v0/ssh/"
MOST_IN_A_PAGE = 25
FIRST_CREATED = 70_001
_INSTANCE = re.compile(r"(GET|DELETE|PUT) /api/v0/instances/(?:reboot/)?(\d+)/?")
_ASK = re.compile(r"PUT /api/v0/asks/(\d+)/?")
_FAULTS = ("500", "429", "garbage", "hang up")


def destroy_request(number: int) -> str:
    return f"DELETE /api/v0/instances/{number}/"


def stop_request(number: int) -> str:
    return f"PUT /api/v0/instances/{number}/"


def reboot_request(number: int) -> str:
    return f"PUT /api/v0/instances/reboot/{number}/"


def create_request(offer_number: int) -> str:
    return f"PUT /api/v0/asks/{offer_number}/"


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
        if api.hang == request and not api.wait():
            return
        fault, acts = api.draw_fault()
        limit = int(query.get("limit", MOST_IN_A_PAGE))
        knows_key = KEY in (self.headers.get("Authorization", "").removeprefix("Bearer "), query.get("api_key"))
        answer: Answer = 500, {}
        if acts:
            answer = self._answer(api, request, knows_key, after, limit, json.loads(sent or b"{}"))
        if request == api.hang_after:
            api.wait()
            return
        if request in api.lost or fault == "hang up":
            api.lost -= api.lost_once
            self.close_connection = True
        elif fault:
            self._reply(*_faulty(fault))
        else:
            self._reply(*answer)

    do_DELETE = do_POST = do_PUT = do_GET

    def _answer(self, api: VastApi, request: str, knows_key: bool, after: int, limit: int, sent: Json) -> Answer:
        if api.fail_with:
            return api.fail_with, failure("server_error", "something broke")
        if request == GPU_NAMES:  # versions before 1.1 ask without a key, whatever the command is
            return 200, {"gpu_names": ["RTX 3060", "RTX 4090"]}
        if not knows_key:  # versions before 1.0 send it in the address
            return 401, failure("auth_error", "Invalid user key")
        if request in api.answers:
            return api.answers[request]
        with api.lock:
            return _act(api, request, after, limit, sent)

    def _reply(self, code: int, answer: Json | list[Json] | bytes) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _act(api: VastApi, request: str, after: int, limit: int, sent: Json) -> Answer:
    if request.startswith(LIST):
        return 200, api.page(after, min(limit, MOST_IN_A_PAGE), looked=True)
    if request == OLD_LIST:
        return 200, api.page(0, len(api.instances), looked=True)
    if request == SEARCH:
        return 200, {"offers": api.search(sent)}
    if request == USER:
        return 200, api.user
    if request in (SSH_KEYS, ADD_SSH_KEY):
        return (200, api.ssh_keys) if request == SSH_KEYS else api.add_ssh_key(sent["ssh_key"])
    if found := _ASK.fullmatch(request):
        return api.rent(int(found[1]), sent)
    if not (found := _INSTANCE.fullmatch(request)):
        return 404, failure("not_found", f"no such endpoint: {request}")
    number = int(found[2])
    if found[1] == "GET":
        return 200, {"instances": api.look_at(number)}
    if number not in api.instances:
        return 404, failure("no_such_instance", f"Instance {number} not found")
    if found[1] == "PUT":
        if "/reboot/" in request:
            api.instances[number]["actual_status"] = "running" if api.keeps_running else "rebooting"
            return 200, {"success": True}
        return 200, api.set_state(number, sent["state"])
    api.bill(number, 0.0)
    if not api.keeps_destroyed:
        del api.instances[number]
    api.gone.append(number)
    return 200, {"success": True}


def _faulty(fault: str) -> Answer:
    if fault == "garbage":
        return 200, b"<html>bad gateway"
    return int(fault), failure("fault", "something broke")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: VastApi, port: int) -> None:
        self.api = api
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A CLI that was killed hangs up: nothing to tell."""


class VastApi:
    """The server, its instances, and the faults that a test can set at any time.

    `created` has the rows of all instances that were ever rented, as they were then; `gone` the numbers of those that
    were destroyed.
    """

    def __init__(self, port: int = 0) -> None:
        self.lock = threading.RLock()
        self.instances: dict[int, Json] = {}
        self.requests: list[str] = []
        self.offers: dict[int, Json] = {}
        self.searches: list[Json] = []  # the bodies of the searches
        self.user = user()
        self.ssh_keys: list[Json] = []
        self.created: list[Json] = []
        self.gone: list[int] = []
        self.bills: dict[int, list[tuple[float, float]]] = {}  # since when each instance costs what per hour
        self.asked: list[Json] = []  # the bodies of all that was asked to be rented
        # how new instances are
        self.details: Json = {}  # of the row of each instance that is rented
        self.boot: list[Json] = [{"actual_status": "running"}]  # its row at each look at it, the last one for ever
        self.boots: dict[int, list[Json]] = {}  # the same, of one instance
        self.late = 0  # the number of listings after which a new instance is there
        # faults
        self.fail_with = 0  # an HTTP status for every request
        self.answers: dict[str, Answer] = {}  # what a request gets instead, by its line
        self.lost: set[str] = set()  # requests that are done, and hang up instead of answering
        self.lost_once: set[str] = set()  # those of them that answer the next time
        self.hang: str | None = None  # a request that is not done before `released`, if ever
        self.hang_after: str | None = None  # a request that is done and gets no answer
        self.hanging, self.released, self.stopped = threading.Event(), threading.Event(), threading.Event()
        self.keeps_destroyed = False  # a destroyed instance stays listed until the test takes it out
        self.keeps_running = False  # a stopped instance runs on
        self.lying_listings = 0  # the number of listings to come that lack instances, and say that there are no more
        self.lying_share = 0.0  # the part of the instances that is in these
        self.fail_share = 0.0  # of all requests; each fails before or after it was done
        self._random, self._coming = random.Random(7), list[tuple[int, Json]]()
        self._server = _Server(self, port)
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
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    # ---------------------------------------------------------------- faults

    def wait(self) -> bool:
        """Hang until the test releases what hangs, or the server stops; whether it is released."""
        self.hanging.set()
        self.released.wait()
        return not self.stopped.is_set()

    def draw_fault(self) -> tuple[str | None, bool]:
        """The fault that befalls a request, and whether it is done nevertheless."""
        with self.lock:
            if self._random.random() >= self.fail_share:
                return None, True
            fault = self._random.choice(_FAULTS)
            return fault, fault != "429" and self._random.random() < 0.5

    # ---------------------------------------------------------------- instances

    def add_instance(self, number: int, **details: Any) -> Json:
        """Add an instance; `details` are keys of its row."""
        with self.lock:
            self.instances[number] = instance(number, **details)
            return self.instances[number]

    def page(self, after: int = 0, limit: int = MOST_IN_A_PAGE, *, looked: bool = False) -> Json:
        """A page of the listing, with the instances behind number `after`."""
        if looked and not after:
            self._arrive()
        known = sorted(self.instances)
        if looked and self.lying_listings:
            self.lying_listings -= 1
            known = known[: int(len(known) * self.lying_share)]
        numbers = [number for number in known if number > after]
        rows = [self.instances[number] for number in numbers[:limit]]
        token = page_token(numbers[limit - 1]) if len(numbers) > limit else None
        total, labels = len(known), {"": len(rows)}
        page = {"success": True, "instances_found": len(rows), "total_instances": total, "label_counts": labels}
        return {**page, "next_token": token, "instances": rows}

    def _arrive(self) -> None:
        """One listing more: what comes late comes nearer."""
        self._coming = [(left - 1, row) for left, row in self._coming]
        self.instances |= {row["id"]: row for left, row in self._coming if left < 0}
        self._coming = [(left, row) for left, row in self._coming if left >= 0]

    def look_at(self, number: int) -> Json | None:
        """An instance, one step further in its boot at each look."""
        row, steps = self.instances.get(number), self.boots.get(number)
        if row is not None and steps:
            row |= steps.pop(0) if len(steps) > 1 else steps[0]
        return row

    def set_state(self, number: int, state: str) -> Json:
        if not self.keeps_running:
            now = "exited" if state == "stopped" else "running"
            row = self.instances[number]
            row |= {"intended_status": state, "cur_state": state, "actual_status": now}
            self.bill(number, row.get("storage_total_cost", 0.0) if state == "stopped" else row["dph_total"])
        return {"success": True}

    # ---------------------------------------------------------------- what instances cost, whoever counts it elsewhere

    def bill(self, number: int, per_hour: float) -> None:
        """Charge another price from now on; 0: it is gone."""
        self.bills.setdefault(number, []).append((time.time(), per_hour))

    def set_price(self, number: int, per_hour: float) -> None:
        with self.lock:
            self.instances[number]["dph_total"] = per_hour
            self.bill(number, per_hour)

    def lose(self, number: int) -> None:
        """Let an instance go that nobody asked to destroy."""
        with self.lock:
            del self.instances[number]
            self.bill(number, 0.0)

    def cost(self, *numbers: int) -> float:
        """The dollars that these instances have cost; all of them by default."""
        dollars, now = 0.0, time.time()
        for number in numbers or self.bills:
            changes = self.bills[number]
            ends = [*(since for since, _ in changes[1:]), now]
            dollars += sum(price * (end - since) for (since, price), end in zip(changes, ends, strict=True)) / 3600
        return dollars

    def about_instances(self) -> list[str]:
        """The requests, without those of every start of the CLI (the names of GPUs, the user's role)."""
        return [request for request in self.requests if "/instances/" in request]

    def destroyed(self) -> list[str]:
        """The requests that destroy anything."""
        return [request for request in self.requests if request.startswith("DELETE ")]

    def rented(self, label: str) -> list[int]:
        """All instances that were ever rented with this label."""
        with self.lock:
            return [row["id"] for row in self.created if row["label"] == label]

    def left(self, label: str) -> list[int]:
        """The instances with this label that are there, or will come."""
        with self.lock:
            rows = [*self.instances.values(), *(row for _, row in self._coming)]
            return sorted(row["id"] for row in rows if row["label"] == label)

    # ---------------------------------------------------------------- offers

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

    def rent(self, number: int, sent: Json) -> Answer:
        """Make an instance of an offer, which is taken then."""
        self.asked.append(sent)
        found = self.offers.get(number)
        if found is None or found["rented"]:
            return 404, no_such_ask(number)
        if self.user["credit"] <= 0:
            return 400, failure("insufficient_credit", "Your account lacks credit; see the billing page.")
        if sent["price"] is not None and sent["price"] < found["min_bid"]:
            return 400, failure("invalid_bid", f"the bid is below {found['min_bid']}")
        found |= {"rented": True, "rentable": False}
        row = self._new_row(found, sent)
        self.created.append(dict(row))
        self.bill(row["id"], row["dph_total"])
        if self.late:
            self._coming.append((self.late, row))
        else:
            self.instances[row["id"]] = row
        return 200, {"success": True, "new_contract": row["id"]}

    def _new_row(self, found: Json, sent: Json) -> Json:
        number = FIRST_CREATED + len(self.created)
        price = priced(found, {"allocated_storage": sent["disk"], "type": sent["price"] and "bid"})["dph_total"]
        row = instance(number, label=sent["label"], machine_id=found["machine_id"], gpu_name=found["gpu_name"])
        disk = found["storage_cost"] * sent["disk"] / HOURS_IN_A_MONTH
        row |= {"dph_total": price, "storage_total_cost": disk, "start_date": time.time(), "gpu_ram": found["gpu_ram"]}
        row |= {"image_uuid": sent["image"], "onstart": sent["onstart"], **self.details}
        self.boots[number] = [dict(step) for step in self.boot]
        return row | self.boot[0]

    # ---------------------------------------------------------------- the account

    def add_ssh_key(self, text: str) -> tuple[int, Json]:
        """Register a key, whatever its text is: the service takes a path for one, too."""
        if any(row["public_key"] == text for row in self.ssh_keys):
            return 400, failure("invalid_args", "SSH key already exists")
        number = len(self.ssh_keys) + 101
        self.ssh_keys.append({"id": number, "user_id": 1, "public_key": text, "created_at": 1.7e9, "deleted_at": None})
        return 200, {"success": True, "key": self.ssh_keys[-1]}
