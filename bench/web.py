"""What the web page costs: requests beside a bare `http.server`, and 50 browsers on 1,000 members, one of them stuck.

    python3 bench/web.py [--requests 1000] [--seconds 20]

A server in a process of its own answers requests, each on a connection of its own, for a file of the page; so does
`http.server` for the same file. Printed are requests a second and processor time a request, and their ratios. Then 50
browsers watch 1,000 made-up members for SECONDS, the slowest of them reads nothing: the share of one core, what one
browser gets a second, and how long after a change all others have it.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.table import Row, as_table
from tests.integration.web_pages import read_events, request, served
from training_monitor.fleet.config import FleetConfig
from training_monitor.fleet.mock import MockFleet

STATIC = Path(__file__).parents[1] / "training_monitor" / "web" / "static"
FILE = "app.js"
MEMBERS, BROWSERS = 1000, 50
INTERVAL = 5.0
ROUNDS = 5
TICKS = os.sysconf("SC_CLK_TCK")


def serve_page(members: int) -> None:
    """Serve a fleet until stdin ends; say the port and a cookie."""
    fleet = MockFleet(count=members, config=FleetConfig(interval=INTERVAL))
    with served(fleet) as page:
        fleet.start()
        print(page.port, page.cookie, flush=True)
        sys.stdin.read()


@contextmanager
def process(*argv: str, folder: Path = STATIC) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program, and the first line that it says."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    started = subprocess.Popen(
        [sys.executable, "-u", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environ
    )
    try:
        assert started.stdout
        yield started, started.stdout.readline()
    finally:
        started.kill()
        started.wait()


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def ask(port: int, sent: bytes) -> int:
    """Send a request, read the answer to its end, and return its size."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(sent)
        size = 0
        while data := connection.recv(65536):
            size += len(data)
        return size


def measure_requests(count: int) -> list[Row]:
    bare = (
        "import http.server as s; s.SimpleHTTPRequestHandler.log_message = lambda *_: None;"
        "x = s.ThreadingHTTPServer(('127.0.0.1', 0), s.SimpleHTTPRequestHandler);"
        "print(x.server_port); x.serve_forever()"
    )
    size = (STATIC / FILE).stat().st_size
    with process("-c", bare) as (bare_process, port), process(__file__, "--serve", "12") as (ours_process, said):
        servers = {
            "bare": (bare_process.pid, int(port), f"GET /{FILE} HTTP/1.0\r\n\r\n".encode()),
            "ours": (ours_process.pid, int(said.split()[0]), request(f"/{FILE}", "Connection: close")),
        }
        rates: dict[str, list[float]] = {name: [] for name in servers}
        costs: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(ROUNDS):
            for name, (pid, number, sent) in servers.items():
                began, spent = time.perf_counter(), processor_seconds(pid)
                for _ in range(count // ROUNDS):
                    assert ask(number, sent) > size
                rates[name].append(count // ROUNDS / (time.perf_counter() - began))
                costs[name].append((processor_seconds(pid) - spent) * 1000 / (count // ROUNDS))
    rate, cost = ({name: statistics.median(taken) for name, taken in each.items()} for each in (rates, costs))
    beside = f"`http.server` sending a {size // 1000} kB file"
    return [
        Row("web page: requests per second", rate["ours"], "1/s", rate["bare"], beside, "at most 1.5x"),
        Row("web page: CPU time per request", cost["ours"], "ms", cost["bare"], beside, "at most 1.5x"),
    ]


def measure_browsers(seconds: float) -> list[Row]:
    with process(__file__, "--serve", str(MEMBERS)) as (server, said), ExitStack() as stack:
        port, cookie = int(said.split(" ", 1)[0]), said.split(" ", 1)[1].strip()
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stuck.connect(("127.0.0.1", port))
        stuck.sendall(request("/events", cookie))
        others = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(BROWSERS - 1)]
        for each in others:
            each.sendall(request("/events", cookie))
        for each in others:
            next(read_events(each.makefile("rb")))
        began, spent, size = time.monotonic(), processor_seconds(server.pid), 0
        first: dict[int, float] = {}
        late: list[float] = []
        while (left := began + seconds - time.monotonic()) > 0:
            readable, _, _ = select.select(others, [], [], min(left, 0.5))
            now = time.monotonic()
            if first and now - max(first.values()) > 0.5:  # all that belongs to one change has come
                late.append(max(first.values()) - min(first.values()))
                first = {}
            for each in readable:
                size += len(each.recv(1 << 20))
                first[each.fileno()] = now
        share = 100 * (processor_seconds(server.pid) - spent) / seconds
        stuck.close()
    crowd = (
        f"web page: CPU time with {MEMBERS:,} members, a refresh every {INTERVAL:.0f} s, and {BROWSERS} browsers, "
        "one of which does not read its data"
    )
    slowest = max(late, default=0.0) * 1000
    return [
        Row(crowd, share, "% of a core", None, "", "below 100 %"),
        Row("web page: data sent to each browser", size / seconds / (BROWSERS - 1) / 1000, "kB/s", None, "", ""),
        Row(
            "web page: longest delay between the first and the last browser to receive the same update",
            slowest,
            "ms",
            None,
            "",
            "below 2000 ms",
        ),
    ]


def rows() -> list[Row]:
    """Measure as `python3 -m bench` does."""
    return [*measure_requests(1000), *measure_browsers(20.0)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--serve", type=int, metavar="MEMBERS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_page(arguments.serve)
    else:
        print("\n".join(as_table([*measure_requests(arguments.requests), *measure_browsers(arguments.seconds)])))
