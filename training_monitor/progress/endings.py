"""How a script ends, seen from inside: what an exception says, and the hooks that see it.

What nobody inside can see is SIGKILL, os._exit and the like; whoever reads the file then finds the process gone.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from training_monitor.errors import redact
from training_monitor.policy.run_values import CANCELED, FAILED, FINISHED

MOST_MESSAGE = 2000
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ending(Protocol):
    """Who is told of an end; each method may be called in a signal handler."""

    def note_signal(self, name: str) -> None: ...

    def count(self) -> int:
        """Something that grows while the script goes on."""
        ...

    def end(self, outcome: Outcome) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and what was said of it; `is_exit`: by an exit or Ctrl-C, and not by an error.

    `exit_code` is what an exit was called with, as a shell tells it; None where there was none.
    """

    status: str
    message: str | None = None
    is_exit: bool = False
    exit_code: int | None = None


def outcome_of(error: BaseException | None) -> Outcome:
    """How a script ends with this exception, or with none."""
    if error is None:
        return Outcome(FINISHED)
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return Outcome(CANCELED, type(error).__name__, is_exit=True)
    if isinstance(error, SystemExit):
        return outcome_of_exit(error.code)
    return Outcome(FAILED, bounded(f"{type(error).__name__}: {text_of(error)}"))


def outcome_of_exit(code: object) -> Outcome:
    """The same of what sys.exit was called with: None, a number, or a text, with which the exit status is 1."""
    if code is None or code == 0:
        return Outcome(FINISHED, is_exit=True, exit_code=0)
    if isinstance(code, int):
        return Outcome(FAILED, is_exit=True, exit_code=code & 0xFF if abs(code) < 2**63 else 255)
    return Outcome(FAILED, bounded(text_of(code)), is_exit=True, exit_code=1)


def outcome_after(signalled: str, outcome: Outcome) -> Outcome:
    """The same where a signal was received before: what failed then is not hidden by it."""
    is_more = outcome.status == FAILED and outcome.message and not outcome.is_exit
    return replace(outcome, status=CANCELED, message=f"{signalled}, then {outcome.message}" if is_more else signalled)


def text_of(value: object) -> str:
    """str(value), whatever it does."""
    try:
        return str(value)
    except Exception as error:  # the text of somebody's own class
        return f"(its text raises {type(error).__name__})"


def bounded(text: str) -> str:
    """At most 2,000 characters, secrets replaced."""
    return redact(text[: 2 * MOST_MESSAGE])[:MOST_MESSAGE]


class Hooks:
    """What is put into the interpreter while a run is watched, and taken out again at its end.

    `sys.exit`, `exit` and `quit`, `sys.excepthook` and the handlers of SIGTERM and SIGINT call what was there before.
    A handler is only put in the main thread, and never where the signal is ignored or handled outside of Python. What
    others have put over ours since stays where it is, and ours under it only passes on.
    """

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._exit: Callable[..., Any] = sys.exit
        self._excepthook = sys.excepthook
        self._quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)  # class of `exit` and `quit`
        self._quit: Callable[..., Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._installed: dict[int, Any] = {}
        self._noted: tuple[Outcome, int] | None = None  # a possible end, and how far the script was
        self._is_active = False
        self._our_exit, self._our_excepthook, self._our_quit = self._see_exit, self._see_exception, self._quitting()

    def install(self, *, signals: bool) -> None:
        self._is_active = True
        self._exit, self._excepthook = sys.exit, sys.excepthook
        sys.exit = self._our_exit
        sys.excepthook = self._our_excepthook
        if self._quitter:
            self._quit, self._quitter.__call__ = self._quitter.__call__, self._our_quit
        atexit.register(self._at_exit)
        if signals and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._handle(number)

    def remove(self) -> None:
        self._is_active = False
        if sys.exit is self._our_exit:
            sys.exit = self._exit
        if sys.excepthook is self._our_excepthook:
            sys.excepthook = self._excepthook
        if self._quit and self._quitter and self._quitter.__call__ is self._our_quit:
            self._quitter.__call__ = self._quit
        with suppress(Exception):  # during the exit callbacks themselves
            atexit.unregister(self._at_exit)
        for number in list(self._handlers):
            self._restore(number)

    def _handle(self, number: int) -> None:
        before = signal.getsignal(number)
        if before in (signal.SIG_IGN, None):
            return
        ours = self._see_signal
        with suppress(OSError, ValueError):
            signal.signal(number, ours)
            self._handlers[number], self._installed[number] = before, ours

    def _restore(self, number: int) -> None:
        before, ours = self._before(number), self._installed.get(number)
        with suppress(OSError, ValueError):  # not the main thread: ours stays, and passes on
            if signal.getsignal(number) is ours:
                signal.signal(number, before)

    def _before(self, number: int) -> Any:
        """The handler that was there before ours and before those of monitors that have ended since."""
        before = self._handlers.get(number)
        while isinstance(owner := getattr(before, "__self__", None), Hooks) and not owner._is_active:
            before = owner._handlers.get(number)
        return before

    def _see_signal(self, number: int, frame: FrameType | None) -> None:
        before = self._before(number)
        if self._is_active:
            self._ending.note_signal(signal.Signals(number).name)
        if callable(before):
            before(number, frame)
            return
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        if self._is_active:
            raise SystemExit(128 + number)
        signal.raise_signal(number)

    def _see_exit(self, code: Any = None, /) -> NoReturn:
        self._note(code)
        self._exit(code)
        raise SystemExit(code)  # where somebody's own exit returned

    def _quitting(self) -> Callable[..., None]:
        def call(quitter: Callable[..., None], code: Any = None) -> None:
            self._note(code)
            assert self._quit is not None
            self._quit(quitter, code)

        return call

    def _note(self, code: object) -> None:
        if self._is_active and threading.current_thread() is threading.main_thread():
            self._noted = outcome_of_exit(code), self._ending.count()

    def _see_exception(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        try:
            self._excepthook(kind, error, traceback)
        finally:
            if self._is_active and not hasattr(sys, "ps1"):  # else it was typed at a prompt
                if sys.flags.interactive:
                    self._noted = outcome_of(error), self._ending.count()
                else:
                    self._ending.end(outcome_of(error))

    def _at_exit(self) -> None:
        noted = self._noted
        if noted and noted[1] == self._ending.count():  # else it was caught, and the script went on
            self._ending.end(noted[0])
        else:
            self._ending.end(Outcome(FINISHED))
