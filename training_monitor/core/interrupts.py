"""What Ctrl-C and other signals end: what is said of it, and what is cleaned up before."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# What ends a process, as far as it can be noticed: SIGKILL, os._exit and a crash of Python (SIGSEGV, SIGBUS, SIGFPE,
# SIGILL, abort) cannot.
_ENDS = (
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGXCPU"),
    *("SIGABRT", "SIGTRAP", "SIGSYS", "SIGPOLL", "SIGPWR", "SIGSTKFLT"),
)


@contextmanager
def only_looking(what: str) -> Iterator[None]:
    """Let a KeyboardInterrupt that says nothing say `what` it ended, and what goes on; it is passed on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = interrupt.args or (what,)
        raise


@contextmanager
def cleaned_up(clean: Callable[[], object]) -> Iterator[None]:
    """Call `clean` at the end, and before each signal that ends this process; no other signal interrupts it."""
    known = {number: signal.getsignal(number) for name in _ENDS if (number := getattr(signal, name, None))}
    before = {number: former for number, former in known.items() if former not in (signal.SIG_IGN, None)}
    then = {number: former if callable(former) else _interrupt for number, former in before.items()}

    def end(number: int, frame: FrameType | None) -> None:
        set_handlers(dict.fromkeys(before, _pass_over))
        clean()
        set_handlers(then)
        then[number](number, frame)

    set_handlers(dict.fromkeys(before, end))
    try:
        yield
    finally:
        set_handlers(dict.fromkeys(before, _pass_over))
        try:
            clean()
        finally:
            set_handlers(before)


def set_handlers(handlers: Mapping[int, Any]) -> None:
    """Set how signals are handled; nothing outside of the main thread, which alone handles them."""
    with suppress(ValueError):
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _pass_over(*_: object) -> None:
    """Do nothing; unlike SIG_IGN, the programs that are started in the meantime do not inherit it."""


def _interrupt(number: int, _: FrameType | None) -> None:
    """Exit like on Ctrl-C."""
    raise KeyboardInterrupt(number)
