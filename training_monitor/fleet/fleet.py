"""FleetMonitor: look at many trainings, each in one round trip, and publish the results as snapshots.

The instances of an account come from one listing per refresh, its credit from an occasional request.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import Engine, begin_thread
from training_monitor.core.errors import InstanceNotFound, SettingsError, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.long_running import release_freed_memory
from training_monitor.core.settings_file import load_table
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.fleet.config import FleetConfig, read_fleet_config
from training_monitor.fleet.member import FleetMember
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.record import FleetOutages, FleetRecord
from training_monitor.fleet.rows import Listed, bill, summarize
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSnapshot, MemberSpec
from training_monitor.jobs.stopping import stop_job
from training_monitor.logs.patterns import LogPattern
from training_monitor.targets.target import parse_target
from training_monitor.targets.transport import SshTransport, Transport
from training_monitor.vast.rows import is_stopped

if TYPE_CHECKING:
    from training_monitor.fleet.history import History
    from training_monitor.notify.heartbeat import Heartbeat  # imports all that requests need
    from training_monitor.runs.values import Run

CREDIT_SECONDS = 300.0
MOST_SHOWN = 5  # instances missing in a listing that are asked for one by one, per look
# Time until freed memory is given back again: the minimum in seconds, and a multiple of the time that it took.
RELEASE_SECONDS, RELEASE_TIMES = 60.0, 1000.0
ACCOUNT = ""  # the key of the account's listing; those of members are not empty
DEFAULT_CONFIG = FleetConfig()
ACTIONS = ("stop", "destroy")
MACHINE_ACTIONS = ("start", "reboot")  # of rented machines, from the terminal
MOST_LOST = 100  # lost instances of the account, and what has left another list, that are shown


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of the account.

    `rows` are those of the last complete listing, at `listed_at`, by id, plus missing instances that are not known to
    be gone; `gone` are those that `show instance` did not find either. `error` is why the last listing failed,
    `stale_since` since when listings fail; `credit` in dollars.
    """

    rows: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    listed_at: float | None = None
    error: str | None = None
    stale_since: float | None = None
    credit: float | None = None

    def running(self) -> list[int]:
        """Return the ids of the instances that are not stopped, sorted."""
        return sorted(number for number, row in self.rows.items() if number >= 0 and not is_stopped(row))

    def about(self, number: int, before: Listed) -> Listed:
        """Return what is known of an instance, given what was known `before`. Only what is in `gone` is lost."""
        if self.listed_at is None:
            return Listed(error=self.error, stale_since=self.stale_since)
        if row := self.rows.get(number):
            billed = bill(before.row, before.billed, row, self.listed_at)
            return Listed(row, self.listed_at, False, self.error, self.stale_since, billed)
        if number not in self.gone:
            return Listed(error=f"vast.ai does not list vast://{number}; it is unknown whether it was destroyed")
        if before.row is not None:
            return before._replace(lost=True, error=None, stale_since=None)
        return Listed(None, None, True, f"vast://{number}: no such instance in this account")


