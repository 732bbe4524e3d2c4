"""A client of `training-monitor mcp` by hand-written messages: the real server in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 60.0  # that any answer may take on a busy machine
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


class Client:
    """Starts a server, writes lines to it, and reads its lines. `version` None sends the stateless era's `_meta`."""

    def __init__(self, *options: str, version: str | None = None, code: str = "", **environ: str) -> None:
        start = ["-c", code] if code else ["-m", "training_monitor"]
        self.process = subprocess.Popen(
            [sys.executable, *start, "mcp", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        )
        self.version, self.noise = version, list[Any]()
        self._lines = queue.Queue[bytes]()
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()
        self._errors = list[bytes]()
        threading.Thread(target=self._read_errors, daemon=True).start()
        if version:
            self.initialized = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo={})
            self.note("notifications/initialized")

    def __enter__(self) -> Client:  # noqa: PYI034 (Self is not in Python 3.10)
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.process.stdin
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()

    @property
    def errors(self) -> str:
        """What the server wrote to stderr."""
        return b"".join(self._errors).decode()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        assert self.process.stderr
        self._errors.extend(self.process.stderr)

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def read(self, seconds: float = SECONDS) -> Any:
        """The next message; queue.Empty when none comes, EOFError at the end."""
        line = self._lines.get(timeout=seconds)
        if not line:
            raise EOFError(self.errors)
        return json.loads(line)

    def request(self, method: str, **params: object) -> int:
        """Send a request and return its id."""
        self._last += 1
        meta = {} if self.version else {"_meta": {**META, **params.pop("meta", {})}}  # type: ignore[dict-item]
        if self.version and "meta" in params:
            meta = {"_meta": params.pop("meta")}
        self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": {**params, **meta}})
        return self._last

    def note(self, method: str, **params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer_to(self, request_id: object) -> Any:
        """The answer to a request; other messages are kept in `noise`."""
        while (found := self.read()).get("id") != request_id:
            self.noise.append(found)
        return found

    def ask(self, method: str, **params: object) -> Any:
        answer = self.answer_to(self.request(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method: str, **params: object) -> Any:
        answer = self.answer_to(self.request(method, **params))
        assert "error" in answer, answer
        return answer["error"]

    def call(self, tool: str, **arguments: object) -> Any:
        """The result of a call."""
        return self.ask("tools/call", name=tool, arguments=arguments)
