"""The screen of a fleet: show what is known, answer keys, until somebody quits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from training_monitor.errors import TrainingMonitorError
from training_monitor.policy.fleet_values import Fleet
from training_monitor.policy.training_metrics import Thresholds
from training_monitor.tui.keys import Command, update
from training_monitor.tui.log_feed import follow
from training_monitor.tui.screens import render
from training_monitor.tui.terminal import Terminal, open_terminal, terminal_glyphs
from training_monitor.tui.view import Options, View

_TICK_SECONDS = 1.0
_TURN_SECONDS = 0.001  # after which a thread lets the next one go on: a key waits for all that read what was answered
_THRESHOLDS = Thresholds()


def run_fleet(
    fleet: Fleet,
    *,
    read_only: bool = False,
    title: str = "fleet",
    group: str | None = None,
    thresholds: Thresholds = _THRESHOLDS,
) -> None:
    """Show a fleet on this terminal until somebody quits; starts the fleet and closes it.

    Args:
        read_only: nothing can be stopped or destroyed.
        title: what stands at the top.
        group: show only its members; None: all.
        thresholds: from where on a value is worth a warning.

    Raises:
        TrainingMonitorError: this is no terminal that can show a screen; the fleet was not started.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the terminal is as it was.
    """
    view = View(Options(title, read_only, terminal_glyphs(), thresholds), group=group)
    sys.setswitchinterval(_TURN_SECONDS)
    with open_terminal() as terminal:
        try:
            fleet.start()
            fleet.listen(terminal.bell.ring)
            _show(fleet, view, terminal)
        finally:
            fleet.close()


def _show(fleet: Fleet, view: View, terminal: Terminal) -> None:
    while True:
        snapshot = fleet.snapshot()
        view = replace(view, feed=follow(view.feed, snapshot.rows))
        frame = render(snapshot, view, *terminal.size(), fleet.recent)
        terminal.draw(frame.lines)
        view = frame.view
        keys = terminal.keys(_TICK_SECONDS)
        if keys is None:
            return
        for key in keys:
            view, commands = update(view, key, snapshot)
            for command in commands:
                if command.name == "quit":
                    return
                view = _obeyed(view, command, fleet, terminal)


def _obeyed(view: View, command: Command, fleet: Fleet, terminal: Terminal) -> View:
    try:
        _ACTS[command.name](fleet, terminal, command)
    except TrainingMonitorError as error:
        return replace(view, message=str(error))
    return view


_ACTS: dict[str, Callable[[Fleet, Terminal, Command], None]] = {
    "refresh": lambda fleet, terminal, command: fleet.refresh(),
    "pause": lambda fleet, terminal, command: fleet.set_paused(True),
    "resume": lambda fleet, terminal, command: fleet.set_paused(False),
    "clear": lambda fleet, terminal, command: fleet.clear_logs(),
    "redraw": lambda fleet, terminal, command: terminal.redraw(),
    "stop": lambda fleet, terminal, command: fleet.act("stop", command.keys),
    "destroy": lambda fleet, terminal, command: fleet.act("destroy", command.keys),
}
