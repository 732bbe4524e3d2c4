"""What a supervised run reports of its time: phases are counted, and what no look saw is unknown."""

from __future__ import annotations

import pytest

from tests.fakes import Behaviour
from tests.unit.supervision.test_auto_restart import Bench
from training_monitor.cli.live import print_summary


def test_evaluations_are_counted(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=60, save_every=None, evaluates=(30, 150))]
    report = bench.restart(check_interval=10)
    assert report["badput"]["evaluation"] == pytest.approx(120, abs=10)
    assert report["goodput"] is not None and 0.2 < report["goodput"] < 0.4


def test_a_job_that_ended_between_two_looks_has_no_known_goodput(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=20, save_every=None)]
    report = bench.restart(check_interval=30)
    assert report["goodput"] is None and report["steps_lost"] == 0
    assert (report["badput"]["evaluation"], report["badput"]["checkpoint"]) == (None, None)


def test_an_adopted_job_that_has_finished_says_what_is_unknown(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.jobs.add("run-attempt-1", Behaviour(total=20), started=-500)
    report = bench.restart(initial_job_id="process:run-attempt-1")
    assert report["success"] and report["attempts"][0]["start_step"] is None
    assert (report["goodput"], report["steps_lost"], report["badput"]["startup"]) == (None, None, None)
    print_summary(report, "logs")
    said = capsys.readouterr().out
    assert "from an unknown step" in said and "from the start" not in said
    assert "an unknown number of steps lost, goodput unknown (not watched for long enough)" in said


def test_the_summary_numbers_attempts_as_their_jobs(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.jobs.add("run-attempt-3", Behaviour(total=20), started=-500)
    print_summary(bench.restart(initial_job_id="process:run-attempt-3"), "logs")
    assert "  attempt 3: SUCCEEDED" in capsys.readouterr().out


def test_a_hang_in_an_evaluation_is_a_hang(bench: Bench) -> None:
    bench.jobs.behaviours = [
        Behaviour(total=300, save_every=None, hang_after=100, evaluates=(100, 10_000)), Behaviour(total=300)
    ]  # fmt: skip
    report = bench.restart(check_interval=10, stagnation_threshold=60)
    assert report["attempts"][0]["status"] == "STALLED"
    evaluation, hang = report["badput"]["evaluation"], report["badput"]["hang"]
    assert evaluation == 0 and hang is not None and hang > 60
