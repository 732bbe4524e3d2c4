"""Regular expressions that are compiled on first use: most programs that import a module need few of its patterns.

A pattern is tried at each character of a text; a plain text is found ten times as fast. Where none of a pattern's
required texts is found, it has no match. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, AnyStr, cast

_TOKEN = (
    r"(?P<some>[\w ]+(?![*+?{]))|(?P<group>\((?!\?)|\(\?:|\(\?P<\w+>)|(?P<other>\(\?)|(?P<end>\))|(?P<or>\|)"
    r"|(?P<often>\+\??|\{[1-9]\d*(?:,\d*)?\}\??)|(?P<maybe>[*?]\??|\{\d*,?\d*\}\??)|(?P<edge>[\^$]|\\[bBAZ])"
    r"|(?P<any>\[\^?\]?(?:\\.|[^\]\\])*\]|\\x..|\\u....|\\[a-zA-Z0-9]|\.)|\\?(?P<one>.)"
)
_INLINE_FLAGS = r"\(\?[aiLmsux]+\)"
_LONG = 4  # characters of a text that is rare enough


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, or rather what becomes that when it is first used."""
    return cast("re.Pattern[AnyStr]", _Regex(pattern, flags))


class _Regex:
    """Stands in for a compiled pattern; a method once used is kept in its dictionary, as fast as the pattern's own.

    A text without any of the texts that the pattern requires is not searched; before there is another one, the pattern
    is not even compiled.
    """

    def __init__(self, pattern: Any, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        finds = name in ("search", "match", "finditer") and isinstance(self.pattern, str)
        if finds and (required := required_texts(self.pattern, self._flags)):
            method = self._where(required, name)
        else:
            method = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, method)
        return method

    def _where(self, required: tuple[str, ...], name: str) -> Callable[..., Any]:
        """Return the method for texts that contain one of the required ones."""
        ignores_case, method = self._flags & re.IGNORECASE, None

        def find(text: str, *bounds: int) -> Any:
            nonlocal method
            if not ignores_case:
                may_match = any(map(text.__contains__, required))
            else:  # outside ASCII, a pattern takes more letters for the same than `lower` does
                may_match = not text.isascii() or any(map(text.lower().__contains__, required))
            if not may_match:
                return iter(()) if name == "finditer" else None
            method = method or getattr(re.compile(self.pattern, self._flags), name)
            return method(text, *bounds)

        return find


def required_texts(pattern: str, flags: int) -> tuple[str, ...]:
    """Return texts of which every match contains one, in lower case if the pattern ignores case; empty if unknown."""
    ignores_case = flags & re.IGNORECASE
    if flags & re.VERBOSE or re.match(_INLINE_FLAGS, pattern) or (ignores_case and not pattern.isascii()):
        return ()
    found = _of_group(re.finditer(_TOKEN, f"{pattern})", re.DOTALL))
    return tuple(sorted({text.lower() for text in found} if ignores_case else found))


def _of_group(tokens: Iterator[re.Match[str]]) -> frozenset[str]:
    """Read a group up to its end: one of the texts of each alternative."""
    found, required, text = list[frozenset[str]](), list[frozenset[str]](), ""
    kind: str | None = None
    for token in tokens:
        before, kind = kind, token.lastgroup
        if kind in ("one", "some"):
            text += token[kind]
        elif kind in ("often", "maybe") and before == "one":
            required.append(frozenset({text if kind == "often" else text[:-1]}))
            text = ""
        elif kind == "maybe" and before == "group":
            required.pop()
        elif kind != "edge":
            required.append(frozenset({text}))
            text = ""
        if kind == "group":
            required.append(_of_group(tokens))
        elif kind == "other":
            _of_group(tokens)
        elif kind in ("or", "end"):
            found.append(_rarest(required))
            required = []
        if kind == "end":
            break
    return frozenset().union(*found) if all(found) else frozenset()


def _rarest(required: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the texts that a line is least likely to contain; empty if it is likely to."""
    rare = [texts for texts in required if texts and all(text.strip() and _is_rare(text) for text in texts)]
    return max(rare, key=lambda texts: (min(_LONG, *map(len, texts)), -len(texts)), default=frozenset())


def _is_rare(text: str) -> bool:
    return len(text) > 1 or not text.isalnum()
