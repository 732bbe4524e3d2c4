"""Build the row of a member from its instance's listing and a look at its training; sum up rows. Pure.

Values of a listing may be missing, of another type or impossible: then they are unknown. Readings of a running machine
say nothing of it once it is stopped or gone, except for the progress of its training.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set as AbstractSet
from math import inf
from typing import Any, NamedTuple

from training_monitor.core.models import JobStatus
from training_monitor.core.shown import shown
from training_monitor.core.units import HOUR, known_number
from training_monitor.core.values import Verdict
from training_monitor.fleet.columns import FleetColumn
from training_monitor.fleet.metrics import (
    FLEET_COLUMNS,
    KEPT_LOGS,
    STARTING,
    Thresholds,
    TrainingMetrics,
    is_finished,
)
from training_monitor.fleet.values import FleetSummary, MemberSpec, TargetReading
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.text import strip_ansi
from training_monitor.vast.cost import cost_per_hour, forecast_burn
from training_monitor.vast.rows import EARLIEST_START, read_label
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED

MOST_WORDS, MOST_MESSAGE = 100, 200  # characters
MOST_AHEAD = 300.0  # seconds by which a service's clock may be ahead of ours
FRESH_SECONDS = 60.0  # a look that is older than the listing by more than this is not preferred to it
MOST_GPUS = 1000
HEALTH_LEVELS = ("healthy", "warning", "error", "unknown")
_MEASURED = [each for each in FLEET_COLUMNS if each.seen or each.listed]
_DOWN = ("lost", "stopped", "exited", "offline", "frozen", "rebooting", *STARTING)


class Billed(NamedTuple):
    """What an instance had cost by `until` (epoch seconds), in dollars; since then it has another price."""

    dollars: float
    until: float


class Seen(NamedTuple):
    """The results of looks at a member: the last good reading, the last log lines, why and since when looks fail.

    `missing`: they fail because there is no such target.
    """

    reading: TargetReading | None = None
    logs: tuple[str, ...] = ()
    error: str | None = None
    stale_since: float | None = None
    missing: bool = False


class Listed(NamedTuple):
    """What the account's listing says of a member, at `listed_at`; `lost`: a complete listing lacks it now.

    `row` is None if it is not rented, or was never listed. `error` is why there is no listing of it, `billed` the cost
    at earlier prices (see `bill`).
    """

    row: Mapping[str, Any] | None = None
    listed_at: float | None = None
    lost: bool = False
    error: str | None = None
    stale_since: float | None = None
    billed: Billed | None = None


def metrics_of(
    spec: MemberSpec,
    listed: Listed,
    seen: Seen,
    now: float,
    *,
    rented: int | None = None,
    training: str | None = None,
    is_found: bool = False,
) -> TrainingMetrics:
    """Build the row of one member; its errors are those of `seen`.

    Args:
        spec: what is watched.
        listed: what the account says of its machine.
        seen: the looks at it.
        now: epoch seconds.
        rented: the id of the instance that it is on; None for another target.
        training: the display name of the training that a search found.
        is_found: whether it is there only because of that: what its machine costs is in the row of another member.
    """
    row, reading = listed.row or {}, seen.reading
    status = "lost" if listed.lost else _status(rented, listed.row, reading)
    identity = _identify(rented, spec, row)
    is_up = status not in _DOWN
    is_silent = is_up and seen.error is not None  # a listing says nothing of a training that cannot be asked
    times = (listed.listed_at if row and not is_silent else None, reading.timestamp if reading else None)
    return TrainingMetrics(
        instance_id=identity,
        gpu_type=_gpu_type(row, reading),
        status=status,
        last_updated=max((when for when in times if when is not None), default=None),
        recent_logs=deque(seen.logs, maxlen=KEPT_LOGS),
        key=spec.key,
        name=_name(spec, row, training, is_found=is_found) or str(identity),
        groups=spec.groups,
        message=_message(row, reading, is_up),
        error=_error(spec, seen),
        missing=seen.missing,
        stale_since=seen.stale_since,
        verdict=_verdict(reading, is_up or rented is None),
        explained=reading.explained if reading else None,
        found=is_found,
        **({} if is_found else _costs(row, status, listed.listed_at if listed.lost else now, listed.billed)),
        **(_progress(reading, is_up) if reading else {}),
        **(_values(row, listed.listed_at, reading) if is_up else {}),
    )


def _error(spec: MemberSpec, seen: Seen) -> str | None:
    """Return why the last look failed; of a bare word that is in no group also what it was taken for."""
    is_bare = "://" not in spec.target and spec.target != "local"
    if seen.error is None or spec.groups or not is_bare:
        return seen.error
    return f"{spec.target}, assumed to be a pod: {seen.error}"


def clean_text(text: str, length: int = MOST_WORDS) -> str:
    """Return what is shown of a foreign text, at most `length` characters of it."""
    text = text[: 4 * length]
    return shown(strip_ansi(text) if "[" in text or "\x1b" in text else text).rstrip()[:length]


def _words(value: object, length: int = MOST_WORDS) -> str | None:
    """Return a text of a listing; None if it is empty or not a text."""
    return (clean_text(value, length).strip() or None) if isinstance(value, str) else None


# ---------------------------------------------------------------- identity


def _identify(rented: int | None, spec: MemberSpec, listed: Mapping[str, Any]) -> int | str:
    number = listed.get("id") if rented is None else rented
    return number if type(number) is int else spec.name or spec.target


def _name(spec: MemberSpec, listed: Mapping[str, Any], training: str | None, *, is_found: bool) -> str | None:
    """Return the display name: that of the spec, else the label and the training, job or log.

    A label of ours is shown as its job; the training, job or log distinguishes members on one target.
    """
    label = listed.get("label")
    ours = read_label(label)
    rented_as = clean_text(ours[1]) if ours else _words(label)
    which = f"pid {spec.which}" if spec.which and spec.which.isdigit() else spec.which
    called = " ".join(word for word in (rented_as, _words(training or which)) if word)
    return (None if is_found else spec.name) or called


def _gpu_type(listed: Mapping[str, Any], reading: TargetReading | None) -> str | None:
    name, count = _words(listed.get("gpu_name")), known_number(listed.get("num_gpus"))
    if name is None and reading:
        names = [gpu.name.removeprefix("NVIDIA ") for gpu in reading.gpus if gpu.name]
        name, count = (clean_text(names[0]) if names else None), float(len(reading.gpus))
    return f"{int(count)}x {name}" if name and count is not None and 2 <= count <= MOST_GPUS else name


def _status(rented: int | None, row: Mapping[str, Any] | None, reading: TargetReading | None) -> str:
    if row is not None:
        return _listed_status(row)
    if reading is None or rented is not None:
        return "unknown"
    status, verdict = reading.status.status, reading.status.verdict
    if status is JobStatus.UNKNOWN and verdict is not None and verdict.state in ("finished", "failed"):
        return verdict.state
    return "running" if status is JobStatus.UNKNOWN and reading.status.is_running else status.value.lower()


def _listed_status(row: Mapping[str, Any]) -> str:
    """Return the status in the service's words, but `stopped` (there: `exited`) for one stopped by a person."""
    word, wanted = ((_words(row.get(key)) or "").lower() for key in ("actual_status", "intended_status"))
    if word == "exited" and wanted == "stopped":
        return "stopped"
    return word or ("created" if wanted == "running" else "unknown")


