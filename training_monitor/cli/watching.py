"""`watch`, `terminate` and `upload`: follow a training, end it in an orderly way, save what it made."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.cli.keys import event_keys, progress_keys, status_keys
from training_monitor.cli.live import LiveLine, progress_parts
from training_monitor.cli.notifying import open_heartbeat, open_outbox, typed_or_variable
from training_monitor.cli.output import (
    BAD,
    EXITS,
    OK,
    UNKNOWN,
    can_show_screen,
    complain,
    format_unlisted,
    hint,
    interrupted_status,
    is_in_foreground,
    paint,
    print_json,
    put,
    say,
)
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import (
    CommandTimedOut,
    IncompleteAnswer,
    SettingsError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.frozen import asdict, keys_of, replace
from training_monitor.core.models import Event, JobStatus, Progress
from training_monitor.core.settings_file import load_table
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.store import Store
from training_monitor.core.units import format_bytes, format_duration, plural
from training_monitor.core.values import (
    CheckpointListing,
    LogUpdate,
    TerminationPlan,
    TerminationReport,
    TrainingStatus,
    WatchedJob,
    WatchReport,
)
from training_monitor.logs.job_progress import format_standing, job_progress
from training_monitor.look.meant import find_one_at, job_at, reach
from training_monitor.supervision import TrainingWatcher, terminate_training, watch_training
from training_monitor.supervision.terminate import is_terminating
from training_monitor.supervision.watch_state import decide_end
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.uploads.checkpoint import upload_checkpoint
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED
from training_monitor.verdict.limits import WatchConfig, read_monitoring, read_watch_config
from training_monitor.verdict.restart import why_none_is_complete

if TYPE_CHECKING:
    from training_monitor.ui.watch.app import WatchSession

PLAIN_SECONDS = 1.0
SAME_SECONDS = 30.0  # between two identical plain lines
CONFIGURED = (
    "grace_period", "stall_after", "stop_grace", "soft_limit", "hard_limit", "cost_per_hour", "budget",
    "outage_after", "terminate_busy", "terminate_on_eta",
)  # fmt: skip
_ENDS = {"finished": OK, "ended": UNKNOWN, "lost": UNKNOWN}


def watch(args: Namespace) -> int:
    """Show a training until it ends; with --terminate also end it when it stalls."""
    watcher = _watcher(args)
    if args.once:
        with open_heartbeat(args.heartbeat) as heartbeat:
            status = watcher.poll()
            if heartbeat:
                heartbeat.beat()
        return _show_once(status, args)
    stream = args.stream or (sys.stdout.isatty() and not args.poll)
    plan = _plan(args) if args.terminate else None
    if plan is None and (args.upload or args.destroy or args.destroy_without_upload or args.hard_limit):
        raise SettingsError("--upload, --destroy, --hard-limit", None, "--terminate with them")
    for option, given in (("--terminate-busy", args.terminate_busy), ("--terminate-eta", args.terminate_on_eta)):
        if plan is None and given:
            raise SettingsError(option, True, "--terminate with it")
    follow = _follow_on_screen if _wants_screen(args) else _follow
    with _explained(watcher):
        report = follow(watcher, plan, args, stream=stream)
    assert report
    return _show_end(report, args)


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
    with ExitStack() as stack:
        outbox = stack.enter_context(open_outbox(args.notify, watcher.store))
        heartbeat = stack.enter_context(open_heartbeat(args.heartbeat))
        stack.callback(display.clear)
        return watch_training(
            watcher,
            plan=plan,
            outbox=outbox,
            heartbeat=heartbeat,
            on_status=display.status,
            on_line=display.line if stream else None,
            on_event=display.event,
            take_over=args.take_over,
        )


def _follow_on_screen(
    watcher: TrainingWatcher, plan: TerminationPlan | None, args: Namespace, *, stream: bool
) -> WatchReport | None:
    """Do the same on a screen; when it closes, print the events, which it takes with it."""
    from training_monitor.ui.watch.app import WatchSession, run_watch

    session, live = WatchSession(watcher, ends=plan is not None, streams=stream), LiveLine(PLAIN_SECONDS)
    with _left_by_key(watcher), ExitStack() as stack:
        outbox = stack.enter_context(open_outbox(args.notify, watcher.store))
        heartbeat = stack.enter_context(open_heartbeat(args.heartbeat, session.tell))
        stack.callback(_print_events, session, live)
        work = partial(
            watch_training,
            watcher,
            plan=plan,
            outbox=outbox,
            heartbeat=heartbeat,
            on_status=session.status,
            on_line=session.line if stream else None,
            on_event=session.event,
            on_look=session.looked,
            refresh=session.refresh,
            take_over=args.take_over,
        )
        return run_watch(session, work)


@contextmanager
def _left_by_key(watcher: TrainingWatcher) -> Iterator[None]:
    """Say after `q` that nothing was stopped, in other words than after an interrupt."""
    from training_monitor.ui.kit.loop import ScreenLeft

    try:
        yield
    except ScreenLeft as left:
        if is_terminating(watcher):
            raise
        hint("left; nothing was stopped")
        raise SystemExit(interrupted_status(left)) from None


def _print_events(session: WatchSession, live: LiveLine) -> None:
    for elapsed, event in session.events:
        live.print_event(event, elapsed)


def terminate(args: Namespace) -> int:
    """End a training now: stop it, save its newest complete checkpoint, destroy what was rented."""
    watcher = _watcher(args)
    if not args.json:
        hint(f"ending {watcher.job.label} on {watcher.target}; the same command goes on where it was interrupted")
    if not is_terminating(watcher):
        watcher.poll()
    display = _Display(watcher, args)
    with ExitStack() as stack:
        outbox = stack.enter_context(open_outbox(args.notify, watcher.store))
        with _explained(watcher):
            report = terminate_training(watcher, _plan(args), outbox=outbox, on_event=display.event)
    if not print_json(args, {"kind": "result", **asdict(report)}):
        _print_termination(report)
    return OK if report.success else BAD


@contextmanager
def _explained(watcher: TrainingWatcher) -> Iterator[None]:
    """Explain how to resume a termination that is interrupted."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not is_terminating(watcher):
            raise
        hint("\ninterrupted while the run was being ended: the same command goes on where it was")
        raise SystemExit(interrupted_status(interrupt)) from None


