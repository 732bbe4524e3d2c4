"""Make sure that only one process writes a run's files, by a record beside its progress file (docs/progress_files.md).

The record names a process. It is written under a temporary name and then linked to its own, which is atomic, on NFS
too; its mtime is updated whenever the run writes (its beat), and it is removed at the end. Locks are not used: over a
network they may have no effect. Whether the owner is alive is seen from its process on this machine, elsewhere from its
beat alone, by the time that passes here: clocks are not compared. An owner reads its record before each write, so that
one that was wrongly taken for dead (it was suspended, its network was down) notices and makes room.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from types import ModuleType
from typing import NamedTuple

from training_monitor.core.clock import Clock
from training_monitor.core.errors import ParseError
from training_monitor.core.records import encode, format_record
from training_monitor.runs.files import (
    SUFFIX,
    RunFiles,
    owner_path,
    read_file,
    read_text,
    remove_left_beside,
    run_files,
    temporary_beside,
    write_new,
)
from training_monitor.runs.progress_file import parse_owner, parse_progress_file
from training_monitor.runs.values import Owner, Run
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify, is_alive, read_process

DEAD_AFTER = 15.0  # seconds without a beat; a live run has one every 2 s
_TRIES = 5
_MOST_BYTES = 16_384
_MOST_ANCESTORS = 64
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # FAT, some of FUSE and SMB
_Found = tuple[str, int]  # the text of a record, and its last beat
_MULTIPROCESSING = ("multiprocessing.process", "multiprocess.process")  # the standard library's; its fork with dill


class Standing(Enum):
    """The answer to a request for a run's files.

    OURS: no one else writes them. TAKEN: a living process does. RELATED: a process of the same training does:
    multiprocessing started both, or one from the other. UNSURE: whether the owner is alive is not known yet.
    """

    OURS = auto()
    TAKEN = auto()
    RELATED = auto()
    UNSURE = auto()


class Candidate(NamedTuple):
    """What the monitor of a process knows of whether the process may write a run.

    Attributes:
        has_begun: whether it has anything to write: until then it leaves a run that it has lost to the other.
        is_alone: it has a run of its own, whoever started it.
        heir_of: the process from which it has its monitor: a run that has not begun there is its own.
        heir_since: when it got the monitor, in epoch seconds.
    """

    has_begun: Callable[[], bool]
    is_alone: bool = False
    heir_of: Identity | None = None
    heir_since: float | None = None


class Ownership:
    """The record of one run's files, used by a process that wants to write them."""

    def __init__(self, files: RunFiles, me: Owner, candidate: Candidate, clock: Clock) -> None:
        self._candidate = candidate
        self.holder: Owner | None = None  # the other process that has the files
        self._files, self._path, self._me, self._clock = files, owner_path(files), me, clock
        self._text = format_record(encode(me) | {"token": os.urandom(8).hex()})
        self._seen: _Found | None = None
        self._seen_at = 0.0
        self._is_lost = False
        self._open: int | None = None  # the record, kept open: by it others find the run of a process

    def take(self) -> Standing:
        """Become the owner, if there is none or a dead one; never again after losing ownership. Raises OSError."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        for _ in range(_TRIES):
            found = self._read()
            standing = self._judge_unowned() if found is None else self._judge(found)
            if self._is_lost and standing is not Standing.RELATED:
                is_elsewhere = self._candidate.has_begun() and not self._is_of_sibling()
                standing = Standing.TAKEN if is_elsewhere else Standing.RELATED
            if standing is not Standing.OURS:
                self.holder = parse_owner(found[0]) if found else None
                return standing
            if found is not None:
                self._remove(found)
            elif _create(self._path, self._text):
                self._close()
                with suppress(OSError):
                    self._open = os.open(self._path, os.O_WRONLY)
                return Standing.OURS
        return Standing.UNSURE

    def renew(self) -> bool:
        """Beat; False if another process is the owner by now. A deleted record is made again. Raises OSError."""
        found = self._read()
        if found is None:
            is_ours = not self._is_of_another() and self.take() is Standing.OURS
        else:
            is_ours = found[0] == self._text
        self._is_lost = not is_ours
        if not is_ours:
            self._close()
        if is_ours:
            os.utime(self._path)
        return is_ours

    def release(self) -> None:
        """Remove the record if it is ours. Raises OSError."""
        self._close()
        found = self._read()
        if found is not None and found[0] == self._text:
            self._remove(found)

    def _close(self) -> None:
        kept, self._open = self._open, None
        if kept is not None:
            os.close(kept)

    def _read(self) -> _Found | None:
        try:
            text, state = read_file(self._path, _MOST_BYTES)  # opening it makes an NFS client refresh its attributes
        except FileNotFoundError:
            return None
        return text, state.st_mtime_ns

    def _judge(self, found: _Found) -> Standing:
        """Return OURS if the owner is dead, or has to make room for this process."""
        owner = parse_owner(found[0])
        if owner is not None and owner.process == self._me.process:
            return Standing.OURS  # an earlier monitor of this process, which has ended
        is_there = None if owner is None else is_alive(owner.process)
        if is_there is None:
            is_there = self._has_beaten(found)
        if is_there is None:
            return Standing.UNSURE
        if owner is None or not is_there:
            return Standing.TAKEN if is_there else Standing.OURS
        heir_of, has_begun = self._candidate.heir_of, self._candidate.has_begun()
        if owner.process == heir_of and not self._has_begun_there():
            return Standing.OURS
        is_of_heir = owner.parent == self._me.process and (not has_begun or heir_of == self._me.process)
        if precedes(self._me, owner) and not is_of_heir:
            return Standing.OURS
        is_left = is_of_heir and not has_begun
        return Standing.RELATED if is_left or is_related(self._me, owner) else Standing.TAKEN

    def _has_beaten(self, found: _Found) -> bool | None:
        """Return whether there was a beat since the first look; None while it may still come."""
        now = self._clock.monotonic()
        if self._seen is None or self._seen[0] != found[0]:
            self._seen, self._seen_at = found, now
            return None
        if self._seen != found:
            return True
        return False if now - self._seen_at >= DEAD_AFTER else None

    def _remove(self, found: _Found) -> None:
        """Remove exactly this record: one that was made since the look is put back."""
        grave = temporary_beside(self._path)
        try:
            os.rename(self._path, grave)
        except FileNotFoundError:
            return
        try:
            text = read_text(grave, _MOST_BYTES)
            if text != found[0]:
                _create(self._path, text)
        finally:
            os.unlink(grave)

    def _is_of_another(self) -> bool:
        """Return whether the progress file is another process's, which took over and may have ended since."""
        run = self._run()
        return run is not None and run.process is not None and run.process != self._me.process

    def _judge_unowned(self) -> Standing:
        """Return RELATED if another process with a copy of the same monitor has had the run, and its end."""
        since = self._candidate.heir_since
        run = None if since is None else self._run()
        if since is None or run is None or run.process in (None, self._candidate.heir_of, self._me.process):
            return Standing.OURS
        return Standing.RELATED if run.ended_at and run.ended_at > since else Standing.OURS

    def _is_of_sibling(self) -> bool:
        """Return whether a child of multiprocessing lost its run to one that precedes it: on its host no other can."""
        run = self._run()
        process = run.process if run and self._me.parent else None
        return process is not None and process.hostname == self._me.process.hostname

    def _has_begun_there(self) -> bool:
        """Return whether the process from which this one has its monitor has reported anything since."""
        run = self._run()
        return run is not None and run.process == self._candidate.heir_of and (run.step or run.epoch) is not None

    def _run(self) -> Run | None:
        try:
            return parse_progress_file(read_text(self._files.progress_path), self._files.unread())
        except (OSError, ParseError):
            return None


