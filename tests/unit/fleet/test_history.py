"""History in a store: nothing is lost or doubled, whenever a process dies, and it stays small."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from training_monitor.core.errors import ParseError, SettingsError, TrainingMonitorError
from training_monitor.core.records import LAST_TIME
from training_monitor.core.store import Execute, Store
from training_monitor.core.units import DAY, HOUR
from training_monitor.fleet.history import SHARD, History, _insert
from training_monitor.fleet.values import FleetSample

BEGIN = 1_749_945_600.0  # a midnight
KEY = "vast://7"
TABLES = ("history_members", "history_samples", "history_chunks", "history_chunks WHERE kind = 1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture
def history(store: Store) -> History:
    return History(store)


def sample(timestamp: float, **values: float | None) -> FleetSample:
    return FleetSample(timestamp, values, "running")


def seen_at(now: float) -> FleetSample:
    """Its step is how many seconds it is after BEGIN."""
    return sample(now, step=int(now - BEGIN), loss=1.5, total_cost=(now - BEGIN) / HOUR)


def watch(
    history: History, begin: float, end: float, interval: float = 60.0, keys: tuple[str, ...] = (KEY,)
) -> list[float]:
    """Add a sample of each key every `interval`. Returns the times."""
    times = [begin + interval * number for number in range(int((end - begin) / interval))]
    for now in times:
        history.add({key: seen_at(now) for key in keys})
    return times


def fill(store: Store, begin: float, end: float, interval: float = 60.0, keys: tuple[str, ...] = (KEY,)) -> list[float]:
    """As `watch`, in one transaction and without tidying."""
    times = [begin + interval * number for number in range(int((end - begin) / interval))]
    with store.transaction() as execute:
        for now in times:
            _insert(execute, {key: seen_at(now) for key in keys})
    return times


def tidy_all(history: History, store: Store, now: float) -> None:
    """Until nothing changes any more."""
    before: object = None
    while before != (before := [count(store, table) for table in TABLES]):
        history.tidy(now)
        history.forget(now)


def times(history: History, key: str = KEY, since: float = 0.0, until: float = math.inf) -> list[float]:
    return [each.timestamp for each in history.read(key, since, until)]


def count(store: Store, table: str) -> int:
    with store.transaction() as execute:
        return int(execute(f"SELECT count(*) FROM {table}")[0][0])


# ---------------------------------------------------------------- adding and reading


def test_both_ends_of_a_time_count_and_nothing_outside(history: History) -> None:
    seen = watch(history, BEGIN, BEGIN + 3 * HOUR)
    assert times(history, since=seen[5], until=seen[100]) == seen[5:101]
    assert times(history, since=seen[-1]) == seen[-1:] and times(history, until=BEGIN - 1) == []
    assert times(history, since=math.inf) == [] and times(history, since=-math.inf) == seen


def test_what_was_seen_comes_back_oldest_first_and_of_somebody_unknown_nothing(history: History) -> None:
    assert history.read("nobody", 0.0) == [] and history.members() == []
    history.add({})
    assert history.members() == []
    history.add({KEY: sample(BEGIN + 10, loss=1.234567891, step=7), "local": sample(BEGIN + 10.0004, loss=math.nan)})
    history.add({KEY: sample(BEGIN, step=3)})
    first, second = history.read(KEY, 0.0)
    assert (first.timestamp, first.values["step"], first.values["loss"]) == (BEGIN, 3, None)
    assert (second.timestamp, second.values["loss"], second.status) == (BEGIN + 10, 1.23457, "running")
    [other] = history.read("local", 0.0)
    assert other.timestamp == BEGIN + 10 and math.isnan(other.values["loss"] or 0.0)


def test_the_same_time_counts_once_also_when_it_was_packed(history: History, store: Store) -> None:
    seen = fill(store, BEGIN, BEGIN + HOUR)
    fill(store, BEGIN, BEGIN + HOUR)
    assert [each.samples for each in history.members()] == [60]
    tidy_all(history, store, BEGIN + 2 * HOUR)
    fill(store, BEGIN + 600, BEGIN + HOUR + 120)
    tidy_all(history, store, BEGIN + 2 * HOUR)
    assert times(history) == [*seen, BEGIN + HOUR, BEGIN + HOUR + 60]
    assert [each.samples for each in history.members()] == [62]
    tidy_all(history, store, BEGIN + 2 * DAY)
    fill(store, BEGIN, BEGIN + HOUR)
    tidy_all(history, store, BEGIN + 2 * DAY)
    assert len(times(history)) == 13 and [each.samples for each in history.members()] == [13]


def test_a_clock_that_is_set_back_loses_nothing(history: History, store: Store) -> None:
    seen = watch(history, BEGIN + 10 * HOUR, BEGIN + 12 * HOUR)
    seen += watch(history, BEGIN + 9 * HOUR, BEGIN + 13 * HOUR, 70.0)
    assert times(history) == sorted(set(seen))
    tidy_all(history, store, BEGIN + 14 * HOUR)
    assert times(history) == sorted(set(seen))
    [member] = history.members()
    assert (member.first, member.last, member.samples) == (BEGIN + 9 * HOUR, max(seen), len(set(seen)))


def test_values_look_the_same_as_rows_and_packed(history: History, store: Store) -> None:
    values = {"loss": 0.1234567, "step": 123456789, "grad_norm": 1e-9, "gpu_power": None, "eta_seconds": math.inf}
    history.add({KEY: sample(BEGIN + 0.123456, **values)})
    before = history.read(KEY, 0.0)
    tidy_all(history, store, BEGIN + 2 * HOUR)
    assert count(store, "history_samples") == 0 and history.read(KEY, 0.0) == before


@pytest.mark.parametrize("key", ["", "-x", "a b\n'\";--", "\x00\x1b[31m", "größe/日本", "\ud800", "x" * 10_000])
def test_a_key_may_be_anything(history: History, key: str) -> None:
    history.add({key: sample(BEGIN, step=1), "other": sample(BEGIN, step=2)})
    assert [each.values["step"] for each in history.read(key, 0.0)] == [1]
    assert len(history.members()) == 2


@pytest.mark.parametrize("timestamp", [math.nan, math.inf, -1.0, 1e12, LAST_TIME, None, "5"])
def test_a_time_that_is_none_is_refused_and_nothing_is_kept(history: History, timestamp: float) -> None:
    with pytest.raises(SettingsError, match="timestamp of 'bad'"):
        history.add({KEY: sample(BEGIN), "bad": sample(timestamp)})
    assert history.members() == []


@pytest.mark.parametrize("days", [0, -1, math.nan, math.inf, "7", None, True])
def test_days_to_keep_are_a_number_above_zero(store: Store, days: float) -> None:
    with pytest.raises(SettingsError, match="keep_days"):
        History(store, keep_days=days)


def test_only_what_is_asked_for_is_read_of_what_is_packed(history: History, store: Store) -> None:
    fill(store, BEGIN, BEGIN + HOUR)
    tidy_all(history, store, BEGIN + 2 * HOUR)
    found = history.read(KEY, 0.0, fields={"loss"})
    assert len(found) == 60 and {(each.values["loss"], each.values["step"]) for each in found} == {(1.5, None)}


def test_members_tell_how_much_there_is_of_each(history: History) -> None:
    keys = tuple(f"vast://{number:03}" for number in range(2 * SHARD + 1))
    watch(history, BEGIN, BEGIN + 3 * HOUR, 600.0, keys)
    history.add({"later": sample(BEGIN + 3 * HOUR)})
    found = history.members()
    assert [each.key for each in found] == sorted([*keys, "later"])
    counts = {(each.first, each.last, each.samples) for each in found if each.key != "later"}
    assert counts == {(BEGIN, BEGIN + 3 * HOUR - 600, 18)}


def test_no_query_reads_all_samples_or_chunks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tidying and forgetting may go through the members, a row of each; `members`, not asked here, counts all."""
    history, plans = History(store), dict[str, list[str]]()
    transaction = Store.transaction

    @contextmanager
    def noted(self: Store, **options: bool) -> Iterator[Execute]:
        with transaction(self, **options) as execute:

            def note(statement: str, values: Sequence[object] = (), *, each: Any = None) -> list[tuple[Any, ...]]:
                given = list(each or ())
                plan = execute(f"EXPLAIN QUERY PLAN {statement}", given[0] if given else values)
                plans[statement] = [row[-1] for row in plan]
                return execute(statement, values) if each is None else execute(statement, each=given)

            yield note

    monkeypatch.setattr(Store, "transaction", noted)
    watch(history, BEGIN, BEGIN + 3 * DAY, 3600.0)
    assert history.read(KEY, 0.0)
    history.forget(BEGIN + 60 * DAY)
    lines = [line for plan in plans.values() for line in plan]
    assert len(plans) >= 12 and any("INDEX history_chunks_of_members" in line for line in lines)
    scanned = {line for line in lines if line.startswith("SCAN") and "CONSTANT ROW" not in line}
    assert not [line for line in scanned if "history_samples" in line or "history_chunks" in line], scanned


