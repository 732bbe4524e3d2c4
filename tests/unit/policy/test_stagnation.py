"""Only time that was watched counts, and only a readable log can show a stall."""

from __future__ import annotations

from typing import Any

from training_monitor.models import JobStatus, JobView, Progress
from training_monitor.policy.stagnation import Stagnation, describe_stall, watch_progress

INTERVAL, THRESHOLD = 30.0, 300.0


def look(step: int | None, log_size: int | None = 0, age: float | None = None, **more: Any) -> JobView:
    progress = more.pop("progress", Progress(step=step))
    return JobView("job", JobStatus.RUNNING, progress=progress, log_size=log_size, log_age=age, **more)


class Watcher:
    """Feeds looks, `INTERVAL` apart unless told otherwise, and keeps what they amount to."""

    def __init__(self) -> None:
        self.now, self.seen, self.view = 1000.0, None, None  # type: ignore[var-annotated]

    def see(self, view: JobView, after: float = INTERVAL) -> str | None:
        self.now += after
        self.seen: Stagnation | None = watch_progress(self.seen, view, self.now, INTERVAL)
        return describe_stall(self.seen, THRESHOLD)

    def watch(self, view: JobView, seconds: float) -> str | None:
        """The same view for a time."""
        stall = None
        for _ in range(round(seconds / INTERVAL)):
            stall = self.see(view)
        return stall


def test_one_look_is_never_a_stall_however_old_the_log() -> None:
    assert Watcher().see(look(5, age=1e6)) is None


def test_a_step_that_stands_still_without_output_is_a_stall_after_the_threshold() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    assert watcher.watch(look(130, 100), THRESHOLD - INTERVAL) is None
    assert watcher.see(look(130, 100)) == "step 130 and no output for 5m"


def test_a_step_that_moves_slowly_is_no_stall() -> None:
    watcher = Watcher()
    for step in range(40):
        assert watcher.watch(look(step, step), THRESHOLD - INTERVAL) is None


def test_a_step_that_falls_back_counts_as_progress() -> None:
    watcher = Watcher()
    watcher.see(look(500, 1))
    watcher.watch(look(500, 1), THRESHOLD - INTERVAL)
    assert watcher.see(look(400, 1)) is None
    assert watcher.watch(look(400, 1), THRESHOLD - INTERVAL) is None
    assert watcher.see(look(400, 1)) is not None


def test_a_growing_log_without_steps_is_given_four_times_as_long() -> None:
    watcher = Watcher()
    watcher.see(look(240, 0))
    for number in range(1, 40):
        assert watcher.see(look(240, number)) is None, number
    stall = watcher.see(look(240, 40))
    assert stall == "step 240 for 20m although the log grows"


def test_a_log_without_a_size_grows_when_its_end_changes() -> None:
    watcher = Watcher()
    watcher.see(look(240, None, log_tail="0"))
    for number in range(1, 20):
        assert watcher.see(look(240, None, log_tail=str(number))) is None
    assert watcher.watch(look(240, None, log_tail="same"), THRESHOLD + INTERVAL) is not None


def test_a_log_that_was_cut_short_has_moved() -> None:
    watcher = Watcher()
    watcher.see(look(5, 1000))
    watcher.watch(look(5, 1000), THRESHOLD - INTERVAL)
    assert watcher.see(look(5, 10)) is None


def test_before_the_first_step_silence_is_given_three_times_as_long() -> None:
    watcher = Watcher()
    watcher.see(look(None, 7))
    assert watcher.watch(look(None, 7), 3 * THRESHOLD - INTERVAL) is None
    assert watcher.see(look(None, 7)) == "no step yet and no output for 15m"


def test_before_the_first_step_a_growing_log_is_no_stall() -> None:
    watcher = Watcher()
    for number in range(200):
        assert watcher.see(look(None, number)) is None


