"""`config`: show which settings file is read and what is in it; with --check, all problems in it.

A problem has line, key, value and what was expected; values that may be secret are left out.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from training_monitor.core.errors import SettingsError, closest, redact
from training_monitor.core.frozen import dataclass
from training_monitor.core.settings_file import TABLES, find_settings, parse_settings, read_settings
from training_monitor.core.settings_lines import find_line
from training_monitor.core.settings_table import Fault, Place, format_path, read_table
from training_monitor.fleet.config import read_fleet_config
from training_monitor.judging.limits import read_monitoring
from training_monitor.logs.patterns import read_log_patterns
from training_monitor.notify.configure import read_channels, read_users
from training_monitor.service.config import ServiceConfig
from training_monitor.targets.target import parse_target

_WIDTH = 60
_READERS: Mapping[str, Callable[..., Any]] = {  # all tables except channels and users
    "fleet": partial(read_fleet_config, check_target=parse_target),
    "log_patterns": read_log_patterns,
    "monitoring": read_monitoring,
    "service": partial(read_table, ServiceConfig),
}


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One problem in the settings file.

    `line` is None if unknown; `key` is dotted, as in fleet.alerts[1].when, and empty for the file itself; `value` is a
    short text of the value, None where that may be secret or says nothing.
    """

    line: int | None
    key: str
    value: str | None
    expected: str


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """The result of checking a settings file; `file` is empty if there is none. `counts`: number of entries by kind."""

    file: str
    problems: tuple[SettingsProblem, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def check_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> SettingsCheck:
    """Read the settings file and return all problems in it.

    Args:
        path: default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.
        environ: where those variables, and those with secrets, are looked up.

    Returns:
        The problems by line; none when there is no file. A file that cannot be read is one problem.
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
    place = Place()
    for name, table in settings.items():
        if name in _READERS:
            _READERS[name](table, place / name)
        elif name not in TABLES:
            (place / name).note(name, closest(name, TABLES))
    read_channels(settings.get("notifications", {}), place / "notifications", file, environ)
    read_users(settings.get("users", {}), place / "users")
    toml = file.endswith(".toml")
    problems = dict.fromkeys(_problem(fault, find_line(text, fault.path, toml=toml)) for fault in place.faults)
    return SettingsCheck(file, tuple(sorted(problems, key=lambda each: each.line or 0)), _counts(settings))


def _unreadable(error: SettingsError, text: str) -> SettingsProblem:
    """Return the problem of an unreadable file, on the line that the parser's error names."""
    cause = error.__cause__
    line = getattr(cause, "lineno", None)
    if isinstance(cause, UnicodeDecodeError):
        line = cause.object.count(b"\n", 0, cause.start) + 1
    elif line is None and (named := re.search(r"\bline (\d+)", str(cause))):
        line = int(named[1])
    elif line is None and "at end of document" in str(cause):
        line = text.count("\n") + 1
    return SettingsProblem(line, "", None, error.expected)


def _problem(fault: Fault, line: int | None) -> SettingsProblem:
    is_hidden = fault.path[0] in ("notifications", "users") or fault.path[-1] == fault.value
    shown = None if fault.value is None or is_hidden else _shown(fault.value)
    return SettingsProblem(line, format_path(fault.path), shown, redact(fault.expected))


def _shown(value: object) -> str:
    """Format a value briefly; of tables and lists only the kind, since their values may be secret."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    try:
        text = redact(json.dumps(value, ensure_ascii=False, default=str))
    except ValueError:  # an integer with more digits than Python converts
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


def config(args: Namespace) -> int:
    """Run the command and return the exit status."""
    return _check(args) if args.check else _show(args)


def _check(args: Namespace) -> int:
    from training_monitor.cli.output import BAD, OK, print_json, say

    check = check_settings(args.file)
    if args.json:
        print_json(check)
    elif not check.problems:
        say(_summary(check))
    for problem in [] if args.json else check.problems:
        say(_one_line(check.file, problem))
    return BAD if check.problems else OK


def _show(args: Namespace) -> int:
    from training_monitor.cli.output import OK, print_json, say
    from training_monitor.core.settings_file import load_settings

    file, settings = load_settings(args.file)
    tables = {name: list(table) if isinstance(table, dict) else [] for name, table in settings.items()}
    if args.json:
        print_json({"file": file, "tables": tables})
        return OK
    say(_quoted(file) if file else _nowhere())
    for name, keys in tables.items():
        say(f"  {name:<14} {', '.join(map(_quoted, keys))}".rstrip())
    return OK


def _summary(check: SettingsCheck) -> str:
    from training_monitor.core.units import plural

    if not check.file:
        return _nowhere()
    read = [plural(count, name.replace("_", " ").removesuffix("s")) for name, count in check.counts.items()]
    return f"{_quoted(check.file)}: ok" + (f": {', '.join(read)}" if read else "")


def _nowhere() -> str:
    from training_monitor.core.settings import settings_files

    return f"no settings file: there is no {' and no '.join(map(_quoted, settings_files()))}"


def _one_line(file: str, problem: SettingsProblem) -> str:
    """Format FILE:LINE: KEY: VALUE: expected ..., without unknown parts."""
    where = _quoted(file) + (f":{problem.line}" if problem.line else "")
    parts = [where, _quoted(problem.key), problem.value, f"expected {problem.expected}"]
    return ": ".join(" ".join(part.split("\n")) for part in parts if part)


def _quoted(text: str) -> str:
    """Return a name as it is, or quoted if it has unprintable characters."""
    return text if text.isprintable() else ascii(text)
