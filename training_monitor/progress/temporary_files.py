"""Temporary files beside those that are replaced whole: their names, and the removal of what killed writers left.

A name tells who writes: a machine, as of its boot, and the process there. A file goes at once when its writer was of
this machine and has ended; one of another machine, or that a script on a target wrote, when it is an hour old by the
clock of the file system: it takes a moment to be put in place.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress

from training_monitor.policy.run_values import Identity
from training_monitor.progress.processes import is_alive
from training_monitor.progress.procfs import identify

OLD_SECONDS = 3600
_PREFIX = ".training-monitor-"  # hidden, so that it is listed by nobody
_OURS = re.compile(rf"{re.escape(_PREFIX)}(?:edit-|([0-9a-f]{{12}})-(\d{{1,10}})-(\d{{1,20}})-)[0-9a-f]{{12}}\.tmp")


def temporary_beside(path: str) -> str:
    """A name that nothing has, in the folder of this file."""
    me = identify()
    name = f"{_PREFIX}{_machine(me)}-{me.pid}-{me.start_ticks or 0}-{secrets.token_hex(6)}.tmp"
    return os.path.join(os.path.dirname(path), name)


def temporary_of_script() -> str:
    """The same for a script on a target; only the age of such a file tells that its writer has ended."""
    return f"{_PREFIX}edit-{secrets.token_hex(6)}.tmp"


def remove_left_beside(path: str) -> None:
    """Remove what killed writers left in the folder of this file, which was written just now.

    Only regular files of this user with names as above. What cannot be looked at or removed is left.
    """
    with suppress(OSError):
        now = os.stat(path).st_mtime  # by the clock of the file system
        with os.scandir(os.path.dirname(path)) as entries:
            for entry in entries:
                if (found := _OURS.fullmatch(entry.name)) and _is_left(entry, found, now):
                    with suppress(OSError):
                        os.unlink(entry.path)


def _is_left(entry: os.DirEntry[str], name: re.Match[str], now: float) -> bool:
    try:
        state = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
        return False
    is_there = _is_writer_alive(*name.groups())
    if is_there is None:
        return now - max(state.st_mtime, state.st_ctime) > OLD_SECONDS  # renaming changes only the latter
    return not is_there


def _is_writer_alive(machine: str | None, pid: str, start_ticks: str) -> bool | None:
    """None where that cannot be seen from here."""
    here = identify()
    if machine != _machine(here):
        return None
    return is_alive(Identity(int(pid), int(start_ticks) or None, here.hostname, here.boot_id, here.pid_namespace))


def _machine(one: Identity) -> str:
    words = f"{one.hostname} {one.boot_id} {one.pid_namespace}"
    return hashlib.sha256(words.encode(errors="replace")).hexdigest()[:12]
