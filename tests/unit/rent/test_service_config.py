"""The configuration of the training service: its defaults, the table it is read from, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.settings_table import Place, read_table
from training_monitor.rent.config import ServiceConfig


def read(table: Any) -> ServiceConfig:
    place = Place("service")
    config: ServiceConfig = read_table(ServiceConfig, table, place)
    place.expect_none()
    return config


def test_times_are_seconds_above_zero(subtests: pytest.Subtests) -> None:
    for value in [0, -1, "60", "0s", "-5m", "5min", True, float("nan"), float("inf"), [60], 10**400]:
        for key in ["lease_seconds", "sweep_interval", "max_runtime", "orphan_grace", "retry_delay"]:
            with subtests.test(value=value, key=key):
                with pytest.raises(SettingsError, match=rf"{key}: got .*seconds \(above 0\)"):
                    read({key: value})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("daily_budget", [0, "20", 10**400]),
        ("warn_hours_left", [-1, 10**400]),
        ("failed_refund", [1.01, -0.1, 10**400, False]),
        ("max_retries", [-1, 2.5, True]),
    ],
)
def test_other_values_outside_of_their_range_are_refused(key: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SettingsError, match=key):
            read({key: value})
    ends = {"failed_refund": 1, "warn_hours_left": 0, "max_retries": 0}  # of the ranges: they are allowed
    assert key not in ends or getattr(read({key: ends[key]}), key) == ends[key]


def test_the_folder_on_the_machine_is_a_plain_path_from_the_root_on() -> None:
    assert ServiceConfig(remote_root="/mnt/disk_1/jobs.v2").remote_root == "/mnt/disk_1/jobs.v2"
    for folder in ("", "/", "ab", "/a b", "/a/../b", "/a//b", "/a/", "/a\n", "/-rf", "/$(id)", "~/x", 5):
        with pytest.raises(SettingsError, match="remote_root"):
            ServiceConfig(remote_root=folder)  # type: ignore[arg-type]
