"""What a notebook and a terminal show of any value: bounded, cleaned, escaped, with nothing unknown as a number."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from collections import deque
from dataclasses import fields, is_dataclass
from math import inf, nan
from typing import Any

from tests.unit.core.test_public_api import PACKAGES
from training_monitor.core.errors import TargetUnreachable
from training_monitor.core.models import Checkpoint, Gpu, JobStatus, JobView, NewLog, Progress
from training_monitor.core.panel_html import STYLE, format_html
from training_monitor.core.panels import MOST_ROWS, MOST_TEXT, Panel, format_text, panel_of, table_of
from training_monitor.core.results import CommandResult
from training_monitor.core.values import Observation, StallAnalysis, TrainingStatus, Verdict
from training_monitor.fleet.metrics import TrainingMetrics

LOG = "a secret line of the log\n" * 100_000
HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e"
STALL = StallAnalysis(False, None, "none", "", "continue")
STATUS = TrainingStatus(True, Progress(step=4), STALL, (), LOG, 1_770_000_000.0)
VERDICT = Verdict("stalled", "failed", "no step for 12m, limit 9m", remedies=("look at rank 3",), limit_seconds=540.0)


def text_of(value: object) -> str:
    return format_text(panel_of(value))


def html_of(value: Any) -> str:
    return str(value._repr_html_())


def body_of(html: str) -> str:
    """What comes after the style sheet; it is well-formed."""
    body = html.removeprefix(STYLE)
    ElementTree.fromstring(body)
    return body


def test_a_value_with_a_log_is_shown_without_it_and_its_repr_is_short() -> None:
    values: list[Any] = [
        JobView("process:a", JobStatus.RUNNING, log_tail=LOG),
        STATUS,
        NewLog(LOG, None, partial=LOG),
        CommandResult(("ssh", "host"), 0, LOG, "", 1.0),
        TrainingMetrics(7, "H100", "running", recent_logs=deque([LOG])),
    ]
    for value in values:
        for shown in (repr(value), html_of(value), text_of(value)):
            assert "secret" not in shown and len(shown) < 6000, type(value)
    checkpoints = tuple(Checkpoint(f"/c/{n}", n, 1, True) for n in range(999))
    many = TrainingStatus(True, Progress(), STALL, checkpoints, "", 1.0)
    assert len(repr(many)) < 5000 and "Checkpoint(path='/c/0'" in repr(many)
    assert len(repr(Verdict("failed", "failed", "x" * 9_000_000))) < 600
    assert repr(Gpu(0, name="H100"))[:60] == "Gpu(index=0, uuid=None, name='H100', utilization=None, memor"


def test_a_verdict_is_a_headline_with_its_facts() -> None:
    text = text_of(VERDICT)
    assert text.splitlines()[0] == "stalled (failed): no step for 12m, limit 9m"
    assert re.search(r"^  limit +9m$", text, re.MULTILINE) and "remedies:\n  - look at rank 3" in text
    assert "not known: since, time without step, failure, stall" in text
    body = body_of(html_of(VERDICT))
    assert '<span class="tm-level tm-failed">✕ failed</span> <strong>stalled</strong>' in body


def test_what_is_unknown_is_no_number() -> None:
    text = text_of(Observation(1_770_000_000.0, None))
    assert "step" in text.splitlines()[-1] and not re.search(r"\b0\b|None", text.replace("03:00:00", ""))
    table = table_of("", [Checkpoint("/c/1", 1, None, None), Checkpoint("/c/2", 2, 2048, True)])
    assert table.head == ("path", "step", "size", "complete")
    assert table.rows == (("/c/1", "1", "?", "?"), ("/c/2", "2", "2.0 KiB", "yes"))


def test_odd_values_are_shown() -> None:
    own: dict[str, Any] = {"name": "a"}
    own |= {"own": own, "list": [own, own]}
    odd = [nan, inf, -inf, 1e308, 10**400, True, None, 0, -1.5, "", [], {}, [[[]]], {1: {2: {3: 4}}}, own]
    for value in [*odd, deque(["a b", "c d"]), deque([{"a": 1}])]:
        keys = ("loss", "eta_seconds", "size_bytes", "started_at", "gpu_util")
        for each in (dict.fromkeys(keys, value), [value]):
            assert len(text_of(each)) < 2000 and body_of(format_html(panel_of(each)))
    assert "own" in text_of(own)


def test_nothing_foreign_gets_out_of_its_cell() -> None:
    values: list[Any] = [
        Verdict("failed", "failed", HOSTILE, remedies=(HOSTILE,)),
        JobView(HOSTILE, JobStatus.FAILED, HOSTILE),
        {"verdict": HOSTILE, HOSTILE: HOSTILE, "jobs": [{"name": HOSTILE, HOSTILE: HOSTILE}], "issues": [HOSTILE]},
        [Checkpoint(HOSTILE, 1, 1, False, HOSTILE)],
        TargetUnreachable(HOSTILE),
    ]
    for value in values:
        body = body_of(format_html(panel_of(value)))
        assert not re.search(r"<(script|img)|\x1b|\u202e", body) and "&lt;script&gt;" in body
        assert not re.search(r"\x1b|\u202e", text_of(value))


def test_what_is_shown_is_bounded_and_masked() -> None:
    rows = [Checkpoint("/c/" + "x" * 100_000, step, 1, True) for step in range(1000)]
    text, html = text_of(rows), format_html(panel_of(rows))
    assert f"and {1000 - MOST_ROWS} more" in text and len(text) < 10_000
    assert f"and {1000 - MOST_ROWS} more" in html and len(html) < MOST_ROWS * 2 * MOST_TEXT
    told = {"reason": "token=abcdef0123456789", "command": ["--api-key abcdef0123456789", "x"]}
    assert "abcdef0123456789" not in text_of(told) + format_html(panel_of(told))


def test_a_report_is_shown_with_its_rows_and_lists() -> None:
    report = {
        "schema": "x/1",
        "verdict": "warning",
        "reason": "one is slow",
        "jobs": [{"name": "a", "verdict": "warning", "seconds_without_step": 60.0, "log": "/log", "step": None}],
        "gpu": {"total_gpus": 8, "per_node": [{"pod": "head", "util": 0.0}]},
        "errors": [],
    }
    text = text_of(report)
    assert text.splitlines()[0] == "report (warning): one is slow"
    assert "jobs:\n  name  verdict\n  a     warning" in text and "gpu per node:\n  pod   util\n  head  0 %" in text
    assert re.search(r"gpu total gpus +8", text) and "schema" not in text
    assert '<span class="tm-level tm-warning">! warning</span>' in format_html(panel_of(report))


def test_failing_to_ask_is_no_failure() -> None:
    for report, level in [
        ({"healthy": True, "error": None}, "ok"),
        ({"healthy": False, "error": "no answer"}, "unknown"),
        ({"healthy": False, "error": None}, "failed"),
        ({"success": False}, "failed"),
        ({"status": "UNKNOWN"}, "unknown"),
        ({"status": "RUNNING"}, None),
        ({"verdict": "of a later version"}, None),
    ]:
        assert panel_of(report).level == level


def test_a_row_of_a_fleet_says_how_it_is() -> None:
    row = TrainingMetrics(7, "H100", "exited", message="out of memory", name="llama")
    assert text_of(row).splitlines()[0] == "llama (failed): exited: out of memory"
    table = table_of("", [row])
    assert dict(zip(table.head, table.rows[0]))["health status"] == "error"
    assert "✕ error" in format_html(panel_of([row]))


def test_every_rule_of_the_style_is_for_panels_alone() -> None:
    rules = re.sub(r"<style>|</style>|@media[^{]*\{|\n", "", STYLE)
    selectors = [each.strip() for each in re.findall(r"([^{}]+)\{", rules)]
    assert len(selectors) > 10 and all(
        ".tm-panel" in each and "," not in re.sub(r"\(.*?\)", "", each) for each in selectors
    )
    assert "url(" not in STYLE and "@import" not in STYLE
    assert format_html(Panel("a")).count("<script") == 0


def test_no_public_value_has_a_log_in_what_is_shown() -> None:
    logs = {"log_tail", "recent_output", "recent_logs", "log_lines", "partial", "stdout"}
    seen = set[str]()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for found in (getattr(module, name) for name in module.__all__):
            if isinstance(found, type) and is_dataclass(found):
                assert hasattr(found, "_repr_html_"), found
                seen |= {each.name for each in fields(found) if each.name in logs}
                shown = [each for each in fields(found) if each.name in logs and each.repr]
                assert all("int" in str(each.type) for each in shown), found  # how many lines, not the lines
    assert {"log_tail", "recent_output", "recent_logs"} <= seen
