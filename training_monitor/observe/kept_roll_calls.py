"""What the roll call of a training said before that was ended, kept in the store for those who ask later."""

from __future__ import annotations

from typing import Any

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import replace
from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.observe.kept_looks import look_key
from training_monitor.targets.target import Target


def save_roll_call(store: Store, target: Target, job: WatchedJob, kept: KeptRollCall) -> None:
    """Keep the roll call of a training in place of its last one. Raises StateError: it cannot be written."""
    store.save_run(_key(target, job), kept, finished=True)


def last_roll_call(store: Store, target: Target, job: WatchedJob, path: str | None = None) -> KeptRollCall | None:
    """Return the last roll call of a training before it, or an earlier attempt of it, was ended; None without one.

    It is known by its job or by its log, of which `path` is the path: another process may have its PID by now.
    """
    named = [job] if job.job_id or job.log_file or job.log_paths else []
    named += [WatchedJob(log_file=path)] if path and job.job_id is None else []
    found = [kept for each in named if (kept := _load(store, _key(target, each)))]
    return max(found, key=lambda each: each.at, default=None)


def explained_keys(kept: KeptRollCall | None) -> dict[str, Any]:
    """Return what the last roll call said, by the names that documents have for it."""
    names = {"explanation": "text", "explained_at": "at", "explained_job_id": "job_id"}
    return {name: getattr(kept, field) if kept else None for name, field in names.items()}


def _load(store: Store, key: str) -> KeptRollCall | None:
    try:
        return store.load_run(key, KeptRollCall, finished=True, drop_unknown=True)
    except TrainingMonitorError:
        return None


def _key(target: Target, job: WatchedJob) -> str:
    named = replace(job, job_id=training_name(job.job_id)) if job.job_id else job
    return f"roll call {look_key(target, named, None)}"
