"""One verdict from all looks at a training: how it ended, whether it stalls, and what cannot be told."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from training_monitor.core.models import Failure, JobStatus, Progress
from training_monitor.core.values import Observation, Verdict
from training_monitor.logs.training_log import parse_progress
from training_monitor.verdict.failure import classify_failure
from training_monitor.verdict.judge import ENDS, NOBODY_LOOKED, judge, renew, with_speed
from training_monitor.verdict.loss import analyze_loss
from training_monitor.verdict.stall import stall_policy

START = 1_750_000_000.0
MINUTE = 60.0
BUSY = {"gpu_utilization": 97.0, "gpu_power_fraction": 0.8}
IDLE = {"gpu_utilization": 0.0, "gpu_power_fraction": 0.1}
SPINNING = {"gpu_utilization": 97.0, "gpu_power_fraction": 0.13}
CUDA = Failure("cuda_error", "ambiguous", "restart", "RuntimeError: CUDA error: an illegal memory access")


class Watched:
    """A training as it is looked at; its processes' CPU time and bytes written are counted where `cores` is told."""

    def __init__(self, poll: float = 30.0, **always: Any) -> None:
        self.poll, self.always = poll, always
        self.now, self.step = START, 0.0
        self.cpu, self.written, self.sees_processes = 0.0, 0.0, False
        self.looks: list[Observation] = []
        self.verdicts: list[Verdict] = []

    def look(self, after: float | None = None, cores: float | None = None, rate: float = 0.0, **seen: Any) -> Verdict:
        span = self.poll if after is None else after
        self.now += span
        if cores is not None or self.sees_processes:
            self.sees_processes = True
            self.cpu, self.written = self.cpu + (cores or 0.0) * span, self.written + rate * span
            seen = {"cpu_seconds": self.cpu, "written_bytes": int(self.written), "is_running": True, **seen}
        values = {"step": int(self.step), **self.always, **seen}
        self.looks.append(Observation(self.now, **values))
        self.verdicts.append(judge(self.looks, now=self.now))
        return self.verdicts[-1]

    def train(self, seconds: float, pace: float = 1.0, **seen: Any) -> Watched:
        for _ in range(round(seconds / self.poll)):
            self.step += pace * self.poll
            self.look(**{**BUSY, **seen})
        return self

    def wait(self, seconds: float, **seen: Any) -> Watched:
        for _ in range(round(seconds / self.poll)):
            self.look(**seen)
        return self

    @property
    def states(self) -> set[str]:
        return {each.state for each in self.verdicts}


def one(**seen: Any) -> Verdict:
    """The verdict on a single look."""
    return judge([Observation(START, **{"step": None, **seen})], now=START)


# ---------------------------------------------------------------- pace


def test_two_looks_within_a_second_show_no_pace() -> None:
    run = Watched(total_steps=900)
    run.look(step=8, log_age=0.0)
    reason = run.look(1.1, step=9, log_age=1.0).reason  # 0.1 s by ages in whole seconds
    assert reason == "step 9 of 900"
    assert run.look(4.0, step=13, log_age=0.0).reason == "step 13 of 900, 1.02 s/step"


def test_looks_in_quick_succession_show_a_pace_after_two_seconds() -> None:
    run = Watched(0.2, total_steps=900, log_age=0.0)
    reasons = [run.look(step=step).reason for step in range(10, 24)]
    assert reasons[8] == "step 18 of 900" and reasons[-1] == "step 23 of 900, 5 steps/s"


def test_epochs_without_steps_show_no_speed_in_steps() -> None:
    run = Watched(total_epochs=3)
    for epoch in (0.1, 0.2, 0.3):
        found = run.look(step=None, epoch=epoch, log_age=0.0)
    assert found.reason == "epoch 0.3 of 3"
    assert with_speed(Progress(epoch=0.3), found).steps_per_second is None


def speeds(run: Watched) -> list[float | None]:
    """The speed shown after each look, to two places."""
    shown = (
        with_speed(Progress(steps_per_second=each.steps_per_second), verdict).steps_per_second
        for each, verdict in zip(run.looks, run.verdicts)
    )
    return [speed and round(speed, 2) for speed in shown]


@pytest.mark.parametrize("printed", [0.1, 0.5, 2.0, 8.0, 64.0])
def test_a_printed_speed_that_no_look_confirms_is_not_shown(printed: float) -> None:
    run = Watched(10.0, total_steps=100_000, log_age=0.0).train(MINUTE, steps_per_second=printed)
    assert speeds(run) == [printed] * 3 + [1.0] * 3
    assert run.verdicts[-1].reason == "step 60 of 100000, 1 s/step"


@pytest.mark.parametrize("printed", [0.7, 1.0, 1.5])
def test_a_printed_speed_near_that_of_the_steps_is_shown_as_printed(printed: float) -> None:
    run = Watched(10.0, total_steps=100_000, log_age=0.0).train(5 * MINUTE, steps_per_second=printed)
    assert set(speeds(run)) == {printed}


def test_pauses_between_steps_do_not_refute_a_printed_speed() -> None:
    run = Watched(total_steps=100_000, log_age=0.0)
    for _ in range(6):
        run.train(2 * MINUTE, steps_per_second=1.0).wait(4 * MINUTE, steps_per_second=1.0)
    assert set(speeds(run)) == {1.0}


def test_a_refuted_speed_is_shown_in_no_state() -> None:
    run = Watched(10.0, total_steps=100_000).train(MINUTE, steps_per_second=8.0)
    run.wait(60 * MINUTE, steps_per_second=8.0)
    assert run.states == {"running", "unknown", "stalled"} and set(speeds(run)[4:]) == {1.0}
    assert with_speed(Progress(), run.verdicts[-1]).steps_per_second is None  # it is not making steps


def test_a_speed_by_the_times_in_the_log_holds_until_the_steps_were_seen() -> None:
    run = Watched(1.0, total_steps=100_000, log_age=0.0)
    run.look(step=100, steps_per_second=1.0, logged_speed=1.0, step_time=0.9)  # by the log's own times
    run.look(step=101, steps_per_second=4.0)
    assert speeds(run) == [1.0, 1.0]


