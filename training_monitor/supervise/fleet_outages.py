"""What a fleet cannot see for long: a member, the account's listing, or its own state folder. Told once each.

Since when it is so is kept in the store, and survives this process. A heartbeat is pinged for what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from training_monitor.clock import Clock
from training_monitor.errors import TrainingMonitorError
from training_monitor.policy.fleet_values import FleetAlert, FleetSnapshot
from training_monitor.store import Store
from training_monitor.supervise.fleet_member import FleetMember
from training_monitor.supervise.outages import OutageRecord
from training_monitor.units import format_duration

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat

Add = Callable[[FleetAlert, str, "FleetMember | None"], None]
FLEET = "The fleet"


class FleetOutages:
    """Takes in what a round saw. `add` gets each alert, the name of what it is about, and the member, if it is one."""

    def __init__(self, after: float, store: Store | None, clock: Clock, heartbeat: Heartbeat | None, add: Add) -> None:
        self._after, self._store, self._clock, self._heartbeat, self._add = after, store, clock, heartbeat, add
        self._records: dict[str, OutageRecord] = {}
        self._state = OutageRecord("state of a fleet", after, clock)  # in memory: nothing can be written then
        self._seen_at = float("-inf")

    def judge(self, members: Iterable[FleetMember], view: FleetSnapshot) -> None:
        """Tell what has been out of sight for long, and what is back."""
        seen_at = [view.listed_at] if view.listed_at is not None and view.error is None else []
        for member in members:
            seen = member.seen
            if member.is_asked and seen.error is not None:
                self._lose(member.key, seen.error, member)
            elif member.is_asked and seen.reading is not None:
                seen_at.append(seen.reading.timestamp)
                self._find(member.key, member)
        if view.error is not None:
            self._lose("", view.error, None)
        elif view.listed_at is not None:
            self._find("", None)
        self._note_state()
        newest = max(seen_at, default=self._seen_at)
        if newest > self._seen_at and self._heartbeat:
            self._heartbeat.beat()
        self._seen_at = newest

    def _record(self, key: str) -> OutageRecord:
        if key not in self._records:
            self._records[key] = OutageRecord(f"fleet {key}", self._after, self._clock, self._store)
        return self._records[key]

    def _lose(self, key: str, error: str, member: FleetMember | None) -> None:
        self._record(key).begin(
            lambda since, seconds: self._tell(
                "unreachable", "error", f"no answer for {format_duration(seconds)}: {error}", since, member
            )
        )

    def _find(self, key: str, member: FleetMember | None) -> None:
        self._record(key).end(
            lambda since, seconds: self._tell(
                "reached", "warning", f"it answers again after {format_duration(seconds)}", since, member
            )
        )

    def _note_state(self) -> None:
        """Write down that it looked: whether that can be done is the question."""
        if self._store is None:
            return
        try:
            self._store.save_run("fleet", {"looked_at": self._clock.time()}, finished=False)
        except TrainingMonitorError as error:
            said = error.what
            self._state.begin(
                lambda since, seconds: self._tell(
                    "state_unwritable", "error", f"nothing is kept for {format_duration(seconds)}: {said}", since
                )
            )
            return
        self._state.end(
            lambda since, seconds: self._tell(
                "state_writable", "warning", f"the state folder is used again after {format_duration(seconds)}", since
            )
        )

    def _tell(self, kind: str, level: str, text: str, since: float, member: FleetMember | None = None) -> None:
        key, name = (member.key, member.before.name if member.before else member.key) if member else ("", FLEET)
        self._add(FleetAlert(self._clock.time(), key, kind, text, level, int(since)), name, member)
