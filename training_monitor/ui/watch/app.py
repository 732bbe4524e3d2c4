"""The screen of `watch`: its keys, and the session that takes in what a watch sees and does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Event, Progress
from training_monitor.core.units import known_number
from training_monitor.core.values import LogUpdate, TrainingStatus
from training_monitor.logs.job_progress import job_progress
from training_monitor.look.evidence import Evidence
from training_monitor.look.looks import Look
from training_monitor.supervision.terminate import termination_phase
from training_monitor.supervision.watch_state import KEPT_OUTPUT, may_end
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.ui.kit.keys import (
    BACK,
    CLOSE_HELP,
    HELP,
    QUIT,
    REDRAW,
    REFRESH,
    SCROLLS,
    App,
    By,
    Key,
    Screen,
    moves,
    scroll,
)
from training_monitor.ui.kit.loop import Session, run_beside
from training_monitor.ui.kit.terminal import terminal_glyphs
from training_monitor.ui.kit.text import gain
from training_monitor.ui.kit.view import Table, opened, said
from training_monitor.ui.watch.pages import draw_events, draw_header, draw_log, draw_main
from training_monitor.ui.watch.view import ProcessFacts, WatchSnapshot, WatchView

KEPT_LINES, KEPT_EVENTS, KEPT_LOSSES, KEPT_STEPS = 2000, 1000, 1024, 256
LIST_SECONDS = 60.0  # between two listings of the checkpoints, however often the target is looked at
LEAST_SECONDS = 5.0  # between two steps whose times tell a speed
SETTLED_SECONDS = 3.0  # after the first step, when the lines that were there before have come
T = TypeVar("T")

# ---------------------------------------------------------------- keys


def _open(screen: str) -> Callable[[WatchView, WatchSnapshot], WatchView]:
    """Return an action that opens a page over the main one; the log opens at its end."""

    def act(view: WatchView, snapshot: WatchSnapshot) -> WatchView:
        scroll = view.scroll if view.screen == "main" else view.back_scroll
        return replace(opened(view, screen), back="main", back_scroll=scroll, log_top=None)

    return act


def _scroll_log(by: By) -> Callable[[WatchView, WatchSnapshot], WatchView]:
    return lambda view, snapshot: replace(view, log_top=max(0, view.top + by(view)))


_QUIT = replace(QUIT, help="quit (also Ctrl+C); the training continues")
_LOG = Key("l", "show only the log, and scroll it", _open("log"), "log")
_EVENTS = Key("e", "show all events, including notices", _open("events"), "events")
_REFRESH = replace(REFRESH, help="refresh now", word="refresh now")
_HELP = replace(HELP, act=_open("help"))
_ALL: tuple[Key[Any, Any], ...] = (_QUIT, _REFRESH, _LOG, _EVENTS, _HELP)
_MAIN: tuple[Key[Any, Any], ...] = (*_ALL, *moves(scroll), REDRAW)
APP: App[WatchView, WatchSnapshot] = App(
    Table("training", lambda snapshot, view: [], str, lambda view: view, (), ""),
    draw_header,
    {
        "main": Screen(draw_main, _MAIN, section="what is watched"),
        "log": Screen(draw_log, (BACK, *_ALL, *moves(_scroll_log), REDRAW)),
        "events": Screen(draw_events, (BACK, *_ALL, *SCROLLS)),
        "help": Screen(None, (CLOSE_HELP, _QUIT, _REFRESH, _LOG, _EVENTS, *SCROLLS)),
    },
    {"k": "up", "j": "down", "g": "home", "G": "end"},
)


# ---------------------------------------------------------------- the session


class WatchSession(Session[WatchView, WatchSnapshot]):
    """What a watch has seen and done so far; the callbacks of `watch_training` fill it, from any thread.

    Args:
        watcher: the one that looks.
        ends: whether it ends a stalled training.
        streams: whether `line` is called with each line of the log; else the looks bring them.

    Attributes:
        refresh: set to ask for a look now.
    """

    def __init__(self, watcher: TrainingWatcher, *, ends: bool, streams: bool) -> None:
        self._watcher, self._ends, self._streams = watcher, ends, streams
        watcher.list_seconds = LIST_SECONDS
        self._time = watcher.clock.time
        self._lock = threading.RLock()  # held only briefly: the thread that draws takes it for each frame
        self._ring: Callable[[], None] = lambda: None
        self._seen = WatchSnapshot(0.0, watcher.job.label, str(watcher.target), watcher.job.output_dir)
        self._lines: deque[str] = deque(_whole_lines(watcher), maxlen=KEPT_LINES)
        self._count = len(self._lines)
        self._events: deque[tuple[float, Event]] = deque(maxlen=KEPT_EVENTS)
        self._losses: list[float] = []
        self._steps: deque[tuple[float, int]] = deque(maxlen=KEPT_STEPS)
        self._first_step_at: float | None = None
        self._evidence: Evidence | None = None
        self.refresh = threading.Event()
        self.started_at = self._time()

    def start(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def close(self) -> None:
        self._ring = lambda: None

    # ------------------------------------------------------------ what the watch tells

    def looked(self, error: TrainingMonitorError | None) -> None:
        """Take in that a look was answered, or why it failed."""
        now, seen = self._time(), self._seen
        if error is None:
            self._change(error=None, stale_since=None, failing_since=None)
            return
        self._change(
            error=str(error),
            stale_since=seen.status.timestamp if seen.status else None,
            failing_since=now if seen.failing_since is None else seen.failing_since,
        )

    def status(self, status: TrainingStatus) -> None:
        """Take in a look."""
        look = self._watcher.last_look or Look()
        observations = self._watcher.state.looks.all()
        with self._lock:
            if not self._losses:
                by_step = {each.step: each.loss for each in observations if each.loss is not None}
                self._losses = [*by_step.values()][-KEPT_LOSSES:]
            if not self._streams:
                self._add_lines(*gain(tuple(self._lines), tuple(_whole_lines(self._watcher))))
            self._note_step(status.progress, status.timestamp)
            self._change(
                status=status,
                progress=self._with_speed(status.progress),
                progress_at=status.timestamp,
                gpus=look.gpus,
                gpu_error=look.gpu_error,
                process=self._process_facts(status, look),
                missing_log=self._watcher.missing_log,
            )

    def line(self, update: LogUpdate) -> None:
        """Take in a line of a followed log."""
        with self._lock:
            seen = self._seen
            self._add_lines(update.line)
            is_step, written_at = self._note_step(update.progress, update.timestamp), self._watcher.state.written_at
            at = update.timestamp if written_at is None else min(update.timestamp, written_at)
            self._change(
                progress=self._with_speed(update.progress),
                progress_at=update.timestamp,
                step_at=at if is_step else seen.step_at,
                missing_log=None,
            )

    def event(self, event: Event) -> None:
        """Take in an event."""
        phase = self._seen.phase
        if self._ends:
            with suppress(TrainingMonitorError):  # whoever ends the training meets it as well
                phase = termination_phase(self._watcher)
        with self._lock:
            self._events.append((self._time(), event))
            self._change(phase=phase)

    def tell(self, text: str) -> None:
        """Take in a remark that would otherwise be printed."""
        with self._lock:
            self._events.append((self._time(), Event("detected", text)))
        self._ring()

    @property
    def events(self) -> list[tuple[float, Event]]:
        """The events so far, with the seconds since the start."""
        with self._lock:
            return [(at - self.started_at, event) for at, event in self._events]

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._seen = self._seen._replace(**changes)
        self._ring()

    # The caller of these holds the lock.

    def _add_lines(self, *lines: str) -> None:
        self._lines.extend(lines)
        self._count += len(lines)

    def _note_step(self, progress: Progress, now: float) -> bool:
        """Keep the time and the loss of a new step, and return whether it is one."""
        step, last = job_progress(progress).step, self._steps[-1][1] if self._steps else None
        if step is None or step == last:
            return False
        self._first_step_at = now if self._first_step_at is None else self._first_step_at
        if (last is not None and step < last) or now - self._first_step_at < SETTLED_SECONDS:
            self._steps.clear()  # it began again, or this line was written before it was followed
        self._steps.append((now, step))
        if progress.loss is not None:
            self._losses.append(progress.loss)
            if len(self._losses) > KEPT_LOSSES:
                self._losses = self._losses[::2]
        return True

    def _with_speed(self, progress: Progress) -> Progress:
        """Return the progress with a speed: its own, else that of the newest steps, else one measured before."""
        if progress.steps_per_second:
            return progress
        measured = self._seen.progress.steps_per_second
        (begun, first), (ended, last) = (self._steps[0], self._steps[-1]) if self._steps else ((0.0, 0), (0.0, 0))
        if ended - begun >= LEAST_SECONDS:
            measured = (last - first) / (ended - begun)
        return replace(progress, steps_per_second=measured)

    def _process_facts(self, status: TrainingStatus, look: Look) -> ProcessFacts:
        evidence, before = look.evidence, self._evidence
        self._evidence = evidence
        process = look.process
        words = (evidence.process or "").split()
        pid = process.identity.pid if process and process.running and process.identity else None
        return ProcessFacts(
            pid=int(words[0]) if pid is None and words else pid,
            cpu_cores=_cores(before, evidence),
            memory_bytes=evidence.memory_bytes,
            processes=evidence.processes,
            blocked=evidence.blocked,
            since=None if status.runtime is None else status.timestamp - status.runtime,
            command=process.command if process else look.view.command if look.view else None,
        )

    # ------------------------------------------------------------ what the screen shows

    def look(self, view: WatchView) -> tuple[WatchSnapshot, WatchView]:
        state = self._watcher.state
        with self._lock:
            lines, events = tuple(self._lines), tuple(self._events)
            seen, first = self._seen, self._count - len(lines) + 1
            losses = tuple(self._losses)
        partial = state.partial.replace("\r", "\n").rpartition("\n")[2]
        return seen._replace(
            now=self._time(),
            lines=lines,
            first_line=first,
            partial=partial,
            events=events,
            losses=losses,
            next_look_at=self._watcher.next_look_at,
            ends_at=self._ends_at(seen.status),
        ), view

    def _ends_at(self, status: TrainingStatus | None) -> float | None:
        config, since = self._watcher.config, self._watcher.state.alerts.stalled_at
        is_ended = self._ends and status is not None and status.stall.is_stalling and may_end(status.stall, config)
        return since + config.grace_period if is_ended and since is not None else None

    def obey(self, view: WatchView, command: Any) -> WatchView:
        self.refresh.set()
        return said(view, "looking now")


def _whole_lines(watcher: TrainingWatcher) -> list[str]:
    """Return the whole lines that the watcher keeps of the log, without one that may be cut at its beginning."""
    output = watcher.state.output
    lines = output.replace("\r", "\n").split("\n")
    return [line for line in lines[len(output) >= KEPT_OUTPUT :] if line.strip()]


def _cores(before: Evidence | None, now: Evidence) -> float | None:
    """Return the processors used between two looks at the same process; else what the look itself measured."""
    if before is None or before.process is None or before.process != now.process:
        return now.cpu_cores
    times = (before.cpu_seconds, now.cpu_seconds, before.runtime, now.runtime)
    first, last, begin, end = (known_number(each) for each in times)
    if first is None or last is None or begin is None or end is None or end <= begin or last < first:
        return now.cpu_cores
    return (last - first) / (end - begin)


def run_watch(session: WatchSession, work: Callable[[], T]) -> T:
    """Show a session on this terminal while `work`, a `watch_training` that fills it, runs; return its result.

    Raises:
        TrainingMonitorError: stdin or stdout is not a usable terminal; `work` was not called.
        ScreenLeft: q; the terminal is restored.
        KeyboardInterrupt: the same after Ctrl-C, SIGTERM or SIGHUP.
    """
    return run_beside(APP, session, WatchView(glyphs=terminal_glyphs()), work)
