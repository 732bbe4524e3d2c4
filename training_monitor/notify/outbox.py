"""Send notices in the background, from the store: a posted notice is sent even if this process ends first."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import AlreadySupervised, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.store import KeptNotice, Store
from training_monitor.core.values import Delivery, Notice
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.people import NotifiedUser

FIRST_BACKOFF, LONGEST_BACKOFF = 30.0, 600.0  # seconds
GIVEN_UP_AFTER = 24 * 3600.0  # seconds
_OTHERS_TURN = 2.0  # seconds between checks whether another outbox still sends
_PAUSE = 2 * _OTHERS_TURN  # after a notice that could not be sent: another outbox may have a channel that works


@dataclass(eq=False, slots=True)
class _Held:
    """A notice that the store could not take, and its delivery, if it was sent from memory."""

    notice: Notice
    delivery: Delivery | None = None
    is_leaving: bool = False


class Outbox:
    """A queue that accepts notices immediately and sends them in order, from a separate thread.

    If possible, each notice is written to the store before `post` returns, and marked as sent after it was sent. A
    crash in between may cause a notice to be sent twice, but no notice is lost: the next outbox with the same store and
    user sends all pending notices. Of several outboxes with the same store and user, only one sends at a time.

    Args:
        notifier: sends the notices.
        store: keeps pending notices after this process ends.
        user: the recipient: a name from the notifier's users, a NotifiedUser, or None.
        clock: the clock of the separate thread.

    Raises:
        SettingsError: the notifier has no such user.
        CommandFailed: the notifier has no channel for this person.
    """

    def __init__(
        self,
        notifier: TrainingNotifier,
        store: Store,
        user: str | NotifiedUser | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._notifier, self._store, self._clock = notifier, store, clock
        self._user = notifier.find_user(user)
        notifier.require_channel(self._user)
        self._holding = threading.Lock()
        self._held: list[_Held] = []
        self._held_names: set[tuple[str | None, str, int]] = set()
        self._backoffs: dict[int, float] = {}
        self._not_before: dict[int, float] = {}
        self._news, self._closing = threading.Event(), threading.Event()
        self._has_failed, self._ends_at = False, float("inf")  # at the last try; by the monotonic clock
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Outbox:  # noqa: PYI034 (Self is not in Python 3.10)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start sending, beginning with notices that an earlier process left. `post` also starts sending."""
        with self._starting:
            self._thread = self._thread or begin_thread(self._run, "notices")

    def post(self, notice: Notice) -> bool:
        """Queue a notice, and return immediately. Return False for a repeated notice, which is dropped.

        While the store cannot be written, the notice is sent from memory, and stored later.
        """
        name = (notice.job_id, notice.kind, notice.generation)
        with self._holding:
            if name in self._held_names:
                return False
            is_new = self._write(notice)
            if is_new is None:
                self._held.append(_Held(notice))
                self._held_names.add(name)
                is_new = True
        self.start()
        self._news.set()
        return is_new

    def close(self, timeout: float = 10.0) -> None:
        """Send what is due, and end the thread. Wait at most `timeout` seconds; the rest stays in the store."""
        self._ends_at = self._clock.monotonic() + timeout
        self._closing.set()
        self._news.set()
        if self._thread:
            self._thread.join(timeout)

    def _write(self, notice: Notice) -> bool | None:
        """Store a notice behind those that are held; None if that is impossible. The caller holds the lock."""
        try:
            self._write_held()
            return None if self._held else self._store.add_notice(self._user.name, notice, now=self._clock.time())
        except TrainingMonitorError as error:
            get_logger().warning("a notice could not be saved: %s", error)
            return None

    def send_held(self) -> bool:
        """Store the notices held in memory, or send them if the store still fails. Return True if none is left."""
        with self._holding:
            try:
                self._write_held()
                return True
            except TrainingMonitorError:
                unsent = [each for each in self._held if each.delivery is None]
        for each in unsent:
            each.is_leaving = True
            delivery = self._notifier.deliver(self._user, each.notice)
            each.delivery = delivery if delivery.success and delivery.channel != "web" else None
            each.is_leaving = False
        return False

    def _write_held(self) -> None:
        """Store the held notices, oldest first, up to one that is being sent. Raises TrainingMonitorError."""
        user, now = self._user.name, self._clock.time()
        while self._held and not self._held[0].is_leaving:
            held = self._held[0]
            if held.delivery:
                self._store.save_delivery(user, held.notice, held.delivery, now=now)
            else:
                self._store.add_notice(user, held.notice, now=now)
            del self._held[0]

    def send_due(self) -> float | None:
        """Send the pending notices that are due, in order.

        Return the number of seconds until more may be due; None if nothing is left. After a failure, the remaining
        notices are not tried now, but stay due. While the outbox is being closed, all are tried until the time is up.

        Raises:
            TrainingMonitorError: the store cannot be used.
        """
        self._has_failed = False
        try:
            with self._store.hold(f"notices of {self._user.name}"):
                for kept in self._store.pending_notices(self._user.name):
                    now = self._clock.monotonic()
                    if now >= self._ends_at:
                        break
                    if self._not_before.get(kept.number, now) <= now and not self._send(kept):
                        self._has_failed = True
                        if not self._closing.is_set():
                            break
                numbers = [kept.number for kept in self._store.pending_notices(self._user.name)]
        except AlreadySupervised:
            return _OTHERS_TURN
        now = self._clock.monotonic()
        return min((max(0.0, self._not_before.get(number, now) - now) for number in numbers), default=None)

    def _send(self, kept: KeptNotice) -> bool:
        """Try once to send a notice; return whether it needs no further try."""
        delivery = self._notifier.deliver(self._user, kept.notice)
        now = self._clock.time()
        if _was_told(delivery):
            self._store.mark_notice(kept.number, "sent", delivery, now=now)
        elif now - kept.created_at >= GIVEN_UP_AFTER:
            self._store.mark_notice(kept.number, "failed", delivery, now=now)
        else:
            backoff = self._backoffs.get(kept.number, FIRST_BACKOFF)
            self._backoffs[kept.number] = min(2 * backoff, LONGEST_BACKOFF)
            self._not_before[kept.number] = self._clock.monotonic() + backoff
            self._store.mark_notice(kept.number, "pending", delivery, now=now)
            return False
        self._backoffs.pop(kept.number, None)
        self._not_before.pop(kept.number, None)
        return True

    def _run(self) -> None:
        wait: float | None = 0.0
        while not self._closing.is_set():
            self._news.clear()
            if not self._closing.is_set():
                wait = self._try_to_send()
                if self._has_failed:
                    self._clock.wait(self._closing, _PAUSE)
                self._clock.wait(self._news, LONGEST_BACKOFF if wait is None else wait)
        self._try_to_send()

    def _try_to_send(self) -> float | None:
        try:
            is_all_written = self.send_held()
            wait = self.send_due()
            return wait if is_all_written else FIRST_BACKOFF
        except TrainingMonitorError as error:
            get_logger().warning("undelivered notices stay in the outbox: %s", error)
            return FIRST_BACKOFF


def _was_told(delivery: Delivery) -> bool:
    """Return whether anyone was notified: the web list alone does not count if a channel before it failed."""
    return delivery.success and not (delivery.channel == "web" and delivery.error)
