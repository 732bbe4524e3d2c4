"""The table `fleet`: what is read, what is refused, under which key, and that all faults are found."""

from __future__ import annotations

import re
from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.settings_table import Fault, Place
from training_monitor.fleet.config import (
    DEFAULT_LOG_PATHS,
    AlertRule,
    CheckTarget,
    FleetConfig,
    parse_member,
    read_fleet_config,
)
from training_monitor.fleet.metrics import Thresholds
from training_monitor.fleet.values import MemberSpec


def refuse(target: str) -> None:
    if target.startswith("nope"):
        raise SettingsError("target", target, "a target")


def read(table: Any, check_target: CheckTarget = refuse) -> FleetConfig:
    place = Place("fleet")
    config = read_fleet_config(table, place, check_target)
    place.expect_none()
    return config


def find_faults(table: Any) -> list[Fault]:
    place = Place()
    read_fleet_config(table, place, refuse)
    return place.faults


def test_nothing_given_is_the_defaults() -> None:
    assert read({}) == read({"interval": None, "groups": {}, "alerts": []}) == FleetConfig()
    assert FleetConfig().log_paths == DEFAULT_LOG_PATHS


def test_all_of_the_table_is_read() -> None:
    config = read(
        {
            "interval": 5,
            "log_paths": ["/data/*.log"],
            "budget": 20,
            "warn_hours_left": 0,
            "keep_days": 7,
            "thresholds": {"low_gpu": 5, "high_loss": False, "price_rise": 0},
            "groups": {"nightly": ["vast://1", "ssh://gpu1#process:train"]},
            "alerts": [{"name": "idle", "when": "loss > 3", "priority": "high", "message": "Idle"}],
        }
    )
    assert (config.interval, config.log_paths, config.budget) == (5, ("/data/*.log",), 20)
    assert (config.warn_hours_left, config.keep_days) == (0, 7)
    assert config.thresholds == Thresholds(low_gpu=5, high_loss=None, price_rise=0)
    assert config.rules == (AlertRule("idle", "loss > 3", "high", "Idle"),)
    first, second = config.groups.pop("nightly")
    assert config.groups == {} and first == MemberSpec("vast://1", groups=("nightly",))
    assert second == MemberSpec("ssh://gpu1", "process:train", groups=("nightly",))


def test_an_entry_may_be_a_table() -> None:
    table = {"target": "k8s://ns/pod", "job": "raysubmit_x", "log_paths": ["/data/*.log"], "name": "llama 日本"}
    [spec] = read({"groups": {"g": [table]}}).groups["g"]
    assert spec == MemberSpec("k8s://ns/pod", "raysubmit_x", ("/data/*.log",), "llama 日本", ("g",))


def test_an_entry_is_a_target_with_a_job_or_a_log() -> None:
    for text, target, job, paths in [
        ("local", "local", None, ()),
        ("my-pod#process:a.b_c-d", "my-pod", "process:a.b_c-d", ()),
        ("ssh://root@h:22#raysubmit_AbC", "ssh://root@h:22", "raysubmit_AbC", ()),
        ("vast://1#/data/my run/#1 *.log", "vast://1", None, ("/data/my run/#1 *.log",)),
        ("vast://1#~/runs/-x.log", "vast://1", None, ("~/runs/-x.log",)),
    ]:
        assert parse_member(text, groups=("g",)) == MemberSpec(target, job, paths, groups=("g",)), text


def test_what_is_no_entry_is_refused() -> None:
    words = ",#process:x,local#,local#process:,local#process:../x,local#-x,local#runs/x.log,local#~bob/x.log,local#a#b"
    odd = [" ", "local#process:a b", "local#two words", "local#/x\0", "lo\0cal", "local#raysubmit_\n"]
    for text in [*words.split(","), *odd]:
        with pytest.raises(SettingsError) as raised:
            parse_member(text)
        assert raised.value.value == text


