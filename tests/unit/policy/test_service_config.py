"""The configuration of the training service: its defaults, the table it is read from, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.errors import SettingsError
from training_monitor.policy.service_config import ServiceConfig, read_service_config


def test_the_defaults_are_those_of_the_document() -> None:
    config = ServiceConfig()
    assert (config.sweep_interval, config.max_runtime, config.stuck_after) == (5 * 60, 4 * 3600, 2 * 3600)
    assert (config.lease_seconds, config.orphan_grace, config.ready_timeout) == (60, 600, 900)
    assert config.daily_budget is None and config.failed_refund == 0.0


def test_no_table_and_an_empty_one_are_the_defaults() -> None:
    assert read_service_config() == read_service_config({}) == ServiceConfig()


def test_a_later_table_overrides_and_none_is_not_given() -> None:
    config = read_service_config({"daily_budget": 20, "poll_interval": 5}, {"poll_interval": 1, "daily_budget": None})
    assert (config.daily_budget, config.poll_interval) == (20, 1)


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="setting of the service: got 'daily_buget', expected daily_budget"):
        read_service_config({"daily_buget": 5})
    with pytest.raises(SettingsError, match="one of lease_seconds, poll_interval"):
        read_service_config({"x": 5})


@pytest.mark.parametrize("table", [5, "lease_seconds", ["lease_seconds"], True])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(SettingsError, match="a table"):
        read_service_config(table)


@pytest.mark.parametrize("value", [0, -1, "60", True, float("nan"), float("inf"), [60], 10**400])
@pytest.mark.parametrize("key", ["lease_seconds", "sweep_interval", "max_runtime", "orphan_grace", "retry_delay"])
def test_times_are_seconds_above_zero(key: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{key}: got .*seconds, above 0"):
        read_service_config({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("daily_budget", 0),
        ("daily_budget", "20"),
        ("warn_hours_left", -1),
        ("failed_refund", 1.01),
        ("failed_refund", -0.1),
        ("daily_budget", 10**400),
        ("warn_hours_left", 10**400),
        ("failed_refund", 10**400),
        ("failed_refund", False),
        ("max_retries", -1),
        ("max_retries", 2.5),
        ("max_retries", True),
    ],
)
def test_other_values_outside_of_their_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=key):
        read_service_config({key: value})


def test_the_ends_of_the_ranges_are_allowed() -> None:
    config = read_service_config({"failed_refund": 1, "warn_hours_left": 0, "max_retries": 0})
    assert (config.failed_refund, config.warn_hours_left, config.max_retries) == (1, 0, 0)


@pytest.mark.parametrize(
    "folder", ["", "/", "ab", "/a b", "/a/../b", "/a//b", "/a/", "/a\n", "/-rf", "/$(id)", "~/x", 5]
)
def test_the_folder_on_the_machine_is_a_plain_path_from_the_root_on(folder: Any) -> None:
    with pytest.raises(SettingsError, match="remote_root"):
        ServiceConfig(remote_root=folder)


def test_a_usual_folder_is_allowed() -> None:
    assert ServiceConfig(remote_root="/mnt/disk_1/jobs.v2").remote_root == "/mnt/disk_1/jobs.v2"
