"""The server: reads one message a line, answers in any order. Nothing that a client sends ends it.

The thread that reads answers all but calls of tools, which a bounded number of threads work through. Messages that come
faster than they can be worked through are refused; answers that nobody reads hold up reading.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any

from training_monitor.agents.mcp import protocol
from training_monitor.agents.mcp.answers import Table, format_failure
from training_monitor.agents.mcp.calls import CURRENT, Call
from training_monitor.agents.mcp.protocol import Message, ProtocolError
from training_monitor.agents.mcp.table import INSTRUCTIONS
from training_monitor.agents.mcp.tools import Tool, list_tools
from training_monitor.core.engine import begin_thread
from training_monitor.core.logger import get_logger

MOST_AT_ONCE = 8  # calls
MOST_WAITING = 10_000  # calls that wait for their turn
MOST_BYTES = 4 * 1024 * 1024  # of a message
MOST_IN_BATCH = 1000
LEAVING_SECONDS = 20.0  # after the end of stdin, for calls in progress, if their answers are still read
READER_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
Reply = Callable[[Table | None], None]  # None: there is nothing to say


class _Asked(Call):
    """A call that a client has asked for."""

    def __init__(self, tool: Tool, message: Message, reply: Reply, *, as_text: bool) -> None:
        super().__init__()
        self.tool, self.message, self.reply, self.as_text = tool, message, reply, as_text
        self.began: float | None = None


class _Batch:
    """Collects the answers to a batch, and sends them as one."""

    def __init__(self, count: int, send: Callable[[Any], None]) -> None:
        self._lock, self._left, self._send = threading.Lock(), count, send
        self._answers: list[Table] = []

    def reply(self, answer: Table | None) -> None:
        with self._lock:
            self._left -= 1
            self._answers += [answer] if answer else []
            is_over = not self._left
        if is_over and self._answers:
            self._send(self._answers)


class Server:
    """Serves tools to one client.

    Args:
        tools: by name.
        out: a file descriptor, to which only this server writes.
        with_text: write each document also as text.
    """

    def __init__(self, tools: Mapping[str, Tool], out: int, *, with_text: bool = False) -> None:
        self._tools, self._out, self._with_text = tools, out, with_text
        self._version: str | None = None  # of the handshake
        self._writing, self._news = threading.Lock(), threading.Condition()
        self._calls: dict[str | int, _Asked] = {}
        self._waiting = deque[_Asked]()
        self._threads = self._idle = 0
        self._is_gone = self._tells_progress = False

    def serve(self, lines: IO[bytes]) -> None:
        """Answer until the client closes its end; then finish the calls in progress, and end those that take long."""
        try:
            while not self._is_gone and (line := lines.readline(MOST_BYTES + 1)):
                if len(line) > MOST_BYTES and not line.endswith(b"\n"):
                    _skip_line(lines)
                    what = f"a message of more than {MOST_BYTES} bytes"
                    self._send(protocol.format_error(None, ProtocolError(protocol.INVALID_REQUEST, what)))
                elif line.strip():
                    self._receive(line)
            self._finish()
        finally:
            self.close()

    def _finish(self) -> None:
        """Wait for the calls in progress, as long as their answers can be read."""
        end, reader = time.monotonic() + LEAVING_SECONDS, select.poll()
        reader.register(self._out, 0)  # what is reported is the closed end of a pipe
        while self._calls and time.monotonic() < end and not reader.poll(0):
            with self._news:
                self._news.wait_for(lambda: not self._calls, READER_SECONDS)

    def close(self) -> None:
        """End all calls; what was started as a job goes on."""
        with self._news:
            self._is_gone, calls = True, list(self._calls.values())
            self._waiting.clear()
            self._news.notify_all()
        for call in calls:
            call.leave()

    # ------------------------------------------------------------ messages

    def _receive(self, line: bytes) -> None:
        try:
            found = protocol.parse_line(line)
        except ProtocolError as unread:
            self._send(protocol.format_error(None, unread))
            return
        if not isinstance(found, list):
            self._answer(found, self._send)
        elif self._version not in protocol.BATCH_VERSIONS or not 0 < len(found) <= MOST_IN_BATCH:
            refused = ProtocolError(protocol.INVALID_REQUEST, f"expected one message, not a batch of {len(found)}")
            self._send(protocol.format_error(None, refused))
        else:
            batch = _Batch(len(found), self._send)
            for each in found:
                self._answer(each, batch.reply)

    def _answer(self, found: Any, reply: Reply) -> None:
        """Answer a message, or have it answered later; `reply` is called once."""
        request_id = protocol.id_of(found)
        try:
            message = protocol.read_message(found)
            if message is None or message.id is None:
                self._note(message)
                return reply(None)
            if message.method == "tools/call":
                return self._begin_call(message, reply)
            result = self._result(message)
        except ProtocolError as refused:
            return reply(protocol.format_error(request_id, refused))
        except Exception:
            get_logger().exception("a message could not be answered")
            defect = ProtocolError(protocol.INTERNAL_ERROR, "unexpected error; see the server's log")
            return reply(protocol.format_error(request_id, defect))
        reply(protocol.format_result(message.id, _in_era(message, result)))

    def _note(self, message: Message | None) -> None:
        """Take in a notification: what is cancelled ends; all else says nothing new."""
        if message is None or message.method != "notifications/cancelled":
            return
        cancelled = message.params.get("requestId")
        if not protocol.is_id(cancelled):
            return
        with self._news:
            call = self._calls.get(cancelled)
        if call:
            call.cancel()

    def _result(self, message: Message) -> Table:
        """Return the result of a request that is no call of a tool. Raises ProtocolError."""
        method, is_stateless = message.method, message.version is not None
        if method == "initialize":
            self._version = protocol.agreed_version(message.params)
            return protocol.format_initialized(self._version, INSTRUCTIONS)
        if method == "server/discover":
            if not is_stateless:
                keys = f"{protocol.VERSION_KEY}, {protocol.CAPABILITIES_KEY}"
                raise ProtocolError(protocol.INVALID_PARAMS, f"params._meta: expected {keys}")
            return protocol.format_discovered(INSTRUCTIONS)
        if method == "ping" and not is_stateless:
            return {}
        if method != "tools/list":
            raise ProtocolError(protocol.NO_METHOD, f"unknown method {method[:100]}")
        self._expect_handshake(message)
        found = {"tools": list_tools(self._tools)}
        return {**found, **protocol.cacheable()} if is_stateless else found

    def _expect_handshake(self, message: Message) -> None:
        if message.version is None and self._version is None:
            what = f"begin with initialize, or send {protocol.VERSION_KEY} in params._meta"
            raise ProtocolError(protocol.INVALID_REQUEST, what)

    # ------------------------------------------------------------ calls

    def _begin_call(self, message: Message, reply: Reply) -> None:
        """Queue a call. Raises ProtocolError."""
        self._expect_handshake(message)
        name, arguments = message.params.get("name"), message.params.get("arguments") or {}
        if not isinstance(name, str) or name not in self._tools:
            raise ProtocolError(protocol.INVALID_PARAMS, f"unknown tool {str(name)[:100]!r}: see tools/list")
        if not isinstance(arguments, dict):
            raise ProtocolError(protocol.INVALID_PARAMS, "arguments: expected an object")
        is_old = message.version is None and self._version in protocol.TEXT_VERSIONS
        call = _Asked(self._tools[name], message, reply, as_text=is_old or self._with_text)
        assert message.id is not None
        with self._news:
            if message.id in self._calls:
                raise ProtocolError(
                    protocol.INVALID_REQUEST, "a request with this id is still pending: ids must be unique"
                )
            if len(self._waiting) >= MOST_WAITING:
                raise ProtocolError(protocol.INTERNAL_ERROR, f"{MOST_WAITING} calls are pending: retry this one later")
            self._calls[message.id] = call
            self._waiting.append(call)
            wants_thread = self._idle < len(self._waiting) and self._threads < MOST_AT_ONCE
            self._threads += wants_thread
            self._news.notify()
        if wants_thread and begin_thread(self._work, "MCP call") is None:
            with self._news:
                self._threads -= 1
        if message.progress_token is not None and not self._tells_progress:
            self._tells_progress = begin_thread(self._tell_progress, "MCP progress") is not None

    def _work(self) -> None:
        while (call := self._next_call()) is not None:
            answer = None if call.cancelled else self._perform(call)
            assert call.message.id is not None
            with self._news:
                self._calls.pop(call.message.id, None)
                self._news.notify_all()
            call.reply(None if call.cancelled else answer)

    def _next_call(self) -> _Asked | None:
        with self._news:
            self._idle += 1
            self._news.wait_for(lambda: self._waiting or self._is_gone)
            self._idle -= 1
            if not self._waiting:
                return None
            call = self._waiting.popleft()
            call.began = time.monotonic()
            return call

    def _perform(self, call: _Asked) -> Table:
        CURRENT.set(call)
        try:
            result = call.tool.call(call.message.params.get("arguments") or {}, as_text=call.as_text)
        except Exception as error:  # a defect of ours; its text may hold anything
            get_logger().exception("%s failed", call.tool.name)
            told = f"unexpected {type(error).__name__}: {error}"[:1000]
            result = format_failure({"error": told, "kind": "TrainingMonitorError", "hint": "see the server's log"})
        assert call.message.id is not None
        return protocol.format_result(call.message.id, _in_era(call.message, result))

    def _tell_progress(self) -> None:
        """Say of each call with a progress token how long it has been at work."""
        while not self._is_gone:
            time.sleep(PROGRESS_SECONDS)
            with self._news:  # so that no call ends meanwhile: nothing may follow its answer
                for call in self._calls.values():
                    token = call.message.progress_token
                    if token is not None and call.began is not None and not call.cancelled:
                        seconds = time.monotonic() - call.began
                        self._send(protocol.format_progress(token, seconds, f"{seconds:.0f} s at work"))

    # ------------------------------------------------------------ writing

    def _send(self, message: Any) -> None:
        """Write a message; once the client is gone, nothing."""
        if message is None:
            return
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            with self._writing:
                while data and not self._is_gone:
                    data = data[os.write(self._out, data) :]
        except OSError:
            self._is_gone = True


def _in_era(message: Message, result: Table) -> Table:
    return result if message.version is None else protocol.stateless_result(result)


def _skip_line(lines: IO[bytes]) -> None:
    """Read on to the end of a line that is too long."""
    while (rest := lines.readline(MOST_BYTES)) and not rest.endswith(b"\n"):
        pass


def serve(tools: Mapping[str, Tool], *, with_text: bool = False) -> None:
    """Serve on stdin and stdout until stdin ends. What else is printed to stdout meanwhile goes to stderr."""
    lines, out = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    Server(tools, out, with_text=with_text).serve(lines)
