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
    kind: str = "hang_idle", confidence: str = "high", pause: str = "idle", step: int | None = 10
) -> StallAnalysis:
    step = None if kind == "not_started" else step
    return StallAnalysis(True, kind, confidence, "no step", "alert", step, 100, EPOCH, 300.0, {"pause": pause})


def going(step: int | None = 10) -> StallAnalysis:
    return StallAnalysis(False, None, "none", "making progress", "continue", step, 100)


class Looks:
    """A run as it is looked at; what is told is kept as JSON between the looks, as the watcher does."""

    def __init__(self, config: WatchConfig = CONFIG, *, ends: bool = True) -> None:
        self.config, self.ends = config, ends
        self.now, self.kept = 0.0, "{}"

    def look(self, step: int | None = 10, stalled: StallAnalysis | None = None, **more: Any) -> list[str]:
        return [notice.kind for notice in self.notices(step, stalled, **more)]

    def stays(self, stalled: StallAnalysis, looks: int = 6, **more: Any) -> Looks:
        """Look so often at a run that stays as it is."""
        for _ in range(looks):
            self.look(stalled.current_step, stalled, **more)
        return self

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


def test_a_stall_is_told_once_and_ended_after_its_grace_period_and_not_before() -> None:
    looks = Looks()
    assert looks.look(10) == []
    assert looks.look(10, stall()) == ["stall_detected"]
    seen = [(looks.end, looks.look(10, stall())) for _ in range(5)]
    assert seen == [(None, [])] * 5 and looks.end == STALL_REASON
    assert [looks.look(10, stall()) for _ in range(50)] == [[]] * 50


def test_a_stall_tells_where_it_is_why_and_when_the_run_is_ended() -> None:
    [notice] = Looks().notices(10, stall(), checkpoints=(Checkpoint("/c/5", 5, 1, True),))
    assert notice.priority == "high" and ("Issue", "no step") in notice.fields
    assert "Auto-terminating in 5 minutes" in notice.text and "step 5" in notice.text
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


def test_a_stall_that_looks_do_not_see_has_not_recovered() -> None:
    looks = Looks()
    looks.look(10, stall())
    assert [looks.look(step, going(step)) for step in (10, 10, 10, None)] == [[]] * 4
    assert looks.look(10, stall()) == []


def test_the_first_step_of_a_run_that_had_not_started_or_starts_again_is_a_recovery() -> None:
    looks = Looks()
    assert looks.look(None, stall("not_started", "medium")) == ["stall_detected"]
    assert looks.look(None, going(None)) == []
    assert looks.look(1) == ["recovered"]
    looks = Looks()
    looks.look(10, stall())
    assert looks.look(None, going(None), generation=1) == []
    assert looks.look(5, generation=1) == ["recovered"]


# ---------------------------------------------------------------- the end of a stalled run


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


def test_a_late_look_is_no_suspension_and_no_grace_period_ends_a_stall_at_once() -> None:
    assert Looks().stays(stall(), 3, after=200).end == STALL_REASON
    assert Looks(WatchConfig(grace_period=0)).stays(stall(), 1).end == STALL_REASON


@pytest.mark.parametrize(
    "harmless",
    [
        stall("slow"),
        stall("slow", "medium"),
        stall("suspended"),
        stall("hang_idle", "low", "busy"),
        stall("hang_idle", "low", "growing"),
        *(stall("not_started", "medium", pause) for pause in ("growing", "busy", "phase", "spoken", "unknown")),
    ],
)
def test_slow_unsure_and_speaking_runs_are_told_of_and_never_ended(harmless: StallAnalysis) -> None:
    looks = Looks()
    [notice] = looks.notices(harmless.current_step, harmless)
    assert "No action will be taken" in notice.text
    for _ in range(100):
        assert looks.look(harmless.current_step, harmless) == [] and looks.end is None


