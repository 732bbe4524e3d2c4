"""FleetMonitor: many trainings, asked in the background; a snapshot of all that is known never waits.

Threads: one that schedules, at most one that lists the account, and some that look at members. All are daemons: whoever
leaves does not wait for a machine that hangs. What a thread finds replaces what was known as a whole, and so what a
snapshot holds never changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.parse.log_patterns import LogPattern
from training_monitor.policy.fleet_config import FleetConfig
from training_monitor.policy.fleet_summary import summarize
from training_monitor.policy.fleet_values import FleetAlert, FleetEntry, FleetSample, FleetSnapshot
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.store import Store
from training_monitor.supervise.fleet_account import Account, AccountLister
from training_monitor.supervise.fleet_actions import FleetActions
from training_monitor.supervise.fleet_member import FleetMember
from training_monitor.supervise.fleet_outages import FleetOutages
from training_monitor.supervise.fleet_record import FleetRecord, SampleHistory
from training_monitor.supervise.fleet_schedule import Schedule
from training_monitor.supervise.logs import get_logger
from training_monitor.supervise.threads import begin_thread
from training_monitor.targets.transport import Transport
from training_monitor.watching import Notice

if TYPE_CHECKING:
    from training_monitor.notify.heartbeat import Heartbeat  # brings all that a request needs

SHOW_SECONDS = 0.25  # between two snapshots worth showing
LONG_WAIT = 3600.0
MORE_SECONDS = 1.0  # after which others are asked past those that are slow
DEFAULT_CONFIG = FleetConfig()
MOST_LOST = 100  # instances of the account that are gone, and are shown


class FleetMonitor:
    """Implements `Fleet`: asks all members every `config.interval` seconds, one round trip each.

    All instances of the account come out of one listing. One that a complete listing lacks is lost; from one that
    failed nothing follows. A member that does not answer keeps what was seen last, says since when, and is asked at
    growing intervals.

    Args:
        entries: what is watched.
        whole_account: also every instance of the vast.ai account that is not stopped, as it appears.
        config: interval, log paths, thresholds, rules, budget.
        patterns: the user's own metrics.
        history: where samples are kept, such as `History`; None: nowhere.
        tell: hears of every alert as a Notice, such as `Outbox.post`.
        heartbeat: is pinged after every round that saw something.
        namespace: of pods that do not name theirs.
        store: where looks are remembered for other commands; None: nowhere.

    Raises:
        SettingsError: a target or a log path that is none.
    """

    def __init__(
        self,
        entries: Sequence[FleetEntry] = (),
        *,
        whole_account: bool = False,
        config: FleetConfig = DEFAULT_CONFIG,
        patterns: Sequence[LogPattern] = (),
        history: SampleHistory | None = None,
        tell: Callable[[Notice], Any] | None = None,
        heartbeat: Heartbeat | None = None,
        namespace: str = "default",
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config, self.clock, self._store = config, clock, store
        self._patterns, self._namespace, self._transport = tuple(patterns), namespace, transport
        self._whole_account = whole_account
        self._lock = threading.Lock()  # held for moments
        self._showing, self._updating, self._reading = threading.Lock(), threading.Lock(), threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._news, self._closing = threading.Event(), threading.Event()
        self._members: dict[str, FleetMember] = {}
        self._schedule = Schedule(config.interval)
        self._add_members(entries)
        self._named = frozenset(self._members)
        numbers = {member.instance for member in self._members.values() if member.instance is not None}
        self._lister = AccountLister(numbers, config.interval, transport, clock) if whole_account or numbers else None
        self._actions = FleetActions(self._hear, transport, clock)
        self._record = FleetRecord(config, history, tell)
        self._outages = FleetOutages(config.outage_after, store, clock, heartbeat, self._record.add)
        self._listeners: list[Callable[[], None]] = []
        self._listing = self._list_again = self._round_open = self._forced = self._paused = False
        self._next_round, self._shown_at, self._changed = 0.0, float("-inf"), True
        self._thread: threading.Thread | None = None
        self._view = FleetSnapshot(clock.time(), interval=config.interval)
        self._show()

    # ------------------------------------------------------------ what a screen calls

    def start(self) -> None:
        """Begin to ask, in the background; does nothing when it has begun."""
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="training_monitor fleet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more; what is under way is not waited for."""
        self._closing.set()
        self._news.set()
        with self._idle:
            self._idle.notify_all()

    def snapshot(self) -> FleetSnapshot:
        """What is known now."""
        with self._lock:
            view, refreshing = self._view, self._listing or not self._schedule.is_idle
        return replace(
            view,
            timestamp=self.clock.time(),
            alerts=self._record.alerts(),
            paused=self._paused,
            refreshing=refreshing,
        )

    def refresh(self) -> None:
        """Ask at once, also while paused, and those too that have not answered lately."""
        self._forced = True
        self._news.set()

    def set_paused(self, paused: bool) -> None:
        """Ask no more until it is set False."""
        self._paused = paused
        self._note_change()

    def clear_logs(self) -> None:
        """Forget the log lines shown so far."""
        for member in self._all_members():
            member.clear_logs()
        with self._lock:
            rows = tuple(replace(row, recent_logs=deque(maxlen=row.recent_logs.maxlen)) for row in self._view.rows)
            self._view = replace(self._view, rows=rows)
        self._note_change()

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        """What was seen of a member, oldest first: the last hours at most."""
        member = self._members.get(key)
        return member.recent() if member else ()

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin to `stop` or `destroy` members; what comes of it is told as alerts. Raises SettingsError."""
        for key in dict.fromkeys(keys):
            self._actions.begin(action, key, self._members.get(key))

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on, from any thread, when a new snapshot is worth showing."""
        with self._lock:
            self._listeners.append(changed)

    def update_all_metrics(self) -> dict[str, TrainingMetrics]:
        """Ask everybody once, side by side, and wait for all; the rows by their keys. Raises nothing."""
        with self._updating:
            if not self._closing.is_set():
                self._begin_round(forced=True)
            while not self._is_over(MORE_SECONDS):
                self._begin_threads()
            self._conclude()
        return {row.key: row for row in self._view.rows}

    def _is_over(self, seconds: float) -> bool:
        """Wait so long at most until nobody is asked any more; whether that is so, or it was closed."""
        with self._idle:
            return self._idle.wait_for(
                lambda: self._closing.is_set() or (not self._listing and self._schedule.is_idle), seconds
            )

    # ------------------------------------------------------------ scheduling

    def _run(self) -> None:
        """Ask, show and judge until it is closed."""
        while not self._closing.is_set():
            self._news.clear()
            try:
                wait = self._step()
            except Exception:  # whatever is wrong with one round, the next one is tried
                get_logger().exception("a round failed")
                wait = self.config.interval
            if not self._closing.is_set():
                self.clock.wait(self._news, wait)

    def _step(self) -> float:
        """Do what is due; returns seconds until something may be due again."""
        now = self.clock.monotonic()
        with self._lock:
            is_over = self._round_open and not self._listing and self._schedule.is_idle
        is_next = self._forced or (not self._paused and now >= self._next_round)
        if is_over or (self._round_open and is_next):
            self._conclude()
        if is_next:
            self._begin_round(forced=self._forced)
        if self._changed and now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self._show()
        wait = LONG_WAIT if self._paused else max(0.0, self._next_round - now)
        if self._schedule.is_waiting:
            self._begin_threads()
            wait = min(wait, MORE_SECONDS)
        return min(wait, max(0.01, self._shown_at + SHOW_SECONDS - now)) if self._changed else wait

    def _begin_round(self, *, forced: bool) -> None:
        self._forced, self._round_open = False, True
        self._next_round = self.clock.monotonic() + self.config.interval
        with self._lock:
            self._schedule.begin_round(forced=forced)
            self._list_again |= forced and self._listing  # what is listed now may be older than what asks for it
            lists = self._lister is not None and not self._listing and (forced or self._lister.is_due())
            self._listing = self._listing or lists
        if lists and not begin_thread(self._list, "listing"):
            self._end_listing()
        self._ask_members()

    def _ask_members(self) -> None:
        """Let all be asked that are due, in as many threads as it needs."""
        keys = [member.key for member in self._all_members() if member.is_asked]
        with self._lock:
            self._schedule.add(keys, self.clock.monotonic())
        self._begin_threads()

    def _begin_threads(self) -> None:
        with self._lock:
            threads = self._schedule.missing_threads(self.clock.monotonic())
        begun = sum(begin_thread(self._work, "look") for _ in range(threads))
        with self._lock:
            self._schedule.threads -= threads - begun

    def _work(self) -> None:
        """Look at members until none is left to be asked."""
        while True:
            with self._idle:
                key = None if self._closing.is_set() else self._schedule.take(self.clock.monotonic())
                if key is None:
                    return
            member = self._members.get(key)
            answered = member is None or self._look(member)
            with self._idle:
                self._schedule.end(key, self.clock.monotonic(), answered=answered)
                self._idle.notify_all()
            self._note_change()

    def _look(self, member: FleetMember) -> bool:
        """Look at a member; whether it answered. Raises nothing: one member must not end the watching of others."""
        try:
            self._record.remember(member, self.clock.time())
            return member.look(self.clock.time(), self._transport)
        except Exception as error:
            get_logger().exception("%s: the look failed", member.key)
            member.fail(f"the look failed: {error!r}"[:300], self.clock.time())
            return False

    # ------------------------------------------------------------ the account

    def _list(self) -> None:
        """List the account once, and let the instances be asked that are new in it."""
        assert self._lister
        try:
            self._lister.look()
            self._take_listing()
            self._note_change()
            self._lister.look_at_credit()
            for member in self._all_members():
                self._record.remember(member, self.clock.time())  # those that are not looked at, too
        except Exception as error:
            get_logger().exception("the listing failed")
            self._lister.fail(f"the listing failed: {error!r}"[:300], self.clock.time())
        finally:
            self._end_listing()

    def _end_listing(self) -> None:
        with self._idle:
            self._forced, self._listing, self._list_again = self._forced or self._list_again, False, False
            self._idle.notify_all()
        self._note_change()

    def _take_listing(self) -> None:
        assert self._lister
        account = self._lister.account
        if self._whole_account and account.error is None:
            known = {member.instance for member in self._all_members()}
            new = [f"vast://{number}" for number in account.running() if number not in known]
            self._add_members([entry for target in new for entry in self.config.entries_of(target)])
        for member in self._all_members():
            if member.instance is not None:
                member.listed = account.about(member.instance, member.listed)
        self._forget_lost()
        self._ask_members()

    def _forget_lost(self) -> None:
        """Of instances that came with the account and are gone, the last ones stay."""
        lost = [each.key for each in self._all_members() if each.listed.lost and each.key not in self._named]
        dropped = set(lost[:-MOST_LOST])
        with self._lock:
            self._members = {key: member for key, member in self._members.items() if key not in dropped}
            self._schedule.forget(dropped)

    def _add_members(self, entries: Sequence[FleetEntry]) -> None:
        """Take up members; one that is named twice is one, in the groups of both."""
        merged: dict[str, FleetEntry] = {}
        for entry in entries:
            before = merged.get(entry.key, entry)
            merged[entry.key] = replace(before, groups=tuple(dict.fromkeys((*before.groups, *entry.groups))))
        given = (self.config, self._patterns, self._namespace, self._reading, self._store)
        made = {key: FleetMember(entry, *given) for key, entry in merged.items()}
        with self._lock:
            self._members = {**self._members, **made}

    def _all_members(self) -> list[FleetMember]:
        with self._lock:
            return list(self._members.values())

    # ------------------------------------------------------------ showing and judging

    def _note_change(self) -> None:
        self._changed = True
        self._news.set()

    def _show(self) -> None:
        """Make a new snapshot, and tell those who listen."""
        with self._showing:
            self._changed = False
            view = self._look_at_all(self._all_members(), self.clock.time())
            with self._lock:
                self._view, listeners = view, tuple(self._listeners)
        for changed in listeners:
            try:
                changed()
            except Exception:  # a screen that fails must not end the watching
                get_logger().exception("a listener failed")

    def _look_at_all(self, members: Sequence[FleetMember], now: float) -> FleetSnapshot:
        """What is known of all of them."""
        rows = tuple(member.metrics(now) for member in members)
        account = self._lister.account if self._lister else Account()
        summary = summarize(
            rows,
            listed=None if account.listed_at is None else list(account.rows.values()),
            shown={member.instance for member in members if member.instance is not None},
            credit=account.credit,
            thresholds=self.config.thresholds,
            now=now,
        )
        return FleetSnapshot(
            timestamp=now,
            rows=rows,
            summary=summary,
            groups=tuple(dict.fromkeys(group for member in members for group in member.entry.groups)),
            interval=self.config.interval,
            listed_at=account.listed_at,
            error=account.error,
            stale_since=account.stale_since,
        )

    def _conclude(self) -> None:
        """The end of a round: what was seen is shown, remembered and judged."""
        self._round_open = False
        self._show()
        view, members = self._view, self._members
        seen = [(members[row.key], row) for row in view.rows if row.key in members]
        self._record.judge(seen, view.summary, view.timestamp)
        self._outages.judge((member for member, _ in seen), view)
        self._note_change()

    def _hear(self, alert: FleetAlert) -> None:
        """Something was done to a member: tell it, and look."""
        member = self._members.get(alert.key)
        self._record.add(alert, member.before.name if member and member.before else alert.key, member)
        self.refresh()
        self._note_change()
