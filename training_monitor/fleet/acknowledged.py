"""Which alerts a person has taken note of; kept in the store while they go on, so that another process knows it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.frozen import dataclass, field
from training_monitor.core.logger import get_logger
from training_monitor.core.store import Store
from training_monitor.fleet.alerts import RUN
from training_monitor.fleet.values import FleetAlert

_KEPT_AS = "fleet acknowledged"
_MOST_MEMBERS, _MOST_ALERTS = 500, 20  # that are kept, and of each of them
_SEEN_AT = ("nan", "divergence", "spike", "disk")  # kinds whose generation is when a process first saw them


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An alert that a person has taken note of."""

    kind: str
    level: str
    generation: int

    def is_of(self, alert: FleetAlert) -> bool:
        """Return whether an alert is the same, perhaps seen by another process, and not worse by now."""
        if (self.kind, self.level) != (alert.kind, alert.level):
            return False
        is_seen_anew = self.kind in _SEEN_AT or self.kind.startswith("rule:")
        same_run = self.generation // RUN == alert.generation // RUN
        return self.generation == alert.generation or (is_seen_anew and same_run)


@dataclass(frozen=True, slots=True)
class AllAcknowledged:
    """The alerts that were acknowledged, by the key of their member."""

    alerts: Mapping[str, tuple[Acknowledged, ...]] = field(default_factory=dict)


class Acknowledgements:
    """Knows which alerts were acknowledged; safe for any thread. Without a store, it forgets them with the process."""

    def __init__(self, store: Store | None) -> None:
        self._store, self._lock = store, threading.Lock()
        self._known: Mapping[str, tuple[Acknowledged, ...]] | None = None

    def has(self, alert: FleetAlert) -> bool:
        """Return whether an alert was acknowledged."""
        return any(each.is_of(alert) for each in self._all().get(alert.key, ()))

    def note(self, alerts: Iterable[FleetAlert]) -> None:
        """Note that alerts were acknowledged."""
        for alert in alerts:
            if not self.has(alert):
                noted = Acknowledged(alert.kind, alert.level, alert.generation)
                self._set(alert.key, (*self._all().get(alert.key, ()), noted)[-_MOST_ALERTS:])

    def keep(self, key: str, kinds: Collection[str]) -> None:
        """Forget the alerts of a member but for those kinds, which go on."""
        known = self._all().get(key, ())
        left = tuple(each for each in known if each.kind in kinds)
        if left != known:
            self._set(key, left)

    def _all(self) -> Mapping[str, tuple[Acknowledged, ...]]:
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._known

    def _set(self, key: str, alerts: tuple[Acknowledged, ...]) -> None:
        """Replace the alerts of a member, beside those that other processes keep of theirs."""
        with self._lock:
            others = {name: each for name, each in (self._read() or self._known or {}).items() if name != key}
            changed = {**others, key: alerts} if alerts else others
            self._known = dict([*changed.items()][-_MOST_MEMBERS:])
            try:
                if self._store:
                    self._store.save_run(_KEPT_AS, AllAcknowledged(self._known), finished=False)
            except TrainingMonitorError as error:  # it stays known in memory
                get_logger().warning("what was acknowledged is not kept: %s", error)

    def _read(self) -> Mapping[str, tuple[Acknowledged, ...]]:
        try:
            kept = self._store.load_run(_KEPT_AS, AllAcknowledged) if self._store else None
        except TrainingMonitorError as error:
            get_logger().warning("what was acknowledged is not known: %s", error)
            kept = None
        return kept.alerts if kept else {}
