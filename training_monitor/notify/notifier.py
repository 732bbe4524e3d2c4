"""Try the channels in their order until one takes the notice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from training_monitor.core.addresses import REQUEST_SECONDS
from training_monitor.core.arguments import checked
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import (
    CommandError,
    CommandFailed,
    RestError,
    SettingsError,
    TrainingMonitorError,
    closest,
)
from training_monitor.core.logger import get_logger
from training_monitor.core.store import PLAIN_MESSAGE, Store
from training_monitor.core.values import PRIORITIES, Delivery, Notice, last_log_lines
from training_monitor.notify.channel import Channel, Doors
from training_monitor.notify.people import NotifiedUser
from training_monitor.targets.transport import LocalTransport, Transport

TRIES = 3
LONGEST_WAIT = 30.0  # seconds; a channel that asks for more is skipped


@checked
class TrainingNotifier:
    """Notify users through the first channel that works. Delivery errors are returned in the Delivery, not raised.

    Args:
        channels: the channels, in the order in which they are tried.
        users: the users, by the names that `notify` accepts.
        store: where sent notices are stored, so that the web page can still list them after this process ends. Without
            a store, sent notices are kept only in memory.
        transport: runs the programs that some channels need.
        clock: used to wait between attempts.
        timeout: maximum seconds for one request.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        *,
        users: Mapping[str, NotifiedUser] | None = None,
        store: Store | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
        timeout: float = REQUEST_SECONDS,
    ) -> None:
        self.channels = tuple(channels)
        self._users, self._store, self._clock = dict(users or {}), store, clock
        self._doors = Doors(transport or LocalTransport(), timeout, has_store=store is not None)
        self._told: set[tuple[str, str | None, str, int]] = set()

    def notify(
        self,
        user: str | NotifiedUser | None,
        message: str | Notice,
        priority: str = "normal",
        job_id: str | None = None,
    ) -> Delivery:
        """Notify a user now, through the first channel that accepts the message.

        Args:
            user: a name from the settings, or a NotifiedUser, who is notified only at the addresses given there; None:
                the channels' default recipients.
            message: a string or a Notice. The same Notice is sent to each user only once.
            priority: the priority, if the message is a string: low | normal | high | urgent.
            job_id: the job that the message refers to, if the message is a string.

        Returns:
            The result. For a repeated Notice, the result is `Delivery("suppressed", True)`.

        Raises:
            SettingsError: there is no such user or priority.
        """
        notice = plain_notice(message, priority, job_id) if isinstance(message, str) else message
        whom = self.find_user(user)
        if self._was_told(whom.name, notice):
            return Delivery("suppressed", True)
        delivery = self.deliver(whom, notice)
        kept = self._remember(whom.name, notice, delivery)
        return (
            delivery
            if kept or delivery.channel != "web"
            else Delivery("none", False, error="web: could not save the notice")
        )

    def deliver(self, user: str | NotifiedUser | None, notice: Notice) -> Delivery:
        """Send a notice, even if it was sent before, through the first channel that accepts it. Nothing is stored.

        Raises:
            SettingsError: there is no such user.
        """
        import socket

        whom, tries, errors = self.find_user(user), 0, list[str]()
        notice = replace(notice, host=notice.host or socket.gethostname())
        for channel in self.channels:
            if PRIORITIES.index(notice.priority) < PRIORITIES.index(channel.minimum_priority):
                continue
            if channel.obstacle(whom, self._doors):
                continue
            tried, error = self.try_channel(channel, whom, notice)
            tries += tried
            if error is None:
                return Delivery(channel.name, True, tries, "; ".join(errors) or None)
            errors.append(f"{channel.name}: {error.what}")
            get_logger().warning("could not send a notice through %s: %s", channel.name, error.what)
        nobody = f"no channel for {whom.name}" if whom.is_person else "no channel accepts this notice"
        return Delivery("none", False, tries, "; ".join(errors) or nobody)

    def try_channel(
        self, channel: Channel, user: NotifiedUser, notice: Notice
    ) -> tuple[int, TrainingMonitorError | None]:
        """Send through one channel, with retries. Return the number of attempts and the last error."""
        for tried in range(1, TRIES + 1):
            error = self._send(channel, user, notice)
            if not isinstance(error, RestError) or not error.temporary or tried == TRIES:
                return tried, error
            wait = 2.0 ** (tried - 1) if error.retry_after is None else error.retry_after
            if wait > LONGEST_WAIT:
                return tried, error
            self._clock.sleep(wait)
        raise AssertionError("unreachable code: the last attempt always returns")

    def obstacle(self, channel: Channel, user: NotifiedUser) -> str | None:
        """Return why this user cannot be notified through this channel; None if there is no obstacle."""
        return channel.obstacle(user, self._doors)

    def require_channel(self, user: NotifiedUser) -> None:
        """Raise CommandFailed if no channel can reach a user."""
        if user.is_person and all(self.obstacle(channel, user) for channel in self.channels):
            hint = f"add an address for a configured channel to [users.{user.name}] in the settings file"
            raise CommandFailed(f"no channel for {user.name}", hint=hint)

    def find_user(self, user: str | NotifiedUser | None) -> NotifiedUser:
        """Return the user with this name. Raises SettingsError if the settings have no such user."""
        if isinstance(user, NotifiedUser):
            if user.is_person and not user.name:  # notices are kept by name, and "" is nobody in particular
                raise SettingsError("user", "", "a NotifiedUser with a name")
            return user
        if user and user not in self._users:
            known = closest(user, self._users) if self._users else "a user in the settings file"
            raise SettingsError("user", user, known)
        return self._users[user] if user else NotifiedUser()

    def _send(self, channel: Channel, user: NotifiedUser, notice: Notice) -> TrainingMonitorError | None:
        try:
            shown = replace(notice, log=last_log_lines(notice.log, channel.log_lines))
            channel.send(shown, channel.recipient(user), self._doors)
        except (RestError, CommandError) as error:
            return error
        except Exception as error:  # a faulty channel must not end the watch; the error's text may contain a secret
            return TrainingMonitorError(f"failed with {type(error).__name__}")
        return None

    def _was_told(self, name: str, notice: Notice) -> bool:
        if notice.kind == PLAIN_MESSAGE:
            return False
        try:
            kept = self._store.has_notice(name, notice) if self._store else False
        except TrainingMonitorError as error:
            get_logger().warning("%s", error)
            kept = False
        return kept or _key(name, notice) in self._told

    def _remember(self, name: str, notice: Notice, delivery: Delivery) -> bool:
        """Record a delivery; return whether the store could keep it."""
        if delivery.success:
            self._told.add(_key(name, notice))
        try:
            if self._store:
                self._store.save_delivery(name, notice, delivery, now=self._clock.time())
        except TrainingMonitorError as error:
            get_logger().warning("%s", error)
            return False
        return True


def plain_notice(text: str, priority: str = "normal", job_id: str | None = None) -> Notice:
    """Return a notice with this text. Raises SettingsError for an unknown priority."""
    return Notice(PLAIN_MESSAGE, "", (), text, job_id, priority=priority, training=job_id)


def _key(name: str, notice: Notice) -> tuple[str, str | None, str, int]:
    return name, notice.job_id, notice.kind, notice.generation