def test_a_run_is_not_slow_because_its_log_always_printed_more_than_it_made() -> None:
    run = Watched(total_steps=100_000)
    run.look(**BUSY, steps_per_second=4.0, step_time=0.25)
    assert run.train(30 * MINUTE, steps_per_second=4.0).states == {"starting", "running"}
    slow = Watched(total_steps=100_000)
    slow.look(**BUSY, steps_per_second=4.0, step_time=0.25)
    assert slow.train(30 * MINUTE, steps_per_second=1.0).verdicts[-1].state == "slow"  # as it prints itself


def test_an_average_that_counts_the_steps_before_a_resume_makes_no_run_slow() -> None:
    run = Watched(total_steps=100_000, log_age=0.0)
    run.look(**BUSY, step=5000, steps_per_second=80.0, step_time=0.01)
    for _ in range(400):  # made 1 step per second, at last near the average
        seconds = run.now - START
        run.look(**BUSY, step=5000 + int(seconds), steps_per_second=(5000 + seconds) / seconds)
    assert run.looks[-1].steps_per_second and run.looks[-1].steps_per_second < 1.5
    assert run.states <= {"starting", "running"}


def test_a_run_is_slow_by_its_log_at_every_look_that_reads_the_log_anew() -> None:
    slow = Watched(60.0, total_steps=100_000, step_time=0.25)
    assert slow.train(30 * MINUTE, steps_per_second=1.0).verdicts[-1].state == "slow"
    timed = Watched(60.0, total_steps=100_000)
    timed.look(**BUSY, steps_per_second=4.0, logged_speed=4.0, step_time=0.25)  # and slow since that look
    assert timed.train(30 * MINUTE, steps_per_second=4.0).verdicts[-1].state == "slow"
    refuted = Watched(60.0, total_steps=100_000, step_time=0.25)
    assert refuted.train(30 * MINUTE, steps_per_second=4.0).states == {"running"}


# ---------------------------------------------------------------- pauses that are no hang


@pytest.mark.parametrize("seen", [{}, {"cores": 6.0}])
def test_a_silent_evaluation_of_eight_minutes_with_idle_gpus_is_no_stall(seen: dict[str, float]) -> None:
    run = Watched(total_steps=10_000).train(30 * MINUTE, **({"cores": 9.0} if seen else {}))
    run.wait(8 * MINUTE, **seen, **IDLE).train(5 * MINUTE)
    assert run.states == {"running"}
    assert {each.recommendation for each in run.verdicts} == {"continue"}


@pytest.mark.parametrize(
    "works",
    [{"cores": 0.1, "rate": 4e7}, {"cores": 0.9}, {"cores": 0.1, "file_age": 3.0}, {"cores": 4.0, "compilers": 3}],
)
def test_a_first_silent_pause_is_no_stall_while_processes_work(works: dict[str, float]) -> None:
    minutes = 12 if "compilers" in works else 6
    run = Watched().train(30 * MINUTE, cores=9.0).wait(minutes * MINUTE, **works, **IDLE)
    assert run.train(5 * MINUTE, cores=9.0).states == {"running"}


def test_one_rank_that_evaluates_is_work() -> None:
    run = Watched().train(30 * MINUTE, cores=9.0)
    assert run.wait(12 * MINUTE, cores=9.0, gpu_utilization=60.0, gpu_power_fraction=0.5).states == {"running"}


def test_a_moving_epoch_fraction_is_progress() -> None:
    run = Watched(60.0)
    for minute in range(150):
        epoch = minute // 8 * 0.01
        verdict = run.look(step=None, epoch=epoch, total_epochs=3.0, loss=2.0 - epoch, **BUSY)
    assert run.states <= {"running", "unknown"} and verdict.verdict == "ok"
    assert verdict.reason.startswith("epoch 0.18 of 3")
    run.wait(40 * MINUTE, step=None, epoch=epoch, loss=2.0 - epoch, **IDLE)
    assert run.verdicts[-1].state == "stalled"


def test_a_changing_loss_is_progress_where_nothing_is_counted() -> None:
    run = Watched(60.0)
    for minute in range(90):
        run.look(step=None, loss=2.0 - minute / 100, log_size=1000 + 50 * minute)
    assert "stalled" not in run.states and run.verdicts[-1].verdict == "ok"


# ---------------------------------------------------------------- files where checkpoints go


def silent_run(saves: list[float], until: float, **seen: Any) -> Watched:
    """One that shows no step, only files that were written at these times, in minutes."""
    run = Watched(step=None, **seen)
    while run.now < START + until * MINUTE:
        written = [START + each * MINUTE for each in saves if START + each * MINUTE <= run.now + run.poll]
        run.look(file_age=run.now + run.poll - written[-1] if written else None)
    return run


@pytest.mark.parametrize("seen", [{}, IDLE])
def test_new_checkpoints_are_the_progress_of_a_run_that_shows_no_steps(seen: dict[str, float]) -> None:
    run = silent_run([8.0, 20.0, 32.0, 57.0, 90.0, 134.0], 170, **seen)
    assert run.states == {"starting", "running"}
    told = run.verdicts[-1]
    assert (told.verdict, told.state) == ("ok", "running")
    assert "a file was written to its checkpoint folder" in told.reason
    run = silent_run([8.0, 20.0, 32.0], 80)
    told = run.verdicts[-1]
    assert (told.state, told.reason) == ("stalled", "no new file in its checkpoint folder for 48m, limit 30m")
    first = next(at for at, each in enumerate(run.verdicts) if each.state == "stalled")
    assert run.looks[first].timestamp == START + 62 * MINUTE


@pytest.mark.parametrize("age", [-4000.0, 0.0])
def test_a_file_from_the_future_is_no_progress_for_ever(age: float) -> None:
    run = Watched(step=None, runtime=1.0)
    for _ in range(90):
        run.look(60.0, file_age=age if age < 0 else run.now + 60.0 - START - 60.0)
    assert run.verdicts[-1].state == "stalled"


def test_a_background_writer_does_not_hide_a_hang_for_ever() -> None:
    run = Watched().train(30 * MINUTE).wait(90 * MINUTE, file_age=5.0, **IDLE)
    assert run.verdicts[-1].state == "stalled"


def test_a_file_that_was_written_before_the_last_step_is_no_sign_of_work_since() -> None:
    run = Watched().train(30 * MINUTE)
    told = run.look(file_age=45.0, **IDLE)
    assert told.limit_seconds == run.look(file_age=75.0, **IDLE).limit_seconds


# ---------------------------------------------------------------- hangs


