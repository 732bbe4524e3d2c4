"""Turn a fleet's snapshot and the queue of rented trainings into JSON values for the page. Pure.

The words are those of the terminal's screens. Every foreign text passes `clean`; nan and the infinities, which JSON
does not have, stand only in texts. None means unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any

from training_monitor.core.masking import redact
from training_monitor.core.models import Gpu
from training_monitor.core.reports import AttemptReport, RestartReport
from training_monitor.core.shown import shown
from training_monitor.core.units import format_duration, plural
from training_monitor.fleet.columns import FleetColumn, share
from training_monitor.fleet.metrics import FLEET_COLUMNS, Health, TrainingMetrics
from training_monitor.fleet.values import FleetAlert, FleetSnapshot, FleetSummary
from training_monitor.runs.rows import describe_attempts
from training_monitor.runs.values import MetricHistory, Run
from training_monitor.ui.fleet.facts import describe_nodes, named_facts, texts_of
from training_monitor.ui.fleet.main import at_least
from training_monitor.ui.fleet.view import COLUMNS, ORDERS, FleetView, Member, format_progress, member_of
from training_monitor.ui.kit.text import NOT_KNOWN, format_percent, format_price, format_total
from training_monitor.vast.cost import cost_of
from training_monitor.vast.training_request import QueuedJob
from training_monitor.web.charts import Chart, Point, Window, describe_point, draw_chart

MOST_TEXT, MOST_EXPLANATION = 1000, 2500  # characters
_WIDE = 400  # cells: no column of a page is cut here
_REASONS = {"loss": "LOSS", "gpu_util": "GPU%", "disk_util": "DISK%"}  # of a running training's health
_LAST = 1e308  # sorts behind all numbers, as nan does on the terminal


# From left to right: the part of a column that is about the page, and the column.
HEADS = sorted(((each.page, each) for each in FLEET_COLUMNS if each.page), key=lambda head: head[0])
# What people look for first, and so what a narrow page shows in columns of their own.
_ASKED = ("PROGRESS", "LOSS", "GPU%", "ETA", "$/H", "TOTAL")
ASKED = 1000  # the rank behind those; that of columns for wide screens only is twice as high or more
_SHOW = {column.title: column.show for column in COLUMNS} | {
    "PROGRESS": lambda member, _: format_progress(member.row),
    "STATUS": lambda member, _: member.row.state(),
}


def clean(text: object, most: int = MOST_TEXT) -> str:
    """Return what the page gets of a foreign text: on one line, bounded, without secrets."""
    return redact(shown(str(text)))[:most]


def clean_or_none(text: object) -> str | None:
    """Return `clean` of a text that may be unknown."""
    return None if text is None else clean(text)


def id_of(key: str) -> str:
    """Return the id of a member in addresses: its key may hold anything."""
    return sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def number_of(value: float | None) -> float | str | None:
    """Return a number as JSON has it: nan and the infinities become texts."""
    return value if value is None or isfinite(value) else str(value)


# ---------------------------------------------------------------- the fleet


def rank_of(column: FleetColumn) -> int:
    """Return how soon a column gives way where a page is narrow: the highest first."""
    place, _, _, room = column.page or (0, "", "", 0)
    return _ASKED.index(column.title) if column.title in _ASKED else ASKED * max(1, room) + place


def head_of(snapshot: FleetSnapshot) -> dict[str, Any]:
    """Return what stands above the table."""
    return {
        "tiles": [{"name": name, "text": text, "note": note} for name, text, note in _tiles(snapshot.summary)],
        "levels": dict(snapshot.summary.levels),
        "groups": [clean(group) for group in snapshot.groups],
        "interval": snapshot.interval,
        "paused": snapshot.paused,
        "error": clean_or_none(snapshot.error),
        "stale_since": snapshot.stale_since,
        "lateness": snapshot.lateness,
    }


def row_of(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> dict[str, Any]:
    """Return a row of the table: `cells` are pairs of text and sort value in the order of HEADS."""
    member = member_of(row, snapshot, view)
    percent = row.progress_percentage()
    return {
        "id": id_of(row.key),
        "name": clean(row.name or row.instance_id),
        "number": clean(row.instance_id),
        "groups": [clean(group) for group in row.groups],
        "level": member.health.level,
        "reason": clean(member.health.reason),
        "stale_since": row.stale_since,
        "seen": None if row.last_updated is None else round(row.last_updated),
        "percent": None if percent is None else round(percent, 1),
        "why": _causes(row, member.health),
        "cells": [[clean(_SHOW[each.title](member, _WIDE)), _sort_value(each.title, row)] for _, each in HEADS],
    }


def _sort_value(name: str, row: TrainingMetrics) -> float | str | None:
    value = ORDERS[name](row, None)
    if isinstance(value, (int, float)):
        return round(float(value), 6) if isfinite(value) else _LAST
    return clean_or_none(value)


def _causes(row: TrainingMetrics, health: Health) -> list[str]:
    """Return the columns whose values are why a row is not healthy."""
    state = row.verdict.state if row.verdict else None
    if health.level == "healthy":
        return []
    if row.stale_since is not None:
        return ["SEEN"]
    if row.status != "running" or state in ("failed", "stopped"):
        return ["STATUS"]
    if row.finished:
        return ["$/H"]
    slow = ["PROGRESS"] if state in ("stalled", "suspended", "slow") else []
    return sorted(slow + [title for attribute, title in _REASONS.items() if attribute in health.fields])


def _tiles(summary: FleetSummary) -> Iterator[tuple[str, str, str]]:
    """Yield the sums: name, value, and a note."""
    if summary.dollars_per_hour or summary.unpriced:
        rate = format_price(summary.dollars_per_hour) if summary.dollars_per_hour else "?"
        unpriced = f"{summary.unpriced} unpriced" if summary.unpriced else ""
        yield "Rate", f"{at_least(summary.unpriced)}{rate}/h", unpriced
    if summary.dollars_spent:
        yield "Spent", f"{at_least(summary.without_total)}{format_total(summary.dollars_spent)}", "since rented"
    if summary.credit is not None:
        most, hours = "at most " if summary.unpriced else "", summary.credit_hours
        lasts = "" if hours is None else f"lasts {most}{format_duration(hours * 3600)}"
        yield "Credit", format_total(summary.credit), lasts
    if summary.seconds_to_completion is not None:
        dollars, least = summary.dollars_to_completion, at_least(summary.without_price)
        cost = "" if dollars is None else f"for {least}{format_total(dollars)}"
        without = f"{summary.without_eta} without ETA" if summary.without_eta else ""
        yield "Done in", format_duration(summary.seconds_to_completion), ", ".join(filter(None, (cost, without)))
    if summary.hidden:
        price = summary.hidden_dollars_per_hour
        yield "Not shown", plural(summary.hidden, "instance"), f"{format_price(price)}/h" if price else ""
    if summary.left_out:
        yield "Left out", plural(summary.left_out, "training"), "too many trainings to show for one member"


def event_of(alert: FleetAlert) -> str:
    """Return the name of an alert in addresses and requests."""
    return id_of(repr(alert.identity))


def alerts_of(alerts: Sequence[FleetAlert], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the alerts, newest first; `names` are those of the members by key."""
    return [
        {
            "event": event_of(alert),
            "at": alert.timestamp,
            "id": id_of(alert.key) if alert.key in names else None,
            "name": clean(names.get(alert.key, alert.key)),
            "kind": clean(alert.kind),
            "level": alert.level if alert.level in ("info", "warning", "error") else "error",
            "text": clean(alert.text),
            "ended": alert.ended,
            "acknowledged": alert.acknowledged,
        }
        for alert in reversed(alerts)
    ]


