"""Notices over real sockets: what each messenger gets, how refusals are met, and where no secret appears."""

from __future__ import annotations

import html
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from email.header import decode_header, make_header
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.integration.conftest import wait_until
from tests.loopback.messaging import (
    BLOCKED_CHAT,
    BLOCKED_USER,
    DISCORD_TOKEN,
    MAIL_PASSWORD,
    MOVED_CHAT,
    NEW_CHAT,
    NTFY_TOKEN,
    TELEGRAM_TOKEN,
    WEBHOOK_SECRET,
    Asked,
    Fault,
    MailService,
    Services,
    break_off,
    close_at_once,
    drip,
    drip_body,
    hang,
    rate_limit,
    refuse,
)
from tests.unit.notify.test_templates import every_notice
from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.commands.notify import declare, run
from training_monitor.core.errors import RestError, TrainingMonitorError
from training_monitor.core.mail import MailServer, send_mail
from training_monitor.core.rest import request
from training_monitor.core.store import Store
from training_monitor.core.values import Delivery, Notice
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
from training_monitor.notify.channel import Channel
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import Outbox
from training_monitor.notify.people import NotifiedUser
from training_monitor.notify.templates import About, stall_detected

SECRETS = (TELEGRAM_TOKEN, DISCORD_TOKEN, WEBHOOK_SECRET, NTFY_TOKEN, MAIL_PASSWORD)
HOSTILE = Notice(
    "failed",
    "<b>unclosed & **bold** *x*",
    (("Log", "a < b && `rm -rf` [click](https://x.example/a_b) @everyone <@42> <!channel>"),),
    "\x1b[31mred\x1b[0m\x00 " + "<&`*_🧨 " * 2000,
    "run",
)


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as running:
        yield running


@pytest.fixture
def mail() -> Iterator[MailService]:
    with MailService() as running:
        yield running


def telegram(services: Services, token: str = TELEGRAM_TOKEN, chat: str | None = "42") -> Telegram:
    return Telegram(token, chat, services.url)


def email(mail: MailService, password: str = MAIL_PASSWORD) -> Email:
    server = MailServer("127.0.0.1", mail.port, "plain", "me@example.org", password)
    return Email(server, "me@example.org", ("you@example.org",))


def every_channel(services: Services, mail: MailService, *, wrong: bool = False) -> list[Channel]:
    """All that leave this machine; `wrong` spoils each secret."""
    spoil = "x" if wrong else ""
    return [
        telegram(services, TELEGRAM_TOKEN + spoil),
        DiscordUser(DISCORD_TOKEN + spoil, "8001", services.discord_api),
        DiscordWebhook(services.discord_webhook + spoil),
        SlackWebhook(services.slack_webhook + spoil),
        Ntfy(services.ntfy, NTFY_TOKEN + spoil),
        Webhook(services.webhook + spoil),
        email(mail, MAIL_PASSWORD + spoil),
    ]


def stall() -> Notice:
    about = About("run", step=10, total_steps=40, checkpoint_step=5)
    return stall_detected(about, reason="no step for 20m", grace_seconds=900)


# ---------------------------------------------------------------- each channel


def test_every_channel_takes_a_notice_and_a_hostile_one(services: Services, mail: MailService) -> None:
    for channel in every_channel(services, mail):
        for notice in (stall(), HOSTILE, Notice("message", "", text="hello")):
            delivery = TrainingNotifier([channel], clock=FakeClock()).deliver(None, notice)
            assert delivery.success and delivery.attempts == 1, (channel.name, delivery.error)


def test_every_notice_names_training_target_and_command(services: Services, mail: MailService) -> None:
    target, command = "ssh://root@gpu-7:2222", "training-monitor check ssh://root@gpu-7:2222 '/runs/my run/*_1.log'"
    for notice in every_notice():
        told = replace(notice, training="my <run>", target=target, command=notice.command or command)
        for channel in every_channel(services, mail):
            services.asked.clear()
            mail.box.messages.clear()
            assert TrainingNotifier([channel]).deliver(None, told).success
            shown = mail.box.messages[0].get_content() if mail.box.messages else _shown(services.asked[-1])
            for words in ("my <run>", "gpu-7:2222", told.command or "", f"Next, on {socket.gethostname()}"):
                assert words in shown, (notice.kind, channel.name, shown)
    TrainingNotifier([Webhook(services.webhook)]).deliver(None, told)
    sent = services.asked[-1].json
    typed = {key: sent[key] for key in ("training", "target", "command", "host")}
    assert typed == {"training": "my <run>", "target": target, "command": command, "host": socket.gethostname()}


