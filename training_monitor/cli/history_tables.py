"""Tables and sparklines of the history, for people and as JSON."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import isfinite
from typing import Any

from training_monitor.cli.market import print_table
from training_monitor.cli.output import hint, print_json, say
from training_monitor.errors import SettingsError
from training_monitor.history import History, HistoryMember
from training_monitor.parse.history_chunk import FIELDS
from training_monitor.policy.fleet_values import FleetSample
from training_monitor.policy.trends import (
    COMPARED,
    CostProjection,
    RunComparison,
    compare_runs,
    project_cost,
    series,
    trend,
)
from training_monitor.units import format_duration, format_sparkline, plural

AHEAD = 24.0  # hours of which the cost is projected
MANY = 20  # members: of more, a day is not read while somebody waits
RECENT = 300.0  # seconds
SILENT = 3600.0  # seconds without a sample, after which nobody knows how a training goes on
WIDEST = 40  # cells of a sparkline
_DURATIONS = {"eta_seconds", "runtime_seconds"}


@dataclass(frozen=True, slots=True)
class View:
    """What is asked for: a time, the fields (none: all), and whether as JSON."""

    history: History
    since: float
    until: float
    fields: tuple[str, ...]
    as_json: bool

    def read(self, key: str, fields: Collection[str] = FIELDS) -> list[FleetSample]:
        """What was seen of a member in this time."""
        return self.history.read(key, self.since, self.until, fields=fields)


# ---------------------------------------------------------------- all of them


def list_members(view: View, members: Sequence[HistoryMember]) -> None:
    """One line for each member; of more than `MANY` only the last minutes of each are read."""
    shown = view.fields or ("loss", "gpu_utilization")
    found, rows, width = [], [], _cells(36 + 10 * len(shown), len(shown))
    for each in members:
        recent = min(view.until, each.last) - RECENT if len(members) > MANY else view.since
        samples = replace(view, since=max(view.since, recent)).read(each.key, {"step", *shown})
        newest = {field: _newest(samples, field) for field in ("step", *shown)}
        if view.as_json:
            found.append({**_named(each), **{field: plain(value) for field, value in newest.items()}})
            continue
        seen = f"{format_duration(max(0.0, time.time() - each.last))} ago"
        lines = ((_number(field, newest[field]), _sparkline(samples, field, width, view.until)) for field in shown)
        rows.append((each.key, seen, _number("step", newest["step"]), *chain.from_iterable(lines)))
    if view.as_json:
        print_json({"members": found})
    elif rows:
        header = chain.from_iterable((_heading(field), "") for field in shown)
        print_table(("MEMBER", "SEEN", "STEP", *header), rows, gives_way=(0,))
    if len(rows) > MANY:
        hint(f"of so many members only the last {format_duration(RECENT)} of each; name one to see all of it")


def _named(member: HistoryMember) -> dict[str, Any]:
    return {"key": member.key, "first_seen": member.first, "last_seen": member.last, "samples": member.samples}


# ---------------------------------------------------------------- some of them


def describe(view: View, members: Sequence[HistoryMember]) -> None:
    """Each field of some members, and what they will cost."""
    found = []
    for member in members:
        samples = view.read(member.key)
        cost = None if _why_not(samples) else project_cost(samples, hours=AHEAD)
        if view.as_json:
            fields = {field: asdict(trend(samples, field)) for field in view.fields or FIELDS}
            values = {field: {name: plain(value) for name, value in each.items()} for field, each in fields.items()}
            found.append({**_named(member), "seen": len(samples), "fields": values, "cost": cost})
        else:
            _print_member(view, member, samples, cost)
    if view.as_json:
        print_json({"members": found})


def _print_member(
    view: View, member: HistoryMember, samples: Sequence[FleetSample], cost: CostProjection | None
) -> None:
    name = " ".join(member.key.split())
    if not samples:
        say(f"{name}  nothing was seen in this time; it was from {_when(member.first)} to {_when(member.last)}")
        return
    status = f", {samples[-1].status}" if samples[-1].status else ""
    span = f"{_when(samples[0].timestamp)} to {_when(samples[-1].timestamp)}"
    say(f"{name}  {span}  {plural(len(samples), 'sample')}{status}")
    rows, width = [], _cells(68, 1)
    for field in view.fields or FIELDS:
        each = trend(samples, field)
        if each.known == 0.0 and not view.fields:
            continue
        numbers = [_number(field, value) for value in (each.first, each.last, each.low, each.high)]
        rows.append((field, _sparkline(samples, field, width, view.until), *numbers, _change(field, each.per_hour)))
    if rows:
        print_table(("FIELD", "", "FIRST", "LAST", "LOW", "HIGH", "PER HOUR"), rows, gives_way=())
    say(f"cost  {_cost_in_words(cost) if cost else _why_not(samples)}")


def _why_not(samples: Sequence[FleetSample]) -> str | None:
    """Why nobody can say what a member will cost; None when it can be said."""
    if not samples:
        return "nothing was seen"
    silent = time.time() - samples[-1].timestamp
    if samples[-1].status == "lost":
        return "it is gone and costs nothing any more"
    return f"nobody knows: it was last seen {format_duration(silent)} ago" if silent > SILENT else None


def _cost_in_words(cost: CostProjection) -> str:
    spent = "" if cost.spent is None else f"${cost.spent:.2f} so far, "
    if cost.dollars_per_hour is None or cost.dollars is None:
        return f"{spent}nobody knows its price"
    left = "nobody knows how much" if cost.to_completion is None else f"${cost.to_completion:.2f}"
    ahead = f"the next {cost.hours:g} hours ${cost.dollars:.2f}, until its last step {left}"
    return f"{spent}${cost.dollars_per_hour:.3f} per hour\n      {ahead}"


# ---------------------------------------------------------------- side by side


def compare(view: View, members: Sequence[HistoryMember]) -> None:
    """Members beside one another, also at the same step. Raises SettingsError when there are too many of them."""
    if len(members) > MANY:
        raise SettingsError("--compare", f"{len(members)} members", f"the names of at most {MANY}")
    runs = compare_runs({member.key: view.read(member.key, COMPARED) for member in members})
    if view.as_json:
        print_json({"runs": [{name: plain(value) for name, value in asdict(run).items()} for run in runs]})
        return
    if not runs:
        return
    header = ("MEMBER", "STEP", "LOSS", "BEST", "AT", "/1K", "/S", "GPU", "COST", "$/1K")
    print_table(header, [_run_cells(run) for run in runs], gives_way=(0,))
    common = next((run.common_step for run in runs if run.common_step is not None), None)
    at_step = "" if common is None else f"AT: the loss at step {_number('step', common)}, which all have reached; "
    hint(f"{at_step}/1K: how the loss changes in 1000 steps; /S: steps per second; GPU: per cent")


def _run_cells(run: RunComparison) -> tuple[str, ...]:
    losses = (_number("loss", loss) for loss in (run.last_loss, run.best_loss, run.loss_at_common_step))
    change = "-" if run.loss_trend_per_1000_steps is None else f"{run.loss_trend_per_1000_steps:+.2g}"
    gpu = "-" if run.mean_gpu_utilization is None else f"{run.mean_gpu_utilization:.0f}"
    dollars = (_number("", each) for each in (run.total_cost, run.dollars_per_1000_steps))
    speed = _number("steps_per_second", run.median_steps_per_second)
    return run.key, _number("step", run.last_step), *losses, change, speed, gpu, *dollars


# ---------------------------------------------------------------- cells


def _cells(others: int, lines: int) -> int:
    """How wide each of some sparklines may be beside so many other characters."""
    return max(8, min(WIDEST, (shutil.get_terminal_size((200, 24)).columns - others) // lines))


def _sparkline(samples: Sequence[FleetSample], field: str, width: int, end: float) -> str:
    """The field from the first sample on; a dot is where nothing is known, as a table has no blanks in a cell."""
    begin = samples[0].timestamp if samples else end
    try:
        "▁·".encode(sys.stdout.encoding or "ascii")
        dot = "·"
    except UnicodeEncodeError:
        dot = ":"
    return format_sparkline(series(samples, field, width, begin, end), width, ascii=dot == ":").replace(" ", dot)


def _heading(field: str) -> str:
    return {"gpu_utilization": "GPU %"}.get(field, field.upper().replace("_", " "))


def _newest(samples: Sequence[FleetSample], field: str) -> float | None:
    """The newest known value, which may be nan."""
    return next((value for each in reversed(samples) if (value := each.values[field]) is not None), None)


def _number(field: str, value: float | None) -> str:
    """At most eight characters; - is not known."""
    if value is None:
        return "-"
    if field in _DURATIONS:
        return format_duration(value)
    if isinstance(value, int) and abs(value) < 1e8:
        return str(value)
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}" if abs(value) < 1000 else f"{value:.2g}"


def _change(field: str, per_hour: float | None) -> str:
    """With its sign; of a time as a time."""
    if per_hour is None:
        return "-"
    if field in _DURATIONS and per_hour:
        return f"{'+' if per_hour > 0 else '-'}{format_duration(abs(per_hour))}"
    return f"{per_hour:+.3g}"


def plain(value: object) -> object:
    """nan and the infinities as texts: JSON has no such numbers, and null is what is not known."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _when(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))
