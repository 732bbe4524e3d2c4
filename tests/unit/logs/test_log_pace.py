"""What the end of a log tells about its pace: by its own times, the elapsed time of a bar, the speeds it prints."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pytest

from training_monitor.logs.pace import LONGEST_END, LogPace, find_heartbeat, read_log_pace
from training_monitor.logs.training_log import parse_progress


def at(seconds: float) -> str:
    """`10:MM:SS` so many seconds after ten o'clock."""
    return f"10:{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def stamped(seconds: range = range(0, 600, 4), per_step: int = 2) -> str:
    return "".join(f"2026-11-22 {at(each)},500 INFO train: step {each // per_step}/9999 loss 0.5\n" for each in seconds)


def numbers(pace: LogPace) -> tuple[float | None, ...]:
    return pace.behind_lines, pace.step_lag, pace.step_interval, pace.step_time


def test_a_log_is_read_for_its_progress_and_without_a_step_tells_nothing() -> None:
    assert read_log_pace(stamped()).progress == parse_progress(stamped())
    long = stamped() * 20
    assert read_log_pace(long).progress == parse_progress(long[-LONGEST_END:])
    assert numbers(read_log_pace("")) == numbers(read_log_pace("hello\n2026-11-22 10:00:00 world\n")) == (None,) * 4


def test_the_step_time_is_that_of_the_fast_steps_when_some_take_longer() -> None:
    seconds, log = 0, ""
    for step in range(1, 41):
        seconds += 5 if step % 2 else 8
        log += f"2026-11-22 {at(seconds)} step: {step} loss: 0.5\n"
    assert read_log_pace(log).step_time == pytest.approx(5.0)
    slow = [f"2026-11-22 11:{each:02d}:00 step {300 + each} loss 0.5\n" for each in range(30)]
    pace = read_log_pace(stamped() + "".join(slow))
    assert (pace.step_interval, pace.step_time) == (4.0, 2.0)


def test_the_times_that_loggers_write_are_read() -> None:
    for stamp in [
        lambda s: f"2026-11-22 {at(s)}",
        lambda s: f"2026-11-22T{at(s)}.250Z",
        lambda s: f"[2026-11-22 {at(s)},123] [INFO] [trainer.py:5]",
        lambda s: f"2026/11/22 {at(s)} - mmengine - INFO -",
        lambda s: f"11/22/2026 {at(s)} - INFO - __main__ -",
        lambda s: f"22.11.2026 {at(s)} INFO",
        lambda s: f"11/22 {at(s)} INFO",
        lambda s: f"[{at(s)}]",
        lambda s: f"\x1b[32m{at(s)}\x1b[0m |",
        lambda s: f"Nov 22 {at(s)} node1 python[12]:",
        lambda s: f"Sun Nov 22 {at(s)} 2026",
        lambda s: f"I1122 {at(s)}.123456 140 train.py:5]",
        lambda s: f"I20261122 {at(s)}.123456 140 train.py:5]",
        lambda s: f"{1_763_800_000 + s}.25",
        lambda s: f"{1_763_800_000_000 + 1000 * s}",
        lambda s: f"(TrainWorker pid=123, ip=10.0.0.1) 2026-11-22 {at(s)},123",
        lambda s: f"\x1b[36m(TrainWorker pid=123)\x1b[0m [{at(s)}]",
        lambda s: f"[rank0]: 2026-11-22 {at(s)}",
    ]:
        log = "".join(f"{stamp(5 * each)} step: {each} loss: 0.5\n" for each in range(1, 60))
        assert numbers(read_log_pace(log)) == pytest.approx((0, 0.0, 5.0, 5.0), abs=1e-6)
        behind = "".join(f"{stamp(295 + each)} waiting\n" for each in (60, 120))
        assert numbers(read_log_pace(log + behind)) == pytest.approx((2, 120.0, 5.0, 5.0), abs=1e-6)
    for stamp in ["2026-99-22 10:00:00", "2026-02-30 10:00:00", "00/00 10:00:00", "Foo 22 10:00:00"]:
        pace = read_log_pace("".join(f"{stamp} step: {each} loss: 0.5\n" for each in range(9)))
        assert (pace.step_interval, pace.step_time) == (None, None)


