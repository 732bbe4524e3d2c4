"""Failures of many frameworks, drivers, schedulers and clouds, and lines that only look like one.

The rows of `more_failures.jsonl` are written after the messages in the sources and documentation of what `source`
names: lines, and the action (with it the category, where one is certain) that they must give.
"""

from __future__ import annotations

import json
from pathlib import Path

from training_monitor.verdict.failure import classify_failure


def test_failures_give_the_action_they_call_for() -> None:
    text = Path(__file__).with_name("more_failures.jsonl").read_text(encoding="utf-8")
    wrong = {}
    for row in map(json.loads, text.splitlines()):
        found = classify_failure("\n".join(row["lines"]))
        if any(getattr(found, name) != want for name, want in row["expect"].items()):
            wrong[row["source"]] = found
    assert wrong == {}


def test_an_exception_no_table_knows_is_found_where_a_traceback_ends() -> None:
    log = (
        'Traceback (most recent call last):\n  File "a.py", line 2, in <module>\n    main()\nmylib.OutOfTapes: drive 3'
    )
    found = classify_failure(log)
    assert (found.category, found.action, found.evidence) == (
        "runtime_error",
        "restart",
        "mylib.OutOfTapes: drive 3",
    )


def test_a_name_with_a_colon_outside_a_traceback_is_no_exception() -> None:
    assert classify_failure("mylib.OutOfTapes: drive 3").action == "ignore"


def test_advice_behind_an_exception_does_not_hide_it() -> None:
    assert classify_failure("OSError: the loader gave up. Please check the mount").category == "runtime_error"
