"""Sends notices in the background, out of the store: what was posted is told even if this process ends first."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import AlreadySupervised, TrainingMonitorError
from training_monitor.notify.channels import NotifiedUser
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.store import KeptNotice, Store
from training_monitor.watching import Delivery, Notice

FIRST_BACKOFF, LONGEST_BACKOFF = 30.0, 600.0  # seconds
GIVEN_UP_AFTER = 24 * 3600.0  # seconds
_OTHERS_TURN = 2.0  # seconds until it is asked again whether another process still sends
_LOGGER = logging.getLogger("training_monitor")


@dataclass(eq=False, slots=True)
class _Held:
    """A notice that the store did not take, and who took it."""

    notice: Notice
    delivery: Delivery | None = None
    is_leaving: bool = False


class Outbox:
    """Takes notices at once and sends them in order, from a thread of its own.

    Each is written before `post` returns, where it can be, and marked after it was sent. A crash in between may tell it
    twice, and never loses it: the next outbox of the same store and user goes on with what is pending. Only one of
    them sends at a time.

    Args:
        notifier: sends.
        store: where what is pending outlives this process.
        user: whom to tell: a name that the notifier knows, a NotifiedUser, or None.
        clock: what the thread waits by.

    Raises:
        SettingsError: the notifier has no such user.
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
        self._holding = threading.Lock()
        self._held: list[_Held] = []
        self._held_names: set[tuple[str | None, str, int]] = set()
        self._backoffs: dict[int, float] = {}
        self._not_before: dict[int, float] = {}
        self._news, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="training_monitor notices", daemon=True)
        self._starting = threading.Lock()

    def __enter__(self) -> Outbox:  # noqa: PYI034 (Self is not in Python 3.10)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to send, first what an earlier process left; `post` does it too."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def post(self, notice: Notice) -> bool:
        """Write a notice down to be sent, and return at once. False for a repeat, which is dropped.

        While the store cannot be written, it is sent out of memory, and written down later.
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
        """Send what is due and end the thread, waiting for at most `timeout` seconds; the rest stays in the store."""
        self._closing.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _write(self, notice: Notice) -> bool | None:
        """Write a notice down behind those that are held; None where that cannot be. The caller has the lock."""
        try:
            self._write_held()
            return None if self._held else self._store.add_notice(self._user.name, notice, now=self._clock.time())
        except TrainingMonitorError as error:
            _LOGGER.warning("a notice is not written down: %s", error)
            return None

    def send_held(self) -> bool:
        """Give the store what it did not take; send that where it still cannot. True when nothing of it is left."""
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
        """Write down what is held, oldest first, up to what is being sent. Raises TrainingMonitorError."""
        user, now = self._user.name, self._clock.time()
        while self._held and not self._held[0].is_leaving:
            held = self._held[0]
            if held.delivery:
                self._store.save_delivery(user, held.notice, held.delivery, now=now)
            else:
                self._store.add_notice(user, held.notice, now=now)
            del self._held[0]

    def send_due(self) -> float | None:
        """Send what is pending and due, in order. Returns seconds until more may be due; None when nothing is left.

        Raises:
            TrainingMonitorError: the store cannot be used.
        """
        try:
            with self._store.hold(f"notices of {self._user.name}"):
                for kept in self._store.pending_notices(self._user.name):
                    if self._not_before.get(kept.number, 0.0) <= self._clock.monotonic():
                        self._send(kept)
                left = [kept.number for kept in self._store.pending_notices(self._user.name)]
        except AlreadySupervised:
            return _OTHERS_TURN
        now = self._clock.monotonic()
        return min((max(0.0, self._not_before.get(number, now) - now) for number in left), default=None)

    def _send(self, kept: KeptNotice) -> None:
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
            return
        self._backoffs.pop(kept.number, None)
        self._not_before.pop(kept.number, None)

    def _run(self) -> None:
        wait: float | None = 0.0
        while not self._closing.is_set():
            self._news.clear()
            if not self._closing.is_set():
                wait = self._try_to_send()
                self._clock.wait(self._news, LONGEST_BACKOFF if wait is None else wait)
        self._try_to_send()

    def _try_to_send(self) -> float | None:
        try:
            is_all_written = self.send_held()
            wait = self.send_due()
            return wait if is_all_written else FIRST_BACKOFF
        except TrainingMonitorError as error:
            _LOGGER.warning("notices wait: %s", error)
            return FIRST_BACKOFF


def _was_told(delivery: Delivery) -> bool:
    """The web list alone is nobody told, when a channel that should have been first failed."""
    return delivery.success and not (delivery.channel == "web" and delivery.error)
