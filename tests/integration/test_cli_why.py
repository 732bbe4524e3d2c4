"""`why` on the command line: what it prints of a real training of four ranks, and with which exit code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.integration.commands import run_command, run_on_a_terminal
from tests.integration.conftest import Place, Surroundings
from tests.integration.roll_call_training import PLACES, Plan, Training, running

ROOT = Path(__file__).parents[2]
NOBODY = "ssh://nobody@127.0.0.1:1"  # nothing listens there


def pid_of(training: Training) -> str:
    return str(training.members[0].pid)


def test_the_paragraph_comes_first_then_a_line_for_each_rank_with_the_late_one_marked(hung: Training) -> None:
    done = run_command("why", "local", pid_of(hung), COLUMNS="120")
    file, line = PLACES["pipe"]
    late, where = hung.members[1].pid, f"{file}:{line} load_batch"
    assert "MainThread" not in done.stdout
    told, sure, empty, head, *rows = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "" and empty == ""
    assert told.endswith(f"rank 1 (pid {late}) is in {where}, which waits for a pipe: look there.")
    assert told.startswith("3 of 4 ranks wait in ") and sure.startswith("confidence high; ")
    assert head.split()[:6] == ["RANK", "HOST", "PID", "STATE", "CPU", "MEMORY"] and head.endswith("WAITS FOR  WHERE")
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]
    assert re.match(rf"1 < +local +{late} +S .* a pipe +{where}$", rows[1])


def test_stacks_are_printed_for_each_rank_when_asked_for(hung: Training) -> None:
    done = run_command("why", "local", pid_of(hung), "--stacks")
    heads = [
        line
        for line in done.stdout.splitlines()
        if re.fullmatch(r"rank \d \(pid \d+\) on local, in-script stacks", line)
    ]
    assert len(heads) == 4 and done.stdout.count("  MainThread\n") == 4
    assert f"load_batch ({hung.folder}/data.py:{PLACES['pipe'][1]})" in done.stdout


def test_a_host_that_does_not_answer_is_named_and_its_ranks_are_not_called_dead(hung: Training) -> None:
    found = run_command("why", "local", pid_of(hung), "--also", NOBODY, "--json")
    report = json.loads(found.stdout)
    assert found.returncode == 0 and [each["host"] for each in report["silent"]] == [NOBODY]
    assert [each["rank"] for each in report["culprits"]] == [1] and report["missing_ranks"] == []
    assert f"Could not be queried: {NOBODY.removeprefix('ssh://')}" in report["explanation"]


def test_what_could_not_be_read_is_called_unknown_and_no_advice(hung: Training, surroundings: Surroundings) -> None:
    tool = surroundings.tools / "df"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    words = ("why", "local", pid_of(hung), "--timeout", "120s")
    done, report = run_command(*words), json.loads(run_command(*words, "--json").stdout)
    assert report["remedies"] == [] and [each for each in report["unknown"] if each.startswith("local: df: ")]
    lines = done.stderr.splitlines()
    assert lines == [f"unknown: {each}" for each in report["unknown"]]


def test_a_training_whose_ranks_do_not_differ_is_unknown(local: Place) -> None:
    training = Training(Plan(mute_at=3, with_monitor=True), local.folder / "mute")
    with running(training):
        training.wait_until_ready()
        done = run_command("why", "local", pid_of(training))
    assert done.returncode == 3 and "cause unknown" in done.stdout and " < " not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["local", "nobody-trains-this"], "no training"),
        (["local", "1", "--timeout", "1s"], "--timeout"),
        (["local", str(os.getpid()), "--py-spy", "/no/such/py-spy"], "py_spy"),
    ],
)
def test_wrong_use_is_2_and_says_what_is_wrong(local: Place, words: list[str], said: str) -> None:
    done = run_command("why", *words)
    assert done.returncode == 2 and said in done.stderr and done.stdout == "", done


def test_a_target_that_does_not_answer_is_unknown(local: Place) -> None:
    done = run_command("why", NOBODY, "--json")
    assert done.returncode == 3 and json.loads(done.stdout)["kind"] == "TargetUnreachable"


def test_colour_is_for_terminals_and_respects_no_color(hung: Training) -> None:
    words = ("why", "local", pid_of(hung), "--timeout", "120s")
    coloured, plain = run_on_a_terminal(*words), run_on_a_terminal(*words, NO_COLOR="1")
    assert coloured.returncode == plain.returncode == 0
    assert "confidence \x1b[32mhigh\x1b[0m" in coloured.stdout and "confidence high" in plain.stdout
    assert "\x1b[" not in plain.stdout