@pytest.mark.parametrize(
    "sure",
    [
        stall("hang_spinning", pause="spinning"),
        stall("hang_idle", "medium", "unknown"),
        *(stall("not_started", "medium", pause) for pause in ("idle", "spinning", "quiet", "blocked")),
    ],
)
def test_a_hang_that_is_sure_and_a_silent_start_are_ended(sure: StallAnalysis) -> None:
    assert Looks().stays(sure).end == STALL_REASON


def test_a_hang_with_signs_of_work_is_ended_on_request_only() -> None:
    config = WatchConfig(poll_interval=60, grace_period=300, terminate_busy=True)
    busy = [stall("hang_idle", "low", pause) for pause in ("busy", "growing", "saving", "phase")]
    others = [stall("slow"), stall("suspended")]
    others += [stall("not_started", "low", "busy"), stall("not_started", "medium", "busy")]
    for found in busy + others:
        assert (Looks(config).stays(found).end == STALL_REASON) == (found in busy), found


def test_an_eta_that_does_not_converge_ends_a_run_at_half_speed() -> None:
    halved = {"flat_eta": "ETA not converging", "speed_dropping": True, "speed_ratio": 0.4}
    for signals, on_eta, ended in [
        (halved, False, True),
        ({**halved, "speed_dropping": False, "speed_ratio": 0.7}, False, False),
        ({**halved, "speed_dropping": False, "speed_ratio": 0.7}, True, True),
        ({**halved, "flat_eta": None}, True, False),
    ]:
        config = WatchConfig(poll_interval=60, grace_period=300, terminate_on_eta=on_eta)
        looks, found = Looks(config), dataclasses.replace(stall("slow"), signals=signals)
        for step in range(6):
            looks.look(10 + step, found)
        assert (looks.end == STALL_REASON) == ended, signals


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
    looks = Looks().stays(stall(), 4)
    looks.look(11, stall("slow", step=11))
    assert looks.look(12, stall(step=12)) == []
    assert looks.stays(stall(step=12), 4).end is None
    assert Looks(ends=False).stays(stall("slow"), 1).look(10, stall()) == [], "without a plan it is told once"


@pytest.mark.parametrize("running", [None, False])
def test_a_run_is_never_ended_while_nobody_knows_that_it_runs(running: bool | None) -> None:
    looks = Looks(WatchConfig(grace_period=60, hard_limit=100))
    for _ in range(10):
        assert looks.stays(stall(), 1, is_running=running, runtime=1000.0).end is None


def test_a_job_that_waits_in_a_queue_is_not_ended_for_not_starting() -> None:
    assert Looks().stays(stall("not_started", "medium"), 20, status=JobStatus.PENDING).end is None


# ---------------------------------------------------------------- milestones


def test_milestones_are_told_once_each_in_order() -> None:
    looks = Looks()
    said = [looks.look(step) for step in (0, 24, 25, 26, 49, 50, 74, 75, 99, 100)]
    assert said == [[], [], ["milestone_25"], [], [], ["milestone_50"], [], ["milestone_75"], [], []]


@pytest.mark.parametrize(("first", "told"), [(0, 3), (25, 2), (30, 2), (50, 1), (99, 0), (100, 0)])
def test_what_was_passed_before_the_first_look_is_no_milestone(first: int, told: int) -> None:
    looks = Looks()
    assert looks.look(first) == []
    kinds = [kind for step in range(first, 101) for kind in looks.look(step)]
    assert kinds == ["milestone_25", "milestone_50", "milestone_75"][3 - told :]


@pytest.mark.parametrize("milestones", [(25, 50, 75), (75, 50, 25)])
def test_of_milestones_that_pass_at_once_the_highest_is_told(milestones: tuple[float, ...]) -> None:
    looks = Looks(WatchConfig(milestones=milestones))
    assert [looks.look(step) for step in (1, 80, 90)] == [[], ["milestone_75"], []]


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
    looks = Looks(WatchConfig(milestones=(50, 99)))
    begun = [looks.look(progress=parse_progress(f"Epoch {epoch}/3")) for epoch in (1, 2, 3)]
    assert begun == [[], [], ["milestone_50"]], "an epoch that has begun is none"


