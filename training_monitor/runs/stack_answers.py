"""Answer requests for the Python stacks of this process, while its main thread waits in C too (docs/progress_files.md).

Another process of this user, or root, asks through one folder: the file PID.START.here says that PID answers, a folder
PID.ask.NONCE is a request, the file PID.said.NONCE is the answer, and whoever asks may move it into a folder
PID.look.NONCE to read it. Names alone are enough to ask: root opens no file for it in a folder of somebody else's, who
could put a link or a pipe there. All of it happens in a thread of its own, because the thread that writes a run's files
may itself wait for a disk or a GPU that hangs. Code that hangs while it holds the interpreter's lock holds up this
thread too. Where the folder cannot be used, no request is answered, and no warning says so.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import stat
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from training_monitor.core.engine import start_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.runs.record import counted
from training_monitor.runs.stack_dump import write_stacks
from training_monitor.targets.procfs import pid_namespace, read_process

_INTERVAL = 0.25  # seconds between two looks for a request
_UPKEEP_INTERVAL = 15.0  # between two looks at the folder: clean-up programs remove what is old in /tmp
_SECONDS_KEPT = 60.0  # how long an answer is kept
_JOIN_LIMIT = 1.0
_MOST_ANSWERED = 10  # requests at a time
_MOST_REMOVED = 100  # files at a time
_OURS = regex(
    r"([1-9]\d{0,9})\.(?:\d{1,19}\.here|(ask|look)\.([0-9a-fA-F]{8,64})"
    r"|(said)\.[0-9a-fA-F]{8,64}(?:\.[0-9a-f]{8}\.tmp)?)",
    re.ASCII,
)


def answer_requests(*batches: itertools.count[int]) -> None:
    """Answer requests for the stacks of this process until it exits; idempotent. Never raises.

    Args:
        batches: the counters of the newest run of this process; an answer tells their sum.
    """
    pid = os.getpid()
    if pid not in _known:
        new = Answers(folder_of(os.geteuid()), pid)
        if _known.setdefault(pid, new) is new and not new.start():
            _known.pop(pid)
    if batches and pid in _known:
        _known[pid].batches = batches


def folder_of(user: int) -> str:
    """Return the folder of the requests and answers of a user's processes with the numbers of this pid namespace.

    Containers that share /tmp have processes of the same number. Whoever asks does not know the TMPDIR of a training.
    """
    namespace = "".join(filter(str.isdigit, pid_namespace() or "")) or "0"
    return f"/tmp/training_monitor-stacks-{user}-{namespace}"


class Answers:
    """The thread of a process that answers. Other files in the folder are left alone."""

    def __init__(self, folder: str, pid: int) -> None:
        self.batches: tuple[itertools.count[int], ...] = ()
        self._folder, self._pid = folder, pid
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_ticks: int | None = None  # None until the first look at the folder, or without /proc
        self._is_present = False
        self._next_upkeep = -float("inf")

    def start(self) -> bool:
        """Start the thread, which does all the rest; False when the machine has no thread left."""
        try:
            self._thread = start_thread(self._run, "answers")
        except TrainingMonitorError:
            return False
        atexit.register(self.leave)
        return True

    def leave(self) -> None:
        """End the thread and remove all files of this process; nothing in a forked child."""
        if os.getpid() != self._pid or self._thread is None:
            return
        self._closing.set()
        self._thread.join(_JOIN_LIMIT)
        with suppress(OSError):
            if is_private(self._folder):
                self._remove_own()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while True:
            with suppress(Exception):  # it must never disturb the training
                self._turn()
            if self._closing.wait(_INTERVAL if self._is_present else _UPKEEP_INTERVAL):
                break

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_upkeep:
            self._next_upkeep, self._is_present = now + _UPKEEP_INTERVAL, False
            self._is_present = self._keep_up()
        if self._is_present and is_private(self._folder):
            for each in self._files("ask")[:_MOST_ANSWERED]:
                self._attend(each)

    def _keep_up(self) -> bool:
        """Show that this process answers, and remove what is old; False where that is impossible. Raises OSError."""
        with suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        if not is_private(self._folder):
            return False
        if self._start_ticks is None:
            if (sample := read_process(self._pid)) is None:
                return False
            self._remove_own()
            _remove([each.path for each in _files_in(self._folder) if not os.path.exists(f"/proc/{each.pid}")])
            self._start_ticks = sample.start_ticks
        answers = [each.path for each in (*self._files("said"), *self._files("look"))]
        _remove([path for path in answers if time.time() - os.lstat(path).st_mtime > _SECONDS_KEPT])
        here = f"{self._folder}/{self._pid}.{self._start_ticks}.here"
        try:
            os.utime(here, follow_symlinks=False)
        except FileNotFoundError:
            os.close(os.open(here, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return True

    def _attend(self, request: _File) -> None:
        """Answer a request, and remove it; only remove what is none. Raises OSError."""
        try:
            if may_be_request(os.lstat(request.path)):
                batches = sum(map(counted, self.batches)) or None
                answer = f"{self._folder}/{self._pid}.said.{request.nonce}"
                write_stacks(answer, {"start_ticks": self._start_ticks, "batches": batches})
        finally:
            _remove([request.path])

    def _files(self, kind: str) -> list[_File]:
        return [each for each in _files_in(self._folder) if each.pid == self._pid and each.kind == kind]

    def _remove_own(self) -> None:
        _remove([each.path for each in _files_in(self._folder) if each.pid == self._pid])


_known: dict[int, Answers] = {}  # by process: a forked child has its parent's, without the thread


def is_private(folder: str) -> bool:
    """Return whether this is a folder, not a link to one, of this user, in which others have no rights."""
    state = os.lstat(folder)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077


def may_be_request(state: os.stat_result) -> bool:
    """Return whether this is a folder, not a link to one, that this user or root has made."""
    return stat.S_ISDIR(state.st_mode) and state.st_uid in (os.geteuid(), 0)


class _File(NamedTuple):
    """A file of this protocol: the process that it is of, `ask`, `look`, `said` or None, and the nonce of a folder."""

    path: str
    pid: int
    kind: str | None
    nonce: str | None


def _files_in(folder: str) -> list[_File]:
    """Raises OSError."""
    names = [found for name in os.listdir(folder) if (found := _OURS.fullmatch(name))]
    return [_File(f"{folder}/{found[0]}", int(found[1]), found[2] or found[4], found[3]) for found in names]


def _remove(paths: list[str]) -> None:
    """Remove files and folders, also with the answer that an asker has moved into one; at most 100, best effort."""
    for path in paths[:_MOST_REMOVED]:
        with suppress(OSError):
            try:
                os.unlink(path)
            except IsADirectoryError:
                with suppress(OSError):
                    os.unlink(f"{path}/said")
                os.rmdir(path)
