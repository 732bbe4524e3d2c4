"""The log of a container, as a cluster keeps it: what process 1 of a pod prints. Pure.

Its lines have times of nanoseconds, and it is asked for from a time on, in whole seconds. So a position is the time of
the newest line that was read and how many lines had just that time; what follows it is new. Where it is not in the
answer, the container was restarted, or its log rotated: the log before the last restart has the rest, or it is lost.

The times are by the clock of the node. Sources: Kubernetes API v1, PodLogOptions; the kubelet's `logs.go`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from training_monitor.core.errors import CommandError
from training_monitor.core.models import LogCursor, NewLog, Question, Reply
from training_monitor.core.regex import regex
from training_monitor.core.units import parse_time, seconds_since
from training_monitor.logs.sources import Polled, read_on

if TYPE_CHECKING:
    from training_monitor.targets.asking import Site

LAST_LINES = 1000  # that a first look reads
_TIME = regex(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) ", re.MULTILINE)


class ContainerLog(Polled):
    """The log of the target's container."""

    def read(
        self, cursor: LogCursor | None = None, limit_bytes: int = 0, *, oldest_first: bool = False
    ) -> Question[NewLog]:
        """Ask for what follows `cursor`, the oldest first; without one, for the last lines within `limit_bytes`."""
        at = cursor.check.split(" ")[0] if cursor else ""

        def ask(site: Site) -> Reply:
            read = site.target.read_output
            newest = read(site.transport, since=at) if cursor else read(site.transport, lines=LAST_LINES)
            rest, former = _rest(newest, cursor) if cursor else newest, None
            if rest is None:
                try:
                    former = read(site.transport, since=at, former=True)
                except CommandError:
                    former = ""
            return Reply(json.dumps([newest if rest is None else rest, former, site.clock.time()]), 0, 0.0)

        return Question("log", "", lambda reply: _parse(reply, cursor, limit_bytes, self.label), limit=30.0, beside=ask)


def _rest(text: str, cursor: LogCursor) -> str | None:
    """Return what follows the position in a log with times; None if it does not have it."""
    at, _, count = cursor.check.partition(" ")
    if not at:
        return text
    begins = [found.end() for found in re.finditer(rf"^{re.escape(at)} .*\n", text, re.MULTILINE)]
    return text[begins[int(count) - 1] :] if len(begins) >= int(count) else None


def _parse(reply: Reply, cursor: LogCursor | None, limit_bytes: int, label: str) -> NewLog:
    newest, former, now = json.loads(reply.output)
    reset, lost = None, None
    if cursor is None or former is None:
        timed = newest
    else:
        reset, rest = "rotated", _rest(former, cursor)
        timed = (rest or "") + newest
        since, until = _seconds(cursor.check), _seconds(newest)
        if rest is None and since is not None and until is not None:
            lost = since, until
    whole = timed[: timed.rfind("\n") + 1]
    times = [found[0].rstrip() for found in _TIME.finditer(whole)]
    at = cursor.check if cursor else ""
    if times:
        before = int(at.split(" ")[1]) if at.startswith(f"{times[-1]} ") and not reset else 0
        at = f"{times[-1]} {before + times.count(times[-1])}"
    wrote = _seconds(timed[len(whole) :]) or _seconds(at)
    return read_on(
        cursor,
        at,
        _TIME.sub("", whole),
        _TIME.sub("", timed[len(whole) :]),
        reset=reset,
        most=limit_bytes,
        age=seconds_since(wrote, now),
        wrote_at=wrote,
        path=label,
        lost=lost,
        by_lines=True,
    )


def _seconds(text: str) -> float | None:
    """Return the epoch seconds of the time at the beginning of a line, or of a position."""
    found = _TIME.match(f"{text} ")
    return parse_time(found[0].rstrip()) if found else None
