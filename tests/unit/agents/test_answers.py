"""The documents that tools answer: bounded, masked, escaped, and marked as data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_monitor.agents.mcp.answers import (
    CAUTION,
    CHARACTERS,
    UNTRUSTED,
    error_of,
    format_answer,
    format_failure,
    make_document,
    read_limit,
    summarize,
)
from training_monitor.core.errors import Hint, JobNotFound, SettingsError, TrainingMonitorError

LOG = "\n".join(f"step {step}" for step in range(20_000))


def test_a_short_answer_is_whole_and_marked() -> None:
    document = make_document({"verdict": "ok", "loss": float("nan"), "pair": (1, 2)})
    assert document == {"caution": CAUTION, "verdict": "ok", "loss": None, "pair": [1, 2]}
    answer = format_answer(document)
    assert answer["_meta"] == {UNTRUSTED: True} and not answer["isError"]
    assert len(answer["content"]) == 1 and CAUTION in answer["content"][0]["text"]


def test_of_a_long_log_the_end_is_told_and_how_much_is_missing() -> None:
    document = make_document({"job_id": "a", "log": LOG})
    assert len(json.dumps(document)) <= CHARACTERS
    assert LOG.endswith(document["log"]) and "step 19999" in document["log"]
    missing = len(LOG) - len(document["log"])
    assert document["left_out"] == [{"at": "log", "count": missing, "unit": "characters"}]
    assert document["to_see_it"] == "max_characters up to 1000000"
    assert make_document({"log": LOG}, 1_000_000)["log"] == LOG


def test_of_a_long_list_the_first_entries_are_told() -> None:
    jobs = [{"name": f"job {number}", "remedies": ["x" * 30] * 5} for number in range(1000)]
    document = make_document({"jobs": jobs}, 3000)
    assert len(json.dumps(document)) <= 3000 and document["jobs"] == jobs[: len(document["jobs"])]
    assert {"at": "jobs", "count": 1000 - len(document["jobs"]), "unit": "entries"} in document["left_out"]


def test_nothing_is_cut_without_being_told() -> None:
    rows = [{"name": str(row), "recent_logs": [f"line {line} {'y' * 150}" for line in range(300)]} for row in range(9)]
    document = make_document({"rows": rows, "text": "z" * 50_000, "table": {str(n): n for n in range(5000)}})
    told = {each["at"]: each["count"] for each in document["left_out"]}
    assert len(json.dumps(document)) <= CHARACTERS
    assert told["text"] == 50_000 - len(document["text"]) and told["table"] == 5000 - len(document["table"])
    assert set(told) <= {"rows", "rows[].recent_logs", "rows[].recent_logs[]", "text", "table"}


def test_a_limit_out_of_range_is_refused() -> None:
    wrong: list[Any] = [0, 999, 1_000_001, "8000", 1000.0, True]
    for limit in wrong:
        with pytest.raises(SettingsError, match="max_characters"):
            read_limit(limit)
    with pytest.raises(TrainingMonitorError, match="too long"):
        make_document({str(number): "x" * 150 for number in range(60)}, 1000)


def test_texts_and_names_are_masked_and_escaped() -> None:
    secret = "hf_" + "a1B2c3D4" * 4
    found = {f"loss\u202e{secret}": f"\x1b[2Jok\u202e \U000e0041 {secret}\nnext"}
    document = make_document({"metrics": found})
    assert document["metrics"] == {"loss***": "ok  ***\nnext"}


WAIT = {
    "verdict": "failed", "state": "stalled", "name": "train", "step": 5, "total_steps": 9, "handle": "mine",
    "condition": None, "conditions": ["step=7", "finished"],
}  # fmt: skip
STALLED = {"name": "pid 7", "pid": 7, "script": "train.py", "state": "stalled", "reason": "no step for 5m"}
STALLED["verdict"] = "failed"
RUNNING = {"name": "b", "verdict": "ok", "state": "running", "reason": "step 3"}
RAY = {"what": "Ray", "why": "no answer", "count": None}


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"verdict": "failed", "reason": "loss is\nnan"}, "FAILED: loss is nan"),
        ({"verdict": "warning", "issues": ["a", "b"]}, "WARNING: a; b"),
        ({"verdict": "unknown"}, "UNKNOWN"),
        (
            {
                "verdict": "failed",
                "reason": "no step for 5m",
                "jobs": [STALLED, {**RUNNING, "pid": 8, "script": "x.py"}],
            },
            "train.py (pid 7) STALLED: no step for 5m; b RUNNING: step 3",
        ),
        (
            {
                "verdict": "unknown",
                "reason": "no problem was found: Ray: no answer",
                "not_seen": [RAY],
                "jobs": [RUNNING],
            },
            "UNKNOWN: no problem was found: Ray: no answer; b RUNNING: step 3",
        ),
        (
            {**WAIT, "outcome": "interrupted", "reason": "the waiting was stopped: mine can be taken up"},
            "train is stalled at step 5 of 9; the wait for step=7 or finished is not over; call again with handle mine",
        ),
        (
            {**WAIT, "outcome": "met", "condition": "step=7", "reason": "step 7 of 9", "state": "running", "step": 7},
            "train is running at step 7 of 9; step=7 holds: step 7 of 9",
        ),
        (
            {**WAIT, "outcome": "missed", "reason": "no step for 5m"},
            "train is stalled at step 5 of 9; it ended or stalled before step=7 or finished: no step for 5m",
        ),
        ({"jobs": [], "exit_status": 3, "stderr": "not listed: Ray"}, "UNKNOWN: not listed: Ray"),
        ({"done": False, "would": "stop a"}, "NOTHING WAS DONE: stop a"),
        ({"caution": "x", "jobs": [1], "step": None, "name": "a"}, "jobs: 1 entry, step: null, name: a"),
        ({}, "nothing"),
    ],
)
def test_one_line_says_what_the_document_says(document: dict[str, Any], line: str) -> None:
    assert summarize(document) == line
    bounded = summarize({"verdict": "failed", "reason": "x" * 10_000})
    assert len(bounded) < 700 and bounded.endswith("… (shortened)")


def test_a_failure_has_the_fields_of_json_errors() -> None:
    result = format_failure({"error": "no \x1b[31msuch job", "kind": "JobNotFound", "hint": "look", "owner": 1})
    assert result["isError"] and result["_meta"] == {UNTRUSTED: True}
    told = {"caution": CAUTION, "error": "no such job", "kind": "JobNotFound", "hint": "look"}
    assert result["structuredContent"] == told
    assert result["content"][0]["text"].startswith("JobNotFound: no such job. Try: look")
    error = JobNotFound("no job 'x'", hint=Hint("list the trainings with {find_trainings}"))
    assert error_of(error)["hint"] == "list the trainings with check"
