"""RunCollector: looks at a folder of runs again and again, in the engine's thread; each action has its own thread.

`observe_run` turns a look at a run into an observation for the judge. The progress file says how far the run is and
when its last batch began; its processes say whether they compute. That the file is being written says nothing about
the training: a separate thread writes it, even during a hang.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import MOST_WORDS, Engine, begin_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.models import Failure, JobStatus
from training_monitor.core.values import Observation
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.rows import (
    epochs_done,
    judge_look,
    loss_of,
    step_of,
    total_steps_of,
    without_outlook,
)
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    PROCESS,
    RUNNING,
    UNKNOWN,
    FolderLook,
    Limits,
    Message,
    RunRow,
    RunsSnapshot,
    Usage,
)
from training_monitor.targets.proc_stat import Identity
from training_monitor.verdict.judge import judge, not_seen
from training_monitor.verdict.stall_history import thin_looks

MOST_LOOKS = 80  # per run; older ones are thinned
LOOK_SPACING = 30.0  # seconds between the looks that are kept
_JOB_STATUS = {
    RUNNING: JobStatus.RUNNING,
    FINISHED: JobStatus.SUCCEEDED,
    CANCELED: JobStatus.STOPPED,
    FAILED: JobStatus.FAILED,
    KILLED: JobStatus.FAILED,
}
MOST_ACTS, MOST_MESSAGES = 16, 100  # actions at a time; messages kept
_LEAST_SPAN = 1.0  # least seconds between the two looks for CPU shares: ticks are 10 ms long
_NO_LIMITS = Limits()


def observe_run(row: RunRow, look: FolderLook, seen_at: float) -> Observation:
    """Return one look at a run as an observation.

    Args:
        row: the run as `judge_look` shows it.
        look: the look it is from; ages are by its clock.
        seen_at: epoch seconds by the caller's clock.
    """
    run, now = row.run, look.timestamp
    status = _JOB_STATUS.get(row.status, JobStatus.UNKNOWN)
    processes = [node for node in row.tree if node.kind == PROCESS]
    rate = row.rate if row.rate and row.rate > 0 else None
    return Observation(
        seen_at,
        step := step_of(run),
        total_steps=total_steps_of(run, step),
        eta_seconds=row.eta_seconds,
        steps_per_second=rate,
        loss=loss_of(run),
        phase=run.phase,
        epoch=epochs_done(run) or None,  # an epoch that has begun is not done
        total_epochs=run.total_epochs,
        status=status,
        message=row.reason or run.last_words,
        exit_code=run.exit_code,
        is_running=None if status == JobStatus.UNKNOWN else status == JobStatus.RUNNING,
        finished=None if status == JobStatus.UNKNOWN else status == JobStatus.SUCCEEDED,
        failure=_failure(row) if status == JobStatus.FAILED else None,
        runtime=_since(run.started_at, now),
        process=_name_of(run.process),
        boot=run.process.boot_id if run.process else None,
        step_age=_since(run.step_at, now) if row.quiet_seconds is None else row.quiet_seconds,
        step_interval=None if rate is None else 1 / rate,
        cpu_seconds=_cpu_seconds(row, look),
        cpu_cores=None if row.cpu_percent is None else row.cpu_percent / 100,
        blocked=sum(node.state == "D" for node in processes) if processes else None,
        suspended=tuple(sorted(node.identity.pid for node in processes if node.state == "T")),
    )


def judge_run(row: RunRow, seen: Sequence[Observation], now: float) -> RunRow:
    """Return the row with the verdict on its observations; it has an outlook only while that is running or slow.

    The last observations of a run that cannot be seen prove nothing.
    """
    verdict = not_seen(row.reason) if row.status == UNKNOWN else judge(seen, now=now)
    row = replace(row, verdict=verdict)
    if row.status != RUNNING or verdict.state in ("running", "slow"):
        return row
    return replace(row, run=without_outlook(row.run), eta_seconds=None)


def add_look(past: Sequence[Observation], new: Observation) -> tuple[Observation, ...]:
    """Return the observations of a run that are kept, oldest first, with one more: the newest, and one per half minute.

    Those with a later time are dropped: the clock was set back since. Of a run that has ended, the first observation is
    enough.
    """
    if past and new.status.is_terminal and past[-1].status == new.status and past[-1].process == new.process:
        return tuple(past)
    kept = [each for each in past if each.timestamp < new.timestamp]
    if len(kept) > 1 and new.timestamp - kept[-2].timestamp < LOOK_SPACING:
        kept.pop()
    return tuple(thin_looks([*kept, new], MOST_LOOKS))


def _failure(row: RunRow) -> Failure | None:
    """Return why it failed, by its exit and its script's last message; None if unknown, or if it was killed."""
    from training_monitor.verdict.failure import classify_failure  # most runs do not fail

    failure = classify_failure(row.run.error_message or "", exit_code=row.run.exit_code)
    return None if failure.category == "none" else failure


