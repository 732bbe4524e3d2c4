"""The view of a screen, an immutable value that keys change. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from training_monitor.core.frozen import dataclass
from training_monitor.screens.kit.text import UNICODE, Glyphs, Line


class Snapshot(Protocol):
    """The data shown: why the last look failed, and since when the data is stale; None while looks work."""

    @property
    def error(self) -> str | None: ...

    @property
    def stale_since(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Do:
    """A command: refresh, redraw, quit, or one of the session's own, and what it is about, if anything."""

    name: str
    about: Any = None


@dataclass(frozen=True, slots=True)
class View:
    """The state of a screen's user interface.

    Attributes:
        title, read_only, glyphs: constant while the screen is shown.
        screen: main (the table), filter (main while its filter is typed), confirm, help, or a screen of the app.
        back: the screen that Esc goes back to.
        selected: key of the selected row; `index` is its number, used when the row is gone.
        top: number of the first row that is shown.
        page: how many rows fit on the screen; scroll: how many lines of a long page are scrolled off; back_scroll: the
            same of the page that Esc goes back to.
        sort: title of the sort column; empty: the default order.
        words: the filter; typed: the text being typed; before: the filter when the typing began.
        request: the action that is confirmed by typing `phrase`.
        message: shown at the bottom until the next key.
        headings: (title, first cell, cell after the last) of the table as it was drawn, in line `heading_line`.
        todo: the commands of the current key.
    """

    title: str = ""
    read_only: bool = False
    glyphs: Glyphs = UNICODE
    screen: str = "main"
    back: str = "main"
    selected: Any = ""
    index: int = 0
    top: int = 0
    page: int = 10
    scroll: int = 0
    back_scroll: int = 0
    sort: str = ""
    reverse: bool = False
    words: str = ""
    typed: str = ""
    before: str = ""
    request: Any = None
    phrase: str = ""
    message: str = ""
    headings: tuple[tuple[str, int, int], ...] = ()
    heading_line: int = 0
    todo: tuple[Any, ...] = ()


V = TypeVar("V", bound=View)
S = TypeVar("S", bound=Snapshot)


@dataclass(frozen=True, slots=True)
class Frame(Generic[V]):
    """Lines, and the view they show, with its cursor on an existing row and valid scrolling."""

    lines: tuple[Line, ...]
    view: V


def said(view: V, message: str) -> V:
    """Return the view with a message."""
    return replace(view, message=message)


def opened(view: V, screen: str) -> V:
    """Open a page at its beginning; `go_back` returns to the current screen."""
    return replace(view, screen=screen, back=view.screen, scroll=0, back_scroll=view.scroll)


def go_back(view: V, snapshot: object = None) -> V:
    """Leave a page for the screen it was opened from."""
    view = replace(view, screen=view.back, back="main", scroll=view.back_scroll, back_scroll=0)
    return replace(view, typed="", request=None, phrase="")


def asked(view: V, request: object, phrase: str) -> V:
    """Ask for confirmation of a request; only typing the phrase confirms it."""
    return replace(opened(view, "confirm"), request=request, phrase=phrase, typed="")


def cancel(view: V, snapshot: object = None) -> V:
    """Leave a confirmation without doing anything."""
    return said(go_back(view), "cancelled: nothing was done")
