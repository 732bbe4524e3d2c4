"""auto_restart when the target does not answer, when answers are lost, and when the supervisor itself is killed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import EPOCH, Behaviour
from tests.sweeps import cases_of
from tests.unit.killing import Killed, KillingStore, KillingTransport
from tests.unit.supervision.test_auto_restart import CRASH, GOOD, HANG, Bench
from training_monitor.core.errors import (
    CommandTimedOut,
    LeaseLost,
    LocalFailure,
    StateError,
    TargetUnreachable,
    TrainingMonitorError,
)
from training_monitor.core.models import SUPERVISOR
from training_monitor.core.reports import RestartReport
from training_monitor.core.results import CommandResult
from training_monitor.core.store import Store
from training_monitor.jobs.claims import Claiming
from training_monitor.jobs.stopping import stop_job

# ---------------------------------------------------------------- no answer


@pytest.mark.parametrize("error", [TargetUnreachable("connection refused"), CommandTimedOut("no answer within 30 s")])
def test_each_outage_restarts_nothing_and_is_reported_once(bench: Bench, error: TrainingMonitorError) -> None:
    bench.jobs.behaviours = [Behaviour(total=1200)]
    bench.jobs.unreachable(100, 700, error)
    bench.jobs.unreachable(800, 1000, error)
    report = bench.restart(stagnation_threshold=60)
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (True, 0, 1)
    lost, _ = bench.said("unreachable")
    assert str(error) in lost and "no action will be taken" in lost
    found, _ = bench.said("reached")
    assert found.endswith("responds again after 10m30s")  # from the last answer, at 90 s


class FullStore(Store):
    """A store on a disk that is full between two moments of the clock."""

    def __init__(self, bench: Bench, begin: float, end: float) -> None:
        super().__init__(bench.folder)
        self.is_full = lambda: begin <= bench.clock.elapsed < end

    def save_run(self, key: str, state: object, *, finished: bool) -> None:
        if self.is_full():
            raise StateError("the disk is full")
        super().save_run(key, state, finished=finished)


def test_a_job_that_fails_while_the_state_folder_is_full_is_restarted_later_and_told_once(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    report = bench.restart(store=FullStore(bench, 60, 1000))
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (True, 1, 2)
    assert bench.jobs.starts[1].started >= EPOCH + 1000  # nothing is started before it is written down
    full, failed = bench.said("detected")
    assert "the disk is full" in full and "failed: exit code 1" in failed
    assert len(bench.said("waiting")) == 1 and bench.said("unreachable") == bench.said("reached") == []


def test_the_roll_call_of_a_hang_is_told_also_while_the_state_folder_is_full(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    store = FullStore(bench, 1e9, 0.0)
    bench.on("stopping", lambda: setattr(store, "is_full", lambda: bench.clock.elapsed < 3000))
    report = bench.restart(store=store)
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (True, 1, 2)
    assert len(bench.said("explained")) == 1


def test_an_outage_before_a_stop_repeats_no_roll_call(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    bench.on("explained", lambda: bench.jobs.unreachable(bench.clock.elapsed, bench.clock.elapsed + 600))
    report = bench.restart()
    assert (report["success"], report["total_retries"], len(bench.said("explained"))) == (True, 1, 1)
    assert report["attempts"][0]["explanation"] == bench.said("explained")[0]


def test_a_state_that_could_not_be_saved_is_left_alone_after_another_took_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.jobs.behaviours, hold = [CRASH, GOOD], Claiming.hold

    def lose(claiming: Claiming) -> None:
        if bench.clock.elapsed >= 500:
            raise LeaseLost("run was taken over")
        hold(claiming)

    monkeypatch.setattr(Claiming, "hold", lose)
    store = FullStore(bench, 60, 500)  # from then on the other one, with the same state folder, has written its own
    with pytest.raises(LeaseLost):
        bench.restart(store=store)
    with store.transaction() as execute:
        [[state]] = execute("SELECT state FROM runs WHERE key = 'local run'")
    assert json.loads(state)["phase"] == "watching" and bench.said("waiting")


def test_a_job_is_restarted_after_the_state_folder_was_deleted(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.clock.at(60, lambda: shutil.rmtree(bench.folder))
    report = bench.restart()
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (True, 1, 2)
    assert "the state could not be saved" in bench.said("detected")[0] and bench.said("unreachable") == []


def test_a_job_that_fails_during_an_outage_is_restarted_after_it(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.jobs.unreachable(60, 700)
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert bench.jobs.starts[1].started - bench.jobs.starts[0].started >= 700


def test_a_target_that_cannot_be_asked_at_the_very_start_raises(bench: Bench) -> None:
    bench.jobs.unreachable(0, 10)
    with pytest.raises(TargetUnreachable, match="connection refused"):
        bench.restart()
    assert bench.jobs.starts == []


def test_a_job_that_the_target_forgot_is_lost_and_restarted(bench: Bench) -> None:
    bench.jobs.behaviours = [GOOD, GOOD]
    bench.clock.at(100, bench.jobs.lose_everything)
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert [each["status"] for each in report["attempts"]] == ["LOST", "SUCCEEDED"]
    [text] = bench.said("detected")
    assert "is lost" in text and report["attempts"][1]["checkpoint"] == "/checkpoints/step_50"
    lost = report["attempts"][0]
    assert lost["final_step"] == 90 and not lost["final_step_known"]
    assert lost["steps_lost"] is None and report["steps_lost"] is None
    assert lost["ended_at"] - lost["started_at"] == 125, "the second look without it, 5 s after the first"


def test_one_look_without_the_job_is_not_believed(bench: Bench) -> None:
    bench.jobs.behaviours = [GOOD]

    def forget_for_a_moment() -> None:
        kept = dict(bench.jobs.jobs)
        bench.jobs.jobs.clear()
        bench.clock.at(bench.clock.elapsed + 31, lambda: bench.jobs.jobs.update(kept))

    bench.clock.at(91, forget_for_a_moment)
    report = bench.restart()
    assert (report["success"], report["total_retries"], len(bench.jobs.starts)) == (True, 0, 1)


def use_pods(bench: Bench, pods: dict[str, str]) -> None:
    """Reach the target through kubectl: `pods` are the phases by name."""
    labels = {"ray.io/cluster": "c", "ray.io/node-type": "head"}

    def kubectl(words: tuple[str, ...], program: str | None) -> CommandResult:
        if "exec" not in words:
            items = [{"metadata": {"name": each, "labels": labels}, "status": {"phase": pods[each]}} for each in pods]
            return CommandResult(words, 0, json.dumps({"kind": "PodList", "items": items}), "", 0.0)
        name = words[words.index("default") + 1]
        if pods.get(name) == "Running":
            return bench.transport.answer_all(words, program)
        missing = f'Error from server (NotFound): pods "{name}" not found\n'
        ended = "error: cannot exec into a container in a completed pod; current phase is Failed\n"
        return CommandResult(words, 1, "", ended if name in pods else missing, 0.0)

    bench.jobs.behaviours = [GOOD, GOOD]
    bench.transport.register(["kubectl"], kubectl)


def test_a_pod_that_was_replaced_is_followed_and_its_lost_job_restarted(bench: Bench) -> None:
    pods = {"head-aaaaa": "Running"}
    use_pods(bench, pods)
    bench.clock.at(100, pods.clear)
    bench.clock.at(400, lambda: pods.update({"head-bbbbb": "Running"}))
    bench.clock.at(400, bench.jobs.lose_everything)
    report = bench.restart(head_pod="head-aaaaa")
    assert bench.said("moved") == ["k8s://default/head-aaaaa was replaced by k8s://default/head-bbbbb"]
    assert (report["success"], report["total_retries"]) == (True, 1)
    assert report["attempts"][0]["status"] == "LOST"


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_pod_that_has_ended_may_be_replaced_for_some_minutes(bench: Bench, is_replaced: bool) -> None:
    pods = {"head-aaaaa": "Running"}
    use_pods(bench, pods)
    bench.clock.at(100, lambda: pods.update({"head-aaaaa": "Failed"}))
    bench.clock.at(100, bench.jobs.lose_everything)
    if is_replaced:
        bench.clock.at(300, lambda: pods.update({"head-bbbbb": "Running"}))
    report = bench.restart(head_pod="head-aaaaa")
    assert bench.said("detected")[0] == "pod head-aaaaa is Failed" and not bench.said("unreachable")
    assert (report["success"], report["total_retries"]) == (is_replaced, int(is_replaced))
    if not is_replaced:
        assert report["outcome"] == "restart_failed" and 400 <= report["duration"] < 500
        assert report["attempts"][0]["status"] == "FAILED"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_start_whose_answer_is_lost_is_one_job_under_one_id(bench: Bench, lost: int) -> None:
    bench.jobs.lose_start_answers = lost
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 0)
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]
    assert set(bench.jobs.start_questions) == {"run-attempt-1"} and len(report["attempts"]) == 1


@pytest.mark.parametrize("dropped", [1, 2, 5])
def test_a_start_that_never_arrived_is_asked_again_with_the_same_id(bench: Bench, dropped: int) -> None:
    bench.jobs.drop_starts = dropped
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 0)
    assert bench.jobs.start_questions == ["run-attempt-1"] * (dropped + 1)
    assert bench.clock.elapsed >= dropped * 30 and "starting it again" in bench.said("unreachable")[0]
    assert len(report["attempts"]) == 1


def test_an_outage_that_begins_right_after_a_start_doubles_nothing(bench: Bench) -> None:
    bench.jobs.outage_after_start = 200
    report = bench.restart()
    assert (report["success"], report["total_retries"], len(report["attempts"])) == (True, 0, 1)
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


# ---------------------------------------------------------------- killed supervisors


def eventful(folder: Path) -> Bench:
    """A run with a crash that leaves processes behind, a stall, and a success."""
    folder.mkdir(exist_ok=True)
    bench = Bench(folder)
    bench.jobs.behaviours = [Behaviour(crash_after=120, survivors=2), HANG, GOOD]
    return bench


def run_eventful(bench: Bench, **changes: Any) -> RestartReport:
    return bench.restart(check_interval=100, stagnation_threshold=150, **changes)


def assert_as_if_nothing_had_happened(bench: Bench, report: RestartReport) -> None:
    assert (report["success"], report["reason"], report["total_retries"]) == (True, "completed", 2)
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1", "run-attempt-2", "run-attempt-3"]
    assert [each["status"] for each in report["attempts"]] == ["FAILED", "STALLED", "SUCCEEDED"]
    assert [each["checkpoint"] for each in report["attempts"]] == [
        None,
        "/checkpoints/step_100",
        "/checkpoints/step_200",
    ]
    assert report["final_step"] == 300 and bench.jobs.running() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_supervisor_killed_at_any_write_keeps_one_job(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    bench = eventful(memory_path / "whole")
    whole = KillingStore(bench.folder, 0, after=after)
    assert_as_if_nothing_had_happened(bench, run_eventful(bench, store=whole))
    assert whole.death.acts > 15
    for number in cases_of(range(1, whole.death.acts + 1)):
        bench = eventful(memory_path / str(number))
        with pytest.raises(Killed):
            run_eventful(bench, store=KillingStore(bench.folder, number, after=after))
        if after and number == whole.death.acts:  # its result is on disk: there is nothing to go on with
            assert Store(bench.folder).load_run("local run", dict) is None and bench.jobs.running() == []
            continue
        assert_as_if_nothing_had_happened(bench, run_eventful(bench))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_supervisor_killed_at_any_question_keeps_one_job(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    bench = eventful(memory_path / "whole")
    whole = KillingTransport(bench.jobs.answer, 0, after=after)
    run_eventful(bench, transport=whole)
    assert whole.death.acts > 20
    for number in cases_of(range(1, whole.death.acts)):  # the last one lets go of the claim, when all is done
        bench = eventful(memory_path / str(number))
        with pytest.raises(Killed):
            run_eventful(bench, transport=KillingTransport(bench.jobs.answer, number, after=after))
        assert_as_if_nothing_had_happened(bench, run_eventful(bench))


def test_a_supervisor_killed_again_and_again_still_brings_the_job_to_its_end(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    bench = eventful(memory_path)
    deaths = 0
    while deaths < 100:
        try:
            report = run_eventful(bench, store=KillingStore(bench.folder, 5, after=deaths % 2 == 0))
        except Killed:
            deaths += 1
        else:
            return assert_as_if_nothing_had_happened(bench, report)
    pytest.fail("it never came to an end")


def test_a_job_that_recovered_after_the_supervisor_died_is_not_stopped(bench: Bench) -> None:
    bench.jobs.behaviours = [Behaviour(total=9000, hang_after=120)]

    def die() -> None:
        raise KeyboardInterrupt

    bench.on("explained", die)
    with pytest.raises(KeyboardInterrupt):
        bench.restart()
    bench.clock.sleep(3600)
    bench.jobs.jobs["run-attempt-1"].go_on(bench.clock.time())
    report = bench.restart()
    assert (report["reason"], report["total_retries"], len(bench.jobs.starts)) == ("completed", 0, 1)


def test_a_stall_that_was_stopped_when_the_supervisor_died_is_still_a_stall(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    bench.on("stopped", die)
    with pytest.raises(Killed):
        bench.restart()
    report = bench.restart()
    assert report["attempts"][0]["status"] == "STALLED" and report["total_retries"] == 1


def test_a_stop_whose_reply_is_lost_and_that_left_processes_is_still_a_stall(bench: Bench) -> None:
    bench.jobs.behaviours, stop = [HANG, GOOD], bench.jobs._stop

    def lose(given: dict[str, str]) -> str:
        bench.jobs._stop, job = stop, bench.jobs.starts[0]  # type: ignore[method-assign]
        words, after = "Traceback (most recent call last):\nKeyboardInterrupt", bench.jobs.now - job.started
        job.behaviour = replace(HANG, crash_after=after, exit_code=130, last_words=words)
        job.survivors, job.stopped_by = 1, SUPERVISOR
        raise TargetUnreachable("the reply is lost")

    bench.jobs._stop = lose  # type: ignore[method-assign]
    report = bench.restart()
    assert [each["status"] for each in report["attempts"]] == ["STALLED", "SUCCEEDED"], report["reason"]


@pytest.mark.parametrize("error", [Killed, TargetUnreachable("the reply is lost")])
def test_a_job_that_makes_steps_after_its_stop_was_asked_for_is_still_a_stall(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    bench.jobs.behaviours, stop = [HANG, GOOD], bench.jobs._stop
    for module in ("hands", "supervisor"):  # Ray does not tell who stopped a job
        monkeypatch.setattr(f"training_monitor.supervision.{module}.is_ray_job", lambda job_id: True)

    def lose(given: dict[str, str]) -> str:
        bench.jobs._stop = stop  # type: ignore[method-assign]
        bench.jobs.starts[0].go_on(bench.jobs.now)  # it saves a checkpoint first
        bench.jobs.starts[0].stopped_by, bench.jobs.starts[0].stopped_at = "unknown", bench.jobs.now + 45
        raise error

    bench.jobs._stop = lose  # type: ignore[method-assign]
    try:
        report = bench.restart()
    except Killed:
        report = bench.restart()
    assert report["attempts"][0]["status"] == "STALLED" and report["total_retries"] == 1


@pytest.mark.parametrize("what", ["unreachable", "killed", "not saved"])
def test_a_job_that_recovers_while_its_stop_is_put_off_is_not_stopped(bench: Bench, what: str) -> None:
    bench.jobs.behaviours, stop, store = [Behaviour(total=9000, hang_after=120)], bench.jobs._stop, Store(bench.folder)
    save = store.save_run

    def put_off(*given: Any, finished: bool = False) -> str:
        bench.jobs._stop, begin = stop, bench.clock.elapsed  # type: ignore[method-assign]
        bench.clock.at(begin + 1800, lambda: bench.jobs.starts[0].go_on(bench.jobs.now))
        if what == "killed":
            raise Killed
        if what == "unreachable":
            bench.jobs.unreachable(begin, begin + 3600)
            raise TargetUnreachable("the request is lost")
        store.save_run = FullStore(bench, begin, begin + 3600).save_run  # type: ignore[method-assign]
        raise StateError("the disk is full")

    def save_or_not(key: str, state: Any, *, finished: bool) -> None:
        (put_off if getattr(state, "phase", "") == "stopping" else save)(key, state, finished=finished)

    if what == "not saved":
        store.save_run = save_or_not  # type: ignore[method-assign]
    else:
        bench.jobs._stop = put_off  # type: ignore[method-assign]
    try:
        report = bench.restart(store=store)
    except Killed:
        bench.clock.sleep(3600)
        report = bench.restart()
    assert (report["reason"], report["total_retries"], len(bench.said("explained"))) == ("completed", 0, 1)


def test_ctrl_c_leaves_the_job_running_and_the_next_call_goes_on_with_it(bench: Bench) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.clock.at(100, interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.restart()
    assert len(bench.jobs.running()) == 1
    assert bench.restart()["success"] and len(bench.jobs.starts) == 1


def die() -> None:
    raise Killed


def test_a_stop_after_the_next_attempt_was_planned_is_obeyed(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    start = bench.jobs._start

    def lose(given: dict[str, str]) -> str:
        if given["_name"] != "run-attempt-2":
            return start(given)
        stop_job("local", "process:run-attempt-1", transport=bench.transport, clock=bench.clock)
        raise TargetUnreachable("the network is away")

    bench.jobs._start = lose  # type: ignore[method-assign]
    report = bench.restart()
    assert report["reason"] == "stopped: by a person, after process:run-attempt-1 had ended"
    assert (len(bench.jobs.starts), len(report["attempts"]), report["total_retries"]) == (1, 1, 0)


def test_a_failure_on_our_own_side_is_no_failure_of_the_start_or_the_stop(bench: Bench) -> None:
    bench.jobs.behaviours = [HANG, GOOD]
    ours = LocalFailure("sh could not be started: Resource temporarily unavailable")
    bench.on("stopping", lambda: bench.jobs.unreachable(bench.clock.elapsed, bench.clock.elapsed + 600, ours))
    report = bench.restart()
    assert (report["success"], report["total_retries"]) == (True, 1)
