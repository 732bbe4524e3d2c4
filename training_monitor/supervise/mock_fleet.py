"""MockFleet: a fleet that needs no machine, no network and no other program, moves, and shows every state.

It is judged and summed up as a real one is; only what is seen of its members is made up (`mock_training.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.policy.cost import HOUR
from training_monitor.policy.fleet_alerts import ToldAccount, ToldMember, decide_account_alerts, decide_fleet_alerts
from training_monitor.policy.fleet_config import FleetConfig
from training_monitor.policy.fleet_rows import metrics_of
from training_monitor.policy.fleet_summary import summarize
from training_monitor.policy.fleet_values import FleetAlert, FleetSample, FleetSnapshot, FleetSummary, sample_of
from training_monitor.policy.training_metrics import KEPT_LOGS, TrainingMetrics
from training_monitor.supervise.mock_training import MockAct, MockLook, MockMember, look_at, make_member

FIRST_ID = 30_007_001
ACT_SECONDS = 2.0
KEPT_ALERTS = 200
RECENT_SECONDS, RECENT_STEP = 7200.0, 30.0
IDLE_SECONDS = 60.0
CREDIT_PER_MEMBER = 4.0  # dollars
DEFAULT_CONFIG = FleetConfig()
_DONE = {"stop": ("stopped", "it is stopped; its disk goes on costing"), "destroy": ("destroyed", "it is destroyed")}


class MockFleet:
    """Implements `Fleet`.

    Args:
        instance_ids: the numbers its members get; empty: `count` of them.
        config: thresholds, rules, budget and interval; its groups are not used.
        seed: of what is made up.
    """

    def __init__(
        self,
        instance_ids: Sequence[int] = (),
        *,
        count: int = 12,
        config: FleetConfig = DEFAULT_CONFIG,
        clock: Clock = SYSTEM_CLOCK,
        seed: int = 0,
    ) -> None:
        numbers = dict.fromkeys(instance_ids or range(FIRST_ID, FIRST_ID + count))
        members = [make_member(number, each, seed) for number, each in enumerate(numbers)]
        self.config, self.clock = config, clock
        self._members = {member.entry.key: member for member in members}
        self._groups = tuple(dict.fromkeys(group for member in members for group in member.entry.groups))
        self._began = clock.time()
        self._lock = threading.Lock()  # held for a moment, for what follows
        self._pending: dict[str, MockAct] = {}
        self._acts: dict[str, MockAct] = {}
        self._alerts: deque[FleetAlert] = deque(maxlen=KEPT_ALERTS)
        self._recent: dict[str, tuple[float, tuple[FleetSample, ...]]] = {}
        self._logs_after = -inf
        self._paused = self._asked = False
        self._listeners: list[Callable[[], None]] = []
        self._looking = threading.Lock()  # held while all members are looked at, for what follows
        self._told = {key: ToldMember() for key in self._members}
        self._told_account = ToldAccount()
        self._rows: dict[str, TrainingMetrics] = {}
        self._ticker: threading.Thread | None = None
        self._woken, self._closing = threading.Event(), threading.Event()
        self._snapshot = FleetSnapshot(self._began, groups=self._groups, interval=config.interval)
        self._look()

    # ------------------------------------------------------------ what a screen asks

    def start(self) -> None:
        """Begin to move."""
        self._ticker = threading.Thread(target=self._run, name="mock-fleet", daemon=True)
        self._ticker.start()

    def close(self) -> None:
        """Move no more."""
        self._closing.set()
        self._woken.set()

    def snapshot(self) -> FleetSnapshot:
        """What was seen last."""
        with self._lock:
            return replace(self._snapshot, paused=self._paused, alerts=tuple(self._alerts))

    def refresh(self) -> None:
        """Look at once, also while paused; before it was started, in the thread of who asks."""
        if self._ticker is None:
            self._look()
            return
        with self._lock:
            self._asked = True
        self._woken.set()

    def update_all_metrics(self) -> dict[str, TrainingMetrics]:
        """Look once, and return the rows by their keys."""
        self._look()
        return {row.key: row for row in self.snapshot().rows}

    def set_paused(self, paused: bool) -> None:
        """Look no more until it is set False."""
        with self._lock:
            self._paused = paused
        self._tell()

    def clear_logs(self) -> None:
        """Show only lines that are written from now on."""
        with self._lock:
            self._logs_after = self._elapsed()
            rows = tuple(replace(row, recent_logs=deque(maxlen=KEPT_LOGS)) for row in self._snapshot.rows)
            self._snapshot = replace(self._snapshot, rows=rows)
        self._tell()

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        """What would have been seen of a member in the last two hours, oldest first."""
        with self._lock:
            newest, act = self._snapshot.timestamp - self._began, self._acts.get(key)
            known_at, samples = self._recent.get(key, (None, ()))
        if known_at == newest or key not in self._members:
            return samples
        samples = self._samples(self._members[key], newest, act)
        with self._lock:
            self._recent[key] = (newest, samples)
        return samples

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin to `stop` or `destroy` members, which is done after two seconds."""
        for key in keys:
            with self._lock:
                self._begin(action, key)
        self._woken.set()
        self._tell()

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on, from any thread, when a new snapshot is worth showing."""
        with self._lock:
            self._listeners.append(changed)

    # ------------------------------------------------------------ moving

    def _run(self) -> None:
        while not self._closing.is_set():
            self.clock.wait(self._woken, self._seconds_left())
            self._woken.clear()
            if not self._closing.is_set() and self._seconds_left() <= 0:
                self._look()

    def _seconds_left(self) -> float:
        """Until there is something to do: somebody asked, an act is done, or the next look is due."""
        with self._lock:
            due = [act.at for act in self._pending.values()]
            if not self._paused:
                due.append(self._snapshot.timestamp - self._began + self.config.interval)
            return 0.0 if self._asked else min(due, default=self._elapsed() + IDLE_SECONDS) - self._elapsed()

    def _tell(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for changed in listeners:
            changed()

    def _elapsed(self) -> float:
        return self.clock.time() - self._began

    def _begin(self, action: str, key: str) -> None:
        """Take an act on, or say why not."""
        act = self._acts.get(key)
        is_gone = act is not None and act.action == "destroy"
        if action in _DONE and key in self._members and key not in self._pending and not is_gone:
            self._pending[key] = MockAct(action, self._elapsed() + ACT_SECONDS)
            return
        why = "something else is being done to it" if key in self._pending else f"nobody can {action} it"
        self._alerts.append(FleetAlert(self.clock.time(), key, "refused", why, "error"))

    def _finish_acts(self, at: float) -> dict[str, MockAct]:
        """All that was done by then; what has just been done is told."""
        with self._lock:
            done = {key: act for key, act in self._pending.items() if act.at <= at}
            self._pending = {key: act for key, act in self._pending.items() if key not in done}
            self._acts.update(done)
            for key, act in done.items():
                kind, text = _DONE[act.action]
                self._alerts.append(FleetAlert(self._began + at, key, kind, text, "info"))
            return dict(self._acts)

    # ------------------------------------------------------------ looking

    def _look(self) -> None:
        """Look at all members, tell what happened, and add it up."""
        with self._looking:
            at = self._elapsed()
            with self._lock:
                self._asked, logs_after = False, self._logs_after
            acts, now = self._finish_acts(at), self._began + at
            looks = {
                key: look_at(member, at, self._began, acts.get(key), logs_after=logs_after)
                for key, member in self._members.items()
            }
            rows = {key: _row(self._members[key], look, now) for key, look in looks.items()}
            alerts = [alert for key, row in rows.items() for alert in self._judge(key, row, acts.get(key), now)]
            listed = [*(look.row for look in looks.values() if not look.lost), *_hidden()]
            summary = self._sum_up(tuple(rows.values()), listed, now)
            self._told_account, of_account = decide_account_alerts(self._told_account, summary, self.config, now)
            self._rows = rows
            with self._lock:
                self._alerts.extend([*alerts, *of_account])
                self._snapshot = replace(
                    self._snapshot, timestamp=now, listed_at=now, rows=tuple(rows.values()), summary=summary
                )
        self._tell()

    def _judge(self, key: str, row: TrainingMetrics, act: MockAct | None, now: float) -> list[FleetAlert]:
        told = replace(self._told[key], ending=act is not None and act.action == "destroy")
        self._told[key], alerts = decide_fleet_alerts(
            told, self._rows.get(key), row, sample_of(row, now), self.config, now
        )
        return alerts

    def _sum_up(
        self, rows: tuple[TrainingMetrics, ...], listed: Sequence[Mapping[str, Any]], now: float
    ) -> FleetSummary:
        spent = sum(row.cost_per_hour or 0.0 for row in rows) * (now - self._began) / HOUR
        return summarize(
            rows,
            listed=listed,
            shown={member.instance_id for member in self._members.values()},
            credit=max(0.0, CREDIT_PER_MEMBER * len(rows) - spent),
            thresholds=self.config.thresholds,
            now=now,
        )

    def _samples(self, member: MockMember, newest: float, act: MockAct | None) -> tuple[FleetSample, ...]:
        first = max(newest - RECENT_SECONDS, member.rented) // RECENT_STEP + 1
        times = [RECENT_STEP * count for count in range(int(first), int(newest // RECENT_STEP) + 1)]
        samples = []
        for at in times if times[-1:] == [newest] else [*times, newest]:
            when = self._began + at
            samples.append(sample_of(_row(member, look_at(member, at, self._began, act, logs_after=inf), when), when))
        return tuple(samples)


def _row(member: MockMember, look: MockLook, now: float) -> TrainingMetrics:
    return metrics_of(
        member.entry,
        row=look.row,
        listed_at=look.listed_at,
        reading=look.reading,
        logs=look.logs,
        now=now,
        error=look.error,
        stale_since=look.stale_since,
        lost=look.lost,
        billed=look.billed,
    )


def _hidden() -> list[dict[str, Any]]:
    """Two stopped instances of the account that nobody shows."""
    stopped = {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.02}
    return [{**stopped, "id": -1}, {**stopped, "id": -2}]
