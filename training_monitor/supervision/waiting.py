"""Wait for a training: one quiet call that ends when a condition holds, or when none is to be expected any more.

A look is one round trip, and the longer the wait, the less often it looks. What a look has shown is kept in the store
before the next one, so that another process goes on with the wait as if nothing had happened. Not to see the training
is no end of it; not to find it, where the target answers, is one after ABSENT_SECONDS. An end is looked at twice, since
the log and the checkpoints may have been read a moment before it. A training that somebody supervises does not end with
an attempt: the wait goes on with the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from training_monitor.checkpoints.checkpoints import checkpoints_question
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    AlreadySupervised,
    CommandFailed,
    InstanceNotFound,
    JobNotFound,
    SettingsError,
    StateError,
    TargetNotFound,
    TrainingMonitorError,
)
from training_monitor.core.models import Answer, Checkpoint, NewLog, Question
from training_monitor.core.outcomes import WaitReport
from training_monitor.core.shown import shown
from training_monitor.core.store import Store
from training_monitor.core.units import format_bytes, format_duration
from training_monitor.core.values import CheckpointListing, WatchedJob
from training_monitor.jobs.attempts import attempt_number, training_name
from training_monitor.jobs.claims import claim_name, list_question
from training_monitor.jobs.process_jobs import PREFIX
from training_monitor.logs.following import LIMIT_BYTES
from training_monitor.logs.job_progress import job_progress
from training_monitor.look.kept_looks import Observer
from training_monitor.look.looks import Look, source_of
from training_monitor.look.meant import find_meant, find_process_job, reach
from training_monitor.look.remembered import find_known
from training_monitor.supervision.conditions import (
    Condition,
    Facts,
    find_holding,
    find_line,
    find_new_checkpoint,
    idle_since,
    know_checkpoints,
    next_pause,
    parse_conditions,
)
from training_monitor.supervision.kept_waits import (
    AskedWait,
    WaitState,
    find_wait,
    forget_old_waits,
    load_wait,
    new_handle,
    save_wait,
    wait_key,
)
from training_monitor.supervision.looking import Looker, look_until_over
from training_monitor.supervision.watch_state import KEPT_TAIL, new_in_tail
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target, parse_target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.gpu_load import gpu_mode
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED, format_verdict
from training_monitor.verdict.stall import stall_policy

SCHEMA = "training_monitor.wait/1"
SURE_LOOKS, SURE_SECONDS = 2, 2.0  # an end is looked at so often, and so soon again
ABSENT_SECONDS = 120.0  # after which a training that is not there is gone for good
GAP_SECONDS = 180.0  # between looks, over which GPUs are taken to stay idle
FIRST_BYTES = 4096  # of the log, read to learn where it ends: as long may an unfinished line be
TAKE_UP_SECONDS = 1.0  # between two looks whether another process has ended the same wait
OnWaitLook = Callable[[str], object]


def wait_for(
    target: str | Target = "local",
    what: str | int | None = None,
    conditions: Sequence[str] = ("finished",),
    timeout: float | None = None,
    handle: str | None = None,
    namespace: str = "default",
    *,
    interval: float | None = None,
    stagnation_threshold: float | None = None,
    checkpoint_dir: str | None = None,
    stopping: threading.Event | None = None,
    on_look: OnWaitLook | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> WaitReport:
    """Wait until a condition holds, the training ends or stalls, or time runs out. Blocks; read-only.

    Args:
        target, what: as in `check_training`; they must match exactly one training.
        conditions: finished, failed, stalled, step=N, epoch=N (completed epochs), gpu-idle[=DURATION] (default 5m),
            checkpoint (a new complete checkpoint) or log=REGEX (a new matching line). If one look finds that several
            conditions hold, the first of them counts.
        timeout: maximum seconds to wait, from the start of the wait; None: no limit.
        handle: a name for the wait. If the calling process dies, repeat the call to resume the wait. The deadline of a
            resumed wait stays the same, and checkpoints and log lines count as new if they were written since the wait
            began. If the wait has ended, its result is returned again. None: a new name is chosen.
        interval: seconds between looks; None: from 2 to 60, increasing with the duration of the wait.
        stagnation_threshold: see `stall_policy`; None: derived from the evidence.
        checkpoint_dir: the checkpoint folder; None: it is detected if possible.
        stopping: set this event, from any thread, to end the wait. You can resume the wait later by its handle.
        on_look: called after every look with a description of its result.

    Returns:
        A WaitReport, whose `outcome` is how the wait ended.

    Raises:
        SettingsError: a condition is invalid, the handle belongs to a different wait, or several trainings match.
        JobNotFound: the first look found no such training.
        CommandError: the target could not be queried at the first look; later failures are retried.
    """
    kept, name = store or BestEffortStore(), handle or new_handle()
    asked = AskedWait(
        target=str(parse_target(target, namespace=namespace)),
        what=None if what is None else str(what),
        conditions=tuple(each.text for each in parse_conditions(conditions)),
        timeout=timeout,
        interval=interval,
        stagnation_threshold=stagnation_threshold,
        checkpoint_dir=checkpoint_dir,
    )
    before = load_wait(kept, name)
    if before and before.asked != asked:
        raise SettingsError(
            "handle", name, f"another name, because this one belongs to a wait for {_in_words(before.asked)}"
        )
    if before is None:
        forget_old_waits(kept, clock.time())
        save_wait(kept, name, WaitState(asked, clock.time()))
    try:
        return _Waiting(name, kept, stopping, on_look, transport, clock).go_on()
    except TrainingMonitorError:
        if before is None and not find_wait(kept, name).has_begun:
            kept.forget_run(wait_key(name))
        raise


def continue_wait(
    handle: str,
    *,
    stopping: threading.Event | None = None,
    on_look: OnWaitLook | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> WaitReport:
    """Resume a wait that was started with `wait_for`. If the wait has ended, its result is returned at once.

    If another process is already waiting with this handle, this function waits for that process and returns its result.

    Raises:
        JobNotFound: there is no such wait. Other errors are those of `wait_for`.
    """
    return _Waiting(handle, store or BestEffortStore(), stopping, on_look, transport, clock).go_on()


@dataclass(eq=False)
class _Waiting(Looker[Look, WaitReport]):
    handle: str
    store: Store
    stopping: threading.Event | None
    on_look: OnWaitLook | None
    transport: Transport | None
    clock: Clock

    def __post_init__(self) -> None:
        self.state = find_wait(self.store, self.handle)
        self.lost_by, self.lost_after = (JobNotFound, InstanceNotFound, TargetNotFound), ABSENT_SECONDS
        asked = self.state.target or self.state.asked.target
        self.site = Site.of(asked, transport=self.transport, clock=self.clock)
        self.interrupted = f"the wait was interrupted; to resume it, pass the handle {self.handle}"
        self.conditions = parse_conditions(self.state.asked.conditions)
        self.patterns = tuple(dict.fromkeys(each.pattern for each in self.conditions if each.pattern))
        self.waits_for_checkpoint = any(each.kind == "checkpoint" for each in self.conditions)
        self.waits_for_gpus = any(each.kind == "gpu-idle" for each in self.conditions)
        self.policy = stall_policy(self.state.asked.stagnation_threshold)
        self.observer: Observer | None = None
        self.verdict = NOBODY_LOOKED
        self.lines: dict[str, str] = {}
        self.checkpoint: Checkpoint | None = None
        self.ended_looks = 0  # how many in a row have shown that its job ended or stalled
        self.is_absent = False  # the last look did not find it
        self.cannot_ask: str | None = "nothing watches it"  # why; what happened since the last look is not seen then
        self.errors: dict[str, str] = {}

    # ------------------------------------------------------------ the loop

    def go_on(self) -> WaitReport:
        """Wait, or wait for the process that does, and return the result."""
        while not self.state.result:
            with suppress(AlreadySupervised), self.store.hold(wait_key(self.handle)):
                self.state = find_wait(self.store, self.handle)  # another process may have ended it by now
                return self.state.result or self.run()
            self.clock.wait(self.stopping or threading.Event(), TAKE_UP_SECONDS)
            if self.is_stopped:
                return self.interrupt()
            self.state = find_wait(self.store, self.handle)
        return self.state.result

    def run(self) -> WaitReport:
        if self.state.job is None:
            self.find_training()
        timeout = self.state.asked.timeout
        left = None if timeout is None else max(0.0, timeout - self.waited)
        return look_until_over(self, stopping=self.stopping, seconds=left) or self.interrupt()

    @property
    def has_begun(self) -> bool:
        return self.state.has_begun

    def followed(self) -> tuple[Site, str] | None:
        job_id = self.job.job_id
        return (self.observer.site, job_id) if self.observer and job_id and not self.ended_looks else None

    def pause(self) -> float:
        self.save()
        if self.on_look:
            self.on_look(f"{self.state.name}: {self.said}")
        interval = self.state.asked.interval
        seconds = next_pause(self.conditions, self.waited) if interval is None else interval
        return min(seconds, SURE_SECONDS) if self.ended_looks == 1 or self.is_absent else seconds

    @property
    def job(self) -> WatchedJob:
        assert self.state.job
        return self.state.job

    @property
    def waited(self) -> float:
        """Seconds since the beginning of the wait, by the wall clock, which other processes share."""
        return max(0.0, self.clock.time() - self.state.began_at)

    @property
    def is_stopped(self) -> bool:
        return self.stopping is not None and self.stopping.is_set()

    def find_training(self) -> None:
        """Find what is meant, and where its checkpoints go if they are waited for."""
        asked = self.state.asked
        self.site = reach(self.site)
        self.state.target = str(self.site)
        meant = find_known(self.site, asked.what, store=self.store)
        folder = asked.checkpoint_dir or meant.job.output_dir
        if self.waits_for_checkpoint and folder is None:
            folder = self.find_folder(meant.job)
        self.state.job, self.state.name = replace(meant.job, output_dir=folder, name=meant.name), meant.name
        newest = self.newest_attempt()
        self.state.attempt = None if newest is None else attempt_number(newest)

    def find_folder(self, job: WatchedJob) -> str:
        """Return the checkpoint folder of a training that was found by its name alone. Raises SettingsError."""
        for each in find_meant(self.site.resolve()).trainings:
            is_same = (each.job.job_id, each.job.log_file) == (job.job_id, job.log_file)
            if is_same and each.job.output_dir is not None:
                return each.job.output_dir
        raise SettingsError("checkpoint_dir", None, "the checkpoint folder, because it could not be detected")

    # ------------------------------------------------------------ looking

    def ask(self) -> Look:
        """Look, and take in what it shows. Raises TrainingMonitorError."""
        now = self.clock.time()
        if self.observer is None:
            self.observer = Observer(self.site.resolve(), self.job, store=self.store, asked=self.site)
        look, answers = self.observer.look_beside(now, *self.questions())
        if not self.state.has_begun:
            look.require(self.job)
        self.errors = {}
        rest: Iterator[Answer[Any]] = iter(answers)
        if self.patterns:
            self.take_log(next(rest), look)
        if self.waits_for_checkpoint:
            self.take_checkpoints(next(rest))
        self.take_look(look, now)
        return look

    def questions(self) -> list[Question[Any]]:
        asked: list[Question[Any]] = [self.log_question()] if self.patterns else []
        if self.waits_for_checkpoint:
            assert self.job.output_dir
            asked.append(checkpoints_question(self.job.output_dir))
        return asked

    def log_question(self) -> Question[NewLog]:
        """Ask for the log behind what was searched; at the beginning only for where it ends."""
        cursor, has_begun = self.state.cursor, self.state.has_begun
        limit = LIMIT_BYTES if has_begun else FIRST_BYTES
        return source_of(self.job, cursor).read(cursor, limit, oldest_first=has_begun)

    def take_log(self, answer: Answer[NewLog], look: Look) -> None:
        """Search the new lines of the log, and the unfinished last one of a training that no longer writes."""
        try:
            new = answer.get() or NewLog("", None, missing=True)
            while self.state.has_begun and new.left_bytes and not (self.lines or self.is_stopped):
                self.take_lines(new, look)
                assert self.observer
                new = self.observer.site.ask_one(self.log_question())
            self.take_lines(new, look)
        except TrainingMonitorError as error:
            if not self.state.has_begun:
                raise
            self.errors["log"] = f"its log could not be searched: {error.what}"

    def take_lines(self, new: NewLog, look: Look) -> None:
        """Search one part of the log, or the end of a log that cannot be read from a cursor; not at the beginning."""
        text = new.text + (new.partial if look.is_running is False else "")
        if new.missing:
            ended = look.log_tail[: max(look.log_tail.rfind("\n"), look.log_tail.rfind("\r")) + 1]
            text, self.state.tail = new_in_tail(ended, self.state.tail), ended[-KEPT_TAIL:]
            if not look.log_tail:
                self.errors["log"] = "its log was not found"
        if new.skipped_bytes and self.state.has_begun:
            self.errors["log"] = f"{format_bytes(new.skipped_bytes)} of its log could not be searched"
        if self.state.has_begun:
            self.search(text)
        self.state.cursor = new.cursor

    def search(self, text: str) -> None:
        for pattern in self.patterns:
            if pattern not in self.lines and (line := find_line(pattern, text)) is not None:
                self.lines[pattern] = line

    def take_checkpoints(self, answer: Answer[CheckpointListing | None]) -> None:
        """Compare the checkpoints with those of the beginning: the first that could be listed."""
        if answer.failure:
            self.errors["checkpoints"] = f"its checkpoints could not be listed: {answer.failure.what}"
            return
        found = answer.value or CheckpointListing(())
        if self.state.known is None:
            self.state.known = know_checkpoints(found)
        self.checkpoint = find_new_checkpoint(self.state.known, found, self.waited)

    def take_look(self, look: Look, now: float) -> None:
        """Keep what the look showed of the training, and judge it."""
        state = self.state
        assert self.observer
        if self.cannot_ask and state.looked_at is not None:
            state.unseen_seconds += max(0.0, now - state.looked_at)
        self.cannot_ask, self.is_absent = None, False
        self.verdict = self.observer.judge(now, self.policy)
        progress = self.observer.progress
        done = job_progress(progress)
        if done.step is not None:
            state.step, state.total_steps = done.step, done.total_steps
        state.epoch = state.epoch if done.epoch is None else done.epoch
        state.loss = state.loss if progress.loss is None else progress.loss
        mode = gpu_mode(look.gpu_utilization, look.gpu_power)
        gap = max(GAP_SECONDS, 3.0 * (state.asked.interval or 0.0))
        state.idle_since = idle_since(state.idle_since, mode, state.looked_at, now, gap)
        if self.waits_for_gpus and mode is None:
            self.errors["GPUs"] = f"its GPUs could not be queried: {look.gpu_error or 'none was found'}"
        state.looked_at, state.has_begun = now, True

    def not_seen(self, error: TrainingMonitorError, *, is_lost: bool) -> WaitReport | None:
        self.cannot_ask, self.ended_looks = error.what, 0
        self.is_absent = isinstance(error, self.lost_by)
        return self.end("unknown", f"it no longer exists: {error.what}") if is_lost else None

    def run_out(self) -> WaitReport:
        return self.end("timeout", self.why_nothing())

    # ------------------------------------------------------------ deciding

    def decide(self, seen: Look, *, is_last: bool) -> WaitReport | None:
        """Return the report if a condition holds, or if the training has ended or stalled for sure."""
        state, verdict = self.state, self.verdict
        idle = None if state.idle_since is None or state.looked_at is None else state.looked_at - state.idle_since
        facts = Facts(verdict, state.step, state.total_steps, state.epoch, idle, self.checkpoint, self.lines)
        if found := find_holding(self.conditions, facts):
            condition, reason = found
            return self.end("met", reason, condition)
        is_over = verdict.state in (*ENDS, "stalled") or seen.is_running is False
        self.ended_looks = self.ended_looks + 1 if is_over else 0
        if not is_over or (self.ended_looks < SURE_LOOKS and not is_last) or self.goes_on():
            return None
        outcome = "unknown" if verdict.state == "unknown" else "missed"
        return self.end(outcome, f"{format_verdict(verdict)}, but {_not_met(state.asked.conditions)}")

    def goes_on(self) -> bool:
        """Return whether a training goes on although its job has ended or stalled: its supervisor sees to that."""
        if self.verdict.state == "finished":
            return False
        if self.find_next_attempt():
            return True
        assert self.observer
        try:
            [claims] = self.observer.site.ask(list_question())
        except TrainingMonitorError as error:
            self.cannot_ask = error.what
            return True
        try:
            return bool(claims.value and claims.value.of(claim_name(self.job)))
        except CommandFailed:  # not all were listed
            return False

    def find_next_attempt(self) -> bool:
        """Return whether there is a later attempt than at the beginning, and wait for that from now on."""
        found = self.newest_attempt()
        if found is None or self.state.attempt is None or attempt_number(found) <= self.state.attempt:
            return False
        self.state.job, self.state.name = replace(self.job, job_id=found, name=found), found
        self.state.attempt, self.observer, self.ended_looks = attempt_number(found), None, 0
        return True

    def newest_attempt(self) -> str | None:
        """Return the job id of the newest attempt of the training; None if it has none, or if that is unknown."""
        if self.job.job_id is None:
            return None
        name = training_name(self.job.job_id)
        with suppress(TrainingMonitorError):
            if self.job.job_id.startswith(PREFIX):
                return find_process_job(self.site.target, name, transport=self.transport)
            return find_meant(self.site.resolve(), name).trainings[0].job.job_id
        return None

    # ------------------------------------------------------------ ending

    @property
    def said(self) -> str:
        """The result of the last look in words."""
        return f"cannot be reached: {self.cannot_ask}" if self.cannot_ask else format_verdict(self.verdict)

    def why_nothing(self) -> str:
        asked = self.state.asked
        missing = "".join(f"; {error}" for error in self.errors.values())
        return f"{_not_met(asked.conditions)} within {format_duration(asked.timeout)}; {self.said}{missing}"

    def interrupt(self) -> WaitReport:
        """Report that the waiting was stopped; another call goes on with it."""
        return self.report("interrupted", self.interrupted)

    def end(self, outcome: str, reason: str, condition: Condition | None = None) -> WaitReport:
        """End the wait for good."""
        self.state.result = report = self.report(outcome, reason, condition)
        self.save()
        return replace(report, errors=tuple(self.errors.values()))

    def save(self) -> None:
        """Keep the wait; where that fails, go on without."""
        try:
            save_wait(self.store, self.handle, self.state)
        except StateError as error:
            self.errors["state"] = f"the wait cannot be resumed with its handle: {error.what}"

    def report(self, outcome: str, reason: str, condition: Condition | None = None) -> WaitReport:
        state, unseen = self.state, self.state.unseen_seconds
        if self.cannot_ask and state.looked_at is not None:
            unseen += max(0.0, self.clock.time() - state.looked_at)
        blind = f"; the training could not be observed for {format_duration(unseen)}" if unseen >= 1.0 else ""
        return WaitReport(
            schema=SCHEMA,
            target=state.asked.target,
            outcome=outcome,
            condition=condition.text if condition else None,
            conditions=state.asked.conditions,
            reason=f"{reason}{blind}",
            verdict="unknown" if self.cannot_ask else self.verdict.verdict,
            state="unknown" if self.cannot_ask else self.verdict.state,
            **{name: getattr(state, name) for name in ("name", "step", "total_steps", "epoch", "loss")},
            job_id=state.job.job_id if state.job else None,
            checkpoint=self.checkpoint,
            line=self.lines.get(condition.pattern) if condition else None,
            seconds=self.waited,
            unseen_seconds=unseen,
            handle=self.handle,
            errors=tuple(self.errors.values()),
            remedies=() if self.cannot_ask else self.verdict.remedies,
        )


def _joined(conditions: Sequence[str]) -> str:
    return " or ".join(shown(each) for each in conditions)


def _not_met(conditions: Sequence[str]) -> str:
    return f"the condition {_joined(conditions)} was not met"


def _in_words(asked: AskedWait) -> str:
    """Say what a wait is for, with the settings that differ from the defaults."""
    more = {"timeout": asked.timeout, "interval": asked.interval, "stagnation_threshold": asked.stagnation_threshold}
    given = "".join(f", {name} {value:g} s" for name, value in more.items() if value is not None)
    folder = f", checkpoints in {asked.checkpoint_dir}" if asked.checkpoint_dir else ""
    return f"{_joined(asked.conditions)} of {asked.target} {asked.what or ''}".rstrip() + given + folder
