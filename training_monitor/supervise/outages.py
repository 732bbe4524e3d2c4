"""What follows from whether a look saw something: a heartbeat, and notices of an outage that lasts, each told once.

There are two kinds of outage: the target cannot be asked, or the state folder of this machine cannot be used. Neither
says anything about the training. Nothing here waits, or raises what comes from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from training_monitor.clock import Clock
from training_monitor.errors import StateError, TrainingMonitorError
from training_monitor.notify import templates
from training_monitor.store import Store
from training_monitor.supervise.logs import get_logger
from training_monitor.watching import Notice

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat  # brings all that a request needs

Tell = Callable[[float, float], object]  # gets since when (epoch seconds), and for how long (seconds)


@dataclass(frozen=True, slots=True)
class Outage:
    """Since when nothing could be asked, epoch seconds, and whether that was told."""

    since: float
    is_told: bool = False


class OutageRecord:
    """One thing that may be out of reach for long. In the store under `key`, so that another process goes on with it.

    It is told first and marked as told after that: who is killed in between tells it again, under the same name.
    """

    def __init__(self, key: str, after: float, clock: Clock, store: Store | None = None) -> None:
        self._key, self._after, self._clock, self._store = f"outage {key}", after, clock, store
        self._outage = self._load()

    def begin(self, tell: Tell) -> None:
        """It is out of reach; `tell` is called once that has lasted."""
        now = self._clock.time()
        outage = self._outage
        if outage is None or outage.since > now:  # a clock that was set back
            outage = self._keep(Outage(now, is_told=outage is not None and outage.is_told))
        if outage and not outage.is_told and now - outage.since >= self._after:
            tell(outage.since, now - outage.since)
            self._keep(replace(outage, is_told=True))

    def end(self, tell: Tell) -> None:
        """It is in reach; `tell` is called when it had been told that it was not."""
        outage = self._outage
        if outage is None:
            return
        if outage.is_told:
            tell(outage.since, max(0.0, self._clock.time() - outage.since))
        self._keep(None)

    def _load(self) -> Outage | None:
        try:
            kept = self._store.load_run(self._key) if self._store else None
            return Outage(float(kept["since"]), bool(kept["is_told"])) if kept else None
        except (TrainingMonitorError, KeyError, TypeError, ValueError) as error:
            get_logger().warning("%s is not known: %s", self._key, error)
            return None

    def _keep(self, outage: Outage | None) -> Outage | None:
        self._outage = outage
        try:
            if self._store:
                self._store.save_run(self._key, asdict(outage) if outage else {}, finished=outage is None)
        except TrainingMonitorError as error:  # it is known here
            get_logger().warning("%s is not kept: %s", self._key, error)
        return outage


class Lookout:
    """Hears of every look at something whether it saw anything.

    Args:
        key: names what is looked at, in the store.
        name: the same for people.
        post: takes the notices. It must not raise.
        outage_after: seconds until an outage is told.
    """

    def __init__(
        self,
        key: str,
        name: str,
        post: Callable[[Notice], Any],
        *,
        outage_after: float,
        store: Store,
        clock: Clock,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self._name, self._post, self._heartbeat, self._folder = name, post, heartbeat, store.folder
        self._target = OutageRecord(key, outage_after, clock, store)
        self._state = OutageRecord(key, outage_after, clock)  # where nothing can be written, in memory alone
        self._lock = threading.Lock()

    def note(self, error: TrainingMonitorError | None) -> None:
        """Take in how a look ended: None, or why nothing was seen."""
        with self._lock:
            if error is None:
                if self._heartbeat:
                    self._heartbeat.beat()
                self._target.end(lambda since, seconds: self._tell(templates.reached, since, seconds))
                self._state.end(
                    lambda since, seconds: self._tell(templates.state_writable, since, seconds, folder=self._folder)
                )
            elif isinstance(error, StateError):
                self._state.begin(
                    lambda since, seconds: self._tell(templates.state_unwritable, since, seconds, error=error.what)
                )
            else:
                self._target.begin(
                    lambda since, seconds: self._tell(templates.unreachable, since, seconds, error=error.what)
                )

    def _tell(self, template: Callable[..., Notice], since: float, seconds: float, **more: str) -> None:
        self._post(template(self._name, seconds=seconds, generation=int(since), **more))
