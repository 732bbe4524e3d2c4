"""Sign browsers in: by a one-time link or a token, then by a cookie that a restart of the server leaves valid."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection

from training_monitor.core.frozen import dataclass
from training_monitor.core.store import Store
from training_monitor.web.access import (
    SESSION_SECONDS,
    Refused,
    bearer_of,
    find_cookie,
    forgery_token,
    is_foreign,
    is_known_host,
    is_same,
    make_session,
    session_of,
)

_KEPT_AS = "web sessions"
_BEARER = "bearer"  # the session of a program that brings the token with each request


@dataclass(frozen=True, slots=True)
class SigningKey:
    """What signs the sessions of this machine's web pages, in the state folder."""

    key: str


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
        key: signs the sessions.
        names: the host names under which the page may be asked for. addresses: and any address.
        token: signs in, typed or as a bearer; None: one-time links do.
        port: of the server.
        on_link: called with the path of each new one-time link.
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
    ) -> None:
        self._key, self.token, self._on_link = key, token, on_link
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
            raise Refused(421, "not a host name of this page: start it with --name NAME to allow another")

    def check_site(self, origin: str | None, site: str | None, host: str | None) -> None:
        """Raise Refused for a request that another site's page makes."""
        if is_foreign(origin, site, host or ""):
            raise Refused(403, "another site's page may not ask")

    def session(self, cookies: str | None, authorization: str | None) -> str:
        """Return the session of a request. Raises Refused without one."""
        bearer = bearer_of(authorization)
        if bearer is not None:
            if self.token is None or not is_same(bearer, self.token):
                raise Refused(401, "wrong token")
            return _BEARER
        found = session_of(self._key, find_cookie(cookies, self.cookie), time.time())
        if found is None:
            raise Refused(401, "not signed in")
        return found

    def check_forgery(self, session: str, given: str | None) -> None:
        """Raise Refused for a change that the session's own page did not ask for."""
        if session != _BEARER and not is_same(given, self.forgery_token(session)):
            raise Refused(403, "not asked for by this page: load it again")

    def forgery_token(self, session: str) -> str:
        """Return what the session's page has to send along with a change."""
        return forgery_token(self._key, session)

    def open_by_link(self, code: str) -> str:
        """Return the Set-Cookie header of a new session; the link is used up. Raises Refused."""
        with self._lock:
            if not self._code or not is_same(code, self._code):
                raise Refused(403, "This link was used already, or was never valid.")
            self._code = ""
        self.offer_link()
        return self._new_cookie()

    def open_by_token(self, token: str) -> str:
        """Return the Set-Cookie header of a new session. Raises Refused."""
        if self.token is None or not is_same(token, self.token):
            raise Refused(403, "This token is wrong.")
        return self._new_cookie()

    def _new_cookie(self) -> str:
        value = make_session(self._key, secrets.token_urlsafe(24), time.time())
        return f"{self.cookie}={value}; Path=/; Max-Age={int(SESSION_SECONDS)}; HttpOnly; SameSite=Strict"
