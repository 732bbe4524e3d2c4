"""Read channels and users from the environment and the settings file; the environment wins, value by value.

[notifications]
order = ["telegram", "email"]
[notifications.telegram]
token_env = "MY_BOT_TOKEN"      # or token = "...", in a file that only you can read
chat_id = "123456"
minimum_priority = "high"
[users.alice]
telegram_id = 123456
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.errors import closest
from training_monitor.core.masking import MASK, redact_argv, redact_named
from training_monitor.core.settings_file import load_settings
from training_monitor.core.settings_table import (
    MISFIT,
    Kind,
    Place,
    Setting,
    named,
    read_keys,
    read_table,
    settings_of,
)
from training_monitor.core.store import Store
from training_monitor.notify.channel import Channel
from training_monitor.notify.channels import CHANNELS, classes_of
from training_monitor.notify.channels.web import WebList
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.people import NotifiedUser
from training_monitor.targets.transport import Transport

_Values = dict[str, Any]


def load_channels(environ: Mapping[str, str] = os.environ, path: str | None = None) -> list[Channel]:
    """Read the configured channels.

    Args:
        environ: the TRAINING_MONITOR_* variables.
        path: the settings file; default: the usual one.

    Returns:
        The channels in the order in which they are tried.

    Raises:
        SettingsError: names the file and the key; values that may be secret are not shown.
    """
    file, settings = load_settings(path, environ)
    place = Place("notifications")
    channels = read_channels(settings.get("notifications", {}), place, file, environ)
    place.expect_none(file)
    return channels


def load_users(environ: Mapping[str, str] = os.environ, path: str | None = None) -> dict[str, NotifiedUser]:
    """Read the users from the settings file's tables [users.NAME]: telegram_id, discord_id, email.

    Raises:
        SettingsError: names the file and the key.
    """
    file, settings = load_settings(path, environ)
    place = Place("users")
    users = read_users(settings.get("users", {}), place)
    place.expect_none(file)
    return users


def load_notifier(
    environ: Mapping[str, str] = os.environ,
    path: str | None = None,
    *,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> TrainingNotifier:
    """Build the notifier from the environment and the settings file.

    If there is a store, the web list is the last channel.

    Raises:
        SettingsError: a setting is invalid. The message contains the file and the key.
    """
    channels = load_channels(environ, path)
    if store is not None and all(channel.name != "web" for channel in channels):
        channels.append(WebList())
    return TrainingNotifier(channels, users=load_users(environ, path), store=store, transport=transport, clock=clock)


def read_users(table: object, place: Place) -> dict[str, NotifiedUser]:
    """Read the settings file's table `users`; its errors are noted in `place`."""
    found = place.read(named(_user, "a table"), table)
    return {} if found is MISFIT else found


def _user(name: str) -> Kind:
    def read(value: Any, place: Place) -> Any:
        return read_table(NotifiedUser, value, place, name=name) if isinstance(value, Mapping) else MISFIT

    return Kind("a table", read, is_secret=True)


def read_channels(table: Any, place: Place, file: str, environ: Mapping[str, str]) -> list[Channel]:
    """Read the settings file's table `notifications`; errors, also of the environment, are noted in `place`."""
    if not isinstance(table, Mapping):
        place.note(MASK, "a table")
        table = {}
    for name in table:
        if name not in ("order", *CHANNELS):
            (place / name).note(MASK, closest(name, ("order", *CHANNELS)))
    chosen = (place / "order").read(_ORDER, table.get("order", []))
    expect_private(file, table, place)
    channels: list[Channel] = []
    for name in dict.fromkeys([*([] if chosen is MISFIT else chosen), *CHANNELS]):
        at, own = place / name, table.get(name, {})
        if not isinstance(own, Mapping):
            at.note(MASK, "a table")
        elif (values := {**_read_values(name, own, at, environ), **_from_environment(name, environ)}) or name in table:
            channels += _build(name, values, at)
    return channels


