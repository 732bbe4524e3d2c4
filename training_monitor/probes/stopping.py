"""Stopping a job of either kind: asked for, and seen to have ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import CommandFailed, TrainingMonitorError, last_lines
from training_monitor.models import SUPERVISOR, Answer, JobStatus
from training_monitor.probes import process_jobs, ray_jobs
from training_monitor.probes.claims import Guard, unguarded
from training_monitor.probes.holds import hold_question
from training_monitor.probes.jobs import is_process_job, look_at_job
from training_monitor.targets.asking import ask
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

PERSON = "a person"
STOP_SECONDS = 60.0
PENDING_SECONDS = 3.0  # after which a Ray job that has not started yet is cancelled
TELL_SECONDS = 5.0


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
    """Stop a job and see it ended: TERM to all its processes, KILL after `grace` seconds, then look again.

    Also a job that has ended is held: no supervisor starts the next attempt of it. A Ray job that waits for resources
    is cancelled, so that its entrypoint never runs.

    Args:
        on_progress: is told every few seconds what is waited for.

    Returns:
        The status it ended with: STOPPED, or what it had already ended with.

    Raises:
        JobNotFound: there is no such job.
        CommandFailed: something of it is still there (processes in uninterruptible sleep are named).
        CommandError: it could not be asked.
    """
    look_at_job(head_pod, job_id, namespace, transport=transport)
    held = _ask_to_stop(head_pod, job_id, namespace, by, grace, guard, transport)
    asked = told = clock.monotonic()
    cancelled: Answer[str] | None = None
    while True:
        view = look_at_job(head_pod, job_id, namespace, transport=transport)
        if view.status.is_terminal and not view.survivors:
            if view.status is not JobStatus.STOPPED:
                _see_held(held)
            return view.status.value
        waited = clock.monotonic() - asked
        if view.status is JobStatus.PENDING and not is_process_job(job_id) and waited >= PENDING_SECONDS:
            if cancelled is None:
                _tell(on_progress, f"{job_id} waits for resources: cancelling it")
                cancel = guard(ray_jobs.cancel_question(job_id))
                [cancelled] = ask(head_pod, cancel, namespace=namespace, transport=transport)
            elif cancelled.failure:
                raise _not_cancelled(head_pod, job_id, cancelled.failure)
        if waited >= STOP_SECONDS:
            what = f"{job_id} is still {view.status} {STOP_SECONDS:g} s after it was asked to stop"
            raise CommandFailed(what, target=str(head_pod))
        if clock.monotonic() - told >= TELL_SECONDS:
            told = clock.monotonic()
            _tell(on_progress, f"{job_id} is {view.status} {waited:.0f} s after it was asked to stop")
        clock.sleep(0.5)


def _ask_to_stop(
    target: str | Target,
    job_id: str,
    namespace: str,
    by: str,
    grace: float,
    guard: Guard,
    transport: Transport | None,
) -> list[Answer[Any]]:
    """Ask for the stop, and for the hold, whose answer is returned. Raises like `stop_job`."""
    stop = ray_jobs.stop_question(job_id)
    if is_process_job(job_id):
        stop = process_jobs.stop_question(job_id, by, grace)
    hold = [] if by == SUPERVISOR else [hold_question(job_id, by)]
    stopped, *held = ask(target, guard(stop), *hold, namespace=namespace, transport=transport)
    if left := stopped.get():
        raise CommandFailed(
            f"{job_id}: not even SIGKILL ended {', '.join(f'pid {each}' for each in left)}",
            target=str(target),
            hint="state D waits for a disk or driver: look at dmesg there",
        )
    return held


def _not_cancelled(target: str | Target, job_id: str, failure: TrainingMonitorError) -> CommandFailed:
    return CommandFailed(
        f"{job_id} waits for resources and could not be cancelled: {last_lines(failure.what)}",
        target=str(target),
        hint="Ray keeps the stop, and ends the job as soon as it begins; "
        f"to end it now, in the head pod: {ray_jobs.cancel_command(job_id)}",
    )


def _tell(on_progress: Callable[[str], None] | None, text: str) -> None:
    if on_progress:
        on_progress(text)


def _see_held(held: list[Answer[Any]]) -> None:
    """Of a job that had ended, the hold is all that a stop can do. Raises CommandFailed."""
    if held and held[0].failure:
        raise CommandFailed(
            f"the stop could not be written down: {held[0].failure.what}",
            hint="a supervisor may start the job again: end that one, or free disk space there",
        ) from held[0].failure
