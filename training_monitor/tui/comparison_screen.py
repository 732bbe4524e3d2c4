"""The marked members beside one another: how far, how good, how fast, how dear. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from training_monitor.policy.fleet_values import FleetSnapshot
from training_monitor.policy.trends import RunComparison, compare_runs
from training_monitor.tui.columns import fit_columns
from training_monitor.tui.detail_screen import curve
from training_monitor.tui.numbers_text import NOT_KNOWN, format_number, format_percent, format_price, format_total
from training_monitor.tui.pages import page
from training_monitor.tui.text import Piece, fit, safe
from training_monitor.tui.view import Frame, Recent, View, label, marked_rows

_CURVE = "LOSS SO FAR"


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    show: Callable[[RunComparison], str]


def _step(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}"


_COLUMNS = (
    _Column("STEP", lambda run: _step(run.last_step)),
    _Column("LOSS", lambda run: format_number(run.last_loss)),
    _Column("BEST", lambda run: format_number(run.best_loss)),
    _Column("AT STEP", lambda run: _step(run.best_loss_step)),
    _Column("SAME STEP", lambda run: format_number(run.loss_at_common_step)),
    _Column("TREND/1K", lambda run: format_number(run.loss_trend_per_1000_steps)),
    _Column("STEPS/S", lambda run: format_number(run.median_steps_per_second)),
    _Column("GPU%", lambda run: format_percent(run.mean_gpu_utilization)),
    _Column("TOTAL", lambda run: format_total(run.total_cost)),
    _Column("$/1K", lambda run: format_price(run.dollars_per_1000_steps)),
)
_STEPS = (
    ("MEMBER", 8),
    ("LOSS", 6),
    ("SAME STEP", 9),
    (_CURVE, 11),
    ("STEPS/S", 7),
    ("STEP", 7),
    ("BEST", 6),
    ("$/1K", 7),
    ("GPU%", 4),
    ("MEMBER", 14),
    ("TOTAL", 7),
    ("TREND/1K", 8),
    ("AT STEP", 7),
    ("MEMBER", 28),
)


def render_comparison(snapshot: FleetSnapshot, view: View, width: int, height: int, recent: Recent) -> Frame:
    """Draw the marked members, one a line, over what is remembered of each.

    SAME STEP is the loss at the highest step that all of them have reached.
    """
    rows = marked_rows(snapshot, view)
    names = {row.key: label(row) for row in rows}
    samples = {row.key: recent(row.key) for row in rows}
    runs = compare_runs(samples)
    longest = max((len(name) for name in names.values()), default=0)
    widths = fit_columns(_STEPS, width, {"MEMBER": max(8, longest)}, _CURVE)
    body = [_heading(widths, view)]
    for run in runs:
        losses = [sample.values.get("loss") for sample in samples[run.key]]
        body.append(_line(run, names[run.key], losses, widths, view))
    common = next((run.common_step for run in runs if run.common_step is not None), None)
    reached = "no step was reached by all" if common is None else f"SAME STEP: the loss at step {_step(common)}"
    return page(snapshot, view, [("comparison", "bold")], [*body, [], [(reached, "dim")]], (width, height))


def _heading(widths: Mapping[str, int], view: View) -> list[Piece]:
    glyphs = view.options.glyphs
    texts = [fit("MEMBER", widths.get("MEMBER", 0), glyphs)]
    texts += [fit(each.title, widths[each.title], glyphs, ">") for each in _COLUMNS if each.title in widths]
    texts += [fit(_CURVE, widths[_CURVE], glyphs)] if _CURVE in widths else []
    return [(" ".join(texts), "dim")]


def _line(
    run: RunComparison, name: str, losses: list[float | None], widths: Mapping[str, int], view: View
) -> list[Piece]:
    glyphs = view.options.glyphs
    pieces = [(fit(safe(name, glyphs), widths.get("MEMBER", 0), glyphs), "bold")]
    for column in _COLUMNS:
        if column.title in widths:
            pieces.append((" " + fit(column.show(run), widths[column.title], glyphs, ">"), ""))
    if _CURVE in widths:
        pieces.append((" " + curve(losses, widths[_CURVE], glyphs), "good"))
    return pieces