def test_a_clock_may_pass_midnight_but_not_go_back_or_change_its_form() -> None:
    times = ["23:59:40", "23:59:50", "00:00:00", "00:00:10"]
    pace = read_log_pace("".join(f"[{time}] step {number} loss 0.5\n" for number, time in enumerate(times)))
    assert (pace.step_interval, pace.step_time) == (10.0, 10.0)
    log = stamped(range(300, 600, 4)) + "2026-11-22 10:00:00,500 INFO step 500/9999 loss 0.5\n"
    assert numbers(read_log_pace(log)) == (0, 0.0, 4.0, 2.0)
    pace = read_log_pace("2026-11-22 10:00:00 step 1 loss 0.5\n[18:00:00] step 2 loss 0.5\n")
    assert pace.step_interval is None


@pytest.mark.parametrize("first, later", [("11:59:50 AM", "12:00:10 PM"), ("12:59:50 pm", "01:00:10 pm")])
def test_a_clock_of_twelve_hours_passes_noon_and_one(first: str, later: str) -> None:
    steps = f"02/03/2031 {first} step 8 loss 0.5\n02/03/2031 {later} saving\n"
    assert read_log_pace(steps).step_lag == 20.0
    midnight = "02/03/2031 11:59:50 PM step 8 loss 0.5\n02/04/2031 12:00:10 AM saving\n"
    assert read_log_pace(midnight).step_lag == 20.0


def test_speeds_are_printed_or_measured_over_more_than_a_second() -> None:
    log = "".join(f"[{at(each // 5)}] step {each} loss 0.5\n" for each in range(500))
    pace = read_log_pace(log)
    assert pace.step_time == pytest.approx(0.2)
    assert pace.step_interval == pytest.approx(0.2, rel=0.02)
    pace = read_log_pace("".join(f"step {each}/1000 loss 0.5 2.0 it/s\n" for each in range(0, 100, 5)))
    assert (pace.step_interval, pace.step_time) == (2.5, 0.5)


def test_heartbeats_behind_the_newest_step_make_its_age_unknown_without_a_time() -> None:
    untimed = "".join(f"step {each} loss 0.5\n" for each in range(100))
    pace = read_log_pace(untimed + "still alive\n" * 50)
    assert (pace.behind_lines, pace.step_lag) == (50, None)
    beats = "".join(f"2026-11-22 {at(600 + each)},000 INFO heartbeat\n" for each in range(0, 900, 30))
    pace = read_log_pace(stamped() + beats)
    assert (pace.behind_lines, pace.step_lag) == (30, pytest.approx(873.5))
    assert read_log_pace(untimed + beats).step_lag == 870.0


def test_lines_that_follow_each_step_are_part_of_its_report() -> None:
    log = "".join(f"step {each} loss 0.5\nlearning rate 0.1\nmemory 3 GB\n" for each in range(100))
    assert read_log_pace(log).step_lag == 0.0
    assert read_log_pace(log + "one\ntwo\nthree\n").step_lag is None
    assert read_log_pace(stamped() + "Evalua").behind_lines == 0
    log = stamped() + "2026-11-22 10:20:00,500 INFO train: step 298/9999 loss 0.5\n"
    pace = read_log_pace(log)
    assert (pace.behind_lines, pace.step_lag) == (1, 604.0)


def bar(step: int, seconds: int, total: int = 1856) -> str:
    return f" {100 * step // total}%|#   | {step}/{total} [{seconds // 60:02d}:{seconds % 60:02d}<13:02:24, 3.00s/it]\r"


def test_a_bar_is_measured_by_its_elapsed_time_and_one_of_an_evaluation_is_no_step() -> None:
    bars = "".join(bar(each, 3 * each) for each in range(1, 200))
    assert numbers(read_log_pace(bars)) == (0, 0.0, 3.0, 3.0)
    assert read_log_pace(bars + bar(199, 700)).step_lag == 103.0
    evaluation = "".join(f"Evaluating: 50%|#  | {each}/100 [00:{each:02d}<01:00, 1.0it/s]\r" for each in range(50))
    pace = read_log_pace(f"{bar(10, 30)}{bar(20, 60)}\n{evaluation}")
    assert (pace.behind_lines, pace.step_lag, pace.step_interval) == (50, None, 30.0)