def _shown(asked: Asked) -> str:
    """What people see of a message, without its markup."""
    try:
        body = asked.json
    except ValueError:
        return asked.body.decode()
    plain = body.get("content") or body.get("message")
    text = plain or html.unescape(re.sub(r"</?\w+>", "", body.get("text", "")))
    return re.sub(r"\\(.)", r"\1", str(text))


def test_telegram_writes_to_the_new_id_of_a_group_and_says_so(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = TrainingNotifier([telegram(services, chat=MOVED_CHAT)])
    assert notifier.notify(None, "first").success and notifier.notify(None, "second").success
    sent = [(asked.json["chat_id"], asked.json["text"]) for asked in services.asked]
    assert [chat for chat, _ in sent] == [MOVED_CHAT, NEW_CHAT, NEW_CHAT]
    assert f"now {NEW_CHAT}: change it in the settings" in sent[1][1] and NEW_CHAT not in sent[2][1]
    assert NEW_CHAT in caplog.text


REFUSALS = [
    ("telegram", 403, '{"ok":false,"error_code":403,"description":"Forbidden: bot was kicked from the group chat"}'),
    ("telegram", 400, '{"ok":false,"error_code":400,"description":"Bad Request: not enough rights to send text"}'),
    ("slack", 410, "channel_is_archived"),
    ("discord", 400, '{"message":"Webhooks posted to forum channels must have a thread_name","code":220001}'),
    ("email", 0, ""),
]


@pytest.mark.parametrize(("name", "status", "body"), REFUSALS, ids=lambda value: str(value)[:20])
def test_a_refusal_is_followed_by_advice_that_fits_its_words(
    name: str, status: int, body: str, services: Services, mail: MailService
) -> None:
    channels: dict[str, tuple[Channel, str]] = {
        "telegram": (telegram(services), "add the bot" if "kicked" in body else "allow the bot to post"),
        "slack": (SlackWebhook(services.slack_webhook), "unarchive the channel"),
        "discord": (DiscordWebhook(services.discord_webhook), "thread_id"),
        "email": (email(mail, "wrong"), "check the user name and the password"),
    }
    channel, advice = channels[name]
    services.faults = [refuse(status, body)]
    tried, error = TrainingNotifier([channel]).try_channel(channel, NotifiedUser(), stall())
    assert tried == 1 and error is not None and advice in (channel.advise(error) or "")


def test_telegram_gets_bold_and_escaped_html(services: Services) -> None:
    assert TrainingNotifier([telegram(services)]).notify(None, stall()).channel == "telegram"
    [asked] = services.asked
    assert asked.path == f"/bot{TELEGRAM_TOKEN}/sendMessage" and asked.json["parse_mode"] == "HTML"
    assert asked.json["text"].startswith("<b>⚠️ Training Stall Detected</b>\n\nTraining: run\nProgress: 10/40 (25%)\n")


def test_a_persons_notice_goes_to_their_own_chat_and_nobodys_to_the_default(services: Services) -> None:
    notifier = TrainingNotifier([telegram(services)], users={"alice": NotifiedUser("alice", telegram_id=77)})
    assert notifier.notify("alice", "hello").success and notifier.notify(None, "hello").success
    assert [asked.json["chat_id"] for asked in services.asked] == ["77", "42"]


def test_discord_opens_a_conversation_and_pings_nobody(services: Services) -> None:
    bot = DiscordUser(DISCORD_TOKEN, api_url=services.discord_api)
    assert TrainingNotifier([bot]).notify(NotifiedUser("bob", discord_id="8001"), "@everyone look").success
    opened, message = services.asked
    assert opened.json == {"recipient_id": "8001"} and message.path.endswith("/channels/3196741501158001/messages")
    assert message.json["allowed_mentions"] == {"parse": []} and "@everyone" not in message.json["content"]


def test_a_person_is_notified_at_no_address_of_others(services: Services, mail: MailService) -> None:
    channels = [*every_channel(services, mail), Desktop(), CommandChannel(("false",)), WebList()]
    delivery = TrainingNotifier(channels, users={"dora": NotifiedUser("dora")}).notify("dora", "hello")
    assert delivery == Delivery("none", False, error="no channel for dora") and not services.asked
    assert not mail.box.messages


def test_ntfy_gets_title_priority_and_tags_as_headers(services: Services) -> None:
    assert TrainingNotifier([Ntfy(services.ntfy, NTFY_TOKEN)]).notify(None, stall()).success
    headers = services.asked[0].headers
    assert str(make_header(decode_header(headers["title"]))) == "⚠️ Training Stall Detected"
    assert (headers["priority"], headers["tags"]) == ("4", "stall_detected")
    assert services.asked[0].body.decode().startswith("Training: run\n")


def test_a_webhook_gets_the_notice_as_json(services: Services) -> None:
    assert TrainingNotifier([Webhook(services.webhook)]).notify(None, stall()).success
    sent = services.asked[0].json
    assert (sent["kind"], sent["job_id"], sent["priority"], sent["user"]) == ("stall_detected", "run", "high", None)
    assert sent["fields"][0] == {"label": "Progress", "value": "10/40 (25%)"} and "Issue: no step" in sent["message"]


def test_mail_has_one_subject_and_no_header_of_the_senders_making(mail: MailService) -> None:
    notice = Notice("failed", "Failed\r\nBcc: eve@example.org\n\nx ⚠️", (("Job", "run"),))
    assert TrainingNotifier([email(mail)]).notify(None, notice).success
    [message] = mail.box.messages
    assert message["Subject"] == "Failed Bcc: eve@example.org x ⚠️" and message["Bcc"] is None
    assert message["To"] == "you@example.org" and "Job: run" in message.get_content()
    assert len(mail.box.recipients) == 1


def test_mail_has_the_end_of_a_log_as_a_file(mail: MailService) -> None:
    notice = Notice("failed", "Failed", (("Job", "run"),), log="step 1\nlöss nan\ntoken=hf_Abcdefghijkl0123456789")
    assert TrainingNotifier([email(mail), replace(email(mail), log_lines=0)]).notify(None, notice).success
    [message] = mail.box.messages
    [file] = message.iter_attachments()
    assert file.get_filename() == "end-of-log.txt" and file.get_content().split() == "step 1 löss nan token=***".split()
    body = message.get_body()
    assert body and "Job: run" in body.get_content() and "löss" not in body.get_content()


def test_a_subject_with_line_ends_is_one_header_at_the_door_too(mail: MailService) -> None:
    server = MailServer("127.0.0.1", mail.port, "plain", "me@example.org", MAIL_PASSWORD)
    send_mail(server, "me@example.org", ["you@example.org"], "a\nBcc: eve@example.org\r\n\r\nb", ".\n.x\n")
    [message] = mail.box.messages
    assert message["Subject"] == "a Bcc: eve@example.org b" and message.get_content().splitlines() == [".", ".x"]
    with pytest.raises(RestError, match="characters"):
        send_mail(server, "me@example.org\nBcc: eve@example.org", ["you@example.org"], "a", "b")


def test_a_command_gets_the_notice_on_stdin_only(tmp_path: Path) -> None:
    got = tmp_path / "got"
    script = f"cat > {got}; tr '\\0' ' ' < /proc/$$/cmdline > {got}.argv"
    delivery = TrainingNotifier([CommandChannel(("sh", "-c", script))]).notify("", stall())
    assert delivery.channel == "command" and json.loads(got.read_text())["kind"] == "stall_detected"
    failing = TrainingNotifier([CommandChannel(("sh", "-c", "echo no such pager >&2; exit 3"))]).notify(None, "hello")
    assert not failing.success and failing.error == "command: sh failed with exit code 3: no such pager"


# ---------------------------------------------------------------- refusals


def test_a_wrong_secret_falls_through_without_another_try_and_is_shown_nowhere(
    services: Services, mail: MailService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = Store(str(tmp_path))
    channels = every_channel(services, mail, wrong=True)
    delivery = TrainingNotifier([*channels, WebList()], store=store).notify(None, stall())
    assert delivery.channel == "web" and delivery.success and delivery.attempts == len(channels) + 1
    kept = store.recent_notices()[0]
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    everywhere = [delivery.error or "", repr(channels), caplog.text, repr(kept), files.decode("latin-1")]
    assert "telegram" in everywhere[0] and "email" in everywhere[0] and "telegram" in caplog.text
    for secret in SECRETS:
        assert [secret in text for text in everywhere] == [False] * len(everywhere), secret


def test_a_server_that_repeats_the_request_does_not_give_the_secret_away(services: Services) -> None:
    services.faults = [refuse(404, f"Cannot POST /bot{TELEGRAM_TOKEN}/sendMessage on this server")]
    delivery = TrainingNotifier([telegram(services)]).notify(None, "hello")
    assert delivery.error and "returned HTTP 404" in delivery.error and TELEGRAM_TOKEN not in delivery.error


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ({"telegram_id": BLOCKED_CHAT}, "403: .*blocked by the user"),
        ({"telegram_id": "404"}, "400: .*chat not found"),
        ({"discord_id": BLOCKED_USER}, "403: .*Cannot send messages to this user"),
    ],
)
def test_a_person_whom_one_channel_refuses_is_notified_by_their_next_one(
    services: Services, mail: MailService, ids: dict[str, str], words: str
) -> None:
    channels = [telegram(services), DiscordUser(DISCORD_TOKEN, api_url=services.discord_api)]
    user = NotifiedUser("a", email="a@example.org", **ids)
    delivery = TrainingNotifier([*channels, SlackWebhook(services.slack_webhook), email(mail)]).notify(user, "hello")
    assert delivery.channel == "email" and delivery.error and re.search(words, delivery.error)
    assert mail.box.messages[0]["To"] == "a@example.org"


