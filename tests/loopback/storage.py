"""What stands in front of a moto S3 server and does what moto leaves out: it checks presigned URLs as S3 does.

A wrong key or signature and an expired URL get 403; all else is handed on. A test can hold requests, have them fail,
and have the content changed on its way.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

from training_monitor.uploads.presign import Storage

ACCESS_KEY, SECRET_KEY = "AKIDLOOPBACK", "loopback/secret+key"
BUCKET = "loopback-bucket"
_KEPT = ("content-length", "content-type", "etag", "x-amz-server-side-encryption")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        gate = cast("_Server", self.server).gate
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = f"{self.command} {unquote(urlsplit(self.path).path)}"
        part = dict(parse_qsl(urlsplit(self.path).query)).get("partNumber")
        gate.requests.append(f"{name} {part}" if part else name)
        gate.on_request(self.command, part)
        refusal = gate.refuse(self.command, self.path)
        if refusal is None and gate.failures and self.command in ("PUT", "POST") and (status := gate.failures.pop(0)):
            refusal = status, "InternalError", "We encountered an internal error"
        if refusal:
            status, code, message = refusal
            self._reply(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(), {})
        else:
            self._reply(*gate.forward(self.command, self.path, body))

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        with suppress(OSError):  # whoever asked may be dead by now
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, gate: StorageGate) -> None:
        self.gate = gate
        super().__init__(("127.0.0.1", 0), _Handler)


class StorageGate:
    """The server in front of moto at `port`, and the faults that a test can set at any time.

    `failures` are statuses for the next PUT and POST requests (0: answer this one), `seconds_late` moves its clock,
    `expire_next` calls as many valid URLs expired, `corrupt` changes what is PUT, `kms` encrypts (ETags are no MD5).
    `on_request(method, part number)` may hold a request.
    """

    def __init__(self, port: int) -> None:
        self._moto = port
        self.requests: list[str] = []
        self.failures: list[int] = []
        self.seconds_late = 0.0
        self.expire_next = 0
        self.corrupt = self.kms = False
        self.may_look = self.may_list = True
        self.on_request: Callable[[str, str | None], object] = lambda method, part: None
        self._server = _Server(self)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> StorageGate:  # noqa: PYI034 (Self is not in Python 3.10)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.forward("PUT", f"/{BUCKET}", b"")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def storage(self, key: str, secret_key: str = SECRET_KEY) -> Storage:
        """An object of the bucket behind this gate."""
        return Storage(BUCKET, key, endpoint_url=self.address, access_key=ACCESS_KEY, secret_key=secret_key)

    def content(self, key: str) -> bytes | None:
        """What the storage holds."""
        url = urlsplit(self.storage(key).sign("GET"))
        status, body, _ = self.forward("GET", f"{url.path}?{url.query}", b"", as_it_is=True)
        return body if status == 200 else None

    def unfinished(self) -> list[str]:
        """The ids of uploads in parts that were begun, and neither completed nor aborted."""
        listed = self.storage("any").sign("GET", {"uploads": ""}, whole_bucket=True)
        return re.findall(
            "<UploadId>(.*?)</UploadId>", self.forward("GET", listed.removeprefix(self.address), b"")[1].decode()
        )

    def begin_parts(self, key: str) -> str:
        """Begin an upload in parts, as somebody else does."""
        url = self.storage(key).sign("POST", {"uploads": ""})
        self.forward("POST", url.removeprefix(self.address), b"")
        return self.unfinished()[-1]

    def count(self, method: str) -> int:
        return sum(request.startswith(f"{method} ") for request in self.requests)

    def refuse(self, method: str, path: str) -> tuple[int, str, str] | None:
        """Status, code and message for a URL that S3 would not accept."""
        address = urlsplit(path)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        signed = {name: value for name, value in query.items() if not name.startswith("X-Amz-")}
        bucket, _, key = unquote(address.path).removeprefix("/").partition("/")
        when = time.strptime(query["X-Amz-Date"] + "UTC", "%Y%m%dT%H%M%SZ%Z")
        now, expires = time.mktime(when) - time.timezone, int(query["X-Amz-Expires"])
        storage = Storage(bucket, key or "any", endpoint_url=self.address, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        url = storage.sign(method, signed, expires=expires, now=now, whole_bucket=not key)
        if url.rpartition("=")[2] != query["X-Amz-Signature"]:
            return 403, "SignatureDoesNotMatch", "The request signature we calculated does not match"
        if time.time() + self.seconds_late > now + expires or self.expire_next > 0:
            self.expire_next -= 1
            return 403, "AccessDenied", "Request has expired"
        if method == "HEAD" and not self.may_look:
            return 403, "AccessDenied", "Access Denied"
        if "uploads" in signed and method == "GET" and not self.may_list:
            return 403, "AccessDenied", "Access Denied"
        return None

    def forward(
        self, method: str, path: str, body: bytes, *, as_it_is: bool = False
    ) -> tuple[int, bytes, dict[str, str]]:
        """Hand a request on to moto."""
        if self.corrupt and method == "PUT" and body and not as_it_is:
            body = body[:-1] + bytes([body[-1] ^ 1])
        connection = http.client.HTTPConnection("127.0.0.1", self._moto, timeout=30)
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() in _KEPT}
        connection.close()
        if self.kms and "etag" in headers:
            headers |= {"etag": '"0123456789abcdef0123456789abcdef"', "x-amz-server-side-encryption": "aws:kms"}
        return answer.status, content, headers
