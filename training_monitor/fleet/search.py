"""What else runs on the target of a member that names no training: searched for with its looks, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import filterfalse
from typing import Any, NamedTuple

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import Answer, Question
from training_monitor.core.store import Store
from training_monitor.core.values import WatchedJob
from training_monitor.look.meant import MeantTraining, all_questions, read_all
from training_monitor.look.remembered import KEPT_SECONDS, KeptTraining, ended_since, keep, recall, remember
from training_monitor.targets.asking import Site

FIND_SECONDS = 60.0  # between two searches


class Found(NamedTuple):
    """The trainings of a target.

    `running` ones, and those that an earlier search or check saw there and that have `ended` within a day; `last` is
    the one that was seen last where none runs. Unless it `is_complete`, others may run, and nothing has ended.
    """

    running: tuple[MeantTraining, ...] = ()
    ended: tuple[MeantTraining, ...] = ()
    last: tuple[MeantTraining, ...] = ()
    is_complete: bool = False

    @property
    def every(self) -> tuple[MeantTraining, ...]:
        return self.running + self.ended

    def without(self, is_known: Callable[[MeantTraining], bool]) -> Found:
        """Return those that are not known otherwise."""
        running, ended, last = (tuple(filterfalse(is_known, each)) for each in (self.running, self.ended, self.last))
        return Found(running, ended, last, self.is_complete)


class Search:
    """Searches one target every FIND_SECONDS, in the round trip of a look.

    What it saw is remembered with what `check` saw; without a store, by itself.
    """

    __slots__ = ("_has_ray", "_kept", "_store", "searched_at")

    def __init__(self, store: Store | None) -> None:
        self._store, self._kept = store, tuple[KeptTraining, ...]()
        self.searched_at: float | None = None
        self._has_ray = True

    def is_due(self, now: float, seconds: float = FIND_SECONDS) -> bool:
        """Return whether it is time for the next search, which a clock that was set back does not delay."""
        return self.searched_at is None or not 0.0 <= now - self.searched_at < seconds

    def questions(self, site: Site) -> list[Question[Any]]:
        """Return what to ask."""
        return all_questions(site, has_ray=self._has_ray)

    def read(self, site: Site, answers: Sequence[Answer[Any]], now: float) -> Found:
        """Read the answers to the questions."""
        meant = read_all(site, answers)
        self.searched_at, self._has_ray = now, meant.has_ray
        if meant.has_ended:
            return Found(last=meant.trainings, is_complete=True)
        if meant.not_seen:
            return Found(() if meant.is_last else meant.trainings)
        running = () if meant.is_last else meant.trainings
        known = recall(self._store, site.target, now) if self._store else self._kept
        ended = ended_since([each for each in known if now - each.seen_at <= KEPT_SECONDS], running)
        self._kept = keep(now, running, ended)
        with suppress(TrainingMonitorError):  # then it is not remembered
            if self._store:
                remember(self._store, site.target, now, running, ended)
        last = () if running else meant.trainings
        return Found(running, tuple(each.as_meant() for each in ended), last, is_complete=True)


def identity_of(job: WatchedJob) -> str:
    """Return what stays the same of a training that was found, whatever else becomes known of it."""
    return job.job_id or job.process or job.log_file or str(job.pid)


def name_of(meant: MeantTraining) -> str:
    """Return the display name of a training that was found: its job, or its script, or program, and its PID."""
    number = f"pid {meant.job.pid}"
    if meant.job.pid is None:
        if not meant.name.isdigit():
            return meant.name
        number = f"job {meant.name}"  # of Slurm
    what = meant.script or (meant.command or "").split(" ", 1)[0].rpartition("/")[2]
    return f"{what} ({number})" if what else number
