"""The fleet's pages: details of one member, comparison of several, alerts, and the confirmation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from training_monitor.core.regex import regex
from training_monitor.core.units import plural
from training_monitor.fleet.attention import group_alerts
from training_monitor.fleet.metrics import TrainingMetrics
from training_monitor.fleet.rows import is_rented
from training_monitor.fleet.trends import RunComparison, compare_runs, describe_compared
from training_monitor.fleet.values import FleetAlert, FleetSnapshot, FleetSummary
from training_monitor.ui.fleet.facts import Body, curves_of, facts_of, words_of
from training_monitor.ui.fleet.main import alert_line, at_least, member_names, moment_width, summary_of
from training_monitor.ui.fleet.view import (
    FleetView,
    Member,
    label,
    marked_rows,
    member_of,
    member_row,
    table_columns,
    table_line,
)
from training_monitor.ui.kit.charts import draw_curve
from training_monitor.ui.kit.gpus import gpu_line
from training_monitor.ui.kit.page import page, question, wrapped
from training_monitor.ui.kit.text import (
    NOT_KNOWN,
    Glyphs,
    broken,
    cells,
    clip,
    clip_middle,
    format_number,
    format_percent,
    format_price,
    format_seconds,
    format_total,
    format_whole,
    safe,
)
from training_monitor.ui.kit.view import Column, Frame, Layout, fit_columns, heading_line, row_line

_CHARTS = 10  # lines
_CURVE = "LOSS SO FAR"
_NOTES = (  # columns, and what is said of those that are shown
    (("LAST STEP", "LAST LOSS", "TOTAL", _CURVE), "over the whole run"),
    (("SAME STEP",), "loss at the last compared step"),
)
_STEPS = """
    MEMBER 8, LAST LOSS 9, SAME STEP 9, LOSS SO FAR 11, STEPS/S 7, LAST STEP 9, BEST 6, $/1K 7, MEMBER 14, GPU% 4,
    TOTAL 7, TREND/1K 8, AT STEP 7, MEMBER 28
"""
_DISK_COSTS = " The disk of a stopped instance still costs money, and the instance may be unable to start again."
_INDENT = "    "
_EASY_TO_TYPE = regex(r"[A-Za-z0-9][A-Za-z0-9._:/@#-]{0,29}")  # with "destroy " it still fits on any screen


# ---------------------------------------------------------------- one member


def draw_detail(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw one member: its health, its values, their history, its log."""
    row = member_row(snapshot, view.selected)
    if row is None:
        body: Body = [[("this member is no longer in the fleet; Esc goes back", "warn")]]
        return page(view, [(view.safe(view.selected), "bold")], body)
    body = [
        *words_of(row, snapshot, view),
        [],
        *facts_of(row, snapshot, view),
        *([[], *(gpu_line(gpu, view) for gpu in row.gpus)] if len(row.gpus) > 1 else []),
        [],
        *curves_of(row, view, _CHARTS),
        [],
        [("log", "bold")],
        *([[(view.safe(line), "")] for line in row.recent_logs] or [[("no log lines yet", "dim")]]),
    ]
    return page(view, [(view.safe(label(row)), "bold")], body)


# ---------------------------------------------------------------- several members


class _Compared(NamedTuple):
    """A member's name, comparison, losses so far, and the glyphs."""

    name: str
    run: RunComparison
    losses: Sequence[float | None]
    glyphs: Glyphs


def _of(title: str, show: Callable[[RunComparison], str]) -> Column[_Compared]:
    return Column(title, ">", lambda each, width: show(each.run))