def test_an_evaluation_that_drives_the_last_step_out_of_the_log_keeps_it() -> None:
    watcher = Watcher()
    watcher.see(look(240, 0))
    watcher.see(look(None, 1))
    assert watcher.seen and watcher.seen.position == 240
    assert str(watcher.watch(look(None, 1), THRESHOLD)).startswith("step 240 ")


def test_the_first_step_starts_the_clock() -> None:
    watcher = Watcher()
    watcher.watch(look(None, 7), 3 * THRESHOLD - 2 * INTERVAL)
    watcher.see(look(1, 8))
    assert watcher.watch(look(1, 8), THRESHOLD - INTERVAL) is None


def test_the_age_of_the_log_on_the_target_decides_at_the_second_look() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100, age=3600))
    assert watcher.see(look(130, 100, age=3630)) == "step 130 and no output for 1h00m"


def test_a_young_log_on_the_target_is_no_stall() -> None:
    watcher = Watcher()
    for _ in range(5):
        assert watcher.see(look(130, 100, age=20)) is None


def test_time_that_was_not_watched_is_never_the_jobs_stall() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    watcher.watch(look(130, 100), THRESHOLD - INTERVAL)
    assert watcher.see(look(130, 100), after=7200) is None
    assert watcher.see(look(130, 100)) == "step 130 and no output for 5m"


def test_outages_that_come_often_do_not_hide_a_hang() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    stalls = [watcher.watch(look(130, 100), 90) or watcher.see(look(130, 100), after=125) for _ in range(5)]
    assert stalls[1] is None and stalls[-1] is not None


def test_what_moved_while_nobody_looked_is_progress() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    watcher.watch(look(130, 100), THRESHOLD - INTERVAL)
    assert watcher.see(look(900, 5000), after=7200) is None
    assert watcher.watch(look(900, 5000), THRESHOLD - INTERVAL) is None
    assert watcher.see(look(900, 5000)) is not None


def test_a_round_trip_that_takes_a_little_longer_is_no_gap() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    for _ in range(5):
        stall = watcher.see(look(130, 100), after=3 * INTERVAL)
    assert stall is not None


def test_an_unreadable_log_is_never_a_stall() -> None:
    watcher = Watcher()
    watcher.see(look(130, 100))
    assert watcher.watch(look(None, None, log_known=False), 10 * THRESHOLD) is None
    assert watcher.see(look(130, 100)) is None
    assert watcher.watch(look(130, 100), THRESHOLD - 2 * INTERVAL) is None


def test_a_silent_job_with_rare_looks_is_said_to_be_silent() -> None:
    seen = watch_progress(None, look(130, 100), 0.0, 1800.0)
    seen = watch_progress(seen, look(130, 100), 1800.0, 1800.0)
    assert describe_stall(seen, THRESHOLD) == "step 130 and no output for 30m"


def per_epoch(epoch: float, step: int) -> JobView:
    return look(None, 1, progress=Progress(epoch=epoch, epoch_step=step))


def test_a_counter_that_starts_again_in_every_epoch_is_progress() -> None:
    watcher = Watcher()
    for epoch in range(3):
        for step in (100, 200, 300):
            assert watcher.watch(per_epoch(epoch, step), THRESHOLD - INTERVAL) is None


def test_the_same_number_in_the_next_epoch_is_progress() -> None:
    watcher = Watcher()
    watcher.see(per_epoch(1, 300))
    watcher.watch(per_epoch(1, 300), THRESHOLD - INTERVAL)
    assert watcher.see(per_epoch(2, 300)) is None


def test_a_counter_of_an_epoch_that_stands_still_is_a_stall() -> None:
    watcher = Watcher()
    watcher.see(per_epoch(2, 300))
    stall = watcher.watch(per_epoch(2, 300), THRESHOLD)
    assert stall == "the same step of epoch 2 and no output for 5m"


def test_a_counter_without_an_epoch_is_not_called_epoch_none() -> None:
    watcher = Watcher()
    view = look(None, 1, progress=Progress(epoch_step=300))
    watcher.see(view)
    stall = watcher.watch(view, THRESHOLD)
    assert stall and "None" not in stall
