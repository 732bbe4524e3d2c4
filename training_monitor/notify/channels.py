"""The channels for notices: each renders a notice in its own markup and makes one request.

Secrets are never shown: `repr` leaves them out, and `rest.py` keeps them out of its errors. `advise` says what to try
when a channel refuses.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from training_monitor.core.addresses import REQUEST_SECONDS, MailServer, check_url
from training_monitor.core.advice import find_advice
from training_monitor.core.errors import (
    CommandFailed,
    RestError,
    SettingsError,
    ToolNotFound,
    TrainingMonitorError,
    last_lines,
)
from training_monitor.core.frozen import asdict, dataclass, field, replace
from training_monitor.core.logger import get_logger
from training_monitor.core.masking import MASK, keep_secret, secrets_of_argv
from training_monitor.core.settings_table import MISFIT, Example, Kind, Place, check_fields, choice, items, text
from training_monitor.core.shown import shown_lines
from training_monitor.core.values import PRIORITIES, Notice
from training_monitor.notify.notice_text import (
    DESKTOP,
    DISCORD,
    NTFY,
    PLAIN,
    SLACK,
    TELEGRAM,
    one_line,
    render,
    render_body,
)
from training_monitor.targets.transport import Transport

if TYPE_CHECKING:
    from training_monitor.core.rest import Response

TELEGRAM_API = "https://api.telegram.org"
DISCORD_API = "https://discord.com/api/v10"
_SCHEMES = {"smtp": ("starttls", 587), "smtps": ("ssl", 465), "smtp+plain": ("plain", 25)}
_SERVER = "smtp[s]://[user@]host[:port], the password in TRAINING_MONITOR_SMTP_PASSWORD or password_env"
_NTFY_PRIORITY = {"low": "2", "normal": "3", "high": "4", "urgent": "5"}
_DESKTOP_URGENCY = {"low": "low", "normal": "normal", "high": "critical", "urgent": "critical"}
_ARGV = "a program and its arguments"
_BOT_TOKEN = text("a bot token such as 123456:ABC-DEF", r"(?a:\d+:[\w-]+)", is_secret=True)
_TOKEN = text("a token without spaces", "[!-~]+", is_secret=True)
_ADDRESS = text("an e-mail address", r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")


# ---------------------------------------------------------------- what their settings may be


def _read_id(value: Any, place: Place) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return place.note(MASK, "a text")
    return str(value) if re.fullmatch(r"-?\d+|@\w+", str(value), re.ASCII) else MISFIT


def _read_url(value: Any, place: Place) -> Any:
    try:
        check_url(value)
    except (RestError, TypeError, AttributeError):
        return MISFIT
    return value


def _read_server(value: Any, place: Place) -> Any:
    """Read a mail server given by its URL."""
    from urllib.parse import unquote, urlsplit

    if isinstance(value, MailServer):
        return value
    try:
        parts = urlsplit(value)
        security, usual_port = _SCHEMES[parts.scheme]
        port = parts.port or usual_port
    except (ValueError, KeyError, TypeError, AttributeError):
        return place.note(MASK, _SERVER)
    if not parts.hostname or parts.password is not None or parts.path.strip("/") or parts.query:
        return place.note(MASK, _SERVER)
    return MailServer(parts.hostname, port, security, unquote(parts.username) if parts.username else None)


def _read_addresses(value: Any, place: Place) -> Any:
    given = (value,) if isinstance(value, str) else value
    return items(_ADDRESS, least=0).read(given, place)


def _read_argv(value: Any, place: Place) -> Any:
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else ()
    is_fine = all(isinstance(word, str) and "\0" not in word for word in words)
    if not (is_fine and words and words[0]):
        return place.note(MASK, _ARGV)
    keep_secret(*secrets_of_argv(words))
    return words


_ID = Kind("a number in quotes, or @name of a channel", _read_id)
_API = Kind("an http or https URL", _read_url)
_URL = Kind("an http or https URL", _read_url, is_secret=True)


# ---------------------------------------------------------------- people and channels


@dataclass(frozen=True, slots=True)
class NotifiedUser:
    """A person to notify.

    Attributes:
        name: what `--notify` calls them.
        telegram_id: their number on Telegram.
        discord_id: their number on Discord.
        email: their address.
    """

    name: str = ""
    telegram_id: Annotated[str | int, _ID, Example("123456")] | None = None
    discord_id: Annotated[str | int, _ID, Example("80351110224678912")] | None = None
    email: Annotated[str, _ADDRESS, Example("anna@example.org")] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_person(self) -> bool:
        """Whether this is somebody; otherwise a notice goes to the channels' default recipients."""
        return self != NotifiedUser()