def test_what_makes_no_sense_is_refused_under_its_key(subtests: pytest.Subtests) -> None:
    for table, key, words in [
        ({"intervall": 5}, "fleet.intervall", "^interval$"),
        ({"zzz": 5}, "fleet.zzz", "one of interval, log_paths"),
        *(
            ({"interval": value}, "fleet.interval", r"seconds \(at least 1\)")
            for value in (0.5, "10", True, float("nan"), 10**400)
        ),
        ({"budget": 0}, "fleet.budget", "dollars"),
        ({"warn_hours_left": -1}, "fleet.warn_hours_left", "hours"),
        ({"keep_days": 0}, "fleet.keep_days", "days"),
        ({"log_paths": "/x"}, "fleet.log_paths", "a list"),
        ({"log_paths": []}, "fleet.log_paths", "a list"),
        ({"log_paths": ["/x", ""]}, "fleet.log_paths[1]", "a list"),
        ({"log_paths": ["/x", 5]}, "fleet.log_paths[1]", "a list"),
        ({"thresholds": 5}, "fleet.thresholds", "a table of low_gpu"),
        ({"thresholds": {"low_gpu": True}}, "fleet.thresholds.low_gpu", "false to disable the check"),
        ({"thresholds": {"low_gpu": "5"}}, "fleet.thresholds.low_gpu", "false to disable the check"),
        ({"thresholds": {"gpu_low": 5}}, "fleet.thresholds.gpu_low", "low_gpu"),
        ({"groups": ["local"]}, "fleet.groups", "NAME ="),
        ({"groups": {"g": "local"}}, "fleet.groups.g", "a list"),
        ({"groups": {"g": []}}, "fleet.groups.g", "a list"),
        *(
            ({"groups": {name: ["local"]}}, f"fleet.groups.{key}", "a group name such as nightly, not a target")
            for name, key in (
                ("", '""'),
                ("local", "local"),
                ("vast://1", '"vast://1"'),
                ("a#b", '"a#b"'),
                ("-x", "-x"),
            )
        ),
        ({"groups": {"g": ["local", 5]}}, "fleet.groups.g[1]", "TARGET#JOB"),
        ({"groups": {"g": ["local", "local"]}}, "fleet.groups.g[1]", "at most once"),
        ({"groups": {"g": ["local", "nope"]}}, "fleet.groups.g[1]", "a target"),
        ({"groups": {"g": [{"target": "nope"}]}}, "fleet.groups.g[0].target", "a target"),
        ({"groups": {"g": [{"target": "local#x"}]}}, "fleet.groups.g[0].target", "only the target"),
        ({"groups": {"g": [{"target": ["local"]}]}}, "fleet.groups.g[0].target", "a non-empty string"),
        ({"groups": {"g": [{"job": "x"}]}}, "fleet.groups.g[0]", "also target = "),
        ({"groups": {"g": [{"target": "a", "job": "/x"}]}}, "fleet.groups.g[0].job", "a Ray submission id"),
        ({"groups": {"g": [{"target": "a", "jobb": "x"}]}}, "fleet.groups.g[0].jobb", "^job$"),
        ({"groups": {"g": [{"target": "a", "log_paths": "/x"}]}}, "fleet.groups.g[0].log_paths", "a list"),
        ({"groups": {"g": [{"target": "a", "name": ""}]}}, "fleet.groups.g[0].name", "a non-empty string"),
        ({"alerts": {"name": "x"}}, "fleet.alerts", "tables"),
        ({"alerts": ["loss > 3"]}, "fleet.alerts[0]", "a table of name, when"),
        ({"alerts": [{"name": "x"}]}, "fleet.alerts[0]", "also when = ..."),
        ({"alerts": [{"when": "loss > 3", "name": "x", "wen": ""}]}, "fleet.alerts[0].wen", "when"),
        ({"alerts": [{"name": "x", "when": "los > 3"}]}, "fleet.alerts[0].when", "loss at column 1"),
        ({"alerts": [{"name": "x", "when": "loss > 3", "priority": 5}]}, "fleet.alerts[0].priority", "low, normal"),
        ({"alerts": 2 * [{"name": "x", "when": "loss > 3"}]}, "fleet.alerts[1].name", "a unique name"),
    ]:
        with subtests.test(table=table, key=key, words=words):
            with pytest.raises(SettingsError) as raised:
                read(table)
            assert raised.value.key == key
            assert re.search(words, raised.value.expected)


def test_what_is_no_table_is_refused() -> None:
    for table in [5, "x", ["interval"], None, True]:
        with pytest.raises(SettingsError, match="^fleet: got .* a table of interval, log_paths, "):
            read(table)
        [fault] = find_faults(table)
        assert (fault.path, fault.value) == ((), table)


def test_a_configuration_made_by_hand_is_checked_too() -> None:
    for changes in [{"interval": 0.5}, {"budget": -1}, {"keep_days": None}, {"log_paths": ()}, {"log_paths": ("",)}]:
        with pytest.raises(SettingsError) as raised:
            FleetConfig(**changes)
        assert raised.value.key in changes


def test_a_target_is_watched_as_its_groups_say() -> None:
    config = read({"groups": {"a": [{"target": "vast://1", "name": "llama"}], "b": ["vast://1", "local"]}})
    assert [(each.name, each.groups) for each in config.specs_of("vast://1")] == [("llama", ("a",)), (None, ("b",))]
    assert config.specs_of("vast://2") == (MemberSpec("vast://2"),)
