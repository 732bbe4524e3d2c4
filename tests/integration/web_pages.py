"""A web page over made-up trainings, served in this process or by the command, and what asks it byte by byte."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.mock import MockFleet
from training_monitor.rent.queue import TrainingQueue
from training_monitor.web.access import LOOPBACK, make_session, session_key
from training_monitor.web.board import Board
from training_monitor.web.door import Door
from training_monitor.web.routes import Web
from training_monitor.web.server import WebServer, serve
from training_monitor.web.stream import Feed

KEY = b"k" * 32
TOKEN = "a-token-of-some-length"
PATIENCE = 60.0


@dataclass
class Answer:
    """An answer of the server, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A page that is served; `links` are the one-time links shown so far."""

    server: WebServer
    fleet: FleetMonitor
    feed: Feed
    links: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.server.port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    @property
    def cookie(self) -> str:
        """A Cookie header of somebody who is signed in."""
        assert self.server.web
        key = session_key(KEY, self.server.web.door.token, self.port)
        return f"Cookie: training_monitor_{self.port}={make_session(key, 's' * 20, time.time())}"

    def ask(self, target: str, *headers: str, method: str = "GET", body: bytes = b"", host: str = "") -> Answer:
        """The answer to one request on a connection of its own, signed in."""
        return self.say(request(target, *headers, self.cookie, method=method, body=body, host=host or self.host))

    def ask_stranger(self, target: str, *headers: str, method: str = "GET", body: bytes = b"") -> Answer:
        """The answer to somebody who is not signed in."""
        return self.say(request(target, *headers, method=method, body=body, host=self.host))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def say(self, sent: bytes) -> Answer:
        """What comes back for these bytes."""
        with self.connect() as connection:
            connection.sendall(sent)
            return read_answer(connection)

    @contextmanager
    def events(self, *headers: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """The events of a stream: the id, and the data."""
        with self.connect() as connection:
            connection.sendall(request("/events", *headers, self.cookie, host=self.host))
            file = connection.makefile("rb")
            assert b"200" in file.readline()
            while file.readline().strip():
                pass
            yield read_events(file)


def request(target: str, *headers: str, method: str = "GET", body: bytes = b"", host: str = "127.0.0.1") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def read_answer(connection: socket.socket) -> Answer:
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    headers = {}
    while line := file.readline().strip().decode("latin-1"):
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    body = file.read(int(headers["content-length"])) if "content-length" in headers else file.read()
    return Answer(status, headers, body)


def read_events(file: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that bring a state."""
    name = ""
    for raw in file:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            name = line.removeprefix("id: ")
        if line.startswith("data: ") and (found := json.loads(line.removeprefix("data: ")))["changes"] is not None:
            yield name, found["changes"]


@contextmanager
def served(
    fleet: FleetMonitor | None = None,
    *,
    allow_write: bool = False,
    token: str | None = None,
    history: History | None = None,
    queue: TrainingQueue | None = None,
) -> Iterator[Served]:
    """A page in this process."""
    fleet = fleet or MockFleet()
    server = WebServer("127.0.0.1", 0)
    links: list[str] = []
    door = Door(KEY, names=LOOPBACK, token=token, port=server.port, on_link=links.append)
    board = Board(fleet, allow_write=allow_write, history=history, queue=queue)
    feed = Feed(board.state)
    fleet.listen(feed.note_change)
    ready = threading.Event()
    door.offer_link()
    page = Web(board, feed, door, "fleet")
    thread = threading.Thread(target=serve, args=(server, page, ready.set), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield Served(server, fleet, feed, links)
    finally:
        server.shutdown()
        thread.join(PATIENCE)


@contextmanager
def command(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`training-monitor web --json WORDS`, and the line that it prints."""
    environ = {**os.environ, "TRAINING_MONITOR_STATE_DIR": str(folder / "state"), "HOME": str(folder)}
    argv = [sys.executable, "-m", "training_monitor", "web", "--json", *words]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stdout
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if readable else ""
        assert line, process.communicate(timeout=PATIENCE)
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
