"""Decide who may ask: host names, sites, sessions, tokens and one-time links. Pure.

A browser is signed in by a cookie `ID.ACTED.SIGNATURE`: a random id, when a person last acted in epoch seconds, and
their HMAC. Its key is derived from the key of the state folder, the port and the hash of the token, so a new token
ends all sessions. The token against forged requests is another HMAC of the same id.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass

from training_monitor.core.regex import regex

SESSION_SECONDS = 12 * 3600.0  # after a person's last act
CLOCK_SECONDS = 300.0  # how far this machine's clock may be set back before a session ends
LEAST_TOKEN = 16  # characters
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = regex(r"(\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\.?)(?::[0-9]{1,5})?")
_ADDRESS = regex(r"\[[0-9a-f:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_SESSION = regex(r"([A-Za-z0-9_-]{16,64})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Refused(Exception):
    """A request that gets nothing but a status and a short reason."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address to listen at."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def is_known_host(host: str | None, names: Collection[str], *, addresses: bool = False) -> bool:
    """Return whether a Host header has one of these names, with any port, as behind `ssh -L`.

    A page of another site whose name leads here (DNS rebinding) sends its own name, never an address: with
    `addresses`, each of them is allowed.
    """
    found = _HOST.fullmatch((host or "").lower())
    if found is None:
        return False
    name = found[1].removesuffix(".")
    return name in names or (addresses and _ADDRESS.fullmatch(name) is not None)


def is_host_name(text: str) -> bool:
    """Return whether a text is a host name or address without a port."""
    found = _HOST.fullmatch(text.lower())
    return found is not None and found[1] == text.lower()


def is_foreign(origin: str | None, site: str | None, host: str) -> bool:
    """Return whether a browser says that another site's page asks, by `Origin` and `Sec-Fetch-Site`.

    Programs that are no browsers send neither.
    """
    if site is not None and site.lower() not in ("same-origin", "none"):
        return True
    return origin is not None and origin.lower().partition("://")[2] != host.lower()


# ---------------------------------------------------------------- sessions


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser: its random id, and when a person last acted in it (epoch seconds)."""

    id: str
    acted: float


def session_key(key: bytes, token: str | None, port: int) -> bytes:
    """Return the key for the sessions of one port and token, from the key of the state folder."""
    hashed = "none" if token is None else hashlib.sha256(token.encode()).hexdigest()
    return bytes.fromhex(_sign(key, "sessions", f"{port} {hashed}"))


def make_session(key: bytes, session: str, now: float) -> str:
    """Return the cookie's value for a session with a random id, in which a person acts now."""
    text = f"{session}.{int(now)}"
    return f"{text}.{_sign(key, 'session', text)}"


def session_of(key: bytes, cookie: str | None, now: float) -> Session | None:
    """Return the session that a cookie's value proves; None when it is forged or has ended."""
    found = _SESSION.fullmatch(cookie or "")
    if found is None or not is_same(found[3], _sign(key, "session", f"{found[1]}.{found[2]}")):
        return None
    session = Session(found[1], float(found[2]))
    return session if is_open(session.acted, now) else None


def is_open(acted: float, now: float) -> bool:
    """Return whether a session is open whose last act was at that time; one in the future proves nothing."""
    return -CLOCK_SECONDS <= now - acted < SESSION_SECONDS


def is_act(mode: str | None, user: str | None) -> bool:
    """Return whether a person loads the page, by `Sec-Fetch-Mode` and `Sec-Fetch-User`: a refresh by a script is none.

    Browsers send neither to a plain http address of another machine.
    """
    return mode is None or (mode == "navigate" and user == "?1")


def forgery_token(key: bytes, session: str) -> str:
    """Return what a request that changes something has to bring along: another site's page cannot read it."""
    return _sign(key, "act", session)


def find_cookie(header: str | None, name: str) -> str | None:
    """Return a cookie of a Cookie header."""
    pairs = (part.strip().partition("=") for part in (header or "").split(";"))
    return next((value for each, _, value in pairs if each == name), None)


def bearer_of(header: str | None) -> str | None:
    """Return the token of an Authorization header."""
    kind, _, token = (header or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def is_same(given: str | None, expected: str) -> bool:
    """Compare a secret in constant time."""
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _sign(key: bytes, purpose: str, text: str) -> str:
    return hmac.new(key, f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()
