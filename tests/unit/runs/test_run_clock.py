"""Rates and remaining times, by hand-set clocks."""

from __future__ import annotations

import pytest

from training_monitor.runs.clock import IDLE, TRAINING, VALIDATION, RunClock
from training_monitor.runs.values import Estimate


class Script:
    """A script whose batches take a set time; the clock moves only with them."""

    def __init__(self) -> None:
        self.now, self.trained, self.validated = 1000.0, 0, 0
        self.clock = RunClock(self.now)

    def left(self, part: str = "run") -> float | None:
        return self.clock.estimates()[part].remaining

    def look(self) -> None:
        self.clock.observe(self.now, self.trained, self.validated)

    def pass_time(self, seconds: float, every: float = 0.25) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + every)
            self.look()

    def start_epoch(self, epoch: int | None, batches: int | None = 100, epochs: int | None = 3) -> None:
        self.look()
        self.clock.start_epoch(epoch, batches, epochs)

    def train(self, batches: int, seconds: float = 1.0) -> None:
        for _ in range(batches):
            self.trained += 1
            self.look()
            self.pass_time(seconds)

    def validate(self, batches: int, seconds: float = 0.5, total: int | None = None) -> None:
        self.look()
        self.clock.start_validation(batches if total is None else total)
        for _ in range(batches):
            self.validated += 1
            self.look()
            self.pass_time(seconds)

    def end_epoch(self) -> None:
        self.look()
        self.clock.end_validation()
        self.clock.end_epoch()


def in_epoch(epoch: int | None = 1, batches: int | None = 100, epochs: int | None = 3, made: int = 0) -> Script:
    """A script that began with this epoch and made so many batches of it, of a second each."""
    script = Script()
    script.start_epoch(epoch, batches, epochs)
    script.train(made)
    return script


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_the_epochs_to_come_are_of_the_present_speed(epochs: int) -> None:
    script = Script()
    for epoch in range(1, epochs + 1):
        script.start_epoch(epoch, 200, 10)
        script.train(100)
        script.pass_time(30)  # a checkpoint amid the epoch
        script.train(100)
        script.validate(20)
        script.end_epoch()
    script.start_epoch(epochs + 1, 200, 10)
    script.train(12, seconds=5.0)
    left = 188 * 5 + 10 + (9 - epochs) * (200 * 5 + 30 + 10)
    assert script.left() == pytest.approx(left, rel=0.05)


def test_an_epoch_in_which_the_speed_changed_is_no_measure_for_the_others() -> None:
    script = in_epoch(1, 200)
    script.train(100, seconds=0.5)
    script.train(100, seconds=5.0)
    script.end_epoch()
    script.start_epoch(2, 200, 3)
    script.train(20, seconds=5.0)
    assert script.left() == pytest.approx(180 * 5 + 200 * 5, rel=0.05)


def test_validations_that_take_longer_since_twice_count_for_those_to_come() -> None:
    script = Script()
    for epoch, seconds in enumerate((1.0, 1.0, 1.0, 10.0, 10.0), start=1):
        script.start_epoch(epoch, 10, 7)
        script.train(10)
        script.validate(10, seconds)
        script.end_epoch()
        if epoch == 4:
            assert script.left() == pytest.approx(3 * 20, rel=0.1)
    assert script.left() == pytest.approx(2 * 110, rel=0.1)


def test_a_run_ending_within_an_epoch_has_a_correct_eta() -> None:
    script = Script()
    script.clock.end_after(250)
    script.start_epoch(1, 100, None)
    script.train(50)
    assert script.left() == pytest.approx(200, rel=0.05)
    script.train(50)
    script.validate(20)
    script.end_epoch()
    assert script.left() == pytest.approx(150 + 2 * 10, rel=0.05)
    script.start_epoch(2, 100, None)
    script.train(100)
    script.validate(20)
    script.end_epoch()
    script.start_epoch(3, 100, None)
    script.train(20)
    assert script.left("epoch") == pytest.approx(30 + 10, rel=0.05) and not script.clock.is_complete
    assert script.left() == pytest.approx(30 + 10, rel=0.05)
    script.train(30)
    assert script.clock.is_complete
    without_length = in_epoch(1, None, None, made=10)
    without_length.clock.end_after(40)
    without_length.train(10)
    assert without_length.left() == pytest.approx(30, rel=0.05)