# ---------------------------------------------------------------- one member


def member_page(row: TrainingMetrics, snapshot: FleetSnapshot, view: FleetView) -> dict[str, Any]:
    """Return all that is known of a member now."""
    member: Member = member_of(row, snapshot, view)
    return {
        **row_of(row, snapshot, view),
        "words": [[name, clean(text, MOST_EXPLANATION), level] for name, text, level in texts_of(row, snapshot, view)],
        "facts": [*_plain_facts(row, member)],
        "gpus": [_gpu_of(gpu) for gpu in row.gpus] if len(row.gpus) > 1 else [],
        "log": [clean(line) for line in row.recent_logs],
    }


def _gpu_of(gpu: Gpu) -> dict[str, Any]:
    """Return one of several GPUs: its name, its utilization in per cent (None: unknown), and what is known of it."""
    use, memory = gpu.utilization, share(gpu.memory_used_mb, gpu.memory_total_mb)
    texts = (
        "use unknown" if use is None else f"{format_percent(use)} %",
        "" if memory is None else f"memory {format_percent(memory)} %",
        "" if gpu.power_draw_watts is None else f"{gpu.power_draw_watts:.0f} W",
        "" if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} C",
        gpu.error or "",
    )
    name = f"GPU {'?' if gpu.index is None else gpu.index}"
    return {"name": name, "percent": number_of(use), "text": clean(", ".join(filter(None, texts)))}


def _plain_facts(row: TrainingMetrics, member: Member) -> Iterator[list[str]]:
    """Yield the terminal's facts, those that it draws with signs as plain text."""
    percent = row.progress_percentage()
    plain = {"status": row.state(), "progress": NOT_KNOWN if percent is None else f"{format_percent(percent)} %"}
    facts = ((name, plain.get(name, text)) for name, text in named_facts(row, member))
    yield from ([clean(name), clean(text)] for name, text in facts if text != NOT_KNOWN)


