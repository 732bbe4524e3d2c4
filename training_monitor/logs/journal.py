"""What systemd's journal keeps of the output of a unit, as a source.

Its name is a unit, or one start of it: an invocation ID, 32 hexadecimal digits, which may follow its unit and a slash.
A position is the journal's own cursor of the newest entry that was read. The next read begins with that entry: where it
does not, the entry was deleted, and entries behind it may be lost. A line is in the journal when it ends, or after each
48 KiB. Users who are in none of the journal's groups can read their own entries at most.

Sources: journalctl(1), systemd.journal-fields(7), systemd.exec(5) for $JOURNAL_STREAM and $INVOCATION_ID.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from training_monitor.core.errors import AccessDenied, ParseError
from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.core.units import seconds_since
from training_monitor.logs.following import LIMIT_BYTES
from training_monitor.logs.sources import JOURNAL, Polled, read_on
from training_monitor.targets.replies import each_line, parse_fields, read_whole
from training_monitor.targets.scripts import format_call

_LAST_LINES = 1000  # that a first look reads
_MOST_BYTES = 3 * 1024 * 1024  # an entry has 400 bytes beside its line
_INVOCATION = regex(r"[0-9a-f]{32}")
_AT = regex(r"(?:^|;)t=([0-9a-f]{1,16})(?:;|$)")  # microseconds since the epoch in a cursor


class Journal(Polled):
    """The entries of the unit, or the start of a unit, with this name."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = LIMIT_BYTES, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask for what follows `cursor`, of too much the newest part; without one, for the last lines."""
        script = format_call(
            "journal",
            "show_entries",
            unit=self.name.rpartition("/")[2],
            position=cursor.check if cursor else "",
            lines=_LAST_LINES,
            most=_MOST_BYTES,
            oldest_first=int(oldest_first),
        )
        return Question("log", script, lambda reply: _parse(reply, cursor, limit_bytes, self.name), limit=15.0)


def _parse(reply: Reply, cursor: LogCursor | None, limit_bytes: int, name: str) -> NewLog:
    fields, shown = parse_fields(reply.output)
    entries = list(_entries(shown))
    if fields.get("state") == "denied" and not entries:
        raise AccessDenied(
            f"the systemd journal has no readable entries for {name}",
            hint="run this as root, or as a member of the group systemd-journal (usermod -aG systemd-journal USER)",
        )
    if fields.get("state") == "missing" or not entries:
        return NewLog("", cursor, missing=True)
    now = read_whole(fields.get("now"))
    if now is None:
        raise ParseError("the reply is truncated", source="journal", text=reply.output)
    reset, lost = None, None
    if cursor and entries[0].get("__CURSOR") != cursor.check:
        reset, since = "rotated", _AT.search(cursor.check)
        lost = (int(since[1], 16) / 1e6, _time(entries[0])) if since else None
    new = entries[1:] if cursor and not reset else entries
    units = (entries[-1].get(field) for field in ("_SYSTEMD_USER_UNIT", "_SYSTEMD_UNIT"))
    unit = next((unit for unit in units if isinstance(unit, str)), "")
    return read_on(
        cursor,
        str(entries[-1]["__CURSOR"]),
        "".join(map(_line, new)),
        reset=reset,
        most=limit_bytes,
        age=seconds_since(_time(entries[-1]), now),
        path=f"{JOURNAL}{unit}/{name}" if unit and _INVOCATION.fullmatch(name) else f"{JOURNAL}{name}",
        lost=lost,
        by_lines=True,
    )


def _entries(text: str) -> Iterator[dict[str, Any]]:
    """Yield the entries; the first or the last may be cut off."""
    for line in each_line(text):
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("__CURSOR"), str) and _time(entry):
                yield entry


def _time(entry: dict[str, Any]) -> float:
    return (read_whole(str(entry.get("__REALTIME_TIMESTAMP"))) or 0) / 1e6


def _line(entry: dict[str, Any]) -> str:
    """Return the text of an entry: what is not printable, as a bar's carriage return, makes it a list of bytes."""
    text = entry.get("MESSAGE")
    if isinstance(text, list):
        text = bytes(each for each in text if isinstance(each, int) and 0 <= each < 256).decode(errors="replace")
    return f"{text or ''}" if entry.get("_LINE_BREAK") == "line-max" else f"{text or ''}\n"
