"""Say what a Ray job that has not started waits for: what it asked for, beside what the cluster has.

What it asked for is in the record of the actor that is to start it (`/api/v0/actors`, Ray 2.60), or in its own record.
Where it is in neither, it is what the cluster cannot place, if that is one thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from training_monitor.core.errors import ParseError
from training_monitor.core.models import Question, RayResources, Reply
from training_monitor.core.units import format_bytes
from training_monitor.jobs.ray_jobs import ANSWER_SECONDS, actor_of, job_path, parse_resources
from training_monitor.jobs.ray_output import read_amount
from training_monitor.targets.scripts import format_call

_ASKED = {"entrypoint_num_gpus": "GPU", "entrypoint_num_cpus": "CPU", "entrypoint_memory": "memory"}
_NAMES = {"GPU": "GPUs", "CPU": "CPUs", "memory": "of memory"}
_MOST_SHOWN, _MOST_CHARACTERS = 3, 60
_Amounts = Mapping[str, float]


def waiting_question(job_id: str) -> Question[str | None]:
    """Ask what a job that has not started waits for; None if it has started, or if that is unknown."""
    of_actor = {"detail": 1, "filter_keys": "name", "filter_predicates": "=", "filter_values": actor_of(job_id)}
    script = format_call(
        "ray_waiting",
        "show_waiting",
        _seconds=ANSWER_SECONDS,
        _environment="",
        _of_job=job_path(job_id),
        _of_actor=f"/api/v0/actors?{urlencode(of_actor)}",
    )

    def parse(reply: Reply) -> str | None:
        job, actor, cluster = (*re.split(r"^http \d+\n", reply.output, maxsplit=2, flags=re.MULTILINE), "", "")[:3]
        if not job:
            return None
        found = parse_resources(Reply(cluster, reply.exit_code, reply.duration))
        asked = _asked_of_actor(actor, job_id) or _asked_in(_json(job)) or _only_demand(found)
        return "; ".join(_compare(asked, found)) or None

    return Question("waiting", script, parse, limit=20.0)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("not JSON", source="ray rest", text=text) from error


def _asked_of_actor(text: str, job_id: str) -> _Amounts:
    """Return the resources of the actor of a job, if it is there."""
    try:
        actors = json.loads(text)["data"]["result"]["result"]
        [asked] = [each["required_resources"] for each in actors if each["name"] == actor_of(job_id)]
    except (ValueError, RecursionError, KeyError, TypeError):  # an older Ray has no such list
        return {}
    return _amounts(asked)


def _asked_in(job: Any) -> _Amounts:
    """Return the resources in the record of a job."""
    record = job if isinstance(job, dict) else {}
    asked = {name: record.get(key) for key, name in _ASKED.items()}
    more = record.get("entrypoint_resources")
    return _amounts({**asked, **(more if isinstance(more, dict) else {})})


def _amounts(given: Any) -> _Amounts:
    items = given.items() if isinstance(given, Mapping) else ()
    return {str(name): amount for name, value in items if (amount := read_amount(value))}


def _only_demand(found: RayResources) -> _Amounts:
    return _amounts(found.demands[0]) if len(found.demands) == 1 else {}


def _compare(asked: _Amounts, found: RayResources) -> Iterator[str]:
    """Yield `99 GPUs requested, 8 exist` for what is too little, or else for all that was asked for."""
    parts = [(name, amount, *_there(name, found)) for name, amount in sorted(asked.items())]
    short = [each for each in parts if each[2] is not None and each[2] < each[1]]
    scarce = [each for each in parts if each[3] is not None and each[3] < each[1]]
    for name, amount, total, free in (short or scarce or parts)[:_MOST_SHOWN]:
        text = f"{_format(name, amount)} requested, "
        text += "the total is unknown" if total is None else f"{_number(name, total)} exist"
        yield text if short or free is None else f"{text}, {_number(name, free)} free"


def _there(name: str, found: RayResources) -> tuple[float | None, float | None]:
    """Return how much of a resource the cluster has, and how much of that is free."""
    used = {"GPU": found.gpus_used, "CPU": found.cpus_used}.get(name)
    total = None if found.totals is None else found.totals.get(name, 0.0)
    total = {"GPU": found.gpus_available, "CPU": found.cpus_available}.get(name, total)
    return total, None if total is None or used is None else total - used


def _format(name: str, amount: float) -> str:
    return f"{_number(name, amount)} {_NAMES.get(name, name[:_MOST_CHARACTERS])}"


def _number(name: str, amount: float) -> str:
    return format_bytes(amount) if name == "memory" else f"{amount:.6g}"
