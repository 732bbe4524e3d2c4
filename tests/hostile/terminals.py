"""A program in a pseudo-terminal, and all that it wrote there: its modes, its sequences, its cells."""

from __future__ import annotations

import ctypes
import fcntl
import locale
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from tests.integration.screens import PATIENCE, ROOT

# What ncurses writes for TERM=xterm-256color, and the mouse: nothing else may begin with ESC.
OWN = re.compile(
    r"\x1b(?:\[(?:\?(?:1049|1000|1006|12|25|7|1)(?:;25)?[hl]|4[hl]|[\d;]{0,7}H|\d{0,3}[ABCDGJKLMPSTXb@d]|\d{1,3};\d{1,3}r|r"
    r"|(?:0|1|2|4|7|22|24|27|)(?:;(?:1|2|7))*m|2[23];0;0t)|\(B|[=>M78])"
)
MODE = re.compile(r"\x1b(?:\[\?([\d;]+)([hl])|([=>]))")
DEFAULT = {"1049": "l", "25": "h", "1000": "l", "1006": "l", "1": "l", "keypad": ">"}


class Terminal:
    """A process in a terminal of its own, without colours."""

    def __init__(
        self, *command: str, folder: Path, environ: dict[str, str], columns: int = 100, lines: int = 30
    ) -> None:
        self.output, self.columns, self.lines = b"", columns, lines
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        mode = termios.tcgetattr(slave)
        mode[3] |= termios.NOFLSH  # a terminal reads at once, and loses nothing when Ctrl-C is pressed
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        self.before = termios.tcgetattr(slave)
        self.status: int | None = None
        values = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **environ}
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(slave, number)
            os.chdir(folder)
            os.execve(command[0], command, {**os.environ, **values})
        self._slave = slave  # stays open, so that what the program leaves can be seen

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode("utf-8", "surrogateescape"))

    def read(self, seconds: float) -> bytes:
        """What is written until nothing has come for so long."""
        found = b""
        while select.select([self.master], [], [], seconds)[0]:
            found += os.read(self.master, 65536)
        self.output += found
        return found

    def shows(self, *texts: str) -> None:
        """Wait until all the texts have been written."""
        self.wait(lambda: all(text.encode() in self.output for text in texts))

    def wait(self, condition: object) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < end, self.output[-3000:]
            self.read(0.05)

    def ended(self) -> int:
        """Wait for the end and return the wait status."""
        self.wait(self._has_ended)
        self.read(0.1)
        assert self.status is not None
        return self.status

    def _has_ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def stopped(self, pid: int) -> None:
        """Wait until a process is stopped by a signal."""
        self.wait(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        self.read(0.1)

    def text(self) -> str:
        return self.output.decode("utf-8", "surrogateescape")

    def modes(self) -> dict[str, str]:
        """The modes as they are after all that was written."""
        found = dict(DEFAULT)
        for numbers, state, keypad in MODE.findall(self.text()):
            if keypad:
                found["keypad"] = keypad
            else:
                found |= {number: state for number in numbers.split(";") if number in found}
        return found

    def is_as_before(self) -> bool:
        return self.modes() == DEFAULT and termios.tcgetattr(self.master) == self.before

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._slave)
        os.close(self.master)


class Cells:
    """What a terminal would show: fails on a sequence that is not the kit's, and on a text beyond the last column."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines, self.row, self.column = columns, lines, 0, 0
        self.widest = 0
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        self._width = ctypes.CDLL(None).wcwidth

    def write(self, text: str) -> None:
        place = 0
        while place < len(text):
            if own := OWN.match(text, place):
                self._obey(own[0])
                place = own.end()
                continue
            char, place = text[place], place + 1
            if char == "\n":
                self.row = min(self.lines - 1, self.row + 1)
            elif char == "\r":
                self.column = 0
            elif char == "\b":
                self.column = max(0, self.column - 1)
            else:
                width = self._width(ord(char))
                assert width >= 0, repr(text[max(0, place - 60) : place + 20])
                self.column += width
                assert self.column <= self.columns, repr(text[max(0, place - 200) : place + 20])

    def _obey(self, sequence: str) -> None:
        numbers, last = (
            [int(number or 1) for number in sequence[2:-1].split(";") if number.isdigit() or not number],
            sequence[-1],
        )
        first = numbers[0] if numbers else 1
        if sequence[1] != "[" or "?" in sequence:
            return
        if last == "H":
            self.row, self.column = (first - 1, numbers[1] - 1 if len(numbers) > 1 else 0)
        elif last == "d":
            self.row = first - 1
        elif last == "G":
            self.column = first - 1
        elif last in "ABCD":
            self.row += {"A": -first, "B": first}.get(last, 0)
            self.column += {"C": first, "D": -first}.get(last, 0)
        elif last == "b":
            self.column += first
            assert self.column <= self.columns


def python(*words: str) -> tuple[str, ...]:
    return (sys.executable, *words)