def test_silence_and_its_limit_are_told_and_the_silence_never_shrinks() -> None:
    run = Watched().train(30 * MINUTE, cores=9.0)
    run.verdicts.clear()
    for number in range(60):
        run.look(30.0 if number % 7 else 400.0, cores=0.02, **IDLE)
    silences = [each.seconds_without_step or 0.0 for each in run.verdicts]
    assert silences == sorted(silences) and silences[-1] > 30 * MINUTE
    first = next(each for each in run.verdicts if each.state == "stalled")
    assert first.reason.startswith("no step for ") and ", limit 2m15s: GPUs idle" in first.reason
    assert "nothing written" in first.reason and (first.verdict, first.recommendation) == ("failed", "alert")
    assert run.verdicts[-1].recommendation == "terminate"
    assert {each.since for each in run.verdicts if each.state == "stalled"} == {first.since}


def test_fewer_new_steps_than_usual_tell_when_a_hang_began() -> None:
    """With looks a minute apart and a log of unknown age: it hung ten seconds after the second-to-last look."""
    run = Watched(poll=60.0).train(20 * MINUTE, gpu_utilization=None, gpu_power_fraction=None)
    run.step += 10
    run.wait(2 * MINUTE)
    assert run.verdicts[-1].seconds_without_step == pytest.approx(110.0)


def test_gaps_between_looks_do_not_erase_what_both_sides_saw() -> None:
    run = Watched(60.0).train(20 * MINUTE)
    for minute in range(50):
        run.look(300.0 if minute % 10 == 9 else 60.0, **SPINNING)
    assert run.verdicts[-1].state == "stalled" and (run.verdicts[-1].seconds_without_step or 0) > 55 * MINUTE
    assert "collective" in run.verdicts[-1].reason
    often = Watched(60.0).train(20 * MINUTE)
    for minute in range(40):
        often.look(300.0 if minute % 2 else 60.0, **SPINNING)
    assert often.verdicts[-1].state == "stalled"


def test_a_gap_alone_is_no_stall_until_the_run_was_watched_again() -> None:
    run = Watched().train(30 * MINUTE)
    assert run.look(3 * 3600.0, **IDLE).state == "unknown"  # the machine may have slept
    assert run.train(10 * MINUTE).states == {"running", "unknown"}
    run = Watched(boot="a")
    for number in range(60):
        run.step += 30
        run.look(awake_seconds=1000.0 + 30 * number, step_age=2.0, **BUSY)
    verdict = run.look(7200.0, awake_seconds=2790.0, step_age=7202.0, **IDLE)  # it slept, as its own clock tells
    assert verdict.state == "running" and (verdict.seconds_without_step or 0) < 60


@pytest.mark.parametrize("jump", [-7200.0, -90.0, 90.0, 7200.0])
def test_a_clock_that_jumps_is_no_stall_and_no_progress(jump: float) -> None:
    run = Watched().train(30 * MINUTE)
    run.now += jump
    run.look(**BUSY)
    assert "stalled" not in run.train(30 * MINUTE).states and "slow" not in run.states


def test_the_first_look_counts() -> None:
    hung = {"step": 40, "total_steps": 200, "is_running": True, "cpu_cores": 0.0, "write_rate": 0.0}
    verdict = one(**hung, **IDLE, log_age=660.0, step_age=660.0)
    assert (verdict.state, verdict.verdict, verdict.seconds_without_step) == ("stalled", "failed", 660.0)
    assert one(**hung, **IDLE, step_age=20.0).verdict == "ok"


def test_one_look_that_excludes_nothing_is_unknown_with_the_reason() -> None:
    verdict = one(step=40, total_steps=200)
    assert (verdict.state, verdict.verdict) == ("unknown", "unknown")
    assert verdict.reason == "a single check does not show when it reached step 40 of 200: check again in 1m"
    assert verdict.seconds_without_step is None
    assert verdict.remedies and one(step=40, **BUSY).verdict == "ok" and one(step=40, **BUSY).confidence == "low"


def test_a_disk_that_does_not_answer_is_named() -> None:
    run = Watched().train(30 * MINUTE, cores=9.0).wait(5 * MINUTE, cores=0.0, blocked=2, **IDLE)
    assert run.verdicts[-1].state == "stalled" and "state D" in run.verdicts[-1].reason


def test_the_callers_threshold_is_a_limit_of_the_same_policy() -> None:
    looks = Watched(1.0).train(10, **IDLE).wait(6, **IDLE).looks
    verdict = judge(looks, now=looks[-1].timestamp, policy=stall_policy(5.0))
    assert (verdict.state, verdict.limit_seconds) == ("stalled", 5.0)
    assert judge(looks, now=looks[-1].timestamp).state == "running"


def test_one_look_at_an_old_log_that_tells_no_pace_is_no_proof(subtests: pytest.Subtests) -> None:
    for seen in [{}, IDLE]:
        for minutes, verdict in [(5, "ok"), (11, "unknown"), (14.9, "unknown"), (16, "failed")]:
            with subtests.test(seen=seen, minutes=minutes, verdict=verdict):
                told = one(step=40, total_steps=200, step_age=minutes * MINUTE, log_age=minutes * MINUTE, **seen)
                assert told.verdict == verdict
                if verdict == "unknown":
                    assert told.remedies == ("check again in 1m",)
                    assert told.reason.startswith("no step for 1")
                    assert "limit 15m: the usual length of its pauses" in told.reason


@pytest.mark.parametrize("seen", [{}, IDLE, {"process": "7 1 b"}])
def test_a_step_that_fell_was_made_since_the_look_before(seen: dict[str, Any]) -> None:
    run = Watched().train(30 * MINUTE)
    run.step = 700
    told = run.look(60.0, **seen)
    assert (told.state, told.verdict) == ("running", "ok")
    run = Watched().wait(5 * MINUTE, step=None)
    run.step = 3
    assert run.look().verdict == "ok", "the first step that is seen"


@pytest.mark.parametrize("then", [{"cores": 9.0, **BUSY}, {"cores": 0.1, "rate": 4e7}, {"phase": "evaluation"}])
def test_a_hang_is_over_with_a_new_step_and_not_before(then: dict[str, Any]) -> None:
    run = Watched().train(30 * MINUTE, cores=9.0).wait(10 * MINUTE, cores=0.05, **IDLE)
    assert run.verdicts[-1].state == "stalled"
    begin = len(run.looks)
    run.wait(20 * MINUTE, **{"cores": 0.05, **IDLE, **then})
    assert {each.state for each in run.verdicts[begin:]} == {"stalled"}
    run.step += 5
    assert run.look(cores=9.0, **BUSY).state == "running"


