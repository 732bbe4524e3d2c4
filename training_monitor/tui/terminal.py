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
from training_monitor.tui.key_codes import decode_keys
from training_monitor.tui.text import ASCII, UNICODE, Glyphs, Line, cells

_ESCAPE_SECONDS = 0.025  # within which the rest of a sequence comes: after it, Esc is a key of its own
_GATHER_SECONDS = 0.2  # many changes within this time are drawn at once
_MOST_BYTES = 4096  # that one read takes
_FALLBACK_SIZE = (80, 24)
_MOUSE_ON = b"\x1b[?1000h\x1b[?1006h"
_MOUSE_OFF = b"\x1b[?1006l\x1b[?1000l"

_CAPABILITIES = {  # how terminfo calls the keys
    "kcuu1": "up",
    "kcud1": "down",
    "kcub1": "left",
    "kcuf1": "right",
    "khome": "home",
    "kend": "end",
    "kpp": "page-up",
    "knp": "page-down",
    "kcbt": "shift-tab",
    "kent": "enter",
    "kbs": "backspace",
    "kdch1": "backspace",
}
_STATES = {  # of a run; selected, they are the other way round
    "loading": curses.COLOR_CYAN,
    "batch": curses.COLOR_GREEN,
    "validation": curses.COLOR_MAGENTA,
    "finished": curses.COLOR_BLUE,
    "failed": curses.COLOR_RED,
    "canceled": curses.COLOR_YELLOW,
    "killed": curses.COLOR_RED,
    "warn": curses.COLOR_YELLOW,
}
_PLAIN = {
    **{f"selected {state}": "A_REVERSE" for state in _STATES},
    "loading": "A_DIM",
    "finished": "A_BOLD",
    "failed": "A_BOLD",
    "dim": "A_DIM",
    "warn": "A_BOLD",
    "bad": "A_BOLD",
    "bold": "A_BOLD",
    "selected": "A_REVERSE",
    "title": "A_REVERSE",
}
_Handler = Callable[[int, FrameType | None], object]
_COLOURS = {
    "good": curses.COLOR_GREEN,
    "bad": curses.COLOR_RED,
    **_STATES,
    **{f"selected {state}": colour for state, colour in _STATES.items()},
}


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
        self._known = _known_keys()
        self._rest = b""  # of what was typed: the beginning of a key

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

        A key is answered at once; several rings within a moment are answered together. What may be the beginning of a
        key is answered by the next call, which waits 25 ms for its end. None: the terminal is gone.
        """
        stdin = sys.stdin.fileno()
        data = _read(stdin) if stdin in self._wait(stdin, seconds) else b""
        if data is None:
            return None
        names, self._rest = decode_keys(self._rest + data, is_over=not data, known=self._known)
        return names

    def _wait(self, stdin: int, seconds: float) -> list[int]:
        if self._rest:
            return select.select([stdin], [], [], _ESCAPE_SECONDS)[0]
        ready = select.select([stdin, self.bell.reader], [], [], seconds)[0]
        if ready == [self.bell.reader]:
            ready = select.select([stdin], [], [], _GATHER_SECONDS)[0]
        self.bell.silence()
        return ready


def _read(terminal: int) -> bytes | None:
    """What was typed; None: the terminal is gone."""
    data = b""
    try:
        with suppress(BlockingIOError):
            data = os.read(terminal, _MOST_BYTES)
    except OSError:
        return None
    return data if data or os.isatty(terminal) else None


def _known_keys() -> dict[bytes, str]:
    """The sequences of this terminal, by terminfo."""
    sequences = {curses.tigetstr(capability): name for capability, name in _CAPABILITIES.items()}
    return {sequence: name for sequence, name in sequences.items() if sequence and sequence[:-1].startswith(b"\x1b")}


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
def open_terminal(*, mouse: bool = False) -> Iterator[Terminal]:
    """Take the terminal over, and give it back as it was, also after an error, SIGTERM or SIGHUP, and while suspended.

    Args:
        mouse: clicks and the wheel are keys too, where the terminal can tell them.

    Raises:
        TrainingMonitorError: stdin or stdout is no terminal, or one that cannot move its cursor.
    """
    _check_terminal()
    has_mouse = mouse and curses.tigetstr("kmous") is not None
    bell = Bell()
    try:
        with _handled({signal.SIGTERM: _interrupt, signal.SIGHUP: _interrupt, signal.SIGWINCH: lambda *_: bell.ring()}):
            window = curses.initscr()
            try:
                _prepare(window)
                with _handled({signal.SIGTSTP: lambda *_: _suspend(bell, has_mouse)}):
                    if has_mouse:
                        _tell(_MOUSE_ON)
                    yield Terminal(window, bell)
            finally:
                _give_back(has_mouse)
    finally:
        bell.close()


def _prepare(window: curses.window) -> None:
    curses.noecho()
    curses.cbreak()
    curses.typeahead(-1)  # keys that wait are no reason to draw a part
    window.keypad(True)
    _never_wait(sys.stdin.fileno())
    with suppress(curses.error):
        curses.curs_set(0)


def _never_wait(terminal: int) -> None:
    """Let a read that finds no key return at once: Ctrl-Z throws away the keys for which `select` just returned."""
    mode = termios.tcgetattr(terminal)
    mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    curses.def_prog_mode()  # also after the screen was suspended


def _tell(sequence: bytes) -> None:
    with suppress(OSError):  # the terminal may be gone
        os.write(sys.stdout.fileno(), sequence)


def _give_back(has_mouse: bool) -> None:
    if has_mouse:
        _tell(_MOUSE_OFF)
    with suppress(curses.error):
        if not curses.isendwin():
            curses.endwin()


def _suspend(bell: Bell, has_mouse: bool) -> None:
    """Stop this process with the terminal as it was; take it over again once somebody continues it."""
    _give_back(has_mouse)
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)
    curses.doupdate()
    if has_mouse:
        _tell(_MOUSE_ON)
    bell.ring()


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
def _handled(wanted: Mapping[int, _Handler]) -> Iterator[None]:
    """Handle signals, where nobody else does."""
    before = {}
    with suppress(ValueError):  # only the main thread handles signals
        for number, handler in wanted.items():
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _interrupt(number: int, _: FrameType | None) -> None:
    """End the screen as Ctrl-C does."""
    raise KeyboardInterrupt(number)
