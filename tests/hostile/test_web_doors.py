"""Connection floods and old cookies sent to the web page: neither costs the owner a request or opens the page."""

from __future__ import annotations

import json
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.hostile.tries import tried
from tests.integration.conftest import wait_until
from tests.integration.web_pages import PATIENCE, TOKEN, Answer, command, read_answer, request

FLOOD, REQUESTS = 280, 24
OPENINGS = (
    b"",
    b"G",
    b"GET /open HTTP/1.1\r\nHost: 127",
    b"POST /open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
)


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


def ask(port: int, *headers: str, target: str = "/api/me", method: str = "GET", body: bytes = b"") -> Answer:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(request(target, *headers, method=method, body=body, host=f"127.0.0.1:{port}"))
        return read_answer(connection)


def sign_in(port: int, token: str = TOKEN) -> str:
    """A Cookie header of a new session."""
    opened = ask(port, target="/open", method="POST", body=f"token={token}".encode())
    assert opened.status == 303, opened
    return f"Cookie: {opened.headers['set-cookie'].partition(';')[0]}"


def token_file(folder: Path, token: str = TOKEN) -> str:
    path = folder / "token"
    path.write_text(token)
    path.chmod(0o600)
    return str(path)


class Flood:
    """Sockets that show no session: silent ones, half requests, slow ones. Each that is cut comes back at once."""

    def __init__(self, port: int) -> None:
        self.port, self.opened, self.is_over = port, count(), threading.Event()
        self.cut = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        with selectors.DefaultSelector() as sockets:
            for _ in range(FLOOD):
                self.open(sockets)
            while not self.is_over.is_set():
                for key, events in sockets.select(0.1):
                    each = key.fileobj
                    assert isinstance(each, socket.socket)
                    if not self.go_on(each, key.data, events):
                        sockets.unregister(each)
                        each.close()
                        self.cut += 1
                        self.open(sockets)
                    elif events & selectors.EVENT_WRITE:
                        sockets.modify(each, selectors.EVENT_READ, key.data)
            for key in list(sockets.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def open(self, sockets: selectors.DefaultSelector) -> None:
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", self.port))
        opening = OPENINGS[next(self.opened) % len(OPENINGS)]
        sockets.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE, opening)

    def go_on(self, each: socket.socket, opening: bytes, events: int) -> bool:
        """Send the beginning of a request, or read; return whether the connection is still there."""
        try:
            if events & selectors.EVENT_READ:
                return bool(each.recv(4096))
            each.sendall(opening)
        except OSError:
            return False
        return True


@contextmanager
def a_flood(port: int) -> Iterator[Flood]:
    flood = Flood(port)
    flood.thread.start()
    try:
        assert wait_until(lambda: flood.cut > 20), "the flood is not noticed: it fits beside everybody else"
        yield flood
    finally:
        flood.is_over.set()
        flood.thread.join(PATIENCE)


def test_a_flood_of_strangers_costs_the_owner_no_request(tmp_path: Path) -> None:
    with command(tmp_path, "--mock", "--port", "0", "--token-file", token_file(tmp_path)) as (_, said):
        port = port_of(said["url"])
        cookie = sign_in(port)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as stream:
            stream.sendall(request("/events", cookie, host=f"127.0.0.1:{port}"))
            assert b" 200 " in stream.recv(100)
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as kept:
                kept.sendall(request("/api/me", cookie, host=f"127.0.0.1:{port}"))
                statuses = [read_answer(kept).status]
                with a_flood(port) as flood:
                    statuses += [ask(port, cookie).status for _ in range(REQUESTS)]
                    statuses += [ask(port, f"Authorization: Bearer {TOKEN}").status for _ in range(8)]
                    for _ in range(8):
                        kept.sendall(request("/api/me", cookie, host=f"127.0.0.1:{port}"))
                        statuses.append(read_answer(kept).status)
                    statuses += [ask(port, sign_in(port)).status for _ in range(4)]  # the owner may sign in meanwhile
                    before = flood.cut
                    assert wait_until(lambda: flood.cut > before + 100)
            stream.setblocking(False)
            with suppress(BlockingIOError):
                while stream.recv(1 << 20):
                    pass
            stream.settimeout(PATIENCE)
            assert stream.recv(100)  # news still come: it lived through all of it
        tried(len(statuses))
        assert set(statuses) == {200}, statuses


