"""What a watcher adds up: each line once, starts, epochs, and all of it kept as JSON at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import EPOCH
from training_monitor.core.models import Checkpoint, JobStatus, JobView, LogCursor, NewLog, Progress
from training_monitor.core.records import format_record, read_record
from training_monitor.core.values import Observation, TrainingStatus
from training_monitor.jobs.process_jobs import ProcessView
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.training_log import parse_progress
from training_monitor.look.evidence import Evidence
from training_monitor.look.looks import Look
from training_monitor.supervision.watch_state import Told, WatchState
from training_monitor.targets.proc_stat import Identity
from training_monitor.verdict.limits import WatchConfig

CONFIG = WatchConfig(poll_interval=60)


def process(pid: int = 100, start: int = 1, age: float | None = 60.0) -> ProcessView:
    return ProcessView(True, Identity(pid, start, boot_id="b"), age, (pid,))


def running(**more: Any) -> Look:
    return Look(**({"process": process()} | more))


class Watched:
    """A state that is fed; with `kept` it goes through JSON before everything that happens to it."""

    def __init__(self, *, kept: bool = False) -> None:
        self.state, self.kept, self.now, self.offset = WatchState(), kept, EPOCH, 0

    def again(self) -> None:
        if self.kept:
            looks = self.state.looks  # which the store keeps in a place of their own
            self.state = read_record(WatchState, format_record(self.state))
            self.state.looks = looks

    def write(self, text: str, partial: str = "", inode: int = 7, **more: Any) -> list[tuple[str, Progress]]:
        self.again()
        self.offset += len(text)
        return self.state.take_log(NewLog(text, LogCursor(self.offset, inode, "c"), partial=partial, **more))

    def tail(self, text: str) -> list[str]:
        self.again()
        return [line for line, _ in self.state.take_log(NewLog("", None, missing=True), text)]

    def look(self, look: Look | None = None, after: float = 60) -> TrainingStatus:
        self.again()
        self.now += after
        return self.state.with_log(self.state.take_look(look or running(), self.now, CONFIG))


def eventful(watched: Watched) -> Iterator[TrainingStatus]:
    """Steps, a loss that is NaN, a warning, half lines, a hang on idle GPUs, a restart, and an unknown."""
    step = 0
    for _ in range(20):
        step += 3
        watched.write(f"step {step}/900 loss 0.{step}\nWARNING: odd\n", partial=f"step {step + 1}/9")
        yield watched.look(running(gpu_utilization=95.0, gpu_power=0.8))
    watched.write("step 62/900 loss nan\n")
    for _ in range(12):
        yield watched.look(running(gpu_utilization=0.0, gpu_power=0.1))
    watched.write("step 1/900 loss 2.5\n", reset="rotated", inode=8)
    yield watched.look(running(process=process(101, 2), checkpoints=(Checkpoint("/c/step_61", 61, 5, True, age=9.0),)))
    yield watched.look(Look(process=ProcessView(None, reason="no such file"), errors=("gpu: no answer",)))


def test_state_survives_json_at_every_moment() -> None:
    watched, plain = Watched(), list[TrainingStatus]()
    watched.state.alerts = Told(episode=3)
    for status in eventful(watched):
        plain.append(status)
        text = format_record(watched.state)
        assert format_record(read_record(WatchState, text)) == text
    assert read_record(WatchState, text).alerts == Told(episode=3)
    kept = list(eventful(Watched(kept=True)))
    assert repr(kept) == repr(plain)  # NaN is not equal to itself
    kinds = {each.stall.kind for each in plain}
    assert {each.loss.kind for each in plain if each.loss} >= {None, "nan"} and "hang_idle" in kinds
    assert plain[-1].generation > 0 and plain[-1].totals["warnings"] == ["WARNING: odd"]


def test_the_state_stays_small_whatever_is_written() -> None:
    watched = Watched()
    for _ in range(730):
        watched.look()
    watched.write("step 1/9999 loss 0.5\n" * 2000, partial="y" * 500_000)
    assert len(format_record(watched.state)) < 400_000 and 360 <= len(watched.state.looks.all()) <= 720


# ---------------------------------------------------------------- lines


def test_every_line_counts_once_with_the_progress_up_to_it() -> None:
    watched = Watched()
    lines = watched.write("step 1/9 loss 3\nstep 2/9 loss 2\n")
    assert [(line, progress.step) for line, progress in lines] == [("step 1/9 loss 3", 1), ("step 2/9 loss 2", 2)]
    assert watched.write("") == []
    assert [line for line, _ in watched.write("step 3/9 loss 1\n")] == ["step 3/9 loss 1"]
    assert [each["loss"] for each in watched.state.totals.as_dict()["loss_history"]] == [3, 2, 1]


def test_an_open_line_counts_when_it_ends_and_is_seen_before() -> None:
    watched = Watched()
    watched.write("step 1/9\n", partial="step 2/9")
    assert watched.look().progress.step == 2
    assert watched.state.totals.progress.step == 1
    assert [line for line, _ in watched.write("step 2/9\n")] == ["step 2/9"]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\n\n\r"])
def test_a_line_ends_with_either_sign_and_empty_ones_are_none(end: str) -> None:
    lines = Watched().write(f"step 1/9{end}step 2/9{end}")
    assert [line for line, _ in lines] == ["step 1/9", "step 2/9"]


OLD = "".join(f"step {number}/999 loss 0.5\n" for number in range(1, 200))


def test_without_a_cursor_each_line_counts_once_and_half_a_line_is_none() -> None:
    watched = Watched(kept=True)
    assert watched.tail("") == [] and watched.look().progress == Progress()
    assert watched.tail(f"{OLD}step 2")[-1] == "step 199/999 loss 0.5"
    assert watched.tail(f"{OLD}step 200/999\nst") == ["step 200/999"]
    assert watched.tail(f"{OLD}step 200/999\n") == []
    assert watched.tail(f"{OLD[1000:]}step 200/999\nstep 201/999\n") == ["step 201/999"]
    assert watched.tail("step 900/999\nstep 901/999\n") == ["step 900/999", "step 901/999"]


def test_the_recent_output_is_the_last_hundred_lines_with_the_open_one() -> None:
    watched = Watched()
    watched.write("".join(f"line {number}\n" for number in range(300)), partial="open")
    shown = watched.look().recent_output.split("\n")
    assert len(shown) == 100 and shown[-2:] == ["line 299", "open"]


def test_another_process_is_another_generation_and_the_same_or_an_unknown_one_is_not() -> None:
    watched = Watched()
    assert [watched.look(running(process=process(age=age))).generation for age in (1.0, 2.0, None)] == [0, 0, 0]
    assert watched.look(Look(process=ProcessView(None, reason="no such file"))).generation == 0
    assert watched.look().generation == 0
    assert watched.look(running(process=process(start=2))).generation == 1
    assert [watched.look(running(process=process(101, 3))).generation for _ in range(2)] == [2, 2]


def test_a_falling_step_is_another_generation_once() -> None:
    watched = Watched()
    said = []
    for step in (1, 50, 51, 10, 11, 12, 60):
        watched.write(f"step {step}/100\n")
        said.append(watched.look().generation)
    assert said == [0, 0, 0, 1, 1, 1, 1]


def test_a_log_that_counts_within_epochs_only_is_added_up_over_them() -> None:
    watched = Watched(kept=True)
    said = []
    for epoch, step in ((1, 10), (1, 90), (2, 10), (2, 90), (3, 5)):
        text = f"Epoch {epoch}/3:  {step}%|###   | {step}/100 [00:{step:02d}<00:10,  1.00it/s]\n"
        assert parse_progress(text).epoch_step == step and parse_progress(text).step is None
        watched.write(text)
        said.append(watched.look().stall.current_step or watched.state.looks.all()[-1].step)
    assert said == sorted(set(said)) and watched.state.generation == 0


def test_an_unfinished_line_is_read_by_what_the_log_has_shown() -> None:
    watched = Watched(kept=True)
    first = "".join(f"Step {step}/1000 loss 0.5\n" for step in range(100, 1001, 100))
    watched.write(f"Epoch 1/3\n{first}Epoch 2/3\nStep 100/1000 loss 0.4\n" + "working\n" * 500)
    watched.write("", partial="Step 500/1000 loss 0.4")
    status = watched.look()
    assert (status.step, job_progress(status.progress).total_steps, status.generation) == (1500, 3000, 0)


def test_epochs_of_unknown_length_are_not_counted_twice() -> None:
    watched = Watched(kept=True)
    said = []
    for epoch in range(3):
        for step in (10, 20, 30):
            drawn = f"Epoch {epoch}: : {step}it [00:10,  3.2it/s, v_num=0]"
            watched.write(f"{drawn}\n", partial=f"Epoch {epoch}: : {step + 1}it [00:10,  3.2it/s, v_num=0]")
            said.append(watched.look().step)
    assert said == [10, 20, 30, 40, 50, 60, 70, 80, 90] and watched.state.generation == 0


# ---------------------------------------------------------------- looks


def test_a_clock_that_goes_back_adds_no_look_and_an_unknown_job_is_not_ended() -> None:
    watched = Watched()
    watched.look()
    watched.look(after=-3600)
    assert len(watched.state.looks.all()) == 1
    status = Watched().look(Look(view=JobView("j", JobStatus.UNKNOWN)))
    assert status.is_running is None and status.status is JobStatus.UNKNOWN


def test_the_run_time_is_that_of_the_process_or_since_the_start_of_the_job() -> None:
    watched = Watched()
    assert watched.look(running(process=process(age=33.0))).runtime == 33.0
    view = JobView("j", JobStatus.RUNNING, started_at=watched.now - 40)
    assert watched.look(Look(view=view)).runtime == 100.0
    assert watched.look(Look(view=JobView("j", JobStatus.RUNNING))).runtime is None
    was_set = Look(view=replace(view, age=9e9), evidence=Evidence(runtime=60.0))  # the clock of the target
    assert watched.look(was_set).runtime == 60.0


def test_switched_off_detection_and_ended_runs_are_not_judged() -> None:
    watched = Watched()
    list(eventful(watched))
    off = watched.state.judge(watched.now, WatchConfig(stall_detection=False))
    watched.state.is_running = False
    gone = watched.state.judge(watched.now, CONFIG)
    assert off.state not in ("stalled", "slow")
    assert "switched off" not in gone.reason


def test_a_run_that_does_not_end_after_all_steps_is_only_reported() -> None:
    watched = Watched()
    state, config = watched.state, WatchConfig(stall_after=60)
    for minute in range(12):
        state.looks.add(Observation(EPOCH + 60.0 * minute, min(minute, 4), 4, is_running=True))
    found = state.judge(EPOCH + 60 * 11, config)
    assert (found.verdict, found.confidence, found.recommendation) == ("warning", "low", "alert")
    assert found.reason == "it finished its last step 7m ago but is still running"


# ---------------------------------------------------------------- judged rarely


def test_verdicts_hold_between_judgements_and_restarts_are_judged() -> None:
    watched = Watched()
    watched.write("step 5/99 loss 0.5\n")
    for _ in range(5):  # 50 s
        watched.now += 10
        watched.state.take_look(running(), watched.now, CONFIG, judge_every=30)
    assert [each.timestamp - EPOCH for each in watched.state.looks.all()] == [10, 40]
    watched.write("step 1/99 loss 0.5\n")
    watched.now += 1
    status = watched.state.take_look(running(), watched.now, CONFIG, judge_every=30)
    assert (status.generation, len(watched.state.looks.all()), status.progress.step) == (1, 3, 1)


def test_only_new_steps_renew_a_verdict_without_a_judgement_by_all_looks() -> None:
    watched, judged = Watched(), list[float]()
    for number in range(1, 41):
        watched.write(f"step {10 * number}/9999 loss {'nan' if number == 38 else '0.5'}\n")
        watched.now += 30
        status = watched.state.take_look(running(), watched.now, CONFIG, judge_every=30, renew_for=120)
        assert status.stall.current_step == 10 * number and status.verdict
        assert (status.verdict.verdict == "failed") is (number == 38)
        if watched.state.judged_at == watched.now:
            judged.append(number)
    assert judged == [1, 2, *range(6, 38, 4), 38, 39] and len(watched.state.looks.all()) == 40


def test_what_another_command_has_just_seen_is_judged_with_the_first_look() -> None:
    watched = Watched()
    watched.write("step 5/99 loss 0.5\n")
    watched.state.looks.add(Observation(EPOCH, 4, 99, is_running=True))
    watched.now += 10
    status = watched.state.take_look(running(), watched.now, CONFIG, judge_every=30)
    assert status.verdict and (status.verdict.state, status.verdict.reason[:7]) == ("running", "step 5 ")


def test_a_clock_that_is_set_back_does_not_end_the_judging() -> None:
    watched = Watched()
    watched.look()
    watched.now -= 7200
    watched.state.take_look(Look(process=ProcessView(False, reason="gone")), watched.now, CONFIG, judge_every=30)
    assert watched.state.verdict.reason == "it ended, and no log shows whether it succeeded"
