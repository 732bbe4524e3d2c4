"""Watch one job without acting on it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from training_monitor.core.arguments import checked
from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import JobNotFound, TrainingMonitorError
from training_monitor.core.logger import get_logger, logging_of_loop
from training_monitor.core.models import JobView, Progress
from training_monitor.core.reports import MonitorReport
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration
from training_monitor.core.values import Observation, Verdict, WatchedJob
from training_monitor.logs.job_progress import format_standing, job_progress
from training_monitor.look.kept_looks import Observer
from training_monitor.look.meant import named_job, reach
from training_monitor.look.remembered import find_known
from training_monitor.supervision.looking import Looker, look_until_over
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport
from training_monitor.verdict.stall import stall_policy

if TYPE_CHECKING:
    from training_monitor.core.panels import Panel

EXIT_SECONDS = 2.0  # for which a program that ends waits for its background monitors


@checked
class JobMonitor:
    """Monitor one job, log or process. Each call of `update` takes one round trip.

    The verdicts are also based on earlier observations made by other commands.
    """

    def __init__(
        self,
        head_pod: str | Target,
        job_id: str | int | WatchedJob,
        namespace: str = "default",
        *,
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._asked, self._store, self._clock = Site.of(head_pod, namespace, transport, clock), store, clock
        self._observe(_job_of(job_id))
        self._started = clock.monotonic()
        self._first: tuple[float, int] | None = None
        self._looked_at: float | None = None
        self.view: JobView | None = None
        self.has_ended = False  # by the last look, however it ended

    def _observe(self, job: WatchedJob) -> None:
        self.job, self.job_id = job, job.label
        store = self._store or BestEffortStore()
        site = reach(self._asked)
        self._observer = Observer(site, job, store=store, asked=site)

    def update(self) -> dict[str, Any]:
        """Look at the job once and return its status and progress.

        Returns:
            A dict with the keys status, current_step, throughput (steps/s or None), runtime and time_since_last_step.
            runtime and time_since_last_step are in seconds; time_since_last_step is None if unknown.

        Raises:
            JobNotFound: there is no such job. CommandError: the target could not be queried.
        """
        job = self.job
        if self.view is None and job.pid is not None and not (job.log_file or job.log_paths):
            self._find(job.pid)  # it may print elsewhere than into a file
        try:
            look = self._observer.look(self._clock.time())
        except JobNotFound:
            if self.view or self.job.job_id is None:
                raise
            self._find(self.job.job_id)
            look = self._observer.look(self._clock.time())
        if self.view is None:
            look.require(self.job)
        if self.job.pid and not (self.job.log_file or self.job.log_paths) and look.log and look.log.path:
            self._observer.job = replace(self.job, log_file=look.log.path)  # once it has ended, no process names it
        view = self._observer.view_of(look, self._clock.time())
        self.has_ended = view.status.is_terminal or look.is_running is False
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

    def _find(self, what: str | int) -> None:
        meant = find_known(self.site, what, store=self._store)
        self._observe(replace(meant.job, name=meant.name))

    @property
    def site(self) -> Site:
        """Return the address of the target; for a vast.ai instance, its ssh address."""
        return self._observer.site

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Return all observations so far, including those made by earlier commands, oldest first."""
        return self._observer.looks.all()

    def verdict(self, stagnation_threshold: float | None = None) -> Verdict:
        """Return the verdict based on all observations so far. For `stagnation_threshold`, see `stall_policy`."""
        return self._observer.judge(self._clock.time(), stall_policy(stagnation_threshold))

    def stall_reason(self, stagnation_threshold: float | None = 300) -> str | None:
        """Return why the job counts as stalled; None if it is not stalled, or if there are no observations yet."""
        verdict = self.verdict(stagnation_threshold)
        return verdict.reason if verdict.state == "stalled" else None

    def is_stalled(self, stagnation_threshold: float = 300) -> bool:
        return self.stall_reason(stagnation_threshold) is not None

    def report(self, status: str, reason: str, duration: float) -> MonitorReport:
        """Return the report of a watch that lasted `duration` seconds."""
        step = job_progress(self.view.progress).step if self.view else None
        return MonitorReport(status=status, duration=duration, final_step=step, job_id=self.job_id, reason=reason)

    def get_progress_summary(self) -> dict[str, Any]:
        """Return total_steps, avg_throughput (steps/s over all looks) and eta_seconds; unknown values are None."""
        progress = self.view.progress if self.view else Progress()
        step, speed = job_progress(progress).step, None
        if step is not None and self._first and self._looked_at is not None:
            elapsed = self._looked_at - self._first[0]
            speed = (step - self._first[1]) / elapsed if elapsed > 0 else None
        job = job_progress(replace(progress, steps_per_second=speed))
        return {"total_steps": job.total_steps, "avg_throughput": speed, "eta_seconds": job.eta_seconds}