def test_nothing_is_known_before_two_batches_or_of_the_end_without_a_number() -> None:
    script = Script()
    assert script.left() is None
    script.start_epoch(1)
    assert (script.clock.estimates()["training"].rate, script.left("epoch"), script.left()) == (None, None, None)
    script = in_epoch(1, 100, None, made=50)
    assert script.left("epoch") is not None and script.left() is None


def test_the_first_epoch_counts_its_validation_by_the_sizes_of_the_datasets() -> None:
    for ratio, validation in ((None, 0), (0.1, 10)):
        script = Script()
        script.clock.dataset_ratio = ratio
        script.start_epoch(1)
        script.train(50)
        assert script.left("training") == pytest.approx(50, abs=1)
        assert script.left("epoch") == pytest.approx(50 + validation, abs=1)
        assert script.left() == pytest.approx(50 + validation + 2 * (100 + validation), abs=4)


def test_the_totals_of_the_second_epoch_are_right() -> None:
    script = in_epoch(made=100)
    script.validate(20)
    script.end_epoch()
    assert script.left("epoch") == 0 and script.left() == pytest.approx(220, abs=3)
    script.start_epoch(2)
    script.train(30)
    estimates = script.clock.estimates()
    assert estimates["epoch"].elapsed == pytest.approx(30)
    assert estimates["epoch"].total == pytest.approx(110, abs=1)
    assert estimates["run"].total == pytest.approx(330, abs=3)
    assert list(script.clock.epoch_durations) == [pytest.approx(110)]
    assert script.clock.training.batch == 30


def test_a_validation_says_how_long_it_still_takes() -> None:
    script = in_epoch(made=100)
    script.validate(10, total=20)
    assert script.clock.mode == VALIDATION and script.clock.phase == "validation"
    assert script.clock.estimates()["validation"].elapsed == pytest.approx(5)
    assert script.left("validation") == pytest.approx(5, abs=0.6) == script.left("epoch")
    script.clock.end_validation()
    assert script.clock.mode == TRAINING and script.clock.phase == "training"
    alone = Script()
    alone.validate(30, seconds=1.0, total=100)
    assert alone.left() == pytest.approx(70, abs=2)


def test_what_is_done_between_epochs_counts_for_those_that_are_to_come() -> None:
    script = Script()
    for epoch in (1, 2):
        script.start_epoch(epoch, 100, 4)
        script.train(100)
        script.end_epoch()
        if epoch == 1:
            script.pass_time(50)  # a checkpoint, or a validation behind the epoch
    assert script.left() == pytest.approx(2 * 100 + 2 * 50, abs=3)
    script.pass_time(20)
    assert script.left() == pytest.approx(2 * 100 + 2 * 50 - 20, abs=3)
    script.pass_time(100)
    assert script.left() == pytest.approx(2 * 100 + 50, abs=3)
    script.start_epoch(3, 100, 4)
    script.train(50)
    gap = (50 + 120) / 2
    assert script.left() == pytest.approx(50 + gap + 100, abs=3)
    script.train(50)
    script.end_epoch()
    script.start_epoch(4, 100, 4)
    assert script.left() == pytest.approx(100, abs=3)


def test_epochs_that_are_never_ended_have_nothing_between_them() -> None:
    script = Script()
    for epoch in (1, 2, 3):
        script.start_epoch(epoch, 10, 5)
        script.train(10)
    assert script.left() == pytest.approx(20, abs=2)


def test_a_batch_ends_where_the_validation_begins_however_short_it_was() -> None:
    script = in_epoch(1, 100, 1)
    script.train(99, seconds=10.0)
    script.train(1, seconds=1.0)
    assert script.left("training") == pytest.approx(9, abs=0.5)
    script.validate(5, total=10)
    assert script.left("training") == 0 and script.left("epoch") == pytest.approx(2.5, abs=0.6)
    script.clock.end_validation()
    assert script.left("training") == 0


def test_validations_within_an_epoch_do_not_slow_the_training_rate() -> None:
    script = in_epoch(1, 100, 1)
    for _ in range(4):
        script.train(20)
        script.validate(20, seconds=1.0)
        script.look()
        script.clock.end_validation()
    assert script.clock.training.pace.rate == pytest.approx(1.0, rel=0.05)
    assert script.left("training") == pytest.approx(20, abs=1)


