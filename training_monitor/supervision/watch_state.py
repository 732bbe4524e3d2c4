"""Decide which notices follow from a look at a run, and whether to end the run.

A stall is reported once, and again only if the run made steps in between. A run has recovered when it made a step, not
when it merely was not looked at. Milestones that were reached before the first look are not reported. What was
reported and seen is a `WatchState`, kept in memory and in the store, so that another process continues with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from training_monitor.checkpoints.checkpoints import newest_complete
from training_monitor.core.fields import shared_fields
from training_monitor.core.models import JobStatus, LogCursor, NewLog, Progress
from training_monitor.core.regex import regex
from training_monitor.core.units import format_duration
from training_monitor.core.values import (
    LossAnalysis,
    Notice,
    Observation,
    StallAnalysis,
    TrainingStatus,
    Verdict,
    WatchedJob,
)
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.totals import LogTotals
from training_monitor.look.kept_looks import Looks, look_key
from training_monitor.look.looks import Look, observation_of
from training_monitor.notify import templates
from training_monitor.notify.templates import About
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.target import Target
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED, judge, renew, with_speed
from training_monitor.verdict.limits import WatchConfig
from training_monitor.verdict.loss import analyze_loss

SILENT = ("idle", "spinning", "quiet", "blocked")  # pauses without any sign that a run without steps works
STALL_REASON = "Stall detected, grace period expired"
LAYOUT = 4
KEPT_OUTPUT = 16 * 1024
OUTPUT_LINES = 100
KEPT_TAIL = 2048  # characters by which the end of a log is recognized
_LINE_END = regex(r"[\r\n]+")


@dataclass(frozen=True, slots=True)
class Told:
    """What was already reported about a run.

    `episode` counts the reports of its stalls; `stalled_step` is the step at which the current stall began, and
    `warned` whether its end was announced. `stalled_at`, in epoch seconds, is since when the run has been seen in a
    stall that it may be ended for; None while it is not. `looked_at` is the time of the last look; `limits` are those
    already reported.
    """

    generation: int = -1
    milestones: tuple[float, ...] = ()
    episode: int = 0
    stalled: bool = False
    stalled_step: int | None = None
    stalled_at: float | None = None
    nan: bool = False
    warned: bool = False
    looked_at: float | None = None
    limits: tuple[str, ...] = ()


def decide_alerts(
    told: Told, status: TrainingStatus, config: WatchConfig, job: str, *, ends: bool
) -> tuple[Told, list[Notice]]:
    """Return the new state of reports and the notices to send; `ends`: a stall ends the run after the grace period."""
    if told.generation != status.generation:
        told = replace(told, generation=status.generation, milestones=_reached(status, config), limits=())
        told = replace(told, nan=False, stalled_at=None, warned=False)  # a hang of an earlier process is over
    if told.looked_at is not None and status.timestamp - told.looked_at > 3.0 * config.poll_interval + 30.0:
        told = replace(told, stalled_at=None)  # time without looks does not count
    told, stall = _stall_notices(told, status, config, job, ends=ends)
    new = tuple(each for each in _reached(status, config) if each not in told.milestones)
    limits = [each for each in _limits(status, config, job) if each.kind not in told.limits]
    notices = [*stall]
    if new:  # of several at once, only the highest is reported
        percent, done = round(max(new)), int(_percent_done(status) or 0.0)
        notices.append(templates.milestone(_about(status, job), percent=percent, done=done, runtime=status.runtime))
    notices += limits
    nan = bool(status.loss and status.loss.kind == "nan")
    if nan and not told.nan:
        notices.append(templates.loss_nan(_about(status, job)))
    told = replace(told, limits=told.limits + tuple(each.kind for each in limits))
    return replace(told, milestones=told.milestones + new, nan=nan or told.nan, looked_at=status.timestamp), notices


def _stall_notices(
    told: Told, status: TrainingStatus, config: WatchConfig, job: str, *, ends: bool
) -> tuple[Told, list[Notice]]:
    stall = status.stall
    ending = may_end(stall, config)
    if stall.is_stalling:
        since = status.timestamp if told.stalled_at is None else told.stalled_at
        told = replace(told, stalled_at=since if ending else None)
    if stall.is_stalling and (not told.stalled or (ends and ending and not told.warned)):
        told = replace(
            told,
            episode=told.episode + 1,
            stalled=True,
            stalled_step=stall.current_step,
            warned=ends and ending,
        )
        about = _about(status, job)._replace(step=stall.current_step, total_steps=stall.total_steps)
        notice = templates.stall_detected(
            about._replace(generation=told.episode),
            reason=stall.reason,
            grace_seconds=config.grace_period if ends and ending else None,
            is_spared=ends and shows_work(stall) and not ending,
        )
        return told, [notice]
    if stall.is_stalling:
        return told, []
    if told.stalled and _advanced(told, status):
        notice = templates.recovered(_about(status, job)._replace(generation=told.episode))
        return replace(told, stalled=False, stalled_step=None, stalled_at=None, warned=False), [notice]
    return replace(told, stalled_at=None), []


def _advanced(told: Told, status: TrainingStatus) -> bool:
    step = status.stall.current_step
    step = job_progress(status.progress).step if step is None else step
    return step is not None and step != told.stalled_step


def may_end(stall: StallAnalysis, config: WatchConfig) -> bool:
    """Return whether a run may be ended for this stall: sure enough, not a log without steps, not suspended.

    One whose ETA does not converge may be ended if its speed fell by half as well, or if the configuration says so.
    """
    if stall.kind in (None, "suspended"):
        return False
    if stall.kind == "slow":
        ratio = stall.signals.get("speed_ratio") or 1.0
        is_half = bool(stall.signals.get("speed_dropping")) and ratio <= config.speed_drop_threshold
        return bool(stall.signals.get("flat_eta")) and (is_half or config.terminate_on_eta)
    if stall.kind == "not_started":
        return stall.confidence != "low" and stall.signals.get("pause") in SILENT
    return config.terminate_busy or not shows_work(stall)


def shows_work(stall: StallAnalysis) -> bool:
    """Return whether a run without steps still shows signs of work: GPUs that compute, a log that grows, ..."""
    return stall.kind in ("hang_idle", "hang_spinning") and stall.confidence == "low"


def reason_to_end(told: Told, status: TrainingStatus, config: WatchConfig) -> str | None:
    """Return why the run is to be ended now; None if it is not."""
    if status.is_running is not True:
        return None
    if config.hard_limit is not None and status.runtime is not None and status.runtime >= config.hard_limit:
        return f"Hard limit of {format_duration(config.hard_limit)} reached"
    if status.status is JobStatus.PENDING:
        return None
    waited = told.stalled_at is not None and status.timestamp - told.stalled_at >= config.grace_period
    return STALL_REASON if status.stall.is_stalling and may_end(status.stall, config) and waited else None


def decide_end(status: TrainingStatus) -> tuple[str, str] | None:
    """Return (finished | failed | stopped | ended, reason) of a run that has ended; None if it runs or is unknown."""
    verdict = status.verdict
    if verdict is None or (status.is_running is not False and verdict.state != "finished"):
        return None
    return (verdict.state if verdict.state in ENDS else "ended"), verdict.reason


def end_notice(end: str, reason: str, status: TrainingStatus, config: WatchConfig, job: str) -> Notice:
    """Return the notice of the end of a run."""
    about = _about(status, job)
    if end == "finished":
        return templates.finished(about, runtime=status.runtime, cost=_cost(status, config))
    told = templates.failed if end == "failed" else templates.ended
    return told(about, reason=reason, runtime=status.runtime)


def _reached(status: TrainingStatus, config: WatchConfig) -> tuple[float, ...]:
    done = _percent_done(status)
    return () if done is None else tuple(each for each in config.milestones if done >= each)


def _percent_done(status: TrainingStatus) -> float | None:
    fraction = job_progress(status.progress).fraction
    return None if fraction is None else round(100 * fraction, 9)


def _limits(status: TrainingStatus, config: WatchConfig, job: str) -> Iterator[Notice]:
    """Yield a notice for each limit that is passed."""
    if config.soft_limit is not None and status.runtime is not None and status.runtime >= config.soft_limit:
        hard = (
            ""
            if config.hard_limit is None
            else f"; the training will be stopped at {format_duration(config.hard_limit)}"
        )
        reason = f"Run time has reached {format_duration(config.soft_limit)}{hard}"
        yield templates.soft_limit(_about(status, job), reason=reason)
    cost = _cost(status, config)
    if config.budget is not None and cost is not None and cost >= config.budget:
        yield templates.budget_passed(_about(status, job), cost=cost, budget=config.budget)


def _cost(status: TrainingStatus, config: WatchConfig) -> float | None:
    if config.cost_per_hour is None or status.runtime is None:
        return None
    return config.cost_per_hour * status.runtime / 3600.0


def _about(status: TrainingStatus, job: str) -> About:
    done, newest = job_progress(status.progress), newest_complete(status.checkpoints or ())
    saved = newest.step if newest else status.progress.checkpoint_step
    return About(
        job,
        done.step,
        done.total_steps,
        saved,
        generation=status.generation,
        loss=status.progress.loss,
        log=status.recent_output,
    )


NOT_STALLING = StallAnalysis(False, None, "none", "not judged yet", "continue")


@dataclass
class WatchState:
    """Everything a watcher knows about one run: `generation` counts its starts.

    `looks` are its observations, kept in the store under `look_key`; the saved record contains neither them nor the
    verdict, which follows from them, nor `written_at`: when a streamed log was last written to, epoch seconds.
    `judged_at` is when the verdict was last made from all observations. A record of another `layout` is not read.
    """

    cursor: LogCursor | None = None
    totals: LogTotals = field(default_factory=LogTotals)
    output: str = ""
    partial: str = ""
    ended_partial: str = ""
    job_tail: str = ""
    looks: Looks = field(default_factory=Looks, init=False)
    written_at: float | None = field(default=None, init=False)
    look_key: str = ""
    identity: Identity | None = None
    is_running: bool | None = None
    generation: int = 0
    verdict: Verdict = field(default=NOBODY_LOOKED, init=False)
    judged_at: float | None = field(default=None, init=False)
    loss: LossAnalysis | None = None
    alerts: Told = Told()
    layout: int = LAYOUT

    # ------------------------------------------------------------ taking in

    def take_log(self, new: NewLog, tail: str = "") -> list[tuple[str, Progress]]:
        """Add the new part of the log; return its lines, each with the progress up to it.

        `tail` is the end of a log whose file cannot be read from a cursor.
        """
        if new.missing and tail:
            ended = max(tail.rfind("\n"), tail.rfind("\r")) + 1
            new = NewLog(new_in_tail(tail[:ended], self.job_tail), None, partial=tail[ended:])
            self.job_tail = tail[:ended]
        lines = []
        for line in _LINE_END.split(new.text):
            if line.strip():
                self.totals.feed(f"{line}\n")
                lines.append((line, self.totals.progress))
        self.output = (self.output + new.text)[-KEPT_OUTPUT:]
        self.partial, self.cursor = new.partial[-KEPT_OUTPUT:], new.cursor
        return lines

    def note_written(self, new: NewLog, now: float) -> None:
        """Note when a streamed log was last written to: what comes without an age comes as it is written."""
        if new.age is not None:
            self.written_at = now - new.age
        elif new.text or new.partial:
            self.written_at = now

    def take_last_line(self) -> list[tuple[str, Progress]]:
        """Add the unfinished last line of a run that no longer writes, once."""
        last = _LINE_END.split(self.partial)[-1]
        if not last.strip() or self.partial == self.ended_partial:
            return []
        self.ended_partial = self.partial
        self.totals.feed(f"{last}\n")
        return [(last, self.totals.progress)]

    def open_looks(self, target: Target, job: WatchedJob, look: Look) -> None:
        """Load the earlier observations of this training once it is known which one it is."""
        path = look.log.path if look.log else None
        if path or not self.look_key:
            self.look_key = look_key(target, job, path)
        if self.looks.key != self.look_key:
            self.looks = Looks(self.looks.store, self.look_key, self.looks.most)

    def take_look(
        self, look: Look, now: float, config: WatchConfig, *, judge_every: float = 0.0, renew_for: float = 0.0
    ) -> TrainingStatus:
        """Add one look, judge the run by all of them, and return its status, but for the totals and output of its log.

        Looks less than `judge_every` seconds apart keep the verdict: judging costs as much as a long log. For
        `renew_for` seconds, a run that only makes further steps is not judged by all observations, see `renew`. A look
        that does not find the log that was read before is not an observation: it cannot tell whether the run makes
        steps.
        """
        restarted = bool(look.process and look.process.identity and self.identity not in (None, look.process.identity))
        if look.process and look.process.identity:
            self.identity = look.process.identity
        if look.is_running is False:
            self.take_last_line()
        progress = self._progress(look)
        step = job_progress(progress).step
        before = self.looks.newest_step()
        fell_back = before is not None and step is not None and step < before
        self.generation += restarted + fell_back
        ended = look.is_running is not self.is_running
        self.is_running = look.is_running
        is_blind = bool(look.log and look.log.missing and self.cursor)
        last = self.looks.last  # perhaps by another command
        is_due = last is None or self.verdict is NOBODY_LOOKED or abs(now - last.timestamp) >= judge_every
        if restarted or fell_back or ended or (is_due and not is_blind):
            if not is_blind:
                self.looks.add(self._observe(look, progress, now))
            is_same = not (restarted or fell_back or ended or is_blind) and self.judged_at is not None
            is_new = is_same and 0.0 <= now - (self.judged_at or 0.0) < renew_for
            if not (is_new and last and self._renew(last, config)):
                seen, self.judged_at = self.looks.all(), now
                self.verdict, self.loss = self.judge(now, config, seen), analyze_loss(seen)
        return self._status(look, progress, step, now)

    def _renew(self, before: Observation, config: WatchConfig) -> bool:
        """Renew the verdict by the last observation alone; return whether that is enough."""
        last = self.looks.last
        found = last and renew(self.verdict, self.loss, before, last, config.stall_policy)
        if not last or not found:
            return False
        self.verdict, self.loss = found, self.loss and replace(self.loss, last=last.loss or self.loss.last)
        return True

    def _observe(self, look: Look, progress: Progress, now: float) -> Observation:
        """Return the observation; a log that was not looked at lately gives its own times."""
        text = look.log_tail or self.output + self.partial
        size = self.cursor.offset + len(self.partial) if self.cursor else None
        is_first = self.verdict is NOBODY_LOOKED or not self.looks.is_known(now)
        seen = observation_of(look, progress, text, now, first=is_first)
        age = None if self.written_at is None else max(0.0, now - self.written_at)
        if seen.log_size is not None and seen.log_age is not None:
            return seen
        return replace(
            seen,
            log_size=size if seen.log_size is None else seen.log_size,
            log_age=age if seen.log_age is None else seen.log_age,
        )

    def _status(self, look: Look, progress: Progress, step: int | None, now: float) -> TrainingStatus:
        """Return the status after a look."""
        return TrainingStatus(
            **shared_fields(TrainingStatus, look),
            progress=with_speed(progress, self.verdict),
            stall=self.verdict.stall or NOT_STALLING,
            recent_output="",
            timestamp=now,
            status=look.view.status if look.view else JobStatus.RUNNING if look.is_running else JobStatus.UNKNOWN,
            exit_code=look.view.exit_code if look.view else None,
            loss=self.loss,
            generation=self.generation,
            runtime=_runtime(look, now),
            totals={},
            step=step,
            verdict=self.verdict,
        )

    def with_log(self, status: TrainingStatus) -> TrainingStatus:
        """Add the totals of the log and its last lines to a status."""
        lines = (self.output + self.partial).replace("\r", "\n").split("\n")
        return replace(status, recent_output="\n".join(lines[-OUTPUT_LINES:]), totals=self.totals.as_dict())

    def judge(self, now: float, config: WatchConfig, seen: Sequence[Observation] | None = None) -> Verdict:
        """Judge the run by all observations so far, which are `seen` where the caller has them."""
        verdict = judge(self.looks.all() if seen is None else seen, now=now, policy=config.stall_policy)
        if config.stall_detection or verdict.state not in ("stalled", "slow"):
            return verdict
        return Verdict("running", "ok", f"stall detection is off; it would report: {verdict.reason}")

    def _progress(self, look: Look) -> Progress:
        """Return the progress with an unfinished line; without any, that at the end of the job's log."""
        known = self.totals.progress
        if known == Progress() and look.view:
            return look.view.progress
        if not self.partial.strip():
            return known
        ahead = self.totals.read_ahead(self.partial)
        return ahead if ahead.step is not None or ahead.epoch_steps is not None else known


def new_in_tail(tail: str, before: str) -> str:
    """Return the part of a log's end that was not in the end seen before."""
    last = before[-KEPT_TAIL:]
    at = tail.rfind(last) if last else -1
    return tail[at + len(last) :] if at >= 0 else tail


def _runtime(look: Look, now: float) -> float | None:
    """Return the seconds since the run began, by the target; if that tells only its start, by the watcher's clock."""
    if look.process:
        return look.process.age
    if look.view and look.view.age is not None:  # which the clock of the target may have changed since then
        return look.view.age if look.evidence.runtime is None else look.evidence.runtime
    started = look.view.started_at if look.view else None
    return None if started is None else max(0.0, now - started)
