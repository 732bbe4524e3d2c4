"""The main loop of a screen: draw, wait for keys, apply them, until the user quits."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from training_monitor.core.engine import Engine, start_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.targets.transport import run_on_terminal
from training_monitor.ui.kit.keys import App, update
from training_monitor.ui.kit.page import render_screen
from training_monitor.ui.kit.terminal import Terminal, open_terminal
from training_monitor.ui.kit.view import Do, S, V, said

T = TypeVar("T")
_TICK_SECONDS = 1.0
_MESSAGE_SECONDS = 8.0  # that a message stays when no key is pressed
_TURN_SECONDS = 0.001  # switch interval: a key press must not wait long for threads that parse replies


class ScreenLeft(KeyboardInterrupt):
    """The user quit a screen by its key, and with it the work beside it."""


class Session(Generic[V, S]):
    """The data of a screen, which an engine collects, and the executor of its commands. No method blocks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(self, ring: Callable[[], None]) -> None:
        """Start looking in the background; call `ring` whenever there is something new to show."""
        self._engine.start()
        self._engine.listen(ring)

    def close(self) -> None:
        """Stop looking."""
        self._engine.close()

    def look(self, view: V) -> tuple[S, V]:
        """Return the current snapshot, and the view updated with it."""
        raise NotImplementedError

    def drawn(self, view: V) -> None:
        """Take note of the view that was drawn."""

    def step_aside(self, command: Any) -> list[str]:
        """Return the program that gets the terminal for a command `shell`; may take a while.

        Raises:
            TrainingMonitorError: there is none.
        """
        raise NotImplementedError

    def obey(self, view: V, command: Any) -> V:
        """Execute a command and return the view after it.

        Raises:
            TrainingMonitorError: it failed.
        """
        raise NotImplementedError


def run_screen(app: App[V, S], session: Session[V, S], view: V) -> None:
    """Show a session on this terminal until the user quits; starts it and closes it.

    Raises:
        TrainingMonitorError: stdin or stdout is not a usable terminal; the session was not started.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the terminal is restored.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    with open_terminal() as terminal:
        try:
            session.start(terminal.bell.ring)
            _show(app, session, view, terminal)
        finally:
            session.close()


def run_beside(app: App[V, S], session: Session[V, S], view: V, work: Callable[[], T]) -> T:
    """Show a session in a thread while `work` runs in this one, the main thread; return its result.

    When the user quits, `work` is interrupted. It goes on without a screen when the terminal is gone.

    Raises:
        TrainingMonitorError: stdin or stdout is not a usable terminal, or no thread is left; `work` was not called.
        ScreenLeft: the user quit; the terminal is restored.
        KeyboardInterrupt: the same after Ctrl-C, SIGTERM or SIGHUP.
    """
    sys.setswitchinterval(_TURN_SECONDS)
    reasons: list[BaseException] = []  # why the screen ended the work

    def show() -> None:
        try:
            if _show(app, session, view, terminal):
                reasons.append(ScreenLeft())
        except BaseException as error:
            reasons.append(error)
        if reasons:
            os.kill(os.getpid(), signal.SIGUSR1)  # unlike `interrupt_main`, it ends a wait of the main thread

    with open_terminal() as terminal:
        session.start(terminal.bell.ring)
        thread = start_thread(show, "screen")
        try:
            return work()
        except KeyboardInterrupt:
            if reasons:
                raise reasons[0] from None
            raise
        finally:
            terminal.leave()
            thread.join()
            session.close()


def _show(app: App[V, S], session: Session[V, S], view: V, terminal: Terminal) -> bool:
    """Show the session, and return True when the user quits, False when the terminal is gone or left."""
    message, said_at = "", 0.0
    while True:
        snapshot, view = session.look(view)
        if view.message != message:
            message, said_at = view.message, time.monotonic()
        elif time.monotonic() - said_at >= _MESSAGE_SECONDS:
            view = said(view, "")
        frame = render_screen(app, snapshot, view, *terminal.size())
        terminal.draw(frame.lines)
        view = frame.view
        session.drawn(view)
        keys = terminal.keys(_TICK_SECONDS)
        if keys is None:
            return False
        for key in keys:
            said_at = time.monotonic()
            view, commands = update(app, view, key, snapshot)
            for command in commands:
                if command == Do("quit"):
                    return True
                view = _obeyed(session, view, command, terminal)


def _obeyed(session: Session[V, S], view: V, command: Any, terminal: Terminal) -> V:
    if command == Do("redraw"):
        terminal.redraw()
        return view
    try:
        if isinstance(command, Do) and command.name == "shell":
            with terminal.lent():
                code = run_on_terminal(session.step_aside(command))
            return said(view, f"the shell exited{f' with code {code}' if code else ''}")
        return session.obey(view, command)
    except TrainingMonitorError as error:
        return said(view, str(error))
