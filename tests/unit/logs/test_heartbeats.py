"""Whether the last lines of a log only repeat, or report something new."""

from __future__ import annotations

import pytest

from training_monitor.logs.pace import find_heartbeat

STEPS = "step 88/900 loss 1.2\nstep 89/900 loss 1.1\n"


@pytest.mark.parametrize(
    "line",
    [
        "worker is fine",
        "[watchdog] rank 0: collective 17 pending for {tens} seconds",
        "retry {one}: connection to store refused",
        "uptime {tens} s, 3 threads",
        "2026-03-01 10:00:{tens} memory 41 MiB",
        "2026-03-01 10:00:{tens} idle for {tens} of 900",
    ],
)
def test_lines_of_one_shape_in_which_only_the_time_rises_are_a_heartbeat(line: str) -> None:
    assert find_heartbeat(STEPS + "".join(line.format(one=n, tens=10 * n) + "\n" for n in range(1, 6))) is True


@pytest.mark.parametrize("line", ["Epoch 1, batch {n}", "2026-03-01 10:00:{n} seen {many} images"])
def test_a_number_that_rises_otherwise_than_the_clock_is_news(line: str) -> None:
    assert find_heartbeat("".join(line.format(n=10 + n, many=640 * n) + "\n" for n in range(1, 6))) is False


@pytest.mark.parametrize("text", ["", "one line\n", STEPS + "saved\n"])
def test_too_few_lines_show_neither(text: str) -> None:
    assert find_heartbeat(text) is None


def test_lines_of_ever_new_shapes_are_news() -> None:
    names = ("ada", "bob", "cy", "dan", "eve", "flo", "gil", "hal", "ivy", "joe")
    lines = (f"shard {name}-{at} packed, {37 * at} texts\n" for at, name in enumerate(names))
    assert find_heartbeat("".join(lines)) is False
    report = "--- status ---\nhost a is up\nhost b is up\nhost c is up\n"
    assert find_heartbeat(report * 5) is None  # the same lines again and again


def test_a_time_within_a_line_is_a_clock_also_since_1970() -> None:
    lines = "".join(f'{{"step": 51, "loss": 1.5, "time": {1_750_000_000.25 + 3 * at}}}\n' for at in range(4))
    assert find_heartbeat(lines) is True
