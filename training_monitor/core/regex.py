"""Regular expressions that are compiled on first use: most programs that import a module need few of its patterns.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, AnyStr, cast


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
        from training_monitor.core.required_text import required_texts

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
