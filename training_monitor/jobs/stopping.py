"""Stop a job of either kind and verify that it has ended; notice the end of a job at once over a held connection.

If that connection drops, nothing is concluded: polling goes on, and the next look reopens it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import start_thread
from training_monitor.core.errors import CommandFailed, TrainingMonitorError, last_lines
from training_monitor.core.models import SUPERVISOR, Answer, JobStatus
from training_monitor.jobs import process_jobs, ray_jobs
from training_monitor.jobs.claims import Guard, unguarded
from training_monitor.jobs.jobs import by_name, is_ray_job, see_job
from training_monitor.jobs.kinds import kind_of
from training_monitor.jobs.process_jobs import hold_question, not_ended
from training_monitor.targets.asking import Site
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Stream, Transport

PERSON = "a person"
STOP_SECONDS = 60.0
PENDING_SECONDS = 3.0  # after which a Ray job that has not started is cancelled
TELL_SECONDS = 5.0
SILENT_SECONDS = 40.0  # after which a connection that should send something every 10 s is considered lost


def stop_job(
    head_pod: str | Target,
    job_id: str,
    namespace: str = "default",
    *,
    by: str = PERSON,
    grace: float = process_jobs.STOP_GRACE_SECONDS,
    guard: Guard = unguarded,
    on_progress: Callable[[str], None] | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> str:
    """Stop a job and verify that it is gone: SIGTERM to all its processes, then SIGKILL after `grace` seconds.

    The job is also put on hold, even if it has already ended, so that no supervisor starts its next attempt. A Ray job
    that is still waiting for resources is canceled, so that its entrypoint never runs.

    Args:
        job_id: a job ID or a name; see `find_ray_job`.
        on_progress: called every few seconds with a description of what this function is waiting for.

    Returns:
        The final status of the job: STOPPED, or the status with which the job had already ended.

    Raises:
        JobNotFound: there is no such job.
        CommandFailed: some processes of the job still exist; the message lists those in uninterruptible sleep.
        CommandError: the target could not be queried.
    """
    site = Site.of(head_pod, namespace, transport, clock)
    return end_job(site, by_name(see_job, site, job_id).job_id, by, grace, guard, on_progress)


def end_job(
    site: Site,
    job_id: str,
    by: str = PERSON,
    grace: float = process_jobs.STOP_GRACE_SECONDS,
    guard: Guard = unguarded,
    on_progress: Callable[[str], None] | None = None,
) -> str:
    """Stop a job that is there. Raises like `stop_job`."""
    clock = site.clock
    held = _ask_to_stop(site, job_id, by, grace, guard)
    asked = told = clock.monotonic()
    cancelled: Answer[str] | None = None
    while True:
        view = see_job(site, job_id)
        if view.status.is_terminal and not view.survivors:
            if view.status is not JobStatus.STOPPED:
                _see_held(held)
            return view.status.value
        waited = clock.monotonic() - asked
        if view.status is JobStatus.PENDING and is_ray_job(job_id) and waited >= PENDING_SECONDS:
            if cancelled is None:
                _tell(on_progress, f"{job_id} is waiting for resources: cancelling it")
                [cancelled] = site.ask(guard(ray_jobs.cancel_question(job_id)))
            elif cancelled.failure:
                raise _not_cancelled(site, job_id, cancelled.failure)
        if waited >= STOP_SECONDS:
            what = f"{job_id} is still {view.status} {STOP_SECONDS:g} s after the request to stop it"
            raise CommandFailed(what, target=str(site))
        if clock.monotonic() - told >= TELL_SECONDS:
            told = clock.monotonic()
            _tell(on_progress, f"{job_id} is {view.status} {waited:.0f} s after the request to stop it")
        clock.sleep(0.5)


def _ask_to_stop(site: Site, job_id: str, by: str, grace: float, guard: Guard) -> list[Answer[Any]]:
    """Ask for the stop and for the hold, and return the answer about the hold. Raises like `stop_job`."""
    kind = kind_of(job_id)
    stop = kind.stop_question(job_id, by, grace) if kind else ray_jobs.stop_question(job_id)
    hold = [] if by == SUPERVISOR else [hold_question(job_id, by)]
    stopped, *held = site.ask(guard(stop), *hold)
    if left := stopped.get():
        raise not_ended(f"{job_id}: SIGKILL did not terminate", left, site)
    return held


def _not_cancelled(site: Site, job_id: str, failure: TrainingMonitorError) -> CommandFailed:
    return CommandFailed(
        f"{job_id} is waiting for resources and could not be cancelled: {last_lines(failure.what)}",
        target=str(site),
        hint=(
            "Ray will stop the job as soon as it starts; to cancel it now, run in the head pod: "
            f"{ray_jobs.cancel_command(job_id)}"
        ),
    )


def _tell(on_progress: Callable[[str], None] | None, text: str) -> None:
    if on_progress:
        on_progress(text)


def _see_held(held: list[Answer[Any]]) -> None:
    """Check the hold, which is all that stopping an ended job can do. Raises CommandFailed."""
    if held and held[0].failure:
        raise CommandFailed(
            f"the request to stop the job could not be recorded: {held[0].failure.what}",
            hint="free up space on the target's disk and stop the job again, or stop the job's supervisor; otherwise, "
            "the supervisor may restart the job",
        ) from held[0].failure


class ExitWatch:
    """Watches for the end of a job; `ended` is set when the target reports it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._job_id: str | None = None
        self._heard, self._is_over = 0.0, False
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()

    def follow(self, job_id: str) -> None:
        """Hold a connection for this job; idempotent while one is held.

        If a job was reported to be over and is followed all the same, another look comes before the connection is
        reopened.
        """
        if job_id == self._job_id and (self._is_over or self._is_held()):
            self._is_over = False
            return
        self.close()
        self.ended.clear()
        self._job_id, self._is_over, self._heard = job_id, False, self.site.clock.monotonic()
        script = (kind_of(job_id) or ray_jobs).wait_script(job_id)
        if not script:
            return
        try:
            self._stream = stream = self.site.stream(script)
            self._thread = start_thread(lambda: self._read(stream), "end of a job")
        except TrainingMonitorError:  # whoever waits looks again and again
            self.close()

    def _is_held(self) -> bool:
        is_silent = self.site.clock.monotonic() - self._heard > SILENT_SECONDS
        return self._thread is not None and self._thread.is_alive() and not is_silent

    def _read(self, stream: Stream) -> None:
        said = b""
        for chunk in stream.chunks():
            if stream is not self._stream:
                return  # replaced by a newer stream
            said = (said + chunk)[-100:]
            self._heard = self.site.clock.monotonic()
            if said.endswith(b"ended\n"):
                self._is_over = True
                self.ended.set()

    def close(self) -> None:
        if self._stream:
            self._stream.close()
        self._stream = self._thread = None
