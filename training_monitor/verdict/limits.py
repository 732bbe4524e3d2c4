"""The limits from which on a training counts as stalled or slow, and the settings of a watch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from types import MappingProxyType
from typing import Annotated, Any

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_table import (
    MISFIT,
    SWITCH,
    Example,
    Kind,
    Place,
    check_fields,
    items,
    named,
    number,
    read_keys,
    seconds,
    settings_of,
    whole,
)
from training_monitor.core.units import known_number

USUAL_THRESHOLD = 300.0  # seconds; the default of `auto_restart` and similar functions
MOST_SAMPLES = 720  # six hours at one every 30 s
_DETECTION = ("min_samples", "eta_convergence_threshold", "speed_drop_threshold")  # settings of `stall_detection`
Share = Annotated[float, number("a share between 0 and 1", above=0, below=1)]
Samples = Annotated[int, whole(f"a whole number from 2 to {MOST_SAMPLES}", least=2, most=MOST_SAMPLES)]
OUTAGE_AFTER = 600.0  # seconds: shorter outages end by themselves, and nobody can act on them
FromZero = Annotated[float, seconds()]
AboveZero = Annotated[float, seconds(above=0)]
Money = Annotated[float, number("a number above 0", above=0)]
_Factor = Annotated[float, number("a number above 0", above=0)]
Count = Annotated[int, whole("a whole number, 0 or more", least=0)]
_PER_CENT = number("a percentage between 0 and 100", above=0, below=100)


def _pause() -> Kind:
    """Return a kind of times that may be endless."""

    def read(value: Any, place: Place) -> Any:
        return value if value == inf or ((known := known_number(value)) is not None and known >= 0) else MISFIT

    return Kind("seconds, 0 or more", read)


_ENDLESS, _UNSEEN, _SHORT, _LONG = _pause(), _pause(), _pause(), _pause()  # pauses: see `stall_policy`


@dataclass(frozen=True, slots=True, repr=False)
class StallPolicy(PublicValue):
    """The limits beyond which a training counts as stalled or slow. Times are in seconds.

    Each `*_pause` is the shortest pause that counts as a hang in one situation. `idle_pause` applies if the GPUs are
    idle and the processes are invisible, `spinning_pause` if the GPUs are busy-waiting, and `quiet_pause` if the
    visible processes neither compute nor write. `log_pause` applies if the log is still growing. `unknown_pause`
    applies if the only evidence is a silent log, or `first_pause` if the run has also never paused before.
    `early_pause` applies while the usual time between steps is unknown, `busy_pause` if a process is working, and
    `startup_pause` before the first step. A hang must also last longer than `pause_factor` times the run's own longest
    pause of that kind, and `cadence_factor` times its usual time between steps. A run is slow below
    `speed_drop_threshold` times its past speed. The ETA of a run converges if, over `eta_seconds` or more, it shrinks
    by at least `eta_convergence_threshold` times the elapsed time.
    """

    min_samples: Samples = 4
    eta_convergence_threshold: Share = 0.5
    speed_drop_threshold: Share = 0.5
    grace_period: Annotated[float, _ENDLESS] = 900.0
    idle_pause: Annotated[float, _UNSEEN] = 560.0
    spinning_pause: Annotated[float, _SHORT] = 120.0
    log_pause: Annotated[float, _UNSEEN] = 400.0
    unknown_pause: Annotated[float, _UNSEEN] = 320.0
    busy_pause: Annotated[float, _LONG] = 1800.0
    startup_pause: Annotated[float, _LONG] = 1800.0
    pause_factor: _Factor = 2.2
    cadence_factor: _Factor = 3.0
    warmup_steps: Count = 4
    warmup_seconds: FromZero = 120.0
    slow_seconds: FromZero = 300.0
    quiet_pause: Annotated[float, _SHORT] = 135.0
    eta_seconds: FromZero = 900.0
    early_pause: Annotated[float, _SHORT] = 900.0
    first_pause: Annotated[float, _SHORT] = 480.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def shortest_pause(self) -> float:
        """Return the duration of the shortest pause that can count as a hang."""
        return min(float(getattr(self, name)) for name in _pauses(_UNSEEN, _SHORT, _LONG))


@cache
def _pauses(*kinds: Kind) -> tuple[str, ...]:
    """Return the fields of StallPolicy of these kinds."""
    return tuple(each.field for each in settings_of(StallPolicy).values() if each.kind in kinds)


DEFAULT_POLICY = StallPolicy()


def stall_policy(stagnation_threshold: float | None = None, **others: Any) -> StallPolicy:
    """Return the limits for a caller's `stagnation_threshold` in seconds; None: the defaults.

    The threshold is the shortest pause that counts as a stall, and four times as long while GPUs or processes work, or
    before the first step. From 300 s on, the default of the functions that take it, it does not shorten pauses that may
    be an evaluation or a save that cannot be seen. `others` are fields of `StallPolicy`.
    """
    if stagnation_threshold is None:
        return StallPolicy(**others)
    pauses = dict.fromkeys(_pauses(_UNSEEN, _SHORT), stagnation_threshold)
    if stagnation_threshold >= USUAL_THRESHOLD:
        pauses |= {name: max(stagnation_threshold, getattr(DEFAULT_POLICY, name)) for name in _pauses(_UNSEEN)}
    return StallPolicy(**{**pauses, **dict.fromkeys(_pauses(_LONG), 4 * stagnation_threshold), **others})


_known_policy = lru_cache(maxsize=16)(stall_policy)  # each judgement asks for one


@dataclass(frozen=True, slots=True, repr=False)
class WatchConfig(PublicValue):
    """How a run is watched. Times are in seconds, and costs in any one currency.

    Attributes:
        poll_interval: time between two looks.
        grace_period: a notice is sent when a run stalls. If stalls are terminated and the run has not recovered after
            this time, it is terminated.
        stall_detection: whether to detect stalls.
        min_samples: number of looks that are needed before a run can count as stalled or slow.
        eta_convergence_threshold: a run is slow if its ETA shrinks by less than this share of the elapsed time.
        speed_drop_threshold: a run is slow below this share of its past speed.
        stop_grace: time between SIGTERM and SIGKILL.
        stall_after: the shortest time without a step that counts as a stall, or four times as long while the GPUs or
            the log show activity, or before the first step; None: derived from the evidence (see `StallPolicy`).
        soft_limit: a notice is sent after this run time; None: no limit.
        hard_limit: the run is terminated after this run time; None: no limit.
        cost_per_hour: cost of the machine per hour; None: unknown.
        budget: a notice is sent when this amount has been spent; None: no limit.
        milestones: a notice is sent at each of these percentages of the steps.
        outage_after: a notice is sent when the target or the local state folder has been unavailable for this long.
        terminate_busy: if stalls are terminated, also terminate a run that hangs but shows signs of work, such as busy
            GPUs.
        terminate_on_eta: if stalls are terminated, also terminate a run whose ETA does not converge, whatever its
            speed.
    """

    poll_interval: AboveZero = 60.0
    grace_period: FromZero = DEFAULT_POLICY.grace_period
    stall_detection: Annotated[bool, SWITCH] = True
    min_samples: Samples = DEFAULT_POLICY.min_samples
    eta_convergence_threshold: Share = DEFAULT_POLICY.eta_convergence_threshold
    speed_drop_threshold: Share = DEFAULT_POLICY.speed_drop_threshold
    stop_grace: FromZero = 10.0
    stall_after: Annotated[AboveZero, Example("30m")] | None = None
    soft_limit: Annotated[AboveZero, Example("8h")] | None = None
    hard_limit: Annotated[AboveZero, Example("12h")] | None = None
    cost_per_hour: Annotated[Money, Example(2.5)] | None = None
    budget: Annotated[Money, Example(50)] | None = None
    milestones: Annotated[tuple[float, ...], items(_PER_CENT, _PER_CENT.expected, least=0)] = (25, 50, 75)
    outage_after: FromZero = OUTAGE_AFTER
    terminate_busy: Annotated[bool, SWITCH] = False
    terminate_on_eta: Annotated[bool, SWITCH] = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.soft_limit and self.hard_limit and self.soft_limit > self.hard_limit:
            raise SettingsError("soft_limit", self.soft_limit, f"at most the hard limit ({self.hard_limit:g})")

    @property
    def stall_policy(self) -> StallPolicy:
        shared = {name: getattr(self, name) for name in (*_DETECTION, "grace_period")}
        return _known_policy(self.stall_after, **shared)


def read_watch_config(*tables: Mapping[str, Any]) -> WatchConfig:
    """Read a configuration from settings tables; later tables override earlier ones, None counts as missing.

    `stall_detection` is true, false, or a table of enabled, min_samples, eta_convergence_threshold and
    speed_drop_threshold. Raises SettingsError, also for an unknown key.
    """
    place, values = Place(), dict[str, Any]()
    for table in tables:
        values.update(_read_fields(table, place))
    place.expect_none()
    return WatchConfig(**values)


def read_monitoring(table: object, place: Place, label: str = "") -> dict[str, Any]:
    """Read the table `monitoring`, including its overrides for single jobs in `jobs`.

    Args:
        table: as in the file.
        place: where the table is; faults are noted there.
        label: of a job.

    Returns:
        The fields of the job's WatchConfig.
    """
    if not isinstance(table, Mapping):
        place.note(table, "a table of settings")
        return {}
    own = _read_fitting({key: table[key] for key in table if key != "jobs"}, place)
    general = {} if own is MISFIT else own

    def read_job(value: Any, at: Place) -> Any:
        return _read_fitting(value, at, general) if isinstance(value, Mapping) else MISFIT

    jobs = named(lambda name: Kind("a table of settings", read_job), "a table of settings for each job")
    found = (place / "jobs").read(jobs, {} if table.get("jobs") is None else table["jobs"])
    return {} if found is MISFIT else {**general, **found.get(label, {})}


def _read_fitting(table: Mapping[str, Any], place: Place, below: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Return the fields that a table sets; MISFIT if they do not fit together with those they override."""
    before, own = len(place.faults), _read_fields(table, place)
    if len(place.faults) > before:
        return MISFIT
    try:
        WatchConfig(**{**below, **own})
    except SettingsError as error:
        blamed = next(key for key in (error.key, "hard_limit") if key in own)
        return (place / blamed).note(error.value, error.expected)
    return own


def _read_fields(table: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the fields that a table sets, including those in its table `stall_detection`."""
    settings, detection = settings_of(WatchConfig), table.get("stall_detection")
    if not isinstance(detection, Mapping):
        return read_keys(settings, table, place)
    others = {key: value for key, value in table.items() if key != "stall_detection"}
    nested = {"enabled": settings["stall_detection"]}
    nested |= {key: settings[key] for key in _DETECTION}
    return {**read_keys(settings, others, place), **read_keys(nested, detection, place / "stall_detection")}
