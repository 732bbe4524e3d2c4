"""The chain of channels: order, tries, waits, and what is told twice."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from training_monitor.core.errors import CommandFailed, RestError, SettingsError, ToolNotFound, TrainingMonitorError
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.core.values import Delivery, Notice
from training_monitor.notify import CommandChannel, Desktop, Telegram, WebList
from training_monitor.notify.channel import Doors
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.people import NotifiedUser

FAILED = Notice("failed", "Failed", job_id="run", priority="high")


@dataclass
class Line:
    """A channel that fails with what it was given, one by one, and then takes all."""

    name: str = "line"
    failures: list[Exception] = field(default_factory=list)
    minimum_priority: str = "low"
    log_lines: int = 50
    sent: list[tuple[str, Notice]] = field(default_factory=list)

    def obstacle(self, user: NotifiedUser, doors: Doors) -> str | None:
        return None

    def recipient(self, user: NotifiedUser) -> str:
        return user.name

    def send(self, notice: Notice, to: str, doors: Doors) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append((to, notice))


class Programs:
    """A transport that keeps what is run."""

    def __init__(self) -> None:
        self.ran: list[tuple[tuple[str, ...], str | None]] = []

    def run(self, argv: tuple[str, ...], *, timeout: float, input: str | None = None) -> CommandResult:
        self.ran.append((tuple(argv), input))
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    def stream(self, argv: tuple[str, ...], *, input: str | None = None) -> None:
        raise AssertionError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


# ---------------------------------------------------------------- the chain


def test_the_first_channel_that_takes_it_is_the_last_one_asked(clock: FakeClock) -> None:
    broken = Line("broken", [ZeroDivisionError("the token is s3cr3t")])
    first, second, third = Line("first", [CommandFailed("no")]), Line("second"), Line("third")
    delivery = TrainingNotifier([broken, first, second, third], clock=clock).notify(None, FAILED)
    assert delivery == Delivery("second", True, 3, "broken: failed with ZeroDivisionError; first: no")
    assert (first.sent, third.sent, clock.slept) == ([], [], [])


def test_when_all_fail_every_reason_is_told_and_without_a_channel_nobody(clock: FakeClock) -> None:
    lines = [Line("a", [RestError("no", status=400)]), Line("b", [RestError("gone", status=404)])]
    assert TrainingNotifier(lines, clock=clock).notify(None, "x") == Delivery("none", False, 2, "a: no; b: gone")
    delivery = TrainingNotifier([]).notify(None, "hello")
    assert (delivery.channel, delivery.success, delivery.attempts) == ("none", False, 0) and delivery.error


def test_a_channel_takes_only_what_is_important_enough() -> None:
    pager, chat = Line("pager", minimum_priority="high"), Line("chat")
    notifier = TrainingNotifier([pager, chat])
    taken = [notifier.notify(None, "x", priority).channel for priority in ("low", "normal", "high", "urgent")]
    assert taken == ["chat", "chat", "pager", "pager"]


def test_a_channel_gets_as_many_lines_of_a_log_as_its_setting_allows() -> None:
    for count, log in ((50, "a\nb\nc"), (2, "b\nc"), (0, "")):
        line = Line(log_lines=count)
        TrainingNotifier([line]).deliver(None, replace(FAILED, log="a\nb\nc\n\n"))
        [(_, notice)] = line.sent
        assert notice.log == log


def test_a_text_carries_its_job_and_priority_and_unknown_ones_are_refused() -> None:
    line = Line()
    notifier = TrainingNotifier([line], users={"alice": NotifiedUser("alice")})
    notifier.notify(NotifiedUser("eve"), "half way", "low", "run")
    [(user, notice)] = line.sent
    assert (user, notice.text, notice.job_id, notice.priority) == ("eve", "half way", "run", "low")
    assert notice.training == "run" and notice.host == socket.gethostname()
    with pytest.raises(SettingsError, match="user: got 'bob', expected one of alice"):
        notifier.notify("bob", "x")
    with pytest.raises(SettingsError, match="priority"):
        notifier.notify("alice", "x", "loud")


@pytest.mark.parametrize(
    ("failures", "attempts", "slept", "channel"),
    [
        ([RestError("no answer"), RestError("busy", status=503), RestError("no answer")], 4, [1.0, 2.0], "next"),
        (
            [RestError("slow", status=429, retry_after=30.0), RestError("slow", status=429, retry_after=0.3)],
            3,
            [30.0, 0.3],
            "line",
        ),
        ([RestError("slow", status=429, retry_after=30.1)], 2, [], "next"),  # too long a wait is none
        *(([RestError("no", status=status)], 2, [], "next") for status in (400, 401, 403, 404, 413)),
    ],
)
def test_what_may_pass_is_tried_three_times_and_what_was_asked_for_is_waited(
    clock: FakeClock, failures: list[Exception], attempts: int, slept: list[float], channel: str
) -> None:
    delivery = TrainingNotifier([Line("line", list(failures)), Line("next")], clock=clock).notify(None, "x")
    assert (delivery.channel, delivery.attempts, clock.slept) == (channel, attempts, slept)


@pytest.mark.parametrize("with_store", [False, True])
def test_the_same_event_is_told_once_to_each_user(tmp_path: Path, with_store: bool) -> None:
    line = Line()
    store = Store(str(tmp_path)) if with_store else None
    users = {"a": NotifiedUser("a"), "b": NotifiedUser("b")}
    notifier = TrainingNotifier([line], users=users, store=store)
    assert notifier.notify("a", FAILED).channel == "line"
    assert notifier.notify("a", Notice("failed", "again", job_id="run")) == Delivery("suppressed", True)
    assert notifier.notify("b", FAILED).channel == "line"
    assert notifier.notify("a", Notice("failed", "Failed", job_id="run", generation=1)).channel == "line"
    assert notifier.notify("a", Notice("failed", "Failed", job_id="other")).channel == "line"
    assert len(line.sent) == 4
    if store:
        another = TrainingNotifier([line], users=users, store=Store(str(tmp_path)))
        assert another.notify("a", FAILED).channel == "suppressed", "another process knows it"


@pytest.mark.parametrize("with_store", [False, True])
def test_what_reached_nobody_is_no_repeat_and_neither_is_a_text(tmp_path: Path, with_store: bool) -> None:
    line = Line("line", [RestError("no", status=400)])
    notifier = TrainingNotifier([line], store=Store(str(tmp_path)) if with_store else None)
    assert [notifier.notify(None, FAILED).success for _ in range(2)] == [False, True]
    assert notifier.notify(None, FAILED).channel == "suppressed"
    assert [notifier.notify(None, "hello").channel for _ in range(3)] == ["line"] * 3


def test_the_web_list_takes_what_all_others_refuse(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    line = Line("line", [RestError("no", status=400)])
    delivery = TrainingNotifier([line, WebList()], store=store).notify(None, FAILED)
    assert delivery == Delivery("web", True, 2, "line: no")
    [kept] = store.recent_notices("run")
    assert (kept.state, kept.channel, kept.error, kept.notice) == ("sent", "web", "line: no", FAILED)


def test_the_web_list_needs_a_store_that_can_be_written(tmp_path: Path) -> None:
    assert TrainingNotifier([WebList()]).notify(None, "x").channel == "none"
    store = Store(str(tmp_path))
    notifier = TrainingNotifier([WebList()], store=store)
    Path(store.path).chmod(0o622)  # others could write to it
    assert notifier.notify(None, "x") == Delivery("none", False, error="web: could not save the notice")
    assert TrainingNotifier([Line()], store=store).notify(None, FAILED).channel == "line"


def test_the_desktop_gets_escaped_words_and_a_command_none_in_its_arguments() -> None:
    programs = Programs()
    notice = Notice("failed", "--help", (("Log", "<b>&"),), priority="urgent")
    assert TrainingNotifier([Desktop()], transport=programs).notify(None, notice).channel == "desktop"  # type: ignore[arg-type]
    TrainingNotifier([CommandChannel(("page", "me"))], transport=programs).notify(None, FAILED)  # type: ignore[arg-type]
    [(desktop, _), (command, text)] = programs.ran
    assert desktop == ("notify-send", "--urgency=critical", "--", "--help", "Log: &lt;b&gt;&amp;")
    assert command == ("page", "me") and text and '"kind": "failed"' in text and "\n" not in text.rstrip("\n")


def test_a_program_that_is_not_there_is_passed_over() -> None:
    delivery = TrainingNotifier([CommandChannel(("no-such-program-here",)), Line()]).notify(None, "x")
    assert delivery == Delivery("line", True, 2, "command: no-such-program-here is not installed on this machine")


@pytest.mark.parametrize(("platform", "advice"), [("linux", "apt-get install libnotify-bin"), ("darwin", "macOS has")])
def test_a_desktop_without_its_program_gets_advice_that_fits(
    platform: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert advice in (Desktop.advise(ToolNotFound("notify-send is not installed here")) or "")


def test_secrets_are_not_in_what_a_channel_looks_like() -> None:
    assert "AAHdq" not in repr(Telegram("1:AAHdqTcvCH1", "42"))
    with pytest.raises(TrainingMonitorError) as caught:
        Telegram("AAHdq TcvCH1")
    assert "AAHdq" not in str(caught.value)


def test_settings_that_cannot_be_are_refused() -> None:
    for make in (
        lambda: Telegram("1:abc", "not a number"),
        lambda: Telegram("1:abc", api_url="ftp://x"),
        lambda: CommandChannel(()),
        lambda: Desktop(minimum_priority="loud"),
        lambda: NotifiedUser("x", email="nobody"),
        lambda: NotifiedUser("x", telegram_id="1\n2"),
    ):
        with pytest.raises(SettingsError):
            make()
