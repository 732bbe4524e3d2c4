"""The view of a screen, an immutable value that keys change, and the table in it: columns, cursor, order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from training_monitor.core.units import plural
from training_monitor.ui.kit.text import UNICODE, Glyphs, Line, Piece, cells, fit, fit_line, safe

MARGIN = 2  # before the first column: the cursor, and a mark
MORE = ">"  # at the end of the headings: there are more columns to the right

C = TypeVar("C")
R = TypeVar("R")


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
        width, height: of the part of the terminal that is drawn, in cells.
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
    width: int = 80
    height: int = 24
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

    def safe(self, text: object) -> str:
        """Return one line of printable text for this terminal."""
        return safe(text, self.glyphs)

    def line(self, pieces: Iterable[Piece], style: str = "") -> Line:
        """Cut or pad the pieces to the width; `style` is that of the padding."""
        return fit_line(pieces, self.width, self.glyphs, style)


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


@dataclass(frozen=True, slots=True)
class Column(Generic[C]):
    """One column: `show` formats a cell for a width; `align` is < or >; `heading` replaces the title above it."""

    title: str
    align: str
    show: Callable[[C, int], str]
    heading: str = ""
    least: int = 0
    most: int = 0


Layout = Sequence[tuple[Column[C], int]]  # the columns from left to right, and their widths


# ---------------------------------------------------------------- the cursor


@dataclass(frozen=True)
class Table(Generic[V, S, R]):
    """The rows of a table and its cursor.

    Attributes:
        noun: what a row is called.
        rows: returns the rows that match the view's filter, in its order.
        key: returns the unique key of a row.
        unfiltered: returns the view with all rows.
        orders: titles of the sortable columns; own_order: a description of the default order.
        above: returns the key of the row that replaces a collapsed one.
        falling: the titles of columns that are sorted from the greatest value on, where that is the worst.
    """

    noun: str
    rows: Callable[[S, V], list[R]]
    key: Callable[[R], Any]
    unfiltered: Callable[[V], V]
    orders: Sequence[str]
    own_order: str
    above: Callable[[Any], Any] = lambda key: key
    falling: Collection[str] = ()

    def index(self, rows: Sequence[R], view: V) -> int:
        """Return the number of the selected row; if that is hidden, of the row in its place. 0 without rows."""
        keys = [self.key(row) for row in rows]
        for wanted in (view.selected, self.above(view.selected)):
            if wanted in keys:
                return keys.index(wanted)
        return max(0, min(view.index, len(rows) - 1))

    def selected(self, snapshot: S, view: V) -> R | None:
        """Return the selected row; None when no rows are shown."""
        rows = self.rows(snapshot, view)
        return rows[self.index(rows, view)] if rows else None

    def scrolled(self, snapshot: S, view: V, rows: Sequence[R], room: int) -> V:
        """Return the view with its cursor on an existing row, scrolled as little as necessary."""
        index = self.index(rows, view)
        top = max(0, min(view.top, index, len(rows) - room), index - room + 1)
        view = replace(view, index=index, top=top, page=room)
        if not rows or self.key(rows[index]) == view.selected or self._is_hidden(snapshot, view):
            return view
        return replace(view, selected=self.key(rows[index]))

    def _is_hidden(self, snapshot: S, view: V) -> bool:
        """Return whether the selected row exists and is only hidden by the filter."""
        return view.selected in map(self.key, self.rows(snapshot, self.unfiltered(view)))

    def _select(self, view: V, rows: Sequence[R], index: int) -> V:
        if not rows:
            return view
        index = max(0, min(len(rows) - 1, index))
        return replace(view, selected=self.key(rows[index]), index=index, scroll=0)

    # ------------------------------------------------------------ actions

    def move(self, by: Callable[[V], int]) -> Callable[[V, S], V]:
        """Return an action that moves the cursor."""

        def act(view: V, snapshot: S) -> V:
            rows = self.rows(snapshot, view)
            return self._select(view, rows, self.index(rows, view) + by(view))

        return act

    def open_detail(self, view: V, snapshot: S) -> V:
        """Open the detail page of the selected row."""
        row = self.selected(snapshot, view)
        if row is None:
            return said(view, "nothing is selected")
        return replace(view, screen="detail", back="main", selected=self.key(row), scroll=0)

    def next_sort(self, by: int) -> Callable[[V, S], V]:
        """Return an action that sorts by the next column; after the last one comes the default order."""

        def act(view: V, snapshot: S) -> V:
            titles = ("", *self.orders)
            return self._sorted(view, titles[(titles.index(view.sort) + by) % len(titles)])

        return act

    def sort_by(self, title: str) -> Callable[[V, S], V]:
        """Return an action that sorts by a column, or the other way round if it is sorted by that already."""

        def act(view: V, snapshot: S) -> V:
            if title and title == view.sort:
                return replace(view, screen="main", reverse=not view.reverse)
            return replace(self._sorted(view, title), screen="main")

        return act

    def _sorted(self, view: V, title: str) -> V:
        message = f"sorted by {title}" if title else self.own_order
        return replace(view, sort=title, reverse=title in self.falling, message=message)

    def keep_filter(self, view: V, snapshot: S) -> V:
        """Stop typing and keep the filter."""
        shown = plural(len(self.rows(snapshot, view)), self.noun)
        return replace(view, screen="main", typed="", message=f"{shown} shown; Esc shows all again")

    def click(self, view: V, snapshot: S, key: str) -> V:
        """Select the clicked row; a click on a heading sorts by it, a second one reverses the order."""
        across, line = map(int, key.split()[1:])
        if line == view.heading_line:
            clicked = (title for title, first, end in view.headings if first <= across < end and title in self.orders)
            title = next(clicked, None)
            return view if title is None else replace(self.sort_by(title)(view, snapshot), screen=view.screen)
        rows, index = self.rows(snapshot, view), view.top + line - view.heading_line - 1
        is_row = line > view.heading_line and index < min(len(rows), view.top + view.page)
        return self._select(view, rows, index) if is_row and view.headings else view


# ---------------------------------------------------------------- columns and lines


def fit_columns(columns: Sequence[Column[C]], steps: str, width: int, needs: Mapping[str, int], rest: str) -> Layout[C]:
    """Distribute a width over columns, with one cell between two, until the next step does not fit.

    Args:
        columns: from left to right.
        steps: "TITLE WIDTH, TITLE WIDTH", the most important first; naming a column again widens it.
        needs: the maximum useful width of a column; 0 leaves it out.
        rest: the column that gets the remaining width, or the first one where that is left out.
    """
    widths: dict[str, int] = {}
    left = width
    for title, _, most in (step.strip().rpartition(" ") for step in steps.split(",")):
        wanted = min(int(most), needs.get(title, width))
        cost = wanted - widths[title] if title in widths else wanted + (1 if widths else 0)
        if wanted <= 0 or cost <= 0:
            continue
        if cost > left:
            break
        widths[title] = wanted
        left -= cost
    if widths:
        widths[rest if rest in widths else next(iter(widths))] += left
    return [(column, widths[column.title]) for column in columns if column.title in widths]


def place_headings(layout: Layout[C]) -> tuple[tuple[str, int, int], ...]:
    """Return (title, first cell, cell after the last) of each column."""
    found, start = [], MARGIN
    for column, width in layout:
        found.append((column.title, start, start + width))
        start += width + 1
    return tuple(found)


def heading_line(
    layout: Layout[C], view: View, sort: str = "", *, margin: str = " " * MARGIN, more: bool = False
) -> Line:
    """Format the headings; the sort column is bold, and a mark shows that there are more columns to the right."""
    pieces: list[Piece] = [(margin, "dim")]
    for number, (column, its_width) in enumerate(layout):
        text = fit(column.heading or column.title, its_width, view.glyphs, column.align)
        pieces += [(" " if number else "", ""), (text, "bold" if column.title == sort else "dim")]
    taken = sum(cells(text) for text, _ in pieces)
    return view.line([*pieces, (MORE.rjust(view.width - taken) if more else "", "dim")])


def row_line(margin: str, layout: Layout[C], cell: C, styles: Mapping[str, str], view: View, base: str = "") -> Line:
    """Format one row: its margin, and a cell for each column, styled by title; the rest has the style `base`."""
    pieces: list[Piece] = [(margin, base)]
    for number, (column, its_width) in enumerate(layout):
        text = fit(column.show(cell, its_width), its_width, view.glyphs, column.align)
        pieces += [(" " if number else "", base), (text, styles.get(column.title, base))]
    return view.line(pieces, base)
