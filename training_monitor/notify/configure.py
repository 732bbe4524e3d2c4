"""Channels and users out of the environment and the settings file; the environment wins, value by value.

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
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from training_monitor.clock import SYSTEM_CLOCK, Clock
from training_monitor.errors import SettingsError
from training_monitor.mail import MailServer
from training_monitor.notify.channels import (
    DISCORD_API,
    TELEGRAM_API,
    Channel,
    CommandChannel,
    Desktop,
    DiscordUser,
    DiscordWebhook,
    Email,
    NotifiedUser,
    Ntfy,
    SlackWebhook,
    Telegram,
    Webhook,
    WebList,
)
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.probes.settings_file import load_settings, naming, wrong_setting
from training_monitor.store import Store
from training_monitor.targets.transport import Transport

DEFAULT_ORDER = ("telegram", "discord", "slack", "ntfy", "webhook", "email", "desktop", "command", "web")
_VARIABLES = {
    "TRAINING_MONITOR_TELEGRAM_TOKEN": ("telegram", "token"),
    "TRAINING_MONITOR_TELEGRAM_CHAT_ID": ("telegram", "chat_id"),
    "TRAINING_MONITOR_TELEGRAM_API": ("telegram", "api_url"),
    "TRAINING_MONITOR_DISCORD_TOKEN": ("discord", "token"),
    "TRAINING_MONITOR_DISCORD_USER_ID": ("discord", "user_id"),
    "TRAINING_MONITOR_DISCORD_WEBHOOK": ("discord", "webhook"),
    "TRAINING_MONITOR_DISCORD_API": ("discord", "api_url"),
    "TRAINING_MONITOR_SLACK_WEBHOOK": ("slack", "url"),
    "TRAINING_MONITOR_WEBHOOK": ("webhook", "url"),
    "TRAINING_MONITOR_NTFY": ("ntfy", "url"),
    "TRAINING_MONITOR_NTFY_TOKEN": ("ntfy", "token"),
    "TRAINING_MONITOR_SMTP": ("email", "server"),
    "TRAINING_MONITOR_SMTP_PASSWORD": ("email", "password"),
    "TRAINING_MONITOR_EMAIL_TO": ("email", "to"),
    "TRAINING_MONITOR_EMAIL_FROM": ("email", "from"),
}
_KEYS = {
    "telegram": {"token", "chat_id", "api_url"},
    "discord": {"token", "user_id", "webhook", "api_url"},
    "slack": {"url"},
    "ntfy": {"url", "token"},
    "webhook": {"url"},
    "email": {"server", "password", "to", "from"},
    "desktop": set[str](),
    "command": {"argv"},
    "web": set[str](),
}
_SECRETS = {"token", "webhook", "url", "password"}
_LISTS = {"argv", "to"}
_SCHEMES = {"smtp": ("starttls", 587), "smtps": ("ssl", 465), "smtp+plain": ("plain", 25)}
_Values = dict[str, Any]
_Path = tuple[str, ...]


def load_channels(environ: Mapping[str, str] = os.environ, path: str | None = None) -> list[Channel]:
    """Read which channels are configured.

    Args:
        environ: the TRAINING_MONITOR_* variables.
        path: the settings file; default: the usual one.

    Returns:
        The channels in the order in which they are tried.

    Raises:
        SettingsError: naming the file and the key; values that may be secret are not shown.
    """
    file, settings = load_settings(path, environ)
    return read_channels(file, settings.get("notifications", {}), environ)


def read_channels(file: str, table: Any, environ: Mapping[str, str]) -> list[Channel]:
    """The channels of the settings file's table `notifications`; the rest is that of `load_channels`."""
    table = _table(file, ("notifications",), table)
    order = _order(file, table)
    tables = {name: _channel_table(file, name, table[name]) for name in table if name != "order"}
    _expect_private(file, tables)
    channels: list[Channel] = []
    for name in order:
        values = {**_resolved(tables.get(name, {}), environ), **_from_environment(name, environ)}
        if values or name in tables:
            channels += _build(file, name, values)
    return channels


