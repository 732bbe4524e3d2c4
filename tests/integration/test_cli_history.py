"""`history` as people and scripts run it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from training_monitor.core.store import Store
from training_monitor.fleet.history import FIELDS, History
from training_monitor.fleet.values import FleetSample

HOSTILE = '=cmd|"\x1b[31m\n\u202e,;ü'
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "state")


@pytest.fixture
def cli(folder: str) -> Cli:
    def run(*argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return run_command("history", *argv, TRAINING_MONITOR_STATE_DIR=folder, **changes)

    return run


@pytest.fixture
def watched(folder: str) -> float:
    """Two members over the last 40 minutes, and one that was seen a week ago. Returns when the first two began."""
    history, begin = History(Store(folder)), math.floor(time.time()) - 2400.0
    history.add({"ssh://old": FleetSample(begin - 7 * 86_400, {"loss": 9.0, "cost_per_hour": 1.0}, "running")})
    for minute in range(40):
        common = {"step": 10 * minute, "gpu_utilization": 90.0, "eta_seconds": 7200.0, "epoch": None}
        first = {**common, "loss": 4 - minute / 20, "cost_per_hour": 0.5, "total_cost": 1 + minute / 120}
        second = {**common, "step": 20 * minute, "loss": math.nan if minute > 35 else 3 - minute / 20}
        now = begin + 60 * minute
        history.add({"vast://7001": FleetSample(now, first, "running"), "vast://7002": FleetSample(now, second, None)})
    return begin


def table(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def fits(text: str) -> bool:
    return all(len(line) <= 80 and line.isprintable() for line in text.splitlines())


def only_json(done: subprocess.CompletedProcess[str]) -> Any:
    [line] = done.stdout.splitlines()
    return json.loads(line)


# ---------------------------------------------------------------- tables


def test_without_history_it_says_how_samples_get_there(cli: Cli) -> None:
    for argv in ((), ("7001",), ("--compare",)):
        done = cli(*argv)
        assert (done.returncode, done.stdout) == (0, "") and "training-monitor vast" in done.stderr
    assert only_json(cli("--json"))["members"] == []
    assert cli("--csv", "-").stdout.startswith("time,timestamp,member,status,gpu_utilization,")


def test_all_members_are_in_a_table_with_loss_and_gpu(cli: Cli, watched: float) -> None:
    done = cli()
    assert done.returncode == 0 and fits(done.stdout)
    rows = table(done.stdout)
    assert list(rows) == ["MEMBER", "ssh://old", "vast://7001", "vast://7002"]
    seven = rows["vast://7001"]
    assert seven[1:4] == ["ago", "390", "2.05"] and re.fullmatch("█[▁-█]+▁", seven[4]) and seven[5] == "90"
    assert rows["vast://7002"][3] == "nan" and rows["vast://7002"][4].endswith("!")
    assert rows["ssh://old"][2:4] == ["-", "-"]


def test_how_a_time_changes_is_told_as_a_time(cli: Cli, folder: str) -> None:
    history, begin = History(Store(folder)), math.floor(time.time()) - 1200.0
    for second in range(0, 1200, 60):
        values = {"eta_seconds": 7200.0 - second, "runtime_seconds": 100.0 + second}
        history.add({"vast://7001": FleetSample(begin + second, values, "running")})
    rows = table(cli("7001").stdout)
    assert (rows["eta_seconds"][-1], rows["runtime_seconds"][-1]) == ("-1h00m", "+1h00m")


def test_member_with_wide_numbers_fits_80_columns(cli: Cli, folder: str) -> None:
    history, begin = History(Store(folder)), math.floor(time.time()) - 1200.0
    for second in range(0, 1200, 60):
        values = {"learning_rate": 1.23456e-4 / (1 + second), "memory_utilization": 73.66, "step": 5 * second}
        history.add({"vast://7001": FleetSample(begin + second, values, "running")})
    done = cli("7001")
    rows = table(done.stdout)
    assert fits(done.stdout) and rows["step"][-1] == "+18000" and "e-0" not in done.stdout
    assert len(rows["learning_rate"][0]) >= 8


def test_of_many_members_the_last_minutes_are_shown(cli: Cli, folder: str) -> None:
    history, now = History(Store(folder)), math.floor(time.time()) - 60.0
    keys = [f"vast://{number:02}" for number in range(25)]
    for ago in (7200.0, 120.0, 0.0):
        history.add({key: FleetSample(now - ago, {"loss": ago, "step": 5}, "running") for key in keys[1:]})
    history.add({keys[0]: FleetSample(now - 9000, {"loss": 3.0}, "running")})
    done = cli("--field", "loss")
    rows = table(done.stdout)
    assert [*rows] == ["MEMBER", *keys] and rows[keys[0]][2:4] == ["-", "3"]
    shown = {tuple(rows[key][2:]) for key in keys[1:]}
    [(step, loss, line)] = shown
    assert (step, loss) == ("5", "0") and re.fullmatch("█+▁+·*", line)  # two hours ago is not in it
    assert "only the last 5m of each" in done.stderr
    assert [each["newest"]["loss"] for each in only_json(cli("--json"))["members"]] == [3.0] + [0.0] * 24
    done = cli("--compare")
    assert done.returncode == 2 and "got '25 members', expected at most 20 members" in done.stderr


def test_one_member_is_shown_by_field_with_what_it_will_cost(cli: Cli, watched: float) -> None:
    done = cli("7001")
    assert done.returncode == 0 and fits(done.stdout)
    rows = table(done.stdout)
    assert re.search(r"vast://7001  .* 40 samples, running", done.stdout.splitlines()[0])
    assert rows["loss"][1:] == ["4", "2.05", "2.05", "4", "-3"] and rows["step"][1:] == ["0", "390", "0", "390", "+600"]
    assert rows["eta_seconds"][1:3] == ["2h00m", "2h00m"] and "epoch" not in rows
    assert done.stdout.endswith(
        "cost  $1.32 so far, $0.500 per hour\n      next 24 hours: $12.00; until its last step: $1.00\n"
    )


def test_what_is_not_known_is_not_projected(cli: Cli, watched: float) -> None:
    assert "cost  its price is unknown" in cli("7002").stdout
    old = cli("old", "--since", "8d").stdout
    assert "cost  unknown: it was last seen 7d" in old
    assert re.search(r"^ssh://old  no samples in this period; recorded from \d{4}-", cli("old").stdout)


def test_only_the_fields_asked_for_are_shown(cli: Cli, watched: float) -> None:
    rows = table(cli("7001", "--field", "loss", "--field", "epoch").stdout)
    assert list(rows) == ["vast://7001", "FIELD", "loss", "epoch", "cost", "next"]
    assert rows["epoch"][1:] == ["-"] * 5
    assert table(cli("--field", "step").stdout)["MEMBER"] == ["SEEN", "STEP", "STEP"]


def test_a_terminal_without_these_letters_gets_others(cli: Cli, watched: float) -> None:
    done = cli("7002", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stdout.isascii() and "#" in done.stdout and "!" in done.stdout


def test_runs_are_compared_also_at_the_same_step(cli: Cli, watched: float) -> None:
    done = cli("--compare", "7001", "7002")
    assert done.returncode == 0 and fits(done.stdout)
    rows = table(done.stdout)
    assert rows["MEMBER"] == ["LAST", "LOSS", "COST", "BEST", "STEP", "AT", "/1K", "/S", "GPU", "$/1K"]
    assert rows["vast://7001"] == ["390", "2.05", "1.325", "2.05", "390", "2.05", "-5", "-", "90", "0.8333"]
    assert rows["vast://7002"] == ["780", "nan", "-", "2.05", "380", "2.025", "-2.5", "-", "90", "-"]
    assert "compared steps: up to 390, which all runs have reached" in done.stderr and "of the whole run" in done.stderr
    assert "compared steps: none, because no step is known" in cli("--compare", "old", "--since", "8d").stderr
    first, second = only_json(cli("--compare", "7001", "7002", "--json"))["members"]
    assert (first["key"], first["common_step"], first["loss_at_common_step"]) == ("vast://7001", 390, 2.05)
    assert second["last_loss"] is None and second["total_cost"] is None


def test_a_time_may_be_given_in_three_ways(cli: Cli, watched: float) -> None:
    def seen(*argv: str) -> int:
        [member] = only_json(cli("7001", "--json", *argv))["members"]
        return int(member["seen"])

    utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(watched + 600))
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(watched + 600))
    assert seen() == 40 and seen("--since", "1d12h") == 40
    assert seen("--since", utc) == seen("--since", local) == 30 and seen("--until", utc) == 11
    assert 9 <= seen("--since", "10m") <= 10


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["700"], "'vast://7001', 'vast://7002'"),
        (["nobody"], "expected one of these keys, or a part of it: 'ssh://old', 'vast://7001'"),
        ([""], "MEMBER"),
        (["--field", "speed"], "steps_per_second"),
        (["--since", "yesterday"], "expected an age (90m"),
        (["--since", "2030-13-01"], "expected an age (90m"),
        (["--since", "1h", "--until", "2h"], "a time after --since"),
        (["--cost", "--compare"], "not allowed with"),
        (["--csv", "-", "--json"], "standard output for at most one of these options"),
        (["--csv", "-", "--jsonl", "-"], "standard output for at most one of these options"),
        (["--csv", ""], "a writable file"),
        (["--csv", "/nowhere/file"], "a writable file (No such file"),
    ],
)
def test_wrong_use_is_2_and_says_what_was_expected(cli: Cli, watched: float, argv: list[str], said: str) -> None:
    done = cli(*argv)
    assert done.returncode == 2 and said in done.stderr


def test_a_damaged_file_is_not_known_and_not_empty(cli: Cli, watched: float, folder: str) -> None:
    store = Store(folder)
    with store.transaction() as execute:
        execute("UPDATE history_chunks SET packed = 'x'")
        execute(
            "INSERT INTO history_chunks (member, kind, first, last, samples, packed) "
            "SELECT number, 0, ?, ?, 1, 'x' FROM history_members",
            (watched, watched),
        )
    done = cli("7001", "--json")
    assert done.returncode == 3 and only_json(done)["kind"] == "ParseError" and "cannot be read" in done.stderr


# ---------------------------------------------------------------- cost by day


@pytest.fixture
def rented(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Machines of four days: two members on one, one gone, one that costs nothing. Returns the midnights."""
    settings = tmp_path / "settings.json"
    groups = {"nightly": ["vast://7002#process:a", "vast://7002#process:b", "vast://7001"], "absent": ["vast://9"]}
    settings.write_text(json.dumps({"fleet": {"groups": groups}}))
    monkeypatch.setenv("TRAINING_MONITOR_SETTINGS", str(settings))
    history, today = History(Store(folder)), time.localtime()
    midnights = [
        time.mktime((today.tm_year, today.tm_mon, today.tm_mday - ago, 0, 0, 0, 0, 0, -1)) for ago in (4, 3, 2, 1, 0)
    ]
    for day, at in enumerate(midnights):
        seen = {"vast://7001": day * 1.0, "vast://7002#process:a": day * 2.0, "vast://7002#process:b": day * 2.0}
        samples = {key: FleetSample(at, {"total_cost": total}, "running") for key, total in seen.items()}
        if day < 3:
            samples["vast://7003"] = FleetSample(at, {"total_cost": day * 4.0}, "lost" if day == 2 else "running")
        history.add({**samples, "ssh://own": FleetSample(at, {"loss": 1.0}, "running")})
    return midnights


