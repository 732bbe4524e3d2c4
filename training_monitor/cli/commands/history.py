"""`history`: what was seen of trainings earlier: trends, tables, cost by day, CSV."""

from __future__ import annotations

import argparse
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import chain
from math import isfinite
from typing import IO, Any

from training_monitor.cli.argument_types import FILES, HISTORY, CommandParser
from training_monitor.cli.columns import terminal_columns
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import OK, UNKNOWN, complain, hint, print_json, print_table, say
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import SettingsError, did_you_mean
from training_monitor.core.fields import keys_of
from training_monitor.core.regex import regex
from training_monitor.core.shown import shown_cell
from training_monitor.core.units import DAY, format_duration, format_sparkline, name_some, parse_duration, plural
from training_monitor.fleet import FleetSample, History, compare_runs, project_cost, trend
from training_monitor.fleet.history import FIELDS, HistoryMember, HistoryReader, mock_history
from training_monitor.fleet.metrics import FLEET_COLUMNS
from training_monitor.fleet.trends import COMPARED, CostProjection, RunComparison, describe_compared, series

AHEAD = 24.0  # hours of the cost projection
MEMBER_KEYS = {"first": "first_seen", "last": "last_seen"}  # its fields, and their names in JSON
COST_KEYS = {  # its fields, and their names in JSON
    "dollars_per_hour": "cost_per_hour",
    "spent": "total_cost",
    "dollars": "cost_ahead",
    "to_completion": "cost_to_completion",
}
MANY = 20  # members; for more, reading a whole day would take too long
RECENT = 300.0  # seconds
SILENT = 3600.0  # seconds without a sample, after which a projection makes no sense
WIDEST = 40  # cells of a sparkline
_DURATIONS = {each.name for each in FLEET_COLUMNS if each.unit == "duration"}
Write = Callable[[dict[str, Any]], object]
NAMED = 5  # candidates
_TIME = regex(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")


def _moment(text: str) -> float:
    """Parse a time, or a duration ago, into epoch seconds. A time without a zone is local."""
    if (ago := parse_duration(text)) is not None:
        return time.time() - ago
    if _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    raise argparse.ArgumentTypeError(f"{text!r}: expected an age (90m, 1h30m, 7d) or a time (2030-01-31T12:00)")


def declare(command: CommandParser) -> None:
    command.value(
        "members",
        "MEMBER",
        "a member's key, or an unambiguous part of it (default: all)",
        HISTORY,
        nargs="*",
    )
    command.value(
        "--since",
        "WHEN",
        "start of the period: an age (90m, 1h30m, 7d) or time (2030-01-31T12:00) (default: 24h; --cost: no limit)",
        type=_moment,
    )
    command.value("--until", "WHEN", "end of the period (default: now)", type=_moment)
    command.several("--field", "FIELD", "show only this field (may be repeated)")
    command.value("--csv", "FILE", "write the samples to this file; - is standard output", FILES)
    command.value("--jsonl", "FILE", "write the samples as JSON lines; NaN and infinity are written as strings", FILES)
    command.flag("--mock", "show the history of the simulated instances of `vast --mock`")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument(
        "--compare",
        action="store_true",
        help="compare runs side by side, up to the last step that all reached",
    )
    kind.add_argument("--cost", action="store_true", help="show dollars per day by member, by group and in total")


def list_members(kept: HistoryReader, args: Namespace, members: Sequence[HistoryMember]) -> None:
    """Print one line per member; for more than `MANY` only the last minutes of each are read."""
    shown = args.field or ("loss", "gpu_utilization")
    found, rows, width = [], [], _cells(36 + 10 * len(shown), len(shown))
    for each in members:
        recent = min(args.until, each.last) - RECENT if len(members) > MANY else args.since
        samples = kept.read(each.key, max(args.since, recent), args.until, fields={"step", *shown})
        newest = {field: _newest(samples, field) for field in ("step", *shown)}
        if args.json:
            found.append({**keys_of(each, **MEMBER_KEYS), "newest": newest})
            continue
        seen = f"{format_duration(max(0.0, time.time() - each.last))} ago"
        lines = ((_number(field, newest[field]), _sparkline(samples, field, width, args.until)) for field in shown)
        rows.append((each.key, seen, _number("step", newest["step"]), *chain.from_iterable(lines)))
    if args.json:
        print_json(args, {"members": found})
    elif rows:
        header = chain.from_iterable((_heading(field), "") for field in shown)
        print_table(("MEMBER", "SEEN", "STEP", *header), rows, gives_way=(0,))
    if len(rows) > MANY:
        hint(f"only the last {format_duration(RECENT)} of each member is shown; name a member to see its whole history")


def describe(kept: HistoryReader, args: Namespace, members: Sequence[HistoryMember]) -> None:
    """Print each field of some members, and their projected cost."""
    found = []
    for member in members:
        samples = kept.read(member.key, args.since, args.until)
        cost = None if _why_not(samples) else project_cost(samples, hours=AHEAD)
        if args.json:
            fields = {field: trend(samples, field) for field in args.field or FIELDS}
            ahead = cost and keys_of(cost, **COST_KEYS)
            found.append({**keys_of(member, **MEMBER_KEYS), "seen": len(samples), "fields": fields, "cost": ahead})
        else:
            _print_member(args, member, samples, cost)
    print_json(args, {"members": found})


def _print_member(
    args: Namespace, member: HistoryMember, samples: Sequence[FleetSample], cost: CostProjection | None
) -> None:
    name = " ".join(member.key.split())
    if not samples:
        say(f"{name}  no samples in this period; recorded from {_when(member.first)} to {_when(member.last)}")
        return
    status = f", {samples[-1].status}" if samples[-1].status else ""
    span = f"{_when(samples[0].timestamp)} to {_when(samples[-1].timestamp)}"
    say(f"{name}  {span}  {plural(len(samples), 'sample')}{status}")
    header, found = ("FIELD", "", "FIRST", "LAST", "LOW", "HIGH", "PER HOUR"), []
    for field in args.field or FIELDS:
        each = trend(samples, field)
        if each.known == 0.0 and not args.field:
            continue
        numbers = [_number(field, value) for value in (each.first, each.last, each.low, each.high)]
        found.append((field, "", *numbers, _change(field, each.per_hour)))
    if found:
        others = sum(max(map(len, column)) + 2 for column in zip(header, *found)) - 2
        width = _cells(others, 1)
        rows = [(field, _sparkline(samples, field, width, args.until), *numbers) for field, _, *numbers in found]
        print_table(header, rows, gives_way=())
    say(f"cost  {_cost_in_words(cost) if cost else _why_not(samples)}")


def _why_not(samples: Sequence[FleetSample]) -> str | None:
    """Return why the cost of a member cannot be projected; None if it can."""
    if not samples:
        return "no samples"
    silent = time.time() - samples[-1].timestamp
    if samples[-1].status == "lost":
        return "it no longer exists, and costs nothing"
    return f"unknown: it was last seen {format_duration(silent)} ago" if silent > SILENT else None


def _cost_in_words(cost: CostProjection) -> str:
    spent = "" if cost.spent is None else f"${cost.spent:.2f} so far, "
    if cost.dollars_per_hour is None or cost.dollars is None:
        return f"{spent}its price is unknown"
    left = "an unknown amount" if cost.to_completion is None else f"${cost.to_completion:.2f}"
    ahead = f"next {cost.hours:g} hours: ${cost.dollars:.2f}; until its last step: {left}"
    return f"{spent}${cost.dollars_per_hour:.3f} per hour\n      {ahead}"


def compare(kept: HistoryReader, args: Namespace, members: Sequence[HistoryMember]) -> None:
    """Print a comparison of members over the steps that all have reached. Raises SettingsError for too many."""
    if len(members) > MANY:
        raise SettingsError("--compare", f"{len(members)} members", f"at most {MANY} members")
    runs = compare_runs(
        {member.key: kept.read(member.key, args.since, args.until, fields=COMPARED) for member in members}
    )
    if print_json(args, {"members": runs}):
        return
    if not runs:
        return
    header = ("MEMBER", "LAST", "LOSS", "COST", "BEST", "STEP", "AT", "/1K", "/S", "GPU", "$/1K")
    print_table(header, [_run_cells(run) for run in runs], gives_way=(0,))
    hint(f"compared steps: {describe_compared(runs)}")
    hint("LAST, LOSS, COST: last step, last loss and total cost of the whole run")
    hint("BEST, STEP: the lowest loss and its step; AT: the loss at the last compared step")
    hint("/1K: change of the loss per 1000 steps; /S: steps per second; GPU: percent; $/1K: dollars per 1000 steps")


def _run_cells(run: RunComparison) -> tuple[str, ...]:
    change = "-" if run.loss_trend_per_1000_steps is None else f"{run.loss_trend_per_1000_steps:+.2g}"
    gpu = "-" if run.mean_gpu_utilization is None else f"{run.mean_gpu_utilization:.0f}"
    return (
        run.key,
        _number("step", run.last_step),
        _number("loss", run.last_loss),
        _number("", run.total_cost),
        _number("loss", run.best_loss),
        _number("step", run.best_loss_step),
        _number("loss", run.loss_at_common_step),
        change,
        _number("steps_per_second", run.median_steps_per_second),
        gpu,
        _number("", run.dollars_per_1000_steps),
    )


def _cells(others: int, lines: int) -> int:
    """Return the width of each of some sparklines beside that many other characters."""
    return max(8, min(WIDEST, (terminal_columns(200) - others) // lines))


def _sparkline(samples: Sequence[FleetSample], field: str, width: int, end: float) -> str:
    """Format the field from the first sample on; unknown parts are dots, since a table collapses spaces in a cell."""
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
    """Return the newest known value, which may be nan."""
    return next((value for each in reversed(samples) if (value := each.values[field]) is not None), None)


def _number(field: str, value: float | None) -> str:
    """Format a number in at most eight characters; - is unknown."""
    if value is None:
        return "-"
    if field in _DURATIONS:
        return format_duration(value)
    if isinstance(value, int) and abs(value) < 1e8:
        return str(value)
    digits = ".0f" if 1000 <= abs(value) < 1e7 else ".4g" if abs(value) < 1000 else ".2g"
    return _short(f"{value:{digits}}")


def _short(number: str) -> str:
    """Return a number without the zero of its exponent: 5.2e-5."""
    return number.replace("e-0", "e-").replace("e+0", "e+")


def _change(field: str, per_hour: float | None) -> str:
    """Format a change with its sign; of a duration as a duration."""
    if per_hour is None:
        return "-"
    if field in _DURATIONS and per_hour:
        return f"{'+' if per_hour > 0 else '-'}{format_duration(abs(per_hour))}"
    return _short(f"{per_hour:{'+.0f' if 1000 <= abs(per_hour) < 1e7 else '+.3g'}}")


def plain(value: object) -> object:
    """Return nan and infinities as strings: JSON has no such numbers, and null means unknown."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _when(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))


def export(kept: HistoryReader, args: Namespace, members: Sequence[HistoryMember]) -> None:
    """Write the samples of the members one after the other (`-` is stdout), and print how many went to a file.

    Raises:
        SettingsError: a file cannot be written.
    """
    fields = args.field or FIELDS
    for option, path, begin in (("--csv", args.csv, _begin_csv), ("--jsonl", args.jsonl, _begin_lines)):
        if path is None:
            continue
        with _opened(option, path) as file:
            write, count = begin(file, ("time", "timestamp", "member", "status", *fields)), 0
            for member in members:
                for sample in kept.read(member.key, args.since, args.until, fields=fields):
                    write(_row(member.key, sample, fields))
                    count += 1
        if path != "-":
            hint(f"{plural(count, 'sample')} of {plural(len(members), 'member')} in {path}")


@contextmanager
def _opened(option: str, path: str) -> Iterator[IO[str]]:
    if path == "-":
        yield sys.stdout
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
    except OSError as error:
        raise SettingsError(option, path, f"a writable file ({error.strerror})") from error


def _row(key: str, sample: FleetSample, fields: Sequence[str]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(sample.timestamp, timezone.utc)
    return {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "timestamp": sample.timestamp,
        "member": key,
        "status": sample.status,
        **{name: sample.values[name] for name in fields},
    }


def _begin_csv(file: IO[str], names: Sequence[str]) -> Write:
    import csv

    writer = csv.DictWriter(file, names)
    writer.writeheader()
    return lambda row: writer.writerow(  # no spreadsheet must take a text for a formula
        {name: shown_cell(value) if isinstance(value, str) else value for name, value in row.items()}
    )


def _begin_lines(file: IO[str], names: Sequence[str]) -> Write:
    return lambda row: file.write(f"{json.dumps({name: plain(row[name]) for name in names})}\n")


def run(args: Namespace) -> int:
    """Show, compare or export the history of the chosen members, and return the exit code."""
    if args.since is None:
        args.since = 0.0 if args.cost else time.time() - DAY
    _check(args)
    stored = mock_history() if args.mock else History(open_store=BestEffortStore)
    there = stored.members()
    members = [_find(there, wanted) for wanted in dict.fromkeys(args.members)] if there else []
    if not there:
        writers = "vast --mock` writes" if args.mock else "vast`, `fleet`, `web` and `metrics` write"
        hint(f"no history yet: `training-monitor {writers} it while running")
    kept = HistoryReader(stored, complain if len(members or there) > 1 else None)
    args.until = time.time() if args.until is None else args.until
    args.field = tuple(dict.fromkeys(args.field))
    exports = args.csv is not None or args.jsonl is not None
    if exports:
        export(kept, args, members or there)
    if exports and not args.json:
        return UNKNOWN if kept.unread else OK
    if args.cost:
        from training_monitor.cli.cost_history import list_costs

        list_costs(kept, args, members or there, _groups(args))
    elif args.compare:
        compare(kept, args, members or there)
    elif members:
        describe(kept, args, members)
    else:
        list_members(kept, args, there)
    return UNKNOWN if kept.unread else OK


def _groups(args: Namespace) -> dict[str, list[str]]:
    """Return the keys of the members of each group, those of the settings file or the mock's. Raises SettingsError."""
    if args.mock:
        from training_monitor.fleet.mock import mock_groups

        return mock_groups()
    from training_monitor.fleet import load_fleet_config

    return {name: [spec.key for spec in specs] for name, specs in load_fleet_config().groups.items()}


def _check(args: Namespace) -> None:
    for field in args.field:
        if field not in FIELDS:
            raise SettingsError("--field", field, f"one of {', '.join(FIELDS)}")
    if args.until is not None and args.until < args.since:
        raise SettingsError("--until", args.until, "a time after --since")
    if (args.csv == "-" or args.jsonl == "-") and (args.json or args.csv == args.jsonl):
        raise SettingsError("--csv, --jsonl", "-", "standard output for at most one of these options")


def _find(members: list[HistoryMember], wanted: str) -> HistoryMember:
    """Return the member with this key, or the only one whose key contains it."""
    found = [member for member in members if member.key == wanted] or [
        member for member in members if wanted and wanted in member.key
    ]
    if len(found) == 1:
        return found[0]
    candidates = [repr(member.key[:100]) for member in found or members]
    what = "a longer part of the key that matches only one of" if found else "one of these keys, or a part of it:"
    meant = "" if found else did_you_mean(wanted, [member.key for member in members])
    raise SettingsError("MEMBER", wanted, f"{what} {name_some(candidates, NAMED)}{meant}")


COMMAND = Command(
    run,
    declare,
    ("", "vast://30007012 --since 24h", "vast://30007012 --csv run.csv", "--cost --since 7d", "--mock --cost"),
)
