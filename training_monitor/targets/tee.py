"""A tee(1) that continues after a disk was full, run as a separate process.

`start_tee` runs this file by itself (`python -I -S`), so that it imports nothing of this package. The program copies
its input to its output and to a file, its descriptor 3. Unlike tee(1) it continues with both after a full disk: bytes
without room are counted, and once there is room again, a line says how many are missing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

PIECE = 65536
INPUT, OUTPUT, FILE = 0, 1, 3


def start_tee(file: int, *, reading: int, writing: int) -> int:
    """Start a process that copies from one descriptor to another one and to a file.

    It has its own process group and ignores Ctrl-C: it ends with its input.

    Returns:
        Its pid, for the caller to wait for.

    Raises:
        OSError: the process cannot be started, or there is no Python interpreter, as in a program that embeds Python.
    """
    if getattr(sys, "frozen", False) or not os.path.basename(sys.executable or "").startswith(("python", "pypy")):
        raise FileNotFoundError("no Python interpreter was found to copy the output")
    ends = ((reading, INPUT), (writing, OUTPUT), (file, FILE))
    actions = [(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in ends]
    argv = [sys.executable, "-I", "-S", __file__]
    return os.posix_spawn(sys.executable, argv, dict(os.environ), file_actions=actions, setpgroup=0)


# ---------------------------------------------------------------- the program


class Sink:
    """One destination of the copy."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._missing, self._why = 0, ""
        self._note = b""  # the unwritten rest of the line that reports missing bytes

    def add(self, data: bytes) -> None:
        """Write data, after the line about missing bytes; count it as missing when there is no room."""
        written = self._write(data) if self.tell() else 0
        self._missing += len(data) - written

    def tell(self) -> bool:
        """Report missing bytes, if any; False while there is no room for the report."""
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
        """Return how many bytes were written. Raises BrokenPipeError when the reader is gone."""
        written = 0
        while written < len(data):
            try:
                written += os.write(self._descriptor, data[written:])
            except BlockingIOError:  # somebody made the terminal non-blocking
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                self._why = error.strerror or str(error)
                break
        return written


def main() -> None:
    """Copy until the input ends or the reader of the output is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.closerange(FILE + 1, os.sysconf("SC_OPEN_MAX"))  # sockets and GPUs that a training left open in its children
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("tee")
    sinks = Sink(OUTPUT), Sink(FILE)
    with suppress(BrokenPipeError):
        while data := os.read(INPUT, PIECE):
            for sink in reversed(sinks):  # the file first, so that it gets the last lines in any case
                sink.add(data)
        for sink in sinks:
            sink.tell()


if __name__ == "__main__":
    main()