class AccountLister:
    """Lists an account's instances and credit; called by one thread at a time, and `account` is replaced as a whole."""

    def __init__(self, known: Collection[int], transport: Transport | None, clock: Clock) -> None:
        self.account = Account()
        self._known, self._transport, self._clock = frozenset(known), transport, clock
        self._credit_at = 0.0

    def look(self) -> None:
        """List the instances. Raises TrainingMonitorError on failure; the previous listing is kept."""
        from training_monitor.vast.instances import list_instances_at_once  # most members are on no rented machine

        before = self.account
        known = self._known if before.listed_at is None else before.rows.keys()
        rows = list_instances_at_once(known, transport=self._transport)
        if before.error is not None:
            get_logger().info("the account's instances can be listed again")
        listed = {row["id"]: row for row in rows}
        kept, gone = self._look_for({*before.rows, *self._known} - listed.keys() - before.gone)
        gone |= before.gone - listed.keys()
        self.account = Account({**listed, **kept}, gone, self._clock.time(), credit=before.credit)

    def _look_for(self, absent: set[int]) -> tuple[dict[int, Mapping[str, Any]], frozenset[int]]:
        """Ask for instances missing in a listing; return those that may still exist, and those that are gone."""
        from training_monitor.vast.instances import show_instance

        kept = {number: row for number, row in self.account.rows.items() if number in absent}
        gone = set[int]()
        for number in sorted(absent)[:MOST_SHOWN]:
            try:
                kept[number] = show_instance(str(number), transport=self._transport)
            except InstanceNotFound:
                kept.pop(number, None)
                gone.add(number)
            except TrainingMonitorError as error:
                get_logger().info("instance %d is missing from the list and could not be queried: %s", number, error)
        return kept, frozenset(gone)

    def forget_gone(self, watched: Collection[int | None]) -> None:
        """Forget which instances are gone, except those that are still watched."""
        self.account = replace(self.account, gone=self.account.gone & {*watched, *self._known})

    def fail(self, error: str) -> None:
        """Record why a listing failed."""
        before = self.account
        if before.error is None:
            get_logger().warning("could not list the instances of the account: %s", error)
        known_since = (before.stale_since, before.listed_at, self._clock.time())
        since = next(when for when in known_since if when is not None)
        self.account = replace(before, error=error, stale_since=since)

    def look_at_credit(self) -> None:
        """Ask for the credit when that is due; it is unknown if that fails."""
        if self.account.error is not None or self._clock.monotonic() < self._credit_at:
            return
        self._credit_at = self._clock.monotonic() + CREDIT_SECONDS
        from training_monitor.vast.account import account_balance

        try:
            credit = account_balance(transport=self._transport).credit
        except TrainingMonitorError:
            credit = None
        self.account = replace(self.account, credit=credit)


