"""Read the settings file: TOML where Python has tomllib (3.11), JSON everywhere.

    [log_patterns]
    reward = 'reward[=: ]+(\\S+)'
    tokens = { pattern = 'tokens=(\\d+)', kind = "int" }

docs/targets.md says where the file is. The reader of each table lives in the room that uses it.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.read_fence import check_here
from training_monitor.core.settings import SETTINGS, settings_files
from training_monitor.core.settings_table import Place

T = TypeVar("T")

_READABLE = "a readable file"
_KINDS = "TOML in settings.toml (Python 3.11 or later) or JSON in settings.json"
TABLES = ("fleet", "log_patterns", "monitoring", "notifications", "service", "users")


def load_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[str, Mapping[str, Any]]:
    """Read the settings file.

    Args:
        path: default: TRAINING_MONITOR_SETTINGS, else settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.
        environ: where those variables are looked up.

    Returns:
        Its path and content; an empty path and an empty mapping when there is no file.

    Raises:
        SettingsError: a named file does not exist, cannot be read, or has an unknown table.
    """
    file = find_settings(path, environ)
    if not file:
        return "", {}
    settings = parse_settings(file, read_settings(file))
    for name in settings:
        if name not in TABLES:
            raise SettingsError("table", name, closest(name, TABLES), file=file)
    return file, settings


def find_settings(path: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of the settings file, "" without one. Raises SettingsError when a named file is missing."""
    candidates = [check_here(path)] if path else settings_files(environ)
    file = next((each for each in candidates if os.path.exists(each)), "")
    if not file and (path or SETTINGS in environ):
        raise SettingsError("settings file" if path else SETTINGS, candidates[0], "an existing file")
    return file


def read_settings(file: str) -> str:
    """Return the text of a settings file without a byte order mark. Raises SettingsError when it cannot be read."""
    try:
        with open(file, encoding="utf-8-sig") as opened:
            return opened.read()
    except (OSError, ValueError) as error:
        raise SettingsError("settings file", file, f"{_READABLE} ({error})") from error


def parse_settings(file: str, text: str) -> Mapping[str, Any]:
    """Parse a settings file. Raises SettingsError when it is not valid TOML or JSON, or not a table."""
    try:
        settings = _toml(file, text) if file.endswith(".toml") else json.loads(text)
    except (RecursionError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        is_named = file.endswith((".toml", ".json"))
        raise SettingsError("settings file", file, f"{_READABLE if is_named else _KINDS} ({error})") from error
    if not isinstance(settings, dict):
        raise SettingsError("settings file", file, "a table at the top level")
    return settings


def load_table(name: str, read: Callable[[Any, Place], T], path: str | None = None) -> T:
    """Read one table of the settings file with its reader; a missing table reads as an empty one.

    Args:
        path: as in `load_settings`.

    Raises:
        SettingsError: names the file, the key and what was expected.
    """
    file, settings = load_settings(path)
    place = Place(name)
    found = read(settings.get(name, {}), place)
    place.expect_none(file)
    return found


def _toml(file: str, text: str) -> Any:
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError as error:
        raise SettingsError("settings file", file, "settings.json, because TOML needs Python 3.11 or later") from error
    return tomllib.loads(text)
