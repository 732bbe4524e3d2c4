"""`config`: which settings file is read, what is wrong with it, or a new one with every key."""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from training_monitor.cli.output import BAD, OK, print_json, say
from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.masking import redact
from training_monitor.core.shown import shown
from training_monitor.core.units import plural

if TYPE_CHECKING:
    from training_monitor.core.settings_table import Fault

from training_monitor.cli.argument_types import FILES, CommandParser
from training_monitor.cli.command_table import Command

_WIDTH = 60


def declare(command: CommandParser) -> None:
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="list every problem in the file; the exit code is 1 if there are any"
    )
    what.add_argument(
        "--init",
        metavar="PATH",
        nargs="?",
        const="",
        help="write a new settings file with every key, its default and its meaning, all commented out",
    )
    command.completes["init"] = FILES
    command.value(
        "--file",
        "FILE",
        "settings file to use (default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in "
        "~/.config/training_monitor)",
        FILES,
    )


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
    from training_monitor.core.settings_file import TABLES, find_settings, parse_settings, read_settings
    from training_monitor.core.settings_lines import find_line
    from training_monitor.core.settings_table import Place, read_table
    from training_monitor.fleet.config import read_fleet_config
    from training_monitor.logs.patterns import read_log_patterns
    from training_monitor.notify.configure import expect_private, read_channels, read_users
    from training_monitor.rent.config import ServiceConfig
    from training_monitor.targets.target import parse_target
    from training_monitor.verdict.limits import read_monitoring

    readers: Mapping[str, Callable[..., Any]] = {  # of all tables except channels and users
        "fleet": partial(read_fleet_config, check_target=parse_target),
        "log_patterns": read_log_patterns,
        "monitoring": read_monitoring,
        "service": partial(read_table, ServiceConfig),
    }
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
        if name in readers:
            readers[name](table, place / name)
        elif name not in TABLES:
            (place / name).note(name, closest(name, TABLES))
    expect_private(file, {name: table for name, table in settings.items() if name != "notifications"}, place)
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
    from training_monitor.core.settings_table import format_path

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


def run(args: Namespace) -> int:
    """Check the settings file, show what is in it, or write a new one; return the exit code."""
    if args.init is not None:
        return _write_file(args)
    return _check_file(args) if args.check else _show_file(args)


def _check_file(args: Namespace) -> int:
    check = check_settings(args.file)
    if args.json:
        print_json(args, check)
    elif not check.problems:
        say(_summary(check))
    for problem in [] if args.json else check.problems:
        say(_one_line(check.file, problem))
    return BAD if check.problems else OK


def _show_file(args: Namespace) -> int:
    from training_monitor.core.settings_file import load_settings

    file, settings = load_settings(args.file)
    tables = {name: list(table) if isinstance(table, dict) else [] for name, table in settings.items()}
    if print_json(args, {"file": file, "tables": tables}):
        return OK
    say(_quoted(file) if file else _nowhere())
    for name, keys in tables.items():
        say(f"  {name:<14} {', '.join(map(_quoted, keys))}".rstrip())
    return OK


def _write_file(args: Namespace) -> int:
    from training_monitor.cli.settings_template import settings_template
    from training_monitor.core.settings_file import parse_settings

    path, text = _new_path(args.init or args.file), settings_template()
    if not path.endswith(".toml"):
        raise SettingsError("--init", path, "a file name ending in .toml, because JSON has no comments")
    parse_settings(path, text)  # a file that this Python cannot read would stop every command
    _write_new(path, text)
    if not print_json(args, {"file": path}):
        say(f"{_quoted(path)}: written; uncomment the settings to change, then run training-monitor config --check")
    return OK


def _new_path(named: str | None) -> str:
    """Return where to write the settings file; by default where it is looked for, if there is none yet."""
    from training_monitor.core.settings import settings_files

    if named:
        return os.path.abspath(os.path.expanduser(named))
    for file in settings_files():
        if os.path.lexists(file):
            raise SettingsError(
                "--init", file, "a file that does not exist yet (use --init PATH to write one elsewhere)"
            )
    return settings_files()[0]


def _write_new(path: str, text: str) -> None:
    """Write a file that only its owner can read; it must not exist. Raises SettingsError when it cannot be written."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise SettingsError(
            "--init", path, "the path of a new file, because existing files are not overwritten"
        ) from error
    except OSError as error:
        raise SettingsError("--init", path, f"a writable file ({error.strerror})") from error
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        os.unlink(path)
        raise SettingsError("--init", path, f"a writable file ({error.strerror})") from error


def _summary(check: SettingsCheck) -> str:
    if not check.file:
        return _nowhere()
    read = [plural(count, name.replace("_", " ").removesuffix("s")) for name, count in check.counts.items()]
    return f"{_quoted(check.file)}: ok" + (f": {', '.join(read)}" if read else "")


def _nowhere() -> str:
    from training_monitor.core.settings import settings_files

    return f"no settings file was found: no {' and no '.join(map(_quoted, settings_files()))}"


def _one_line(file: str, problem: SettingsProblem) -> str:
    """Format FILE:LINE: KEY: VALUE: expected ..., without unknown parts."""
    where = _quoted(file) + (f":{problem.line}" if problem.line else "")
    parts = [where, _quoted(problem.key), problem.value, f"expected {problem.expected}"]
    return ": ".join(" ".join(part.split("\n")) for part in parts if part)


def _quoted(text: str) -> str:
    """Return a name as it is, or quoted if that is not what would be shown."""
    return text if shown(text) == text else ascii(text)


COMMAND = Command(run, declare, ("--check", "--init"))
