"""examples/prometheus and docs/metrics.md: the metrics that they name are those that a fleet has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.fakes import FakeClock
from training_monitor.fleet import MockFleet
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS
from training_monitor.fleet.prometheus import Metric, format_metrics, list_metrics
from training_monitor.fleet.rows import HEALTH_LEVELS
from training_monitor.verdict.judge import STATES, VERDICTS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "prometheus"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
RULES = (FOLDER / "alerts.yml").read_text()
CASES = (FOLDER / "alerts_test.yml").read_text()
SUMS = "".join((FOLDER / name).read_text() for name in ("sums.yml", "sums_test.yml"))
NAME = re.compile(r"training_monitor_[a-z_]+")
WORDS = {"level": HEALTH_LEVELS, "state": STATES, "verdict": VERDICTS}
WIDTH = 24  # columns of Grafana's grid


def listed() -> list[Metric]:
    return list_metrics(MockFleet(clock=FakeClock()).snapshot(), DEFAULT_THRESHOLDS)


def panels() -> list[dict[str, Any]]:
    return list(BOARD["panels"])


def expressions() -> Iterator[str]:
    """What the board asks Prometheus, and the values of its variables."""
    yield from (target["expr"] for panel in panels() for target in panel.get("targets", ()))
    yield from (each["definition"] for each in BOARD["templating"]["list"] if each["type"] == "query")


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)$", RULES, re.MULTILINE)


def test_the_rules_and_the_board_name_metrics_that_exist() -> None:
    known = {metric.name for metric in listed()}
    assert set(NAME.findall(RULES)) and set(NAME.findall(SUMS)) and set(NAME.findall(RULES + CASES + SUMS)) <= known
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 25 and named <= {metric.name for metric in listed()}


def test_a_series_that_is_named_is_one_that_a_fleet_exports() -> None:
    text = format_metrics(MockFleet(clock=FakeClock()).snapshot(), DEFAULT_THRESHOLDS)
    exported = set(re.findall(r"^(training_monitor_[a-z_]+)[{ ]", text, re.MULTILINE))
    of_patterns = {"training_monitor_log_value"}
    assert {metric.name for metric in listed()} - exported <= of_patterns | {"training_monitor_log_age_seconds"}


def test_the_words_that_are_selected_exist() -> None:
    texts = [RULES, CASES, SUMS, *expressions()]
    found = [pair for text in texts for pair in re.findall(r'\b(level|state|verdict)=~?"([a-z|]+)"', text)]
    assert len(found) > 20
    for label, words in found:
        assert set(words.split("|")) <= set(WORDS[label]), (label, words)


def test_the_page_lists_all_metrics_as_they_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    labels = {"training_monitor_log_value": ["member", "name"], "training_monitor_log_age_seconds": ["member"]}
    for metric in listed():
        for given, _ in metric.samples[:1]:
            labels[metric.name] = [name for name, _ in given]
    expected = [(each.name, " ".join(f"`{name}`" for name in labels[each.name]), each.help) for each in listed()]
    assert sorted(rows) == sorted(expected)


def test_every_alert_says_how_long_how_bad_and_what_and_names_its_member() -> None:
    parts = re.split(r"^ +- alert: ", RULES, flags=re.MULTILINE)[1:]
    assert len(parts) == len(set(alerts())) >= 9
    for part in parts:
        assert re.search(r"^        for: \d+m$", part, re.MULTILINE), part
        assert re.search(r"^          severity: (critical|warning)$", part, re.MULTILINE), part
        for name in ("summary", "description"):
            assert re.search(rf'^          {name}: ".+"$', part, re.MULTILINE), part
        of_the_fleet = part.startswith(("TrainingMonitor", "TrainingCredit", "TrainingAccount"))
        assert ("$labels.member" in part) is not of_the_fleet, part


def test_every_alert_and_sum_has_a_case_in_which_it_is_there_and_one_without() -> None:
    for alert in alerts():
        outcomes = re.findall(rf"- alertname: {alert}\n +eval_time: \w+\n +exp_alerts:( \[\])?\n", CASES)
        assert "" in outcomes and " []" in outcomes, alert
    names = re.findall(r"- record: (\S+)$", SUMS, re.MULTILINE)
    for name in (each for each in names if each.split(":")[1] not in ("watcher_is_current", "member_last_seen")):
        asked = re.findall(rf"expr: '?{name}\b.*(?:\n +eval_time.*)?\n?.*", SUMS)
        assert {"exp_samples: []" in each for each in asked} == {True, False}, name


def test_every_panel_has_an_id_and_a_place_of_its_own() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and 0 <= place["x"] <= WIDTH - place["w"], panel["title"]
        columns, lines = (range(place[at], place[at] + place[size]) for at, size in (("x", "w"), ("y", "h")))
        return {(x, y) for x in columns for y in lines}

    for one, other in combinations(panels(), 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids) > 20 and all(isinstance(each, int) for each in ids)


def test_every_panel_says_what_it_shows_in_which_unit() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}", panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]), panel["title"]


def test_the_board_is_of_a_schema_that_grafana_10_reads_with_its_columns() -> None:
    assert 38 <= BOARD["schemaVersion"] <= 39 and BOARD["uid"] and BOARD["title"]
    variables = [each["name"] for each in BOARD["templating"]["list"]]
    assert variables == ["datasource", "instance", "group", "member"]
    used = {name for expression in expressions() for name in re.findall(r"\$(\w+)", expression)}
    assert used == {"instance", "group", "member"}
    [table] = [panel for panel in panels() if panel["title"] == "Fleet"]
    [organize] = [each["options"] for each in table["transformations"] if each["id"] == "organize"]
    values = {f"Value #{target['refId']}" for target in table["targets"]}
    shown = {name for name in organize["renameByName"] if name.startswith("Value #")}
    hidden = {name for name in organize["excludeByName"] if name.startswith("Value #")}
    assert shown | hidden == values and not shown & hidden
    styled = {each["matcher"]["options"] for each in table["fieldConfig"]["overrides"]}
    assert styled <= set(organize["renameByName"].values())
