"""TrainingWatcher: one training run, polled or followed line by line. It judges, and does not act."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from training_monitor.checkpoints.checkpoints import get_checkpoint_listing
from training_monitor.core.arguments import checked
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import CommandFailed, InvalidTransition, SettingsError, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Checkpoint, LogCursor, NewLog, Progress
from training_monitor.core.store import Store
from training_monitor.core.values import (
    CheckpointListing,
    LogUpdate,
    Notice,
    StallAnalysis,
    TrainingStatus,
    Verdict,
    WatchedJob,
)
from training_monitor.jobs.claims import Claiming, Guard, unguarded
from training_monitor.jobs.jobs import see_job
from training_monitor.jobs.process_jobs import stop_process_question
from training_monitor.jobs.stopping import end_job
from training_monitor.logs.sources import Following
from training_monitor.look.kept_looks import Looks, look_key
from training_monitor.look.looks import Look, read_watch, source_of, watch_questions
from training_monitor.look.meant import reach
from training_monitor.look.remembered import forget_stopped
from training_monitor.notify.notice_text import next_command, word_for
from training_monitor.supervision.watch_state import LAYOUT, NOT_STALLING, Told, WatchState
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.judge import with_speed
from training_monitor.verdict.limits import WatchConfig, read_watch_config

FIRST_WAIT = 0.2
SAVE_SECONDS = 2.0
MOST_WAIT = 10.0
TICK_SECONDS = 5.0
STOP_SECONDS = 5.0
READS_AT_THE_END = 3
Callback = Callable[[LogUpdate], None]


def watched_job(job: WatchedJob | str | Mapping[str, Any]) -> WatchedJob:
    """Return a job from what a user gives: an id, or a table of `WatchedJob`'s fields. Raises SettingsError."""
    if isinstance(job, WatchedJob):
        return job
    if isinstance(job, str):
        return WatchedJob(job_id=job)
    fields: dict[str, Any] = dict(job)
    try:
        return WatchedJob(**fields)
    except TypeError as error:
        raise SettingsError(
            "job", dict(job), "only the keys job_id, log_file, log_paths, pid, pid_file, output_dir and name"
        ) from error


