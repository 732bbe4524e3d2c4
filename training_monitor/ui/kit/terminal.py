"""The terminal: takes it over, draws what changed, reads keys, and always restores it.

The key of a character has that character as its name. The other names are up, down, left, right, home, end, page-up,
page-down, enter, tab, shift-tab, backspace, insert, escape, and ctrl-a to ctrl-z unless that is one of the others;
Shift, Alt and Ctrl are ignored with these keys. The mouse sends "click X Y", "wheel-up" and "wheel-down". All other
input is ignored.
"""

from __future__ import annotations

import atexit
import codecs
import curses
import locale
import os
import re
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

from training_monitor.core.errors import Hint, TrainingMonitorError
from training_monitor.core.interrupts import cleaned_up, set_handlers
from training_monitor.core.regex import regex
from training_monitor.ui.kit.text import ASCII, UNICODE, Glyphs, Line, cells

_ESCAPE = 0x1B
_LONGEST = 32  # bytes of an unfinished sequence that are kept: more than any known one has
_NOTHING_KNOWN: Mapping[bytes, str] = {}

_BYTES = {
    **{number: f"ctrl-{chr(number + 0x60)}" for number in range(1, 27)},
    **{number: chr(number) for number in range(0x20, 0x7F)},
    0x08: "backspace",
    0x09: "tab",
    0x0A: "enter",
    0x0D: "enter",
    0x7F: "backspace",
}
# By the last byte after ESC [ or ESC O, and by the number between ESC [ and ~.
_LETTERS = dict(zip("ABCDFHMZ", "up down right left end home enter shift-tab".split(), strict=True))
_NUMBERS = dict(zip("12345678", "home insert backspace end page-up page-down home end".split(), strict=True))
_BUTTONS = {64: "wheel-up", 65: "wheel-down"}
_HELD = 4 | 8 | 16  # Shift, Alt and Ctrl in the number of a button

# The X10 mouse format with three raw bytes, function keys of the Linux console, and all other sequences.
_WHOLE = regex(rb"\x1b(?:\[M[ -\xff]{3}|\[\[[@-~]|(?:O|\[(?![M\[]))([ -?]*)([@-~]))")
_BEGUN = regex(rb"\x1b(?:\[M[ -\xff]{0,2}|\[\[|[O\[][ -?]*)?")
_NUMBER = regex(rb"(\d{0,2})(?:;\d{1,3})?")  # and the modifiers
_MOUSE = regex(rb"<(\d{1,3});(\d{1,5});(\d{1,5})")
_NOT_ASCII = regex(rb"[\x80-\xff]+")
_ESCAPE_SECONDS = 0.025  # time limit for the rest of a sequence; after it, Esc is a key of its own
_GATHER_SECONDS = 0.2  # changes within this time are drawn together
_MOST_BYTES = 4096  # per read
_FALLBACK_SIZE = (80, 24)
_MOUSE_ON = b"\x1b[?1000h\x1b[?1006h"
_MOUSE_OFF = b"\x1b[?1006l\x1b[?1000l"

_CAPABILITIES = """
    kcuu1 up kcud1 down kcub1 left kcuf1 right khome home kend end kpp page-up knp page-down kcbt shift-tab kent enter
    kbs backspace kdch1 backspace
""".split()  # terminfo capability and key name, alternating
_COLOURS = {  # colour of a style, and its attribute without colours; reversed when selected
    "good": (curses.COLOR_GREEN, curses.A_NORMAL),
    "warn": (curses.COLOR_YELLOW, curses.A_BOLD),
    "bad": (curses.COLOR_RED, curses.A_BOLD),
    "loading": (curses.COLOR_CYAN, curses.A_DIM),
    "batch": (curses.COLOR_GREEN, curses.A_NORMAL),
    "validation": (curses.COLOR_MAGENTA, curses.A_NORMAL),
    "finished": (curses.COLOR_BLUE, curses.A_BOLD),
    "failed": (curses.COLOR_RED, curses.A_BOLD),
    "canceled": (curses.COLOR_YELLOW, curses.A_NORMAL),
    "killed": (curses.COLOR_RED, curses.A_NORMAL),
}
_PLAIN = {"dim": curses.A_DIM, "bold": curses.A_BOLD, "selected": curses.A_REVERSE, "title": curses.A_REVERSE}
_Handler = Callable[[int, FrameType | None], object]


