"""Which files a folder has: on a target by one question, on this machine by looking."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterable, Mapping

from training_monitor.errors import CommandFailed, ParseError, SettingsError
from training_monitor.models import Question, Reply
from training_monitor.parse.file_list import (
    MOST_FILES,
    PARTIAL,
    FileList,
    ListedFile,
    find_name_problem,
    folders_above,
    parse_file_list,
)
from training_monitor.targets.asking import ask, quote_path
from training_monitor.targets.target import Target
from training_monitor.targets.transport import Transport

LIST_SECONDS = 120.0

# In front of it stand the path as _dir, whether it is to be made as _make, and where find begins as "$@". Names with a
# newline would forge lines; they are counted apart. What find complains of comes in a line of its own, for a folder
# that cannot be read is not an empty one.
_SCRIPT = rf"""
exec 2>/dev/null
_fail() {{ printf 'state=%s' "$1" | tr '\n' ' '; exit 0; }}
if [ $_make = yes ]; then _said=$(umask 077; mkdir -p "$_dir" 2>&1) || _fail "it cannot be made: $_said"; fi
[ -e "$_dir" ] || [ -L "$_dir" ] || _fail missing
_state=folder
[ -f "$_dir" ] && {{ set -- "./${{_dir##*/}}"; _dir=${{_dir%/*}}/; _state=file; }}
_said=$(cd "$_dir" 2>&1) || _fail "it cannot be entered: $_said"
cd "$_dir" || _fail "it cannot be entered"
command -v find >/dev/null && stat -c %Y . >/dev/null || _fail "there is no find, or no stat that knows -c"
printf 'state=%s\nroot=%s\n' $_state "$(pwd -P)"
for _tool in rsync tar; do command -v $_tool >/dev/null && printf 'tool %s\n' $_tool; done
_newline='
'
_found=$(find "$@" -name '.?*' -prune -o -name "*$_newline*" -prune -print | head -n 2 | tr '\n' '?')
[ -z "$_found" ] || printf 'refused %s\n' "$_found"
exec 3>&1
_said=$({{
  find "$@" \( -name '.?*' ! -name {PARTIAL} -o -name "*$_newline*" \) -prune \
    -o -type f -exec stat -c 'file %s %Y %n' {{}} + \
    -o ! -type d -exec printf 'other %s\n' {{}} + 2>&4 | head -n {MOST_FILES + 1} >&3
}} 4>&1 | grep -v 'No such file' | head -c 1000 | tr '\n' ' ')
[ -z "$_said" ] || printf 'said %s\n' "$_said"
:
"""


def list_question(path: str, names: Collection[str] = (), *, make: bool = False) -> Question[FileList | None]:
    """The files below `path`, or below these `names` in it; with `make` the folder is made first, for its owner only.

    `path` may be a file. The answer is None where there is neither. Raises SettingsError.
    """
    if "\n" in path:
        raise SettingsError("remote", path, "a path without newlines")
    starts = " ".join(shlex.quote(f"./{name}") for name in names) or "."
    begin = f"_dir={quote_path(path)} _make={'yes' if make else 'no'}\nset -- {starts}"

    def parse(reply: Reply) -> FileList | None:
        return parse_file_list(reply.output)

    return Question("files", begin + _SCRIPT, parse, LIST_SECONDS)


def list_remote(
    target: str | Target,
    path: str,
    names: Collection[str] = (),
    *,
    make: bool = False,
    transport: Transport | None = None,
) -> FileList | None:
    """Ask for the files below `path`. Raises CommandError; a folder that cannot be listed is CommandFailed."""
    [answer] = ask(target, list_question(path, names, make=make), transport=transport)
    if isinstance(answer.failure, ParseError):
        raise CommandFailed(f"{path!r}: {answer.failure}", target=str(target)) from answer.failure
    return answer.get()


def list_folder(folder: str) -> FileList:
    """The regular files below a folder of this machine, and the links to files in it.

    Raises:
        SettingsError: it is no folder, a part of it cannot be read, or a name cannot be copied.
    """
    if not folder or "\0" in folder:
        raise SettingsError("local", folder, "a folder that can be read")
    root = os.path.realpath(folder)
    files: dict[str, ListedFile] = {}
    others: set[str] = set()
    waiting = [""]
    while waiting:
        below = waiting.pop()
        for entry in _entries(os.path.join(root, below)):
            name = os.path.join(below, entry.name)
            if entry.name.startswith("."):
                continue
            if problem := find_name_problem(name):
                raise SettingsError("local", name, f"names that can be copied, not {problem}: rename it")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif file := _regular_file(entry, root):
                files[name] = file
            else:
                others.add(name)
        if len(files) > MOST_FILES:
            raise SettingsError("local", folder, f"a folder with at most {MOST_FILES} files: pack them into archives")
    return FileList(root, files, frozenset(others))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise SettingsError("local", folder, f"a folder that can be read ({error})") from error


def _regular_file(entry: os.DirEntry[str], root: str) -> ListedFile | None:
    """None for what is no file, and for a link that leads out of the folder or nowhere."""
    try:
        if entry.is_symlink() and not os.path.realpath(entry.path).startswith(os.path.join(root, "")):
            return None
        return _listed(entry.stat())
    except OSError:
        return None


def _listed(seen: os.stat_result) -> ListedFile | None:
    return ListedFile(seen.st_size, seen.st_mtime_ns // 10**9) if stat.S_ISREG(seen.st_mode) else None


def list_arrived(folder: str, names: Iterable[str]) -> FileList:
    """Which of `names` lie in a folder of this machine; links are not followed."""
    files: dict[str, ListedFile] = {}
    partial = 0
    for name in names:
        if file := _look(os.path.join(folder, name)):
            files[name] = file
        above, last = os.path.split(name)
        if cut := _look(os.path.join(folder, above, PARTIAL, last)):
            partial += cut.size
    return FileList(folder, files, partial_bytes=partial)


def _look(path: str) -> ListedFile | None:
    try:
        return _listed(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def check_no_links(folder: str, names: Iterable[str]) -> None:
    """Raise CommandFailed where writing `names` into a folder of this machine would go through a link, or over one."""
    ways = {way for name in names for way in (name, *folders_above(name))} | {PARTIAL}
    for way in sorted(ways):
        if os.path.islink(os.path.join(folder, way)):
            raise CommandFailed(
                f"{os.path.join(folder, way)!r} is a link on this machine, nothing is written there",
                hint="remove the link, or copy into another folder",
            )


def check_no_others(there: FileList, files: Mapping[str, ListedFile], target: str) -> None:
    """Raise CommandFailed where a target has a link, or something that is no file, in the way of `files`."""
    for name in files:
        way = next((way for way in (name, *folders_above(name)) if way in there.others), None)
        if way is not None:
            raise CommandFailed(
                f"{there.root}/{way} is a link or no regular file there, nothing is written to it",
                target=target,
                hint="remove it, or copy into another folder",
            )
