"""Regular expressions that are compiled on first use: most programs that import a module need few of its patterns.

Pure.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn")


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, or rather what becomes that when it is first used."""
    return cast("re.Pattern[AnyStr]", _Regex(pattern, flags))


class _Regex:
    """Stands in for a compiled pattern; a used one answers from its own dictionary, as fast as the pattern itself."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)


# Colours, moves of the cursor and titles (ECMA-48: CSI and OSC); a title without an end takes no more than this with it
TERMINAL_SEQUENCE = regex(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)?)")