def _message(listed: Mapping[str, Any], reading: TargetReading | None, is_up: bool) -> str | None:
    """Return the job's message; the service's only where it may explain why a machine is not up."""
    said = _words(reading.status.message, MOST_MESSAGE) if reading else None
    return said if is_up else _words(listed.get("status_msg"), MOST_MESSAGE) or said


# ---------------------------------------------------------------- cost


def bill(before: Mapping[str, Any] | None, billed: Billed | None, row: Mapping[str, Any], now: float) -> Billed | None:
    """Return the cost of an instance up to the last change of its price, status or start.

    Args:
        before: its row in the previous listing; None: there was none.
        billed: the result for that.
        row: its current row.
        now: the time of that, epoch seconds.
    """
    if before is None or before == row or _terms(before) == _terms(row):
        return billed
    total = _costs(before, _listed_status(before), now, billed)["total_cost"]
    return billed if total is None else Billed(total, now)


def _terms(row: Mapping[str, Any]) -> tuple[object, ...]:
    return cost_per_hour(row), _listed_status(row), known_number(row.get("start_date"))


def _costs(listed: Mapping[str, Any], status: str, until: float | None, billed: Billed | None) -> dict[str, Any]:
    """Return the price, and the cost since the rental began, which the service does not report.

    That is what was billed, plus the time since then at the current price. It is unknown for an instance never seen
    running: it cost less while it was stopped, since an unknown time.
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


# ---------------------------------------------------------------- progress


def _progress(reading: TargetReading, is_up: bool) -> dict[str, Any]:
    """Return the values of the log; current values only for a machine that is up."""
    seen, progress = reading.status, reading.status.progress
    job = job_progress(progress)
    found: dict[str, Any] = {
        "step": job.step,
        "total_steps": job.total_steps,
        "epochs_done": job.epoch,
        "total_epochs": job.total_epochs,
        "epoch": progress.epoch,
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
    is_stalled = seen.verdict is not None and seen.verdict.state in ("stalled", "suspended")
    return found | {
        "steps_per_second": None if is_stalled else progress.steps_per_second,
        "eta_seconds": job.eta_seconds,
        "log_age": reading.log_age,
    }


def _verdict(reading: TargetReading | None, is_up: bool) -> Verdict | None:
    """Return the last verdict: an end is final, all else holds only while the machine is up and the job there.

    Only an account knows that a machine is not up: of another target, the look that the verdict is on shows it.
    """
    verdict = (reading.status.verdict if reading else None) or NOBODY_LOOKED
    is_there = is_up and (reading is None or reading.absent is None)
    return verdict if is_there or verdict.state in ENDS else None


# ---------------------------------------------------------------- utilization


def _values(listed: Mapping[str, Any], listed_at: float | None, reading: TargetReading | None) -> dict[str, Any]:
    """Return the utilization, preferring the machine's own values unless the listing is newer by over a minute."""
    is_older = reading is not None and listed_at is not None and reading.timestamp < listed_at - FRESH_SECONDS

    def seen(each: FleetColumn) -> float | None:
        return each.seen(reading) if each.seen and reading else None

    def said(each: FleetColumn) -> float | None:
        return each.listed(listed) if each.listed else None

    first, second = (said, seen) if is_older else (seen, said)
    found = {each.attribute: second(each) if (value := first(each)) is None else value for each in _MEASURED}
    return found if is_older else {**found, "gpus": reading.gpus if reading else ()}