@dataclass(frozen=True, slots=True)
class Doors:
    """What sending needs besides the network: how programs are started, and the timeout of one request in seconds."""

    transport: Transport
    timeout: float = REQUEST_SECONDS
    has_store: bool = False


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One way to notify a user, with the settings that every channel has.

    Attributes:
        minimum_priority: of the notices that it takes.
    """

    name: ClassVar[str]
    own: ClassVar[str | None] = None  # the field of a person that holds their address on this channel
    default: ClassVar[str | None] = None  # the setting that holds the recipient of notices for nobody in particular
    minimum_priority: Annotated[str, choice(*PRIORITIES)] = "low"

    def __post_init__(self) -> None:
        check_fields(self)

    def recipient(self, user: NotifiedUser) -> Any:
        """Return a person's own address and never another one; without a person, the default recipient."""
        if user.is_person:
            return getattr(user, self.own) if self.own else None
        return getattr(self, self.default) if self.default else self.name

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        """Return why this user cannot be notified this way; None if they can."""
        if self.recipient(user):
            return None
        if not user.is_person:
            return f"no {self.default}"
        return f"no {self.own} of {user.name}" if self.own else "it has no addresses of persons"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        """Send a notice once. Raises RestError or CommandError."""
        raise NotImplementedError


@dataclass(frozen=True)
class Telegram(Channel):
    """A bot of Telegram.

    Attributes:
        token: of the bot, from @BotFather.
        chat_id: the recipient of notices without a named user.
        api_url: the address of the Bot API.
    """

    name, own, default = "telegram", "telegram_id", "chat_id"
    token: Annotated[str, _BOT_TOKEN, Example("123456:ABC-DEF")] = field(repr=False)
    chat_id: Annotated[str, _ID, Example("123456")] | None = None
    api_url: Annotated[str, _API] = TELEGRAM_API
    _moved: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)  # groups, to new ids

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        chat = str(self.recipient(user))
        try:
            self._send_to(self._moved.get(chat, chat), notice, doors)
        except RestError as error:
            moved = _new_chat(error)
            if moved is None:
                raise
            self._moved[chat] = moved
            news = f"the group {chat} has the id {moved} now: put it into the settings"
            get_logger().warning("telegram: %s", news)
            self._send_to(moved, replace(notice, fields=(*notice.fields, ("Telegram", news))), doors)

    def _send_to(self, chat: str, notice: Notice, doors: Doors) -> None:
        message = {
            "chat_id": chat,
            "text": render(notice, TELEGRAM),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
            "disable_notification": notice.priority == "low",
        }
        _post(f"{self.api_url.rstrip('/')}/bot{self.token}/sendMessage", message, doors)


@dataclass(frozen=True)
class DiscordUser(Channel):
    """The direct messages of a bot of Discord.

    Attributes:
        token: of the bot.
        user_id: the recipient of notices without a named user.
        api_url: the address of Discord's API.
    """

    name, own, default = "discord", "discord_id", "user_id"
    token: Annotated[str, _TOKEN, Example("token-of-the-bot")] = field(repr=False)
    user_id: Annotated[str, _ID, Example("80351110224678912")] | None = None
    api_url: Annotated[str, _API] = DISCORD_API

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        api, headers = self.api_url.rstrip("/"), {"Authorization": f"Bot {self.token}"}
        recipient = {"recipient_id": str(self.recipient(user))}
        conversation = _id_in(_post(f"{api}/users/@me/channels", recipient, doors, headers))
        _post(f"{api}/channels/{conversation}/messages", _discord_message(notice), doors, headers)


@dataclass(frozen=True)
class DiscordWebhook(Channel):
    """A channel of a Discord server.

    Attributes:
        url: the webhook of the channel, which needs no bot.
    """

    name = "discord"
    url: Annotated[str, _URL, "webhook", Example("https://discord.com/api/webhooks/ID/TOKEN")] = field(repr=False)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, _discord_message(notice), doors)


@dataclass(frozen=True)
class SlackWebhook(Channel):
    """A channel of a Slack workspace.

    Attributes:
        url: the webhook of the channel.
    """

    name = "slack"
    url: Annotated[str, _URL, Example("https://hooks.slack.com/services/T/B/TOKEN")] = field(repr=False)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, {"text": render(notice, SLACK), "unfurl_links": False}, doors)


@dataclass(frozen=True)
class Ntfy(Channel):
    """A topic of an ntfy server.

    Attributes:
        url: of the topic.
        token: where the server wants one.
    """

    name = "ntfy"
    url: Annotated[str, _URL, Example("https://ntfy.sh/my-topic")] = field(repr=False)
    token: Annotated[str, _TOKEN, Example("token-of-the-topic")] | None = field(default=None, repr=False)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        from training_monitor.core.rest import request

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
class Webhook(Channel):
    """Any server that accepts the notice as JSON.

    Attributes:
        url: gets the notice by POST.
    """

    name = "webhook"
    url: Annotated[str, _URL, Example("https://example.org/notices")] = field(repr=False)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _post(self.url, _as_json(notice, user), doors)


