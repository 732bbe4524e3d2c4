"""ntfy: a topic of a server of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from training_monitor.core.advice import advice_of
from training_monitor.core.settings_table import Example, Variable
from training_monitor.core.values import Notice
from training_monitor.notify.channel import LOG_LINES, TOKEN, URL, Channel, Doors
from training_monitor.notify.notice_text import Markup, one_line, render_body

_PRIORITY = {"low": "2", "normal": "3", "high": "4", "urgent": "5"}
_CODE = r"\"code\":\s*"


@dataclass(frozen=True, repr=False)
class Ntfy(Channel):
    """A topic on an ntfy server.

    Attributes:
        url: the URL of the topic.
        token: the access token, if the server requires one.
    """

    name = "ntfy"
    markup = Markup(1300)  # the limit is 4096 bytes, and a unit has at most three
    advice = advice_of(
        (rf"{_CODE}42909\b", "too many logins have failed: check the topic's access token, then wait"),
        (rf"{_CODE}42908\b", "wait until tomorrow, or upgrade the plan: today's message quota is used up"),
        (rf"{_CODE}401\d\d\b|\"error\":\s*\"unauthorized", "check the topic's access token"),
        (
            rf"{_CODE}403\d\d\b|\"error\":\s*\"forbidden",
            "check the topic's access token: it has no permission to write",
        ),
        (rf"{_CODE}429\d\d\b|limit reached", "wait, then try again: the service limits the message rate"),
    )

    url: Annotated[str, URL, Variable("TRAINING_MONITOR_NTFY"), Example("https://ntfy.sh/my-topic")] = field(repr=False)
    token: Annotated[str, TOKEN, Variable("TRAINING_MONITOR_NTFY_TOKEN"), Example("token-of-the-topic")] | None = field(
        default=None, repr=False
    )
    log_lines: Annotated[int, LOG_LINES] = field(default=0, kw_only=True)  # whoever knows the name of a topic reads it

    def send(self, notice: Notice, to: Any, doors: Doors) -> None:
        from training_monitor.core.rest import request

        headers = {
            "Title": _in_ascii(one_line(notice)),
            "Priority": _PRIORITY[notice.priority],
            "Tags": re.sub(r"[^\w-]+", "_", notice.kind, flags=re.ASCII),
            "Content-Type": "text/plain; charset=utf-8",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        body = render_body(notice, self.markup) or one_line(notice)
        request("POST", self.url, headers=headers, body=body.encode(), timeout=doors.timeout)


def _in_ascii(text: str) -> str:
    """Return a header's value; ntfy reads encoded words (RFC 2047)."""
    from email.header import Header

    return text if text.isascii() else Header(text, "utf-8", maxlinelen=10_000).encode(linesep="")
