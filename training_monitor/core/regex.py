"""Regular expressions that are compiled on first use: most programs that import a module need few of its patterns.

With all of them compiled at import, `from training_monitor import auto_restart` took 51 ms over a bare interpreter,
not 15. `re.search(TEXT, …)`, compiled on first use too, read most logs up to a fifth slower. Pure.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled on first use."""
    return cast("re.Pattern[AnyStr]", _Regex(pattern, flags))


class _Regex:
    """Stands in for a compiled pattern; a method once used is kept in its dictionary, as fast as the pattern's own."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)
        return value