# ---------------------------------------------------------------- less of what is old


def test_the_last_day_is_whole_and_before_it_is_one_of_five_minutes(history: History, store: Store) -> None:
    seen = fill(store, BEGIN, BEGIN + 3 * DAY)
    now = seen[-1]
    tidy_all(history, store, now)
    found = times(history)
    assert [each for each in found if each > now - DAY] == [each for each in seen if each > now - DAY]
    old = [each for each in found if each < now - DAY - 6 * HOUR]
    assert old == [each for each in seen if (each + 60) % 300 == 0 and each < now - DAY - 6 * HOUR]
    thinned = history.read(KEY, 0.0)[100]
    assert (thinned.values["step"], thinned.values["loss"]) == (int(thinned.timestamp - BEGIN), 1.5)
    assert count(store, "history_samples") <= 120


def test_rows_are_packed_while_the_watching_goes_on(history: History, store: Store) -> None:
    watch(history, BEGIN, BEGIN + 5 * HOUR, 100.0)
    assert count(store, "history_samples") <= 38 and count(store, "history_chunks") == 4


def test_a_lot_of_rows_is_packed_in_parts_that_end_with_five_minutes(history: History, store: Store) -> None:
    keys = tuple(f"k{number}" for number in range(4))
    fill(store, BEGIN, BEGIN + 1800, 1.0, keys)
    history.tidy(BEGIN + 2 * HOUR)
    assert count(store, "history_samples") == 4 * 600 and count(store, "history_chunks") == 4 * 2
    history.tidy(BEGIN + 2 * HOUR)
    assert count(store, "history_samples") == 0 and len(times(history, "k1")) == 1800


