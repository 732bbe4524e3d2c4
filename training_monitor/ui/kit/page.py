"""The parts of all screens: header, footer, pages, confirmations, help, and the notice of a small screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from training_monitor.core.units import plural
from training_monitor.ui.kit.keys import App, keys_of
from training_monitor.ui.kit.text import (
    Line,
    Piece,
    cells,
    fill,
    fit,
    fit_line,
    flow,
    format_clock,
    last_cells,
    rule,
    wrap,
)
from training_monitor.ui.kit.view import Frame, S, Snapshot, V, View

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
LOW = 16  # below this many lines a message takes the place of the keys
_MOST_STALE = 3  # lines
LABEL, _LEAST_TEXT, _HELP = 12, 24, 66  # cells; the last of a column of the help
_RULE = 5  # cells of a rule before its title, of the space after it, and of the ellipsis

Body = Sequence[Sequence[Piece]]

# Help that applies to every screen, shown once.
_COMMON_HELP = (
    ("Up Down", "move one row or line (also mouse wheel)"),
    ("PgUp PgDn", "move one page"),
    ("Home End", "go to the first or last row or line"),
    ("Esc", "close a page"),
    ("r", "refresh now, even while paused"),
    ("Ctrl-L", "redraw the screen"),
    ("?", "this help"),
    ("q", "quit (also Ctrl+C)"),
    ("Backspace", "erase the last typed character; Ctrl-U: all of them"),
)
_COMMON = frozenset("up down page-up page-down wheel-up wheel-down home end r ctrl-l ? q backspace ctrl-u".split())


def render_screen(app: App[V, S], snapshot: S, view: V, width: int, height: int) -> Frame[V]:
    """Render the screen that the view is on.

    Args:
        app: its screens.
        snapshot: the data.
        view: the view.
        width, height: of the terminal, in cells.

    Returns:
        Exactly `height` lines of exactly `width` cells each, and the view as it is shown.
    """
    width, height = max(1, width), max(1, height)
    view = replace(view, width=width, height=height)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Frame(_too_small(app, view), replace(view, headings=()))  # no headings to click
    above = (app.header(snapshot, view), *stale_line(snapshot, view))
    below = _footer(app, view)
    view = replace(view, heading_line=len(above), height=height - len(above) - len(below))
    draw = app.screens[view.screen].draw
    frame = draw(snapshot, view) if draw else help_page(app, view)
    return Frame((*above, *frame.lines, *below), frame.view)


def _too_small(app: App[V, S], view: V) -> tuple[Line, ...]:
    """Format the required size, and the key that leaves the screen."""
    out = "q quits" if any("q" in key.names for key in app.screens[view.screen].keys) else "Esc cancels"
    hint = f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is needed; {out}"
    lines = wrap(hint, view.width, view.glyphs)[: view.height]
    return fill([view.line([(line, "warn")]) for line in lines], view.width, view.height)


def header(view: View, counted: str, paused: bool, filters: Iterable[str], tail: Iterable[Piece]) -> Line:
    """Format title, counts, paused, filters, order, read-only, and the app's own text."""
    glyphs = view.glyphs
    parts: list[Piece] = [(f" {last_cells(view.safe(view.title), view.width // 3, glyphs)} ", "title")]
    parts.append((f"  {counted}", "bold"))
    parts += [(f"  {view.safe(text)}", "warn") for text in ("PAUSED" if paused else "", *filters) if text]
    if view.sort or view.reverse:
        parts.append((f"  {glyphs.falling if view.reverse else glyphs.rising} {view.sort or 'order'}", "dim"))
    parts += [("  read-only", "dim")] if view.read_only else []
    return view.line([*parts, *tail])


def stale_line(snapshot: Snapshot, view: View) -> tuple[Line, ...]:
    """Format why the last look failed, and since when the data is stale; nothing while looks work."""
    if snapshot.error is None:
        return ()
    since = "" if snapshot.stale_since is None else f"stale since {format_clock(snapshot.stale_since)}: "
    first, *more = wrap(since + view.safe(snapshot.error), view.width, view.glyphs)
    most = _MOST_STALE if view.height >= LOW else 1
    rows = [first, *more][: most - 1] + [" ".join([first, *more][most - 1 :])]
    return tuple(view.line([(row, "bad")]) for row in rows if row)


