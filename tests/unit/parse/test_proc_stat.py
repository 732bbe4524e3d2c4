"""Lines of /proc/PID/stat, with names that people and kernels give."""

from __future__ import annotations

import pytest

from training_monitor.parse.proc_stat import parse_stat
from training_monitor.policy.run_values import ProcessSample

REST = "S 7 42 42 0 -1 4194304 900 11 0 0 150 25 9 9 20 0 12 0 123456 1000000 2048 18446744073709551615 1 1 0 0\n"


def test_the_needed_fields_are_read_and_children_do_not_count() -> None:
    sample = parse_stat(f"42 (python3) {REST}", 4096)
    assert sample == ProcessSample(42, 7, "python3", "S", 123456, 175, 2048 * 4096, 12)


@pytest.mark.parametrize("name", ["a b", "a) R 1 (b", ")", "(", "", " ", "ü\x1b[2J", "x) S 1 1", "tmux: server"])
def test_a_name_may_hold_anything(name: str) -> None:
    sample = parse_stat(f"42 ({name}) {REST}", 4096)
    assert sample and (sample.name, sample.pid, sample.start_ticks) == (name, 42, 123456)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "42",
        "42 (python3)",
        "42 (python3) S 7 42",
        f"42 python3 {REST}",
        f"x (python3) {REST}",
        f"42 (python3) {REST}".replace("123456", "none"),
        f"42 (python3) {REST}".replace("123456", "9" * 5000),
        f"42 (python3) {' '.join(REST.split()[:21])}",
    ],
)
def test_what_is_no_whole_line_is_none(line: str) -> None:
    assert parse_stat(line, 4096) is None
