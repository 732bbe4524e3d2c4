from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from math import inf, nan
from typing import Any

from tests.hostile.texts import HOSTILE, harm_in
from tests.unit.ui.snapshots import NOW, ROWS, SNAPSHOT, member, unseen
from training_monitor.core.models import Gpu
from training_monitor.core.reports import RestartReport
from training_monitor.core.values import Verdict
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSummary
from training_monitor.runs.values import EarlierAttempt, MetricHistory, Run
from training_monitor.supervision.run_state import RunState, plan_attempt, update_attempt
from training_monitor.ui.fleet.view import FleetView
from training_monitor.web.pages import (
    HEADS,
    alerts_of,
    attempts_page,
    clean,
    event_of,
    head_of,
    id_of,
    member_page,
    names_of,
    row_of,
    run_page,
)

VIEW = FleetView()


def row(metrics: TrainingMetrics) -> dict[str, object]:
    found = row_of(metrics, SNAPSHOT, VIEW)
    json.dumps(found, allow_nan=False)  # a browser reads no NaN
    return found


def cells(metrics: TrainingMetrics) -> dict[str, tuple[str, object]]:
    found: Any = row(metrics)["cells"]
    return {column.title: tuple(cell) for (_, column), cell in zip(HEADS, found, strict=True)}


def test_the_cells_are_those_of_the_terminal_and_those_that_are_why_named() -> None:
    shown = cells(member(1, loss=nan, gpu_util=None))
    assert shown["LOSS"] == ("nan", 1e308) and shown["GPU%"] == ("-", None)
    assert shown["$/H"] == ("$0.467", 0.467) and shown["ETA"][0] == "45m"
    assert shown["PROGRESS"] == ("E1/3 70%", 70.0) and shown["STATUS"] == ("NaN", "nan")
    assert cells(member(1, loss=inf))["LOSS"] == ("inf", 1e308)
    causes = {str(each.instance_id): row(each)["why"] for each in ROWS}
    assert causes["30007001"] == [] and causes["30007002"] == ["LOSS"]
    assert causes["30007004"] == ["STATUS"] and causes["30007005"] == ["DISK%", "GPU%"]
    assert causes["30007006"] == ["SEEN"] and causes["30007007"] == ["PROGRESS"]
    done = member(9, finished=True, gpu_util=0.0, verdict=Verdict("finished", "ok", "finished"))
    assert row(done)["why"] == ["$/H"]


def test_unknown_is_not_zero_and_late_looks_are_shown() -> None:
    found = row(unseen(1, "unknown", last_updated=None))
    assert found["level"] == "unknown" and found["percent"] is None and found["seen"] is None
    assert head_of(replace(SNAPSHOT, summary=FleetSummary()))["tiles"] == []
    tiles = {tile["name"]: tile["text"] for tile in head_of(SNAPSHOT)["tiles"]}
    assert tiles["Rate"] == "at least $17.62/h" or tiles["Rate"] == "at least $17.63/h"
    assert tiles["Credit"] == "$80.12"
    said = "checks are 40s late: too many members to check every 10s"
    assert [head_of(replace(SNAPSHOT, late=late))["lateness"] for late in (None, 0.0, 40.0)] == ["", "", said]


def test_facts_leave_out_what_is_unknown() -> None:
    facts = dict(member_page(member(1, gpu_type=None, step=None, epochs_done=None), SNAPSHOT, VIEW)["facts"])
    assert not {"GPU", "step", "progress"} & facts.keys() and "-" not in facts.values()
    assert dict(member_page(member(1), SNAPSHOT, VIEW)["facts"])["progress"] == "70.0 %"
    stalled = member(1, verdict=Verdict("stalled", "failed", "no step for 15m"))
    facts = dict(member_page(stalled, SNAPSHOT, VIEW)["facts"])
    assert (facts["status"], facts["machine"]) == ("stalled", "running") and cells(stalled)["STATUS"][0] == "stalled"


def test_each_of_several_gpus_has_its_own_bar() -> None:
    busy = Gpu(0, utilization=99.0, memory_used_mb=50.0, memory_total_mb=100.0, temperature_celsius=70.0)
    gpus = member_page(member(1, gpus=(busy, Gpu(1, utilization=0.0), Gpu(None, error="lost"))), SNAPSHOT, VIEW)["gpus"]
    assert [(each["name"], each["percent"]) for each in gpus] == [("GPU 0", 99.0), ("GPU 1", 0.0), ("GPU ?", None)]
    assert [each["text"] for each in gpus] == ["99.0 %, memory 50.0 %, 70 C", "0.0 %", "use unknown, lost"]
    assert member_page(member(1, gpus=(busy,)), SNAPSHOT, VIEW)["gpus"] == []


def test_every_foreign_text_is_made_harmless() -> None:
    for text in HOSTILE:
        odd = member(
            1, name=text, gpu_type=text, status=text, message=text, error=text, groups=(text,), recent_logs=[text],
            key=f"k{text}", extra={text: nan}, job_status=text, stale_since=NOW,
        )  # fmt: skip
        told = [member_page(odd, SNAPSHOT, VIEW), alerts_of([FleetAlert(NOW, text, text, text, text)], {})]
        told.append(head_of(replace(SNAPSHOT, error=text, groups=(text,))))
        assert not any(harm_in(each) for each in texts_in(told)), text


def texts_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [text for each in inside for text in texts_in(each)]


