"""Which notices follow from a look, which do not, and what a run is ended for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.fakes import EPOCH
from training_monitor.core.models import Checkpoint, JobStatus, Progress
from training_monitor.core.records import format_record, read_record
from training_monitor.core.units import format_duration
from training_monitor.core.values import LossAnalysis, Notice, StallAnalysis, TrainingStatus, Verdict
from training_monitor.logs.training_log import parse_progress
from training_monitor.supervision.watch_state import (
    STALL_REASON,
    Told,
    decide_alerts,
    decide_end,
    end_notice,
    reason_to_end,
)
from training_monitor.verdict.limits import WatchConfig

CONFIG = WatchConfig(poll_interval=60, grace_period=300)


def stall(
    kind: str = "hang_idle", confidence: str = "high", step: int | None = 10, pause: str = "idle"
) -> StallAnalysis:
    return StallAnalysis(True, kind, confidence, "no step", "alert", step, 100, EPOCH, 300.0, {"pause": pause})


def going(step: int | None = 10) -> StallAnalysis:
    return StallAnalysis(False, None, "none", "making progress", "continue", step, 100)


class Looks:
    """A run as it is looked at; what is told is kept as JSON between the looks, as the watcher does."""

    def __init__(self, config: WatchConfig = CONFIG, *, ends: bool = True) -> None:
        self.config, self.ends = config, ends
        self.now, self.kept = 0.0, "{}"

    def look(
        self, step: int | None = 10, stalled: StallAnalysis | None = None, after: float = 60, **more: Any
    ) -> list[str]:
        return [notice.kind for notice in self.notices(step, stalled, after, **more)]

    def notices(
        self, step: int | None = 10, stalled: StallAnalysis | None = None, after: float = 60, **more: Any
    ) -> list[Notice]:
        self.now += after
        values: dict[str, Any] = {
            "is_running": True,
            "progress": Progress(step=step, total_steps=100),
            "stall": stalled or going(step),
            "checkpoints": None,
            "recent_output": "",
            "timestamp": EPOCH + self.now,
            "status": JobStatus.RUNNING,
        }
        self.status = TrainingStatus(**(values | more))
        told = read_record(Told, self.kept)
        self.told, notices = decide_alerts(told, self.status, self.config, "job", ends=self.ends)
        self.kept = format_record(self.told)
        return notices

    @property
    def end(self) -> str | None:
        return reason_to_end(self.told, self.status, self.config)


# ---------------------------------------------------------------- stalls


def test_a_stall_is_told_once_however_long_it_lasts() -> None:
    looks = Looks()
    assert looks.look(10) == []
    assert looks.look(10, stall()) == ["stall_detected"]
    assert [looks.look(10, stall()) for _ in range(50)] == [[]] * 50


def test_a_stall_tells_where_it_is_why_and_when_the_run_is_ended() -> None:
    [notice] = Looks().notices(10, stall(), checkpoints=(Checkpoint("/c/5", 5, 1, True),))
    assert notice.priority == "high" and ("Issue", "no step") in notice.fields
    assert "Auto-terminating in 5 minutes" in notice.text and "step 5" in notice.text


def test_a_watch_without_a_plan_announces_no_end() -> None:
    [notice] = Looks(ends=False).notices(10, stall())
    assert "No action will be taken" in notice.text


def test_recovery_is_told_when_a_step_was_made_and_arms_the_next_stall() -> None:
    looks = Looks()
    looks.look(10, stall())
    assert looks.look(11) == ["recovered"]
    assert looks.look(12) == []
    [notice] = looks.notices(12, stall(step=12))
    assert (notice.kind, notice.generation) == ("stall_detected", 2)
    [notice] = looks.notices(13)
    assert (notice.kind, notice.generation) == ("recovered", 2)


@pytest.mark.parametrize("pauses", [1, 5])
def test_an_unseen_stall_has_not_recovered(pauses: int) -> None:
    looks = Looks()
    looks.look(10, stall())
    assert [looks.look(10) for _ in range(pauses)] == [[]] * pauses
    assert looks.look(10, stall()) == []


def test_a_look_that_sees_no_step_is_no_recovery() -> None:
    looks = Looks()
    looks.look(10, stall())
    assert looks.look(None, going(None)) == []


def test_the_first_step_of_a_run_that_had_not_started_is_a_recovery() -> None:
    looks = Looks()
    assert looks.look(None, stall("not_started", "medium", None)) == ["stall_detected"]
    assert looks.look(None, going(None)) == []
    assert looks.look(1) == ["recovered"]


def test_a_stalled_run_that_was_started_again_recovers_with_a_step_of_its_own() -> None:
    looks = Looks()
    looks.look(10, stall())
    assert looks.look(None, going(None), generation=1) == []
    assert looks.look(5, generation=1) == ["recovered"]


# ---------------------------------------------------------------- the end of a stalled run


def test_a_stalled_run_is_ended_when_its_grace_period_is_over_and_not_before() -> None:
    looks = Looks()
    ends = []
    for _ in range(6):
        looks.look(10, stall())
        ends.append(looks.end)
    assert ends == [None] * 5 + [STALL_REASON]


def test_a_grace_period_of_zero_ends_a_stall_at_its_first_look() -> None:
    looks = Looks(WatchConfig(grace_period=0))
    looks.look(10, stall())
    assert looks.end == STALL_REASON


def test_suspending_the_watcher_restarts_the_grace_period() -> None:
    looks = Looks()
    looks.look(10, stall())
    assert looks.look(10, after=86_400) == [] and looks.end is None
    for _ in range(5):
        assert looks.look(10, stall()) == [] and looks.end is None
    looks.look(10, stall())
    assert looks.end == STALL_REASON


@pytest.mark.parametrize("kind", ["hang_idle", "hang_spinning"])
def test_a_suspension_does_not_count_towards_a_stall(kind: str) -> None:
    looks = Looks()
    looks.look(10, stall(kind))
    assert looks.look(11, stall(kind, step=11), after=86_400) == [] and looks.end is None
    looks.look(12, stall(kind, step=12))
    assert looks.end is None


def test_a_late_look_is_no_suspension() -> None:
    looks = Looks()
    for _ in range(3):
        looks.look(10, stall(), after=200)
    assert looks.end == STALL_REASON


def test_slow_unsure_and_speaking_runs_are_told_of_and_never_ended(subtests: pytest.Subtests) -> None:
    for harmless in [
        stall("slow", "high"),
        stall("slow", "medium"),
        stall("suspended", "high"),
        stall("hang_idle", "low", pause="busy"),
        stall("hang_idle", "low", pause="growing"),
        *(stall("not_started", "medium", None, pause) for pause in ("growing", "busy", "phase", "spoken", "unknown")),
    ]:
        with subtests.test(harmless=harmless):
            looks = Looks()
            [notice] = looks.notices(harmless.current_step, harmless)
            assert "No action will be taken" in notice.text
            for _ in range(100):
                assert looks.look(harmless.current_step, harmless) == [] and looks.end is None


def test_a_hang_with_signs_of_work_is_ended_on_request_only() -> None:
    config = WatchConfig(poll_interval=60, grace_period=300, terminate_busy=True)
    busy = [stall("hang_idle", "low", pause=pause) for pause in ("busy", "growing", "saving", "phase")]
    others = [stall("slow", "high"), stall("suspended", "high"), stall("not_started", "low", None, "busy")]
    others.append(stall("not_started", "medium", None, "busy"))
    for found in busy + others:
        looks = Looks(config)
        for _ in range(6):
            looks.look(found.current_step, found)
        assert (looks.end == STALL_REASON) == (found in busy), found


def test_an_eta_that_does_not_converge_ends_a_run_at_half_speed() -> None:
    halved = {"flat_eta": "ETA not converging", "speed_dropping": True, "speed_ratio": 0.4}
    for signals, on_eta, ended in [
        (halved, False, True),
        ({**halved, "speed_dropping": False, "speed_ratio": 0.7}, False, False),
        ({**halved, "speed_dropping": False, "speed_ratio": 0.7}, True, True),
        ({**halved, "flat_eta": None}, True, False),
    ]:
        config = WatchConfig(poll_interval=60, grace_period=300, terminate_on_eta=on_eta)
        looks, found = Looks(config), dataclasses.replace(stall("slow", "high"), signals=signals)
        for step in range(6):
            looks.look(10 + step, found)
        assert (looks.end == STALL_REASON) == ended, signals


@pytest.mark.parametrize(
    "sure",
    [stall("hang_idle"), stall("hang_spinning", pause="spinning"), stall("hang_idle", "medium", pause="unknown")],
)
def test_a_hang_that_is_sure_is_ended(sure: StallAnalysis) -> None:
    looks = Looks()
    for _ in range(6):
        looks.look(10, sure)
    assert looks.end == STALL_REASON


@pytest.mark.parametrize("pause", ["idle", "spinning", "quiet", "blocked"])
def test_a_silent_start_is_ended(pause: str) -> None:
    looks = Looks()
    for _ in range(6):
        looks.look(None, stall("not_started", "medium", None, pause))
    assert looks.end == STALL_REASON


def test_a_slow_run_that_hangs_is_announced_and_has_its_whole_grace_period() -> None:
    looks = Looks()
    for step in range(20):
        looks.look(step, stall("slow", step=step))
    [notice] = looks.notices(20, stall(step=20))
    assert notice.kind == "stall_detected" and "Auto-terminating" in notice.text and looks.end is None
    for _ in range(4):
        assert looks.look(20, stall(step=20)) == [] and looks.end is None
    looks.look(20, stall(step=20))
    assert looks.end == STALL_REASON


def test_a_hang_that_turns_into_slowness_and_back_waits_anew() -> None:
    looks = Looks()
    for _ in range(4):
        looks.look(10, stall())
    looks.look(11, stall("slow", step=11))
    assert looks.look(12, stall(step=12)) == []
    for _ in range(4):
        looks.look(12, stall(step=12))
    assert looks.end is None


def test_without_a_plan_a_slow_run_that_hangs_is_told_once() -> None:
    looks = Looks(ends=False)
    looks.look(10, stall("slow"))
    assert looks.look(10, stall()) == []


@pytest.mark.parametrize("running", [None, False])
def test_a_run_is_never_ended_while_nobody_knows_that_it_runs(running: bool | None) -> None:
    looks = Looks(WatchConfig(grace_period=60, hard_limit=100))
    for _ in range(10):
        looks.look(10, stall(), is_running=running, runtime=1000.0)
        assert looks.end is None


def test_a_job_that_waits_in_a_queue_is_not_ended_for_not_starting() -> None:
    looks = Looks()
    for _ in range(20):
        looks.look(None, stall("not_started", "medium", None), status=JobStatus.PENDING)
    assert looks.end is None


# ---------------------------------------------------------------- milestones


def test_milestones_are_told_once_each_in_order() -> None:
    looks = Looks()
    said = [looks.look(step) for step in (0, 24, 25, 26, 49, 50, 74, 75, 99, 100)]
    assert said == [[], [], ["milestone_25"], [], [], ["milestone_50"], [], ["milestone_75"], [], []]


def test_what_was_passed_before_the_first_look_is_no_milestone(subtests: pytest.Subtests) -> None:
    for first, told in [(0, 3), (25, 2), (30, 2), (50, 1), (99, 0), (100, 0)]:
        with subtests.test(first=first, told=told):
            looks = Looks()
            assert looks.look(first) == []
            kinds = [kind for step in range(first, 101) for kind in looks.look(step)]
            assert kinds == ["milestone_25", "milestone_50", "milestone_75"][3 - told :]


@pytest.mark.parametrize("milestones", [(25, 50, 75), (75, 50, 25)])
def test_of_milestones_that_pass_at_once_the_highest_is_told(milestones: tuple[float, ...]) -> None:
    looks = Looks(WatchConfig(milestones=milestones))
    looks.look(1)
    assert looks.look(80) == ["milestone_75"]
    assert looks.look(90) == []


@pytest.mark.parametrize(("step", "done"), [(25, "25%"), (60, "60%"), (80, "80%"), (100, "100%")])
def test_a_milestone_names_the_percentage_that_is_reached(step: int, done: str) -> None:
    looks = Looks()
    looks.look(1)
    [notice] = looks.notices(step)
    assert notice.title == f"📈 Training {done} Done" and f"({done})" in dict(notice.fields)["Progress"]


def test_a_restarted_run_tells_the_milestones_that_it_passes_again() -> None:
    looks = Looks()
    looks.look(1)
    looks.look(60)
    assert looks.look(30, generation=1) == []
    [notice] = looks.notices(55, generation=1)
    assert (notice.kind, notice.generation) == ("milestone_50", 1)


@pytest.mark.parametrize("progress", [Progress(step=99), Progress(total_steps=100), Progress(step=5, total_steps=0)])
def test_a_run_whose_share_is_not_known_has_no_milestones(progress: Progress) -> None:
    looks = Looks()
    looks.look(1)
    assert looks.look(1, progress=progress) == []


def test_milestones_and_where_it_is_are_those_of_the_job() -> None:
    looks = Looks()
    said = []
    for epoch, step in ((1, 10), (1, 900), (2, 10), (2, 499), (2, 500), (3, 10)):
        progress = parse_progress(f"Epoch {epoch}/3 | Step {step}/1000 | loss 0.5")
        said += [(notice.kind, dict(notice.fields)["Progress"]) for notice in looks.notices(progress=progress)]
    assert said == [("milestone_25", "900/3000 (30%)"), ("milestone_50", "1500/3000 (50%)")]


def test_an_epoch_that_has_begun_is_no_milestone() -> None:
    looks = Looks(WatchConfig(milestones=(50, 99)))
    said = [looks.look(progress=parse_progress(f"Epoch {epoch}/3")) for epoch in (1, 2, 3)]
    assert said == [[], [], ["milestone_50"]]


# ---------------------------------------------------------------- the loss


NAN = LossAnalysis("nan", "the loss is nan", float("nan"), 0.5)


def test_nan_is_told_once_per_generation_also_when_it_comes_and_goes() -> None:
    looks = Looks()
    said = [looks.look(loss=loss) for loss in (NAN, NAN, None, NAN)]
    assert said == [["loss_nan"], [], [], []]
    assert looks.look(loss=NAN, generation=1) == ["loss_nan"]
    assert looks.look(loss=NAN, generation=1) == []


@pytest.mark.parametrize("kind", [None, "spike", "divergence", "plateau"])
def test_other_losses_are_not_told_as_nan(kind: str | None) -> None:
    assert Looks().look(loss=LossAnalysis(kind, "", 1.0, 1.0)) == []


# ---------------------------------------------------------------- limits


def test_the_soft_limit_is_told_once_and_ends_nothing() -> None:
    looks = Looks(WatchConfig(soft_limit=100))
    said = [looks.look(runtime=runtime) for runtime in (99.0, 100.0, 160.0, 10_000.0)]
    assert said == [[], ["soft_limit"], [], []] and looks.end is None


def test_the_budget_is_told_once_and_ends_nothing() -> None:
    looks = Looks(WatchConfig(cost_per_hour=3.6, budget=1.0))
    said = [looks.look(runtime=runtime) for runtime in (999.0, 1000.0, 2000.0)]
    assert said == [[], ["budget_passed"], []] and looks.end is None


@pytest.mark.parametrize("changes", [{"budget": 1.0}, {"cost_per_hour": 9.0}])
def test_half_a_budget_is_none(changes: dict[str, float]) -> None:
    assert Looks(WatchConfig(**changes)).look(runtime=1e9) == []  # type: ignore[arg-type]


def test_a_run_time_that_is_not_known_passes_no_limit() -> None:
    looks = Looks(WatchConfig(soft_limit=1, hard_limit=1, cost_per_hour=1, budget=1))
    assert looks.look(runtime=None) == [] and looks.end is None


def test_the_hard_limit_ends_a_run_that_makes_progress() -> None:
    looks = Looks(WatchConfig(hard_limit=3600))
    looks.look(runtime=3599.0)
    assert looks.end is None
    looks.look(runtime=3600.0)
    assert looks.end == f"Hard limit of {format_duration(3600)} reached"


def test_a_new_start_has_its_own_limits() -> None:
    looks = Looks(WatchConfig(soft_limit=100))
    assert looks.look(runtime=100.0) == ["soft_limit"]
    assert looks.look(runtime=5.0, generation=1) == []
    assert looks.look(runtime=100.0, generation=1) == ["soft_limit"]


# ---------------------------------------------------------------- how it ended


def ended(**more: Any) -> TrainingStatus:
    looks = Looks()
    looks.look(**({"is_running": False, "status": JobStatus.UNKNOWN, "stalled": going()} | more))
    return looks.status


def test_the_end_of_a_run_is_what_is_judged_of_it(subtests: pytest.Subtests) -> None:
    for state, is_running, end in [
        ("finished", False, "finished"),
        ("finished", None, "finished"),
        ("stopped", False, "stopped"),
        ("failed", False, "failed"),
        ("unknown", False, "ended"),
    ]:
        with subtests.test(state=state, is_running=is_running, end=end):
            status = ended(is_running=is_running, verdict=Verdict(state, "unknown", "why"))
            assert decide_end(status) == (end, "why")
            kinds = {"finished": "finished", "failed": "failed"}
            assert end_notice(end, "why", status, CONFIG, "job").kind == kinds.get(end, "ended")


@pytest.mark.parametrize(("is_running", "state"), [(True, "running"), (None, "unknown"), (None, "failed")])
def test_a_run_that_runs_or_that_cannot_be_seen_has_not_ended(is_running: bool | None, state: str) -> None:
    assert decide_end(ended(is_running=is_running, verdict=Verdict(state, "unknown", "why"))) is None


def test_a_failure_is_told_with_the_end_of_its_log() -> None:
    status = dataclasses.replace(ended(runtime=60.0), recent_output="step 5\nOut of memory")
    notice = end_notice("failed", "why", status, WatchConfig(), "job")
    assert notice.log == "step 5\nOut of memory" and ("Runtime", "1m") in notice.fields


def test_the_cost_of_a_finished_run_is_told() -> None:
    notice = end_notice("finished", "", ended(runtime=7200.0), WatchConfig(cost_per_hour=2.5), "job")
    assert ("Cost", "$5.00") in notice.fields
