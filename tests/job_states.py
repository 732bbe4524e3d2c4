"""The states of a queued training without failures, in order, and jobs that have come to one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from training_monitor.rent.queue import TrainingQueue
from training_monitor.vast.training_request import JobState, JobWork, QueuedJob, TrainingRequest

STEPS = [each for each in JobState if each is not JobState.REPLACING and not each.is_terminal]
REQUEST = TrainingRequest(name="lora", command="train")


def add_job(
    queue: TrainingQueue, job_id: str, state: JobState, request: TrainingRequest = REQUEST, **work: Any
) -> QueuedJob:
    """A job that has come to this state, with nobody at it now."""
    queue.submit(request, job_id)
    job = queue.claim("setter", 60, job_id)
    assert job
    outcome = {"outcome": state} if state.is_terminal else {}
    job = queue.save(replace(job, work=JobWork(**{"attempt": 1, **outcome, **work})), "setter")
    for each in [*STEPS[1:], state]:
        if job.state is not state:
            job = queue.save(replace(job, state=each), "setter")
    queue.release(job_id, "setter")
    return queue.get(job_id)
