"""From an instance as the service lists it, and a look at its training, to one row of a fleet. Pure.

What a listing says may be missing, of another type or impossible: then it is not known. What a machine showed while it
ran says nothing of it once it is stopped or gone, but for how far its training came.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from training_monitor.models import Gpu, JobStatus
from training_monitor.parse.log_text import strip_ansi
from training_monitor.policy.cost import HOUR
from training_monitor.policy.fleet_values import FleetEntry, TargetReading
from training_monitor.policy.health import average
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.judge import ENDS, NOBODY_LOOKED
from training_monitor.policy.sweep import EARLIEST_START
from training_monitor.policy.sweep_rows import cost_per_hour
from training_monitor.policy.training_metrics import KEPT_LOGS, STARTING, TrainingMetrics
from training_monitor.renting import read_label
from training_monitor.units import known_number
from training_monitor.verdicts import Verdict

MOST_WORDS, MOST_MESSAGE, MOST_LINE = 100, 200, 500  # characters
MOST_AHEAD = 300.0  # seconds by which a service's clock may be ahead of ours
FRESH_SECONDS = 60.0  # a look that is older than the listing by more than that is not preferred to it
MB_PER_GB = 1024.0
MOST_GPUS = 1000
_INSTANCE = re.compile(r"vast://([0-9]{1,18})")
_DOWN = ("lost", "stopped", "exited", "offline", "frozen", "rebooting", *STARTING)


@dataclass(frozen=True, slots=True)
class Billed:
    """What an instance had come to at `until` (epoch seconds), in dollars; what it costs since is another price."""

    dollars: float
    until: float


def metrics_of(
    entry: FleetEntry,
    *,
    row: Mapping[str, Any] | None,
    listed_at: float | None,
    reading: TargetReading | None,
    logs: Sequence[str],
    now: float,
    error: str | None,
    stale_since: float | None,
    lost: bool = False,
    billed: Billed | None = None,
) -> TrainingMetrics:
    """Put together what is known of one member.

    Args:
        entry: what is watched.
        row: the instance as the service listed it last; None: it is not rented, or was never listed.
        listed_at: when that was, epoch seconds.
        reading: the newest look at it that succeeded.
        logs: its newest lines, oldest first.
        now: epoch seconds.
        error: why the last look failed; stale_since: since when they do.
        lost: a complete listing has it no more.
        billed: see `bill`.
    """
    listed: Mapping[str, Any] = row or {}
    status = "lost" if lost else _status(entry, row, reading)
    is_up = status not in _DOWN
    times = (listed_at if row else None, reading.timestamp if reading else None)
    return TrainingMetrics(
        instance_id=_instance_id(entry, listed),
        gpu_type=_gpu_type(listed, reading),
        status=status,
        last_updated=max((when for when in times if when is not None), default=None),
        recent_logs=deque((clean_text(line, MOST_LINE) for line in logs[-KEPT_LOGS:]), maxlen=KEPT_LOGS),
        key=entry.key,
        name=_name(entry, listed),
        groups=entry.groups,
        message=_message(listed, reading, is_up),
        error=error,
        stale_since=stale_since,
        verdict=_verdict(reading, is_up),
        **_costs(listed, status, listed_at if lost else now, billed),
        **(_progress(reading, is_up) if reading else {}),
        **(_values(listed, listed_at, reading) if is_up else {}),
    )


def clean_text(text: str, length: int = MOST_WORDS) -> str:
    """One line of somebody's text without colours and control characters, at most `length` characters of it."""
    plain = strip_ansi(text[: 4 * length])
    if not plain.isprintable():
        plain = "".join(each if each.isprintable() else " " for each in plain)
    return plain.rstrip()[:length]


def _words(value: object, length: int = MOST_WORDS) -> str | None:
    """A text of a listing; None for all else, and for one that says nothing."""
    return (clean_text(value, length).strip() or None) if isinstance(value, str) else None


# ---------------------------------------------------------------- who and what it is


def _instance_id(entry: FleetEntry, listed: Mapping[str, Any]) -> int | str:
    found = _INSTANCE.fullmatch(entry.target)
    if found:
        return int(found[1])
    number = listed.get("id")
    return number if type(number) is int else entry.name or entry.target