def test_a_cookie_of_another_token_port_or_state_folder_opens_nothing(tmp_path: Path) -> None:
    words = ("--mock", "--allow-write", "--token-file")
    with command(tmp_path, *words, token_file(tmp_path), "--port", "0") as (_, said):
        port = port_of(said["url"])
        cookie = sign_in(port)
        assert ask(port, cookie).json["allow_write"] is True
    other = tmp_path / "other"
    other.mkdir()
    pair = cookie.partition("=")[2]
    places = (
        (tmp_path, TOKEN, port, 200),
        (tmp_path, "another-token-of-some-length", port, 401),
        (other, TOKEN, port, 401),
        (tmp_path, TOKEN, 0, 401),
    )
    for folder, token, wanted, status in places:
        with command(folder, "--mock", "--token-file", token_file(folder, token), "--port", str(wanted)) as (_, said):
            found = port_of(said["url"])
            for header in (cookie, f"Cookie: training_monitor_{found}={pair}"):
                answer = ask(found, header)
                tried()
                assert answer.status == (status if found == port else 401), (folder, token, wanted, answer)
                if answer.status == 200:  # what may be done is decided by the server of now
                    assert answer.json["allow_write"] is False


def test_a_copy_of_the_cookie_ends_with_the_sign_out_also_after_a_restart(tmp_path: Path) -> None:
    with command(tmp_path, "--mock", "--token-file", token_file(tmp_path), "--port", "0") as (_, said):
        port = port_of(said["url"])
        cookie, other = sign_in(port), sign_in(port)
        forgery = ask(port, cookie).json["forgery_token"]
        for body in (b"", b"forgery_token=0", f"forgery_token={ask(port, other).json['forgery_token']}".encode()):
            refused = ask(port, cookie, target="/sign-out", method="POST", body=body)
            tried()
            assert refused.status == 403 and ask(port, cookie).status == 200
        foreign = ask(port, cookie, "Origin: http://evil.example", target="/sign-out", method="POST")
        assert foreign.status == 403
        renewed = ask(port, cookie, target="/").headers["set-cookie"].partition(";")[0]
        done = ask(port, cookie, target="/sign-out", method="POST", body=f"forgery_token={forgery}".encode())
        assert (done.status, done.headers["location"]) == (303, "/open") and "Max-Age=0" in done.headers["set-cookie"]
        assert [ask(port, each).status for each in (cookie, f"Cookie: {renewed}", other)] == [401, 401, 200]
    with command(tmp_path, "--mock", "--token-file", token_file(tmp_path), "--port", str(port)):
        tried(2)
        assert [ask(port, each).status for each in (cookie, f"Cookie: {renewed}", other)] == [401, 401, 200]


def test_what_a_page_asks_for_by_itself_renews_no_session(tmp_path: Path) -> None:
    body = json.dumps({}).encode()
    with command(tmp_path, "--mock", "--token-file", token_file(tmp_path), "--port", "0") as (_, said):
        port = port_of(said["url"])
        for kind in ("/api/me", "/metrics", "/api/act"):
            cookie = sign_in(port)
            token = f"X-Forgery-Token: {ask(port, cookie).json['forgery_token']}"
            answers = [ask(port, cookie, token, target=kind, method="POST" if kind == "/api/act" else "GET", body=body)]
            answers.append(ask(port, cookie, "Sec-Fetch-Mode: navigate", target="/"))  # a script loaded it again
            answers.append(ask(port, cookie, target="/api/note-act", method="POST", body=body))  # not by this page
            tried(len(answers))
            assert [answer for answer in answers if "set-cookie" in answer.headers] == [], kind
            acts = [ask(port, cookie, "Sec-Fetch-Mode: navigate", "Sec-Fetch-User: ?1", target="/")]
            acts.append(ask(port, cookie, token, target="/api/note-act", method="POST", body=body))
            assert all("Max-Age=43200" in answer.headers["set-cookie"] for answer in acts), kind
