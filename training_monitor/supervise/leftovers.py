"""What may still be there of a training before its next attempt is started: other jobs of its name, and writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Checkpoint, JobView
from training_monitor.policy.resume import attempt_number, training_name
from training_monitor.probes.claims import Guard, unguarded
from training_monitor.probes.jobs import find_jobs_named
from training_monitor.probes.pods import find_siblings
from training_monitor.probes.ray_processes import Forgotten, end_forgotten
from training_monitor.supervise.run_state import RunState
from training_monitor.targets.fleet import side_by_side
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

LATE_SECONDS = 10.0  # so long after a job ended, its files may still be written by the file system


def claim_names(run: RunState) -> list[str]:
    """Under which names a run is claimed: its own, and those of jobs which it adopted under others."""
    jobs = [*(each["job_id"] for each in run.attempts), *([run.job_id] if run.job_id else [])]
    return list(dict.fromkeys([run.job_name, *map(training_name, jobs)]))


def find_other_job(target: Target, run: RunState, *, transport: Transport | None) -> JobView | None:
    """A job to supervise instead of starting one: any of this name that runs, or ended after all that `run` made.

    The latter were made by another supervisor, which took over for a while; what had begun before a job that `run`
    adopted was not.
    """
    process = "command" in (run.config or {})
    views = [view for view, _ in find_jobs_named(target, run.job_name, process=process, transport=transport)]
    made = [attempt_number(each["job_id"]) for each in run.attempts]
    last = run.attempts[-1] if run.attempts else None
    since = last["started_at"] if last and last["start_step"] is None else 0.0  # of an adopted job, by the target
    later = [
        view for view in views if made and attempt_number(view.job_id) > max(made) and (view.started_at or 0) >= since
    ]
    return next((view for view in reversed(views) if not view.status.is_terminal), later[-1] if later else None)


def end_what_ray_forgot(
    target: Target, run: RunState, *, guard: Guard = unguarded, transport: Transport | None
) -> Forgotten:
    """End what runs on of attempts that Ray does not know, on the head; after a lost one, on all pods of the cluster.

    A driver runs on a worker pod where its entrypoint asked for resources. Raises CommandError: something cannot be
    ended, or a pod that runs could not be asked.
    """
    is_lost = bool(run.attempts) and run.attempts[-1]["status"] == "LOST"
    pods = find_siblings(target, transport=transport) if is_lost else ()
    running = [pod.name for pod in pods if pod.phase == "Running" and not pod.deleting]
    targets = [target, *(replace(target, name=name, container=None) for name in running)]
    more: dict[str, Any] = {"guard": guard, "transport": transport}
    calls = [partial(end_forgotten, each, run.job_name, run.job_id, **more) for each in targets]
    found: list[Forgotten] = []
    for answer in side_by_side(calls):
        if isinstance(answer, TrainingMonitorError):
            raise answer
        found.append(answer)
    log_tail = next((each.log_tail for each in found if each.log_tail), "")
    return Forgotten(sum(each.ended for each in found), (), max(each.attempts for each in found), log_tail)


def is_still_written(run: RunState, checkpoints: Sequence[Checkpoint], now: float, quiet: float) -> float | None:
    """How many seconds ago a checkpoint was written although the last attempt had ended, None where none was.

    What was silent for `quiet` seconds counts as ended.
    """
    ended = run.attempts[-1]["ended_at"] if run.attempts else None
    age = min((each.age for each in checkpoints if each.age is not None), default=None)
    if ended is None or age is None or age >= min(now - ended - LATE_SECONDS, quiet):
        return None
    return age
