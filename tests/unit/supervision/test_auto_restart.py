"""auto_restart against a target in memory: when it restarts, from where, how often, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, Behaviour, FakeClock, FakeJobs, FakeTransport
from training_monitor.core.errors import AlreadySupervised, JobNotFound, SettingsError
from training_monitor.core.models import Event
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store
from training_monitor.jobs.stopping import stop_job
from training_monitor.supervision.restart import auto_restart
from training_monitor.verdict.restart import RestartPolicy

COMMAND = {"command": "python train.py", "env": {"SEED": "1"}}
CRASH = Behaviour(crash_after=120)
HANG = Behaviour(hang_after=120)
GOOD = Behaviour()


class Bench:
    """auto_restart with a target, a clock and a store of its own, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "state")
        self.clock = FakeClock()
        self.jobs = FakeJobs(self.clock)
        self.transport = FakeTransport(self.jobs.answer)
        self.events: list[Event] = []
        self._acts: dict[str, Callable[[], None]] = {}

    def restart(self, **changes: Any) -> RestartReport:
        options: dict[str, Any] = {
            "head_pod": "local",
            "job_name": "run",
            "job_config": COMMAND,
            "on_event": self._hear,
        }
        options |= {"store": Store(self.folder), "transport": self.transport, "clock": self.clock}
        options |= changes
        limits = {each.name: options.pop(each.name) for each in fields(RestartPolicy) if each.name in options}
        report = auto_restart(checkpoint_dir="/checkpoints", policy=RestartPolicy(**limits), **options)
        assert report["outcome"] == report["reason"].partition(":")[0]  # whatever came of it
        return report

    def on(self, kind: str, act: Callable[[], None]) -> None:
        """Call `act` at the first event of a kind."""
        self._acts[kind] = act

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._acts.pop(event.kind, lambda: None)()

    def die_waiting(self, **changes: Any) -> None:
        """Restart, until the supervisor is interrupted as it tells of the first wait."""

        def die() -> None:
            raise KeyboardInterrupt

        self.on("waiting", die)
        with pytest.raises(KeyboardInterrupt):
            self.restart(**changes)

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]

    def resumed_from(self) -> list[str | None]:
        return [job.env.get("RESUME_FROM_CHECKPOINT") for job in self.jobs.starts]


# ---------------------------------------------------------------- how often


@pytest.mark.parametrize("slow_starts", [0, 1])
def test_a_job_that_succeeds_the_first_time_is_never_restarted(bench: Bench, slow_starts: int) -> None:
    bench.jobs.slow_starts = slow_starts  # a process that appears late is watched and not doubled
    report = bench.restart()
    assert (report["success"], report["reason"], report["total_retries"]) == (True, "completed", 0)
    assert report["final_step"] == 300 and report["job_id"] == "process:run-attempt-1"
    [job] = bench.jobs.starts
    assert (job.name, job.command, job.env) == ("run-attempt-1", "python train.py", {"SEED": "1"})


def test_each_look_reports_the_speed_that_was_seen(bench: Bench) -> None:
    bench.restart()
    seen = [event.view.progress for event in bench.events if event.kind == "progress" and event.view]
    speeds = [each.steps_per_second for each in seen if each.step]
    assert speeds[0] is None and set(speeds[1:]) == {1.0}


def test_each_of_three_restarts_uses_the_newest_checkpoint(bench: Bench) -> None:
    crash = Behaviour(total=600, crash_after=120)
    bench.jobs.behaviours = [crash, crash, crash, Behaviour(total=600)]
    report = bench.restart()
    assert (report["success"], report["total_retries"], report["final_step"]) == (True, 3, 600)
    steps = ["100", "200", "300"]
    assert bench.resumed_from() == [None, *(f"/checkpoints/step_{step}" for step in steps)]
    assert [job.name for job in bench.jobs.starts] == [f"run-attempt-{number}" for number in (1, 2, 3, 4)]
    assert [each["steps_lost"] for each in report["attempts"]] == [20, 20, 20, None]
    assert [each["status"] for each in report["attempts"]] == ["FAILED", "FAILED", "FAILED", "SUCCEEDED"]


