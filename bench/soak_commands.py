"""Commands that run for long beside a soak, as users start them, whose memory is sampled one by one.

Each is a process of its own that looks at one local training every PAUSE seconds: `fleet`'s loop in `web` (which a
browser reads) and `metrics`, the loops of `watch` and `run`, and an MCP server that a client asks. `restart` and
`rent worker` have the supervisor that `run` has.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

PAUSE = 5
STEPS = 'i=0; while :; do i=$((i + 1)); echo "step $i/1000000 loss 0.5"; sleep 1; done'
FIRST = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}


def commands(folder: Path) -> Mapping[str, list[str]]:
    """Return the arguments of each command; their training writes `steps.log`."""
    log, every = str(folder / "steps.log"), ["--interval", f"{PAUSE}s"]
    seen = [*every, "--no-history", f"local#{log}"]
    return {
        "web": ["web", "--port", "0", *seen],
        "metrics": ["metrics", "--textfile", str(folder / "soak.prom"), *seen],
        "watch": ["watch", "--plain", *every, "--log", log, "local"],
        "run": ["run", *every, "--name", "soaked", "--", "sh", "-c", STEPS],
        "mcp": ["mcp"],
    }


@contextlib.contextmanager
def started(folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start a training and the commands that look at it; end them after the block."""
    training = subprocess.Popen(["sh", "-c", STEPS], stdout=(folder / "steps.log").open("w"), text=True)
    found: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, words in commands(folder).items():
            with (folder / f"{name}.out").open("w") as out:
                found[name] = subprocess.Popen(
                    [sys.executable, "-m", "training_monitor", *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if name == "mcp" else out,
                    stderr=out,
                    text=True,
                )
        yield found
    finally:
        for each in (training, *found.values()):
            each.kill()
            each.wait()
            for pipe in filter(None, (each.stdin, each.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()


def use(found: Mapping[str, subprocess.Popen[str]], folder: Path, ended: Event) -> int:
    """Ask the MCP server and the web page every PAUSE seconds until the end; return how often. Raises OSError."""
    server, asked = found["mcp"], 0
    _ask(server, "initialize", FIRST)
    while not ended.wait(PAUSE):
        asked += 1
        _ask(server, "tools/call", {"name": "check", "arguments": {"what": str(folder / "steps.log")}})
        words = (folder / "web.out").read_text().split()
        for address in (word for word in words if word.startswith("http://")):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=5).read()
        if gone := [name for name, each in found.items() if each.poll() is not None]:
            raise OSError(f"ended: {', '.join(gone)}: {(folder / f'{gone[0]}.out').read_text()[-500:]}")
    return asked


def _ask(server: subprocess.Popen[str], method: str, params: Mapping[str, object]) -> None:
    """Send a request and wait for its answer."""
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    while '"id":1' not in (line := server.stdout.readline()):
        if not line:
            raise OSError("the MCP server ended")
