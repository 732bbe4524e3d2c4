"""The channels a notice can leave by: each renders it in its own markup and makes one request.

Secrets are never shown: `repr` leaves them out, and `rest.py` keeps them out of its errors.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from email.header import Header
from typing import Any, Protocol

from training_monitor.errors import CommandFailed, RestError, SettingsError, last_lines
from training_monitor.mail import MailServer, send_mail
from training_monitor.notify.notice_text import (
    DESKTOP,
    DISCORD,
    NTFY,
    PLAIN,
    SLACK,
    TELEGRAM,
    clean,
    one_line,
    render,
    render_body,
)
from training_monitor.rest import REQUEST_SECONDS, Response, check_url, request
from training_monitor.targets.transport import Transport
from training_monitor.watching import PRIORITIES, Notice

TELEGRAM_API = "https://api.telegram.org"
DISCORD_API = "https://discord.com/api/v10"
_TOKEN = re.compile(r"[!-~]+")
_TELEGRAM_TOKEN = re.compile(r"\d+:[\w-]+", re.ASCII)
_ADDRESS = re.compile(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")
_NTFY_PRIORITY = {"low": "2", "normal": "3", "high": "4", "urgent": "5"}
_DESKTOP_URGENCY = {"low": "low", "normal": "normal", "high": "critical", "urgent": "critical"}


@dataclass(frozen=True, slots=True)
class NotifiedUser:
    """Somebody to tell: what the messengers call them, and an e-mail address."""

    name: str = ""
    telegram_id: str | int | None = None
    discord_id: str | int | None = None
    email: str | None = None

    def __post_init__(self) -> None:
        for key in ("telegram_id", "discord_id"):
            _expect_id(key, getattr(self, key))
        if self.email is not None:
            _expect_address("email", self.email)


@dataclass(frozen=True, slots=True)
class Doors:
    """What sending needs besides the network: how programs are started, and seconds for one request."""

    transport: Transport
    timeout: float = REQUEST_SECONDS
    has_store: bool = False


class Channel(Protocol):
    """One way to tell somebody; `minimum_priority` is the lowest of the notices it takes."""

    @property
    def name(self) -> str: ...

    @property
    def minimum_priority(self) -> str: ...

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        """Why this user cannot be told this way; None when nothing is in the way."""
        ...

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        """Send it once. Raises RestError or CommandError."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """What every channel has."""

    minimum_priority: str = "low"

    def __post_init__(self) -> None:
        if self.minimum_priority not in PRIORITIES:
            raise SettingsError("minimum_priority", self.minimum_priority, ", ".join(PRIORITIES))

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None


@dataclass(frozen=True)
class Telegram(_Settings):
    """A bot; `chat_id` is who is told when the user has no telegram_id."""

    name = "telegram"
    token: str = field(repr=False)
    chat_id: str | None = None
    api_url: str = TELEGRAM_API

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _TELEGRAM_TOKEN.fullmatch(self.token):
            raise SettingsError("token", "***", "a bot token such as 123456:ABC-DEF")
        _expect_id("chat_id", self.chat_id)
        _expect_url("api_url", self.api_url)

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None if user.telegram_id or self.chat_id else "no telegram_id of the user and no chat_id"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        message = {
            "chat_id": str(user.telegram_id or self.chat_id),
            "text": render(notice, TELEGRAM),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
            "disable_notification": notice.priority == "low",
        }
        _post(f"{self.api_url.rstrip('/')}/bot{self.token}/sendMessage", message, doors)


@dataclass(frozen=True)
class DiscordUser(_Settings):
    """A bot's direct message; `user_id` is who is told when the user has no discord_id."""

    name = "discord"
    token: str = field(repr=False)
    user_id: str | None = None
    api_url: str = DISCORD_API

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_token("token", self.token)
        _expect_id("user_id", self.user_id)
        _expect_url("api_url", self.api_url)

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None if user.discord_id or self.user_id else "no discord_id of the user and no user_id"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        api, headers = self.api_url.rstrip("/"), {"Authorization": f"Bot {self.token}"}
        recipient = {"recipient_id": str(user.discord_id or self.user_id)}
        conversation = _id_in(_post(f"{api}/users/@me/channels", recipient, doors, headers))
        _post(f"{api}/channels/{conversation}/messages", _discord_message(notice), doors, headers)


@dataclass(frozen=True)
class DiscordWebhook(_Settings):
    """A channel of a Discord server."""

    name = "discord"
    url: str = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_url("webhook", self.url)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, _discord_message(notice), doors)


@dataclass(frozen=True)
class SlackWebhook(_Settings):
    """A channel of a Slack workspace."""

    name = "slack"
    url: str = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_url("url", self.url)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, {"text": render(notice, SLACK), "unfurl_links": False}, doors)