def test_a_stall_beside_signs_of_work_says_so() -> None:
    run = Watched().train(30 * MINUTE, cores=9.0).wait(10 * MINUTE, cores=0.05, **IDLE).wait(60, cores=9.0, **BUSY)
    assert run.verdicts[-1].reason.endswith("nothing written, and no step since, although its GPUs are busy")
    run = Watched().train(30 * MINUTE, cores=9.0).wait(60 * MINUTE, cores=9.0, **BUSY)
    assert run.verdicts[-1].state == "stalled"
    assert re.search(r", limit \w+, although ", run.verdicts[-1].reason), run.verdicts[-1].reason


def test_pauses_that_come_again_and_again_are_told_sooner_than_a_second_one() -> None:
    limits = []
    for pauses in (1, 4):
        run = Watched()
        for _ in range(pauses):
            run.train(15 * MINUTE).wait(4.5 * MINUTE)
        limits.append(run.train(15 * MINUTE).wait(5 * MINUTE).verdicts[-1].limit_seconds or 0.0)
    assert limits[0] > 1.2 * limits[1] > 1.2 * 4.5 * MINUTE


def test_a_log_that_was_rotated_is_no_restart() -> None:
    run = Watched(log_size=50_000).train(30 * MINUTE)
    run.look(step=None, log_size=0, **BUSY)
    assert run.train(20 * MINUTE, log_size=2_000).verdicts[-1].since == run.looks[0].timestamp
    assert run.states == {"running", "unknown"} or run.states == {"running"}


# ---------------------------------------------------------------- heartbeats, empty bars, suspended processes


def test_an_early_hang_with_a_heartbeat_is_found_soon() -> None:
    run, size = Watched(), 1000
    run.train(90, cores=1.5, log_size=size, gpu_utilization=None, gpu_power_fraction=None)
    hung = len(run.verdicts)
    for _ in range(12):
        size += 90
        run.look(cores=0.01, log_size=size, heartbeat=True)
    limits = [each.limit_seconds or 0.0 for each in run.verdicts[hung + 3 :]]
    assert limits == sorted(limits, reverse=True) and run.verdicts[-1].state == "stalled"
    assert "only lines without a step were logged" in run.verdicts[-1].reason
    sure = [each.confidence for each in run.verdicts[hung:] if each.state == "running"]
    assert "high" not in sure[3:]


def test_a_log_that_grows_by_news_without_a_step_is_unknown() -> None:
    run, size = Watched().train(30 * MINUTE, cores=2.0), 1000
    for _ in range(120):
        size += 900
        run.look(cores=0.05, log_size=size, heartbeat=False, **IDLE)
    assert "stalled" not in run.states
    assert run.verdicts[-1].state == "unknown" and "its log is growing" in run.verdicts[-1].reason


def test_an_empty_bar_is_no_step() -> None:
    run = Watched(total_steps=1000).wait(20 * MINUTE, step=0, cores=0.05, **IDLE)
    assert run.states == {"starting"}
    assert run.wait(20 * MINUTE, step=0, cores=0.05, **IDLE).verdicts[-1].state == "stalled"


def test_no_limit_exceeds_a_day() -> None:
    run = Watched(12 * 3600.0)
    for _ in range(6):
        run.step += 1
        run.look(step_interval=5 * 86_400.0)
    assert run.look().limit_seconds == 86_400.0


def test_what_waits_for_a_processor_computes_and_gets_more_time() -> None:
    run = Watched().train(30 * MINUTE, cores=2.0, delay_seconds=0.0)
    for minute in range(60):
        verdict = run.look(60.0, cores=0.2, delay_seconds=60.0 * minute, **IDLE)
    assert run.states == {"running"} and (verdict.limit_seconds or 0.0) > 2 * 3600
    run = Watched().train(30 * MINUTE, cores=2.0, delay_seconds=0.0)
    for number in range(20):
        run.look(cores=0.11, delay_seconds=0.8 * 30 * number, **IDLE)
    assert run.states == {"running"}


def test_a_start_up_that_computes_is_given_most_of_an_hour() -> None:
    assert Watched().wait(50 * MINUTE, step=None, cores=2.0, **IDLE).states == {"starting"}


def test_a_suspended_process_is_named_and_never_a_hang() -> None:
    run = Watched().train(30 * MINUTE, cores=2.0).wait(3600, cores=0.0, suspended=(17,), **IDLE)
    assert run.verdicts[-1].state == "suspended" and run.verdicts[-1].remedies == ("kill -CONT 17",)
    assert {each.recommendation for each in run.verdicts} == {"continue", "alert"}
    assert "stalled" not in run.wait(90, cores=1.0, **IDLE).states


# ---------------------------------------------------------------- slowness


def test_a_run_that_is_slow_for_good_stays_slow() -> None:
    run = Watched(60.0).train(20 * MINUTE).train(6 * 3600, pace=1 / 3)
    found = next(at for at, each in enumerate(run.verdicts) if each.state == "slow")
    assert found < 20 + 12 and {each.state for each in run.verdicts[found:]} == {"slow"}
    assert run.verdicts[found].verdict == "warning"
    assert run.train(20 * MINUTE).verdicts[-1].state == "running"


def test_a_run_slow_from_the_start_is_compared_with_its_log() -> None:
    run = Watched(step_time=1.0).train(15 * MINUTE, pace=0.3)
    assert run.verdicts[-1].state == "slow"
    assert Watched(step_time=1.0).train(15 * MINUTE, pace=0.9).states <= {"running", "unknown"}


def test_an_eta_that_does_not_converge_is_a_signal_of_its_own() -> None:
    run = Watched(30 * MINUTE, total_steps=4000)
    for step, eta in ((3000, 7200.0), (3200, 7100.0), (3400, 7200.0), (3500, 7500.0)):
        run.step = step
        verdict = run.look(eta_seconds=eta)
    assert (verdict.state, verdict.verdict, verdict.recommendation) == ("slow", "warning", "alert")
    assert verdict.stall and verdict.stall.kind == "slow"
    told = "ETA not converging: stayed at ~2h over the last 90 minutes despite 500 steps"
    assert verdict.reason == f"step 3500 of 4000: {told}"


