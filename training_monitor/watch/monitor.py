"""Watch one job without acting on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import JobNotFound, TrainingMonitorError
from training_monitor.core.frozen import replace
from training_monitor.core.logger import get_logger
from training_monitor.core.models import JobStatus, JobView, Progress
from training_monitor.core.reports import MonitorReport
from training_monitor.core.store import Store
from training_monitor.core.values import Verdict, WatchedJob
from training_monitor.jobs.stopping import ExitWatch
from training_monitor.judging.stall import stall_policy
from training_monitor.logs.job_progress import job_progress
from training_monitor.observe.kept_looks import Observer
from training_monitor.observe.looks import Look
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

# The status of a training that is not a job and has ended, by its state.
_STATUSES = {"finished": JobStatus.SUCCEEDED, "failed": JobStatus.FAILED, "stopped": JobStatus.STOPPED}


class JobMonitor:
    """A monitor of one job, log or process; every `update` is one round trip.

    Earlier observations by other commands count as well.
    """

    def __init__(
        self,
        head_pod: str | Target,
        job_id: str | WatchedJob,
        namespace: str = "default",
        *,
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.site = Site.of(head_pod, namespace, transport, clock).resolve()
        job = job_id if isinstance(job_id, WatchedJob) else WatchedJob(job_id=job_id)
        self.job_id, self._clock = job.label, clock
        self._observer = Observer(self.site, job, store=store or Store())
        self._started = clock.monotonic()
        self._first: tuple[float, int] | None = None
        self._looked_at: float | None = None
        self.view: JobView | None = None

    def update(self) -> dict[str, Any]:
        """Look once.

        Returns:
            status, current_step, throughput (steps/s or None), runtime and time_since_last_step in seconds (the latter
            None if unknown).

        Raises:
            JobNotFound, CommandError: as `look_at_job`.
        """
        look = self._observer.look(self._clock.time())
        if self.view is None:
            look.require(self._observer.job)
        view = look.view or self._view_of(look)
        self.view, self._looked_at = view, self._clock.monotonic()
        step = job_progress(view.progress).step
        if self._first is None and step is not None:
            self._first = (self._looked_at, step)
        return {
            "status": view.status.value,
            "current_step": step,
            "throughput": view.progress.steps_per_second,
            "runtime": self._looked_at - self._started,
            "time_since_last_step": self.verdict().seconds_without_step,
        }

    def _view_of(self, look: Look) -> JobView:
        """Return a training that is not a job as if it were one: its status follows from the verdict."""
        status = _STATUSES.get(self.verdict().state)
        if status is None:
            status = JobStatus.UNKNOWN if look.is_running is False else JobStatus.RUNNING
        age = look.log.age if look.log else None
        said = self.verdict().reason if status.is_terminal else look.message
        return JobView(self.job_id, status, said, progress=self._observer.progress, log_age=age, log_tail=look.text)

    def verdict(self, stagnation_threshold: float | None = None) -> Verdict:
        """Judge all observations so far; `stagnation_threshold` as in `stall_policy`."""
        return self._observer.judge(self._clock.time(), stall_policy(stagnation_threshold))

    def stall_reason(self, stagnation_threshold: float | None = 300) -> str | None:
        """Return why the job counts as stalled; None if it does not, or if nothing was seen yet."""
        verdict = self.verdict(stagnation_threshold)
        return verdict.reason if verdict.state == "stalled" else None

    def is_stalled(self, stagnation_threshold: float = 300) -> bool:
        return self.stall_reason(stagnation_threshold) is not None

    def report(self, status: str, reason: str, duration: float) -> MonitorReport:
        """Report how a watch of `duration` seconds ended."""
        step = job_progress(self.view.progress).step if self.view else None
        return MonitorReport(status=status, duration=duration, final_step=step, job_id=self.job_id, reason=reason)

    def get_progress_summary(self) -> dict[str, Any]:
        """Return total_steps, avg_throughput in steps/s over the looks so far, eta_seconds; None where unknown."""
        progress = self.view.progress if self.view else Progress()
        step, speed = job_progress(progress).step, None
        if step is not None and self._first and self._looked_at is not None:
            elapsed = self._looked_at - self._first[0]
            speed = (step - self._first[1]) / elapsed if elapsed > 0 else None
        job = job_progress(replace(progress, steps_per_second=speed))
        return {"total_steps": job.total_steps, "avg_throughput": speed, "eta_seconds": job.eta_seconds}


def monitor_job(
    head_pod: str | Target,
    job_id: str | WatchedJob,
    check_interval: float = 30,
    timeout: float | None = None,
    stagnation_threshold: float | None = 300,
    on_status_change: Callable[[str, str | None], None] | None = None,
    on_stall: Callable[[], None] | None = None,
    namespace: str = "default",
    *,
    on_view: Callable[[JobView], None] | None = None,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> MonitorReport:
    """Watch a job until it ends, stalls or times out. Blocks; does nothing to the job.

    Args:
        job_id: a Ray submission id, process:NAME, or a `WatchedJob` with a log or a pid.
        timeout: seconds to watch at most; None: no limit.
        stagnation_threshold: see `stall_policy`; None: derived from the evidence.
        on_status_change: called with (new, old) status; on_stall: called once when it stalls.
        on_view: called with every look.

    Returns:
        status SUCCEEDED | FAILED | STOPPED | STALLED | TIMEOUT | UNKNOWN (the job disappeared), duration in seconds,
        final_step, job_id, reason.

    Raises:
        JobNotFound: there is no such job at the first look.
        CommandError: the target cannot be asked at the first look; later failures are retried.
    """
    monitor = JobMonitor(head_pod, job_id, namespace, store=store, transport=transport, clock=clock)
    exit_watch = ExitWatch(monitor.site)
    started, status = clock.monotonic(), None
    try:
        while True:
            ended = _look(monitor, first=status is None)
            if monitor.view and on_view:
                on_view(monitor.view)
            now_status = monitor.view.status.value if monitor.view else None
            if now_status and now_status != status:
                get_logger().info("%s: %s -> %s", monitor.job_id, status, now_status)
                if on_status_change:
                    on_status_change(now_status, status)
                status = now_status
            if ended is None and (stall := monitor.stall_reason(stagnation_threshold)):
                if on_stall:
                    on_stall()
                ended = ("STALLED", stall)
            elapsed = clock.monotonic() - started
            if ended is None and timeout is not None and elapsed >= timeout:
                ended = ("TIMEOUT", f"still {status} after {timeout:g} s")
            if ended:
                return monitor.report(*ended, elapsed)
            exit_watch.follow(monitor.job_id)
            clock.wait(exit_watch.ended, min(check_interval, timeout - elapsed) if timeout else check_interval)
            exit_watch.ended.clear()
    finally:
        exit_watch.close()


def _look(monitor: JobMonitor, *, first: bool) -> tuple[str, str] | None:
    """Look once and return the end that was found, if any; after the first look, failing to ask is no end."""
    try:
        monitor.update()
    except JobNotFound as error:
        if first:
            raise
        return "UNKNOWN", error.what
    except TrainingMonitorError as error:
        if first:
            raise
        get_logger().warning("%s: cannot ask: %s", monitor.job_id, error)
        return None
    assert monitor.view
    if monitor.view.status.is_terminal:
        return monitor.view.status.value, monitor.view.message or ""
    return None


def detect_stall(
    head_pod: str | Target,
    job_id: str,
    stagnation_threshold: float = 300,
    sample_duration: float = 0,
    namespace: str = "default",
    *,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Return at once whether a running job makes no progress, by one look and all earlier ones.

    False also if that is unknown; `check_training` tells the difference, and the reason.

    Args:
        stagnation_threshold: see `stall_policy`.
        sample_duration: if the first look does not tell, look again after this many seconds.

    Raises:
        JobNotFound, CommandError: nothing is known about it.
    """
    monitor = JobMonitor(head_pod, job_id, namespace, store=store, transport=transport, clock=clock)
    monitor.update()
    if sample_duration > 0 and monitor.verdict(stagnation_threshold).verdict == "unknown":
        clock.sleep(sample_duration)
        monitor.update()
    return monitor.is_stalled(stagnation_threshold)


def start_background_monitor(
    head_pod: str | Target,
    job_id: str,
    check_interval: float = 30,
    on_finish: Callable[[MonitorReport], None] | None = None,
    namespace: str = "default",
    **options: Any,
) -> threading.Thread:
    """Run `monitor_job` in a daemon thread.

    Returns:
        The started thread. When it has ended, its attribute `result` is the report, or `error` the error that ended it.
    """

    class Background(threading.Thread):
        result: MonitorReport | None = None
        error: TrainingMonitorError | None = None

        def run(self) -> None:
            try:
                self.result = monitor_job(head_pod, job_id, check_interval, namespace=namespace, **options)
            except TrainingMonitorError as error:
                self.error = error
                get_logger().error("%s: %s", job_id, error)
                return
            if on_finish:
                on_finish(self.result)

    thread = Background(daemon=True, name=f"monitor {job_id}")
    thread.start()
    return thread