def test_steps_within_an_epoch_and_its_fractions_are_measured() -> None:
    log = "".join(
        f"2026-11-22 {at(10 * each)} {{'loss': 1.2, 'learning_rate': 1e-4, 'epoch': {each / 100:.2f}}}\n"
        for each in range(1, 60)
    )
    assert numbers(read_log_pace(log)) == (0, 0.0, 10.0, None)
    log = "".join(
        f"2026-11-22 {at(60 * epoch + each)} Epoch: [{epoch}][{each}/60] Loss 0.5 (0.6)\n"
        for epoch in range(5)
        for each in range(0, 60, 10)
    )
    assert numbers(read_log_pace(log)) == pytest.approx((0, 0.0, 10.0, 1.0))


def test_the_speed_is_that_of_the_times_in_the_log() -> None:
    def log(paces: Iterable[float]) -> str:
        times = accumulate((10 * pace for pace in paces), initial=0.0)
        lines = (f"2026-11-22 {at(round(now))} step {10 * each}/9000 8 it/s\n" for each, now in enumerate(times))
        return "".join(lines)

    assert read_log_pace(log([1.0] * 30)).logged_speed == pytest.approx(1.0)
    assert read_log_pace(log([1.0] * 30 + [3.0] * 10)).logged_speed == pytest.approx(1 / 3)  # the newest
    assert read_log_pace(log([1.0, 1.0, 60.0] * 10)).logged_speed == pytest.approx(1.0)  # without the pauses
    assert read_log_pace(log([1.0] * 2)).logged_speed is None
    assert read_log_pace("".join(f"step {each}/9000 8 it/s\n" for each in range(40))).logged_speed is None


def test_the_bars_of_two_epochs_share_no_clock() -> None:
    ends = (f"Epoch {each}/20: 100%|##| 100/100 [02:{7 * each:02d}<00:00, 0.8it/s]\n" for each in range(1, 9))
    assert read_log_pace("".join(ends)).logged_speed is None
    places = ((epoch, done) for epoch in range(1, 5) for done in range(1, 51))
    bars = (f"Epoch {epoch}/20: {2 * done}%|##| {done}/50 [00:{done:02d}<01:00, 4it/s]\n" for epoch, done in places)
    assert read_log_pace("".join(bars)).logged_speed == pytest.approx(1.0)


STEPS = "step 88/900 loss 1.2\nstep 89/900 loss 1.1\n"


def test_lines_in_which_only_the_time_rises_are_a_heartbeat() -> None:
    for line in [
        "worker is fine",
        "[watchdog] rank 0: collective 17 pending for {tens} seconds",
        "retry {one}: connection to store refused",
        "uptime {tens} s, 3 threads",
        "2026-03-01 10:00:{tens} memory 41 MiB",
        "2026-03-01 10:00:{tens} idle for {tens} of 900",
    ]:
        assert find_heartbeat(STEPS + "".join(line.format(one=n, tens=10 * n) + "\n" for n in range(1, 6))) is True
    for line in ["Epoch 1, batch {n}", "2026-03-01 10:00:{n} seen {many} images"]:
        assert find_heartbeat("".join(line.format(n=10 + n, many=640 * n) + "\n" for n in range(1, 6))) is False
    for text in ["", "one line\n", STEPS + "saved\n"]:
        assert find_heartbeat(text) is None


def test_lines_of_ever_new_shapes_are_news_and_a_time_within_a_line_is_a_clock() -> None:
    names = ("ada", "bob", "cy", "dan", "eve", "flo", "gil", "hal", "ivy", "joe")
    lines = (f"shard {name}-{at} packed, {37 * at} texts\n" for at, name in enumerate(names))
    assert find_heartbeat("".join(lines)) is False
    report = "--- status ---\nhost a is up\nhost b is up\nhost c is up\n"
    assert find_heartbeat(report * 5) is None  # the same lines again and again
    lines = "".join(f'{{"step": 51, "loss": 1.5, "time": {1_750_000_000.25 + 3 * at}}}\n' for at in range(4))
    assert find_heartbeat(lines) is True