# ---------------------------------------------------------------- sum


def summarize(
    rows: Sequence[TrainingMetrics],
    *,
    listed: Sequence[Mapping[str, Any]] | None,
    shown: AbstractSet[int],
    credit: float | None,
    thresholds: Thresholds,
    now: float,
    left_out: int = 0,
) -> FleetSummary:
    """Sum up a fleet. A machine with several members is counted once.

    Args:
        rows: its members.
        listed: all instances of the account, shown or not, since its credit pays for them; None: unknown, or no
            account.
        shown: the ids of the instances among `rows`.
        credit: of the account, dollars; None: unknown.
        thresholds: for the health of the members.
        now: epoch seconds.
        left_out: trainings that were found and are not among the rows.
    """
    burn = forecast_burn(_priced_rows(rows) if listed is None else listed, credit)
    hidden = forecast_burn([row for row in listed or () if row.get("id") not in shown], None)
    levels = Counter(row.health(thresholds, now).level for row in rows)
    totals = {row.instance_id: row.total_cost for row in rows if pays(row)}
    return FleetSummary(
        levels={level: levels[level] for level in HEALTH_LEVELS},
        dollars_per_hour=burn.dollars_per_hour,
        unpriced=burn.unknown,
        dollars_spent=sum(total for total in totals.values() if total is not None),
        without_total=sum(total is None for total in totals.values()),
        credit=credit,
        credit_hours=burn.hours_left,
        hidden=hidden.instances,
        hidden_dollars_per_hour=hidden.dollars_per_hour,
        left_out=left_out,
        **_completion(rows, now),
    )


def is_rented(row: TrainingMetrics) -> bool:
    """Return whether a member is on a rented machine."""
    return type(row.instance_id) is int


def pays(row: TrainingMetrics) -> bool:
    """Return whether the row of a rented machine has what that costs."""
    return is_rented(row) and not row.found


def _priced_rows(rows: Sequence[TrainingMetrics]) -> list[dict[str, float | None]]:
    """Return the rented members in the format of a listing."""
    prices = {row.instance_id: row.cost_per_hour for row in rows if pays(row) and row.status != "lost"}
    return [{"dph_total": price} for price in prices.values()]


def _completion(rows: Sequence[TrainingMetrics], now: float) -> dict[str, Any]:
    """Estimate the rest of the trainings; running ones without an ETA are counted apart."""
    longest, without = None, 0
    ends, prices = dict[int | str, float](), {row.instance_id: row.cost_per_hour for row in rows if pays(row)}
    for row in rows:
        seconds = _seconds_left(row, now)
        if seconds is None:
            without += row.status == "running" and row.is_running is not False and not is_finished(row)
            continue
        longest = seconds if longest is None else max(longest, seconds)
        if is_rented(row):
            ends[row.instance_id] = max(seconds, ends.get(row.instance_id, 0.0))
    costs = [seconds / HOUR * price for place, seconds in ends.items() if (price := prices.get(place)) is not None]
    return {
        "dollars_to_completion": sum(costs) if costs else None,
        "without_price": len(ends) - len(costs),
        "seconds_to_completion": longest,
        "without_eta": without,
    }


def _seconds_left(row: TrainingMetrics, now: float) -> float | None:
    """Return the seconds left, less the time since the row was seen; None where it should have ended by now."""
    seconds = row.seconds_left()
    if seconds is None or row.stale_since is None:
        return seconds
    left = seconds - max(0.0, now - row.stale_since)
    return left if left > 0 else None
