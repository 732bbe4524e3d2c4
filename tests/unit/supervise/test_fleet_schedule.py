"""Who is asked next: once a round, never twice at a time, the silent ones rarely and never before the others."""

from __future__ import annotations

from training_monitor.supervise.fleet_schedule import (
    LEAST_AT_WORK,
    MOST_FOR_SILENT,
    MOST_THREADS,
    SLOW_SECONDS,
    Schedule,
    wait_after,
)


def taken(schedule: Schedule) -> list[str]:
    """All that one thread after another gets to ask now."""
    found = []
    for _ in range(schedule.missing_threads(0)):
        while key := schedule.take(0):
            found.append(key)
    return found


def test_each_is_asked_once_in_a_round_however_often_it_is_added() -> None:
    schedule = Schedule(10)
    schedule.begin_round(forced=False)
    schedule.add(["a", "b", "a"], 0)
    schedule.add(["b"], 0)
    assert taken(schedule) == ["a", "b"]
    for key in "ab":
        schedule.end(key, 1, answered=True)
    schedule.add(["a"], 1)
    assert schedule.is_idle
    schedule.begin_round(forced=False)
    schedule.add(["a"], 10)
    assert taken(schedule) == ["a"]


def test_one_that_is_being_asked_is_not_asked_again_even_when_forced() -> None:
    schedule = Schedule(10)
    schedule.add(["a"], 0)
    assert taken(schedule) == ["a"]
    schedule.begin_round(forced=True)
    schedule.add(["a"], 10)
    assert taken(schedule) == [] and not schedule.is_idle
    schedule.end("a", 11, answered=True)
    assert schedule.is_idle


def test_one_that_fails_waits_twice_as_long_each_time_up_to_five_minutes() -> None:
    assert [wait_after(count, 10) for count in range(7)] == [0, 20, 40, 80, 160, 300, 300]
    assert wait_after(10_000, 10) == 300 and wait_after(3, 600) == 600
    schedule = Schedule(10)
    schedule.add(["a"], 0)
    taken(schedule)
    schedule.end("a", 5, answered=False)
    for now, expected in ((24.9, []), (25, ["a"])):
        schedule.begin_round(forced=False)
        schedule.add(["a"], now)
        assert taken(schedule) == expected


def test_a_forced_round_asks_those_that_are_to_wait_and_an_answer_ends_the_waiting() -> None:
    schedule = Schedule(10)
    schedule.add(["a"], 0)
    taken(schedule)
    schedule.end("a", 0, answered=False)
    schedule.begin_round(forced=True)
    schedule.add(["a"], 1)
    assert taken(schedule) == ["a"]
    schedule.end("a", 2, answered=True)
    schedule.begin_round(forced=False)
    schedule.add(["a"], 2)
    assert taken(schedule) == ["a"]


def test_those_that_did_not_answer_come_last_and_never_hold_all_threads() -> None:
    schedule = Schedule(10)
    silent = [f"silent {number}" for number in range(50)]
    schedule.add(silent, 0)
    for key in taken_with_failures(schedule, silent):
        assert key in silent
    schedule.begin_round(forced=True)
    schedule.add([*silent, "good"], 100)
    asked = []
    for now in range(100, 150):  # a second after the other, while all that are asked hang
        asked += [schedule.take(now) for _ in range(schedule.missing_threads(now))]
    assert schedule.threads <= MOST_THREADS
    assert asked[0] == "good" and len([key for key in asked if key]) == MOST_FOR_SILENT + 1
    schedule.add(["another"], 100)
    assert schedule.missing_threads(150) and schedule.take(150) == "another"


def taken_with_failures(schedule: Schedule, keys: list[str]) -> list[str]:
    schedule.missing_threads(0)
    found = []
    for _ in keys:
        key = schedule.take(0)
        assert key
        found.append(key)
        schedule.end(key, 0, answered=False)
    schedule.threads = 0
    return found


def test_nothing_is_kept_of_those_that_are_forgotten() -> None:
    schedule = Schedule(10)
    schedule.add(["a", "b"], 0)
    schedule.missing_threads(0)
    assert schedule.take(0) == "a"
    schedule.end("a", 0, answered=False)
    schedule.forget(["a", "b"])
    assert schedule.take(0) is None and schedule.is_idle
    schedule.begin_round(forced=False)
    schedule.add(["a"], 0)
    assert not schedule.is_idle


def test_few_threads_work_and_those_that_wait_for_slow_members_get_others_beside_them() -> None:
    schedule = Schedule(10)
    schedule.add([f"member {number}" for number in range(50)], 0)
    first = schedule.missing_threads(0)
    assert first == LEAST_AT_WORK + 3
    assert all(schedule.take(0) for _ in range(first))
    assert schedule.missing_threads(SLOW_SECONDS - 0.1) == 0
    assert schedule.missing_threads(SLOW_SECONDS) == first
    assert Schedule(10, threads=MOST_THREADS).missing_threads(0) == 0
