"""Sign browsers in: by a one-time link or a token, then by a cookie that a restart of the server leaves valid."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import Hint
from training_monitor.core.store import Store
from training_monitor.web.access import (
    CLOCK_SECONDS,
    SESSION_SECONDS,
    Refused,
    bearer_of,
    find_cookie,
    forgery_token,
    is_foreign,
    is_known_host,
    is_open,
    is_same,
    make_session,
    session_key,
    session_of,
)

_KEPT_AS, _SIGNED_OUT = "web sessions", "web sign-outs at port"
_BEARER = "bearer"  # the session of a program that brings the token with each request


@dataclass(frozen=True, slots=True)
class SigningKey:
    """What signs the sessions of this machine's web pages, in the state folder."""

    key: str


@dataclass(frozen=True, slots=True)
class SignedOut:
    """The ids of sessions that a person ended, and until when their cookies would be valid (epoch seconds)."""

    until: dict[str, float] = field(default_factory=dict)


def load_key(store: Store) -> bytes:
    """Return this machine's key for sessions; make it if there is none. Raises TrainingMonitorError."""
    kept = store.load_run(_KEPT_AS, SigningKey, finished=True)
    if kept is None:
        kept = SigningKey(secrets.token_hex(32))
        store.save_run(_KEPT_AS, kept, finished=True)
    return bytes.fromhex(kept.key)


class Door:
    """Decides about requests by their headers; safe for any thread.

    Args:
        key: of the state folder; signs the sessions of this port and token.
        names: the host names under which the page may be asked for. addresses: and any address.
        token: signs in, typed or as a bearer; None: one-time links do.
        port: of the server.
        on_link: called with the path of each new one-time link.
        store: remembers who signed out; None: until this server ends.
    """

    def __init__(
        self,
        key: bytes,
        *,
        names: Collection[str],
        addresses: bool = False,
        token: str | None,
        port: int,
        on_link: Callable[[str], object],
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._key, self.token, self._on_link = session_key(key, token, port), token, on_link
        self._store, self._clock = store, clock
        self._kept_as = f"{_SIGNED_OUT} {port}"
        kept = store.load_run(self._kept_as, SignedOut, finished=True) if store else None
        self._signed_out = dict(kept.until) if kept else {}
        self._acted = dict[str, float]()  # when a person last acted in a session that this server knows
        self._names, self._addresses = frozenset(names), addresses
        self.cookie = f"training_monitor_{port}"
        self._lock, self._code = threading.Lock(), ""

    def offer_link(self) -> None:
        """Make a one-time link; the one before is not valid any more."""
        with self._lock:
            self._code = secrets.token_hex(24)  # no form of a secret that is masked where it is printed
            code = self._code
        self._on_link(f"/open?once={code}")

    def check_host(self, host: str | None) -> None:
        """Raise Refused for a host name that is not one of this page."""
        if not is_known_host(host, self._names, addresses=self._addresses):
            hint = Hint("to allow it, restart the web server with {name=HOST}").spell("shell")
            raise Refused(421, f"this host name is not allowed: {hint}")

    def check_site(self, origin: str | None, site: str | None, host: str | None) -> None:
        """Raise Refused for a request that another site's page makes."""
        if is_foreign(origin, site, host or ""):
            raise Refused(403, "requests from pages of other sites are refused")

    def session(self, cookies: str | None, authorization: str | None) -> str:
        """Return the session of a request. Raises Refused without one."""
        bearer = bearer_of(authorization)
        if bearer is not None:
            if self.token is None or not is_same(bearer, self.token):
                raise Refused(401, "wrong token")
            return _BEARER
        found = session_of(self._key, find_cookie(cookies, self.cookie), self._clock.time())
        if found is None or found.id in self._signed_out:
            raise Refused(401, "not signed in")
        with self._lock:
            self._acted[found.id] = max(found.acted, self._acted.get(found.id, 0.0))
        return found.id

    def is_signed_in(self, cookies: str | None, authorization: str | None) -> bool:
        """Return whether a request has a session."""
        try:
            self.session(cookies, authorization)
        except Refused:
            return False
        return True

    def is_over(self, session: str) -> bool:
        """Return whether a session has ended since a request brought it."""
        if session == _BEARER:
            return False
        return session in self._signed_out or not is_open(self._acted.get(session, 0.0), self._clock.time())

    def check_forgery(self, session: str, given: str | None) -> None:
        """Raise Refused for a change that the session's own page did not ask for."""
        if session != _BEARER and not is_same(given, self.forgery_token(session)):
            raise Refused(403, "this request did not come from the current page; reload the page")

    def forgery_token(self, session: str) -> str:
        """Return what the session's page has to send along with a change."""
        return forgery_token(self._key, session)

    def open_by_link(self, code: str) -> str:
        """Return the Set-Cookie header of a new session; the link is used up. Raises Refused."""
        with self._lock:
            if not self._code or not is_same(code, self._code):
                raise Refused(403, "This link has already been used, or was never valid.")
            self._code = ""
        self.offer_link()
        return self._new_cookie()

    def open_by_token(self, token: str) -> str:
        """Return the Set-Cookie header of a new session. Raises Refused."""
        if self.token is None or not is_same(token, self.token):
            raise Refused(403, "This token is wrong.")
        return self._new_cookie()

    def renew(self, session: str) -> tuple[tuple[str, str], ...]:
        """Return the headers that keep a session open because a person acts in it."""
        return () if session == _BEARER else (("Set-Cookie", self._cookie_of(session)),)

    def sign_out(self, session: str) -> str:
        """End a session, also for copies of its cookie; return the Set-Cookie header that removes it."""
        now = self._clock.time()
        with self._lock:
            self._signed_out = {each: until for each, until in self._signed_out.items() if now < until}
            self._signed_out[session] = now + SESSION_SECONDS + CLOCK_SECONDS
            if self._store:
                self._store.save_run(self._kept_as, SignedOut(self._signed_out), finished=True)
        return self._set_cookie("", 0)

    def _new_cookie(self) -> str:
        return self._cookie_of(secrets.token_urlsafe(24))

    def _cookie_of(self, session: str) -> str:
        now = self._clock.time()
        with self._lock:
            self._acted = {each: acted for each, acted in self._acted.items() if is_open(acted, now)}
            self._acted[session] = now
        return self._set_cookie(make_session(self._key, session, now), int(SESSION_SECONDS))

    def _set_cookie(self, value: str, seconds: int) -> str:
        return f"{self.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
