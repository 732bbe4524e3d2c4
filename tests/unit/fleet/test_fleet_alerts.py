"""What is told of a member and of the account, once, and what is no event."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import pytest

from training_monitor.core.units import DAY
from training_monitor.core.values import LossAnalysis, Verdict
from training_monitor.fleet.alerts import ToldAccount, ToldMember, decide_account_alerts, decide_fleet_alerts
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.metrics import Thresholds, TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSample, FleetSummary, sample_of

NOW = 1_750_000_000.0
CONFIG = FleetConfig()


def row(status: str = "running", **values: Any) -> TrainingMetrics:
    return TrainingMetrics(7, "H100", status, key="vast://7", **values)


RUNS = Verdict("running", "ok", "step 70 of 100")
SLOW = Verdict("slow", "warning", "half as fast as before")
HANGS = Verdict("stalled", "failed", "no step for 20m, limit 7m30s: GPUs idle")
ENDED = Verdict("finished", "ok", "finished at step 100 of 100")
DIED = Verdict("failed", "failed", "failed at step 40 of 200: CUDA error: device-side assert")
GONE = Verdict("unknown", "unknown", "it ended, and no log shows whether it succeeded")
SILENT = Verdict("unknown", "unknown", "a single check does not show when it reached that step")
DONE = {"finished": True, "verdict": ENDED}


def watch(
    rows: Sequence[TrainingMetrics], config: FleetConfig = CONFIG, told: ToldMember | None = None, every: float = 10.0
) -> list[list[FleetAlert]]:
    """What is told at each of these looks."""
    told, before, found = told or ToldMember(), None, []
    for number, metrics in enumerate(rows):
        now = NOW + every * number
        sample = FleetSample(now, {}) if metrics.error else sample_of(metrics, now)
        told, alerts = decide_fleet_alerts(told, before, metrics, sample, config, now)
        before = metrics
        found.append(alerts)
    return found


def kinds(rows: Sequence[TrainingMetrics], **options: Any) -> list[str]:
    """At which look (from 0) which kind is told on which level."""
    found = watch(rows, **options)
    return [f"{number} {each.kind} {each.level}" for number, alerts in enumerate(found) for each in alerts]


AT_WORK_VALUES: dict[str, Any] = {"step": 10, "total_steps": 100, "loss": 2.0, "is_running": True, "gpu_util": 90.0}
AT_WORK = row(**AT_WORK_VALUES, epoch=1.0, total_epochs=3)


def at(step: int | None, verdict: Verdict | None = RUNS, **values: Any) -> TrainingMetrics:
    return row(step=step, verdict=verdict, **values)


DIED_ROW = row(is_running=False, step=10, verdict=DIED)
END = row(step=100, is_running=False, **DONE)
SAVING = row(step=100, is_running=True, **DONE)
HUNG = at(70, HANGS, is_running=True)
STALE: dict[str, Any] = {"error": "ssh: timed out", "stale_since": NOW}
BAD_AND_STALE = row(
    **STALE, loss=nan, verdict=HANGS, is_running=False, disk_util=99.0, cost_per_hour=9.0, finished=True
)
FAILS_TWICE = ["0 failed error", "1 over:failed info", "2 failed error"]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        # no news
        ([row(step=each, loss=2.0, is_running=True, verdict=RUNS) for each in (10, 20, 30)], []),
        ([row("unknown"), row("loading"), row(), row("unknown")], []),
        ([row(loss=1.0, loss_analysis=LossAnalysis("plateau", "flat", 1.0, 1.0))], []),
        # up again, and it fails again
        ([row("exited"), row(), row("exited")], FAILS_TWICE),
        ([row("lost"), row(), row("lost")], ["0 lost error", "1 over:lost info", "2 lost error"]),
        ([DIED_ROW, row(is_running=True, step=10), DIED_ROW], FAILS_TWICE),
        # its process is unknown for a moment: the same failure
        ([DIED_ROW, row(is_running=None, step=10), DIED_ROW], ["0 failed error"]),
        ([AT_WORK, row("exited"), row("lost"), row("lost")], ["1 failed error", "2 lost error"]),
        # stopped by a person
        ([AT_WORK, row("stopped"), row("stopped")], []),
        ([AT_WORK, row(job_status="stopped", is_running=False)], []),
        # its log shows the end while its process still saves
        ([AT_WORK, SAVING, SAVING, SAVING], ["1 finished info"]),
        ([SAVING, SAVING], []),
        # without a process, steps show that it was at work
        ([row(step=10), row(step=20), row(step=100, **DONE), row(step=100, **DONE)], ["2 finished info"]),
        # a second training in the same place
        ([AT_WORK, END, AT_WORK, END], ["1 finished info", "3 finished info"]),
        # slow is a warning, a hang after it is worse; slow has not recovered
        (
            [at(70, SLOW), at(70, SLOW), at(72, HANGS), at(72, HANGS), at(73, SLOW)],
            ["0 stall warning", "2 stall error"],
        ),
        (
            [at(70, HANGS), at(71, SLOW), at(72, SLOW), at(73, SILENT), at(74, SLOW), at(75), at(76)],
            ["0 stall error", "5 recovered info"],
        ),
        (
            [at(70, SLOW), at(71, SLOW), at(72), at(73, SLOW)],
            ["0 stall warning", "2 recovered info", "3 stall warning"],
        ),
        # a stall that ends with its training has not recovered
        ([HUNG, at(100, **{**DONE, "is_running": False})], ["0 stall error", "1 finished info"]),
        ([at(70, HANGS), at(71, DIED), at(72)], ["0 stall error", "1 failed error"]),
        # the next run stalls at the step where the one before ended
        (
            [HUNG, HUNG, row(step=70, is_running=False, job_status="stopped"), HUNG, HUNG],
            ["0 stall error", "3 stall error"],
        ),
        # prices
        ([row(cost_per_hour=each) for each in (0.5, 0.6, 0.5, 0.6)], ["1 price warning", "3 price warning"]),
        ([row("stopped", cost_per_hour=0.01), row(cost_per_hour=0.5), row("stopped", cost_per_hour=0.9)], []),
        # a failed look begins nothing and ends nothing
        ([AT_WORK, BAD_AND_STALE], []),
        ([at(70, HANGS), at(90, **STALE), at(70, HANGS)], ["0 stall error"]),
        ([row("lost"), row(**STALE), row("lost")], ["0 lost error"]),
        # no answer, because it exited
        ([AT_WORK, row(**STALE), row("exited", **STALE), row("exited", **STALE)], ["2 failed error"]),
    ],
)
def test_events_are_reported_once(looks: list[TrainingMetrics], expected: list[str]) -> None:
    assert kinds(looks) == expected


def test_an_alert_says_when_of_whom_and_what() -> None:
    alert = watch([row("exited", message="OOM", step=40)])[0][0]
    assert alert == FleetAlert(NOW, "vast://7", "failed", "exited: OOM", "error", 40)
    assert len(watch([row("exited", message="x" * 9000)])[0][0].text) <= 300


def test_what_is_bad_is_told_at_the_first_look_too_and_once() -> None:
    for kind, values in [
        ("lost", {"status": "lost"}),
        ("failed", {"status": "exited"}),
        ("failed", {"status": "offline"}),
        ("failed", {"status": "failed"}),
        ("failed", {"job_status": "failed"}),
        ("failed", {"is_running": False, "step": 10, "verdict": DIED}),
        ("stall", {"verdict": HANGS}),
        ("nan", {"loss": nan}),
    ]:
        bad = row(**values)
        assert kinds([bad, bad, bad]) == [f"0 {kind} error"]
        assert kinds([AT_WORK, bad, bad]) == [f"1 {kind} error"]


def test_an_end_without_a_known_cause_is_a_warning() -> None:
    gone, died = row(is_running=False, step=10, verdict=GONE), row(is_running=False, step=10, verdict=DIED)
    assert kinds([AT_WORK, gone, gone, died, died]) == ["1 failed warning", "3 failed error"]
    assert watch([gone])[0][0].text == GONE.reason
    absent = row(is_running=False, absent="its process and its log no longer exist")
    assert kinds([AT_WORK, absent]) == ["1 failed warning"]
    assert kinds([AT_WORK, row(absent="its log no longer exists")]) == []
    tidied = row(is_running=False, absent="its process and its log no longer exist", **DONE)
    assert kinds([AT_WORK, row(**DONE), tidied]) == ["1 finished info"]
    assert kinds([AT_WORK, row(is_running=None, step=10, verdict=SILENT)]) == []
    assert kinds([row("exited"), row("lost")], told=ToldMember(ending=True)) == []  # somebody destroys it


def test_the_end_and_a_stall_are_told_once_and_when_it_is_over() -> None:
    done = row(step=100, loss=0.5, is_running=False, **DONE)
    assert kinds([AT_WORK, done, done]) == ["1 finished info"]
    assert watch([AT_WORK, done])[1][0].text == "the training has finished at step 100, loss 0.5"
    assert kinds([done, done]) == []
    assert kinds([row(), done, done]) == []
    looks = [AT_WORK, at(70, HANGS), at(70, HANGS), at(71)]
    assert kinds(looks) == ["1 stall error", "3 recovered info"]
    assert [each.generation for alerts in watch(looks) for each in alerts] == [70, 71]
    assert watch(looks)[1][0].text == f"stalled: {HANGS.reason}"


def test_a_stall_that_is_not_seen_any_more_without_a_step_is_not_over() -> None:
    for seen in [at(70), at(70, None), at(71, None), at(70, SILENT), at(71, SILENT), at(None)]:
        assert kinds([at(70, HANGS), seen, at(70, HANGS)]) == ["0 stall error"], seen
    assert watch([at(None, HANGS)])[0][0].generation == 0  # before the first step


def test_each_run_of_nan_and_each_full_disk_is_told_once() -> None:
    looks = [row(loss=each, step=step) for step, each in enumerate((1.0, nan, nan, None, nan, 1.0, nan))]
    assert kinds(looks) == ["1 nan error", "5 over:nan info", "6 nan error"]
    assert watch(looks)[1][0].text == "the loss is nan"
    looks = [row(disk_util=each) for each in (90.0, 96.0, 94.5, 96.0, None, 97.0, 80.0, 96.0)]
    assert kinds(looks) == ["1 disk warning", "6 over:disk info", "7 disk warning"]
    assert kinds(looks, config=FleetConfig(thresholds=Thresholds(full_disk=None))) == []


@pytest.mark.parametrize("kind", ["divergence", "spike"])
def test_a_loss_that_rises_is_told_once_until_it_does_not(kind: str) -> None:
    rising, calm = LossAnalysis(kind, "the loss rises", 3.0, 1.0), LossAnalysis(None, "calm", 1.0, 1.0)
    looks = [row(loss=1.0, loss_analysis=each) for each in (calm, rising, rising, None, rising, calm, rising)]
    assert kinds(looks) == [f"1 {kind} warning", f"5 over:{kind} info", f"6 {kind} warning"]


def epochs(*seen: Any, total: int | None = 3) -> list[tuple[int, str, int]]:
    """At which look which text with which generation; a look is how many epochs are done, or (epochs done, step)."""
    looks = [each if isinstance(each, tuple) else (each, None) for each in seen]
    found = watch([row(epochs_done=done, step=step, total_epochs=total) for done, step in looks])
    return [(number, each.text, each.generation) for number, alerts in enumerate(found) for each in alerts]


FIRST, SECOND = "epoch 1 of 3 is done", "epoch 2 of 3 is done"


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ((0.0, 0.0, 1.0, 1.0, 2.0), [(2, FIRST, 1), (4, SECOND, 2)]),
        # a log that shows parts of epochs
        ((0.5, 0.98, 1.0, 1.5, 2.01), [(2, FIRST, 1), (4, SECOND, 2)]),
        # of several at once the last
        ((0.0, 2.0), [(1, SECOND, 2)]),
        # done long before the first look
        ((2.0, 2.0), []),
        ((None, None, 2.0), []),
        # begun anew
        (((2.0, 900), (0.0, 10), (0.0, 20), (1.0, 400)), [(3, FIRST, 1)]),
        # resumed within an epoch
        (((2.1, 700), (2.3, 750), (2.05, 690), (2.2, 720), (1.9, 650), (2.0, 660)), []),
        # no numbers
        ((1.0, nan, float("inf"), -1.0, 1e300), []),
    ],
)
def test_each_epoch_that_is_done_is_told_once(looks: Sequence[Any], told: list[tuple[int, str, int]]) -> None:
    assert epochs(*looks) == told


def test_epochs_of_another_run_are_its_own_and_told_with_loss_and_total() -> None:
    seen = [(2.1, 1), (3.0, 1), (None, 0), (1.2, 2), (2.0, 2), (2.1, 0), (2.2, 2)]
    found = watch([row(epochs_done=done, run=run, total_epochs=3) for done, run in seen])
    told = [(number, each.text, each.generation % 2**32) for number, alerts in enumerate(found) for each in alerts]
    assert told == [(1, "epoch 3 of 3 is done", 3), (4, "epoch 2 of 3 is done", 2)]
    looks = [row(epochs_done=0.0, total_epochs=3), row(epochs_done=1.0, total_epochs=3, loss=1.23456)]
    assert watch(looks)[1][0].text == "epoch 1 of 3 is done, loss 1.235"
    assert epochs(0.5, 1.5, total=None) == [(1, "epoch 1 is done", 1)]


def test_a_price_that_rises_is_told_against_the_one_seen_first() -> None:
    looks = [row(cost_per_hour=each) for each in (0.50, 0.504, 0.55, 0.55, None, 0.551, 0.60)]
    found = [each for alerts in watch(looks) for each in alerts]
    texts = [f"its price rose from $0.500 to ${each} per hour" for each in ("0.550", "0.600")]
    assert [(each.text, each.generation) for each in found] == [(texts[0], 550), (texts[1], 600)]


def test_a_price_that_trembles_is_told_once() -> None:
    def told(rise: float | None, *prices: float) -> list[str]:
        config = FleetConfig(thresholds=Thresholds(price_rise=rise))
        return kinds([row(cost_per_hour=each) for each in prices], config=config)

    assert told(Thresholds().price_rise, 0.5, 0.5051, 0.5049, 0.5051, 0.5049, 0.5051) == ["1 price warning"]
    assert told(0.0, 0.3, 0.1 + 0.2, 0.30001) == []
    assert told(0.0, 0.3, 0.31, 0.3, 0.31) == ["1 price warning", "3 price warning"]
    assert told(None, 0.5, 5.0) == []


def test_steps_beyond_all_numbers_are_bounded_generations() -> None:
    assert watch([at(10**30, HANGS)])[0][0].generation == 2**53
    assert watch([row("exited", step=-5)])[0][0].generation == 0
    looks = [row(epochs_done=each, step=step, total_epochs=3, run=7) for each, step in ((0.0, 5), (1.0, 9))]
    assert [each.generation for each in watch(looks)[1]] == [7 * 2**32 + 1]
    largest = watch([at(10**30, HANGS, run=2**20 - 1)])[0][0].generation
    assert 2**52 - 2**32 <= largest < 2**53


def test_a_rule_is_told_on_the_level_of_its_priority() -> None:
    for priority, level in {"low": "info", "normal": "warning", "high": "error", "urgent": "error"}.items():
        config = FleetConfig(rules=(AlertRule("idle", "gpu_utilization < 5", priority),))
        alert = watch([row(gpu_util=3.0)], config)[0][0]
        assert (alert.kind, alert.level, alert.text) == ("rule:idle", level, "gpu_utilization < 5 (gpu_utilization 3)")


def test_a_rule_waits_for_its_time_and_says_its_message_once() -> None:
    config = FleetConfig(rules=(AlertRule("idle", "gpu_utilization < 5 for 30s", message="it idles"),))
    looks = [row(gpu_util=each) for each in (3.0, 3.0, 3.0, 3.0, 3.0, 90.0, 3.0)]
    found = watch(looks, config)
    begun, over = "it idles (gpu_utilization 3)", "no longer true: it idles (gpu_utilization 90)"
    assert [[each.text for each in alerts] for alerts in found] == [[], [], [], [begun], [], [over], []]
    assert found[3][0].generation == NOW and found[5][0].kind == "over:rule:idle"


def test_a_rule_counts_only_what_was_seen_but_may_ask_for_what_is_not_known() -> None:
    config = FleetConfig(rules=(AlertRule("idle", "gpu_utilization < 5 for 30s"),))
    stale = row(gpu_util=3.0, error="ssh: timed out")
    assert kinds([row(gpu_util=3.0), *[stale] * 9, row(gpu_util=3.0)], config=config) == []
    config = FleetConfig(rules=(AlertRule("silent", "step is unknown for 30s"),))
    looks = [row(step=5), *[row(step=5, error="ssh: timed out")] * 6, row(step=6)]
    assert kinds(looks, config=config) == ["4 rule:silent warning", "7 over:rule:silent info"]


def test_a_rule_tells_its_values_and_stands_apart_from_others() -> None:
    rule = AlertRule("odd", '(loss > 5 or loss is nan) and status == "running" and disk_utilization is unknown')
    [(_, alert)] = watch([row(loss=float("nan"))], FleetConfig(rules=(rule,)))
    assert alert.text == f"{rule.when} (loss nan, status running)"
    rules = AlertRule("a", "loss > 5"), AlertRule("b", "gpu_utilization < 5")
    looks = [row(loss=6.0, gpu_util=90.0), row(loss=6.0, gpu_util=1.0)]
    assert kinds(looks, config=FleetConfig(rules=rules)) == ["0 rule:a warning", "1 rule:b warning"]
    full, empty = {**AT_WORK_VALUES, "disk_util": 97.0}, {**AT_WORK_VALUES, "disk_util": 40.0}
    texts = [each.text for alerts in watch([row(**full), row(**empty)]) for each in alerts]
    assert texts == ["its disk is 97 % full", "its disk is 40 % full, below the limit"]


def account(*seen: FleetSummary, config: FleetConfig, every: float = 10.0) -> list[str]:
    told, found = ToldAccount(), []
    for number, summary in enumerate(seen):
        told, alerts = decide_account_alerts(told, summary, config, NOW + every * number)
        found += [f"{number} {each.kind} {each.level} {each.generation} {each.text}" for each in alerts]
        assert all(each.key == "" for each in alerts)
    return found


def test_a_budget_is_told_once_when_it_is_passed() -> None:
    def told(budget: float | None, *spent: float) -> list[str]:
        return account(*(FleetSummary(dollars_spent=each) for each in spent), config=FleetConfig(budget=budget))

    text = "1 budget error 10000 the budget of $10.00 is exceeded: $10.00 spent"
    assert told(10.0, 9.0, 10.0, 11.0) == [text] and told(CONFIG.budget, 9.0, 10.0, 11.0) == []
    assert len(told(10.0, 11.0, 2.0, 12.0)) == 1  # the cost of a machine is known no more


def test_credit_that_does_not_last_is_told_once_a_day() -> None:
    short = FleetSummary(credit=5.0, credit_hours=2.5, dollars_per_hour=2.0)
    day = int(NOW // DAY)
    text = "the credit of $5.00 lasts 2h30m at $2.00/h"
    found = account(short, short, short, config=CONFIG, every=DAY / 4)
    assert found == [f"{look} credit warning {each} {text}" for look, each in ((0, day), (2, day + 1))]
    for hours in (None, 12.5, 1e9):
        assert account(FleetSummary(credit=5.0, credit_hours=hours), config=CONFIG) == []
    assert account(FleetSummary(credit=0.0, credit_hours=0.0), config=FleetConfig(warn_hours_left=0.0)) == []


def test_a_sum_with_an_unknown_part_is_a_lower_bound() -> None:
    credit = FleetSummary(credit=5.0, credit_hours=2.5, dollars_per_hour=2.0, unpriced=1)
    [told] = account(credit, config=CONFIG)
    assert told.endswith("the credit of $5.00 lasts at most 2h30m at $2.00/h or more")
    [told] = account(FleetSummary(dollars_spent=12.0, without_total=2), config=FleetConfig(budget=10.0))
    assert told.endswith("the budget of $10.00 is exceeded: at least $12.00 spent")