@pytest.mark.parametrize(("seconds", "waited"), [(3.0, 3.0), (0.0, 0.0)])
def test_a_rate_limit_is_waited_for(services: Services, seconds: float, waited: float) -> None:
    for channel in (telegram(services), SlackWebhook(services.slack_webhook)):
        clock = FakeClock()
        services.faults = [rate_limit(seconds), rate_limit(seconds)]
        delivery = TrainingNotifier([channel], clock=clock).notify(None, "hello")
        assert delivery.success and delivery.attempts == 3 and clock.slept == [waited, waited]


@pytest.mark.parametrize(
    ("ahead", "channel", "waits"), [(8.0, "webhook", 1), (3600.0, "slack", 0), (-9.0, "webhook", 1)]
)
def test_a_date_to_wait_for_is_understood(services: Services, ahead: float, channel: str, waits: int) -> None:
    clock = FakeClock()
    services.faults = [refuse(503, "later", {"Retry-After": formatdate(time.time() + ahead, usegmt=True)})]
    channels = [Webhook(services.webhook), SlackWebhook(services.slack_webhook)]
    assert TrainingNotifier(channels, clock=clock).notify(None, "hello").channel == channel
    assert len(clock.slept) == waits and all(0 <= seconds <= max(0.0, ahead) for seconds in clock.slept)


