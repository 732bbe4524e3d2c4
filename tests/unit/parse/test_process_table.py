"""Lines of processes as the scripts print them, whatever their names hold."""

from __future__ import annotations

import pytest

from training_monitor.parse.process_table import Process, ancestors_of, parse_process, read_processes


def line(pid: int, parent: int = 1, state: str = "S", name: str = "python3", start: int = 900) -> str:
    return f"proc {pid} {state} {parent} {pid} {pid} 100 50 30 20 {start} {name}"


def test_times_are_added_and_the_name_is_all_of_the_rest() -> None:
    assert parse_process(line(7, name="a (b) 1 2 3")) == Process(7, "S", 1, 7, 7, 150, 50, 900, "a (b) 1 2 3")


def test_a_zombie_has_ended_and_one_that_waits_for_a_disk_has_not() -> None:
    running = [parse_process(line(7, state=state)) for state in "RSDTZX"]
    assert [process.is_running for process in running if process] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "proc",
        "proc 7 S 1 7 7 100 50 30 20",
        "proc x S 1 7 7 100 50 30 20 900 name",
        "proc 7 S 1 7 7 100 50 30 20 " + "9" * 5000 + " name",
        "proc ٧ S 1 7 7 100 50 30 20 900 name",
        "prose 7 S 1 7 7 100 50 30 20 900 name",
    ],
)
def test_any_other_line_is_no_process(text: str) -> None:
    assert parse_process(text) is None


def test_processes_above_are_the_nearest_first_also_in_a_circle() -> None:
    table = read_processes([line(5, 4), "noise", line(4, 3), line(3, 5)])
    assert ancestors_of(5, table) == [4, 3, 5]
    assert ancestors_of(9, table) == []


def test_a_parent_that_cannot_be_seen_is_left_out() -> None:
    assert ancestors_of(5, read_processes([line(5, 4), line(4, 3)])) == [4]
