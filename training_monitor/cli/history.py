"""`history`: what was seen of trainings, as sparklines and tables, and as CSV and JSON lines.

Every command declares its options: what costs more than argparse is imported when it is needed.
"""

from __future__ import annotations

import argparse
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_monitor.history import HistoryMember

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"(?:\d{1,9}[smhdw])+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")
NAMED = 5  # candidates


def add_history(command: argparse.ArgumentParser) -> None:
    """Declare the options of `history`."""
    command.add_argument(
        "members",
        metavar="MEMBER",
        nargs="*",
        help="a key, or a part of it that only one has (default: all in a table)",
    )
    for option, default, text in (
        ("--since", "24h", "so long ago (90m, 1h30m, 7d), or a time (2030-01-31T12:00) (default: %(default)s)"),
        ("--until", None, "the same (default: now)"),
    ):
        command.add_argument(option, type=_moment, default=default, metavar="WHEN", help=text)
    command.add_argument("--field", action="append", default=[], metavar="FIELD", help="only this; may be repeated")
    command.add_argument("--csv", metavar="FILE", help="write the samples there; - is stdout")
    command.add_argument("--jsonl", metavar="FILE", help="the same as JSON lines; what is no number there is a text")
    command.add_argument("--compare", action="store_true", help="runs side by side, also at the same step")


def _moment(text: str) -> float:
    """Epoch seconds of a time, or of so long ago. A time without a zone is local."""
    if _AGO.fullmatch(text):
        return time.time() - sum(int(part[:-1]) * _SECONDS[part[-1]] for part in re.findall(r"\d+\D", text))
    if _DATE.fullmatch(text):
        from datetime import datetime

        try:
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    raise argparse.ArgumentTypeError(f"{text!r}: expected 90m, 1h30m, 7d or 2030-01-31T12:00")


def history(args: argparse.Namespace) -> int:
    """Show, compare or export what was seen of the members asked for. Returns the exit status."""
    from training_monitor.cli.commands import OK
    from training_monitor.cli.history_export import export
    from training_monitor.cli.history_tables import View, compare, describe, list_members
    from training_monitor.cli.output import hint
    from training_monitor.history import History
    from training_monitor.parse.history_chunk import FIELDS

    _check(args, FIELDS)
    kept = History()
    there = kept.members()
    members = [_find(there, wanted) for wanted in dict.fromkeys(args.members)] if there else []
    if not there:
        hint("there is no history yet: `training-monitor vast` and `training-monitor fleet` write it while they watch")
    until = time.time() if args.until is None else args.until
    view = View(kept, args.since, until, tuple(dict.fromkeys(args.field)), args.json)
    files = (args.csv, args.jsonl)
    if files != (None, None):
        export(view, members or there, *files)
    if files != (None, None) and not args.json:
        return OK
    if args.compare:
        compare(view, members or there)
    elif members:
        describe(view, members)
    else:
        list_members(view, there)
    return OK


def _check(args: argparse.Namespace, fields: tuple[str, ...]) -> None:
    from training_monitor.errors import SettingsError

    for field in args.field:
        if field not in fields:
            raise SettingsError("--field", field, f"one of {', '.join(fields)}")
    if args.until is not None and args.until < args.since:
        raise SettingsError("--until", args.until, "a time after --since")
    if (args.csv == "-" or args.jsonl == "-") and (args.json or args.csv == args.jsonl):
        raise SettingsError("--csv, --jsonl", "-", "one answer on stdout")


def _find(members: list[HistoryMember], wanted: str) -> HistoryMember:
    """The member of this key, or the only one with this in its key."""
    from training_monitor.errors import SettingsError
    from training_monitor.units import name_some

    found = [member for member in members if member.key == wanted] or [
        member for member in members if wanted and wanted in member.key
    ]
    if len(found) == 1:
        return found[0]
    candidates = [repr(member.key[:100]) for member in found or members]
    what = "more of the key; it may be" if found else "(a part of) one of"
    raise SettingsError("MEMBER", wanted, f"{what} {name_some(candidates, NAMED)}")
