"""What the service says: instances, offers, the account, refusals; and how it prices, compares and pages."""

from __future__ import annotations

import base64
import json
from operator import eq, ge, gt, le, lt, ne
from typing import Any

Json = dict[str, Any]

KEY = "loopback-key"
HOURS_IN_A_MONTH = 720


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


def failure(error: str, said: str) -> Json:
    return {"success": False, "error": error, "msg": said}


def no_such_ask(number: int) -> Json:
    """The refusal of an offer that somebody else has, or that is no more."""
    return failure("no_such_ask", f"error 404/3603: no_such_ask Instance type by id {number} is not available.")


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
