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


@dataclass(frozen=True, slots=True, repr=False)
class MemberSpec(PublicValue):
    """What to watch: a target, and which training there.

    Attributes:
        target: where it runs.
        job: a job id there (a Ray submission id or process:NAME); None: the log tells.
        log_paths: without a job, the newest file that matches one of these shell patterns on the target is its log;
            empty: those of the configuration.
        name: the display name; None: the target.
        groups: the groups that it is in.
    """

    target: Annotated[str, _TEXT]
    job: Annotated[str, JOB_ID] | None = None
    log_paths: Annotated[tuple[str, ...], LOG_PATHS] = ()
    name: Annotated[str, _TEXT] | None = None
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its unique key."""
        which = self.job or next(iter(self.log_paths), None)
        return f"{self.target}#{which}" if which else self.target

    @property
    def which(self) -> str | None:
        """A short form of what distinguishes it on its target: its job, or the end of its log's path."""
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
    """An event of one member of a fleet (`key`; empty: of the fleet).

    level: info | warning | error. kind: epoch | finished | failed | lost | stall | recovered | nan | divergence |
    spike | disk | price | budget | credit | stopped | destroyed | started | rebooted | gone (by itself) | refused |
    rule:NAME, and over:KIND where one of them has ended. `text` does not name the member.
    `(key, kind, generation)` identifies the event, also across restarts of the monitor: `generation` is the completed
    epoch or the step of the stall, plus 2**32 times the number of the run. `ended` is when it was seen to be over,
    epoch seconds; None while it continues, and for events without duration. `acknowledged`: a person has seen it.
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
        """What identifies the event."""
        return self.key, self.kind, self.generation


@dataclass(frozen=True, slots=True, repr=False)
class FleetSummary(PublicValue):
    """The sums of a fleet; money in dollars, None means unknown.

    Attributes:
        levels: how many members are healthy, warning, error, unknown.
        dollars_per_hour: sum of the known prices; `unpriced` counts the rented machines without one.
        dollars_spent: sum of the known costs of the members shown since their rentals began; `without_total` counts
            their rented machines without one.
        credit: of the account; `credit_hours`: how long it lasts at this rate, None if unknown; an upper bound when
            some are `unpriced`.
        dollars_to_completion: the cost of the rest of the trainings with an ETA and a price; `without_price` counts the
            rented machines with an ETA and no price.
        seconds_to_completion: until the last of them ends; `without_eta` counts running ones without an ETA.
        hidden: instances of the account that are not shown, and their known cost per hour.
        left_out: trainings that were found on the members' targets and are not shown: one shows 20 beside its own.
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
    """The state of a fleet at `timestamp`; times are epoch seconds.

    `rows` are in a stable order, `alerts` oldest first, the last 200. `refreshing`: a look is in progress. `listed_at`
    is when the account's instances were last listed; `error` is why the last listing failed, and `stale_since` since
    when; None while it works, or without an account. `late` is for how many seconds beyond `interval` a member that
    answers has waited for its look, the longest of all; 0 when all are in time, None before the first answer.
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
        """The words for looks that are late by half an interval or more; "" for others."""
        if self.late is None or self.late < self.interval / 2:
            return ""
        every = format_duration(self.interval)
        return f"checks are {format_duration(self.late)} late: too many members to check every {every}"


_KEPT = sorted((each for each in FLEET_COLUMNS if each.name), key=lambda each: each.place)
# Names in samples, history, rules and exports, and the fields of TrainingMetrics; all are numbers.
REPORTED = {each.name: each.attribute for each in _KEPT}


@dataclass(frozen=True, slots=True, repr=False)
class FleetSample(PublicValue):
    """The values of one member at one moment (epoch seconds), by the names of `REPORTED`; None means unknown."""

    timestamp: float
    values: Mapping[str, float | None]
    status: str | None = None


def sample_of(metrics: TrainingMetrics, timestamp: float) -> FleetSample:
    """Return the sample of a row, without values that are only known from before."""
    return FleetSample(timestamp, {each.name: each.now(metrics) for each in _KEPT}, metrics.status)
