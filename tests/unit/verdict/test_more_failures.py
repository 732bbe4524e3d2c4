"""Failures of many frameworks, drivers, schedulers and clouds, and lines that only look like one.

The rows of `more_failures.jsonl` are written after the messages in the sources and documentation of what `source`
names: lines, and the action (with it the category, where one is certain) that they must give.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    head = 'Traceback (most recent call last):\n  File "a.py", line 2, in <module>\n    main()\n'
    found = classify_failure(f"{head}mylib.OutOfTapes: drive 3")
    assert (found.category, found.action, found.evidence) == ("runtime_error", "restart", "mylib.OutOfTapes: drive 3")


def test_an_exception_is_known_by_its_name_where_a_traceback_ends() -> None:
    head = 'Traceback (most recent call last):\n  File "a.py", line 2, in <module>\n    main()\n'
    for last, category in [
        ("torch._dynamo.exc.Unsupported: builtin: print is not traceable", "python_exception"),
        ("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:", "python_exception"),
        ("pkg_resources.ContextualVersionConflict: (numpy 2.0.0, Requirement.parse('numpy<2'))", "environment"),
    ]:
        assert classify_failure(f"{head}{last}").category == category
        assert classify_failure(f"step 7 loss 0.5\n{head}{last}\nstep 8 loss 0.5").category == "none"


def test_an_error_of_a_bus_or_switch_is_a_fault_unless_it_is_corrected_or_not_fatal(subtests: pytest.Subtests) -> None:
    for line, is_fault in [
        ("pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", True),
        ("pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer", False),
        ("pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", False),
        ("nvidia-nvswitch1: SXid (PCI:0000:c4:00.0): 11004, Nonfatal, Link 4 crossbar", False),
        ("mlx5_core 0000:9a:00.0: poll_health: Fatal error 3 detected", True),
        ("mlx5_core 0000:9a:00.0: a non-fatal error was reported", False),
    ]:
        with subtests.test(line=line):
            assert (classify_failure(line).action == "restart_elsewhere") is is_fault
            assert is_fault or classify_failure(line).action in ("ignore", "monitor")
