"""`history --cost`: what members, groups and the fleet cost on each day."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from training_monitor.cli.columns import terminal_columns
from training_monitor.cli.output import UNCUT, hint, print_json, print_table
from training_monitor.core.units import DAY, plural
from training_monitor.fleet import FleetSample
from training_monitor.fleet.history import HistoryMember, HistoryReader
from training_monitor.fleet.trends import Cost, add_costs, cost_by_day
from training_monitor.targets.target import instance_of
from training_monitor.ui.kit.text import format_total

MOST_MEMBERS = 100  # the last ones seen
MOST_DAYS = 400
LONGEST_NAME = 24  # characters; longer names are cut where the days need the room
READ_AT_ONCE, MINUTE = 7 * DAY, 60.0
_UNKNOWN = Cost(None, True)
Costs = Sequence[Cost]  # one a day


class Line(NamedTuple):
    """The cost of a member, a group or all, by day."""

    name: str
    costs: Costs

    @property
    def total(self) -> Cost:
        """The sum of all days."""
        return add_costs(self.costs)


def list_costs(
    kept: HistoryReader, args: Namespace, members: Sequence[HistoryMember], groups: Mapping[str, Collection[str]]
) -> None:
    """Print one line per member, one per group that has some of them, and one for all.

    Args:
        kept: the history.
        args: of the command line, with `since` and `until`.
        members: the last `MOST_MEMBERS` seen are read.
        groups: the keys of the members of each.
    """
    members = sorted(members, key=lambda each: -each.last)
    begin = max(args.since, min((each.first for each in members), default=args.until))
    days = day_bounds(min(args.until, max(begin, args.until - MOST_DAYS * DAY)), args.until)
    costs = {each.key: _cost(kept, [each.key], days) for each in members[:MOST_MEMBERS]}
    machines = _cost_of_machines(kept, costs, days)
    lines = [Line(key, costs[key]) for key in sorted(costs)]
    seen = {name: keys for name, keys in groups.items() if not costs.keys().isdisjoint(keys)}
    sums = [Line(name, _sum(machines, keys, days)) for name, keys in seen.items()]
    together = Line("all", _sum(machines, [each.key for each in members], days))
    if args.json:
        told = {"members": [_told(line, "key") for line in lines], "groups": [_told(line, "name") for line in sums]}
        print_json(args, {"days": _names(days, "%Y-%m-%d"), **told, "all": _told(together)})
    elif lines:
        _print([*lines, *(Line(f"group {line.name}", line.costs) for line in sums), together], days)
        if begin < days[0]:
            hint(f"only the last {MOST_DAYS} days are shown; use --until to see earlier ones")
        if len(members) > MOST_MEMBERS:
            hint(
                f"{plural(len(members) - MOST_MEMBERS, 'member')} not seen recently left out; name members to see them"
            )


def machine_of(key: str) -> str:
    """Return the target of a member: members on one machine share its cost."""
    return key.partition("#")[0]


def day_bounds(begin: float, end: float) -> list[float]:
    """Return a time's begin, the local midnights in it, and its end; epoch seconds."""
    bounds, day = [begin], time.localtime(begin)
    for count in range(1, MOST_DAYS + 2):
        midnight = time.mktime((day.tm_year, day.tm_mon, day.tm_mday + count, 0, 0, 0, 0, 0, -1))
        if midnight >= end:
            break
        bounds.append(midnight)
    return [*bounds, end]


def _names(days: Sequence[float], form: str) -> list[str]:
    return [time.strftime(form, time.localtime(begin)) for begin in days[:-1]]


# ---------------------------------------------------------------- reading and adding


def _read(kept: HistoryReader, key: str, days: Sequence[float]) -> Iterator[FleetSample]:
    """Yield a known total a minute of some days and those around them, read in parts: a month of samples is large."""
    begin, end, due = days[0] - DAY, days[-1] + DAY, -inf
    while begin < end:
        for sample in kept.read(key, begin, min(begin + READ_AT_ONCE, end), fields=("total_cost",)):
            if sample.values["total_cost"] is not None and (sample.timestamp >= due or sample.status == "lost"):
                due = sample.timestamp + MINUTE
                yield sample
        begin += READ_AT_ONCE


def _cost(kept: HistoryReader, keys: Sequence[str], days: Sequence[float]) -> Costs:
    """Return what the machine of some members cost; unknown when the samples of one of them cannot be read."""
    costs = cost_by_day([_read(kept, key, days) for key in keys], days)
    return [_UNKNOWN] * len(costs) if not kept.unread.isdisjoint(keys) else costs


def _cost_of_machines(kept: HistoryReader, costs: Mapping[str, Costs], days: Sequence[float]) -> dict[str, Costs]:
    """Return what each machine cost, read again where it has several members, which may have been seen in turn."""
    on: dict[str, list[str]] = {}
    for key in costs:
        on.setdefault(machine_of(key), []).append(key)
    return {machine: costs[keys[0]] if len(keys) == 1 else _cost(kept, keys, days) for machine, keys in on.items()}


def _sum(machines: Mapping[str, Costs], keys: Iterable[str], days: Sequence[float]) -> Costs:
    """Add up the machines of some members by day, each once; what a rented one cost is unknown if it was not read."""
    unknown = [_UNKNOWN] * (len(days) - 1)
    chosen = {machine: machines.get(machine, unknown) for machine in map(machine_of, keys)}
    counted = [
        costs
        for machine, costs in chosen.items()
        if instance_of(machine) is not None or any(each.dollars is not None for each in costs)
    ]
    return [add_costs(costs[day] for costs in counted) for day in range(len(unknown))]


# ---------------------------------------------------------------- showing


def _told(line: Line, name: str = "") -> dict[str, Any]:
    return {
        **({name: line.name} if name else {}),
        "dollars": [each.dollars for each in line.costs],
        "at_least": [each.at_least for each in line.costs],
        "total": line.total.dollars,
        "total_at_least": line.total.at_least,
    }


def _print(lines: Sequence[Line], days: Sequence[float]) -> None:
    """Print as many of the newest days as fit the terminal, and the sum of those before."""
    longest = max(len(line.name) for line in lines)
    widest = max([len("before"), *(len(_cell(each)) for line in lines for each in (*line.costs, line.total))])
    fit = (terminal_columns(UNCUT) - min(longest, LONGEST_NAME)) // (widest + 2) - 1  # one is the total
    names = _names(days, "%m-%d")
    earlier = 0 if len(names) <= fit else len(names) - max(1, fit - 1)
    header = ("MEMBER", *["before"] * bool(earlier), *names[earlier:], "TOTAL")
    print_table(header, [_cells(line, earlier) for line in lines], gives_way=(0,))
    if any(line.total.at_least and line.total.dollars is not None for line in lines):
        hint("+: at least this much; some machines were not watched all the time, or their cost is unknown")


def _cells(line: Line, earlier: int) -> tuple[str, ...]:
    before = [add_costs(line.costs[:earlier])] if earlier else []
    return line.name, *map(_cell, (*before, *line.costs[earlier:], line.total))


def _cell(cost: Cost) -> str:
    """Format dollars; + is at least this much, - unknown."""
    return "-" if cost.dollars is None else f"{format_total(cost.dollars)}{'+' if cost.at_least else ''}"
