"""The trainings that a check saw on a target, so that the next one reports those that have ended since.

One is forgotten after a day, when a later training runs the same script or writes the same log, and when the user says
so. What a person or a supervisor stopped is not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training_monitor.core.best_effort_store import BestEffortStore
from training_monitor.core.errors import JobNotFound, TrainingMonitorError
from training_monitor.core.fields import shared_fields
from training_monitor.core.read_fence import keep_found
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.jobs.attempts import training_name
from training_monitor.logs.sources import place_of
from training_monitor.look.meant import MeantTraining, find_one_at, is_script, runs, several, word_of
from training_monitor.targets.asking import Site
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.target import Target

KEPT_SECONDS = 86_400.0
MOST_KEPT = 20


@dataclass(frozen=True, slots=True)
class KeptTraining:
    """A training as it was seen at `seen_at` (epoch seconds); `named` is the PID of it by which it was asked for."""

    job: WatchedJob
    name: str
    seen_at: float
    command: str | None = None
    script: str | None = None
    logs: tuple[str, ...] = ()
    folder: str | None = None
    named: int | None = None

    @property
    def folders(self) -> list[str]:
        """Where its checkpoints go."""
        return [self.job.output_dir] if self.job.output_dir else []

    def as_meant(self) -> MeantTraining:
        return MeantTraining(**shared_fields(MeantTraining, self))


@dataclass(frozen=True, slots=True)
class KeptTrainings:
    """Those of one target, the newest last."""

    trainings: tuple[KeptTraining, ...] = ()


def recall(store: Store, target: Target, now: float) -> tuple[KeptTraining, ...]:
    """Return the trainings that were seen on a target within a day."""
    try:
        kept = store.load_run(_key(target), KeptTrainings, finished=True, drop_unknown=True) or KeptTrainings()
    except TrainingMonitorError:
        return ()
    found = tuple(each for each in kept.trainings if 0 <= now - each.seen_at <= KEPT_SECONDS)
    for each in found:
        if each.job.process:  # what was only a log is not the output of a training
            keep_found(target, map(place_of, filter(None, {each.job.log_file, *each.logs})), each.folders)
    return found


def ended_since(kept: Sequence[KeptTraining], running: Sequence[MeantTraining]) -> list[KeptTraining]:
    """Return those that are not among the running ones, and that none took the place of that was not there before."""
    known = {each.job.process or each.job.job_id for each in kept}
    new = [each for each in running if (each.job.process or each.job.job_id) not in known]
    same = {each.job.process or each.job.job_id for each in running}
    left = [each for each in kept if (each.job.process or each.job.job_id) not in same]
    return [each for each in left if not any(_replaces(one, each) for one in new)]


def _replaces(new: MeantTraining, old: KeptTraining) -> bool:
    """Whether a training that began since runs in the place of an old one: the same job, log, or script and folder."""
    if old.job.job_id and new.job.job_id and training_name(old.job.job_id) == training_name(new.job.job_id):
        return True
    is_same_log = new.job.log_file is not None and new.job.log_file == old.job.log_file
    is_same_folder = None in (new.folder, old.folder) or new.folder == old.folder  # a sweep has one for each run
    return is_same_log or (is_same_folder and new.script is not None and new.script == old.script)


def find_known(
    site: Site,
    what: str | int | None = None,
    *,
    store: Store | None = None,
    timeout: float | None = None,
    of_any: bool = False,
) -> MeantTraining:
    """Find the one training that is meant, or else the one that a check saw before it ended.

    Raises like `find_one_at`; SettingsError also if several that have ended are meant.
    """
    known = recall(store or BestEffortStore(), site.target, site.clock.time())
    try:
        found = find_one_at(site, what, timeout=timeout, of_any=of_any)
    except JobNotFound:
        if ended := ended_called(known, what, site.target):
            return ended
        raise
    return ended_with(known, found.job) or found


def ended_called(known: Sequence[KeptTraining], what: str | int | None, target: Target) -> MeantTraining | None:
    """Return the training that a name means, of which none runs. Raises SettingsError: there are several."""
    from training_monitor.jobs.names import word_pattern

    name = "" if what is None else str(what).strip()
    word = word_pattern(word_of(name))
    fits = [each.as_meant() for each in known if name and each.command and word.search(each.command)]
    if is_script(name):
        fits = [each for each in fits if runs(name, each.command or "", each.folder, target)]
    if len(fits) > 1:
        raise several(name, fits)
    return fits[0] if fits else None


def ended_with(known: Sequence[KeptTraining], job: WatchedJob) -> MeantTraining | None:
    """Return the training that had a PID where no training has it now."""
    is_alone = job.pid is not None and job.process is None
    return next(
        (each.as_meant() for each in reversed(known) if is_alone and job.pid in (each.job.pid, each.named)), None
    )


def remember(
    store: Store, target: Target, now: float, running: Sequence[MeantTraining], ended: Sequence[KeptTraining]
) -> None:
    """Keep what runs, and what has ended."""
    if kept := keep(now, running, ended):
        store.save_run(_key(target), KeptTrainings(kept), finished=True)


def keep(now: float, running: Sequence[MeantTraining], ended: Sequence[KeptTraining]) -> tuple[KeptTraining, ...]:
    """Return what there is to remember of trainings that run, and of those that have ended.

    A log alone is found again; later, it would appear beside the training that wrote it.
    """
    new = [KeptTraining(seen_at=now, **shared_fields(KeptTraining, each)) for each in running if not each.is_log]
    return (*ended, *new)[-MOST_KEPT:]


def forget_stopped(store: Store, target: Target, now: float, stopped: Identity) -> None:
    """Forget the training that a process stood for, which was stopped on purpose; others had its PID before."""
    process = f"{stopped.pid} {stopped.start_ticks} {stopped.boot_id}"
    kept = recall(store, target, now)
    left = tuple(
        each
        for each in kept
        if each.job.process != process and (each.named != stopped.pid or each.job.pid == stopped.pid)
    )
    if len(left) < len(kept):
        store.save_run(_key(target), KeptTrainings(left), finished=True)


def forget(store: Store, target: Target) -> None:
    """Forget all that was seen on a target."""
    store.forget_run(_key(target))


def _key(target: Target) -> str:
    return f"seen {target}"
