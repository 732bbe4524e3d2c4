"""Where requests and mail may go: URLs and mail servers, checked without what talks to them. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

from training_monitor.core.errors import RestError, SettingsError
from training_monitor.core.regex import regex

REQUEST_SECONDS = 10.0
SECURITY = ("starttls", "ssl", "plain")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PRINTABLE_URL = regex(r"https?://[!-~]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server. security: starttls | ssl | plain; a password is never sent in plain text to another host."""

    host: str
    port: int
    security: str = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.security not in SECURITY:
            raise SettingsError("security", self.security, ", ".join(SECURITY))
        if self.security == "plain" and self.password and self.host not in _LOOPBACK:
            raise SettingsError("security", "plain", "starttls or ssl, because a password is set")


def check_url(url: str) -> str:
    """Check a URL and return its scheme://host, the only part that may be shown.

    Raises:
        RestError: the URL is not http or https, contains a user or password, or has invalid characters.
    """
    from urllib.parse import urlsplit

    with suppress(ValueError):
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        if _PRINTABLE_URL.fullmatch(url) and parts.hostname and not parts.username and not parts.password:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            return f"{parts.scheme}://{host}{port}"
    raise RestError("not a valid http or https URL (not shown, because it may contain a secret)", temporary=False)
