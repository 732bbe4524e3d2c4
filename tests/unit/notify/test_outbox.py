"""The outbox: durable, in order, patient, and over before a day has passed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.unit.notify.test_notifier import Line
from training_monitor.core.errors import RestError, SettingsError
from training_monitor.core.store import Store
from training_monitor.core.values import Delivery, Notice
from training_monitor.notify import WebList
from training_monitor.notify.notifier import TrainingNotifier
from training_monitor.notify.outbox import GIVEN_UP_AFTER, Outbox


class Bench:
    """An outbox whose thread is not started: a test calls `send_due` and moves the clock."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.line, self.store = FakeClock(), Line(), Store(str(folder))
        self.outbox = self.open()

    def open(self) -> Outbox:
        notifier = TrainingNotifier([self.line, WebList()], store=self.store, clock=self.clock)
        return Outbox(notifier, self.store, clock=self.clock)

    def add(self, *kinds: str) -> None:
        for kind in kinds:
            self.store.add_notice("", notice(kind), now=self.clock.time())

    def fail(self, times: int) -> None:
        self.line.failures = [RestError("refused", status=400) for _ in range(times)]

    @property
    def sent(self) -> list[str]:
        return [each.kind for _, each in self.line.sent]

    @property
    def states(self) -> list[str]:
        return [kept.state for kept in reversed(self.store.recent_notices())]


def notice(kind: str) -> Notice:
    return Notice(kind, kind.title(), job_id="run")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_failed_is_tried_again_with_growing_pauses(bench: Bench) -> None:
    bench.add("failed")
    bench.fail(7)
    waits = []
    while (wait := bench.outbox.send_due()) is not None:
        waits.append(wait)
        assert bench.outbox.send_due() == wait and bench.sent == []
        bench.clock.sleep(wait)
    assert waits == [30, 60, 120, 240, 480, 600, 600]
    [kept] = bench.store.recent_notices()
    assert (kept.state, kept.channel, kept.error) == ("sent", "line", None)


def test_what_failed_does_not_hold_up_what_comes_later(bench: Bench) -> None:
    bench.add("failed")
    bench.fail(1)
    assert bench.outbox.send_due() == 30
    bench.add("upload_finished")
    assert bench.outbox.send_due() == 30 and bench.sent == ["upload_finished"]
    bench.clock.sleep(30)
    assert bench.outbox.send_due() is None and bench.sent == ["upload_finished", "failed"]


def test_an_outbox_whose_channel_fails_gives_another_one_its_turn(bench: Bench) -> None:
    bench.add("failed", "stall_detected", "upload_finished")
    bench.fail(3)
    assert bench.outbox.send_due() == 0 and len(bench.line.failures) == 2
    bench.fail(0)
    assert bench.open().send_due() is None
    assert bench.sent == ["failed", "stall_detected", "upload_finished"]


def test_a_closing_outbox_tries_all_until_its_time_is_over(bench: Bench) -> None:
    bench.add(*(f"kind {number}" for number in range(9)))
    bench.fail(9)
    send = bench.line.send

    def send_slowly(*given: Any) -> Any:
        bench.clock.sleep(4.0)
        return send(*given)

    bench.line.send = send_slowly  # type: ignore[method-assign]
    bench.outbox.close(10.0)
    bench.outbox.send_due()
    assert len(bench.line.failures) == 6 and bench.states == ["pending"] * 9


def test_after_a_day_it_is_given_up(bench: Bench) -> None:
    bench.add("failed")
    bench.fail(20)
    bench.clock.sleep(GIVEN_UP_AFTER - 1000)
    while (wait := bench.outbox.send_due()) is not None:
        assert bench.states == ["pending"]
        bench.clock.sleep(wait)
    [kept] = bench.store.recent_notices()
    assert kept.state == "failed" and kept.error == "line: refused" and kept.attempts > 10
    assert GIVEN_UP_AFTER <= bench.clock.elapsed <= GIVEN_UP_AFTER + 600
    assert not bench.store.add_notice("", notice("failed"), now=0.0)