def test_a_broken_service_is_tried_three_times(services: Services) -> None:
    clock = FakeClock()
    services.faults = [refuse(500), close_at_once, break_off]
    delivery = TrainingNotifier([Webhook(services.webhook)], clock=clock).notify(None, "hello")
    assert (delivery.channel, delivery.success, delivery.attempts, clock.slept) == ("none", False, 3, [1.0, 2.0])
    assert len(services.asked) == 3


@pytest.mark.parametrize("fault", [hang, drip, drip_body])
def test_a_service_that_never_ends_its_answer_takes_a_limited_time(services: Services, fault: Fault) -> None:
    services.faults, before = [fault] * 3, threading.active_count()
    channels = [Webhook(services.webhook), SlackWebhook(services.slack_webhook)]
    delivery = TrainingNotifier(channels, clock=FakeClock(), timeout=0.2).notify(None, "hello")
    assert delivery.channel == "slack" and delivery.attempts == 4
    assert delivery.error == f"webhook: {services.url} sent no complete response within 0.2 s"
    assert wait_until(lambda: threading.active_count() <= before + 2)  # of the service itself


def test_a_refused_connection_is_an_error_of_ours(services: Services) -> None:
    services.stop()
    with pytest.raises(RestError, match="Connection refused") as caught:
        request("POST", services.slack_webhook, json_body={"text": "hello"})
    assert caught.value.temporary and caught.value.status is None