def test_the_readings_of_an_eta_count_on_the_time_that_the_machine_was_awake() -> None:
    """It was suspended for four hours since, so that the run began four hours later on its own time."""
    readings = ((0.0, 3000, 7200.0), (1800.0, 3200, 7100.0), (3600.0, 3400, 7200.0), (19_800.0, 3500, 7500.0))
    seen = [
        Observation(START + at, step, 4000, eta, boot="b", awake_seconds=9000.0 + min(at, 5400.0))
        for at, step, eta in readings
    ]
    verdict = judge(seen, now=START + 19_800.0)
    assert verdict.stall and verdict.stall.kind == "slow", verdict.reason
    assert "over the last 90 minutes despite 500 steps" in verdict.reason


def test_a_flat_eta_is_told_within_the_hour() -> None:
    run, left = Watched(60.0, total_steps=20_000), 12_000.0
    run.step = 8000
    for _ in range(20):
        run.train(60, pace=2.0, eta_seconds=left / 2.0)
        left -= 120
    flat = left / 2.0
    for _ in range(50):
        pace = left / flat
        left -= pace * 60
        if run.train(60, pace=pace, eta_seconds=flat).verdicts[-1].state == "slow":
            break
    assert run.verdicts[-1].stall and run.verdicts[-1].stall.kind == "slow"
    run = Watched(60.0, total_steps=20_000)
    for minute in range(120):
        run.train(60, pace=2.0, eta_seconds=10_000.0 - 60 * minute)
    assert run.states == {"running"}, "an ETA that falls with the clock is none"


# ---------------------------------------------------------------- ends


PARTIAL: Any = {"status": JobStatus.SUCCEEDED, "is_running": False, "step": 40, "total_steps": 200}


def test_an_ended_training_says_how_it_ended(subtests: pytest.Subtests) -> None:
    for seen, state, verdict, reason in [
        ({"status": JobStatus.SUCCEEDED}, "finished", "ok", "finished"),
        ({"step": 200, "total_steps": 200, "is_running": False}, "finished", "ok", "finished at step 200 of 200"),
        ({"step": 190, "finished": True}, "finished", "ok", "finished at step 190"),
        (
            {"step": 190, "finished": True, "failure": CUDA},
            "finished",
            "warning",
            f"; its log ends with: {CUDA.evidence}",
        ),
        (
            {"step": 190, "finished": True, "failure": CUDA, "exit_code": 0, "is_running": False},
            "finished",
            "ok",
            "190",
        ),
        ({"status": JobStatus.STOPPED, "step": 7}, "stopped", "warning", "stopped at step 7"),
        ({"status": JobStatus.PENDING, "message": "no GPU is free"}, "starting", "unknown", "no GPU is free"),
        ({"status": JobStatus.PENDING, "resume": "scontrol release 7"}, "starting", "unknown", "it is held"),
        ({"status": JobStatus.PENDING, "is_stuck": True}, "starting", "failed", "it cannot start"),
        ({"status": JobStatus.FAILED, "message": "exit code 3"}, "failed", "failed", "failed: exit code 3"),
        ({"step": 40, "total_steps": 200, "is_running": False, "failure": CUDA}, "failed", "failed", CUDA.evidence),
        ({"step": 40, "failure": CUDA, "log_age": 700.0}, "failed", "failed", CUDA.evidence),
        ({"step": 40, "total_steps": 200, "is_running": False}, "failed", "failed", "failed at step 40 of 200 without"),
        ({"step": 40, "is_running": False}, "unknown", "unknown", "it ended, and no log shows whether it succeeded"),
        ({**PARTIAL, "failure": CUDA}, "unknown", "unknown", f"step 40 of 200; its log ends with: {CUDA.evidence}"),
        ({**PARTIAL, "failure": CUDA, "message": CUDA.evidence}, "unknown", "unknown", f"of 200: {CUDA.evidence}"),
        ({**PARTIAL, "failure": replace(CUDA, action="monitor")}, "finished", "ok", "finished at step 40 of 200"),
        ({**PARTIAL, "step": 200, "failure": CUDA}, "finished", "ok", "finished at step 200 of 200"),
    ]:
        with subtests.test(seen=seen, state=state, verdict=verdict, reason=reason):
            found = one(**seen)
            assert (found.state, found.verdict) == (state, verdict) and reason in found.reason
            assert state not in ENDS or found.reason.startswith(state)  # what shows it need not add the state


def test_a_death_without_a_word_names_what_speaks_for_memory() -> None:
    dead = Observation(START + 60, 40, 200, is_running=False, oom_kills=3)
    told = "failed at step 40 of 200 without a message, probably killed because memory ran out (oom_kill count rose)"
    alive = replace(dead, timestamp=START, is_running=True, oom_kills=2)
    assert judge([alive, dead], now=START + 60).reason == told
    unsure = "message, probably killed; the kernel has killed 3 processes there for lack of memory, at an unknown time"
    assert judge([dead], now=START + 60).reason.endswith(unsure)
    earlier = replace(alive, oom_kills=3)
    assert "memory" not in judge([earlier, dead], now=START + 60).reason
    killed = replace(dead, oom_kills=None, exit_code=137)
    assert "probably killed because memory ran out (exit code 137)" in judge([killed], now=START + 60).reason


def test_what_nobody_looked_at_and_a_status_nobody_heard_of_are_unknown() -> None:
    assert judge([], now=START) is NOBODY_LOOKED and NOBODY_LOOKED.verdict == "unknown"
    assert one(status=JobStatus.UNKNOWN, message="HIBERNATING").verdict == "unknown"
    assert one(status="HIBERNATING").verdict == "unknown"


# ---------------------------------------------------------------- findings beside


def test_gpu_errors_are_told_beside_what_else_was_found() -> None:
    lost = ("GPU 3 fell off the bus",)
    run = Watched().train(10 * MINUTE, gpu_errors=lost)
    assert run.verdicts[-1].verdict == "warning" and run.verdicts[-1].reason.startswith("GPU 3 fell off the bus; ")
    run.wait(20 * MINUTE, gpu_errors=lost, **SPINNING)
    assert run.verdicts[-1].state == "stalled" and run.verdicts[-1].reason.endswith("; GPU 3 fell off the bus")
    assert "collective" in run.verdicts[-1].reason


