"""How a script ends, seen from inside: the meaning of an exception, and the hooks that see it.

SIGKILL and a crash in C cannot be seen from inside; a reader of the file then finds the process gone. Nothing raises
into a training: each kind of trouble becomes a warning, once.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from training_monitor.core.masking import redact
from training_monitor.core.shown import text_of
from training_monitor.runs.ownership import started_by
from training_monitor.runs.values import CANCELED, FAILED, FINISHED

MOST_MESSAGE = 2000
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MOST_WARNINGS = 50
_FORKING = ("_launch", "main")  # the functions of multiprocessing, and of its forkserver, in which a child begins
_EXIT_LIMIT = 2.0  # how many seconds os._exit waits for the last write
_CANCELLATIONS = ("CancelledError", "Cancelled")  # of asyncio, concurrent.futures and trio
P = ParamSpec("P")
R = TypeVar("R")


class Outcome(NamedTuple):
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
    if isinstance(error, KeyboardInterrupt | GeneratorExit) or type(error).__name__ in _CANCELLATIONS:
        return Outcome(CANCELED, type(error).__name__, is_exit=True)
    if isinstance(error, SystemExit):
        return outcome_of_exit(error.code, error.__context__)
    return Outcome(FAILED, bounded(f"{type(error).__name__}: {text_of(error)}"))


def outcome_of_exit(code: object, handled: BaseException | None = None) -> Outcome:
    """Return how a script ends with this argument of sys.exit: None, a number, or a text (exit code 1).

    Args:
        handled: the exception that was handled at that time: it is why the script exits with a number other than 0.
    """
    if code is None or code == 0:
        return Outcome(FINISHED, is_exit=True, exit_code=0)
    if isinstance(code, int):
        why = outcome_of(handled).message if isinstance(handled, Exception) else None
        return Outcome(FAILED, why, is_exit=True, exit_code=code & 0xFF if abs(code) < 2**63 else 255)
    return Outcome(FAILED, bounded(text_of(code)), is_exit=True, exit_code=1)


def outcome_after(signalled: str, outcome: Outcome) -> Outcome:
    """Return how a script ends after a signal: a failure that follows is not hidden by it."""
    is_more = outcome.status == FAILED and outcome.message and not outcome.is_exit
    return outcome._replace(status=CANCELED, message=f"{signalled}, then {outcome.message}" if is_more else signalled)


def bounded(text: str) -> str:
    """Return at most 2,000 characters, secrets replaced."""
    return redact(text[: 2 * MOST_MESSAGE])[:MOST_MESSAGE]


class Run(Protocol):
    """What the hooks look at and end: what a `TrainingMonitor` has for them."""

    def end(self, outcome: Outcome) -> None: ...
    def note_signal(self, name: str) -> None: ...
    def count(self) -> int: ...
    def is_trained_here(self) -> bool: ...
    def is_within(self, frame: FrameType | None) -> bool: ...


class Hooks:
    """The hooks in the interpreter while a run is watched; they are removed at its end.

    One table for every way in which a script can end, whether Python calls a hook there, a function is replaced by one
    that looks and then calls it, or the standard library keeps a list of what to call:

    * exits: `sys.exit`, `exit` and `quit`, `os._exit`, and atexit at the end of the script. Children of multiprocessing
      run atexit from Python 3.13 on, and before that only finalizers.
    * exceptions: `sys.excepthook`, `threading.excepthook`, the end of a cell of IPython, and what the worker of a pool
      makes of the exception of a task before it returns it.
    * SIGTERM and SIGINT: handlers that call what was there before. They are only set in the main thread, and never if
      the signal is ignored or handled outside of Python.

    Hooks that others have put over ours stay, and ours below them only pass on.
    """

    def __init__(self, ending: Run) -> None:
        self._ending = ending
        self._replaced: list[tuple[object, str, Any, Any]] = []  # owner, name, what was there, what is there now
        self._handlers: dict[int, Any] = {}
        self._finalizers: list[Any] = []  # of multiprocessing, in a child of it
        self._notebook: Any = None  # the shell of IPython
        self._before_cell: tuple[object, object] = (None, None)  # the script's count and the last error, before a cell
        self._noted: tuple[Outcome, int] | None = None  # a possible end, and the script's count at that time
        self._delayed: int | None = None  # a signal that ends the process once its end is written
        self._is_active = False
        self.is_over = False  # whether the process itself ends
        self._our_handler = self._see_signal

    def install(self, *, signals: bool) -> None:
        self._is_active = True
        quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)  # class of `exit` and `quit`
        self._replace(sys, "exit", self._see_exit)
        self._replace(quitter, "__call__", lambda quitter, code=None: self._see_exit(code))
        self._replace(os, "_exit", self._see_exit_at_once)
        self._replace(sys, "excepthook", self._see_exception, is_after=True)
        self._replace(threading, "excepthook", self._see_exception_of_thread, is_after=True)
        self._replace(sys.modules.get("multiprocessing.pool"), "ExceptionWithTraceback", self._see_exception_of_task)
        self._replace(
            sys.modules.get("concurrent.futures.process"), "_ExceptionWithTraceback", self._see_exception_of_task
        )
        atexit.register(self._at_exit)
        if module := started_by():
            util = sys.modules[module.__name__.replace(".process", ".util")]
            self._finalizers = [util.Finalize(None, self._at_exit, exitpriority=0)]
            self._replace(traceback, "print_exc", self._see_exception_of_child)
        with suppress(Exception):  # an interpreter without IPython, or with an older one
            self._notebook = sys.modules["IPython"].get_ipython()
            self._notebook.events.register("pre_run_cell", self._see_cell_begin)
            self._notebook.events.register("post_run_cell", self._see_cell_end)
            self._before_cell = None, getattr(sys, "last_value", None)
        if signals and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._handle(number)

    def remove(self) -> None:
        self._is_active = False
        for owner, name, before, ours in self._replaced:
            if getattr(owner, name, None) is ours:
                setattr(owner, name, before)
        for finalizer in self._finalizers:
            finalizer.cancel()
        with suppress(Exception):  # during the exit callbacks themselves
            atexit.unregister(self._at_exit)
        with suppress(Exception):
            self._notebook.events.unregister("pre_run_cell", self._see_cell_begin)
            self._notebook.events.unregister("post_run_cell", self._see_cell_end)
        for number in list(self._handlers):
            self._restore(number)

    def _replace(self, owner: object, name: str, see: Callable[..., None], *, is_after: bool = False) -> None:
        """Let a function be seen when it is called, before or after what it does."""
        if (before := getattr(owner, name, None)) is None:
            return

        @functools.wraps(before, updated=())
        def ours(*arguments: Any, **options: Any) -> Any:
            if self._is_active and not is_after:
                with suppress(Exception):
                    see(*arguments, **options)
            try:
                return before(*arguments, **options)
            finally:
                if self._is_active and is_after:
                    see(*arguments, **options)

        setattr(owner, name, ours)
        self._replaced.append((owner, name, before, ours))

    # ------------------------------------------------------------ signals

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
        before, worker = self._before(number), _worker_at(frame) if self._finalizers else ""
        if self._is_active and worker == "waits":
            self._at_exit()
        elif self._is_active and not worker:
            self._ending.note_signal(signal.Signals(number).name)
        if callable(before):
            before(number, frame)
            return
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        if self._is_active and not worker:
            raise SystemExit(128 + number)
        if self._is_active and worker == "exits":  # its end is written first, perhaps by what was interrupted
            self._delayed = number
            return
        signal.raise_signal(number)

    # ------------------------------------------------------------ exits

    def _see_exit(self, code: object = None, /) -> None:
        if _is_of_multiprocessing(sys._getframe(2)) and self._noted:  # the exit of a child after what was noted
            return
        if threading.current_thread() is threading.main_thread():
            self._noted = self._outcome_of_exit(code), self._ending.count()

    def _see_exit_at_once(self, status: int) -> None:
        """Write the end before `os._exit`, which whoever calls it expects to be quick."""
        arguments = (self._outcome_of_exit(status),)
        last = threading.Thread(target=self._ending.end, args=arguments, name="training_monitor ends", daemon=True)
        try:
            last.start()
        except RuntimeError:  # no thread left, or the interpreter is exiting (Python 3.12)
            self._ending.end(*arguments)
        else:
            last.join(_EXIT_LIMIT)

    def _outcome_of_exit(self, code: object) -> Outcome:
        """Return the outcome of an exit that is called now; it counts as one if the training is still under way."""
        outcome = outcome_of_exit(code, sys.exc_info()[1])
        return outcome._replace(is_exit=bool(outcome.exit_code) or self._ending.is_within(sys._getframe()))

    def _at_exit(self) -> None:
        """End the run with its process. In a child of multiprocessing the exception of its function is on its way."""
        self.is_over, noted, error = True, self._noted, sys.exc_info()[1]
        if error is not None:
            self._ending.end(outcome_of(error))
        elif noted and noted[1] == self._ending.count():  # otherwise it was caught, and the script continued
            self._ending.end(noted[0])
        elif code := _code_of_child(sys._getframe()):
            self._ending.end(outcome_of_exit(code))
        else:
            self._ending.end(Outcome(FINISHED))
        if self._delayed is not None:
            signal.raise_signal(self._delayed)

    # ------------------------------------------------------------ exceptions

    def _see_exception(self, kind: type[BaseException], error: BaseException, raised: TracebackType | None) -> None:
        if hasattr(sys, "ps1"):  # an error at an interactive prompt
            return
        if sys.flags.interactive:
            self._noted = outcome_of(error), self._ending.count()
        else:
            self.is_over = True
            self._ending.end(outcome_of(error))

    def _see_exception_of_thread(self, failure: threading.ExceptHookArgs) -> None:
        if self._ending.is_trained_here() and failure.exc_value is not None:
            self._ending.end(outcome_of(failure.exc_value))

    def _see_exception_of_task(self, error: BaseException, raised: TracebackType | None) -> None:
        if self._ending.is_trained_here():
            self._ending.end(outcome_of(error))

    def _see_exception_of_child(self, *arguments: object, **options: object) -> None:
        """Note the exception of a child, which runs atexit only after it was handled (Python 3.13)."""
        if sys._getframe(2).f_code.co_name == "_bootstrap" and (error := sys.exc_info()[1]):
            self._noted = outcome_of(error), self._ending.count()

    def _see_cell_begin(self, info: object) -> None:
        self._before_cell = self._ending.count(), getattr(sys, "last_value", None)

    def _see_cell_end(self, result: Any) -> None:
        """End the run with an error of the cell that trained; that of `%run` is only found at `sys.last_value`."""
        count, earlier = self._before_cell
        last = getattr(sys, "last_value", None)
        error = result.error_in_exec or (last if last is not earlier else None)
        if error is not None and count != self._ending.count():
            self._ending.end(outcome_of(error))


def _worker_at(frame: FrameType | None) -> str:
    """Return "waits" in the worker of a pool without a task, "exits" in a child of multiprocessing that ends, else "".

    A pool ends its workers by SIGTERM, whatever they do: an exception of ours would show as one of multiprocessing.
    """
    while frame is not None:
        name, is_inside = frame.f_code.co_name, _is_of_multiprocessing(frame)
        if is_inside and name == "worker":
            has_returned = frame.f_locals.get("func") is None or frame.f_locals.get("result") is not None
            return "waits" if has_returned else ""
        if name == "run":  # of the child's process, or of anything that it calls
            return ""
        if is_inside and name in ("_bootstrap", *_FORKING):
            return "exits"
        frame = frame.f_back
    return "exits"


def _code_of_child(frame: FrameType | None) -> Any:
    """Return the exit code with which a forked child of multiprocessing ends; 0 if it is not known yet."""
    names = ("_bootstrap", *_FORKING)
    while frame is not None and not (frame.f_code.co_name in names and _is_of_multiprocessing(frame)):
        frame = frame.f_back
    return frame.f_locals.get("code", 0) if frame and frame.f_code.co_name != "_bootstrap" else 0


def _is_of_multiprocessing(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("multiprocessing", "multiprocess")


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


def harmless(default: R, within: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method do nothing while its object is inactive, and warn instead of raising.

    The object has a method `takes_call`, and `Warnings` as its `troubles`. `within` is the method that scripts call, if
    only that one calls it.
    """

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **options: P.kwargs) -> R:
            owner: Any = args[0]
            name = method.__name__
            try:
                return method(*args, **options) if owner.takes_call(name) else default
            except Exception as error:
                said = f"{within or name}() did nothing: {type(error).__name__}: {text_of(error)}"
                owner.troubles.warn(name, said, 3 if within else 2)
                return default

        return call

    return decorate