def test_a_script_without_epochs_counts_from_start_training_or_its_batches() -> None:
    script = Script()
    script.look()
    script.clock.start_training(200)
    script.train(50)
    assert script.clock.training.batch == 50 and script.left("epoch") is None
    assert script.left() == pytest.approx(150, abs=2)
    script = Script()
    assert script.clock.phase == "loading" and script.clock.mode == IDLE
    script.train(3)
    assert script.clock.phase == "training" and script.clock.training.pace.rate == pytest.approx(1.0)
    assert script.left() is None


def test_epochs_and_batches_from_zero_are_shown_from_one() -> None:
    script = in_epoch(0)
    for batch in (0, 1):
        script.train(1)
        script.clock.place(batch, batch + 1)
        assert (script.clock.epoch, script.clock.training.batch) == (1, batch + 1)
    script.start_epoch(1)
    assert script.clock.epoch == 2
    script.start_epoch(None)
    assert script.clock.epoch == 3


def test_numbers_that_begin_anew_without_an_epoch_are_shown_as_they_are() -> None:
    script = Script()
    for _ in range(2):
        for batch in range(10):
            script.train(1)
            script.clock.place(batch, script.trained)
            assert script.clock.training.batch == batch + 1


@pytest.mark.parametrize(("calls", "batches"), [(1, 4), (4, 1)])
def test_calls_that_are_not_one_batch_each_are_counted_by_their_numbers(calls: int, batches: int) -> None:
    script = in_epoch(1, 100, 1)
    for batch in range(batches, 41, batches):
        for _ in range(calls):
            script.train(1, seconds=2.0 * batches / calls)
            script.clock.place(batch, script.trained)
    assert script.clock.training.batch == 40 and script.clock.training.count == 40 * calls // batches
    assert script.left("training") == pytest.approx(120, abs=8)


def test_an_epoch_that_made_fewer_batches_than_were_said_tells_of_the_next_one() -> None:
    script = in_epoch(1, 100, 2)
    script.train(25, seconds=4.0)
    script.end_epoch()
    script.start_epoch(2, 100, 2)
    script.train(10, seconds=4.0)
    assert script.left("training") == pytest.approx(60, abs=5)
    script.train(30, seconds=4.0)
    assert script.left("training") == pytest.approx(240, abs=10)
    assert in_epoch(1, 5, 1, made=9).left("training") == 0


def test_a_resumed_run_counts_only_what_is_left() -> None:
    assert in_epoch(5, 100, 10, made=50).left() == pytest.approx(50 + 5 * 100, abs=8)
    script = in_epoch(4, 1000, 10, made=1)
    script.clock.place(501, 1)
    script.train(9)
    assert script.clock.training.batch == 510
    assert script.left("training") == pytest.approx(490, abs=2)


def test_numbers_of_the_whole_run_from_zero_are_those_of_each_epoch() -> None:
    script, seen = Script(), []
    for epoch in range(3):
        script.start_epoch(epoch, 4, 3)
        for _ in range(4):
            script.train(1)
            script.clock.place(script.trained - 1, script.trained)
            seen.append((script.clock.training.batch, script.clock.is_complete))
    assert [batch for batch, _ in seen] == [1, 2, 3, 4] * 3
    assert [is_complete for _, is_complete in seen] == [False] * 11 + [True]


def test_a_clock_that_jumps_makes_nothing_negative() -> None:
    script = in_epoch(made=10)
    script.now -= 500
    script.train(5)
    script.now += 86_400
    script.train(200)
    script.end_epoch()
    for name, each in script.clock.estimates().items():
        numbers = (each.rate, each.elapsed, each.remaining, each.total)
        assert all(value is None or value >= 0 for value in numbers), name


def test_what_a_progress_bar_says_counts_until_batches_are_known() -> None:
    script = Script()
    script.clock.told = Estimate(2.0, 10.0, 90.0)
    assert script.clock.estimates()["training"] == Estimate(2.0, 10.0, 90.0, 100.0)
    script.start_epoch(1)
    script.train(50)
    assert script.clock.estimates()["training"].rate == pytest.approx(1.0)


def test_an_ended_run_stands_still() -> None:
    script = in_epoch(made=10)
    script.clock.end()
    assert script.left() is None and script.left("epoch") is None and script.clock.mode == IDLE


def test_phases_of_the_script_end_where_it_says() -> None:
    clock = RunClock(0.0)
    clock.start_phase("warm-up")
    clock.start_epoch(1, None, None)
    assert clock.phase == "warm-up"
    clock.start_validation(None)
    assert clock.phase == "validation"
    clock.end_validation()
    assert clock.phase == "warm-up"
    clock.end_phase()
    assert clock.phase == "training"