def test_a_loss_that_is_no_number_is_a_failure_of_a_running_training() -> None:
    verdict = Watched(loss=float("nan")).train(10 * MINUTE).verdicts[-1]
    assert (verdict.state, verdict.verdict) == ("running", "failed") and "nan" in verdict.reason
    assert "lower the learning rate" in verdict.remedies[-1]


def test_a_start_is_ok_only_while_something_shows_that_it_works() -> None:
    assert one(runtime=120.0, is_running=True).verdict == "unknown"
    assert one(runtime=120.0, is_running=True, cpu_cores=3.0).verdict == "ok"
    run = Watched(60.0, step=None, is_running=True)
    run.wait(40 * MINUTE, cores=0.01, **IDLE)
    assert run.verdicts[-1].state == "stalled" and run.verdicts[-1].reason.startswith("no step after")


def test_a_failed_start_is_over_with_a_step_and_not_because_gpus_flicker() -> None:
    run = Watched(poll=60.0, step=None)
    run.wait(61 * MINUTE, cores=4.0, compilers=3)
    run.wait(12 * MINUTE, cores=4.0, compilers=3, **BUSY)
    assert {each.state for each in run.verdicts[-12:]} == {"stalled"}
    assert run.look(step=1, cores=4.0, **BUSY).state == "running"


def test_all_steps_done_and_still_running_is_worth_a_word_after_a_while() -> None:
    run = Watched(total_steps=600, is_running=True).train(10 * MINUTE).wait(10 * MINUTE, **IDLE)
    assert run.verdicts[-1].verdict == "ok"
    assert run.wait(40 * MINUTE, **IDLE).verdicts[-1].verdict == "warning"


def test_the_first_look_at_another_process_counts_a_step_that_this_one_made() -> None:
    def seen(at: float, step: int, process: str, **more: Any) -> Observation:
        return Observation(at, step, total_steps=9000, process=process, is_running=True, **more)

    before = [seen(1000.0 + 30 * n, 880 + n, "1 1 b", runtime=100.0 + 30 * n) for n in range(5)]
    own = seen(2000.0, 32, "2 2 b", runtime=6.4, step_age=0.0, step_interval=0.2)
    assert judge([*before, own], now=2000.0).reason.startswith("step 32 of 9000")
    loading = seen(2000.0, 910, "2 2 b", runtime=6.4, step_age=300.0)
    assert judge([*before, loading], now=2000.0).state == "starting"
    ended = replace(before[-1], timestamp=1500.0, is_running=False)
    for last, step, age, state in (  # ages are in whole seconds: 1 s may be less than the 0.6 s since its start
        (ended, 885, 1.0, "running"),
        (ended, 884, 1.0, "starting"),
        (ended, 885, 4.0, "starting"),
        (before[-1], 885, 1.0, "starting"),
    ):
        begun = seen(2000.0, step, "2 2 b", runtime=0.6, step_age=age, log_age=age)
        assert judge([*before, last, begun], now=2000.0).state == state, (step, age)


def test_a_second_start_that_hangs_at_the_same_step_of_a_new_log_is_not_starting() -> None:
    before = Observation(1000.0, 40, total_steps=500, process="1 1 b", is_running=True, runtime=50.0, log_size=900)
    hung = replace(before, timestamp=2000.0, runtime=600.0, log_age=590.0, cpu_cores=0.0, write_rate=0.0)
    again = replace(hung, process="2 2 b")
    assert judge([before, again], now=2000.0).state == "stalled"
    for other in ({"log_size": 950}, {"log_age": 620.0}):  # the new process appended, or is silent
        assert judge([before, replace(again, **other)], now=2000.0).state == "starting"


@pytest.mark.parametrize(
    "signs", [{"cpu_cores": 0.0, "write_rate": 0.0}, {"gpu_utilization": 100.0, "gpu_power_fraction": 0.2}]
)
def test_a_silence_that_may_be_a_hang_is_unknown_until_it_was_watched_for_a_minute(signs: dict[str, float]) -> None:
    seen = Observation(2000.0, 40, total_steps=500, is_running=True, runtime=400.0, step_age=192.0, step_interval=0.2)
    looks = [replace(seen, timestamp=at, step_age=at - 1808.0, **signs) for at in (2000.0, 2030.0, 2065.0, 2066.0)]
    assert judge([replace(looks[0], step_age=100.0)], now=2000.0).verdict == "ok"
    for some in (looks[:1], looks[:2]):
        verdict = judge(some, now=3000.0)
        assert verdict.verdict == "unknown" and "watched for less than a minute" in verdict.reason
        assert verdict.remedies == ("check again in 1m",)
    assert judge(looks, now=3000.0).state == "stalled"
    works = replace(seen, cpu_cores=1.0, write_rate=0.0, gpu_utilization=80.0, gpu_power_fraction=0.9)
    assert judge([works], now=3000.0).verdict == "ok"


def test_a_log_that_no_process_has_open_is_unknown_after_half_a_minute() -> None:
    seen = Observation(2000.0, 59, total_steps=1000, processes=0, log_age=20.0, step_age=20.0)
    assert judge([seen], now=2000.0).state == "running"
    verdict = judge([replace(seen, log_age=40.0, step_age=40.0)], now=2000.0)
    assert verdict.verdict == "unknown" and "none of its processes is visible" in verdict.reason
    assert "it has ended, since no process there has its log open" in verdict.remedies[0]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ("100%|####| 90/90 [00:09<00:00, 9.8it/s]\n", "unknown"),  # it may be of the data, before the training
        ("Training: 100%|####| 90/90 [00:09<00:00, 9.8it/s]\n", "finished"),
        ("step 89/90\nstep 90/90\n", "finished"),
        ("100%|####| 90/90 [00:09<00:00, 9.8it/s, loss=0.5]\n", "finished"),
        ("{'loss': 0.5, 'epoch': 1.0}\n100%|####| 90/90 [00:09<00:00, 9.8it/s]\n", "finished"),
    ],
)
def test_a_full_bar_in_a_log_alone_ends_a_training_only_if_something_shows_one(lines: str, state: str) -> None:
    shown = parse_progress(lines)
    full = Observation(2000.0, shown.step, shown.total_steps, finished=shown.finished, processes=0, log_age=900.0)
    assert full.step == full.total_steps == 90
    assert judge([full], now=2000.0).state == state
    assert judge([replace(full, processes=1), full], now=2000.0).state == "finished"


