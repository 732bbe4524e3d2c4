"""Locate, read and replace the files of runs, in both layouts of docs/progress_files.md.

A file is replaced through a temporary file beside it, and those that killed writers left are removed. The name of a
temporary file identifies its writer: the machine with its boot, and the process. If the writer was on this machine, the
file is removed as soon as that has ended; otherwise (another machine, or a script on a target) when it is an hour old
by the clock of the file system: putting it in place takes only a moment.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from training_monitor.core.errors import ParseError, SettingsError
from training_monitor.core.regex import regex
from training_monitor.runs.progress_file import MAX_FILE_BYTES, NotAProgressFile, parse_progress_file
from training_monitor.runs.values import Run, natural_key
from training_monitor.targets.proc_stat import Identity
from training_monitor.targets.procfs import identify, is_alive

OLD_SECONDS = 3600
_PREFIX = ".training-monitor-"  # hidden, so that listings skip it
_OURS = regex(rf"{re.escape(_PREFIX)}(?:edit-|([0-9a-f]{{12}})-(\d{{1,10}})-(\d{{1,20}})-)[0-9a-f]{{12}}\.tmp")
PROGRESS, CONTROL, SUFFIX = "progress.json", "control.json", ".json"
_CONTROL_PREFIX = "control_"
_OUTPUTS = ("stdout.log", "stderr.log")
_MAX_ERROR = 300
Mark = TypeVar("Mark")  # identifies a file's content: its text, or its signature


def temporary_beside(path: str) -> str:
    """Return an unused name in the folder of this file."""
    me = identify()
    name = f"{_PREFIX}{_machine(me)}-{me.pid}-{me.start_ticks or 0}-{os.urandom(6).hex()}.tmp"
    return os.path.join(os.path.dirname(path), name)


def temporary_of_script() -> str:
    """Return such a name for a script on a target; only the age of that file tells that its writer has ended."""
    return f"{_PREFIX}edit-{os.urandom(6).hex()}.tmp"


def remove_left_beside(path: str) -> None:
    """Remove what killed writers left in the folder of this file, which was written just now.

    Only regular files of this user with such names; best effort.
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
    """Return whether the writer is alive; None if that cannot be seen from here."""
    here = identify()
    if machine != _machine(here):
        return None
    return is_alive(Identity(int(pid), int(start_ticks) or None, here.hostname, here.boot_id, here.pid_namespace))


def _machine(one: Identity) -> str:
    import hashlib

    words = f"{one.hostname} {one.boot_id} {one.pid_namespace}"
    return hashlib.sha256(words.encode(errors="replace")).hexdigest()[:12]


class RunFiles(NamedTuple):
    """The files of one run; `folder` is the run's own folder, None in the flat layout."""

    name: str
    progress_path: str
    control_path: str
    folder: str | None = None

    def unread(self) -> Run:
        """Return the run before its file was read."""
        return Run(self.name, self.progress_path, self.control_path, self.folder)


@dataclass(frozen=True, slots=True)
class KnownRun(Generic[Mark]):
    """The last reading of a run: its files, a mark of the content of each, and the run (None: the file is not a run's).

    A mark is None if there is nothing to compare: the file is gone, or may still change.
    """

    files: RunFiles
    progress: Mark | None
    control: Mark | None
    run: Run | None


def run_files(output_file: str | os.PathLike[str]) -> RunFiles:
    """Return the absolute paths that TrainingMonitor(output_file) writes: RUN.json, RUN or RUN/progress.json.

    Raises:
        SettingsError: It cannot be a run's: empty, hidden, or the name of a control file.
    """
    given = os.fspath(output_file)
    path = os.path.abspath(given)
    above, last = os.path.split(path)
    if not given or not last or last.startswith(".") or "\0" in path or _is_control(last):
        raise SettingsError("output_file", given, "a path such as progress/RUN.json or progress/RUN")
    if last.endswith(SUFFIX) and last != PROGRESS:
        return RunFiles(last.removesuffix(SUFFIX), path, os.path.join(above, f"{_CONTROL_PREFIX}{last}"))
    folder = above if last == PROGRESS else path
    name = os.path.basename(folder) or "run"
    return RunFiles(name, os.path.join(folder, PROGRESS), os.path.join(folder, CONTROL), folder)


