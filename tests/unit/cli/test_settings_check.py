"""`config --check` without its face: every problem of a settings file, its line, and no secret."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from training_monitor.cli.commands.config import SettingsCheck, SettingsProblem, check_settings
from training_monitor.core.errors import SettingsError
from training_monitor.core.settings_file import TABLES
from training_monitor.fleet.config import AlertRule, FleetConfig
from training_monitor.fleet.fleet import load_fleet_config
from training_monitor.fleet.values import MemberSpec

toml_only = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no tomllib")
SECONDS_FROM_1 = "seconds (at least 1), or a duration such as 15m"
SECRET = "123456:AAAAsecretAAAAsecretAAAAsecretAAAA"

WRONG = f"""\
[fleet]
interval = 0
intervall = 5
log_paths = [
  "/a",
  5]
[fleet.thresholds]
low_gpu = true
[fleet.groups]
nightly = ["vast://1",
  "nope://x"]
[[fleet.alerts]]
name = "idle"
when = "gpu_utilization < 5 for 10m"
[[fleet.alerts]]
name = "idle"
when = '''
gpu_utilisation < 5'''
priority = "loud"
[service]
sweep_interval = -1
daily_buget = 5
[monitoring]
poll_interval = "60"
stall_detection = {{ enabled = true, min_samples = 1 }}
[monitoring.jobs."process:a.b"]
budget = []
[log_patterns]
reward = "no group"
tokens = {{ pattern = '(\\d+)', kind = "date" }}
[notifications]
order = ["telegram"]
[notifications.telegram]
token = "{SECRET}"
chat_idd = "{SECRET}"
[users."a.b"]
telegram = "{SECRET}"
"""
PROBLEMS = [
    (2, "fleet.interval", "0"),
    (3, "fleet.intervall", None),
    (6, "fleet.log_paths[1]", "5"),
    (8, "fleet.thresholds.low_gpu", "true"),
    (11, "fleet.groups.nightly[1]", '"nope://x"'),
    (16, "fleet.alerts[1].name", '"idle"'),
    (17, "fleet.alerts[1].when", '"gpu_utilisation < 5"'),
    (19, "fleet.alerts[1].priority", '"loud"'),
    (21, "service.sweep_interval", "-1"),
    (22, "service.daily_buget", None),
    (24, "monitoring.poll_interval", '"60"'),
    (25, "monitoring.stall_detection.min_samples", "1"),
    (27, 'monitoring.jobs."process:a.b".budget', "a list"),
    (29, "log_patterns.reward", '"no group"'),
    (30, "log_patterns.tokens.kind", '"date"'),
    (35, "notifications.telegram.chat_idd", None),
    (37, 'users."a.b".telegram', None),
]


def write(folder: Path, settings: Any, name: str = "settings.json") -> str:
    file = folder / name
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings, indent=1), encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def check(folder: Path, settings: Any, name: str = "settings.json", **environ: str) -> list[SettingsProblem]:
    file = write(folder, settings, name)
    found = check_settings(file, environ)
    assert found.file == file
    return list(found.problems)


@toml_only
def test_every_problem_of_a_file_is_named_with_its_line_and_key(tmp_path: Path) -> None:
    problems = check(tmp_path, WRONG, "settings.toml")
    assert [(each.line, each.key, each.value) for each in problems] == PROBLEMS
    assert all(each.expected for each in problems)


@toml_only
def test_json_has_the_same_problems_on_lines_of_its_own(tmp_path: Path) -> None:
    problems = check(tmp_path, importlib.import_module("tomllib").loads(WRONG))
    lines = (tmp_path / "settings.json").read_text().split("\n")
    assert [(each.key, each.value) for each in problems] == [(key, value) for _, key, value in PROBLEMS]
    for each in problems:
        last = each.key.split(".")[-1].strip('"')
        assert each.line and (last in lines[each.line - 1] or last.endswith("]"))


@toml_only
def test_a_number_of_thousands_of_digits_is_one_problem_as_any_other(tmp_path: Path) -> None:
    huge, long = f"0x{'f' * 9000}", f"1{'0' * 400}"
    text = f"[fleet]\ninterval = {huge}\n[service]\npoll_interval = {huge}\n[service.x]\ny = {long}\n"
    text += f"[monitoring]\npoll_interval = {long}\n[monitoring.jobs.a]\nmin_samples = {huge}\n"
    problems = check(tmp_path, f"{text}[log_patterns]\na = {huge}\n", "settings.toml")
    assert [each.line for each in problems] == [2, 4, 5, 8, 10, 12]
    assert problems[0] == SettingsProblem(2, "fleet.interval", "a number that is far too long", SECONDS_FROM_1)
    assert problems[3].value and len(problems[3].value) <= 60


@pytest.mark.parametrize(
    ("name", "text"), [("x.json", '{"fleet": {\n"interval": 0}}'), ("x.toml", "[fleet]\ninterval=0")]
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_byte_order_mark_and_the_ends_of_lines_change_nothing(
    tmp_path: Path, name: str, text: str, ends: str
) -> None:
    if name.endswith(".toml") and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no tomllib")
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", ends).encode())
    [problem] = check_settings(str(tmp_path / name), {}).problems
    assert (problem.line, problem.key) == (2, "fleet.interval")


def test_what_is_fine_is_counted_and_an_empty_file_has_no_problems(tmp_path: Path) -> None:
    settings = {
        "fleet": {"groups": {"a": ["local"], "b": ["pod"]}, "alerts": [{"name": "x", "when": "loss is nan"}]},
        "log_patterns": {"reward": r"reward=(\S+)"},
        "notifications": {"order": ["ntfy"], "ntfy": {"url": "https://ntfy.sh/x"}},
        "users": {"alice": {"email": "a@example.org"}},
        "service": {"daily_budget": 5},
        "monitoring": {"soft_limit": 5, "jobs": {"process:x": {"hard_limit": 6}}},
    }
    file = write(tmp_path, settings)
    counts = {"groups": 2, "alert_rules": 1, "log_patterns": 1, "channels": 1, "users": 1}
    assert check_settings(file, {}) == SettingsCheck(file, (), counts)
    assert check(tmp_path, {}) == [] == check(tmp_path, {name: {} for name in TABLES})
    assert check_settings(None, {"XDG_CONFIG_HOME": str(tmp_path)}) == SettingsCheck("")


def test_the_usual_file_is_found_and_a_named_one_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "training_monitor").mkdir()
    file = write(tmp_path / "training_monitor", {"fleet": {"interval": 0}})
    found = check_settings(None, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert found.file == file and [each.key for each in found.problems] == ["fleet.interval"]
    missing = str(tmp_path / "none.json")
    for found in (check_settings(missing, {}), check_settings(None, {"TRAINING_MONITOR_SETTINGS": missing})):
        assert found == SettingsCheck(missing, (SettingsProblem(None, "", None, "an existing file"),))


def test_a_file_that_is_no_json_or_no_text_is_one_problem(tmp_path: Path) -> None:
    for text, line, words in [
        ('{\n"fleet": {"interval": 5,},\n}', 2, "line 2 column"),
        ("", 1, "Expecting value"),
        ("[]", None, "a table at the top level"),
        ("null", None, "a table at the top level"),
        ("[" * 100_000, None, "readable file"),
        ('{"fleet": ' + "9" * 5000 + "}", None, "readable file"),
    ]:
        [problem] = check(tmp_path, text)
        assert (problem.line, problem.key, problem.value) == (line, "", None) and words in problem.expected
    file = tmp_path / "settings.json"
    file.write_bytes(b'{"users":\n {"\xff": 1}}')
    [problem] = check_settings(str(file), {}).problems
    assert problem.line == 2 and "utf-8" in problem.expected
    [problem] = check_settings(str(tmp_path), {}).problems
    assert "readable file" in problem.expected


@toml_only
@pytest.mark.parametrize(
    ("text", "line"), [("[fleet]\ninterval = \n", 2), ("[fleet]\n[fleet]\n", 2), ("a = 1\n\na = 2", 3), ('x = "\n', 1)]
)
def test_a_file_that_is_no_toml_is_one_problem_on_its_line(tmp_path: Path, text: str, line: int) -> None:
    [problem] = check(tmp_path, text, "settings.toml")
    assert (problem.line, problem.key) == (line, "") and "readable file" in problem.expected


def test_python_without_tomllib_is_one_clear_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    [problem] = check(tmp_path, WRONG, "settings.toml")
    assert problem.expected == "settings.json, because TOML needs Python 3.11 or later"


def test_a_table_that_is_none_or_that_nobody_reads_is_one_problem(tmp_path: Path) -> None:
    for name in TABLES:
        for value in [5, "x", ["x"], None, True]:
            [problem] = check(tmp_path, {name: value})
            assert problem.key == name and "a table" in problem.expected and problem.line == 2
    problems = check(tmp_path, {"notification": {"token": SECRET}, "fleet": {"interval": 0}, "zzz": 1})
    found = [(each.key, each.value) for each in problems]
    assert found == [("notification", None), ("fleet.interval", "0"), ("zzz", None)]
    assert problems[0].expected == "notifications" and problems[2].expected.startswith("one of fleet,")


def test_values_that_do_not_fit_together_or_are_long_are_problems(tmp_path: Path) -> None:
    [problem] = check(tmp_path, {"monitoring": {"soft_limit": 9, "hard_limit": 5}})
    assert (problem.line, problem.key, problem.expected) == (3, "monitoring.soft_limit", "at most the hard limit (5)")
    [problem] = check(tmp_path, {"monitoring": {"soft_limit": 9, "jobs": {"a": {"hard_limit": 5}}}})
    assert problem.expected == "at most the hard limit (5)" and problem.key == "monitoring.jobs.a.hard_limit"
    long = {"fleet": {"interval": "x" * 5000}, "service": {"sweep_interval": 10**400}}
    problems = check(tmp_path, long | {"log_patterns": {"a": "y" * 5000}})
    assert [each.key for each in problems] == ["fleet.interval", "service.sweep_interval", "log_patterns.a"]
    assert all(len(each.value or "") <= 60 for each in problems)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    for settings in [
        {"notifications": {"telegram": {"token": [SECRET]}}},
        {"notifications": {"telegram": {"token": SECRET, "tokenn": SECRET}}},
        {"notifications": {"telegram": SECRET}},
        {"notifications": {"order": [SECRET]}},
        {"notifications": {SECRET[:5]: {"token": SECRET}}},
        {"notifications": {"slack": {"url": f"nothttp://{SECRET}"}}},
        {"notifications": {"email": {"server": f"smtp://a:{SECRET}@host", "to": "x@y.z"}}},
        {"notifications": {"telegram": {"token": SECRET, "chat_id": SECRET}}},
        {"users": {"alice": {"telegram_id": SECRET}}},
        {"users": {"alice": {"password": SECRET}}},
        {"telegram": {"token": SECRET}},
        {"service": {"telegram_token": SECRET}},
        {"fleet": {"token": SECRET, "groups": {"g": [{"target": "local", "token": SECRET}]}}},
        {"fleet": {"interval": {"token": SECRET}}},
        {"monitoring": {"jobs": {"a": [SECRET]}}},
    ]:
        problems = check(tmp_path, settings)
        assert problems and SECRET not in repr(problems)


def test_all_problems_of_channels_and_users_are_found_whatever_else_is_wrong(tmp_path: Path) -> None:
    telegram = {"token": SECRET, "chat_id": "1", "a": 1, "b": 2}
    channels = {"order": ["x"], "telegram": telegram, "slack": {"url": "no"}, "ntfy": 5, "fax": {}}
    channels["email"] = {"to": "x"}
    users = {"alice": {"telegram": "1", "email": []}, "bob.b": 5, "carol": {"email": "c@example.org"}}
    problems = check(tmp_path, {"notifications": channels, "users": users, "zzz": {}})
    of_channels = "order telegram.a telegram.b slack.url ntfy fax email.server email.from email.to[0]"
    keys = {f"notifications.{key}" for key in of_channels.split()} | {"users.alice.telegram", "users.alice.email"}
    assert {each.key for each in problems} == keys | {'users."bob.b"', "zzz"}
    assert all(each.line for each in problems)


def test_a_channel_of_the_environment_is_a_problem_once(tmp_path: Path) -> None:
    settings = {"notifications": {"slack": {"url": "no"}}}
    environ = {"TRAINING_MONITOR_SMTP": "no", "TRAINING_MONITOR_EMAIL_TO": "a@example.org"}
    problems = check(tmp_path, settings, **environ)
    found = [(each.line, each.key) for each in problems]
    assert found == [(2, "notifications.email.server"), (4, "notifications.slack.url")]
    [problem] = check(tmp_path, {"notifications": {"email": {"to": "a@example.org"}}}, **environ)
    assert (problem.line, problem.key) == (3, "notifications.email.server")


def test_a_secret_is_of_the_given_environment_or_of_a_file_that_is_private(tmp_path: Path) -> None:
    file = write(tmp_path, {"notifications": {"telegram": {"token": SECRET}}})
    os.chmod(file, 0o644)
    [problem] = check_settings(file, {}).problems
    assert (problem.line, problem.key) == (None, "mode") and "0o600" in problem.expected
    settings = {"notifications": {"telegram": {"token_env": "MY_TOKEN", "chat_id": "1"}}}
    assert check(tmp_path, settings, MY_TOKEN=SECRET) == []
    [problem] = check(tmp_path, settings)
    assert problem.line == 3 and problem.key.startswith("notifications.telegram.token")


PATHS = """
    fleet.groups.g fleet.log_paths monitoring.stall_detection monitoring.stall_detection.enabled monitoring.milestones
    monitoring.jobs.x notifications.telegram notifications.email.to service.remote_root users.alice
