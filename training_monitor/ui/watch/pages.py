"""The main page of a watched training, and those of its log and its events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.core.models import Event
from training_monitor.core.units import plural
from training_monitor.ui.kit.gpus import NARROW
from training_monitor.ui.kit.page import newest_first, page, wrapped
from training_monitor.ui.kit.text import (
    Line,
    Piece,
    broken,
    cells,
    fill,
    fit,
    format_age,
    format_moment,
    last_cells,
    rule,
)
from training_monitor.ui.kit.view import Frame
from training_monitor.ui.watch.facts import (
    STYLES,
    Body,
    checkpoint_lines,
    gpu_lines,
    process_lines,
    progress_lines,
    urgent_lines,
    verdict_lines,
)
from training_monitor.ui.watch.view import WatchSnapshot, WatchView, format_seconds

_LEAST_EVENTS, _LEAST_STEPS, _LEAST_LOG = 2, 7, 3  # lines, with what is above them; steps of a termination
_KIND = 12  # cells
_KIND_STYLES = {
    "detected": "bad",
    "refused": "warn",
    "unreachable": "warn",
    "moved": "warn",
    "stopping": "warn",
    "explained": "bold",
    "waiting": "dim",
    "reached": "good",
    "stopped": "good",
    "finished": "bold",
}


def draw_header(snapshot: WatchSnapshot, view: WatchView) -> Line:
    """Draw what is watched, where, how old the last answer is, and when the next look is."""
    status, is_due = snapshot.status, snapshot.next_look_at is None or snapshot.next_look_at <= snapshot.now
    age = "not seen yet" if status is None else f"seen {format_age(snapshot.now - status.timestamp)} ago"
    upcoming = "checking" if is_due else f"next check in {format_age((snapshot.next_look_at or 0.0) - snapshot.now)}"
    tail = [(f"  {age}", "bad" if snapshot.failing_since is not None else "bold")]
    tail += [(f"  {upcoming}", "dim")] if view.width >= NARROW and not snapshot.phase else []
    room = max(2, view.width - sum(cells(text) for text, _ in tail) - 4)
    training, target = view.safe(snapshot.training), view.safe(snapshot.target)
    training = last_cells(training, max(room // 2, room - cells(target)), view.glyphs)
    target = last_cells(target, max(0, room - cells(training)), view.glyphs) if room > cells(training) else ""
    return view.line([(f" {training} ", "title"), (f"  {target}", ""), *tail])


def draw_main(snapshot: WatchSnapshot, view: WatchView) -> Frame[WatchView]:
    """Draw all that is known, the worst first, then the newest events, and the end of the log in what is left."""
    room = max(1, view.height - 1)
    urgent = urgent_lines(snapshot, view)
    above = [*verdict_lines(snapshot, view), *progress_lines(snapshot, view)]
    below = [*process_lines(snapshot, view), *checkpoint_lines(snapshot, view)]
    least = _LEAST_EVENTS if snapshot.phase is None else _LEAST_STEPS
    taken = len(urgent) + len(above) + len(below) + least + _LEAST_LOG
    facts = [*above, *gpu_lines(snapshot, view, room - taken), *below]
    left = room - len(urgent) - len(facts)
    events = _events(snapshot, view, max(least, left // 4))
    log = _log(snapshot, view, max(_LEAST_LOG, left - len(events)))
    if snapshot.failing_since is not None:
        facts, log = _greyed(facts), _greyed(log)
    body = [*facts, *events] if snapshot.phase is None else [*events, *facts]
    return page(view, _title(snapshot, view), [*urgent, *body, *log])


def _title(snapshot: WatchSnapshot, view: WatchView) -> list[Piece]:
    """Format the state, since when it is so, and how sure that is."""
    verdict = snapshot.verdict
    if verdict is None:
        return [("UNKNOWN", "warn")]
    state = view.safe(verdict.state.upper())
    if snapshot.failing_since is not None:
        return [(f"{state} when last seen", "dim")]
    begun = None if verdict.state == "stalled" else verdict.since  # of a stall that is the age of the last step
    since = "" if begun is None else f" for {format_seconds(snapshot.now - begun)}"
    title = [(state, STYLES.get(verdict.verdict, "warn")), (since, "")]
    if verdict.confidence == "none" or view.width < NARROW:
        return title
    return [*title, (f"  confidence {view.safe(verdict.confidence)}", "dim")]


def _greyed(body: Body) -> Body:
    return [[(text, "dim") for text, _ in line] for line in body]


# ---------------------------------------------------------------- events


def _event_lines(at: float, event: Event, now: float, view: WatchView, width: int) -> Body:
    """Format one event: its time, in `width` cells, kind, and beside them its text, below them on a narrow screen."""
    head: list[Piece] = [(f"{format_moment(at, now):<{width}} ", "dim")]
    head.append((fit(view.safe(event.kind), _KIND, view.glyphs), _KIND_STYLES.get(event.kind, "")))
    indent = sum(cells(text) for text, _ in head)
    if view.width < NARROW:
        return [head, *wrapped(event.text, "", view, "  ")]
    first, *rest = wrapped(event.text, "", view, " " * indent)
    return [[*head, (first[0][0][indent:], "")], *rest]


def _moments_width(snapshot: WatchSnapshot, newest: int) -> int:
    """Return the cells of the longest time of so many of the newest events."""
    return max((len(format_moment(at, snapshot.now)) for at, _ in snapshot.events[-newest:]), default=0)


def _events(snapshot: WatchSnapshot, view: WatchView, most: int) -> Body:
    """Format the newest events, in `most` lines with the rule above them; the oldest of them may be cut."""
    lines: Body = []
    shown, width = 0, _moments_width(snapshot, most - 1)
    for at, event in reversed(snapshot.events):
        if len(lines) >= most - 1:
            break
        lines += _event_lines(at, event, snapshot.now, view, width)
        shown += 1
    if not lines:
        return []
    hidden = len(snapshot.events) - shown
    more: Piece = (f" ({hidden} more: e)" if hidden else "", "dim")
    return [rule([("events", "bold"), more], view.width, view.glyphs), *lines[: most - 1]]


def draw_events(snapshot: WatchSnapshot, view: WatchView) -> Frame[WatchView]:
    """Draw all events, newest first."""
    width = _moments_width(snapshot, len(snapshot.events))
    entries = [_event_lines(at, event, snapshot.now, view, width) for at, event in snapshot.events]
    return newest_first(view, "event", entries, "no events so far")


# ---------------------------------------------------------------- log


def _log(snapshot: WatchSnapshot, view: WatchView, room: int) -> Body:
    shown = snapshot.log[max(0, len(snapshot.log) - room + 1) :]
    lines: Body = [[(view.safe(line), "")] for line in shown] or [[("no log lines seen yet", "dim")]]
    return [rule([("log", "bold")], view.width, view.glyphs), *lines]


def draw_log(snapshot: WatchSnapshot, view: WatchView) -> Frame[WatchView]:
    """Draw the log alone, from the line that was scrolled to; without one, its end, which is followed."""
    log, room = snapshot.log, max(1, view.height - 1)
    place = _scrolled_to(snapshot, view)
    rows, until = _rows_from(log, place, view, room)
    follows = len(rows) <= room or view.log_top is None
    if follows:
        place, rows = _rows_to_end(log, view, room)
        until = len(log)
    title: list[Piece] = [("log", "bold"), (f"  {_seen(snapshot, place, until)}", "")]
    title.append(("  following", "good") if follows else ("  End follows it", "dim"))
    lines = [view.line([(row, "")]) for row in rows[:room]]
    top = snapshot.first_line + place
    frame = (rule(title, view.width, view.glyphs), *fill(lines, view.width, room))
    return Frame(frame, replace(view, page=room, top=top, log_top=None if follows else top))


def _seen(snapshot: WatchSnapshot, place: int, until: int) -> str:
    if not snapshot.log:
        return "no lines seen yet"
    last = snapshot.first_line + len(snapshot.log) - 1
    return f"lines {snapshot.first_line + place} to {snapshot.first_line + until - 1} of {plural(last, 'line')}"


def _scrolled_to(snapshot: WatchSnapshot, view: WatchView) -> int:
    """Return the place of the first line to show, as far as it is kept."""
    wanted = snapshot.first_line if view.log_top is None else view.log_top
    return max(0, min(wanted - snapshot.first_line, len(snapshot.log)))


def _rows(line: str, view: WatchView) -> Sequence[str]:
    return broken(view.safe(line), view.width)


def _rows_from(log: Sequence[str], place: int, view: WatchView, room: int) -> tuple[list[str], int]:
    """Return more rows than there is room for, if there are, and the place after the last line in the room."""
    rows: list[str] = []
    for number in range(place, len(log)):
        rows += _rows(log[number], view)
        if len(rows) > room:
            return rows, number + (len(rows) == room or number == place)
    return rows, len(log)


def _rows_to_end(log: Sequence[str], view: WatchView, room: int) -> tuple[int, list[str]]:
    """Return the last rows that fit, and the place of their first line."""
    rows: list[str] = []
    place = len(log)
    while place and len(rows) < room:
        place -= 1
        rows = [*_rows(log[place], view), *rows]
    return place, rows[-room:]
