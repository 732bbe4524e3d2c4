"""Messengers on the loopback interface, with the requests and answers of the real ones, and a small mail server.

HTTP: Telegram's Bot API, Discord's API and webhooks, Slack webhooks, ntfy, and a webhook that takes any JSON. They
validate what the real ones do. `faults` are used up, one by a request, before the service is asked.
"""

from __future__ import annotations

import base64
import html
import json
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

Json = dict[str, Any]
Answer = tuple[int, Json | str | None, dict[str, str]]

TELEGRAM_TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
DISCORD_TOKEN = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"
WEBHOOK_SECRET = "XXXXXXXXXXXXXXXXXXXXXXXX"
NTFY_TOKEN = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
NTFY_TOPIC = "alerts_R5x8k"
MAIL_PASSWORD = "correct-horse-battery"

BLOCKED_CHAT, BLOCKED_USER = "666", "999"
MOVED_CHAT, NEW_CHAT = "-4242", "-1001004242"  # a group that became a supergroup
_TAG = re.compile(r"<(/?)(\w*)[^>]*>?")
_TELEGRAM_TAGS = "b strong i em u ins s strike del code pre a tg-spoiler".split()


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        services = cast("_Server", self.server).services
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
        services.asked.append(asked)
        fault = services.faults.pop(0) if services.faults else None
        if fault is None:
            self._reply(*services.answer(asked))
        else:
            fault(self, asked)

    do_GET = do_PUT = do_POST

    def _reply(self, status: int, answer: Json | str | None, headers: dict[str, str]) -> None:
        data = b"" if answer is None else (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        if answer is not None:
            self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


Fault = Callable[[_Handler, Asked], None]


def refuse(status: int, answer: Json | str = "it broke", headers: dict[str, str] | None = None) -> Fault:
    """Answer with a status."""
    return lambda handler, _: handler._reply(status, answer, headers or {})


def rate_limit(seconds: float) -> Fault:
    """Answer 429 as each of the services does."""

    def fault(handler: _Handler, asked: Asked) -> None:
        if asked.path.startswith("/bot"):
            whole = int(seconds)
            words = f"Too Many Requests: retry after {whole}"
            answer: Json | str = _telegram_error(429, words)[1] or ""
            handler._reply(429, {**cast(Json, answer), "parameters": {"retry_after": whole}}, {})
        elif asked.path.startswith("/api/"):
            answer = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
            handler._reply(429, answer, {"Retry-After": str(max(1, int(seconds)))})
        else:
            handler._reply(429, "rate_limited", {"Retry-After": str(int(seconds))})

    return fault


def hang(handler: _Handler, _: Asked) -> None:
    """Never answer, until the other side leaves or the services end."""
    handler.close_connection = True
    cast("_Server", handler.server).services.ended.wait(20)


def drip(handler: _Handler, _: Asked) -> None:
    """Send a byte now and then: no single wait is long."""
    handler.close_connection = True
    ended = cast("_Server", handler.server).services.ended
    try:
        for letter in b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 1000:
            if ended.wait(0.02):
                return
            handler.wfile.write(bytes([letter]))
            handler.wfile.flush()
    except OSError:
        return


def drip_body(handler: _Handler, asked: Asked) -> None:
    """The same after the headers."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    drip(handler, asked)


def break_off(handler: _Handler, _: Asked) -> None:
    """Close the connection in the middle of an answer."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    handler.close_connection = True


def close_at_once(handler: _Handler, _: Asked) -> None:
    """Close the connection without a word."""
    handler.close_connection = True


def _with_tls(listener: socket.socket, certificate: Path) -> ssl.SSLSocket:
    """`certificate` is a PEM file with the key in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context.wrap_socket(listener, server_side=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, services: Services) -> None:
        self.services = services
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        return None  # the other side left, as it may


class Services:
    """The HTTP server, what it was asked, and its faults."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.ended = threading.Event()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        if certificate:
            self._server.socket = _with_tls(self._server.socket, certificate)
            self.url = f"https://localhost:{self._server.server_address[1]}"
        self.discord_api = f"{self.url}/api/v10"
        self.discord_webhook = f"{self.url}/api/webhooks/223704706495545344/{WEBHOOK_SECRET}"
        self.slack_webhook = f"{self.url}/services/T00000000/B00000000/{WEBHOOK_SECRET}"
        self.ntfy = f"{self.url}/{NTFY_TOPIC}"
        self.webhook = f"{self.url}/hook/{WEBHOOK_SECRET}"
        self.heartbeat = f"{self.url}/ping/{WEBHOOK_SECRET}"

    def __enter__(self) -> Services:  # noqa: PYI034 (Self is not in Python 3.10)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    @property
    def pings(self) -> int:
        """How often the dead-man service heard from somebody."""
        return sum(path == f"/ping/{WEBHOOK_SECRET}" for path in self.paths)

    @property
    def hooked(self) -> list[Json]:
        """What the webhook got."""
        return [asked.json for asked in self.asked if asked.path.startswith("/hook/")]

    def answer(self, asked: Asked) -> Answer:
        """What the service of this path answers."""
        services = {
            "/bot": _telegram,
            "/api/v10/": _discord,
            "/api/webhooks/": _discord_webhook,
            "/services/": _slack,
            f"/{NTFY_TOPIC}": _ntfy,
            "/hook/": _webhook,
            "/ping/": lambda asked: (200, "OK", {}),
        }
        found = next((act for start, act in services.items() if asked.path.startswith(start)), None)
        return found(asked) if found else (404, "no such service", {})


def _telegram_error(code: int, description: str) -> Answer:
    return code, {"ok": False, "error_code": code, "description": description}, {}


def _telegram(asked: Asked) -> Answer:
    token, _, method = asked.path.removeprefix("/bot").partition("/")
    if not re.fullmatch(r"\d+:[\w-]+", token) or method != "sendMessage":
        return _telegram_error(404, "Not Found")
    if token != TELEGRAM_TOKEN:
        return _telegram_error(401, "Unauthorized")
    message = asked.json
    chat, text = str(message.get("chat_id") or ""), str(message.get("text") or "")
    shown = html.unescape(_TAG.sub("", text)) if message.get("parse_mode") == "HTML" else text
    if not re.fullmatch(r"-?\d+|@\w+", chat) or chat == "404":
        return _telegram_error(400, "Bad Request: chat not found")
    if chat == MOVED_CHAT:
        code, answer, headers = _telegram_error(400, "Bad Request: group chat was upgraded to a supergroup chat")
        return code, {**cast(Json, answer), "parameters": {"migrate_to_chat_id": int(NEW_CHAT)}}, headers
    if chat == BLOCKED_CHAT:
        return _telegram_error(403, "Forbidden: bot was blocked by the user")
    if message.get("parse_mode") == "HTML" and (wrong := _wrong_markup(text)):
        return _telegram_error(400, f"Bad Request: can't parse entities: {wrong}")
    if not shown.strip():
        return _telegram_error(400, "Bad Request: message text is empty")
    if len(shown.encode("utf-16-le")) // 2 > 4096:
        return _telegram_error(400, "Bad Request: message is too long")
    sender = {"id": 110201543, "is_bot": True, "first_name": "watcher", "username": "watcher_bot"}
    where = {"id": chat, "first_name": "Alice", "type": "private"}
    sent = {"message_id": 7, "from": sender, "chat": where, "date": int(time.time()), "text": shown}
    return 200, {"ok": True, "result": sent}, {}


def _wrong_markup(text: str) -> str | None:
    """What Telegram says about HTML that it cannot read."""
    opened: list[str] = []
    for found in _TAG.finditer(text):
        offset = len(text[: found.start()].encode())
        if not found[0].endswith(">"):
            return f"Unclosed start tag at byte offset {offset}"
        if found[2] not in _TELEGRAM_TAGS:
            return f'Unsupported start tag "{found[2]}" at byte offset {offset}'
        if not found[1]:
            opened.append(found[2])
        elif not opened or opened.pop() != found[2]:
            return f"Unexpected end tag at byte offset {offset}"
    return f"Can't find end tag corresponding to start tag {opened[-1]}" if opened else None


def _discord(asked: Asked) -> Answer:
    if asked.headers.get("authorization") != f"Bot {DISCORD_TOKEN}":
        return 401, {"message": "401: Unauthorized", "code": 0}, {}
    if asked.path == "/api/v10/users/@me/channels":
        recipient = str(asked.json.get("recipient_id") or "")
        if not recipient.isdecimal():
            return 400, {"message": "Invalid Recipient(s)", "code": 50033}, {}
        return 200, {"id": f"319674150115{recipient}", "type": 1, "recipients": [{"id": recipient}]}, {}
    found = re.fullmatch(r"/api/v10/channels/(\d+)/messages", asked.path)
    if not found:
        return 404, {"message": "404: Not Found", "code": 0}, {}
    if found[1].endswith(BLOCKED_USER):
        return 403, {"message": "Cannot send messages to this user", "code": 50007}, {}
    content = asked.json.get("content")
    return _discord_refusal(content) or (200, {"id": "334385199974967042", "content": content}, {})


def _discord_refusal(content: object) -> Answer | None:
    if not isinstance(content, str) or not content.strip():
        return 400, {"message": "Cannot send an empty message", "code": 50006}, {}
    if len(content) > 2000:
        wrong = {"code": "BASE_TYPE_MAX_LENGTH", "message": "Must be 2000 or fewer in length."}
        return 400, {"message": "Invalid Form Body", "code": 50035, "errors": {"content": {"_errors": [wrong]}}}, {}
    return None


def _discord_webhook(asked: Asked) -> Answer:
    if not asked.path.endswith(f"/{WEBHOOK_SECRET}"):
        return 404, {"message": "Unknown Webhook", "code": 10015}, {}
    return _discord_refusal(asked.json.get("content")) or (204, None, {})


def _slack(asked: Asked) -> Answer:
    if not asked.path.endswith(f"/{WEBHOOK_SECRET}"):
        return 404, "no_service", {}
    try:
        text = asked.json.get("text")
    except (ValueError, AttributeError):
        return 400, "invalid_payload", {}
    return (200, "ok", {}) if isinstance(text, str) and text.strip() else (400, "no_text", {})


def _ntfy(asked: Asked) -> Answer:
    if asked.headers.get("authorization") != f"Bearer {NTFY_TOKEN}":
        link = "https://ntfy.sh/docs/publish/#authentication"
        return 401, {"code": 40101, "http": 401, "error": "unauthorized", "link": link}, {}
    if asked.headers.get("priority", "3") not in "1 2 3 4 5".split():
        return 400, {"code": 40007, "http": 400, "error": "invalid request: priority invalid"}, {}
    if len(asked.body) > 4096:
        return 400, {"code": 40014, "http": 400, "error": "invalid request: attachments not allowed"}, {}
    title = str(make_header(decode_header(asked.headers.get("title", ""))))
    sent = {"id": "sPs71M8A2T", "time": int(time.time()), "event": "message", "topic": NTFY_TOPIC, "title": title}
    return 200, {**sent, "message": asked.body.decode()}, {}


def _webhook(asked: Asked) -> Answer:
    try:
        return (202, {"received": bool(asked.json)}, {}) if asked.path.endswith(WEBHOOK_SECRET) else (404, "?", {})
    except ValueError:
        return 400, "this is no JSON", {}


# ---------------------------------------------------------------- mail


@dataclass
class Mailbox:
    """What the mail server took, and how it fails. fault: refuse | busy | hang | drip | close, for every message."""

    fault: str | None = None
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)