def test_an_outbox_killed_before_it_marked_tells_it_again_and_loses_nothing(bench: Bench) -> None:
    class Killed(BaseException):
        pass

    class DyingStore(Store):
        def mark_notice(self, number: int, state: str, delivery: Delivery, *, now: float) -> None:
            raise Killed

    bench.add("failed", "terminated")
    dying = DyingStore(bench.store.folder)
    with pytest.raises(Killed):
        Outbox(TrainingNotifier([bench.line]), dying, clock=bench.clock).send_due()
    assert bench.sent == ["failed"] and bench.states == ["pending", "pending"]
    assert bench.open().send_due() is None
    assert bench.sent == ["failed", "failed", "terminated"]


def test_what_is_pending_is_sent_in_order_and_marked_by_one_outbox_at_a_time(bench: Bench) -> None:
    bench.add("stall_detected", "terminated", "upload_finished")
    with bench.store.hold("notices of "):
        assert bench.outbox.send_due() == 2.0 and bench.sent == []
    assert bench.outbox.send_due() is None
    assert bench.sent == ["stall_detected", "terminated", "upload_finished"] and bench.states == ["sent"] * 3
    assert bench.outbox.send_due() is None and len(bench.sent) == 3


def test_users_have_outboxes_of_their_own_and_the_web_list_may_be_enough(bench: Bench) -> None:
    bench.store.add_notice("alice", notice("failed"), now=0.0)
    assert bench.outbox.send_due() is None and bench.sent == []
    with pytest.raises(SettingsError, match="user"):
        Outbox(TrainingNotifier([]), bench.store, "alice")
    bench.add("failed")
    bench.line.minimum_priority = "urgent"
    assert bench.outbox.send_due() is None and bench.sent == [] and sorted(bench.states) == ["pending", "sent"]


def test_posting_is_durable_and_closing_sends_what_is_left_and_ends_the_thread(tmp_path: Path) -> None:
    line, store, before = Line(), Store(str(tmp_path)), threading.active_count()
    outbox = Outbox(TrainingNotifier([line], store=store), store)
    Outbox(TrainingNotifier([line]), store).close()  # never used
    assert outbox.post(notice("failed")) and not outbox.post(notice("failed"))
    assert Store(str(tmp_path)).recent_notices()[0].notice == notice("failed")
    for number in range(20):
        outbox.post(Notice("milestone", str(number), generation=number))
    outbox.close()
    outbox.close()
    assert [each.title for _, each in line.sent] == ["Failed", *(str(number) for number in range(20))]
    assert threading.active_count() == before and store.pending_notices("") == []


def test_the_thread_lives_on_when_the_store_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line, store = Line(), Store(str(tmp_path))
    locks = tmp_path / "locks"
    locks.rmdir()
    with Outbox(TrainingNotifier([line]), store) as outbox:
        outbox.post(notice("failed"))
        deadline = time.monotonic() + 10
        while "undelivered notices stay" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        locks.mkdir()
        outbox.post(notice("terminated"))
    assert "undelivered notices stay" in caplog.text
    assert [each.kind for _, each in line.sent] == ["failed", "terminated"]


class Moved:
    """The state folder is not there while this is entered."""

    def __init__(self, store: Store) -> None:
        self.folder = Path(store.folder)
        self.elsewhere = self.folder.with_name(self.folder.name + " moved")

    def __enter__(self) -> None:
        self.folder.rename(self.elsewhere)

    def __exit__(self, *_: object) -> None:
        self.elsewhere.rename(self.folder)


def test_without_its_state_folder_a_notice_is_told_once_and_listed_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "state")
    with Moved(bench.store):
        assert [bench.outbox.post(notice("state_unwritable")) for _ in range(3)] == [True, False, False]
        bench.outbox.close()
        assert bench.sent == ["state_unwritable"]
    assert bench.outbox.send_held() and bench.states == ["sent"]
    with bench.open() as another:
        assert not another.post(notice("state_unwritable"))
    assert bench.sent == ["state_unwritable"]


def test_undelivered_notices_reach_the_store_when_it_is_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "state")
    bench.line.minimum_priority = "urgent"
    with Moved(bench.store):
        bench.outbox.post(notice("failed"))
        bench.outbox.close()
        assert bench.sent == []
    bench.line.minimum_priority = "low"
    assert bench.outbox.send_held() and bench.states == ["pending"]
    bench.outbox.send_due()
    assert bench.sent == ["failed"] and bench.states == ["sent"]
