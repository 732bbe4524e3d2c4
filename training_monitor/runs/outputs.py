"""Copy stdout and stderr to files: everything written to the descriptors 1 and 2, also by C code and subprocesses.

The copy lasts until the process exits, so it includes a final traceback. Each descriptor is connected through a pipe to
a tee, a small separate process that writes to the former output and to the file. A thread of this process could not do
that: output of code that holds the interpreter's lock would fill the pipe and block for ever. A tee also outlives a
killed training, so that its last output is kept, and subprocesses can go on printing.

If the disk is full, only the output of that time is lost: the tee continues when there is room, and notes in the file
how many bytes are missing. The price: a program that asks finds a pipe instead of a terminal, and a log on a disk that
hangs blocks the output, as `python train.py | tee` does. The reading end of the pipe stays open here, so that no writer
dies if a tee is killed: output blocks until a thread notices, restores the old descriptor and passes on what is in the
pipe. The tees are children of the script: one that waits for all its children (`os.wait()` in a loop) waits for them
too.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from training_monitor.core.frozen import dataclass
from training_monitor.targets.tee import start_tee

_DRAIN_LIMIT = 2.0  # how many seconds an ending script waits for its tees
_WATCH_INTERVAL = 0.25
_DESCRIPTORS = (1, 2)
_THREAD = "training_monitor output"


@dataclass(slots=True)
class _Tee:
    descriptor: int
    before: int  # a copy of what the descriptor was
    reading: int
    pid: int
    device: tuple[int, int]  # of the pipe


class Outputs:
    """The tees of a script; `paths` are those of the files for stdout and stderr.

    Args:
        tell_gone: called, in a thread, when a tee is gone and its output is no longer copied.
    """

    def __init__(self, paths: tuple[str, str], tell_gone: Callable[[], None]) -> None:
        self.paths = paths
        self._tell_gone = tell_gone
        self._tees: list[_Tee] = []
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to copy, replacing other tees of this process for the same files.

        Raises:
            OSError: It failed; then nothing is changed.
        """
        for thread in threading.enumerate():
            if isinstance(thread, _Watch) and thread.outputs.paths == self.paths:
                thread.outputs.stop()
        _flush()
        try:
            for descriptor, path in zip(_DESCRIPTORS, self.paths, strict=True):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self._tees.append(_begin(descriptor, path))
        except OSError:
            self.stop()
            raise
        atexit.register(self.stop)
        with suppress(RuntimeError):  # no thread left
            _Watch(self).start()

    def watch(self) -> None:
        """Check again and again whether the tees exist; restore the former descriptor of one that is gone."""
        while not self._ended.wait(_WATCH_INTERVAL):
            with self._lock:
                gone = [tee for tee in self._tees if _has_ended(tee.pid)]
                for tee in gone:
                    self._tees.remove(tee)
                    _restore(tee)
            for tee in gone:
                with suppress(RuntimeError):  # no thread left: its pipe stays open, so that no write to it fails
                    threading.Thread(target=_pass_on, args=(tee,), name=_THREAD, daemon=True).start()
            if gone:
                self._tell_gone()

    def stop(self) -> None:
        """Restore the descriptors, and wait until the output has arrived, for two seconds at most."""
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:  # a forked child: the tees are its parent's
            return
        self._ended.set()
        _flush()
        with self._lock:
            tees, self._tees = self._tees, []
            for tee in tees:
                _restore(tee)
                os.close(tee.reading)
                os.close(tee.before)
        deadline = time.monotonic() + _DRAIN_LIMIT
        for tee in tees:  # a tee continues while a subprocess holds its pipe
            while not _has_ended(tee.pid) and time.monotonic() < deadline:
                time.sleep(0.005)


class _Watch(threading.Thread):
    """The thread that watches tees; it also lets newer tees of the same files find them."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__(target=outputs.watch, name=_THREAD, daemon=True)
        self.outputs = outputs


def output_paths() -> tuple[str | None, str | None]:
    """Return the files that stdout and stderr go to; None if it is not a regular file, or unknown."""
    return _regular_target(1), _regular_target(2)


def _regular_target(descriptor: int) -> str | None:
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            return path if os.path.exists(path) else None
    return None


def _begin(descriptor: int, path: str) -> _Tee:
    reading, writing = os.pipe()
    before = -1
    try:
        before = os.dup(descriptor)
        with open(path, "ab") as file:
            pid = start_tee(file.fileno(), reading=reading, writing=before)
        os.dup2(writing, descriptor)
    except OSError:
        for opened in (reading, before):
            if opened >= 0:
                os.close(opened)
        raise
    finally:
        os.close(writing)
    return _Tee(descriptor, before, reading, pid, _file_of(descriptor))


def _restore(tee: _Tee) -> None:
    """Restore the former descriptor, unless it was redirected elsewhere since."""
    with suppress(OSError):
        if _file_of(tee.descriptor) == tee.device:
            os.dup2(tee.before, tee.descriptor)


def _pass_on(tee: _Tee) -> None:
    """Pass on the rest of the pipe of a tee that is gone, in a thread, until nobody has it open for writing.

    A writer may be a print that waits for room in the pipe, or a subprocess.
    """
    try:
        while data := os.read(tee.reading, 65536):
            while data:
                data = data[os.write(tee.before, data) :]
    except OSError:  # the former output is gone, too
        pass
    finally:
        os.close(tee.reading)
        os.close(tee.before)


def _file_of(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # it was reaped elsewhere
        return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # None under pythonw, closed, or a replaced object
            stream.flush()
