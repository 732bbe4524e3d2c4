"""Answer requests for the Python stacks of this process, while its main thread waits in C too (docs/progress_files.md).

Another process of this user, or root, asks through files in one folder: PID.here says that PID answers, PID.ask holds a
nonce, and PID.said.NONCE is the answer. All of it happens in a thread of its own, because the thread that writes a
run's files may itself wait for a disk or a GPU that hangs. Code that hangs while it holds the interpreter's lock holds
up this thread too. Where the folder cannot be used, no request is answered, and no warning says so.
"""

from __future__ import annotations

import atexit
import itertools
import os
import stat
import threading
import time
from contextlib import suppress

from training_monitor.core.engine import start_thread
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.regex import regex
from training_monitor.runs.files import remove_left_beside, write_atomically
from training_monitor.runs.record import counted
from training_monitor.runs.stack_dump import write_stacks
from training_monitor.targets.procfs import pid_namespace, read_process

_INTERVAL = 0.25  # seconds between two looks for a request
_UPKEEP_INTERVAL = 15.0  # between two looks at the folder: clean-up programs remove what is old in /tmp
_SECONDS_KEPT = 60.0  # how long an answer is kept
_BEING_WRITTEN = 5.0  # for how many seconds a request may be empty
_JOIN_LIMIT = 1.0
_MOST_REQUEST = 65  # bytes, with the end of the line
_MOST_REMOVED = 100  # files at a time
_REQUEST = regex(r"([0-9a-fA-F]{8,64})\n?")
_OURS = regex(r"([1-9]\d{0,9})\.(?:here|ask|(said)\.[0-9a-fA-F]{8,64})(?:\.[0-9a-f]{8}\.tmp)?")


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
        self._here, self._request, self._answer = (f"{folder}/{pid}.{kind}" for kind in ("here", "ask", "said"))
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
        if self._is_present and os.path.lexists(self._request) and is_private(self._folder):
            self._attend()

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
            _remove([path for path, pid, _ in _files_in(self._folder) if not os.path.exists(f"/proc/{pid}")])
            self._start_ticks = sample.start_ticks
        answers = [path for path, pid, is_answer in _files_in(self._folder) if is_answer and pid == self._pid]
        _remove([path for path in answers if time.time() - os.lstat(path).st_mtime > _SECONDS_KEPT])
        try:
            os.utime(self._here, follow_symlinks=False)
        except FileNotFoundError:
            write_atomically(self._here, f"{self._start_ticks}\n", mode=0o600)
            remove_left_beside(self._here)
        return True

    def _attend(self) -> None:
        """Answer the request, and remove it; only remove what is no request. Raises OSError."""
        nonce, state = read_request(self._request)
        if _is_being_written(state):
            return
        try:
            if nonce is not None:
                batches = sum(map(counted, self.batches)) or None
                write_stacks(f"{self._answer}.{nonce}", {"start_ticks": self._start_ticks, "batches": batches})
        finally:
            if _mark_of(os.lstat(self._request)) == _mark_of(state):  # otherwise it is a newer one
                _remove([self._request])

    def _remove_own(self) -> None:
        _remove([path for path, pid, _ in _files_in(self._folder) if pid == self._pid])


_known: dict[int, Answers] = {}  # by process: a forked child has its parent's, without the thread


def is_private(folder: str) -> bool:
    """Return whether this is a folder, not a link to one, of this user, in which others have no rights."""
    state = os.lstat(folder)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077


def read_request(path: str) -> tuple[str | None, os.stat_result]:
    """Return the nonce of a request, None if it is none, and the state of the file. Raises OSError."""
    state = os.lstat(path)
    if not _may_be_request(state):
        return None, state
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(file)
        data = os.read(file, _MOST_REQUEST) if _may_be_request(state) else b""
    finally:
        os.close(file)
    found = _REQUEST.fullmatch(data.decode("latin-1"))
    return found[1] if found else None, state


def _may_be_request(state: os.stat_result) -> bool:
    is_of_user = state.st_uid in (os.geteuid(), 0)
    return stat.S_ISREG(state.st_mode) and is_of_user and state.st_size <= _MOST_REQUEST


def _is_being_written(state: os.stat_result) -> bool:
    is_empty = stat.S_ISREG(state.st_mode) and not state.st_size
    return is_empty and time.time() - state.st_mtime < _BEING_WRITTEN


def _mark_of(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_mtime_ns, state.st_size


def _files_in(folder: str) -> list[tuple[str, int, bool]]:
    """Return the files of this protocol: their paths, processes, and whether they are answers. Raises OSError."""
    names = [found for name in os.listdir(folder) if (found := _OURS.fullmatch(name))]
    return [(f"{folder}/{found[0]}", int(found[1]), found[2] is not None) for found in names]


def _remove(paths: list[str]) -> None:
    """Remove files, or an empty folder in place of one; at most 100, best effort."""
    for path in paths[:_MOST_REMOVED]:
        with suppress(OSError):
            try:
                os.unlink(path)
            except IsADirectoryError:
                os.rmdir(path)
