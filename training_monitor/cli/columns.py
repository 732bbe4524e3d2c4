"""The width of the terminal."""

from __future__ import annotations


def terminal_columns(piped: int = 80) -> int:
    """Return COLUMNS, or the width of the terminal that stdout is; `piped` without one, or without a size."""
    import shutil  # few commands print columns, and it brings what packs files

    return shutil.get_terminal_size((piped, 24)).columns or piped  # Python 3.10 may say 0
