"""Text in cells of a terminal: what comes from outside made harmless, cut and filled to a width. Pure.

A line is a row of (text, style) pieces. Styles are names: good, warn, bad, dim, bold, selected, title, or "" for none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from training_monitor.units import plural

Piece = tuple[str, str]
Line = tuple[Piece, ...]

MOST_CHARACTERS = 1000  # of one text from outside that are looked at
_RULE = 5  # cells of a rule before its title, of the blank after it, and of the sign that it was cut
_MOST_MARKS = 2  # accents over one character
_CONTROLS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
# What only changes how the character before it looks, and on which terminals disagree.
_JOINERS = re.compile("[\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
_FIRST_FLAG_LETTER, _LAST_FLAG_LETTER = 0x1F1E6, 0x1F1FF
_HARMFUL = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs a screen draws with. `bar` goes from an empty cell to a full one; `signs` are for statuses."""

    ascii: bool
    bar: str
    rule: str
    ellipsis: str
    rising: str
    falling: str
    signs: Mapping[str, str] = field(default_factory=dict)


_SIGNS = {
    "running": "✅",
    "loading": "🔄",
    "created": "⏳",
    "pending": "⏳",
    "exited": "❌",
    "failed": "❌",
    "stopped": "🛑",
    "frozen": "🧊",
    "rebooting": "🔁",
    "offline": "🔌",
    "lost": "🚫",
    "succeeded": "🏁",
}
UNKNOWN_SIGN = "❓"
UNICODE = Glyphs(False, "░▏▎▍▌▋▊▉█", "─", "…", "▲", "▼", _SIGNS)
ASCII = Glyphs(True, ".#", "-", "~", "^", "v")


# ---------------------------------------------------------------- what comes from outside


def safe(text: object, glyphs: Glyphs) -> str:
    """One line of printable text: no control characters, no bidi marks, nothing that terminals measure differently.

    A character that could do harm becomes a question mark; with ASCII glyphs all that is not ASCII does.
    """
    text = str(text)[:MOST_CHARACTERS]
    if text.isascii() and text.isprintable():
        return text
    text = _JOINERS.sub("", _CONTROLS.sub("", text))
    if glyphs.ascii:
        kept = (char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
        return "".join(_shown(char) if char.isascii() else "?" for char in kept)
    return _with_few_marks(map(_shown, unicodedata.normalize("NFC", text)))


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    if char in "\t\n\r\v\f":
        return " "
    if _FIRST_FLAG_LETTER <= ord(char) <= _LAST_FLAG_LETTER:
        return chr(ord("A") + ord(char) - _FIRST_FLAG_LETTER)
    is_part_of_a_syllable = 0x1160 <= ord(char) <= 0x11FF
    return "?" if is_part_of_a_syllable or unicodedata.category(char) in _HARMFUL else char


def _with_few_marks(chars: Iterable[str]) -> str:
    kept: list[str] = []
    marks = _MOST_MARKS  # a text that begins with one has nothing to put it on
    for char in chars:
        marks = marks + 1 if _cells(char) == 0 else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)


# ---------------------------------------------------------------- widths


@lru_cache(maxsize=4096)
def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def clip(text: str, width: int, glyphs: Glyphs) -> str:
    """The text, cut to at most `width` cells; what was cut ends with an ellipsis."""
    if cells(text) <= width:
        return text
    if width < 2:
        return glyphs.ellipsis[:width]
    return _begin(text, width - 1) + glyphs.ellipsis