class Place:
    """The place of a run: the requested files, or files beside them if another process writes those."""

    def __init__(self, wanted: RunFiles, me: Owner, candidate: Candidate, clock: Clock) -> None:
        self.files = wanted
        self.me, self._wanted = me, wanted
        self._ask = partial(Ownership, me=me, candidate=candidate, clock=clock)
        self._asked: dict[RunFiles, Ownership] = {}
        self._held: Ownership | None = None

    @property
    def holder(self) -> Owner | None:
        """The other process that has the requested files; None if unknown."""
        asked = self._asked.get(self._wanted)
        return asked.holder if asked else None

    def settle(self, *, is_last: bool = False) -> Standing:
        """Return OURS if `files` are to be written now; RELATED if this process must not write any run; else UNSURE.

        Args:
            is_last: there is no time left to wait and see whether an owner is alive.

        Raises:
            OSError: The records cannot be read or written.
        """
        if self._held is not None and self._held.renew():
            return Standing.OURS
        self._held = None
        for number in itertools.count():
            files = _renamed(self._wanted, number)
            ownership = self._asked.setdefault(files, self._ask(files))
            standing = ownership.take()
            if standing is Standing.OURS:
                self.files, self._held = files, ownership
                remove_left_beside(owner_path(files))
            elif standing is Standing.TAKEN or (standing is Standing.UNSURE and is_last):
                continue
            return standing
        raise AssertionError("no free name was found")

    def leave(self) -> None:
        """Release the files. Raises OSError."""
        held, self._held = self._held, None
        if held is not None:
            remove_left_beside(owner_path(self.files))
            held.release()