@pytest.mark.parametrize("line", ["clocks throttled: HW thermal slowdown active", "GPU 1: 2 correctable ECC errors"])
def test_a_warning_about_the_hardware_is_no_end_of_a_log_that_no_process_has_open(line: str) -> None:
    seen = Observation(2000.0, 59, total_steps=1000, processes=0, log_age=3.0, step_age=3.0)
    assert judge([replace(seen, failure=classify_failure(line))], now=2000.0).state == "running"
    broken = classify_failure(f"{line}\nRuntimeError: CUDA error: uncorrectable ECC error encountered")
    assert judge([replace(seen, failure=broken)], now=2000.0).state == "failed"


@pytest.mark.parametrize(
    "cause", ["disk quota exceeded", "tracker: connection refused", "upload got a 503 server error"]
)
def test_a_warning_at_the_end_of_a_fresh_log_ends_a_training_only_when_it_stays(cause: str) -> None:
    seen = Observation(2000.0, 59, total_steps=1000, processes=0, log_age=3.0, step_age=3.0)
    for prefix, age, state in [("WARNING: ", 3.0, "running"), ("WARNING: ", 2000.0, "failed"), ("", 3.0, "failed")]:
        failure = classify_failure(f"step 59/1000 loss 1.5\n{prefix}{cause}")
        assert judge([replace(seen, log_age=age, step_age=age, failure=failure)], now=2000.0).state == state
    dead = replace(seen, failure=classify_failure(f"warn: {cause}"), is_running=False)
    assert judge([dead], now=2000.0).state == "failed"


@pytest.mark.parametrize(("interval", "age", "state"), [(0.3, 4, "running"), (0.3, 6, "failed"), (2.0, 15, "running")])
def test_a_training_whose_processes_are_gone_has_failed_soon(interval: float, age: float, state: str) -> None:
    seen = Observation(2000.0, 59, total_steps=1000, processes=2, log_age=0.0, step_interval=interval)
    gone = replace(seen, timestamp=2000.0 + age, processes=0, log_age=age, step_age=age)
    assert judge([seen, gone], now=2000.0 + age).state == state


def test_a_log_without_a_step_or_a_total_whose_processes_are_not_there_does_not_run() -> None:
    silent = Observation(2000.0, None, processes=0, log_age=40.0)
    assert "no step: its log has not changed for 40s" in judge([silent], now=2000.0).reason
    endless = Observation(2000.0, 59, processes=1, log_age=0.0, step_interval=0.3)
    gone = replace(endless, timestamp=2010.0, processes=0, log_age=10.0, step_age=10.0)
    assert judge([gone], now=2010.0).state == "running"
    assert judge([replace(gone, log_age=40.0)], now=2040.0).state == "unknown"
    assert judge([endless, gone], now=2010.0).reason == "it ended, and no log shows whether it succeeded"


def test_a_log_that_no_process_keeps_open_is_judged_by_its_growth() -> None:
    """Its writer opens it for each line, and was caught once; or it is seen from another host, without steps."""
    some = [Observation(10.0 * at, 30 * at, total_steps=9000, processes=0, log_age=0.2) for at in range(20)]
    caught = replace(some[5], processes=1, step_interval=0.3)
    pause = replace(some[-1], timestamp=198.0, log_age=8.0, step_age=8.0, step_interval=0.3)
    assert judge([*some[:5], caught, *some[6:], pause], now=198.0).state == "running"
    sizes = [Observation(60.0 * at, None, epoch=at, log_size=900 * at, processes=0, log_age=45.0) for at in range(1, 9)]
    assert judge(sizes, now=480.0).state == "running"


def test_a_training_whose_step_moved_between_two_looks_has_not_failed() -> None:
    """Its log may name an error that it survived, while a machine that is not seen from here writes it."""
    failure = Failure("cuda_oom", "user", "stop", "CUDA out of memory")
    first = Observation(0.0, 10, total_steps=100, processes=0, failure=failure, log_age=1.0)
    seen = [first, replace(first, timestamp=30.0, step=20)]
    assert judge(seen, now=30.0).state != "failed"
    assert judge([*seen, replace(seen[-1], timestamp=60.0, log_age=31.0)], now=60.0).state == "failed"


def test_a_failure_comes_with_advice() -> None:
    failure = classify_failure("ZeroDivisionError: division by zero", exit_code=1)
    verdict = judge([Observation(0.0, 5, is_running=False, exit_code=1, failure=failure)], now=1.0)
    assert verdict.remedies == (failure.advice,) != ("",)


# ---------------------------------------------------------------- without output


def unseen(now: float, **seen: Any) -> Observation:
    return Observation(now, None, is_running=True, runtime=now, processes=2, unseen_output=True, **seen)


def test_a_training_whose_output_nobody_can_read_is_judged_by_its_work_alone() -> None:
    computing = [unseen(30.0 * at, cpu_seconds=25.0 * at, cpu_cores=0.9, written_bytes=0) for at in range(1, 200)]
    for looks in (computing[:1], computing[:5], computing):
        verdict = judge(looks, now=looks[-1].timestamp)
        assert (verdict.state, verdict.verdict, verdict.confidence) == ("running", "ok", "low"), verdict.reason
        assert "its output cannot be read" in verdict.reason and verdict.seconds_without_step is None
    idle = judge([unseen(9000.0, cpu_seconds=25.0, cpu_cores=0.0, written_bytes=0)], now=9000.0)
    assert idle.state == idle.verdict == "unknown" and "a single check does not show" in idle.reason


def test_without_work_it_is_stalled_after_the_quiet_limit_and_never_for_sure() -> None:
    works = [unseen(30.0 * at, cpu_seconds=25.0 * at, cpu_cores=0.9, written_bytes=0) for at in range(1, 20)]
    last, states = works[-1], []
    for at in range(1, 12):
        works.append(unseen(last.timestamp + 30.0 * at, cpu_seconds=last.cpu_seconds, cpu_cores=0.0, written_bytes=0))
        verdict = judge(works, now=works[-1].timestamp)
        states.append(verdict.state)
        assert not verdict.stall or not verdict.stall.is_stalling  # nothing is ended for that
    assert "stalled" not in states[:4] and set(states[4:]) == {"stalled"}, states
    assert (verdict.confidence, verdict.recommendation) == ("low", "alert")