def _since(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def _name_of(process: Identity | None) -> str | None:
    """Return the process as PID START BOOT."""
    return f"{process.pid} {process.start_ticks} {process.boot_id}" if process else None


def _cpu_seconds(row: RunRow, look: FolderLook) -> float | None:
    """Return the CPU time of its processes since they began, without those that have ended."""
    if look.machine is None:
        return None
    samples = [look.machine.processes.get(node.identity.pid) for node in row.tree if node.kind == PROCESS]
    ticks = [sample.cpu_ticks for sample in samples if sample]
    return sum(ticks) / look.machine.ticks if ticks else None


class RunCollector(Engine):
    """Update the state of a folder of runs at regular intervals.

    If a look fails, the rows of the last successful look are kept, and the snapshot contains the error and the time of
    the first failure. Further looks are delayed with a backoff until one succeeds.

    Args:
        source: access to the folder; screens and actions use it too.
        interval: seconds between the starts of two looks.
        limits: the limits with which the usage is compared.
        where: the display name of the folder.
    """

    subject = "runs"
    most_threads = 0
    longest_backoff = 30.0

    def __init__(
        self,
        source: RemoteRuns,
        *,
        interval: float = 2.0,
        limits: Limits = _NO_LIMITS,
        where: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(interval, clock)
        self.source, self._limits = source, limits
        self._view = RunsSnapshot((), Usage(), clock.time(), where)
        self._before: FolderLook | None = None
        self._past: dict[str, tuple[Observation, ...]] = {}  # by the path of a run
        self._changes: dict[str, tuple[float | None, float | None]] = {}  # what a file says of its write, seen when
        self._expanded: frozenset[int] = frozenset()
        self._messages: deque[Message] = deque(maxlen=MOST_MESSAGES)
        self._acts: list[str] = []  # the running ones, by their descriptions
        self._acted = threading.Event()  # set when one of them has ended

    # ------------------------------------------------------------ looking

    def snapshot(self) -> RunsSnapshot:
        """Return the current state. Its `timestamp` is the time of the last successful look, by the local clock."""
        with self._lock:
            return replace(self._view, is_refreshing=not self._schedule.is_idle)

    def expand(self, pids: frozenset[int]) -> None:
        """From the next look on, read the threads of these processes only."""
        with self._lock:
            news, self._expanded = pids - self._expanded, pids
        if news:
            self.refresh()

    def look_once(self) -> RunsSnapshot:
        """Look in the calling thread, after any look in progress. The snapshot contains any failure. Never raises."""
        self.ask_all()
        return self.snapshot()

    def keys(self) -> tuple[str, ...]:
        return (self._view.where,)

    def look(self, key: str) -> None:
        look = self.source.look(self._expanded)
        self._note_changes(look)
        changed_at = {path: at for path, (_, at) in self._changes.items() if at is not None}
        rows, usage = judge_look(look, self._before, self._limits, changed_at)
        rows = self._judge_each(rows, look)
        if _is_later(look, self._before):
            self._before = look
        with self._lock:
            if self._closing.is_set():
                return
            self._view = RunsSnapshot(
                rows,
                usage,
                self.clock.time(),
                self._view.where,
                machine_error=look.machine_error,
                gpu_error=look.machine.gpu_error if look.machine else None,
            )

    def _note_changes(self, look: FolderLook) -> None:
        """Note which files have changed since they were first seen: clocks of other machines may be wrong."""
        known = self._changes
        self._changes = {}
        for run in look.runs:
            updated_at, at = known.get(run.path, (run.updated_at, None))
            self._changes[run.path] = run.updated_at, (at if updated_at == run.updated_at else look.timestamp)

    def _judge_each(self, rows: tuple[RunRow, ...], look: FolderLook) -> tuple[RunRow, ...]:
        """Return the rows with a verdict on each, by this look and the earlier ones."""
        now, past = self.clock.time(), {row.run.path: self._past.get(row.run.path, ()) for row in rows}
        seen = {row.run.path: observe_run(row, look, now) for row in rows if row.status != UNKNOWN}
        self._past = past | {path: add_look(past[path], each) for path, each in seen.items()}
        return tuple(judge_run(row, self._past[row.run.path], now) for row in rows)

    def fail(self, key: str, error: TrainingMonitorError) -> None:
        with self._lock:
            if not self._closing.is_set():
                since = self._view.stale_since or self.clock.time()
                self._view = replace(self._view, error=str(error)[:MOST_WORDS], stale_since=since)

    # ------------------------------------------------------------ acting

    def act(self, description: str, call: Callable[[], str]) -> None:
        """Call `call` in a separate thread. Its result, or the reason why it failed, becomes a message. Never raises.

        Afterwards, the runs are looked at again.

        Args:
            description: what the action does, such as `delete llama`.
            call: returns a sentence that begins with the outcome, such as `deleted llama`.
        """
        with self._lock:
            is_one_too_many = len(self._acts) >= MOST_ACTS
            if not is_one_too_many:
                self._acts.append(description)
        if is_one_too_many:
            self.tell(
                _failed(
                    description, f"{MOST_ACTS} other actions are running. Try: repeat the action when one has ended"
                )
            )
        elif not begin_thread(lambda: self._act(description, call), "act"):
            self._end_act(
                description,
                _failed(description, "this machine cannot start another thread. Try: repeat the action later"),
            )

    def acts(self) -> tuple[str, ...]:
        """Return the descriptions of the running actions."""
        with self._lock:
            return tuple(self._acts)

    def wait_for_acts(self, seconds: float) -> tuple[str, ...]:
        """Wait until no action is running, for at most this many seconds. Return the actions that are still running."""
        end = self.clock.monotonic() + seconds
        while (left := self.acts()) and (rest := end - self.clock.monotonic()) > 0:
            self.clock.wait(self._acted, rest)
            self._acted.clear()
        return left

    def _act(self, description: str, call: Callable[[], str]) -> None:
        try:
            result = call()
        except TrainingMonitorError as error:
            result = _failed(description, str(error))
        except Exception as error:
            get_logger().exception("%s failed", description)
            result = _failed(description, repr(error))
        self.refresh()
        self._end_act(description, result)

    def _end_act(self, description: str, result: str) -> None:
        with self._lock:  # an action that is no longer listed already has its message
            self._acts.remove(description)
            self._add(result)
        self._acted.set()
        self._tell_listeners()

    def tell(self, message: str) -> None:
        """Add a message."""
        with self._lock:
            self._add(message)
        self._tell_listeners()

    def _add(self, message: str) -> None:
        self._messages.append(Message(self.clock.time(), message[:MOST_WORDS]))

    def messages(self) -> tuple[Message, ...]:
        """Return the results of the most recent actions, oldest first."""
        with self._lock:
            return tuple(self._messages)


def _failed(description: str, why: str) -> str:
    return f"failed to {description}: {why}"


def _is_later(look: FolderLook, before: FolderLook | None) -> bool:
    """Return whether the next CPU shares are measured from this look, and not from the earlier one."""
    if look.machine is None or before is None or before.machine is None:
        return look.machine is not None
    since = look.machine.at - before.machine.at
    return not 0 <= since < _LEAST_SPAN or look.machine.identity.boot_id != before.machine.identity.boot_id
