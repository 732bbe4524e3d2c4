"""The configuration of a watch: its defaults, the tables it is read from, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.verdict.limits import WatchConfig, read_watch_config
from training_monitor.verdict.stall import StallPolicy

THRESHOLDS = {"min_samples": 4, "eta_convergence_threshold": 0.5, "speed_drop_threshold": 0.5}
DOCUMENTED: dict[str, Any] = {
    "poll_interval": 60,
    "grace_period": 900,
    "stall_detection": {"enabled": True, **THRESHOLDS},
}


def test_the_defaults_are_those_of_the_document() -> None:
    config = WatchConfig()
    assert read_watch_config() == read_watch_config({}) == read_watch_config(DOCUMENTED) == config
    assert (config.poll_interval, config.grace_period, config.min_samples) == (60, 15 * 60, 4)
    assert (config.eta_convergence_threshold, config.speed_drop_threshold) == (0.5, 0.5)
    assert config.stall_detection is True and config.milestones == (25, 50, 75)
    assert config.soft_limit is config.hard_limit is config.budget is config.cost_per_hour is None


def test_the_nested_table_reaches_the_stall_policy() -> None:
    table = {
        "grace_period": 60,
        "stall_detection": {"min_samples": 6, "eta_convergence_threshold": 0.3, "speed_drop_threshold": 0.2},
    }
    policy = read_watch_config(table).stall_policy
    assert (policy.min_samples, policy.eta_convergence_threshold) == (6, 0.3)
    assert (policy.speed_drop_threshold, policy.grace_period) == (0.2, 60)


@pytest.mark.parametrize("given", [False, {"enabled": False}])
def test_stall_detection_is_switched_off_by_a_word_or_in_its_table(given: Any) -> None:
    assert read_watch_config({"stall_detection": given}).stall_detection is False


def test_a_later_table_overrides_only_what_it_names() -> None:
    job = {"poll_interval": 30, "stall_detection": {"min_samples": 8}}
    config = read_watch_config(DOCUMENTED, job)
    assert (config.poll_interval, config.grace_period) == (30, 900)
    assert (config.min_samples, config.speed_drop_threshold) == (8, 0.5)


def test_a_job_that_sets_a_threshold_does_not_switch_the_detection_on_again() -> None:
    config = read_watch_config({"stall_detection": False}, {"stall_detection": {"min_samples": 8}})
    assert config.stall_detection is False and config.min_samples == 8


def test_none_is_not_given() -> None:
    later = {"poll_interval": None, "stall_detection": {"min_samples": None, "enabled": None}}
    config = read_watch_config({"poll_interval": 5, "stall_detection": {"enabled": False}}, later)
    assert config.poll_interval == 5 and config.stall_detection is False


def test_reading_leaves_the_tables_as_they_are_and_zero_is_a_grace_period() -> None:
    table = {"stall_detection": {"enabled": False, "min_samples": 5}, "milestones": [10]}
    config = read_watch_config(table)
    assert table == {"stall_detection": {"enabled": False, "min_samples": 5}, "milestones": [10]}
    assert config.milestones == (10,)
    config = read_watch_config({"grace_period": 0, "stop_grace": 0})
    assert (config.grace_period, config.stop_grace) == (0, 0)


NUMBERS = ("poll_interval", "stall_after", "soft_limit", "hard_limit", "cost_per_hour", "budget")
WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in NUMBERS for value in (0, -1, "60", True, float("nan"), float("inf"), [1], 10**400)),
    *((name, value) for name in ("grace_period", "stop_grace") for value in (-1, -0.5, "15", "15min", False, 10**400)),
    *(("min_samples", value) for value in (1, 0, -4, 2.5, "4", True)),
    *(
        (name, value)
        for name in ("eta_convergence_threshold", "speed_drop_threshold")
        for value in (0, 1, 1.5, -0.5, "half", True, float("nan"))
    ),
    *(("stall_detection", value) for value in ("yes", 1, 0, ["enabled"])),
    *(("milestones", value) for value in ([0], [100], [-1], ["25"], "25,50", 50, [True], {"25": 1}, [10**400])),
]


def test_a_wrong_value_is_refused_by_its_name(subtests: pytest.Subtests) -> None:
    for name, value in WRONG:
        with subtests.test(name=name, value=value):
            with pytest.raises(SettingsError, match=name) as caught:
                read_watch_config({name: value})
            assert caught.value.key.partition("[")[0] == name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("min_samples", ["much"]),
        ("eta_convergence_threshold", ["much"]),
        ("speed_drop_threshold", ["much"]),
        ("enabled", ["yes", 1]),
        ("poll_interval", [5]),  # it belongs to the whole watch
    ],
)
def test_a_wrong_value_in_the_nested_table_is_refused_by_its_name(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SettingsError, match=r"stall_detection\b" if name == "enabled" else name):
            read_watch_config({"stall_detection": {name: value}})


def test_an_unknown_key_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(SettingsError, match="pol_interval.*poll_interval"):
        read_watch_config({"pol_interval": 5})
    with pytest.raises(SettingsError, match=r"stall_detection\.min_sample\b.*min_samples"):
        read_watch_config({"stall_detection": {"min_sample": 5}})


@pytest.mark.parametrize("table", [{"enabled": True}, {"enabled": False, "stall_detection": {}}])
def test_a_switch_outside_of_its_table_is_an_unknown_key(table: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="enabled"):
        read_watch_config(table)


def test_the_soft_limit_is_not_above_the_hard_one() -> None:
    with pytest.raises(SettingsError, match="soft_limit"):
        WatchConfig(soft_limit=20, hard_limit=10)
    assert WatchConfig(soft_limit=10, hard_limit=10).hard_limit == 10


def test_stall_after_is_four_times_longer_for_working_processes() -> None:
    policy = WatchConfig(stall_after=60).stall_policy
    assert policy.idle_pause == policy.spinning_pause == policy.unknown_pause == policy.log_pause == 60
    assert policy.busy_pause == policy.startup_pause == 240
    assert WatchConfig().stall_policy == StallPolicy()
