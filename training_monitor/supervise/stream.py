"""Follows a log file over one held connection.

It gives whole lines from a cursor on, once each and in order, until the connection is gone or the file was rotated,
truncated or rewritten. Both are no event of the job: whoever follows reads on from the last cursor.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import ParseError
from training_monitor.models import LogCursor, NewLog
from training_monitor.parse.log_frames import FrameReader, LineCutter
from training_monitor.probes.logs import follow_script
from training_monitor.targets.connect import connect
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Stream, Transport

SILENT_SECONDS = 30.0


class LogStream:
    """One file of one target; `follow` may be called again and again."""

    def __init__(
        self, target: Target, expression: str, transport: Transport | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`expression` names the file to a shell, see `quote_path`."""
        self._target, self._expression = target, expression
        self._transport, self._clock = transport, clock
        self._stream: Stream | None = None
        self._heard_at = 0.0
        self._closed = False

    def follow(self, cursor: LogCursor) -> Iterator[NewLog]:
        """What comes, each with the cursor behind its lines; ends with the connection. Raises ToolNotFound."""
        nonce = secrets.token_hex(12)
        script = follow_script(self._expression, cursor, nonce)
        self._heard_at = self._clock.monotonic()
        self._stream = connect(self._target, self._transport).stream(["sh", "-s"], input=script)
        frames, lines = FrameReader(nonce), LineCutter(cursor)
        try:
            if self._closed:
                return
            for chunk in self._stream.chunks():
                self._heard_at = self._clock.monotonic()
                for frame in frames.feed(chunk):
                    yield lines.cut(frame)
        except ParseError:
            return  # the file changed under its reader: what was given is right, the rest is read anew
        finally:
            self._stream.close()
            self._stream = None

    def drop_if_silent(self) -> None:
        """Give up a connection over which nothing came although something should every ten seconds."""
        if (stream := self._stream) and self._clock.monotonic() - self._heard_at > SILENT_SECONDS:
            stream.close()

    def close(self) -> None:
        """End it for good, from any thread."""
        self._closed = True
        if stream := self._stream:
            stream.close()
