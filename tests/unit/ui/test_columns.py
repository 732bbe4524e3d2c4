from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.ui.snapshots import NOW, ROWS, SNAPSHOT, member, unseen
from training_monitor.core.models import Gpu
from training_monitor.core.values import Verdict
from training_monitor.fleet.metrics import Health, TrainingMetrics
from training_monitor.ui.fleet.view import (
    COLUMNS,
    STEPS,
    FleetView,
    Member,
    follow,
    member_of,
    show_status,
    step_age,
    table_columns,
    table_line,
)
from training_monitor.ui.kit.text import ASCII, UNICODE, Glyphs, cells
from training_monitor.ui.kit.view import MARGIN, Column, fit_columns

HANGS = Verdict("stalled", "failed", "no step for 15m, limit 7m30s: GPUs idle", seconds_without_step=900.0)


def shown(title: str, row: TrainingMetrics, width: int, glyphs: Glyphs = UNICODE) -> str:
    column = next(column for column in COLUMNS if column.title == title)
    return column.show(member_of(row, SNAPSHOT, FleetView())._replace(glyphs=glyphs), width)


def test_the_columns_of_every_width_fill_it_exactly_and_a_wider_screen_loses_none() -> None:
    before: set[str] = set()
    for width in range(40, 320):
        columns = table_columns(ROWS, width)
        assert MARGIN + sum(its_width for _, its_width in columns) + len(columns) - 1 == width
        now = {column.title for column, _ in columns}
        assert before <= now, width
        before = now
    every = {column.title for column in COLUMNS}
    assert before == every - {"LOW%", "RAM%", "TEMP"}  # nobody has a value of these
    assert {step.strip().rpartition(" ")[0] for step in STEPS.split(",")} == every


def titles(row: TrainingMetrics, width: int) -> list[str]:
    return [column.title for column, _ in table_columns([row], width)]


def test_eighty_columns_keep_state_progress_gpu_and_cost_and_wide_ones_names() -> None:
    assert titles(member(1), 80) == "NAME STATUS GPU PROGRESS GPU% LOSS $/H TOTAL ETA".split()
    gpus = (Gpu(0, utilization=99.0), Gpu(1, utilization=0.0))
    assert titles(member(1, gpus=gpus), 80) == "NAME STATUS PROGRESS GPU% LOW% LOSS $/H TOTAL ETA".split()
    unknown = dict.fromkeys("gpu_type gpu_util memory_util cost_per_hour total_cost".split())
    elsewhere = member(1, instance_id="local", name="train_slow.py (pid 13032)", **unknown)
    assert titles(elsewhere, 80) == "NAME STATUS PROGRESS LOSS ETA HEALTH".split()
    row = member(1, name="finetune_llama_hanging.py (pid 13033)")
    widths = {column.title: width for column, width in table_columns([row], 200)}
    assert shown("NAME", row, widths["NAME"]) == row.name


def test_a_column_that_says_nothing_new_is_left_out_and_none_is_too_wide() -> None:
    assert "ID" not in titles(member(1, name="30007001"), 320)
    assert "ID" not in titles(member(1, instance_id="local", name="train.py (pid 7)"), 320)
    assert "ID" in titles(member(1, instance_id="ssh://box", name="train.py (pid 7)"), 320)
    assert "NAME" in titles(member(1, name="30007001"), 40)
    columns = [Column(title, "<", lambda cell, width: "") for title in "AB"]
    layout = fit_columns(columns, "A 4, B 4, A 20", 40, {"A": 6}, "B")
    assert [(column.title, width) for column, width in layout] == [("A", 6), ("B", 33)]


def test_a_state_has_its_sign_and_its_word(subtests: pytest.Subtests) -> None:
    for row, text, ascii_text in [
        (member(1), "✅ running", "running"),
        (member(1, gpu_util=2.0), "🟡 running", "! running"),
        (member(1, verdict=HANGS), "🔴 stalled 15m", "!! stalled 15m"),
        (member(1, loss=float("nan")), "🔴 NaN", "!! NaN"),
        (member(1, error="ssh: no answer"), "❓ unreachable", "? unreachable"),
        (unseen(1, "loading"), "🔄 loading", "? loading"),
        (unseen(1, "created"), "⏳ created", "? created"),
        (unseen(1, "exited"), "❌ exited", "!! exited"),
        (unseen(1, "stopped"), "🛑 stopped", "! stopped"),
        (unseen(1, "lost"), "🚫 lost", "!! lost"),
        (unseen(1, "unknown"), "❓ unknown", "? unknown"),
        (unseen(1, "some\x1b[2Jthing"), "❓ something", "? something"),
    ]:
        with subtests.test(row=row, text=text):
            assert shown("STATUS", row, 20) == text
            assert shown("STATUS", row, 20, ASCII) == ascii_text


def test_a_running_member_shows_the_age_of_its_last_step() -> None:
    made = Verdict("running", "ok", "step 700 of 1000", seconds_without_step=9.0)
    view = follow(FleetView(), [row := member(1, verdict=made)])
    assert step_age(row, NOW, view) == 12.0  # it was seen 3 s ago
    assert show_status(member_of(row, SNAPSHOT, view), 14) == "✅ running 12s"
    assert show_status(member_of(row, SNAPSHOT, view), 12) == "✅ running"
    later = member(1, verdict=made, last_updated=NOW + 7)  # the same step, by a verdict that was not renewed
    assert step_age(later, NOW + 8, follow(view, [later])) == 20.0
    stepped = member(1, verdict=made, step=701, last_updated=NOW + 17)
    view = follow(follow(view, [later]), [stepped])
    assert step_age(stepped, NOW + 18, view) == 1.0
    assert step_age(replace(stepped, finished=True), NOW + 18, view) is None
    assert step_age(member(2), NOW, FleetView()) is None


