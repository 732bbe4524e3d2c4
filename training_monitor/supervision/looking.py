"""The one loop of looks: look and judge, tell, decide whether it is over, wait for the next look.

`watch_training`, `wait_for` and `monitor_job` run it, each with a `Looker` of its own for what differs. A target that
cannot be asked ends no loop. A training is lost when a target that answers no longer has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import inf
from threading import Event
from typing import Protocol, TypeVar

from training_monitor.core.clock import Clock
from training_monitor.core.errors import AlreadySupervised, JobNotFound, LeaseLost, TrainingMonitorError
from training_monitor.core.interrupts import only_looking
from training_monitor.jobs.stopping import ExitWatch
from training_monitor.targets.asking import Site

LOST_LOOKS = 2
EVENT_SECONDS = 1.0  # within which the caller's events are noticed while a connection is waited for
Seen = TypeVar("Seen")
Report = TypeVar("Report", covariant=True)


class Looker(Protocol[Seen, Report]):
    """Who looks, and why: the hooks of the loop. It ends with the first report that one of them returns.

    `interrupted` is what an interrupt says. Until `has_begun`, the error that keeps it from asking is raised. A
    training is lost by LOST_LOOKS errors of the kinds `lost_by`, the first and last of them `lost_after` seconds apart.
    """

    clock: Clock
    site: Site
    interrupted: str
    lost_by: tuple[type[TrainingMonitorError], ...] = (JobNotFound,)
    lost_after: float = 0.0

    @property
    def has_begun(self) -> bool: ...
    def ask(self) -> Seen: ...  # look once, and judge; raises TrainingMonitorError
    def decide(self, seen: Seen, *, is_last: bool) -> Report | None: ...  # tell what the look showed
    def not_seen(self, error: TrainingMonitorError, *, is_lost: bool) -> Report | None: ...  # tell why it failed
    def followed(self) -> tuple[Site, str] | None: ...  # the job whose end brings the next look at once
    def pause(self) -> float: ...  # seconds until the next look

    def run_out(self) -> Report | None:
        """Return the report when time is over and the last look ended nothing."""
        return None

    def shorten(self, left: float) -> float:
        """Return the seconds that are left of a pause by what has happened since."""
        return left


def look_until_over(
    looker: Looker[Seen, Report],
    *,
    stopping: Event | None = None,
    refresh: Event | None = None,
    seconds: float | None = None,
) -> Report | None:
    """Look until a hook of the looker returns a report; return None once `stopping` is set.

    Args:
        refresh: set it to look now; it is cleared.
        seconds: after which there is one last look; None: no limit.

    Raises:
        TrainingMonitorError: the first look failed.
        AlreadySupervised, LeaseLost: another supervisor has the training.
    """
    clock, exits = looker.clock, ExitWatch(looker.site)
    deadline = inf if seconds is None else clock.monotonic() + seconds
    missing, missing_since, woken_by = 0, inf, stopping or exits.ended
    with only_looking(looker.interrupted), closing(exits):
        while not (stopping and stopping.is_set()):
            is_last, followed = clock.monotonic() >= deadline, None
            try:
                seen = looker.ask()
            except (AlreadySupervised, LeaseLost):
                raise
            except TrainingMonitorError as error:
                if not looker.has_begun:
                    raise
                is_lost = False
                if isinstance(error, looker.lost_by):
                    missing, missing_since = missing + 1, min(missing_since, clock.monotonic())
                    is_lost = missing >= LOST_LOOKS and clock.monotonic() - missing_since >= looker.lost_after
                report = looker.not_seen(error, is_lost=is_lost)
            else:
                missing, missing_since = 0, inf
                report = looker.decide(seen, is_last=is_last)
                followed = looker.followed()
            if report is None and is_last:
                report = looker.run_out()
            if report is not None:
                return report
            if followed:
                exits.site, job_id = followed
                exits.follow(job_id)
                woken_by = exits.ended
            _wait(looker, deadline, woken_by, [each for each in (stopping, refresh, exits.ended) if each])
            exits.ended.clear()
            if refresh:
                refresh.clear()
    return None


def _wait(looker: Looker[Seen, Report], deadline: float, woken_by: Event, events: Sequence[Event]) -> None:
    """Wait until the next look is due or one of the events is set: `woken_by` is noticed at once, others soon."""
    left = min(looker.pause(), deadline - looker.clock.monotonic())
    while left > 0 and not any(each.is_set() for each in events):
        left = looker.shorten(left)
        part = min(left, EVENT_SECONDS) if len(events) > 1 else left
        looker.clock.wait(woken_by, part)
        left -= part
