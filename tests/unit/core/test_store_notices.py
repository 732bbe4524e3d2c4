"""Notices in the store: told once, in order, never forgotten while somebody waits for them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from training_monitor.core.store import MOST_NOTICES, PLAIN_MESSAGE, Store
from training_monitor.core.values import Delivery, Notice

FAILED = Notice("failed", "❌ Failed", (("Job", "run"), ("Log", "größer")), "text", "run", 2, "high")
SENT = Delivery("slack", True, 1)
LOST = Delivery("none", False, 3, "slack: refused")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_a_notice_comes_back_as_it_was(store: Store) -> None:
    assert store.add_notice("alice", FAILED, now=5.0)
    [kept] = Store(store.folder).pending_notices("alice")
    assert kept.notice == FAILED and (kept.user, kept.state, kept.created_at) == ("alice", "pending", 5.0)
    assert (kept.channel, kept.attempts, kept.error) == (None, 0, None)


def test_a_notice_is_kept_once_for_each_user_and_a_plain_message_each_time(store: Store) -> None:
    assert store.add_notice("alice", FAILED, now=1.0) and store.add_notice("bob", FAILED, now=1.0)
    again = Notice("failed", "another title", job_id="run", generation=2)
    assert not store.add_notice("alice", again, now=2.0)
    for other in (Notice("failed", "", job_id="run", generation=3), Notice("failed", "", generation=2)):
        assert store.add_notice("alice", other, now=2.0) and not store.add_notice("alice", other, now=3.0)
    assert len(store.pending_notices("alice")) == 3 and len(store.pending_notices("bob")) == 1
    message = Notice(PLAIN_MESSAGE, "", text="hello", job_id="run")
    assert store.add_notice("", message, now=1.0) and store.add_notice("", message, now=1.0)
    assert not store.has_notice("", message)


def test_marks_add_up_and_what_is_sent_is_not_pending(store: Store) -> None:
    store.add_notice("", FAILED, now=1.0)
    [kept] = store.pending_notices("")
    store.mark_notice(kept.number, "pending", LOST, now=2.0)
    [kept] = store.pending_notices("")
    assert (kept.attempts, kept.error, kept.changed_at) == (3, "slack: refused", 2.0)
    store.mark_notice(kept.number, "sent", SENT, now=3.0)
    [kept] = store.recent_notices("run")
    assert (kept.state, kept.channel, kept.attempts, kept.error) == ("sent", "slack", 4, None)
    assert store.pending_notices("") == [] and store.has_notice("", FAILED)


def test_a_delivery_replaces_one_that_failed_and_not_what_an_outbox_is_to_send(store: Store) -> None:
    store.save_delivery("", FAILED, LOST, now=1.0)
    assert not store.has_notice("", FAILED)
    store.save_delivery("", FAILED, SENT, now=2.0)
    [kept] = store.recent_notices()
    assert (kept.state, kept.channel) == ("sent", "slack") and store.has_notice("", FAILED)
    store.add_notice("bob", FAILED, now=1.0)
    store.save_delivery("bob", FAILED, LOST, now=2.0)
    assert [(kept.user, kept.state) for kept in store.recent_notices()] == [("bob", "pending"), ("", "sent")]


def test_the_newest_come_first_and_jobs_do_not_mix_whatever_their_names(store: Store) -> None:
    for number in range(4):
        store.add_notice("", Notice("milestone", str(number), job_id=f"run{number % 2}", generation=number), now=1.0)
    assert [kept.notice.title for kept in store.recent_notices()] == ["3", "2", "1", "0"]
    assert [kept.notice.title for kept in store.recent_notices("run1")] == ["3", "1"]
    assert [kept.notice.title for kept in store.recent_notices(limit=1)] == ["3"]
    assert store.recent_notices("run2") == []
    assert store.add_notice("", Notice("failed", "Failed", job_id="run\udcff"), now=1.0)
    assert store.recent_notices("run\udcff")[0].notice.job_id == "run\udcff"


def test_the_oldest_are_forgotten_unless_they_are_still_to_be_sent(store: Store) -> None:
    store.add_notice("", FAILED, now=1.0)
    many = [Notice("milestone", str(number), generation=number) for number in range(MOST_NOTICES + 5)]
    with sqlite3.connect(store.path) as database:
        database.executemany(
            "INSERT INTO notices (user, notice, state, created_at, changed_at) VALUES ('', '', 'sent', 0, 0)",
            [()] * (MOST_NOTICES + 5),
        )
    database.close()
    store.save_delivery("", many[-1], SENT, now=2.0)
    with sqlite3.connect(store.path) as database:
        assert database.execute("SELECT count(*) FROM notices").fetchone() == (MOST_NOTICES + 1,)
    database.close()
    assert [kept.notice for kept in store.pending_notices("")] == [FAILED]


def test_a_file_of_the_first_layout_gains_the_table(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.save_run("local run", {"phase": "watching"}, finished=False)
    with sqlite3.connect(store.path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if name != "runs":
                database.execute(f"DROP TABLE {name}")
        database.execute("PRAGMA user_version = 1")
    database.close()
    assert Store(str(tmp_path)).add_notice("", FAILED, now=1.0)
    assert Store(str(tmp_path)).load_run("local run", dict) == {"phase": "watching"}


def test_a_damaged_notice_does_not_keep_the_others(store: Store) -> None:
    store.add_notice("", FAILED, now=1.0)
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE notices SET notice = '{}'")
    database.close()
    other = Notice("milestone", "half")
    store.add_notice("", other, now=2.0)
    assert [kept.notice for kept in store.pending_notices("")] == [other]
    assert [kept.notice for kept in store.recent_notices()] == [other]
    with store.transaction() as execute:
        assert execute("SELECT notice, state FROM notices ORDER BY number")[0] == ("{}", "damaged")
