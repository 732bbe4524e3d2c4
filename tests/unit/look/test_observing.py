"""One look at a job as the judge sees it: what is not known stays so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakeTransport
from training_monitor.core.errors import CommandError, CommandTimedOut
from training_monitor.core.models import Answer, Checkpoint, Gpu, JobStatus, JobView, NewLog, Progress
from training_monitor.core.results import CommandResult, PodState
from training_monitor.core.values import Observation, WatchedJob
from training_monitor.jobs.process_jobs import ProcessView
from training_monitor.logs.pace import read_log_pace
from training_monitor.logs.training_log import parse_progress
from training_monitor.look.check import check_training
from training_monitor.look.evidence import Evidence
from training_monitor.look.kept_looks import Looks
from training_monitor.look.looks import Look, observation_of, read_watch, view_of_ended
from training_monitor.targets.proc_stat import Identity
from training_monitor.verdict.judge import judge
from training_monitor.verdict.stall import stall_policy

NOW = 1_750_000_000.0


def observe_job(view: JobView, now: float, **seen: Any) -> Observation:
    return observation_of(Look(view, **seen), view.progress, view.log_tail, now, first=True)


@pytest.mark.parametrize("printed", ["", " 4.00 it/s", " time 10.02s", " 10.02s/it"])
def test_the_times_in_a_log_outrank_the_speed_that_it_prints(printed: str) -> None:
    lines = (f"2026-11-22 10:{each:02d}:00 step {60 * each}/6000 loss 1.5{printed}\n" for each in range(30))
    text = "".join(lines)
    look = Look(log=NewLog(text, None))
    seen = observation_of(look, look.read_progress(), text, NOW, first=True)
    assert seen.steps_per_second == seen.logged_speed == pytest.approx(1.0) and seen.eta_seconds == pytest.approx(
        6000 - 29 * 60
    )


def test_what_the_job_its_gpus_and_its_checkpoints_show_is_put_together() -> None:
    progress = Progress(5, 100, 2.0, 3, 0.5, eta_seconds=60.0, eta_scope="job", epochs_done=1.5)
    view = JobView("j", JobStatus.RUNNING, "pid 7", None, progress, 500, 12.0, "step 5/100", started_at=NOW - 90)
    gpus = (Gpu(0, utilization=0.0), Gpu(1, utilization=97.0, power_draw_watts=350.0, power_limit_watts=700.0))
    seen = observe_job(
        view, NOW, gpus=(*gpus, Gpu(2, error="GPU is lost")), checkpoints=(saved(300.0), saved(None), saved(60.0))
    )
    assert (seen.step, seen.total_steps, seen.epoch, seen.loss, seen.eta_seconds) == (5, 100, 1.5, 0.5, 60.0)
    assert (seen.gpu_utilization, seen.gpu_power_fraction, seen.gpu_errors) == (97.0, 0.5, ("GPU 2: GPU is lost",))
    assert (seen.log_size, seen.log_age, seen.runtime, seen.file_age) == (500, 12.0, 90.0, 60.0)
    assert (seen.status, seen.is_running, seen.message, seen.failure) == (JobStatus.RUNNING, True, "pid 7", None)


def saved(age: float | None) -> Checkpoint:
    return Checkpoint("/c/step_5", 5, 100, True, age=age)


def test_a_step_is_as_old_as_the_log_only_where_it_was_written_last() -> None:
    for tail, age in [
        ("step 4/100\nstep 5/100\n", 12.0),
        ("step 4/100\rstep 5/100", 12.0),
        ("step 5/100\nevaluating\n", None),
        ("step 5/100\nheartbeat: alive\n", None),
        ("", None),
    ]:
        view = JobView("j", JobStatus.RUNNING, progress=Progress(step=5), log_age=12.0, log_tail=tail)
        assert observe_job(view, NOW).step_age == age
    view = JobView("j", JobStatus.RUNNING, progress=Progress(eta_seconds=9.0, eta_scope="epoch"))
    assert observe_job(view, NOW).eta_seconds is None
    assert observe_job(JobView("j", JobStatus.UNKNOWN), NOW) == Observation(NOW, None)


def test_the_age_of_a_container_log_is_by_the_clock_of_its_node() -> None:
    job, new = WatchedJob(log_file="container:"), NewLog("step 5/100\n", None, age=7200.0, wrote_at=NOW)
    for clock, age in [(NOW + 30, 30.0), (NOW - 30, 0.0), (NOW - 900, None), (None, 7200.0)]:
        answers = [Answer("gpu", None), Answer("evidence", Evidence(clock=clock)), Answer("log", new)]
        look = read_watch(job, [*answers, Answer("process", None)], with_log=True)
        assert look.log and look.log.age == age


def test_a_bar_is_held_back_where_its_log_comes_by_lines() -> None:
    def is_held(text: str, **of_log: Any) -> bool:
        return observation_of(Look(log=NewLog("", None, **of_log)), Progress(), text, NOW, first=False).bar_held

    assert is_held("loading\n 5%|#  | 5/100\r 6%|#  | 6/100", by_lines=True)
    assert not is_held("loading\n 5%|#  | 5/100\r 6%|#  | 6/100")
    assert not is_held(" 5%|#  | 5/100\rstep 6\nstep 7\n", by_lines=True) and not is_held("", by_lines=True)


def test_what_an_earlier_process_wrote_is_no_silence_of_the_present_one() -> None:
    text = "step 39/900 loss 0.5\nstep 40/900 loss 0.5\n"
    for age, changed, runtime, state in [
        (3600.0, 3600.0, 20.0, "starting"),
        (3600.0, 3600.0, 3600.0, "stalled"),
        (3600.0, 15.0, 20.0, "stalled"),  # its own log, whose time was set back
        (3600.0, None, 20.0, "stalled"),
        (3.0, 3.0, 20.0, "running"),
    ]:
        look = Look(
            process=ProcessView(True),
            log=NewLog(text, None, age=age, changed=changed),
            evidence=Evidence(processes=1, runtime=runtime, cpu_seconds=1.0),
        )
        seen = observation_of(look, look.read_progress(), text, NOW, first=True)
        assert judge((seen,), now=NOW).state == state, (age, changed, runtime)


def test_a_job_that_failed_says_why() -> None:
    view = JobView("j", JobStatus.FAILED, "exit code 1", 1, log_tail="RuntimeError: CUDA out of memory\n")
    seen = observe_job(view, NOW)
    assert seen.failure and "out of memory" in seen.failure.evidence and seen.is_running is False
    silent = observe_job(JobView("j", JobStatus.FAILED, "exit code 3", 3), NOW).failure
    assert silent and (silent.category, silent.evidence) == ("unknown", "exit code 3")
    told = "runtime_env setup failed | ERROR: Could not find a version that satisfies the requirement nolib==7"
    for log, category in (
        ("", "environment"),
        ("step 3 loss 2.0\n", "environment"),
        ("KeyError: 7\n", "python_exception"),
    ):
        failed = observe_job(JobView("j", JobStatus.FAILED, told, log_tail=log), NOW).failure
        assert failed and failed.category == category
    guess = "it was killed (SIGKILL, out of memory), or the machine rebooted"
    lost = observe_job(JobView("process:j", JobStatus.FAILED, guess), NOW).failure
    assert lost and lost.category == "unknown"
    pod = PodState("emfile-test", "Failed", False, 0, terminated="Error", exit_code=3)
    named = observe_job(view_of_ended(pod), NOW).failure
    assert named and named.category == "unknown"


def test_a_pod_that_completed_although_memory_ran_out_has_finished_only_if_its_log_says_so() -> None:
    pod = PodState("w", "Succeeded", False, 0, terminated="OOMKilled", exit_code=0)
    for log, state, category in [
        ("step 40/100 loss: 2.0\n", "unknown", "host_oom"),
        ("step 40/100 loss: 2.0\nKeyError: 'x'\n", "unknown", "python_exception"),
        ("step 100/100 loss: 2.0\n", "finished", None),
    ]:
        view = replace(view_of_ended(pod), log_tail=log, progress=parse_progress(log))
        verdict = judge([observe_job(view, NOW)], now=NOW)
        assert (verdict.state, verdict.failure and verdict.failure.category) == (state, category)


def test_a_job_of_which_nothing_is_known_is_not_called_starting_or_stalled() -> None:
    runs = JobView("j", JobStatus.RUNNING, None, None, parse_progress("step 5/100\n"), 500, 12.0, "step 5/100\n")
    lost = JobView("j", JobStatus.UNKNOWN, "Slurm reports REVOKED")
    for seen in [observe_job(lost, NOW)], [observe_job(runs, NOW - 7200), observe_job(lost, NOW)]:
        verdict = judge(seen, now=NOW)
        assert (verdict.state, verdict.reason) == ("unknown", "its state is unknown: Slurm reports REVOKED")
    refused = Look(None, log=NewLog("", None, missing=True), errors=("job 7 is not running",))
    verdict = judge([observation_of(refused, Progress(), "", NOW, first=True)], now=NOW)
    assert (verdict.state, verdict.reason) == ("unknown", "its state is unknown: job 7 is not running")


def test_waiting_for_a_start_is_not_part_of_the_start_up() -> None:
    looks, submitted = Looks(), NOW - 7200
    for ago in (600, 300):
        looks.add(observe_job(JobView("j", JobStatus.PENDING, started_at=submitted), NOW - ago))
        assert judge(looks.all(), now=NOW - ago).state == "starting"
    for later in (0, 30, 60):
        looks.add(observe_job(JobView("j", JobStatus.RUNNING, started_at=submitted, log_age=9.0), NOW + later))
        verdict = judge(looks.all(), now=NOW + later, policy=stall_policy(400))
        assert verdict.state == "starting" and (verdict.seconds_without_step or 0) <= 300 + later, verdict
    for later in (3600, 3660, 3720):
        looks.add(observe_job(JobView("j", JobStatus.RUNNING, started_at=submitted, log_age=3000.0), NOW + later))
    assert judge(looks.all(), now=NOW + 3720, policy=stall_policy(400)).state == "stalled"


def test_a_process_that_ended_is_no_end_of_a_job_that_a_scheduler_runs() -> None:
    gone = Answer("process", ProcessView(False, Identity(5, 1), reason="no process 5"))
    for output, is_running in (("output:", None), ("/a.log", False)):
        job = WatchedJob(log_file=output, pid=5, process="5 1 boot")
        look = read_watch(job, [Answer("gpu", None), Answer("evidence", None), gone], with_log=False)
        assert look.is_running is is_running


def test_output_that_a_scheduler_has_not_written_yet_does_not_make_its_job_missing() -> None:
    look = Look(log=NewLog("", None, missing=True))
    for output, missing in (("output:", None), ("container:", None), ("/a.log", "log /a.log")):
        assert look.missing(WatchedJob(log_file=output)) == missing


def test_a_job_that_ended_nobody_knows_how_does_not_run_and_is_not_stalled() -> None:
    over = view_of_ended(PodState("7", "Ended", False, 0, reason="COMPLETING", kind="job"))
    seen = observe_job(replace(over, log_age=7200.0), NOW)
    assert seen.is_running is False and judge((seen,), now=NOW).state == "unknown"


def test_a_log_without_years_is_measured_across_the_new_year() -> None:
    lines = ("Dec 31 23:59:40 gpu-1 train[7]: step 10", "Dec 31 23:59:50 gpu-1 train[7]: step 20")
    pace = read_log_pace("\n".join((*lines, "Jan 01 00:00:00 gpu-1 train[7]: step 30", "Jan 01 00:00:05 saved")))
    assert (pace.step_interval, pace.step_lag) == (10.0, 5.0)


def test_no_call_to_a_cluster_that_does_not_respond_outlasts_a_check() -> None:
    limits: list[float] = []

    class Silent(FakeTransport):
        """Nothing can be run in the pod, and whatever else kubectl is for takes for ever."""

        def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> CommandResult:
            if "exec" in argv:
                return CommandResult(tuple(argv), 1, "", "error: unable to upgrade connection: pod does not exist", 0.1)
            limits.append(timeout)
            raise CommandTimedOut(f"kubectl did not respond within {timeout:g} s", argv=tuple(argv))

    for target, timeout, most in [
        ("k8s://default/trainer", 8.0, 8.0),
        ("k8s://default/trainer", 600.0, 20.0),
        ("slurm://login/7", 8.0, 8.0),
    ]:
        limits.clear()
        with pytest.raises(CommandError):
            check_training(target, timeout=timeout, transport=Silent(lambda script: ("", 0)))
        assert limits and max(limits) <= most, (target, timeout)
