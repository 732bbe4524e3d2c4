"""A copy of stdout and stderr in files: all that goes to the file descriptors 1 and 2, also of C code and subprocesses.

It lasts until the process exits, so that the traceback of its end is there too. Each is led through a pipe into a
tee, a small process of its own, which writes to where the output went before and to the file. A thread of this process
could not do that: output of code that holds the interpreter's lock would fill the pipe and wait for ever. A tee also
outlives a killed training, so that its last words are kept, and subprocesses that go on printing.

A full disk costs what is printed while it is full: the tee goes on when there is room, and says in the file how many
bytes are missing. What is given up: a program that asks finds no terminal but a pipe. A log on a disk that hangs makes
the output wait, as `python train.py | tee` does. The reading end of the pipe stays open here, so that nobody dies of a
tee that was killed: output waits until a thread finds it gone, puts the old descriptor back and passes on what is in
the pipe. The tees are children of the script: one that waits for all its children (`os.wait()` in a loop) waits for
them, too.
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
from dataclasses import dataclass

from training_monitor.targets.tee import start_tee

_DRAIN_LIMIT = 2.0  # seconds that an ending script waits for its tees
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
        tell_gone: is called, in a thread, when a tee is gone and its output is not copied any more.
    """

    def __init__(self, paths: tuple[str, str], tell_gone: Callable[[], None]) -> None:
        self.paths = paths
        self._tell_gone = tell_gone
        self._tees: list[_Tee] = []
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to copy, in place of others of this process that do so to the same files.

        Raises:
            OSError: It cannot be; nothing is changed then.
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
        """Look again and again whether the tees are there; where one is gone its descriptor is what it was before."""
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
        """Put the descriptors back, and wait until what was printed has arrived, for two seconds at most."""
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:  # a forked child: what is watched is its parent's
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
        for tee in tees:  # one whose pipe a subprocess still holds goes on
            while not _has_ended(tee.pid) and time.monotonic() < deadline:
                time.sleep(0.005)


class _Watch(threading.Thread):
    """The thread that watches tees, by which whoever wants the same files finds them."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__(target=outputs.watch, name=_THREAD, daemon=True)
        self.outputs = outputs


def output_paths() -> tuple[str | None, str | None]:
    """The files that stdout and stderr go to; None for what is no regular file, or is not known."""
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
    """Put back what the descriptor was, unless somebody has led it elsewhere since."""
    with suppress(OSError):
        if _file_of(tee.descriptor) == tee.device:
            os.dup2(tee.before, tee.descriptor)


def _pass_on(tee: _Tee) -> None:
    """In a thread: do for a tee that is gone what is left to do, until nobody has its pipe for writing any more.

    That may be a print which waits for room in it, or a subprocess.
    """
    try:
        while data := os.read(tee.reading, 65536):
            while data:
                data = data[os.write(tee.before, data) :]
    except OSError:  # where the output went before is gone, too
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
    except ChildProcessError:  # somebody else has waited for it
        return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # None under pythonw, closed, or somebody's own object
            stream.flush()