def test_a_narrow_cell_keeps_what_tells_it_from_others() -> None:
    assert shown("STATUS", member(1), 6) == "✅ ru…"
    assert shown("STATUS", member(1), 6, ASCII) == "runni~"
    assert shown("GPU", member(1, gpu_type="8x RTX A6000"), 8) == "8x A6000"
    assert shown("GPU", member(1, gpu_type="8x RTX A6000"), 12) == "8x RTX A6000"
    assert shown("ID", ROWS[7], 8) == "…ainer-0"
    assert shown("ID", ROWS[0], 8) == "30007001"
    name = member(1, name="llama-8b-sft-07")
    assert shown("NAME", name, 10) == "llam…ft-07" and shown("NAME", name, 15) == "llama-8b-sft-07"
    assert shown("NAME", name, 10, ASCII) == "llam~ft-07"
    assert cells(shown("NAME", member(1, name="漢字カタカナ한국어"), 10)) <= 10


def test_progress_and_reason_are_brief_where_there_is_little_room() -> None:
    assert shown("PROGRESS", member(1), 8) == "E1/3 70%"
    assert shown("PROGRESS", member(1), 19) == "██████▎░░ E1/3 70%"
    assert shown("PROGRESS", member(1), 19, ASCII) == "######... E1/3 70%"
    assert shown("PROGRESS", member(1, epoch=12.0, total_epochs=30), 8) == "70%"
    assert shown("PROGRESS", unseen(1, "running"), 19) == "-"
    assert shown("HEALTH", member(1, gpu_util=2.0), 20) == "GPU at 2 %"
    assert shown("HEALTH", member(1, gpu_util=2.0), 60) == "GPU at only 2 %; step 700 of 1000, 9 s/step"
    assert shown("HEALTH", member(1), 20) == "" and shown("HEALTH", member(1), 31) == "step 700 of 1000, 9 s/step"
    unsure = Verdict("unknown", "unknown", "one look, and its log does not tell when that step was made")
    assert shown("HEALTH", unseen(1, "running", verdict=unsure), 16) == unsure.reason
    assert shown("HEALTH", member(1, verdict=HANGS), 60) == "no step for 15m, limit 7m30s: GPUs idle"


def test_an_unknown_value_is_a_dash_in_every_column() -> None:
    row = unseen(1, "running", instance_id="", name="", gpu_type=None, cost_per_hour=None)
    for title in {column.title for column in COLUMNS} - {"STATUS", "HEALTH"}:
        assert shown(title, row, 24) == "-", title


def test_a_stale_row_says_once_how_old_it_is_and_is_dim() -> None:
    row = ROWS[5]
    assert shown("HEALTH", row, 20) == "no answer 2m10s"
    assert shown("HEALTH", row, 80) == "no answer for 2m10s: ssh: no answer within 15 s"
    line = table_line(Member(row, Health("unknown", ""), NOW, UNICODE), table_columns(ROWS, 80), FleetView())
    assert {style for _, style in line} == {"dim"}


def styled(row: TrainingMetrics) -> dict[str, str]:
    """The styles of the cells of a row, by title, where there is one."""
    layout = table_columns([row], 240)
    line = table_line(member_of(row, SNAPSHOT, FleetView(width=240)), layout, FleetView(width=240))
    cells_of = [style for text, style in line[1:] if text != " "]
    return {column.title: style for (column, _), style in zip(layout, cells_of) if style}


def test_the_values_that_are_the_reason_have_its_colour() -> None:
    def values(row: TrainingMetrics) -> set[str]:
        found = styled(row)
        assert found.pop("STATUS") == found.pop("HEALTH") and len({*found.values()}) <= 1
        return {*found}

    assert styled(member(1)) == {"STATUS": "good", "HEALTH": "good"}
    assert styled(member(1, gpu_util=3.0))["GPU%"] == "warn"
    assert values(member(1, gpu_util=3.0, disk_util=96.0)) == {"GPU%", "DISK%"}
    assert values(member(1, gpus=(Gpu(0, utilization=99.0), Gpu(1, utilization=0.0)))) == {"LOW%"}
    assert values(member(1, loss=float("nan"))) == {"LOSS"}
    assert values(ROWS[6]) == {"PROGRESS", "STEP"}
    assert values(unseen(1, "exited")) == set()
    assert values(member(1, finished=True)) == {"$/H"}


def test_a_row_has_the_width_of_the_screen_and_signs_for_cursor_and_mark() -> None:
    one = Member(member(1), Health("healthy", ""), NOW, UNICODE)
    columns = table_columns(ROWS, 80)
    for selected, marked, sign in ((False, False, "  "), (False, True, " *"), (True, False, "> "), (True, True, ">*")):
        line = table_line(one, columns, FleetView(), selected=selected, marked=marked)
        assert line[0][0] == sign
    for width in (40, 80, 133, 200):
        for row in ROWS:
            odd = Member(row, Health("error", "x" * 500), NOW, UNICODE)
            line = table_line(odd, table_columns(ROWS, width), FleetView(width=width))
            assert sum(cells(text) for text, _ in line) == width