_WHY_UNKNOWN = {  # by column
    "LAST STEP": "no step known",
    "LAST LOSS": "no loss known",
    "TOTAL": "not rented, or cost unknown",
    "BEST": "no loss in the compared steps",
    "AT STEP": "no loss in the compared steps",
    "SAME STEP": "no samples near that step",
    "TREND/1K": "too few losses in the compared steps",
    "STEPS/S": "speed during the compared steps unknown",
    "GPU%": "GPU use during the compared steps unknown",
    "$/1K": "price during the compared steps unknown",
    _CURVE: "fewer than two samples with a loss",
}
_COLUMNS: tuple[Column[_Compared], ...] = (
    Column("MEMBER", "<", lambda each, width: clip_middle(safe(each.name, each.glyphs), width, each.glyphs)),
    _of("LAST STEP", lambda run: format_whole(run.last_step)),
    _of("LAST LOSS", lambda run: format_number(run.last_loss)),
    _of("TOTAL", lambda run: format_total(run.total_cost)),
    _of("BEST", lambda run: format_number(run.best_loss)),
    _of("AT STEP", lambda run: format_whole(run.best_loss_step)),
    _of("SAME STEP", lambda run: format_number(run.loss_at_common_step)),
    _of("TREND/1K", lambda run: format_number(run.loss_trend_per_1000_steps)),
    _of("STEPS/S", lambda run: format_number(run.median_steps_per_second)),
    _of("GPU%", lambda run: format_percent(run.mean_gpu_utilization)),
    _of("$/1K", lambda run: format_price(run.dollars_per_1000_steps)),
    Column(_CURVE, "<", lambda each, width: draw_curve(each.losses, width, each.glyphs)),
)