def _begin(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    taken = 0
    for place, char in enumerate(text):
        taken += _cells(char)
        if taken > width:
            return text[:place]
    return text


def last_cells(text: str, width: int, glyphs: Glyphs) -> str:
    """The end of a text: of a path it says more than the beginning, and of what is typed it is where one types."""
    if cells(text) <= width:
        return text
    place, left = len(text), width - 1
    while place and cells(text[place - 1]) <= left:
        place -= 1
        left -= cells(text[place])
    while place < len(text) and cells(text[place]) == 0:  # an accent whose letter was cut away
        place += 1
    return glyphs.ellipsis + text[place:]


def fit(text: str, width: int, glyphs: Glyphs, align: str = "<") -> str:
    """The text in exactly `width` cells; `align` is < or >."""
    text = clip(text, width, glyphs)
    blank = " " * (width - cells(text))
    return blank + text if align == ">" else text + blank


def fit_line(pieces: Iterable[Piece], width: int, glyphs: Glyphs, style: str = "") -> Line:
    """The pieces cut and filled to exactly `width` cells; `style` is that of the filling."""
    line: list[Piece] = []
    left = width
    for text, its_style in pieces:
        shown = clip(text, left, glyphs)
        if shown:
            line.append((shown, its_style))
            left -= cells(shown)
        if left <= 0 or shown != text:
            break
    return (*line, (" " * left, style)) if left > 0 else tuple(line)


def flow(
    segments: Sequence[Sequence[Piece]], width: int, height: int, glyphs: Glyphs, gap: str = "  "
) -> tuple[Line, ...]:
    """Segments after one another over at most `height` lines, none broken; those that find no room are left out."""
    rows: list[list[Piece]] = [[]]
    left = width
    for segment in segments:
        needed = sum(cells(text) for text, _ in segment) + (len(gap) if rows[-1] else 0)
        if needed > left and rows[-1]:
            if len(rows) == height:
                break
            rows.append([])
            left, needed = width, needed - len(gap)
        rows[-1] += [*([(gap, "")] if rows[-1] else []), *segment]
        left -= needed
    return tuple(fit_line(row, width, glyphs) for row in rows[:height])


def wrap(text: str, width: int, glyphs: Glyphs) -> list[str]:
    """The text broken at spaces into lines of at most `width` cells; at least one line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= width:
            lines[-1] = joined
        else:
            lines += [clip(word, width, glyphs)] if lines[-1] else []
            lines[-1] = clip(word, width, glyphs)
    return lines


def broken(text: str, width: int) -> Sequence[str]:
    """The text in pieces of at most `width` cells; at least one."""
    rows, taken = [""], 0
    for char in text:
        taken += cells(char)
        if taken > width:
            rows.append("")
            taken = cells(char)
        rows[-1] += char
    return rows


def rule(title: Sequence[Piece], width: int, glyphs: Glyphs) -> Line:
    """The line above a panel, with its title in it."""
    pieces = [(glyphs.rule * 2 + " ", "dim"), *title, (" ", "")]
    taken = sum(cells(text) for text, _ in pieces)
    return fit_line([*pieces, (glyphs.rule * max(0, width - taken), "dim")], width, glyphs)


def format_bar(percent: float | None, width: int, glyphs: Glyphs) -> str:
    """A progress bar of `width` cells; blank while nobody knows."""
    if percent is None or percent != percent:
        return " " * width
    steps = len(glyphs.bar) - 1
    done = int(max(0.0, min(100.0, percent)) / 100.0 * width * steps)
    full, part = divmod(done, steps)
    return (glyphs.bar[-1] * full + (glyphs.bar[part] if part else "")).ljust(width, glyphs.bar[0])


def panel(
    title: Sequence[Piece], body: Sequence[Sequence[Piece]], scroll: int, size: tuple[int, int], glyphs: Glyphs
) -> tuple[tuple[Line, ...], int]:
    """A title and below it as much of the body as fits, from line `scroll` on; `size` is (width, lines of the body).

    Returns:
        The lines, blank ones after the end of the body, and what was scrolled: no further than to the end.
    """
    width, room = size
    scroll = max(0, min(scroll, len(body) - room))
    more = len(body) - scroll - room
    hidden = f" ({plural(more, 'more line')} below)" if more > 0 else ""
    most = width - _RULE - cells(f" ({more} more" if more > 0 else "")  # how many more there are is always seen
    shown = [fit_line(pieces, width, glyphs) for pieces in body[scroll : scroll + room]]
    blank = [fit_line([], width, glyphs)] * (room - len(shown))
    title = fit_line(title, min(most, sum(cells(text) for text, _ in title)), glyphs)
    return (rule([*title, (hidden, "dim")], width, glyphs), *shown, *blank), scroll