def _name(entry: FleetEntry, listed: Mapping[str, Any]) -> str:
    """What people call it: by the entry; by our label (the job it was rented for) or any label, and the job or log
    that tells it from others there; by its id."""
    label = listed.get("label")
    ours = read_label(label)
    rented_as = clean_text(ours[1]) if ours else _words(label)
    called = " ".join(word for word in (rented_as, _words(entry.which)) if word)
    return entry.name or called or str(_instance_id(entry, listed))


def _gpu_type(listed: Mapping[str, Any], reading: TargetReading | None) -> str | None:
    name, count = _words(listed.get("gpu_name")), known_number(listed.get("num_gpus"))
    if name is None and reading:
        names = [gpu.name.removeprefix("NVIDIA ") for gpu in reading.gpus if gpu.name]
        name, count = (clean_text(names[0]) if names else None), float(len(reading.gpus))
    return f"{int(count)}x {name}" if name and count is not None and 2 <= count <= MOST_GPUS else name


def _status(entry: FleetEntry, row: Mapping[str, Any] | None, reading: TargetReading | None) -> str:
    if row is not None:
        return _listed_status(row)
    if _INSTANCE.fullmatch(entry.target) or reading is None:
        return "unknown"
    status = reading.status.status
    return "running" if status is JobStatus.UNKNOWN and reading.status.is_running else status.value.lower()


def _listed_status(row: Mapping[str, Any]) -> str:
    """In the service's words. One that a person stopped is `exited` there; one without a word is being created."""
    word, wanted = ((_words(row.get(key)) or "").lower() for key in ("actual_status", "intended_status"))
    if word == "exited" and wanted == "stopped":
        return "stopped"
    return word or ("created" if wanted == "running" else "unknown")


def _message(listed: Mapping[str, Any], reading: TargetReading | None, is_up: bool) -> str | None:
    """What the job says of itself; the service's word only where it may say why a machine is not up."""
    said = _words(reading.status.message, MOST_MESSAGE) if reading else None
    return said if is_up else _words(listed.get("status_msg"), MOST_MESSAGE) or said


# ---------------------------------------------------------------- what it costs


def bill(before: Mapping[str, Any] | None, billed: Billed | None, row: Mapping[str, Any], now: float) -> Billed | None:
    """What an instance had come to when it was last seen to change: its price, its status or its start.

    Args:
        before: as it was listed before; None: it was not.
        billed: what came of that.
        row: as it is listed now.
        now: when that is, epoch seconds.
    """
    if before is None or _terms(before) == _terms(row):
        return billed
    total = _costs(before, _listed_status(before), now, billed)["total_cost"]
    return billed if total is None else Billed(total, now)


def _terms(row: Mapping[str, Any]) -> tuple[object, ...]:
    return cost_per_hour(row), _listed_status(row), known_number(row.get("start_date"))


def _costs(listed: Mapping[str, Any], status: str, until: float | None, billed: Billed | None) -> dict[str, Any]:
    """Its price, and what it came to since the rental began: the service does not tell the sum.

    That is what was billed, and the time since then at its price. Of one that was never seen to run nobody knows it: it
    cost less while it was stopped, but nobody knows since when.
    """
    price, started = cost_per_hour(listed), known_number(listed.get("start_date"))
    latest = inf if until is None else until + MOST_AHEAD
    if started is not None and not EARLIEST_START <= started <= latest:
        started = None
    runs = status == "running" or (status == "lost" and _listed_status(listed) == "running")
    if billed is None and runs and started is not None:
        billed = Billed(0.0, started)
    total = None
    if billed is not None and price is not None and until is not None:
        total = billed.dollars + price * max(0.0, until - billed.until) / HOUR
    return {"cost_per_hour": None if status == "lost" else price, "total_cost": total, "started_at": started}


# ---------------------------------------------------------------- how far it is