"""


def test_nothing_in_a_file_makes_it_raise(tmp_path: Path) -> None:
    for value in [None, True, 5, -1.5, "x", "\x1b[31m", "\n", [], [[]], [None], {}, {"": {}}, {"a": [{}]}]:
        for path in [
            *((name, key) for name in TABLES for key in ("", "jobs", "order", "groups", "alerts", "thresholds", "a.b")),
            *(path.split(".") for path in PATHS.split()),
        ]:
            settings = value
            for key in reversed(path):
                settings = {key: settings}
            assert len(check(tmp_path, settings)) < 5


def test_the_fleet_of_the_file_is_read_or_its_defaults(tmp_path: Path) -> None:
    alerts = [{"name": "nan", "when": "loss is nan"}]
    file = write(tmp_path, {"fleet": {"groups": {"g": ["ssh://me@gpu1#~/x.log"]}, "alerts": alerts}})
    config = load_fleet_config(file)
    assert config.groups == {"g": (MemberSpec("ssh://me@gpu1", log_paths=("~/x.log",), groups=("g",)),)}
    assert config.rules == (AlertRule("nan", "loss is nan"),)
    assert load_fleet_config(write(tmp_path, {})) == FleetConfig()


def test_an_error_of_the_fleet_names_file_and_key(tmp_path: Path) -> None:
    for table, key in [
        ({"groups": {"g": ["local", "ssh://"]}}, "fleet.groups.g[1]"),
        ({"groups": {"g": [{"target": "vast://x"}]}}, "fleet.groups.g[0].target"),
        ({"groups": {"g": ["-oProxyCommand=x"]}}, "fleet.groups.g[0]"),
        ({"alerts": [{"name": "x", "when": "loss"}]}, "fleet.alerts[0].when"),
        (5, "fleet"),
    ]:
        file = write(tmp_path, {"fleet": table})
        with pytest.raises(SettingsError) as raised:
            load_fleet_config(file)
        assert raised.value.key == f"{file}: {key}"
