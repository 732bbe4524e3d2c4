"""The terminal in a pty: keys as they come, the mouse, and what is given back at the end."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.screens import PATIENCE, ROOT

CHILD = """
import os, signal, sys
from training_monitor.ui.kit.terminal import open_terminal

heard = open(sys.argv[1], "a", buffering=1)
print("before", flush=True)
with open_terminal() as terminal:
    heard.write("ready\\n")
    while (names := terminal.keys(1.0)) is not None:
        terminal.draw((((f"{names} shown", ""),),))
        heard.writelines(f"{name}\\n" for name in names)
        if "c" in names:
            raise ZeroDivisionError
        if "q" in names:
            break
    else:
        heard.write("gone\\n")
print("after", flush=True)
"""
MODES = re.compile(rb"\x1b\[\?100[06][hl]|before|after")
ON, OFF = [b"\x1b[?1000h", b"\x1b[?1006h"], [b"\x1b[?1006l", b"\x1b[?1000l"]


class Pty:
    """A process in a terminal of its own that opens the screen, and writes down the names of the keys it hears."""

    def __init__(self, folder: Path, *, term: str = "xterm-256color", run: str = "exec {}") -> None:
        self._heard, self.output = folder / "heard", b""
        command = [sys.executable, "-c", CHILD, str(self._heard)]
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            environ = {**os.environ, "TERM": term, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
            os.execve("/bin/sh", ["sh", "-c", run.format(shlex.join(command))], environ)

    def press(self, *pieces: bytes) -> None:
        for piece in pieces:
            os.write(self._master, piece)

    def heard(self) -> list[str]:
        return self._heard.read_text(encoding="utf-8").split("\n")[:-1] if self._heard.exists() else []

    def hears(self, *names: str) -> None:
        self.wait(lambda: self.heard()[-len(names) :] == [*names])

    def wait(self, condition: Callable[[], object]) -> None:
        """Take in what is written until something is so."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, (self.heard(), self.output)
            with suppress(OSError):  # nobody has the terminal any more
                if select.select([self._master], [], [], 0.01)[0]:
                    self.output += os.read(self._master, 65536)

    def modes(self) -> list[bytes]:
        """The mouse switched on and off, and what was printed outside the screen."""
        return MODES.findall(self.output)

    def hang_up(self) -> None:
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        os.close(self._master)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Pty]]:
    found: list[Pty] = []

    def start(**how: str) -> Pty:
        found.append(Pty(tmp_path, **how))
        found[-1].hears("ready")
        return found[-1]

    yield start
    for each in found:
        each.close()


def test_esc_is_answered_whatever_came_right_before_it(opened: Callable[..., Pty]) -> None:
    screen = opened()
    for _ in range(20):
        screen.press(b"?!", b"\x1b")
        screen.hears("?", "!", "escape")
        screen.press(b"j\x1b")
        screen.hears("j", "escape")
        screen.press(b"\x1b[B\x1b")
        screen.hears("down", "escape")


def test_what_was_pressed_is_drawn_while_more_is_typed(opened: Callable[..., Pty]) -> None:
    screen = opened()
    screen.press(*[b"k"] * 500, b"\x1b")
    screen.wait(lambda: b"escape'] shown" in screen.output)
    screen.wait(lambda: screen.heard() == ["ready", *["k"] * 500, "escape"])


def test_keys_that_come_at_once_are_told_one_by_one(opened: Callable[..., Pty]) -> None:
    screen = opened()
    screen.press("é😀\x1b[<65;3;4M\x1b[1;5C\x1b\x1bOA\x0c".encode())
    screen.hears("ready", "é", "😀", "wheel-down", "right", "escape", "up", "ctrl-l")


def test_garbage_keeps_no_key_waiting(opened: Callable[..., Pty]) -> None:
    screen = opened()
    screen.press(b"\x1b[<" + b"0;" * 1000 + b"Mj" + b"\xff" * 1000 + b"k\x1b[<0;")
    screen.hears("ready", "j", "k")
    screen.press(b"\x1b[B")
    screen.hears("k", "down")


def test_the_keys_of_the_terminals_own_kind_are_known(opened: Callable[..., Pty]) -> None:
    screen = opened(term="vt52")
    screen.press(b"\x1bA", b"\x1b[B", b"\x1bD")
    screen.hears("up", "down", "left")


def test_a_terminal_that_is_gone_ends_it(opened: Callable[..., Pty]) -> None:
    screen = opened(run="trap '' HUP; exec {}")
    screen.hang_up()
    screen.wait(lambda: screen.heard() == ["ready", "gone"])


@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
def test_the_mouse_is_switched_on_inside_the_screen_and_off_with_it(opened: Callable[..., Pty], term: str) -> None:
    screen = opened(term=term)
    screen.press(b"\x1b[<0;11;5M", b"\x1b[<0;11;5m", b"\x1b[<64;1;1M")
    screen.hears("click 10 4", "wheel-up")
    screen.press(b"q")
    screen.wait(lambda: b"after" in screen.output)
    assert screen.modes() == [b"before", *ON, *OFF, b"after"]


@pytest.mark.parametrize("term", ["vt100", "ansi"])
def test_without_a_mouse_nothing_is_said_of_it(opened: Callable[..., Pty], term: str) -> None:
    screen = opened(term=term)
    screen.press(b"\x1b[B", b"q")
    screen.wait(lambda: b"after" in screen.output)
    assert screen.modes() == [b"before", b"after"]
