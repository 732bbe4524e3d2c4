"""What Prometheus gets of a fleet: what is known, in base units, as a text that always parses."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan
from typing import Any

import pytest

from tests.fakes import EPOCH, FakeClock
from tests.hostile.texts import HOSTILE, harm_in
from tests.metrics_text import Metrics
from tests.unit.fleet.fleet_world import Watch, unreachable
from training_monitor import __version__
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.fleet import MockFleet
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, LEVELS, Thresholds, TrainingMetrics
from training_monitor.fleet.prometheus import MOST_KEY, MOST_MEMBERS, format_last_look, format_metrics, list_metrics
from training_monitor.fleet.values import FleetAlert, FleetSnapshot, FleetSummary, MemberSpec
from training_monitor.verdict.judge import NOBODY_LOOKED, STATES

RUNS = Verdict("running", "ok", "step 70 of 100", seconds_without_step=4.0, limit_seconds=90.0)
HANGS = Verdict("stalled", "failed", "no step for 20m", seconds_without_step=1200.0, limit_seconds=450.0)
ENDED = Verdict("finished", "ok", "finished at step 100 of 100")
AWAY: dict[str, Any] = {"error": "ssh: no route to host", "stale_since": EPOCH - 60}


TRAINS: dict[str, Any] = {
    **{"verdict": RUNS, "step": 70, "total_steps": 100, "epoch": 2.0, "total_epochs": 3, "loss": 2.5},
    **{"learning_rate": 1e-4, "grad_norm": 0.5, "steps_per_second": 2.0, "runtime_seconds": 35.0, "log_age": 3.0},
    **{"gpu_util": 87.5, "memory_util": 50.0, "disk_util": 25.0, "ram_util": 12.5, "gpu_power": 0.75},
    **{"gpu_temperature": 66.0, "extra": {"reward": 4.0}, "last_updated": EPOCH - 3},
}


def row(key: str = "gpu1", status: str = "running", number: int | str | None = None, **values: Any) -> TrainingMetrics:
    return TrainingMetrics(key if number is None else number, "H100", status, key=key, name=key, **values)


def of(*rows: TrainingMetrics, thresholds: Thresholds = DEFAULT_THRESHOLDS, **values: Any) -> Metrics:
    return Metrics(format_metrics(FleetSnapshot(EPOCH, rows, **values), thresholds))


# ---------------------------------------------------------------- one member


def test_what_is_known_of_a_training_is_in_base_units() -> None:
    found = of(row(**TRAINS))
    expected = {
        **{"up": 1.0, "step": 70.0, "planned_steps": 100.0, "epoch": 2.0, "planned_epochs": 3.0, "progress_ratio": 0.7},
        **{"loss": 2.5, "loss_finite": 1.0, "learning_rate": 1e-4, "gradient_norm": 0.5, "steps_per_second": 2.0},
        **{"runtime_seconds": 35.0, "remaining_seconds": 15.0, "step_age_seconds": 4.0, "stall_limit_seconds": 90.0},
        **{"log_age_seconds": 3.0, "gpu_utilization_ratio": 0.875, "gpu_memory_utilization_ratio": 0.5},
        **{"disk_utilization_ratio": 0.25, "memory_utilization_ratio": 0.125, "gpu_power_ratio": 0.75},
        **{"gpu_temperature_celsius": 66.0, "last_seen_timestamp_seconds": EPOCH - 3},
    }
    assert {name: found.get(name, member="gpu1") for name in expected} == expected
    assert found.get("log_value", member="gpu1", name="reward") == 4.0


def test_what_is_unknown_or_impossible_is_absent_and_not_zero() -> None:
    found = of(row(verdict=NOBODY_LOOKED))
    with_a_value = {name for name, samples in found.samples.items() if any("member" in dict(each) for each in samples)}
    names = ("member_info", "member_group", "health", "state", "verdict")
    assert with_a_value == {f"training_monitor_{name}" for name in names}
    assert found.chosen("state", "state", member="gpu1") == "unknown"
    odd = {"gpu_util": -1.0, "disk_util": 250.0, "memory_util": nan, "gpu_temperature": inf}
    found = of(row(**{**TRAINS, **odd}))
    for name in ("gpu_utilization_ratio", "disk_utilization_ratio", "gpu_memory_utilization_ratio"):
        assert found.get(name, member="gpu1") is None, name
    assert found.get("gpu_temperature_celsius", member="gpu1") is None
    found = of(row(), summary=FleetSummary(unpriced=2, without_total=1))
    unknown = "fleet_dollars_per_hour fleet_cost_dollars credit_dollars hidden_machines account_up"
    for name in f"{unknown} last_look_timestamp_seconds".split():
        assert found.get(name) is None, name


def test_the_state_is_one_of_all_states_and_the_level_follows_the_thresholds() -> None:
    for state in STATES:
        found = of(row(verdict=Verdict(state, "warning", "so it is")))
        assert found.chosen("state", "state", member="gpu1") == state
        assert set(found.by("state", "state", member="gpu1")) == set(STATES)
        assert found.chosen("verdict", "verdict", member="gpu1") == "warning"
    found = [of(row(**TRAINS), thresholds=Thresholds(low_gpu=low)) for low in (10.0, 90.0)]
    assert [each.chosen("health", "level", member="gpu1") for each in found] == ["healthy", "warning"]
    found = of(row("a", groups=("nightly", "llama")), row("b"))
    assert found.by("member_group", "group", member="a") == {"nightly": 1.0, "llama": 1.0}
    assert found.by("member_group", "group", member="b") == {"": 1.0}


def test_a_member_without_an_answer_is_down_and_unknown() -> None:
    away = of(row(**TRAINS, **AWAY))
    assert of(row(**TRAINS)).samples.keys() > away.samples.keys()
    with_a_value = {name for name in away.samples if away.get(name.removeprefix("training_monitor_"), member="gpu1")}
    assert with_a_value == {"training_monitor_last_seen_timestamp_seconds"}
    assert away.get("up", member="gpu1") == 0.0
    for name, label in (("state", "state"), ("verdict", "verdict"), ("health", "level")):
        assert away.chosen(name, label, member="gpu1") == "unknown"
    for name in ("member_info", "member_group"):
        assert f"training_monitor_{name}" in away.samples
    ended = of(row(verdict=ENDED, **AWAY))
    assert ended.chosen("state", "state", member="gpu1") == "finished" and ended.get("up", member="gpu1") == 0.0


def test_a_training_ends_with_its_machine(subtests: pytest.Subtests) -> None:
    ends = {**dict.fromkeys(("exited", "lost", "dead"), ("failed", "failed")), "stopped": ("stopped", "warning")}
    ends |= dict.fromkeys(("offline", "frozen", "loading", "unknown"), ("unknown", "unknown"))
    for status, (state, verdict) in ends.items():
        with subtests.test(status=status):
            for more in ({}, AWAY):
                found = of(row("vast://1", number=1, status=status, **more))
                assert found.chosen("state", "state", member="vast://1") == state
                assert found.chosen("verdict", "verdict", member="vast://1") == verdict
                if state != "unknown":
                    assert found.chosen("health", "level", member="vast://1") == LEVELS[verdict]
    finished = of(row("vast://1", number=1, status="lost", verdict=ENDED))
    assert finished.chosen("state", "state", member="vast://1") == "finished"


def test_a_machine_costs_while_it_is_silent_and_one_not_asked_is_neither_up_nor_down() -> None:
    found = of(row("vast://1", number=1, cost_per_hour=0.5, total_cost=12.25, **TRAINS, **AWAY))
    assert found.get("price_dollars_per_hour", member="vast://1") == 0.5
    assert found.get("cost_dollars", member="vast://1") == 12.25
    for status in ("stopped", "exited", "loading", "offline", "lost"):
        assert of(row("vast://1", status, 1, verdict=ENDED)).get("up", member="vast://1") is None, status
    assert of(row("vast://1", "running", 1, verdict=NOBODY_LOOKED)).get("up", member="vast://1") is None
    assert of(row("gpu1", "stopped", verdict=ENDED)).get("up", member="gpu1") == 1.0


def test_a_training_that_is_not_there_stalls_or_has_ended_makes_no_steps() -> None:
    found = of(row(**{**TRAINS, "verdict": None, "absent": "no log found"}))
    assert found.get("up", member="gpu1") == 1.0 and found.get("gpu_utilization_ratio", member="gpu1") == 0.875
    for name in ("step", "loss", "loss_finite", "progress_ratio", "planned_steps", "log_age_seconds"):
        assert found.get(name, member="gpu1") is None, name
    for verdict in (HANGS, ENDED):
        assert of(row(**{**TRAINS, "verdict": verdict})).get("steps_per_second", member="gpu1") is None
    assert of(row(**{**TRAINS, "verdict": HANGS})).get("step_age_seconds", member="gpu1") == 1200.0
    assert of(row(**{**TRAINS, "verdict": ENDED})).get("step_age_seconds", member="gpu1") is None


def test_a_loss_that_is_no_number_is_said_as_it_is_and_after_the_end_no_alarm() -> None:
    losses = [of(row(**{**TRAINS, "loss": loss})) for loss in (nan, inf, -inf, 1e308, -3.0)]
    values = [found.get("loss", member="gpu1") for found in losses]
    assert values[0] is not None and isnan(values[0]) and values[1:] == [inf, -inf, 1e308, -3.0]
    assert [found.get("loss_finite", member="gpu1") for found in losses] == [0.0, 0.0, 0.0, 1.0, 1.0]
    seen = of(row(verdict=RUNS, loss_analysis=LossAnalysis("nan", "the loss is nan", nan, 1.0)))
    assert seen.get("loss_finite", member="gpu1") == 0.0 and seen.get("loss", member="gpu1") is None
    for status, verdict in (("running", ENDED), ("stopped", None)):
        found = of(row("vast://1", status, 1, **{**TRAINS, "verdict": verdict, "loss": nan}))
        assert found.get("loss_finite", member="vast://1") is None
        assert isnan(found.get("loss", member="vast://1") or 0.0)


# ---------------------------------------------------------------- the fleet


def test_the_sums_of_a_fleet() -> None:
    summary = FleetSummary(
        levels={"healthy": 2, "warning": 0, "error": 1, "unknown": 0},
        dollars_per_hour=3.5,
        unpriced=1,
        dollars_spent=20.25,
        credit=50.0,
        credit_hours=2.5,
        dollars_to_completion=7.0,
        seconds_to_completion=600.0,
        hidden=2,
        hidden_dollars_per_hour=0.25,
    )
    found = of(summary=summary, listed_at=EPOCH - 1, interval=30.0)
    assert found.by("members", "level") == summary.levels
    expected = {
        **{"fleet_dollars_per_hour": 3.5, "machines_without_price": 1.0, "fleet_cost_dollars": 20.25},
        **{"fleet_remaining_seconds": 600.0, "fleet_remaining_cost_dollars": 7.0, "credit_dollars": 50.0},
        **{"credit_remaining_seconds": 9000.0, "hidden_machines": 2.0, "hidden_dollars_per_hour": 0.25},
        **{"account_up": 1.0, "look_interval_seconds": 30.0, "last_look_timestamp_seconds": EPOCH - 1},
        "members_omitted": 0.0,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found.get("build_info", version=__version__) == 1.0


def test_of_an_account_without_a_listing_nothing_is_known() -> None:
    for error, up in ((None, None), ("vastai: no answer", 0.0)):
        found = of(summary=FleetSummary(levels={"healthy": 0}), error=error)
        assert found.get("account_up") == up
        assert found.by("members", "level") == {} and found.get("fleet_dollars_per_hour") is None
    assert of(summary=FleetSummary(levels={"healthy": 0}), listed_at=EPOCH).get("members", level="healthy") == 0.0
    summary = FleetSummary(dollars_per_hour=1.0, credit=50.0, credit_hours=50.0)
    found = of(summary=summary, listed_at=EPOCH - 60, error="vastai: no answer")
    assert found.get("credit_dollars") is None and found.get("credit_remaining_seconds") is None
    assert found.get("fleet_dollars_per_hour") == 1.0 and found.get("last_look_timestamp_seconds") == EPOCH - 60


def test_alerts_are_counted_by_kind_and_level() -> None:
    said = [("stall", "error"), ("disk", "warning"), ("stall", "error"), ('rule:"odd"\\name', "warning")]
    found = of(alerts=tuple(FleetAlert(EPOCH, "gpu1", kind, "why", level) for kind, level in said))
    assert found.get("recent_alerts", kind="stall", level="error") == 2.0
    assert found.get("recent_alerts", kind="disk", level="warning") == 1.0
    assert found.get("recent_alerts", kind='rule:"odd"\\name', level="warning") == 1.0


def test_the_newest_answer_of_all_is_the_last_look_and_late_ones_are_told() -> None:
    rows = [row(key, last_updated=EPOCH - age) for key, age in (("a", 5), ("b", 2), ("c", 9))]
    assert of(*rows).get("last_look_timestamp_seconds") == EPOCH - 2
    assert of(*rows, listed_at=EPOCH - 1).get("last_look_timestamp_seconds") == EPOCH - 1
    found = [of(row(**TRAINS), late=late).get("fleet_looks_late_seconds") for late in (None, 0.0, 40.5)]
    assert found == [None, 0.0, 40.5]


def test_what_is_left_when_nobody_looks_any_more_says_nothing_of_a_member() -> None:
    summary = FleetSummary(levels={"healthy": 1}, dollars_per_hour=2.0)
    text = format_last_look(FleetSnapshot(EPOCH, (row(**TRAINS),), summary, interval=30.0))
    names = ("build_info", "look_interval_seconds", "last_look_timestamp_seconds")
    assert set(Metrics(text).samples) == {f"training_monitor_{name}" for name in names}
    assert Metrics(text).get("last_look_timestamp_seconds") == EPOCH - 3


def test_a_fleet_that_is_watched() -> None:
    watch = Watch(30, specs=(MemberSpec("local"),))
    watch.train(range(1, 40))
    found = Metrics(format_metrics(watch.monitor.snapshot(), DEFAULT_THRESHOLDS))
    now = watch.world.clock.time()
    assert found.get("up", member="local") == 1.0 and found.get("step", member="local") == 39.0
    assert found.chosen("state", "state", member="local") == "running"
    assert found.get("gpu_utilization_ratio", member="local") == 0.97
    assert found.get("credit_dollars") == 12.5 and found.get("fleet_dollars_per_hour") == 0.5
    assert found.get("last_look_timestamp_seconds") == now
    watch.world.machine("local").error = unreachable()
    watch.look()
    found = Metrics(format_metrics(watch.monitor.snapshot(), DEFAULT_THRESHOLDS))
    assert found.get("up", member="local") == 0.0 and found.get("step", member="local") is None
    assert found.get("up", member="vast://30") == 1.0
    assert found.get("last_seen_timestamp_seconds", member="local") == now


def test_every_metric_has_a_sample_in_some_fleet_and_a_telling_help() -> None:
    snapshot = MockFleet(clock=FakeClock()).snapshot()
    listed = list_metrics(replace(snapshot, rows=(*snapshot.rows, row(**TRAINS))), DEFAULT_THRESHOLDS)
    assert [metric.name for metric in listed if not metric.samples] == []
    assert len({metric.name for metric in listed}) == len(listed) > 40
    for metric in listed:
        assert metric.help[0].isupper() and metric.help.endswith(".") and "\n" not in metric.help


# ---------------------------------------------------------------- hostile


@pytest.mark.parametrize("text", [*HOSTILE, 'a"b\\c\nd', "x" * 5000, "é" * 5000, "# HELP a b\n# TYPE a gauge\na 1", ""])
def test_any_text_in_a_label_parses_and_lies_to_nobody(text: str) -> None:
    rows = [row(f"{text}{end}", groups=(text, f"{text}1"), extra={text: 1.0}, verdict=RUNS) for end in "ab"]
    alerts = (FleetAlert(EPOCH, "", f"rule:{text}", "why"),)
    rows += [replace(rows[0], name=text, gpu_type=text)]
    snapshot = FleetSnapshot(EPOCH, tuple(rows), alerts=alerts)
    written = format_metrics(snapshot, DEFAULT_THRESHOLDS)
    found = Metrics(written)
    labels = [value for samples in found.samples.values() for each in samples for _, value in each]
    assert not any(harm_in(label) for label in labels)
    assert max(map(len, labels)) <= MOST_KEY + 4
    assert len({dict(each)["member"] for each in found.samples["training_monitor_member_info"]}) == 3
    assert written.encode() and "why" not in written


def test_secrets_are_masked_and_members_stay_apart() -> None:
    keys = [f"ssh://me:{word}@gpu1" for word in ("hunter22hunter22", "correct-horse-battery")]
    text = format_metrics(FleetSnapshot(EPOCH, tuple(row(key, verdict=RUNS) for key in keys)), DEFAULT_THRESHOLDS)
    assert "hunter22" not in text and "horse" not in text
    assert set(Metrics(text).by("up", "member")) == {"ssh://me:***@gpu1", "ssh://me:***@gpu1~2"}
    long = format_metrics(FleetSnapshot(EPOCH, (row(f"{'x ' * 85}hf_{'aB3' * 20}"),)), DEFAULT_THRESHOLDS)
    assert "hf_" not in long  # it is masked before the label is cut
    said = {"message": "free text one", "error": "free text two", "absent": "free text three"}
    text = format_metrics(FleetSnapshot(EPOCH, (row(**said),), error="free text four"), DEFAULT_THRESHOLDS)
    assert "free text" not in text
    key = 'k8s://ns/pod#C:\\new "x"\\'
    assert of(row(key, verdict=RUNS)).get("up", member=key) == 1.0


@pytest.mark.parametrize("value", [nan, inf, -inf, 1e308, -1e308, -1.0, 0.0, 5e-324, True])
def test_any_number_parses(value: Any) -> None:
    numbers = {name: value for name, old in TRAINS.items() if isinstance(old, int | float)}
    verdict = replace(RUNS, seconds_without_step=value, limit_seconds=value)
    extra = {**numbers, "verdict": verdict, "extra": {"reward": value}, "cost_per_hour": value, "total_cost": value}
    summary = FleetSummary({"error": value}, value, value, value, value, value, value, value, value)
    found = of(row(**extra), summary=summary, interval=value)
    for name, samples in found.samples.items():
        if name.endswith("_ratio"):
            assert all(0.0 <= each <= 1.0 for each in samples.values()), name


def test_ten_thousand_members_are_cut_and_counted() -> None:
    rows = tuple(row("same" if number % 2 else f"gpu{number}", **TRAINS) for number in range(10_000))
    summary = FleetSummary(levels={"healthy": 10_000})
    found = of(*rows, summary=summary)
    assert len(found.samples["training_monitor_up"]) == MOST_MEMBERS
    assert found.get("members_omitted") == 10_000 - MOST_MEMBERS and found.get("members", level="healthy") == 10_000
