"""Limit which files are read where a program chooses the paths: the MCP server does so for itself and what it starts.

A path may then be read if, by its real path on the target, it is the log of a job, a log or a checkpoint folder of a
training that was found there, or below a folder of `--read-under`. `targets/sh/fence.sh` decides on the target, by the
file that it has opened; here is what was found, and the decision about the few files that Python reads on this machine.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from training_monitor.core.errors import AccessDenied, Hint

READ_UNDER = "TRAINING_MONITOR_READ_UNDER"  # a JSON list of folders; the fence stands where this variable is set
HINT = Hint("start the server with the folder: {read_under}")
WHY_REFUSED = (
    "reading it is not allowed: its real path is not the log of a job, not a log or checkpoint folder of a training "
    "that was found, and not inside a folder that the server was started with"
)
REFUSED, DENIED = 93, 94  # exit codes of fence.sh
_SPECIAL = ("/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/usr")  # no folders of checkpoints
_MOST_FOUND = 300  # paths of one target, the newest
_HELD_SECONDS = 600.0  # a path below /proc names a process, and a terminal has a number: they are others later
_FOUND = dict[str, dict[str, float]]()  # what this process found, also where the state folder cannot be used
_CONFIGURED = dict[str, set[str]]()


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """The logs of trainings found on one target, and their checkpoint folders, which end in a slash; when (epoch)."""

    seen: dict[str, float] = field(default_factory=dict)


def is_fenced() -> bool:
    """Return whether only some files may be read."""
    return READ_UNDER in os.environ


def fence_reading(folders: Sequence[str]) -> None:
    """Read from now on, here and in programs started from here, only what is allowed, and below these folders."""
    os.environ[READ_UNDER] = json.dumps(list(folders))


def read_folders() -> list[str]:
    """Return the folders of `--read-under`."""
    return [str(each) for each in json.loads(os.environ.get(READ_UNDER, "[]"))]


def keep_found(target: object, logs: Iterable[str], folders: Iterable[str]) -> None:
    """Remember where trainings that were found print, and their checkpoint folders, where a fence stands."""
    if not is_fenced():
        return
    now = time.time()
    paths = [*filter(None, logs), *(f"{folder.rstrip('/')}/" for folder in folders if folder.strip("/"))]
    found = _FOUND.setdefault(str(target), {})
    found |= {path: now for path in paths if "\n" not in path}
    from training_monitor.core.best_effort_store import BestEffortStore

    store, key = BestEffortStore(), _key(target)
    kept = store.load_run(key, FoundPaths, finished=True) or FoundPaths()
    newest = sorted({**kept.seen, **found}.items(), key=lambda each: each[1])[-_MOST_FOUND:]
    store.save_run(key, FoundPaths(dict(newest)), finished=True)


def keep_configured(target: object, patterns: Iterable[str]) -> None:
    """Let what matches the patterns of the user's own settings be read on a target, where a fence stands."""
    if is_fenced():  # elsewhere, nothing is kept for each machine that was ever rented
        _CONFIGURED.setdefault(str(target), set()).update(patterns)


def _key(target: object) -> str:
    return f"paths found on {target}"


def _found_on(target: object) -> list[str]:
    from training_monitor.core.best_effort_store import BestEffortStore

    kept = BestEffortStore().load_run(_key(target), FoundPaths, finished=True) or FoundPaths()
    now, seen = time.time(), {**kept.seen, **_FOUND.get(str(target), {})}
    lasts = {path for path in seen if not path.startswith(("/proc/", "/dev/"))}
    return [path for path, at in seen.items() if path in lasts or abs(now - at) < _HELD_SECONDS]


def may_list(path: str) -> bool:
    """Return whether to list a log of which no training is known: not where a fence stands that would refuse it."""
    return not is_fenced() or any(_is_below(path, os.path.expanduser(folder)) for folder in read_folders())


def leads_out(path: str, folder: str) -> bool:
    """Return whether a fence stands, and a link leads a path in a folder out of it."""
    return is_fenced() and not _is_below(os.path.realpath(path), folder)


def _is_below(real: str, folder: str) -> bool:
    top = os.path.realpath(folder).rstrip("/")
    return real == top or real.startswith(f"{top}/")


def _may_be_of_training(real: str, folder: str) -> bool:
    """Return whether a checkpoint folder, which a training names, opens a path in it: the same as in fence.sh."""
    is_wide = _is_below(os.path.expanduser("~"), folder) or folder in ("/home", "/var")
    is_special = any(_is_below(folder, each) for each in _SPECIAL) or "/.ssh" in folder
    return not (is_wide or is_special or "/." in real[len(folder) :])


def format_fence(target: object) -> str:
    """Return the variables that fence.sh needs for a target, as the beginning of a script; "" without a fence."""
    if not is_fenced():
        return ""
    configured = _CONFIGURED.get(str(target), ())
    lists = {"_tm_under": read_folders(), "_tm_found": _found_on(target), "_tm_patterns": sorted(configured)}
    return "".join(f"{name}={shlex.quote(chr(10).join(paths))}\nexport {name}\n" for name, paths in lists.items())


def check_here(path: str) -> str:
    """Return what to read for a path of this machine: where a fence stands, its real path. Raises AccessDenied."""
    if not is_fenced():
        return path
    real = os.path.realpath(os.path.expanduser(path))
    named = [each for each in _found_on("local") if each.endswith("/")]
    if any(_is_below(real, os.path.expanduser(folder)) for folder in read_folders()) or any(
        _is_below(real, folder) and _may_be_of_training(real, os.path.realpath(folder)) for folder in named
    ):
        return real
    raise AccessDenied(f"{path}: {WHY_REFUSED}", hint=HINT)