@dataclass(frozen=True)
class Ntfy(_Settings):
    """A topic of an ntfy server, by its URL."""

    name = "ntfy"
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_url("url", self.url)
        if self.token is not None:
            _expect_token("token", self.token)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        headers = {
            "Title": _in_ascii(one_line(notice)),
            "Priority": _NTFY_PRIORITY[notice.priority],
            "Tags": re.sub(r"[^\w-]+", "_", notice.kind, flags=re.ASCII),
            "Content-Type": "text/plain; charset=utf-8",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        body = render_body(notice, NTFY) or one_line(notice)
        request("POST", self.url, headers=headers, body=body.encode(), timeout=doors.timeout)


@dataclass(frozen=True)
class Webhook(_Settings):
    """Any server that takes the notice as JSON."""

    name = "webhook"
    url: str = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_url("url", self.url)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, _as_json(notice, user), doors)


@dataclass(frozen=True)
class Email(_Settings):
    """Mail to the user's address, or to `recipients` when the user has none."""

    name = "email"
    server: MailServer
    sender: str
    recipients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_address("from", self.sender)
        for address in self.recipients:
            _expect_address("to", address)

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None if user.email or self.recipients else "no e-mail address of the user and no recipients"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        recipients = [user.email] if user.email else self.recipients
        text = render(notice, PLAIN)
        send_mail(self.server, self.sender, recipients, one_line(notice), text, timeout=doors.timeout)


@dataclass(frozen=True)
class Desktop(_Settings):
    """`notify-send` on this machine."""

    name = "desktop"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        urgency = f"--urgency={_DESKTOP_URGENCY[notice.priority]}"
        _run(("notify-send", urgency, "--", one_line(notice), render_body(notice, DESKTOP)), None, doors)


@dataclass(frozen=True)
class CommandChannel(_Settings):
    """A program of the user's own; the notice arrives as JSON on its stdin."""

    name = "command"
    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.argv or not self.argv[0] or any("\0" in word for word in self.argv):
            raise SettingsError("argv", "***", "a program and its arguments")

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _run(self.argv, json.dumps(_as_json(notice, user)) + "\n", doors)


@dataclass(frozen=True)
class WebList(_Settings):
    """The list that the web page shows. The notifier keeps every notice in the store: with one, this never fails."""

    name = "web"

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None if doors.has_store else "no store is open"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        return None


def _post(url: str, message: object, doors: Doors, headers: dict[str, str] | None = None) -> Response:
    return request("POST", url, json_body=message, headers=headers, timeout=doors.timeout)


def _discord_message(notice: Notice) -> dict[str, Any]:
    """SUPPRESS_EMBEDS (4): links are shown as text only."""
    return {"content": render(notice, DISCORD), "allowed_mentions": {"parse": []}, "flags": 4}


def _in_ascii(text: str) -> str:
    """A header's value; ntfy reads encoded words (RFC 2047)."""
    return text if text.isascii() else Header(text, "utf-8", maxlinelen=10_000).encode(linesep="")


def _id_in(answer: Response) -> str:
    try:
        number = str(json.loads(answer.body)["id"])
    except (ValueError, KeyError, TypeError):
        number = ""
    if not number.isdecimal():
        raise RestError("Discord opened no conversation with this user", temporary=False)
    return number


def _run(argv: tuple[str, ...], text: str | None, doors: Doors) -> None:
    result = doors.transport.run(argv, timeout=doors.timeout, input=text)
    if result.exit_code != 0:
        said = last_lines(result.stderr) or "it said nothing"
        raise CommandFailed(f"{argv[0]} ended with exit status {result.exit_code}: {said}", argv=(argv[0],))


def _as_json(notice: Notice, user: NotifiedUser) -> dict[str, Any]:
    values = {key: clean(value) if isinstance(value, str) else value for key, value in asdict(notice).items()}
    fields = [{"label": clean(label), "value": clean(value)} for label, value in notice.fields]
    return {**values, "fields": fields, "user": user.name or None, "message": render(notice, PLAIN)}


def _expect_url(key: str, url: str) -> None:
    try:
        check_url(url)
    except RestError:
        raise SettingsError(key, "***", "an http or https URL") from None


def _expect_token(key: str, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise SettingsError(key, "***", "a token without spaces")


def _expect_id(key: str, value: str | int | None) -> None:
    if value is not None and not re.fullmatch(r"-?\d+|@\w+", str(value), re.ASCII):
        raise SettingsError(key, value, "a number in quotes, or @name of a channel")


def _expect_address(key: str, address: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise SettingsError(key, address, "an e-mail address")