def test_a_few_bytes_again_and_again_may_be_the_lines_of_an_output_that_is_thrown_away() -> None:
    looks = [unseen(30.0 * at, cpu_seconds=25.0, cpu_cores=0.1, written_bytes=40 * at) for at in range(1, 40)]
    verdict = judge(looks, now=looks[-1].timestamp)
    assert (verdict.state, verdict.verdict) == ("unknown", "unknown") and "a few bytes" in verdict.reason
    assert "redirect its output" in verdict.remedies[0]
    for at in range(40, 55):  # and now nothing
        looks.append(replace(looks[-1], timestamp=30.0 * at, runtime=30.0 * at))
    assert judge(looks, now=looks[-1].timestamp).state == "stalled"
    works = [unseen(300.0 * at, cpu_seconds=270.0 * at, cpu_cores=0.9, written_bytes=40 * at) for at in range(1, 10)]
    hangs = [replace(works[-1], timestamp=300.0 * at, runtime=300.0 * at, cpu_cores=0.0) for at in range(10, 14)]
    assert judge([*works, *hangs], now=hangs[-1].timestamp).state == "stalled"  # whatever it wrote before


def behind_a_bar(cores: float, **seen: Any) -> Verdict:
    """Steps for ten minutes, and then two hours of which the log shows none."""
    always: dict[str, Any] = {"is_running": True, "cpu_cores": cores, "written_bytes": 0, "processes": 1, **seen}
    looks = [
        Observation(30.0 * at, min(at, 20), log_age=max(0, 30 * (at - 20)), cpu_seconds=30.0 * cores * at, **always)
        for at in range(1, 260)
    ]
    return judge(looks, now=looks[-1].timestamp)


def test_a_buffered_bar_is_no_stall_while_processes_work() -> None:
    verdict = behind_a_bar(0.9, bar_held=True)
    assert (verdict.state, verdict.verdict) == ("unknown", "unknown") and "progress bar" in verdict.reason
    assert "mininterval" in verdict.remedies[0] and verdict.stall and not verdict.stall.is_stalling
    assert behind_a_bar(0.9).state == "stalled", "a log that has each line when it ends"
    assert behind_a_bar(0.0, bar_held=True).state == "stalled", "nothing works"


# ---------------------------------------------------------------- renewed by the newest look alone


RUNNING: dict[str, Any] = {"total_steps": 1000, "loss": 2.0, "log_age": 1.0, "is_running": True, "process": "7 1 b"}


def renewed(watched: Watched, seconds: float = 30.0, **seen: Any) -> Verdict | None:
    """What the next look alone says: five further steps in 30 s, unless it has `seen` something else."""
    before = watched.looks[-1]
    last = replace(before, **{"timestamp": before.timestamp + seconds, "step": (before.step or 0) + 5, **seen})
    return renew(watched.verdicts[-1], analyze_loss(watched.looks), before, last)


def test_renew_returns_the_verdict_of_judge_when_a_training_makes_steps() -> None:
    watched = Watched(**RUNNING).train(1800, pace=1 / 6)
    found = renewed(watched)
    whole = watched.train(30, pace=1 / 6).verdicts[-1]
    assert found and found.stall and whole.stall and whole.state == "running"
    said = ("state", "verdict", "reason", "confidence", "recommendation", "seconds_without_step", "limit_seconds")
    assert [getattr(found, each) for each in said] == [getattr(whole, each) for each in said]
    assert (found.stall.current_step, found.stall.is_stalling) == (watched.looks[-1].step, False)


@pytest.mark.parametrize(
    "seen",
    [
        {"step": None},
        {"step": 300},  # no new one
        {"step": 303},  # fewer than usual
        {"step": 1000},  # the last one
        {"step": 10},
        {"total_steps": 2000},
        {"loss": float("nan")},
        {"loss": float("inf")},
        {"loss": 2.6},  # may be a spike
        {"log_age": 200.0},
        {"step_age": 200.0},
        {"is_running": False},
        {"is_running": None},
        {"status": JobStatus.FAILED},
        {"exit_code": 1},
        {"failure": CUDA},
        {"finished": True},
        {"message": "evicted"},
        {"resume": "continue it"},
        {"process": "8 1 b"},
        {"boot": "c"},
        {"phase": "evaluation"},
        {"suspended": (7,)},
        {"gpu_errors": ("GPU 0: lost",)},
        {"oom_kills": 1},
        {"unseen_output": True},
        {"bar_held": True},
    ],
)
def test_renew_leaves_a_look_to_judge_when_anything_but_the_step_is_new(seen: dict[str, Any]) -> None:
    watched = Watched(**RUNNING).train(1800, pace=1 / 6)
    assert watched.looks[-1].step == 300 and renewed(watched) and renewed(watched, **seen) is None


def test_renew_leaves_to_judge_what_does_not_simply_run() -> None:
    watched = Watched(**RUNNING).train(1800, pace=1 / 6)
    nan = replace(watched.looks[-1], timestamp=watched.now + 30.0, step=305, loss=float("nan"))
    watched.looks.append(nan)
    watched.verdicts.append(judge(watched.looks, now=nan.timestamp))
    assert watched.verdicts[-1].verdict == "failed" and renewed(watched, loss=2.0) is None
    for young in (Watched(**RUNNING).train(30), Watched(**RUNNING).wait(600)):
        assert renewed(young) is None
    stalled = Watched(**RUNNING).train(1800, pace=1 / 6).wait(3600, **IDLE)
    assert stalled.verdicts[-1].state == "stalled" and renewed(stalled) is None


def test_renewed_verdicts_find_a_slowdown_at_the_same_look() -> None:
    watched = Watched(**{**RUNNING, "total_steps": 10**6})
    kept, loss, judged_at, states = NOBODY_LOOKED, analyze_loss([]), 0.0, list[str]()
    for pace in (*[1.0] * 120, *[0.5] * 60):
        watched.train(30, pace=pace)
        seen, now = watched.looks, watched.now
        found = renew(kept, loss, seen[-2], seen[-1]) if now - judged_at < 120.0 else None
        if found is None:
            found, loss, judged_at = watched.verdicts[-1], analyze_loss(seen), now
        kept = found
        states.append(kept.state)
    assert states == [each.state for each in watched.verdicts] and {"running", "slow"} <= {*states}