class FleetMonitor(Engine):
    """Watch many trainings and their machines in the background, without blocking callers.

    Each member is queried every `config.interval` seconds, in one round trip. One listing covers all instances of the
    account. An instance that is missing from a complete listing is marked as lost; a failed listing changes nothing. A
    member that does not respond keeps its last values, marked with their age, and is retried with backoff. Each look
    replaces a member's values as a whole, so a snapshot never changes.

    Args:
        specs: the members to watch. If a target stands for several (`Target.is_list`), each of them becomes a member
            when it appears.
        whole_account: also watch every instance of the vast.ai account that is not stopped, including new ones.
        config: interval, log paths, thresholds, rules, budget.
        patterns: additional log patterns for metrics of your own.
        history: storage for samples, such as `History`; None: samples are not stored.
        tell: called with every alert as a Notice, such as `Outbox.post`.
        heartbeat: pinged after every round with a successful look.
        namespace: default namespace of pods.
        store: shares looks with other commands; None: looks are not shared.

    Raises:
        SettingsError: a target or a log path is invalid.
    """

    subject = "fleet"
    urgent = (ACCOUNT,)

    def __init__(
        self,
        specs: Sequence[MemberSpec] = (),
        *,
        whole_account: bool = False,
        config: FleetConfig = DEFAULT_CONFIG,
        patterns: Sequence[LogPattern] = (),
        history: History | None = None,
        tell: Callable[[Notice], Any] | None = None,
        heartbeat: Heartbeat | None = None,
        namespace: str = "default",
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(config.interval, clock)
        self.config, self._whole_account, self._transport = config, whole_account, transport
        self._make_member = partial(
            FleetMember, config=config, patterns=patterns, namespace=namespace, turn=threading.Lock(), store=store
        )
        self._members: dict[str, FleetMember] = {}
        self._view = FleetSnapshot(clock.time())
        lists = {spec.key: (spec, parse_target(spec.target, namespace=namespace)) for spec in specs}
        self._lists = {key: (spec, target) for key, (spec, target) in lists.items() if target.is_list}
        self._release_next = clock.monotonic() + RELEASE_SECONDS
        self._unlisted: dict[str, str] = {}  # why a list could not be asked for
        self._listed: dict[str, str] = {}  # its list, of each member that came with one
        self._add_members([spec for spec in specs if spec.key not in self._lists])
        self._named = frozenset(self._members)
        numbers = {member.instance for member in self._members.values() if member.instance is not None}
        self._lister = AccountLister(numbers, transport, clock) if whole_account or numbers else None
        self._actions = FleetActions(self._hear, store, transport, clock)
        self._record = FleetRecord(config, history, tell, store)
        self._outages = FleetOutages(config.outage_after, store, clock, heartbeat, self._record.add)
        self.show()

    # ------------------------------------------------------------ called by screens

    def snapshot(self) -> FleetSnapshot:
        """Return the current snapshot."""
        with self._lock:
            view, refreshing = self._view, not self._schedule.is_idle
            late = self._schedule.seconds_late(self.clock.monotonic())
        return replace(
            view,
            timestamp=self.clock.time(),
            alerts=self._record.alerts(),
            paused=self._paused,
            refreshing=refreshing,
            late=late,
        )

    def _repr_html_(self) -> str:
        from training_monitor.core.panel_html import format_html
        from training_monitor.core.panels import panel_of

        return format_html(panel_of(self.snapshot()))

    def clear_logs(self) -> None:
        """Discard the log lines shown so far."""
        for member in self._all_members():
            member.clear_logs()
        with self._lock:
            rows = tuple(replace(row, recent_logs=deque(maxlen=row.recent_logs.maxlen)) for row in self._view.rows)
            self._view = replace(self._view, rows=rows)
        self._tell_listeners()

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        """Return the samples of a member from the last hours, oldest first."""
        member = self._member(key)
        return member.recent() if member else ()

    def read_run(self, key: str) -> Run | None:
        """Read the progress file of a member now; None if it has no progress file. Raises TrainingMonitorError."""
        member = self._member(key)
        return member.read_run(self._transport) if member else None

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Start to stop or destroy members, or to start or reboot their machines. Alerts report the results.

        Raises:
            SettingsError: the action is unknown.
        """
        for key in dict.fromkeys(keys):
            self._actions.begin(action, key, self._member(key))

    def shell_command(self, key: str) -> list[str]:
        """Return the command that opens a shell on the machine of a member.

        Raises:
            TrainingMonitorError: the machine has no address at present, or is neither an instance nor an ssh host.
        """
        member = self._member(key)
        address = member.address() if member else None
        if address is None:
            raise TrainingMonitorError(f"{key}: cannot open a shell: the machine is not running, or has no address yet")
        way = address.connect(self._transport)
        if not isinstance(way, SshTransport):
            raise TrainingMonitorError(f"{key}: cannot open a shell: the target is neither an instance nor an ssh host")
        return way.shell()

    def recent_losses(self, key: str) -> list[float | None]:
        """Return the losses of a member from the last hours, oldest first. This is cheaper than `recent`."""
        member = self._member(key)
        return member.recent_losses() if member else []

    def acknowledge(self, identities: Collection[tuple[str, str, int]]) -> None:
        """Mark alerts as acknowledged, by their `identity`. They stay in the list and are shown last."""
        self._record.acknowledge(identities)
        self._tell_listeners()

    def update_all_metrics(self) -> dict[str, TrainingMetrics]:
        """Look at all members once, concurrently, wait for the results, and return the rows by key. Never raises."""
        self.ask_all()
        return {row.key: row for row in self._view.rows}

    # ------------------------------------------------------------ looks

    def keys(self) -> list[str]:
        """Return the keys of the account's listing, of other lists, and of the members that are queried one by one."""
        with self._lock:
            members = [key for key, member in self._members.items() if member.is_asked]
        return [*([ACCOUNT] if self._lister else []), *self._lists, *members]

    def look(self, key: str) -> None:
        """List the account, or look at one member."""
        member = self._members.get(key)
        if member:
            self._record.remember(member, self.clock.time())
            member.look(self.clock.time(), self._transport, partial(self._others_on, member))
            for each in member.beside.members:
                self._record.remember(each, self.clock.time())
        elif key in self._lists:
            self._take_list(key)
        elif key == ACCOUNT and self._lister:
            self._lister.look()
            self._take_listing(self._lister.account)
            self._note_change()
            self._lister.look_at_credit()
            for member in self._all_members():
                self._record.remember(member, self.clock.time())  # also for members that are not asked

    def fail(self, key: str, error: TrainingMonitorError) -> None:
        """Record the error of a failed look and keep the last values."""
        member = self._members.get(key)
        if member:
            for each in (member, *member.beside.members):
                each.fail(error, self.clock.time())
        elif key in self._lists:
            self._unlisted[key] = str(error)
        elif key == ACCOUNT and self._lister:
            self._lister.fail(str(error))
            self._take_listing(self._lister.account)

    def _take_listing(self, account: Account) -> None:
        """Pass the listing on to the members, and begin to look at new instances."""
        if self._whole_account and account.error is None:
            known = {member.instance for member in self._all_members()}
            new = [f"vast://{number}" for number in account.running() if number not in known]
            self._add_members([spec for target in new for spec in self.config.specs_of(target)])
        for member in self._all_members():
            if member.instance is not None:
                member.listed = account.about(member.instance, member.listed)
        self._forget_lost()
        if self._lister:
            self._lister.forget_gone({member.instance for member in self._all_members()})
        self._ask_more()

    def _take_list(self, key: str) -> None:
        """Begin to look at what is new on a list, and drop what has left it and cannot be asked any more.

        Raises:
            CommandError: it could not be asked for.
        """
        spec, target = self._lists[key]
        found = [replace(spec, target=str(each), name=None) for each in target.list_targets(self._transport)]
        self._unlisted.pop(key, None)
        names = {each.key for each in found}
        with self._lock:
            left = [each for each, of in self._listed.items() if of == key and each not in names]
            dropped = {each for each in left if self._members[each].seen.error is not None} | {*left[:-MOST_LOST]}
            self._members = {each: member for each, member in self._members.items() if each not in dropped}
            self._schedule.forget(dropped)
        new = [each for each in found if each.key not in self._members]
        self._listed = {each: of for each, of in self._listed.items() if each not in dropped}
        self._listed |= {each.key: key for each in new}
        self._add_members(new)
        self._ask_more()

    def _forget_lost(self) -> None:
        """Drop all but the newest lost instances that came with the account."""
        with self._lock:
            lost = [key for key, each in self._members.items() if each.listed.lost and key not in self._named]
            dropped = set(lost[:-MOST_LOST])
            self._members = {key: member for key, member in self._members.items() if key not in dropped}
            self._schedule.forget(dropped)

    def _add_members(self, specs: Sequence[MemberSpec]) -> None:
        """Add members; one that is named twice is added once, with the groups of both."""
        merged: dict[str, MemberSpec] = {}
        for spec in specs:
            before = merged.get(spec.key, spec)
            merged[spec.key] = replace(before, groups=tuple(dict.fromkeys((*before.groups, *spec.groups))))
        made = {key: self._make_member(spec) for key, spec in merged.items()}
        with self._lock:
            self._members = {**self._members, **made}

    def _all_members(self) -> list[FleetMember]:
        with self._lock:
            members = [each for key, each in self._members.items() if not (key in self._listed and each.is_lost)]
            return [each for member in members for each in member.shown]

    def _others_on(self, member: FleetMember) -> list[FleetMember]:
        with self._lock:
            return [each for each in self._members.values() if each is not member and each.target == member.target]

    def _member(self, key: str) -> FleetMember | None:
        with self._lock:
            member = self._members.get(key)
            if member and not (key in self._listed and member.is_lost):
                return member
        return next((each for each in self._all_members() if each.key == key), None)

    # ------------------------------------------------------------ snapshots and alerts

    def show(self) -> None:
        """Build a snapshot of all members."""
        members, now = self._all_members(), self.clock.time()
        rows = tuple(member.metrics(now) for member in members)
        account = self._lister.account if self._lister else Account()
        summary = summarize(
            rows,
            listed=None if account.listed_at is None else list(account.rows.values()),
            shown={member.instance for member in members if member.instance is not None},
            credit=account.credit,
            thresholds=self.config.thresholds,
            now=now,
            left_out=sum(member.beside.left_out for member in members),
        )
        view = FleetSnapshot(
            timestamp=now,
            rows=rows,
            summary=summary,
            groups=tuple(dict.fromkeys(group for member in members for group in member.spec.groups)),
            interval=self.interval,
            listed_at=account.listed_at,
            error="; ".join(filter(None, [account.error, *self._unlisted.values()])) or None,
            stale_since=account.stale_since,
        )
        with self._lock:
            self._view = view

    def judge(self) -> None:
        """Store the samples of the round and send the alerts."""
        view, members = self._view, {member.key: member for member in self._all_members()}
        seen = [(members[row.key], row) for row in view.rows if row.key in members]
        self._record.judge(seen, view.summary, view.timestamp)
        self._outages.judge((member for member, _ in seen if not member.is_found), view)
        if (began := self.clock.monotonic()) >= self._release_next:
            release_freed_memory()
            now = self.clock.monotonic()
            self._release_next = now + max(RELEASE_SECONDS, RELEASE_TIMES * (now - began))
        self._note_change()

    def _hear(self, alert: FleetAlert) -> None:
        """Report the result of an action on a member, and look again."""
        self._record.add(alert, self._member(alert.key))
        self.refresh()
        self._note_change()


# ---------------------------------------------------------------- actions


class FleetActions:
    """Acts on members in threads, one action per member at a time; `tell` gets the results from there."""

    def __init__(
        self, tell: Callable[[FleetAlert], None], store: Store | None, transport: Transport | None, clock: Clock
    ) -> None:
        self._tell, self._store, self._transport, self._clock = tell, store, transport, clock
        self._lock, self._under_way = threading.Lock(), set[str]()

    def begin(self, action: str, key: str, member: FleetMember | None) -> None:
        """Begin an action on a member. Raises SettingsError for an unknown one."""
        if action not in (*ACTIONS, *MACHINE_ACTIONS):
            raise SettingsError("action", action, " or ".join((*ACTIONS, *MACHINE_ACTIONS)))
        refusal = _refusal(action, member)
        if member is None or refusal:
            self._say(key, "refused", refusal, "warning")
            return
        place = member.place
        with self._lock:
            is_first = place not in self._under_way
            self._under_way.add(place)
        if not is_first:
            self._say(key, "refused", "another action on this member is in progress", "warning")
            return
        if not begin_thread(lambda: self._act(action, member, place), action):
            with self._lock:
                self._under_way.discard(place)
            self._say(
                key, "failed", f"failed to {action} this member: this machine cannot start another thread", "error"
            )

    def _act(self, action: str, member: FleetMember, place: str) -> None:
        member.ending = action if action in ACTIONS else None
        kind, text, level = "failed", "", "error"
        try:
            kind, text = self._do(action, member)
            level = "info"
        except TrainingMonitorError as error:
            text = f"failed to {action} this member: {error}"
        except Exception as error:  # the person who asked must see any failure
            get_logger().exception("%s: failed to %s it", member.key, action)
            text = f"failed to {action} this member: {error!r}"
        finally:
            with self._lock:
                self._under_way.discard(place)
        if kind == "failed":
            member.ending = None
        self._say(member.key, kind, text, level)

    def _do(self, action: str, member: FleetMember) -> tuple[str, str]:
        """Do it and return kind and text of the result. Raises TrainingMonitorError."""
        from training_monitor.vast.instances import destroy_instance, reboot_instance, start_instance, stop_instance

        name = member.target.name
        if action == "start":
            start_instance(name, transport=self._transport, clock=self._clock)
            return "started", "its start was requested; billing resumes"
        if action == "reboot":
            reboot_instance(name, transport=self._transport, clock=self._clock)
            return "rebooted", "it has shut down and is starting again"
        if action == "destroy":
            done = destroy_instance(name, store=self._store, transport=self._transport, clock=self._clock)
            if not done.acknowledged:
                return "gone", "vast.ai no longer has this instance"
            return "destroyed", "it was destroyed, including all data on its disk"
        if member.instance is not None:
            stop_instance(name, transport=self._transport, clock=self._clock)
            return "stopped", "it is stopped; its disk still costs money"
        assert member.spec.job
        status = stop_job(member.target, member.spec.job, transport=self._transport, clock=self._clock)
        return "stopped", f"{member.spec.job} has ended: {status}"

    def _say(self, key: str, kind: str, text: str, level: str) -> None:
        now = self._clock.time()
        self._tell(FleetAlert(now, key, kind, text, level, int(1000 * now)))


def _refusal(action: str, member: FleetMember | None) -> str:
    """Return why an action is impossible; empty if it is possible."""
    if member is None:
        return "no such member"
    if member.is_found and (action != "stop" or member.instance is not None):
        return f"{member.target} is a separate member: select it instead"
    if member.instance is not None:
        return ""
    if action != "stop":
        return f"{member.target} is not rented: there is nothing to {action}"
    is_job = member.spec.job and (not member.is_found or member.job.job_id)
    return "" if is_job else "cannot determine which job to stop: this member has no job ID"


def load_fleet_config(path: str | None = None) -> FleetConfig:
    """Load the table `fleet` of the settings file. Raises SettingsError with the name of the file and the key."""
    return load_table("fleet", partial(read_fleet_config, check_target=parse_target), path)
