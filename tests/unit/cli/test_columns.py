"""The width of the terminal against that of the standard library."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import sys
import termios

import pytest

from training_monitor.cli.columns import terminal_columns


def both(piped: int) -> tuple[int, int]:
    return terminal_columns(piped), shutil.get_terminal_size((piped, 24)).columns


@pytest.mark.parametrize("given", ["120", "0", "-5", "wide", "", " 90 ", None])
def test_it_is_what_the_standard_library_says(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if given is not None:
        monkeypatch.setenv("COLUMNS", given)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "w"):
        for wide in (131, 0) if sys.version_info >= (3, 11) else (131,):  # 3.10 says 0 where there is no size
            fcntl.ioctl(terminal.fileno(), termios.TIOCSWINSZ, struct.pack("4H", 24, wide, 0, 0))
            monkeypatch.setattr("sys.__stdout__", terminal)
            assert len(set(both(77))) == 1
    for stdout in (terminal, None):  # closed by now, and none at all
        monkeypatch.setattr("sys.__stdout__", stdout)
        assert len(set(both(77))) == 1
