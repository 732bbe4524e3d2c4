"""The table of runs as plain lines of text, for `--once`. Pure."""

from __future__ import annotations

from dataclasses import replace

from training_monitor.policy.run_values import RunsSnapshot
from training_monitor.tui.text import UNICODE, Glyphs, Line, fit_line, safe
from training_monitor.tui.top_columns import COLUMNS, heading, lay_out, table_line
from training_monitor.tui.top_main import why_empty
from training_monitor.tui.top_panels import problem_of, stale_line, usage_lines
from training_monitor.tui.top_view import Item, TopView
from training_monitor.tui.view import Options

# The columns without those that a single look says little by.
_TITLES = frozenset("Status State Phase Epoch Batch Rate Loss ETA CPU RAM GPU PID".split()) | {"Run Elapsed"}
_COLUMNS = tuple(column for column in COLUMNS if column.title in _TITLES)
_SUMMARY_LINES = 3


def table_text(snapshot: RunsSnapshot, width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The runs in their order, what is wrong with any of them, and what they use, in lines of `width` cells."""
    view = TopView(Options("top", glyphs=glyphs))
    items = [Item(replace(row, tree=())) for row in snapshot.rows]
    layout = lay_out(items, snapshot.usage, view, width, _COLUMNS)
    problems = [(item.row.run.name, problem) for item in items if (problem := problem_of(item.row))]
    return [
        *stale_line(snapshot, view, width),
        heading(layout, width, "", glyphs),
        *(table_line(item, layout, snapshot.usage, width, view, selected=False) for item in items),
        *(() if items else (why_empty(snapshot, view, width),)),
        *(
            fit_line([(f"{safe(name, glyphs)}: ", "bold"), (safe(text, glyphs), "warn")], width, glyphs)
            for name, text in problems
        ),
        *usage_lines(snapshot, view, width, _SUMMARY_LINES),
    ]