def test_a_redirect_is_not_followed(services: Services) -> None:
    services.faults = [refuse(307, "moved", {"Location": services.slack_webhook})]
    with pytest.raises(RestError, match="returned HTTP 307"):
        request("POST", services.webhook, json_body={"text": "hello"}, headers={"Authorization": "Bearer x"})
    assert len(services.asked) == 1


def test_a_flood_is_cut(services: Services) -> None:
    services.faults = [refuse(200, "x" * (1024 * 1024 + 1))]
    with pytest.raises(RestError, match="longer than 1048576 bytes"):
        request("GET", services.webhook)


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "file:///etc/passwd", "http://", "https://user:word@host/", "http://host/a b", "http://host:x/"],
)
def test_an_address_that_is_none_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(RestError, match="not a valid http or https URL") as caught:
        request("POST", url)
    assert not caught.value.temporary and url not in str(caught.value)


def test_a_token_with_a_line_end_is_not_shown(services: Services) -> None:
    with pytest.raises(RestError, match="a header contains characters") as caught:
        request("POST", services.webhook, headers={"Authorization": f"Bearer {NTFY_TOKEN}\nX: y"})
    assert NTFY_TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "words", "attempts"),
    [
        ("refuse", "refused every recipient", 1),
        ("busy", "responded: 451: 4.7.1 try again later", 3),
        ("close", "closed the connection", 3),
        ("hang", "did not finish within 0.2 s", 3),
        ("drip", "did not finish within 0.2 s", 3),
    ],
)
def test_a_mail_server_that_fails_is_met(mail: MailService, fault: str, words: str, attempts: int) -> None:
    mail.box.fault = fault
    delivery = TrainingNotifier([email(mail)], clock=FakeClock(), timeout=0.2).notify(None, "hello")
    assert not delivery.success and delivery.attempts == attempts and words in (delivery.error or "")


def test_mail_without_encryption_is_refused_where_it_was_asked_for(mail: MailService) -> None:
    server = MailServer("127.0.0.1", mail.port, "starttls", "me@example.org", MAIL_PASSWORD)
    with pytest.raises(RestError, match="STARTTLS extension not supported") as caught:
        send_mail(server, "me@example.org", ["you@example.org"], "a", "b")
    assert not caught.value.temporary and mail.box.messages == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody vouches for, with its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed: nothing here was tested")
    file = tmp_path / "certificate.pem"
    options = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", *options.split(), "-keyout", file, "-out", f"{file}.new"], check=True, capture_output=True
    )
    file.write_text(file.read_text() + Path(f"{file}.new").read_text())
    return file