def load_users(environ: Mapping[str, str] = os.environ, path: str | None = None) -> dict[str, NotifiedUser]:
    """Read the people of the settings file's [users.NAME]: telegram_id, discord_id, email.

    Raises:
        SettingsError: naming the file and the key.
    """
    file, settings = load_settings(path, environ)
    return read_users(file, settings.get("users", {}))


def read_users(file: str, table: Any) -> dict[str, NotifiedUser]:
    """The people of the settings file's table `users`. Raises SettingsError, naming the file and the key."""
    users = {}
    for name, value in _table(file, ("users",), table).items():
        where = ("users", name)
        values = _table(file, where, value)
        _expect_keys(file, where, values, {"telegram_id", "discord_id", "email"})
        texts = {key: _text(file, (*where, key), each) for key, each in values.items()}
        with naming(file, *where):
            users[name] = NotifiedUser(name, **texts)
    return users


def load_notifier(
    environ: Mapping[str, str] = os.environ,
    path: str | None = None,
    *,
    store: Store | None = None,
    transport: Transport | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> TrainingNotifier:
    """Make the notifier of the environment and the settings file; with a store, the web list is its last channel.

    Raises:
        SettingsError: naming the file and the key.
    """
    channels = load_channels(environ, path)
    if store is not None and all(channel.name != "web" for channel in channels):
        channels.append(WebList())
    return TrainingNotifier(channels, users=load_users(environ, path), store=store, transport=transport, clock=clock)


def _order(file: str, table: _Values) -> list[str]:
    chosen = table.get("order", [])
    if not isinstance(chosen, list) or set(map(str, chosen)) - set(DEFAULT_ORDER) or len(set(chosen)) < len(chosen):
        expected = f"each once, of {', '.join(DEFAULT_ORDER)}"
        raise wrong_setting(file, ("notifications", "order"), chosen, expected)
    return [*chosen, *(name for name in DEFAULT_ORDER if name not in chosen)]


def _channel_table(file: str, name: str, value: Any) -> _Values:
    where = ("notifications", name)
    if name not in _KEYS:
        raise wrong_setting(file, where, "***", f"order, {', '.join(_KEYS)}")
    values = _table(file, where, value)
    secret = _KEYS[name] & _SECRETS
    _expect_keys(file, where, values, {*_KEYS[name], *(f"{key}_env" for key in secret), "minimum_priority"})
    for key in secret:
        if key in values and f"{key}_env" in values:
            raise wrong_setting(file, (*where, key), "***", f"{key} or {key}_env, not both")
    return {
        key: _texts(file, (*where, key), each) if key in _LISTS else _text(file, (*where, key), each)
        for key, each in values.items()
    }


def _expect_private(file: str, tables: Mapping[str, _Values]) -> None:
    """Refuse a file with secrets in it that others can read."""
    written = [f"{name}.{key}" for name, values in tables.items() for key in values if key in _SECRETS]
    mode = stat.S_IMODE(os.stat(file).st_mode) if written else 0
    if mode & 0o077:
        expected = f"0o600, since it holds {written[0]} (chmod 600 {file})"
        raise SettingsError("mode", oct(mode), expected, file=file, path=())


def _resolved(values: _Values, environ: Mapping[str, str]) -> _Values:
    """The values, with those that are named by NAME_env looked up; a variable that is not set leaves its value out."""
    plain = {key: value for key, value in values.items() if not key.endswith("_env")}
    named = {key.removesuffix("_env"): environ.get(name) for key, name in values.items() if key.endswith("_env")}
    return {**plain, **{key: value for key, value in named.items() if value}}


def _from_environment(channel: str, environ: Mapping[str, str]) -> _Values:
    found = {key: environ[name] for name, (owner, key) in _VARIABLES.items() if owner == channel and environ.get(name)}
    return {key: _split(value) if key in _LISTS else value for key, value in found.items()}


def _split(addresses: str) -> list[str]:
    return [each.strip() for each in addresses.split(",") if each.strip()]


def _build(file: str, name: str, values: _Values) -> list[Channel]:
    """The channels of one table: one, or for Discord perhaps two."""
    rest = {"minimum_priority": values.get("minimum_priority", "low")}
    with naming(file, "notifications", name):
        return _BUILDERS[name](values, rest)


def _telegram(values: _Values, rest: _Values) -> list[Channel]:
    api = values.get("api_url", TELEGRAM_API)
    return [Telegram(_required(values, "telegram", "token"), values.get("chat_id"), api, **rest)]


def _discord(values: _Values, rest: _Values) -> list[Channel]:
    channels: list[Channel] = []
    if "token" in values or "webhook" not in values:
        token = _required(values, "discord", "token")
        channels.append(DiscordUser(token, values.get("user_id"), values.get("api_url", DISCORD_API), **rest))
    if "webhook" in values:
        channels.append(DiscordWebhook(values["webhook"], **rest))
    return channels


def _email(values: _Values, rest: _Values) -> list[Channel]:
    server = _mail_server(_required(values, "email", "server"), values.get("password"))
    sender = values.get("from") or (server.user if server.user and "@" in server.user else None)
    if sender is None:
        raise SettingsError("from (TRAINING_MONITOR_EMAIL_FROM)", None, "the sender's address", path=("from",))
    return [Email(server, sender, tuple(values.get("to", ())), **rest)]


_BUILDERS: dict[str, Callable[[_Values, _Values], list[Channel]]] = {
    "telegram": _telegram,
    "discord": _discord,
    "slack": lambda values, rest: [SlackWebhook(_required(values, "slack", "url"), **rest)],
    "ntfy": lambda values, rest: [Ntfy(_required(values, "ntfy", "url"), values.get("token"), **rest)],
    "webhook": lambda values, rest: [Webhook(_required(values, "webhook", "url"), **rest)],
    "email": _email,
    "desktop": lambda values, rest: [Desktop(**rest)],
    "command": lambda values, rest: [CommandChannel(tuple(values.get("argv", ())), **rest)],
    "web": lambda values, rest: [WebList(**rest)],
}


def _mail_server(url: str, password: str | None) -> MailServer:
    expected = "smtp[s]://[user@]host[:port], the password in TRAINING_MONITOR_SMTP_PASSWORD or password_env"
    try:
        parts = urlsplit(url)
        security, usual_port = _SCHEMES[parts.scheme]
        port = parts.port or usual_port
    except (ValueError, KeyError):
        raise SettingsError("server", "***", expected) from None
    if not parts.hostname or parts.password is not None or parts.path.strip("/") or parts.query:
        raise SettingsError("server", "***", expected)
    user = unquote(parts.username) if parts.username else None
    return MailServer(parts.hostname, port, security, user, password)


def _required(values: _Values, channel: str, key: str) -> str:
    if key not in values:
        variable = next(name for name, place in _VARIABLES.items() if place == (channel, key))
        raise SettingsError(f"{key} ({variable})", None, "a value: the channel cannot do without", path=(key,))
    return str(values[key])


def _table(file: str, where: _Path, value: Any) -> _Values:
    if not isinstance(value, dict):
        raise wrong_setting(file, where, "***", "a table")
    return value


def _expect_keys(file: str, where: _Path, values: _Values, known: set[str]) -> None:
    for key in values:
        if key not in known:
            raise wrong_setting(file, (*where, key), "***", f"one of the keys {', '.join(sorted(known))}")


def _text(file: str, where: _Path, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise wrong_setting(file, where, "***", "a text")
    return str(value)


def _texts(file: str, where: _Path, value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise wrong_setting(file, where, "***", "a list of texts")
    return value
