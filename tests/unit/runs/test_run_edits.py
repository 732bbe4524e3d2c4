"""Which edits a run would take, and what its control file then holds."""

from __future__ import annotations

import pytest

from tests.unit.runs.run_world import run
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.runs.progress_file import Edit, check_edits, merge_edits, parse_control_file, read_edits
from training_monitor.runs.values import Variable

RUN = run(variables=(Variable("lr", 0.1, "float", edit="answered"), Variable("wd", 0, "int")))


def test_a_file_that_holds_nothing_has_no_edits_and_is_written_anew(subtests: pytest.Subtests) -> None:
    for control in ["", "garbage", "[1]", "\x00\ufffd", "[" * 99_999, "null"]:
        with subtests.test(control=control):
            assert read_edits(control) == {}
            assert parse_control_file(merge_edits(control, RUN, {"lr": Edit("1", "a", 5.0)})) == {
                "lr": Edit("1", "a", 5.0)
            }


def test_edits_that_are_not_answered_stay_with_their_text() -> None:
    control = '{"edits": {"lr": {"value": "9", "edit": "answered"}, "wd": {"value": "3", "edit": "open"}}}'
    assert parse_control_file(merge_edits(control, RUN, {})) == {"wd": Edit("3", "open")}
    later = parse_control_file(merge_edits(control, RUN, {"wd": Edit("4", "newer")}))
    assert later == {"wd": Edit("4", "newer")}
    value = "ü \n\"'\x00\ud800"
    assert parse_control_file(merge_edits("", RUN, {"lr": Edit(value, "a")}))["lr"].value == value


@pytest.mark.parametrize("status", ["FINISHED", "KILLED", None])
def test_a_run_that_has_ended_takes_no_edits(status: str | None) -> None:
    with pytest.raises(TrainingMonitorError, match=f"is {status or 'UNKNOWN'}, so it would never read the edit"):
        check_edits(run(status=status), {})


def test_only_variables_of_the_run_are_edited_and_no_endless_text() -> None:
    check_edits(RUN, {"lr": "x" * 1000, "wd": ""})
    for values, said in (({"a\nb": "1"}, "no variable"), ({"lr": "x" * 1001}, "1001 characters")):
        with pytest.raises(TrainingMonitorError, match=said):
            check_edits(RUN, values)


@pytest.mark.parametrize("kind", ["tuple", "list", "NoneType"])
def test_an_edit_of_what_cannot_be_edited_is_refused_at_once(kind: str) -> None:
    variables = (Variable("betas", "(0.9, 0.999)", kind), Variable("lr", 0.1, "float"))
    with pytest.raises(TrainingMonitorError, match=f"betas is of type {kind}: only float"):
        check_edits(run(variables=variables), {"lr": "1", "betas": "3"})
