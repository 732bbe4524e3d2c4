"""What every channel for notices has; the channels are in `notify/channels/`.

A channel renders a notice in its own markup and makes one request. Its settings, the variables and secrets among them,
its rows of advice and how it writes a person's address stand beside its class; everything else follows from them.

Secrets are never shown: `repr` leaves them out, and `rest.py` keeps them out of its errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

from training_monitor.core.addresses import REQUEST_SECONDS, check_url
from training_monitor.core.advice import Advice, find_advice
from training_monitor.core.errors import CommandFailed, RestError, TrainingMonitorError, last_lines
from training_monitor.core.fields import PublicValue
from training_monitor.core.masking import MASK
from training_monitor.core.settings_table import MISFIT, Kind, Place, check_fields, choice, text, whole
from training_monitor.core.shown import shown_lines
from training_monitor.core.values import MOST_LOG_LINES, PRIORITIES, Notice
from training_monitor.notify.notice_text import PLAIN, Markup, render
from training_monitor.targets.transport import Transport

if TYPE_CHECKING:
    from training_monitor.core.rest import Response

# ---------------------------------------------------------------- what settings may be


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


ID = Kind("a number in quotes, or the @name of a channel", _read_id)
API = Kind("an http or https URL", _read_url)
URL = Kind("an http or https URL", _read_url, is_secret=True)
TOKEN = text("a token without spaces", "[!-~]+", is_secret=True)


LOG_LINES = whole(f"a whole number from 0 to {MOST_LOG_LINES}", least=0, most=MOST_LOG_LINES)


# ---------------------------------------------------------------- channels


class Doors(NamedTuple):
    """What sending needs besides the network: how programs are started, and the timeout of one request in seconds."""

    transport: Transport
    timeout: float = REQUEST_SECONDS
    has_store: bool = False


class User(Protocol):
    """Whom a notice goes to: what a `NotifiedUser` has beside the addresses that the channels define."""

    @property
    def name(self) -> str: ...
    @property
    def is_person(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, repr=False)
class Channel(PublicValue):
    """One way to notify a user, with the settings that all channels share.

    Attributes:
        minimum_priority: the lowest priority of notices that are sent through this channel.
        log_lines: the number of lines from the end of the log in a notice of a failure; 0: none.
    """

    name: ClassVar[str]
    own: ClassVar[str | None] = None  # the field of a person that holds their address on this channel
    default: ClassVar[str | None] = None  # the setting that holds the recipient of notices for nobody in particular
    needs_store: ClassVar[bool] = False  # the notifier's, which keeps every notice
    markup: ClassVar[Markup] = PLAIN
    advice: ClassVar[tuple[Advice, ...]] = ()  # by the words of its answers
    minimum_priority: Annotated[str, choice(*PRIORITIES)] = "low"
    log_lines: Annotated[int, LOG_LINES] = MOST_LOG_LINES

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of its settings, with those that follow from others."""
        return values

    @property
    def program(self) -> str:
        """The program of this machine that sends its notices; "" without one."""
        return ""

    def recipient(self, user: User) -> Any:
        """Return a person's own address and never another one; without a person, the default recipient."""
        if user.is_person:
            return getattr(user, self.own) if self.own else None
        return getattr(self, self.default) if self.default else self.name

    def obstacle(self, user: User, doors: Doors) -> str | None:
        """Return why this user cannot be notified this way; None if they can."""
        if self.needs_store and not doors.has_store:
            return "this channel needs an open state store"
        if self.recipient(user):
            return None
        if not user.is_person:
            return f"no {self.default}"
        return f"{user.name} has no {self.own}" if self.own else "this channel cannot notify individual users"

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        """Send a notice once, to a recipient as `recipient` returns it. Raises RestError or CommandError."""
        raise NotImplementedError

    @classmethod
    def advise(cls, error: TrainingMonitorError) -> str | None:
        """Return what a user may try after this error of it; None if unknown."""
        if isinstance(error, RestError):
            if advised := find_advice(error.body, cls.advice):
                return advised.hint
            if error.status == 429:
                return "wait, then try again: the service limits the message rate"
        return error.hint


# ---------------------------------------------------------------- sending


def post(url: str, message: object, doors: Doors, headers: dict[str, str] | None = None) -> Response:
    """Send JSON by POST. Raises RestError."""
    from training_monitor.core.rest import request

    return request("POST", url, json_body=message, headers=headers, timeout=doors.timeout)


def run(argv: tuple[str, ...], text: str | None, doors: Doors) -> None:
    """Run a program with this stdin. Raises CommandError, also when it fails."""
    result = doors.transport.run(argv, timeout=doors.timeout, input=text)
    if result.exit_code != 0:
        said = last_lines(result.stderr) or "it printed nothing"
        raise CommandFailed(f"{argv[0]} failed with exit code {result.exit_code}: {said}", argv=(argv[0],))


def as_json(notice: Notice) -> dict[str, Any]:
    """Return a notice as a value of JSON, with its whole text as `message`; `user` is nobody in particular."""
    values = {key: shown_lines(value) if isinstance(value, str) else value for key, value in asdict(notice).items()}
    fields = [{"label": shown_lines(label), "value": shown_lines(value)} for label, value in notice.fields]
    return {**values, "fields": fields, "user": None, "message": render(notice, PLAIN)}
