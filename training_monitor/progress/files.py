"""Where runs keep their files, in both layouts of docs/progress_files.md; replacing and reading such files whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from training_monitor.errors import SettingsError
from training_monitor.parse.progress_file import MAX_FILE_BYTES
from training_monitor.policy.run_filters import natural_key
from training_monitor.progress.temporary_files import temporary_beside

PROGRESS, CONTROL, SUFFIX = "progress.json", "control.json", ".json"
_CONTROL_PREFIX = "control_"
_OUTPUTS = ("stdout.log", "stderr.log")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run; `folder` is the run's own folder, None in the flat layout."""

    name: str
    progress_path: str
    control_path: str
    folder: str | None = None


def run_files(output_file: str | os.PathLike[str]) -> RunFiles:
    """The absolute paths that TrainingMonitor(output_file) writes: RUN.json, RUN or RUN/progress.json.

    Raises:
        SettingsError: It can be no run's: empty, hidden, or the name of a control file.
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
    """The runs in a folder of runs, with absolute paths, in natural order of their names.

    A folder that has a progress.json of its own is that run's, and listed under its own name. What cannot be looked at
    (a link to nothing, a folder that may not be entered) is left out. Raises OSError when the folder cannot be read.
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
            elif entry.name.endswith(SUFFIX):
                files.append(entry.name)
    found = runs_from_names(files, folders, here=os.path.basename(top) or "run")
    return [place_below(top, each) for each in found]


def runs_from_names(flat: Iterable[str], folders: Iterable[str], *, here: str = "run") -> list[RunFiles]:
    """Which runs these names make, with paths relative to their folder, in natural order.

    Args:
        flat: names of files ending in .json.
        folders: names of folders that hold a progress.json.
        here: name of the run whose progress.json stands among `flat`.

    Returns:
        One for each file: no two have the same name, since that in a folder ends in a slash where both layouts have it.
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
        found[name] = files if name == files.name else replace(files, name=name)
    return sorted(found.values(), key=lambda files: natural_key(files.name))


def place_below(folder: str, files: RunFiles) -> RunFiles:
    """The same files, of which the paths are relative, in this folder."""
    above = folder if folder.endswith("/") else f"{folder}/"
    return RunFiles(
        files.name,
        above + files.progress_path,
        above + files.control_path,
        None if files.folder is None else above + files.folder,
    )


def log_paths(files: RunFiles) -> tuple[str, str]:
    """Where a run keeps copies of its stdout and stderr: in its own folder, or beside its progress file."""
    folder, last = os.path.split(files.progress_path)
    prefix = "" if last == PROGRESS else f"{last.removesuffix(SUFFIX)}_"
    out, err = (os.path.join(folder, prefix + name) for name in _OUTPUTS)
    return out, err


def owner_path(files: RunFiles) -> str:
    """Where it stands which process writes a run: hidden, beside its progress file."""
    folder, last = os.path.split(files.progress_path)
    return os.path.join(folder, f".{last}.owner")


def paths_of_run(files: RunFiles) -> list[str]:
    """What is deleted of a run; its progress file goes last: until then it is listed, and can be deleted again."""
    if files.folder is not None:
        return [files.folder]
    return [files.control_path, *log_paths(files), owner_path(files), files.progress_path]


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file by one with this text: whoever reads it sees the old one or the new one, whole.

    The new one is written beside it, readable by all but for the umask, and removed when that fails. Raises OSError.
    """
    path = os.fspath(path)
    temporary = temporary_beside(path)
    write_new(temporary, text)
    try:
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_new(path: str, text: str) -> None:
    """Make a file with this text, readable by all but for the umask; none where it cannot be whole. Raises OSError."""
    data = memoryview(text.encode("utf-8", "backslashreplace"))  # in JSON this is how a lone surrogate is written
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a file for reading, never waiting: a pipe, device or folder of that name raises OSError."""
    _check_regular(os.stat(path), path)  # opening a device may already do something
    return _open_regular(path)[0]


def read_text(path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES) -> str:
    """Read a regular file of at most `limit` bytes; what is no UTF-8 is replaced. Raises OSError, also when longer."""
    return read_file(path, limit)[0]


def read_file(
    path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES, *, state: os.stat_result | None = None
) -> tuple[str, os.stat_result]:
    """Like `read_text`, with the state of just the file that was read.

    Args:
        state: what os.stat has just said of the path, so that it need not be asked again.
    """
    _check_regular(os.stat(path) if state is None else state, path)
    file, state = _open_regular(path)
    try:
        data = os.read(file, min(state.st_size, limit) + 1)
        if len(data) != state.st_size:  # a file of /proc, or one that is being written in its place
            data += _read_rest(file, limit + 1 - len(data)) if data else b""
    finally:
        os.close(file)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit} bytes", os.fspath(path))
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