@checked
class TrainingWatcher:
    """Watch one run. The state of the watch is saved in the store, so that another process can continue the watch.

    Args:
        target: where the run is; see `Target`.
        job: a `WatchedJob`, a dict of its fields, or a job ID.
        config: a `WatchConfig`, or a dict of the settings that differ from its defaults.
    """

    def __init__(
        self,
        target: str | Target,
        job: WatchedJob | str | Mapping[str, Any],
        config: WatchConfig | Mapping[str, Any] | None = None,
        namespace: str = "default",
        *,
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.site = Site.of(target, namespace, transport, clock)
        self.target = self.site.target
        self.job = watched_job(job)
        self.config = config if isinstance(config, WatchConfig) else read_watch_config(config or {})
        self.claiming: Claiming | None = None  # the run may be ended only while this claim is held
        self.about = look_key(self.target, self.job, None)
        self.key = f"watch {self.about}"
        self.store = store or BestEffortStore()
        self.clock = clock
        self._reached: Site | None = None
        self._is_first = True
        self._asking, self.lock = threading.Lock(), threading.RLock()
        self._stream: _Streaming | None = None
        self.state = self._load()
        self.last_look: Look | None = None  # of the last `poll` that was answered
        self.next_look_at: float | None = None  # when `watch_training` looks next, epoch seconds; None while it looks
        self.list_seconds = 0.0  # least time between two listings of the checkpoints, but for that of a run that ended
        self._listed: tuple[float, Look] | None = None  # the last look with a listing, and when it was

    # ------------------------------------------------------------ looking

    def poll(self) -> TrainingStatus:
        """Look at the run once, in one round trip.

        While the log is streamed, `poll` reads the log only until the stream has caught up with the log for the first
        time. Before the stream has caught up, the saved state may be that of an earlier watch.

        Raises:
            JobNotFound: there is no such job.
            CommandError: the target could not be queried; the saved state is then left unchanged.
        """
        with self._asking:
            stream = self._stream
            if stream is None:
                self.state = self._load()
            cursor = self.state.cursor
            look = self.look(with_log=stream is None or cursor is None or not stream.has_read)
        if stream and look.log:
            stream.take(look, cursor)
        if stream and look.is_running is False:
            stream.read_to_the_end()  # the last lines decide the verdict
        if self.job.pid is not None and self.state.identity is None:
            look.require(self.job)
        if self.list_seconds and look.is_running is False:
            look = self._with_last_checkpoints(look)
        self.last_look = look
        with self.lock:
            if look.log and stream is None:
                self.state.take_log(look.log, look.log_tail)
            self.state.open_looks(self.reached().target, self.job, look)
            status = self.state.with_log(self.state.take_look(look, self.clock.time(), self.config))
            self.save()
        return status

    @property
    def missing_log(self) -> str | None:
        """Return the configured log if no look has found it so far; otherwise None."""
        look = self.last_look
        is_missing = look is not None and look.log is not None and look.log.missing and not look.log_tail
        named = self.job.log_file or " ".join(self.job.log_paths) or None
        return named if is_missing and self.state.cursor is None else None

    def check_for_stall(self) -> StallAnalysis:
        """Return the stall analysis of the current verdict, without querying the target."""
        return self.judge().stall or NOT_STALLING

    def judge(self) -> Verdict:
        """Return the verdict by all observations of the training, without querying the target."""
        with self.lock:
            return self.state.judge(self.clock.time(), self.config)

    def get_checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints in the output directory, lowest step first. Raises SettingsError, CommandError."""
        return list(self.get_checkpoint_listing().checkpoints)

    def get_checkpoint_listing(self) -> CheckpointListing:
        """Return the checkpoints, and how many were not inspected. Raises SettingsError, CommandError."""
        if self.job.output_dir is None:
            raise SettingsError("output_dir", None, "the folder to which the training writes its checkpoints")
        found = get_checkpoint_listing(self.job.output_dir, self.reached().target, transport=self.site.transport)
        return found or CheckpointListing(())

    def stop_training(self, grace: float | None = None) -> bool:
        """Stop the run: send SIGTERM to all its processes, and SIGKILL after `grace` seconds.

        If `grace` is not given, the value in the configuration is used, which is 10 by default.

        Returns:
            True if it was verified that no process of the run is left; False if a process survived SIGKILL.

        Raises:
            SettingsError: the processes of the run are unknown.
            JobNotFound: there is no such job.
            CommandError: the target could not be queried.
        """
        return not self.stop_run(self.config.stop_grace if grace is None else grace)

    def check_can_end(self) -> None:
        """Raise SettingsError if the run cannot be stopped by a signal."""
        if self.job.pid == 1:
            expected = "a PID other than 1: process 1 ends only with its container, so delete the pod instead"
            raise SettingsError("pid", 1, expected)

    def stop_run(self, grace: float, only: Identity | None = None) -> list[str]:
        """Stop the run, and return the processes that survived SIGKILL. If `only` is given, stop only that process."""
        if self.job.job_id is None:
            return self._stop_processes(grace, only)
        try:
            site = self.reached()
            see_job(site, self.job.job_id)
            end_job(site, self.job.job_id, grace=grace, guard=self._guard)
        except CommandFailed as error:
            return [error.what]
        return []

    def _stop_processes(self, grace: float, only: Identity | None) -> list[str]:
        """Do the same for a run without a job id; survivors are given as `PID STATE`."""
        self.check_can_end()
        look = self.look(with_log=False)
        if look.view and look.view.pod:  # commands cannot run on the target
            if look.is_running is False:
                return []
            pod = look.view.pod
            way = f"run scancel {pod.name}" if pod.kind == "job" else f"delete the {pod.kind}, or its owner"
            is_suspended = pod.phase == "Suspended"
            hint = pod.resume if is_suspended and pod.resume else f"to keep it from starting, {way}"
            raise CommandFailed(f"{look.view.message}: no process of it can be stopped", hint=hint)
        if self.job.pid_file is None and self.job.pid is None and look.is_running is not False:
            expected = "the PID of the training, or a file with it (pid_file): a log does not identify processes"
            raise SettingsError("what to stop", self.job.label, expected)
        if look.process is None:
            raise TrainingMonitorError(f"{self.target}: cannot tell which processes to stop: {'; '.join(look.errors)}")
        if look.process.running is None:
            raise SettingsError(
                "pid_file", self.job.pid_file, f"a file with the PID of the training ({look.process.reason})"
            )
        if self.job.pid is not None:
            look.require(self.job)
        if not look.process.running or look.process.identity is None or only not in (None, look.process.identity):
            return []
        with self.lock:
            self.state.identity = look.process.identity
            self.save()
        question = self._guard(stop_process_question(look.process.identity, grace, self.job.pid_file))
        left: list[str] = self.reached().ask_one(question)
        if not left:
            with suppress(TrainingMonitorError):  # then the next check reports it as ended
                forget_stopped(self.store, self.reached().target, self.clock.time(), look.process.identity)
        return left

    @property
    def _guard(self) -> Guard:
        """The guard that allows an action only under the claim, if there is one."""
        return self.claiming.guard if self.claiming else unguarded

    def reached(self) -> Site:
        """Return the address of the target. Raises CommandError."""
        if self._reached is None:
            self._reached = reach(self.site)
        return self._reached

    def look(self, *, with_log: bool) -> Look:
        """Query the target once, without saving the observation. Raises JobNotFound, CommandError."""
        is_first, self._is_first = self._is_first, False
        cursor, identity = self.state.cursor, self.state.identity
        lists = self._listed is None or self.clock.monotonic() - self._listed[0] >= self.list_seconds
        options = {"with_log": with_log, "with_checkpoints": lists}
        questions = watch_questions(self.job, cursor, identity, is_first=is_first, **options)
        try:
            answers = self.reached().ask(*questions)
        except TrainingMonitorError:
            self._reached = None  # the target may have moved
            raise
        look = read_watch(self.job, answers, **options)
        if not lists:
            look = self._with_kept_checkpoints(look)
        elif look.checkpoints is not None:
            self._listed = self.clock.monotonic(), look
        if look.epochs and cursor is None:
            self.state.totals.epochs = look.epochs
        return look

    def _with_kept_checkpoints(self, look: Look) -> Look:
        """Add the checkpoints of the last listing to a look that did not ask for them."""
        if self._listed is None:
            return look
        at, listed = self._listed
        aged = self.clock.monotonic() - at
        known = (replace(each, age=None if each.age is None else each.age + aged) for each in listed.checkpoints or ())
        return replace(look, checkpoints=tuple(known), unlisted_checkpoints=listed.unlisted_checkpoints)

    def _with_last_checkpoints(self, look: Look) -> Look:
        """Return the last look at a run that has ended with its checkpoints of now, which its result names."""
        if self._listed is None or self._listed[1] is look:
            return look
        try:
            found = self.get_checkpoint_listing()
        except TrainingMonitorError as error:
            get_logger().info("%s: the list of its checkpoints could not be updated: %s", self.job.label, error)
            return look
        return replace(look, checkpoints=found.checkpoints, unlisted_checkpoints=found.unlisted)

    def about_this(self, notice: Notice) -> Notice:
        """Add to a notice the names of this run and its target, and a command that shows details."""
        what = word_for(self.job)
        if self.target.is_here and what == self.job.log_file:
            what = os.path.abspath(what)
        command = notice.command or next_command(notice.kind, str(self.target), what)
        return replace(notice, job_id=self.about, target=str(self.target), command=command)

    # ------------------------------------------------------------ following

    def start_streaming(self, callback: Callback) -> Callable[[], None]:
        """Follow the log: `callback` receives each new line once, in order, as soon as it is written.

        If the connection is lost, it is reopened; until then, polls deliver the lines. No line is lost or repeated,
        even if the log is rotated (the rest of FILE.1 is read) or truncated. If the process is killed, the process that
        continues the watch may receive the lines of the last two seconds again. Exceptions raised by `callback` are
        logged and do not end the streaming. The training's process, GPUs and checkpoints are polled every
        `poll_interval`.

        Returns:
            A function that ends the streaming. The returned function waits until all lines that have already arrived
            have been delivered.

        Raises:
            InvalidTransition: the log is already being streamed.
        """
        return self.follow(callback, polls=True)

    def follow(self, callback: Callback, *, polls: bool) -> Callable[[], None]:
        """Stream new log lines, as `start_streaming` does. If `polls` is false, the caller must call `poll`."""
        with self._asking:
            if self._stream is not None:
                raise InvalidTransition(f"the log of {self.job.label} is already being streamed")
            self._stream = _Streaming(self, callback, polls=polls)
        self._stream.start()
        return self.stop_streaming

    def stop_streaming(self) -> None:
        """End the streaming, if the log is being streamed."""
        if stream := self._stream:
            stream.stop()
            self._stream = None
            with self.lock:
                self.save()

    # ------------------------------------------------------------ keeping

    def _load(self) -> WatchState:
        """Load the saved state; one of another layout is replaced by a new one."""
        kept = self.store.load_run(self.key, dict) or {}
        state = (self.store.load_run(self.key, WatchState) if kept.get("layout") == LAYOUT else None) or WatchState()
        state.looks = Looks(self.store, state.look_key)
        return state

    def save(self) -> None:
        """Save the state. The caller must hold the lock."""
        self.store.save_run(self.key, self.state, finished=False)

    def save_alerts(self, alerts: Told) -> None:
        """Save which events of this run have been reported."""
        with self.lock:
            self.state.alerts = alerts
            self.save()


class _Streaming:
    """Two threads: one reads the log, the other looks whether its connection is lost, and polls the rest."""

    def __init__(self, watcher: TrainingWatcher, callback: Callback, *, polls: bool) -> None:
        self._watcher, self._callback, self._polls = watcher, callback, polls
        self._stopping, self._handing = threading.Event(), threading.RLock()
        self._log: Following | None = None
        self._saved_at, self.has_read = 0.0, False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        try:
            for work, name in (self._follow, "log"), (self._tend, "connection"):
                self._threads.append(start_thread(work, name))
        except TrainingMonitorError:
            self.stop()
            raise

    def stop(self) -> None:
        self._stopping.set()
        if self._log:
            self._log.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS)  # one that still waits for an answer delivers nothing anymore

    def _follow(self) -> None:
        """Read the log and follow it; reconnect after every drop, with a growing backoff while nothing arrives."""
        watcher, wait = self._watcher, 0.0
        while not self._stopping.is_set():
            came = False
            try:
                self._read()
                self._log = source_of(watcher.job).follow_on(watcher.reached())
                if self._stopping.is_set():
                    return
                cursor = watcher.state.cursor
                for new in self._log.follow(cursor) if self._log and cursor else ():
                    if not self.deliver(new, cursor):
                        break
                    cursor, came = new.cursor, True
            except TrainingMonitorError as error:
                get_logger().info("%s: not streaming: %s", watcher.job.label, error)
            wait = FIRST_WAIT if came else min(2 * wait or FIRST_WAIT, watcher.config.poll_interval, MOST_WAIT)
            watcher.clock.wait(self._stopping, wait)

    def _read(self) -> bool:
        """Read the log behind the cursor, and `take` it."""
        cursor = self._watcher.state.cursor
        return self.take(self._watcher.look(with_log=True), cursor)

    def take(self, look: Look, cursor: LogCursor | None) -> bool:
        """Deliver what a look read behind the cursor; False if another thread was faster.

        If it did not fit into one answer, nothing is delivered: the stream brings it.
        """
        assert look.log
        if look.log.skipped_bytes and not look.log.reset and cursor is not None:
            return False
        return self.deliver(look.log, cursor, look.log_tail)

    def read_to_the_end(self) -> None:
        """Deliver the rest of the log of a run that no longer writes, including its unfinished last line."""
        if threading.current_thread() in self._threads[:1]:
            return  # called from a callback: the lines that it already has are delivered first
        for _ in range(READS_AT_THE_END):
            if self._read():
                break
        with self._handing:
            with self._watcher.lock:
                last = self._watcher.state.take_last_line()
            self._hand_on(last)

    def deliver(self, new: NewLog, after: LogCursor | None, tail: str = "") -> bool:
        """Add and deliver what came behind the cursor `after`; False if another thread has already read it."""
        watcher = self._watcher
        with self._handing:
            with watcher.lock:
                if self._stopping.is_set() or watcher.state.cursor != after:
                    return False
                lines, self.has_read = watcher.state.take_log(new, tail), True
                watcher.state.note_written(new, watcher.clock.time())
                if watcher.clock.monotonic() - self._saved_at > SAVE_SECONDS:
                    watcher.save()
                    self._saved_at = watcher.clock.monotonic()
            self._hand_on(lines)
        return True

    def _hand_on(self, lines: list[tuple[str, Progress]]) -> None:
        """Call the callback for each line with its progress; one thread at a time, to keep the order."""
        now, verdict = self._watcher.clock.time(), self._watcher.state.verdict
        for line, progress in lines:
            try:
                self._callback(LogUpdate(line, with_speed(progress, verdict), verdict.stall or NOT_STALLING, now))
            except Exception:
                get_logger().exception("%s: the callback of the stream failed", self._watcher.job.label)

    def _tend(self) -> None:
        """Poll every `poll_interval`, and read a log that has gone silent."""
        watcher, due = self._watcher, 0.0
        while not self._stopping.is_set():
            if self._polls and watcher.clock.monotonic() >= due:
                due = watcher.clock.monotonic() + watcher.config.poll_interval
                try:
                    watcher.poll()
                except TrainingMonitorError as error:
                    get_logger().info("%s: cannot reach the target: %s", watcher.job.label, error)
            if self._log and self._log.is_silent:
                self._check(self._log)
            watcher.clock.wait(self._stopping, min(TICK_SECONDS, watcher.config.poll_interval))

    def _check(self, log: Following) -> None:
        """Read the log: if it is not as silent as its connection, drop that."""
        watcher = self._watcher
        before = watcher.state.cursor
        try:
            is_all = self._read()
        except TrainingMonitorError as error:
            get_logger().info("%s: cannot reach the target: %s", watcher.job.label, error)
            return
        if not is_all or watcher.state.cursor != before:
            log.drop()
        log.heard()