def test_samples_older_than_the_limit_are_forgotten(store: Store) -> None:
    history = History(store, keep_days=2)
    fill(store, BEGIN, BEGIN + HOUR, keys=("gone",))
    seen = fill(store, BEGIN, BEGIN + 5 * DAY, 300.0)
    tidy_all(history, store, seen[-1])
    assert [each.key for each in history.members()] == [KEY]
    assert BEGIN + 2 * DAY <= times(history)[0] <= seen[-1] - 2 * DAY
    assert count(store, f"history_chunks WHERE first < {BEGIN + 2 * DAY}") == 0
    history = History(store, keep_days=1)
    fill(store, BEGIN, BEGIN + 3 * DAY, 3600.0, tuple(f"k{number}" for number in range(10)))
    for minute in range(240):
        history.add({KEY: sample(BEGIN + 10 * DAY + 60 * minute)})
    assert [each.key for each in history.members()] == [KEY]


def test_less_than_a_day_can_be_kept(store: Store) -> None:
    history = History(store, keep_days=0.25)
    seen = fill(store, BEGIN, BEGIN + DAY)
    tidy_all(history, store, seen[-1])
    assert seen[-1] - 8 * HOUR < times(history)[0] <= seen[-1] - 6 * HOUR and times(history)[-1] == seen[-1]


