"""`rent instances`: what is rented at vast.ai, for which training, and what it costs."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import (
    BAD,
    LEAST_WIDTH,
    OK,
    UNKNOWN,
    cut,
    hint,
    number,
    one_line,
    print_json,
    print_table,
    refuse,
    say,
)
from training_monitor.core.errors import CommandError, InstanceNotFound
from training_monitor.core.units import format_duration, known_number, plural
from training_monitor.vast import forecast_burn, list_instances, show_instance
from training_monitor.vast.cost import BurnForecast, cost_per_hour
from training_monitor.vast.rows import STOPPED, read_label


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


# Keys copied from vast.ai's row of an instance: the name there, and the function that reads the value.
INSTANCE_KEYS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "intended_status": ("intended_status", _text),
    "status_message": ("status_msg", _text),
    "gpu_name": ("gpu_name", _text),
    "num_gpus": ("num_gpus", _whole),
    "running_cost_per_hour": ("dph_total", known_number),
    "storage_cost_per_hour": ("storage_total_cost", known_number),
    "label": ("label", _text),
    "disk_gb": ("disk_space", known_number),
    "location": ("geolocation", _text),
    "image": ("image_uuid", _text),
    "machine_id": ("machine_id", _whole),
}


def declare(command: CommandParser) -> None:
    command.value("id", "ID", "show this instance (default: list all)", nargs="?")


def run(args: Namespace) -> int:
    """List the account's instances, or describe one, and return the exit code."""
    try:
        if args.id is not None:
            rows: Sequence[Mapping[str, Any]] = [show_instance(args.id)]
        else:
            rows = list_instances()
    except InstanceNotFound as error:
        return refuse(error, args, BAD)
    except CommandError as error:
        hint("the rented instances could not be listed")
        return refuse(error, args, UNKNOWN)
    burn, found = forecast_burn(rows, None), [_describe(row) for row in rows]
    costs = {"cost_per_hour": burn.dollars_per_hour, "cost_unknown": burn.unknown}
    if print_json(args, {"instances": found, **costs}):
        return OK
    if args.id is not None:
        _print_instance(found[0])
        return OK
    header = ("ID", "STATUS", "GPU", "$/H", "UPTIME", "LABEL/JOB", "SSH")
    if found:
        print_table(header, [_instance_cells(each) for each in found], gives_way=(5, 2, 6))
    say(burn_in_words(burn))
    if ours := sum(each["job"] is not None for each in found):
        say(f"* {ours} rented by training_monitor: OWNER/JOB/ATTEMPT")
    return OK


def _describe(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an instance that may be shown: the service's row also has tokens and the environment."""
    label, started = read_label(row.get("label")), known_number(row.get("start_date"))
    return {
        "instance_id": row["id"],
        "status": _status(row),
        "runtime_seconds": None if started is None else max(0.0, time.time() - started),
        "job": None if label is None else {"owner": label[0], "job_id": label[1], "attempt": label[2]},
        "ssh": f"{row['ssh_host']}:{row['ssh_port']}" if row.get("ssh_host") and row.get("ssh_port") else None,
        "cost_per_hour": cost_per_hour(row),
        **{key: read(row.get(name)) for key, (name, read) in INSTANCE_KEYS.items()},
    }


def _status(row: Mapping[str, Any]) -> str | None:
    """Return the status in the service's words; one that is being created has none yet, and is not stopped."""
    status, state = row.get("actual_status"), row.get("cur_state")
    is_new = state in STOPPED and row.get("intended_status") == "running"
    return _text(status or ("created" if is_new else state))


def _instance_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    label = each["label"] or "-"
    if each["job"]:
        label = "* {owner}/{job_id}/{attempt}".format_map(
            {**each["job"], "owner": cut(each["job"]["owner"], LEAST_WIDTH)}
        )
    price = number(each["cost_per_hour"], 3)
    return str(each["instance_id"]), each["status"] or "?", _gpus(each), price, _uptime(each), label, each["ssh"] or "-"


def _gpus(each: Mapping[str, Any]) -> str:
    count = each["num_gpus"]
    return f"{f'{count}x ' if count and count != 1 else ''}{each['gpu_name'] or '?'}"


def _uptime(each: Mapping[str, Any]) -> str:
    return format_duration(each["runtime_seconds"])


def _prices(each: Mapping[str, Any]) -> str:
    now, running, stopped = (f"${number(each[f'{key}cost_per_hour'], 3)}/h" for key in ("", "running_", "storage_"))
    return f"{now} now, {running} running, {stopped} stopped"


def _print_instance(each: Mapping[str, Any]) -> None:
    job = "-"
    if each["job"]:
        job = "{job_id}, machine {attempt} of this job, queued by {owner}".format_map(each["job"])
    lines = (
        ("target", f"vast://{each['instance_id']}"),
        ("status", f"{each['status'] or '?'}, wanted: {each['intended_status'] or '?'}"),
        ("message", each["status_message"]),
        ("GPU", _gpus(each)),
        ("price", _prices(each)),
        ("uptime", _uptime(each)),
        ("job", job),
        ("label", each["label"]),
        ("ssh", each["ssh"]),
        ("disk", f"{number(each['disk_gb'])} GB"),
        ("image", each["image"]),
        ("where", f"{each['location'] or '?'}, machine {number(each['machine_id'])}"),
    )
    for name, value in lines:
        say(f"{name:<8} {one_line(value or '-')}")


def burn_in_words(burn: BurnForecast) -> str:
    if not burn.instances:
        return "no instances"
    more = f", of which {burn.storage_only} stopped (disk cost only)" if burn.storage_only else ""
    least = f", and the price of {burn.unknown} is unknown" if burn.unknown else ""
    return f"{plural(burn.instances, 'instance')}: ${burn.dollars_per_hour:.3f} per hour{more}{least}"


COMMAND = Command(run, declare, ("",))