def draw_comparison(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw the marked members, one per line, with their remembered values.

    The last step, last loss, total cost and curve are of each alone, all else is of the steps that all have reached.
    """
    names = {row.key: label(row) for row in marked_rows(snapshot, view)}
    samples = {key: view.recent(key) for key in names}
    runs = compare_runs(samples)
    compared = [
        _Compared(names[run.key], run, [each.values.get("loss") for each in samples[run.key]], view.glyphs)
        for run in runs
    ]
    missing = [[column.title for column in _COLUMNS if column.show(each, 8) == NOT_KNOWN] for each in compared]
    of_all = [title for title in _WHY_UNKNOWN if all(title in titles for titles in missing)]
    longest = max((len(name) for name in names.values()), default=0)
    needs = {"MEMBER": max(8, longest), **dict.fromkeys(of_all, 0)}
    layout = fit_columns(_COLUMNS, _STEPS, view.width, needs, _CURVE)
    styles = {"MEMBER": "bold", _CURVE: "good"}
    body: Body = [heading_line(layout, view, margin="")]
    short = {row.key: row.name or str(row.instance_id) for row in marked_rows(snapshot, view)}
    if longest > layout[0][1] and len({*short.values()}) == len(short):
        body += [row_line("", layout, each._replace(name=short[each.run.key]), styles, view) for each in compared]
    else:
        body += [row_line("", layout, each, styles, view) for each in compared]
    shown = {column.title for column, _ in layout}
    noted = (([title for title in titles if title in shown], note) for titles, note in _NOTES)
    notes = "; ".join(f"{', '.join(titles)}: {note}" for titles, note in noted if titles)
    told = [f"compared steps: {describe_compared(runs)}", *([notes] if notes else [])]
    told += [f"empty columns: {_reasons(of_all)}"] if of_all else []
    for each, titles in zip(compared, missing):
        if not each.run.samples:
            told.append(f"{each.name}: no samples yet")
        elif gaps := [title for title in titles if title in shown and title not in of_all]:
            told.append(f"{each.name}: {_reasons(gaps)}")
    body += [[], *(line for text in told for line in wrapped(text, "dim", view))]
    return page(view, [("comparison", "bold")], body)


def _reasons(titles: Sequence[str]) -> str:
    """Say why values are not known: GPU% (no GPU was seen)."""
    by_reason: dict[str, list[str]] = {}
    for title in titles:
        by_reason.setdefault(_WHY_UNKNOWN[title], []).append(title)
    return "; ".join(f"{', '.join(of)} ({why})" for why, of in by_reason.items())


# ---------------------------------------------------------------- alerts, and the confirmation


def draw_alerts(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw all alerts, newest first; those about several members that belong together on one line."""
    names, groups, room = member_names(snapshot), shown_alerts(snapshot), max(1, view.height - 1)
    width = moment_width(groups, snapshot.timestamp)
    chosen = max(0, min(view.alert, len(groups) - 1))
    body: Body = [
        alert_line(
            group,
            names,
            view,
            snapshot.timestamp,
            width=width,
            margin="> " if number == chosen else "  ",
            base="selected" if number == chosen else "",
        )
        for number, group in enumerate(groups)
    ]
    scroll = max(0, min(view.scroll, chosen, len(body) - room), chosen - room + 1)
    title = [(plural(len(snapshot.alerts), "alert"), "bold"), (", newest first", "")]
    return page(replace(view, alert=chosen, scroll=scroll), title, body or [[("no alerts so far", "dim")]])


def shown_alerts(snapshot: FleetSnapshot) -> list[tuple[FleetAlert, ...]]:
    """Return the alerts, those that belong together in a group, newest first."""
    return group_alerts(snapshot.alerts)[::-1]


# ---------------------------------------------------------------- groups


class _Total(NamedTuple):
    """The sums of a group with that name, or of all members."""

    name: str
    members: int
    summary: FleetSummary
    glyphs: Glyphs


def _level(title: str, level: str) -> Column[_Total]:
    return Column(title, ">", lambda total, width: str(total.summary.levels.get(level, 0)))


def _sum_of(title: str, form: Callable[[float], str], sum_: str, without: str) -> Column[_Total]:
    def show(total: _Total, width: int) -> str:
        known = getattr(total.summary, sum_)
        return form(known) + _PLUS * bool(getattr(total.summary, without)) if known else NOT_KNOWN

    return Column(title, ">", show)


_TOTALS: tuple[Column[_Total], ...] = (
    Column("GROUP", "<", lambda total, width: safe(total.name, total.glyphs)),
    Column("MEMBERS", ">", lambda total, width: str(total.members)),
    _level("ERROR", "error"),
    _level("WARN", "warning"),
    _level("UNKNOWN", "unknown"),
    _level("OK", "healthy"),
    _sum_of("$/H", format_price, "dollars_per_hour", "unpriced"),
    _sum_of("SPENT", format_total, "dollars_spent", "without_total"),
    _sum_of("TO GO", format_total, "dollars_to_completion", "without_price"),
    _sum_of("DONE IN", format_seconds, "seconds_to_completion", "without_eta"),
)
_TOTAL_STEPS = """
    GROUP 12, ERROR 5, WARN 4, $/H 8, UNKNOWN 7, OK 5, MEMBERS 7, SPENT 8, TO GO 8, DONE IN 8, GROUP 40
"""
_LEAST_GROUP, _SUMS, _SUM = 10, 69, 9  # cells of the group, of all columns beside it, and of one with a sum
_PLUS = "+"  # not all are known: at least this much


def draw_totals(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw the sums of each group, and of all."""
    parts = [(name, [row for row in snapshot.rows if name in row.groups]) for name in snapshot.groups]
    parts += [("in no group", [row for row in snapshot.rows if not row.groups])]
    totals = [_Total(name, len(rows), summary_of(rows, snapshot, view), view.glyphs) for name, rows in parts if rows]
    totals.append(_Total("all", len(snapshot.rows), summary_of(snapshot.rows, snapshot, view), view.glyphs))
    longest = max(cells(total.name) for total in totals)
    unknown = {each.title: 0 for each in _TOTALS if all(each.show(total, 8) == NOT_KNOWN for total in totals)}
    width = min(view.width, max(longest, _LEAST_GROUP) + _SUMS - _SUM * len(unknown))
    layout = fit_columns(_TOTALS, _TOTAL_STEPS, width, {"GROUP": longest, **unknown}, "GROUP")
    sums = [column.show(total, width) for column, width in layout[1:] for total in totals]
    note = f"{_PLUS}: at least this much; some values are unknown" if any(_PLUS in each for each in sums) else ""
    body: Body = [heading_line(layout, view, margin="")]
    body += [row_line("", layout, total, _total_styles(total), view) for total in totals]
    return page(view, [("groups", "bold")], [*body, [], [(note, "dim")]])


def _total_styles(total: _Total) -> dict[str, str]:
    levels = {"ERROR": ("error", "bad"), "WARN": ("warning", "warn"), "OK": ("healthy", "good")}
    coloured = {title: style for title, (level, style) in levels.items() if total.summary.levels.get(level)}
    return {"GROUP": "bold", **coloured}


def confirmation_phrase(action: str, rows: Sequence[TrainingMetrics]) -> str:
    """Return the phrase to type: a single member's id, or its name on a machine that is not rented, else their number.

    What is not easy to type is not asked for.
    """
    only = str(rows[0].instance_id if is_rented(rows[0]) else rows[0].name)
    return f"{action} {only if len(rows) == 1 and _EASY_TO_TYPE.fullmatch(only) else len(rows)}"


def draw_confirm(snapshot: FleetSnapshot, view: FleetView) -> Frame[FleetView]:
    """Draw what would be done to which members, and what they cost."""
    request = view.request
    if request is None:
        return page(view, [], [])
    rows = [row for row in snapshot.rows if row.key in request.about]
    layout = table_columns(rows, view.width)
    body: Body = [*wrapped(describe_act(request.name, rows), "warn", view)]
    body += [[], heading_line(layout, view)]
    body += [line for row in rows for line in _asked_lines(row, snapshot, view, layout)]
    return question(view, f"{request.name} {plural(len(request.about), 'member')}?", body)


def _asked_lines(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView, layout: Layout[Member]) -> Body:
    """Format a member to be confirmed; with its full key where the table has no room for ids, or several look alike."""
    its_width = next((its_width for column, its_width in layout if column.title == "ID"), 0)
    shown = [clip(view.safe(each.instance_id), its_width, view.glyphs) for each in (row, *snapshot.rows)]
    key = broken(view.safe(row.key), view.width - len(_INDENT)) if not its_width or shown.count(shown[0]) > 2 else ()
    line = table_line(member_of(row, snapshot, view), layout, view)
    return [line, *([(_INDENT + part, "")] for part in key)]


def describe_act(action: str, rows: Sequence[TrainingMetrics]) -> str:
    """Describe what stopping or destroying some members means, and what they cost."""
    one, rented = len(rows) == 1, any(map(is_rented, rows))
    if action == "start":
        means = (
            "If its GPUs are free, the machine starts again, and billing resumes."
            if one
            else "The machines start again, and billing resumes."
        )
    elif action == "reboot":
        means = "The container restarts: its processes are terminated, but its disk is kept."
    elif action == "stop":
        means = ("Its training ends." if one else "Their trainings end.") + _DISK_COSTS * rented
    else:
        gone = "The machine and its disk are" if one else "The machines and their disks are"
        means = f"{gone} deleted permanently. Data that was not copied is lost."
    paid = [row for row in rows if is_rented(row) or row.cost_per_hour is not None]
    return f"{means} {_costs(paid)}" if paid else means


def _costs(rows: Sequence[TrainingMetrics]) -> str:
    """Describe what rented machines cost."""
    rows = list({row.instance_id: row for row in rows}.values())  # members on one machine share its cost
    prices = [row.cost_per_hour for row in rows if row.cost_per_hour is not None]
    totals = [row.total_cost for row in rows if row.total_cost is not None]
    one = len(rows) == 1
    if not prices:
        return f"The cost of the {'machine' if one else 'machines'} is unknown."
    they = "The machine costs" if one else "The machines cost"
    spent = f", and {at_least(len(rows) - len(totals))}{format_total(sum(totals))} so far" if totals else ""
    return f"{they} {at_least(len(rows) - len(prices))}{format_price(sum(prices))}/h{spent}."
