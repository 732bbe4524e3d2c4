"""The terminal: takes it over, draws what changed, reads keys, and gives it back whatever happens."""

from __future__ import annotations

import curses
import locale
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from training_monitor.errors import TrainingMonitorError
from training_monitor.tui.text import ASCII, UNICODE, Glyphs, Line, cells

_ESCAPE_MILLISECONDS = 25
_GATHER_SECONDS = 0.2  # many changes within this time are drawn at once
_FALLBACK_SIZE = (80, 24)

_NAMES: Mapping[int | str, str] = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right",
    curses.KEY_PPAGE: "page-up",
    curses.KEY_NPAGE: "page-down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BTAB: "shift-tab",
    curses.KEY_BACKSPACE: "backspace",
    curses.KEY_DC: "backspace",
    "\n": "enter",
    "\r": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x0c": "ctrl-l",
    "\x15": "ctrl-u",
}
# What follows ESC [ or ESC O where a terminal sends other keys than its terminfo entry says.
_SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "F": "end",
    "H": "home",
    "M": "enter",
    "Z": "shift-tab",
    "1~": "home",
    "4~": "end",
    "5~": "page-up",
    "6~": "page-down",
    "7~": "home",
    "8~": "end",
}
_PLAIN = {
    "dim": "A_DIM",
    "warn": "A_BOLD",
    "bad": "A_BOLD",
    "bold": "A_BOLD",
    "selected": "A_REVERSE",
    "title": "A_REVERSE",
}
_COLOURS = {"good": curses.COLOR_GREEN, "warn": curses.COLOR_YELLOW, "bad": curses.COLOR_RED}


