"""Make HTTP requests: one request, one answer of bounded size, and every failure a RestError.

A URL may be a secret (a webhook's is), so errors show only its scheme and host. Redirects are never followed. The proxy
of the environment is used for https, which it cannot read, and not for http.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import unquote

from training_monitor.core.addresses import REQUEST_SECONDS, check_url
from training_monitor.core.engine import finish_within
from training_monitor.core.errors import RestError
from training_monitor.core.masking import MASK

MAX_BODY_BYTES = 1024 * 1024
_SHOWN_CHARACTERS, _KEPT_CHARACTERS = 200, 2000
_SECRET_CHARACTERS = 12  # a part of a path of this length may be a token


class Response(NamedTuple):
    """An answer with a 2xx status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json_body: object = None,
    body: bytes | None = None,
    timeout: float = REQUEST_SECONDS,
) -> Response:
    """Make one HTTP request.

    Args:
        method: GET, POST, ...
        url: http or https, without user and password.
        headers: of the request.
        json_body: sent as JSON; None sends `body`.
        body: sent unchanged.
        timeout: seconds for the whole exchange, however slowly the bytes arrive.

    Raises:
        RestError: there was no answer (`status` is None), its status is not 2xx, or the URL is invalid.
    """
    origin = check_url(url)
    data = body if json_body is None else json.dumps(json_body).encode()
    own = {"User-Agent": "training-monitor", **({} if json_body is None else {"Content-Type": "application/json"})}
    asked = urllib.request.Request(url, data, {**own, **(headers or {})}, method=method)
    connections: list[http.client.HTTPConnection] = []
    try:
        answer = finish_within(
            timeout, lambda: _ask(asked, timeout, connections), "request", break_off=lambda: break_off(connections)
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _no_answer(origin, error, timeout) from None  # a chained cause may show the URL
    if 200 <= answer.status < 300:
        return answer
    said = _without_secrets(answer.body, url, headers or {})
    raise RestError(
        f"{origin} returned HTTP {answer.status}: {said[:_SHOWN_CHARACTERS] or '(nothing)'}",
        status=answer.status,
        body=said[:_KEPT_CHARACTERS],
        retry_after=_retry_after(answer),
        hint="use the address to which the server redirects" if 300 <= answer.status < 400 else None,
    )


def _ask(asked: urllib.request.Request, timeout: float, connections: list[http.client.HTTPConnection]) -> Response:
    """Make the exchange; another thread breaks it off by the list of its connections."""
    deadline = time.monotonic() + timeout
    # A proxy of the environment reads the headers of http requests; those of https are hidden from it.
    proxies = {scheme: proxy for scheme, proxy in urllib.request.getproxies().items() if scheme == "https"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _Connecting(connections), _EveryStatus())
    with opener.open(asked, timeout=timeout) as response:
        body = b"".join(_chunks(response, deadline)).decode("utf-8", "replace")
        return Response(response.status, {key.lower(): value for key, value in response.headers.items()}, body)


def _chunks(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    size = 0
    while chunk := response.read1(65536):
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise OSError(None, f"the response is longer than {MAX_BODY_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
        yield chunk
    if response.length:
        raise http.client.IncompleteRead(b"")


def break_off(connections: Iterable[Any]) -> None:
    """Wake the thread that waits for a server, so that it ends."""
    for connection in connections:
        if connection.sock:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


class _Connecting(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections and keeps them in a list."""

    def __init__(self, connections: list[http.client.HTTPConnection]) -> None:
        super().__init__()
        self.connections = connections

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._keep(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._keep(http.client.HTTPSConnection), req)

    def _keep(self, kind: type[http.client.HTTPConnection]) -> Any:
        def connect(host: str, **options: Any) -> http.client.HTTPConnection:
            self.connections.append(kind(host, **options))
            return self.connections[-1]

        return connect


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Accepts every answer: follows no redirect, raises for no status."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


def _no_answer(origin: str, error: Exception, timeout: float) -> RestError:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return RestError(f"{origin} sent no complete response within {timeout:g} s", hint="check the network")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return RestError(
            f"{origin}: {reason.verify_message}", hint="check the server's certificate and this machine's clock"
        )
    if isinstance(reason, OSError):
        return RestError(f"{origin}: {reason.strerror or type(reason).__name__}", hint="check the network")
    if isinstance(reason, ValueError):
        return RestError(f"{origin}: a header contains characters that cannot be sent", temporary=False)
    said = reason if isinstance(reason, str) else "the connection broke before the answer was complete"
    return RestError(f"{origin}: {said}")


def _without_secrets(body: str, url: str, headers: Mapping[str, str]) -> str:
    """Return an answer on one line, with the secrets of the request redacted."""
    path = url.partition("://")[2].partition("/")[2]
    parts = [*re.split(r"[/?&=:]", path), *(word for value in headers.values() for word in value.split())]
    secrets = [path, *(part for part in parts if len(part) >= _SECRET_CHARACTERS)]
    for secret in {*secrets, *map(unquote, secrets)} - {""}:
        body = body.replace(secret, MASK)
    return " ".join(body.split())


def _retry_after(answer: Response) -> float | None:
    """Return the seconds to wait: from the Retry-After header (seconds or a date), or Discord's or Telegram's body."""
    header = answer.headers.get("retry-after", "")
    waits = [_seconds(header), _seconds_until(header, answer.headers.get("date", ""))]
    with suppress(ValueError, AttributeError, TypeError):
        told = json.loads(answer.body)
        waits += [_seconds(told.get("retry_after")), _seconds((told.get("parameters") or {}).get("retry_after"))]
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds(value: object) -> float | None:
    if not isinstance(value, (str, int, float)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) or seconds < 0 else seconds


def _seconds_until(date: str, now: str) -> float | None:
    """Return the seconds until an HTTP date, by the server's own clock if it is known."""
    try:
        then = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    try:
        return max(0.0, then - parsedate_to_datetime(now).timestamp())
    except (ValueError, TypeError, OverflowError):
        return max(0.0, then - time.time())