@dataclass(frozen=True)
class Email(Channel):
    """Mail to the user's address.

    Attributes:
        server: the mail server.
        sender: the address that it comes from.
        recipients: of notices without a named user.
        password: of the user at the server.
    """

    name, own, default = "email", "email", "recipients"
    server: Annotated[MailServer, Kind(_SERVER, _read_server), Example("smtp://me@example.org:587")]
    sender: Annotated[str, _ADDRESS, "from", Example("me@example.org")]
    recipients: Annotated[
        tuple[str, ...], Kind("e-mail addresses", _read_addresses), "to", Example(["me@example.org"])
    ] = ()
    password: Annotated[str, text("a text", is_secret=True), Example("password-of-the-account")] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        """Put the password beside the server's address."""
        super().__post_init__()
        if self.password:
            try:
                object.__setattr__(self, "server", replace(self.server, password=self.password))
            except SettingsError as error:
                raise SettingsError("server", MASK, error.expected) from error
            object.__setattr__(self, "password", None)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        from training_monitor.core.mail import send_mail

        found = self.recipient(user)
        recipients = [found] if user.is_person else found
        text = render(notice, PLAIN)
        send_mail(self.server, self.sender, recipients, one_line(notice), text, timeout=doors.timeout)


@dataclass(frozen=True)
class Desktop(Channel):
    """`notify-send` on this machine."""

    name = "desktop"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        urgency = f"--urgency={_DESKTOP_URGENCY[notice.priority]}"
        _run(("notify-send", urgency, "--", one_line(notice), render_body(notice, DESKTOP)), None, doors)


@dataclass(frozen=True)
class CommandChannel(Channel):
    """A program of the user's own.

    Attributes:
        argv: its words; the notice arrives as JSON on its stdin.
    """

    name = "command"
    argv: Annotated[tuple[str, ...], Kind(_ARGV, _read_argv), Example(["/usr/local/bin/page-me"])] = field(repr=False)

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        _run(self.argv, json.dumps(_as_json(notice, user)) + "\n", doors)


@dataclass(frozen=True)
class WebList(Channel):
    """The list on the web page. The notifier keeps every notice in the store, so this never fails if there is one."""

    name = "web"

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return super().obstacle(user, doors) if doors.has_store else "no store is open"

    def send(self, notice: Notice, user: NotifiedUser, doors: Doors) -> None:
        return None


# In the order in which they are tried by default.
CHANNELS: Mapping[str, tuple[type, ...]] = {
    "telegram": (Telegram,),
    "discord": (DiscordUser, DiscordWebhook),
    "slack": (SlackWebhook,),
    "ntfy": (Ntfy,),
    "webhook": (Webhook,),
    "email": (Email,),
    "desktop": (Desktop,),
    "command": (CommandChannel,),
    "web": (WebList,),
}


def _new_chat(error: RestError) -> str | None:
    """Return the id that Telegram gave a group when it made it a supergroup, if that is why it refuses."""
    try:
        moved = json.loads(error.body)["parameters"]["migrate_to_chat_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(moved) if type(moved) is int else None


def _post(url: str, message: object, doors: Doors, headers: dict[str, str] | None = None) -> Response:
    from training_monitor.core.rest import request

    return request("POST", url, json_body=message, headers=headers, timeout=doors.timeout)


def _discord_message(notice: Notice) -> dict[str, Any]:
    """Return the body of a message; flag 4 is SUPPRESS_EMBEDS: links are shown as text only."""
    return {"content": render(notice, DISCORD), "allowed_mentions": {"parse": []}, "flags": 4}


def _in_ascii(text: str) -> str:
    """Return a header's value; ntfy reads encoded words (RFC 2047)."""
    from email.header import Header

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
    values = {key: shown_lines(value) if isinstance(value, str) else value for key, value in asdict(notice).items()}
    fields = [{"label": shown_lines(label), "value": shown_lines(value)} for label, value in notice.fields]
    return {**values, "fields": fields, "user": user.name or None, "message": render(notice, PLAIN)}


def advise(channel: str, error: TrainingMonitorError) -> str | None:
    """Return what a user may try after this error of a channel; None if unknown."""
    if isinstance(error, RestError):
        if advised := find_advice(error.body, channel):
            return advised.hint
        if error.status == 429:
            return "wait: it asks for fewer messages"
    if isinstance(error, ToolNotFound) and channel == "desktop":
        if sys.platform == "darwin":
            return "a Mac has no notify-send: use the channel command, with a program that shows the notice"
        return "install notify-send (apt-get install libnotify-bin)"
    return error.hint