def _progress(reading: TargetReading, is_up: bool) -> dict[str, Any]:
    """What the log shows; how the training does now only of a machine that is up."""
    seen, progress = reading.status, reading.status.progress
    job = job_progress(progress)
    found: dict[str, Any] = {
        "step": job.step,
        "total_steps": job.total_steps,
        "epoch": progress.epoch,
        "total_epochs": job.total_epochs,
        "epochs_done": job.epoch,
        "loss": progress.loss,
        "learning_rate": progress.learning_rate,
        "grad_norm": progress.grad_norm,
        "runtime_seconds": seen.runtime,
        "finished": True if seen.verdict and seen.verdict.state == "finished" else None,
        "loss_analysis": seen.loss,
        "extra": dict(reading.extra),
        "absent": reading.absent if is_up else None,
        "run": reading.run,
    }
    if not is_up:
        return found
    found["is_running"] = seen.is_running
    found["job_status"] = None if seen.status is JobStatus.UNKNOWN else seen.status.value.lower()
    if reading.absent is not None:
        return found
    return found | {
        "steps_per_second": progress.steps_per_second,
        "eta_seconds": job.eta_seconds,
        "log_age": reading.log_age,
    }


def _verdict(reading: TargetReading | None, is_up: bool) -> Verdict | None:
    """What the judge said at the last look: an end holds, all else only while the machine is up and the job there."""
    verdict = (reading.status.verdict if reading else None) or NOBODY_LOOKED
    is_there = is_up and (reading is None or reading.absent is None)
    return verdict if is_there or verdict.state in ENDS else None


# ---------------------------------------------------------------- how its machine is used


def _values(listed: Mapping[str, Any], listed_at: float | None, reading: TargetReading | None) -> dict[str, Any]:
    """What the machine itself said comes first, unless it is older than the listing by more than a minute."""
    said, seen = _listed_values(listed), _seen_values(reading)
    if reading and listed_at is not None and reading.timestamp < listed_at - FRESH_SECONDS:
        said, seen = seen, said
    return {name: said[name] if value is None else value for name, value in seen.items()}


def _listed_values(listed: Mapping[str, Any]) -> dict[str, float | None]:
    total_mb = _positive(listed.get("gpu_totalram")) or _times(listed.get("gpu_ram"), listed.get("num_gpus"))
    used_gb = _positive(listed.get("vmem_usage"))
    used_mb = None if used_gb is None else used_gb * MB_PER_GB
    disk = _share(_positive(listed.get("disk_usage")), _positive(listed.get("disk_space")))
    return {
        "gpu_util": _percent(listed.get("gpu_util")),
        "memory_util": _share(used_mb, total_mb),
        "disk_util": _percent(listed.get("disk_util")) if disk is None else disk,
        "ram_util": _share(_positive(listed.get("mem_usage")), _positive(listed.get("mem_limit"))),
        "gpu_temperature": known_number(listed.get("gpu_temp")),
        "gpu_power": None,
    }


def _seen_values(reading: TargetReading | None) -> dict[str, float | None]:
    gpus = reading.gpus if reading else ()
    used = [(gpu.memory_used_mb, gpu.memory_total_mb) for gpu in gpus]
    known = [(a, b) for a, b in used if a is not None and b is not None]
    heat = [gpu.temperature_celsius for gpu in gpus if gpu.temperature_celsius is not None]
    return {
        "gpu_util": _percent(average(gpu.utilization for gpu in gpus)),
        "memory_util": _share(sum(a for a, _ in known), sum(b for _, b in known)),
        "disk_util": _percent(reading.disk_percent) if reading else None,
        "ram_util": _percent(reading.ram_percent) if reading else None,
        "gpu_temperature": max(heat, default=None),
        "gpu_power": average(_power(gpu) for gpu in gpus),
    }


def _power(gpu: Gpu) -> float | None:
    drawn, limit = gpu.power_draw_watts, gpu.power_limit_watts
    return min(1.0, drawn / limit) if drawn is not None and limit else None


def _positive(value: object) -> float | None:
    number = known_number(value)
    return number if number is not None and number >= 0 else None


def _percent(value: object) -> float | None:
    number = _positive(value)
    return None if number is None else min(100.0, number)


def _times(value: object, count: object) -> float | None:
    one, many = _positive(value), _positive(count)
    return None if one is None else one * (many or 1.0)


def _share(used: float | None, of: float | None) -> float | None:
    """Per cent; None where the whole is not known."""
    return min(100.0, 100.0 * used / of) if used is not None and of else None