def choose_glyphs(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """ASCII where the locale is not UTF-8 or TRAINING_MONITOR_ASCII is set; 0 there means Unicode.

    Args:
        environ: the environment.
        encoding: what the C library says of the locale. Python turns the C locale into C.UTF-8 before it starts.
    """
    if wanted := environ.get("TRAINING_MONITOR_ASCII"):
        return UNICODE if wanted == "0" else ASCII
    was_c = environ.get("LANG", "") in ("", "C", "POSIX") and not environ.get("LC_ALL")
    is_made_up = was_c and environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8")
    is_unicode = encoding.replace("-", "").lower() == "utf8"
    return UNICODE if is_unicode and not is_made_up else ASCII


def terminal_glyphs() -> Glyphs:
    """Those of the locale of this process."""
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    return choose_glyphs(os.environ, locale.nl_langinfo(locale.CODESET))


class Bell:
    """Wakes who waits on its file descriptor; may be rung from any thread, also after it was closed."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._lock = threading.RLock()  # a signal handler may ring while its own thread does
        self._open = True
        for number in (self.reader, self._writer):
            os.set_blocking(number, False)

    def ring(self) -> None:
        """Wake the reader; never waits."""
        with self._lock:
            if self._open:
                with suppress(BlockingIOError):
                    os.write(self._writer, b"\0")

    def silence(self) -> None:
        """Forget what was rung so far."""
        with suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass

    def close(self) -> None:
        """Ring no more."""
        with self._lock:
            self._open = False
            os.close(self.reader)
            os.close(self._writer)


class Terminal:
    """The whole screen of stdout and the keys of stdin; made by `open_terminal`."""

    def __init__(self, window: curses.window, bell: Bell) -> None:
        self._window, self.bell = window, bell
        self._drawn: tuple[Line, ...] = ()
        self._size = _FALLBACK_SIZE
        self._attributes = _attributes()

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        with suppress(OSError):
            size = os.get_terminal_size(sys.stdout.fileno())
            if size != self._size and min(size) > 0:
                self._size = (size.columns, size.lines)
                curses.resizeterm(size.lines, size.columns)
                self.redraw()
        return self._size

    def redraw(self) -> None:
        """Draw everything anew with the next frame."""
        self._drawn = ()
        self._window.clear()

    def draw(self, lines: tuple[Line, ...]) -> None:
        """Show a frame; only the lines that differ from the last one are written."""
        for number, line in enumerate(lines):
            if number >= len(self._drawn) or self._drawn[number] != line:
                self._draw_line(number, line)
        self._drawn = lines
        self._window.refresh()

    def _draw_line(self, number: int, line: Line) -> None:
        place = 0
        with suppress(curses.error):  # after the last cell of the screen there is no place for the cursor
            self._window.move(number, 0)
            self._window.clrtoeol()
            for text, style in line:
                self._window.addstr(number, place, text, self._attributes.get(style, 0))
                place += cells(text)

    def keys(self, seconds: float) -> list[str] | None:
        """Wait for keys or for the bell; the names of the keys pressed, none when the time is over or the bell rang.

        A key is answered at once; several rings within a moment are answered together. None: the terminal is gone.
        """
        stdin = sys.stdin.fileno()
        ready = select.select([stdin, self.bell.reader], [], [], seconds)[0]
        if ready == [self.bell.reader]:
            ready = select.select([stdin], [], [], _GATHER_SECONDS)[0]
        self.bell.silence()
        names = list(self._read())
        return None if not names and stdin in ready and not os.isatty(stdin) else names

    def _read(self) -> Iterator[str]:
        while (key := self._next()) is not None:
            name = self._after_escape() if key == "\x1b" else _NAMES.get(key, key)
            if isinstance(name, str) and name:
                yield name

    def _next(self) -> int | str | None:
        with suppress(curses.error):
            return self._window.get_wch()
        return None

    def _after_escape(self) -> str:
        """Esc alone, or the end of a sequence that curses does not know: its name, empty when it means nothing."""
        key = self._next()
        if key not in ("[", "O"):
            if isinstance(key, int):
                curses.ungetch(key)
            elif key is not None:
                curses.unget_wch(key)
            return "escape"
        text = ""
        while isinstance(key := self._next(), str):
            text += key
            if "@" <= key <= "~":
                break
        return _SEQUENCES.get(text, "")


def _attributes() -> dict[str, int]:
    """What each style is on this terminal; without colours it is told by brightness alone."""
    attributes = {style: int(getattr(curses, name)) for style, name in _PLAIN.items()}
    if os.environ.get("NO_COLOR") or not curses.has_colors():
        return attributes
    curses.start_color()
    curses.use_default_colors()
    for number, (style, colour) in enumerate(_COLOURS.items(), 1):
        curses.init_pair(number, colour, -1)
        attributes[style] = curses.color_pair(number) | attributes.get(style, 0)
    return attributes


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Take the terminal over, and give it back as it was, also after an error, SIGTERM or SIGHUP.

    Raises:
        TrainingMonitorError: stdin or stdout is no terminal, or one that cannot move its cursor.
    """
    _check_terminal()
    bell = Bell()
    try:
        with _handled(bell):
            window = curses.initscr()
            try:
                yield Terminal(_prepared(window), bell)
            finally:
                with suppress(curses.error):  # the terminal may be gone
                    curses.endwin()
    finally:
        bell.close()


def _prepared(window: curses.window) -> curses.window:
    curses.noecho()
    curses.cbreak()
    curses.set_escdelay(_ESCAPE_MILLISECONDS)
    window.keypad(True)
    window.nodelay(True)
    _never_wait(sys.stdin.fileno())
    with suppress(curses.error):
        curses.curs_set(0)
    return window


def _never_wait(terminal: int) -> None:
    """Let a read that finds no key return at once: curses may read for the rest of a sequence that never comes."""
    mode = termios.tcgetattr(terminal)
    mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    curses.def_prog_mode()  # also after the screen was suspended


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise TrainingMonitorError("the screen needs a terminal on stdin and stdout", hint="--once, or --json")
    name = os.environ.get("TERM", "")
    try:
        curses.setupterm(name or "unknown", sys.stdout.fileno())
    except curses.error:
        raise TrainingMonitorError(f"TERM={name!r} is not known here", hint="TERM=xterm, or --once") from None
    if not curses.tigetstr("cup"):
        raise TrainingMonitorError(f"TERM={name!r} cannot move its cursor", hint="TERM=xterm, or --once")


@contextmanager
def _handled(bell: Bell) -> Iterator[None]:
    """SIGTERM and SIGHUP end the screen as Ctrl-C does, where nobody else handles them; a new size wakes it."""
    wanted: dict[int, Callable[[int, FrameType | None], object]] = {signal.SIGWINCH: lambda *_: bell.ring()}
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            wanted[ending] = _interrupt
    before = {}
    with suppress(ValueError):  # only the main thread handles signals
        for number, handler in wanted.items():
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(number)
