"""All that is wrong in the settings file: line, key, value and what was expected; what may be secret is left out.

Each value is read on its own and by those who read it at work; a table whose values are all fine is read as a whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from training_monitor.errors import SettingsError, redact
from training_monitor.notify.configure import read_channels, read_users
from training_monitor.parse.settings_lines import Path, find_line, format_path
from training_monitor.policy.fleet_config import find_fleet_faults
from training_monitor.policy.service_config import read_service_config
from training_monitor.policy.watch_config import read_watch_config
from training_monitor.probes.settings_file import (
    TABLES,
    expect_table,
    find_settings,
    parse_settings,
    read_log_pattern,
    read_settings,
)
from training_monitor.targets.target import parse_target

_WIDTH = 60


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing that is wrong.

    `line` is None where no line can be named; `key` is dotted, as in fleet.alerts[1].when, and empty for the file
    itself; `value` is a short text of what is there, None where that may be secret or says nothing.
    """

    line: int | None
    key: str
    value: str | None
    expected: str


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """What was found in a settings file; `file` is empty when there is none. `counts`: how many there are of what."""

    file: str
    problems: tuple[SettingsProblem, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong, before its line is looked up; `key` says it better than the path where that ends too early."""

    path: Path
    value: object
    expected: str
    key: str = ""


def check_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> SettingsCheck:
    """Read the settings file and say all that is wrong in it.

    Args:
        path: default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.
        environ: where those variables, and those with secrets, are looked up.

    Returns:
        The problems by their lines; none when there is no file. A file that cannot be read is one problem.
    """
    file = text = ""
    try:
        file = find_settings(path, environ)
        if not file:
            return SettingsCheck("")
        text = read_settings(file)
        settings = parse_settings(file, text)
    except SettingsError as error:
        return SettingsCheck(file or str(error.value), (_unreadable(error, text),))
    faults = [fault for name, table in settings.items() for fault in _faults(file, name, table)]
    faults += _told(file, settings, environ)
    toml = file.endswith(".toml")
    problems = [_problem(fault, find_line(text, fault.path, toml=toml)) for fault in faults]
    return SettingsCheck(file, tuple(sorted(problems, key=lambda each: each.line or 0)), _counts(settings))


def _unreadable(error: SettingsError, text: str) -> SettingsProblem:
    """The one problem of a file, on the line that its parser names."""
    cause = error.__cause__
    line = getattr(cause, "lineno", None)
    if isinstance(cause, UnicodeDecodeError):
        line = cause.object.count(b"\n", 0, cause.start) + 1
    elif line is None and (named := re.search(r"\bline (\d+)", str(cause))):
        line = int(named[1])
    elif line is None and "at end of document" in str(cause):
        line = text.count("\n") + 1
    return SettingsProblem(line, "", None, error.expected)


def _problem(fault: _Fault, line: int | None) -> SettingsProblem:
    is_key = fault.path[-1:] == (fault.value,)
    shown = None if fault.value is None or is_key else _shown(fault.value)
    return SettingsProblem(line, fault.key or format_path(fault.path), shown, redact(fault.expected))


def _shown(value: object) -> str:
    """A short text of a value; of what may hold others only its kind, since they may be secret."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    try:
        text = redact(json.dumps(value, ensure_ascii=False, default=str))
    except ValueError:  # of a whole number with more digits than Python writes
        return "a number that is far too long"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _counts(settings: Mapping[str, Any]) -> dict[str, int]:
    fleet = settings.get("fleet")
    parts = {
        "groups": fleet.get("groups") if isinstance(fleet, dict) else None,
        "alert_rules": fleet.get("alerts") if isinstance(fleet, dict) else None,
        "log_patterns": settings.get("log_patterns"),
        "channels": settings.get("notifications"),
        "users": settings.get("users"),
    }
    return {
        name: sum(name != "channels" or each != "order" for each in part)
        for name, part in parts.items()
        if isinstance(part, (dict, list))
    }


# ---------------------------------------------------------------- one table after the other


def _faults(file: str, name: str, table: object) -> Iterator[_Fault]:
    """What is wrong in one table, but for those that tell people."""
    if name not in TABLES:
        yield from _of(partial(expect_table, file, name), (name,))
    elif not isinstance(table, dict):
        yield _Fault((name,), table, "a table of settings")
    elif name in _READERS:
        yield from _READERS[name](file, table)


def _of(read: Callable[[], object], path: Path, table: object = None) -> list[_Fault]:
    """The error of one reading; its path ends with the key that it names, where the table has that."""
    try:
        read()
    except SettingsError as error:
        above, last = error.path[:-1], error.path[-1:]
        is_inside = above in ((), error.whole) and isinstance(table, dict) and table.keys() >= {*last}
        return [_Fault((*path, *last) if is_inside else path, error.value, error.expected)]
    except (OverflowError, ValueError):  # of a number that is as long as no setting is
        return [_Fault(path, None, "numbers of a usual size")]
    return []


def _each(read: Callable[[Mapping[str, Any]], object], table: Mapping[str, Any], *path: str) -> Iterator[_Fault]:
    """What is wrong with the values of a table, each read alone; and if nothing is, with all of them together."""
    found = False
    for key, value in table.items():
        for fault in _of(partial(read, {key: value}), (*path, key), value):
            found = True
            yield fault
    if not found:
        yield from _of(partial(read, table), path, table)


def _fleet(file: str, table: Mapping[str, Any]) -> Iterator[_Fault]:
    for each in find_fleet_faults(table, check_target=parse_target):
        yield _Fault(("fleet", *each.path), each.value, each.expected)


def _monitoring(file: str, table: Mapping[str, Any]) -> Iterator[_Fault]:
    """The settings of all watches, and those of single jobs over them."""
    general, jobs = {key: value for key, value in table.items() if key != "jobs"}, table.get("jobs", {})
    faults = list(_each(read_watch_config, general, "monitoring"))
    yield from faults
    if not isinstance(jobs, dict):
        yield _Fault(("monitoring", "jobs"), jobs, "a table of settings for each job")
        return
    below = {} if faults else general
    for name, own in jobs.items():
        if isinstance(own, dict):
            yield from _each(partial(read_watch_config, below), own, "monitoring", "jobs", name)
        else:
            yield _Fault(("monitoring", "jobs", name), own, "a table of settings")


def _log_patterns(file: str, table: Mapping[str, Any]) -> Iterator[_Fault]:
    for name, value in table.items():
        yield from _of(partial(read_log_pattern, file, name, value), ("log_patterns", name), value)


def _service(file: str, table: Mapping[str, Any]) -> Iterator[_Fault]:
    yield from _each(read_service_config, table, "service")


_READERS: Mapping[str, Callable[[str, Mapping[str, Any]], Iterator[_Fault]]] = {
    "fleet": _fleet,
    "log_patterns": _log_patterns,
    "monitoring": _monitoring,
    "service": _service,
}


def _told(file: str, settings: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[_Fault]:
    """What is wrong with channels and users, one after the other: each fault is taken out, and the rest read again."""
    readers: Mapping[str, Callable[[object], object]] = {
        "notifications": lambda table: read_channels(file, table, environ),
        "users": lambda table: read_users(file, table),
    }
    for name, read in readers.items():
        rest, told = {name: settings.get(name, {})}, set[Path]()
        while isinstance(rest[name], dict):  # what is none is told already
            try:
                read(rest[name])
                break
            except SettingsError as error:
                path = _there(rest, error.path)
                if error.path not in told:
                    yield _Fault(path, None, error.expected, error.name)
                if len(path) < 2:  # nothing in the file: the environment, or its mode
                    break
                told.add(error.path)
                rest = _without(rest, error.whole or path)  # a channel that lacks a value is none


def _without(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A table without the value at the end of a path that is in it."""
    first, *below = path
    if not below:
        return {key: value for key, value in table.items() if key != first}
    return {**table, str(first): _without(table[str(first)], tuple(below))}


def _there(settings: Mapping[str, Any], keys: Path) -> Path:
    """As much of a path as there is in the file."""
    path, value = list[str | int](), settings
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            break
        path.append(key)
        value = value[key]
    return tuple(path)
