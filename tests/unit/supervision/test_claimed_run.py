"""Two supervisors of one training, each with a state folder of its own, against a target in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.fakes import EPOCH, Behaviour, is_call, read_call
from tests.unit.supervision.test_auto_restart import CRASH, GOOD, Bench
from training_monitor.core.errors import AlreadySupervised, CommandFailed, LeaseLost, TargetUnreachable
from training_monitor.core.models import Question
from training_monitor.core.store import Store
from training_monitor.jobs.claims import Claiming
from training_monitor.targets.asking import Site


def claimed_by_another(bench: Bench, state: str = "held") -> None:
    """Another machine takes over, and is heard of now."""
    bench.jobs.claims.take_over(bench.jobs.now, state)


def lose_claim(bench: Bench, state: str = "held") -> None:
    """Restart once, until another machine takes over before the second attempt."""
    bench.jobs.behaviours = [CRASH, GOOD]
    bench.on("waiting", lambda: claimed_by_another(bench, state))
    with pytest.raises(LeaseLost, match="taken over by bob@node7"):
        bench.restart()
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


def beat_in(bench: Bench, seconds: float) -> None:
    """The owner of the claim is heard of again."""
    bench.clock.at(bench.clock.elapsed + seconds, lambda: bench.jobs.claims.beat(bench.jobs.now))


def test_a_second_supervisor_is_refused_with_the_name_of_the_first(bench: Bench, tmp_path: Path) -> None:
    refused: list[str] = []

    def try_to_join() -> None:
        beat_in(bench, 12)
        with pytest.raises(AlreadySupervised) as said:
            bench.restart(store=Store(str(tmp_path / "other")))
        refused.append(str(said.value))

    bench.on("progress", try_to_join)
    assert bench.restart()["success"]
    assert len(refused) == 1 and "run is already supervised by " in refused[0] and "take_over=True" in refused[0]
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


def test_a_dead_owner_is_waited_for_and_then_taken_over(bench: Bench) -> None:
    lose_claim(bench)
    bench.clock.elapsed += 20  # the other one is silent for longer than between two beats, and may yet be heard of
    report = bench.restart()
    assert report["success"] and report["total_retries"] == 1
    said = bench.said("detected")
    assert any("waiting" in each and "bob@node7" in each for each in said)
    assert any("taken over from bob@node7" in each for each in said)
    assert bench.said("resumed")


def test_a_living_owner_gives_way_to_take_over(bench: Bench) -> None:
    lose_claim(bench)
    beat_in(bench, 12)
    with pytest.raises(AlreadySupervised, match="bob@node7"):
        bench.restart()
    assert bench.restart(take_over=True)["success"]


def test_a_standby_waits_while_the_owner_lives_and_continues_after_its_lease(bench: Bench) -> None:
    lose_claim(bench)
    begun = bench.clock.time()
    for seconds in range(20, 3600, 20):
        beat_in(bench, seconds)
    assert bench.restart(standby=True)["success"]
    waited = next(event.text for event in bench.events if "waiting until it ends" in event.text)
    assert "bob@node7" in waited and len(bench.said("detected")) == len(set(bench.said("detected")))
    started = bench.jobs.starts[-1].started
    assert 3580 + 120 <= started - begun < 3580 + 120 + 90  # the lease, then what was left of the delay


def test_a_standby_continues_within_20_seconds_when_the_owner_was_interrupted(bench: Bench) -> None:
    lose_claim(bench)
    freed_at = bench.clock.elapsed + 30
    bench.clock.at(freed_at, lambda: claimed_by_another(bench, "free"))
    continued_at = list[float]()
    bench.on("started", lambda: continued_at.append(bench.clock.elapsed))
    assert bench.restart(standby=True)["success"]
    assert 0 <= continued_at[0] - freed_at <= 20


@pytest.mark.parametrize("outcome", ["completed", "max_retries_reached", "stopped"])
def test_a_standby_does_not_begin_anew_what_the_owner_supervised_to_its_end(bench: Bench, outcome: str) -> None:
    lose_claim(bench)
    bench.clock.at(bench.clock.elapsed + 30, lambda: claimed_by_another(bench, outcome))
    report = bench.restart(standby=True)
    assert (report["success"], report["outcome"]) == (outcome == "completed", outcome)
    assert report["reason"].startswith(f"{outcome}: bob@node7 (process ")
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


def test_what_was_given_up_is_begun_anew_by_a_person_and_not_by_a_standby(bench: Bench, tmp_path: Path) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    assert not bench.restart(max_retries=0)["success"]
    for store in (Store(bench.folder), Store(str(tmp_path / "other"))):
        report = bench.restart(standby=True, store=store)
        assert not report["success"] and report["outcome"] == "max_retries_reached"
    assert len(bench.jobs.starts) == 1
    assert bench.restart()["success"] and len(bench.jobs.starts) == 2


def test_a_standby_supervises_what_a_person_began_anew(bench: Bench, tmp_path: Path) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    assert not bench.restart(max_retries=0)["success"]
    bench.jobs.add("run-attempt-2", CRASH, started=bench.clock.elapsed)
    report = bench.restart(standby=True, store=Store(str(tmp_path / "other")))
    assert report["success"] and report["job_id"] == "process:run-attempt-3"


def test_a_standby_does_not_act_where_no_claim_can_be_written(bench: Bench) -> None:
    bench.jobs.claims.unwritable = True
    with pytest.raises(CommandFailed, match="disk full, or no permission"):
        bench.restart(standby=True)
    assert not bench.jobs.starts


def test_what_another_supervisor_finished_meanwhile_is_not_trained_again(bench: Bench) -> None:
    lose_claim(bench, "free")
    bench.jobs.add("run-attempt-2", GOOD, started=bench.clock.elapsed)
    bench.clock.elapsed += 1000
    report = bench.restart()
    assert report["success"] and report["job_id"] == "process:run-attempt-2"
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


def test_a_job_started_while_planning_the_next_attempt_is_adopted(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]
    answer = bench.transport.answer

    def start_before_the_listing(script: str) -> tuple[str, int]:
        if is_call(script, "checkpoints") and len(bench.jobs.starts) == 1 and "run-x" not in bench.jobs.jobs:
            if bench.said("waiting"):
                bench.jobs.add("run", Behaviour(), started=bench.clock.elapsed)
        return answer(script)

    bench.transport.answer = start_before_the_listing
    report = bench.restart()
    assert report["success"] and report["job_id"] == "process:run"
    assert [job.name for job in bench.jobs.starts] == ["run-attempt-1"]


def test_a_claim_is_let_go_at_the_end_and_survives_an_outage(bench: Bench) -> None:
    bench.jobs.unreachable(60, 400, TargetUnreachable("connection refused"))
    assert bench.restart()["success"]
    [(_, state, *_rest)] = bench.jobs.claims.newest.values()
    assert state == "completed"


def test_a_folder_that_is_written_after_the_end_keeps_the_next_attempt_waiting(bench: Bench) -> None:
    bench.jobs.behaviours = [CRASH, GOOD]

    def write() -> None:
        bench.jobs.saved_at[100] = bench.jobs.now

    for moment in range(130, 600, 20):
        bench.clock.at(moment, write)
    assert bench.restart()["success"]
    assert bench.jobs.starts[1].started - EPOCH >= 590 + 300
    waits = [each for each in bench.said("detected") if "an unknown process wrote to" in each]
    assert len(waits) == 1 and "wrote to /checkpoints" in waits[0]


def test_an_older_job_of_the_same_name_is_no_successor_of_an_adopted_one(bench: Bench) -> None:
    bench.jobs.add("run-attempt-3", GOOD, started=-5000)  # succeeded long ago
    bench.jobs.add("by-hand", CRASH)
    report = bench.restart(initial_job_id="process:by-hand")
    assert report["success"] and [job.name for job in bench.jobs.starts] == ["run-attempt-4"]


def test_a_dead_owner_is_not_refused_for_as_answers_that_come_late(bench: Bench) -> None:
    lose_claim(bench)
    answer, looks = bench.transport.answer, 0

    def answer_late(script: str) -> tuple[str, int]:
        nonlocal looks
        said = answer(script)
        if (call := read_call(script)) and call.subject == "claims" and (looks := looks + 1) == 2:
            bench.clock.elapsed += 4  # it was measured before
        return said

    bench.transport.answer = answer_late
    assert bench.restart()["success"]


def test_nothing_is_done_under_the_claim_of_whoever_took_a_lost_one(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_LEASE", "3")
    claims, answer = bench.jobs.claims, bench.transport.answer

    def lose_at_a_beat(script: str) -> tuple[str, int]:
        if (call := read_call(script)) and call.function == "write":
            claimed_by_another(bench)
            kept = dict(claims.newest)
            claims.newest.clear()  # a new container, which the other one claims first
            said = answer(script)
            claims.newest.update(kept)
            return said
        return answer(script)

    store = Store(str(tmp_path / "state"))
    site = Site.of("local", transport=bench.transport, clock=bench.clock)
    claiming = Claiming(site, "run", store, lambda kind, text: None)
    claiming.hold()
    bench.transport.answer = lose_at_a_beat
    act = Question("act", "echo acted", lambda reply: reply.output)
    for _ in range(600):
        try:
            claiming.guard(act)
        except LeaseLost:
            break
        threading.Event().wait(0.05)
    else:
        pytest.fail("its loss was never seen")
    claiming.close()
    assert [words[1:3] for words in claims.newest.values()] == [("held", "anotherstoken")]


def test_where_no_claim_can_be_written_that_is_told_and_it_is_made_as_soon_as_it_can(bench: Bench) -> None:
    bench.jobs.claims.unwritable = True
    bench.clock.at(100, lambda: setattr(bench.jobs.claims, "unwritable", False))
    assert bench.restart()["success"]
    [text] = bench.said("detected")
    assert "run could not be claimed" in text and "disk full, or no permission" in text
    [(number, state, *_rest)] = bench.jobs.claims.newest.values()
    assert (number, state) == (1, "completed")