def test_secrets_and_endless_texts_are_cut_and_an_id_needs_no_escaping() -> None:
    assert clean("password=hunter2hunter2 x") == "password=*** x"
    assert clean(f"{'x' * 990} hf_Abcdefghijkl0123456789")[-3:] == "***"
    assert len(clean("x" * 100_000)) == 1000
    assert id_of("vast://1") != id_of("vast://2")
    assert all(len(id_of(text)) == 16 and id_of(text).isalnum() for text in HOSTILE)


def test_alerts_come_newest_first_and_lead_to_their_members() -> None:
    found = alerts_of(SNAPSHOT.alerts, names_of(SNAPSHOT.rows))
    assert [each["at"] for each in found] == sorted((each["at"] for each in found), reverse=True)
    assert found[0]["id"] is None and found[1] == {
        "at": NOW - 300, "id": id_of("vast://30007004"), "name": "run-4", "kind": "failed", "level": "error",
        "text": "exited: container exited with 137", "ended": None, "acknowledged": False,
        "event": event_of(SNAPSHOT.alerts[2]),
    }  # fmt: skip
    alert = replace(SNAPSHOT.alerts[1], ended=NOW - 100, acknowledged=True)
    [over] = alerts_of([alert], {})
    assert over["event"] == event_of(SNAPSHOT.alerts[1]) != event_of(SNAPSHOT.alerts[2])
    assert (over["ended"], over["acknowledged"]) == (NOW - 100, True)


def report() -> RestartReport:
    run = plan_attempt(RunState("k", "local", "train", "", NOW - 1000), "process:train", None, (), NOW - 1000)
    failure = {"category": "oom", "error_class": "user", "action": "stop", "evidence": "CUDA out of memory"}
    run = update_attempt(
        run, status="FAILED", final_step=70, first_step_at=NOW - 900, last_step_at=NOW - 500, ended_at=NOW - 400,
        phases={"startup": 100.0, "checkpoint": 0.0, "evaluation": 0.0},
        reason="exit code 1", failure={**failure, "rank": None, "fingerprint": ""},
    )  # fmt: skip
    run = plan_attempt(run, "process:train-attempt-2", None, (), NOW - 300)
    return replace(run, ended_at=NOW).report()


def test_attempts_come_with_their_evidence_and_goodput() -> None:
    page = attempts_page(report(), is_finished=False)
    first, second = page["attempts"]
    assert first["evidence"] == "CUDA out of memory" and first["steps"] == "0 to 70" and first["lost"] == 70
    assert second["steps"] == "0 to ?" and second["ended_at"] is None
    assert page["goodput"] == 0.0 and page["reason"] is None and ["lost steps", "8m20s"] in page["badput"]


def test_an_attempt_has_its_roll_call_on_one_bounded_line() -> None:
    told = report()
    told["attempts"][0]["explanation"] = f"rank 1 is late\n{'x' * 5000}"
    told["attempts"][0] |= {"suspect_nodes": ["a", "b"], "faulty_nodes": ["b"]}
    page = attempts_page(told, is_finished=True, avoid=["b"])
    first, second = page["attempts"]
    assert "rank 1 is late" in first["explanation"] and "\n" not in first["explanation"]
    assert len(first["explanation"]) == 2500 and page["avoid"] == ["b"]
    assert first["nodes"] == "b (hardware fault), a (other ranks waited for its rank)"
    assert second["explanation"] is None and second["nodes"] == ""
    for text in HOSTILE:
        told["attempts"][0] |= {"explanation": text, "suspect_nodes": [text]}
        [first, _] = attempts_page(told, is_finished=True, avoid=[text])["attempts"]
        assert not harm_in(first["explanation"]) and not harm_in(first["nodes"])


def run(**fields: Any) -> dict[str, Any]:
    found = run_page(Run("r", "/r.json", "", **fields), 640)
    json.dumps(found, allow_nan=False)
    return found


def test_a_run_has_its_attempt_and_a_chart_for_each_metric_losses_first() -> None:
    history = {
        "lr": MetricHistory((10, 20), (0.1, 0.2)),
        "val_loss": MetricHistory((20,), (3.0,)),
        "loss": MetricHistory((0, 5, 10, 30), (4.0, nan, None, -inf)),
        "empty": MetricHistory(),
        "unknown": MetricHistory((1, 2), (None, None)),
    }
    page = run(history=history, config={"lr": 0.1, "name": "x"})
    assert [each["title"] for each in page["charts"]] == ["val_loss", "loss", "lr"]
    assert page["charts"][1]["points"] == [[0, "4.000"], [5, "nan"], [10, "unknown"], [30, "-inf"]]
    assert page["charts"][1]["svg"].count('class="odd"') == 2
    assert (page["begin"], page["end"], page["attempt"]) == (0, 30, "1")
    assert page["settings"] == [["lr", "0.1"], ["name", "x"]]
    page = run(attempt=3, earlier=(EarlierAttempt("FAILED", step=70), EarlierAttempt("KILLED")))
    assert page["attempt"] == "3, after FAILED at step 70, KILLED"
    assert page["charts"] == page["settings"] == [] and page["begin"] is None


def test_hostile_texts_of_a_run_do_no_harm() -> None:
    for text in HOSTILE:
        page = run(history={text: MetricHistory((2, 1), (1.0, 2.0))}, config={text: text})
        [chart] = page["charts"]
        ElementTree.fromstring(chart.pop("svg"))
        assert chart["points"] == [[1, "2.000"], [2, "1.000"]]
        assert not any(harm_in(each) for each in texts_in(page)), text