def _renamed(files: RunFiles, number: int) -> RunFiles:
    """Return the files of the same run under another name; under its own if `number` is 0."""
    if not number:
        return files
    suffix = f"_{os.getpid()}" if number == 1 else f"_{os.getpid()}_{number}"
    if files.folder:
        return run_files(files.folder + suffix)._replace(name=files.name + suffix)
    return run_files(files.progress_path.removesuffix(SUFFIX) + suffix + SUFFIX)


def started_by() -> ModuleType | None:
    """Return the module of the multiprocessing that started this process; None if none did."""
    modules = [sys.modules.get(name) for name in _MULTIPROCESSING]
    return next((module for module in modules if module and module.parent_process() is not None), None)


def this_process(candidate: Candidate) -> Owner:
    """Return this process and its place among the processes of multiprocessing, also nested ones."""
    me, heir_of = identify(), candidate.heir_of
    module = None if candidate.is_alone else started_by()
    parent = module.parent_process() if module else None
    if module and parent is not None and parent.pid:
        return Owner(me, identify(parent.pid), tuple(module.current_process()._identity))
    return Owner(me, heir_of, (me.pid,)) if heir_of and heir_of != me else Owner(me)


def precedes(one: Owner, other: Owner) -> bool:
    """Return whether one has precedence: it started the other, or is an older child of the same process."""
    if other.parent is None:
        return False
    return one.process == other.parent or (one.parent == other.parent and one.member < other.member)


def is_related(one: Owner, other: Owner) -> bool:
    """Return whether multiprocessing started this one below the other, or below the other's parent."""
    if one.parent is None:
        return False
    above = _ancestors(one)
    return other.process in above or other.parent in above


def _ancestors(one: Owner) -> list[Identity]:
    found = [] if one.parent is None else [one.parent]
    pid = one.process.pid
    while len(found) < _MOST_ANCESTORS and (sample := read_process(pid)) and (pid := sample.parent) > 1:
        found.append(identify(pid))
    return found


def _create(path: str, text: str) -> bool:
    """Create a file with this text atomically; False if it exists: only one of many succeeds. Raises OSError."""
    temporary = temporary_beside(path)
    write_new(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return os.stat(temporary).st_nlink == 2  # the reply of an NFS server was lost, and the request was retried
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with suppress(FileExistsError):
            write_new(path, text)
            return True
        return False
    finally:
        os.unlink(temporary)
    return True
