"""Notices for one person when channels have default recipients: they reach that person, or nobody."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.test_notify import email, every_channel, telegram
from tests.loopback.messaging import DISCORD_TOKEN, TELEGRAM_TOKEN, MailService, Services
from training_monitor.cli.main import main
from training_monitor.core.errors import CommandFailed, SettingsError
from training_monitor.core.store import Store
from training_monitor.core.values import Notice
from training_monitor.notify import CommandChannel, Desktop, DiscordUser, WebList
from training_monitor.notify.channel import Channel
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.notify.people import NotifiedUser

OWN = {"telegram_id": "771", "discord_id": "8009", "email": "dora@example.org"}
WRONG_CHAT = "404"


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as here:
        yield here


@pytest.fixture
def mail() -> Iterator[MailService]:
    with MailService() as here:
        yield here


def all_channels(services: Services, mail: MailService, folder: Path) -> list[Channel]:
    """Every kind of channel, each with a default recipient that is not the person's."""
    program = CommandChannel(("sh", "-c", f"touch {folder}/told"))
    return [*every_channel(services, mail), Desktop(), program, WebList()]


def recipients(services: Services, mail: MailService) -> set[str]:
    """Who got a message, by address, or by the path of a service that has no addresses."""
    found = {str(message["To"]) for message in mail.box.messages}
    for asked in services.asked:
        body = asked.json
        if "/channels/" in asked.path:
            continue  # the message in the conversation that was opened before
        found.add(str(body.get("chat_id") or body.get("recipient_id") or asked.path))
    return found


def test_each_person_is_notified_at_own_addresses_only(services: Services, mail: MailService, tmp_path: Path) -> None:
    channels, store = all_channels(services, mail, tmp_path), Store(str(tmp_path / "state"))
    for count in range(len(OWN) + 1):
        for names in itertools.combinations(OWN, count):
            for order in (channels, channels[::-1]):
                tried()
                services.asked.clear()
                mail.box.messages.clear()
                dora = NotifiedUser("dora", **{name: OWN[name] for name in names})
                delivery = TrainingNotifier(order, store=store).notify(dora, "hello")
                assert delivery.success is bool(names), (names, delivery)
                assert recipients(services, mail) <= {OWN[name] for name in names}
                assert len(recipients(services, mail)) == bool(names)
                if not names:
                    assert (delivery.channel, delivery.error) == ("none", "no channel for dora")
    assert not (tmp_path / "told").exists()


def test_a_failing_own_address_is_never_replaced(services: Services, mail: MailService, tmp_path: Path) -> None:
    dora = NotifiedUser("dora", telegram_id=WRONG_CHAT)
    channels = all_channels(services, mail, tmp_path)
    for order in itertools.islice(itertools.permutations(channels), 0, 3_000_000, 500_000):
        tried()
        services.asked.clear()
        delivery = TrainingNotifier(order, store=Store(str(tmp_path / "state"))).notify(dora, "hello")
        assert not delivery.success and "chat not found" in (delivery.error or "")
        assert recipients(services, mail) == {WRONG_CHAT}
    assert not (tmp_path / "told").exists()


def test_only_the_channel_of_an_own_address_may_take_it(services: Services, mail: MailService) -> None:
    """Each kind alone: a channel with a default recipient and a person who has the address of another kind."""
    kinds = {
        "telegram_id": telegram(services),
        "discord_id": DiscordUser(DISCORD_TOKEN, "8001", services.discord_api),
        "email": email(mail),
    }
    assert [(kind.own, bool(kind.recipient(NotifiedUser()))) for kind in kinds.values()] == [(k, True) for k in kinds]
    for name, other in itertools.permutations(kinds, 2):
        tried()
        dora = NotifiedUser("dora", **{name: OWN[name]})
        assert TrainingNotifier([kinds[other]]).notify(dora, "hello").error == "no channel for dora"
    assert not services.asked and not mail.box.messages


def test_an_outbox_refuses_whom_it_cannot_reach(services: Services, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    users = {"dora": NotifiedUser("dora", discord_id="8009")}
    notifier = TrainingNotifier([telegram(services), WebList()], users=users)
    tried(2)
    with pytest.raises(CommandFailed, match="no channel for dora"):
        Outbox(notifier, store, "dora")
    with pytest.raises(SettingsError, match="with a name"):  # "" is the name of the default recipients' outbox
        Outbox(notifier, store, NotifiedUser(telegram_id="5"))


def test_notices_of_two_persons_are_never_mixed_up(services: Services, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    users = {name: NotifiedUser(name, telegram_id=f"77{at}") for at, name in enumerate(("dora", "eve"))}
    notifier = TrainingNotifier([telegram(services), WebList()], users=users, store=store)
    for name in ("dora", "eve", ""):
        tried()
        store.add_notice(name, Notice("failed", f"for <{name}>"), now=0.0)
    for name, chat in (("dora", "770"), ("eve", "771"), ("", "42")):
        services.asked.clear()
        with Outbox(notifier, store, name or None):
            pass
        [asked] = services.asked
        assert asked.json["chat_id"] == chat and f"for &lt;{name}&gt;" in asked.json["text"]


def test_every_command_fails_without_a_channel_for_the_person(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"users": {"dora": {"discord_id": "8009"}}}')
    for name, value in {
        "TRAINING_MONITOR_SETTINGS": str(tmp_path / "config.json"),
        "TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"),
        "TRAINING_MONITOR_JOBS_DIR": str(tmp_path / "jobs"),
        "TRAINING_MONITOR_TELEGRAM_TOKEN": TELEGRAM_TOKEN,
        "TRAINING_MONITOR_TELEGRAM_CHAT_ID": "42",
        "TRAINING_MONITOR_TELEGRAM_API": services.url,
        "TRAINING_MONITOR_SLACK_WEBHOOK": services.slack_webhook,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs" / "good").mkdir(parents=True)
    for name, text in (("command", "true"), ("log", "step 1/2\n"), ("exit_code", "0 1700000000\n")):
        (tmp_path / "jobs" / "good" / name).write_text(text)
    for argv in (
        ["notify", "hello", "--user", "dora"],
        ["notify", "--test", "--user", "dora"],
        ["watch", "local", "process:good", "--notify", "dora"],
        ["run", "--name", "x", "--notify", "dora", "--", "true"],
        ["fleet", "local", "--once", "--notify", "dora"],
    ):
        tried()
        assert main(argv) == 1, (argv, capsys.readouterr())
        captured = capsys.readouterr()
        assert "no channel for dora" in captured.err, argv
    assert not services.asked and [each.name for each in (tmp_path / "jobs").iterdir()] == ["good"]