def _job_of(job_id: str | int | WatchedJob) -> WatchedJob:
    return job_id if isinstance(job_id, WatchedJob) else named_job(str(job_id))


def monitor_job(
    head_pod: str | Target,
    job_id: str | int | WatchedJob,
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
    """Watch a job until it ends or stalls, and return a report. Blocks; never changes the job.

    To wait for other conditions too, such as a step or a loss, prefer `wait_for`; to restart the job when it fails, use
    `auto_restart`.

    Args:
        job_id: a Ray submission ID, process:NAME, a PID, the path of a log, a name (see `check_training`), or a
            `WatchedJob`.
        timeout: maximum seconds to watch; None: no limit.
        stagnation_threshold: see `stall_policy`; None: derived from the evidence.
        on_status_change: called with the new and the old status.
        on_stall: called once when the job stalls.
        on_view: called with the result of every look. Without `on_view` and `on_status_change`, each look is printed to
            stdout unless the application has configured logging (see `setup_logging`).

    Returns:
        A report with status SUCCEEDED | FAILED | STOPPED | STALLED | TIMEOUT | UNKNOWN (the job disappeared, or it
        ended and no log shows the result), duration in seconds, final_step, job_id, reason.

    Raises:
        JobNotFound: the first look found no such job.
        CommandError: the target could not be queried at the first look; later failures are retried.
    """
    monitor = JobMonitor(head_pod, job_id, namespace, store=store, transport=transport, clock=clock)
    watch = _Watch(monitor, check_interval, timeout, stagnation_threshold, on_status_change, on_stall, on_view)
    with logging_of_loop(prints=on_status_change is None and on_view is None):
        report = watch.run()
    assert report  # nobody stops it
    return report


@dataclass(eq=False)
class _Watch(Looker[dict[str, Any], MonitorReport]):
    """A watch of one job; the fields are the arguments of `monitor_job`."""

    monitor: JobMonitor
    check_interval: float = 30
    timeout: float | None = None
    stagnation_threshold: float | None = 300
    on_status_change: Callable[[str, str | None], None] | None = None
    on_stall: Callable[[], None] | None = None
    on_view: Callable[[JobView], None] | None = None
    status: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.site = self.monitor.site
        self.clock, self.started = self.site.clock, self.site.clock.monotonic()
        self.interrupted = f"no longer watching {self.monitor.job_id}, which keeps running"

    def run(self, stopping: threading.Event | None = None) -> MonitorReport | None:
        """Look until the job has ended; None if it was stopped before."""
        return look_until_over(self, stopping=stopping, seconds=self.timeout)

    @property
    def has_begun(self) -> bool:
        return self.monitor.view is not None

    def ask(self) -> dict[str, Any]:
        return self.monitor.update()

    def decide(self, seen: dict[str, Any], *, is_last: bool) -> MonitorReport | None:
        """Tell what has changed; it is over when the job has ended or stalls."""
        monitor, status, before = self.monitor, seen["status"], self.status
        assert monitor.view
        if self.on_view:
            self.on_view(monitor.view)
        view = monitor.view
        get_logger().info("%s: %s", monitor.job_id, format_standing(view.status, view.progress, view.message))
        if status != before:
            if self.on_status_change:
                self.on_status_change(status, before)
            self.status = status
        if monitor.has_ended:
            verdict = monitor.verdict()
            return self.report(status, verdict.reason if verdict.failure else monitor.view.message or "")
        if stall := monitor.stall_reason(self.stagnation_threshold):
            if self.on_stall:
                self.on_stall()
            return self.report("STALLED", stall)
        return None

    def not_seen(self, error: TrainingMonitorError, *, is_lost: bool) -> MonitorReport | None:
        get_logger().warning("%s: cannot reach the target: %s", self.monitor.job_id, error)
        return self.report("UNKNOWN", error.what) if is_lost else None

    def run_out(self) -> MonitorReport:
        return self.report("TIMEOUT", f"still {self.status} after {self.timeout:g} s")

    def followed(self) -> tuple[Site, str] | None:
        job_id = self.monitor.job.job_id
        return (self.monitor.site, job_id) if job_id else None

    def pause(self) -> float:
        return self.check_interval

    def report(self, status: str, reason: str) -> MonitorReport:
        get_logger().info("%s: %s: %s", self.monitor.job_id, status, reason)
        return self.monitor.report(status, reason, self.clock.monotonic() - self.started)


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
    """Query a job, and return whether it is stalled now. Earlier observations are also considered.

    Prefer `check_training`, which also returns the reason. `check_training` distinguishes "not stalled" from "unknown",
    whereas this function returns False for both.

    Args:
        stagnation_threshold: see `stall_policy`.
        sample_duration: if the first look is not conclusive, look again after this many seconds.

    Raises:
        JobNotFound, CommandError: the job could not be observed.
    """
    monitor = JobMonitor(head_pod, job_id, namespace, store=store, transport=transport, clock=clock)
    monitor.update()
    if sample_duration > 0 and monitor.verdict(stagnation_threshold).verdict == "unknown":
        clock.sleep(sample_duration)
        monitor.update()
    return monitor.is_stalled(stagnation_threshold)


def start_background_monitor(
    head_pod: str | Target,
    job_id: str | int | WatchedJob,
    check_interval: float = 30,
    on_finish: Callable[[MonitorReport], None] | None = None,
    namespace: str = "default",
    **options: Any,
) -> BackgroundMonitor:
    """Run `monitor_job` in a daemon thread. The thread ends with this program, but the job keeps running.

    Args:
        on_finish: called with the report, in the daemon thread.
        options: keyword arguments of `monitor_job`.

    Returns:
        A `BackgroundMonitor` whose thread is already running.
    """
    ways = {name: options.pop(name) for name in ("store", "transport", "clock") if name in options}

    def open_watch() -> _Watch:
        return _Watch(JobMonitor(head_pod, job_id, namespace, **ways), check_interval, **options)

    thread = BackgroundMonitor(_job_of(job_id).label, open_watch, on_finish)
    thread.start()
    return thread


@checked
class BackgroundMonitor(threading.Thread):
    """A job monitor in a background thread. Its `repr` and its display in a notebook show the current verdict.

    `start_background_monitor` returns a `BackgroundMonitor`. Displaying the monitor does not query the target; the
    displayed verdict is based on the observations so far. Once the thread has ended, `result` is the report, or `error`
    is the exception that ended the thread. After `stop`, `result` and `error` are None.
    """

    result: MonitorReport | None = None
    error: TrainingMonitorError | None = None

    def __init__(
        self,
        job_id: str,
        open_watch: Callable[[], _Watch],
        on_finish: Callable[[MonitorReport], None] | None,
    ) -> None:
        super().__init__(daemon=True, name=f"monitor {job_id}")
        self.job_id, self._open_watch, self._on_finish = job_id, open_watch, on_finish
        self._monitor: JobMonitor | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        atexit.register(self._leave)
        try:
            watch = self._open_watch()
            self._monitor = watch.monitor
            self.result = watch.run(self._stopping)
        except TrainingMonitorError as error:
            self.error = error
            get_logger().error("%s: %s", self.job_id, error)
        finally:
            atexit.unregister(self._leave)
        if self.result and self._on_finish:
            self._on_finish(self.result)

    def stop(self) -> None:
        """Stop watching; the job keeps running. Returns immediately."""
        self._stopping.set()

    def _leave(self) -> None:
        """End before the program does: a connection that is held must not outlive it."""
        self.stop()
        self.join(EXIT_SECONDS)

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict based on all observations so far; None before the first look."""
        return self._monitor.verdict() if self._monitor and self.observations else None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Return the observations of the job so far, including those made by earlier commands, oldest first."""
        return self._monitor.observations if self._monitor else ()

    def panel(self) -> Panel:
        """Return the content that a notebook displays."""
        from training_monitor.core.panels import Panel, clean

        state = "watching" if self.is_alive() else "ended" if self.result or self.error else "stopped"
        facts = [("job", clean(self.job_id)), ("monitor", state)]
        if self.result:
            facts.append(("result", clean(f"{self.result['status']}: {self.result['reason']}")))
        if self.error:
            return Panel("unknown", "unknown", clean(self.error.what), tuple(facts))
        if self._monitor is None or (verdict := self.verdict) is None:
            return Panel("unknown", "unknown", "not checked yet", tuple(facts))
        facts += _facts_of(self.observations[-1], self._monitor.site.clock.time())
        remedies = tuple(map(clean, verdict.remedies))
        lists = (("remedies", remedies),) if remedies else ()
        return Panel(verdict.state, verdict.verdict, clean(verdict.reason), tuple(facts), lists)

    def __repr__(self) -> str:
        panel = self.panel()
        facts = "; ".join(f"{name} {text}" for name, text in panel.facts)
        return f"<{type(self).__name__}: {panel.title} ({panel.level}): {panel.said}; {facts}>"

    def _repr_html_(self) -> str:
        from training_monitor.core.panel_html import format_html

        return format_html(self.panel())


def _facts_of(last: Observation, now: float) -> list[tuple[str, str]]:
    """Return what the last look saw."""
    from training_monitor.core.panels import format_part, label_of

    known = [(name, getattr(last, name)) for name in ("step", "total_steps", "loss")]
    shown = [(label_of(name), format_part(name, value)) for name, value in known if value is not None]
    return [("seen", f"{format_duration(max(0.0, now - last.timestamp))} ago"), *shown]