def test_a_clock_that_was_wrong_for_once_takes_little_away(history: History, store: Store) -> None:
    seen = fill(store, BEGIN, BEGIN + 2 * DAY, 300.0)
    history.add({KEY: sample(0.0, step=1)})
    history.add({KEY: sample(BEGIN, step=1)})
    assert times(history, since=BEGIN) == seen


def test_a_clock_that_is_ahead_for_some_minutes_takes_little_away(history: History, store: Store) -> None:
    keys = ("a", "b")
    seen = fill(store, BEGIN, BEGIN + 10 * DAY, 1200.0, keys)
    tidy_all(history, store, seen[-1])
    before = {key: times(history, key) for key in keys}
    for minute in range(60):
        history.add({KEY: sample(seen[-1] + 400 * DAY + 60 * minute)})
    lost = sum(len(set(before[key]) - set(times(history, key))) for key in keys)
    assert lost <= 2 * 2 * 72  # two days of each
    history.add({KEY: sample(seen[-1] + 60)})
    assert sum(len(before[key]) - len(times(history, key)) for key in keys) == lost


def test_freed_room_is_used_again(store: Store) -> None:
    history = History(store, keep_days=1)
    keys = tuple(f"k{number}" for number in range(10))
    for day in range(4):
        fill(store, BEGIN + day * DAY, BEGIN + (day + 1) * DAY, 600.0, keys)
        tidy_all(history, store, BEGIN + (day + 1) * DAY)
    before = os.path.getsize(store.path)
    for day in range(4, 8):
        fill(store, BEGIN + day * DAY, BEGIN + (day + 1) * DAY, 600.0, keys)
        tidy_all(history, store, BEGIN + (day + 1) * DAY)
    assert os.path.getsize(store.path) <= 1.1 * before


# ---------------------------------------------------------------- what goes wrong


def test_an_unreadable_chunk_is_an_error_and_hides_no_other(history: History, store: Store) -> None:
    fill(store, BEGIN, BEGIN + 12 * HOUR, 300.0, (KEY, "other"))
    tidy_all(history, store, BEGIN + 13 * HOUR)
    with store.transaction() as execute:
        execute("UPDATE history_chunks SET packed = 'x' WHERE number = (SELECT min(number) FROM history_chunks)")
    tidy_all(history, store, BEGIN + 5 * DAY)
    assert count(store, "history_chunks WHERE kind = 0") == 0 and count(store, "history_chunks WHERE kind = 2") == 1
    broken = [key for key in (KEY, "other") if not _reads(history, key)]
    assert len(broken) == 1
    tidy_all(History(store, keep_days=1), store, BEGIN + 5 * DAY)
    assert count(store, "history_chunks") == 0


def _reads(history: History, key: str) -> bool:
    try:
        return len(history.read(key, 0.0)) == 144
    except ParseError:
        return False


def test_a_file_that_cannot_be_used_is_an_error_of_ours(history: History, store: Store) -> None:
    Path(store.path).unlink()
    Path(store.path).mkdir()
    for call in (lambda: history.add({KEY: sample(BEGIN)}), lambda: history.read(KEY, 0.0), history.members):
        with pytest.raises(TrainingMonitorError, match="state file"):
            call()