class _MailHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.box = cast("_MailServer", self.server).box
        self.logged_in = False
        if self.box.fault == "hang":
            self.box.ended.wait(20)
            return
        if self.box.fault == "drip":
            while not self.box.ended.wait(0.02):
                self._drip()
            return
        self._say("220 loopback ESMTP")
        while line := self.rfile.readline(2000):
            verb, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            if self.box.fault == "close" or not self._answer(verb.upper(), rest):
                return

    def _drip(self) -> None:
        try:
            self.wfile.write(b"2")
        except OSError:
            self.box.ended.set()

    def _say(self, line: str) -> bool:
        self.wfile.write(f"{line}\r\n".encode())
        return True

    def _answer(self, verb: str, rest: str) -> bool:
        """Whether the conversation goes on."""
        if verb == "EHLO":
            return self._say("250-loopback\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 AUTH PLAIN LOGIN")
        if verb == "AUTH":
            return self._say("235 2.7.0 ok" if self._log_in(rest) else "535 5.7.8 Username and Password not accepted")
        if verb == "MAIL":
            return self._say("250 ok" if self.logged_in else "530 5.7.0 Authentication Required")
        if verb == "RCPT":
            return self._receive(rest)
        if verb == "DATA":
            return self._take()
        if verb == "QUIT":
            self._say("221 bye")
            return False
        return self._say("250 ok" if verb in ("RSET", "NOOP") else "502 command not implemented")

    def _receive(self, rest: str) -> bool:
        if self.box.fault == "refuse":
            return self._say("550 5.1.1 no such user")
        self.box.recipients.append(rest)
        return self._say("250 ok")

    def _log_in(self, rest: str) -> bool:
        words = base64.b64decode(rest.partition(" ")[2]).split(b"\0") if rest.startswith("PLAIN ") else []
        self.logged_in = words == [b"", b"me@example.org", MAIL_PASSWORD.encode()]
        return self.logged_in

    def _take(self) -> bool:
        if self.box.fault == "busy":
            return self._say("451 4.7.1 try again later")
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b"."))
        self.box.messages.append(cast(EmailMessage, message_from_bytes(b"".join(lines), policy=policy.default)))
        return self._say("250 ok: queued")


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    box: Mailbox


class MailService:
    """A mail server that lets me@example.org in with MAIL_PASSWORD."""

    def __init__(self, certificate: Path | None = None) -> None:
        self._server = _MailServer(("127.0.0.1", 0), _MailHandler)
        self.box = self._server.box = Mailbox()
        if certificate:
            self._server.socket = _with_tls(self._server.socket, certificate)
        self.port = self._server.server_address[1]
        self.url = f"smtp+plain://me%40example.org@127.0.0.1:{self.port}"

    def __enter__(self) -> MailService:  # noqa: PYI034 (Self is not in Python 3.10)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.box.ended.set()
        self._server.shutdown()
        self._server.server_close()
