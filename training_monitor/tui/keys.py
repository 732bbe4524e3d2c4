"""What each key does: tables of keys for each screen, and `update`, which goes from a view to the next. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.tui.key_table import Key, by_name
from training_monitor.tui.log_feed import LogFeed
from training_monitor.tui.view import (
    ORDERS,
    Request,
    View,
    marked_rows,
    member_row,
    selected_index,
    selected_row,
    visible_rows,
)
from training_monitor.units import plural

_FAR = 10**9
_MOST_TYPED = 200
_ANSWERS = ("stopped", "destroyed", "gone", "failed", "refused")  # kinds of alerts that say what came of an act
_EASY_TO_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@#-]{0,29}")  # with the word before it, it fits on any screen


@dataclass(frozen=True, slots=True)
class Command:
    """What is to be done: refresh, pause, resume, clear, redraw, quit; or stop, destroy the members `keys`."""

    name: str
    keys: tuple[str, ...] = ()


Result = tuple[View, tuple[Command, ...]]
Act = Callable[[View, FleetSnapshot], Result]


FleetKey = Key[View, FleetSnapshot, Result]


def update(view: View, key: str, snapshot: FleetSnapshot) -> Result:
    """The view after a key, and what is to be done; a key that means nothing says so."""
    view = replace(view, message="")
    entry = _BY_NAME[view.screen].get(key)
    if entry is not None and entry.changes and view.options.read_only:
        return replace(view, message=f"read-only: {entry.shown} would {entry.help}"), ()
    if entry is not None:
        return entry.act(view, snapshot)
    if view.screen in TYPING and len(key) == 1 and key.isprintable():
        return TYPING[view.screen](view, (view.typed + key)[:_MOST_TYPED]), ()
    return (view if view.screen in TYPING else replace(view, message=f"{key} does nothing here")), ()


def keys_of(view: View) -> tuple[FleetKey, ...]:
    """The keys of this screen, without those that read-only takes away."""
    return tuple(key for key in TABLES[view.screen] if not (key.changes and view.options.read_only))


# ---------------------------------------------------------------- acts


def _command(name: str) -> Act:
    return lambda view, snapshot: (view, (Command(name),))


def _move(by: Callable[[View], int]) -> Act:
    def act(view: View, snapshot: FleetSnapshot) -> Result:
        rows = visible_rows(snapshot, view)
        if not rows:
            return view, ()
        index = max(0, min(len(rows) - 1, selected_index(rows, view) + by(view)))
        return replace(view, selected=rows[index].key, index=index, scroll=0), ()

    return act


def _scroll(by: Callable[[View], int]) -> Act:
    return lambda view, snapshot: (replace(view, scroll=max(0, view.scroll + by(view))), ())


def _open(screen: str) -> Act:
    return lambda view, snapshot: (_opened(view, screen), ())


def _opened(view: View, screen: str) -> View:
    return replace(view, screen=screen, back=view.screen, scroll=0, back_scroll=view.scroll)


def _go_back(view: View, snapshot: FleetSnapshot) -> Result:
    view = replace(view, screen=view.back, back="main", scroll=view.back_scroll, back_scroll=0)
    return replace(view, typed="", request=None), ()


def _detail(view: View, snapshot: FleetSnapshot) -> Result:
    row = selected_row(snapshot, view)
    if row is None:
        return replace(view, message="nothing is selected"), ()
    return replace(view, screen="detail", back="main", selected=row.key, scroll=0), ()


def _pause(view: View, snapshot: FleetSnapshot) -> Result:
    return view, (Command("resume" if snapshot.paused else "pause"),)


def _clear(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, feed=LogFeed(seen=view.feed.seen), message="the logs shown so far are gone"), (
        Command("clear"),
    )


def _next_sort(view: View, snapshot: FleetSnapshot) -> Result:
    titles = ["", *ORDERS]
    sort = titles[(titles.index(view.sort) + 1) % len(titles)]
    return replace(view, sort=sort, message=f"sorted by {sort}" if sort else "in the fleet's own order"), ()


def _reverse(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, reverse=not view.reverse), ()


def _group(by: int) -> Act:
    def act(view: View, snapshot: FleetSnapshot) -> Result:
        groups = [None, *snapshot.groups]
        if groups == [view.group]:
            return replace(view, message="there are no groups: the settings file may name some"), ()
        place = groups.index(view.group) if view.group in groups else 0
        return replace(view, group=groups[(place + by) % len(groups)]), ()

    return act


def _mark(view: View, snapshot: FleetSnapshot) -> Result:
    row = selected_row(snapshot, view)
    if row is None:
        return view, ()
    return _move(lambda view: 1)(replace(view, marked=view.marked ^ {row.key}), snapshot)


def _compare(view: View, snapshot: FleetSnapshot) -> Result:
    if len(marked_rows(snapshot, view)) < 2:
        return replace(view, message="mark two or more with Space first"), ()
    return _open("comparison")(view, snapshot)


def _toggle_logs(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, all_logs=not view.all_logs), ()


def _leave_filter(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, screen="main", words="", typed=""), ()


def _keep_filter(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, screen="main", typed=""), ()


def _start_filter(view: View, snapshot: FleetSnapshot) -> Result:
    return replace(view, screen="filter", typed=view.words), ()


def _escape(view: View, snapshot: FleetSnapshot) -> Result:
    return (replace(view, words=""), ()) if view.words else (replace(view, marked=frozenset()), ())


def _erase(view: View, snapshot: FleetSnapshot) -> Result:
    return TYPING[view.screen](view, view.typed[:-1]), ()


def _erase_all(view: View, snapshot: FleetSnapshot) -> Result:
    return TYPING[view.screen](view, ""), ()


# ---------------------------------------------------------------- stop and destroy


def _ask(action: str) -> Act:
    def act(view: View, snapshot: FleetSnapshot) -> Result:
        if view.screen == "detail":
            shown = member_row(snapshot, view.selected)
            rows = [] if shown is None else [shown]
        else:
            selected = selected_row(snapshot, view)
            rows = marked_rows(snapshot, view) or ([] if selected is None else [selected])
        if not rows:
            return replace(view, message=f"there is nothing to {action}"), ()
        request = Request(action, tuple(row.key for row in rows), _phrase(action, rows))
        return replace(_opened(view, "confirm"), request=request, typed=""), ()

    return act


def _phrase(action: str, rows: Sequence[TrainingMetrics]) -> str:
    """What a person types: the id of one member that can be typed, else how many they are."""
    only = str(rows[0].instance_id)
    return f"{action} {only if len(rows) == 1 and _EASY_TO_TYPE.fullmatch(only) else len(rows)}"


def _confirm(view: View, snapshot: FleetSnapshot) -> Result:
    request, typed = view.request, view.typed
    view, _ = _go_back(view, snapshot)
    if request is None or typed != request.phrase:
        return replace(view, message="cancelled: nothing was done"), ()
    gone = {*request.keys} - {row.key for row in snapshot.rows}
    if gone:
        return replace(view, message=f"cancelled: {plural(len(gone), 'member')} went away meanwhile; ask again"), ()
    view = replace(view, marked=view.marked - {*request.keys})
    message = f"{request.action}: {plural(len(request.keys), 'member')} asked for; the alerts tell what came of it"
    asked = (*_under_way(view, snapshot), *((key, snapshot.timestamp) for key in request.keys))
    return replace(view, message=message, asked=asked), (Command(request.action, request.keys),)


def _cancel(view: View, snapshot: FleetSnapshot) -> Result:
    view, _ = _go_back(view, snapshot)
    return replace(view, message="cancelled: nothing was done"), ()


def _under_way(view: View, snapshot: FleetSnapshot) -> list[tuple[str, float]]:
    """What was asked for and no alert has answered yet."""
    answered = {alert.key: alert.timestamp for alert in snapshot.alerts if alert.kind in _ANSWERS}
    return [(key, since) for key, since in view.asked if answered.get(key, since) <= since]


def _quit(view: View, snapshot: FleetSnapshot) -> Result:
    """Quit; not while something would be left half done that a person believes to be done."""
    if _under_way(view, snapshot):
        said = "a stop or destroy is under way: wait for its alert, or give it up with Ctrl-C"
        return replace(view, message=said), ()
    return view, (Command("quit"),)


# ---------------------------------------------------------------- tables


def _moves(act: Callable[[Callable[[View], int]], Act], what: str) -> tuple[FleetKey, ...]:
    return (
        Key(("up", "k"), "Up k", f"{what} up", act(lambda view: -1)),
        Key(("down", "j"), "Down j", f"{what} down", act(lambda view: 1)),
        Key(("page-up",), "PgUp", "a page up", act(lambda view: -view.page)),
        Key(("page-down",), "PgDn", "a page down", act(lambda view: view.page)),
        Key(("home", "g"), "Home g", "to the first", act(lambda view: -_FAR)),
        Key(("end", "G"), "End G", "to the last", act(lambda view: _FAR)),
    )


_QUIT = Key(("q",), "q", "quit", _quit, "quit")
_REFRESH = Key(("r",), "r", "ask all members now, also while paused", _command("refresh"), "refresh")
_PAUSE = Key(("p",), "p", "ask no more until p is pressed again", _pause, "pause")
_REDRAW = Key(("ctrl-l",), "Ctrl-L", "draw the screen anew", _command("redraw"))
_HELP = Key(("?",), "?", "this help", _open("help"), "help")
_BACK = Key(("escape", "enter"), "Esc", "back", _go_back, "back")
_CHANGES = (
    Key(("x",), "x", "stop the marked members, or the selected one", _ask("stop"), "stop", changes=True),
    Key(("D",), "D", "destroy the marked members, or the selected one", _ask("destroy"), "destroy", changes=True),
)
_ERASES = (
    Key(("backspace",), "Backspace", "erase the last character", _erase),
    Key(("ctrl-u",), "Ctrl-U", "erase all that was typed", _erase_all),
)

_MAIN = (
    _QUIT,
    _REFRESH,
    _PAUSE,
    Key(("c",), "c", "forget the log lines shown so far", _clear, "clear"),
    _HELP,
    Key(("enter",), "Enter", "all that is known of the selected member", _detail, "detail"),
    Key(("/",), "/", "filter by id, name, GPU, status, health or its reason", _start_filter, "filter"),
    Key(("s",), "s", "sort by the next column", _next_sort, "sort"),
    Key(("S",), "S", "sort the other way round", _reverse),
    Key(("tab",), "Tab", "the next group", _group(1), "group"),
    Key(("shift-tab",), "Shift-Tab", "the group before", _group(-1)),
    Key((" ",), "Space", "mark the selected member, or take its mark away", _mark, "mark"),
    Key(("m", "v"), "m v", "compare the marked members", _compare, "compare"),
    *_CHANGES,
    Key(("l",), "l", "logs of the selected member, or of all", _toggle_logs, "logs"),
    Key(("!",), "!", "all alerts", _open("alerts"), "alerts"),
    *_moves(_move, "select a row"),
    Key(("escape",), "Esc", "take the filter away, then the marks", _escape),
    _REDRAW,
)
_PAGE = (_BACK, _QUIT, _REFRESH, _PAUSE, _HELP, *_moves(_scroll, "scroll"), _REDRAW)
_DETAIL = (
    _BACK,
    Key(("left", "["), "Left [", "the member before", _move(lambda view: -1), "before"),
    Key(("right", "]"), "Right ]", "the next member", _move(lambda view: 1), "next"),
    *_PAGE[1:],
    *_CHANGES,
)
_HELP_PAGE = tuple(key for key in _PAGE if key is not _HELP)

TABLES: Mapping[str, tuple[FleetKey, ...]] = {
    "main": _MAIN,
    "filter": (
        Key(("enter",), "Enter", "keep the filter", _keep_filter, "keep"),
        Key(("escape",), "Esc", "take the filter away", _leave_filter, "clear"),
        *_ERASES,
        *(key for key in _moves(_move, "select a row") if len(key.names) == 1),
        Key(("up",), "Up", "select a row up", _move(lambda view: -1)),
        Key(("down",), "Down", "select a row down", _move(lambda view: 1)),
    ),
    "detail": _DETAIL,
    "comparison": _PAGE,
    "alerts": _PAGE,
    "help": _HELP_PAGE,
    "confirm": (
        Key(("enter",), "Enter", "do it, if what was typed is right", _confirm, "confirm"),
        Key(("escape",), "Esc", "cancel", _cancel, "cancel"),
        *_ERASES,
        Key(("up",), "Up", "scroll up", _scroll(lambda view: -1)),
        Key(("down",), "Down", "scroll down", _scroll(lambda view: 1)),
    ),
}
TYPING: Mapping[str, Callable[[View, str], View]] = {
    "filter": lambda view, typed: replace(view, typed=typed, words=typed),
    "confirm": lambda view, typed: replace(view, typed=typed),
}
_BY_NAME = by_name(TABLES)