def date(day: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(day))


def money(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    lines = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
    return {cells[0]: cells[1:] for cells in lines}


def test_the_cost_of_each_day_is_told_by_member_group_and_together(cli: Cli, rented: list[float]) -> None:
    done = cli("--cost", "--until", date(rented[-1]), COLUMNS="100")
    assert done.returncode == 0 and not done.stderr
    assert money(done) == {
        "MEMBER": [*(date(day)[5:] for day in rented[:-1]), "TOTAL"],
        "ssh://own": ["-"] * 5,
        "vast://7001": ["$1.00"] * 4 + ["$4.00"],
        "vast://7002#process:a": ["$2.00"] * 4 + ["$8.00"],
        "vast://7002#process:b": ["$2.00"] * 4 + ["$8.00"],
        "vast://7003": ["$4.00", "$4.00", "-", "-", "$8.00"],
        "group nightly": ["$3.00"] * 4 + ["$12.00"],
        "all": ["$7.00", "$7.00", "$3.00", "$3.00", "$20.00"],
    }


def test_days_that_have_no_room_are_summed_in_one_column(cli: Cli, rented: list[float]) -> None:
    done = cli("7001", "--cost", "--until", date(rented[-1]), COLUMNS="38")
    rows = money(done)
    assert rows["MEMBER"] == ["before", date(rented[3])[5:], "TOTAL"]
    assert rows["vast://7001"] == rows["all"] == ["$3.00", "$1.00", "$4.00"]
    assert all(len(line) <= 38 for line in done.stdout.splitlines())


def test_a_sum_that_lacks_something_says_so(cli: Cli, rented: list[float], folder: str) -> None:
    History(Store(folder)).add({"vast://7004": FleetSample(rented[3], {"total_cost": 5.0}, "running")})
    until = date(rented[-1])
    done = cli("--cost", "--until", until, COLUMNS="100")
    rows = money(done)
    assert rows["vast://7004"] == ["-"] * 5 and "+: at least" in done.stderr
    assert rows["all"] == ["$7.00+", "$7.00+", "$3.00+", "$3.00+", "$20.00+"]
    part = cli("7001", "--cost", "--until", until, COLUMNS="100")
    assert money(part)["group nightly"] == ["$1.00+"] * 4 + ["$4.00+"] and "+: at least" in part.stderr


def test_costs_as_json_have_null_for_what_is_not_known(cli: Cli, rented: list[float]) -> None:
    told = only_json(cli("--cost", "--json", "--since", date(rented[1]), "--until", date(rented[-1])))
    assert told["days"] == [date(day) for day in rented[1:-1]]
    members = {each.pop("key"): each for each in told["members"]}
    gone = {"dollars": [4.0, None, None], "at_least": [False] * 3, "total": 4.0, "total_at_least": False}
    assert members["vast://7003"] == gone
    assert members["ssh://own"]["total"] is None and members["ssh://own"]["total_at_least"]
    [group] = told["groups"]
    assert (group["name"], group["dollars"], group["total_at_least"]) == ("nightly", [3.0] * 3, False)
    assert (told["all"]["dollars"], told["all"]["total"]) == ([7.0, 3.0, 3.0], 13.0)


def test_without_history_there_is_no_cost(cli: Cli) -> None:
    done = cli("--cost")
    assert (done.returncode, done.stdout) == (0, "") and "training-monitor vast" in done.stderr
    told = only_json(cli("--cost", "--json"))
    assert (told["members"], told["groups"], told["all"]["total"]) == ([], [], None)


def test_of_very_many_days_the_newest_are_shown(cli: Cli, rented: list[float], folder: str) -> None:
    History(Store(folder)).add({"vast://7001": FleetSample(rented[0] - 500 * 86_400, {"total_cost": 0.0}, "running")})
    done = cli("7001", "--cost")
    assert "only the last 400 days" in done.stderr and len(only_json(cli("7001", "--cost", "--json"))["days"]) == 401
    assert "only the last" not in cli("7001", "--cost", "--since", "5d").stderr


def test_of_very_many_members_the_last_seen_are_priced_and_the_sum_says_what_it_lacks(cli: Cli, folder: str) -> None:
    history, now = History(Store(folder)), time.time()
    for ago in (200.0, 100.0):
        seen = {f"vast://{number}": FleetSample(now - ago - number, {"total_cost": 1.0}) for number in range(103)}
        history.add(seen)
    done = cli("--cost")
    rows = money(done)
    assert "vast://99" in rows and "vast://100" not in rows and len(rows) == 1 + 100 + 1
    assert "3 members not seen recently left out" in done.stderr and rows["all"][-1] == "$0.00+"


# ---------------------------------------------------------------- the mock's


@pytest.mark.parametrize("words", [("vast", "--mock", "--once"), ("metrics", "--mock")])
def test_a_mock_writes_a_history_of_its_own(cli: Cli, folder: str, words: tuple[str, ...]) -> None:
    assert cli("--mock").stdout == "" and "vast --mock" in cli("--mock").stderr
    run_command(*words, "--no-history", TRAINING_MONITOR_STATE_DIR=folder)
    assert only_json(cli("--mock", "--json"))["members"] == []
    assert run_command(*words, TRAINING_MONITOR_STATE_DIR=folder).returncode == 1
    members = {each["key"]: each["samples"] for each in only_json(cli("--mock", "--json"))["members"]}
    assert len(members) == 12 and members["vast://30007001"] > 50
    run_command(*words, TRAINING_MONITOR_STATE_DIR=folder)
    again = {each["key"]: each["samples"] for each in only_json(cli("--mock", "--json"))["members"]}
    assert 1 <= again["vast://30007001"] - members["vast://30007001"] <= 2, "its past was added once"
    assert only_json(cli("--json"))["members"] == []
    assert {each.name for each in Path(folder).glob("*.db")} == {"mock.db", "training_monitor.db"}
    assert stat.S_IMODE((Path(folder) / "mock.db").stat().st_mode) == 0o600


def test_everything_can_be_tried_with_the_history_of_a_mock(cli: Cli, folder: str) -> None:
    run_command("vast", "--mock", TRAINING_MONITOR_STATE_DIR=folder)
    costs = money(cli("--mock", "--cost", COLUMNS="100"))
    assert {"group llama", "group vision", "group lora", "all"} < set(costs)
    assert re.fullmatch(r"\$\d+\.\d\d\+?", costs["all"][-1])
    compared = cli("--mock", "--compare", "30007001", "30007007")
    assert compared.returncode == 0 and "which all runs have reached" in compared.stderr
    assert "vast://30007001" in cli("--mock", "30007001").stdout


def test_a_mock_reads_nothing_that_is_real(cli: Cli, watched: float) -> None:
    assert cli("--mock").stdout == "" and len(only_json(cli("--json"))["members"]) == 3


# ---------------------------------------------------------------- exports


def test_csv_has_all_fields_and_times_for_people_and_programs(cli: Cli, watched: float) -> None:
    done = cli("7001", "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 40 and list(rows[0]) == ["time", "timestamp", "member", "status", *FIELDS]
    assert rows[0]["time"] == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(watched))
    assert float(rows[0]["timestamp"]) == watched
    assert (rows[0]["member"], rows[39]["loss"], rows[39]["step"]) == ("vast://7001", "2.05", "390")
    assert rows[0]["epoch"] == ""


def test_json_lines_keep_what_is_no_number_as_a_text(cli: Cli, watched: float) -> None:
    rows = [json.loads(line) for line in cli("--jsonl", "-", "--field", "loss").stdout.splitlines()]
    assert len(rows) == 80 and set(rows[0]) == {"time", "timestamp", "member", "status", "loss"}
    assert rows[0]["loss"] == 4 and rows[79] | {"time": "", "timestamp": 0} == {
        "time": "", "timestamp": 0, "member": "vast://7002", "status": None, "loss": "nan"
    }  # fmt: skip


def test_both_exports_go_to_files_at_once(cli: Cli, watched: float, tmp_path: Path) -> None:
    first, second = tmp_path / "a b.csv", tmp_path / "ü.jsonl"
    done = cli("--csv", str(first), "--jsonl", str(second))
    assert (done.returncode, done.stdout) == (0, "") and "80 samples of 3 members in" in done.stderr
    assert first.read_bytes().count(b"\r\n") == 81 and len(second.read_text().splitlines()) == 80


def test_no_name_becomes_a_formula_or_moves_the_terminal(cli: Cli, folder: str) -> None:
    history = History(Store(folder))
    history.add({HOSTILE: FleetSample(time.time(), {"loss": 1.0}, "+1\x1b[2J")})
    [row] = csv.DictReader(io.StringIO(cli("--csv", "-").stdout))
    assert row["member"].startswith("'=cmd") and row["status"].startswith("'+1")
    for argv in ((), ("cmd",), ("--compare",), ("--cost",), ("--csv", "-"), ("--jsonl", "-"), ("--json",), ("nobody",)):
        done = cli(*argv)
        assert not re.search("[\x1b\u202e]", done.stdout + done.stderr), argv
    assert len(cli().stdout.splitlines()) == 2 and len(cli("cmd").stdout.splitlines()) == 4


def test_what_is_kept_is_for_its_owner_alone(cli: Cli, watched: float, folder: str) -> None:
    assert cli().returncode == 0
    for file in Path(folder).glob("training_monitor.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
