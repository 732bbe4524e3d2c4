"""Text in terminal cells: sanitize untrusted text, cut and pad it to a width, format short numbers. Pure.

A line is a tuple of (text, style) pieces. Styles are names: good, warn, bad, dim, bold, selected, title, or "" for
none. `-` stands for an unknown number.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import TypeVar

from training_monitor.core.regex import regex
from training_monitor.core.shown import shown
from training_monitor.core.units import format_bytes, format_duration, format_local, known_number

T = TypeVar("T")

NOT_KNOWN = "-"
UNKNOWN_WORD = "?"
_LOSS_WIDTH = 6
Piece = tuple[str, str]
Line = tuple[Piece, ...]

MOST_CHARACTERS = 1000  # of one untrusted text; the rest is dropped
# Characters to which terminals give different widths: signs made emojis, skin tones, flags; and numbers in circles,
# hexagrams, and the parts of syllables that remain when a text is composed.
_MODIFIERS = regex("[\ufe0f\U0001f3fb-\U0001f3ff]")
_FLAGS = {0x1F1E6 + number: chr(ord("A") + number) for number in range(26)}
_OF_UNSURE_WIDTH = regex("[\u1160-\u11ff\u3248-\u324f\u4dc0-\u4dff\ud7b0-\ud7ff]")
_SIGNED = "running loading created pending starting exited failed stopped frozen rebooting offline lost"
_SIGNED += " succeeded finished stalled slow suspended"
_SIGNS = dict(zip(_SIGNED.split(), "✅🔄⏳⏳⏳❌❌🛑🧊🔁🔌🚫🏁🏁🔴🟡🟡", strict=True))
UNKNOWN_SIGN = "❓"


def format_whole(value: object) -> str:
    """Format a number without decimals."""
    number = known_number(value)
    return NOT_KNOWN if number is None else f"{number:.0f}"


def format_seconds(seconds: float | None) -> str:
    """Format a duration."""
    return NOT_KNOWN if seconds is None or not 0 <= seconds < float("inf") else format_duration(seconds)


def format_percent(value: float | None) -> str:
    """Format per cent: 85.2, 100."""
    if value is None:
        return NOT_KNOWN
    return f"{value:.0f}" if value != value or abs(value) >= 99.95 else f"{value:.1f}"


def format_number(value: float | None) -> str:
    """Format a number in about six characters: 2.345, 0.0123, 1.2e-5, nan."""
    if value is None:
        return NOT_KNOWN
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 10**_LOSS_WIDTH:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    texts = (f"{value:.{decimals}f}" for decimals in ((3, 2, 1, 0) if abs(value) >= 1 else (4, 3)))
    return next((text for text in texts if len(text) <= _LOSS_WIDTH), f"{value:.0f}")


def format_short(value: float) -> str:
    """Format a number that is at least 0 with about three digits: 0.023, 4.10, 39.3, 512."""
    if value == 0 or value >= 10**_LOSS_WIDTH or not isfinite(value):
        return format_number(value)
    decimals = 3 if value < 0.0995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def format_price(dollars: float | None) -> str:
    """Format a price per hour: $0.467, $12.35, $123."""
    if dollars is None:
        return NOT_KNOWN
    return f"${dollars:.3f}" if dollars < 10 else f"${dollars:.2f}" if dollars < 100 else f"${dollars:.0f}"


def format_total(dollars: float | None) -> str:
    """Format a sum: $15.23, $152.3, $1523."""
    if dollars is None:
        return NOT_KNOWN
    return f"${dollars:.2f}" if dollars < 100 else f"${dollars:.1f}" if dollars < 1000 else f"${dollars:.0f}"


def format_memory(count: float | None, unit: float = 1) -> str:
    """Format `count` units of `unit` bytes: 4.0 GiB."""
    known = known_number(count)
    return NOT_KNOWN if known is None else format_bytes(known * unit)


def format_age(seconds: float | None) -> str:
    """Format an age in whole units: 3s, 12m, 5h, 2d; ? if unknown."""
    if seconds is None or not isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def format_clock(timestamp: float | None) -> str:
    """Format the local time of day, HH:MM:SS."""
    return format_local(timestamp, "%H:%M:%S")


def format_moment(timestamp: float | None, now: float) -> str:
    """Format the local time of day, of another day than today the date and the minute."""
    is_today = format_local(timestamp, "%Y-%m-%d") == format_local(now, "%Y-%m-%d")
    return format_local(timestamp, "%H:%M:%S" if is_today else "%m-%d %H:%M")


def format_date(timestamp: float | None) -> str:
    """Format the local date and time, 2026-03-01 12:30."""
    return format_local(timestamp, "%Y-%m-%d %H:%M")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters a screen draws with. `bar` goes from an empty cell to a full one; `signs` are for statuses."""

    ascii: bool
    bar: str
    rule: str
    ellipsis: str
    rising: str
    falling: str
    signs: Mapping[str, str] = field(default_factory=dict)


UNICODE = Glyphs(False, "░▏▎▍▌▋▊▉█", "─", "…", "▲", "▼", _SIGNS)
ASCII = Glyphs(True, ".#", "-", "~", "^", "v")


# ---------------------------------------------------------------- untrusted text


