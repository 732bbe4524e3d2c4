"""`watch`: follow a training in the terminal, send notices, and end it when it stalls, if you say so."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.cli.argument_types import (
    SECONDS_ABOVE_ZERO,
    STALLS,
    WHAT,
    CommandParser,
    amount,
    positive_number,
    some_name,
)
from training_monitor.cli.command_table import Command
from training_monitor.cli.keys import event_keys, progress_keys, status_keys
from training_monitor.cli.live import LiveLine, progress_parts
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.options import add_ending
from training_monitor.cli.output import (
    BAD,
    EXITS,
    OK,
    UNKNOWN,
    can_show_screen,
    format_unlisted,
    hint,
    interrupted_status,
    is_in_foreground,
    paint,
    print_json,
    put,
    say,
)
from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.core.fields import keys_of
from training_monitor.core.models import Event, JobStatus, Progress
from training_monitor.core.outcomes import TerminationPlan, WatchReport
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.units import format_bytes, format_duration
from training_monitor.core.values import LogUpdate, TrainingStatus, Verdict, WatchedJob
from training_monitor.logs.job_progress import format_standing, job_progress
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED

if TYPE_CHECKING:
    from training_monitor.core.store import Store
    from training_monitor.supervision import TrainingWatcher

PLAIN_SECONDS = 1.0
SAME_SECONDS = 30.0  # between two identical plain lines
_ENDS = {"finished": OK, "ended": UNKNOWN, "lost": UNKNOWN}


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    which = command.add_mutually_exclusive_group()
    which.add_argument("what", type=some_name, metavar="WHAT", nargs="?", help=WHAT)
    which.add_argument("--log", metavar="FILE", help="the training's log: a file or shell pattern on the target")
    which.add_argument(
        "--job", type=some_name, metavar="JOB", help="the job to watch: a Ray submission ID or process:NAME"
    )
    add_ending(command)
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--stream", action="store_true", help="follow the log line by line (default on a terminal)")
    mode.add_argument("--poll", action="store_true", help="read the log at intervals (default without a terminal)")
    mode.add_argument("--once", action="store_true", help="exit after one look, with the exit code of `check`")
    command.flag("--plain", "print one status line instead of the full-screen view")
    command.heartbeat()
    command.outage_after()
    command.flag("--terminate", "end the training if it stays stalled for the grace period")
    command.roll_call()
    command.take_over()
    command.add_argument(
        "--terminate-busy",
        action="store_const",
        const=True,
        help="with --terminate: also end the training if it completes no steps but its GPUs are busy or its log "
        "is growing",
    )
    command.add_argument(
        "--terminate-eta",
        dest="terminate_on_eta",
        action="store_const",
        const=True,
        help="with --terminate: also end a training whose ETA does not converge, even if its speed has not fallen",
    )
    command.flag("--no-stall-detection", "never report the training as stalled")
    command.duration("--interval", "time between looks (default: 1m)")
    command.duration(
        "--grace-period", "time between the notice of a stall and the termination of the training (default: 15m)"
    )
    command.duration("--stall-after", f"{STALLS} (default: derived from the pace)")
    command.duration("--soft-limit", "send a notice after this run time", type=SECONDS_ABOVE_ZERO)
    command.duration("--hard-limit", "end the training after this run time; needs --terminate", type=SECONDS_ABOVE_ZERO)
    command.value("--cost-per-hour", "DOLLARS", "price of the training's machine per hour", type=amount)
    command.value("--budget", "DOLLARS", "send a notice when the training has cost this much", type=positive_number)


def run(args: Namespace) -> int:
    """Show a training until it ends; with --terminate also end it when it stalls."""
    from training_monitor.cli.watched import explained, make_plan, make_watcher
    from training_monitor.core.best_effort_store import BestEffortStore

    store = BestEffortStore()
    watcher = make_watcher(args, _watched_job(args, store), store)
    if args.once:
        with open_heartbeat(args.heartbeat) as heartbeat:
            status = watcher.poll()
            if heartbeat:
                heartbeat.beat()
        return _show_once(status, args)
    stream = args.stream or (sys.stdout.isatty() and not args.poll)
    plan = make_plan(args) if args.terminate else None
    if plan is None and (args.upload or args.destroy or args.destroy_without_upload or args.hard_limit):
        raise SettingsError("--upload, --destroy, --hard-limit", None, "--terminate as well")
    for option, given in (("--terminate-busy", args.terminate_busy), ("--terminate-eta", args.terminate_on_eta)):
        if plan is None and given:
            raise SettingsError(option, True, "--terminate as well")
    follow = _follow_on_screen if _wants_screen(args) else _follow
    with explained(watcher):
        report = follow(watcher, plan, args, stream=stream)
    assert report
    return _show_end(report, args)


def _watched_job(args: Namespace, store: Store) -> WatchedJob:
    """Return the job to watch, from the options or found on the target."""
    from training_monitor.cli.watched import find_job, with_options
    from training_monitor.look.meant import job_at

    if args.log is not None:
        job = job_at(args.log)
    elif args.job is not None:
        job = WatchedJob(job_id=args.job)
    else:
        job = find_job(args, args.what, store, lambda known: not args.once)
    return with_options(job, args)


def _wants_screen(args: Namespace) -> bool:
    """Return whether to show a screen; where the terminal is not fit for one, say why a line must do."""
    if args.json or args.plain or not can_show_screen() or not is_in_foreground():
        return False
    from training_monitor.ui.kit.terminal import check_terminal

    try:
        check_terminal()
    except TrainingMonitorError as error:
        hint(f"no screen: {error.what}")
        return False
    return True


def _follow(
    watcher: TrainingWatcher, plan: TerminationPlan | None, args: Namespace, *, stream: bool
) -> WatchReport | None:
    """Watch a training and print what happens, as lines or JSON objects."""
    display = _Display(watcher, args)
    with _watching(watcher, plan, args) as watch:
        try:
            return watch(on_status=display.status, on_line=display.line if stream else None, on_event=display.event)
        finally:
            display.clear()


def _follow_on_screen(
    watcher: TrainingWatcher, plan: TerminationPlan | None, args: Namespace, *, stream: bool
) -> WatchReport | None:
    """Do the same on a screen; when it closes, print the events, which it takes with it."""
    from training_monitor.ui.watch.app import WatchSession, run_watch

    session, live = WatchSession(watcher, ends=plan is not None, streams=stream), LiveLine(PLAIN_SECONDS)
    with _left_by_key(watcher), _watching(watcher, plan, args, session.tell) as watch:
        work = partial(
            watch,
            on_status=session.status,
            on_line=session.line if stream else None,
            on_event=session.event,
            on_look=session.looked,
            refresh=session.refresh,
        )
        try:
            return run_watch(session, work)
        finally:
            for elapsed, event in session.events:
                live.print_event(event, elapsed)


@contextmanager
def _watching(
    watcher: TrainingWatcher, plan: TerminationPlan | None, args: Namespace, on_problem: Callable[[str], None] = hint
) -> Iterator[Callable[..., WatchReport | None]]:
    """Yield `watch_training` for this command line, with its outbox and heartbeat."""
    from training_monitor.supervision import watch_training

    with open_outbox(args.notify, watcher.store) as outbox, open_heartbeat(args.heartbeat, on_problem) as heartbeat:
        yield partial(watch_training, watcher, plan=plan, outbox=outbox, heartbeat=heartbeat, take_over=args.take_over)


@contextmanager
def _left_by_key(watcher: TrainingWatcher) -> Iterator[None]:
    """Say after `q` that nothing was stopped, in other words than after an interrupt."""
    from training_monitor.supervision.terminate import is_terminating
    from training_monitor.ui.kit.loop import ScreenLeft

    try:
        yield
    except ScreenLeft as left:
        if is_terminating(watcher):
            raise
        hint("the screen was closed; nothing was stopped")
        raise SystemExit(interrupted_status(left)) from None


class _Display:
    """Shows updates as one live line on a terminal, else as plain lines or JSON objects."""

    def __init__(self, watcher: TrainingWatcher, args: Namespace) -> None:
        self._watcher, self._args, self._live = watcher, args, LiveLine(PLAIN_SECONDS)
        self._missing: str | None = None  # the log that was said to be missing
        self._status: TrainingStatus | None = None
        self._shown: Progress | None = None
        self._drawn: tuple[object, ...] | None = None
        self._drawn_at = 0.0

    def line(self, update: LogUpdate) -> None:
        """Show a new line of a streamed log."""
        if self._args.json:
            seen = {**keys_of(update, progress=""), **progress_keys(update.progress)}
            print_json(self._args, {"kind": "line", **seen})
        elif update.progress != self._shown:
            self._shown = update.progress
            self._draw(update)

    def status(self, status: TrainingStatus) -> None:
        """Show a poll, and once that its log is not there yet."""
        self._status = status
        missing, before = self._watcher.missing_log, self._missing
        self._missing = missing
        if missing and missing != before:
            self.event(Event("waiting", f"log {missing} does not exist yet", self._watcher.job.job_id))
        if not print_json(self._args, _look_keys(status)):
            self._draw(status)

    def event(self, event: Event) -> None:
        if not print_json(self._args, event_keys(event)):
            self._live.print_event(event)

    def clear(self) -> None:
        self._live.clear()

    def _draw(self, seen: TrainingStatus | LogUpdate) -> None:
        verdict = seen.verdict if isinstance(seen, TrainingStatus) else None
        judged = _judged(verdict) if verdict and verdict.verdict in ("failed", "warning") else None
        stalled, kind, now = seen.stall.is_stalling, seen.stall.kind, time.monotonic()
        state = verdict.state if verdict and judged else None
        shown = (job_progress(seen.progress).step, seen.progress.loss, stalled, state)
        if not sys.stdout.isatty() and shown == self._drawn and now - self._drawn_at < SAME_SECONDS:
            return
        is_news = state is not None and (self._drawn is None or self._drawn[-1] != state)
        self._drawn, self._drawn_at = shown, now
        parts = progress_parts(seen.progress, stalled=stalled and kind != "slow")
        if self._status and self._status.status is JobStatus.PENDING:
            parts = [format_standing(self._status.status, seen.progress, self._status.message)]
        if judged:
            parts.append(judged)
        elif stalled:  # a line between two looks
            parts.append(f"{kind if kind in ('slow', 'suspended') else 'STALLED'}: {seen.stall.reason}")
        if self._status and self._status.is_running is None:
            parts.append(f"? {self._status.message or 'unknown whether it is running'}")
        parts += [f"? {error}" for error in (self._status.errors if self._status else ())]
        self._live.draw(*parts, is_news=is_news)


def _look_keys(status: TrainingStatus) -> dict[str, Any]:
    """Return one look: `end` is how the training ended, as far as that look tells."""
    from training_monitor.supervision.watch_state import decide_end

    ended = decide_end(status)
    return {"kind": "status", **status_keys(status), "end": ended[0] if ended else None}


def _judged(verdict: Verdict) -> str:
    return f"{verdict.state.upper() if EXITS[verdict.verdict] == BAD else verdict.state}: {verdict.reason}"


def _show_once(status: TrainingStatus, args: Namespace) -> int:
    verdict = status.verdict or NOBODY_LOOKED
    code = EXITS[verdict.verdict]
    if print_json(args, _look_keys(status)):
        return code
    running = {True: "running", False: "not running", None: "unknown whether it is running"}[status.is_running]
    stalled = verdict.state == "stalled"
    parts = [running, *progress_parts(status.progress, stalled=stalled)]
    if status.is_running and verdict.seconds_without_step is not None and not stalled:
        parts.append(f"last step {format_duration(verdict.seconds_without_step)} ago")
    if status.status is JobStatus.PENDING:
        parts = [format_standing(status.status, status.progress, status.message)]
    say("  ".join(parts))
    say(f"  {_judged(verdict)}")
    if status.message and status.status is not JobStatus.PENDING:
        say(f"  {status.message}")
    for checkpoint in (status.checkpoints or ())[-3:]:
        say(f"  checkpoint step {checkpoint.step}  {format_bytes(checkpoint.size_bytes)}  {checkpoint.path}")
    if status.unlisted_checkpoints:
        say(f"  {format_unlisted(status.unlisted_checkpoints)}")
    for error in status.errors:
        hint(f"  not known: {error}")
    return code


def _show_end(report: WatchReport, args: Namespace) -> int:
    from training_monitor.cli.watched import print_termination

    last = _look_keys(report.status) if report.status else None
    if not print_json(args, {"kind": "result", **keys_of(report, status=""), "last_look": last}):
        said, more = _end_and_rest(report)
        colour = "green" if report.end == "finished" else "red"
        put(paint(shown(said), colour, sys.stdout) + shown_lines(f"{more}\n"))
        if report.termination:
            print_termination(report.termination)
    if report.termination and not report.termination.success:
        return BAD
    return _ENDS.get(report.end, BAD)


def _end_and_rest(report: WatchReport) -> tuple[str, str]:
    """Return how it ended, and the details; the reason of a judged end includes them."""
    if report.end in ENDS:
        return report.reason, ""
    step = job_progress(report.status.progress).step if report.status else None
    return report.end, f" at step {'?' if step is None else step}: {report.reason}"


COMMAND = Command(
    run,
    declare,
    ("ssh://me@gpu1 --notify", "my-pod my-training --notify --terminate --upload hf:me/my-lora"),
)
