"""Records: what an earlier version wrote is read, what a later one wrote is refused, damage is an error.

`kept_records.jsonl` holds one record of each kind that is kept on disk, as written before `records.py` was, or by the
first version that kept it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

import pytest

from training_monitor.core.errors import ParseError, StateError, TrainingMonitorError
from training_monitor.core.records import decode, encode, format_record, read_record
from training_monitor.core.store import Store
from training_monitor.core.values import KeptRollCall, Notice, Observation, WatchedJob
from training_monitor.notify.heartbeat import Outage
from training_monitor.rent.sweep import SweepMemory
from training_monitor.supervision.kept_waits import WaitState
from training_monitor.supervision.run_state import RunState
from training_monitor.supervision.terminate import Termination
from training_monitor.supervision.watch_state import WatchState
from training_monitor.targets.proc_stat import Identity
from training_monitor.vast.training_request import JobState, JobWork, TrainingRequest

WROTE = [json.loads(line) for line in (Path(__file__).parent / "kept_records.jsonl").read_text().splitlines()]
OF_RUNS = (RunState, Termination, WatchState, SweepMemory, TrainingRequest, JobWork)
OF_VALUES = (Observation, Notice, WatchedJob, Outage, WaitState, KeptRollCall)
KINDS: dict[str, Any] = {kind.__name__: kind for kind in OF_RUNS + OF_VALUES} | {"end": tuple[JobState, str]}
KEPT = [(KINDS[each["kind"]], each["state"]) for each in WROTE]
TABLES = [(kind, state) for kind, state in KEPT if is_dataclass(kind)]
NEWER = (
    "was written by a later version of this package \\(moon_phase\\). Try: install that later version again to read it"
)


def refused(kind: Any, data: object) -> bool:
    try:
        decode(kind, data)
    except TrainingMonitorError:
        return True
    return False


def test_what_the_version_before_wrote_is_read_and_written_again_the_same() -> None:
    assert {each["kind"] for each in WROTE} == set(KINDS)
    for kind, state in KEPT:
        again = json.loads(format_record(read_record(kind, json.dumps(state))))
        if kind is WatchState and not state["alerts"]:
            again["alerts"] = {}  # it was left out while nothing had been told
        if kind in (Termination, WatchState) and (was := state["identity"]):
            state["identity"] = {"pid": was["pid"], "start_ticks": was["start"], "boot_id": was["boot"]}
        known = _with_keys_of(state, again)
        assert json.dumps(known, sort_keys=True) == json.dumps(state, sort_keys=True)  # nan is not equal to itself


def _with_keys_of(was: Any, again: Any) -> Any:
    """What is kept now, without the keys that were added since."""
    if isinstance(was, dict) and isinstance(again, dict):
        return {key: _with_keys_of(was[key], again[key]) for key in was}
    if isinstance(was, list) and isinstance(again, list) and len(was) == len(again):
        return [_with_keys_of(*each) for each in zip(was, again)]
    return again


def test_values_within_values_have_their_own_types() -> None:
    values = {kind: read_record(kind, json.dumps(state)) for kind, state in reversed(KEPT)}
    ended, watched, job = values[Termination], values[WatchState], values[JobWork]
    assert ended.uploads[1].files[0].path == "a\udcff" and ended.is_saved
    assert ended.identity == Identity(7, 1234, boot_id="b-1")
    assert watched.cursor.offset == 880 and watched.alerts.milestones == (25.0, 50.0)
    assert watched.totals.progress.loss == math.inf and any(math.isnan(each) for each in watched.totals.losses)
    assert job.outcome is JobState.FAILED and job.rentals[0].gpu_name == "RTX 4090"
    assert values[KINDS["end"]] == (JobState.CANCELLED, "not wanted")
    assert values[TrainingRequest].register.headers[0] == ("Authorization", "Bearer env:REGISTRY")
    assert values[RunState].report()["attempts"][0]["failure"]["category"] == "oom"


def test_what_an_earlier_version_did_not_know_has_its_default() -> None:
    for kind, state in TABLES:
        for each in () if kind in (TrainingRequest, WatchedJob) else fields(kind):  # which need one of several fields
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            left = {key: value for key, value in state.items() if key != each.name}
            if default is MISSING or not each.init:
                continue
            assert repr(getattr(decode(kind, left), each.name)) == repr(default), (kind, each.name)


def test_state_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for kind, state in TABLES:
        store.save_run("local run", state | {"moon_phase": 0.5}, finished=False)
        with pytest.raises(TrainingMonitorError, match=f"the state of local run {NEWER}"):
            store.load_run("local run", kind)
        assert isinstance(store.load_run("local run", kind, drop_unknown=True), kind)
    with pytest.raises(TrainingMonitorError, match=f"a Rental {NEWER}"):
        decode(JobWork, {"rentals": [{"instance_id": 1, "moon_phase": 1}]})


def test_damage_is_an_error_and_never_a_default(tmp_path: Path) -> None:
    for kind, state in TABLES:
        assert all(refused(kind, data) for data in (None, 5, "x", [], [state]))
        for name, value in state.items():
            wrong = 7 if isinstance(value, dict | list) else [[7]]
            with pytest.raises(ParseError, match=f"{kind.__name__}: {name}: (got .*, expected|.* is not a valid) "):
                decode(kind, state | {name: wrong})
        for each in fields(kind):
            if each.default is MISSING and each.default_factory is MISSING:
                assert refused(kind, {key: value for key, value in state.items() if key != each.name})
    for data in (None, [], ["CANCELLED"], ["PERHAPS", "x"], ["CANCELLED", 5], ["CANCELLED", "x", 1]):
        assert refused(KINDS["end"], data)
    store = Store(str(tmp_path))
    store.save_run("local run", {"key": 5}, finished=False)
    with pytest.raises(StateError, match=f"{re.escape(store.path)} does not contain a valid state of local run"):
        store.load_run("local run", RunState)


class Colour(Enum):
    RED = "red"


class Row(TypedDict):
    number: int
    text: str | None


@dataclass(frozen=True)
class Part:
    size: float
    names: tuple[str, ...] = ()


@dataclass
class Whole:
    pair: tuple[int, str]
    parts: list[Part] = field(default_factory=list)
    by_name: Mapping[str, Part] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    colour: Colour | None = None
    number: int | str | None = None
    anything: Any = None
    counted: int = field(default=0, init=False)


def test_each_type_comes_back_as_it_is_annotated() -> None:
    whole = Whole(
        (1, "a\udcff"),
        [Part(math.inf, ("x",)), Part(2)],
        MappingProxyType({"a": Part(-0.5)}),
        ({"number": 1, "text": "ü"},),
        number="five",
        anything=[1, {"a": [None]}],
    )
    text = format_record(whole)
    assert text.isascii()
    again = read_record(Whole, text)
    assert (again.pair, again.parts, again.by_name) == (whole.pair, whole.parts, {"a": Part(-0.5)})
    assert (again.rows, again.number, again.anything) == (whole.rows, "five", [1, {"a": [None]}])
    assert decode(Whole, {"pair": [1, "a"], "colour": "red"}).colour is Colour.RED
    assert decode(Whole, {"pair": [1, "a"], "rows": [{"number": 3}]}).rows == ({"number": 3, "text": None},)
    whole = Whole((1, "a"))
    whole.counted = 5
    assert "counted" not in encode(whole) and read_record(Whole, format_record(whole)).counted == 0


def test_where_a_record_is_damaged_is_told_from_its_top_down() -> None:
    with pytest.raises(ParseError, match=r"Whole: by_name: size: got 'big', expected float"):
        decode(Whole, {"pair": [1, "a"], "by_name": {"x": {"size": "big"}}})
    with pytest.raises(ParseError, match=r"Whole: not JSON \("):
        read_record(Whole, "[" * 100_000)
    with pytest.raises(TypeError, match="JSON cannot represent a set"):
        format_record(Whole((1, "a"), anything={1, 2}))
