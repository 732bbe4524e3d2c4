"""The HTTP server: one thread a connection, and limits on their number, their time and what they may send."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from socketserver import TCPServer
from typing import Any

from training_monitor.core.engine import begin_thread
from training_monitor.core.errors import Hint, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.web.access import Refused
from training_monitor.web.routes import Reply, Request, Stream, Web, answer, error_reply, parse_target
from training_monitor.web.stream import RETRY_SECONDS

MOST_HEAD, MOST_BODY = 8192, 4096  # bytes
MOST_CONNECTIONS, MOST_STRANGERS, MOST_STREAMS = 256, 192, 128
STRANGER_SECONDS = 0.5  # that a connection has to show who it is before it makes way for a newer one
REQUEST_SECONDS = 10.0  # for a whole head or body, however slowly it comes
IDLE_SECONDS = 30.0  # between two requests of a connection
SEND_SECONDS = 20.0  # for one answer or event; a browser that does not take it is cut off
_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
)


class Places:
    """Which connections are served. Signed-in people keep theirs; the oldest stranger makes way for a newcomer.

    Addresses decide nothing: behind a tunnel or proxy all are the same. Who signed in is a stranger on each new
    connection until its first head is read, so that each stranger has a moment for it, and newcomers wait meanwhile.

    Args:
        most: connections. most_strangers: of these without a session; the other places are free for people with one.
    """

    def __init__(self, most: int, most_strangers: int) -> None:
        self._most, self._most_strangers = most, most_strangers
        self._strangers, self._known = dict[socket.socket, float](), set[socket.socket]()  # since when, oldest first
        self._news = threading.Condition()

    def take(self, connection: socket.socket) -> bool:
        """Give a newcomer a place; return False if people who are signed in have all of them."""
        with self._news:
            while len(self._strangers) >= self._most_strangers or len(self._strangers) + len(self._known) >= self._most:
                oldest = next(iter(self._strangers), None)
                if oldest is None:
                    return False
                wait = self._strangers[oldest] + STRANGER_SECONDS - time.monotonic()
                if wait <= 0:
                    del self._strangers[oldest]
                    with suppress(OSError):
                        oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end
                else:
                    self._news.wait(wait)
            self._strangers[connection] = time.monotonic()
            return True

    def keep(self, connection: socket.socket) -> None:
        """Note that a connection has shown a session; one that made way already stays without a place."""
        with self._news:
            if self._strangers.pop(connection, None) is not None:
                self._known.add(connection)
                self._news.notify()

    def leave(self, connection: socket.socket) -> None:
        """Free the place of a connection that ends."""
        with self._news:
            self._strangers.pop(connection, None)
            self._known.discard(connection)
            self._news.notify()


class WebServer(HTTPServer):
    """Serves one fleet's page.

    Args:
        host, port: where to listen; port 0: any free one.

    Raises:
        TrainingMonitorError: it cannot listen there.
    """

    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(self, host: str, port: int) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.web: Web  # set once the port is known
        self.places = Places(MOST_CONNECTIONS, MOST_STRANGERS)
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            what = f"the web page cannot be served at {host} port {port}: {error}"
            raise TrainingMonitorError(what, hint=Hint("use another {port=PORT}, or another {host=HOST}")) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without asking for the host's name, which may take long."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or refuse it where there are too many."""
        if not self.places.take(request):
            self._refuse(request)
        elif begin_thread(lambda: self._serve(request, client_address), "web connection") is None:
            self.places.leave(request)
            self._refuse(request)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # the browser went away, or was too slow
            pass
        except Exception:
            get_logger().exception("a request from the web page failed")
        finally:
            self.places.leave(request)
            self.shutdown_request(request)

    def _refuse(self, request: Any) -> None:
        with suppress(OSError):
            request.settimeout(0.0)
            request.send(_head(503, (("Connection", "close"),)) + b'{"error": "too many connections"}')
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what the accepting thread could not handle."""
        get_logger().exception("a connection to the web page failed")


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads heads and bodies within their limits, and lets the standard library parse them."""

    server: WebServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Answer requests until the connection ends."""
        self._pending = b""
        self.close_connection = False
        patience = REQUEST_SECONDS
        while not self.close_connection:
            try:
                self._answer_one(patience)
            except Refused as refused:
                self.close_connection = True
                self._send(error_reply(refused))
            patience = IDLE_SECONDS

    def _answer_one(self, patience: float) -> None:
        head = self._read_head(patience)
        if not head:
            self.close_connection = True
            return
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline(MOST_HEAD)
        if not self.parse_request():  # it has called send_error
            self.close_connection = True
            return
        if self.request_version not in ("HTTP/1.0", "HTTP/1.1"):
            raise Refused(400, "expected HTTP/1.1")
        request = self._request()
        try:
            answered = answer(self.server.web, request)
        except Refused as refused:
            answered = error_reply(refused)
        if isinstance(answered, Stream):
            self._stream(answered)
        else:
            self._send(answered)

    def _request(self) -> Request:
        names = [name.lower() for name in self.headers]
        if names.count("host") != 1 or names.count("content-length") > 1:
            raise Refused(400, "expected exactly one Host header and at most one Content-Length header")
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.server.web.door.is_signed_in(headers.get("cookie"), headers.get("authorization")):
            self.server.places.keep(self.connection)
        if "transfer-encoding" in headers:
            raise Refused(411, "expected Content-Length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "Content-Length is not a number")
        if len(length) > 9 or int(length) > MOST_BODY:
            raise Refused(413, f"the request body is longer than {MOST_BODY} bytes")
        body = self._read(int(length), time.monotonic() + REQUEST_SECONDS)
        return parse_target(self.command, self.path, headers, body)

    # ------------------------------------------------------------ reading

    def _read_head(self, patience: float) -> bytes:
        """Return a request's head; empty where the connection ended, or nothing came. Raises Refused."""
        deadline = time.monotonic() + patience
        while (end := self._pending.find(b"\r\n\r\n")) < 0 and len(self._pending) <= MOST_HEAD:
            had = len(self._pending)
            if not self._receive(deadline):
                if had:
                    raise Refused(408, "the complete request did not arrive in time")
                return b""
            if not had:
                deadline = time.monotonic() + REQUEST_SECONDS
        if not 0 <= end <= MOST_HEAD:
            raise Refused(431, f"the request header is longer than {MOST_HEAD} bytes")
        head, self._pending = self._pending[: end + 4], self._pending[end + 4 :]
        return head

    def _read(self, length: int, deadline: float) -> bytes:
        while len(self._pending) < length:
            if not self._receive(deadline):
                raise Refused(408, "the complete request body did not arrive in time")
        body, self._pending = self._pending[:length], self._pending[length:]
        return body

    def _receive(self, deadline: float) -> bool:
        """Receive more; return whether anything came."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        self.connection.settimeout(left)
        try:
            data = self.connection.recv(MOST_HEAD)
        except TimeoutError:
            return False
        self._pending += data
        return bool(data)

    # ------------------------------------------------------------ answering

    def _send(self, reply: Reply) -> None:
        self.connection.settimeout(SEND_SECONDS)
        ends = (("Connection", "close"),) if self.close_connection else ()
        length = ("Content-Length", str(len(reply.body)))
        head = _head(reply.status, (("Content-Type", reply.kind), length, *reply.headers, *ends))
        self.connection.sendall(head + reply.body)

    def _stream(self, stream: Stream) -> None:
        """Send events until the browser, the server or the session ends."""
        web, number = self.server.web, stream.number
        self.close_connection = True
        if not self.server.streams.acquire(blocking=False):
            raise Refused(503, "too many browsers are connected")
        try:
            self.connection.settimeout(SEND_SECONDS)
            head = _head(200, (("Content-Type", "text/event-stream"), ("Connection", "close")))
            self.connection.sendall(head + f"retry: {RETRY_SECONDS * 1000:.0f}\n\n".encode())
            while not (web.feed.is_closed or web.door.is_over(stream.session)):
                number, event = web.feed.wait(number)
                self.connection.sendall(event)
        finally:
            self.server.streams.release()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the standard library's parser refuses."""
        self.close_connection = True
        self._send(error_reply(Refused(int(code), HTTPStatus(code).phrase.lower())))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: addresses may hold one-time links."""


def _head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"{name}: {value}" for name, value in _HEADERS]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def serve(server: WebServer, web: Web, ready: Callable[[], object]) -> None:
    """Serve until interrupted; `ready` is called once requests are answered."""
    server.web = web
    try:
        web.feed.start()
        ready()
        server.serve_forever()
    finally:
        web.feed.close()
        server.server_close()
