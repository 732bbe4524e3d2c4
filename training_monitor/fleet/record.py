"""What a fleet stores and reports: samples, alerts, and outages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.core.clock import Clock
from training_monitor.core.errors import StateError, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration
from training_monitor.core.values import Notice
from training_monitor.fleet.alerts import RUN, ToldAccount, decide_account_alerts, decide_fleet_alerts
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.member import KEPT_SECONDS, FleetMember
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot, FleetSummary
from training_monitor.notify.heartbeat import OutageRecord
from training_monitor.notify.notice_text import next_command, word_for

if TYPE_CHECKING:
    from training_monitor.fleet.history import History
    from training_monitor.notify.heartbeat import Heartbeat  # imports all that requests need

KEPT_ALERTS = 200
_ENDED_BY = {"reached": "unreachable", "state_writable": "state_unwritable"}
_Words = tuple[tuple[str, str, str], tuple[str, str, str]]  # kind, level and text of an outage, and of its end
_REACH = ("unreachable", "error", "no response for"), ("reached", "warning", "it responds again after")
_STATE = (
    ("state_unwritable", "error", "the state folder has been unusable for"),
    ("state_writable", "warning", "the state folder is usable again after"),
)
_PRIORITIES = {"info": "low", "warning": "normal", "error": "high"}


class FleetRecord:
    """Judges rows, stores samples, and sends alerts; `history`, `tell` and `store` are those of FleetMonitor."""

    def __init__(
        self, config: FleetConfig, history: History | None, tell: Callable[[Notice], Any] | None, store: Store | None
    ) -> None:
        self._config, self._history, self._tell = config, history, tell
        self._acknowledged = Acknowledgements(store)
        self._alerts: deque[FleetAlert] = deque(maxlen=KEPT_ALERTS)
        self._lock, self._judging = threading.Lock(), threading.Lock()
        self._told, self._history_failed = ToldAccount(), False

    def alerts(self) -> tuple[FleetAlert, ...]:
        """Return the last alerts, oldest first."""
        with self._lock:
            return tuple(self._alerts)

    def acknowledge(self, identities: Collection[tuple[str, str, int]]) -> None:
        """Note that a person has taken note of alerts."""
        self._change(lambda alert: replace(alert, acknowledged=True) if alert.identity in identities else alert)
        self._acknowledged.note(each for each in self.alerts() if each.identity in identities and each.ended is None)

    def _end(self, key: str, kinds: Collection[str], now: float) -> None:
        """Note that alerts of a member have ended."""

        def end(alert: FleetAlert) -> FleetAlert:
            is_meant = alert.key == key and alert.kind in kinds and alert.ended is None
            return replace(alert, ended=now) if is_meant else alert

        if kinds:
            self._change(end)

    def _change(self, change: Callable[[FleetAlert], FleetAlert]) -> None:
        with self._lock:
            self._alerts = deque(map(change, self._alerts), maxlen=KEPT_ALERTS)

    def judge(self, seen: Sequence[tuple[FleetMember, TrainingMetrics]], summary: FleetSummary, now: float) -> None:
        """Judge a round: store new samples and send the alerts."""
        with self._judging:
            samples = dict[str, FleetSample]()
            alerts: list[tuple[FleetAlert, FleetMember | None]] = []
            ending = {member.place for member, row in seen if _is_ending(member, row)}
            for member, row in seen:
                sample, is_new = member.sample(row, now)
                if is_new:
                    samples[member.key] = sample
                told, is_ending = member.told, member.place in ending
                told = told if told.ending == is_ending else replace(told, ending=is_ending)
                member.told, found = decide_fleet_alerts(told, member.before, row, sample, self._config, now)
                member.before = row
                self._end(member.key, told.going_on() - member.told.going_on(), now)
                if row.error is None and member.seen.reading is not None:
                    self._acknowledged.keep(member.key, member.told.may_go_on())
                alerts += [(alert, member) for alert in found]
            self._told, found = decide_account_alerts(self._told, summary, self._config, now)
            for alert, of in [*alerts, *((alert, None) for alert in found)]:
                self.add(alert, of)
            self._keep(samples, now)

    def add(self, alert: FleetAlert, member: FleetMember | None = None) -> None:
        """Record an alert of a member, or of the fleet, and send it."""
        if alert.kind in _ENDED_BY:
            self._end(alert.key, {_ENDED_BY[alert.kind]}, alert.timestamp)
        with self._lock:
            self._alerts.append(replace(alert, acknowledged=self._acknowledged.has(alert)))
        if self._tell is None:
            return
        kind, target = f"fleet_{alert.kind}", str(member.target) if member else None
        name = member.before.name if member and member.before else alert.key or "The fleet"
        notice = Notice(
            kind=kind,
            title=f"{name}: {alert.kind}",
            text=alert.text,
            job_id=alert.key,
            generation=alert.generation,
            priority=_PRIORITIES[alert.level],
            training=name,
            target=target,
            command=next_command(kind, target, _word_for(member)),
            log="\n".join(member.seen.logs) if member and alert.kind == "failed" else "",
        )
        try:
            self._tell(notice)
        except Exception:  # a failing notice must not end the watching
            get_logger().exception("could not send an alert: %s", alert.text)

    def remember(self, member: FleetMember, now: float) -> None:
        """Load the earlier samples of a member, once."""
        if self._history is None or member.remembered:
            return
        member.remembered = True
        try:
            member.remember(self._history.read(member.key, now - KEPT_SECONDS))
        except TrainingMonitorError as error:
            get_logger().info("%s: no history: %s", member.key, error)

    def _keep(self, samples: Mapping[str, FleetSample], now: float) -> None:
        """Add to the history; a failure is reported once, until it works again."""
        if self._history is None or not samples:
            return
        try:
            self._history.add(samples)
            self._history_failed = False
        except TrainingMonitorError as error:
            if not self._history_failed:
                text = f"history cannot be recorded: {error}"
                self.add(FleetAlert(now, "", "failed", text, "warning", int(1000 * now)))
            self._history_failed = True


def _word_for(member: FleetMember | None) -> str | None:
    """Return the name by which `check` finds its training; None if `check` searches as the fleet does."""
    is_named = member is not None and bool(member.spec.job or member.spec.log_paths)
    return word_for(member.job) if member and is_named else None


def _is_ending(member: FleetMember, row: TrainingMetrics) -> bool:
    """Return whether it is being stopped but not yet seen stopped, or was destroyed and is not listed again."""
    is_back = member.before is not None and member.before.status == "lost" != row.status
    if is_back or (member.ending == "stop" and row.status == "stopped"):
        member.ending = None
    return member.ending is not None


# ---------------------------------------------------------------- outages


class FleetOutages:
    """Reports long outages once each: of a member, the account's listing, or the state folder.

    Their beginning is kept in the store and survives this process. A heartbeat is pinged for successful looks. `add`
    gets each alert, and its member if it is about one.
    """

    def __init__(
        self,
        after: float,
        store: Store | None,
        clock: Clock,
        heartbeat: Heartbeat | None,
        add: Callable[[FleetAlert, FleetMember | None], None],
    ) -> None:
        self._after, self._store, self._clock, self._heartbeat, self._add = after, store, clock, heartbeat, add
        self._records: dict[str, OutageRecord] = {}
        self._state = OutageRecord("state of a fleet", after, clock)  # in memory: the store is what fails
        self._seen_at = float("-inf")

    def judge(self, members: Iterable[FleetMember], view: FleetSnapshot) -> None:
        """Report outages that began long ago, and those that ended."""
        seen_at = [view.listed_at] if view.listed_at is not None and view.error is None else []
        asked = [member for member in members if member.is_asked]
        self._forget_besides({"", *(member.key for member in asked)})
        for member in asked:
            seen = member.seen
            if seen.error is not None or seen.reading is not None:
                self._note(member, seen.error)
            if seen.error is None and seen.reading is not None:
                seen_at.append(seen.reading.timestamp)
        if view.error is not None or view.listed_at is not None:
            self._note(None, view.error)
        self._note_state()
        newest = max(seen_at, default=self._seen_at)
        if newest > self._seen_at and self._heartbeat:
            self._heartbeat.beat()
        self._seen_at = newest

    def _forget_besides(self, keys: set[str]) -> None:
        """Drop what is known of members that are no longer asked: instances come and go for months, or are stopped."""
        for key in self._records.keys() - keys:
            self._records.pop(key).forget()

    def _note(self, member: FleetMember | None, error: str | None) -> None:
        """Record whether a member, or the listing, could be seen."""
        key = member.key if member else ""
        if key not in self._records:
            self._records[key] = OutageRecord(f"fleet {key}", self._after, self._clock, self._store)
        self._take(self._records[key], error, _REACH, member)

    def _note_state(self) -> None:
        """Record whether the state folder is writable, by writing to it."""
        if self._store is None:
            return
        problem = None
        try:
            self._store.save_run("fleet", {"looked_at": self._clock.time()}, finished=False)
            problem = self._store.problem
        except StateError as error:
            problem = error
        self._take(self._state, problem.what if problem else None, _STATE, None)

    def _take(self, record: OutageRecord, error: str | None, words: _Words, member: FleetMember | None) -> None:
        if error is None:
            record.end(partial(self._tell, member, *words[1], ""))
        else:
            record.begin(partial(self._tell, member, *words[0], f": {error}"))

    def _tell(
        self, member: FleetMember | None, kind: str, level: str, words: str, more: str, since: float, seconds: float
    ) -> None:
        text, key = f"{words} {format_duration(seconds)}{more}", member.key if member else ""
        self._add(FleetAlert(self._clock.time(), key, kind, text, level, int(since)), member)


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
                get_logger().warning("acknowledgements could not be saved: %s", error)

    def _read(self) -> Mapping[str, tuple[Acknowledged, ...]]:
        try:
            kept = self._store.load_run(_KEPT_AS, AllAcknowledged) if self._store else None
        except TrainingMonitorError as error:
            get_logger().warning("acknowledgements could not be read: %s", error)
            kept = None
        return kept.alerts if kept else {}
