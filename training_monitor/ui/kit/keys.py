"""Key tables, and `update`, which applies a key to a view. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from training_monitor.ui.kit.text import Line
from training_monitor.ui.kit.view import Do, Frame, S, Table, V, cancel, go_back, opened, said

FAR = 10**9
_MOST_TYPED = 1000
_WHEEL = 3  # lines
_NAMES = {"Esc": "escape", "Space": " "}

Act = Callable[[V, S], V]
By = Callable[[Any], int]  # the distance, given the view


@dataclass(frozen=True, slots=True)
class Key(Generic[V, S]):
    """One entry of a key table: `shown` is the label, of keys with a space between; `word` is for the footer.

    `changes`: it changes what is monitored, so a read-only screen refuses it. `named`: the terminal's names of the keys
    where the label does not tell them.
    """

    shown: str
    help: str
    act: Act[V, S]
    word: str = ""
    changes: bool = False
    named: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the terminal's names of the keys."""
        return self.named or tuple(_NAMES.get(key, key if len(key) == 1 else key.lower()) for key in self.shown.split())


@dataclass(frozen=True, slots=True)
class Screen(Generic[V, S]):
    """One screen; `draw` returns its lines, between header and footer, for the width and height of the view; None: the
    help.

    `prompt` precedes the text typed there, if any; `section` is its title in the help. `changes`: not available when
    read-only; `note` is added to its help. `click` answers a click; None: nothing does.
    """

    draw: Callable[[S, V], Frame[V]] | None
    keys: tuple[Key[V, S], ...]
    prompt: str = ""
    section: str = ""
    changes: bool = False
    note: str = ""
    click: Callable[[V, S, str], V] | None = None


@dataclass(frozen=True, slots=True)
class App(Generic[V, S]):
    """Screens over one table, by name; `header` formats the first line.

    `aliases` map keys to other keys where nothing is typed. `notes` (name, text) are at the end of the help.
    """

    table: Table[V, S, Any]
    header: Callable[[S, V], Line]
    screens: Mapping[str, Screen[V, S]]
    aliases: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()


def update(app: App[V, S], view: V, key: str, snapshot: S) -> tuple[V, tuple[Any, ...]]:
    """Return the view after a key or a click, and its commands; an unknown key is reported."""
    view = _answered(app, replace(view, message="", todo=()), key, snapshot)
    return replace(view, todo=()), view.todo


def _answered(app: App[V, S], view: V, key: str, snapshot: S) -> V:
    screen = app.screens[view.screen]
    if key.startswith("click "):
        return screen.click(view, snapshot, key) if screen.click else view
    name = key if screen.prompt else app.aliases.get(key, key)
    entry = next((entry for entry in screen.keys if name in entry.names), None)
    if entry is not None and entry.changes and view.read_only:
        return said(view, f"read-only: {entry.shown} would {entry.help}")
    if entry is not None:
        return entry.act(view, snapshot)
    if screen.prompt:
        return type_text(view, view.typed + key) if len(key) == 1 and key.isprintable() else view
    return said(view, f"{key} has no function on this screen")


def keys_of(app: App[V, S], view: V) -> tuple[Key[V, S], ...]:
    """Return the keys of this screen, without changing ones when read-only."""
    return tuple(key for key in app.screens[view.screen].keys if not (key.changes and view.read_only))


# ---------------------------------------------------------------- actions


def do(name: str) -> Act[Any, Any]:
    """Return an action that gives a command."""
    return lambda view, snapshot: replace(view, todo=(Do(name),))


def change(**fields: Any) -> Act[Any, Any]:
    """Return an action that sets fields of the view."""
    return lambda view, snapshot: replace(view, **fields)


def toggle(name: str) -> Act[Any, Any]:
    """Return an action that toggles a field of the view."""
    return lambda view, snapshot: replace(view, **{name: not getattr(view, name)})


def open_page(screen: str) -> Act[Any, Any]:
    """Return an action that opens a page."""
    return lambda view, snapshot: opened(view, screen)


def scroll(by: By) -> Act[Any, Any]:
    """Return an action that scrolls a page."""
    return lambda view, snapshot: replace(view, scroll=max(0, view.scroll + by(view)))


