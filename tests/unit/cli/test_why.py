"""What `why` prints of its report."""

from __future__ import annotations

from typing import Any, cast

import pytest

from training_monitor.cli.commands.why import _show

NOTHING = {"ranks": [], "findings": [], "unknown": [], "remedies": [], "confidence": "none"}


@pytest.mark.parametrize(
    ("state", "reason", "line"),
    [
        ("failed", "failed at step 9: out of memory", "failed at step 9: out of memory"),
        ("stalled", "no step for 5m", "cause unknown; no step for 5m"),
        ("unknown", "", "cause unknown"),
    ],
)
def test_the_cause_of_a_training_that_has_ended_is_not_called_unknown(
    capsys: pytest.CaptureFixture[str], state: str, reason: str, line: str
) -> None:
    report = {**NOTHING, "explanation": "No process was found.", "state": state, "reason": reason}
    _show(cast("Any", report), with_stacks=False)
    assert capsys.readouterr().out.splitlines() == ["No process was found.", line]
