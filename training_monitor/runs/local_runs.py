"""Read and edit runs in a folder of this machine; signals and deletion are as on any target."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import SettingsError, TrainingMonitorError
from training_monitor.core.read_fence import check_here, leads_out
from training_monitor.runs.files import (
    KnownRun,
    RunFiles,
    list_run_files,
    open_regular,
    outputs_elsewhere,
    read_file,
    read_run,
    read_text,
    remove_left_beside,
    unread_run,
    write_atomically,
)
from training_monitor.runs.progress_file import Edit, check_edits, merge_edits, read_edits
from training_monitor.runs.remote_runs import RemoteRuns
from training_monitor.runs.resources import GpuReader, with_gpus
from training_monitor.runs.values import FolderLook, OutputChunk, Run, RunSize
from training_monitor.targets.kinds import list_folder_forms, one_of
from training_monitor.targets.proc_stat import MachineSample
from training_monitor.targets.procfs import MachineReader
from training_monitor.targets.target import Target, split_folder
from training_monitor.targets.transport import Transport

MAX_CHUNK = 2**20
_FIRST_GPUS = 1.0  # seconds to wait for the first answer of nvidia-smi, so that one look shows GPU memory
_LOCK_SECONDS, _LOCK_INTERVAL = 2.0, 0.02
_SETTLED_NS = 100_000_000  # a file may change twice within the resolution of its mtime

_Signature = tuple[int, ...]  # empty for a missing file
_MISSING: _Signature = ()


def open_runs(where: str, *, namespace: str = "default", transport: Transport | None = None) -> RemoteRuns:
    """Return the runs in a folder on this machine or on a target. No query is sent yet.

    Args:
        where: a folder on this machine, or one on a target: ssh://host/path, POD:/path, and so on. `~/`
            (ssh://host/~/path) is the home folder there. If a local folder has this name, it is used.
        namespace: namespace of a POD that is given without one.

    Raises:
        SettingsError: `where` has none of these forms.
    """
    if os.path.isdir(where):
        return LocalRuns(where, transport=transport)
    target, folder = _split_where(where, namespace)
    return RemoteRuns(target, folder, transport=transport)


def _split_where(where: str, namespace: str) -> tuple[Target, str]:
    try:
        target, path = split_folder(where, namespace)
    except SettingsError:
        target, path = None, ""
    if target is None or "\0" in path or (path.startswith("~") and path[1:2] not in ("", "/")):
        raise SettingsError("folder", where, one_of(["an existing folder", *list_folder_forms()]))
    return target, "~/" if path == "~" else path


class LocalRuns(RemoteRuns):
    """The access to a folder of this machine, whose looks start no shell. Unchanged files are not read again."""

    def __init__(
        self, folder: str | os.PathLike[str], *, transport: Transport | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        folder = os.path.abspath(check_here(os.fspath(folder)))
        super().__init__("local", folder, transport=transport, clock=clock)
        self._root = "/"  # the known paths are absolute
        self._machine = MachineReader()
        self._gpus = GpuReader(transport=transport, clock=clock)

    def look(self, threads_of: frozenset[int]) -> FolderLook:
        """Read all processes, then the changed files. Raises TrainingMonitorError if the folder cannot be read."""
        self._gpus.latest()  # starts nvidia-smi in the background
        processes_at = self._clock.time()
        machine: MachineSample | None = None
        error = None
        try:
            machine = self._machine.read(threads_of)
        except TrainingMonitorError as failure:
            error = str(failure)
        self._read_files()
        runs = tuple(one.run for one in self._known.values() if one.run)
        timestamp = self._clock.time()
        self._gpus.wait_once(_FIRST_GPUS)
        machine = machine and with_gpus(machine, self._gpus.latest())
        return FolderLook(runs, machine, timestamp, error, processes_at)

    def read_output(self, path: str, start: int, length: int) -> OutputChunk:
        """Read at most MAX_CHUNK bytes of a file that a run of the last look names as its output."""
        self._check_output(path)
        try:
            file = open_regular(path)
            try:
                size = os.fstat(file).st_size
                start = min(start if start >= 0 else max(0, size + start), size)
                return OutputChunk(size, start, os.pread(file, max(0, min(length, MAX_CHUNK)), start))
            finally:
                os.close(file)
        except OSError as error:
            raise TrainingMonitorError(f"{path!r} cannot be read: {error.strerror}") from error

    def edit(self, run: Run, values: Mapping[str, str]) -> str:
        """Add edits to the control file of a run, beside the unanswered ones, and verify that they are there.

        Two editors wait for one another; no edits are lost.

        Raises:
            TrainingMonitorError: The run has ended or has no such variable, a value is too long, or the file cannot be
                written.
        """
        self._read_files()
        path = self._known_of(run).files.control_path
        check_edits(run, values)
        edit_id, now = os.urandom(8).hex(), self._clock.time()
        added = {name: Edit(value, edit_id, now) for name, value in values.items()}
        try:
            with _lock(os.path.dirname(path), self._clock):
                write_atomically(path, merge_edits(_read(path), run, added))
                remove_left_beside(path)
                written = read_edits(_read(path))
        except OSError as error:
            raise TrainingMonitorError(f"{path!r} cannot be written: {error.strerror}") from error
        if any(written.get(name) != one for name, one in added.items()):
            raise TrainingMonitorError(
                f"{path!r} does not contain the edits that were written",
                hint="check whether another process writes this file",
            )
        return edit_id

    def measure(self, run: Run) -> RunSize:
        """Measure what `delete` would remove, and name what it would not. Raises CommandError."""
        return super().measure(run)._replace(kept=outputs_elsewhere(self._known_of(run).files, run))

    def _read_files(self) -> None:
        known = {}
        for files in self._list():
            if one := _look_at(files, self._known.get(files.progress_path)):
                known[files.progress_path] = one
        self._known = known

    def _list(self) -> list[RunFiles]:
        try:
            paths = [(each, (each.progress_path, each.control_path)) for each in list_run_files(self.folder)]
            return [each for each, those in paths if not any(leads_out(path, self.folder) for path in those)]
        except OSError as error:
            hint = "use the folder that the training scripts write to" if isinstance(error, FileNotFoundError) else None
            raise TrainingMonitorError(
                f"the folder {self.folder!r} cannot be read: {error.strerror}", hint=hint
            ) from error


def _look_at(files: RunFiles, before: KnownRun[_Signature] | None) -> KnownRun[_Signature] | None:
    """Return a run's files as they are now; None if they are gone. An unreadable file keeps the old run, and why."""
    if before and before.files != files:
        before = None
    last = before.run if before else None
    try:
        progress, control = _as_signature(os.stat(files.progress_path)), _signature(files.control_path)
        if before and before.progress == progress and before.control == control:
            return before
        text, state = read_file(files.progress_path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return KnownRun(files, None, None, unread_run(files, last, f"cannot be read: {error.strerror}"))
    edits, edited = _read_control(files.control_path) if control else (None, _MISSING)
    return KnownRun(files, _settled(state), edited, read_run(files, text, edits, last))


def _read_control(path: str) -> tuple[str | None, _Signature | None]:
    try:
        text, state = read_file(path)
    except OSError:
        return None, _signature(path)
    return text, _settled(state)


def _signature(path: str) -> _Signature:
    try:
        return _as_signature(os.stat(path))
    except OSError:
        return _MISSING


def _as_signature(state: os.stat_result) -> _Signature:
    return state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev


def _settled(state: os.stat_result) -> _Signature | None:
    """Return the signature of a file that was written some time ago; None means: read it again."""
    return _as_signature(state) if time.time_ns() - state.st_mtime_ns > _SETTLED_NS else None


def _read(path: str) -> str:
    """Return the text of a control file, "" if it is missing."""
    with suppress(FileNotFoundError):
        return read_text(path)
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
                    f"another process has been editing files in {folder!r} for {_LOCK_SECONDS:g} s",
                    hint="retry the same call",
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
