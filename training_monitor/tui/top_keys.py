"""What each key does in `top`: tables of keys for each screen, and `update`, from a view to the next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from training_monitor.policy.run_values import RUNNING, UNKNOWN, RunsSnapshot
from training_monitor.tui.key_table import Key, by_name
from training_monitor.tui.top_acts import (
    Act,
    Result,
    ask_delete,
    ask_once_more,
    ask_signal,
    ask_signal_of_all,
    cancel,
    choose_signal,
    choose_variable,
    confirm,
    go_back,
    open_editor,
    open_output,
    opened,
    send_edit,
    show_other_output,
    start_edit,
)
from training_monitor.tui.top_columns import SORTS
from training_monitor.tui.top_typing import (
    erase,
    erase_all,
    keep_filter,
    leave_edit,
    leave_filter,
    leave_search,
    search_again,
    search_typed,
    start_filter,
    start_search,
    type_text,
)
from training_monitor.tui.top_view import (
    STATUS_FILTERS,
    Do,
    MoveOutput,
    Place,
    TopView,
    selected_index,
    selected_item,
    shown_items,
    shown_runs,
)

_FAR = 10**9
_WHEEL = 3
_MOST_TYPED = 1000
_ASIDE = 10


TopKey = Key[TopView, RunsSnapshot, Result]


def update(view: TopView, key: str, snapshot: RunsSnapshot) -> Result:
    """The view after a key or a click, and what is to be done; a key that means nothing says so."""
    view = replace(view, message="")
    if key.startswith("click "):
        return _click(view, key, snapshot), ()
    entry = _BY_NAME[view.screen].get(key)
    if entry is not None and entry.changes and view.options.read_only:
        return replace(view, message=f"read-only: {entry.shown} would {entry.help}"), ()
    if entry is not None:
        return entry.act(view, snapshot)
    if view.screen in TYPING and len(key) == 1 and key.isprintable():
        return type_text(view, (view.typed + key)[:_MOST_TYPED]), ()
    return (view if view.screen in TYPING else replace(view, message=f"{key} does nothing here")), ()


def keys_of(view: TopView) -> tuple[TopKey, ...]:
    """The keys of this screen, without those that read-only takes away."""
    return tuple(key for key in TABLES[view.screen] if not (key.changes and view.options.read_only))


# ---------------------------------------------------------------- the table


def _do(name: str) -> Act:
    return lambda view, snapshot: (view, (Do(name),))


def _open(screen: str) -> Act:
    return lambda view, snapshot: (opened(view, screen), ())


def _move(by: Callable[[TopView], int]) -> Act:
    def act(view: TopView, snapshot: RunsSnapshot) -> Result:
        items = shown_items(snapshot, view)
        return _select(view, snapshot, selected_index(items, view) + by(view)), ()

    return act


def _select(view: TopView, snapshot: RunsSnapshot, index: int) -> TopView:
    items = shown_items(snapshot, view)
    if not items:
        return view
    index = max(0, min(len(items) - 1, index))
    return replace(view, selected=items[index].place, index=index)


def _click(view: TopView, key: str, snapshot: RunsSnapshot) -> TopView:
    """Select the row that was clicked; a click on a title sorts by it, a second one the other way round."""
    if view.screen not in ("main", "filter"):
        return view
    across, line = map(int, key.split()[1:])
    if line == view.heading_line:
        clicked = (title for title, first, end in view.headings if first <= across < end and title in SORTS)
        return _sorted_by(view, next(clicked, None))
    index = view.top + line - view.heading_line - 1
    if line < view.heading_line or index >= min(len(shown_items(snapshot, view)), view.top + view.page):
        return view
    return _select(view, snapshot, index)


def _sorted_by(view: TopView, title: str | None) -> TopView:
    if title is None:
        return view
    return replace(view, sort=title, reverse=not view.reverse if view.sort == title else False)


def _next_sort(by: int) -> Act:
    def act(view: TopView, snapshot: RunsSnapshot) -> Result:
        titles = ("", *SORTS)
        sort = titles[(titles.index(view.sort) + by) % len(titles)]
        return replace(view, sort=sort, message=f"sorted by {sort}" if sort else "in the order of the names"), ()

    return act


def _reverse(view: TopView, snapshot: RunsSnapshot) -> Result:
    return replace(view, reverse=not view.reverse), ()


def _across(by: int) -> Act:
    return lambda view, snapshot: (replace(view, across=max(0, view.across + by)), ())


def _next_status(view: TopView, snapshot: RunsSnapshot) -> Result:
    status = STATUS_FILTERS[(STATUS_FILTERS.index(view.status) + 1) % len(STATUS_FILTERS)]
    return replace(view, status=status, message="runs of every status" if status is None else f"only {status}"), ()


def _toggle_tree(view: TopView, snapshot: RunsSnapshot) -> Result:
    item = selected_item(snapshot, view)
    if item is None:
        return view, ()
    path = item.row.run.path
    if path not in view.expanded and not item.row.tree:
        why = "no process of it can be seen from here" if item.row.status in (RUNNING, UNKNOWN) else "it has ended"
        return replace(view, message=f"{item.row.run.name}: {why}"), ()
    selected = Place(path) if path in view.expanded else item.place
    return replace(view, expanded=view.expanded ^ {path}, selected=selected), ()


def _toggle_trees(view: TopView, snapshot: RunsSnapshot) -> Result:
    paths = {row.run.path for row in shown_runs(snapshot, view) if row.tree}
    if paths <= view.expanded:
        return replace(view, expanded=frozenset(), selected=Place(view.selected.path)), ()
    return replace(view, expanded=view.expanded | paths), ()


def _pause(view: TopView, snapshot: RunsSnapshot) -> Result:
    return replace(view, paused=not view.paused), ()


def _reset(view: TopView, snapshot: RunsSnapshot) -> Result:
    return replace(view, status=None, words="", sort="", reverse=False, across=0), ()


def _detail(view: TopView, snapshot: RunsSnapshot) -> Result:
    item = selected_item(snapshot, view)
    if item is None:
        return replace(view, message="nothing is selected"), ()
    return replace(view, screen="detail", back="main", selected=item.place, scroll=0), ()


# ---------------------------------------------------------------- pages and the output


def _scroll(by: Callable[[TopView], int]) -> Act:
    return lambda view, snapshot: (replace(view, scroll=max(0, view.scroll + by(view))), ())


def _move_output(by: Callable[[TopView], int]) -> Act:
    return lambda view, snapshot: (view, (MoveOutput(by(view)),))


def _aside(by: int) -> Act:
    return lambda view, snapshot: (replace(view, aside=max(0, view.aside + by)), ())


def _wrap(view: TopView, snapshot: RunsSnapshot) -> Result:
    said = "long lines are cut; left and right scroll" if view.wraps else "long lines are broken"
    return replace(view, wraps=not view.wraps, aside=0, message=said), ()


def _close_output(view: TopView, snapshot: RunsSnapshot) -> Result:
    view, _ = go_back(view, snapshot)
    return replace(view, panes=(), aside=0), (Do("close"),)


# ---------------------------------------------------------------- tables


def _moves(act: Callable[[Callable[[TopView], int]], Act], what: str) -> tuple[TopKey, ...]:
    return (
        Key(("up",), "Up", f"{what} up", act(lambda view: -1)),
        Key(("down",), "Down", f"{what} down", act(lambda view: 1)),
        Key(("page-up",), "PgUp", "a page up", act(lambda view: -view.page)),
        Key(("page-down",), "PgDn", "a page down", act(lambda view: view.page)),
        Key(("wheel-up",), "Wheel", f"{what} up", act(lambda view: -_WHEEL)),
        Key(("wheel-down",), "Wheel", f"{what} down", act(lambda view: _WHEEL)),
    )


def _ends(act: Callable[[Callable[[TopView], int]], Act]) -> tuple[TopKey, ...]:
    return (
        Key(("home",), "Home", "to the first", act(lambda view: -_FAR)),
        Key(("end",), "End", "to the last", act(lambda view: _FAR)),
    )


_QUIT = Key(("q",), "q", "quit; Ctrl+C does, too", _do("quit"), "quit")
_REFRESH = Key(("r",), "r", "look now, also while paused", _do("refresh"), "refresh")
_REDRAW = Key(("ctrl-l",), "Ctrl-L", "draw the screen anew", _do("redraw"))
_HELP = Key(("?",), "?", "this help", _open("help"), "help")
_BACK = Key(("escape", "enter"), "Esc", "back", go_back, "back")
_ERASES = (
    Key(("backspace",), "Backspace", "erase the last character", erase),
    Key(("ctrl-u",), "Ctrl-U", "erase all that was typed", erase_all),
)
_SIGNAL = Key(("k",), "k", "send a signal to the selected run or process", ask_signal, "signal", changes=True)
_DELETE = Key(("c",), "c", "delete the folder of the selected run", ask_delete, "delete", changes=True)
_EDITOR = Key(("e",), "e", "variables of the selected run, and edit them", open_editor, "edit")
_OUTPUT = Key(("o",), "o", "what the selected run wrote to stdout and stderr", open_output, "output")
_PAGE = (_BACK, _QUIT, _REFRESH, _HELP, *_moves(_scroll, "scroll"), *_ends(_scroll), _REDRAW)
_OUTPUT_KEYS = (
    Key(("escape",), "Esc", "back", _close_output, "back"),
    Key(("tab",), "Tab", "stdout, stderr, or both", show_other_output, "other"),
    Key(("F", "end", "G"), "F End G", "to the end, and follow it", _do("end"), "follow"),
    Key(("g", "home"), "g Home", "to the beginning", _do("start"), "begin"),
    Key(("/",), "/", "search backwards from here", start_search, "search"),
    Key(("n",), "n", "the match before", search_again(True), "next"),
    Key(("N",), "N", "the match after", search_again(False)),
    Key(("w",), "w", "break long lines, or cut them", _wrap, "wrap"),
    Key(("left",), "Left", "scroll to the left", _aside(-_ASIDE)),
    Key(("right",), "Right", "scroll to the right", _aside(_ASIDE)),
    *_moves(_move_output, "scroll"),
    _HELP,
    _QUIT,
    _REDRAW,
)

TABLES: Mapping[str, tuple[TopKey, ...]] = {
    "main": (
        _QUIT,
        _HELP,
        Key(("s",), "s", "only runs of the next status", _next_status, "status"),
        Key(("f",), "f", "only runs whose name has what is typed", start_filter, "filter"),
        Key(("t",), "t", "show or hide the processes and threads of the run", _toggle_tree, "tree"),
        _EDITOR,
        _OUTPUT,
        _SIGNAL,
        Key(("l",), "l", "send a signal to all RUNNING runs shown", ask_signal_of_all, "all", changes=True),
        _DELETE,
        Key(("enter",), "Enter", "all that is known of the selected run", _detail, "detail"),
        Key(("T",), "T", "show or hide the processes of all runs", _toggle_trees),
        Key(("S", ">"), "S >", "sort by the next column", _next_sort(1), "sort"),
        Key(("<",), "<", "sort by the column before", _next_sort(-1)),
        Key(("R",), "R", "sort the other way round", _reverse),
        _REFRESH,
        Key(("p",), "p", "keep the screen as it is until p is pressed again", _pause, "pause"),
        Key(("m",), "m", "what came of what was asked for", _open("messages"), "messages"),
        *_moves(_move, "select a row"),
        *_ends(_move),
        Key(("left",), "Left", "columns to the left", _across(-1)),
        Key(("right",), "Right", "columns to the right", _across(1)),
        Key(("escape",), "Esc", "all runs and columns as at the beginning", _reset),
        _REDRAW,
    ),
    "filter": (
        Key(("enter",), "Enter", "keep the filter", keep_filter, "keep"),
        Key(("escape",), "Esc", "the filter of before", leave_filter, "cancel"),
        *_ERASES,
        *_moves(_move, "select a row"),
    ),
    "detail": (*_PAGE, _EDITOR, _OUTPUT, _SIGNAL, _DELETE),
    "editor": (
        Key(("escape",), "Esc", "back", go_back, "back"),
        Key(("enter",), "Enter", "change the selected variable", start_edit, "change", changes=True),
        *_moves(choose_variable, "select a variable"),
        *_ends(choose_variable),
        _REFRESH,
        _OUTPUT,
        _HELP,
        _QUIT,
        _REDRAW,
    ),
    "edit": (
        Key(("enter",), "Enter", "ask the run to use this value", send_edit, "send", changes=True),
        Key(("escape",), "Esc", "change nothing", leave_edit, "cancel"),
        *_ERASES,
    ),
    "output": _OUTPUT_KEYS,
    "search": (
        Key(("enter",), "Enter", "search for it", search_typed, "search"),
        Key(("escape",), "Esc", "search for nothing", leave_search, "cancel"),
        *_ERASES,
    ),
    "signals": (
        Key(("enter",), "Enter", "this signal; asks once more", ask_once_more, "choose"),
        Key(("escape",), "Esc", "send nothing", cancel, "cancel"),
        Key(("up", "wheel-up"), "Up", "the signal before", choose_signal(-1)),
        Key(("down", "wheel-down"), "Down", "the next signal", choose_signal(1)),
    ),
    "confirm": (
        Key(("enter",), "Enter", "do it, if yes was typed", confirm, "confirm"),
        Key(("escape",), "Esc", "cancel", cancel, "cancel"),
        *_ERASES,
        *(key for key in _moves(_scroll, "scroll")),
    ),
    "messages": _PAGE,
    "help": tuple(key for key in _PAGE if key is not _HELP),
}
TYPING = frozenset(("filter", "edit", "search", "confirm"))
_BY_NAME = by_name(TABLES)
