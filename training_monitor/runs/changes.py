"""Edit and delete runs: the changes that `top` makes to the files of a run on this machine."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.units import format_duration
from training_monitor.runs.edits import check_edits, merge_edits
from training_monitor.runs.files import RunFiles, paths_of_run, read_text, remove_left_beside, write_atomically
from training_monitor.runs.progress_file import Edit, read_edits
from training_monitor.runs.values import RUNNING, Run
from training_monitor.targets.procfs import is_alive, read_process

_LOCK_SECONDS, _LOCK_INTERVAL = 2.0, 0.02
_HEARD_SECONDS = 60.0  # a run writes every two seconds: one that wrote more recently may be alive


# ---------------------------------------------------------------- edits


def edit(files: RunFiles, run: Run, values: Mapping[str, str], *, clock: Clock = SYSTEM_CLOCK) -> str:
    """Add edits to the control file, beside the unanswered ones, and verify that they are there.

    Two editors wait for one another; no edits are lost.

    Returns:
        The id that the run's answer will carry.

    Raises:
        TrainingMonitorError: The run has ended or has no such variable, a value is too long, or the file cannot be
            written.
    """
    check_edits(run, values)
    edit_id = secrets.token_hex(8)
    added = {name: Edit(value, edit_id, clock.time()) for name, value in values.items()}
    try:
        with _lock(os.path.dirname(files.control_path), clock):
            write_atomically(files.control_path, merge_edits(_read(files), run, added))
            remove_left_beside(files.control_path)
            written = read_edits(_read(files))
    except OSError as error:
        raise TrainingMonitorError(f"{files.control_path!r} cannot be written: {error.strerror}") from error
    if any(written.get(name) != one for name, one in added.items()):
        raise TrainingMonitorError(
            f"the edits are not in {files.control_path!r} after they were written", hint="somebody else writes it"
        )
    return edit_id


def _read(files: RunFiles) -> str:
    """Return the text of a control file, "" if it is missing."""
    with suppress(FileNotFoundError):
        return read_text(files.control_path)
    return ""


@contextmanager
def _lock(folder: str, clock: Clock) -> Iterator[None]:
    """Keep other editors of this folder out; best effort: some file systems (NFS) have no locks on folders."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = clock.monotonic() + _LOCK_SECONDS
        while not _try_lock(file):
            if clock.monotonic() >= end:
                raise TrainingMonitorError(
                    f"somebody else has been editing in {folder!r} for {_LOCK_SECONDS:g} s", hint="the same again"
                )
            clock.sleep(_LOCK_INTERVAL)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold a copy until its exec
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


# ---------------------------------------------------------------- deleting


def delete(folder: str, files: RunFiles, run: Run, *, now: float) -> None:
    """Delete a run's own folder directly below `folder`, or its files in the flat layout; verify that they are gone.

    Args:
        run: the present content of its progress file.
        now: epoch seconds.

    Raises:
        TrainingMonitorError: Its process is or may be alive, or something of it is still there.
    """
    if reason := _reason_to_keep(files, run, now):
        raise TrainingMonitorError(f"run {run.name!r} was not deleted: {reason}")
    paths = paths_of_run(files)
    try:
        if files.folder is not None:
            _check_own_folder(folder, files.folder)
            shutil.rmtree(files.folder)
        else:
            for path in paths:
                with suppress(FileNotFoundError):
                    os.unlink(path)
    except OSError as error:
        what = f"{error.filename or files.progress_path}: {error.strerror}"
        raise TrainingMonitorError(f"run {run.name!r} was not deleted, or not all of it ({what})") from error
    if left := [path for path in paths if os.path.lexists(path)]:
        raise TrainingMonitorError(f"run {run.name!r} was deleted, and {left[0]!r} is there again")


def _reason_to_keep(files: RunFiles, run: Run, now: float) -> str | None:
    """Return why a run may be alive; None if its process has ended or has been silent for long."""
    process = run.process
    alive = is_alive(process) if process else None
    if process and alive:
        return f"its process {process.pid} is alive, end it first"
    if alive is False or run.status not in (RUNNING, None):  # None: its file cannot be read, or names no status
        return None
    here = os.uname().nodename
    if process and process.start_ticks is None and process.hostname == here and read_process(process.pid):
        return f"process {process.pid} may be its own, end it first"
    try:
        age = now - os.stat(files.progress_path).st_mtime
    except OSError as error:
        return f"when it wrote its file is not known ({error.strerror})"
    if age >= _HEARD_SECONDS:
        return None
    return f"it wrote its file {format_duration(max(0.0, age))} ago, and its process cannot be seen from here"


def _check_own_folder(folder: str, own: str) -> None:
    """Raise unless a run's folder is a real one, directly below the folder of runs."""
    if os.path.dirname(own) != folder or not stat.S_ISDIR(os.lstat(own).st_mode):
        raise OSError(errno.EINVAL, "not a folder of its own (a link?), delete it by hand", own)
