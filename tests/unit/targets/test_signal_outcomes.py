"""The words for what came of a signal; those of each outcome are in tests/unit/runs/test_remote_look.py."""

from __future__ import annotations

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.targets.proc_stat import Identity, check_signal, describe_outcome, has_obeyed, signal_name


def test_a_signal_has_its_name_and_a_rare_one_its_number() -> None:
    assert [signal_name(number) for number in (9, 15, 18, 19, 40)] == [
        "SIGKILL",
        "SIGTERM",
        "SIGCONT",
        "SIGSTOP",
        "signal 40",
    ]


def test_a_number_that_is_no_signal_is_refused() -> None:
    check_signal(1)
    check_signal(64)
    for number in (0, -9, 65):
        with pytest.raises(SettingsError):
            check_signal(number)


def test_only_a_stop_and_a_continuation_are_obeyed_by_a_state() -> None:
    assert has_obeyed("T", 19) and has_obeyed("S", 18)
    assert not has_obeyed("T", 18) and not has_obeyed("S", 19) and not has_obeyed("T", 15)


@pytest.mark.parametrize("outcome", ["", "nonsense", "left", "\n"])
def test_an_outcome_that_nobody_knows_is_no_success(outcome: str) -> None:
    assert describe_outcome(Identity(7), 15, outcome, "python") == "process 7: the effect of SIGTERM is unknown"


def test_a_stopped_process_gets_a_signal_when_it_goes_on() -> None:
    told = describe_outcome(Identity(7), 15, "left", state="T")
    assert told.endswith("it is stopped, and will receive the signal after SIGCONT")
    assert describe_outcome(Identity(7), 18, "left", state="T").endswith("it still exists (stopped)")