def _footer(app: App[V, S], view: V) -> tuple[Line, ...]:
    """Format the prompt or the screen's keys, and above them a message, which replaces them on a low screen.

    Where there is no message, further keys take its place.
    """
    width, glyphs, prompt = view.width, view.glyphs, app.screens[view.screen].prompt
    words = [[(key.shown.split()[0], "bold"), (f" {key.word}", "dim")] for key in keys_of(app, view) if key.word]
    first, *more = flow(words, width, 2, glyphs)
    last = first
    message: Piece = (view.safe(view.message), "warn")
    if prompt:
        hint = [message] if view.message else [piece for word in words for piece in (*word, ("  ", ""))]
        typed = last_cells(view.safe(view.typed), width // 2, glyphs)
        last = fit_line([(prompt, "bold"), (f"{typed}_   ", ""), *hint], width, glyphs)
        message, more = ("", ""), []
    if view.height >= LOW and more and not message[0]:
        return first, more[0]
    if view.height >= LOW:
        return fit_line([message], width, glyphs), last
    return (fit_line([message], width, glyphs),) if message[0] else (last,)


# ---------------------------------------------------------------- pages of text


def page(view: V, title: Sequence[Piece], body: Body) -> Frame[V]:
    """Draw a title, and below it the part of the body that fits, scrolled to at most its end."""
    glyphs, room = view.glyphs, max(1, view.height - 1)
    scroll = max(0, min(view.scroll, len(body) - room))
    more = len(body) - scroll - room
    hidden = f" ({plural(more, 'more line')} below)" if more > 0 else ""
    most = view.width - _RULE - cells(f" ({more} more" if more > 0 else "")  # the number of hidden lines always fits
    title = fit_line(title, min(most, sum(cells(text) for text, _ in title)), glyphs)
    shown = [view.line(pieces) for pieces in body[scroll : scroll + room]]
    lines = (rule([*title, (hidden, "dim")], view.width, glyphs), *fill(shown, view.width, room))
    return Frame(lines, replace(view, scroll=scroll, page=room))


def newest_first(view: V, noun: str, entries: Sequence[Body], none: str) -> Frame[V]:
    """Draw a page of entries, newest first; an entry may have several lines."""
    title: list[Piece] = [(plural(len(entries), noun), "bold"), (", newest first", "")]
    body = [line for entry in reversed(entries) for line in entry]
    return page(view, title, body or [[(none, "dim")]])


def wrapped(text: object, style: str, view: View, indent: str = "") -> list[list[Piece]]:
    """Wrap an untrusted text."""
    return [[(indent + line, style)] for line in wrap(view.safe(text), max(1, view.width - len(indent)), view.glyphs)]


def fact(
    name: str, text: object, view: View, name_style: str = "dim", *, style: str = "", least: int = LABEL
) -> list[list[Piece]]:
    """Format a name in at least so many cells, and beside it an untrusted text, wrapped."""
    indent = max(least, min(cells(name) + 1, view.width - _LEAST_TEXT))
    lines = wrap(view.safe(text), max(1, view.width - indent), view.glyphs)
    labels = [f"{fit(name, indent - 1, view.glyphs)} ", *[" " * indent] * (len(lines) - 1)]
    return [[(label, name_style), (line, style)] for label, line in zip(labels, lines, strict=True)]


def flowed(name: str, segments: Body, view: View, least: int = LABEL) -> list[Sequence[Piece]]:
    """Format a name in so many cells, and beside it segments, none of them broken, on as many lines as they need."""
    rows = flow(segments, max(1, view.width - least), len(segments), view.glyphs)
    return [[(fit("" if number else name, least, view.glyphs), "dim"), *row] for number, row in enumerate(rows)]


def question(view: V, title: str, body: Body) -> Frame[V]:
    """Draw a confirmation: the phrase to type, and below it what would be done."""
    ask = f"To confirm, type   {view.phrase}   and press Enter."
    lines = [ask] if len(ask) <= view.width else ["To confirm, type", f"  {view.phrase}", "and press Enter."]
    return page(view, [(title, "bad")], [*([(line, "bold")] for line in lines), *body])


# ---------------------------------------------------------------- help


def help_page(app: App[V, S], view: V) -> Frame[V]:
    """Draw what every key does, from the tables that `update` uses."""
    count = max(1, view.width // _HELP)
    its_view = replace(view, width=view.width // count - 2) if count > 1 else view
    sections: list[Body] = []
    for title, rows in (*_help_sections(app, view), *([("columns", app.notes)] if app.notes else [])):
        lines = [line for name, text in rows for line in fact(f"  {name}", text, its_view, "good")]
        sections.append([[(title, "bold")], *lines])
    columns = _packed(sections, count)
    beside = zip_longest(*columns, fillvalue=())
    return page(view, [("keys", "bold")], [_beside(each, its_view) for each in beside])


def _packed(sections: Sequence[Body], count: int) -> list[list[Sequence[Piece]]]:
    """Return at most `count` columns of whole sections, in their order and as low as possible."""
    height = max(map(len, sections))
    while True:
        columns: list[list[Sequence[Piece]]] = [[]]
        for section in sections:
            if columns[-1] and len(columns[-1]) + len(section) > height:
                columns.append([])
            columns[-1] += section
        if len(columns) <= count:
            return columns
        height += 1


def _beside(lines: Body, view: View) -> Sequence[Piece]:
    """Return lines of different columns, each as wide as the view, as one."""
    return [piece for line in lines for piece in (*view.line(line), ("  ", ""))]


def _help_sections(app: App[V, S], view: V) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the titles of the help with their (label, help) rows; no key is listed twice."""
    told = {"back"}
    for name, screen in app.screens.items():
        if screen.changes and view.read_only:
            continue
        keys = [key for key in keys_of(app, replace(view, screen=name)) if not _COMMON.issuperset(key.names)]
        rows = [(key.shown, key.help) for key in keys if key.help not in told]
        told.update(key.help for key in keys)
        rows += [("", screen.note)] if screen.note else []
        if rows and screen.section:
            yield screen.section, rows
        if name == "main":
            own = {key.shown: key.help for key in screen.keys if key.shown in ("r", "q")}
            common = [(shown, own.get(shown, text)) for shown, text in _COMMON_HELP]
            aliases = " ".join(app.aliases)
            yield (
                "on every screen",
                [*common, *([(aliases, "same as " + ", ".join(app.aliases.values()))] if aliases else [])],
            )
