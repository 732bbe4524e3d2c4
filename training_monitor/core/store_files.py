"""The files of the state folder: what others could have changed is refused, what is damaged gets another name."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from training_monitor.core.errors import StateError

ELSEWHERE = "set TRAINING_MONITOR_STATE_DIR to a writable folder of your own"
_JOURNALS = ("-wal", "-shm", "-journal")
_UNWRITABLE = f"make the file and its folder writable, or {ELSEWHERE}"
# By error code of sqlite, which Python 3.10 does not tell.
_REMEDIES = {
    5: "retry later, or find the process that writes to the file (with fuser)",
    8: _UNWRITABLE,
    13: f"free some space on its disk, or {ELSEWHERE}",
    14: _UNWRITABLE,
}


# ---------------------------------------------------------------- what others could have changed


def make_private(path: str) -> None:
    """Make a folder if it is not there. Raises StateError where others could write to it."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        seen = os.stat(path)
    except OSError as error:
        raise StateError(f"the state folder {path} cannot be created: {error.strerror}", hint=ELSEWHERE) from error
    _check_owner(path, seen)


def check_folder(path: str) -> None:
    """Raise StateError where others could write to a state folder, or put another in its place; OSError without one."""
    _check_owner(path, os.stat(path))
    check_parents(path)


def _check_owner(path: str, seen: os.stat_result) -> None:
    if seen.st_uid != os.geteuid():
        raise StateError(f"the state folder {path} belongs to another user (uid {seen.st_uid})", hint=ELSEWHERE)
    _check_mode(f"the state folder {path}", path, seen)


def check_parents(path: str) -> None:
    """Raise StateError where others could put another folder in the place of this one, or of one above it.

    Others may write to a folder that has the sticky bit, like /tmp; and so may a group, which is often a user's own.
    """
    for each in dict.fromkeys([os.path.abspath(path), *_above(os.path.abspath(path)), *_above(os.path.realpath(path))]):
        seen, own = os.stat(each), os.lstat(each)
        what = f"the state folder {path} cannot be used: {each}"
        for owner in (own.st_uid, seen.st_uid):
            if owner not in (0, os.geteuid()):
                raise StateError(f"{what} belongs to another user (uid {owner})", hint=ELSEWHERE)
        if not seen.st_mode & stat.S_ISVTX:
            _check_mode(what, each, seen, stat.S_IWOTH, "o-w")


def _above(path: str) -> Iterator[str]:
    """Yield the folders above an absolute path."""
    while path != (path := os.path.dirname(path)):
        yield path


def check_state_file(path: str) -> int:
    """Return the inode of a database after checking it and its journals. Raises OSError, StateError."""
    for name in (path + journal for journal in _JOURNALS):
        with suppress(FileNotFoundError):
            check_file(name, os.lstat(name))
    seen = os.lstat(path)
    check_file(path, seen)
    return seen.st_ino


def check_file(path: str, seen: os.stat_result, *, names: int = sys.maxsize) -> None:
    """Raise StateError for anything but a regular file, with at most so many names, that only its owner writes to."""
    is_link = stat.S_ISLNK(seen.st_mode) or (stat.S_ISREG(seen.st_mode) and seen.st_nlink > names)
    if is_link or not stat.S_ISREG(seen.st_mode):
        what = "a link" if is_link else "not a regular file"
        raise StateError(f"the state file {path} cannot be opened: it is {what}", hint="move it away")
    _check_mode(f"the state file {path}", path, seen)


def _check_mode(
    what: str, path: str, seen: os.stat_result, bad: int = stat.S_IWGRP | stat.S_IWOTH, cure: str = "go-w"
) -> None:
    if seen.st_mode & bad:
        raise StateError(
            f"{what} is writable by other users (mode {stat.S_IMODE(seen.st_mode):04o})",
            hint=f"chmod {cure} {shlex.quote(path)}, or set TRAINING_MONITOR_STATE_DIR to another folder",
        )


def explain_failure(path: str, done: str, error: Exception) -> StateError:
    """Return the error for a database that cannot be `done`: opened, used."""
    if _is_full(path):  # sqlite reports this in several ways
        return StateError(f"no space left on the disk of the state file {path}: {error}", hint=_REMEDIES[13])
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    usual = ELSEWHERE if done == "opened" else "check the free disk space, or move the file away"
    return StateError(f"the state file {path} cannot be {done}: {error}", hint=_REMEDIES.get(code, usual))


def _is_full(path: str) -> bool:
    """Return whether the disk of a file has no room for one more page of a database."""
    with suppress(OSError):
        disk = os.statvfs(os.path.dirname(path))
        return not disk.f_flag & os.ST_RDONLY and disk.f_bavail * disk.f_frsize < 2 * 4096
    return False


# ---------------------------------------------------------------- what is damaged


def names_aside(name: str) -> Iterator[str]:
    """Yield the names under which something damaged may be kept."""
    return (f"{name}.corrupt-{number}" for number in count(1))


def move_aside(path: str) -> str:
    """Rename a database and its journals, and return its new name."""
    kept = next(name for name in names_aside(path) if not os.path.lexists(name))
    for journal in (*_JOURNALS, ""):
        with suppress(FileNotFoundError):
            os.rename(path + journal, kept + journal)
    return kept


def tell(text: str) -> None:
    """Log a warning; on stderr if no log was set up."""
    from training_monitor.core.logger import get_logger

    logger = get_logger()
    logger.warning("%s", text)
    if type(logger.handlers[0]).__name__ == "NullHandler" and not logger.root.handlers:
        sys.stderr.write(f"{text}\n")


def copy_rows(old: Any, new: Any) -> None:
    """Copy the rows that can be read, those before and behind what is damaged, between two connections of sqlite."""
    with suppress(old.Error):
        old.execute("PRAGMA writable_schema=ON")  # reads a file that was cut as far as it goes
    old.text_factory = lambda text: text.decode("utf-8", "replace")
    for (table,) in new.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = new.execute(f"PRAGMA table_info({table})").fetchall()
        names, places = ", ".join(name for _, name, *_ in columns), ", ".join("?" * len(columns))
        keys = ["rowid"] if _has_rowid(new, table) else [name for _, name, *_, place in columns if place]
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{key} {direction}" for key in keys)
            rows = _readable_rows(old, f"SELECT {names} FROM {table} ORDER BY {order}")
            new.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", rows)


def _has_rowid(database: Any, table: str) -> bool:
    try:
        database.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except database.OperationalError:
        return False
    return True


def _readable_rows(database: Any, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows up to the first one that cannot be read."""
    with suppress(database.Error):
        yield from database.execute(query)
