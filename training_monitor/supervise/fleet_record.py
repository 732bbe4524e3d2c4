"""What a fleet remembers and tells: samples in the history, alerts of what happened to its members."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from training_monitor.errors import TrainingMonitorError
from training_monitor.notify.next_command import next_command, word_for
from training_monitor.policy.fleet_alerts import ToldAccount, decide_account_alerts, decide_fleet_alerts
from training_monitor.policy.fleet_config import FleetConfig
from training_monitor.policy.fleet_values import FleetAlert, FleetSample, FleetSummary
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.supervise.fleet_member import FleetMember
from training_monitor.supervise.logs import get_logger
from training_monitor.watching import Notice

KEPT_ALERTS = 200
REMEMBERED_SECONDS = 2 * 3600.0
_PRIORITIES = {"info": "low", "warning": "normal", "error": "high"}


class SampleHistory(Protocol):
    """Where samples outlive this process."""

    def add(self, samples: Mapping[str, FleetSample]) -> None: ...

    def read(self, key: str, since: float) -> list[FleetSample]: ...


class FleetRecord:
    """Judges rows, keeps samples, and tells alerts; `history` and `tell` as of FleetMonitor."""

    def __init__(
        self, config: FleetConfig, history: SampleHistory | None, tell: Callable[[Notice], Any] | None
    ) -> None:
        self._config, self._history, self._tell = config, history, tell
        self._alerts: deque[FleetAlert] = deque(maxlen=KEPT_ALERTS)
        self._lock, self._judging = threading.Lock(), threading.Lock()
        self._told, self._history_failed = ToldAccount(), False

    def alerts(self) -> tuple[FleetAlert, ...]:
        """The last ones, oldest first."""
        with self._lock:
            return tuple(self._alerts)

    def judge(self, seen: Sequence[tuple[FleetMember, TrainingMetrics]], summary: FleetSummary, now: float) -> None:
        """Judge a round: remember what is new, tell what follows."""
        with self._judging:
            samples = dict[str, FleetSample]()
            alerts: list[tuple[str, FleetAlert, FleetMember]] = []
            ending = {member.place for member, row in seen if _is_ending(member, row)}
            for member, row in seen:
                sample, is_new = member.sample(row, now)
                if is_new:
                    samples[member.key] = sample
                told = replace(member.told, ending=member.place in ending)
                member.told, found = decide_fleet_alerts(told, member.before, row, sample, self._config, now)
                member.before = row
                alerts += [(row.name, alert, member) for alert in found]
            self._told, found = decide_account_alerts(self._told, summary, self._config, now)
            for name, alert, of in alerts:
                self.add(alert, name, of)
            for alert in found:
                self.add(alert, "The fleet")
            self._keep(samples, now)

    def add(self, alert: FleetAlert, name: str, member: FleetMember | None = None) -> None:
        """Keep an alert of a member, or of the fleet, with this name, and tell it."""
        with self._lock:
            self._alerts.append(alert)
        if self._tell is None:
            return
        kind, target = f"fleet_{alert.kind}", str(member.target) if member else None
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
        )
        try:
            self._tell(notice)
        except Exception:  # that nobody can be told must not end the watching
            get_logger().exception("an alert was not told: %s", alert.text)

    def remember(self, member: FleetMember, now: float) -> None:
        """Read what was seen of a member before, once."""
        if self._history is None or member.remembered:
            return
        member.remembered = True
        try:
            member.remember(self._history.read(member.key, now - REMEMBERED_SECONDS))
        except TrainingMonitorError as error:
            get_logger().info("%s: no history: %s", member.key, error)

    def _keep(self, samples: Mapping[str, FleetSample], now: float) -> None:
        """Add to the history; while that fails, it is told once."""
        if self._history is None or not samples:
            return
        try:
            self._history.add(samples)
            self._history_failed = False
        except TrainingMonitorError as error:
            if not self._history_failed:
                text = f"history is not kept: {error}"
                self.add(FleetAlert(now, "", "failed", text, "warning", int(1000 * now)), "The fleet")
            self._history_failed = True


def _word_for(member: FleetMember | None) -> str | None:
    """By which `check` finds its training; None where it looks for it as the fleet does."""
    is_named = member is not None and bool(member.entry.job or member.entry.log_paths)
    return word_for(member.job) if member and is_named else None


def _is_ending(member: FleetMember, row: TrainingMetrics) -> bool:
    """Whether somebody stops it and it was not seen stopped yet, or destroyed it and it was not listed again."""
    is_back = member.before is not None and member.before.status == "lost" != row.status
    if is_back or (member.ending == "stop" and row.status == "stopped"):
        member.ending = None
    return member.ending is not None
