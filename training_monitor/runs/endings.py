"""How a script ends, seen from inside: the meaning of an exception, and the hooks that see it.

SIGKILL, os._exit and the like cannot be seen from inside; a reader of the file then finds the process gone. Nothing
raises into a training: each kind of trouble becomes a warning, once.
"""

from __future__ import annotations

import atexit
import functools
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from training_monitor.core.errors import text_of
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.masking import redact
from training_monitor.runs.values import CANCELED, FAILED, FINISHED

if TYPE_CHECKING:
    from training_monitor.runs.monitor import TrainingMonitor

MOST_MESSAGE = 2000
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MOST_WARNINGS = 50
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="TrainingMonitor")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and its message; `is_exit`: by an exit or Ctrl-C, and not by an error.

    `exit_code` is the code of an exit, as a shell reports it; None if there was none.
    """

    status: str
    message: str | None = None
    is_exit: bool = False
    exit_code: int | None = None


def outcome_of(error: BaseException | None) -> Outcome:
    """Return how a script ends with this exception, or without one."""
    if error is None:
        return Outcome(FINISHED)
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return Outcome(CANCELED, type(error).__name__, is_exit=True)
    if isinstance(error, SystemExit):
        return outcome_of_exit(error.code)
    return Outcome(FAILED, bounded(f"{type(error).__name__}: {text_of(error)}"))


def outcome_of_exit(code: object) -> Outcome:
    """Return how a script ends with this argument of sys.exit: None, a number, or a text (exit status 1)."""
    if code is None or code == 0:
        return Outcome(FINISHED, is_exit=True, exit_code=0)
    if isinstance(code, int):
        return Outcome(FAILED, is_exit=True, exit_code=code & 0xFF if abs(code) < 2**63 else 255)
    return Outcome(FAILED, bounded(text_of(code)), is_exit=True, exit_code=1)


def outcome_after(signalled: str, outcome: Outcome) -> Outcome:
    """Return how a script ends after a signal: a failure that follows is not hidden by it."""
    is_more = outcome.status == FAILED and outcome.message and not outcome.is_exit
    return replace(outcome, status=CANCELED, message=f"{signalled}, then {outcome.message}" if is_more else signalled)


def bounded(text: str) -> str:
    """Return at most 2,000 characters, secrets replaced."""
    return redact(text[: 2 * MOST_MESSAGE])[:MOST_MESSAGE]


class Hooks:
    """The hooks in the interpreter while a run is watched; they are removed at its end.

    `sys.exit`, `exit` and `quit`, `sys.excepthook` and the handlers of SIGTERM and SIGINT call what was there before. A
    handler is only set in the main thread, and never if the signal is ignored or handled outside of Python. Hooks that
    others have put over ours stay, and ours below them only pass on.
    """

    def __init__(self, ending: TrainingMonitor) -> None:
        self._ending = ending
        self._exit: Callable[..., Any] = sys.exit
        self._excepthook = sys.excepthook
        self._quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)  # class of `exit` and `quit`
        self._quit: Callable[..., Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._noted: tuple[Outcome, int] | None = None  # a possible end, and the script's count at that time
        self._is_active = False
        self._our_exit, self._our_excepthook, self._our_quit = self._see_exit, self._see_exception, self._quitting()
        self._our_handler = self._see_signal

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
        with suppress(OSError, ValueError):
            signal.signal(number, self._our_handler)
            self._handlers[number] = before

    def _restore(self, number: int) -> None:
        with suppress(OSError, ValueError):  # outside the main thread our handler stays, and passes on
            if signal.getsignal(number) is self._our_handler:
                signal.signal(number, self._before(number))

    def _before(self, number: int) -> Any:
        """Return the handler from before ours and before those of monitors that have ended since."""
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
            signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        if self._is_active:
            raise SystemExit(128 + number)
        signal.raise_signal(number)

    def _see_exit(self, code: Any = None, /) -> NoReturn:
        self._note(code)
        self._exit(code)
        raise SystemExit(code)  # in case a replaced sys.exit returned

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
            if self._is_active and not hasattr(sys, "ps1"):  # not for an error at an interactive prompt
                if sys.flags.interactive:
                    self._noted = outcome_of(error), self._ending.count()
                else:
                    self._ending.end(outcome_of(error))

    def _at_exit(self) -> None:
        noted = self._noted
        if noted and noted[1] == self._ending.count():  # otherwise it was caught, and the script continued
            self._ending.end(noted[0])
        else:
            self._ending.end(Outcome(FINISHED))


class Warnings:
    """A sink that shows each kind of trouble once, and raises nothing, even if warnings are errors."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: str, message: str, stacklevel: int = 2) -> None:
        if kind in self._told or len(self._told) >= _MOST_WARNINGS:
            return
        self._told.add(kind)
        with suppress(Exception):
            warnings.warn(f"training_monitor: {message}", RuntimeWarning, stacklevel=stacklevel + 1)


def harmless(default: R) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Make a method do nothing while its object is inactive, and warn instead of raising."""

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def call(self: S, /, *args: P.args, **options: P.kwargs) -> R:
            if not self.is_active:
                self.note_inactive_call()
                return default
            try:
                return method(self, *args, **options)
            except Exception as error:
                name = method.__name__
                self.troubles.warn(name, f"{name}() did nothing: {type(error).__name__}: {text_of(error)}", 2)
                return default

        return call

    return decorate