def upload(args: Namespace) -> int:
    """Upload a file or folder from a target, and verify that it arrived."""
    progress = None if args.json else hint
    target = parse_target(args.target, namespace=args.namespace)
    destination = typed_or_variable("destination", args.destination)
    report = upload_checkpoint(target, args.path, destination, on_progress=progress)
    if args.json:
        print_json(args, report)
    elif report.verified:
        say(f"{report.destination}: {plural(len(report.files), 'file')} verified")
    else:
        complain(f"{report.destination}: {report.error}")
    return OK if report.verified else BAD


def _watched_job(args: Namespace, store: Store) -> WatchedJob:
    """Return the job to watch, from the options or found on the target."""
    if args.job is None and args.log is None:
        given = {"output_dir": args.output_dir, "name": args.name}
        return replace(_found_job(args, store), **{key: value for key, value in given.items() if value is not None})
    job = job_at(args.log) if args.log is not None else WatchedJob(job_id=args.job)
    return replace(job, pid_file=args.pid_file, output_dir=args.output_dir, name=args.name)


def _found_job(args: Namespace, store: Store) -> WatchedJob:
    """Return the job found on the target; if that cannot be asked, the one an earlier identical `watch` found."""
    key = f"found on {parse_target(args.target, namespace=args.namespace)}: {args.what or ''}"
    try:
        site = reach(Site.of(args.target, args.namespace))
        found = find_one_at(site, args.what)
    except (TargetUnreachable, CommandTimedOut, IncompleteAnswer) as error:
        job = store.load_run(key, WatchedJob) if args.subcommand == "watch" and not args.once else None
        if job is None:
            raise
        hint(f"{error.what}: going on with {job.label}, which was watched there before")
        return job
    if not args.json:
        hint(f"it is {found.name}{f': {found.command}' if found.command else ''}")
    store.save_run(key, found.job, finished=False)
    args.target = str(site)
    return found.job


def _watcher(args: Namespace) -> TrainingWatcher:
    store = BestEffortStore()
    job = _watched_job(args, store)
    given = {key: getattr(args, key, None) for key in CONFIGURED} | {"poll_interval": getattr(args, "interval", None)}
    if getattr(args, "no_stall_detection", False):
        given["stall_detection"] = False
    return TrainingWatcher(args.target, job, load_watch_config(job.label, given), args.namespace, store=store)