NAN = LossAnalysis("nan", "the loss is nan", float("nan"), 0.5)


def test_nan_is_told_once_per_generation_also_when_it_comes_and_goes() -> None:
    looks = Looks()
    said = [looks.look(loss=loss) for loss in (NAN, NAN, None, NAN)]
    said += [looks.look(loss=NAN, generation=1) for _ in range(2)]
    assert said == [["loss_nan"], [], [], [], ["loss_nan"], []]


@pytest.mark.parametrize("kind", [None, "spike", "divergence", "plateau"])
def test_other_losses_are_not_told_as_nan(kind: str | None) -> None:
    assert Looks().look(loss=LossAnalysis(kind, "", 1.0, 1.0)) == []


@pytest.mark.parametrize(
    ("config", "kind", "limit"),
    [
        (WatchConfig(soft_limit=100), "soft_limit", 100.0),
        (WatchConfig(cost_per_hour=3.6, budget=1), "budget_passed", 1000.0),
    ],
)
def test_the_soft_limit_and_the_budget_are_told_once_per_start_and_end_nothing(
    config: WatchConfig, kind: str, limit: float
) -> None:
    looks = Looks(config)
    said = [looks.look(runtime=runtime) for runtime in (limit - 1, limit, limit + 60, 100 * limit)]
    assert said == [[], [kind], [], []] and looks.end is None
    assert [looks.look(runtime=runtime, generation=1) for runtime in (5.0, limit)] == [[], [kind]]


@pytest.mark.parametrize("changes", [{"budget": 1.0}, {"cost_per_hour": 9.0}])
def test_half_a_budget_is_none(changes: dict[str, float]) -> None:
    assert Looks(WatchConfig(**changes)).look(runtime=1e9) == []  # type: ignore[arg-type]


def test_the_hard_limit_ends_a_run_in_progress_unless_its_time_is_unknown() -> None:
    looks = Looks(WatchConfig(hard_limit=3600))
    for runtime in (None, 3599.0):
        looks.look(runtime=runtime)
        assert looks.end is None
    looks.look(runtime=3600.0)
    assert looks.end == f"Hard limit of {format_duration(3600)} reached"
    looks = Looks(WatchConfig(soft_limit=1, hard_limit=1, cost_per_hour=1, budget=1))
    assert looks.look(runtime=None) == [] and looks.end is None


def ended(**more: Any) -> TrainingStatus:
    looks = Looks()
    looks.look(**({"is_running": False, "status": JobStatus.UNKNOWN, "stalled": going()} | more))
    return looks.status


@pytest.mark.parametrize(
    ("state", "is_running", "end", "kind"),
    [
        ("finished", False, "finished", "finished"),
        ("finished", None, "finished", "finished"),
        ("stopped", False, "stopped", "ended"),
        ("failed", False, "failed", "failed"),
        ("unknown", False, "ended", "ended"),
        ("running", True, None, None),
        ("unknown", None, None, None),
        ("failed", None, None, None),
    ],
)
def test_the_end_of_a_run_is_what_is_judged_of_it_once_it_can_be_seen(
    state: str, is_running: bool | None, end: str | None, kind: str | None
) -> None:
    status = ended(is_running=is_running, verdict=Verdict(state, "unknown", "why"))
    assert decide_end(status) == (end and (end, "why"))
    assert not end or end_notice(end, "why", status, CONFIG, "job").kind == kind


def test_a_failure_is_told_with_the_end_of_its_log_and_a_good_end_with_its_cost() -> None:
    status = dataclasses.replace(ended(runtime=60.0), recent_output="step 5\nOut of memory")
    notice = end_notice("failed", "why", status, WatchConfig(), "job")
    assert notice.log == "step 5\nOut of memory" and ("Runtime", "1m") in notice.fields
    notice = end_notice("finished", "", ended(runtime=7200.0), WatchConfig(cost_per_hour=2.5), "job")
    assert ("Cost", "$5.00") in notice.fields