def test_a_certificate_must_be_vouched_for(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Services(certificate) as services, MailService(certificate) as mail:
        server = MailServer("localhost", mail.port, "ssl", "me@example.org", MAIL_PASSWORD)
        channels = [SlackWebhook(services.slack_webhook), Email(server, "a@b", ("c@d",))]
        notifiers = [TrainingNotifier([channel], clock=FakeClock()) for channel in channels]
        for notifier in notifiers:
            delivery = notifier.notify(None, "hello")
            assert not delivery.success and "self-signed certificate" in (delivery.error or "").replace(
                " signed", "-signed"
            )
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert [notifier.notify(None, "hello").error for notifier in notifiers] == [None, None]
        assert len(services.asked) == len(mail.box.messages) == 1


# ---------------------------------------------------------------- the outbox


def test_posting_does_not_wait_for_a_service_that_hangs(services: Services, tmp_path: Path) -> None:
    services.faults = [hang] * 3
    store = Store(str(tmp_path))
    outbox = Outbox(TrainingNotifier([SlackWebhook(services.slack_webhook)], store=store), store)
    assert outbox.post(stall())
    assert wait_until(lambda: services.asked)
    assert outbox.post(Notice("failed", "Failed", job_id="run"))
    outbox.close(timeout=0.1)
    assert [kept.state for kept in store.recent_notices("run")] == ["pending", "pending"]


def test_what_a_killed_process_posted_is_sent_by_the_next(services: Services, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom training_monitor.core.store import Store\n"
        "from training_monitor.notify.notifier import TrainingNotifier\n"
        "from training_monitor.notify.outbox import Outbox\nfrom training_monitor.core.values import Notice\n"
        "store = Store(sys.argv[1])\noutbox = Outbox(TrainingNotifier([]), store)\n"
        "outbox.post(Notice('failed', 'Failed', job_id='run'))\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment())
    assert done.returncode == -9
    store = Store(str(tmp_path))
    with Outbox(TrainingNotifier([SlackWebhook(services.slack_webhook)]), store):
        assert wait_until(lambda: services.asked and not store.pending_notices(""))
    assert services.asked[0].json["text"] == "*Failed*"


# ---------------------------------------------------------------- the command


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRAINING_MONITOR_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path) or ".", **more}


@pytest.fixture
def settings(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    for key in [key for key in os.environ if key.startswith("TRAINING_MONITOR_")]:
        monkeypatch.delenv(key)
    chosen = {
        "TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "TRAINING_MONITOR_TELEGRAM_TOKEN": TELEGRAM_TOKEN,
        "TRAINING_MONITOR_TELEGRAM_CHAT_ID": "42",
        "TRAINING_MONITOR_TELEGRAM_API": services.url,
        "TRAINING_MONITOR_SLACK_WEBHOOK": services.slack_webhook,
    }
    for key, value in chosen.items():
        monkeypatch.setenv(key, value)
    yield chosen


def call(*words: str) -> int:
    parser = CommandParser()
    parser.flag("--json", "print JSON")
    parser.set_defaults(subcommand="notify")
    declare(parser)
    return run(parser.parse_args(words))


def test_the_test_proves_each_channel(settings: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--test") == 0
    assert capsys.readouterr().out == "telegram: ok\nslack: ok\n"


def test_the_test_says_what_is_wrong_and_what_to_try(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_TELEGRAM_TOKEN", "1:wrong")
    assert call("--test") == 1
    telegram_line, slack_line = capsys.readouterr().out.splitlines()
    assert "returned HTTP 401" in telegram_line and "try: check the token: @BotFather" in telegram_line
    assert slack_line == "slack: ok"
    assert call("--test", "--channel", "slack", "--json") == 0
    assert json.loads(capsys.readouterr().out)["channels"][0]["success"] is True


def test_nothing_configured_is_wrong_use(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainingMonitorError, match="channel: got 'email', expected a configured channel"):
        call("--test", "--channel", "email")
    for key in ("TOKEN", "CHAT_ID", "API"):
        monkeypatch.delenv(f"TRAINING_MONITOR_TELEGRAM_{key}")
    monkeypatch.delenv("TRAINING_MONITOR_SLACK_WEBHOOK")
    for words in (("--test",), ("hello",)):
        with pytest.raises(TrainingMonitorError, match="TRAINING_MONITOR_TELEGRAM_TOKEN"):
            call(*words)
    with pytest.raises(TrainingMonitorError, match="a message, --test or --list"):
        call()


def test_a_message_is_sent_and_listed(settings: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("epoch 3 done", "--job", "run", "--priority", "high") == 0
    assert capsys.readouterr().out == "telegram: sent (1 try)\n"
    assert call("--list", "--job", "run") == 0
    assert "sent by telegram  run  epoch 3 done" in capsys.readouterr().out
    assert call("--list", "--json") == 0
    [kept] = json.loads(capsys.readouterr().out)["notices"]
    assert (kept["state"], kept["channel"], kept["notice"]["priority"]) == ("sent", "telegram", "high")
