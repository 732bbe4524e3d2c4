"""What the roll call of a training said before that was ended, kept in the store for those who ask later."""

from __future__ import annotations

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import dataclass, replace
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.observe.kept_looks import look_key
from training_monitor.targets.target import Target


@dataclass(frozen=True, slots=True)
class KeptRollCall:
    """What a roll call said of a job before that was ended.

    Attributes:
        at: epoch seconds.
        text: the paragraph, or why there is none. confidence: none | low | medium | high.
        folder: on this machine, with the whole report; None if it could not be written.
        suspects: the nodes of the culprits, if the ranks ran on several. faulty: nodes with a fault of the hardware.
    """

    at: float
    text: str
    confidence: str = "none"
    job_id: str | None = None
    folder: str | None = None
    suspects: tuple[str, ...] = ()
    faulty: tuple[str, ...] = ()


def save_roll_call(store: Store, target: Target, job: WatchedJob, kept: KeptRollCall) -> None:
    """Keep the roll call of a training in place of its last one. Raises StateError: it cannot be written."""
    store.save_run(_key(target, job), kept, finished=True)


def last_roll_call(store: Store, target: Target, job: WatchedJob) -> KeptRollCall | None:
    """Return the last roll call of a training before it, or an earlier attempt of it, was ended; None without one."""
    try:
        return store.load_run(_key(target, job), KeptRollCall, finished=True, drop_unknown=True)
    except TrainingMonitorError:
        return None


def _key(target: Target, job: WatchedJob) -> str:
    named = replace(job, job_id=training_name(job.job_id)) if job.job_id else job
    return f"roll call {look_key(target, named, None)}"
