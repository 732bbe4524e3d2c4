"""Find the line of a value in a settings file, with one scanner for TOML and JSON. Pure.

It runs on text that a parser has already read or refused: it never raises, and its time is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from training_monitor.core.regex import regex
from training_monitor.core.settings_table import Path

_Tokens: TypeAlias = Iterator["tuple[int, str]"]

_OFF = -1
# An unclosed string ends with its line or with the text: no backtracking.
_TOKEN = regex(
    r'''
      """ (?: [^"\\] | \\.? | "(?!"") )* (?: """ )?
    | \'\'\' (?: [^'] | '(?!\'\') )* (?: \'\'\' )?
    | " (?: [^"\\\n] | \\[^\n]? )* "?
    | ' [^'\n]* '?
    | \#[^\n]*
    | [\n\[\]{},=.]
    | [^\s\[\]{},=."'\#]+
    ''',
    re.VERBOSE | re.DOTALL,
)


def find_line(text: str, path: Sequence[str | int], *, toml: bool) -> int | None:
    """Find the line of a key, a table or a list element.

    Args:
        text: of the whole file.
        path: keys, and indices of lists and of arrays of tables, from the top of the file.
        toml: whether the text is TOML; else it is JSON.

    Returns:
        The line number, from 1; if the path does not exist, that of its nearest existing parent. None if that is the
        whole file.
    """
    search, tokens = _Search(tuple(path), last_wins=not toml), _tokens(text)
    if toml:
        _follow_toml(tokens, search)
    else:
        _follow_value(tokens, search, 0, to_end_of_line=False)
    return search.line


class _Search:
    """How much of a path was found so far, and on which line.

    A place is the number of leading path keys that lead to it, or _OFF when it is not on the path. Of duplicate keys,
    JSON uses the last; TOML names a table in the header of each of its parts, and the first gives its line.
    """

    def __init__(self, path: Path, *, last_wins: bool) -> None:
        self.path, self.last_wins, self.depth = path, last_wins, 0
        self.line: int | None = None

    def step(self, place: int, key: str | int, line: int) -> int:
        """Return the place of a key within a place."""
        if not 0 <= place < len(self.path) or type(key) is not type(self.path[place]) or key != self.path[place]:
            return _OFF
        if place + 1 > self.depth or self.last_wins:
            self.depth, self.line = place + 1, line
        return place + 1


def _tokens(text: str) -> _Tokens:
    """Yield each token with its line, without comments."""
    line = 1
    for found in _TOKEN.finditer(text):
        token = found[0]
        if not token.startswith("#"):
            yield line, token
        line += token.count("\n")


def _follow_toml(tokens: _Tokens, search: _Search) -> None:
    table, key, counts = 0, list[str](), dict[int, int]()
    for line, token in tokens:
        if token == "\n":
            key = []
        elif token == "[" and not key:
            table = _follow_header(tokens, search, line, counts)
        elif token == "=":
            place = table
            for word in key:
                place = search.step(place, word, line)
            _follow_value(tokens, search, place, to_end_of_line=True)
            key = []
        elif token != ".":
            key.append(_word(token))


def _follow_header(tokens: _Tokens, search: _Search, line: int, counts: dict[int, int]) -> int:
    """Return the place of the table that `[a.b]` or `[[a.b]]` opens; `counts` has the newest index of each array."""
    words, is_array = list[str](), False
    for _, token in tokens:
        if token == "\n":
            break
        is_array = is_array or token == "["
        if token not in ("[", "]", "."):
            words.append(_word(token))
    place = 0
    for left, word in zip(range(len(words), 0, -1), words):
        place = search.step(place, word, line)
        if place == _OFF:
            break
        if left == 1 and is_array:
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = search.step(place, counts[place], line)
    return place


def _follow_value(tokens: _Tokens, search: _Search, base: int, *, to_end_of_line: bool) -> None:
    """Follow one value at place `base`, to the end of its line (never within brackets) or of the text."""
    places, indices, at_key, place = list[int](), list[int | None](), False, base
    for line, token in tokens:
        if token == "\n":
            if to_end_of_line and not places:
                return
        elif token in ("}", "]"):
            if places:
                place, at_key = places.pop(), False
                indices.pop()
        elif token == ",":
            at_key = True
        else:
            if at_key and places:
                index = indices[-1]
                if index is not None:
                    indices[-1] = index = index + 1
                place = search.step(places[-1], _word(token) if index is None else index, line)
                at_key = False
            if token in ("[", "{"):
                places.append(place)
                indices.append(-1 if token == "[" else None)
                at_key = True


def _word(token: str) -> str:
    """Return a key without its quotes."""
    if not token.startswith(('"', "'")):
        return token
    if token.startswith('"'):
        try:
            return str(json.loads(token, strict=False))
        except ValueError:
            pass
    return token[1:-1]