def safe(text: object, glyphs: Glyphs) -> str:
    """Return what is shown of a text, on one line, with question marks for characters of unsure width.

    With ASCII glyphs every non-ASCII character becomes one.
    """
    plain = shown(str(text)[:MOST_CHARACTERS])
    if plain.isascii():
        return plain
    if glyphs.ascii:
        kept = (char for char in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(char))
        return "".join(char if char.isascii() else "?" for char in kept)
    composed = unicodedata.normalize("NFC", _MODIFIERS.sub("", plain)).translate(_FLAGS)
    return _OF_UNSURE_WIDTH.sub("?", composed)


# ---------------------------------------------------------------- widths


@lru_cache(maxsize=4096)
def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """Return how many cells of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def clip(text: str, width: int, glyphs: Glyphs) -> str:
    """Cut the text to at most `width` cells, with an ellipsis where it was cut."""
    if cells(text) <= width:
        return text
    if width < 2:
        return glyphs.ellipsis[:width]
    return begin(text, width - 1) + glyphs.ellipsis


def clip_middle(text: str, width: int, glyphs: Glyphs) -> str:
    """Cut the text to at most `width` cells in its middle: names that begin alike often differ in their ends."""
    if cells(text) <= width or width < 3:
        return clip(text, width, glyphs)
    first = begin(text, (width - 1) // 2)
    return first + last_cells(text, width - cells(first), glyphs)


def begin(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most `width` cells."""
    if text.isascii():
        return text[:width]
    taken = 0
    for place, char in enumerate(text):
        taken += _cells(char)
        if taken > width:
            return text[:place]
    return text


def last_cells(text: str, width: int, glyphs: Glyphs) -> str:
    """Return the end of a text, for paths (their end matters more) and for text being typed."""
    if cells(text) <= width:
        return text
    place, left = len(text), width - 1
    while place and cells(text[place - 1]) <= left:
        place -= 1
        left -= cells(text[place])
    while place < len(text) and cells(text[place]) == 0:  # a combining mark whose character was cut
        place += 1
    return glyphs.ellipsis + text[place:]


def fit(text: str, width: int, glyphs: Glyphs, align: str = "<") -> str:
    """Cut or pad the text to exactly `width` cells; `align` is < or >."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width) if align == ">" else text.ljust(width)
    text = clip(text, width, glyphs)
    blank = " " * (width - cells(text))
    return blank + text if align == ">" else text + blank


def fit_line(pieces: Iterable[Piece], width: int, glyphs: Glyphs, style: str = "") -> Line:
    """Cut or pad the pieces to exactly `width` cells; `style` is that of the padding."""
    line: list[Piece] = []
    left = width
    for piece in pieces:
        text, its_style = piece
        size = cells(text)
        if size > left:
            shown = clip(text, left, glyphs)
            line += [(shown, its_style)] if shown else []
            left -= cells(shown)
            break
        if text:
            line.append(piece)
            left -= size
            if left <= 0:
                break
    return (*line, (" " * left, style)) if left > 0 else tuple(line)


def fill(lines: Iterable[Line], width: int, height: int) -> tuple[Line, ...]:
    """Append blank lines up to `height`."""
    shown, blank = tuple(lines), ((" " * width, ""),)
    return (*shown, *[blank] * (height - len(shown)))


def flow(
    segments: Sequence[Sequence[Piece]], width: int, height: int, glyphs: Glyphs, gap: str = "  "
) -> tuple[Line, ...]:
    """Lay out segments on at most `height` lines without breaking them; those that do not fit are dropped."""
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
    """Wrap the text to lines of at most `width` cells, at least one; long words are broken."""
    lines = [""]
    for part in (part for word in text.split(" ") for part in broken(word, width)):
        joined = f"{lines[-1]} {part}" if lines[-1] else clip(part, width, glyphs)
        if cells(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(clip(part, width, glyphs))
    return lines


def broken(text: str, width: int) -> Sequence[str]:
    """Split the text into pieces of at most `width` cells; at least one."""
    rows, taken = [""], 0
    for char in text:
        taken += cells(char)
        if taken > width:
            rows.append("")
            taken = cells(char)
        rows[-1] += char
    return rows


def gain(before: Sequence[T], now: Sequence[T]) -> Sequence[T]:
    """Return the lines of `now` after those of `before`, both windows of the same text."""
    for overlap in range(min(len(before), len(now)), 0, -1):
        if before[-overlap:] == now[:overlap]:
            return now[overlap:]
    return now


def rule(title: Sequence[Piece], width: int, glyphs: Glyphs) -> Line:
    """Format the line above a panel, with its title in it."""
    pieces = [(glyphs.rule * 2 + " ", "dim"), *title, (" ", "")]
    taken = sum(cells(text) for text, _ in pieces)
    return fit_line([*pieces, (glyphs.rule * max(0, width - taken), "dim")], width, glyphs)


def format_bar(percent: float | None, width: int, glyphs: Glyphs) -> str:
    """Format a progress bar of `width` cells; blank if unknown."""
    if percent is None or percent != percent:
        return " " * width
    steps = len(glyphs.bar) - 1
    done = int(max(0.0, min(100.0, percent)) / 100.0 * width * steps)
    full, part = divmod(done, steps)
    return (glyphs.bar[-1] * full + (glyphs.bar[part] if part else "")).ljust(width, glyphs.bar[0])