def ever_other_failures(crash_after: float = 60) -> list[Behaviour]:
    """Attempts that come equally far, and die of something else each time."""
    words = [f"RuntimeError: the {letter * 4} is gone" for letter in "abcdefghijkl"]
    return [Behaviour(total=10_000, save_every=None, crash_after=crash_after, last_words=each) for each in words]


@pytest.mark.parametrize(("given", "allowed"), [({"max_retries": 0}, 0), ({"max_retries": 1}, 1), ({}, 10)])
def test_max_retries_is_exactly_the_number_of_restarts_without_progress(
    bench: Bench, given: dict[str, int], allowed: int
) -> None:
    bench.jobs.behaviours = ever_other_failures()
    report = bench.restart(**given)
    assert (report["success"], report["total_retries"]) == (False, allowed)
    assert report["reason"].startswith(f"max_retries_reached: {allowed} restart")
    assert " without progress; last failure: " in report["reason"]
    assert len(bench.jobs.starts) == len(report["attempts"]) == allowed + 1


def test_a_job_that_comes_further_each_time_is_restarted_for_ever(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=1000, crash_after=60)]
    report = bench.restart(max_retries=2)
    assert report["success"] and report["total_retries"] == 19
    assert [each["progress"] for each in report["attempts"]] == [True] * 19 + [None]


def test_the_same_failure_three_times_at_the_same_step_is_the_end(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=1000, save_every=None, crash_after=60, last_words="RuntimeError: odd")]
    report = bench.restart()
    assert (report["success"], len(bench.jobs.starts)) == (False, 4)  # the first of them made progress
    assert report["reason"] == "max_retries_reached: failed 3 times without progress: runtime_error (RuntimeError: odd)"
    assert report["attempts"][0]["failure"] == report["attempts"][3]["failure"]


def test_a_checkpoint_that_failed_to_load_twice_is_passed_over(bench: Bench) -> None:
    bench.jobs.checkpoints = {50: None, 100: None}
    words = "RuntimeError: PytorchStreamReader failed reading zip archive"
    bench.jobs.behaviours = [*[Behaviour(quiet=True, crash_after=0.5, last_words=words)] * 2, GOOD]
    assert bench.restart()["success"]
    assert bench.resumed_from() == ["/checkpoints/step_100"] * 2 + ["/checkpoints/step_50"]
    assert "loading it failed twice" in bench.said("refused")[0]


def test_a_checkpoint_is_suspect_after_three_deaths_before_a_first_step(bench: Bench) -> None:
    dies = Behaviour(crash_after=0.5, exit_code=139, last_words="Segmentation fault")
    bench.jobs.behaviours = [CRASH, *[dies] * 3, GOOD]
    assert bench.restart()["success"]
    assert bench.resumed_from() == [None, *["/checkpoints/step_100"] * 3, "/checkpoints/step_50"]


def test_crashes_after_steps_never_go_back_behind_the_newest_checkpoint(bench: Bench) -> None:
    bench.jobs.checkpoints = {50: None, 100: None}
    words = [f"RuntimeError: the {letter * 4} is gone" for letter in "abcdefghi"]
    bench.jobs.behaviours = [*(Behaviour(save_every=None, crash_after=40, last_words=each) for each in words), GOOD]
    assert bench.restart()["success"]
    assert bench.resumed_from() == ["/checkpoints/step_100"] * 10


def test_the_delay_before_a_restart_doubles_up_to_its_cap(bench: Bench) -> None:
    bench.jobs.behaviours = ever_other_failures(20)
    bench.restart(max_retries=6, retry_delay=60, max_delay=500)
    told = [text.rpartition(" in ")[2] for text in bench.said("waiting")]
    assert told == ["1m", "2m", "4m", "8m", "8m20s", "8m20s"]
    starts = [job.started for job in bench.jobs.starts]
    gaps = [after - before - 30 for before, after in zip(starts, starts[1:])]  # it was looked at after 30 s
    assert gaps == [60, 120, 240, 480, 500, 500]


def test_a_refused_start_counts_as_a_restart(bench: Bench) -> None:
    bench.jobs.refuse_starts = "the working directory /nowhere does not exist"
    report = bench.restart(max_retries=2)
    assert (report["success"], report["total_retries"], bench.jobs.starts) == (False, 2, [])
    assert report["reason"].startswith("max_retries_reached: ")
    why = "the job could not be started: the working directory /nowhere does not exist"
    assert report["attempts"][-1]["reason"] == why
    assert bench.said("waiting")[0].startswith(f"not_started ({why}): restarting it")