def confirmed(act: Callable[[V, S, Any], V]) -> Act[V, S]:
    """Return an action that does what was requested if exactly the phrase was typed."""

    def answer(view: V, snapshot: S) -> V:
        is_meant = view.request is not None and view.typed == view.phrase
        return act(go_back(view), snapshot, view.request) if is_meant else cancel(view)

    return answer


def type_text(view: V, typed: str) -> V:
    """Set the typed text; on the filter screen it filters the table at once."""
    typed = typed[:_MOST_TYPED]
    return replace(view, typed=typed, words=typed if view.screen == "filter" else view.words)


def start_filter(view: V, snapshot: object) -> V:
    """Begin to type the filter."""
    return replace(view, screen="filter", typed=view.words, before=view.words)


def _leave_filter(view: V, snapshot: object) -> V:
    return replace(view, screen="main", typed="", words=view.before)


# ---------------------------------------------------------------- common keys


def moves(act: Callable[[By], Act[Any, Any]], *, ends: bool = True) -> tuple[Key[Any, Any], ...]:
    """Return the arrows, page keys and wheel, and with `ends` also Home and End."""
    steps: tuple[tuple[str, str, str, By], ...] = (
        ("up", "Up", "move up one row or line", lambda view: -1),
        ("down", "Down", "move down one row or line", lambda view: 1),
        ("page-up", "PgUp", "move up one page", lambda view: -view.page),
        ("page-down", "PgDn", "move down one page", lambda view: view.page),
        ("wheel-up", "Wheel", "move up several rows or lines", lambda view: -_WHEEL),
        ("wheel-down", "Wheel", "move down several rows or lines", lambda view: _WHEEL),
        ("home", "Home", "go to the first row or line", lambda view: -FAR),
        ("end", "End", "go to the last row or line", lambda view: FAR),
    )
    return tuple(Key(shown, text, act(by), named=(name,)) for name, shown, text, by in steps[: 8 if ends else 6])


QUIT: Key[Any, Any] = Key("q", "quit (also Ctrl+C)", do("quit"), "quit")
REFRESH: Key[Any, Any] = Key("r", "refresh now, even while paused", do("refresh"), "refresh")
REDRAW: Key[Any, Any] = Key("Ctrl-L", "redraw the screen", do("redraw"))
HELP: Key[Any, Any] = Key("?", "open or close this help", open_page("help"), "help")
BACK: Key[Any, Any] = Key("Esc", "back", go_back, "back", named=("escape", "enter"))
CLOSE_HELP: Key[Any, Any] = Key("Esc", "back", go_back, "back", named=("escape", "enter", "?"))
ERASES: tuple[Key[Any, Any], ...] = (
    Key("Backspace", "erase the last character", lambda view, _: type_text(view, view.typed[:-1])),
    Key("Ctrl-U", "erase all typed text", lambda view, _: type_text(view, "")),
)
SCROLLS = (*moves(scroll), REDRAW)


def filter_keys(table: Table[V, S, Any]) -> tuple[Key[Any, Any], ...]:
    """Return the keys of the table while its filter is typed."""
    return (
        Key("Enter", "keep the filter", table.keep_filter, "keep"),
        Key("Esc", "restore the previous filter", _leave_filter, "cancel"),
        *ERASES,
        *moves(table.move),
    )


def sort_keys(table: Table[V, S, Any], letters: Mapping[str, str]) -> tuple[Key[Any, Any], ...]:
    """Return the keys that choose the order: a letter for each column, by title."""
    return (
        Key("Esc", "keep the current order", change(screen="main"), "cancel"),
        Key("o", table.own_order, table.sort_by(""), table.own_order),
        *(Key(letter, f"sort by {title}", table.sort_by(title), title) for title, letter in letters.items()),
        *moves(table.move),
    )


def question_keys(act: Callable[[V, S, Any], V]) -> tuple[Key[Any, Any], ...]:
    """Return the keys of a confirmation."""
    return (
        Key("Enter", "confirm, if the phrase is typed correctly", confirmed(act), "confirm"),
        Key("Esc", "cancel", cancel, "cancel"),
        *ERASES,
        *moves(scroll),
    )
