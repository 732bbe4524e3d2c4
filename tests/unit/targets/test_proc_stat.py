"""Lines of /proc/PID/stat, and of processes as the scripts print them, with names that people and kernels give."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.targets.proc_stat import (
    Identity,
    Process,
    ProcessSample,
    ancestors_of,
    check_signal,
    describe_outcome,
    has_obeyed,
    parse_process,
    parse_stat,
    read_processes,
    signal_name,
)

REST = "S 7 42 42 0 -1 4194304 900 11 0 0 150 25 9 9 20 0 12 0 123456 1000000 2048 18446744073709551615 1 1 0 0\n"


def test_the_needed_fields_are_read_and_a_name_may_hold_anything() -> None:
    sample = parse_stat(f"42 (python3) {REST}", 4096)
    assert sample == ProcessSample(42, 7, "python3", "S", 123456, 175, 2048 * 4096, 12)
    for name in ["a b", "a) R 1 (b", ")", "(", "", " ", "ü\x1b[2J", "x) S 1 1", "tmux: server"]:
        sample = parse_stat(f"42 ({name}) {REST}", 4096)
        assert sample and (sample.name, sample.pid, sample.start_ticks) == (name, 42, 123456)


def test_a_process_whose_main_thread_alone_has_ended_goes_on() -> None:
    for threads, state in ((1, "Z"), (2, "S"), (12, "S")):
        sample = parse_stat(f"42 (python3) {REST.replace('S', 'Z', 1).replace('20 0 12', f'20 0 {threads}')}", 4096)
        assert sample and sample.state == state


def test_any_other_line_is_no_process() -> None:
    for line in [
        "",
        "42",
        "42 (python3)",
        "42 (python3) S 7 42",
        f"42 python3 {REST}",
        f"x (python3) {REST}",
        f"42 (python3) {REST}".replace("123456", "none"),
        f"42 (python3) {REST}".replace("123456", "9" * 5000),
        f"42 (python3) {' '.join(REST.split()[:21])}",
    ]:
        assert parse_stat(line, 4096) is None
    for text in [
        "",
        "proc",
        "proc 7 S 1 7 7 100 50 30 20",
        "proc x S 1 7 7 100 50 30 20 900 name",
        "proc 7 S 1 7 7 100 50 30 20 " + "9" * 5000 + " name",
        "proc ٧ S 1 7 7 100 50 30 20 900 name",
        "prose 7 S 1 7 7 100 50 30 20 900 name",
    ]:
        assert parse_process(text) is None


def table_line(pid: int, parent: int = 1, state: str = "S", name: str = "python3", start: int = 900) -> str:
    return f"proc {pid} {state} {parent} {pid} {pid} 100 50 30 20 {start} {name}"


def test_times_are_added_and_the_name_is_all_of_the_rest() -> None:
    assert parse_process(table_line(7, name="a (b) 1 2 3")) == Process(7, "S", 1, 7, 7, 150, 50, 900, "a (b) 1 2 3")
    running = [parse_process(table_line(7, state=state)) for state in "RSDTZX"]
    assert [process.is_running for process in running if process] == [True, True, True, True, False, False]


def test_processes_above_are_the_nearest_first_also_in_a_circle() -> None:
    table = read_processes([table_line(5, 4), "noise", table_line(4, 3), table_line(3, 5)])
    assert ancestors_of(5, table) == [4, 3, 5]
    assert ancestors_of(9, table) == []
    assert ancestors_of(5, read_processes([table_line(5, 4), table_line(4, 3)])) == [4]


def test_a_signal_has_its_name_and_a_number_that_is_none_is_refused() -> None:
    names = [signal_name(number) for number in (9, 15, 18, 19, 40)]
    assert names == ["SIGKILL", "SIGTERM", "SIGCONT", "SIGSTOP", "signal 40"]
    check_signal(1)
    check_signal(64)
    for number in (0, -9, 65):
        with pytest.raises(SettingsError):
            check_signal(number)


def test_a_state_shows_what_came_of_a_signal_if_it_shows_anything() -> None:
    for outcome in ("", "nonsense", "left", "\n"):
        assert describe_outcome(Identity(7), 15, outcome, "python") == "process 7: the effect of SIGTERM is unknown"
    told = describe_outcome(Identity(7), 15, "left", state="T")
    assert told.endswith("it is stopped, and will receive the signal after SIGCONT")
    assert describe_outcome(Identity(7), 18, "left", state="T").endswith("it still exists (stopped)")
    assert has_obeyed("T", 19) and has_obeyed("S", 18)
    assert not has_obeyed("T", 18) and not has_obeyed("S", 19) and not has_obeyed("T", 15)