FULL_DISK = """
import os, resource, sys
sys.path.insert(0, sys.argv[2])
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.fleet.history import History
from training_monitor.fleet.values import FleetSample
from training_monitor.core.store import Store
store = Store(sys.argv[1])
history, kept, failed = History(store), [], 0
for number in range(600):
    if number == 100:  # no file may grow beyond what the database has now
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(store.path), resource.RLIM_INFINITY))
    if number == 400:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    now = 1749945600.0 + 60.0 * number
    try:
        history.add({f"k{key}": FleetSample(now, {"step": number}, None) for key in range(30)})
        kept.append(number)
    except TrainingMonitorError as error:
        failed += 1
        assert "cannot be used" in str(error), error
seen = [[each.values["step"] for each in history.read(f"k{key}", 0.0)] for key in range(30)]
assert all(steps == seen[0] for steps in seen), "an add is of all or of none"
assert seen[0] == sorted(set(seen[0])) and set(kept) <= set(seen[0]), seen[0]
print(failed, kept[-1])
"""


def test_on_a_disk_that_was_full_all_is_there_that_was_not_refused(store: Store) -> None:
    root = str(Path(__file__).parents[3])
    argv = [sys.executable, "-c", FULL_DISK, store.folder, root]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    failed, last = map(int, done.stdout.split())
    assert failed > 0 and last == 599


def test_a_folder_that_cannot_be_made_fails_the_add_and_not_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "file" / "state"))
    history = History()
    for call in (lambda: history.add({KEY: sample(BEGIN)}), lambda: history.read(KEY, 0.0)):
        with pytest.raises(TrainingMonitorError, match="cannot be created"):
            call()
    monkeypatch.setenv("TRAINING_MONITOR_STATE_DIR", str(tmp_path / "state"))
    history.add({KEY: sample(BEGIN)})
    assert times(history) == [BEGIN]


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from training_monitor.fleet.history import History
from training_monitor.fleet.values import FleetSample
from training_monitor.core.store import Store
history = History(Store(sys.argv[1]))
for number in range(100000):
    now = 1749945600.0 + 60.0 * number
    history.add({f"k{key}": FleetSample(now, {"step": number}, None) for key in range(9)})
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [30, 150, 400])
def test_a_process_killed_at_any_point_loses_and_doubles_nothing(store: Store, lines: int) -> None:
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen([sys.executable, "-c", WRITER, store.folder, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    for _ in range(lines):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    written = int([line for line in rest if line.isdigit()][-1]) if rest else lines - 1
    history = History(store)
    for key in ("k0", "k8"):
        steps = [each.values["step"] for each in history.read(key, 0.0)]
        assert steps in (list(range(written + 1)), list(range(written + 2)))
    assert {each.samples for each in history.members()} == {len(steps)}


def test_a_tidying_that_fails_half_way_has_not_happened(history: History, store: Store) -> None:
    seen = fill(store, BEGIN, BEGIN + HOUR, 60.0, (KEY, "other"))
    with sqlite3.connect(store.path) as database:
        database.execute("CREATE TRIGGER no BEFORE DELETE ON history_samples BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(TrainingMonitorError, match="cannot be used"):
        history.tidy(BEGIN + 2 * HOUR)
    assert count(store, "history_chunks") == 0 and times(history) == seen
    with sqlite3.connect(store.path) as database:
        database.execute("DROP TRIGGER no")
    tidy_all(history, store, BEGIN + 2 * HOUR)
    assert count(store, "history_chunks") == 2 and times(history) == seen


def test_two_that_watch_the_same_write_beside_each_other(store: Store) -> None:
    failures: list[Exception] = []

    def act(call: Callable[[], object]) -> None:
        try:
            call()
        except TrainingMonitorError as error:
            failures.append(error)

    def write(number: int) -> None:
        act(lambda: watch(History(store), BEGIN + number, BEGIN + number + 3 * HOUR, 60.0, (KEY, f"own{number}")))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(times(History(store))) == 360 and len(times(History(store), "own1")) == 180


def test_an_older_file_gets_the_tables(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with sqlite3.connect(store.path) as database:
        for table in ("history_members", "history_samples", "history_chunks", "looks"):
            database.execute(f"DROP TABLE {table}")
        database.execute("PRAGMA user_version = 4")
    History(Store(str(tmp_path))).add({KEY: sample(time.time())})
    assert len(History(Store(str(tmp_path))).members()) == 1
