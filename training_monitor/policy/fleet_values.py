"""Frozen values of a fleet: what is watched, what is known of all of it at one moment, and what happened. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from training_monitor.models import Gpu
from training_monitor.policy.training_metrics import TrainingMetrics
from training_monitor.watching import TrainingStatus


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """One thing to watch: a target, and which training there.

    `job` is a job id there (a Ray submission id or process:NAME); without one, the newest file that matches one of
    `log_paths` (shell patterns on the target; empty: those of the configuration) is its log. `name` is what people call
    it, `groups` those it is in.
    """

    target: str
    job: str | None = None
    log_paths: tuple[str, ...] = ()
    name: str | None = None
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from all others."""
        which = self.job or next(iter(self.log_paths), None)
        return f"{self.target}#{which}" if which else self.target

    @property
    def which(self) -> str | None:
        """What tells it from others on its target, short: its job, or the end of its log's path."""
        return self.job or next(("/".join(path.split("/")[-2:]) for path in self.log_paths), None)


MOST_RUN = 2**20


@dataclass(frozen=True, slots=True)
class TargetReading:
    """What one round trip to a member found at `timestamp` (epoch seconds); per cent, None is not known.

    `absent` says that there is no such job, or no log, or none any more: `status` is of before then. `run` is a
    number below MOST_RUN for the training that was started, 0 where nobody knows which. `log_age` is how many seconds
    before the look its log was written to.
    """

    timestamp: float
    status: TrainingStatus
    gpus: tuple[Gpu, ...] = ()
    disk_percent: float | None = None
    ram_percent: float | None = None
    log_lines: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    absent: str | None = None
    run: int = 0
    log_age: float | None = None


@dataclass(frozen=True, slots=True)
class FleetAlert:
    """Something that happened to one member of a fleet (`key`; empty: to the fleet).

    level: info | warning | error. kind: epoch | finished | failed | lost | stall | recovered | nan | divergence |
    spike | disk | price | budget | credit | stopped | destroyed | gone (by itself) | refused | rule:NAME. `text` does
    not name the member.
    `(key, kind, generation)` names what happened, also after the monitor was started again: `generation` counts the
    epoch that is done or the step at which a run stalls, and from 2**32 on which run that is.
    """

    timestamp: float
    key: str
    kind: str
    text: str
    level: str = "warning"
    generation: int = 0


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """What a fleet comes to; money in dollars, None is not known.

    Attributes:
        levels: how many members are healthy, warning, error, unknown.
        dollars_per_hour: of what has a price; `unpriced` is of how many rented machines nobody knows it.
        dollars_spent: by the members shown since their rentals began, as far as it is known; `without_total` is of how
            many rented machines among them it is not.
        credit: of the account; `credit_hours`: how long it lasts at this rate, None when nobody knows; at most that
            when some are `unpriced`.
        dollars_to_completion: what the rest of the trainings with an ETA and a price will cost; `without_price` is how
            many have an ETA, and nobody knows what their rented machine costs.
        seconds_to_completion: until the last of them; `without_eta`: how many run and have none.
        hidden: instances of the account that are not shown, and what they cost in an hour, as far as that is known.
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


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All that is known of a fleet at `timestamp`; times are epoch seconds.

    `rows` in a stable order; `alerts` oldest first, the last 200. `refreshing` says that something is being asked.
    `listed_at` is when the account's instances were last listed; `error` is why the last listing failed, and
    `stale_since` since when; None while it works, or where nothing is listed.
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


# What samples, history, rules and exports call a value of TrainingMetrics; all are numbers.
REPORTED = {
    "gpu_utilization": "gpu_util",
    "memory_utilization": "memory_util",
    "disk_utilization": "disk_util",
    "ram_utilization": "ram_util",
    "gpu_power": "gpu_power",
    "gpu_temperature": "gpu_temperature",
    "step": "step",
    "epoch": "epoch",
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "steps_per_second": "steps_per_second",
    "eta_seconds": "eta_seconds",
    "cost_per_hour": "cost_per_hour",
    "total_cost": "total_cost",
    "runtime_seconds": "runtime_seconds",
}


@dataclass(frozen=True, slots=True)
class FleetSample:
    """What was seen of one member at one moment (epoch seconds), by the names of `REPORTED`; None is not known."""

    timestamp: float
    values: Mapping[str, float | None]
    status: str | None = None


OF_TRAINING = ("step", "epoch", "loss", "learning_rate", "grad_norm")


def sample_of(metrics: TrainingMetrics, timestamp: float) -> FleetSample:
    """What is remembered of a row: nothing that is only known of before."""
    gone = OF_TRAINING if metrics.absent is not None else ()
    values = {name: None if name in gone else getattr(metrics, field) for name, field in REPORTED.items()}
    values["eta_seconds"] = metrics.seconds_left()
    return FleetSample(timestamp, values, metrics.status)


class Fleet(Protocol):
    """What a screen shows: a fleet monitor, or the mock of one. No method waits for anything outside."""

    def start(self) -> None:
        """Begin to ask, in the background."""
        ...

    def close(self) -> None:
        """Ask no more; what is under way is not waited for."""
        ...

    def snapshot(self) -> FleetSnapshot:
        """What is known now."""
        ...

    def refresh(self) -> None:
        """Ask at once, also while paused."""
        ...

    def set_paused(self, paused: bool) -> None:
        """Ask no more until it is set False."""
        ...

    def clear_logs(self) -> None:
        """Forget the log lines shown so far."""
        ...

    def recent(self, key: str) -> tuple[FleetSample, ...]:
        """What was seen of a member, oldest first: the last hours at most."""
        ...

    def act(self, action: str, keys: Sequence[str]) -> None:
        """Begin to `stop` or `destroy` members; what comes of it is told as alerts."""
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on, from any thread, when a new snapshot is worth showing."""
        ...
