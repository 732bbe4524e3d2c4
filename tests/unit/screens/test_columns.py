from __future__ import annotations

import pytest

from tests.unit.screens.snapshots import NOW, ROWS, SNAPSHOT, member, unseen
from training_monitor.fleet.metrics import Health, TrainingMetrics
from training_monitor.screens.fleet.view import COLUMNS, STEPS, FleetView, Member, health_of, table_columns, table_line
from training_monitor.screens.kit.text import ASCII, UNICODE, Glyphs, cells
from training_monitor.screens.kit.view import MARGIN, Column, fit_columns


def shown(title: str, row: TrainingMetrics, width: int, glyphs: Glyphs = UNICODE) -> str:
    column = next(column for column in COLUMNS if column.title == title)
    return column.show(Member(row, health_of(row, SNAPSHOT, FleetView()), NOW, glyphs), width)


def test_the_columns_of_every_width_fill_it_exactly(subtests: pytest.Subtests) -> None:
    for width in range(40, 320):
        with subtests.test(width=width):
            columns = table_columns(ROWS, width)
            assert MARGIN + sum(its_width for _, its_width in columns) + len(columns) - 1 == width


def test_a_wider_screen_loses_no_column() -> None:
    before: set[str] = set()
    for width in range(40, 320):
        titles = {column.title for column, _ in table_columns(ROWS, width)}
        assert before <= titles
        before = titles
    assert before == {column.title for column in COLUMNS}


def test_eighty_columns_show_all_that_is_documented_but_the_disk() -> None:
    titles = [column.title for column, _ in table_columns([member(1)], 80)]
    assert titles == "ID GPU STATUS PROGRESS GPU% MEM% LOSS $/H TOTAL ETA HEALTH".split()


def test_a_column_that_says_nothing_new_is_left_out() -> None:
    assert "NAME" not in [column.title for column, _ in table_columns([member(1, name="30007001")], 300)]


def test_every_step_names_a_column() -> None:
    assert {step.strip().rpartition(" ")[0] for step in STEPS.split(",")} == {column.title for column in COLUMNS}


def test_no_column_is_given_more_than_it_needs() -> None:
    columns = [Column(title, "<", lambda cell, width: "") for title in "AB"]
    layout = fit_columns(columns, "A 4, B 4, A 20", 40, {"A": 6}, "B")
    assert [(column.title, width) for column, width in layout] == [("A", 6), ("B", 33)]


def test_a_status_has_its_sign_and_its_word(subtests: pytest.Subtests) -> None:
    for status, text, ascii_text in [
        ("running", "✅ running", "running"),
        ("loading", "🔄 loading", "loading"),
        ("created", "⏳ created", "created"),
        ("exited", "❌ exited", "exited"),
        ("stopped", "🛑 stopped", "stopped"),
        ("lost", "🚫 lost", "lost"),
        ("unknown", "❓ unknown", "unknown"),
        ("some\x1b[2Jthing", "❓ something", "something"),
    ]:
        with subtests.test(status=status, text=text, ascii_text=ascii_text):
            assert shown("STATUS", member(1, status=status), 20) == text
            assert shown("STATUS", member(1, status=status), 20, ASCII) == ascii_text


def test_a_narrow_status_is_cut_to_its_first_letters() -> None:
    assert shown("STATUS", member(1), 6) == "✅ run"
    assert shown("STATUS", member(1), 6, ASCII) == "runnin"


def test_a_narrow_gpu_keeps_what_tells_it_from_others() -> None:
    assert shown("GPU", member(1, gpu_type="8x RTX A6000"), 8) == "8x A6000"
    assert shown("GPU", member(1, gpu_type="8x RTX A6000"), 12) == "8x RTX A6000"
    assert shown("GPU", member(1, gpu_type=None), 8) == "-"


def test_progress_has_a_bar_where_there_is_room() -> None:
    assert shown("PROGRESS", member(1), 8) == "E1/3 70%"
    assert shown("PROGRESS", member(1), 19) == "███████░░░ E1/3 70%"
    assert shown("PROGRESS", member(1), 19, ASCII) == "#######... E1/3 70%"
    assert shown("PROGRESS", member(1, epoch=12.0, total_epochs=30), 8) == "70%"
    assert shown("PROGRESS", unseen(1, "running"), 19) == "-"


def test_an_unknown_value_is_a_dash_in_every_column(subtests: pytest.Subtests) -> None:
    for title in [column.title for column in COLUMNS if column.title not in ("STATUS", "HEALTH")]:
        with subtests.test(title=title):
            row = unseen(1, "running", instance_id="", name="", gpu_type=None, cost_per_hour=None)
            assert shown(title, row, 24) == "-"


def test_health_is_a_word_and_its_reason_where_there_is_room() -> None:
    assert shown("HEALTH", member(1), 6) == "ok"
    assert shown("HEALTH", member(1, loss=float("nan")), 6) == "error"
    assert shown("HEALTH", member(1, gpu_util=2.0), 6) == "warn"
    assert shown("HEALTH", unseen(1, "loading"), 6) == "?"
    assert shown("HEALTH", member(1, gpu_util=2.0), 40) == "warn GPU at only 2 %; step 700 of 1000, 9 s/step"


def test_a_stale_row_says_how_old_it_is_and_is_dim() -> None:
    row = ROWS[5]
    assert shown("HEALTH", row, 6) == "? 2m"
    line = table_line(Member(row, Health("unknown", ""), NOW, UNICODE), table_columns(ROWS, 80), FleetView())
    assert {style for _, style in line} == {"dim"}


def test_the_cursor_and_the_mark_are_signs_and_no_colours_alone() -> None:
    one = Member(member(1), Health("healthy", ""), NOW, UNICODE)
    columns = table_columns(ROWS, 80)
    begins = {
        (selected, marked): table_line(one, columns, FleetView(), selected=selected, marked=marked)[0][0]
        for selected in (False, True)
        for marked in (False, True)
    }
    assert begins == {(False, False): "  ", (False, True): " *", (True, False): "> ", (True, True): ">*"}


def test_a_row_has_exactly_the_width_of_the_screen() -> None:
    for width in (40, 80, 133, 200):
        for row in ROWS:
            line = table_line(
                Member(row, Health("error", "x" * 500), NOW, UNICODE),
                table_columns(ROWS, width),
                FleetView(width=width),
            )
            assert sum(cells(text) for text, _ in line) == width
