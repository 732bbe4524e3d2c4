from __future__ import annotations

import pytest

from tests.unit.ui.snapshots import NOW, ROWS, SNAPSHOT, member, unseen
from training_monitor.fleet.metrics import Health, TrainingMetrics
from training_monitor.ui.fleet.view import (
    COLUMNS,
    STEPS,
    FleetView,
    Member,
    health_of,
    member_of,
    table_columns,
    table_line,
)
from training_monitor.ui.kit.text import ASCII, UNICODE, Glyphs, cells
from training_monitor.ui.kit.view import MARGIN, Column, fit_columns


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


def test_eighty_columns_name_the_member_and_say_why_before_what_it_has() -> None:
    titles = [column.title for column, _ in table_columns([member(1)], 80)]
    assert titles == "ID NAME PROGRESS GPU% LOSS $/H ETA HEALTH".split()


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


def test_health_is_a_word_and_its_reason_in_brief_or_whole_where_there_is_room() -> None:
    assert shown("HEALTH", member(1), 6) == "ok"
    assert shown("HEALTH", member(1, loss=float("nan")), 6) == "error"
    assert shown("HEALTH", member(1, gpu_util=2.0), 6) == "warn"
    assert shown("HEALTH", unseen(1, "loading"), 6) == "?"
    assert shown("HEALTH", member(1, gpu_util=2.0), 20) == "warn GPU at 2 %"
    assert shown("HEALTH", member(1, gpu_util=2.0), 40) == "warn GPU at only 2 %; step 700 of 1000, 9 s/step"
    assert shown("HEALTH", member(1), 20) == "ok" and shown("HEALTH", member(1), 31) == "ok step 700 of 1000, 9 s/step"


def test_the_end_of_an_address_tells_more_than_its_beginning() -> None:
    assert shown("ID", ROWS[7], 8) == "…ainer-0"
    assert shown("ID", ROWS[0], 8) == "30007001"


def test_a_stale_row_says_once_how_old_it_is_and_is_dim() -> None:
    row = ROWS[5]
    assert shown("HEALTH", row, 6) == "? 2m"
    assert shown("HEALTH", row, 20) == "? no answer 2m10s"
    assert shown("HEALTH", row, 80) == "? no answer for 2m10s: ssh: no answer within 15 s"
    line = table_line(Member(row, Health("unknown", ""), NOW, UNICODE), table_columns(ROWS, 80), FleetView())
    assert {style for _, style in line} == {"dim"}


def styled(row: TrainingMetrics) -> dict[str, str]:
    """The styles of the cells of a row, by title, where there is one."""
    layout = table_columns([row], 200)
    line = table_line(member_of(row, SNAPSHOT, FleetView(width=200)), layout, FleetView(width=200))
    cells_of = [style for text, style in line[1:] if text != " "]
    return {column.title: style for (column, _), style in zip(layout, cells_of) if style}


def test_the_values_that_are_the_reason_have_its_colour() -> None:
    assert styled(member(1)) == {"HEALTH": "good"}
    assert styled(member(1, gpu_util=3.0, disk_util=96.0)) == {"GPU%": "warn", "DISK%": "warn", "HEALTH": "warn"}
    assert styled(member(1, loss=float("nan"))) == {"LOSS": "bad", "HEALTH": "bad"}
    assert styled(ROWS[6]) == {"PROGRESS": "bad", "STEP": "bad", "HEALTH": "bad"}
    assert styled(unseen(1, "exited")) == {"STATUS": "bad", "HEALTH": "bad"}
    assert styled(member(1, finished=True)) == {"$/H": "warn", "HEALTH": "warn"}


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


def test_long_names_keep_the_ends_at_which_they_differ() -> None:
    assert shown("NAME", member(1, name="llama-8b-sft-07"), 10) == "llam…ft-07"
    assert shown("NAME", member(1, name="llama-8b-sft-07"), 10, ASCII) == "llam~ft-07"
    assert shown("NAME", member(1, name="llama-8b-sft-07"), 15) == "llama-8b-sft-07"
    assert cells(shown("NAME", member(1, name="漢字カタカナ한국어"), 10)) <= 10
