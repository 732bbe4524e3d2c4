"""Compare the step counter of each attempt with the names of its checkpoints and with where it was to resume. Pure.

A counter can be compared once an attempt's steps agreed with the numbers of the checkpoints that it saved: those of
bars that count the rest, of batches of an epoch, and beside checkpoints named by epoch do not. Another total is another
counter. Position 0 is no step: a bar may show it before it goes on from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from training_monitor.core.models import Checkpoint, JobView
from training_monitor.core.reports import AttemptReport
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import ProgressReader


def with_new_steps(
    attempts: Sequence[AttemptReport], view: JobView, config: Mapping[str, Any] | None
) -> tuple[AttemptReport, ...]:
    """Return the attempts after a look at the last one that showed a step.

    If its first step shows that it began before its checkpoint, `start_step` is changed to where it began, and
    `resume_problem` says so.
    """
    *before, last = attempts
    job = job_progress(view.progress)
    steps = [last["final_step"] or 0] + ([] if last["first_step"] else _steps_in(view.log_tail, job.total_steps))
    steps.append(job.step or 0)
    if view.progress.step is None or any(later < earlier for earlier, later in pairwise(steps)):
        last = {**last, "counts_job": False}
    last = {**last, "final_step": job.step, "total_steps": job.total_steps or last["total_steps"]}
    first, start = next(filter(None, steps), None), last["start_step"]
    if last["first_step"] or not first:
        return (*before, last)
    last = {**last, "first_step": first}
    if start and first < start and last["counts_job"] is not False and _counted_job(before, last):
        usual = [each["first_step"] or 1 for each in before if each["start_step"] == 0]
        name = (last["checkpoint"] or "").rpartition("/")[2]
        passed = f"attempt {last['number']} should have resumed from {name}"
        problem = f"{passed}, but its log begins at step {first}: {_advice(config)}"
        last = {**last, "start_step": 0 if first <= max(usual, default=1) else first - 1, "resume_problem": problem}
    return with_steps_lost((*before, last))


def _steps_in(log: str, total: int | None) -> list[int]:
    """Return the steps of a log in the order of its lines, without those of counters with another total."""
    reader, found = ProgressReader(), list[int]()
    for line in log.splitlines():
        reader.read_text(line)
        job = job_progress(reader.progress)
        if job.step and job.total_steps in (None, total):
            found.append(job.step)
    return found


def _advice(config: Mapping[str, Any] | None) -> str:
    given = config or {}
    if given.get("resume_argument") or "{checkpoint}" in str(given.get("command") or given.get("entrypoint") or ""):
        return "the script ignores the checkpoint passed to it"
    return "set a resume argument"


def with_saved(attempts: Sequence[AttemptReport], checkpoints: Sequence[Checkpoint], now: float) -> tuple[Any, ...]:
    """Return the attempts after the end of the last one: does its counter agree with the checkpoints that it saved?"""
    if not attempts:
        return ()
    *before, last = attempts
    made, start, first = last["final_step"], last["start_step"] or 0, last["first_step"]
    took = now - last["started_at"]
    saved = sorted({each.step for each in checkpoints if each.age is not None and each.age < took})
    agrees: bool | None = None
    if made is None or last["counts_job"] is False:
        return tuple(attempts)
    if saved:
        newest = saved[-1]
        pause = newest - ([start, *saved[:-1]][-1])
        agrees = newest - pause < made < newest + 2 * pause
        if not agrees and not last["final_step_known"]:
            agrees = None
    elif _counted_job(before, last) or (start and first and start <= first < 2 * start):
        agrees = True
    return (*before, {**last, "counts_job": agrees})


def _counted_job(before: Sequence[AttemptReport], last: AttemptReport) -> bool:
    """Return whether the newest attempt of which it is known counted the job, with the same total as the last one."""
    known = next((each for each in reversed(before) if each["counts_job"] is not None), None)
    return known is not None and bool(known["counts_job"]) and known["total_steps"] == last["total_steps"]


def with_steps_lost(attempts: Sequence[AttemptReport]) -> tuple[AttemptReport, ...]:
    """Return the attempts, each with how many of its steps later attempts repeat; None if unknown, or none is later."""
    starts = [each["start_step"] for each in attempts]
    lost = [_steps_lost(each, starts[number:]) for number, each in enumerate(attempts, 1)]
    return tuple({**each, "steps_lost": steps} for each, steps in zip(attempts, lost))


def _steps_lost(attempt: AttemptReport, later: Sequence[int | None]) -> int | None:
    made, begun = attempt["final_step"], attempt["start_step"] or 0
    if made is None or not attempt["final_step_known"] or not later or later[0] is None:
        return None
    kept = max(begun, min(each for each in later if each is not None))
    is_comparable = attempt["counts_job"] or (attempt["counts_job"] is None and kept == 0)
    return max(0, made - kept) if is_comparable and made >= max(begun, later[0]) else None