def _read_variable(value: Any, place: Place) -> Any:
    return value if isinstance(value, str) and value.strip("\0 ") else place.note(MASK, _VARIABLE.expected)


_VARIABLE = Kind("the name of an environment variable", _read_variable)


def _read_order(value: Any, place: Place) -> Any:
    is_fine = isinstance(value, list) and not {*map(str, value)} - {*CHANNELS} and len({*value}) == len(value)
    return value if is_fine else MISFIT


_ORDER = Kind(f"a list of channels without duplicates: {', '.join(CHANNELS)}", _read_order)


def settings_of_channel(channel: str) -> dict[str, Setting]:
    """Return the keys of a channel's table."""
    classes: tuple[Any, ...] = classes_of(channel)
    return {key: each for made in classes for key, each in settings_of(made).items()}


def _read_values(channel: str, table: Mapping[str, Any], place: Place, environ: Mapping[str, str]) -> _Values:
    """Return the values of a channel's table, with NAME_env looked up; a variable that is not set gives no value."""
    keys = settings_of_channel(channel)
    by_name = {f"{key}_env": key for key, each in keys.items() if each.kind.is_secret}
    values: _Values = {}
    for key, value in table.items():
        if key not in (*keys, *by_name):
            (place / key).note(MASK, closest(key, (*keys, *by_name)))
        elif key in by_name and by_name[key] in table:
            (place / by_name[key]).note(MASK, f"either {by_name[key]} or {key}, not both")
        elif key not in by_name:
            values[key] = value
        elif (variable := (place / key).read(_VARIABLE, value)) is not MISFIT and environ.get(variable):
            values[by_name[key]] = environ[variable]
    return values


def _from_environment(channel: str, environ: Mapping[str, str]) -> _Values:
    variables = {key: each.variable for key, each in settings_of_channel(channel).items() if each.variable}
    return {key: environ[name] for key, name in variables.items() if environ.get(name)}


def _build(name: str, given: _Values, place: Place) -> list[Channel]:
    """Build the channels of one table: one, or for Discord up to two."""
    channels, tables = list[Channel](), dict[Any, Any]((made, made.complete(given)) for made in classes_of(name))
    for made in [each for each in tables if not _missing(each, tables[each])] or [*tables][:1]:
        settings, missing = settings_of(made), _missing(made, tables[made])
        for key in missing:
            variable = settings[key].variable
            expected = settings[key].kind.expected + (
                f", in the settings file or in the variable {variable}" if variable else ""
            )
            (place / key).note(None, f"{expected}: the channel requires it")
        values = {key: tables[made][key] for key in settings if key in tables[made]}
        channel: Any = read_keys(settings, values, place) if missing else read_table(made, values, place)
        channels += [] if missing or channel is MISFIT else [channel]
    return channels


def _missing(made: type, values: Mapping[str, Any]) -> list[str]:
    return [key for key, setting in settings_of(made).items() if setting.is_required and key not in values]


def expect_private(file: str, table: Mapping[str, Any], place: Place) -> None:
    """Note a fault if a file that others can read holds a secret: by its setting, its name or its text."""
    written = next(_written_secrets(table), None)
    mode = stat.S_IMODE(os.stat(file).st_mode) if written else 0
    if mode & 0o077:
        expected = f"0o600, because the file contains {written} (chmod 600 {file})"
        Place("mode", faults=place.faults).note(oct(mode), expected)


def _written_secrets(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of a table's secrets."""
    for name, value in table.items():
        settings = settings_of_channel(name) if name in CHANNELS else {}
        if isinstance(value, Mapping):
            secret = (key for key, each in settings.items() if each.kind.is_secret and value.get(key) is not None)
            yield from (f"{name}.{key}" for key in (*secret, *_written_secrets(value)))
        elif isinstance(value, str) and redact_named(name, value) != value:
            yield name
        elif isinstance(value, list):
            words = tuple(each for each in value if isinstance(each, str))
            tables = (each for each in value if isinstance(each, Mapping))
            if redact_argv(words) != words or any(next(_written_secrets(each), None) for each in tables):
                yield name