def decode_keys(data: bytes, *, is_over: bool, known: Mapping[bytes, str] = _NOTHING_KNOWN) -> tuple[list[str], bytes]:
    """Decode the keys in terminal input.

    Args:
        data: the rest returned by the previous call, and the new input.
        is_over: nothing more came in time: an unfinished sequence is decoded as it is, or dropped.
        known: sequences of this terminal, each beginning with ESC, and their names; they take precedence.

    Returns:
        The key names in order, and the rest that may be the beginning of a longer sequence or character: at most 32
        bytes, and none when `is_over`.
    """
    names: list[str] = []
    place = 0
    while place < len(data):
        if data[place] == _ESCAPE:
            found, end = _sequence(data, place, is_over, known)
        elif data[place] >= 0x80:
            found, end = _characters(data, place, is_over)
        else:
            name = _BYTES.get(data[place])
            found, end = [] if name is None else [name], place + 1
        names += found
        if end == place:
            return names, data[place : place + _LONGEST]
        place = end
    return names, b""


def _sequence(data: bytes, place: int, is_over: bool, known: Mapping[bytes, str]) -> tuple[list[str], int]:
    """Decode the sequence at `place` and return its end; `place` itself when more may come."""
    for sequence, name in known.items():
        if data.startswith(sequence, place):
            return [name], place + len(sequence)
    if whole := _WHOLE.match(data, place):
        return _meaning(whole[1] or b"", whole[2] or b""), whole.end()
    end = _end(_BEGUN, data, place)
    rest = data[place : place + _LONGEST]
    if not is_over and (end == len(data) or any(sequence.startswith(rest) for sequence in known)):
        return [], place
    return _unfinished(data[place:end]), end


def _unfinished(sequence: bytes) -> list[str]:
    """Decode Esc, or Esc and the key after it; longer sequences were not typed and are dropped."""
    return ["escape", *sequence[1:].decode()] if len(sequence) <= 2 else []


def _meaning(parameters: bytes, last: bytes) -> list[str]:
    if mouse := _MOUSE.fullmatch(parameters):
        button, column, line = (int(number) for number in mouse.groups())
        return _mouse(button & ~_HELD, column - 1, line - 1) if last == b"M" else []
    number = _NUMBER.fullmatch(parameters)
    if number is None:
        return []
    name = _NUMBERS.get(number[1].decode()) if last == b"~" else _LETTERS.get(last.decode())
    return [] if name is None else [name]


def _mouse(button: int, column: int, line: int) -> list[str]:
    if button == 0 and min(column, line) >= 0:
        return [f"click {column} {line}"]
    return [_BUTTONS[button]] if button in _BUTTONS else []


def _characters(data: bytes, place: int, is_over: bool) -> tuple[list[str], int]:
    """Decode the UTF-8 characters at `place` and return their end; invalid ones are dropped."""
    end = _end(_NOT_ASCII, data, place)
    text, length = codecs.utf_8_decode(data[place:end], "ignore", is_over or end < len(data))
    return [*text], place + length


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    found = pattern.match(data, place)
    return place if found is None else found.end()


