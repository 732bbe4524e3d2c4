"""The program of a tee: copies its input to its output and into a file, which is its descriptor 3.

Unlike tee(1) it goes on with both when a disk was full: what did not find room is counted, and when there is room again
a line says how much is missing there. It is run by itself (`python -I -S`) and imports nothing of this package.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

PIECE = 65536
INPUT, OUTPUT, FILE = 0, 1, 3


class Sink:
    """One of the places that the input is copied to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._missing, self._why = 0, ""
        self._note = b""  # what is left to write of the line that tells of bytes that are missing

    def add(self, data: bytes) -> None:
        """Write this, after the line on what is missing before it; count it where there is no room."""
        written = self._write(data) if self.tell() else 0
        self._missing += len(data) - written

    def tell(self) -> bool:
        """Say what is missing, where something is; False while there is no room for that."""
        while self._note or self._missing:
            note = self._note or b"\n[training_monitor: %d bytes are missing here: %s]\n" % (
                self._missing,
                self._why.encode(),
            )
            written = self._write(note)
            if not written:
                return False
            if not self._note:
                self._missing = 0
            self._note = note[written:]
        return True

    def _write(self, data: bytes) -> int:
        """How many bytes found room. Raises BrokenPipeError when nobody reads them any more."""
        written = 0
        while written < len(data):
            try:
                written += os.write(self._descriptor, data[written:])
            except BlockingIOError:  # somebody has set the terminal so
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                self._why = error.strerror or str(error)
                break
        return written


def main() -> None:
    """Copy until nobody has the input for writing any more, or nobody reads the output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.closerange(FILE + 1, os.sysconf("SC_OPEN_MAX"))  # sockets and GPUs that a training left open to its children
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("tee")
    sinks = Sink(OUTPUT), Sink(FILE)
    with suppress(BrokenPipeError):
        while data := os.read(INPUT, PIECE):
            for sink in reversed(sinks):  # the file first: it is to have the last words
                sink.add(data)
        for sink in sinks:
            sink.tell()


if __name__ == "__main__":
    main()