def _plan(args: Namespace) -> TerminationPlan:
    if (args.destroy or args.destroy_without_upload) and parse_target(args.target).instance_id is None:
        raise SettingsError("--destroy", args.target, "a rented instance: vast://ID")
    given = {name: getattr(args, name) for name in ("reason", "roll_call_timeout") if hasattr(args, name)}
    return TerminationPlan(
        upload_to=tuple(typed_or_variable("--upload", each) for each in args.upload),
        tags=tuple(args.tag),
        destroy=args.destroy,
        destroy_without_upload=args.destroy_without_upload,
        **given,
    )


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
            self.event(Event("waiting", f"there is no log {missing} yet", self._watcher.job.job_id))
        if not print_json(self._args, _look_keys(status)):
            self._draw(status)

    def event(self, event: Event) -> None:
        if not print_json(self._args, event_keys(event)):
            self._live.print_event(event)

    def clear(self) -> None:
        self._live.clear()

    def _draw(self, seen: TrainingStatus | LogUpdate) -> None:
        now, shown = time.monotonic(), (job_progress(seen.progress).step, seen.progress.loss, seen.stall.is_stalling)
        if not sys.stdout.isatty() and shown == self._drawn and now - self._drawn_at < SAME_SECONDS:
            return
        self._drawn, self._drawn_at = shown, now
        stalled = seen.stall.is_stalling
        parts = progress_parts(seen.progress, seen.progress.steps_per_second, stalled=stalled)
        if self._status and self._status.status is JobStatus.PENDING:
            parts = [format_standing(self._status.status, seen.progress, self._status.message)]
        if stalled:
            parts.append(f"STALLED: {seen.stall.reason}")
        if self._status and self._status.is_running is None:
            parts.append(f"? {self._status.message or 'not known whether it runs'}")
        parts += [f"? {error}" for error in (self._status.errors if self._status else ())]
        self._live.draw(*parts)


def _look_keys(status: TrainingStatus) -> dict[str, Any]:
    """Return one look: `end` is how the training ended, as far as that look tells."""
    ended = decide_end(status)
    return {"kind": "status", **status_keys(status), "end": ended[0] if ended else None}


def _show_once(status: TrainingStatus, args: Namespace) -> int:
    verdict = status.verdict or NOBODY_LOOKED
    code = EXITS[verdict.verdict]
    if print_json(args, _look_keys(status)):
        return code
    running = {True: "running", False: "not running", None: "not known whether it runs"}[status.is_running]
    stalled, speed = verdict.state == "stalled", status.progress.steps_per_second
    parts = [running, *progress_parts(status.progress, speed, stalled=stalled)]
    if status.status is JobStatus.PENDING:
        parts = [format_standing(status.status, status.progress, status.message)]
    say("  ".join(parts))
    say(f"  {verdict.state.upper() if code == BAD else verdict.state}: {verdict.reason}")
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
    last = _look_keys(report.status) if report.status else None
    if not print_json(args, {"kind": "result", **keys_of(report, status=""), "last_look": last}):
        said, more = _end_and_rest(report)
        colour = "green" if report.end == "finished" else "red"
        put(paint(shown(said), colour, sys.stdout) + shown_lines(f"{more}\n"))
        if report.termination:
            _print_termination(report.termination)
    if report.termination and not report.termination.success:
        return BAD
    return _ENDS.get(report.end, BAD)


def _end_and_rest(report: WatchReport) -> tuple[str, str]:
    """Return how it ended, and the details; the reason of a judged end includes them."""
    if report.end in ENDS:
        return report.reason, ""
    step = job_progress(report.status.progress).step if report.status else None
    return report.end, f" at step {'?' if step is None else step}: {report.reason}"


def _print_termination(report: TerminationReport) -> None:
    stopped = {
        True: "nothing of it is left",
        False: f"not even SIGKILL ended {', '.join(report.left)}",
        None: "not known",
    }
    say(f"  processes: {stopped[report.stopped]}")
    newest, found = report.checkpoint, CheckpointListing(report.checkpoints, report.unlisted_checkpoints)
    if newest:
        say(f"  {plural(found.count, 'checkpoint')}, newest complete: step {newest.step}, {newest.path}")
    else:
        say(f"  {why_none_is_complete(found)}")
    for upload in report.uploads:
        said = f"{plural(len(upload.files), 'file')} verified" if upload.verified else f"NOT uploaded: {upload.error}"
        say(f"  {upload.destination}: {said}")
    if report.gone:
        say(f"  instance {'destroyed' if report.destroyed else 'gone'}")
    elif report.kept is not None:
        say(f"  instance KEPT, it goes on costing money: {report.kept}")
    for error in report.errors:
        say(f"  {error}")
    say(f"  took {format_duration(report.duration)}")


def load_watch_config(label: str, given: Mapping[str, Any]) -> WatchConfig:
    """Load the settings of a job: the settings file's `monitoring`, then its `jobs.LABEL`, then `given`.

    Raises:
        SettingsError: naming the file and the key, also for errors in the settings of other jobs.
    """
    return read_watch_config(load_table("monitoring", partial(read_monitoring, label=label)), given)
