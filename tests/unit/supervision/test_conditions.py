"""The conditions of a wait: how they are given, and what makes each hold."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.core.models import Checkpoint
from training_monitor.core.values import CheckpointListing, Verdict
from training_monitor.supervision.conditions import (
    IDLE_SECONDS,
    LONGEST_LINE,
    Condition,
    Facts,
    KnownCheckpoints,
    find_holding,
    find_line,
    find_new_checkpoint,
    idle_since,
    know_checkpoints,
    next_pause,
    parse_condition,
    parse_conditions,
    why_it_holds,
)

RUNS = Verdict("running", "ok", "step 40 of 200, 2 steps/s")
ENDED = {
    "finished": Verdict("finished", "ok", "finished at step 200 of 200"),
    "failed": Verdict("failed", "failed", "failed at step 40 of 200: CUDA out of memory"),
    "stalled": Verdict("stalled", "failed", "no step for 20m, limit 7m30s: GPUs idle"),
}


def checkpoint(step: int, complete: bool | None = True, age: float | None = None, path: str = "") -> Checkpoint:
    return Checkpoint(path or f"/c/step_{step}", step, 1000, complete, age=age)


# ---------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((name, 0) for name in ("finished", "failed", "stalled", "checkpoint", "step=0")),
        ("step=1000", 1000),
        ("epoch=2", 2),
        ("epoch=2.5", 2.5),
        ("gpu-idle", IDLE_SECONDS),
        ("gpu-idle=1h30m", 5400),
        ("log=val_acc=0\\.9", 0),
    ],
)
def test_a_condition_is_read(text: str, number: float) -> None:
    kind, _, value = text.partition("=")
    assert parse_condition(text) == Condition(text, kind, number, value if kind == "log" else "")


@pytest.mark.parametrize(
    "text",
    ["", "done", "FINISHED", "finished=1", "checkpoint=/c", "step", "step=", "step=-1", "step=1.5", "step=1e3",
     "step=١", "epoch=", "epoch=nan", "gpu-idle=", "gpu-idle=0s", "gpu-idle=soon", "log", "log=", "=5", "step = 5"],
)  # fmt: skip
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(SettingsError, match=r"finished, failed, stalled, step=N|a duration above 0, such as 10m"):
        parse_condition(text)


def test_an_invalid_expression_or_one_that_may_take_for_ever_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"log: got 'loss=\(\\\\d', .*unterminated subpattern at position 5"):
        parse_condition("log=loss=(\\d")
    with pytest.raises(SettingsError, match="forever"):
        parse_condition("log=(a+)+b")


@pytest.mark.parametrize("given", [(), "finished"])
def test_a_wait_has_a_sequence_of_conditions(given: Any) -> None:
    with pytest.raises(SettingsError, match="conditions"):
        parse_conditions(given)


# ---------------------------------------------------------------- what holds


def test_a_state_holds_by_the_verdict_and_no_other_condition_does() -> None:
    for state, verdict in ENDED.items():
        for name in ENDED:
            held = why_it_holds(parse_condition(name), Facts(verdict))
            assert bool(held) == (name == state) and (held is None or verdict.reason in held)
    assert find_holding(parse_conditions([*ENDED, "step=1", "gpu-idle", "checkpoint", "log=x"]), Facts(RUNS)) is None


def test_what_is_unknown_does_not_hold() -> None:
    nobody_knows = Facts(Verdict("unknown", "unknown", "not checked yet"))
    everything = parse_conditions([*ENDED, "step=0", "epoch=0", "gpu-idle", "checkpoint", "log=."])
    assert find_holding(everything, nobody_knows) is None


def test_a_step_and_an_epoch_hold_from_their_number_on() -> None:
    for step, holds in ((39, False), (40, True), (41, True)):
        assert bool(why_it_holds(parse_condition("step=40"), Facts(RUNS, step=step))) is holds
    for epoch, holds in ((1.99, False), (2.0, True)):
        assert bool(why_it_holds(parse_condition("epoch=2"), Facts(RUNS, epoch=epoch))) is holds
    assert why_it_holds(parse_condition("step=40"), Facts(RUNS, 41, 200)) == "reached step 41 of 200"


def test_the_first_of_several_that_hold_counts() -> None:
    facts = Facts(ENDED["failed"], step=40, idle_seconds=600, checkpoint=checkpoint(40), lines={"out": "out of memory"})
    conditions = ("checkpoint", "log=out", "failed", "step=40", "gpu-idle")
    for number in range(len(conditions)):
        first, *_ = given = (*conditions[number:], *conditions[:number])
        found = find_holding(parse_conditions(given), facts)
        assert found and found[0].text == first


def test_gpus_are_idle_since_the_first_of_looks_that_follow_each_other() -> None:
    since, looked_at = None, None
    modes = ("busy", "idle", "idle", "idle", "spinning", "idle", None, "idle")
    found = []
    for number, mode in enumerate(modes):
        since = idle_since(since, mode, looked_at, 60.0 * number, 180.0)
        looked_at = 60.0 * number
        found.append(since)
    assert found == [None, 60, 60, 60, None, 300, None, 420]


def test_idleness_does_not_last_over_a_time_without_looks() -> None:
    assert idle_since(0.0, "idle", 60.0, 240.0, 180.0) == 0.0
    assert idle_since(0.0, "idle", 60.0, 241.0, 180.0) == 241.0
    assert idle_since(500.0, "idle", 500.0, 100.0, 180.0) == 100.0  # the clock was set back


# ---------------------------------------------------------------- lines


def test_the_first_line_that_matches_is_found() -> None:
    assert find_line("acc=0[.]9", "acc=0.81\nacc=0.93\nacc=0.95\n") == "acc=0.93"
    assert find_line("acc=1", "acc=0.81\n") is None
    assert find_line("^done$", "is done\nnot\r\ndone\n") == "done"


def test_a_line_is_searched_without_colours_and_with_or_without_its_prefix() -> None:
    text = "[rank0]: \x1b[31mRuntimeError\x1b[0m: lost\n"
    assert find_line("^RuntimeError: lost$", text) == "RuntimeError: lost"
    assert find_line(r"^\[rank0\]: RuntimeError", text) == "[rank0]: RuntimeError: lost"


def test_a_line_is_shown_harmless_and_bounded() -> None:
    found = find_line("needle", "x" * 5000 + " needle \x1b]0;title\x07" + "y" * 5000)
    assert found and "needle" in found and len(found) <= LONGEST_LINE and "\x1b" not in found and "\x07" not in found


@pytest.mark.parametrize("before", [0, 1799, 1801, 1995, 2000, 3595, 3700, 10_000])
def test_a_match_is_found_anywhere_in_a_long_line(before: int) -> None:
    assert find_line("needle.*", "x" * before + "needle" + "y" * 9000)
    assert find_line("needle$", "x" * before + "needle")
    assert not find_line("needle$", "x" * before + "needle" + "y" * 9000)


def test_a_complete_checkpoint_that_was_not_there_is_new() -> None:
    known = know_checkpoints(CheckpointListing((checkpoint(100), checkpoint(200, complete=False))))
    for added, found in [
        ((), None),
        ((checkpoint(200, complete=False),), None),  # still not complete
        ((checkpoint(200),), 200),  # it is now
        ((checkpoint(200), checkpoint(300, complete=False)), 200),
        ((checkpoint(200), checkpoint(300, complete=None)), 200),  # nobody knows whether the other is
        ((checkpoint(200), checkpoint(300)), 300),
    ]:
        new = find_new_checkpoint(known, CheckpointListing((checkpoint(100), *added)), 60.0)
        assert (new and new.step) == found
    known = know_checkpoints(CheckpointListing((checkpoint(300),)))  # and one of a lower step, after a restart
    new = find_new_checkpoint(known, CheckpointListing((checkpoint(100), checkpoint(300))), 60.0)
    assert new == checkpoint(100)


def test_one_that_was_not_looked_at_in_the_beginning_is_not_new() -> None:
    known = know_checkpoints(CheckpointListing((checkpoint(100, None), checkpoint(200), checkpoint(300)), unlisted=7))
    assert known == KnownCheckpoints((("/c/step_100", 100), ("/c/step_200", 200), ("/c/step_300", 300)), 100)
    later = CheckpointListing((checkpoint(50), checkpoint(100), checkpoint(200), checkpoint(300)))
    assert find_new_checkpoint(known, later, 60.0) is None


def test_one_that_replaces_the_last_is_new_once_it_was_written() -> None:
    def last(age: float) -> CheckpointListing:
        return CheckpointListing((checkpoint(0, age=age, path="/c/last.ckpt"),))

    known = know_checkpoints(last(10.0))
    assert find_new_checkpoint(known, last(70.0), 60.0) is None
    assert find_new_checkpoint(known, last(5.0), 60.0) == checkpoint(0, path="/c/last.ckpt")


def test_the_longer_the_wait_the_less_often_it_looks_unless_gpus_are_to_be_idle() -> None:
    conditions = parse_conditions(["finished"])
    assert [next_pause(conditions, waited) for waited in (0, 10, 100, 600, 6000)] == [2, 2, 10, 60, 60]
    assert next_pause(parse_conditions(["gpu-idle=40s", "finished"]), 6000) == 10
    assert next_pause(parse_conditions(["gpu-idle"]), 6000) == 60