# ---------------------------------------------------------------- how it ended


def test_a_job_that_a_person_stopped_stays_stopped(bench: Bench) -> None:
    bench.clock.at(100, bench.jobs.stop_by_person)
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (False, 0)
    assert report["reason"] == "stopped: stopped by a person"
    assert len(bench.jobs.starts) == 1


@pytest.mark.parametrize("after", [125, 149, 178])
def test_a_person_who_stops_an_ended_job_prevents_the_next_start(bench: Bench, after: float) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    job_id = "process:run-attempt-1"
    bench.clock.at(after, lambda: stop_job("local", job_id, transport=bench.transport, clock=bench.clock))
    report = bench.restart(retry_delay=60)
    assert report["reason"] == "stopped: by a person, after process:run-attempt-1 had ended"
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (False, 0, 1)
    assert report["attempts"][0]["status"] == "FAILED"
    assert bench.restart()["success"] and len(bench.jobs.starts) == 2  # asked for again, on purpose


def test_a_stop_while_the_supervisor_is_dead_is_found_by_the_next_one(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.die_waiting()
    stop_job("local", "process:run-attempt-1", transport=bench.transport, clock=bench.clock)
    assert bench.restart()["reason"].startswith("stopped: by a person") and len(bench.jobs.starts) == 1


@pytest.mark.parametrize(
    ("exit_code", "words", "reason"),
    [
        (1, "ModuleNotFoundError: No module named 'torchh'", "missing_module (ModuleNotFound"),
        (127, "sh: 1: pyhton: not found", "command_not_found (exit code 127: command not found)"),
    ],
)
def test_an_error_of_the_users_own_before_any_step_is_not_tried_again(
    bench: Bench, exit_code: int, words: str, reason: str
) -> None:
    bench.jobs.behaviours = [Behaviour(crash_after=0.5, exit_code=exit_code, last_words=words)]
    report = bench.restart()
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (False, 0, 1)
    assert report["reason"].startswith(f"restart_failed: {reason}")
    assert words in (report["attempts"][0]["reason"] or "")


def test_a_command_that_made_steps_is_retried_when_not_found(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, Behaviour(crash_after=0.5, exit_code=127), GOOD]
    assert bench.restart()["total_retries"] == 2


def test_a_silent_job_is_alive_as_long_as_it_writes_checkpoints(bench: Bench) -> None:
    quiet = {"total": 3000, "save_every": 200, "quiet": True}
    bench.jobs.behaviours = [Behaviour(**quiet, hang_after=1000), Behaviour(**quiet)]
    report = bench.restart(stagnation_threshold=70)  # 4 times 70 s before the first step
    assert report["success"] and [each["status"] for each in report["attempts"]] == ["STALLED", "SUCCEEDED"]
    assert 1200 <= (bench.jobs.starts[0].stopped_at or 0) - bench.jobs.starts[0].started <= 1300


GPU_ROW = "{0}, GPU-{0}, NVIDIA H100, {1}, 40, 60000, 81559, {2}, 700.00, 60, Disabled\n"


@pytest.mark.parametrize(
    ("used", "watts", "least", "reason"),
    [
        (97, 600, 1200, "its GPUs are busy"),
        (0, 70, 560, "GPUs idle"),
        (100, 120, 300, "GPUs report full utilization at idle power"),
    ],
    ids=["at work", "idle", "waiting in a collective"],
)
def test_a_silent_job_whose_gpus_work_is_given_four_times_as_long(
    bench: Bench, used: int, watts: int, least: int, reason: str
) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    bench.jobs.gpus = GPU_ROW.format(0, used, watts) + "-- processes --\n"
    report = bench.restart(stagnation_threshold=300)
    silent = (bench.jobs.starts[0].stopped_at or 0) - bench.jobs.starts[0].started - 120
    assert least <= silent <= least + 60
    assert reason in (report["attempts"][0]["reason"] or "")


def test_a_checkpoint_from_the_future_is_no_progress_for_ever(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    bench.jobs.checkpoints, bench.jobs.saved_at = {50: None}, {50: EPOCH + 1e7}
    assert bench.restart()["attempts"][0]["status"] == "STALLED"


def test_a_checkpoint_that_is_still_being_written_is_progress(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=200, hang_after=100, save_every=None), GOOD]
    bench.jobs.checkpoints = {150: "truncated"}
    for minute in range(10):  # it grows for ten minutes, then no more
        bench.clock.at(100 + 60 * minute, lambda now=100 + 60 * minute: bench.jobs.saved_at.update({150: EPOCH + now}))
    bench.restart(stagnation_threshold=120, fresh_start=True)
    silent = (bench.jobs.starts[0].stopped_at or 0) - bench.jobs.starts[0].started - 100
    assert 540 + 120 <= silent <= 540 + 120 + 60


def test_going_on_with_another_command_says_so(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.die_waiting()
    bench.restart(job_config=COMMAND | {"command": "python other.py"})
    [text] = bench.said("resumed")
    assert "0 restarts so far, now watching; its changed configuration" in text
    assert bench.jobs.starts[1].command == "python other.py"


def test_a_job_that_makes_steps_again_during_the_roll_call_is_not_stopped(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=2000, hang_after=120)]
    bench.on("explained", lambda: bench.jobs.jobs["run-attempt-1"].go_on(bench.clock.time()))
    report = bench.restart()
    assert (report["reason"], report["total_retries"], len(bench.jobs.starts)) == ("completed", 0, 1)
    assert report["explanation"] is None and bench.said("stopped") == []
    assert "no longer stalls, so it is not stopped" in bench.said("detected")[-1]


@pytest.mark.parametrize("what", ["FAILED", "LOST", "waits again"])
def test_a_job_that_ends_or_waits_again_during_the_roll_call_is_not_stopped(bench: Bench, what: str) -> None:
    bench.jobs.behaviours, look, until = [HANG, GOOD], bench.jobs._look, list[float]()

    def waiting(given: dict[str, str]) -> str:
        is_over = not until or bench.clock.elapsed >= until[0]
        return look(given) if is_over else "state=starting\nnow=1\nstarted=1\nmembers=1\nlog\n"

    def change() -> None:
        job = bench.jobs.starts[0]
        if what == "FAILED":
            job.behaviour = replace(HANG, crash_after=bench.jobs.now - job.started)
        elif what == "LOST":
            bench.jobs.lose_everything()
        else:
            until.append(bench.clock.elapsed + 20)
            bench.clock.at(until[0], lambda: job.go_on(bench.clock.time()))

    bench.jobs._look = waiting  # type: ignore[method-assign]
    bench.on("explained", change)
    first, *others = bench.restart()["attempts"]
    assert (first["status"], len(others)) == (("SUCCEEDED", 0) if what == "waits again" else (what, 1))
    assert not any("SIGTERM" in text for text in bench.said("stopping"))


def test_a_stalled_job_is_stopped_and_seen_gone_before_the_next_start(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]  # FakeJobs refuses a start beside anything that is left
    report = bench.restart(stagnation_threshold=300)
    assert (report["success"], report["total_retries"]) == (True, 1)
    first, second = report["attempts"]
    assert first["status"] == "STALLED" and first["reason"] == "no step for 5m35s, limit 5m20s"
    stopped = bench.jobs.starts[0]
    assert bench.jobs.held == {}, "the supervisor's own stop is no hold"
    assert stopped.stopped_by == "supervisor" and 440 <= (stopped.stopped_at or 0.0) - stopped.started <= 440 + 30
    assert second["checkpoint"] == "/checkpoints/step_100"
    kinds = [event.kind for event in bench.events if event.kind != "progress"]
    assert kinds[:5] == ["started", "detected", "stopping", "explained", "stopping"]
    assert kinds[5:] == ["stopped", "waiting", "started", "finished"]
    assert first["explanation"] and "unknown" in first["explanation"]


def test_a_job_that_survives_a_stop_is_stopped_again(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(hang_after=120, unkillable=3), GOOD]
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert bench.jobs.starts[0].stop_tries == 4
    assert sum("SIGKILL did not terminate pid 4242 D" in text for text in bench.said("detected")) == 3


def test_an_unkillable_job_ends_supervision_without_a_second_job(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(hang_after=120, unkillable=10_000)]
    report = bench.restart()
    assert not report["success"] and report["reason"].startswith("restart_failed: the job could not be stopped:")
    assert len(bench.jobs.starts) == 1


@pytest.mark.parametrize(("ends", "reason"), [("stopped", "stopped: stopped by a person"), ("finished", "completed")])
def test_a_job_that_ends_while_its_stop_is_tried_has_ended_so(bench: Bench, ends: str, reason: str) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    bench.on("detected", lambda: bench.jobs.unreachable(bench.clock.elapsed, bench.clock.elapsed + 100))
    finish = lambda: bench.jobs.starts[0].finish(bench.jobs.now)  # noqa: E731
    bench.clock.at(500, bench.jobs.stop_by_person if ends == "stopped" else finish)
    report = bench.restart()
    assert (report["success"], report["reason"], len(bench.jobs.starts)) == (ends == "finished", reason, 1)


def test_leftovers_of_a_dead_job_are_ended_before_the_next_start(bench: Bench) -> None:
    bench.jobs.add("run-attempt-1", Behaviour(crash_after=10, survivors=2), started=-60)  # a job from before
    crash = Behaviour(crash_after=120, exit_code=137, last_words="CUDA out of memory", survivors=3)
    bench.jobs.behaviours = [crash, GOOD]
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-2", "run-attempt-3"]
    said = bench.said("detected")
    assert "terminating 3 remaining processes of process:run-attempt-2" in said
    assert any("exit code 137 (SIGKILL)" in text and "CUDA out of memory" in text for text in said)
    assert report["attempts"][0]["status"] == "FAILED"
    assert "exit code 137" in (report["attempts"][0]["reason"] or "")


# ---------------------------------------------------------------- from where


def test_a_damaged_newest_checkpoint_is_refused_by_name_and_an_older_one_used(bench: Bench) -> None:
    bench.jobs.checkpoints = {50: None, 100: "truncated: 10 of 1000 bytes"}
    report = bench.restart()
    assert bench.resumed_from() == ["/checkpoints/step_50"]
    [text] = bench.said("refused")
    assert "/checkpoints/step_100" in text and "truncated: 10 of 1000 bytes" in text
    assert report["attempts"][0]["refused_checkpoints"][0].startswith("/checkpoints/step_100: ")


def test_only_with_fresh_start_does_it_start_from_zero_beside_damaged_checkpoints(bench: Bench) -> None:
    bench.jobs.checkpoints = {50: "truncated", 100: "truncated"}
    report = bench.restart()
    assert not report["success"] and report["reason"].startswith("no_checkpoint_found: none of 2 checkpoints")
    assert bench.jobs.starts == [] and len(bench.said("refused")) == 2
    assert bench.restart(fresh_start=True)["success"] and bench.resumed_from() == [None]
    [text] = bench.said("started")
    assert "from the start" in text and "no checkpoint to resume" not in text


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_job_that_had_checkpoints_does_not_restart_at_zero_without_them(bench: Bench, is_resumed: bool) -> None:
    if is_resumed:
        bench.jobs.checkpoints = {50: None}
        bench.clock.at(120, bench.jobs.checkpoints.clear)
    bench.jobs.keep_checkpoints = False
    bench.jobs.behaviours = [Behaviour(crash_after=120, save_every=None if is_resumed else 50), GOOD]
    report = bench.restart()
    assert not report["success"] and len(bench.jobs.starts) == 1
    assert report["reason"] == "no_checkpoint_found: the job wrote checkpoints earlier, but none is left"


def test_a_job_that_never_wrote_a_checkpoint_starts_from_zero_and_says_so(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(save_every=None, crash_after=120), Behaviour(save_every=None)]
    report = bench.restart()
    assert report["success"] and bench.resumed_from() == [None, None]
    assert all("from the start: no checkpoint to resume from" in text for text in bench.said("started"))
    assert report["attempts"][0]["steps_lost"] == 120


# ---------------------------------------------------------------- what is there already


@pytest.mark.parametrize(
    ("there", "adopted"),
    [
        ({"run-attempt-3": Behaviour(total=200)}, "run-attempt-3"),
        ({"run-attempt-1": Behaviour(total=200), "run-attempt-2": Behaviour(crash_after=5)}, "run-attempt-1"),
        ({f"run-attempt-{n}": Behaviour(crash_after=1) for n in range(1, 8)} | {"run": Behaviour(total=500)}, "run"),
    ],
    ids=["alone", "beside a later one that has failed", "behind many that ended"],
)
def test_a_running_job_of_the_name_is_adopted_and_not_doubled(
    bench: Bench, there: dict[str, Behaviour], adopted: str
) -> None:
    for number, (name, does) in enumerate(there.items()):
        bench.jobs.add(name, does, started=-60 + number)
    report = bench.restart()
    assert report["success"] and bench.jobs.starts == [] and report["job_id"] == f"process:{adopted}"
    assert len(bench.said("adopted")) == 1


def test_an_adopted_job_that_fails_gets_a_new_id_and_another_is_left_alone(bench: Bench) -> None:
    other = bench.jobs.add("other-run-attempt-1", Behaviour(total=10_000))
    bench.jobs.add("run-attempt-3", Behaviour(crash_after=120), started=-60)
    report = bench.restart()
    assert report["success"] and report["total_retries"] == 1 and other.stopped_at is None
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-4"]
    assert bench.resumed_from() == ["/checkpoints/step_100"]


def test_an_attempt_started_by_another_is_adopted(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.on("waiting", lambda: add_attempt(bench))
    report = bench.restart()
    assert (report["success"], report["job_id"]) == (True, "process:run-attempt-2") and len(bench.jobs.starts) == 1


def add_attempt(bench: Bench) -> None:
    bench.jobs.add("run-attempt-2", Behaviour(total=900), started=bench.clock.elapsed)


def test_initial_job_id_is_supervised_from_where_it_is(bench: Bench) -> None:
    bench.jobs.add("by-hand", Behaviour(crash_after=120), started=-60)
    report = bench.restart(initial_job_id="process:by-hand")
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert [each["job_id"] for each in report["attempts"]] == ["process:by-hand", "process:run-attempt-2"]


def test_an_initial_job_id_that_is_not_there_and_a_second_supervisor_are_refused(bench: Bench) -> None:
    with pytest.raises(JobNotFound, match="process:nowhere"):
        bench.restart(initial_job_id="process:nowhere")
    bench.transport.asked.clear()
    with Store(bench.folder).hold("local run"), pytest.raises(AlreadySupervised, match="local run"):
        bench.restart()
    assert bench.jobs.starts == [] and bench.transport.asked == []


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: -1} for name in ("max_retries", "retry_delay", "stagnation_threshold", "check_interval")),
        {"check_interval": float("nan")},
        *({"job_config": given} for given in ({}, {"command": ""}, {"command": "a", "entrypoint": "b"})),
        *({"job_config": COMMAND | {"env": env}} for env in (["X"], {"NOT-A-NAME": "1"})),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named_before_anything_is_started(bench: Bench, wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        bench.restart(**wrong)
    assert bench.jobs.starts == []


@pytest.mark.parametrize("name", ["", "a b", "../a", "-a", "a/b", "x" * 101])
def test_a_name_that_cannot_be_a_folder_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(SettingsError, match="job_name"):
        bench.restart(job_name=name)


def test_values_that_may_be_secret_are_not_saved_and_come_with_the_same_call(bench: Bench) -> None:
    config = {**COMMAND, "env": {"HF_TOKEN": "canary-of-the-hub", "EPOCHS": "3"}}
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.die_waiting(job_config=config)
    files = [path.read_bytes() for path in Path(bench.folder).rglob("*") if path.is_file()]
    assert files and not [each for each in files if b"canary-of-the-hub" in each]
    with pytest.raises(SettingsError, match="HF_TOKEN again, because secrets are not stored"):
        bench.restart(job_config=None)
    report = bench.restart(job_config=config)
    assert report["success"] and [job.env["HF_TOKEN"] for job in bench.jobs.starts] == ["canary-of-the-hub"] * 2
    assert [job.env["EPOCHS"] for job in bench.jobs.starts] == ["3", "3"]
    assert not [text for text in bench.said("resumed") if "changed configuration" in text]
