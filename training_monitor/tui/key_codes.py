"""From the bytes that a terminal sends to the names of the keys that were pressed. Pure.

A character is its own name. Other keys are up, down, left, right, home, end, page-up, page-down, enter, tab, shift-tab,
backspace, insert, escape, and ctrl-a to ctrl-z where that is no other key; with Shift, Alt or Ctrl they are the same
keys. The mouse is "click X Y", "wheel-up" and "wheel-down". All else means nothing and has no name.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

_ESCAPE = 0x1B
_LONGEST = 32  # bytes of an unfinished sequence that are kept: more than any that means something
_NOTHING_KNOWN: Mapping[bytes, str] = {}

_BYTES = {
    **{number: f"ctrl-{chr(number + 0x60)}" for number in range(1, 27)},
    **{number: chr(number) for number in range(0x20, 0x7F)},
    0x08: "backspace",
    0x09: "tab",
    0x0A: "enter",
    0x0D: "enter",
    0x7F: "backspace",
}
_LETTERS = {  # the last byte after ESC [ or ESC O
    b"A": "up",
    b"B": "down",
    b"C": "right",
    b"D": "left",
    b"F": "end",
    b"H": "home",
    b"M": "enter",
    b"Z": "shift-tab",
}
_NUMBERS = {  # between ESC [ and ~
    b"1": "home",
    b"2": "insert",
    b"3": "backspace",
    b"4": "end",
    b"5": "page-up",
    b"6": "page-down",
    b"7": "home",
    b"8": "end",
}
_BUTTONS = {64: "wheel-up", 65: "wheel-down"}
_HELD = 4 | 8 | 16  # Shift, Alt and Ctrl in the number of a button

# A mouse that says where it is by three raw bytes, a function key of the Linux console, and what all others send.
_WHOLE = re.compile(rb"\x1b(?:\[M[ -\xff]{3}|\[\[[@-~]|(?:O|\[(?![M\[]))([ -?]*)([@-~]))")
_BEGUN = re.compile(rb"\x1b(?:\[M[ -\xff]{0,2}|\[\[|[O\[][ -?]*)?")
_NUMBER = re.compile(rb"(\d{0,2})(?:;\d{1,3})?")  # and what is held with the key
_MOUSE = re.compile(rb"<(\d{1,3});(\d{1,5});(\d{1,5})")
_NOT_ASCII = re.compile(rb"[\x80-\xff]+")


def decode_keys(data: bytes, *, is_over: bool, known: Mapping[bytes, str] = _NOTHING_KNOWN) -> tuple[list[str], bytes]:
    """Name the keys in what was read from a terminal.

    Args:
        data: what was left the last time, and what was read since.
        is_over: nothing more came in time: an unfinished sequence is told as what it is, or swallowed.
        known: sequences of this terminal, each beginning with ESC, and their names; they go before all others.

    Returns:
        The names, in order, and the rest that may be the beginning of a longer sequence or character: at most 32 bytes,
        and none when `is_over`.
    """
    names: list[str] = []
    place = 0
    while place < len(data):
        if data[place] == _ESCAPE:
            found, end = _sequence(data, place, is_over, known)
        elif data[place] >= 0x80:
            found, end = _characters(data, place, is_over)
        else:
            name = _BYTES.get(data[place])
            found, end = [] if name is None else [name], place + 1
        names += found
        if end == place:
            return names, data[place : place + _LONGEST]
        place = end
    return names, b""


def _sequence(data: bytes, place: int, is_over: bool, known: Mapping[bytes, str]) -> tuple[list[str], int]:
    """The keys of the sequence that begins at a place, and where it ends; the same place when more may come."""
    for sequence, name in known.items():
        if data.startswith(sequence, place):
            return [name], place + len(sequence)
    if whole := _WHOLE.match(data, place):
        return _meaning(whole[1] or b"", whole[2] or b""), whole.end()
    end = _end(_BEGUN, data, place)
    rest = data[place : place + _LONGEST]
    if not is_over and (end == len(data) or any(sequence.startswith(rest) for sequence in known)):
        return [], place
    return _unfinished(data[place:end]), end


def _unfinished(sequence: bytes) -> list[str]:
    """Esc, or Esc and the key after it; what is longer nobody typed."""
    return ["escape", *sequence[1:].decode()] if len(sequence) <= 2 else []


def _meaning(parameters: bytes, last: bytes) -> list[str]:
    if mouse := _MOUSE.fullmatch(parameters):
        button, column, line = (int(number) for number in mouse.groups())
        return _mouse(button & ~_HELD, column - 1, line - 1) if last == b"M" else []
    number = _NUMBER.fullmatch(parameters)
    if number is None:
        return []
    name = _NUMBERS.get(number[1]) if last == b"~" else _LETTERS.get(last)
    return [] if name is None else [name]


def _mouse(button: int, column: int, line: int) -> list[str]:
    if button == 0 and min(column, line) >= 0:
        return [f"click {column} {line}"]
    return [_BUTTONS[button]] if button in _BUTTONS else []


def _characters(data: bytes, place: int, is_over: bool) -> tuple[list[str], int]:
    """The characters of UTF-8 from a place on, and where they end; broken ones are dropped."""
    end = _end(_NOT_ASCII, data, place)
    text, length = codecs.utf_8_decode(data[place:end], "ignore", is_over or end < len(data))
    return [*text], place + length


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    found = pattern.match(data, place)
    return place if found is None else found.end()
