"""The settings file: TOML where Python has tomllib (3.11), JSON everywhere.

[log_patterns]
reward = 'reward[=: ]+(\\S+)'
tokens = { pattern = 'tokens=(\\d+)', kind = "int" }

The table `fleet` is described in policy/fleet_config.py.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from training_monitor.errors import SettingsError, closest
from training_monitor.parse.log_patterns import LogPattern
from training_monitor.policy.fleet_config import FleetConfig, read_fleet_config
from training_monitor.policy.service_config import ServiceConfig, read_service_config
from training_monitor.settings import SETTINGS, settings_files
from training_monitor.targets.target import parse_target

TABLES = ("fleet", "log_patterns", "monitoring", "notifications", "service", "users")


def load_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, Mapping[str, Any]]:
    """Read the settings file.

    Args:
        path: default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.
        environ: where those variables are looked up.

    Returns:
        Its path and what is in it; an empty path and nothing when there is no such file.

    Raises:
        SettingsError: a file that was named is not there, it cannot be read, or it has a table that nobody reads.
    """
    file = find_settings(path, environ)
    if not file:
        return "", {}
    settings = parse_settings(file, read_settings(file))
    for key in settings:
        expect_table(file, key)
    return file, settings


def find_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Find the settings file; empty when there is none. Raises SettingsError when one was named and is not there."""
    candidates = [path] if path else settings_files(environ)
    file = next((each for each in candidates if os.path.exists(each)), "")
    if not file and (path or SETTINGS in environ):
        raise SettingsError("settings file" if path else SETTINGS, candidates[0], "a file that exists")
    return file


def read_settings(file: str) -> str:
    """The text of a settings file, without a byte order mark. Raises SettingsError when it cannot be read."""
    try:
        with open(file, encoding="utf-8-sig") as opened:
            return opened.read()
    except (OSError, ValueError) as error:
        raise SettingsError("settings file", file, f"a file that can be read ({error})") from error


def parse_settings(file: str, text: str) -> Mapping[str, Any]:
    """What is in a settings file. Raises SettingsError when it is no TOML or JSON, or no table."""
    try:
        settings = _toml(file, text) if file.endswith(".toml") else json.loads(text)
    except (RecursionError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError("settings file", file, f"a file that can be read ({error})") from error
    if not isinstance(settings, dict):
        raise SettingsError("settings file", file, "a table at its top")
    return settings


def expect_table(file: str, name: str) -> None:
    """Raise SettingsError for a table that nobody reads."""
    if name not in TABLES:
        raise SettingsError("table", name, closest(name, TABLES), file=file, path=(name,))


def load_log_patterns(path: str | None = None) -> list[LogPattern]:
    """The patterns of the settings file's `log_patterns`; none when there is no such file.

    Args:
        path: default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.

    Raises:
        SettingsError: naming the file and the key, and what was expected there.
    """
    file, settings = load_settings(path)
    table = settings.get("log_patterns", {})
    if not isinstance(table, dict):
        raise wrong_setting(file, ("log_patterns",), table, "a table of names and patterns")
    return [read_log_pattern(file, name, value) for name, value in table.items()]


def load_service_config(path: str | None = None) -> ServiceConfig:
    """How the training service works, by the settings file's table `service`. Raises SettingsError, as the fleet's."""
    file, settings = load_settings(path)
    with naming(file):
        return read_service_config(settings.get("service", {}))


def load_fleet_config(path: str | None = None) -> FleetConfig:
    """How a fleet is watched, by the settings file's table `fleet`. Raises SettingsError, naming file and key."""
    file, settings = load_settings(path)
    with naming(file):
        return read_fleet_config(settings.get("fleet", {}), check_target=parse_target)


@contextmanager
def naming(file: str, *table: str) -> Iterator[None]:
    """Let errors say where the value came from: the file, and the table in it that is read as a whole."""
    try:
        yield
    except SettingsError as error:
        key = f"{'.'.join(table)}: {error.key}" if table else error.key
        path = (*table, *error.path)
        raise SettingsError(key, error.value, error.expected, file=file, path=path, whole=table) from None


def wrong_setting(file: str, path: tuple[str, ...], value: object, expected: str) -> SettingsError:
    """The error of one value in a settings file, by the keys that lead to it."""
    return SettingsError(".".join(path), value, expected, file=file, path=path)


def read_log_pattern(file: str, name: str, value: Any) -> LogPattern:
    """One pattern of the table `log_patterns`. Raises SettingsError.

    Args:
        file: what errors name.
        name: of the metric.
        value: its expression, or a table of pattern and kind.
    """
    parts = {"pattern": value} if isinstance(value, str) else value
    if not isinstance(parts, dict) or "pattern" not in parts or set(parts) - {"pattern", "kind"}:
        raise wrong_setting(file, ("log_patterns", name), value, "a pattern, or a table of pattern and kind")
    try:
        with naming(file, "log_patterns", name):
            return LogPattern(name, **parts)
    except TypeError as error:
        raise wrong_setting(file, ("log_patterns", name), value, "texts") from error


def _toml(file: str, text: str) -> Any:
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError as error:
        raise SettingsError("settings file", file, "settings.json: this Python cannot read TOML, 3.11 can") from error
    return tomllib.loads(text)
