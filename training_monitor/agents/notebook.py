"""show: a table or charts of any value, for a notebook; text for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan

from training_monitor.core.fields import PublicValue
from training_monitor.core.panel_html import format_figure, format_html
from training_monitor.core.panels import Panel, clean, format_text, panel_of
from training_monitor.core.records import LAST_TIME
from training_monitor.core.units import DAY, format_duration, format_sparkline
from training_monitor.core.values import Observation
from training_monitor.fleet.fleet import FleetMonitor
from training_monitor.fleet.history import History
from training_monitor.fleet.trends import series
from training_monitor.fleet.values import FleetSample
from training_monitor.supervision.monitor import BackgroundMonitor
from training_monitor.web.charts import CHARTS, Chart, Point, Window, describe_points, draw_chart, points_of

MOST_CHARTED = 4  # members of a history
WIDTH, HEIGHT = 480, 160  # pixels
_CELLS = 40  # of a line of blocks
_FIELDS = tuple(chart.field for chart in CHARTS)


@dataclass(frozen=True, slots=True, repr=False)
class Shown(PublicValue):
    """The result of `show`: a notebook displays it as HTML, and `print` writes it as text."""

    panel: Panel
    samples: tuple[tuple[str, tuple[FleetSample, ...]], ...] = ()

    def __repr__(self) -> str:
        return "\n".join([format_text(self.panel), *(line for each in self.samples for line in _lines(*each))])

    def _repr_html_(self) -> str:
        return format_html(self.panel, "".join(part for each in self.samples for part in _figures(*each)))


def show(value: object) -> Shown:
    """Display any result of this package in a notebook, as a table; histories are also displayed as charts.

    Args:
        value: any value that this package returns, or a dict or list of such values. Charts of loss, speed, GPU
            utilization and cost are drawn for a list of samples (`History.read`) or observations, and for a background
            monitor. For a `History`, the charts cover the last day of the 4 trainings that were observed most recently.

    Returns:
        An object that a notebook displays as HTML without scripts, and that `print` writes as text.

    Raises:
        TrainingMonitorError: a history cannot be read.
    """
    if isinstance(value, History):
        return _show_history(value)
    if isinstance(value, FleetMonitor):
        return Shown(panel_of(value.snapshot()))
    if isinstance(value, BackgroundMonitor):
        return Shown(value.panel(), (("", _samples_of(value.observations)),))
    if isinstance(value, Sequence) and value and not isinstance(value, str | bytes):
        if all(isinstance(each, FleetSample | Observation) for each in value):
            samples = _samples_of(value)
            return Shown(_panel_of_samples(samples), (("", samples),))
    return Shown(panel_of(value))


def _show_history(history: History) -> Shown:
    members = sorted(history.members(), key=lambda member: -member.last)
    samples = [
        (clean(each.key), _samples_of(history.read(each.key, each.last - DAY, fields=_FIELDS)))
        for each in members[:MOST_CHARTED]
    ]
    return Shown(panel_of(members, "History"), tuple(samples))


def _samples_of(looks: Sequence[FleetSample | Observation]) -> tuple[FleetSample, ...]:
    """Return what is charted, oldest first, without what has no time of the calendar."""

    def sample(look: FleetSample | Observation) -> FleetSample:
        values = look.values if isinstance(look, FleetSample) else {name: getattr(look, name, None) for name in _FIELDS}
        return FleetSample(look.timestamp, {name: _number(values.get(name)) for name in _FIELDS})

    known = [look for look in looks if 0 <= look.timestamp < LAST_TIME]
    return tuple(sorted(map(sample, known), key=lambda each: each.timestamp))


def _number(value: float | None) -> float | None:
    """Return a value as a float; nan where none can hold it."""
    try:
        return value if value is None else float(value)
    except OverflowError:
        return nan


def _panel_of_samples(samples: Sequence[FleetSample]) -> Panel:
    span = format_duration(samples[-1].timestamp - samples[0].timestamp) if samples else "no known time"
    return Panel(f"{len(samples)} samples", said=f"of {span}")


# ---------------------------------------------------------------- charts


def _figures(name: str, samples: Sequence[FleetSample]) -> Iterator[str]:
    """Yield a chart of each field that is known."""
    for chart, window, points in _known(name, samples):
        unit = f" ({chart.unit})" if chart.unit else ""
        yield format_figure(f"{chart.title}{unit}", draw_chart(points, chart, window))


def _lines(name: str, samples: Sequence[FleetSample]) -> Iterator[str]:
    """Yield a line of blocks for each field that is known."""
    for chart, window, points in _known(name, samples):
        blocks = format_sparkline(series(samples, chart.field, _CELLS, window.begin, window.end), _CELLS)
        yield f"{blocks}  {describe_points(points, chart)}"


def _known(name: str, samples: Sequence[FleetSample]) -> Iterator[tuple[Chart, Window, tuple[Point, ...]]]:
    if not samples:
        return
    begin, end = samples[0].timestamp, samples[-1].timestamp
    window = Window(begin, end, WIDTH, HEIGHT, float(time.localtime().tm_gmtoff))
    for chart in CHARTS:
        points = points_of(samples, chart.field, begin, end, is_total=chart.is_total)
        if any(point.value is not None for point in points):
            yield chart._replace(title=f"{name} {chart.title}".strip()), window, points
