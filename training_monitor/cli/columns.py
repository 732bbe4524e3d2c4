"""The width of the terminal, without `shutil`, which brings three compressors along."""

from __future__ import annotations

import os
import sys


def terminal_columns(piped: int = 80) -> int:
    """Return COLUMNS, or the width of the terminal that stdout is, or `piped`; as `shutil.get_terminal_size` does."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):  # it is None, closed or no terminal
            columns = 0
    return columns or piped
