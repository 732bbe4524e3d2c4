"""Watch a run to its end: look, notify, and end it when it stalls for longer than its grace period."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from training_monitor.core.clock import Reach
from training_monitor.core.errors import (
    CommandError,
    InstanceNotFound,
    JobNotFound,
    LeaseLost,
    SettingsError,
    StateError,
    TrainingMonitorError,
)
from training_monitor.core.interrupts import only_looking
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Event, OnEvent, OnLook
from training_monitor.core.outcomes import TerminationPlan, TerminationReport, WatchReport
from training_monitor.core.units import format_duration
from training_monitor.core.values import LogUpdate, Notice, TrainingStatus
from training_monitor.jobs.claims import Claiming, claim_name
from training_monitor.logs.text import begins_traceback
from training_monitor.notify import templates
from training_monitor.notify.heartbeat import Lookout
from training_monitor.supervision.looking import Looker, look_until_over
from training_monitor.supervision.terminate import (
    Recovered,
    check_plan,
    is_terminating,
    past_termination,
    terminate_training,
)
from training_monitor.supervision.watch_state import decide_alerts, decide_end, end_notice, reason_to_end, shows_work
from training_monitor.supervision.watcher import TrainingWatcher
from training_monitor.targets.asking import Site
from training_monitor.verdict.judge import ENDS

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat
    from training_monitor.notify.outbox import Outbox  # imports everything that a messenger needs

SOON_SECONDS = 3.0  # after a line that tells of an end, the run is looked at: it needs some time to end
SECOND_SECONDS = 5.0  # after the first look: what it uses and how fast it is follow from two, not too close ones
SURE_SECONDS = 5.0  # a run that is to be ended but shows signs of work is looked at again after this time
OnStatus = Callable[[TrainingStatus], None]
OnLine = Callable[[LogUpdate], None]


def watch_training(
    watcher: TrainingWatcher,
    *,
    plan: TerminationPlan | None = None,
    outbox: Outbox | None = None,
    heartbeat: Heartbeat | None = None,
    on_status: OnStatus | None = None,
    on_line: OnLine | None = None,
    on_event: OnEvent | None = None,
    stopping: threading.Event | None = None,
    take_over: bool = False,
    on_look: OnLook | None = None,
    refresh: threading.Event | None = None,
) -> WatchReport | None:
    """Watch a run until it ends, send notices, and terminate it as `plan` specifies. Blocks.

    If the process is killed, call this function again to continue the watch. No event is reported twice, and a
    termination that was in progress is completed.

    Args:
        plan: how to terminate a run that has stalled for its grace period or exceeded its hard limit. The outputs of a
            run that ends on its own, successfully or not, are also saved as the plan specifies. None: the run is never
            changed.
        outbox: where notices are posted. If an outage lasts for `outage_after` (a setting of the configuration), a
            notice of the outage is posted too.
        heartbeat: pinged after every successful look, and whenever a termination makes progress.
        on_status: called with the status after every look.
        on_event: called with all other events.
        on_line: called with every new line of the log. The log is then streamed, see `TrainingWatcher.start_streaming`.
            If a line reports the completion of the training or begins a traceback, the training is checked again early.
        stopping: set this event to end the watch but not the run.
        take_over: with `plan`, take over the training from an active supervisor on another machine; that supervisor
            then exits.
        on_look: called after every look: with the error if the look failed, otherwise with None.
        refresh: set this event to look again immediately; the watch clears the event.

    Returns:
        A WatchReport; None if the watch was ended by `stopping`.

    Raises:
        JobNotFound, CommandError: the first look failed; later failures are retried.
        AlreadySupervised, LeaseLost: `plan` was given, but another supervisor is supervising the training, or has taken
            it over.
    """
    watch = _Watch(watcher, plan, outbox, heartbeat, on_status, on_event, on_look)
    with ExitStack() as closing:
        if plan:
            watch.claim(closing, take_over)
        if on_line is not None:
            closing.callback(watcher.follow(watch.noting_ends(on_line), polls=False))
        try:
            with only_looking(watch.interrupted):
                return watch.run(stopping, refresh)
        except LeaseLost as error:
            watch.post(templates.taken_over(watcher.job.label, reason=error.what, number=error.number))
            raise


@dataclass(eq=False)
class _Watch(Looker[TrainingStatus, WatchReport]):
    """A watch of one run; the fields are the arguments of `watch_training`."""

    watcher: TrainingWatcher
    plan: TerminationPlan | None
    outbox: Outbox | None
    heartbeat: Heartbeat | None
    on_status: OnStatus | None
    on_event: OnEvent | None
    on_look: OnLook | None

    def __post_init__(self) -> None:
        watcher, job = self.watcher, self.watcher.job.label
        self.clock, self.site = watcher.clock, watcher.site
        self.interrupted = (
            f"the watch of {job} has ended, but the training has not; repeat the same call to resume the watch"
        )
        self.lookout = Lookout(
            watcher.key,
            job,
            self.post,
            outage_after=watcher.config.outage_after,
            store=watcher.store,
            clock=watcher.clock,
            heartbeat=self.heartbeat,
        )
        self.status: TrainingStatus | None = None
        self.reach = Reach(self.clock)
        self.is_first = True  # no look was answered before this one
        self.is_suspect = False  # it was to be ended at the last look, but shows signs of work: look again
        self.line_of_end = threading.Event()  # a line came that tells of an end
        self.is_hurried = self.was_hurried = False  # the next look comes soon because of such a line, or the last did
        self.was_finished = False  # by the last line
        self.claiming: Claiming | None = None

    def claim(self, closing: ExitStack, take_over: bool) -> None:
        """Claim the right to end the run, from the first look until `closing`."""
        watcher, name = self.watcher, claim_name(self.watcher.job)
        self.claiming = Claiming(watcher.site, name, watcher.store, self.tell, take_over=take_over)
        closing.callback(self.claiming.close)
        watcher.claiming = self.claiming

    def noting_ends(self, on_line: OnLine) -> OnLine:
        """Return a callback that also notes which lines tell of an end."""

        def hear(update: LogUpdate) -> None:
            is_finished = update.progress.finished is True
            if (is_finished and not self.was_finished) or begins_traceback(update.line.lower()):
                self.line_of_end.set()
            self.was_finished = is_finished
            on_line(update)

        return hear

    def run(self, stopping: threading.Event | None, refresh: threading.Event | None) -> WatchReport | None:
        if self.plan:
            check_plan(self.watcher, self.plan)
            if self.watcher.job.job_id is None and self.watcher.job.pid_file is None:
                raise SettingsError(
                    "pid_file", None, "a file with the PID of the training, so that the training can be terminated"
                )
        if is_terminating(self.watcher) and self.plan:
            if report := self.terminate(replace(self.plan, is_hang=True)):
                return report
        elif is_terminating(self.watcher):
            self.tell(
                "detected",
                "an earlier termination of this run was not completed: pass terminate to this watch to complete it",
            )
        past = past_termination(self.watcher)
        if past and past.gone:  # there is nothing left to ask
            return WatchReport(past.end, past.reason, None, past)
        return look_until_over(self, stopping=stopping, refresh=refresh or threading.Event())

    @property
    def has_begun(self) -> bool:
        return self.status is not None or self.watcher.state.looks.last is not None

    def ask(self) -> TrainingStatus:
        self.watcher.next_look_at = None
        self.line_of_end.clear()
        if self.claiming:
            self.claiming.hold()
        return self.watcher.poll()

    def decide(self, seen: TrainingStatus, *, is_last: bool) -> WatchReport | None:
        try:
            return self.follow_up(seen)
        except StateError as error:
            return self.not_seen(error, is_lost=False)

    def followed(self) -> tuple[Site, str] | None:
        job_id = self.watcher.job.job_id
        return (self.watcher.reached(), job_id) if job_id and not self.reach.is_lost else None

    def follow_up(self, status: TrainingStatus) -> WatchReport | None:
        """Act on a status."""
        self.seen(status)
        told = self.watcher.state.alerts
        told, notices = decide_alerts(told, status, self.watcher.config, self.watcher.job.label, ends=bool(self.plan))
        for notice in notices:
            self.post(notice)
        self.watcher.save_alerts(told)
        self.lookout.note(self.watcher.store.problem)
        if end := decide_end(status):
            past = past_termination(self.watcher)
            if past and self.plan and not past.success:  # what could not be saved then may be saved now
                return self.terminate(replace(self.plan, end=past.end, reason=past.reason))
            return WatchReport(past.end, past.reason, status, past) if past else self.ended(*end, status)
        reason = reason_to_end(told, status, self.watcher.config)
        is_sure, self.is_suspect = self.is_suspect or not shows_work(status.stall), reason is not None
        if self.plan and reason and is_sure:
            self.tell("detected", reason)
            return self.terminate(replace(self.plan, reason=reason, is_hang=status.stall.is_stalling))
        return None

    def ended(self, end: str, reason: str, status: TrainingStatus) -> WatchReport:
        """Report the end of the run, and save its result."""
        self.post(end_notice(end, reason, status, self.watcher.config, self.watcher.job.label))
        said = reason if end in ENDS else f"{end}: {reason}"
        self.tell("finished", f"{self.watcher.job.label} {said}")
        saved: TerminationReport | None = None
        if self.plan and (self.plan.upload_to or self.watcher.target.instance_id is not None):
            plan = replace(self.plan, reason=reason, end=end)
            saved = terminate_training(self.watcher, plan, outbox=self.outbox, on_event=self.hear)
        return WatchReport(end, reason, status, saved)

    def terminate(self, plan: TerminationPlan) -> WatchReport | None:
        """End the run; None if it no longer hangs, and the watch goes on."""
        if self.claiming:
            with suppress(CommandError, InstanceNotFound):  # then it cannot be stopped either, but may be destroyed
                self.claiming.hold()
        try:
            report = terminate_training(self.watcher, plan, outbox=self.outbox, on_event=self.hear)
        except Recovered as error:
            self.tell("detected", error.what)
            return None
        return WatchReport(report.end, report.reason, self.status, report)

    def hear(self, event: Event) -> None:
        """Handle an event of a termination that makes progress, or waits for a target that does not answer."""
        if self.heartbeat and event.kind != "unreachable":
            self.heartbeat.beat()
        if self.on_event:
            self.on_event(event)

    def seen(self, status: TrainingStatus) -> None:
        if (gap := self.reach.answer()) is not None:
            self.tell("reached", f"{self.watcher.target} responds again after {format_duration(gap)}")
        self.status = status
        self.plan_next()
        if self.on_look:
            self.on_look(None)
        if self.on_status:
            self.on_status(status)

    def not_seen(self, error: TrainingMonitorError, *, is_lost: bool) -> WatchReport | None:
        self.is_suspect = False
        self.plan_next()
        if self.on_look:
            self.on_look(error)
        if isinstance(error, JobNotFound):
            self.lookout.note(None)  # the target answered
            if not is_lost:
                return None
            job, reason = self.watcher.job.label, f"lost: {error.what}"
            self.post(templates.ended(templates.About(job, generation=self.watcher.state.generation), reason=reason))
            return WatchReport("lost", error.what, self.status)
        if self.reach.miss():
            self.tell("unreachable", f"cannot reach the target: {error}; no action will be taken")
        self.lookout.note(error)
        return None

    def pause(self) -> float:
        left = self.plan_next()
        self.was_hurried, self.is_hurried = self.is_hurried, False
        self.is_first = self.is_first and self.status is None
        return left

    def shorten(self, left: float) -> float:
        """A line that tells of an end shortens a pause, but not two in a row: tracebacks may come all the time."""
        if not self.line_of_end.is_set() or self.was_hurried or self.is_hurried:
            return left
        self.is_hurried = True
        return self.plan_next(SOON_SECONDS)

    def plan_next(self, soon: float | None = None) -> float:
        """Return the seconds until the next look, at most `soon`, and let the watcher tell when that is."""
        left = self.watcher.config.poll_interval if soon is None else min(soon, self.watcher.config.poll_interval)
        if self.is_suspect and self.plan:
            left = min(left, SURE_SECONDS)
        elif self.is_first and self.status is not None:
            left = min(left, SECOND_SECONDS)
        self.watcher.next_look_at = self.watcher.clock.time() + left
        return left

    def post(self, notice: Notice) -> None:
        self.tell("detected" if notice.priority in ("high", "urgent") else "progress", _in_words(notice))
        if self.outbox:
            self.outbox.post(self.watcher.about_this(notice))

    def tell(self, kind: str, text: str) -> None:
        get_logger().info("%s: %s", self.watcher.job.label, text)
        if self.on_event:
            self.on_event(Event(kind, text, self.watcher.job.job_id))


def _in_words(notice: Notice) -> str:
    parts = [f"{label}: {value}" for label, value in notice.fields]
    parts += [line.rstrip(".") for line in notice.text.splitlines()]
    return f"{notice.title}: {'; '.join(parts)}"