def choose_glyphs(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """Return ASCII glyphs if the locale is not UTF-8; TRAINING_MONITOR_ASCII overrides that, 0 means Unicode.

    Args:
        environ: the environment.
        encoding: the C library's encoding of the locale. Python turns the C locale into C.UTF-8 before it starts.
    """
    if wanted := environ.get("TRAINING_MONITOR_ASCII"):
        return UNICODE if wanted == "0" else ASCII
    was_c = environ.get("LANG", "") in ("", "C", "POSIX") and not environ.get("LC_ALL")
    is_made_up = was_c and environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8")
    is_unicode = encoding.replace("-", "").lower() == "utf8"
    return UNICODE if is_unicode and not is_made_up else ASCII


def terminal_glyphs() -> Glyphs:
    """Return the glyphs for the locale of this process."""
    with suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    return choose_glyphs(os.environ, locale.nl_langinfo(locale.CODESET))


class Bell:
    """Wakes the waiter on its file descriptor; can be rung from any thread, also after it was closed."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._lock = threading.RLock()  # a signal handler may ring while its own thread does
        self._open = True
        for number in (self.reader, self._writer):
            os.set_blocking(number, False)

    def ring(self) -> None:
        """Wake the waiter, without blocking."""
        with self._lock:
            if self._open:
                with suppress(BlockingIOError):
                    os.write(self._writer, b"\0")

    def silence(self) -> None:
        """Discard earlier rings."""
        with suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass

    def close(self) -> None:
        """Close the pipe; later rings have no effect."""
        with self._lock:
            self._open = False
            os.close(self.reader)
            os.close(self._writer)


class Terminal:
    """The whole screen of stdout and the keys of stdin; made by `open_terminal`.

    One thread may use it while the main thread handles signals: `lock` is held by whoever calls curses.
    """

    def __init__(
        self,
        window: curses.window,
        bell: Bell,
        lock: threading.RLock,
        give_back: Callable[[], None] = lambda: None,
        take: Callable[[], None] = lambda: None,
    ) -> None:
        self._window, self.bell, self._lock = window, bell, lock
        self._give_back, self._take = give_back, take
        self._left = False
        self._drawn: tuple[Line, ...] = ()
        self._size = _FALLBACK_SIZE
        self._attributes = _attributes()
        self._known = _known_keys()
        self._rest = b""  # unfinished key sequence

    def size(self) -> tuple[int, int]:
        """Return the current number of columns and lines."""
        with suppress(OSError), self._lock:
            size = os.get_terminal_size(sys.stdout.fileno())
            if size != self._size and min(size) > 0:
                self._size = (size.columns, size.lines)
                curses.resizeterm(size.lines, size.columns)
                self.redraw()
        return self._size

    def redraw(self) -> None:
        """Redraw everything with the next frame."""
        with self._lock:
            self._drawn = ()
            self._window.clear()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the terminal back for a while, and then take it over again and draw all of it."""
        self._give_back()
        try:
            yield
        finally:
            self._take()
            self.redraw()

    def draw(self, lines: tuple[Line, ...]) -> None:
        """Show a frame; only lines that differ from the last one are written. Nothing is, once it was given back."""
        with self._lock:
            if curses.isendwin():
                return
            for number, line in enumerate(lines):
                if number >= len(self._drawn) or self._drawn[number] != line:
                    self._draw_line(number, line)
            self._drawn = lines
            self._window.refresh()

    def _draw_line(self, number: int, line: Line) -> None:
        place = 0
        with suppress(curses.error):  # curses fails to move the cursor past the last cell of the screen
            self._window.move(number, 0)
            self._window.clrtoeol()
            for text, style in line:
                self._window.addstr(number, place, text, self._attributes.get(style, 0))
                place += cells(text)

    def keys(self, seconds: float) -> list[str] | None:
        """Wait for keys or for the bell, and return the names of the keys; [] after a timeout or the bell.

        Returns at once on a key; several rings within a moment count as one. What may be the beginning of a key is
        returned by the next call, which waits 25 ms for its end. None: the terminal is gone, or was left.
        """
        stdin = sys.stdin.fileno()
        data = _read(stdin) if stdin in self._wait(stdin, seconds) else b""
        if data is None:
            return None
        names, self._rest = decode_keys(self._rest + data, is_over=not data, known=self._known)
        return None if self._left else names

    def leave(self) -> None:
        """Let `keys` return None, now and from now on; for the thread that does not wait for them."""
        self._left = True
        self.bell.ring()

    def _wait(self, stdin: int, seconds: float) -> list[int]:
        if curses.isendwin():  # given back by a signal: what is typed now is for somebody else
            select.select([self.bell.reader], [], [], seconds)
            return []
        if self._rest:
            return select.select([stdin], [], [], _ESCAPE_SECONDS)[0]
        ready = select.select([stdin, self.bell.reader], [], [], seconds)[0]
        if ready == [self.bell.reader]:
            ready = select.select([stdin], [], [], _GATHER_SECONDS)[0]
        self.bell.silence()
        return ready


def _read(terminal: int) -> bytes | None:
    """Return the input; None: the terminal is gone."""
    data = b""
    try:
        with suppress(BlockingIOError):
            data = os.read(terminal, _MOST_BYTES)
    except OSError:
        return None
    return data if data or os.isatty(terminal) else None


def _known_keys() -> dict[bytes, str]:
    """Return the key sequences of this terminal from terminfo."""
    named = zip(_CAPABILITIES[::2], _CAPABILITIES[1::2], strict=True)
    sequences = {curses.tigetstr(capability): name for capability, name in named}
    return {sequence: name for sequence, name in sequences.items() if sequence and sequence[:-1].startswith(b"\x1b")}


def _attributes() -> dict[str, int]:
    """Return the curses attributes of each style; without colours only brightness differs."""
    attributes = dict(_PLAIN)
    has_colours = not os.environ.get("NO_COLOR") and curses.has_colors()
    if has_colours:
        curses.start_color()
        curses.use_default_colors()
    for number, (style, (colour, plain)) in enumerate(_COLOURS.items(), 1):
        pair = 0
        if has_colours:
            curses.init_pair(number, colour, -1)
            pair = curses.color_pair(number)
        attributes |= {style: pair | plain, f"selected {style}": pair | curses.A_REVERSE}
    return attributes


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Take the terminal over, and restore it at the end, also after an error or a signal, and while suspended.

    Clicks and the wheel are reported, too, if the terminal supports it.

    Raises:
        TrainingMonitorError: stdin or stdout is not a terminal, or it cannot move its cursor.
    """
    check_terminal()
    has_mouse = curses.tigetstr("kmous") is not None
    bell, lock = Bell(), threading.RLock()  # a signal handler may interrupt the thread that draws
    give_back = partial(_give_back, has_mouse, lock)
    try:
        with _handled({signal.SIGWINCH: lambda *_: bell.ring()}), cleaned_up(give_back):
            window = curses.initscr()
            atexit.register(give_back)  # should a signal come before the next line
            try:
                _prepare(window)
                take = partial(_take_again, window, bell, has_mouse, lock)
                stops: dict[int, _Handler] = {
                    signal.SIGTSTP: lambda *_: _suspend(give_back, take),
                    signal.SIGCONT: lambda *_: _continue(give_back, take),
                }
                with _handled(stops):
                    if has_mouse:
                        _tell(_MOUSE_ON)
                    yield Terminal(window, bell, lock, give_back, take)
            finally:
                atexit.unregister(give_back)
    finally:
        bell.close()


def _prepare(window: curses.window) -> None:
    curses.noecho()
    curses.cbreak()
    curses.typeahead(-1)  # pending input must not interrupt drawing
    window.keypad(True)
    _never_wait(sys.stdin.fileno())
    with suppress(curses.error):
        curses.curs_set(0)


def _never_wait(terminal: int) -> None:
    """Make reads non-blocking: Ctrl-Z discards the input for which `select` just returned."""
    mode = termios.tcgetattr(terminal)
    mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    curses.def_prog_mode()  # so that it also applies after a suspension


def _tell(sequence: bytes) -> None:
    with suppress(OSError):  # the terminal may be gone
        os.write(sys.stdout.fileno(), sequence)


def _give_back(has_mouse: bool, lock: threading.RLock) -> None:
    """Restore the terminal, unless that was done."""
    with suppress(curses.error), lock:
        if not curses.isendwin():
            if has_mouse:
                _tell(_MOUSE_OFF)
            curses.endwin()


def _take_again(window: curses.window, bell: Bell, has_mouse: bool, lock: threading.RLock) -> None:
    """Take over the terminal that was given back, and draw all of it."""
    with lock:
        curses.doupdate()
        window.keypad(True)
        if has_mouse:
            _tell(_MOUSE_ON)
    bell.ring()


def _suspend(give_back: Callable[[], None], take: Callable[[], None]) -> None:
    """Suspend this process with the terminal restored; take it over again when continued."""
    give_back()
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTSTP, signal.SIGCONT)}
    signal.raise_signal(signal.SIGTSTP)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    take()


def _continue(give_back: Callable[[], None], take: Callable[[], None]) -> None:
    """Take the terminal over again after SIGSTOP, which comes without notice: others may have used it meanwhile."""
    give_back()
    take()


def check_terminal() -> None:
    """Raise TrainingMonitorError if stdin or stdout is not a terminal, or it cannot move its cursor."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = Hint("use {once=True} or {json=True}").spell("shell")  # where screens are
        raise TrainingMonitorError("the full-screen view requires a terminal on stdin and stdout", hint=hint)
    name, hint = os.environ.get("TERM", ""), Hint("set TERM=xterm, or use {once=True}").spell("shell")
    try:
        curses.setupterm(name or "unknown", sys.stdout.fileno())
    except curses.error:
        raise TrainingMonitorError(f"TERM={name!r} is an unknown terminal type", hint=hint) from None
    if not curses.tigetstr("cup"):
        raise TrainingMonitorError(f"TERM={name!r} does not support moving the cursor", hint=hint)


@contextmanager
def _handled(wanted: Mapping[int, _Handler]) -> Iterator[None]:
    """Handle signals that have no handler yet."""
    free = [number for number in wanted if signal.getsignal(number) is signal.SIG_DFL]
    set_handlers({number: wanted[number] for number in free})
    try:
        yield
    finally:
        set_handlers(dict.fromkeys(free, signal.SIG_DFL))