def run_page(run: Run, width: int) -> dict[str, Any]:
    """Return what a progress file has: a chart of each metric over its steps, losses first, and the run's settings.

    `width` is that of a chart, in pixels; `begin` is None where no metric has a history.
    """
    steps = [step for history in run.history.values() for step in history.steps]
    window = Window(min(steps, default=0), max(steps, default=0), width, by_step=True)
    names = sorted(run.history, key=lambda name: "loss" not in name.lower())
    charts = [(Chart(id_of(name), clean(name)), history_points(run.history[name])) for name in names]
    return {
        "begin": window.begin if steps else None,
        "end": window.end,
        "charts": [draw_page(chart, points, window) for chart, points in charts if is_known(points)],
        "attempt": clean(describe_attempts(run) or run.attempt),
        "settings": [[clean(name), clean(value)] for name, value in run.config.items()],
    }


def history_points(history: MetricHistory) -> list[Point]:
    """Return the points of a metric's history, by step; a value that is not finite has no range."""
    found = []
    for step, value in sorted(zip(history.steps, history.values), key=lambda each: each[0]):
        limit = value if value is not None and isfinite(value) else None
        found.append(Point(step, value, limit, limit, 1))
    return found


def is_known(points: Iterable[Point]) -> bool:
    """Return whether any of the points has a value: a chart without one shows nothing."""
    return any(point.value is not None for point in points)


def draw_page(chart: Chart, points: Sequence[Point], window: Window) -> dict[str, Any]:
    """Return a chart with the numbers behind it."""
    numbers = [
        [round(point.timestamp, 3), "unknown" if point.value is None else describe_point(point, chart)]
        for point in points
    ]
    svg = draw_chart(points, chart, window)
    return {"field": chart.field, "title": chart.title, "unit": chart.unit, "svg": svg, "points": numbers}


def attempts_page(report: RestartReport, *, is_finished: bool, avoid: Sequence[str] = ()) -> dict[str, Any]:
    """Return the attempts of a supervised training, with their evidence, its goodput, and the nodes that it avoids."""
    badput = {cause: seconds for cause, seconds in report["badput"].items() if seconds}
    return {
        "finished": is_finished,
        "reason": clean(report["reason"]) if is_finished else None,
        "retries": report["total_retries"],
        "duration": format_duration(report["duration"]),
        "steps_lost": report["steps_lost"],
        "goodput": report["goodput"],
        "badput": [[cause.replace("_", " "), format_duration(seconds)] for cause, seconds in badput.items()],
        "avoid": [clean(node) for node in avoid],
        "attempts": [_attempt(each) for each in report["attempts"]],
    }


def _attempt(attempt: AttemptReport) -> dict[str, Any]:
    failure = attempt["failure"]
    last, told = attempt["final_step"], attempt["explanation"]
    return {
        "number": attempt["number"],
        "job": clean(attempt["job_id"]),
        "status": clean(attempt["status"]),
        "started_at": attempt["started_at"],
        "ended_at": attempt["ended_at"],
        "steps": f"{_step(attempt['start_step'])} to {_step(last)}{'' if attempt['final_step_known'] else ' or more'}",
        "lost": attempt["steps_lost"],
        "checkpoint": clean_or_none(attempt["checkpoint"]),
        "refused": [clean(each) for each in attempt["refused_checkpoints"]],
        "reason": clean_or_none(attempt["reason"]),
        "failure": clean(f"{failure['category']}, {failure['error_class']}") if failure else None,
        "evidence": clean(failure["evidence"]) if failure else None,
        "explanation": None if told is None else clean(told, MOST_EXPLANATION),
        "nodes": clean(describe_nodes(attempt["suspect_nodes"] or (), attempt["faulty_nodes"] or ())),
    }


def _step(value: int | None) -> str:
    return "?" if value is None else str(value)


def names_of(rows: Iterable[TrainingMetrics]) -> dict[str, str]:
    """Return the display name of each member by key."""
    return {row.key: row.name or str(row.instance_id) for row in rows}


def queue_page(jobs: Sequence[QueuedJob], damaged: Sequence[str], now: float) -> dict[str, Any]:
    """Return the jobs, newest first, and the ids of those that cannot be read; `now` in epoch seconds.

    A job's command, environment, dataset and hooks stay here: they may hold what not everybody may read.
    """
    return {"jobs": [_queued_job(job, now) for job in jobs], "damaged": [clean(each) for each in damaged]}


def _queued_job(job: QueuedJob, now: float) -> dict[str, Any]:
    work, is_over = job.work, job.state.is_terminal
    to_end = job.to_end[1] if job.to_end and not is_over else None
    return {
        "id": clean(job.id),
        "state": clean(job.state.value.lower()),
        "level": {"COMPLETED": "healthy", "FAILED": "error"}.get(job.state.value, ""),
        "over": is_over,
        "step": None if work.last_step is None else f"{work.last_step}/{work.total_steps or '?'}",
        "gpu": clean_or_none(work.asked_gpu),
        "machine": clean_or_none(work.instance_id),
        "spent": format_total(cost_of(work, now)) if work.rentals or work.spent is not None else None,
        "budget": None if job.request.budget is None else format_total(job.request.budget),
        "age": format_duration(max(0.0, now - job.created_at)),
        "notes": [clean(each) for each in (work.reason, to_end, *work.warnings) if each],
    }
