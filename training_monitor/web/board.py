"""What the page asks of a fleet: its state, one member, series of samples, its cost; and to stop or destroy members."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil, fsum
from typing import Any

from training_monitor.core.errors import Hint, SettingsError, TrainingMonitorError
from training_monitor.core.logger import get_logger
from training_monitor.core.units import DAY
from training_monitor.fleet.attention import worst_first
from training_monitor.fleet.config import parse_member
from training_monitor.fleet.fleet import ACTIONS, FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, Thresholds, TrainingMetrics
from training_monitor.fleet.prometheus import format_metrics
from training_monitor.fleet.trends import add_costs, cost_by_day, project_cost
from training_monitor.fleet.values import FleetSample, FleetSnapshot
from training_monitor.jobs.attempts import training_name
from training_monitor.rent.queue import TrainingQueue
from training_monitor.supervision.restart import find_run
from training_monitor.ui.fleet.pages import confirmation_phrase, describe_act
from training_monitor.ui.fleet.view import FleetView
from training_monitor.ui.kit.text import UNICODE, format_price, format_total
from training_monitor.vast.training_request import QueuedJob
from training_monitor.web.access import Refused
from training_monitor.web.charts import CHARTS, Chart, Point, Window, format_time, points_of, sum_points
from training_monitor.web.pages import (
    alerts_of,
    attempts_page,
    clean,
    draw_page,
    event_of,
    head_of,
    id_of,
    is_known,
    member_page,
    names_of,
    queue_page,
    row_of,
    run_page,
)
from training_monitor.web.stream import State

LEAST_SPAN, MOST_SPAN = 10.0, 400 * DAY  # seconds that a chart shows
MOST_JOBS = 200  # the newest of the queue
MOST_PRICED = 100  # members whose cost is read; the dearest
COST_SECONDS = 30.0  # for which the cost is not read again
NOW_SECONDS = 30.0  # a chart that ends this short a time ago ends now
AHEAD_HOURS = 24.0

_COST_FIELDS = ("cost_per_hour", "total_cost", "eta_seconds")  # those of `project_cost`
_RATE = Chart("cost_per_hour", "Price of the fleet", "per hour", format_price, 0.0)


class Board:
    """Answers about one fleet; safe for any thread.

    Args:
        history: where the fleet's samples are stored; None: only those of the last hours are known.
        namespace: of pods without one.
        queue: of trainings on rented machines; None: it is not shown.
    """

    def __init__(
        self,
        fleet: FleetMonitor,
        *,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        history: History | None = None,
        namespace: str = "default",
        queue: TrainingQueue | None = None,
        allow_write: bool = False,
    ) -> None:
        self.fleet, self.allow_write = fleet, allow_write
        self._view = FleetView(glyphs=UNICODE, thresholds=thresholds)
        self._history, self._namespace, self._queue = history, namespace, queue
        self._cost_lock, self._costs = threading.Lock(), dict[float, tuple[float, dict[str, Any]]]()

    def state(self) -> State:
        """Return what the page shows of all members now."""
        snapshot = self.fleet.snapshot()
        rows = worst_first(snapshot.rows, self._view.thresholds, snapshot.timestamp)
        return State(
            json.dumps(head_of(snapshot)),
            json.dumps(alerts_of(snapshot.alerts, names_of(snapshot.rows))),
            {id_of(row.key): json.dumps(row_of(row, snapshot, self._view)) for row in rows},
        )

    def member(self, name: str) -> dict[str, Any]:
        """Return all that is known of the member with that id. Raises Refused."""
        snapshot = self.fleet.snapshot()
        row = _find(snapshot, name)
        acts = {
            action: {"means": describe_act(action, [row]), "phrase": clean(confirmation_phrase(action, [row]))}
            for action in (ACTIONS if self.allow_write else ())
        }
        attempts, problem = None, None
        try:
            attempts = self._attempts(row, snapshot.timestamp)
        except TrainingMonitorError as error:
            problem = clean(error)
        return {
            **member_page(row, snapshot, self._view),
            "attempts": attempts,
            "attempts_problem": problem,
            "acts": acts,
        }

    def _attempts(self, row: TrainingMetrics, now: float) -> dict[str, Any] | None:
        """Return the attempts of a training that this machine supervises or supervised."""
        try:
            spec = parse_member(row.key)
        except SettingsError:  # a log of the settings file, such as a relative path
            return None
        if spec.job is None:
            return None
        for finished in (False, True):
            run = find_run(spec.target, training_name(spec.job), self._namespace, finished=finished)
            if run is not None:
                ended = run if finished else replace(run, ended_at=now)
                return attempts_page(ended.report(), is_finished=finished, avoid=run.avoid_nodes)
        return None

    def metrics(self) -> str:
        """Return the fleet's metrics in the text format of Prometheus."""
        return format_metrics(self.fleet.snapshot(), self._view.thresholds)

    # ------------------------------------------------------------ charts

    def series(self, name: str, window: Window) -> dict[str, Any]:
        """Return the charts of a member, with the numbers behind them. Raises Refused.

        `unknown` are the titles of the charts for which no value is known in that time.
        """
        row = _find(self.fleet.snapshot(), name)
        samples, problem = self._samples(row.key, window, [chart.field for chart in CHARTS])
        points = {
            chart: points_of(samples, chart.field, window.begin, window.end, is_total=chart.is_total)
            for chart in CHARTS
        }
        return {
            "begin": window.begin,
            "end": window.end,
            "samples": len(samples),
            "problem": problem,
            "charts": [draw_page(chart, each, window) for chart, each in points.items() if is_known(each)],
            "unknown": [chart.title for chart, each in points.items() if not is_known(each)],
        }

    def run(self, name: str, width: int) -> dict[str, Any]:
        """Return what the progress file of a member has now, and why it cannot be read. Raises Refused.

        `run` is None where its training writes no such file, or where there is a `problem`.
        """
        key, run, problem = _find(self.fleet.snapshot(), name).key, None, None
        try:
            run = self.fleet.read_run(key)
        except TrainingMonitorError as error:
            problem = clean(error)
        return {"run": None if run is None else run_page(run, width), "problem": problem}

    def _samples(self, key: str, window: Window, fields: Collection[str]) -> tuple[list[FleetSample], str | None]:
        """Return the samples of a time, and why there may be more; the newest ones where the history fails."""
        problem = None
        if self._history is not None:
            try:
                return self._history.read(key, window.begin, window.end, fields=fields), None
            except TrainingMonitorError as error:
                problem = f"the history cannot be read: {clean(error)}"
        recent = self.fleet.recent(key)
        return [sample for sample in recent if window.begin <= sample.timestamp <= window.end], problem

    def cost(self, window: Window) -> dict[str, Any]:
        """Return the price of the fleet over a time, and what its members cost."""
        span, snapshot = window.end - window.begin, self.fleet.snapshot()
        rows = _rows_with_cost(snapshot)
        with self._cost_lock:
            read_at, page = self._costs.get(span, (0.0, {}))
            if not page or not 0 <= time.monotonic() - read_at < COST_SECONDS:
                read = time.monotonic(), self._read_cost(rows, window)
                self._costs = {**dict([*self._costs.items()][-8:]), span: read}
            points, page = self._costs[span][1]["points"], self._costs[span][1]["page"]
        if rows and window.end >= snapshot.timestamp - NOW_SECONDS:
            points = [*(point for point in points if point.timestamp < window.end), _rate_of(rows, window.end)]
        hidden = snapshot.summary.hidden_dollars_per_hour
        return {
            **page,
            "hidden": format_price(hidden) if hidden else None,
            "charts": [draw_page(_RATE, points, window)] if is_known(points) else [],
        }

    def _read_cost(self, rows: Sequence[TrainingMetrics], window: Window) -> dict[str, Any]:
        read = {row.key: self._samples(row.key, window, _COST_FIELDS) for row in rows[:MOST_PRICED]}
        samples = [each for each, _ in read.values()]
        problems = {problem for _, problem in read.values() if problem}
        page = {
            "begin": window.begin,
            "end": window.end,
            "left_out": len(rows[MOST_PRICED:]),
            "problem": next(iter(problems), None),
            "members": [_cost_of(row, read[row.key][0]) for row in rows[:MOST_PRICED]],
            "days": _costs_by_day(samples, window),
        }
        return {"page": page, "points": sum_points(samples, "cost_per_hour", window.begin, window.end)}

    # ------------------------------------------------------------ the queue

    def queue(self) -> dict[str, Any]:
        """Return the newest jobs of the queue; none where there is no queue. Raises Refused: it cannot be read."""
        damaged, jobs = dict[str, TrainingMonitorError](), list[QueuedJob]()
        try:
            if self._queue is not None:
                jobs = self._queue.list_jobs(limit=MOST_JOBS, on_damaged=damaged.__setitem__)
        except TrainingMonitorError as error:
            raise Refused(503, f"the queue cannot be read: {clean(error)}") from error
        return queue_page(jobs, [*damaged], time.time())

    # ------------------------------------------------------------ acts

    def act(self, action: object, name: object, phrase: object) -> None:
        """Begin to stop or destroy a member; the result is an alert. Raises Refused."""
        self._check_writable()
        if action not in ACTIONS or not isinstance(action, str) or not isinstance(name, str):
            raise Refused(400, f"expected an action ({', '.join(ACTIONS)}) and a member")
        row = _find(self.fleet.snapshot(), name)
        if phrase != clean(confirmation_phrase(action, [row])):
            raise Refused(400, "the typed phrase is wrong, so nothing was done")
        get_logger().info("%s was requested on the web page: %s", action, row.key)
        self.fleet.act(action, [row.key])

    def acknowledge(self, event: object) -> None:
        """Acknowledge an alert. Raises Refused."""
        self._check_writable()
        known = [alert.identity for alert in self.fleet.snapshot().alerts if event_of(alert) == event]
        if not known:
            raise Refused(404, "this alert is no longer in the list of recent alerts")
        self.fleet.acknowledge(known)

    def _check_writable(self) -> None:
        if not self.allow_write:
            raise Refused(403, Hint("this page is read-only; to allow actions, start the web server with {serve_acts}"))


