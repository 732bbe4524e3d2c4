"""E-mail, by a mail server of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from training_monitor.core.addresses import MailServer
from training_monitor.core.advice import advice_of
from training_monitor.core.errors import SettingsError
from training_monitor.core.masking import MASK
from training_monitor.core.settings_table import MISFIT, Example, Kind, Place, Variable, items, text
from training_monitor.core.shown import shown_lines
from training_monitor.core.values import Notice
from training_monitor.notify.channel import Channel, Doors
from training_monitor.notify.notice_text import one_line, render

_SCHEMES = {"smtp": ("starttls", 587), "smtps": ("ssl", 465), "smtp+plain": ("plain", 25)}
_UNKNOWN_SENDER = "nobody@localhost"  # stands in while the server's URL is wrong, to avoid a second error
_MAILBOX = text("an e-mail address", r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+")
Address: TypeAlias = Annotated[str, _MAILBOX, Example("anna@example.org")]


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
        return place.note(MASK, _SERVER.expected)
    if not parts.hostname or parts.password is not None or parts.path.strip("/") or parts.query:
        return place.note(MASK, _SERVER.expected)
    return MailServer(parts.hostname, port, security, unquote(parts.username) if parts.username else None)


def _read_addresses(value: Any, place: Place) -> Any:
    """Read several addresses, or a text of them with commas between, as a variable has them."""
    parts = [part for each in value.split(",") if (part := each.strip())] if isinstance(value, str) else value
    return items(_MAILBOX, least=0).read(parts or value, place)


_SERVER = Kind(
    "smtp[s]://[user@]host[:port], with the password in TRAINING_MONITOR_SMTP_PASSWORD or password_env", _read_server
)
_PASSWORD = text("a text", is_secret=True)


@dataclass(frozen=True, repr=False)
class Email(Channel):
    """Email to the user's address.

    Attributes:
        server: the mail server.
        sender: the address in the From header.
        recipients: the recipients of notices that are for no particular user.
        password: the password for the user name in the server's URL.
    """

    name, own, default = "email", "email", "recipients"
    advice = advice_of(
        (r"^421\b", "try again later: the server is busy or limits connections"),
        (
            r"Application-specific password required",
            "create an app password in the account's settings, and use it instead of the account's password",
        ),
        (r"Must issue a STARTTLS command", "use TLS: start the server's URL with smtp:// (STARTTLS) or smtps://"),
        (
            r"^535\b.{0,200}\bdisabled\b",
            "ask the administrator of this mail service to enable logins with a password",
        ),
        (r"^53[45]\b", "check the user name and the password"),
        (r"^530\b", "set the user name and the password that the server requires"),
        (
            r"sending (?:limit|quota) exceeded|^550\W{1,2}5\.4\.5",
            "wait until tomorrow: this account has reached its daily sending limit",
        ),
        (
            r"^550\W{1,2}5\.7\.2[6-9]|\b(?:SPF|DKIM|DMARC)\b",
            "send from an address whose domain authorizes this mail server (SPF, DKIM)",
        ),
        (
            r"relay(?:ing)? (?:access )?denied|unable to relay|relaying not (?:allowed|permitted)",
            "set a user name and a password, or use the mail server of the sender's domain: "
            "the configured server does not relay mail",
        ),
        (
            r"^(?:552|452)\b|mailbox (?:is )?full",
            "the recipient's mailbox is full: empty it, or use another address",
        ),
        (r"^55[013]\b|refused every recipient", "check the addresses of the recipient and the sender"),
    )

    server: Annotated[MailServer, _SERVER, Variable("TRAINING_MONITOR_SMTP"), Example("smtp://me@example.org:587")]
    sender: Annotated[str, _MAILBOX, "from", Variable("TRAINING_MONITOR_EMAIL_FROM"), Example("me@example.org")]
    recipients: Annotated[
        tuple[str, ...],
        Kind("e-mail addresses", _read_addresses),
        "to",
        Variable("TRAINING_MONITOR_EMAIL_TO"),
        Example(["me@example.org"]),
    ] = ()
    password: (
        Annotated[str, _PASSWORD, Variable("TRAINING_MONITOR_SMTP_PASSWORD"), Example("password-of-the-account")] | None
    ) = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Put the password beside the server's address."""
        super().__post_init__()
        if self.password:
            try:
                object.__setattr__(self, "server", replace(self.server, password=self.password))
            except SettingsError as error:
                raise SettingsError("server", MASK, error.expected) from error
            object.__setattr__(self, "password", None)

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values. If no sender is given and the server's user name is an address, it is the sender."""
        if "server" not in values:
            return values
        server = Place().read(_SERVER, values["server"])
        user = _UNKNOWN_SENDER if server is MISFIT else server.user or ""
        return {"from": user, **values} if "@" in user else values

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        from training_monitor.core.mail import send_mail

        recipients = [to] if isinstance(to, str) else to
        text, log = render(replace(notice, log=""), self.markup), shown_lines(notice.log)
        more = {"attached": ("end-of-log.txt", log)} if log else {}
        send_mail(self.server, self.sender, recipients, one_line(notice), text, timeout=doors.timeout, **more)
