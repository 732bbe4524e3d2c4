"""Frozen values of a fleet: specs, readings, alerts, sums, snapshots and samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from training_monitor.core.fields import PublicValue
from training_monitor.core.models import Gpu
from training_monitor.core.settings_table import items, text
from training_monitor.core.units import format_duration
from training_monitor.core.values import KeptRollCall, TrainingStatus
from training_monitor.fleet.metrics import FLEET_COLUMNS, TrainingMetrics

JOB_ID = text(
    "a Ray submission id, or process:NAME", r"process:[A-Za-z0-9][A-Za-z0-9._-]{0,127}|(?!process:|-)[!\"$-.0-~]{1,256}"
)
LOG_PATHS = items(text("a list of paths or shell patterns"), "a list of paths or shell patterns")
_TEXT = text("a non-empty string")
MOST_BESIDE = 20  # trainings beside a member, running ones first, that are looked at


@dataclass(frozen=True, slots=True, repr=False)
class MemberSpec(PublicValue):
    """A member of a fleet: a target, and which training on it to watch.

    Attributes:
        target: where the training runs.
        job: the ID of the training's job on the target (a Ray submission ID or process:NAME); None: the training is
            found by its log.
        log_paths: shell patterns on the target. Without a job, the newest file that matches one of them is the log.
            Empty: the patterns of the configuration are used.
        name: the display name; None: the target is displayed.
        groups: the groups that contain this member.
    """

    target: Annotated[str, _TEXT]
    job: Annotated[str, JOB_ID] | None = None
    log_paths: Annotated[tuple[str, ...], LOG_PATHS] = ()
    name: Annotated[str, _TEXT] | None = None
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the unique key of the member."""
        which = self.job or next(iter(self.log_paths), None)
        return f"{self.target}#{which}" if which else self.target

    @property
    def which(self) -> str | None:
        """Return what distinguishes the member on its target, in short: its job, or the end of its log's path."""
        return self.job or next(("/".join(path.split("/")[-2:]) for path in self.log_paths), None)


MOST_RUN = 2**20


@dataclass(frozen=True, slots=True)
class TargetReading:
    """The result of one round trip to a member at `timestamp` (epoch seconds); per cent, None means unknown.

    `absent` says why the job or log is not there, or not any more: `status` is then an earlier one. `run` is a number
    below MOST_RUN for the process or job, 0 if unknown. `log_age` is the seconds between the last write to its log and
    the look. `explained` is the last roll call before it, or an earlier attempt of it, was ended.
    """

    timestamp: float
    status: TrainingStatus
    gpus: tuple[Gpu, ...] = ()
    disk_percent: float | None = None
    ram_percent: float | None = None
    log_lines: tuple[str, ...] = field(default=(), repr=False)
    extra: Mapping[str, float] = field(default_factory=dict)
    absent: str | None = None
    run: int = 0
    log_age: float | None = None
    explained: KeptRollCall | None = None


@dataclass(frozen=True, slots=True, repr=False)
class FleetAlert(PublicValue):
    """An event of one member of a fleet (`key`), or of the whole fleet if `key` is empty.

    `level` is info | warning | error. `kind` is epoch | finished | failed | lost | stall | recovered | nan | divergence
    | spike | disk | price | budget | credit | stopped | destroyed | started | rebooted | gone (not destroyed by the
    fleet) | refused | rule:NAME; over:KIND reports the end of an earlier event. `text` does not contain the name of the
    member.

    `(key, kind, generation)` identifies the event, even after a restart of the monitor. `generation` is the completed
    epoch or the step of the stall, plus 2**32 times the number of the run. `ended` is the time at which the event was
    found to have ended, in epoch seconds; None while the event continues, and for events without a duration.
    `acknowledged` is true if a person has seen the event.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("timestamp", "key", "level", "kind", "text", "ended", "acknowledged")
    timestamp: float
    key: str
    kind: str
    text: str
    level: str = "warning"
    generation: int = 0
    ended: float | None = None
    acknowledged: bool = False

    @property
    def identity(self) -> tuple[str, str, int]:
        """Return the values that identify the event."""
        return self.key, self.kind, self.generation


@dataclass(frozen=True, slots=True, repr=False)
class FleetSummary(PublicValue):
    """The totals of a fleet, in dollars and seconds. None means unknown.

    Attributes:
        levels: the number of members that are healthy, warning, error and unknown.
        dollars_per_hour: sum of the known prices. unpriced: number of rented machines whose price is unknown.
        dollars_spent: sum of the known costs of the displayed members since their rentals began. without_total: number
            of their rented machines whose cost is unknown.
        credit: the credit of the account. credit_hours: how long the credit lasts at this rate; None if unknown, and an
            upper bound if some prices are unknown.
        dollars_to_completion: the remaining cost of all trainings that have an ETA and a price. without_price: number
            of rented machines that have an ETA but no price.
        seconds_to_completion: time until the last of these trainings ends. without_eta: number of running trainings
            that have no ETA.
        hidden, hidden_dollars_per_hour: number of instances of the account that are not displayed, and their known cost
            per hour.
        left_out: number of trainings that were found on the members' targets but are not displayed, because at most 20
            are displayed for each member in addition to its own.
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    dollars_per_hour: float = 0.0
    unpriced: int = 0
    dollars_spent: float = 0.0
    without_total: int = 0
    credit: float | None = None
    credit_hours: float | None = None
    dollars_to_completion: float | None = None
    seconds_to_completion: float | None = None
    without_price: int = 0
    without_eta: int = 0
    hidden: int = 0
    hidden_dollars_per_hour: float = 0.0
    left_out: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class FleetSnapshot(PublicValue):
    """The state of a fleet at `timestamp`. All times are epoch seconds.

    `rows` are in a stable order. `alerts` are the last 200 alerts, oldest first. `refreshing` is true while a look is
    in progress. `listed_at` is the time at which the account's instances were last listed. `error` is the reason why
    the last listing failed, and `stale_since` is the time of the first failure; both are None if the last listing
    succeeded, or if there is no account. `late` is the longest delay of any responding member's query: the number of
    seconds by which it exceeds `interval`. `late` is 0 if all members are on time, and None before the first response.
    """

    timestamp: float
    rows: tuple[TrainingMetrics, ...] = ()
    summary: FleetSummary = FleetSummary()
    alerts: tuple[FleetAlert, ...] = ()
    groups: tuple[str, ...] = ()
    interval: float = 10.0
    paused: bool = False
    refreshing: bool = False
    listed_at: float | None = None
    error: str | None = None
    stale_since: float | None = None
    late: float | None = None

    @property
    def lateness(self) -> str:
        """Return a sentence about looks that are late by half an interval or more; "" if there are none."""
        if self.late is None or self.late < self.interval / 2:
            return ""
        every = format_duration(self.interval)
        return f"checks are {format_duration(self.late)} late: too many members to check every {every}"


_KEPT = sorted((each for each in FLEET_COLUMNS if each.name), key=lambda each: each.place)
# Names in samples, history, rules and exports, and the fields of TrainingMetrics; all are numbers.
REPORTED = {each.name: each.attribute for each in _KEPT}


@dataclass(frozen=True, slots=True, repr=False)
class FleetSample(PublicValue):
    """The values of one member at `timestamp` (epoch seconds), by the names in `REPORTED`; None means unknown."""

    timestamp: float
    values: Mapping[str, float | None]
    status: str | None = None


def sample_of(metrics: TrainingMetrics, timestamp: float) -> FleetSample:
    """Return the sample of a row, without values that are only known from before."""
    return FleetSample(timestamp, {each.name: each.now(metrics) for each in _KEPT}, metrics.status)
