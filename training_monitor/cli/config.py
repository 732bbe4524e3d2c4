"""`config`: which settings file is read and what is in it; with --check, all that is wrong there."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training_monitor.probes.settings_check import SettingsCheck, SettingsProblem


def add_config(command: argparse.ArgumentParser) -> None:
    """Declare the options of `config`."""
    command.add_argument("--check", action="store_true", help="say all that is wrong in it; then the exit status is 1")
    command.add_argument(
        "--file",
        metavar="FILE",
        help="(default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in ~/.config/training_monitor)",
    )


def config(args: Namespace) -> int:
    """Run the command. Returns the exit status."""
    return _check(args) if args.check else _show(args)


def _check(args: Namespace) -> int:
    from training_monitor.cli.commands import BAD, OK
    from training_monitor.cli.output import print_json, say
    from training_monitor.probes.settings_check import check_settings

    check = check_settings(args.file)
    if args.json:
        print_json(check)
    elif not check.problems:
        say(_summary(check))
    for problem in [] if args.json else check.problems:
        say(_one_line(check.file, problem))
    return BAD if check.problems else OK


def _show(args: Namespace) -> int:
    from training_monitor.cli.commands import OK
    from training_monitor.cli.output import print_json, say
    from training_monitor.probes.settings_file import load_settings

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
    from training_monitor.units import plural

    if not check.file:
        return _nowhere()
    read = [plural(count, name.replace("_", " ").removesuffix("s")) for name, count in check.counts.items()]
    return f"{_quoted(check.file)}: ok" + (f": {', '.join(read)}" if read else "")


def _nowhere() -> str:
    from training_monitor.settings import settings_files

    return f"no settings file: there is no {' and no '.join(map(_quoted, settings_files()))}"


def _one_line(file: str, problem: SettingsProblem) -> str:
    """FILE:LINE: KEY: VALUE: expected ..., without what is not known."""
    where = _quoted(file) + (f":{problem.line}" if problem.line else "")
    parts = [where, _quoted(problem.key), problem.value, f"expected {problem.expected}"]
    return ": ".join(" ".join(part.split("\n")) for part in parts if part)


def _quoted(text: str) -> str:
    """A name as it is, or in quotes where it would not stay on its line or would steer the terminal."""
    return text if text.isprintable() else ascii(text)
