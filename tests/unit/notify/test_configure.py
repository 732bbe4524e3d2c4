"""Channels and users out of the environment and the settings file, and what is said about mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.mail import MailServer
from training_monitor.core.store import Store
from training_monitor.notify import (
    CommandChannel,
    Desktop,
    DiscordUser,
    DiscordWebhook,
    Email,
    Ntfy,
    SlackWebhook,
    Telegram,
    Webhook,
    WebList,
)
from training_monitor.notify.configure import load_channels, load_notifier, load_users
from training_monitor.notify.people import NotifiedUser

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


def write(folder: Path, settings: dict[str, Any] | str, mode: int = 0o600) -> str:
    file = folder / ("settings.toml" if isinstance(settings, str) else "settings.json")
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    file.chmod(mode)
    return str(file)


def channels_of(folder: Path, notifications: dict[str, Any], **environ: str) -> list[Any]:
    return list(load_channels(environ, write(folder, {"notifications": notifications})))


def test_nothing_is_configured_by_default_and_an_empty_variable_is_none() -> None:
    assert load_channels(NOWHERE) == [] and load_users(NOWHERE) == {}
    assert load_channels({**NOWHERE, "TRAINING_MONITOR_TELEGRAM_TOKEN": ""}) == []


def test_every_channel_of_the_environment() -> None:
    environ = {
        **NOWHERE,
        "TRAINING_MONITOR_EMAIL_TO": "a@example.org, b@example.org",
        "TRAINING_MONITOR_SMTP": "smtps://me%40example.org@mail.example.org:4650",
        "TRAINING_MONITOR_SMTP_PASSWORD": "pw",
        "TRAINING_MONITOR_NTFY": "https://ntfy.sh/topic",
        "TRAINING_MONITOR_NTFY_TOKEN": "tk_1",
        "TRAINING_MONITOR_WEBHOOK": "https://example.org/hook",
        "TRAINING_MONITOR_SLACK_WEBHOOK": "https://hooks.slack.com/services/T/B/X",
        "TRAINING_MONITOR_DISCORD_WEBHOOK": "https://discord.com/api/webhooks/1/x",
        "TRAINING_MONITOR_DISCORD_TOKEN": "abc.def",
        "TRAINING_MONITOR_DISCORD_USER_ID": "8001",
        "TRAINING_MONITOR_DISCORD_API": "http://127.0.0.1:1/api/v10",
        "TRAINING_MONITOR_TELEGRAM_TOKEN": TOKEN,
        "TRAINING_MONITOR_TELEGRAM_CHAT_ID": "-42",
        "TRAINING_MONITOR_TELEGRAM_API": "http://127.0.0.1:1",
    }
    server = MailServer("mail.example.org", 4650, "ssl", "me@example.org", "pw")
    assert load_channels(environ) == [
        Telegram(TOKEN, "-42", "http://127.0.0.1:1"),
        DiscordUser("abc.def", "8001", "http://127.0.0.1:1/api/v10"),
        DiscordWebhook("https://discord.com/api/webhooks/1/x"),
        SlackWebhook("https://hooks.slack.com/services/T/B/X"),
        Ntfy("https://ntfy.sh/topic", "tk_1"),
        Webhook("https://example.org/hook"),
        Email(server, "me@example.org", ("a@example.org", "b@example.org")),
    ]


def test_the_file_has_tables_and_an_order(tmp_path: Path) -> None:
    found = channels_of(
        tmp_path,
        {
            "order": ["web", "desktop"],
            "telegram": {"token": TOKEN, "chat_id": 42, "minimum_priority": "high"},
            "command": {"argv": ["page", "me"]},
            "desktop": {},
            "web": {},
            "email": {"server": "smtp://mail.example.org", "from": "me@example.org", "to": "you@example.org"},
        },
    )
    assert found == [
        WebList(),
        Desktop(),
        Telegram(TOKEN, "42", minimum_priority="high"),
        Email(MailServer("mail.example.org", 587), "me@example.org", ("you@example.org",)),
        CommandChannel(("page", "me")),
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
def test_secrets_may_be_named_instead_of_written(tmp_path: Path) -> None:
    text = '[notifications.telegram]\ntoken_env = "MY_TOKEN"\n[notifications.slack]\nurl_env = "MY_URL"\n'
    file = write(tmp_path, text, 0o644)
    environ = {"MY_TOKEN": TOKEN, "MY_URL": "https://hooks.slack.com/x"}
    assert load_channels(environ, file) == [Telegram(TOKEN), SlackWebhook("https://hooks.slack.com/x")]
    with pytest.raises(SettingsError, match="telegram.token"):
        load_channels({}, file)


def test_the_environment_wins_value_by_value(tmp_path: Path) -> None:
    table = {"telegram": {"token_env": "MY_TOKEN", "chat_id": "1"}}
    assert channels_of(tmp_path, table, TRAINING_MONITOR_TELEGRAM_TOKEN=TOKEN) == [Telegram(TOKEN, "1")]
    both = {"MY_TOKEN": "1:file", "TRAINING_MONITOR_TELEGRAM_CHAT_ID": "2"}
    assert channels_of(tmp_path, table, **both) == [Telegram("1:file", "2")]


def test_a_mistake_is_named_and_no_secret_is_shown(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for notifications, words in [
        ([], "notifications: got"),
        ({"telegramm": {}}, "notifications.telegramm"),
        ({"telegram": TOKEN}, "notifications.telegram: got .* expected a table"),
        ({"telegram": {"tokn": TOKEN}}, "notifications.telegram.tokn"),
        ({"telegram": {"token": "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"}}, "notifications.telegram.token"),
        ({"telegram": {"token": TOKEN, "token_env": "X"}}, "not both"),
        ({"telegram": {"token": [TOKEN]}}, "telegram.token"),
        (
            {"telegram": {"chat_id": "1"}},
            "telegram.token: .* in the settings file or in the variable TRAINING_MONITOR_TELEGRAM_TOKEN",
        ),
        ({"telegram": {"token": TOKEN, "chat_id": True}}, "chat_id"),
        ({"telegram": {"token": TOKEN, "minimum_priority": "loud"}}, "minimum_priority: got 'loud'"),
        ({"discord": {}}, "discord.token: .* in the settings file or in the variable TRAINING_MONITOR_DISCORD_TOKEN"),
        ({"slack": {"url": "hooks.slack.com/AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"}}, "slack.url"),
        ({"command": {}}, "command.argv"),
        ({"command": {"argv": [1]}}, "command.argv"),
        ({"email": {"server": "smtp://u:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw@h", "from": "a@b"}}, "email.server"),
        ({"email": {"server": "mail.example.org"}}, "smtp"),
        ({"email": {"server": "smtp://mail.example.org"}}, "email.from: .*TRAINING_MONITOR_EMAIL_FROM"),
        ({"email": {"server": "smtp+plain://u@mail.example.org", "from": "a@b", "password": "x"}}, "starttls or ssl"),
        ({"email": {"server": "smtp://h", "from": "a\nBcc: b@c"}}, "from"),
        ({"order": "telegram"}, "notifications.order"),
        ({"order": ["telegram", "fax"]}, "notifications.order"),
        ({"order": ["slack", "slack"]}, "notifications.order"),
        ({"order": [["slack"]]}, "notifications.order"),
    ]:
        with subtests.test(notifications=notifications, words=words):
            file = write(tmp_path, {"notifications": notifications})
            with pytest.raises(SettingsError, match=words) as caught:
                load_channels({}, file)
            assert file in str(caught.value) and "AAHdqTcvCH1" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_with_secrets_must_be_ones_own(tmp_path: Path, mode: int) -> None:
    file = write(tmp_path, {"notifications": {"telegram": {"token": TOKEN}}}, mode)
    with pytest.raises(SettingsError, match=f"the file contains telegram.token .chmod 600 {file}."):
        load_channels({}, file)
    plain = write(tmp_path, {"notifications": {"desktop": {}}}, mode)
    assert load_channels({}, plain) == [Desktop()]


def test_a_mistake_about_a_user_is_named(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for users, words in [
        ([], "users: got"),
        ({"alice": "7"}, "users.alice"),
        ({"alice": {"phone": "1"}}, "users.alice.phone"),
        ({"alice": {"email": "nobody"}}, "users.alice.email"),
        ({"alice": {"discord_id": "x"}}, "users.alice.discord_id"),
    ]:
        with subtests.test(users=users, words=words):
            file = write(tmp_path, {"users": users})
            with pytest.raises(SettingsError, match=words) as caught:
                load_users({}, file)
            assert file in str(caught.value)


def test_the_notifier_knows_the_users_and_ends_with_the_web_list(tmp_path: Path) -> None:
    users = {"alice": {"telegram_id": 7, "email": "a@example.org"}, "bob": {}}
    file = write(tmp_path, {"notifications": {"desktop": {}}, "users": users})
    alice = NotifiedUser("alice", "7", None, "a@example.org")
    assert load_users({}, file) == {"alice": alice, "bob": NotifiedUser("bob")}
    notifier = load_notifier({}, file, store=Store(str(tmp_path / "state")))
    assert [channel.name for channel in notifier.channels] == ["desktop", "web"]
    assert notifier.find_user("alice") == alice
    assert load_notifier({}, file).channels == (Desktop(),)
