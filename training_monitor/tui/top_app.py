"""The screen of `top`: show what is known, answer keys, until somebody quits."""

from __future__ import annotations

import sys
from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.policy.signal_outcomes import SIGNAL_NUMBERS
from training_monitor.supervise.run_collector import RunCollector
from training_monitor.tui.log_feed import gain
from training_monitor.tui.terminal import Terminal, open_terminal, terminal_glyphs
from training_monitor.tui.top_keys import update
from training_monitor.tui.top_output import OutputReader
from training_monitor.tui.top_screens import render_top
from training_monitor.tui.top_view import (
    Command,
    DeleteRun,
    Do,
    EditVariable,
    MoveOutput,
    OpenOutput,
    SearchOutput,
    SendSignal,
    TopView,
    expanded_pids,
)
from training_monitor.tui.top_viewer import pane_height
from training_monitor.tui.view import Options
from training_monitor.units import plural

_TICK_SECONDS = 1.0
_TURN_SECONDS = 0.001  # after which a thread lets the next one go on: a key waits for all that read what was answered


def run_top(collector: RunCollector, *, read_only: bool, title: str) -> None:
    """Show the runs of a folder on this terminal until somebody quits; starts the collector and closes it.

    Args:
        read_only: no key can signal, edit or delete.
        title: what stands at the top.

    Raises:
        TrainingMonitorError: this is no terminal that can show a screen; the collector was not started.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP; the terminal is as it was.
    """
    view = TopView(Options(title, read_only, terminal_glyphs()))
    sys.setswitchinterval(_TURN_SECONDS)
    with open_terminal(mouse=True) as terminal:
        top = _Top(collector, terminal, view)
        try:
            collector.start()
            collector.listen(terminal.bell.ring)
            top.show()
        finally:
            top.close_output()
            collector.close()


class _Top:
    """What the loop holds: the view, the snapshot that is shown, and who reads the output that is open."""

    def __init__(self, collector: RunCollector, terminal: Terminal, view: TopView) -> None:
        self._collector, self._terminal, self._view = collector, terminal, view
        self._snapshot = collector.snapshot()
        self._wanted_after: float | None = None  # while paused: a look later than this is to be shown
        self._reader: OutputReader | None = None

    def show(self) -> None:
        """Draw and answer keys until somebody quits or the terminal is gone."""
        while True:
            self._look()
            width, height = self._terminal.size()
            frame = render_top(self._snapshot, self._view, width, height)
            self._terminal.draw(frame.lines)
            self._view = frame.view
            if self._reader is not None:
                self._reader.show(self._view.shown, pane_height(self._view, height))
            keys = self._terminal.keys(_TICK_SECONDS)
            if keys is None or not all(map(self._answer, keys)):
                return

    def close_output(self) -> None:
        """Read the output no more."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    # ------------------------------------------------------------ what is known

    def _look(self) -> None:
        """Take over what is new: the runs, unless the screen is paused, messages, and the windows of the output."""
        snapshot = self._collector.snapshot()
        if not self._view.paused or self._is_wanted(snapshot):
            self._snapshot, self._wanted_after = snapshot, None
        self._collector.expand(expanded_pids(self._snapshot, self._view))
        messages = self._collector.messages()
        if news := gain(self._view.messages, messages):
            self._view = replace(self._view, message=news[-1])
        panes = () if self._reader is None else self._reader.panes
        self._view = replace(self._view, messages=messages, panes=panes)

    def _is_wanted(self, snapshot: RunsSnapshot) -> bool:
        return self._wanted_after is not None and snapshot.timestamp > self._wanted_after

    # ------------------------------------------------------------ what is asked for

    def _answer(self, key: str) -> bool:
        """Whether to go on."""
        self._view, commands = update(self._view, key, self._snapshot)
        for command in commands:
            if command == Do("quit"):
                return False
            self._obey(command)
        return True

    def _obey(self, command: Command) -> None:
        match command:
            case Do("redraw"):
                self._terminal.redraw()
            case Do("refresh"):
                self._wanted_after = self._snapshot.timestamp
                self._collector.refresh()
            case Do("close"):
                self.close_output()
            case OpenOutput(run):
                self.close_output()
                self._reader = OutputReader(self._collector.source, run, self._terminal.bell.ring)
                self._reader.start()
            case Do() | MoveOutput() | SearchOutput():
                if self._reader is not None:
                    self._reader.ask(command)
            case SendSignal():
                self._collector.act(f"SIG{command.signal} to {command.what}", lambda: self._send(command))
            case DeleteRun(run):
                self._collector.act(f"delete {run.name}", lambda: self._delete(command))
            case EditVariable(run, variable, text):
                self._collector.act(f"{run.name}: {variable} = {text}", lambda: self._edit(command))

    # ------------------------------------------------------------ acts: in a thread of the collector

    def _send(self, command: SendSignal) -> str:
        answers = self._collector.source.send_signal(command.targets, SIGNAL_NUMBERS[command.signal])
        if len(answers) == 1:
            return answers[0]
        for answer in answers:
            self._collector.tell(answer)
        return f"{plural(len(answers), 'process', 'processes')} asked; m shows what came of each"

    def _delete(self, command: DeleteRun) -> str:
        self._collector.source.delete(command.run)
        return "deleted"

    def _edit(self, command: EditVariable) -> str:
        self._collector.source.edit(command.run, {command.variable: command.text})
        return "asked for; VALUE changes when the run answers"