def list_run_files(folder: str | os.PathLike[str]) -> list[RunFiles]:
    """List the runs in a folder of runs, with absolute paths, in natural order of their names.

    A folder with a progress.json of its own is that run's folder, and listed under its own name. Another one is a
    group, whose runs with folders are listed as GROUP/RUN. Entries that cannot be examined (a dangling link, a folder
    without permission) are left out. Raises OSError if the folder cannot be read.
    """
    top = os.path.abspath(folder)
    files, folders = [], []
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                if os.path.lexists(f"{entry.path}/{PROGRESS}"):
                    folders.append(entry.name)
                else:
                    folders += [f"{entry.name}/{name}" for name in _runs_of_group(entry.path)]
            elif entry.name.endswith(SUFFIX):
                files.append(entry.name)
    found = runs_from_names(files, folders, here=os.path.basename(top) or "run")
    return [place_below(top, each) for each in found]


def _runs_of_group(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_shown = not entry.name.startswith(".") and _is_folder(entry)
            if is_shown and os.path.lexists(f"{entry.path}/{PROGRESS}"):
                yield entry.name


def runs_from_names(flat: Iterable[str], folders: Iterable[str], *, here: str = "run") -> list[RunFiles]:
    """Return the runs that these names make up, with paths relative to their folder, in natural order.

    Args:
        flat: names of files ending in .json.
        folders: names of folders that hold a progress.json.
        here: name of the run whose progress.json is among `flat`.

    Returns:
        One for each file. Names are unique: if both layouts have a name, that of the folder gets a slash at its end.
    """
    found: dict[str, RunFiles] = {}
    others = [RunFiles(name, f"{name}/{PROGRESS}", f"{name}/{CONTROL}", name) for name in folders]
    for file in flat:
        name = file.removesuffix(SUFFIX)
        if file == PROGRESS:
            others.append(RunFiles(here, PROGRESS, CONTROL))
        elif file != name and name and not file.startswith(".") and not _is_control(file):
            found[name] = RunFiles(name, file, _CONTROL_PREFIX + file)
    for files in others:
        name = files.name
        while name in found:
            name += "/"
        found[name] = files if name == files.name else files._replace(name=name)
    return sorted(found.values(), key=lambda files: natural_key(files.name))


def place_below(folder: str, files: RunFiles) -> RunFiles:
    """Return the same files, given by relative paths, in this folder."""
    above = folder if folder.endswith("/") else f"{folder}/"
    return RunFiles(
        files.name,
        above + files.progress_path,
        above + files.control_path,
        None if files.folder is None else above + files.folder,
    )


def log_paths(files: RunFiles) -> tuple[str, str]:
    """Return where copies of a run's stdout and stderr go: its own folder, or beside its progress file."""
    folder, last = os.path.split(files.progress_path)
    prefix = "" if last == PROGRESS else f"{last.removesuffix(SUFFIX)}_"
    out, err = (os.path.join(folder, prefix + name) for name in _OUTPUTS)
    return out, err


def owner_path(files: RunFiles) -> str:
    """Return the path of the record of the process that writes a run: hidden, beside its progress file."""
    folder, last = os.path.split(files.progress_path)
    return os.path.join(folder, f".{last}.owner")


def paths_of_run(files: RunFiles) -> list[str]:
    """Return the paths to delete, the progress file last: until then the run is listed, and can be deleted again."""
    if files.folder is not None:
        return [files.folder]
    return [files.control_path, *log_paths(files), owner_path(files), files.progress_path]


def paths_to_run(run: Run) -> tuple[str, ...]:
    """Return the folder of its own, if it has one, and the progress file: what decides which run a name means."""
    return (run.path,) if run.folder is None else (run.folder, run.path)


def outputs_elsewhere(files: RunFiles, run: Run) -> tuple[str, ...]:
    """Return the outputs of a run that stay when its files are deleted."""
    gone = [os.path.realpath(path) for path in paths_of_run(files)]
    outputs = dict.fromkeys(path for path in (run.stdout_path, run.stderr_path) if path and os.path.exists(path))
    return tuple(path for path in outputs if not _is_below(os.path.realpath(path), gone))


def _is_below(path: str, above: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in above)


def read_run(files: RunFiles, text: str, control: str | None, before: Run | None) -> Run | None:
    """Return the run of these texts; if they cannot be parsed, the previous run, with the reason.

    Args:
        files: with absolute paths.
        control: text of its control file, None if there is none.

    Returns:
        None for a file that is JSON of something else, unless its path can only be a run's.
    """
    try:
        return parse_progress_file(text, files.unread(), control)
    except ParseError as error:
        is_of_others = isinstance(error, NotAProgressFile) and files.folder is None
        return None if is_of_others else unread_run(files, before, error.what)


def unread_run(files: RunFiles, before: Run | None, error: str) -> Run:
    """Return the previous run, if there was one, with the reason why its file cannot be read."""
    return replace(before or files.unread(), error=error[:_MAX_ERROR])


def write_atomically(path: str | os.PathLike[str], text: str, *, public: bool = False) -> None:
    """Replace a file by one with this text: a reader sees either the old one or the new one, whole.

    The new one is written beside it, with mode 0644 minus the umask, and removed on failure. A `public` one is readable
    for all users whatever the umask, and on the disk before it takes the place of the old one. Raises OSError.
    """
    path = os.fspath(path)
    temporary = temporary_beside(path)
    write_new(temporary, text, public=public)
    try:
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_new(path: str, text: str, *, public: bool = False) -> None:
    """Create a file with this text, with mode 0644 minus the umask; remove it if the write fails. Raises OSError.

    A `public` file is readable for all users, and on the disk when this returns.
    """
    data = memoryview(text.encode("utf-8", "backslashreplace"))  # in JSON, this escape stands for a lone surrogate
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            while data:
                data = data[os.write(file, data) :]
            if public:
                os.fchmod(file, 0o644)
                os.fsync(file)
        finally:
            os.close(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a file for reading, without blocking: a pipe, device or folder raises OSError."""
    _check_regular(os.stat(path), path)  # opening a device may have side effects
    return _open_regular(path)[0]


def read_text(path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES) -> str:
    """Read a regular file of at most `limit` bytes; invalid UTF-8 is replaced. Raises OSError, also if it is longer."""
    return read_file(path, limit)[0]


def read_file(path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES) -> tuple[str, os.stat_result]:
    """Read a file like `read_text`, and return its text with the state of exactly the file that was read."""
    _check_regular(os.stat(path), path)
    file, state = _open_regular(path)
    try:
        data = os.read(file, min(state.st_size, limit) + 1)
        if len(data) != state.st_size:  # a file of /proc, or one that is being overwritten
            data += _read_rest(file, limit + 1 - len(data)) if data else b""
    finally:
        os.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"the file is longer than {limit} bytes", os.fspath(path))
    return data.decode("utf-8", "replace"), state


def _read_rest(file: int, limit: int) -> bytes:
    chunks = []
    while limit > 0 and (chunk := os.read(file, min(limit, 2**16))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _open_regular(path: str | os.PathLike[str]) -> tuple[int, os.stat_result]:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        state = os.fstat(file)
        _check_regular(state, path)
    except OSError:
        os.close(file)
        raise
    return file, state


def _check_regular(state: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_control(name: str) -> bool:
    return name == CONTROL or (name.startswith(_CONTROL_PREFIX) and name.endswith(SUFFIX))