def _rows_with_cost(snapshot: FleetSnapshot) -> list[TrainingMetrics]:
    """Return the members with a known price or cost, the dearest first; one of those that share a machine."""
    on_machines = {row.instance_id: row for row in snapshot.rows if not row.found}
    rows = [row for row in on_machines.values() if row.cost_per_hour is not None or row.total_cost is not None]
    return sorted(rows, key=lambda row: -(row.cost_per_hour or 0.0))


def _rate_of(rows: Sequence[TrainingMetrics], timestamp: float) -> Point:
    """Return the sum of the present prices of the members, those of the other points, as a point at that time."""
    present = [row for row in rows[:MOST_PRICED] if row.status != "lost"]
    known = [row.cost_per_hour for row in present if row.cost_per_hour is not None]
    rate = None if present and not known else fsum(known)
    return Point(timestamp, rate, rate, rate, len(known))


def _find(snapshot: FleetSnapshot, name: str) -> TrainingMetrics:
    row = next((row for row in snapshot.rows if id_of(row.key) == name), None)
    if row is None:
        raise Refused(404, "this member is not in the fleet; it may have been removed")
    return row


def _costs_by_day(machines: Sequence[Sequence[FleetSample]], window: Window) -> list[tuple[str, str]]:
    """Return what some machines cost on each local day of a time, the newest first; + is at least this much."""
    first = ((window.begin + window.utc_offset) // DAY + 1) * DAY - window.utc_offset
    midnights = [first + DAY * number for number in range(ceil((window.end - first) / DAY))]
    bounds = [window.begin, *midnights, window.end]
    costs = [cost_by_day([samples], bounds) for samples in machines]
    sums = [add_costs(each[day] for each in costs) for day in range(len(bounds) - 1)]
    return [
        (format_time(begin, window.utc_offset, "%Y-%m-%d"), f"{format_total(cost.dollars)}{'+' * cost.at_least}")
        for begin, cost in reversed([*zip(bounds, sums)])
        if cost.dollars is not None
    ]


def _cost_of(row: TrainingMetrics, samples: Sequence[FleetSample]) -> dict[str, Any]:
    ahead = project_cost(samples, hours=AHEAD_HOURS)
    return {
        "id": id_of(row.key),
        "name": clean(row.name or row.instance_id),
        "price": format_price(row.cost_per_hour),
        "spent": format_total(row.total_cost),
        "ahead": format_total(ahead.dollars if row.cost_per_hour is not None else None),
        "to_completion": format_total(ahead.to_completion),
    }
